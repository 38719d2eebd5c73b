"""What a test's id does not say: the values that pytest numbers by position, as `case0`, in a text that lasts.

No text has an address in memory, the folder of a file or the order of a set, so that it is the same in every night.
"""

from __future__ import annotations

import enum
import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePath
from typing import Any

import pytest

LONGEST = 100  # characters of a value's text, as pytest has it for an id
DEEPEST = 6  # of values in values: some hold themselves
_ADDRESS = re.compile(r" at 0x[0-9A-Fa-f]+")
_BRACES = str.maketrans("{}", "()")  # a reader of the history looks for the first brace that closes its fields


def values_of(item: pytest.Item, unnamed: Sequence[tuple[str, object]]) -> str | None:
    """All values of a test beside its case, as `local-1x1cpu case=('n': 100)`; None if its id says what it has.

    Args:
        unnamed: the parameters for which pytest had to make an id, and each of their values.
    """
    callspec: Any = getattr(item, "callspec")  # noqa: B009
    own = {name: value for name, value in callspec.params.items() if name != "platform"}
    made = {(name, id(value)) for name, value in unnamed}
    if all((name, id(value)) not in made or _is_said(value, callspec.id) for name, value in own.items()):
        return None
    texts = [f"{name}={_short(value if isinstance(value, str) else text_of(value))}" for name, value in own.items()]
    return f"{callspec.params['platform']} {'; '.join(sorted(texts))}".translate(_BRACES)


def _is_said(value: object, test_id: str) -> bool:
    """Whether an id has a value as it is, without a number behind it that tells it from others of its name."""
    match value:
        case str():
            text = value
        case bytes():
            text = value.decode(errors="replace")
        case re.Pattern():
            text = str(value.pattern)
        case _:
            text = str(getattr(value, "__name__", None) or text_of(value))
    return f"-{text.encode('unicode_escape').decode()}-" in f"-{test_id}-"


def _short(text: str) -> str:
    if len(text) <= LONGEST:
        return text
    return f"{text[:LONGEST]}… {hashlib.sha256(text.encode(errors='backslashreplace')).hexdigest()[:8]}"


def text_of(value: object, depth: int = 0) -> str:
    """A value as Python would write it, with one kind of brackets; of an object the public attributes."""
    if depth > DEEPEST:
        return "…"
    if isinstance(value, enum.Enum):
        return str(value)
    if isinstance(value, str | PurePath):
        text = str(value)
        return repr(text.rpartition("/")[2] if text.startswith("/") else text)
    if isinstance(value, Mapping):
        return _in_brackets(sorted(f"{text_of(key, depth + 1)}: {text_of(of, depth + 1)}" for key, of in value.items()))
    if isinstance(value, set | frozenset):
        return _in_brackets(sorted(text_of(one, depth + 1) for one in value))
    if isinstance(value, list | tuple):
        return _in_brackets(text_of(one, depth + 1) for one in value)
    name = getattr(value, "__qualname__", None) or getattr(value, "__name__", None)  # a module has the latter
    if name is not None:
        return str(name)
    kind = type(value).__qualname__
    attributes = {key: of for key, of in getattr(value, "__dict__", {}).items() if not key.startswith("_")}
    if attributes:
        return kind + _in_brackets(f"{key}={text_of(of, depth + 1)}" for key, of in attributes.items())
    try:
        return _ADDRESS.sub("", repr(value))
    except Exception:  # of the site's own class: a test may have such a value and never print it
        return kind


def _in_brackets(texts: Iterable[str]) -> str:
    return f"({', '.join(texts)})"
