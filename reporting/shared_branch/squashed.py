"""A branch that has one commit without parents, so that a clone stays small: read, changed, and pushed again.

A push succeeds only if the branch is still as it was read. Otherwise it is read and changed again, so any number of
programs may push at the same time.
"""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable, Iterator, Mapping

from platforms.job import RefusedError
from reporting.shared_branch.remote import Remote
from reporting.shared_branch.scratch import Tree, is_branch_name, scratch_for

DEFAULT_BRANCH = "bench-history"
PATIENCE_S = 600.0  # so long others may be quicker

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
        if not is_branch_name(branch):
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
        with scratch_for(self.remote, self._report, self._sleep) as scratch:
            yield scratch.fetch(self.branch)

    def change(self, change: Change, message: str, *, always: bool = False) -> bool:
        """Change the branch. `change` is called again if somebody else has pushed meanwhile.

        Args:
            message: of the commit.
            always: push a commit even with the same files, which tests the right to push.

        Returns:
            Whether anything was to be pushed.

        Raises:
            RefusedError: the branch cannot be read or pushed. The message says what to do; nothing is lost.
        """
        give_up_at = self._clock() + PATIENCE_S
        tries = 0
        with scratch_for(self.remote, self._report, self._sleep) as scratch:
            while self._clock() <= give_up_at:
                tree = scratch.fetch(self.branch)
                changes = {path: content for path, content in change(tree).items() if _changes(tree, path, content)}
                if not changes and not always:
                    return False
                files = {path: content for path, content in changes.items() if content is not None}
                kept = {path: blob for path, blob in tree.files.items() if path not in changes}
                scratch.commit({**kept, **files}, message, self._author)
                if scratch.push(self.branch, tree.commit) is not None:
                    return True
                tries += 1
                if tries == 3:
                    self._report(f"{self}: others push at the same time; this push tries again")
                self._sleep(random.uniform(0.05, min(4.0, 0.2 * 1.5 ** min(tries, 10))))
        raise RefusedError(
            f"{self}: others were quicker for {PATIENCE_S:.0f} s; nothing was pushed and nothing is lost: type it again"
        )


def _changes(tree: Tree, path: str, content: bytes | None) -> bool:
    if content is None:
        return path in tree.files
    return not tree.same_blob(path, content)
