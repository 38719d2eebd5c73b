"""The draft of a platform's file: its lines, each with its origin, and its differences from an older file."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from platforms.config.values import seconds_of
from platforms.config.yaml_lines import scalar

if TYPE_CHECKING:
    from platforms.config.schema import Platform

COLUMN = 36  # where the origins begin
LONG = 60
DEPTH = 2  # keys of a line; what lies deeper is written in one, as in {a: b}
_UNSET = ": set in site.yaml>"  # a value that the site has not given yet


@dataclass(frozen=True)
class DraftLine:
    """One key of the file.

    Attributes:
        origin: where the value comes from; it becomes the line's comment.
        todo: whether the line is commented out, since only a person knows its value.
        fits: tells whether the machine still agrees with the value in a file; None for a value that is a choice.
        instead: the line of another key with the same meaning, for a file that has that key.
    """

    key: tuple[str, ...]
    value: str
    origin: str = ""
    todo: bool = False
    fits: Callable[[str], bool] | None = None
    instead: DraftLine | None = None

    @property
    def path(self) -> str:
        return ".".join(self.key)


@dataclass(frozen=True)
class DraftRequest:
    """A request of `init` to a scheduler's backend for the lines of a platform's file.

    Attributes:
        name: of the platform.
        options: of the command line, by name, as in `ssh`; only those that were given.
        replaces: whether the suite ships a file of this name.
        taken_marks: names that no mark may have, since other platforms have them.
        platform: with --diff, the platform as it is; the lines are compared with its file.
        file: with --diff, what the file says, by dotted keys.
    """

    name: str
    options: Mapping[str, str] = field(default_factory=dict)
    replaces: bool = False
    taken_marks: Collection[str] = ()
    platform: Platform | None = None
    file: Mapping[str, str] = field(default_factory=dict)

    def path_of(self, option: str) -> str | None:
        """The absolute path that an option names; None if it was not given."""
        if option not in self.options:
            return None
        return str(Path(self.options[option]).expanduser().absolute())


@dataclass(frozen=True)
class Draft:
    """The lines of a platform's file, and the machine that they describe, as in `login1.example.org`."""

    where: str
    lines: Sequence[DraftLine]


def text(head: str, drafted: Iterable[DraftLine]) -> str:
    """Write the file: each line ends with its origin, and a long line has its origin above it."""
    written = [f"# {line}" if line else "#" for line in head.splitlines()]
    for part, group in groupby(drafted, key=lambda line: line.key[:-1]):
        members = list(group)
        if part:
            comment = "# " if all(line.todo for line in members) else ""
            written.append(f"{comment}{part[0]}:")
        for line in members:
            indent = "  " * len(part)
            comment = "# " if line.todo else ""
            entry = f"{indent}{comment}{line.key[-1]}: {line.value}"
            if not line.origin:
                written.append(entry)
            elif len(entry) > LONG:
                written += [f"{indent}# {line.origin}", entry]
            else:
                written.append(f"{entry:<{COLUMN - 1}} # {line.origin}")
    return "\n".join(written) + "\n"


def written(value: str) -> str:
    """Write a text as YAML: plain where YAML reads it back as the same text, else quoted."""
    plain = re.fullmatch(r"[A-Za-z0-9_./+@][A-Za-z0-9_./+@:-]*", value) and not value.endswith(":")
    if plain and scalar(value) == value:
        return value
    return json.dumps(value)


def flow(value: object) -> str:
    """Write a parsed value in one line, with each text as the file has it."""
    if isinstance(value, Mapping):
        pairs = ", ".join(f"{key}: {flow(child)}" for key, child in value.items())
        return f"{{{pairs}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(flow, value))}]"
    if isinstance(value, bool):
        return str(value).lower()
    return str(getattr(value, "text", value))


def flat(value: Mapping[str, object]) -> dict[str, str]:
    """Turn `{slurm: {partition: gpu}}` into `{slurm.partition: gpu}`, with each value as the file has it."""
    return {".".join(loc): text for loc, text in _flat(value, ())}


def _flat(value: object, loc: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str]]:
    if isinstance(value, Mapping) and len(loc) < DEPTH:
        for key, child in value.items():
            yield from _flat(child, (*loc, key))
    else:
        yield loc, flow(value)


def same_time(left: str, right: str) -> bool:
    """Tell whether two texts are the same length of time."""
    try:
        return seconds_of(left) == seconds_of(right)
    except ValueError:
        return False


def differences(drafted: Sequence[DraftLine], file: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """List the two sides of a diff.

    Args:
        file: what the file says, by dotted keys, as in `slurm.partition`.

    Returns:
        The file's lines, and the same lines with the machine's value in place of each that does not fit.
    """
    old: list[str] = []
    new: list[str] = []
    for drafted_line in drafted:
        line = drafted_line
        if line.instead and line.instead.path in file:
            line = line.instead
        value = file.get(line.path)
        if value is None:
            if line.fits is not None and not line.todo:
                new.append(_with_origin(line))
            continue
        unchanged = f"{line.path}: {value}"
        old.append(unchanged)
        if line.fits is None or _UNSET in value or line.fits(value):
            new.append(unchanged)
        else:
            new.append(_with_origin(line))
    return old, new


def _with_origin(line: DraftLine) -> str:
    text = f"{line.path}: {line.value}"
    if not line.origin:
        return text
    return f"{text}  # {line.origin}"
