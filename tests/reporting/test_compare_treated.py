"""`compare before after --treated … --control …`: an upgrade of some nodes, on made histories."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from scipy import stats

from reporting.__main__ import main
from reporting.compare.contrast import side_by_side
from reporting.compare.treated import TreatedEffect, effect_of
from reporting.history.envelope import Envelope
from tests.reporting.campaigns import on_nodes, site_with
from tests.reporting.gate_nights import METRIC

Capture = pytest.CaptureFixture[str]

TREATED = ("n01", "n02", "n03", "n04")
CONTROL = ("n05", "n06", "n07", "n08")
NODES = dict(zip((*TREATED, *CONTROL), (100.0, 101.0, 99.0, 100.5, 100.2, 99.5, 101.3, 98.8), strict=True))
CHANCE = dict(zip((*TREATED, *CONTROL), (0.003, -0.002, 0.0, 0.001, -0.001, 0.002, 0.0, -0.002), strict=True))
UPGRADE = -0.04


def values(day: float, upgrade: float = 0.0, chance: float = 1.0, nodes: Sequence[str] = ()) -> dict[str, float]:
    """The values of a session: the node's own level, what the day does to all, the upgrade, and chance."""
    found = {}
    for node in nodes or NODES:
        log = day + chance * CHANCE[node] + (upgrade if node in TREATED else 0.0)
        found[node] = NODES[node] * math.exp(log)
    return found


def tuesday(number: int = 1, day: float = 0.03, **options: float) -> list[Envelope]:
    """The session after the upgrade: all nodes are 3 % faster by the day, the treated ones 4 % slower."""
    return on_nodes(number, "after", values(day, UPGRADE, **options), upgraded=TREATED)


def effect(before: Sequence[Envelope], after: Sequence[Envelope]) -> TreatedEffect:
    (contrast,) = side_by_side(before, after).found
    found = effect_of(contrast, frozenset(TREATED), frozenset(CONTROL))
    assert isinstance(found, TreatedEffect)
    return found


def compare(site: Path, *words: str) -> int:
    groups = ["--treated=n01..n04", "--control=n05..n08"]
    return main(["compare", f"--site={site}", "before", "after", *groups, *words])


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """One session before and one after an upgrade of four nodes of eight."""
    return site_with(tmp_path / "centre", [*on_nodes(0, "before", values(0.0, chance=0.0)), *tuesday()])


def test_one_session_a_side_has_a_verdict_since_the_day_cancels(site: Path, capsys: Capture) -> None:
    assert compare(site) == 1
    out = capsys.readouterr().out
    assert out.splitlines()[0] == (
        "deepcam, a100-1x4gpu-tuned: -3.8 % [-4.2, -3.5] on the treated nodes beyond the control nodes, "
        "all of it in the device step; input unchanged; changed: driver 570.124 -> 580.65"
    )
    assert "treated       -0.95 %, the geometric mean of 4 nodes" in out
    assert "control       +3.02 %, the geometric mean of 4 nodes" in out
    assert "n01  99.30 / 100.00: -0.70 %" in out
    assert "effect        -3.85 % = (1 - 0.00946) / (1 + 0.03020) - 1" in out
    assert "changed       driver 570.124 -> 580.65, on the treated nodes alone" in out


def test_the_interval_is_that_of_welch_over_the_changes_of_the_nodes() -> None:
    found = effect(on_nodes(0, "before", values(0.0, chance=0.0)), tuesday())
    changes = {node.node: node.log for node in (*found.treated.nodes, *found.control.nodes)}
    treated = [changes[node] for node in TREATED]
    control = [changes[node] for node in CONTROL]
    welch = stats.ttest_ind(treated, control, equal_var=False).confidence_interval(0.95)
    assert (found.interval.low, found.interval.high) == pytest.approx((math.expm1(welch.low), math.expm1(welch.high)))
    assert found.effect == pytest.approx(found.interval.change)
    assert found.effect == pytest.approx(math.expm1(UPGRADE + 0.002 / 4 + 0.001 / 4))


@pytest.mark.parametrize("day", [-0.2, 0.0, 0.2])
def test_whatever_the_day_does_to_all_nodes_cancels(day: float) -> None:
    before = on_nodes(0, "before", values(0.0, chance=0.0))
    assert effect(before, tuesday(day=day)).effect == pytest.approx(effect(before, tuesday()).effect)


def test_several_sessions_of_a_side_are_one_change_of_each_node() -> None:
    before = [job for number in (0, 1) for job in on_nodes(number, "before", values(0.01 * number, chance=0.0))]
    found = effect(before, [*tuesday(2), *tuesday(3, day=-0.03)])
    assert list(found.by_session_before) == ["night-000", "night-001"]
    assert found.of_sessions is None
    assert found.effect == pytest.approx(math.expm1(UPGRADE + 0.002 / 4 + 0.001 / 4))


def test_from_three_sessions_a_side_on_groups_that_drift_apart_widen_the_interval() -> None:
    before = []
    after = []
    for number, apart in enumerate((0.02, -0.02, 0.0)):
        for side, upgrade, jobs in ((before, 0.0, number), (after, UPGRADE, number + 5)):
            label = "before" if side is before else "after"
            side += on_nodes(jobs, label, values(0.01 * number, upgrade + apart))
    found = effect(before, after)
    assert found.of_nodes.error < 0.001
    assert found.interval == found.of_sessions
    assert found.verdict == "unclear"


def test_a_node_without_a_run_in_a_session_and_a_session_with_few_nodes_are_left_out(
    tmp_path: Path, capsys: Capture
) -> None:
    without = [node for node in NODES if node != "n04"]
    first = on_nodes(0, "before", values(0.0, chance=0.0, nodes=without))
    killed = on_nodes(1, "before", {"n01": 50.0, "n05": 50.0})
    site = site_with(tmp_path, [*first, *killed, *tuesday(2)])
    assert compare(site) == 1
    out = capsys.readouterr().out
    assert "3 + 4" in out
    assert "left out are treated nodes without a run in each session: n04" in out
    assert "before, left out are sessions that miss more than half of a group's nodes: night-001" in out


def test_one_node_alone_has_no_verdict(tmp_path: Path, capsys: Capture) -> None:
    site = site_with(tmp_path, [*on_nodes(0, "before", values(0.0, chance=0.0)), *tuesday()])
    words = ["--treated=n01", "--control=n05..n08"]
    assert main(["compare", f"--site={site}", "before", "after", *words]) == 0
    out = capsys.readouterr().out
    assert "no verdict: one treated node alone does not say how much the change varies from node to node" in out


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        (
            ("n01..n04", "n91..n95"),
            "no comparable run was on the control nodes alone; there are: n01, n02, n03 and 5 more",
        ),
        (("n91", "n05..n08"), "no comparable run was on the treated nodes"),
    ],
)
def test_groups_without_runs_are_said(site: Path, groups: tuple[str, str], message: str, capsys: Capture) -> None:
    words = [f"--treated={groups[0]}", f"--control={groups[1]}"]
    assert main(["compare", f"--site={site}", "before", "after", *words]) == 2
    assert message in capsys.readouterr().err


def test_groups_that_never_ran_in_one_session_are_said(tmp_path: Path, capsys: Capture) -> None:
    halves: Mapping[int, Sequence[str]] = {0: TREATED, 1: CONTROL}
    before = [job for number, nodes in halves.items() for job in on_nodes(number, "before", values(0.0, nodes=nodes))]
    assert compare(site_with(tmp_path, [*before, *tuesday(4)])) == 2
    assert "before, no session has at least half of the treated nodes and half" in capsys.readouterr().err


def test_what_changed_on_the_control_nodes_too_is_said(tmp_path: Path, capsys: Capture) -> None:
    after = on_nodes(1, "after", values(0.0, UPGRADE), upgraded=NODES)
    compare(site_with(tmp_path, [*on_nodes(0, "before", values(0.0, chance=0.0)), *after]))
    first = capsys.readouterr().out.splitlines()[0]
    assert first.endswith("; input unchanged; changed on the control nodes, too: driver 570.124 -> 580.65")


def test_json_has_the_effect_and_what_changed_where(site: Path, capsys: Capture) -> None:
    compare(site, "--format=json")
    (content,) = json.loads(capsys.readouterr().out)["rows"]
    assert (content["metric"], content["nodes_treated"]) == (METRIC, 4)
    assert content["effect_fraction"] == pytest.approx(-0.03848, abs=1e-5)
    assert (content["changed_on_treated"], content["changed_on_control"]) == ("driver 570.124 -> 580.65", "")


def declared(runs: Sequence[Envelope], treated: Sequence[str]) -> list[Envelope]:
    """The same runs, as sessions record them that know the groups."""
    found = []
    for run in runs:
        group = "treated" if run.nodes[0] in treated else "control"
        found.append(replace(run, provenance={**run.provenance, "group": group}))
    return found


def test_groups_that_are_not_those_of_the_sessions_are_said(tmp_path: Path, capsys: Capture) -> None:
    before = on_nodes(0, "before", values(0.0, chance=0.0))
    site = site_with(tmp_path, declared([*before, *tuesday()], TREATED))
    assert compare(site) == 1
    printed = capsys.readouterr()
    assert "warning" not in printed.err
    assert "group" not in printed.out.partition("before:")[0]
    assert main(["compare", f"--site={site}", "before", "after", "--treated=n05..n08", "--control=n01..n04"]) == 0
    err = capsys.readouterr().err
    assert "warning: --treated names n05, n06, n07 and 1 more, and sessions have measured them as control nodes" in err
    assert "(night-000, night-001): are the two lists swapped?" in err
