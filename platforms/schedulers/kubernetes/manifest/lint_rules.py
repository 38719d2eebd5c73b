"""General lint rules: what is wrong with a manifest on any cluster, whatever the rules of a site are.

They find what the API server takes, and what then runs or measures something else than was meant, or shows a secret.
What the server refuses itself, such as illegal names, it says in a dry run.

| Rule     | What it finds                                                              |
|----------|----------------------------------------------------------------------------|
| words    | commands and arguments that are no list of texts, or two words in one      |
| secrets  | the value of a secret in the manifest                                      |
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from platforms.config.cluster_values import quantity_of
from platforms.job import names_a_secret
from platforms.schedulers.kubernetes.objects.pod_templates import (
    Object,
    TreePath,
    containers,
    templates,
)

_TWO_WORDS = re.compile(r"(--?[A-Za-z][\w-]*)\s+(\S.*)")
_OPEN = re.compile(r"set in site\.yaml>|\$\{")


@dataclass(frozen=True)
class LintFinding:
    """A broken rule, the path in the object, and what is wrong there."""

    rule: str
    path: TreePath
    message: str


def findings(tree: Object) -> Iterator[LintFinding]:
    """Check one object against all rules."""
    for path, template in templates(tree):
        for place, container in containers(template, path):
            yield from _words(container, place)
            yield from _secrets(container, place)


def amount_of(value: object) -> float:
    """A quantity as a number; 0 if it is not a quantity."""
    try:
        return quantity_of(str(value))
    except ValueError:
        return 0.0


def is_open(value: object) -> bool:
    """True if a value still has to be filled in: by the site, or because it is a placeholder."""
    return isinstance(value, str) and bool(_OPEN.search(value))


# --- words, secrets --------------------------------------------------------------------------------------------------


def _words(container: Object, path: TreePath) -> Iterator[LintFinding]:
    for key in ("command", "args"):
        words = container.get(key)
        if words is None or is_open(words):
            continue
        if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
            cure = "write [sh, -c, 'a line of shell'], and numbers in quotes"
            message = f"{key}: {words!r:.60} is not a list of texts ({cure})"
            yield LintFinding("words", (*path, key), message)
            continue
        for index, word in enumerate(words):
            match = _TWO_WORDS.fullmatch(word)
            if match:
                message = f"{word!r} reaches the program as one word: write '{match[1]}' and '{match[2]}' as two"
                yield LintFinding("words", (*path, key, index), message)


def _secrets(container: Object, path: TreePath) -> Iterator[LintFinding]:
    for index, variable in enumerate(_list(container.get("env"))):
        name = _mapping(variable).get("name")
        value = _mapping(variable).get("value")
        if isinstance(name, str) and names_a_secret(name) and value and not is_open(value):
            message = f"the value of {name} looks like a secret: no secret may stand in a manifest (use secretKeyRef)"
            yield LintFinding("secrets", (*path, "env", index), message)


# --- values of any type ----------------------------------------------------------------------------------------------


def _list(value: object) -> Sequence[Any]:
    """The items of a list; none if the value is something else, such as a placeholder."""
    return value if isinstance(value, list) else ()


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
