"""`push` and `pull`: the history in a branch, pushed by many at once, killed, refused, edited."""

from __future__ import annotations

import base64
import fcntl
import http.server
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from platforms.job import RefusedError
from reporting.__main__ import main
from reporting.history.reader import read, run_of
from reporting.history.writer import HistoryWriter
from reporting.shared_branch import git as our_git
from reporting.shared_branch import history_files
from reporting.shared_branch.remote import JOB_TOKEN, TOKEN, remote_of
from tests.programs import require
from tests.reporting.history_lines import envelope

Capture = pytest.CaptureFixture[str]
Clone = Callable[[str], Path]
Patch = pytest.MonkeyPatch

pytestmark = pytest.mark.slow  # each test starts git dozens of times
ROOT = Path(__file__).resolve().parents[2]
MONTH_S = 31 * 86400.0


@pytest.fixture(autouse=True)
def caches(monkeypatch: Patch, tmp_path: Path) -> Path:
    """Where the clones of branches are kept."""
    for name in (TOKEN, JOB_TOKEN, "CI_SERVER_HOST", "GITLAB_CI"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache/hpc-ml-bench/branches"


@pytest.fixture
def server(tmp_path: Path) -> Path:
    """A repository that is pushed to."""
    path = tmp_path / "server.git"
    git("init", "-q", "--bare", str(path))
    return path


@pytest.fixture
def clone(tmp_path: Path, server: Path) -> Clone:
    """Makes a clone of the site's repository, with an empty history."""

    def make(name: str) -> Path:
        folder = tmp_path / name
        git("init", "-q", str(folder))
        git("-C", str(folder), "remote", "add", "origin", str(server))
        (folder / ".gitignore").write_text("/history/\n")
        return folder

    return make


def git(*words: str) -> str:
    require("git", install="apt-get install git")
    done = subprocess.run(["git", *words], capture_output=True, text=True, check=True)
    return done.stdout


def add_runs(site: Path, *run_ids: str, age_s: float = 0.0) -> None:
    """A session with a job for each run id."""
    writer = HistoryWriter(site / "history", clock=lambda: time.time() - age_s)
    for run_id in run_ids:
        writer.write(envelope(run_id=run_id), {"run": run_id})


def runs_in(site: Path) -> list[str]:
    problems: list[str] = []
    found = sorted(each.key.run_id for each in read(site / "history", problems=problems))
    assert problems == []
    return found


def command(word: str, site: Path, *more: str) -> int:
    return main([word, f"--site={site}", *more])


def commit(server: Path, files: Mapping[str, bytes]) -> None:
    """Replace the branch by one commit with these files, as somebody else may, and as earlier versions did."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        git("init", "-q", name)
        for path, content in files.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(content)
        git("-C", name, "add", "--all", "--force")
        git("-C", name, "-c", "user.name=Ada", "-c", "user.email=ada@example.org", "commit", "-q", "-m", "replaced")
        git("-C", name, "push", "-q", "--force", str(server), "HEAD:refs/heads/bench-history")


def commits(server: Path) -> int:
    return int(git("-C", str(server), "rev-list", "--count", "bench-history"))


def files_of(server: Path, branch: str = "bench-history") -> list[str]:
    return git("-C", str(server), "ls-tree", "-r", "--name-only", branch).split()


# --- push and pull ---------------------------------------------------------------------------------------------------


def test_two_clones_have_the_same_history_after_a_push_and_a_pull(clone: Clone, server: Path, capsys: Capture) -> None:
    one, two = clone("one"), clone("two")
    add_runs(one, "a", "b")
    add_runs(two, "c")
    assert command("pull", two) == 0
    assert f"{server} has no branch bench-history yet: the first push makes it" in capsys.readouterr().out
    assert [command("push", one), command("push", two), command("pull", one), command("pull", two)] == [0, 0, 0, 0]
    assert runs_in(one) == runs_in(two) == ["a", "b", "c"]
    assert commits(server) == 2
    capsys.readouterr()
    assert command("push", two) == 0
    assert capsys.readouterr().out == f"bench-history of {server} has all of it already\n"
    assert git("-C", str(one), "status", "--porcelain", "--untracked-files=no") == ""


def test_the_right_to_push_is_tested_without_a_change_of_the_files(clone: Clone, server: Path) -> None:
    site = clone("one")
    assert command("push", site, "--try") == 0
    add_runs(site, "a")
    assert command("push", site) == 0
    before = files_of(server)
    assert command("push", site, "--try") == 0
    assert (files_of(server), commits(server)) == (before, 3)


def test_a_persons_settings_of_git_change_nothing(
    clone: Clone, server: Path, tmp_path: Path, monkeypatch: Patch
) -> None:
    (tmp_path / "hooks").mkdir()
    (tmp_path / "hooks/pre-commit").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "hooks/pre-commit").chmod(0o755)
    (tmp_path / "ignored").write_text("*.jsonl\n")
    settings = {"core.hooksPath": "hooks", "core.excludesFile": "ignored"}
    for key, name in settings.items():
        git("config", "--file", str(tmp_path / "settings"), key, str(tmp_path / name))
    git("config", "--file", str(tmp_path / "settings"), "commit.gpgSign", "true")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "settings"))
    site = clone("one")
    add_runs(site, "a")
    assert command("push", site) == 0
    assert [name for name in files_of(server) if name.startswith("history/")]


def test_a_containers_user_without_a_name_pushes(clone: Clone, monkeypatch: Patch) -> None:
    def nobody() -> str:
        raise OSError("No username set in the environment")

    monkeypatch.setattr("getpass.getuser", nobody)
    site = clone("one")
    add_runs(site, "a")
    assert command("push", site) == 0


def test_the_details_of_jobs_are_pushed_when_they_are_wanted(clone: Clone, server: Path) -> None:
    one, two = clone("one"), clone("two")
    add_runs(one, "a")
    command("push", one)
    assert not [name for name in files_of(server) if name.endswith(".runs.jsonl")]
    command("push", one, "--details")
    command("pull", two, "--details")
    (found,) = read(two / "history")
    assert run_of(two / "history", found) == {"run": "a"}


def test_a_branch_of_an_earlier_version_is_read_and_goes_on(clone: Clone, server: Path) -> None:
    """Earlier versions replaced the only commit by each push, and joined the sessions of past months."""
    one, two = clone("one"), clone("two")
    for run_id in ("old", "older"):
        add_runs(one, run_id, age_s=3 * MONTH_S)
    lines = b"".join(path.read_bytes() for path in (one / "history").glob("*/*[0-9a-f].jsonl"))
    commit(server, {"README.md": b"one commit", "history/joined/2026-08.jsonl": lines})
    add_runs(two, "new")
    assert [command("pull", two), command("push", two)] == [0, 0]
    assert [command("push", one), command("pull", one), command("pull", two)] == [0, 0, 0]
    assert runs_in(one) == runs_in(two) == ["new", "old", "older"]
    commit(server, {"README.md": b"one commit", "history/joined/2026-08.jsonl": lines})  # an earlier version again
    assert [command("push", one), command("pull", two)] == [0, 0]
    assert runs_in(two) == ["new", "old", "older"]


def test_a_session_that_still_writes_is_pushed_as_far_as_its_lines_go(clone: Clone) -> None:
    one, two = clone("one"), clone("two")
    writer = HistoryWriter(one / "history")
    writer.write(envelope(run_id="a"), None)
    (path,) = (one / "history").rglob("*.jsonl")
    with path.open("ab") as file:
        file.write(b'{"test": "half a li')
    command("push", one)
    command("pull", two)
    assert runs_in(two) == ["a"]
    path.write_bytes(path.read_bytes().rpartition(b"\n")[0] + b"\n")
    writer.write(envelope(run_id="b"), None)
    command("push", one)
    command("pull", two)
    assert runs_in(two) == ["a", "b"]
    command("push", two)
    command("pull", one)
    assert runs_in(one) == ["a", "b"]


def test_a_push_looks_for_no_differences_between_files(clone: Clone, server: Path) -> None:
    """Git would compare each file with ten others: for a large site that takes ten minutes, and saves little."""
    git("-C", str(server), "config", "receive.unpackLimit", "1")  # so that it keeps what it receives as it is
    site = clone("one")
    for age in range(3):
        add_runs(site, "a", "b", "c", age_s=age)
    assert command("push", site) == 0
    (index,) = (server / "objects/pack").glob("*.idx")
    assert "chain length" not in git("verify-pack", "-v", str(index))


def test_a_push_and_a_pull_hold_one_file_of_the_history_at_a_time(tmp_path: Path) -> None:
    """A large site's history of a year has gigabytes."""
    month = tmp_path / "ours/2026-11"
    month.mkdir(parents=True)
    for number in range(20):
        (month / f"{number}.jsonl").write_bytes(b"x" * 999_999 + b"\n")
    tracemalloc.start()
    try:
        brought = history_files.bring(tmp_path / "ours", tmp_path / "theirs", details=False)
        _now, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (brought.new, len(list((tmp_path / "theirs").rglob("*.jsonl")))) == (20, 20)
    assert most < 5 * 1_000_000


def test_a_file_that_was_edited_is_named_and_replaces_no_other_one(clone: Clone, capsys: Capture) -> None:
    one, two = clone("one"), clone("two")
    add_runs(one, "a", "b")
    command("push", one)
    command("pull", two)
    (path,) = (two / "history").rglob("*.jsonl")
    path.write_bytes(path.read_bytes().replace(b'"run_id":"a"', b'"run_id":"z"'))
    add_runs(two, "c")
    assert [command("push", two), command("pull", two), command("pull", one)] == [1, 1, 0]
    assert f"{path} has other lines than this file in bench-history of" in capsys.readouterr().err
    assert runs_in(one) == ["a", "b", "c"]
    assert runs_in(two) == ["b", "c", "z"]
    path.rename(path.with_name("mine.jsonl"))
    assert [command("push", two), command("pull", two), command("pull", one)] == [0, 0, 0]
    assert runs_in(one) == runs_in(two) == ["a", "b", "c", "z"]


# --- runs ------------------------------------------------------------------------------------------------------------


def left_run(site: Path, run_id: str, at_s: float) -> None:
    """The record of a session that has submitted a job and left."""
    folder = site / "runs" / run_id / "sessions"
    folder.mkdir(parents=True)
    head = {"schema": 1, "began_s": at_s, "host": "login1", "process": {"pid": 1}, "beat_s": 5.0, "plan": {"tests": []}}
    end = {"at_s": at_s, "end": "pending"}
    path = folder / f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime(at_s))}-1a2b3c.jsonl"
    path.write_text(f"{json.dumps(head)}\n{json.dumps(end)}\n")
    os.utime(path, (at_s, at_s))


def test_a_run_that_nobody_went_on_with_leaves_the_branch(clone: Clone, server: Path, capsys: Capture) -> None:
    one, two = clone("one"), clone("two")
    (two / "runs").mkdir()
    left_run(one, "young", time.time() - 20 * 86400)
    left_run(one, "ancient", time.time() - 40 * 86400)
    command("push", one, "--runs", f"--runs-dir={one / 'runs'}")
    assert "run ancient is not pushed: it was left 30 days ago, or before" in capsys.readouterr().out
    assert {name.split("/")[1] for name in files_of(server) if name.startswith("runs/")} == {"young"}
    (record,) = (one / "runs/ancient/sessions").iterdir()
    commit(server, {f"runs/ancient/sessions/{record.name}": record.read_bytes()})
    assert command("push", two, "--runs", f"--runs-dir={two / 'runs'}") == 0
    assert files_of(server) == ["README.md"]


@pytest.mark.parametrize("path", ["runs/archives/models-1.pyz", "runs/x/job/run.sh", "runs/x/job/work/log"])
def test_a_branch_writes_only_where_a_push_could(clone: Clone, server: Path, path: str) -> None:
    site = clone("one")
    left_run(site, "x", time.time())
    (record,) = (site / "runs/x/sessions").iterdir()
    session = record.read_bytes()
    shutil.rmtree(site / "runs/x")
    commit(server, {f"runs/{path.split('/')[1]}/sessions/{record.name}": session, path: b"echo stolen\n"})
    assert command("pull", site, "--runs", f"--runs-dir={site / 'runs'}") == 0
    assert not [
        found for found in (site / "runs").rglob("*") if found.is_file() and found.read_bytes() == b"echo stolen\n"
    ]


def test_a_link_in_a_branch_is_no_way_to_a_file_here(clone: Clone, server: Path, tmp_path: Path) -> None:
    site = clone("one")
    (tmp_path / "secret").write_text("a key\n")
    work = tmp_path / "work"
    git("clone", "-q", str(server), str(work))
    (work / "history").mkdir()
    (work / "history/2026-11").symlink_to(tmp_path)
    (work / "history/2026-10").mkdir()
    (work / "history/2026-10/a.jsonl").symlink_to(tmp_path / "secret")
    git("-C", str(work), "add", "--all")
    git("-C", str(work), "-c", "user.name=Eve", "-c", "user.email=eve@example.org", "commit", "-q", "-m", "links")
    git("-C", str(work), "push", "-q", "origin", "HEAD:bench-history")
    assert command("pull", site) == 0
    assert not [path for path in (site / "history").rglob("*") if path.is_file() and "key" in path.read_text()]


# --- many at once ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pushers", "killed"), [(6, 3), pytest.param(16, 6, marks=pytest.mark.nightly("reporting/shared_branch"))]
)
def test_many_push_at_once_and_some_are_killed(clone: Clone, server: Path, pushers: int, killed: int) -> None:
    sites = [clone(f"site-{number}") for number in range(pushers)]
    for number, site in enumerate(sites):
        add_runs(site, f"run-{number:02}")
    chance = random.Random(1)
    pushes = [_push_process(site) for site in sites]
    for push in chance.sample(pushes, killed):
        time.sleep(chance.uniform(0.0, 0.7))
        if push.poll() is None:
            os.killpg(push.pid, signal.SIGKILL)
    ends = [push.communicate()[1] for push in pushes]
    assert not [end for push, end in zip(pushes, ends, strict=True) if push.returncode not in (0, -signal.SIGKILL)]
    reader = clone("reader")
    command("pull", reader)
    acknowledged = {f"run-{number:02}" for number, push in enumerate(pushes) if push.returncode == 0}
    assert acknowledged <= set(runs_in(reader))
    for site, push in zip(sites, pushes, strict=True):
        if push.returncode:
            assert command("push", site) == 0
    command("pull", reader)
    assert runs_in(reader) == [f"run-{number:02}" for number in range(pushers)]
    git("-C", str(server), "fsck", "--strict", "--no-dangling")


def _push_process(site: Path) -> subprocess.Popen[str]:
    words = [sys.executable, "-m", "reporting", "push", f"--site={site}"]
    return subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, process_group=0)


# --- what goes wrong -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("hook", "text"),
    [
        ("pre-receive", "GitLab: You are not allowed to push code to this project."),
        ("update", "You are not allowed to push code to protected branches."),
    ],
)
def test_a_server_that_refuses_is_named_with_what_to_do(
    clone: Clone, server: Path, capsys: Capture, hook: str, text: str
) -> None:
    site = clone("one")
    add_runs(site, "a")
    command("push", site)
    add_runs(site, "b")
    path = server / "hooks" / hook
    path.write_text(f"#!/bin/sh\necho '{text}'\nexit 1\n")
    path.chmod(0o755)
    for words in ((), ("--try",)):
        assert command("push", site, *words) == 2
        error = capsys.readouterr().err
        assert "ask for the right to push there" in error
        assert text in error
    path.unlink()
    assert command("push", site) == 0
    assert commits(server) == 2


def test_a_site_in_no_repository_and_one_that_is_ignored_are_refused(tmp_path: Path, capsys: Capture) -> None:
    suite = tmp_path / "suite"
    git("init", "-q", str(suite))
    (suite / ".gitignore").write_text("/site/\n")
    for site, said in ((tmp_path / "plain", "is in no git repository"), (suite / "site", "is ignored by")):
        add_runs(site, "a")
        assert command("push", site) == 2
        assert said in capsys.readouterr().err


def test_a_git_that_is_missing_is_named(monkeypatch: Patch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(RefusedError, match="git is not installed"):
        our_git.run(["version"])


@pytest.mark.parametrize(
    ("remote", "said"),
    [
        ("upstream", "there is no remote 'upstream', it has origin"),
        ("/no/such/place.git", "git ls-remote /no/such/place.git"),
        ("ext::sh -c true", "cannot be read"),
        (
            "http://127.0.0.1:9/x.git",
            "nothing is lost: type it again when this works: git ls-remote http://127.0.0.1:9",
        ),
    ],
)
def test_a_remote_that_is_not_there_is_asked_once(clone: Clone, capsys: Capture, remote: str, said: str) -> None:
    """Not for the ten minutes in which others may be quicker."""
    site = clone("one")
    add_runs(site, "a")
    assert command("push", site, f"--remote={remote}") == 2
    assert said in capsys.readouterr().err


def test_a_branch_cannot_be_an_option(clone: Clone, capsys: Capture) -> None:
    site = clone("one")
    add_runs(site, "a")
    assert command("push", site, "--branch=--mirror") == 2
    assert "is no name of a branch" in capsys.readouterr().err


@pytest.fixture
def refusing_server() -> Iterator[tuple[str, list[str]]]:
    """A web server that lets nobody in. It gives its host and port, and the headers that it was sent."""
    sent: list[str] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            sent.append(self.headers.get("Authorization", ""))
            self.send_response(403 if sent[-1] else 401)
            self.send_header("WWW-Authenticate", 'Basic realm="GitLab"')
            self.end_headers()
            self.wfile.write(f"HTTP Basic: Access denied for {sent[-1]}".encode())

        def log_message(self, *words: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{server.server_address[1]}", sent
        server.shutdown()


@pytest.mark.parametrize(
    ("environ", "user", "said"),
    [
        ({TOKEN: "glpat-s3cret"}, "hpc-ml-bench", "needs the scope write_repository"),
        ({JOB_TOKEN: "glcbt-s3cret", "CI_SERVER_HOST": "127.0.0.1"}, "gitlab-ci-token", "Allow Git push requests"),
        ({TOKEN: "glpat-s3cret", "CI_SERVER_HOST": "elsewhere"}, "", "set HPC_ML_BENCH_GITLAB_TOKEN"),
        ({}, "", "or a credential helper of git"),
    ],
)
def test_a_token_reaches_its_server_and_nothing_else(
    clone: Clone,
    refusing_server: tuple[str, list[str]],
    capfd: Capture,
    monkeypatch: Patch,
    environ: dict[str, str],
    user: str,
    said: str,
) -> None:
    place, sent = refusing_server
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    site = clone("one")
    add_runs(site, "a")
    git("-C", str(site), "remote", "set-url", "origin", f"http://{place}/group/site.git")
    assert command("push", site) == 2
    shown = "".join(capfd.readouterr())
    assert said in shown
    assert "s3cret" not in shown
    expected = [f"{user}:{value}" for name, value in environ.items() if name in (TOKEN, JOB_TOKEN) and user]
    assert [base64.b64decode(header.partition(" ")[2]).decode() for header in sent[-1:] if header] == expected
    assert not [path for path in site.rglob("*") if path.is_file() and b"s3cret" in path.read_bytes()]


def test_a_password_in_the_url_is_in_no_command_and_no_message(
    clone: Clone, refusing_server: tuple[str, list[str]], capfd: Capture
) -> None:
    place, sent = refusing_server
    site = clone("one")
    url = f"http://gitlab-ci-token:glcbt-s3cret@{place}/group/site.git"
    git("-C", str(site), "remote", "set-url", "origin", url)
    assert "s3cret" not in remote_of(None, site).url
    add_runs(site, "a")
    assert command("push", site) == 2
    assert "s3cret" not in "".join(capfd.readouterr())
    assert base64.b64decode(sent[-1].partition(" ")[2]) == b"gitlab-ci-token:glcbt-s3cret"


@pytest.mark.parametrize("hook", ["pre-receive", "post-receive"])
def test_a_push_that_is_cut_off_before_or_after_it_was_done_is_typed_again(
    clone: Clone, server: Path, tmp_path: Path, hook: str
) -> None:
    site = clone("one")
    add_runs(site, "a")
    path = server / "hooks" / hook
    path.write_text(f"#!/bin/sh\n[ -e {tmp_path}/cut ] && exit 0\ntouch {tmp_path}/cut\nkill -9 $PPID\n")
    path.chmod(0o755)
    assert [command("push", site), command("push", site)] == [2, 0]
    other = clone("two")
    command("pull", other)
    assert runs_in(other) == ["a"]


# --- the clone that is kept ------------------------------------------------------------------------------------------


def test_a_kept_clone_is_used_again_and_one_that_a_killed_command_left_is_made_again(
    clone: Clone, caches: Path
) -> None:
    site = clone("one")
    add_runs(site, "a")
    command("push", site)
    (kept,) = caches.glob("*/.git")
    (kept / "seen").touch()
    add_runs(site, "b")
    assert command("push", site) == 0
    assert (kept / "seen").exists()
    (kept / "ended-well").unlink()  # as after kill -9
    (kept / "index.lock").touch()
    add_runs(site, "c")
    assert command("push", site) == 0
    assert not (kept / "seen").exists()
    two = clone("two")
    command("pull", two)
    assert runs_in(two) == ["a", "b", "c"]


@pytest.mark.parametrize("trouble", ["used", "no cache"])
def test_without_a_kept_clone_a_temporary_one_does(
    clone: Clone, caches: Path, monkeypatch: Patch, trouble: str
) -> None:
    site = clone("one")
    add_runs(site, "a")
    if trouble == "used":
        command("push", site)
        (lock,) = caches.glob("*.lock")
        descriptor = os.open(lock, os.O_RDWR)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    else:
        caches.parent.parent.write_text("a file")
    add_runs(site, "b")
    assert command("push", site) == 0
    if trouble == "used":
        os.close(descriptor)
    two = clone("two")
    command("pull", two)
    assert runs_in(two) == ["a", "b"]


def test_a_push_names_the_unfinished_runs_that_it_carries(clone: Clone, capsys: Capture) -> None:
    site = clone("one")
    left_run(site, "night", time.time() - 60)
    assert command("push", site, "--runs", f"--runs-dir={site / 'runs'}") == 0
    assert "1 unfinished run (night)" in capsys.readouterr().out
