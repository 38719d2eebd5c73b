"""A site's rules (`policy:` of a platform) and general sense against manifests; a finding names its rule and line."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from platforms.config.loading import nearest
from platforms.config.values import quantity_of
from platforms.job import JobSpec
from platforms.schedulers.kubernetes.manifest import documents, launch, lint_rules, placeholders, templating
from platforms.schedulers.kubernetes.objects import labels
from platforms.schedulers.kubernetes.objects.pod_templates import (
    NO_TEMPLATE,
    Object,
    TreePath,
    containers,
    missing_template,
    root_of,
    templates,
)

if TYPE_CHECKING:
    from platforms.config.schema import Platform

_PART = re.compile(r"\[([^\]]+)\]|([^.\[\]]+)")


@dataclass(frozen=True)
class Violation:
    """One thing that is wrong: in which object, by its number, where in it, and in words."""

    number: int
    path: TreePath
    what: str


def lint(objects: Sequence[Object], platform: Platform, spec: JobSpec | None = None, text: str = "") -> tuple[str, ...]:
    """What the platform's rules have against the objects, and what cannot work; a sentence each, by lines of `text`.

    Without a `spec`, somebody's manifest is looked at as it is, and all that general sense has against it counts; with
    one, only as much of it as the site calls law (`policy: {sense: …}`).
    """
    places = _places(objects, text)
    found = [(places[one.number](one.path), one.what) for one in findings(objects, platform, spec)]
    return tuple(f"line {line}: {what}" if line else what for line, what in sorted(found, key=lambda one: one[0]))


def findings(objects: Sequence[Object], platform: Platform, spec: JobSpec | None = None) -> Iterator[Violation]:
    """The same, with the places of what is wrong."""
    root, where = root_of(objects), f"{platform.source}: policy"
    if (place := missing_template(objects)) is not None:
        yield Violation(*place, NO_TEMPLATE)
    for number, each in enumerate(objects):
        broken = [*_against_site(each, platform, root=each is root)]
        broken += _limits(each, platform, spec) if each is root and spec is not None else []
        yield from (Violation(number, path, f"{what} ({where}: {rule})") for path, what, rule in broken)
        if each is root and spec is None:
            yield from (Violation(number, path, what) for path, what in _other_queue(each, platform))
        if spec is None:
            yield from (Violation(number, path, what) for path, what in _unfilled(each))
        if spec is not None:
            yield from (Violation(number, path, what) for path, what in _code(each, spec))
        yield from (
            Violation(number, path, what) for path, what in _against_sense(each, platform, everything=spec is None)
        )


_EMPTY: tuple[object, ...] = (None, "", [], {})
Broken = tuple[TreePath, str, str]  # where in the object, what, and which of the site's rules


def _against_sense(each: Object, platform: Platform, *, everything: bool) -> Iterator[tuple[TreePath, str]]:
    rules = platform.policy
    law: Mapping[str, str] = {str(rule): why for rule, why in rules.sense.items()}
    said = {"requests"} if any(rule.startswith("container.resources.requests") for rule in rules.manifest) else set()
    for one in lint_rules.findings(each):
        if one.rule in law:
            yield one.path, f"{one.what}: {law[one.rule]} ({platform.source}: policy: sense: {one.rule})"
        elif one.rule in lint_rules.ALWAYS or (everything and one.rule not in said):
            yield one.path, f"{one.what} (general sense: {one.rule})"


def _against_site(each: Object, platform: Platform, *, root: bool) -> Iterator[Broken]:
    rules, pods = platform.policy, list(templates(each))
    if pods and rules.kinds and each.get("kind") not in rules.kinds:
        whys = "; ".join(dict.fromkeys(rules.kinds.values()))
        yield ("kind",), f"a {each.get('kind')} may run no pods here, {_listed(rules.kinds)} may: {whys}", "kinds"
    for rule, why in rules.manifest.items():
        for path, tree in _subjects(rule, each, pods, root=root):
            parts = _parts(rule.removeprefix("pod.").removeprefix("container."))
            if _value(tree, parts) in _EMPTY:
                yield path, f"{rule} is missing: {why}", "manifest"
    for rule, known in rules.one_of.items():
        for path, tree in _subjects(rule, each, pods, root=root):
            yield from _none_of(rule, known, tree, path)
    for text, why in rules.avoid.items():
        for path in _holding(each, text):
            yield path, f"{text} should not stand here: {why}", "avoid"
    for path, template in pods:
        yield from _amounts(template, path, platform)
    yield from _too_long(each, platform)


def _none_of(rule: str, known: Sequence[str], tree: object, path: TreePath) -> Iterator[Broken]:
    parts = _parts(rule.removeprefix("pod.").removeprefix("container."))
    value = _value(tree, parts)
    if value not in _EMPTY and not lint_rules.open_yet(value) and str(value) not in known:
        place = (*path, *parts) if rule.startswith(("pod.", "container.")) else tuple(parts)
        yield place, f"{rule}: there is no {value} here {nearest(str(value), known)}", "one_of"


def _too_long(each: Object, platform: Platform) -> Iterator[Broken]:
    """What Kueue is told."""
    most, path = platform.policy.max_time_s, ("metadata", "labels", labels.MAX_EXEC_TIME)
    if most is not None and lint_rules.amount_of(said := _value(each, path)) > most:
        yield path, f"{labels.MAX_EXEC_TIME}: {said} s are more than {most:g} s", "max_time"


def _unfilled(each: Object) -> Iterator[tuple[TreePath, str]]:
    """The holes of a manifest that is looked at as it is; the first place stands for all."""
    found = list(templating.left(each, placeholders.PLACEHOLDERS))
    if found:
        names = ", ".join(list(dict.fromkeys(what for _, what in found))[:5])
        cure = "`--dry-run` shows and checks them filled; a shell's own variable is $name"
        yield found[0][0], f"nobody fills holes here: {names} ({cure})"


def _other_queue(root: Object, platform: Platform) -> Iterator[tuple[TreePath, str]]:
    """A queue that is named is meant in a job of ours, whose test may have one of its own."""
    path, mine = ("metadata", "labels", labels.QUEUE), platform.kubernetes.queue
    named = _value(root, path)
    if mine and named not in (*_EMPTY, mine) and not lint_rules.open_yet(mine) and not lint_rules.open_yet(named):
        yield path, f"the queue {named} is not this project's, {mine} ({platform.source}: kubernetes: queue)"


def _code(each: Object, spec: JobSpec) -> Iterator[tuple[TreePath, str]]:
    """Code that no ConfigMap can bring."""
    name = labels.config_map(spec.archive) if spec.archive is not None else None
    for path, template in templates(each):
        volumes = template["spec"].get("volumes")
        for index, volume in enumerate(volumes if isinstance(volumes, list) else ()):
            if name and _value(volume, ("configMap", "name")) == name and (why := launch.too_large(spec)):
                yield (*path, "spec", "volumes", index), why


def _amounts(template: Object, path: TreePath, platform: Platform) -> Iterator[Broken]:
    for name, most in platform.policy.most.items():
        asked = 0.0
        for _place, container in containers(template, path):
            asked += max(lint_rules.amount_of(_amount(container, kind, name)) for kind in ("requests", "limits"))
        if not lint_rules.open_yet(most) and asked > quantity_of(most):
            yield (*path, "spec", "containers"), f"a pod asks for more {name} than {most}", "most"


def _amount(container: Object, kind: str, name: str) -> object:
    """0 where nothing is written, or a hole that is not filled yet."""
    resources = container.get("resources")
    amounts = resources.get(kind) if isinstance(resources, dict) else None
    return amounts.get(name, 0) if isinstance(amounts, dict) else 0


def _limits(root: Object, platform: Platform, spec: JobSpec) -> Iterator[Broken]:
    rules = platform.policy
    path = next((path for path, _template in templates(root)), ())
    if rules.max_nodes is not None and spec.layout.nodes > rules.max_nodes:
        where = ("spec", "parallelism")
        yield where, f"{spec.layout.nodes} nodes are more than {rules.max_nodes}", "max_nodes"
    if rules.max_time_s is not None and spec.time_limit_s > rules.max_time_s:
        what = f"{spec.time_limit_s:g} s are more than {rules.max_time_s:g} s"
        yield (*path, "spec", "activeDeadlineSeconds"), what, "max_time"
    if rules.max_running is not None and platform.max_running > rules.max_running:
        what = f"max_running: {platform.max_running} are more jobs at a time than {rules.max_running}"
        yield (), what, "max_running"


def _subjects(
    rule: str, each: Object, pods: Sequence[tuple[TreePath, Object]], *, root: bool
) -> Iterator[tuple[TreePath, Mapping[str, Any]]]:
    """What a rule on the manifest is about: each container, each pod template, or the object that makes the pods."""
    if rule.startswith("container."):
        for path, template in pods:
            yield from containers(template, path)
    elif rule.startswith("pod."):
        yield from ((path, template) for path, template in pods)
    elif root:
        yield (rule.partition(".")[0],), each


def _parts(rule: str) -> list[str]:
    """`metadata.labels[a/b]` as its keys."""
    return [match[1] or match[2] for match in _PART.finditer(rule)]


def _value(tree: object, parts: Sequence[str]) -> object:
    for part in parts:
        if isinstance(tree, Mapping):
            tree = tree.get(part)
        elif isinstance(tree, list) and part.isdigit() and int(part) < len(tree):
            tree = tree[int(part)]
        else:
            return None
    return tree


def _holding(tree: object, text: str, path: TreePath = ()) -> Iterator[TreePath]:
    """Where a text stands, as a value or in one."""
    if isinstance(tree, str):
        yield from [path] if text in tree else []
    elif isinstance(tree, Mapping):
        for key, child in tree.items():
            yield from _holding(child, text, (*path, key))
    elif isinstance(tree, list):
        for index, child in enumerate(tree):
            yield from _holding(child, text, (*path, index))


def _listed(names: Mapping[str, object]) -> str:
    *rest, last = names
    return f"{', '.join(rest)} and {last}" if rest else last


def _places(objects: Sequence[Object], text: str) -> list[Callable[[TreePath], int]]:
    """For each object, the line of a path in it; 0 where that is not known."""
    written = documents.read(text, "manifest") if text else []
    found = (next((one.line for one in written if one.value == each), None) for each in objects)
    return [line or (lambda _path: 0) for line in found]
