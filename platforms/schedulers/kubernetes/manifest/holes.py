"""Fills the holes of a manifest, `${name}`, in the parsed tree: whatever a value holds, it cannot break the YAML."""

from __future__ import annotations

import copy
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from platforms.job import ConfigError
from platforms.loading import nearest
from platforms.schedulers.kubernetes.manifest.documents import shown
from platforms.schedulers.kubernetes.objects import TreePath

Values = Mapping[str, Callable[[], object]]
Where = Callable[[TreePath], str]

# Small letters: `${HOME}` and `${x:-1}` are a shell's. `$${name}` stands for `${name}` itself.
_HOLE = re.compile(r"\$\$\{|\$\{([a-z][a-z0-9_]*)\}")
_EMPTY: tuple[object, ...] = (None, "", [], {})


class _Nothing:
    """What is left of a key whose hole has nothing to say."""


NOTHING = _Nothing()


def fill(tree: object, values: Values, where: Where) -> Any:
    """A filled copy. `where` says the place of a path for people.

    A scalar that is one hole becomes the value, with its type; a hole inside a text becomes text, a list there words as
    a shell quotes them. A key whose hole has nothing to say (None, or empty) is left out, and so is a mapping of which
    nothing else is left. An item of a list that is one hole with a list becomes that list's items.

    Raises ConfigError for every hole that does not exist, with the nearest one that does.
    """
    unknown = [(path, name) for path, name in _holes(tree, ()) if name not in values]
    if unknown:
        raise ConfigError(
            [f"{where(path)}: there is no hole ${{{name}}} {_hint(name, values)}" for path, name in unknown]
        )
    filled = _fill(tree, values)
    return None if filled is NOTHING else filled


def _hint(name: str, values: Values) -> str:
    return f"{nearest(name, values)}; a shell's own variable is written $${{{name}}} or ${name}"


def _holes(tree: object, path: TreePath) -> Iterator[tuple[TreePath, str]]:
    if isinstance(tree, str):
        yield from ((path, match[1]) for match in _HOLE.finditer(tree) if match[1])
    elif isinstance(tree, Mapping):
        for key, child in tree.items():
            yield from _holes(key, (*path, key))
            yield from _holes(child, (*path, key))
    elif isinstance(tree, list | tuple):
        for index, child in enumerate(tree):
            yield from _holes(child, (*path, index))


def _fill(tree: object, values: Values) -> Any:
    if isinstance(tree, str):
        return _scalar(tree, values)
    if isinstance(tree, Mapping):
        return _mapping(tree, values)
    if isinstance(tree, list | tuple):
        return _sequence(tree, values)
    return tree


def _scalar(text: str, values: Values) -> Any:
    whole = _HOLE.fullmatch(text)
    if whole and whole[1]:
        value = values[whole[1]]()
        return NOTHING if value in _EMPTY else copy.deepcopy(value)
    return _HOLE.sub(lambda match: _words(values[match[1]](), match[1]) if match[1] else "${", text)


def _mapping(tree: Mapping[str, object], values: Values) -> Any:
    filled: dict[str, Any] = {}
    for key, child in tree.items():
        name, value = _scalar(key, values), _fill(child, values)
        if name is not NOTHING and value is not NOTHING:
            filled[str(name)] = value
    return NOTHING if tree and not filled else filled


def _sequence(tree: Sequence[object], values: Values) -> list[Any]:
    items: list[Any] = []
    for child in tree:
        value = _fill(child, values)
        if isinstance(child, str) and isinstance(value, list):
            items += value
        elif value is not NOTHING:
            items.append(value)
    return items


def _words(value: object, name: str) -> str:
    """A value inside a text."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple) and all(isinstance(word, str) for word in value):
        return shlex.join(value)
    if isinstance(value, str | int | float):
        return str(value)
    raise ConfigError([f"${{{name}}} is no text: write it as the whole value of a key, as in `{name}: ${{{name}}}`"])


def paths(where: str) -> Where:
    """Places in something that has no lines: a dict that a test hands over."""
    return lambda path: f"{where}: {shown(path)}"
