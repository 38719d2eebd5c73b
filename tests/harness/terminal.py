"""A session in a real terminal, and what a terminal shows of what is written to it."""

from __future__ import annotations

import os
import pty
import re
import select
import sys
import time
from pathlib import Path

PATIENCE_S = 60.0


class Terminal:
    """A session in a real one, `columns` wide."""

    def __init__(self, folder: Path, columns: int, *words: str) -> None:
        self.pid, self.file = pty.fork()
        if self.pid == 0:
            os.chdir(folder)
            os.environ |= {"COLUMNS": str(columns), "LINES": "40", "TERM": "xterm"}
            os.execv(sys.executable, [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *words])
        self.said = ""
        self.sent = ""  # all of it, since the beginning

    def until(self, words: str) -> None:
        """It says so, after all that it was waited for before."""
        end = time.monotonic() + PATIENCE_S
        while not (found := re.search(words, self.said)):
            assert time.monotonic() < end, self.said
            assert self._read(end), self.said
        self.said = self.said[found.end() :]

    def ends(self) -> int:
        while self._read(time.monotonic() + PATIENCE_S):
            pass
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])

    def _read(self, end_s: float) -> bool:
        try:
            ready, _, _ = select.select([self.file], [], [], max(0.0, end_s - time.monotonic()))
            chunk = os.read(self.file, 65536) if ready else b""
        except OSError:  # the other end is closed
            return False
        text = chunk.decode(errors="replace")
        self.said += text
        self.sent += text
        return bool(chunk)


class Screen:
    """What a terminal of some size shows of what is written to it. It wraps long lines again when its width changes.

    `lines` are those that the program has ended itself. The cursor stays at its place in its line.
    """

    def __init__(self, columns: int = 40, rows: int = 10) -> None:
        self.columns, self.rows = columns, rows
        self.lines, self.row, self.column = [""], 0, 0

    def size(self) -> os.terminal_size:
        return os.terminal_size((self.columns, self.rows))

    def write(self, text: str) -> None:
        for part in re.findall(r"\x1b\[\d*[A-Z]|\r|\n|[^\x1b\r\n]+|.", text):
            if part == "\r":
                self.column = 0
            elif part == "\n":
                self.row, self.column = self.row + 1, 0
                self.lines += [""] * (self.row + 1 - len(self.lines))
            elif part == "\x1b[J":
                self.lines[self.row :] = [self.lines[self.row][: self.column]]
            elif part.startswith("\x1b[") and part.endswith("A"):
                self.row -= int(part[2:-1])
                assert self._height_below() < self.rows, "above the screen nothing can be changed"
            else:
                assert "\x1b" not in part
                line = self.lines[self.row].ljust(self.column)
                self.lines[self.row] = line[: self.column] + part + line[self.column + len(part) :]
                self.column += len(part)
                assert self.column < self.columns, "it wraps"

    def _height_below(self) -> int:
        """How many rows are taken from the cursor's line on."""
        return sum(max(1, -(-len(line) // self.columns)) for line in self.lines[self.row :])

    @property
    def shown(self) -> list[str]:
        return [*"\n".join(self.lines).rstrip("\n").split("\n")]
