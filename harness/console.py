"""What a person sees: a live block on a terminal, a line a state change in a log, and the tables at the end."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from harness.live_block import LiveBlock
from platforms.config.values import short_clock
from platforms.job import Run, State, setting_of

if TYPE_CHECKING:
    from platforms.runner import Job
    from reporting.account import Spent

WAITS = (State.QUEUED, State.SUBMITTED, State.UNKNOWN)
HEARTBEAT_S = 30.0  # how often a log hears of a job that does not change
REDRAW_S = 0.2


class Console:
    """Writes through pytest's own reporter, so nothing interleaves with it; -q is silent about jobs that go well."""

    def __init__(self, config: pytest.Config) -> None:
        self._reporter: Any = config.pluginmanager.get_plugin("terminalreporter")
        self._terminal = bool(getattr(self._reporter, "isatty", False)) and os.environ.get("TERM") != "dumb"
        self._quiet = self._reporter is None or config.get_verbosity() < 0
        self._block = LiveBlock(self._write) if self._terminal else None
        self._jobs: Sequence[Job] = ()
        self._drawn = 0.0
        self._said: dict[str, str] = {}
        self._told: set[str] = set()

    def _write(self, text: str) -> None:
        self._reporter.write(text, flush=True)

    def line(self, text: str) -> None:
        if not self._quiet:
            self.always(text)

    def problem(self, text: str) -> None:
        """What a person must know."""
        self.always(text)

    def always(self, text: str) -> None:
        """Also under -q."""
        if self._reporter is not None:
            if self._block is not None:
                self._block.erase()
                self._drawn = 0.0
            self._reporter.ensure_newline()
            self._reporter.write_line(text)

    def once(self, text: str) -> None:
        """A problem of many jobs."""
        if text not in self._told:
            self._told.add(text)
            self.problem(text)

    def section(self, title: str) -> None:
        if self._reporter is not None:
            self._reporter.section(title)

    @contextmanager
    def waiting(self, jobs: Sequence[Job]) -> Iterator[None]:
        """While a test waits for one of these."""
        self._jobs, self._drawn = jobs, 0.0
        try:
            yield
        finally:
            if self._block is not None:
                self._block.erase()

    def change(self, job: Job) -> None:
        """A job's state changed: a log gets a line, a terminal redraws. That a job begins again is always said."""
        from platforms.runner import messages

        if job.attempt.earlier and job.status.reason == messages.begun_again(job.attempt):
            if job.spec.name not in self._said:
                self._said[job.spec.name] = job.status.state.value
                self.always(f"{clock()} {describe(job)}")
            return
        if self._terminal:
            self._drawn = 0.0
            return
        state = job.status.state.value
        if self._said.get(job.spec.name) != state and job.status.state is not State.SUBMITTED:
            self._said[job.spec.name] = state
            self._drawn = time.monotonic()
            self.line(f"{clock()} {describe(job)}")

    def tick(self, job: Job) -> None:
        """Called a few times a second while a test waits for this job."""
        now = time.monotonic()
        if self._quiet or now - self._drawn < (REDRAW_S if self._terminal else HEARTBEAT_S):
            return
        first, self._drawn = self._drawn == 0.0, now
        if self._block is not None:
            self._reporter.ensure_newline()
            self._block.draw(live(job, self._jobs, self._block.most))
        elif not first:
            more = sum(not other.done and other.error is None for other in self._jobs) - 1
            self.line(f"{clock()} {describe(job)}" + (f" (+{more} more)" if more > 0 else ""))

    def summary(self, runs: Sequence[Run], jobs: Sequence[Job], began_s: float) -> None:
        """After everything else: what each job waited for and took, and the table like the paper's."""
        if jobs and not self._quiet:
            from reporting.account import account

            self._table("jobs", account([spent(job, began_s) for job in jobs]))
        if runs:
            from reporting.tables import tables

            self._table("results", tables(runs))

    def _table(self, title: str, lines: Sequence[str]) -> None:
        if self._reporter is not None:
            self._reporter.section(title, sep="=", bold=True)
            for line in lines:
                self._reporter.write_line(line)


def spent(job: Job, began_s: float) -> Spent:
    """Of a session that began then, a Unix second."""
    from reporting.account import Spent

    status = job.status
    ours = status.submitted_s is not None and status.submitted_s >= began_s
    starts = [job.run.summary.get(name) for name in ("startup_s", "first_batch_s")] if job.run else []
    known = [float(value) for value in starts if isinstance(value, int | float)]
    return Spent(
        job.spec.name,
        setting_of(job.spec.test),
        job.spec.platform,
        status.state.value,
        place_s=status.submitted_s - began_s if ours and status.submitted_s is not None else None,
        queue_s=job.queue_s,
        start_s=sum(known) if known else None,
        run_s=job.run_s,
        devices=job.spec.layout.devices,
    )


def clock() -> str:
    return time.strftime("%H:%M:%S")


def live(first: Job, jobs: Sequence[Job], most: int) -> list[str]:
    """A line on all, then one on each job that is not done: first the one that a test waits for, then what runs; `most`
    lines in all."""
    jobs = [job for job in jobs if job.again is None]
    left = [job for job in jobs if not job.done and job.error is None]
    left.sort(key=lambda job: (job is not first, job.job_id is None, job.status.state in WAITS))
    counts = Counter(job.status.state.value if job.job_id else "to be submitted" for job in left)
    total = [f"{count} {what}" for what, count in counts.items()]
    shown = left if len(left) < most else left[: max(0, most - 2)]
    more = [f"(and {len(left) - len(shown)} more)"] if len(shown) < len(left) else []
    alone = sum(not job.done and job.error is not None for job in jobs)
    total += [f"{alone} left to themselves"] if alone else []
    head = f"{clock()}  {len(jobs) - len(left) - alone} of {len(jobs)} jobs done, {', '.join(total)}"
    return [head, *map(describe, shown), *more]


def describe(job: Job) -> str:
    """One line on one job: where, what state, what is ahead of it, why, how long, how far, how fast."""
    parts = [f"{job.spec.name} on {job.spec.platform}: {job.status.told(time.time())}"]
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
        if progress.samples_per_s:
            parts.append(f"{progress.samples_per_s:.3g} samples/s")
        if progress.loss is not None:
            parts.append(f"loss {progress.loss:.3f}")
        if progress.left_s is not None:
            parts.append(f"{progress.left_s:.0f} s left")
    return "  ".join(parts)
