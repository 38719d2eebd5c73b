"""General lint rules: what is wrong with a manifest on any cluster, whatever the rules of a site are.

The cluster refuses a manifest that breaks one, or the job runs or measures something else than was meant, or the
manifest shows a secret.

| Rule     | What it finds                                                              |
|----------|----------------------------------------------------------------------------|
| names    | names that Kubernetes or an operator refuses                               |
| words    | commands and arguments that are no list of texts, or two words in one      |
| secrets  | the value of a secret in the manifest                                      |
| limits   | requests that exceed their limits                                          |
| cpus     | more threads than CPUs                                                     |
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from platforms.config.cluster_values import quantity_of
from platforms.job import names_a_secret
from platforms.schedulers.kubernetes.objects import labels
from platforms.schedulers.kubernetes.objects.pod_templates import (
    Object,
    TreePath,
    containers,
    makes_pods,
    templates,
)

_DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_DNS_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
_NAME_PREFIX = re.compile(r"[a-z0-9][-a-z0-9.]*")
_RFC_1123 = "small letters, digits and -, as RFC 1123 has it"
_SUBDOMAIN_LENGTH = 253
_IPUJOB_LENGTH = 36  # the operator acquires no IPUs for longer names (EIDF's Graphcore FAQ, until 2026)
_GENERATED_LETTERS = 5  # what the API server appends to a generateName

_TWO_WORDS = re.compile(r"(--?[A-Za-z][\w-]*)\s+(\S.*)")
_RANKS_OPTION = re.compile(r"--nproc[-_]per[-_]node[= ](\w+)")
_THREADS = "OMP_NUM_THREADS"
_OPEN = re.compile(r"set in site\.yaml>|\$\{")


@dataclass(frozen=True)
class LintFinding:
    """A broken rule, the path in the object, and what is wrong there."""

    rule: str
    path: TreePath
    message: str


def findings(tree: Object) -> Iterator[LintFinding]:
    """Check one object against all rules."""
    yield from _names(tree)
    for path, template in templates(tree):
        for place, container in containers(template, path):
            yield from _words(container, place)
            yield from _secrets(container, place)
            yield from _limits(container, place)
            yield from _cpus(container, place)


def amount_of(value: object) -> float:
    """A quantity as a number; 0 if it is not a quantity."""
    try:
        return quantity_of(str(value))
    except ValueError:
        return 0.0


def is_open(value: object) -> bool:
    """True if a value still has to be filled in: by the site, or because it is a placeholder."""
    return isinstance(value, str) and bool(_OPEN.search(value))


# --- names, words, secrets -------------------------------------------------------------------------------------------


def _names(tree: Object) -> Iterator[LintFinding]:
    if tree.get("kind") == "IPUJob":
        most = _IPUJOB_LENGTH
    elif makes_pods(tree):
        most = labels.LONGEST
    else:
        most = _SUBDOMAIN_LENGTH
    metadata = _mapping(tree.get("metadata"))
    yield from _name(metadata.get("name"), ("metadata", "name"), _DNS_SUBDOMAIN, most)
    most_of_prefix = most if "name" in metadata else most - _GENERATED_LETTERS
    yield from _name(metadata.get("generateName"), ("metadata", "generateName"), _NAME_PREFIX, most_of_prefix)
    for path, template in templates(tree):
        for place, container in containers(template, path):
            yield from _name(container.get("name"), (*place, "name"), _DNS_LABEL, labels.LONGEST)
        for index, volume in enumerate(_list(template["spec"].get("volumes"))):
            place = (*path, "spec", "volumes", index, "name")
            yield from _name(_mapping(volume).get("name"), place, _DNS_LABEL, labels.LONGEST)


def _name(name: object, path: TreePath, pattern: re.Pattern[str], most: int) -> Iterator[LintFinding]:
    if name is None or is_open(name):
        return
    if not isinstance(name, str) or not pattern.fullmatch(name):
        yield LintFinding("names", path, f"{name!r} is not a name that Kubernetes accepts ({_RFC_1123})")
    elif len(name) > most:
        yield LintFinding("names", path, f"{name!r} is longer than {most} characters")


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


# --- requests and limits ---------------------------------------------------------------------------------------------


def _limits(container: Object, path: TreePath) -> Iterator[LintFinding]:
    who = f"container {container.get('name')}"
    limits = _amounts(container, "limits")
    for resource, amount in _amounts(container, "requests").items():
        limit = limits.get(resource)
        if is_open(limit) or is_open(amount):
            continue
        place = (*path, "resources", "requests", resource)
        if _is_extended(resource) and (limit is None or amount_of(limit) != amount_of(amount)):
            problem = f"{resource} is requested and not limited to the same: no pod is made of that (limit it only)"
            yield LintFinding("limits", place, f"{who}: {problem}")
        elif limit is not None and amount_of(amount) > amount_of(limit):
            problem = f"{amount} {resource} are requested, and no more than {limit} allowed: no pod is made of that"
            yield LintFinding("limits", place, f"{who}: {problem}")


def _cpus(container: Object, path: TreePath) -> Iterator[LintFinding]:
    limit = _amounts(container, "limits").get("cpu")
    ranks = _ranks_per_node(container)
    threads = _threads_per_rank(container)
    if threads <= 1 or not amount_of(limit) or ranks * threads <= amount_of(limit):
        return
    threads_and_cpus = f"{ranks} ranks of {threads} threads and {limit} CPUs"
    problem = f"{threads_and_cpus}: they are throttled, which looks like a slow machine (fewer threads, or more CPUs)"
    yield LintFinding("cpus", (*path, "resources", "limits", "cpu"), f"container {container.get('name')}: {problem}")


def _ranks_per_node(container: Object) -> int:
    """The ranks that torchrun is to start on a node; 1 without torchrun."""
    match = _RANKS_OPTION.search(" ".join(_command_line(container)))
    if match is None:
        return 1
    if match[1].isdecimal():
        return int(match[1])
    return max(1, int(_devices(container)))  # `gpu` or `auto`: a rank for each device


def _threads_per_rank(container: Object) -> int:
    """The value of OMP_NUM_THREADS; 0 if it is not set."""
    for variable in _mappings(container.get("env")):
        if variable.get("name") == _THREADS:
            return int(amount_of(variable.get("value")))
    return 0


def _devices(container: Mapping[str, Any]) -> float:
    """The number of devices that a container requests, whether in its limits or, wrongly, in its requests."""
    most = 0.0
    for kind in ("limits", "requests"):
        for resource, amount in _amounts(container, kind).items():
            if _is_extended(resource):
                most = max(most, amount_of(amount))
    return most


def _command_line(container: Object) -> list[str]:
    words = [*_list(container.get("command")), *_list(container.get("args"))]
    return [str(word) for word in words]


def _amounts(container: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    return _mapping(_mapping(container.get("resources")).get(kind))


def _is_extended(resource: object) -> bool:
    """True if a device plugin counts it, so that limit and request must be equal: `nvidia.com/gpu`."""
    return "/" in str(resource) and "kubernetes.io/" not in str(resource)


# --- values of any type ----------------------------------------------------------------------------------------------


def _list(value: object) -> Sequence[Any]:
    """The items of a list; none if the value is something else, such as a placeholder."""
    return value if isinstance(value, list) else ()


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _mappings(value: object) -> list[Mapping[str, Any]]:
    """The items of a list that are mappings."""
    return [item for item in _list(value) if isinstance(item, dict)]
