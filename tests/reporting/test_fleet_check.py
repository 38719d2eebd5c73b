"""What a user's own run on a node says, beside the fleet and beside the pins."""

from __future__ import annotations

from platforms.job import Role, Trial
from reporting.fleet.node_runs import node_jobs
from reporting.fleet.sentences import check_answer
from reporting.history.envelope import Envelope
from reporting.history.nights import NOON
from tests.reporting.fleet_history import fleet_nights, visit
from tests.reporting.gate_nights import nights


def own(number: int, node: str, value: float) -> Envelope:
    trial = Trial(Role.CHECK, node=node)
    return visit(number, node, value, trial=trial, benchmark="resnet50", run_id=f"check-{number}")


def answer(node: str, runs: list[Envelope], past: list[Envelope]) -> tuple[str, bool | None]:
    found = check_answer(node, runs, node_jobs(past), NOON)
    return found.text, found.as_fast


def test_a_node_that_is_as_fast_as_the_fleet():
    found = answer("n07", [own(3, "n07", 100.4)], fleet_nights(3))
    assert found == ("n07 is as fast as the fleet: resnet50 +0.4 % (limit 3.0 %)", True)


def test_one_slow_run_is_not_enough_and_two_are():
    first, second = own(3, "n07", 92.0), own(3, "n07", 91.0)
    assert answer("n07", [first], fleet_nights(3)) == (
        "n07 was slow once: resnet50 -8.0 % (limit 3.0 %); one more run decides",
        False,
    )
    assert answer("n07", [first, second], fleet_nights(3)) == (
        "n07 -8.5 % in 2 runs (limit 3.0 %): -8.0 % and -9.0 % (resnet50): tell your centre",
        False,
    )


def test_the_centres_own_slow_visit_counts_as_one_of_the_two():
    past = [*fleet_nights(3), visit(3, "n07", 92.0)]
    text, as_fast = answer("n07", [own(4, "n07", 92.0)], past)
    assert text.startswith("n07 -8.0 % in 2 runs")
    assert as_fast is False


def test_without_runs_to_compare_with_it_says_so():
    found = answer("n07", [own(30, "n07", 99.5)], nights(5, provenance={"nodes": "n01"}))
    assert found == (
        "n07 ran resnet50, and the centre has too few runs to compare it with: this needs comparable runs of 3 other "
        "nodes, and 8 runs in all",
        None,
    )
