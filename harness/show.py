"""What a person sees: one live line on a terminal, a line a state change in a log, and the table at the end."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from platforms.job import Run, State
from platforms.runner import Job
from reporting.tables import tables

HEARTBEAT_S = 30.0  # how often a log hears of a job that does not change
REDRAW_S = 0.2


class Show:
    """Writes through pytest's own reporter, so nothing interleaves with it; -q is silent about jobs that go well."""

    def __init__(self, config: pytest.Config) -> None:
        self._reporter: Any = config.pluginmanager.get_plugin("terminalreporter")
        self._terminal = bool(getattr(self._reporter, "isatty", False))
        self._quiet = self._reporter is None or config.get_verbosity() < 0
        self._job: Job | None = None
        self._others: Sequence[Job] = ()
        self._drawn = 0.0
        self._said: dict[str, str] = {}
        self._told: set[str] = set()

    def line(self, text: str) -> None:
        if not self._quiet:
            self.problem(text)

    def problem(self, text: str) -> None:
        """What a person must know, also under -q."""
        if self._reporter is not None:
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
    def waiting(self, job: Job, others: Sequence[Job]) -> Iterator[None]:
        """While a test waits for its job."""
        self._job, self._others, self._drawn = job, others, 0.0
        try:
            yield
        finally:
            self._job = None
            if self._terminal and not self._quiet:
                self._reporter.rewrite("", erase=True)

    def change(self, job: Job) -> None:
        """A job's state changed: a log gets a line, a terminal redraws."""
        if self._terminal:
            self._drawn = 0.0
            return
        state = job.status.state.value
        if self._said.get(job.spec.name) != state and job.status.state is not State.SUBMITTED:
            self._said[job.spec.name] = state
            self._drawn = time.monotonic()
            self.line(f"{clock()} {describe(job)}")

    def tick(self) -> None:
        """Called a few times a second while waiting."""
        now = time.monotonic()
        if self._quiet or self._job is None or now - self._drawn < (REDRAW_S if self._terminal else HEARTBEAT_S):
            return
        first, self._drawn = self._drawn == 0.0, now
        running = sum(not other.done and other.error is None for other in self._others) - 1
        text = describe(self._job) + (f" (+{running} more)" if running > 0 else "")
        if self._terminal:
            self._reporter.rewrite(text[: self._reporter._tw.fullwidth - 1], erase=True)
        elif not first:
            self.line(f"{clock()} {text}")

    def summary(self, runs: Sequence[Run]) -> None:
        """The table like the paper's, after everything else."""
        if runs and self._reporter is not None:
            self._reporter.section("results", sep="=", bold=True)
            for line in tables(runs):
                self._reporter.write_line(line)


def clock() -> str:
    return time.strftime("%H:%M:%S")


def describe(job: Job) -> str:
    """One line on one job: where, what state and why, how long, how far, how fast."""
    parts = [f"{job.spec.name} on {job.spec.platform}: {job.status}"]
    if (seconds := job.time_in_state_s) is not None and job.status.state.live:
        parts.append(f"{int(seconds) // 60}:{int(seconds) % 60:02d}")
    progress = job.progress
    if progress is not None and job.status.state is State.RUNNING:
        if progress.phase:
            parts.append(progress.phase)
        if progress.steps:
            parts.append(f"step {progress.step}/{progress.steps}")
        if progress.samples_per_s:
            parts.append(f"{progress.samples_per_s:.3g} samples/s")
        if progress.loss is not None:
            parts.append(f"loss {progress.loss:.3f}")
        if progress.left_s is not None:
            parts.append(f"{progress.left_s:.0f} s left")
    return "  ".join(parts)
