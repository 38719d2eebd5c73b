"""The nodes of a platform: how far each is from the others, which one is named, which one is visited next."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from platforms.job import ONLY, Outcome, Role, Trial
from reporting.fleet import visits
from reporting.fleet.node_runs import LevelOfOthers, NodeJob, NodeRuns, node_jobs, node_runs
from reporting.fleet.nodes import NodeRecord, Standing, natural, records_of
from reporting.fleet.sentences import GoNoGo, NodeVisit, go_no_go
from reporting.history.envelope import Envelope
from reporting.history.nights import NOON
from tests.reporting.fleet_history import NODES, fleet_nights, visit
from tests.reporting.gate_nights import METRIC, night, run


def records(envelopes: list[Envelope], nodes: tuple[str, ...] = ()) -> dict[str, NodeRecord]:
    return records_of(node_runs(node_jobs(envelopes), NOON), nodes)


def test_a_slow_node_is_named_after_two_runs_with_numbers_that_can_be_checked():
    found = records(fleet_nights(2, slow={"n07": 0.08}))
    slow = [record for record in found.values() if record.standing is Standing.SLOW]
    assert [record.name for record in slow] == ["n07"]
    # 12 nodes wobble by 0, 1, -1, .5 and -.5 %: the others' median is 100 in both nights. The scale is that of all 24.
    assert [round(change, 4) for run in slow[0].runs if (change := run.change) is not None] == [-0.0708, -0.0892]
    assert slow[0].sentence == "n07 -8.0 % in 2 runs (limit 3.0 %): -7.1 % and -8.9 %"
    assert all(record.standing is Standing.FIT for record in found.values() if record.name != "n07")


def test_one_slow_run_is_a_suspicion_and_a_good_one_after_two_clears_the_node():
    before = fleet_nights(2)
    once = [*before, visit(2, "n07", 92.0)]
    assert records(once)["n07"].standing is Standing.SUSPECT
    assert records(once)["n07"].sentence == "n07 -8.0 % in 1 run (limit 3.0 %): suspect"
    twice = [*once, visit(3, "n07", 92.0)]
    assert records(twice)["n07"].standing is Standing.SLOW
    again = records([*twice, visit(4, "n07", 100.0)])["n07"]
    assert again.standing is Standing.FIT
    assert again.suspicions == 2
    assert again.sentence == ""


def test_two_slow_runs_whose_mean_is_within_the_limit_of_two_leave_the_node_suspect():
    found = record("n07", 0.0, -0.05, -0.05, scale=0.02)  # limits: 4 % for one run, 5.5 % for the mean of two
    assert found.standing is Standing.SUSPECT
    assert found.sentence == "n07 -5.0 % in 2 runs (limit 5.5 %): -5.0 % and -5.0 %: suspect"
    assert record("n07", 0.0, -0.05, -0.061, scale=0.02).standing is Standing.SLOW


def test_a_node_that_is_slow_in_one_test_alone_is_named_with_the_test():
    other = "test_deepcam.py::test_deepcam[eidf_a100-1x4gpu-tuned]"
    runs = [*fleet_nights(3), *fleet_nights(3, slow={"n07": 0.08}, test=other), visit(3, "n07", 100.0)]
    found = records(runs)["n07"]
    assert found.judged[-1].job.test != other
    assert found.standing is Standing.SLOW
    assert found.sentence == "n07 -8.2 % in 2 runs of deepcam (limit 4.6 %): -8.9 % and -7.5 %"


def test_a_slow_night_of_all_nodes_names_none():
    usual = fleet_nights(3)
    slow_night = [visit(3, node, 85.0 + place / 10, hour=22 + place / 60) for place, node in enumerate(NODES)]
    slow_next = [visit(4, node, 85.0 + place / 10, hour=22 + place / 60) for place, node in enumerate(NODES)]
    found = records([*usual, *slow_night, *slow_next])
    assert {record.standing for record in found.values()} == {Standing.FIT}


def single_runs(count: int, first: int, level: float, verdict: dict[str, Any]) -> list[Envelope]:
    """One measured run a night, on four nodes in turn."""
    return [
        run(number, level + number % 3, provenance={"nodes": NODES[number % 4]}, verdicts={METRIC: verdict})
        for number in range(first, first + count)
    ]


def test_a_test_that_has_become_slower_on_all_nodes_names_none():
    since = str(night(30))
    slower = {"kind": "slower", "red": True, "since": since, "confirmation": {}}
    usual = single_runs(30, 0, 100.0, {"kind": "ok", "red": False})
    found = records([*usual, *single_runs(9, 30, 90.0, slower)])
    assert {record.standing for record in found.values()} == {Standing.FIT}
    after = single_runs(9, 39, 90.0, {"kind": "ok", "red": False})  # a person has accepted the level
    found = records([*usual, *single_runs(9, 30, 90.0, slower), *after])
    assert {record.standing for record in found.values()} == {Standing.FIT}


def test_nodes_whose_last_run_was_before_a_repair_are_not_beside_runs_after_it():
    slower = {"kind": "slower", "red": True, "since": str(night(30)), "confirmation": {}}
    ok = {"kind": "ok", "red": False}
    runs = [*single_runs(30, 0, 100.0, ok), *single_runs(9, 30, 90.0, slower)]
    repaired = [
        run(number, 100.0 + number % 3, provenance={"nodes": f"m{number}"}, verdicts={METRIC: ok})
        for number in range(39, 50)
    ]
    found = records([*runs, *repaired])
    assert Standing.SLOW not in {found[node].standing for node in NODES[:4]}


def test_one_slow_run_that_no_repeat_elsewhere_has_confirmed_is_still_beside_those_before():
    usual = single_runs(30, 0, 100.0, {"kind": "ok", "red": False})
    alone = run(
        30,
        90.0,
        provenance={"nodes": "n03"},
        verdicts={METRIC: {"kind": "slower", "red": True, "since": str(night(30))}},
    )
    assert records([*usual, alone])["n03"].standing is Standing.SUSPECT


def test_without_enough_nodes_in_the_night_the_nearest_runs_of_other_nodes_are_the_level():
    single = [visit(number, NODES[number % 4], 100.0 + number % 3) for number in range(40)]
    runs = node_runs(node_jobs([*single, visit(40, "n09", 92.0)]), NOON)
    assert runs[-1].beside == "20 runs of other nodes"
    assert runs[-1].change == pytest.approx(92 / 101 - 1)
    assert runs[-1].slow


def test_after_a_lasting_change_of_all_nodes_only_the_runs_since_then_are_beside_each_other():
    """An upgrade has made all nodes slower: that names none of them, and a slow one is still found."""
    runs = [visit(number, NODES[number % 5], 100.0 + number % 3, trial=ONLY) for number in range(40)]
    for number in range(40, 60):
        value = (85.0 if NODES[number % 5] == "n02" else 93.0) + number % 3
        said = {METRIC: {"kind": "slower", "red": True, "since": str(night(40))}}
        runs.append(visit(number, NODES[number % 5], value, trial=ONLY, verdicts=said))
    first_nights = node_runs(node_jobs(runs[:43]), NOON)
    assert [run.change for run in first_nights[41:]] == [None, None]
    found = node_runs(node_jobs(runs), NOON)
    assert found[-1].beside == "16 runs of other nodes"
    standings = {name: record.standing for name, record in records_of(found).items()}
    assert [name for name, standing in standings.items() if standing is Standing.SLOW] == ["n02"]
    assert set(standings.values()) == {Standing.SLOW, Standing.FIT}


@pytest.mark.parametrize("nodes", [("n01",), ("n01", "n02")])
def test_one_or_two_nodes_are_not_judged(nodes):
    found = records(fleet_nights(10, nodes=nodes, slow={"n01": 0.2}))
    assert {record.standing for record in found.values()} == {Standing.UNKNOWN}


def test_fewer_than_eight_changes_are_not_judged():
    found = records(fleet_nights(1, nodes=NODES[:7], slow={"n01": 0.2}))
    assert found["n01"].standing is Standing.UNKNOWN
    assert found["n01"].deviation == pytest.approx(-0.2, abs=0.01)


def test_a_metric_that_is_better_when_lower_counts_the_other_way():
    found = records(fleet_nights(3, slow={"n03": -0.08}, unit="s", better="lower"))
    assert [name for name, record in found.items() if record.standing is Standing.SLOW] == ["n03"]


def test_of_several_metrics_the_middle_one_counts():
    both = fleet_nights(3, slow={"n03": 0.08})
    for place, envelope in enumerate(both):
        metric = next(iter(envelope.metrics.values()))
        both[place] = replace(envelope, metrics={"a": metric, "b": metric, "c": metric})
    assert records(both)["n03"].standing is Standing.SLOW


def test_runs_on_several_nodes_without_numbers_or_of_an_ab_comparison_say_nothing_of_a_node():
    left_out = [
        visit(5, "n01", 50.0, trial=ONLY, provenance={"nodes": "n01,n02"}),
        visit(5, "n01", 50.0, sane=False, outcome=Outcome.FAILED),
        visit(5, "n01", 50.0, trial=Trial(Role.AB, arm="a", block=1, repeat=1)),
        visit(5, "n01", 50.0, trial=ONLY, provenance={}),
        visit(5, "n01", math.inf, attempt=2),
    ]
    runs = node_runs(node_jobs([*fleet_nights(2), *left_out]), NOON)
    assert [one.change for one in runs if one.night == night(5)] == [None]


def test_runs_that_are_not_comparable_are_not_beside_each_other():
    other_size = fleet_nights(2, nodes=("n01", "n02"), fields={"size": "full"})
    found = records([*fleet_nights(2), *other_size])
    assert len(found["n01"].runs) == 4
    assert len(found["n01"].judged) == 2


def test_a_run_that_the_gate_calls_slower_is_a_suspicion():
    red = run(3, 99.0, provenance={"nodes": "n02"}, verdicts={"effective_throughput": {"kind": "slower", "red": True}})
    assert records([*fleet_nights(2), red])["n02"].suspicions == 1


def test_nodes_without_runs_are_known_and_names_are_in_their_natural_order():
    found = records(fleet_nights(1, nodes=("n2", "n10")), ("n1", "n10"))
    assert list(found) == ["n1", "n2", "n10"]
    assert found["n1"].deviation is None
    assert found["n1"].error is None
    assert sorted(["gpu2-10", "gpu10-1", "gpu2-9", "a"], key=natural) == ["a", "gpu2-9", "gpu2-10", "gpu10-1"]


def record(name: str, *changes: float, day: float = 1.0, scale: float = 0.01, **of_job: Any) -> NodeRecord:
    """A node whose runs differ from the others' by these changes; the last of them starts on a day."""
    first_s = day * 86400 - len(changes)
    job = NodeJob(0.0, "run", "1", name, "test", "resnet50", "", (), (), {}, "", {})._replace(**of_job)
    jobs = [job._replace(started_s=first_s + place) for place in range(len(changes))]
    count = len(jobs)
    runs = NodeRuns(jobs, [night(0)] * count, list(changes), [LevelOfOthers("", scale, None)] * count, range(count))
    return NodeRecord(name, runs)


def test_visits_go_to_suspects_then_to_nodes_that_were_never_measured_then_to_the_stalest():
    fleet = [
        record("fresh", 0.0, day=9),
        record("stale", 0.0, day=2),
        record("never"),
        record("suspect", 0.0, -0.05, day=9),
        record("worse", 0.0, -0.09, day=9),
        record("slow", -0.05, -0.06, day=1),
    ]
    fleet.append(record("red", 0.0, day=9, verdicts={METRIC: {"kind": "slower"}}))
    assert [one.name for one in visits.in_order(fleet)] == [
        "worse",
        "suspect",
        "red",
        "never",
        "slow",
        "stale",
        "fresh",
    ]


# --- the sentence after a maintenance --------------------------------------------------------------------------------


def drain(node: str, reason: str) -> str:
    return f"drain {node} because {reason}"


def test_all_nodes_fit():
    fleet = {name: record(name, 0.0) for name in ("n1", "n2")}
    said = go_no_go([NodeVisit("n1"), NodeVisit("n2")], fleet, drain_command=drain)
    assert said == GoNoGo("2 of 2 nodes fit", "2 of 2 nodes fit", fits=True)


def test_slow_suspect_and_silent_nodes_are_named_with_the_commands_that_take_them_out():
    fleet = {
        "n1": record("n1", 0.0),
        "n2": record("n2", -0.08, -0.09),
        "n3": record("n3", -0.05),
        "n4": record("n4"),
        "n5": record("n5"),
    }
    visited = [NodeVisit(name) for name in ("n1", "n2", "n3", "n2", "n5")]
    said = go_no_go([*visited, NodeVisit("n4", "did not start: node lost")], fleet, drain)
    assert not said.fits
    assert said.short == "2 of 5 nodes fit; n2 -8.5 %, n3 -5.0 % (suspect), n4 did not start: node lost"
    assert said.text.splitlines() == [
        "2 of 5 nodes fit; n2 -8.5 % in 2 runs (limit 3.0 %): -8.0 % and -9.0 %; "
        "n3 -5.0 % in 1 run (limit 3.0 %): suspect; n4 did not start: node lost",
        "The speed of n5 is not judged yet: this needs comparable runs of 3 other nodes, and 8 runs in all.",
        "To take them out of service, an administrator types:",
        "  drain n2 because -8.5 % beside other nodes",
        "  drain n4 because did not start: node lost",
    ]


def test_a_second_visit_that_starts_clears_the_first():
    fleet = {"n1": record("n1", 0.0)}
    assert go_no_go([NodeVisit("n1", "did not start: preempted"), NodeVisit("n1")], fleet).fits
