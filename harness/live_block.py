"""Lines at the bottom of a terminal that are drawn again and again, and taken away before anything else is said."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Sequence

UP, ERASE = "\x1b[1A", "\r\x1b[2K"
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]+")  # a job's own words must not move the cursor


class LiveBlock:
    """Drawn below what was written last, which must have ended its line."""

    def __init__(
        self,
        write: Callable[[str], object],
        size: Callable[[], os.terminal_size] = shutil.get_terminal_size,
    ) -> None:
        self._write, self._size = write, size
        self._height = 0

    @property
    def most(self) -> int:
        """How many lines there is room for. A block higher than the screen could not be taken away."""
        return max(1, self._size().lines - 2)

    def draw(self, lines: Sequence[str]) -> None:
        """In place of what is there; at most `most` lines, each cut off where it would wrap."""
        width = self._size().columns - 1
        self._write(self._away() + "\n".join(_CONTROL.sub(" ", line)[:width] for line in lines[: self.most]))
        self._height = min(len(lines), self.most)

    def erase(self) -> None:
        """The cursor is then where the block began."""
        if self._height:
            self._write(self._away())
            self._height = 0

    def _away(self) -> str:
        return ERASE + (UP + ERASE) * (self._height - 1) if self._height else ""
