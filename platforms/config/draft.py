"""A platform's file before it is written: its lines, each with its origin, and how it differs from an older one."""

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
    """One key of the file. `todo` lines are commented out. `fits` says of a file's own value whether the machine still
    agrees with it; None: it is a choice, which the machine has no say in. `instead` is the
    line of another key that says the same, where a file has that one."""

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
    """What `init` asks a scheduler's backend for: the lines of a platform's file.

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
    """The lines of a platform's file, and who gave the answers, as in `login1.example.org`."""

    where: str
    lines: Sequence[DraftLine]


def text(head: str, drafted: Iterable[DraftLine]) -> str:
    """The file: every value with its origin behind it, a long one with its origin above it."""
    written = [f"# {line}" if line else "#" for line in head.splitlines()]
    for part, group in groupby(drafted, key=lambda line: line.key[:-1]):
        members = list(group)
        if part:
            written.append(f"{'# ' if all(line.todo for line in members) else ''}{part[0]}:")
        for line in members:
            indent = "  " * len(part)
            start = indent + ("# " if line.todo else "") + f"{line.key[-1]}: {line.value}"
            if line.origin and len(start) > LONG:
                written += [f"{indent}# {line.origin}", start]
            else:
                written.append(f"{start:<{COLUMN - 1}} # {line.origin}" if line.origin else start)
    return "\n".join(written) + "\n"


def written(value: str) -> str:
    """A text as YAML: plain where it is read back as that text, else quoted."""
    plain = re.fullmatch(r"[A-Za-z0-9_./+@][A-Za-z0-9_./+@:-]*", value) and not value.endswith(":")
    return value if plain and scalar(value) == value else json.dumps(value)


def flow(value: object) -> str:
    """A parsed value as it stands in one line, every text as it was written."""
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{key}: {flow(child)}' for key, child in value.items())}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(flow, value))}]"
    return str(value).lower() if isinstance(value, bool) else str(getattr(value, "text", value))


def flat(value: Mapping[str, object]) -> dict[str, str]:
    """`{slurm: {partition: gpu}}` as `{slurm.partition: gpu}`, every value as it was written."""
    return {".".join(loc): text for loc, text in _flat(value, ())}


def _flat(value: object, loc: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str]]:
    if isinstance(value, Mapping) and len(loc) < DEPTH:
        for key, child in value.items():
            yield from _flat(child, (*loc, key))
    else:
        yield loc, flow(value)


def same_time(one: str, other: str) -> bool:
    """Whether two texts are the same length of time."""
    try:
        return seconds_of(one) == seconds_of(other)
    except ValueError:
        return False


def _as_written(line: DraftLine, file: Mapping[str, str]) -> DraftLine:
    """The line, with the key by which the file says it."""
    return line.instead if line.instead and line.instead.path in file else line


def differences(drafted: Sequence[DraftLine], file: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """The lines of both sides that a diff shows: the file's values, and what the machine says in place of those that
    do not fit. `file` is flat: `slurm.partition` -> text."""
    old: list[str] = []
    new: list[str] = []
    for line in (_as_written(one, file) for one in drafted):
        said, fresh = file.get(line.path), f"{line.path}: {line.value}"
        if said is not None:
            old.append(f"{line.path}: {said}")
        if line.fits is None or (said is None and line.todo):
            new += old[-1:] if said is not None else []
        elif said is not None and (_UNSET in said or line.fits(said)):
            new.append(old[-1])
        else:
            new.append(fresh + (f"  # {line.origin}" if line.origin else ""))
    return old, new
