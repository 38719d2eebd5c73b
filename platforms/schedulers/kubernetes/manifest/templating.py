"""Fills the holes of a manifest, `${name}`, in the parsed tree: whatever a value holds, it cannot break the YAML."""

from __future__ import annotations

import copy
import re
import shlex
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

from platforms.config.loading import nearest
from platforms.job import ConfigError
from platforms.schedulers.kubernetes.manifest.documents import shown
from platforms.schedulers.kubernetes.objects.pod_templates import TreePath

Values = Mapping[str, Callable[[], object]]
Where = Callable[[TreePath], str]

# Small letters: `${HOME}` and `${x:-1}` are a shell's. `$${name}` stands for `${name}` itself.
_HOLE = re.compile(r"\$\$\{|\$\{([a-z][a-z0-9_]*)\}")
# Neither a hole nor anything of a shell's: without an end, or with blanks in its name.
_BROKEN = re.compile(r"(?<!\$)\$\{(?:[^}]*\Z|\s*[a-z][a-z0-9_]*\s|\s)")
_SHELL = ("command", "args", "data")  # where texts may be a shell's, with its own variables
_NO_TEXT = "${{{name}}} is no text: write it as the whole value of a key, as in `{name}: ${{{name}}}`"
_EMPTY: tuple[object, ...] = (None, "", [], {})


class _Nothing:
    """What is left of a key whose hole has nothing to say."""


NOTHING = _Nothing()


def fill(tree: object, values: Values, where: Where) -> Any:
    """A filled copy. `where` says the place of a path for people.

    A scalar that is one hole becomes the value, with its type; a hole inside a text becomes text, a list there words as
    a shell quotes them. A key whose hole has nothing to say (None, or empty) is left out, and so is a mapping of which
    nothing else is left. An item of a list that is one hole with a list becomes that list's items.

    Raises ConfigError for every hole that does not exist, with the nearest one that does, for every `${` that is none,
    and for a value of the wrong kind: objects in a text, in a key or among texts.
    """
    if broken := [f"{where(path)}: {what}" for path, what in _broken(tree)]:
        raise ConfigError(broken)
    unknown = [(path, name) for path, name in _holes(tree, ()) if name not in values]
    if unknown:
        raise ConfigError(
            [f"{where(path)}: there is no hole ${{{name}}} {_hint(name, values)}" for path, name in unknown]
        )
    if misfits := [f"{where(path)}: {what}" for path, what in _misfits(tree, values)]:
        raise ConfigError(misfits)
    filled = _fill(tree, values)
    return None if filled is NOTHING else filled


def _hint(name: str, values: Values) -> str:
    return f"{nearest(name, values)}; a shell's own variable is written $${{{name}}} or ${name}"


def left(tree: object, names: Collection[str]) -> Iterator[tuple[TreePath, str]]:
    """Holes in what is taken as it is, and nobody fills; a variable of a shell's own, in its script, is none."""
    for path, text in _texts(tree, ()):
        script = any(part in _SHELL for part in path)
        wrong = [match[0] for match in _HOLE.finditer(text) if match[1] and (match[1] in names or not script)]
        yield from ((path, hole) for hole in wrong)
        if match := _BROKEN.search(text):
            yield path, _begun(match)


def _broken(tree: object) -> Iterator[tuple[TreePath, str]]:
    for path, text in _texts(tree, ()):
        if match := _BROKEN.search(text):
            yield path, f"{_begun(match)} is no hole, which is written ${{name}} (`${{` itself is written `$${{`)"


def _begun(match: re.Match[str]) -> str:
    return match.string[match.start() :].partition("\n")[0][:30].rstrip()


def _holes(tree: object, path: TreePath) -> Iterator[tuple[TreePath, str]]:
    yield from ((place, match[1]) for place, text in _texts(tree, path) for match in _HOLE.finditer(text) if match[1])


def _texts(tree: object, path: TreePath) -> Iterator[tuple[TreePath, str]]:
    """Every text of a tree, the keys too, with its path."""
    if isinstance(tree, str):
        yield path, tree
    elif isinstance(tree, Mapping):
        for key, child in tree.items():
            yield from _texts(key, (*path, key))
            yield from _texts(child, (*path, key))
    elif isinstance(tree, list | tuple):
        for index, child in enumerate(tree):
            yield from _texts(child, (*path, index))


def _misfits(tree: object, values: Values, path: TreePath = ()) -> Iterator[tuple[TreePath, str]]:
    """Holes whose values cannot stand where they stand."""
    if isinstance(tree, str) and not _HOLE.fullmatch(tree):
        wrong = [name for _, name in _holes(tree, ()) if not _is_text(values[name]())]
        yield from ((path, _NO_TEXT.format(name=name)) for name in wrong)
    elif isinstance(tree, Mapping):
        for key, child in tree.items():
            names = [name for _, name in _holes(key, ()) if isinstance(values[name](), list | tuple | Mapping)]
            yield from (((*path, key), f"${{{name}}} is no text, as a key is") for name in names)
            yield from _misfits(child, values, (*path, key))
    elif isinstance(tree, list | tuple):
        yield from _among(tree, values, path)
        for index, child in enumerate(tree):
            yield from _misfits(child, values, (*path, index))


def _among(tree: Sequence[object], values: Values, path: TreePath) -> Iterator[tuple[TreePath, str]]:
    """Objects in a list of texts, as in `command: [echo, "${env}"]`."""
    words = any(isinstance(child, str) and not _HOLE.fullmatch(child) for child in tree)
    for index, child in enumerate(tree if words else ()):
        whole = _HOLE.fullmatch(child) if isinstance(child, str) else None
        if whole and whole[1] and not _is_text(values[whole[1]]()):
            yield (*path, index), f"{whole[0]} is no text, and stands in a list of texts"


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
    return _HOLE.sub(lambda match: _words(values[match[1]]()) if match[1] else "${", text)


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


def _words(value: object) -> str:
    """A value inside a text."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return shlex.join(value)
    return str(value)


def _is_text(value: object) -> bool:
    """Whether it can be part of a text: a word, a number, nothing, or a list of words."""
    if isinstance(value, list | tuple):
        return all(isinstance(word, str) for word in value)
    return value is None or isinstance(value, str | int | float)


def paths(where: str) -> Where:
    """Places in something that has no lines: a dict that a test hands over."""
    return lambda path: f"{where}: {shown(path)}"
