"""Where slow runs lay and what their network cards counted: named where chance does not explain it, else not."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from platforms.job import Metric
from reporting.__main__ import main
from reporting.compare.causes import causes_of
from reporting.compare.network import far_counts
from reporting.compare.placement import chance
from reporting.fleet.in_common import seen
from reporting.fleet.node_runs import node_jobs, node_runs
from reporting.fleet.nodes import records_of
from reporting.history.envelope import Envelope
from reporting.history.envelope_json import from_line, to_line
from reporting.history.nights import NOON
from tests.reporting.campaigns import site_with
from tests.reporting.fleet_history import NODES, fleet_nights
from tests.reporting.gate_nights import METRIC, run, verdict_on
from tests.reporting.test_node_facts import HOST, envelope, foreign

WOBBLE = (0.0, 1.0, -1.0, 0.5, -0.5)
DRIVER = {"driver": "570.124"}


def placed(number: int, value: float, switches: Sequence[str], **changes: Any) -> Envelope:
    """A run on four nodes of its own."""
    nodes = ",".join(f"n{4 * number + node:03}" for node in range(4))
    provenance = {"nodes": nodes, "switch": ", ".join(switches), **DRIVER}
    return run(number, value + WOBBLE[number % 5], provenance=provenance, **changes)


def under_one(numbers: range, value: float = 475.0) -> list[Envelope]:
    return [placed(number, value, [f"s.leaf{number % 4}"]) for number in numbers]


def over_two(numbers: range, value: float = 412.0) -> list[Envelope]:
    return [placed(number, value, [f"s.leaf{number % 4}", f"s.leaf{(number + 1) % 4}"]) for number in numbers]


def test_the_chance_is_that_of_the_hypergeometric_distribution() -> None:
    assert chance(5, 5, 6, 23) == pytest.approx(6 / math.comb(23, 5))
    assert chance(0, 5, 6, 23) == pytest.approx(1)


def test_slow_runs_that_lay_over_more_switches_are_named() -> None:
    before = [*under_one(range(17)), *over_two(range(17, 18), 475.0)]
    causes = causes_of(before, over_two(range(18, 23)))
    assert causes.seen == (
        "all 5 slow runs lay over 2 switches, and 1 of the 18 others (medians of runs with and without this: "
        "412.2 and 475.0 samples/s)",
    )
    assert causes.sentence().startswith("all 5 slow runs lay over 2 switches")


def test_one_red_night_is_explained_by_the_other_runs_of_its_series() -> None:
    """The runs just before it are too few."""
    past = [(over_two if number in (4, 9, 13) else under_one)(range(number, number + 1))[0] for number in range(30)]
    verdict = verdict_on(over_two(range(30, 31))[0], past)
    assert "all 4 slow runs lay over 2 switches, and 0 of the 27 others" in verdict.text
    assert "othing that is recorded" not in verdict.text


def test_a_slow_switch_is_no_matter_of_how_many_switches_there_are() -> None:
    before = under_one(range(20))
    after = [
        placed(number, 475 if number % 2 else 430, ["s.leaf2", f"s.leaf{3 + number % 2}"]) for number in range(20, 34)
    ]
    (said,) = causes_of(before, after).seen
    assert said.startswith("all 7 slow runs had nodes under switch s.leaf3, and 0 of the 7 others")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (under_one(range(7)), over_two(range(7, 8))),  # once may be chance
        (over_two(range(20)), over_two(range(20, 25), 380.0)),  # they lay so before, too
        (under_one(range(20)), under_one(range(20, 25), 430.0)),
        ([run(number, 475.0) for number in range(20)], [run(number, 412.0) for number in range(20, 25)]),  # Kubernetes
    ],
)
def test_what_chance_or_another_cause_explains_is_not_named(
    before: Sequence[Envelope], after: Sequence[Envelope]
) -> None:
    assert causes_of(before, after).seen == ()


def test_places_that_hold_for_the_same_runs_are_not_named() -> None:
    def at(numbers: range, value: float, node: str) -> list[Envelope]:
        return [
            run(number, value + WOBBLE[number % 5], provenance={"nodes": node, "switch": f"s.of-{node}"})
            for number in numbers
        ]

    assert causes_of(at(range(20), 100.0, "n1"), at(range(20, 28), 90.0, "n2")).seen == ()


def test_a_loss_that_other_runs_have_as_well_is_not_put_down_to_the_placement() -> None:
    """Runs over two switches were always slow. Since a night all runs are slower by less than that."""
    before = [*under_one(range(15)), *over_two(range(15, 20), 412.0)]
    after = [*under_one(range(20, 35), 470.0), *over_two(range(35, 40), 407.0)]
    assert causes_of(before, after).seen == ()


def test_over_how_many_switches_a_job_lay_is_provenance_and_a_selection(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    causes = causes_of(under_one(range(1)), over_two(range(1, 2)))
    assert "changed: switches 1 -> 2" in causes.provenance()
    site = site_with(tmp_path / "centre", [*under_one(range(10)), *over_two(range(10, 15))])
    assert main(["compare", f"--site={site}", "switches=1", "switches=2"]) == 1
    assert "all 5 slow runs lay over 2 switches" in capsys.readouterr().out


def test_of_a_job_whose_nodes_did_not_all_say_their_place_it_is_not_known() -> None:
    job = foreign(nodes=2, place={"switch": "s.leaf1"})
    job["nodes"] = ["n0", "n1"]
    job["node_facts"]["n1"] = {"host": HOST, "place": {"switch": "s.leaf2"}}
    assert envelope(job).provenance["switch"] == "s.leaf1, s.leaf2"
    del job["node_facts"]["n1"]
    assert "switch" not in envelope(job).provenance


# --- counters ---------------------------------------------------------------------------------------------------------


def counted(count: int, other: int = 40, counter: str = "port_xmit_wait", elapsed_s: float = 60.0) -> dict[str, Any]:
    return {"elapsed_s": elapsed_s, "nodes": 4, "most": {counter: ["n07", "mlx5_0/1", count, other]}}


USUAL = [counted(35, 20)] * 3


@pytest.mark.parametrize(
    ("late", "usual", "said"),
    [
        ([counted(12_000)], USUAL, "n07: mlx5_0/1 waited in 12,000 ticks for credits to send, which is"),
        ([counted(12_000)], USUAL[:2], None),  # what is usual is not known
        ([counted(12_000, other=2_000)], USUAL, None),  # another node of the run has many, too
        ([counted(12_000)], [*USUAL, counted(8_000)], None),  # so has an earlier run
        ([counted(12_000)], [*USUAL, counted(800, elapsed_s=6.0)], None),  # in a shorter time
        ([counted(900)], USUAL, None),
        ([counted(1, 0, "link_downed")], USUAL, "n07: mlx5_0/1 lost its link (1 x) (link_downed; other nodes, and"),
        ([counted(12_000, 0, "new_counter")], USUAL, None),  # of an unknown meaning
        ([counted(12_000), counted(40), counted(30)], USUAL, None),  # in one of three slow runs
        ([{}], USUAL, None),
    ],
)
def test_a_counter_far_above_all_others_is_said(
    late: list[dict[str, Any]], usual: list[dict[str, Any]], said: str | None
) -> None:
    found = far_counts(late, usual)
    assert len(found) == (said is not None)
    assert said is None or found[0].startswith(said)


def test_a_counter_is_said_of_a_red_night() -> None:
    past = [run(number, 100 + WOBBLE[number % 5], network=counted(35)) for number in range(20)]
    verdict = verdict_on(run(20, 80.0, network=counted(12_000)), past)
    said = "congestion (port_xmit_wait; other nodes, and other runs in 60 s, at most 40)"
    assert f"waited in 12,000 ticks for credits to send, which is {said}" in verdict.text
    assert "othing that is recorded" not in verdict.text


def test_a_line_of_the_history_has_the_highest_counts_and_stays_short() -> None:
    job = foreign(nodes=512)
    job["nodes"] = list(job["node_facts"])
    for place, node in enumerate(job["nodes"]):
        counts = [f"mlx5_{card}/1 port_xmit_wait {place + card}" for card in range(8)]
        job["node_facts"][node] = {
            "place": {"switch": f"spine1.leaf{place // 16}"},
            "network_counted": {"elapsed_s": 60.0, "counters": 88},
            "network_after": {"list": counts},
        }
    found = envelope(job)
    assert found.network == {
        "elapsed_s": 60.0, "nodes": 512, "most": {"port_xmit_wait": ["n511", "mlx5_7/1", 518, 517]},
    }  # fmt: skip
    line = to_line(found)
    assert len(line) - len(to_line(dataclasses.replace(found, network={}))) < 150
    assert from_line(line).network == found.network
    assert envelope(foreign()).network == {}  # nobody has read the cards: that is not the same as no count


# --- nodes ------------------------------------------------------------------------------------------------------------


def with_network(runs: Sequence[Envelope], slow: str, count: int) -> list[Envelope]:
    """n01 to n06 are under leaf1. Only one node has counted much."""
    found = []
    for one in runs:
        (node,) = one.nodes
        place = "s.leaf1" if node <= "n06" else "s.leaf2" if node <= "n12" else "s.leaf3"
        network = counted(count if node == slow else 30, 0)
        network["most"]["port_xmit_wait"][0] = node
        found.append(dataclasses.replace(one, provenance={"nodes": node, "switch": place}, network=network))
    return found


def test_slow_nodes_under_one_switch_are_said() -> None:
    nodes = [*NODES, *(f"n{number}" for number in range(13, 33))]
    runs = with_network(fleet_nights(3, nodes, dict.fromkeys(nodes[:5], 0.12)), "", 0)
    records = records_of(node_runs(node_jobs(runs), NOON)).values()
    assert list(seen(records, records)) == ["all 5 slow nodes are under s.leaf1, and 1 of the 27 others"]
    few = records_of(node_runs(node_jobs(with_network(fleet_nights(3, nodes, {"n01": 0.12}), "", 0)), NOON)).values()
    assert list(seen(few, few)) == []


@pytest.mark.parametrize(("slow", "said"), [({"n02": 0.12}, 1), ({}, 0)])
def test_a_counter_stands_beside_a_slow_node_and_names_none_by_itself(slow: dict[str, float], said: int) -> None:
    runs = with_network(fleet_nights(3, NODES, slow), "n02", 50_000)
    records = records_of(node_runs(node_jobs(runs), NOON)).values()
    found = list(seen(records, records))
    assert len(found) == said
    assert all(text.startswith("seen on n02: mlx5_0/1 waited in 50,000 ticks for credits to send") for text in found)


def test_of_a_metric_that_is_better_when_lower_the_high_ones_are_slow() -> None:
    def seconds(runs: Sequence[Envelope]) -> list[Envelope]:
        metrics = {one.key: {"t": Metric(1 / one.metrics[METRIC].value, "s", "lower")} for one in runs}
        return [dataclasses.replace(one, metrics=metrics[one.key]) for one in runs]

    (said,) = causes_of(seconds(under_one(range(20))), seconds(over_two(range(20, 25))), metric="t").seen
    assert said.startswith("all 5 slow runs lay over 2 switches")
