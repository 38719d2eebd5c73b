"""The log that is kept of a job has one writer: `logs` beside a session that goes on, without a scheduler."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from platforms.__main__ import main
from platforms.commands import logs
from platforms.commands.find_run import TypedOptions
from platforms.job import BenchError
from platforms.rundir import job_folder, locks, session_history, session_journal
from platforms.rundir.session_history import PENDING
from platforms.rundir.session_journal import Journal
from tests.platforms.supervised import at, shell, start, until

ROOT = Path(__file__).resolve().parents[2]
TEST = "test_a.py::test_a[x]"
NAME = "a-1x1cpu-kabcdef2"
LINES = b"".join(b"line %d of the log\n" % number for number in range(1_200_000))
FAR = "scheduler: ssh\ndevice: cpu\nlayouts: {{default: [1x1]}}\npoll_s: 0.5\nwork_dir: {work}\n"


@dataclass(frozen=True)
class Left:
    """A run whose one job says LINES, waits for its gate, and says `end`; its session has ended."""

    path: Path

    @property
    def folder(self) -> Path:
        return job_folder.attempt_folder(self.path / "runs", "it", TEST, 1)

    @property
    def log(self) -> Path:
        return self.folder / "log"

    @property
    def session(self) -> session_history.SessionRecord:
        (past,) = session_history.read_sessions(self.path / "runs/it")
        return past

    def open_gate(self) -> None:
        (self.path / "gate").touch()

    @property
    def places(self) -> list[str]:
        return ["--site", str(self.path / "site"), "--runs-dir", str(self.path / "runs")]

    def types(self, *words: str) -> int:
        return main([*words, *self.places])

    def elsewhere(self, *words: str, python: tuple[str, ...] = ("-m", "platforms")) -> subprocess.Popen[bytes]:
        command = [sys.executable, *python, *words, *self.places]
        return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


@pytest.fixture
def left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Left]:
    monkeypatch.setenv("HPC_ML_BENCH_LOCK", str(tmp_path / "lock"))
    (tmp_path / "site/platforms").mkdir(parents=True)
    (tmp_path / "site/platforms/far.yaml").write_text(FAR.format(work=tmp_path / "work"))
    (tmp_path / "site/site.yaml").write_text("enabled: [far]\n")
    (tmp_path / "words").write_bytes(LINES)
    left = Left(tmp_path)
    says = f"cat {tmp_path}/words; until [ -e {tmp_path}/gate ]; do sleep 0.05; done; echo end"
    job_id = start(at("ssh", tmp_path / "work"), shell(says, time_limit_s=3600), tmp_path / "work/jobs" / NAME)
    session = Journal(tmp_path / "runs/it", {"tests": [TEST], "options": {}})
    session.write_jobs([{"test": TEST, "attempt": 1, "name": NAME, "platform": "far", "state": "running"}])
    session.end(PENDING)
    left.folder.mkdir()
    (left.folder / "submitted.json").write_text(json.dumps({"job_id": job_id, "name": NAME, "submitted_s": 1.0}))
    job_folder.link_latest(tmp_path / "runs", "it")
    try:
        log = tmp_path / "work/jobs" / NAME / "log"
        until(lambda: log.exists() and log.stat().st_size == len(LINES))
        yield left
    finally:
        left.open_gate()
        until(lambda: (tmp_path / "work/jobs" / NAME / "exit").exists())


def test_a_session_that_goes_on_is_left_the_logs(left: Left) -> None:
    """It reads them itself, and appends to them: whoever brings one ends before it writes again."""
    (known,) = logs.recorded_jobs(left.path / "runs", "it")
    logs.refuse_taken_over(known, TypedOptions())
    session_journal.take_over(left.session, "20990101T000000Z-ffffff")
    with pytest.raises(BenchError, match="run it was gone on with just now, in 20990101T000000Z-ffffff"):
        logs.refuse_taken_over(known, TypedOptions())


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
