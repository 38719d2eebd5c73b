"""Lines at the bottom of a terminal that are redrawn in place, and erased before anything else is written.

The cursor waits at the beginning of the block, and everything below it is erased. So it does not matter how many lines
the block takes after the window has become narrower and its lines have wrapped.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Sequence

ERASE_BELOW = "\r\x1b[J"
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]+")  # a job's output must not move the cursor


class LiveBlock:
    """A block below the output so far, which must have ended its last line."""

    def __init__(
        self,
        write: Callable[[str], object],
        size: Callable[[], os.terminal_size] = shutil.get_terminal_size,
    ) -> None:
        self._write, self._size = write, size
        self._is_drawn = False

    @property
    def most(self) -> int:
        """How many lines fit. The beginning of a block that is higher than the screen could not be reached again."""
        return max(1, self._size().lines - 2)

    @property
    def width(self) -> int:
        """How many columns fit. The last one stays free: some terminals go to the next line with it."""
        return self._size().columns - 1

    def draw(self, lines: Sequence[str]) -> None:
        """Replace the block by these lines; at most `most` of them, each cut off where it would wrap."""
        width = self.width
        visible = [_CONTROL.sub(" ", line)[:width] for line in lines[: self.most]]
        up = f"\x1b[{len(visible) - 1}A" if len(visible) > 1 else ""
        self._write(self._erasure() + "\n".join(visible) + up + "\r")
        self._is_drawn = True

    def erase(self) -> None:
        """Erase the block and leave the cursor where it began."""
        self._write(self._erasure())
        self._is_drawn = False

    def _erasure(self) -> str:
        return ERASE_BELOW if self._is_drawn else ""
