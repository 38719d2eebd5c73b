"""What other people's tools have written, read by name and by pattern: what is not there becomes one sentence."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from platforms.results.plain_log import readings
from platforms.results.wire import readable

_SHOWN = 60  # characters of a value
_LISTED = 8  # keys or matches


def numbers(log: str | Path, pattern: str) -> list[float]:
    """Every number that a pattern finds in what a program printed, for programs that do not write the wire.

    A pattern that names a launcher's prefix, or what looks like one, finds it, too.

    Args:
        log: the text of the log, or the path of its file.
        pattern: a regular expression whose first group, or whole match, is a number; `^` and `$` are ends of lines.

    Raises:
        ValueError: nothing matches, or a match is not a finite number.
    """
    return [value for value, _ in _matches(log, pattern)]


def one_number(log: str | Path, pattern: str) -> float:
    """The only number that a pattern finds in what a program printed; its arguments are those of `numbers`.

    Raises:
        ValueError: nothing matches, or more than one place does, or the match is not a finite number.
    """
    found = _matches(log, pattern)
    if len(found) > 1:
        shown = "; ".join(repr(readable(match)) for _, match in found[:_LISTED])
        raise ValueError(f"{pattern!r} matches {len(found)} times in the log{_place(log)}, and one is wanted: {shown}")
    return found[0][0]


def field(of: object, *keys: str | int, where: object, tool: str, kind: type = object) -> Any:
    """Read one value in what another tool has written as JSON.

    Args:
        of: the value that was read: a mapping, a list, or anything else.
        keys: the names of keys and the places in lists that lead to it.
        where: the file.
        tool: the tool, and which of its versions are read, as "fio 3.1 to 3.42".
        kind: the type that it must have; a whole number is a float, too, and a boolean is no number.

    Raises:
        ValueError: it is not there, or of another type.
    """
    path = ""
    value: Any = of
    for key in keys:
        step = f"{path}[{key}]" if isinstance(key, int) else f"{path}.{key}".lstrip(".")
        in_list = isinstance(value, list) and isinstance(key, int) and -len(value) <= key < len(value)
        if not in_list and not (isinstance(value, Mapping) and key in value):
            raise ValueError(f"{where}: {step} is missing: {path or 'the whole'} {_shape(value)}. Read is {tool}")
        value = value[key]
        path = step
    wanted = (float, int) if kind is float else kind
    if not isinstance(value, wanted) or (kind in (float, int) and isinstance(value, bool)):
        raise ValueError(f"{where}: {path} {_shape(value)}, and no {getattr(kind, '__name__', kind)}. Read is {tool}")
    return value


def _shape(value: object) -> str:
    """What a value is, for a sentence whose subject it is."""
    if isinstance(value, Mapping):
        names = ", ".join(map(str, list(value)[:_LISTED]))
        return f"has {names}{', …' if len(value) > _LISTED else ''}" if value else "is empty"
    if isinstance(value, list):
        return f"is a list of {len(value)}"
    text = json.dumps(value, default=str)
    return f"is {text if len(text) <= _SHOWN else text[: _SHOWN - 1] + '…'}"


def _matches(log: str | Path, pattern: str) -> list[tuple[float, str]]:
    """Each number that a pattern finds, with all that it matches."""
    plain = ""
    for text in readings(log):
        plain = plain or text
        found = [(_number(match, pattern), match[0]) for match in re.finditer(pattern, text, re.MULTILINE)]
        if found:
            return found
    ends = readable(next((line for line in reversed(plain.splitlines()) if line.strip()), ""))
    raise ValueError(
        f"{pattern!r} matches nothing in the log{_place(log)}, whose last line is {ends!r}: "
        "compare the pattern with what the program prints"
    )


def _number(match: re.Match[str], pattern: str) -> float:
    word = match[1] if match.re.groups else match[0]
    try:
        value = float(word)
    except (TypeError, ValueError):
        value = math.nan
    if not math.isfinite(value):
        raise ValueError(f"{pattern!r} matches {match[0]!r}, and {word!r} is no finite number")
    return value


def _place(log: str | Path) -> str:
    return f" ({log})" if isinstance(log, Path) else ""
