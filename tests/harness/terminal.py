"""A session in a real terminal, and what a terminal shows of what is written to it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import select
import struct
import termios
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tests.waiting import PATIENCE_S

if TYPE_CHECKING:
    from tests.harness.conftest import Project


class Terminal:
    """A session in a real one, `columns` wide. Its bytes are read while something is waited for."""

    def __init__(self, project: Project, *words: str, columns: int = 80, **environ: Any) -> None:
        self.file, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("4H", 40, columns, 0, 0))
        environ = {"TERM": "xterm", "COLUMNS": str(columns), "LINES": "40"} | environ
        self.session = project.begin(*words, terminal=os.ttyname(theirs), **environ)
        os.close(theirs)
        self.said = ""

    def types(self, key: bytes) -> None:
        os.write(self.file, key)

    def until(self, true: Callable[[], object]) -> None:
        """Reading meanwhile: a terminal takes a few screens, and who writes more stands still until somebody reads."""
        end = time.monotonic() + PATIENCE_S
        while not true():
            assert time.monotonic() < end, self.said
            if select.select([self.file], [], [], 0.02)[0]:
                self._read()

    def ends(self) -> int:
        while self._read():
            pass
        return self.session.ends()

    def close(self) -> None:
        os.close(self.file)

    def _read(self) -> bool:
        chunk = b""
        with contextlib.suppress(OSError):  # the other end is closed
            chunk = os.read(self.file, 65536)
        self.said += chunk.decode(errors="replace")
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
