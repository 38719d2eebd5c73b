"""A branch that many read and change at the same time: ordinary commits, each on top of the newest one."""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from platforms.job import RefusedError
from reporting.shared_branch import git
from reporting.shared_branch.clone import kept_clone
from reporting.shared_branch.git import GitError
from reporting.shared_branch.remote import Remote

DEFAULT_BRANCH = "bench-history"
PATIENCE_S = 600.0  # so long others may be quicker


class SharedBranch:
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
        if branch.startswith("-") or not _is_branch_name(branch):
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
    def read(self) -> Iterator[Path | None]:
        """The folder with the branch's newest files; None if there is no such branch. Raises RefusedError."""
        with kept_clone(self.remote, self.branch, self._author) as clone:
            exists = clone.fetch(self.branch)
            if not exists:
                yield None
                return
            yield clone.folder

    def change(self, write: Callable[[Path], None], message: str, *, always: bool = False) -> bool:
        """Change the branch's files.

        Args:
            write: changes the files in a folder. It is called again with newer files if others have pushed meanwhile.
            message: of the commit.
            always: push a commit even if nothing has changed, which tests the right to push.

        Returns:
            Whether anything was to be pushed.

        Raises:
            RefusedError: the branch cannot be read or pushed. The message says what to do; nothing is lost.
        """
        give_up_at = self._clock() + PATIENCE_S
        tries = 0
        with kept_clone(self.remote, self.branch, self._author) as clone:
            while self._clock() <= give_up_at:
                clone.fetch(self.branch)
                write(clone.folder)
                if not clone.commit(message, always=always):
                    return False
                if clone.push(self.branch):
                    return True
                tries += 1
                if tries == 3:
                    self._report(f"{self}: others push at the same time; this push tries again")
                self._sleep(random.uniform(0.05, min(4.0, 0.2 * 1.5 ** min(tries, 10))))
        raise RefusedError(
            f"{self}: others were quicker for {PATIENCE_S:.0f} s; nothing was pushed and nothing is lost: type it again"
        )


def _is_branch_name(name: str) -> bool:
    try:
        git.run(["check-ref-format", f"refs/heads/{name}"])
    except GitError:
        return False
    return True
