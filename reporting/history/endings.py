"""How a job without numbers ended, and why: what its run.json says, which lies beside its line of the history."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from platforms.job import RefusedError, State
from reporting.history.envelope import Envelope
from reporting.history.reader import run_of

TEST_FAILED = "its test failed"
LONGEST_REASON = 200


class Ending(NamedTuple):
    """How a job ended.

    Attributes:
        state: as the table of outcomes calls it, such as `node lost`; `its test failed` if the job itself succeeded. Of
            a job without a run.json, which another program has recorded: its outcome.
        reason: the first problem of the run, else what the scheduler said; one line; "" if neither is known.
    """

    state: str
    reason: str = ""


ReadsEnding = Callable[[Envelope], Ending]


def by_outcome(job: Envelope) -> Ending:
    """What the line of the history alone says."""
    return Ending(job.outcome.value)


def endings_in(history: Path, problems: list[str]) -> ReadsEnding:
    """Return what reads how a job ended from the folder of a history.

    A run.json that cannot be read is added to `problems`, and the ending is then the outcome.
    """

    def ending(job: Envelope) -> Ending:
        try:
            run_json = run_of(history, job)
        except RefusedError as error:
            problems.append(str(error))
            return by_outcome(job)
        state = run_json.get("state")
        if not state:
            return by_outcome(job)
        reasons = [*(run_json.get("problems") or ()), run_json.get("reason") or ""]
        return Ending(TEST_FAILED if state == State.SUCCEEDED else str(state), _first_line(str(reasons[0])))

    return ending


def _first_line(text: str) -> str:
    line = text.strip().partition("\n")[0]
    return line if len(line) <= LONGEST_REASON else f"{line[: LONGEST_REASON - 1]}…"
