"""What a terminal can show: how wide it is, whether it has block characters, and whether colours are wanted."""

from __future__ import annotations

import locale
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TextIO

from platforms.printable import printable

BLOCKS = "▁▂▃▄▅▆▇█"
SYMBOLS = BLOCKS + "▼\N{MULTIPLICATION SIGN}≠┄↑↓"
LEAST_WIDTH = 30  # the lines of narrower terminals wrap
RESET = "\x1b[0m"
RED, YELLOW, CYAN, DIM, BOLD = "\x1b[31m", "\x1b[33m", "\x1b[36m", "\x1b[2m", "\x1b[1m"


@dataclass(frozen=True)
class Display:
    """How a picture is drawn. `encoding` is that of the stream; the width is in columns."""

    width: int = 80
    has_symbols: bool = True
    has_colours: bool = False
    encoding: str = "utf-8"

    def plain(self, text: str) -> str:
        """Make a text from anywhere safe to print: nothing moves the cursor, and each letter can be encoded."""
        return printable(text).encode(self.encoding, "replace").decode(self.encoding)

    def painted(self, text: str, colour: str) -> str:
        """The text in a colour, where colours are wanted. It must be plain, since this adds escapes."""
        return f"{colour}{text}{RESET}" if self.has_colours and colour and text.strip() else text


def display_of(stream: TextIO, environ: Mapping[str, str] = os.environ) -> Display:
    """What a stream can show. There are colours only on a terminal, unless NO_COLOR or TERM=dumb forbids them.

    Block characters need an encoding that has them, of the stream and of the locale: LC_ALL=C asks for ASCII.
    """
    encoding = stream.encoding or "ascii"
    is_terminal = stream.isatty()
    return Display(
        width=max(LEAST_WIDTH, shutil.get_terminal_size().columns),
        has_symbols=_can_encode(encoding) and _can_encode(locale.nl_langinfo(locale.CODESET)),
        has_colours=is_terminal and not environ.get("NO_COLOR") and environ.get("TERM", "dumb") != "dumb",
        encoding=encoding,
    )


def _can_encode(encoding: str) -> bool:
    try:
        SYMBOLS.encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return False
    return True
