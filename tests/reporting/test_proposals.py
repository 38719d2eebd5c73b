"""`accept --merge-request` and `ack --merge-request`: a branch in a real repository, a merge request in a stand-in."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from platforms.job import RefusedError
from reporting.__main__ import main
from reporting.gitlab import token
from reporting.gitlab.merge_requests import project_of
from reporting.history.writer import HistoryWriter
from reporting.references import store
from reporting.shared_branch import git as our_git
from tests.fake_gitlab import PATH, FakeGitLab, Trouble, serving
from tests.reporting.test_answers_commands import TEST, last_night, slid

GOOD = "glpat-good"
HOOK = """#!/bin/sh
env | sed -n 's/^GIT_PUSH_OPTION_[0-9]*=//p' > {options}
echo 'View merge request for it:'
echo '  https://gitlab.example.org/group/site/-/merge_requests/5'
"""


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

    def merge(self, branch: str, *trailers: str) -> None:
        """Merge a branch into main as GitLab does, and bring it here."""
        git("pull", "-q", "--ff-only", "origin", "main", folder=self.top)
        git("fetch", "-q", "origin", branch, folder=self.top)
        message = "\n".join(
            [f"Merge branch '{branch}' into 'main'", "", "See merge request group/site!1", "", *trailers]
        )
        git("merge", "-q", "--no-ff", "-m", message, "FETCH_HEAD", folder=self.top)
        git("push", "-q", "origin", "main", folder=self.top)


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


@pytest.fixture
def gitlab(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeGitLab]:
    with serving() as server:
        for name, value in (server.environ() | {token.VARIABLE: GOOD}).items():
            monkeypatch.setenv(name, value)
        yield server


@pytest.fixture
def no_gitlab(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CI_API_V4_URL", "CI_PROJECT_ID", "CI_SERVER_HOST", token.VARIABLE, token.JOB):
        monkeypatch.delenv(name, raising=False)


def test_a_level_is_proposed_and_nothing_here_is_touched(
    site: Site, gitlab: FakeGitLab, capsys: pytest.CaptureFixture[str]
) -> None:
    (site.folder / "half-done.txt").write_text("x")
    git("add", "half-done.txt", folder=site.top)
    before = [git(*words, folder=site.top) for words in (["status", "--porcelain"], ["rev-parse", "HEAD"], ["branch"])]
    assert site.accept() == 0
    after = [git(*words, folder=site.top) for words in (["status", "--porcelain"], ["rev-parse", "HEAD"], ["branch"])]
    assert before == after
    (asked,) = gitlab.merge_requests
    assert f"proposed as a merge request: {gitlab.url}/{PATH}/-/merge_requests/1" in capsys.readouterr().out
    assert asked["title"].startswith("Accept effective throughput 9")
    assert TEST in asked["title"]
    for part in ("level ", "before ", "anchor ", "runs ", "reason  driver 580 must stay, case 4711", "by      ada, "):
        assert f"\n  {part}" in asked["description"]
    assert slid()[-1].key.run_id in asked["description"]
    assert asked["remove_source_branch"] is True
    (branch,) = site.branches()
    assert asked["source_branch"] == branch
    assert git("rev-parse", f"{branch}~1", folder=site.server) == git("rev-parse", "main", folder=site.server)
    (added,) = git("diff", "--name-status", f"{branch}~1", branch, folder=site.server).splitlines()
    assert added.startswith("A\treferences/test_resnet50-eidf_a100-1x4gpu-tuned/")


def test_the_same_answer_is_proposed_once(site: Site, gitlab: FakeGitLab, capsys: pytest.CaptureFixture[str]) -> None:
    site.accept()
    (branch,) = site.branches()
    first = git("rev-parse", branch, folder=site.server)
    assert site.accept() == 0
    assert git("rev-parse", branch, folder=site.server) == first
    assert len(gitlab.merge_requests) == 1
    assert site.accept(reason="driver 580 must stay, case 4712") == 0
    assert git("rev-parse", branch, folder=site.server) != first
    assert git("rev-list", "--count", f"main..{branch}", folder=site.server) == "1"
    (asked,) = gitlab.merge_requests
    assert "case 4712" in asked["description"]
    assert f"{gitlab.url}/{PATH}/-/merge_requests/1" in capsys.readouterr().out.splitlines()[-1]


def test_an_answer_that_is_merged_is_not_proposed_again_and_names_who_approved(
    site: Site, gitlab: FakeGitLab, capsys: pytest.CaptureFixture[str]
) -> None:
    site.accept()
    (branch,) = site.branches()
    site.merge(
        branch,
        "Approved-by: Sidney Jones <sjones@example.com>",
        "Approved-by: Zhang Wei <zwei@example.com>",
        "Merged-by: Alex Garc\udce9a <agarcia@example.com>",  # a byte that is no UTF-8
    )
    capsys.readouterr()
    assert site.accept() == 0
    assert "main of " in capsys.readouterr().out.splitlines()[-1]
    assert main(["answers", f"--site={site.folder}"]) == 0
    said = capsys.readouterr().out
    assert "; approved by Sidney Jones and Zhang Wei, merged by Alex Garc" in said
    for depth, is_known in ((1, False), (2, True)):  # without its parent a commit seems to add every file
        clone = site.top.with_name(f"depth-{depth}")
        git("clone", "-q", f"--depth={depth}", f"file://{site.server}", str(clone))
        assert main(["answers", f"--site={clone}"]) == 0
        assert ("approved by" in capsys.readouterr().out) is is_known


def test_main_may_move_meanwhile(site: Site, gitlab: FakeGitLab) -> None:
    assert site.ack() == 0
    assert site.accept() == 0
    ack, accept = sorted(site.branches(), key=lambda name: "accept" in name)
    site.merge(ack)
    assert site.accept(reason="another reason") == 0
    assert git("rev-parse", f"{accept}~1", folder=site.server) == git("rev-parse", "main", folder=site.server)
    site.merge(accept)
    references = store.load(site.folder)
    assert len(references.acceptances) == len(references.acknowledgements) == 1
    assert references.problems == []


def test_a_site_may_be_a_folder_of_its_repository(tmp_path: Path, gitlab: FakeGitLab) -> None:
    site = Site(tmp_path, "centres/campus/")
    assert site.accept() == 0
    (branch,) = site.branches()
    added = git("diff", "--name-only", f"{branch}~1", branch, folder=site.server)
    assert added.startswith("centres/campus/references/test_resnet50-")
    site.merge(branch)
    assert len(store.load(site.folder).acceptances) == 1


def test_without_a_token_the_push_asks_for_the_merge_request(
    site: Site, tmp_path: Path, no_gitlab: None, capsys: pytest.CaptureFixture[str]
) -> None:
    git("config", "receive.advertisePushOptions", "true", folder=site.server)
    hook = site.server / "hooks/post-receive"
    hook.write_text(HOOK.replace("{options}", str(tmp_path / "options")))
    hook.chmod(0o755)
    assert site.ack("--target=main") == 0
    assert "proposed as a merge request: https://gitlab.example.org/group/site/-/merge_requests/5" in (
        capsys.readouterr().out
    )
    options = dict(line.partition("=")[::2] for line in (tmp_path / "options").read_text().splitlines())
    assert options["merge_request.target"] == "main"
    assert options["merge_request.title"].startswith("Acknowledge effective throughput -1")
    assert "merge_request.create" in options
    assert "\\n  ticket  https://tickets.example/17\\n" in options["merge_request.description"]


def test_a_server_without_push_options_gets_the_branch(
    site: Site, no_gitlab: None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert site.accept() == 0
    (branch,) = site.branches()
    assert f"pushed as the branch {branch}; open a merge request from it into main" in capsys.readouterr().out


def test_a_refused_merge_request_says_where_to_open_it_and_the_next_try_does(
    site: Site, gitlab: FakeGitLab, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    gitlab.users["glpat-reads"] = "reader"
    gitlab.read_only.add("glpat-reads")
    monkeypatch.setenv(token.VARIABLE, "glpat-reads")
    assert site.accept() == 2
    error = capsys.readouterr().err
    assert "needs the scope api" in error
    assert f"{gitlab.url}/{PATH}/-/merge_requests/new?merge_request%5Bsource_branch%5D=bench-answers%2Faccept" in error
    assert "glpat" not in error
    assert len(site.branches()) == 1
    monkeypatch.setenv(token.VARIABLE, GOOD)
    assert site.accept() == 0
    assert len(gitlab.merge_requests) == 1


def test_a_merge_request_whose_answer_was_lost_is_opened_once(site: Site, gitlab: FakeGitLab) -> None:
    gitlab.troubles.append(Trouble(502, done=True))
    assert site.accept() == 0
    assert len(gitlab.merge_requests) == 1


def test_a_site_without_a_repository_or_a_target_is_refused(
    tmp_path: Path, site: Site, no_gitlab: None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert site.accept("--target=release") == 2
    assert "has no branch release" in capsys.readouterr().err
    assert site.branches() == []
    (site.top / ".git").rename(site.top / "git-away")
    assert site.accept() == 2
    assert "is in no git repository" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("url", "api", "name"),
    [
        ("git@gitlab.example.org:group/site.git", "https://gitlab.example.org/api/v4", "group/site"),
        ("ssh://git@gitlab.example.org:2222/group/sub/site.git", "https://gitlab.example.org/api/v4", "group/sub/site"),
        ("https://gitlab.example.org:8443/group/site", "https://gitlab.example.org:8443/api/v4", "group/site"),
    ],
)
def test_the_project_follows_from_the_remote(url: str, api: str, name: str) -> None:
    found = project_of(url, {})
    assert found is not None
    assert (found.api, found.name) == (api, name)
    assert project_of("/srv/git/site.git", {}) is None


def test_in_a_pipeline_the_project_is_the_pipelines_own_one() -> None:
    environ = {
        "CI_API_V4_URL": "https://gitlab.example.org/gitlab/api/v4",
        "CI_SERVER_HOST": "gitlab.example.org",
        "CI_SERVER_URL": "https://gitlab.example.org/gitlab",
        "CI_PROJECT_ID": "42",
        "CI_PROJECT_PATH": PATH,
        "CI_PROJECT_URL": f"https://gitlab.example.org/gitlab/{PATH}",
    }
    here = project_of(f"https://gitlab.example.org/gitlab/{PATH}.git", environ)
    assert here is not None
    assert here.name == "42"
    other = project_of("https://github.example.org/a/b.git", environ)
    assert other is not None
    assert other.api == "https://github.example.org/api/v4"


def test_a_git_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(RefusedError, match="git is not installed"):
        our_git.run(["version"])
