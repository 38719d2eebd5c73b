"""How a job without numbers ended, and why: what its run.json says, which lies beside its line of the history."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from platforms.job import Outcome, RefusedError, State
from reporting.history.envelope import Envelope
from reporting.history.reader import run_of

TEST_FAILED = "its test failed"
LONGEST_REASON = 200


class Ending(NamedTuple):
    """How a job ended.

    Attributes:
        state: as the table of outcomes calls it, such as `node lost`; `its test failed` if the job itself succeeded. It
            is the outcome if the test has not ended, and if there is no run.json, as of other programs' jobs.
        reason: the first problem of the run, else what the scheduler said, else its signal or exit code; one line; ""
            if none of them is known.
    """

    state: str
    reason: str = ""

    def __str__(self) -> str:
        return f"{self.state}: {self.reason}" if self.reason else self.state


ReadsEnding = Callable[[Envelope], Ending]


def by_outcome(job: Envelope) -> Ending:
    """How a job ended, as far as its line of the history alone says it."""
    return Ending(job.outcome.value)


def endings_in(history: Path, problems: list[str]) -> ReadsEnding:
    """Return a function that says how a job ended, by its run.json in this folder of a history.

    A run.json that cannot be read is added to `problems`, and the ending is then the outcome.
    """

    def ending(job: Envelope) -> Ending:
        try:
            run_json = run_of(history, job)
        except RefusedError as error:
            problems.append(str(error))
            return by_outcome(job)
        state = run_json.get("state")
        if state == State.SUCCEEDED and job.outcome is Outcome.FAILED:
            return Ending(TEST_FAILED, _reason(run_json))
        if state in (None, State.SUCCEEDED):
            return by_outcome(job)
        return Ending(str(state), _reason(run_json))

    return ending


def _reason(run_json: Mapping[str, Any]) -> str:
    """The first line of the first of these that run.json has: a problem, the scheduler's reason, signal, exit code."""
    reasons = [*(run_json.get("problems") or ()), run_json.get("reason")]
    if run_json.get("signal"):
        reasons.append(f"signal {run_json['signal']}")
    elif run_json.get("exit_code"):
        reasons.append(f"exit code {run_json['exit_code']}")
    line = str(next(filter(None, reasons), "")).strip().partition("\n")[0]
    return line if len(line) <= LONGEST_REASON else f"{line[: LONGEST_REASON - 1]}…"
