"""`accept --merge-request` and `ack --merge-request`: a branch in a real repository, and what asks GitLab."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from platforms.job import RefusedError
from reporting.__main__ import main
from reporting.history.writer import HistoryWriter
from reporting.references import store
from reporting.shared_branch import git as our_git
from reporting.shared_branch.remote import JOB_TOKEN, TOKEN
from tests.reporting.test_answers_commands import TEST, last_night, slid

ADDRESS = "https://gitlab.example.org/group/site/-/merge_requests/5"
HOOK = """#!/bin/sh
env | sed -n 's/^GIT_PUSH_OPTION_[0-9]*=//p' > {options}
echo 'View merge request for it:'
echo '  {address}'
""".replace("{address}", ADDRESS)


def git(*words: str, folder: Path | None = None) -> str:
    where = [] if folder is None else ["-C", str(folder)]
    person = ["-c", "user.name=Ada", "-c", "user.email=ada@example.org"]
    done = subprocess.run(["git", *where, *person, *words], capture_output=True, text=True, check=True)
    return done.stdout.strip()


class Site:
    """A clone of a site's repository, whose history has a step, and the server that it is pushed to."""

    def __init__(self, folder: Path, prefix: str = "") -> None:
        self.server = folder / "server.git"
        self.top = folder / "clone"
        self.folder = self.top / prefix
        self.prefix = prefix
        git("init", "-q", "--bare", "-b", "main", str(self.server))
        git("init", "-q", "-b", "main", str(self.top))
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "site.yaml").write_text("name: site\n")
        (self.folder / ".gitignore").write_text("/history/\n")
        git("add", "-A", folder=self.top)
        git("commit", "-qm", "our site", folder=self.top)
        git("remote", "add", "origin", str(self.server), folder=self.top)
        git("push", "-q", "origin", "main", folder=self.top)
        writer = HistoryWriter(self.folder / "history")
        for each in slid():
            writer.write(each, None)

    def accept(self, *more: str, reason: str = "driver 580 must stay, case 4711") -> int:
        since = f"{slid()[26].key.run_id[:4]}-{slid()[26].key.run_id[4:6]}-{slid()[26].key.run_id[6:8]}"
        words = ["accept", "resnet50", f"--since={since}", f"--reason={reason}", "--by=ada", f"--site={self.folder}"]
        return main([*words, "--merge-request", *more])

    def ack(self, *more: str) -> int:
        words = ["ack", "resnet50", "--ticket=https://tickets.example/17", f"--until={last_night().replace(year=2099)}"]
        return main([*words, "--by=ada", f"--site={self.folder}", "--merge-request", *more])

    def branches(self) -> list[str]:
        found = git("for-each-ref", "--format=%(refname:short)", "refs/heads", folder=self.server).split()
        return [name for name in found if name != "main"]

    def merge(self, branch: str) -> None:
        """Merge a branch into main, and bring it here."""
        git("pull", "-q", "--ff-only", "origin", "main", folder=self.top)
        git("fetch", "-q", "origin", branch, folder=self.top)
        git("merge", "-q", "--no-ff", "-m", "merged", "FETCH_HEAD", folder=self.top)
        git("push", "-q", "origin", "main", folder=self.top)


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CI_SERVER_HOST", TOKEN, JOB_TOKEN):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def options(site: Site, tmp_path: Path) -> Callable[[], dict[str, str]]:
    """Makes the server answer as GitLab does. It gives the push options of the last push."""
    git("config", "receive.advertisePushOptions", "true", folder=site.server)
    hook = site.server / "hooks/post-receive"
    hook.write_text(HOOK.replace("{options}", str(tmp_path / "options")))
    hook.chmod(0o755)

    def read() -> dict[str, str]:
        return dict(line.partition("=")[::2] for line in (tmp_path / "options").read_text().splitlines())

    return read


def test_a_level_is_proposed_and_nothing_here_is_touched(
    site: Site, options: Callable[[], dict[str, str]], capsys: pytest.CaptureFixture[str]
) -> None:
    (site.folder / "half-done.txt").write_text("x")
    git("add", "half-done.txt", folder=site.top)
    before = [git(*words, folder=site.top) for words in (["status", "--porcelain"], ["rev-parse", "HEAD"], ["branch"])]
    assert site.accept("--target=main") == 0
    after = [git(*words, folder=site.top) for words in (["status", "--porcelain"], ["rev-parse", "HEAD"], ["branch"])]
    assert before == after
    (branch,) = site.branches()
    said = capsys.readouterr().out.splitlines()[-1]
    assert said == f"pushed as the branch {branch}; its merge request: {ADDRESS}"
    asked = options()
    assert {"merge_request.create", "merge_request.remove_source_branch"} <= asked.keys()
    assert asked["merge_request.target"] == "main"
    assert asked["merge_request.title"].startswith("Accept effective throughput 9")
    assert TEST in asked["merge_request.title"]
    for part in ("level ", "before ", "anchor ", "runs ", "reason  driver 580 must stay, case 4711", "by      ada, "):
        assert f"\\n  {part}" in asked["merge_request.description"]
    assert slid()[-1].key.run_id in asked["merge_request.description"]
    assert git("rev-parse", f"{branch}~1", folder=site.server) == git("rev-parse", "main", folder=site.server)
    (added,) = git("diff", "--name-status", f"{branch}~1", branch, folder=site.server).splitlines()
    assert added.startswith("A\treferences/test_resnet50-eidf_a100-1x4gpu-tuned/")


def test_an_answer_that_is_typed_again_replaces_its_branch(
    site: Site, options: Callable[[], dict[str, str]], capsys: pytest.CaptureFixture[str]
) -> None:
    site.accept()
    (branch,) = site.branches()
    assert site.accept(reason="driver 580 must stay, case 4712") == 0
    assert site.branches() == [branch]
    assert git("rev-list", "--count", f"main..{branch}", folder=site.server) == "1"
    assert "case 4712" in options()["merge_request.description"]


def test_main_may_move_meanwhile(site: Site) -> None:
    assert site.ack() == 0
    assert site.accept() == 0
    ack, accept = sorted(site.branches(), key=lambda name: "accept" in name)
    site.merge(ack)
    site.merge(accept)
    references = store.load(site.folder)
    assert len(references.acceptances) == len(references.acknowledgements) == 1
    assert references.problems == []


def test_a_site_may_be_a_folder_of_its_repository(tmp_path: Path) -> None:
    site = Site(tmp_path, "centres/campus/")
    assert site.accept() == 0
    (branch,) = site.branches()
    added = git("diff", "--name-only", f"{branch}~1", branch, folder=site.server)
    assert added.startswith("centres/campus/references/test_resnet50-")
    site.merge(branch)
    assert len(store.load(site.folder).acceptances) == 1


def test_a_server_without_push_options_gets_the_branch(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    assert site.accept() == 0
    (branch,) = site.branches()
    assert f"pushed as the branch {branch}; open a merge request from it" in capsys.readouterr().out


def test_a_site_without_a_repository_or_a_target_is_refused(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    assert site.accept("--target=release") == 2
    assert "has no branch release" in capsys.readouterr().err
    assert site.branches() == []
    (site.top / ".git").rename(site.top / "git-away")
    assert site.accept() == 2
    assert "is in no git repository" in capsys.readouterr().err


def test_a_git_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(RefusedError, match="git is not installed"):
        our_git.run(["version"])
