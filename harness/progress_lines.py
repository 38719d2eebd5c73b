"""What is said of jobs while a session waits for them: the lines of the live block, and a line in a log."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from platforms.config.durations import short_clock
from platforms.job import State

if TYPE_CHECKING:
    from platforms.runner import Job

NOT_STARTED = (State.QUEUED, State.SUBMITTED, State.UNKNOWN)
LEFT_WIDTH = len("~90 min")


def clock() -> str:
    return time.strftime("%H:%M:%S")


def block_lines(awaited: Job, jobs: Sequence[Job], most: int) -> list[str]:
    """The live block, `most` lines in all: a line on all jobs, then a line for each that is not done.

    The job that a test waits for comes first, then those that run. Each line begins with how long the job still takes
    by its own words, so that a narrow terminal shows it.
    """
    jobs = [job for job in jobs if job.successor is None]
    unfinished = [job for job in jobs if not job.done and job.error is None]
    unfinished.sort(key=lambda job: (job is not awaited, job.job_id is None, job.status.state in NOT_STARTED))
    left_behind = sum(not job.done and job.error is not None for job in jobs)
    done = len(jobs) - len(unfinished) - left_behind

    counts = Counter(job.status.state.value if job.job_id else "to be submitted" for job in unfinished)
    totals = [f"{count} {state}" for state, count in counts.items()]
    if left_behind:
        totals.append(f"{left_behind} left to themselves")
    head = f"{done} of {len(jobs)} jobs done, {', '.join(totals)}  {clock()}"
    lines = [f"{'':{LEFT_WIDTH}}  {head}"]

    shown = unfinished
    if len(unfinished) >= most:  # the first line and the last one take two of them
        shown = unfinished[: max(0, most - 2)]
    names = [name_of(job) for job in shown]
    name_width = max(map(len, names), default=0)
    for job, name in zip(shown, names, strict=True):
        lines.append(f"{_rounded(_left_s(job)):>{LEFT_WIDTH}}  {name:<{name_width}}  {state_of(job)}")
    if len(shown) < len(unfinished):
        lines.append(f"(and {len(unfinished) - len(shown)} more)")
    return lines


def _left_s(job: Job) -> float | None:
    """How long a running job still takes, by its last words; None where it has said nothing of that."""
    if job.status.state is not State.RUNNING or job.progress is None:
        return None
    return job.progress.left_s


def _rounded(left_s: float | None) -> str:
    """`<1 min`, `~4 min` or `~2.5 h`: more digits would claim what is not known."""
    if left_s is None:
        return ""
    if left_s < 45:
        return "<1 min"
    if left_s < 90 * 60:
        return f"~{max(1, round(left_s / 60))} min"
    return f"~{left_s / 3600:.1f} h"


def name_of(job: Job) -> str:
    """The id of a job's test without its file, and which of several jobs of the test it is."""
    name = job.spec.test.partition("::")[2] or job.spec.test
    return f"{name} {job.spec.trial.key}" if job.spec.trial.key else name


def describe(job: Job) -> str:
    """One line on one job for a log: its name, where it is, and its state."""
    trial = f" ({job.spec.trial.key})" if job.spec.trial.key else ""
    line = f"{job.spec.name}{trial} on {job.spec.platform}: {state_of(job)}"
    if job.status.state is State.RUNNING and job.progress is not None and job.progress.left_s is not None:
        line += f"  {job.progress.left_s:.0f} s left"
    return line


def state_of(job: Job) -> str:
    """What state a job is in, what is ahead of it, why, how long, how far, how fast."""
    parts = [job.status.told(time.time())]
    if job.status.state.live:
        parts.append(short_clock(job.time_in_state_s))
    progress = job.progress
    if progress is not None and job.status.state is State.RUNNING:
        if progress.phase:
            parts.append(progress.phase)
        if progress.epoch is not None:
            parts.append(f"epoch {progress.epoch}")
        if progress.steps:
            parts.append(f"step {progress.step}/{progress.steps}")
        if progress.throughput is not None:
            from reporting.phrases import plain

            parts.append(f"{plain(progress.throughput.value, 3)} {progress.throughput.unit}")
        if progress.loss is not None:
            parts.append(f"loss {progress.loss:.3f}")
    return "  ".join(parts)
