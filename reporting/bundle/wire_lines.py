"""The lines of the wire in a job's log, apart from what other programs have printed between them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from platforms.results.wire import MARKER, NAMESPACE

LONGEST = 1 << 16  # bytes of a line that may hold one of the wire; ours have at most 3,500


def wire_lines(log: Path) -> Iterator[dict[str, Any]]:
    """Each line of the wire as an object of JSON, in the order of the log. Torn ones are left out. Raises OSError."""
    marker = MARKER.encode()
    with log.open("rb") as file:
        while line := file.readline(LONGEST):
            if marker in line:
                yield from _objects(line.decode("utf-8", "replace"))


def _objects(text: str) -> Iterator[dict[str, Any]]:
    decoder = json.JSONDecoder()
    at = text.find(MARKER)
    while at >= 0:
        at += len(MARKER)
        try:
            found, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            end = at
        else:
            if isinstance(found, dict) and found.get("namespace") == NAMESPACE:
                yield found
        at = text.find(MARKER, end)


def as_wire(line: dict[str, Any]) -> str:
    """The line as it stands in a log, with its end."""
    return f"{MARKER}{json.dumps(line)}\n"
