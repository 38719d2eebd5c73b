"""What a test's id does not say: the values that pytest numbers by position, as `case0`, in a text that lasts.

No text has an address in memory, the folder of a file or the order of a set, so that it is the same in every night.
"""

from __future__ import annotations

import enum
import hashlib
import re
from collections.abc import Mapping, Sequence
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
    name = getattr(value, "__name__", None)
    if isinstance(value, str):
        name = value.encode("unicode_escape").decode()
    elif isinstance(value, bytes):
        name = value.decode("ascii", "backslashreplace")
    elif isinstance(value, re.Pattern):
        name = value.pattern
    elif value is None or isinstance(value, int | float | complex | enum.Enum):
        name = str(value)
    return name is not None and f"-{name}-" in f"-{test_id}-"


def _short(text: str) -> str:
    if len(text) <= LONGEST:
        return text
    return f"{text[:LONGEST]}… {hashlib.sha256(text.encode(errors='backslashreplace')).hexdigest()[:8]}"


def text_of(value: object, depth: int = 0) -> str:
    """A value as Python would write it; of an object the public attributes."""
    if depth > DEEPEST:
        return "…"
    if isinstance(value, enum.Enum):
        return str(value)
    if isinstance(value, str | PurePath):
        text = str(value)
        return repr(text.rpartition("/")[2] if text.startswith("/") else text)
    if isinstance(value, Mapping):
        pairs = [f"{text_of(key, depth + 1)}: {text_of(of, depth + 1)}" for key, of in value.items()]
        return f"{{{', '.join(sorted(pairs))}}}"
    if isinstance(value, list | tuple | set | frozenset):
        texts = [text_of(one, depth + 1) for one in value]
        if isinstance(value, set | frozenset):
            texts.sort()
        return f"[{', '.join(texts)}]" if isinstance(value, list) else f"({', '.join(texts)})"
    name = getattr(value, "__qualname__", None)
    if name is not None:
        return str(name)
    kind = type(value)
    slots = [slot for each in kind.__mro__ for slot in (getattr(each, "__slots__", None) or ())]
    attributes = {slot: getattr(value, slot) for slot in slots if hasattr(value, slot)} | getattr(value, "__dict__", {})
    public = [f"{key}={text_of(of, depth + 1)}" for key, of in attributes.items() if not key.startswith("_")]
    if public:
        return f"{kind.__qualname__}({', '.join(public)})"
    try:
        return _ADDRESS.sub("", repr(value))
    except Exception:  # of the site's own class: a test may have such a value and never print it
        return kind.__qualname__
