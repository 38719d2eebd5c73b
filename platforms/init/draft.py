"""A platform's file before it is written: its lines, each with its origin, and how it differs from an older one."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby

from platforms.values import seconds_of
from platforms.yaml_lines import scalar

COLUMN = 36  # where the origins begin
_UNSET = ": set in site.yaml>"  # a value that the site has not given yet


@dataclass(frozen=True)
class Line:
    """One key of the file. `todo` lines are commented out. `fits` says of a file's own value whether the machine still
    agrees with it; None: it is a choice, which the machine has no say in."""

    key: tuple[str, ...]
    value: str
    origin: str = ""
    todo: bool = False
    fits: Callable[[str], bool] | None = None

    @property
    def path(self) -> str:
        return ".".join(self.key)


def text(head: str, drafted: Iterable[Line]) -> str:
    """The file: every value with its origin behind it."""
    written = [f"# {line}" if line else "#" for line in head.splitlines()]
    for part, group in groupby(drafted, key=lambda line: line.key[:-1]):
        members = list(group)
        if part:
            written.append(f"{'# ' if all(line.todo for line in members) else ''}{part[0]}:")
        for line in members:
            start = "  " * len(part) + ("# " if line.todo else "") + f"{line.key[-1]}: {line.value}"
            written.append(f"{start:<{COLUMN - 1}} # {line.origin}" if line.origin else start)
    return "\n".join(written) + "\n"


def written(value: str) -> str:
    """A text as YAML: plain where it is read back as that text, else quoted."""
    plain = re.fullmatch(r"[A-Za-z0-9_./+@][A-Za-z0-9_./+@:-]*", value) and not value.endswith(":")
    return value if plain and scalar(value) == value else json.dumps(value)


def clock(seconds: float) -> str:
    """As our files write a time: H:MM:SS."""
    whole = int(seconds)
    return f"{whole // 3600}:{whole // 60 % 60:02d}:{whole % 60:02d}"


def same_time(one: str, other: str) -> bool:
    """Whether two texts are the same length of time."""
    try:
        return seconds_of(one) == seconds_of(other)
    except ValueError:
        return False


def differences(drafted: list[Line], file: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """The lines of both sides that a diff shows: the file's values, and what the machine says in place of those that
    do not fit. `file` is flat: `slurm.partition` -> text."""
    old: list[str] = []
    new: list[str] = []
    for line in drafted:
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
