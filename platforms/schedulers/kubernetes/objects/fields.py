"""Reading objects of a cluster: whatever is missing, new, or not what it should be is nothing, and never an error."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

Object = Mapping[str, Any]
REASON_LENGTH = 300  # letters that a person reads of one reason
_DAY_S = 86400.0


def dig(tree: object, *path: str) -> Any:
    """What lies at a path of keys, or None."""
    for key in path:
        if not isinstance(tree, Mapping):
            return None
        tree = tree.get(key)
    return tree


def mapping(tree: object, *path: str) -> Object:
    """The mapping at a path; empty when there is none."""
    found = dig(tree, *path)
    return found if isinstance(found, Mapping) else {}


def items(tree: object, *path: str) -> list[Object]:
    """The mappings of the list at a path."""
    found = dig(tree, *path)
    return [each for each in found if isinstance(each, Mapping)] if isinstance(found, list | tuple) else []


def text(tree: object, *path: str) -> str:
    """The text at a path; empty when there is none."""
    found = dig(tree, *path)
    return found if isinstance(found, str) else ""


def number(tree: object, *path: str) -> int | None:
    """The whole number at a path, also where a kind writes it as text."""
    found = dig(tree, *path)
    if isinstance(found, str) and re.fullmatch(r"\d{1,9}", found):
        return int(found)
    return found if isinstance(found, int) and not isinstance(found, bool) else None


def timestamp_s(tree: object, *path: str) -> float | None:
    """The time at a path as Unix seconds; 1970 stands for a time that is not known."""
    try:
        when = datetime.fromisoformat(text(tree, *path))
        found = when.replace(tzinfo=when.tzinfo or UTC).timestamp()
    except (ValueError, OverflowError):
        return None
    return found if found > _DAY_S else None


def uid(tree: object) -> str:
    return text(tree, "metadata", "uid")


def label(tree: object, *names: str) -> str:
    """The first of some labels that an object has, or annotation of such a name."""
    for name in names:
        if found := text(tree, "metadata", "labels", name) or text(tree, "metadata", "annotations", name):
            return found
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
    """By type."""
    listed = (_condition(each) for each in items(tree, "status", "conditions"))
    return {each.type: each for each in listed if each.type}


def _condition(each: Object) -> Condition:
    return Condition(
        type=text(each, "type"),
        true=text(each, "status") == "True",
        reason=text(each, "reason"),
        message=text(each, "message"),
        since_s=timestamp_s(each, "lastTransitionTime"),
    )


def one_line(words: str, limit: int = REASON_LENGTH) -> str:
    """On one line, and cut at its end where it is too long."""
    line = " ".join(words.split())
    return line if len(line) <= limit else line[: limit - 1].rstrip() + "…"
