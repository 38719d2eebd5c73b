"""Is it me or the machine, for a job of some time ago? What the runs say that are nearest to it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from reporting.fleet.answer import answer
from reporting.fleet.node_runs import NodeRun
from reporting.fleet.nodes import NodeRecord, Standing
from reporting.phrases import percent, size


@dataclass(frozen=True)
class JobAnswer:
    """What is known of a job's nodes at its time.

    Attributes:
        text: sentences.
        runs: by which it is answered; () if the job's time is not known, or nothing was measured then.
        is_slow: the answer names a slow node.
    """

    text: str
    runs: tuple[NodeRun, ...]
    is_slow: bool


def job_answer(records: Sequence[NodeRecord], job_id: str, started_s: float | None) -> JobAnswer:
    """The answer for a user whose job ran on these nodes.

    The job itself counts if it is one of the suite's. Otherwise the last run before its start and the first one after
    it count, on each node.

    Args:
        records: of the job's nodes.
        job_id: the scheduler's.
        started_s: when it started, in Unix seconds; None if nothing says so. Then the answer is about now, and says
            which nodes have changed.
    """
    used = {record.name: _runs_of_job(record, job_id, started_s) for record in records}
    runs = tuple(run for of_node in used.values() for run in of_node)
    if not runs:
        said = [answer(records)]
        if started_s is None:
            said.append(f"When job {job_id} ran is not known, so this is about now.")
        said += [sentence for record in records if (sentence := _before(record))]
        is_slow = any(record.standing is Standing.SLOW for record in records)
        return JobAnswer(" ".join(said), (), is_slow)
    slow = [name for name, of_node in used.items() if any(run.slow for run in of_node)]
    named = slow or [name for name, of_node in used.items() if of_node]
    measured = "; ".join(_beside_job(name, used[name], job_id) for name in named)
    said = [f"It is not the machine, as far as our runs of that time say: {measured}."]
    if slow:
        said = [f"It may be the machine: {measured}; tell your centre."]
    unknown = [name for name, of_node in used.items() if not of_node]
    if unknown:
        said.append(f"Not known: {', '.join(unknown)}.")
    said += [sentence for record in records if (sentence := _now(record, was_slow=record.name in slow))]
    return JobAnswer(" ".join(said), runs, bool(slow))


def minute(started_s: float) -> str:
    """`2026-11-22 23:08`, in this machine's time."""
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(started_s))


def is_of_job(run_job_id: str | None, job_id: str) -> bool:
    """Whether a run is this job. Kubernetes' ids end with the name by which people know the job."""
    return run_job_id is not None and (run_job_id == job_id or run_job_id.endswith(f"/{job_id}"))


def _runs_of_job(record: NodeRecord, job_id: str, started_s: float | None) -> list[NodeRun]:
    own = [run for run in record.judged if is_of_job(run.job_id, job_id)]
    if own:
        return own[-1:]
    if started_s is None:
        return []
    before = [run for run in record.judged if run.started_s <= started_s]
    after = [run for run in record.judged if run.started_s > started_s]
    return [*before[-1:], *after[:1]]


def _beside_job(name: str, runs: Sequence[NodeRun], job_id: str) -> str:
    """As in `n07 -8.1 % (limit 3.0 %) at 2026-11-22 23:08`, for each run."""
    if is_of_job(runs[0].job_id, job_id):
        return f"{name} {_change(runs[0])} in this job"
    return f"{name} {' and '.join(_change(run) for run in runs)}"


def _change(run: NodeRun) -> str:
    return f"{percent(run.change or 0.0)} (limit {size(run.limit or 0.0, 1)}) at {minute(run.started_s)}"


def _now(record: NodeRecord, *, was_slow: bool) -> str:
    """What has changed since the job."""
    if was_slow and record.standing is Standing.FIT:
        return f"Now {record.name} is fit: {_change(record.judged[-1])}."
    if not was_slow and record.standing in (Standing.SLOW, Standing.SUSPECT):
        return f"Now it is different: {record.sentence}, since {minute(record.slow_streak[0].started_s)}."
    return ""


def _before(record: NodeRecord) -> str:
    """How the node was before it became what it is now."""
    is_fit = record.standing is Standing.FIT
    others = [run for run in record.judged if run.slow is is_fit]
    if not others:
        return ""
    was = "slow" if is_fit else "not slow"
    return f"{record.name} was {was} before: {_change(others[-1])}."
