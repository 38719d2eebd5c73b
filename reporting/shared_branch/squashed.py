"""A branch that has one commit without parents, so that a clone stays small: read, changed, and pushed again.

Everything happens in a bare repository in a temporary folder. A push succeeds only if the branch is still as it was
read. Otherwise it is read and changed again, so any number of programs may push at the same time.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import random
import re
import shlex
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO

from platforms.job import RefusedError
from platforms.printable import printable
from reporting.shared_branch import git
from reporting.shared_branch.git import GitError
from reporting.shared_branch.remote import Remote

DEFAULT_BRANCH = "bench-history"
PATIENCE_S = 600.0  # so long others may be quicker
AWAY_TRIES = 4  # so often a server is asked that does not answer
PAUSE_S = 5.0  # between these
_READ, _NEXT = "refs/heads/read", "refs/heads/next"
_FILE = "100644"

# What a push answers if the branch is no longer as it was read.
_MOVED = re.compile(
    r"stale info|cannot lock ref|failed to update ref|fetch first|incorrect old value|reference already exists"
    r"|failed to lock|unable to create .*\.lock|but expected",
    re.IGNORECASE,
)
_AWAY = re.compile(
    r"could not resolve|connection (refused|reset|closed|timed out)|timed out|timeout|early eof|hung up"
    r"|no route to host|network is unreachable|returned error: (5\d\d|429)|rpc failed|unexpected disconnect|ssl_|gnutls"
    r"|broken pipe|kex_exchange_identification|failed to connect",
    re.IGNORECASE,
)
_NO_ACCESS = re.compile(
    r"authentication failed|could not read (username|password)|access denied|permission denied|not allowed|forbidden"
    r"|returned error: 40[13]|unauthori[sz]ed|host key verification failed|read[- ]only",
    re.IGNORECASE,
)
_PROTECTED = re.compile(r"protected branch|non-fast-forward|force.push", re.IGNORECASE)
_MISSING = re.compile(r"not found|does not exist|does not appear to be a git repository|could not be found", re.I)


class Tree:
    """The files of a branch as it was read.

    Attributes:
        commit: None for a branch that does not exist.
        files: the git blobs by their paths. Links and other entries that are no plain files are left out.
    """

    def __init__(self, repository: Path, commit: str | None) -> None:
        self.commit = commit
        self.files: Mapping[str, str] = {}
        self._repository = repository
        if commit is not None:
            entries = git.run(["ls-tree", "-r", "-z", commit], folder=repository).split(b"\0")
            self.files = dict(_plain_files(entries))

    def same_blob(self, path: str, content: bytes) -> bool:
        """Whether a file of the branch has this content. Nothing is read for that."""
        blob = self.files.get(path)
        if blob is None:
            return False
        digest = hashlib.sha1(usedforsecurity=False) if len(blob) == 40 else hashlib.sha256()
        digest.update(b"blob %d\0" % len(content))
        digest.update(content)
        return digest.hexdigest() == blob

    @contextlib.contextmanager
    def reader(self) -> Iterator[Callable[[str], bytes]]:
        """A function that reads a file of the branch by its path. One git process reads them all."""
        command = ["git", "-C", str(self._repository), "cat-file", "--batch"]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=git.environment(())
        ) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            asked, answers = process.stdin, process.stdout

            def read(path: str) -> bytes:
                return _one_blob(self.files[path], asked, answers)

            yield read
            asked.close()


def _plain_files(entries: list[bytes]) -> Iterator[tuple[str, str]]:
    for entry in entries:
        head, tab, name = entry.partition(b"\t")
        if tab:
            mode, _kind, blob = head.decode().split()
            if mode.startswith("100"):
                yield os.fsdecode(name), blob


def _one_blob(blob: str, asked: IO[bytes], answers: IO[bytes]) -> bytes:
    asked.write(blob.encode() + b"\n")
    asked.flush()
    head = answers.readline().split()
    if len(head) != 3:
        raise RefusedError(f"git cannot read the blob {blob} of the branch: fetch it again")
    content = answers.read(int(head[2]) + 1)
    return content[:-1]


Change = Callable[[Tree], Mapping[str, bytes | None]]
"""From the files of a branch, what shall be written: the new content by path; None removes a file."""


class SquashedBranch:
    """A branch of a remote repository.

    Args:
        author: name and e-mail of its commits.
        report: is called with a sentence when something takes a while.
        sleep, clock: seconds.
    """

    def __init__(
        self,
        remote: Remote,
        branch: str = DEFAULT_BRANCH,
        author: tuple[str, str] = ("hpc-ml-bench", "hpc-ml-bench@localhost"),
        report: Callable[[str], None] = lambda text: None,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if not _is_branch_name(branch):
            raise RefusedError(f"--branch: {branch!r} is no name of a branch (write one as in {DEFAULT_BRANCH})")
        self.remote = remote
        self.branch = branch
        self._author = author
        self._report = report
        self._sleep = sleep
        self._clock = clock

    def __str__(self) -> str:
        return f"{self.branch} of {self.remote}"

    @contextlib.contextmanager
    def read(self) -> Iterator[Tree]:
        """Fetch the branch, without its past. Raises RefusedError."""
        with self._scratch() as repository:
            yield self._fetched(repository)

    def change(self, change: Change, message: str) -> bool:
        """Change the branch. `change` is called again if somebody else has pushed meanwhile.

        Args:
            message: of the commit.

        Returns:
            Whether anything was to be pushed.

        Raises:
            RefusedError: the branch cannot be read or pushed. The message says what to do; nothing is lost.
        """
        give_up_at = self._clock() + PATIENCE_S
        with self._scratch() as repository:
            for tries in range(1 << 30):
                tree = self._fetched(repository)
                changes = {path: content for path, content in change(tree).items() if _changes(tree, path, content)}
                if not changes:
                    return False
                self._commit(repository, tree, changes, message)
                if self._pushed(repository, tree.commit):
                    return True
                if self._clock() > give_up_at:
                    break
                if tries == 3:
                    self._report(f"{self}: others push at the same time; this push tries again")
                self._sleep(random.uniform(0.05, min(4.0, 0.2 * 1.5**tries)))
        raise RefusedError(
            f"{self}: others were quicker for {PATIENCE_S:.0f} s; nothing was pushed and nothing is lost: type it again"
        )

    @contextlib.contextmanager
    def _scratch(self) -> Iterator[Path]:
        with tempfile.TemporaryDirectory(prefix="hpc-ml-bench-git-", ignore_cleanup_errors=True) as folder:
            repository = Path(folder)
            git.run(["init", "-q", "--bare", "--template=", str(repository)])
            yield repository

    def _fetched(self, repository: Path) -> Tree:
        ref = f"+refs/heads/{self.branch}:{_READ}"
        words = ["fetch", "-q", "--depth=1", "--no-tags", "--no-write-fetch-head", self.remote.url, ref]
        said = self._asked(repository, words)
        if said is not None and f"couldn't find remote ref refs/heads/{self.branch}" in said.said:
            return Tree(repository, None)
        if said is not None:
            raise RefusedError(self._why(said, "read"))
        return Tree(repository, git.run(["rev-parse", _READ], folder=repository).decode().strip())

    def _commit(self, repository: Path, tree: Tree, changes: Mapping[str, bytes | None], message: str) -> None:
        """Make the commit without parents, in one process for all files."""
        name, email = (re.sub(r"[<>\n\0]", "", part) for part in self._author)
        subject = message.encode()
        lines = [
            b"feature done\n",
            b"reset %s\n" % _NEXT.encode(),
            b"commit %s\n" % _NEXT.encode(),
            f"committer {name} <{email}> {int(time.time())} +0000\n".encode(),
            b"data %d\n%s\n" % (len(subject), subject),
        ]
        for path, blob in tree.files.items():
            if path not in changes:
                lines.append(f"M {_FILE} {blob} {_quoted(path)}\n".encode())
        for path, content in changes.items():
            if content is not None:
                lines.append(f"M {_FILE} inline {_quoted(path)}\ndata {len(content)}\n".encode() + content + b"\n")
        lines.append(b"done\n")
        git.run(["fast-import", "--quiet", "--force", "--date-format=raw"], folder=repository, content=b"".join(lines))

    def _pushed(self, repository: Path, expected: str | None) -> bool:
        """Push the commit. Returns False if the branch is no longer as it was read. Raises RefusedError."""
        lease = f"--force-with-lease=refs/heads/{self.branch}:{expected or ''}"
        words = ["push", "--porcelain", lease, self.remote.url, f"{_NEXT}:refs/heads/{self.branch}"]
        said = self._asked(repository, words)
        if said is None:
            return True
        if _MOVED.search(said.said) and not _PROTECTED.search(said.said):
            return False
        raise RefusedError(self._why(said, "pushed to"))

    def _asked(self, repository: Path, words: list[str]) -> GitError | None:
        """Ask the server, and again if it is away for a moment. Returns what went wrong."""
        for tries in range(1, AWAY_TRIES + 1):
            try:
                git.run(words, folder=repository, config=self.remote.config, secrets=self.remote.secrets)
            except GitError as error:
                if tries == AWAY_TRIES or not _AWAY.search(error.said):
                    return error
                self._report(f"{self}: {error.sentence}; trying again")
                self._sleep(PAUSE_S * tries)
            else:
                return None
        return None

    def _why(self, error: GitError, done: str) -> str:
        """The sentence on a server's refusal, with what to do."""
        said, remote = error.said, shlex.quote(self.remote.url)
        if _PROTECTED.search(said):
            advice = (
                "each push replaces the branch, so the server must allow force pushes to it; in GitLab: Settings > "
                f"Repository > Protected branches: {self.branch} must not match, or allow force push; then retry"
            )
        elif _NO_ACCESS.search(said):
            advice = f"{self._access()}. Then type it again"
        elif _AWAY.search(said):
            advice = "the server does not answer; nothing is lost: type it again"
        elif _MISSING.search(said):
            advice = f"is the address right, and may you see it? git ls-remote {remote}"
        else:
            advice = "nothing is lost: type it again"
        return f"{printable(str(self))} cannot be {done}: {error.sentence} ({advice})"

    def _access(self) -> str:
        if self.remote.token_from == "CI_JOB_TOKEN":
            return (
                "GitLab: Settings > CI/CD > Job token permissions > Allow Git push requests to the repository (since "
                "18.4), and the user of the pipeline is a Developer; or HPC_ML_BENCH_GITLAB_TOKEN, an access token of "
                "the project with write_repository"
            )
        if self.remote.token_from:
            return (
                f"{self.remote.token_from} needs the scope write_repository and the role Developer, and may be expired"
            )
        if self.remote.url.startswith("http"):
            return (
                "set HPC_ML_BENCH_GITLAB_TOKEN to an access token with write_repository, or a credential helper of git"
            )
        return "may this user push there? Test it: git ls-remote " + shlex.quote(self.remote.url)


def _changes(tree: Tree, path: str, content: bytes | None) -> bool:
    if content is None:
        return path in tree.files
    return not tree.same_blob(path, content)


def _quoted(path: str) -> str:
    """A path for git fast-import."""
    return '"' + path.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def _is_branch_name(name: str) -> bool:
    try:
        git.run(["check-ref-format", f"refs/heads/{name}"])
    except GitError:
        return False
    return not name.startswith("-")
