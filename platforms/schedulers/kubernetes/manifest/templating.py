"""Fill the placeholders of a manifest, `${name}`.

They are filled in the parsed tree and not in the text, so that no value can break the YAML.
"""

from __future__ import annotations

import copy
import re
import shlex
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

from platforms.config.loading import nearest
from platforms.job import ConfigError
from platforms.schedulers.kubernetes.manifest.documents import printable_path
from platforms.schedulers.kubernetes.objects.pod_templates import TreePath

Values = Mapping[str, Callable[[], object]]  # by the name of a placeholder: what gives its value
Where = Callable[[TreePath], str]  # says for people where a path of a manifest is, such as `pod.yaml:7`
Problem = tuple[TreePath, str]

# The names have small letters only: `${HOME}` and `${x:-1}` belong to a shell. `$${name}` stands for `${name}` itself.
_PLACEHOLDER = re.compile(r"\$\$\{|\$\{([a-z][a-z0-9_]*)\}")
# Neither a placeholder nor valid in a shell: without an end, or with blanks around or in the name.
_MALFORMED = re.compile(r"(?<!\$)\$\{(?:[^}]*\Z|\s*[a-z][a-z0-9_]*\s|\s)")
_SHELL_KEYS = ("command", "args", "data")  # under these keys a text may be a shell script with its own variables
_EMPTY: tuple[object, ...] = (None, "", [], {})


class _Nothing:
    """The type of NOTHING."""


NOTHING = _Nothing()  # what becomes of a key or item whose placeholder has an empty value


def fill(tree: object, values: Values, where: Where) -> Any:
    """Return a copy of a manifest with all placeholders filled.

    - A text that is one placeholder becomes its value, with the value's type.
    - A placeholder inside a text becomes text; a list becomes words that are quoted as for a shell.
    - A key whose placeholder is empty (None, "", [] or {}) is left out, and so is a mapping that becomes empty.
    - An item of a list that is one placeholder for a list becomes the items of that list.

    Raises ConfigError with every unknown placeholder and the nearest known one, every malformed `${`, and every object
    inside a longer text.
    """
    for find_problems in (_malformed, _unknown, _misplaced):
        problems = [f"{where(path)}: {message}" for path, message in find_problems(tree, values)]
        if problems:
            raise ConfigError(problems)
    filled = _fill(tree, values)
    return None if filled is NOTHING else filled


def unfilled(tree: object, names: Collection[str]) -> Iterator[Problem]:
    """Find the placeholders of a manifest that is submitted as it is.

    Unknown names in a shell script are the variables of the script and do not count.
    """
    for path, text in _texts(tree):
        in_script = any(part in _SHELL_KEYS for part in path)
        for match in _PLACEHOLDER.finditer(text):
            name = match[1]
            if name and (name in names or not in_script):
                yield path, match[0]
        malformed = _MALFORMED.search(text)
        if malformed:
            yield path, _excerpt(malformed)


def where_in_tree(name: str) -> Where:
    """Name places in something that has no lines, such as a dict from a test: `manifest: spec.containers[0]`."""
    return lambda path: f"{name}: {printable_path(path)}"


# --- problems --------------------------------------------------------------------------------------------------------


def _malformed(tree: object, _values: Values) -> Iterator[Problem]:
    for path, text in _texts(tree):
        match = _MALFORMED.search(text)
        if match:
            cure = "a placeholder is written ${name}, and `${` itself is written `$${`"
            yield path, f"{_excerpt(match)} is not a placeholder: {cure}"


def _unknown(tree: object, values: Values) -> Iterator[Problem]:
    for path, text in _texts(tree):
        for name in _names(text):
            if name not in values:
                hint = f"{nearest(name, values)}; a shell's own variable is written $${{{name}}} or ${name}"
                yield path, f"there is no placeholder ${{{name}}} {hint}"


def _misplaced(tree: object, values: Values) -> Iterator[Problem]:
    """Find placeholders for objects inside a longer text."""
    for path, text in _texts(tree):
        if _PLACEHOLDER.fullmatch(text):
            continue
        for name in _names(text):
            if not _fits_in_text(values[name]()):
                cure = f"write it as the whole value of a key, as in `{name}: ${{{name}}}`"
                yield path, f"${{{name}}} is not text: {cure}"


def _fits_in_text(value: object) -> bool:
    """True if a value can be a part of a text: text, a number, nothing, or a list of texts."""
    if isinstance(value, list | tuple):
        return all(isinstance(word, str) for word in value)
    return value is None or isinstance(value, str | int | float)


def _texts(tree: object, path: TreePath = ()) -> Iterator[tuple[TreePath, str]]:
    """Every text of a tree with its path, keys included."""
    if isinstance(tree, str):
        yield path, tree
    elif isinstance(tree, Mapping):
        for key, child in tree.items():
            yield from _texts(key, (*path, key))
            yield from _texts(child, (*path, key))
    elif isinstance(tree, list | tuple):
        for index, child in enumerate(tree):
            yield from _texts(child, (*path, index))


def _names(text: str) -> list[str]:
    """The names of the placeholders in a text."""
    return [match[1] for match in _PLACEHOLDER.finditer(text) if match[1]]


def _excerpt(match: re.Match[str]) -> str:
    """The text from a match on, short enough for a message."""
    first_line = match.string[match.start() :].partition("\n")[0]
    return first_line[:30].rstrip()


# --- filling ---------------------------------------------------------------------------------------------------------


def _fill(tree: object, values: Values) -> Any:
    if isinstance(tree, str):
        return _fill_text(tree, values)
    if isinstance(tree, Mapping):
        return _fill_mapping(tree, values)
    if isinstance(tree, list | tuple):
        return _fill_list(tree, values)
    return tree


def _fill_text(text: str, values: Values) -> Any:
    match = _PLACEHOLDER.fullmatch(text)
    if match and match[1]:
        value = values[match[1]]()
        return NOTHING if value in _EMPTY else copy.deepcopy(value)

    def replacement(match: re.Match[str]) -> str:
        name = match[1]
        return _as_text(values[name]()) if name else "${"

    return _PLACEHOLDER.sub(replacement, text)


def _fill_mapping(tree: Mapping[str, object], values: Values) -> Any:
    filled: dict[str, Any] = {}
    for key, child in tree.items():
        filled_key = _fill_text(key, values)
        value = _fill(child, values)
        if filled_key is not NOTHING and value is not NOTHING:
            filled[str(filled_key)] = value
    became_empty = tree and not filled
    return NOTHING if became_empty else filled


def _fill_list(items: Sequence[object], values: Values) -> list[Any]:
    filled: list[Any] = []
    for item in items:
        value = _fill(item, values)
        if isinstance(item, str) and isinstance(value, list):
            filled += value
        elif value is not NOTHING:
            filled.append(value)
    return filled


def _as_text(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return shlex.join(value)
    return str(value)
