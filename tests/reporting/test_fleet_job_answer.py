"""Is it me or the machine: the answer is about the time at which the job ran."""

from __future__ import annotations

from dataclasses import replace

from reporting.fleet.node_runs import node_jobs, node_runs
from reporting.fleet.nodes import records_of
from reporting.fleet.sentences import JobAnswer, job_answer, minute
from reporting.history.envelope import Envelope
from reporting.history.nights import NOON
from tests.reporting.fleet_history import fleet_nights, visit
from tests.reporting.gate_nights import night


def of_job(job_id: str, value: float) -> Envelope:
    envelope = visit(3, "n07", value)
    return replace(envelope, key=envelope.key._replace(job_id=job_id))


WAS_SLOW = [*fleet_nights(3), of_job("14", 92.0), visit(4, "n07", 91.0), visit(5, "n07", 100.0)]
BECAME_SLOW = [*fleet_nights(3), of_job("4", 100.0), visit(4, "n07", 92.0), visit(5, "n07", 91.0)]


def about(past: list[Envelope], job_id: str, started_s: float | None = None) -> JobAnswer:
    records = records_of(node_runs(node_jobs(past), NOON))
    return job_answer([records["n07"]], job_id, started_s)


def at(number: int, hour: float = 23) -> float:
    return visit(number, "n07", 1.0, hour=hour).time_s


def shown(number: int) -> str:
    return minute(visit(number, "n07", 1.0).time_s)


def test_our_own_job_on_a_node_that_was_slow_then_and_is_fit_now():
    found = about(WAS_SLOW, "14")
    assert found.text == (
        f"It may be the machine: n07 -8.0 % (limit 3.0 %) at {shown(3)} in this job; tell your centre. "
        f"Now n07 is fit: +0.0 % (limit 3.0 %) at {shown(5)}."
    )
    assert [run.job.job_id for run in found.runs] == ["14"]
    assert found.is_slow


def test_our_own_job_on_a_node_that_became_slow_later():
    found = about(BECAME_SLOW, "4")
    assert found.text == (
        f"It is not the machine, as far as our runs of that time say: n07 +0.0 % (limit 3.0 %) at {shown(3)} in this "
        "job. Now it is different: n07 -8.5 % in 2 runs (limit 3.0 %): -8.0 % and -9.0 %, since "
        f"{shown(4)}."
    )
    assert not found.is_slow


def test_of_another_job_the_runs_before_and_after_its_start_count():
    found = about(WAS_SLOW, "99", at(3))
    assert found.text == (
        f"It may be the machine: n07 -8.0 % (limit 3.0 %) at {shown(3)} and -9.0 % (limit 3.0 %) at {shown(4)}; "
        f"tell your centre. Now n07 is fit: +0.0 % (limit 3.0 %) at {shown(5)}."
    )
    assert not about(BECAME_SLOW, "99", at(2)).is_slow
    assert about(BECAME_SLOW, "99", at(5)).is_slow


def test_without_a_time_it_is_about_now():
    assert about(WAS_SLOW, "99").text == (
        f"It is not the machine, as far as our runs say: n07 -0.5 % on {night(5)}. "
        "When job 99 ran is not known, so this is about now."
    )
    assert about(BECAME_SLOW, "99").is_slow
