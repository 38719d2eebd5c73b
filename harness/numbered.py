"""What a test's id does not say: the values that pytest numbers by position, as `case0`, in a text that lasts.

No text has an address in memory, the folder of a file or the order of a set, so that it is the same in every night.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Mapping
from pathlib import PurePath
from typing import Any

import pytest

LONGEST = 100  # characters of a value's text, as pytest has it for an id
DEEPEST = 6  # of values in values: some hold themselves
_ADDRESS = re.compile(r" at 0x[0-9A-Fa-f]+")
_BRACES = str.maketrans("{}", "()")  # a reader of the history looks for the first brace that closes its fields


def values_of(item: pytest.Item, unnamed: Collection[str]) -> str | None:
    """All values of a test beside its case, as `local-1x1cpu case=('n': 100)`; None if its id says what it has.

    Args:
        unnamed: the parameters for which pytest had to make an id.
    """
    callspec: Any = getattr(item, "callspec")  # noqa: B009
    case = callspec.params["platform"]
    own = {name: value for name, value in callspec.params.items() if name != "platform"}
    if not _numbers(callspec.id.removeprefix(case), {name: own[name] for name in own if name in unnamed}):
        return None
    texts = [f"{name}={_short(value if isinstance(value, str) else text_of(value))}" for name, value in own.items()]
    return f"{case} {'; '.join(sorted(texts))}".translate(_BRACES)


def _numbers(test_id: str, unnamed: Mapping[str, object]) -> set[object]:
    """The parts of an id such as `case0`: the name of a parameter, or of a function, and a number."""
    names = {*unnamed, *(str(getattr(value, "__name__", name)) for name, value in unnamed.items())}
    found = re.findall(rf"(?<=-)(?:{'|'.join(map(re.escape, names))})_?\d+(?=-|$)", test_id)
    return set(found) - {value for value in unnamed.values() if isinstance(value, str)}


def _short(text: str) -> str:
    if len(text) <= LONGEST:
        return text
    return f"{text[:LONGEST]}… {hashlib.sha256(text.encode(errors='backslashreplace')).hexdigest()[:8]}"


def text_of(value: object, depth: int = 0) -> str:
    """A value as Python would write it, with one kind of brackets; of an object the public attributes."""
    if depth > DEEPEST:
        return "…"
    if isinstance(value, str | PurePath):
        text = str(value)
        return repr(text.rpartition("/")[2] if text.startswith("/") else text)
    if isinstance(value, Mapping):
        texts = sorted(f"{text_of(key, depth + 1)}: {text_of(of, depth + 1)}" for key, of in value.items())
    elif isinstance(value, list | tuple | set | frozenset):
        texts = [text_of(one, depth + 1) for one in value]
        if isinstance(value, set | frozenset):
            texts.sort()
    else:
        return _text_of_object(value, depth)
    return f"({', '.join(texts)})"


def _text_of_object(value: object, depth: int) -> str:
    name = getattr(value, "__qualname__", None) or getattr(value, "__name__", None)  # a module has the latter
    if name is not None:
        return str(name)
    kind = type(value).__qualname__
    attributes = getattr(value, "__dict__", {})
    public = [f"{key}={text_of(of, depth + 1)}" for key, of in attributes.items() if not key.startswith("_")]
    if public:
        return f"{kind}({', '.join(public)})"
    try:
        return _ADDRESS.sub("", repr(value))
    except Exception:  # of the site's own class: a test may have such a value and never print it
        return kind
