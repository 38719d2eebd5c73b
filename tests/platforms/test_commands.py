"""What `python -m platforms jobs, logs, cancel, prune` say of runs and folders that are not as one thinks."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from platforms.__main__ import main
from platforms.commands import find_run
from platforms.job import State, Status
from platforms.rundir import job_folder, session_history, session_journal, session_liveness
from platforms.rundir.session_history import ASKED, DONE, PENDING
from platforms.rundir.session_journal import Journal
from platforms.schedulers.local import LocalScheduler
from tests.platforms.test_prune import as_nobody, needs_root, reached, to_nobody

ROOT = Path(__file__).resolve().parents[2]
TEST = "test_a.py::test_a[x]"
JOB = {"test": TEST, "attempt": 1, "name": "a-1x1cpu-kabcdefg", "platform": "here", "state": "queued"}
PASSED = {
    "schema": 1, "name": "a", "test": TEST, "platform": "here", "benchmark": None, "layout": "1x1cpu", "windows": [],
    "start": {}, "summary": {}, "problems": [], "warnings": [], "error": None, "state": "succeeded", "reason": "",
    "exit_code": 0, "signal": None, "submitted_s": 1.0, "started_s": 1.0, "ended_s": 2.0, "nodes": [], "events": [],
    "outcome": "passed",
}  # fmt: skip


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    with reached() as path:
        yield path


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    (tmp_path / "site/platforms").mkdir(parents=True)
    (tmp_path / "site/platforms/here.yaml").write_text("scheduler: local\ndevice: cpu\nlayouts: {default: [1x1]}\n")
    (tmp_path / "site/site.yaml").write_text("enabled: [here]\n")
    (tmp_path / "runs").mkdir()
    return tmp_path / "runs"


def make(runs: Path, name: str, how: str = DONE, *, begun: bool = True) -> Path:
    """A run of one job, `begun` or not, whose session has ended. Returns the job's folder."""
    session = Journal(runs / name, {"tests": [TEST], "options": {}})
    session.write_jobs([JOB] if begun else [])
    session.end(how)
    folder = job_folder.attempt_folder(runs, name, TEST, 1)
    if begun:
        folder.mkdir()
        (folder / "log").write_text("its log\n")
        if how == DONE:
            (folder / "run.json").write_text(json.dumps(PASSED))
    job_folder.link_latest(runs, name)
    return folder


def types(runs: Path, *words: str) -> int:
    return main([*words, "--site", str(runs.parent / "site"), "--runs-dir", str(runs)])


def places(runs: Path) -> str:
    """As commands name them that are to be typed next."""
    return f" --site={runs.parent / 'site'} --runs-dir={runs}"


# --- folders and runs that are not there -----------------------------------------------------------------------------


@pytest.mark.parametrize("words", [["jobs"], ["cancel", "it"], ["logs", "a"], ["prune"], ["prune", "here"]])
def test_a_mistyped_folder_of_runs_is_refused(runs: Path, words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert types(runs.with_name("rums"), *words) == 2
    assert f"error: --runs-dir: there is no folder {runs.with_name('rums')}" in capsys.readouterr().err


def test_where_nothing_has_run_yet(
    runs: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert types(runs, "jobs") == 0
    assert capsys.readouterr().out == f"no runs yet in {runs} (--runs-dir names another folder)\n"
    monkeypatch.setattr("platforms.checkout.ROOT", runs.parent / "a clone")  # its runs/ is made by the first run
    site = ["--site", str(runs.parent / "site")]
    assert main(["jobs", *site]) == 0
    assert "no runs yet in" in capsys.readouterr().out
    for words in (["logs", "a"], ["cancel", "latest"], ["jobs", "latest"], ["prune"]):
        assert main([*words, *site]) == 2
        assert "error: no runs yet in" in capsys.readouterr().err


def test_a_run_that_was_put_away_can_be_brought_back(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make(runs, "it")
    assert types(runs, "prune", "--yes", "--keep-days=0") == 0
    capsys.readouterr()
    for words in (["jobs", "it"], ["cancel", "it"], ["logs", "a", "--run=it"]):
        assert types(runs, *words) == 2
        said = capsys.readouterr().err
        assert said.startswith(f"error: run it is archived in {runs}/old/it.tar.gz; this brings it back: tar -xf ")
    subprocess.run(["sh", "-c", said.partition("back: ")[2]], check=True)
    assert types(runs, "jobs", "it") == 0


def test_latest_is_the_newest_run(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make(runs, "z-first")
    make(runs, "a-second", PENDING)
    for link in (True, False):  # which not every file system has
        if not link:
            (runs / "latest").unlink()
        assert types(runs, "jobs", "latest") == 0
        assert capsys.readouterr().out.startswith(
            f"run a-second, left unfinished: pytest --resume=a-second{places(runs)}\n"
        )
    assert types(runs, "cancel", "latest") == 0
    assert "run a-second has ended; logs and results are in " in capsys.readouterr().out


def test_what_holds_no_record(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (runs / "notes").mkdir()
    assert types(runs, "jobs", "notes") == 2
    assert f"{runs}/notes holds no record of a session, so its jobs are not known" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["jobs", ""], ["cancel", ""], ["logs", "a", "--run="]])
def test_a_variable_that_is_not_set_names_no_run(
    runs: Path, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    make(runs, "it", PENDING)
    assert types(runs, *words) == 2
    assert "error: RUN is empty: type a run's id, or latest" in capsys.readouterr().err


def test_a_run_may_be_typed_as_its_folder(
    runs: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    make(runs, "it")
    monkeypatch.chdir(runs.parent)
    for word in ("it/", "runs/it", "runs/it/", str(runs / "it"), "runs/latest"):
        assert types(runs, "jobs", word) == 0
        assert capsys.readouterr().out.startswith("run it, ended\n")


@pytest.mark.parametrize("words", [["jobs"], ["cancel", "it"], ["logs", "a"], ["prune"], ["prune", "here"]])
def test_runs_that_are_not_mounted_are_not_taken_for_none(
    runs: Path, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    site = runs.parent / "site"
    (site / "runs").symlink_to("/not/mounted")
    for more in ([], ["--runs-dir", str(site / "runs")]):
        assert main([*words, "--site", str(site), *more]) == 2
        said = f"error: {site}/runs is a link to /not/mounted, which is not there: is its file system mounted?\n"
        assert capsys.readouterr().err == said


# --- runs without jobs -----------------------------------------------------------------------------------------------


def test_a_run_that_has_begun_no_job(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its session was killed before it wrote of any: it is shown, `cancel` ends it, and then prune takes it."""
    make(runs, "it", PENDING, begun=False)
    assert types(runs, "jobs") == 0
    unfinished = f"run it, left unfinished: pytest --resume=it{places(runs)}\n"
    assert capsys.readouterr().out == f"{unfinished}  no job of it has begun\n"
    assert types(runs, "logs", "a") == 2
    assert "run it has no job 'a', nor one with that in its name or test: none of it has begun" in (
        capsys.readouterr().err
    )
    assert types(runs, "prune", "--yes", "--keep-days=0") == 0
    assert f"stays: unfinished: pytest --resume=it --runs-dir={runs} goes on with it, " in capsys.readouterr().out
    assert types(runs, "cancel", "it") == 0
    assert capsys.readouterr().out == f"run it has ended; logs and results are in {runs}/it\n"
    assert types(runs, "cancel", "it") == 0
    assert capsys.readouterr().out == "run it had ended before: it has nothing left to cancel\n"
    assert types(runs, "prune", "--yes", "--keep-days=0") == 0
    assert (runs / "old/it.tar.gz").exists()


@pytest.mark.parametrize("more", [{"state": "running"}, {"state": ASKED, "asked_s": 1.0}])
def test_a_run_is_not_closed_over_a_job_of_which_nobody_knows(
    runs: Path, more: dict[str, object], capsys: pytest.CaptureFixture[str]
) -> None:
    make(runs, "it", PENDING, begun=False)
    session = Journal(runs / "it", {"tests": [TEST], "options": {}})
    session.write_jobs([JOB | more])
    session.end(PENDING)
    assert types(runs, "cancel", "it") == 1
    said = capsys.readouterr().out
    assert f"it is not known whether these were submitted: {JOB['name']}; pytest --resume=it{places(runs)}" in said
    assert "has ended" not in said
    assert find_run.unfinished(runs) == (["it"], [])


def test_a_job_that_was_never_submitted_is_ended(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = make(runs, "it", PENDING)
    assert types(runs, "cancel", "it") == 0
    assert capsys.readouterr().out.startswith(f"{JOB['name']} on here: cancelled: it was never submitted\nrun it has")
    assert json.loads((folder / "run.json").read_text())["outcome"] == "error"
    assert types(runs, "jobs", "it") == 0
    assert ": cancelled: it was never submitted\n" in capsys.readouterr().out


@pytest.mark.slow
def test_a_job_that_cancel_could_not_end_is_not_begun_again(
    runs: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A person wanted its end: if it is found cancelled later, no session may take that for its own doing."""
    folder = make(runs, "it", PENDING)
    submission = {"job_id": str(folder), "name": JOB["name"], "submitted_s": 1.0}
    (folder / "submitted.json").write_text(json.dumps(submission))
    running = {str(folder): Status(State.RUNNING)}
    monkeypatch.setattr(LocalScheduler, "status", lambda self, jobs: running)
    monkeypatch.setattr(LocalScheduler, "cancel", lambda self, jobs: {str(folder): "it does not hear"})
    assert types(runs, "cancel", "it") == 1
    assert "running: could not be cancelled: it does not hear" in capsys.readouterr().out
    assert [record.attempts[TEST].ending for record in session_history.read_sessions(runs / "it") if record.open] == [
        False
    ]


def test_a_job_that_ended_without_a_log_is_said_so(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = make(runs, "it")
    assert types(runs, "logs", "a") == 0
    assert capsys.readouterr() == ("its log\n", "")
    (folder / "log").unlink()
    assert types(runs, "logs", "a") == 0
    assert capsys.readouterr() == ("", f"{JOB['name']} on here: succeeded; no log of it is in {folder}\n")


def test_a_run_that_is_just_beginning(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    session = Journal(runs / "it", {"tests": [TEST], "options": {}})
    try:
        assert types(runs, "jobs") == 0
        assert capsys.readouterr().out.startswith(f"run it, under way in session {session.name} (process {os.getpid()}")
        assert types(runs, "cancel", "it") == 2
        assert "it ends its own jobs: Ctrl-C there" in capsys.readouterr().err
    finally:
        session.end(DONE)


def test_a_run_that_is_gone_on_with_meanwhile_has_not_ended(
    runs: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    make(runs, "it", PENDING)
    lives = session_liveness.seems_alive

    def taken_meanwhile(past: session_history.SessionRecord) -> bool:
        session_journal.take_over(past, "a session that resumes it")
        return lives(past)

    monkeypatch.setattr(session_liveness, "seems_alive", taken_meanwhile)  # when cancel looks, another one begins
    assert types(runs, "cancel", "it") == 1
    assert "run it: another session has just gone on with it" in capsys.readouterr().out


# --- runs of somebody else --------------------------------------------------------------------------------------------


@needs_root
@pytest.mark.parametrize("closed", ["it", "it/sessions", "it/sessions/*.jsonl"])
@pytest.mark.slow
def test_a_run_that_may_not_be_read_is_not_taken_for_none(runs: Path, closed: str) -> None:
    make(runs, "it", PENDING)
    to_nobody(runs)
    (path,) = runs.glob(closed)
    os.chown(path, 0, 0)
    path.chmod(0o700)
    said = runs.parent / "said"
    assert as_nobody(said, lambda: types(runs, "jobs")) == 1
    assert re.search(
        rf"error: run it: the record of a session cannot be read: .*Permission denied: '{runs}/it", said.read_text()
    )
    assert "no run" not in said.read_text()
    for words in (["jobs", "it"], ["cancel", "it"], ["logs", "a", "--run=it"]):
        assert as_nobody(said, lambda words=words: types(runs, *words)) == 2  # type: ignore[misc]
        assert "error: the record of a session cannot be read: " in said.read_text().replace("run it: ", "")


@needs_root
def test_runs_that_may_not_be_read_are_not_taken_for_none(runs: Path) -> None:
    make(runs, "it", PENDING)
    to_nobody(runs)
    os.chown(runs, 0, 0)
    runs.chmod(0o700)
    said = runs.parent / "said"
    assert as_nobody(said, lambda: types(runs, "jobs")) == 2
    assert f"error: the runs cannot be read: [Errno 13] Permission denied: '{runs}'" in said.read_text()


@needs_root
def test_a_run_of_somebody_else_is_not_cancelled(runs: Path) -> None:
    make(runs, "it", PENDING)
    to_nobody(runs)
    for each in (runs / "it", *(runs / "it").rglob("*")):
        os.chown(each, 0, 0)
    said = runs.parent / "said"
    assert as_nobody(said, lambda: types(runs, "cancel", "it")) == 2
    whose = f"{runs}/it/sessions belongs to user root, and we may not write to it"
    assert said.read_text() == f"error: nothing was cancelled: {whose}\n"
    assert find_run.unfinished(runs) == (["it"], [])


# --- records that cannot be read -------------------------------------------------------------------------------------


def broken(runs: Path, text: str) -> None:
    make(runs, "broken", PENDING)
    (path,) = (runs / "broken/sessions").glob("*.jsonl")
    path.write_text(text)


@pytest.mark.parametrize("text", ["no JSON\n", '{"schema": 99}\n'])
def test_one_broken_record_keeps_nobody_from_the_others(
    runs: Path, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    broken(runs, text)
    make(runs, "whole", PENDING)
    assert types(runs, "jobs") == 1
    said = capsys.readouterr()
    assert said.out.startswith("run whole, left unfinished")
    assert re.fullmatch(rf"error: run broken: {runs}/broken/sessions/.+\.jsonl cannot be read: .+\n", said.err)
    for words in (["jobs", "broken"], ["logs", "a", "--run=broken"], ["cancel", "broken"]):
        assert types(runs, *words) == 2
        assert f"error: {runs}/broken/sessions/" in capsys.readouterr().err
    assert types(runs, "prune", "--yes", "--keep-days=0", "--keep-failed-days=0") == 0
    assert "stays: it cannot be read: " in capsys.readouterr().out
    assert (runs / "broken").is_dir()


# --- what the machine has against it ---------------------------------------------------------------------------------


def test_what_cannot_be_read_is_an_error_with_its_path(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = make(runs, "it")
    (folder / "log").unlink()
    (folder / "log").mkdir()
    assert types(runs, "logs", "a") == 2
    assert capsys.readouterr().err == f"error: {folder}/log: Is a directory\n"


def command(runs: Path, *words: str) -> list[str]:
    places = ["--site", str(runs.parent / "site"), "--runs-dir", str(runs)]
    return [sys.executable, "-m", "platforms", *words, *places]


@pytest.mark.slow
def test_a_closed_output_is_no_mistake_of_ours(runs: Path) -> None:
    make(runs, "it")
    for words, closed in ((["logs", "a"], ">&-"), (["jobs", "nothing"], ">&- 2>&-")):
        typed = f"{shlex.join(command(runs, *words))} {closed}"
        done = subprocess.run(["sh", "-c", typed], cwd=ROOT, capture_output=True, text=True)
        assert done.returncode == (2 if "nothing" in words else 0), (typed, done.stderr)
        assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_ctrl_c(runs: Path) -> None:
    session = Journal(runs / "it", {"tests": [TEST], "options": {}})
    try:
        session.write_jobs([JOB])
        folder = job_folder.attempt_folder(runs, "it", TEST, 1)
        folder.mkdir()
        (folder / "log").write_text("its log\n")
        words = command(runs, "logs", "-f", "a", "--run=it")
        with subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            assert process.stdout.readline() == b"its log\n"
            process.send_signal(signal.SIGINT)
            assert process.wait() == 128 + signal.SIGINT
            assert process.stderr.read() == b"interrupted\n"
    finally:
        session.end(DONE)


def fail_locks(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    def flock(file: int, how: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", flock)


def test_a_file_system_without_locks_is_said_so(
    runs: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As NFS without its lock daemon."""
    make(runs, "it")
    fail_locks(monkeypatch, errno.ENOLCK)
    assert types(runs, "prune", "--yes", "--keep-days=0") == 0
    said = capsys.readouterr().out
    assert f"{runs}/old is in a file system without locks (No locks available): let no other prune work in" in said
    assert (runs / "old/it.tar.gz").exists()


def test_a_lock_that_fails_otherwise_is_said_so(
    runs: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    make(runs, "it")
    fail_locks(monkeypatch, errno.ESTALE)
    assert types(runs, "prune", "--yes", "--keep-days=0") == 2
    said = capsys.readouterr().err
    assert f"{runs}/old/.lock: the kernel does not say whether another process works there: Stale file handle" in said
    assert (runs / "it").is_dir()
