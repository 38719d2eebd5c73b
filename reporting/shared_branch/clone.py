"""A clone of a branch in a folder of ours: checked out, changed, committed, pushed. A person's clone is not touched.

A clone is only a cache. It holds nothing that is not in the branch, or in the folders from which it was changed.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shlex
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from platforms.job import BenchError, RefusedError
from platforms.printable import printable
from platforms.rundir import locks
from reporting.shared_branch import git
from reporting.shared_branch.git import GitError
from reporting.shared_branch.remote import JOB_TOKEN, TOKEN, Remote

_FETCHED = "refs/remotes/fetched"
_ENDED_WELL = "ended-well"  # a file in .git; without it the last command was killed, and may have left locks of git's
_SETTINGS = (  # instead of a person's, which would change here what is committed, or ask for a key
    ("core.hooksPath", "/dev/null"),
    ("core.attributesFile", "/dev/null"),
    ("core.autocrlf", "false"),
    ("core.symlinks", "false"),
    ("commit.gpgSign", "false"),
    ("pack.window", "0"),  # git compares no files: for a large site that took ten minutes, and saved little
)
# What a push answers if somebody else has pushed since the fetch, or does so at this moment.
_MOVED = re.compile(
    r"fetch first|non-fast-forward|cannot lock ref|failed to (update ref|lock)|incorrect old value"
    r"|reference already exists|unable to create .*\.lock|but expected",
    re.IGNORECASE,
)
_NO_ACCESS = re.compile(
    r"authentication failed|could not read (username|password)|(access|permission) denied|not allowed|forbidden"
    r"|returned error: 40[13]|unauthori[sz]ed|host key verification failed|read[- ]only|hook declined",
    re.IGNORECASE,
)


class Clone:
    """A clone in a folder that only this process uses.

    Args:
        author: name and e-mail of its commits.
    """

    def __init__(self, folder: Path, remote: Remote, author: tuple[str, str]) -> None:
        self.folder = folder
        self._remote = remote
        name, email = author
        self._config = (*remote.config, *_SETTINGS, ("user.name", name), ("user.email", email))

    def fetch(self, branch: str) -> bool:
        """Check out the newest commit of a branch.

        Returns:
            False if there is no such branch. The folder is empty then.

        Raises RefusedError.
        """
        words = ["fetch", "-q", "--no-tags"]
        if not (self.folder / ".git").is_dir():
            self._begin()
            words.append("--depth=1")
        ref = f"refs/heads/{branch}"
        try:
            self._git(*words, self._remote.url, f"+{ref}:{_FETCHED}")
        except GitError as error:
            if f"couldn't find remote ref {ref}" not in error.said:
                raise RefusedError(self._why(error, branch, "read")) from None
            self._begin()
            return False
        self._git("reset", "-q", "--hard", _FETCHED)
        self._git("clean", "-q", "-ffdx")
        return True

    def commit(self, message: str, *, always: bool = False) -> bool:
        """Commit what has changed in the folder. Returns whether anything has; `always` commits nothing as well."""
        self._git("add", "--all", "--force", ".")
        if not always and not self._git("status", "--porcelain"):
            return False
        self._git("commit", "-q", "--allow-empty", "-m", message)
        return True

    def push(self, branch: str) -> bool:
        """Push the last commit to a branch.

        Returns:
            False if somebody else has pushed since the fetch; nothing was pushed then.

        Raises RefusedError.
        """
        try:
            self._git("push", self._remote.url, f"HEAD:refs/heads/{branch}")
        except GitError as error:
            if _MOVED.search(error.said):
                return False
            raise RefusedError(self._why(error, branch, "pushed to")) from None
        return True

    def _begin(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        git.run(["init", "-q", "--template=", str(self.folder)])

    def _git(self, *words: str) -> str:
        return git.run(words, folder=self.folder, config=self._config, secrets=self._remote.secrets)

    def _why(self, error: GitError, branch: str, done: str) -> str:
        """The sentence on a server's refusal, with what to do."""
        advice = f"nothing is lost: type it again when this works: git ls-remote {shlex.quote(self._remote.url)}"
        if _NO_ACCESS.search(error.said):
            advice = f"{_access(self._remote)}; nothing is lost: type it again then"
        return f"{printable(f'{branch} of {self._remote}')} cannot be {done}: {error.sentence} ({advice})"


@contextlib.contextmanager
def kept_clone(remote: Remote, branch: str, author: tuple[str, str]) -> Iterator[Clone]:
    """A clone that stays for the next command in the user's cache, so that only what is new is received.

    It is a temporary one while another command uses that, and where no cache can be written or locked.
    """
    digest = hashlib.sha256(f"{remote.url}\n{branch}".encode()).hexdigest()[:16]
    with contextlib.ExitStack() as stack:
        try:
            caches = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "hpc-ml-bench/branches"
            caches.mkdir(mode=0o700, parents=True, exist_ok=True)
            why_not = stack.enter_context(locks.held(caches / f"{digest}.lock"))
        except (BenchError, OSError, RuntimeError) as error:  # RuntimeError: this user has no home
            why_not = str(error)
        if why_not:
            with temporary_clone(remote, author) as clone:
                yield clone
            return
        ended_well = caches / digest / ".git" / _ENDED_WELL
        if ended_well.exists():
            ended_well.unlink()
        else:
            shutil.rmtree(caches / digest, ignore_errors=True)
        yield Clone(caches / digest, remote, author)
        ended_well.touch()


@contextlib.contextmanager
def temporary_clone(remote: Remote, author: tuple[str, str]) -> Iterator[Clone]:
    """A clone for one command."""
    with tempfile.TemporaryDirectory(prefix="hpc-ml-bench-git-", ignore_cleanup_errors=True) as folder:
        yield Clone(Path(folder, "clone"), remote, author)


def _access(remote: Remote, environ: Mapping[str, str] = os.environ) -> str:
    """What gives the right to push."""
    if remote.token_from == JOB_TOKEN or (not remote.token_from and "GITLAB_CI" in environ):
        return (
            "GitLab: Settings > CI/CD > Job token permissions > Allow Git push requests to the repository (since "
            f"18.4), and the user of the pipeline is a Developer; or {TOKEN}, an access token of the project with "
            "write_repository"
        )
    if remote.token_from:
        return f"{remote.token_from} needs the scope write_repository and the role Developer, and may be expired"
    if remote.url.startswith("http"):
        return f"set {TOKEN} to an access token with write_repository, or a credential helper of git"
    return "ask for the right to push there"
