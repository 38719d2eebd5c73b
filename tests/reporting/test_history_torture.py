"""Many writers of one history, which are killed at any moment and need no locks."""

from __future__ import annotations

import errno
import fcntl
import subprocess
import sys
from pathlib import Path

import pytest

from reporting.history.reader import read, run_of
from reporting.history.writer import HistoryWriter
from tests.reporting.history_lines import envelope
from tests.reporting.history_writers import WRITERS, run_json

ROOT = Path(__file__).resolve().parents[2]
KILLS = 30


@pytest.mark.slow
def test_writers_that_are_killed_lose_no_acknowledged_line(tmp_path: Path) -> None:
    """Readers find every acknowledged line once and whole, while the writers write and afterwards."""
    history, acknowledged = tmp_path / "history", tmp_path / "acknowledged"
    acknowledged.mkdir()
    arguments = [str(history), str(acknowledged), str(KILLS), "1"]
    problems: list[str] = []
    command = [sys.executable, "-m", "tests.reporting.history_writers", *arguments]
    with subprocess.Popen(command, cwd=ROOT) as writers:
        while writers.poll() is None:
            for each in read(history, problems=problems)[-3:]:
                assert run_of(history, each) == run_json(each.key.run_id, each.key.attempt)
    assert writers.returncode == 0
    found = read(history, problems=problems)
    assert problems == []
    noted = {tuple(line.split()) for path in acknowledged.iterdir() for line in path.read_text().splitlines()}
    written = {(each.key.run_id, str(each.key.attempt)) for each in found}
    assert noted
    assert noted <= written
    assert len(written - noted) <= KILLS + WRITERS  # each writer may be killed before it notes its last line
    lines = sum(path.read_bytes().count(b"\n") for path in history.rglob("*[0-9a-f].jsonl"))
    assert len(found) == len(written) == lines
    for each in found:
        assert run_of(history, each) == run_json(each.key.run_id, each.key.attempt)


def test_a_writer_needs_no_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a file system that has none."""

    def no_locks(*_words: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    for function in ("flock", "lockf", "fcntl"):
        monkeypatch.setattr(fcntl, function, no_locks)
    written = HistoryWriter(tmp_path).write(envelope(), {"attempt": 1})
    assert read(tmp_path) == [written]
