"""Lines at the bottom of a terminal that are redrawn in place, and erased before anything else is written."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Sequence

UP, ERASE = "\x1b[1A", "\r\x1b[2K"
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]+")  # a job's output must not move the cursor


class LiveBlock:
    """A block below the output so far, which must have ended its last line."""

    def __init__(
        self,
        write: Callable[[str], object],
        size: Callable[[], os.terminal_size] = shutil.get_terminal_size,
    ) -> None:
        self._write, self._size = write, size
        self._height = 0

    @property
    def most(self) -> int:
        """How many lines fit. A block that is higher than the screen could not be erased."""
        return max(1, self._size().lines - 2)

    def draw(self, lines: Sequence[str]) -> None:
        """Replace the block by these lines; at most `most` of them, each cut off where it would wrap."""
        width = self._size().columns - 1
        visible = [_CONTROL.sub(" ", line)[:width] for line in lines[: self.most]]
        self._write(self._erasure() + "\n".join(visible))
        self._height = len(visible)

    def erase(self) -> None:
        """Erase the block and leave the cursor where it began."""
        if self._height:
            self._write(self._erasure())
            self._height = 0

    def _erasure(self) -> str:
        if not self._height:
            return ""
        return ERASE + (UP + ERASE) * (self._height - 1)
