"""Old run folders: what goes and what stays, that an archive holds everything, and that nothing is ever lost midway."""

from __future__ import annotations

import contextlib
import datetime
import fcntl
import json
import os
import random
import re
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from platforms.__main__ import main
from platforms.commands import old_runs
from platforms.rundir.retention import DAY_S
from platforms.rundir.session_history import DONE, PENDING
from platforms.rundir.session_journal import Journal
from platforms.schedulers import supervisor
from reporting.references import store
from reporting.references.answers import Acceptance, Author
from tests.waiting import until

ROOT = Path(__file__).resolve().parents[2]
TEST = "test_a.py::test_a[x]"
PLAN = {"tests": [TEST], "options": {}}
NIGHTLY = pytest.mark.nightly("platforms/commands/prune.py", "platforms/rundir")


@contextlib.contextmanager
def reached() -> Iterator[Path]:
    """A folder that other users reach. Those of pytest are closed to them again by every other pytest that begins."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    with reached() as path:
        yield path


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    (tmp_path / "runs").mkdir()
    return tmp_path / "runs"


def make(runs: Path, name: str, days: float = 40, outcome: str | None = "passed", how: str = DONE) -> Path:
    """A run of one job, whose session ended some days ago."""
    session = Journal(runs / name, PLAN)
    session.write_jobs([{"test": TEST, "attempt": 1, "name": f"{name}-kabcdefg", "platform": "x", "state": "running"}])
    session.end(how)
    job = runs / name / "test_a-x"
    (job / "work").mkdir(parents=True)
    (job / "log").write_text("line\n" * 1000)
    (job / "submitted.json").write_text(json.dumps({"job_id": "1", "name": f"{name}-kabcdefg", "submitted_s": 1.0}))
    if outcome is not None:
        (job / "run.json").write_text(json.dumps({"outcome": outcome}))
    aged(runs / name, days)
    return runs / name


def aged(path: Path, days: float) -> None:
    then = time.time() - days * DAY_S
    for each in (*path.rglob("*"), path):
        os.utime(each, (then, then), follow_symlinks=False)


def prune(runs: Path, *words: str) -> int:
    return main(["prune", "--runs-dir", str(runs), "--site", str(runs.parent), *words])


def elsewhere(runs: Path, *words: str, **settings: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "platforms", "prune", "--runs-dir", str(runs), "--site", str(runs.parent), *words]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **settings)  # type: ignore[call-overload]


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def content(folder: Path) -> dict[bytes, tuple[str, bytes]]:
    """Everything in a folder: what it is, and what it holds."""
    found: dict[bytes, tuple[str, bytes]] = {}
    for path in folder.rglob("*"):
        name = os.fsencode(path.relative_to(folder))
        if path.is_symlink():
            found[name] = ("link", os.fsencode(path.readlink()))
        elif path.is_fifo():
            found[name] = ("fifo", b"")
        elif not path.is_socket():
            found[name] = ("folder", b"") if path.is_dir() else ("file", path.read_bytes())
    return found


def unpacked(runs: Path, name: str, archive: str | None = None) -> dict[bytes, tuple[str, bytes]]:
    """What the system's own tar makes of an archive."""
    there = runs.parent / f"unpacked-{random.randrange(10**9)}"
    there.mkdir()
    subprocess.run(["tar", "-xf", runs / "old" / (archive or f"{name}.tar.gz"), "-C", there], check=True)
    return content(there / name)


# --- what goes, and what stays ---------------------------------------------------------------------------------------


def test_it_is_shown_before_it_goes(runs: Path, capsys: pytest.CaptureFixture[str], monkeypatch) -> None:
    folder = make(runs, "r1")
    with Path(os.devnull).open() as nobody:
        monkeypatch.setattr("sys.stdin", nobody)
        assert prune(runs) == 1
    said = capsys.readouterr().out
    assert re.search(r"^  r1 +40 days +\S+ kB  goes into old/$", said, re.MULTILINE)
    assert "nothing was removed (--yes removes what is shown)" in said
    assert prune(runs, "--dry-run", "--yes") == 0
    assert folder.is_dir()
    assert not (runs / "old").exists()


def test_an_old_run_becomes_one_archive(runs: Path) -> None:
    folder = make(runs, "r1")
    before = content(folder)
    assert prune(runs, "--yes") == 0
    assert names(runs) == ["old"]
    assert names(runs / "old") == [".lock", "r1.tar.gz"]
    assert (runs / "old/r1.tar.gz").stat().st_mode & 0o7777 == 0o600  # of its owner alone
    assert unpacked(runs, "r1") == before


def live(runs: Path) -> None:
    session = Journal(runs / "it", PLAN)
    aged(runs / "it", 400)
    session._stop_beating.set()  # no more beats; its process is ours, and lives


def broken(runs: Path) -> None:
    (path,) = (make(runs, "it") / "sessions").glob("*.jsonl")
    path.write_text('{"schema": 1}\n')
    aged(runs / "it", 400)


def pinned(runs: Path) -> None:
    (make(runs, "it", 400) / "pinned").write_text("the baseline of July\n")


def accepted(runs: Path) -> None:
    make(runs, "it", 400)
    author = Author("ada", datetime.datetime.now(datetime.UTC))
    night = datetime.date(2026, 11, 17)
    numbers = (812.4, 0.006, 0.01, ("it", "x"), 903.1, "new", author)
    store.append(runs.parent, Acceptance(TEST, "rate", "GB/s", "higher", "9d1f", night, *numbers))


def at_work(runs: Path) -> None:
    folder = make(runs, "it", 400)
    (folder / "test_a-x/pid").write_text(json.dumps(supervisor.identity()))
    aged(folder, 400)


def judged(runs: Path, *verdicts: tuple[str, str, bool, str], name: str = "2026-11/a.jsonl") -> Path:
    """A history of what the gate said one after the other: run, metric, red, kind."""
    path = runs.parent / "history" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        for second, (run_id, metric, is_red, kind) in enumerate(verdicts, 1):
            said = {metric: {"kind": kind, "red": is_red}}
            line = {"test": TEST, "schema": 1, "run_id": run_id, "written_s": second, "verdicts": said}
            file.write(json.dumps(line) + "\n")
    return path


def red(runs: Path) -> None:
    make(runs, "it", 400)
    judged(runs, ("it", "rate", True, "slower"), ("later", "rate", True, "slower"), ("later", "other", False, "ok"))


def red_and_acknowledged(runs: Path) -> None:
    make(runs, "it", 400)
    judged(
        runs, ("it", "rate", True, "drifted"), ("later", "rate", False, "acknowledged"), ("x", "rate", False, "blind")
    )


STAYS: dict[str, tuple[Callable[[Path], object], str]] = {
    "young": (lambda runs: make(runs, "it", 29), "1 younger ones stay"),
    "failed": (lambda runs: make(runs, "it", 170, "failed"), "stays: 1 of 1 failed: 180 days"),
    "no result": (lambda runs: make(runs, "it", 170, None), "stays: 1 of 1 without a result: 180 days"),
    "unfinished": (lambda runs: make(runs, "it", 400, None, PENDING), "stays: unfinished: pytest --resume=it"),
    "live": (live, "stays: under way in session"),
    "pinned": (pinned, "stays: pinned: the baseline of July"),
    "accepted": (accepted, "stays: accepted in "),
    "at work": (at_work, "stays: test_a-x still runs"),
    "broken record": (broken, "stays: it cannot be read: "),
    "red": (red, f"stays: {TEST} is still red, and was red in this run"),
    "red and acknowledged": (red_and_acknowledged, f"stays: {TEST} is still red, and was red in this run"),
    "somebody's notes": (lambda runs: (runs / "it").mkdir(), "nothing is old enough to go"),
}


@pytest.mark.parametrize("case", STAYS)
def test_what_stays_says_why(runs: Path, case: str, capsys: pytest.CaptureFixture[str]) -> None:
    begin, why = STAYS[case]
    begin(runs)
    before = content(runs)
    assert prune(runs, "--yes") == 0
    assert why in capsys.readouterr().out
    assert content(runs) == before


def test_no_run_goes_while_an_answer_cannot_be_read(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make(runs, "it", 400)
    (runs.parent / "references").mkdir()
    (runs.parent / "references/answer.yaml").symlink_to("answer.yaml")
    assert prune(runs, "--yes") == 2
    assert "answer.yaml: cannot be read" in capsys.readouterr().err
    assert (runs / "it").is_dir()


def test_a_run_goes_once_its_test_is_no_longer_red(runs: Path) -> None:
    make(runs, "it", 400)
    judged(runs, ("it", "rate", True, "slower"), ("later", "rate", False, "ok"), ("latest", "rate", True, "slower"))
    assert prune(runs, "--yes") == 0
    assert not (runs / "it").exists()


@pytest.mark.parametrize("damage", ["no JSON", "no verdict", "folder", "history of site.yaml"])
def test_no_run_goes_while_the_history_cannot_be_read(
    runs: Path, damage: str, capsys: pytest.CaptureFixture[str]
) -> None:
    make(runs, "it", 400)
    path = judged(runs, ("it", "rate", True, "slower"), ("it", "rate", False, "ok"))
    if damage == "no JSON":
        path.write_text('{"verdicts"\n' + path.read_text())
    elif damage == "no verdict":
        path.write_text(path.read_text().replace('{"kind": "ok", "red": false}', '"ok"'))
    elif damage == "folder":
        (path.parent / "b.jsonl").symlink_to("b.jsonl")
    else:
        (runs.parent / "site.yaml").write_text("history: /not/mounted\n")
    assert prune(runs, "--yes") == 2
    said = capsys.readouterr().err
    assert "(it may name runs that must stay)" in said or "there is no history /not/mounted" in said
    assert (runs / "it").is_dir()


def test_the_torn_end_of_a_history_names_no_run(runs: Path) -> None:
    """Its session was killed, or is writing it."""
    make(runs, "it", 400)
    path = judged(runs, ("other", "rate", True, "slower"))
    path.write_text(path.read_text() + '{"test": "a", "verdicts": {"ra')
    assert prune(runs, "--yes") == 0
    assert not (runs / "it").exists()


@pytest.mark.parametrize("begin", [accepted, red], ids=["accepted", "red"])
def test_what_a_named_run_left_on_platforms_is_needed_too(runs: Path, begin: Callable[[Path], object]) -> None:
    begin(runs)
    named = old_runs.named_runs(runs, runs.parent, runs.parent / "history")
    jobs = old_runs.needed_jobs(runs, named)
    assert list(jobs) == ["it-kabcdefg"]
    assert jobs["it-kabcdefg"] == f"run it: {named['it']}"


@pytest.mark.parametrize(
    ("outcome", "days", "words", "site", "goes"),
    [
        ("failed", 181, [], "", True),
        ("error", 8, ["--keep-days=7", "--keep-failed-days=7.5"], "", True),
        ("failed", 200, ["--keep-days=365"], "", False),  # never for a shorter time than what passed
        ("passed", 8, [], "keep_days: 7", True),
        ("failed", 40, [], "keep_failed_days: 35", True),
        ("passed", 8, ["--keep-days=9"], "keep_days: 7", False),
        ("passed", 0, ["--keep-days=0"], "", True),
    ],
)
def test_how_long(runs: Path, outcome: str, days: float, words: list[str], site: str, goes: bool) -> None:
    (runs.parent / "site.yaml").write_text(site)
    make(runs, "it", days, outcome)
    make(runs, "other", 1)
    assert prune(runs, "--yes", *words) == 0
    assert (runs / "it").exists() != goes


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--keep-days=soon"], "--keep-days: 'soon' is no number of days"),
        (["--keep-failed-days=-1"], "--keep-failed-days: '-1' is no number of days"),
        (["--run=it"], "prune --run` is gone; touch runs/RUN/pinned keeps a run"),
        (["--older-than", "2h"], "prune --older-than` is gone; type: python -m platforms prune NAME --keep-days=N"),
        (["--runs-dir=/nosuch"], "--runs-dir: there is no folder /nosuch"),
        (["local"], "python -m platforms prune, without a name"),
    ],
)
def test_what_cannot_be_meant(runs: Path, words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    make(runs, "it")
    before = content(runs)
    assert prune(runs, "--yes", *words) == 2
    assert said in capsys.readouterr().err
    assert content(runs) == before


def test_the_sites_days_are_numbers(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (runs.parent / "site.yaml").write_text("keep_days: -1\nkeep_failed_days: long\n")
    assert prune(runs, "--yes") == 2
    said = capsys.readouterr().err
    assert "site.yaml:1: keep_days: '-1' is too small" in said
    assert "site.yaml:2: keep_failed_days: needs a number" in said


def test_links_are_not_followed(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    outside = make(tmp_path, "outside")
    (runs / "linked").symlink_to(outside)
    (make(runs, "r1") / "out").symlink_to(outside)
    aged(runs / "r1", 40)
    (runs / "latest").symlink_to("r1")
    before = content(outside)
    assert prune(runs, "--yes") == 0
    assert content(outside) == before
    assert (runs / "linked").is_symlink()
    assert not (runs / "latest").is_symlink()  # it would lead nowhere
    assert unpacked(runs, "r1")[b"out"] == ("link", os.fsencode(outside))


# --- the archive -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_whatever_a_job_leaves_is_in_it(runs: Path) -> None:
    folder = make(runs, "r 1 'ä'")
    work = folder / "test_a-x" / "work"
    for name in (b"\xff\xfe", b"a\nb", "ß ü".encode(), b"-rf", b"n" * 255, b"a=b; rm *"):
        Path(os.fsdecode(os.fsencode(work) + b"/" + name)).write_bytes(b"held " + name)
    deep = work.joinpath(*["d" * 60] * 8)
    deep.mkdir(parents=True)
    (deep / "empty").touch()
    (work / "random").write_bytes(random.randbytes(3 << 20))
    with (work / "sparse").open("wb") as file:
        file.truncate(5 << 20)
    (work / "same").hardlink_to(work / "random")
    (work / "dangling").symlink_to("nowhere")
    (work / "loop").symlink_to("..")
    os.mkfifo(work / "fifo")
    with socket.socket(socket.AF_UNIX) as left:
        os.chdir(work)  # a socket's path may have 107 bytes
        left.bind("socket")
        os.chdir(ROOT)
    (work / "read-only").mkdir()
    (work / "read-only/file").touch()
    (work / "read-only").chmod(0o555)
    before = content(folder)
    aged(folder, 40)
    assert prune(runs, "--yes") == 0
    assert not folder.exists()
    assert unpacked(runs, folder.name) == before


def test_a_run_id_that_is_given_again_gets_another_archive(runs: Path) -> None:
    first = content(make(runs, "nightly"))
    assert prune(runs, "--yes") == 0
    second = content(make(runs, "nightly", outcome="failed"))
    assert first != second
    assert prune(runs, "--yes", "--keep-failed-days=0") == 0
    assert unpacked(runs, "nightly") == first
    assert unpacked(runs, "nightly", "nightly.2.tar.gz") == second


# --- midway ----------------------------------------------------------------------------------------------------------


def heavy(runs: Path, name: str = "r1", count: int = 60) -> dict[bytes, tuple[str, bytes]]:
    folder = make(runs, name)
    for number in range(count):
        (folder / f"test_a-x/work/{number}").write_bytes(random.randbytes(100_000))
    aged(folder, 40)
    return content(folder)


@pytest.mark.slow
@pytest.mark.parametrize("times", [1, pytest.param(8, marks=NIGHTLY)])
def test_a_prune_that_is_killed_loses_nothing(runs: Path, times: int) -> None:
    """At moments that come earlier whenever a prune was quicker than the signal."""
    limit_s, killed, name, before = 0.5, 0, "", dict[bytes, tuple[str, bytes]]()
    for number in range(200):
        if not (runs / name).exists() or not name:
            name = f"r{number}"
            before = heavy(runs, name)
        process = elsewhere(runs, "--yes")
        until(lambda process=process: at_work_in(runs, process) or process.poll() is not None, longest_s=0.002)
        time.sleep(random.uniform(0.0, limit_s))
        process.send_signal(signal.SIGKILL)
        process.communicate()
        killed += process.returncode == -signal.SIGKILL
        limit_s /= 1 if process.returncode == -signal.SIGKILL else 2
        kept = [runs / name, *runs.glob(f".going/*/{name}")]
        whole = [each for each in kept if each.exists() and content(each) == before]
        assert whole or unpacked(runs, name) == before
        if killed == times:
            break
    assert prune(runs, "--yes") == 0
    assert names(runs) == ["old"]
    assert f"{name}.tar.gz" in names(runs / "old")
    assert not [each for each in names(runs / "old") if each.endswith((".draft", ".2.tar.gz"))]
    assert unpacked(runs, name) == before
    assert killed == times


def at_work_in(runs: Path, process: subprocess.Popen[str]) -> bool:
    """It holds the lock, and has signed it."""
    lock = runs / "old/.lock"
    return lock.exists() and lock.read_text().startswith(f"process {process.pid} ")


def moved_aside(runs: Path) -> dict[bytes, tuple[str, bytes]]:
    """A prune of r1 that was killed before it removed the folder; and what r1 holds."""
    before = content(make(runs, "r1"))
    assert prune(runs, "--yes") == 0
    aside = runs / ".going/r1.tar.gz"
    aside.mkdir(parents=True)
    subprocess.run(["tar", "-xf", runs / "old/r1.tar.gz", "-C", aside], check=True)
    return before


@pytest.mark.parametrize("half_removed", [False, True])
def test_the_next_prune_goes_on(runs: Path, *, half_removed: bool, capsys: pytest.CaptureFixture[str]) -> None:
    before = moved_aside(runs)
    (runs / "old/.r1.99.draft").write_text("half")
    if half_removed:
        (runs / ".going/r1.tar.gz/r1/test_a-x/log").unlink()
    assert prune(runs, "--dry-run") == 0
    assert "r1  an earlier prune was ended while it removed this: goes on" in capsys.readouterr().out
    assert prune(runs, "--yes") == 0
    assert names(runs) == ["old"]
    assert names(runs / "old") == [".lock", "r1.tar.gz"]
    assert unpacked(runs, "r1") == before


def test_what_no_archive_holds_goes_back_to_its_place(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Although an earlier run of that name has one."""
    before = moved_aside(runs)
    (runs / ".going/r1.tar.gz").rename(runs / ".going/r1.2.tar.gz")
    assert prune(runs, "--yes", "--keep-days=100") == 0
    assert "r1: back in its place: no archive has it all" in capsys.readouterr().out
    assert content(runs / "r1") == before
    assert names(runs) == ["old", "r1"]


def stopped_midway(runs: Path, least_bytes: int) -> tuple[subprocess.Popen[str], dict[bytes, tuple[str, bytes]]]:
    """A prune that is stopped while it writes the archive of r1, and has written so much of it; and what r1 held."""
    for count in (60, 300, 2400):  # the larger, where it was through before it was stopped
        before = heavy(runs, count=count)
        process = elsewhere(runs, "--yes")
        until(
            lambda process=process: sizes(runs, "old/.r1.*.draft", least_bytes) or process.poll() is not None,
            longest_s=0.002,
        )
        process.send_signal(signal.SIGSTOP)
        until(lambda process=process: (supervisor.stat_fields(process.pid) or ["Z"])[0] in "TZ")
        if process.poll() is None and sizes(runs, "old/.r1.*.draft", least_bytes) and (runs / "r1").exists():
            return process, before
        process.kill()
        process.communicate()
        assert prune(runs, "--yes") == 0
        for archive in runs.glob("old/r1*.tar.gz"):
            archive.unlink()
    pytest.fail("each prune was through before it could be stopped")


def sizes(runs: Path, pattern: str, least_bytes: int) -> bool:
    for path in runs.glob(pattern):
        with contextlib.suppress(FileNotFoundError):  # it was through meanwhile
            if path.stat().st_size >= least_bytes:
                return True
    return False


@pytest.mark.slow
@pytest.mark.parametrize("late", [False, True])
def test_a_run_that_is_gone_on_with_meanwhile_stays(runs: Path, *, late: bool) -> None:
    """Before or after the folder of sessions is in the archive, which comes first there."""
    process, before = stopped_midway(runs, 1_000_000 if late else 0)
    session = Journal(runs / "r1", PLAN)
    process.send_signal(signal.SIGCONT)
    try:
        out, errors = process.communicate()
        assert process.returncode == 1, out
        assert "r1 stays: a process has begun to work on it" in errors
        after = content(runs / "r1")
        assert {name: after[name] for name in before} == before
        assert session.path.exists()
        assert names(runs / "old") == [".lock"]
        session.write_jobs([{"test": TEST, "state": "running"}])
    finally:
        session.end(DONE)


def test_two_prunes_do_not_meet(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make(runs, "r1")
    (runs / "old").mkdir()
    with (runs / "old/.lock").open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        assert prune(runs, "--yes") == 2
    assert "another prune is at work" in capsys.readouterr().err
    assert (runs / "r1").is_dir()


# --- what the machine has against it ---------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_full_disk_costs_no_run(runs: Path) -> None:
    """A limit on the size of files fails in the middle of a write, as a full disk does."""
    before = heavy(runs)
    make(runs, "small")
    limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (500_000, 500_000))  # noqa: E731
    process = elsewhere(runs, "--yes", preexec_fn=limit)
    out, errors = process.communicate()
    assert process.returncode == 1
    assert "error: r1 stays as it is: [Errno 27] File too large" in errors
    assert content(runs / "r1") == before
    assert "small -> " in out
    assert names(runs / "old") == [".lock", "small.tar.gz"]


needs_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can be somebody else")


def to_nobody(runs: Path) -> None:
    """A user who owns the run, and not everything in it."""
    for each in (runs, *runs.rglob("*")):
        os.chown(each, 65534, 65534)


def as_nobody(said: Path, act: Callable[[], int]) -> int:
    """In a child that gives up root's rights; the interpreter may lie where only root looks. `said` gets its words."""
    pid = os.fork()
    if pid == 0:
        code = 99
        try:
            with said.open("w") as sys.stderr, contextlib.redirect_stdout(sys.stderr):
                os.setgroups([])
                os.setgid(65534)
                os.setuid(65534)
                code = act()
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@needs_root
@pytest.mark.parametrize("trouble", ["unreadable", "folder of another", "runs of another"])
def test_what_belongs_to_somebody_else(runs: Path, trouble: str) -> None:
    folder = make(runs, "r1")
    to_nobody(runs)
    work = folder / "test_a-x/work"
    if trouble == "unreadable":
        (work / "secret").write_text("x")
        (work / "secret").chmod(0o600)
        code, said = 1, r"r1 stays as it is: \[Errno 13\] Permission denied: '\S+/secret'"
    elif trouble == "folder of another":
        (work / "others").mkdir()
        (work / "others/file").write_text("x")
        said = r"old/r1.tar.gz holds all of it, but \S+/.going/r1.tar.gz/r1 cannot be removed: \[Errno 1\]"
        code = 1
    else:
        os.chown(runs, 0, 0)
        code, said = 2, "archives cannot be written there, so nothing was removed"
    aged(folder, 40)
    before = content(folder)
    errors = runs.parent / "errors"
    assert as_nobody(errors, lambda: prune(runs, "--yes")) == code, errors.read_text()
    assert re.search(said, errors.read_text())
    assert (unpacked(runs, "r1") if trouble == "folder of another" else content(folder)) == before
    if trouble == "folder of another":
        assert prune(runs, "--yes") == 0  # by who may
        assert names(runs) == ["old"]


@needs_root
@pytest.mark.parametrize("closed", ["", "sessions", "test_a-x", "sessions/*.jsonl", "test_a-x/run.json"])
def test_a_run_that_cannot_be_read_keeps_no_other_from_going(runs: Path, closed: str) -> None:
    make(runs, "other")
    folder = make(runs, "r1")
    aged(runs, 40)
    to_nobody(runs)
    path = next(folder.glob(closed)) if closed else folder
    os.chown(path, 0, 0)
    path.chmod(0o000)
    said = runs.parent / "said"
    as_nobody(said, lambda: prune(runs, "--yes"))
    assert folder.is_dir(), said.read_text()
    assert not (runs / "other").exists()
    if closed in ("", "sessions", "test_a-x"):
        assert re.search(r"^  r1 .*stays: it cannot be read: ", said.read_text(), re.MULTILINE)
