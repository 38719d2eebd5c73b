"""What a person sees: on a terminal a live block, in a log a line for each change of state, and tables at the end."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from harness.live_block import LiveBlock
from harness.progress_lines import block_lines, clock, describe
from platforms.job import Run, State, setting_of

if TYPE_CHECKING:
    from platforms.runner import Job
    from reporting.account import Spent
    from reporting.gate.verdict import Verdict
    from reporting.history.envelope import Envelope

HEARTBEAT_S = 30.0  # how often a log gets a line on a job that does not change
REDRAW_S = 1.0  # how often the live block is drawn at most


class Console:
    """Writes through pytest's own reporter, so nothing interleaves with it; -q is silent about jobs that go well."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._reporter: Any = config.pluginmanager.get_plugin("terminalreporter")
        # A dumb terminal, as that of an editor, cannot move its cursor: it gets the lines of a log.
        self._terminal = bool(getattr(self._reporter, "isatty", False)) and os.environ.get("TERM") != "dumb"
        self._quiet = self._reporter is None or config.get_verbosity() < 0
        self._block = LiveBlock(self._write) if self._terminal else None
        self._jobs: Sequence[Job] = ()
        self._drawn = -math.inf
        self._logged = 0.0  # 0: nothing since this wait began
        self._logged_states: dict[str, str] = {}  # by job name
        self._shown_once: set[str] = set()

    def _write(self, text: str) -> None:
        self._reporter.write(text, flush=True)

    def line(self, text: str) -> None:
        if not self._quiet:
            self.always(text)

    def problem(self, text: str) -> None:
        """Write what a person must know."""
        self.always(text)

    def always(self, text: str) -> None:
        """Write a line, also under -q."""
        if self._reporter is not None:
            if self._block is not None:
                self._block.erase()
            self._reporter.ensure_newline()
            self._reporter.write_line(text)
            self._reporter.flush()  # else a file or a pipe gets nothing for hours

    def once(self, text: str) -> None:
        """Write a problem that many jobs share once."""
        if text not in self._shown_once:
            self._shown_once.add(text)
            self.problem(text)

    def section(self, title: str) -> None:
        if self._reporter is not None:
            self._reporter.section(title)

    @contextmanager
    def waiting(self, jobs: Sequence[Job]) -> Iterator[None]:
        """Show the live block while a test waits for one of these jobs."""
        self._jobs = jobs
        self._logged = 0.0
        try:
            yield
        finally:
            if self._block is not None:
                self._block.erase()

    def change(self, job: Job) -> None:
        """Report that a job's state changed: a log gets a line; the live block shows it when it is drawn next.

        That a job begins again is always reported, also under -q.
        """
        from platforms.runner import messages

        if job.attempt.earlier and job.status.reason == messages.retried(job.attempt):
            if job.spec.name not in self._logged_states:
                self._logged_states[job.spec.name] = job.status.state.value
                self.always(f"{clock()} {describe(job)}")
            return
        if self._terminal:
            return
        state = job.status.state.value
        if self._logged_states.get(job.spec.name) != state and job.status.state is not State.SUBMITTED:
            self._logged_states[job.spec.name] = state
            self._logged = time.monotonic()
            self.line(f"{clock()} {describe(job)}")

    def tick(self, job: Job) -> None:
        """Called a few times a second while a test waits for this job."""
        if self._quiet:
            return
        now = time.monotonic()
        if self._block is not None:
            if now - self._drawn >= REDRAW_S:
                self._draw(self._block, job)
                self._drawn = time.monotonic()
        elif not self._logged:
            self._logged = now
        elif now - self._logged >= HEARTBEAT_S:
            self._logged = now
            line = f"{clock()} {describe(job)}"
            others = sum(not other.done and other.error is None for other in self._jobs) - 1
            if others > 0:
                line += f" (+{others} more)"
            self.line(line)

    def _draw(self, block: LiveBlock, job: Job) -> None:
        self._reporter.ensure_newline()
        block.draw(block_lines(job, self._jobs, block.most))

    def summary(
        self,
        runs: Sequence[Run],
        remarks: Mapping[str, str],
        verdicts: Mapping[str, Mapping[str, Verdict]],
        jobs: Sequence[Job],
        began_s: float,
        envelopes: Sequence[Envelope] = (),
    ) -> None:
        """After everything else: what each job waited for and took, and the tables like the paper's.

        Args:
            remarks: on the runs of tests with several jobs, by test.
            verdicts: of the gate, by test and metric.
            began_s: when this session began, in Unix seconds.
            envelopes: of the jobs that have measured well, for the tables of layouts.
        """
        if jobs and not self._quiet:
            from reporting.account import account

            self._table("jobs", account([spent(job, began_s) for job in jobs]))
        if runs:
            from reporting.compare.scaling import scalings
            from reporting.tables.grouped import tables_of
            from reporting.tables.row import Row
            from reporting.tables.scaling import scaling_table
            from reporting.tables.text import text

            rows = []
            for run in runs:
                remark = remarks.get(run.test)
                rows.append(Row(run, verdicts.get(run.test, {}), remarks=() if remark is None else (remark,)))
            width = self._config.get_terminal_writer().fullwidth if self._terminal else None
            self._table("results", text([*tables_of(rows, join=True), *map(scaling_table, scalings(envelopes))], width))

    def _table(self, title: str, lines: Sequence[str]) -> None:
        if self._reporter is not None:
            self._reporter.section(title, sep="=", bold=True)
            for line in lines:
                self._reporter.write_line(line)


def spent(job: Job, began_s: float) -> Spent:
    """What a job waited for and took. `began_s`: when this session began, in Unix seconds."""
    from reporting.account import Spent

    submitted_s = job.status.submitted_s
    place_s = None
    if submitted_s is not None and submitted_s >= began_s:  # else an earlier session submitted it
        place_s = submitted_s - began_s
    return Spent(
        job.spec.name,
        " ".join(filter(None, (setting_of(job.spec.test), job.spec.trial.key))),
        job.spec.platform,
        job.status.state.value,
        place_s=place_s,
        queue_s=job.queue_s,
        start_s=_start_s(job),
        run_s=job.run_s,
        devices=job.spec.layout.devices,
        **_compiled(job),
    )


def _compiled(job: Job) -> dict[str, Any]:
    """How long the job compiled, and whether it found a compiled program, as far as it says."""
    summary = job.run.summary if job.run else {}
    seconds = summary.get("compile_s")
    cache = summary.get("compile_cache")
    return {
        "compile_s": seconds if isinstance(seconds, int | float) else None,
        "compile_cache": cache if cache in ("hit", "miss") else None,
    }


def _start_s(job: Job) -> float | None:
    """Seconds from the job's start to its first batch, as far as the job measured them."""
    if job.run is None:
        return None
    measured = [job.run.summary.get(name) for name in ("startup_s", "first_batch_s")]
    seconds = [float(value) for value in measured if isinstance(value, int | float)]
    return sum(seconds) if seconds else None
