"""Read fields of objects of a cluster. A field that is missing, or has another type, reads as empty and is no error."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

Object = Mapping[str, Any]
REASON_LENGTH = 300  # the most letters of a reason that a person reads
_DAY_S = 86400.0


def dig(tree: object, *path: str) -> Any:
    """The value at a path of keys, or None."""
    for key in path:
        if not isinstance(tree, Mapping):
            return None
        tree = tree.get(key)
    return tree


def mapping(tree: object, *path: str) -> Object:
    """The mapping at a path; empty if there is none."""
    value = dig(tree, *path)
    return value if isinstance(value, Mapping) else {}


def items(tree: object, *path: str) -> list[Object]:
    """The mappings of the list at a path."""
    value = dig(tree, *path)
    if not isinstance(value, list | tuple):
        return []
    return [item for item in value if isinstance(item, Mapping)]


def text(tree: object, *path: str) -> str:
    """The text at a path; empty if there is none."""
    value = dig(tree, *path)
    return value if isinstance(value, str) else ""


def number(tree: object, *path: str) -> int | None:
    """The whole number at a path, even if it is written as text; None if there is none."""
    value = dig(tree, *path)
    if isinstance(value, str) and re.fullmatch(r"\d{1,9}", value):
        return int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value


def timestamp_s(tree: object, *path: str) -> float | None:
    """The time at a path as Unix seconds; None if there is none, or if it is 1970, which stands for an unknown time."""
    try:
        when = datetime.fromisoformat(text(tree, *path))
        unix_s = when.replace(tzinfo=when.tzinfo or UTC).timestamp()
    except (ValueError, OverflowError):
        return None
    return unix_s if unix_s > _DAY_S else None


def uid(tree: object) -> str:
    return text(tree, "metadata", "uid")


def label(tree: object, *names: str) -> str:
    """The first of some labels that an object has, as a label or as an annotation; empty if it has none."""
    for name in names:
        value = text(tree, "metadata", "labels", name) or text(tree, "metadata", "annotations", name)
        if value:
            return value
    return ""


@dataclass(frozen=True)
class Condition:
    """One entry of status.conditions. `since_s`: when it last changed, in Unix seconds."""

    type: str
    true: bool
    reason: str
    message: str
    since_s: float | None = None


def conditions(tree: object) -> dict[str, Condition]:
    """The conditions of an object by type."""
    listed = [_condition(entry) for entry in items(tree, "status", "conditions")]
    return {condition.type: condition for condition in listed if condition.type}


def _condition(entry: Object) -> Condition:
    return Condition(
        type=text(entry, "type"),
        true=text(entry, "status") == "True",
        reason=text(entry, "reason"),
        message=text(entry, "message"),
        since_s=timestamp_s(entry, "lastTransitionTime"),
    )


def one_line(text: str, limit: int = REASON_LENGTH) -> str:
    """Put a text on one line, and cut its end if it is longer than `limit`."""
    line = " ".join(text.split())
    if len(line) <= limit:
        return line
    return line[: limit - 1].rstrip() + "…"
