"""Tells apart what several ranks write into one log, where mpirun tags each piece of it."""

from __future__ import annotations

import re

# `[1,0]<stdout>:` of `mpirun --tag-output`, `[host-12@1,0][node:34]<stdout>: ` of OpenMPI 5, with or without the time
# before it. It stands at each begin of a line, and wherever a piece begins that was read at once, as each 4 KiB.
_TIME = r"[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d [\d:]{8} \d{4}"
_RANK = r"\[[^][\s,]+,\d+\](?:\[[^][\s:]+:\d+\])?|\[\d+\]"
_TAG = re.compile(rf"(?:{_TIME}|(?=\[))((?:{_RANK})?<std(?:out|err|diag)>):")  # the group: whose piece follows
_TIGHT = re.compile(_TAG.pattern + r"[^ \n]")
_LONGEST = 1 << 20  # characters that are kept of a line without an end
MAY_BE_TAGGED = "<std"


class Writers:
    """Takes a log's rows, and gives the lines of its writers without their tags: the pieces of one belong together."""

    def __init__(self) -> None:
        self._blank = " "  # ends each tag in OpenMPI 5
        self._begun: dict[str, str] = {}  # whose -> the line so far

    def __bool__(self) -> bool:
        """Whether a line has begun whose end is to come."""
        return bool(self._begun)

    def lines(self, rows: list[str]) -> list[str]:
        """The lines that end in these rows, of which as many as there are show whether a blank ends each tag."""
        if any(MAY_BE_TAGGED in row and _TIGHT.search(row) for row in rows):
            self._blank = ""
        lines = []
        for row in rows:
            untagged, *tagged = _TAG.split(row) if MAY_BE_TAGGED in row else [row]
            if untagged or not tagged:
                lines.append(untagged)
            for writer, piece in zip(tagged[::2], tagged[1::2], strict=True):
                self._begun[writer] = (self._begun.get(writer, "") + piece.removeprefix(self._blank))[-_LONGEST:]
            if tagged:
                lines.append(self._begun.pop(tagged[-2]))
        return lines

    def rest(self) -> list[str]:
        """The lines that never ended."""
        rest = list(self._begun.values())
        self._begun.clear()
        return rest
