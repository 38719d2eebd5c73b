"""The draft of a platform's file: its lines, each with its origin."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path

from platforms.config.yaml_lines import scalar

COLUMN = 36  # where the origins begin
LONG = 60


@dataclass(frozen=True)
class DraftLine:
    """One key of the file.

    Attributes:
        origin: where the value comes from; it becomes the line's comment.
        todo: whether the line is commented out, since only a person knows its value.
    """

    key: tuple[str, ...]
    value: str
    origin: str = ""
    todo: bool = False

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
    """

    name: str
    options: Mapping[str, str] = field(default_factory=dict)
    replaces: bool = False
    taken_marks: Collection[str] = ()

    def path_of(self, option: str) -> str | None:
        """The absolute path that an option names; None if it was not given."""
        if option not in self.options:
            return None
        return str(Path(self.options[option]).expanduser().absolute())


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
