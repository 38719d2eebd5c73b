"""What scancel and sacct answer, word by word: an order that was not carried out must not look done."""

from __future__ import annotations

import pytest

from platforms.job import Submitted
from platforms.schedulers.slurm import queries
from platforms.schedulers.slurm.rows import JobRow
from platforms.schedulers.slurm.scheduler import _is_cancelled
from platforms.transports import CommandResult

JOBS = [Submitted("17", "resnet50-1x4gpu-k3f9a2bc", 0.0), Submitted("18", "resnet50-1x8gpu-k3f9a2bd", 0.0)]
DENIED = "scancel: error: Kill job error on job id 17: Access/permission denied"


class Login:
    """A login node on which each script prints this."""

    where = "login"

    def __init__(self, output: str, errors: str = "") -> None:
        self._result = CommandResult(0, output.encode(), errors.encode())
        self.script = ""

    def run(self, argv: list[str], *, input: bytes = b"", timeout_s: float = 60.0) -> CommandResult:  # noqa: A002
        self.script = input.decode()
        return self._result


@pytest.mark.parametrize(
    ("output", "errors", "refused", "away"),
    [
        ("squeue 0\nscancel 0\n", "", [], ""),
        ("squeue 0\nscancel 1\n", DENIED, ["17"], ""),
        ("squeue 0\nscancel 1\n", "", [], "scancel ended with exit code 1"),
        ("squeue 1\nscancel 0\n", "", [], "squeue ended with exit code 1"),
        ("", "", [], "no answer"),
    ],
)
def test_only_an_order_that_slurm_has_taken_looks_done(output: str, errors: str, refused: list[str], away: str) -> None:
    login = Login(output, errors)
    found = queries.cancel(login, JOBS)
    assert (list(found.refused), found.away) == (refused, away)
    assert "17,18" in login.script


def test_accounting_that_does_not_answer_says_nothing_of_the_jobs() -> None:
    found = queries.ask_accounting(Login("", "connection lost"), JOBS, "/w/jobs")
    assert (found.rows, found.enabled, dict(found.log_lines)) == (None, True, {})


@pytest.mark.parametrize(
    ("state", "nodes", "counts"), [("CANCELLED", "n1", True), ("CANCELLED", "", False), ("FAILED", "n1", False)]
)
def test_a_job_was_cancelled_after_it_had_nodes(state: str, nodes: str, counts: bool) -> None:
    row = JobRow("17", "a", state, nodes=nodes)
    assert _is_cancelled(row, None) is counts
    assert _is_cancelled(None, [row]) is counts
