"""The log that is kept of a job has one writer: `logs` beside a session that goes on, and the lock of a log."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from platforms.commands import logs
from platforms.commands.find_run import TypedOptions
from platforms.job import BenchError
from platforms.rundir import job_folder, locks, session_history, session_journal
from platforms.rundir.session_history import PENDING
from platforms.rundir.session_journal import Journal
from tests.waiting import until

ROOT = Path(__file__).resolve().parents[2]
TEST = "test_a.py::test_a[x]"
NAME = "a-1x1cpu-kabcdef2"


def test_a_session_that_goes_on_is_left_the_logs(tmp_path: Path) -> None:
    """It reads them itself, and appends to them: whoever brings one ends before it writes again."""
    session = Journal(tmp_path / "it", {"tests": [TEST], "options": {}})
    session.write_jobs([{"test": TEST, "attempt": 1, "name": NAME, "platform": "far", "state": "running"}])
    session.end(PENDING)
    folder = job_folder.attempt_folder(tmp_path, "it", TEST, 1)
    folder.mkdir()
    (folder / "submitted.json").write_text(json.dumps({"job_id": "17", "name": NAME, "submitted_s": 1.0}))
    (known,) = logs.recorded_jobs(tmp_path, "it")
    logs.refuse_taken_over(known, TypedOptions())
    (past,) = session_history.read_sessions(tmp_path / "it")
    session_journal.take_over(past, "20990101T000000Z-ffffff")
    with pytest.raises(BenchError, match="run it was gone on with just now, in 20990101T000000Z-ffffff"):
        logs.refuse_taken_over(known, TypedOptions())


@pytest.mark.slow
def test_a_lock_is_let_go_by_the_dead(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    text = "from platforms.rundir import locks; from pathlib import Path\n"
    text += f"with locks.held(Path({str(path)!r})): input()"
    command = [sys.executable, "-c", text]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE) as holder:
        until(lambda: path.exists() and path.read_text())
        with pytest.raises(locks.Taken, match=rf"^process {holder.pid} on "), locks.held(path):
            pass
        holder.kill()
    with locks.held(path) as none:
        assert none == ""
