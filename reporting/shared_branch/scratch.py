"""A bare repository in a temporary folder: a branch is fetched into it, and a new commit is pushed from it.

No repository of a person is touched, neither its work tree nor its index, branches or settings.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shlex
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

from platforms.job import RefusedError
from platforms.printable import printable
from reporting.gitlab import token as gitlab_token
from reporting.shared_branch import git
from reporting.shared_branch.git import GitError
from reporting.shared_branch.remote import Remote

AWAY_TRIES = 4  # so often a server is asked that does not answer
PAUSE_S = 5.0  # between these
_NEXT = "refs/heads/next"
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


class Scratch:
    """Talks with a remote repository.

    Args:
        repository: a bare one that is empty.
        report: is called with a sentence when something takes a while.
        sleep: seconds.
    """

    def __init__(
        self,
        repository: Path,
        remote: Remote,
        report: Callable[[str], None],
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._repository = repository
        self._remote = remote
        self._report = report
        self._sleep = sleep

    def fetch(self, branch: str) -> Tree:
        """The files of a branch, without its past. Raises RefusedError."""
        ref = f"+refs/heads/{branch}:refs/remotes/read/{branch}"
        words = ["fetch", "-q", "--depth=1", "--no-tags", "--no-write-fetch-head", self._remote.url, ref]
        try:
            self._ask(words)
        except GitError as error:
            if f"couldn't find remote ref refs/heads/{branch}" in error.said:
                return Tree(self._repository, None)
            raise RefusedError(self._why(error, branch, "read")) from None
        commit = git.run(["rev-parse", f"refs/remotes/read/{branch}"], folder=self._repository)
        return Tree(self._repository, commit.decode().strip())

    def default_branch(self) -> str:
        """The branch that the remote repository shows first. Raises RefusedError."""
        words = ["ls-remote", "--symref", self._remote.url, "HEAD"]
        try:
            found = git.run(words, folder=self._repository, config=self._remote.config, secrets=self._remote.secrets)
        except GitError as error:
            raise RefusedError(self._why(error, "the default branch", "read")) from None
        match = re.match(rb"ref: refs/heads/(\S+)\tHEAD", found)
        if match is None:
            raise RefusedError(f"{self._remote} has no default branch yet: push the site's folder to it first")
        return match[1].decode(errors="replace")

    def commit(
        self,
        files: Mapping[str, bytes | str],
        message: str,
        author: tuple[str, str],
        parent: str | None = None,
    ) -> None:
        """Make the commit that `push` pushes, in one process for all files.

        Args:
            files: by path the content, or the name of a blob that was fetched.
            author: name and e-mail.
            parent: a commit that was fetched, whose other files stay. None makes a commit without parents.
        """
        name, email = (re.sub(r"[<>\n\0]", "", part) for part in author)
        subject = message.encode(errors="replace")
        lines = [
            b"feature done\n",
            f"reset {_NEXT}\n".encode(),
            f"commit {_NEXT}\n".encode(),
            f"committer {name} <{email}> {int(time.time())} +0000\n".encode(),
            b"data %d\n%s\n" % (len(subject), subject),
        ]
        if parent is not None:
            lines.append(f"from {parent}\n".encode())
        for path, content in files.items():
            if isinstance(content, str):
                lines.append(f"M {_FILE} {content} {_quoted(path)}\n".encode())
            else:
                lines.append(f"M {_FILE} inline {_quoted(path)}\ndata {len(content)}\n".encode() + content + b"\n")
        lines.append(b"done\n")
        words = ["fast-import", "--quiet", "--force", "--date-format=raw"]
        git.run(words, folder=self._repository, content=b"".join(lines))

    def push(self, branch: str, expected: str | None, options: Sequence[str] = ()) -> str | None:
        """Push the commit to a branch.

        Args:
            expected: the commit at which the branch was read; None if there was no such branch.
            options: for the server, as `merge_request.create`. One that takes none gets none.

        Returns:
            What the server says. None if the branch is no longer as it was read; nothing was pushed then.

        Raises RefusedError.
        """
        lease = f"--force-with-lease=refs/heads/{branch}:{expected or ''}"
        words = ["push", lease, *(f"--push-option={option}" for option in options)]
        try:
            return self._ask([*words, self._remote.url, f"{_NEXT}:refs/heads/{branch}"])
        except GitError as error:
            if options and "does not support push options" in error.said:
                return self.push(branch, expected)
            if _MOVED.search(error.said) and not _PROTECTED.search(error.said):
                return None
            raise RefusedError(self._why(error, branch, "pushed to")) from None

    def _ask(self, words: list[str]) -> str:
        """Ask the server, and again if it is away for a moment. Returns what it says. Raises GitError."""
        for tries in range(1, AWAY_TRIES):
            try:
                return git.talk(words, self._repository, self._remote.config, self._remote.secrets)
            except GitError as error:
                if not _AWAY.search(error.said):
                    raise
                self._report(f"{self._remote}: {error.sentence}; trying again")
                self._sleep(PAUSE_S * tries)
        return git.talk(words, self._repository, self._remote.config, self._remote.secrets)

    def _why(self, error: GitError, branch: str, done: str) -> str:
        """The sentence on a server's refusal, with what to do."""
        said, remote = error.said, shlex.quote(self._remote.url)
        if _PROTECTED.search(said):
            advice = (
                "a push replaces this branch, so the server must allow force pushes to it; in GitLab: Settings > "
                f"Repository > Protected branches: {branch} must not match, or allow force push; then retry"
            )
        elif _NO_ACCESS.search(said):
            advice = f"{_access(self._remote, done)}. Then type it again"
        elif _AWAY.search(said):
            advice = "the server does not answer; nothing is lost: type it again"
        elif _MISSING.search(said):
            advice = f"is the address right, and may you see it? git ls-remote {remote}"
        else:
            advice = "nothing is lost: type it again"
        return f"{printable(f'{branch} of {self._remote}')} cannot be {done}: {error.sentence} ({advice})"


@contextlib.contextmanager
def scratch_for(
    remote: Remote, report: Callable[[str], None] = lambda text: None, sleep: Callable[[float], None] = time.sleep
) -> Iterator[Scratch]:
    """A repository for one command; it is removed in the end."""
    with tempfile.TemporaryDirectory(prefix="hpc-ml-bench-git-", ignore_cleanup_errors=True) as folder:
        git.run(["init", "-q", "--bare", "--template=", folder])
        yield Scratch(Path(folder), remote, report, sleep)


def is_branch_name(name: str) -> bool:
    """Whether git takes it for the name of a branch."""
    try:
        git.run(["check-ref-format", f"refs/heads/{name}"])
    except GitError:
        return False
    return not name.startswith("-")


def _access(remote: Remote, done: str, environ: Mapping[str, str] = os.environ) -> str:
    if remote.token_from == gitlab_token.JOB or (not remote.token_from and "GITLAB_CI" in environ):
        return (
            "GitLab: Settings > CI/CD > Job token permissions > Allow Git push requests to the repository (since "
            "18.4), and the user of the pipeline is a Developer; or HPC_ML_BENCH_GITLAB_TOKEN, an access token of "
            "the project with write_repository"
        )
    if remote.token_from:
        return f"{remote.token_from} needs the scope write_repository and the role Developer, and may be expired"
    if remote.url.startswith("http"):
        return "set HPC_ML_BENCH_GITLAB_TOKEN to an access token with write_repository, or a credential helper of git"
    if done == "read":
        return "may this user read there? Test it: git ls-remote " + shlex.quote(remote.url)
    return "this user may not push there: its role needs the right to push to this branch"


def _quoted(path: str) -> str:
    """A path for git fast-import."""
    return '"' + path.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'
