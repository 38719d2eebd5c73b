"""Numbers and lists in sentences for people."""

from __future__ import annotations

from collections.abc import Sequence


def counted(number: int, noun: str) -> str:
    """`1 job`, `3 jobs`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def first_of(names: Sequence[str], most: int) -> str:
    """`a, b, c`; a longer list ends after `most` names with `…`."""
    more = [*names[:most], "…"] if len(names) > most else names
    return ", ".join(more)
