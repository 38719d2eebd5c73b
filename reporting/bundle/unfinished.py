"""Which of the chosen runs are not finished: a session still runs, or has left tests without a result."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from platforms.job import Outcome
from platforms.rundir.session_history import read_sessions
from platforms.rundir.session_liveness import seems_alive
from reporting.history.envelope import Envelope


@dataclass(frozen=True)
class LivingRun:
    """A run of which numbers may still come.

    Attributes:
        is_running: one of its sessions lives.
        tests: how many its unfinished sessions have.
        without_result: how many of them have none in the history.
    """

    run_id: str
    is_running: bool
    tests: int
    without_result: int

    @property
    def sentence(self) -> str:
        """What the bundle says of it."""
        said = f"{self.without_result} of the {self.tests} tests of run {self.run_id} had no result"
        why = "its session was still running" if self.is_running else "its session had left them"
        return f"{said} when the bundle was made: {why}."


def unfinished_runs(runs: Path, chosen: Iterable[Envelope], envelopes: Sequence[Envelope]) -> list[LivingRun]:
    """The unfinished ones of the chosen runs, as far as this machine has the records of their sessions.

    Args:
        runs: the folder of the runs.
        envelopes: all of the history.

    Raises RefusedError for a record that cannot be read.
    """
    found = []
    for run_id in dict.fromkeys(envelope.key.run_id for envelope in chosen):
        sessions = [record for record in read_sessions(runs / run_id) if record.open]
        tests = {test for record in sessions for test in record.tests}
        done = {
            envelope.key.test
            for envelope in envelopes
            if envelope.key.run_id == run_id and envelope.outcome is not Outcome.PENDING
        }
        is_running = any(seems_alive(record) for record in sessions)
        if is_running or tests - done:
            found.append(LivingRun(run_id, is_running, len(tests), len(tests - done)))
    return found
