"""Check manifests against a site's rules (`policy:` of a platform) and against the rules that hold anywhere."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from platforms.config import yaml_lines
from platforms.config.cluster_values import quantity_of
from platforms.config.loading import nearest
from platforms.job import JobSpec
from platforms.schedulers.kubernetes.manifest import documents, launch, lint_rules, placeholders, templating
from platforms.schedulers.kubernetes.objects import fields, labels
from platforms.schedulers.kubernetes.objects.pod_templates import (
    NO_TEMPLATE,
    Object,
    TreePath,
    containers,
    makes_pods,
    missing_template,
    root_of,
    templates,
)

if TYPE_CHECKING:
    from platforms.config.schema import Platform

Problem = tuple[TreePath, str]  # where in an object, and what is wrong there
SiteProblem = tuple[TreePath, str, str]  # the same, and the rule of the site that it breaks

_KEY = re.compile(r"\[([^\]]+)\]|([^.\[\]]+)")
_GO_WITH_POD = {"emptyDir", "ephemeral", "configMap", "secret", "downwardAPI", "projected"}  # kinds of volumes
_EMPTY: tuple[object, ...] = (None, "", [], {})


@dataclass(frozen=True)
class Violation:
    """One thing that is wrong: the number of the object, the path in it, and a message."""

    number: int
    path: TreePath
    message: str


def lint(objects: Sequence[Object], platform: Platform, spec: JobSpec | None = None, text: str = "") -> tuple[str, ...]:
    """Say what is wrong with the objects, a sentence each, sorted by the lines of `text`.

    Without a `spec` the objects are a user's manifest, which is checked as it is. With one they are a job of ours.
    """
    line_of = _line_functions(objects, text)
    found = [(line_of[each.number](each.path), each.message) for each in violations(objects, platform, spec)]
    sentences = []
    for line, message in sorted(found, key=lambda pair: pair[0]):
        sentences.append(f"line {line}: {message}" if line else message)
    return tuple(sentences)


def violations(objects: Sequence[Object], platform: Platform, spec: JobSpec | None = None) -> Iterator[Violation]:
    """The same as `lint`, with the place of each violation."""
    missing = missing_template(objects)
    if missing is not None:
        yield Violation(*missing, NO_TEMPLATE)
    root = root_of(objects)
    for number, tree in enumerate(objects):
        is_root = tree is root
        for path, message in _problems(tree, platform, spec, is_root=is_root):
            yield Violation(number, path, message)


def _problems(tree: Object, platform: Platform, spec: JobSpec | None, *, is_root: bool) -> Iterator[Problem]:
    for path, message, rule in _broken_site_rules(tree, platform, spec, is_root=is_root):
        yield path, f"{message} ({platform.source}: policy: {rule})"
    if spec is None:
        if is_root:
            yield from _other_queue(tree, platform)
        yield from _unfilled(tree)
    else:
        yield from _code_too_large(tree, spec)
        yield from _data_outside_of_volumes(tree, platform, spec)
    for found in lint_rules.findings(tree):
        yield found.path, f"{found.message} (general rule: {found.rule})"


def _line_functions(objects: Sequence[Object], text: str) -> list[Callable[[TreePath], int]]:
    """A function for each object. It gives the line of a path in the object, and 0 if the line is not known."""
    written = documents.read(text, "manifest") if text else []
    functions: list[Callable[[TreePath], int]] = []
    for tree in objects:
        line_of: Callable[[TreePath], int] = _unknown_line
        for document in written:
            if document.value == tree:
                line_of = document.lines.at
                break
        functions.append(line_of)
    return functions


def _unknown_line(_path: TreePath) -> int:
    return 0


# --- what is checked besides rules -----------------------------------------------------------------------------------


def _unfilled(tree: Object) -> Iterator[Problem]:
    """Placeholders in a manifest that is submitted as it is. The first place stands for all."""
    found = list(templating.unfilled(tree, placeholders.PLACEHOLDERS))
    if found:
        first_path, _placeholder = found[0]
        names = list(dict.fromkeys(placeholder for _path, placeholder in found))
        cure = "`--dry-run` shows and checks them filled; a shell's own variable is $name"
        yield first_path, f"these placeholders stay unfilled: {', '.join(names[:5])} ({cure})"


def _other_queue(root: Object, platform: Platform) -> Iterator[Problem]:
    """Another queue than the project's. In a job of ours it is meant, because a test may name a queue."""
    path = ("metadata", "labels", labels.QUEUE)
    queue = platform.kubernetes.queue
    named = _value_at(root, path)
    if not queue or named in (*_EMPTY, queue) or lint_rules.is_open(queue) or lint_rules.is_open(named):
        return
    yield path, f"the queue {named} is not this project's, {queue} ({platform.source}: kubernetes: queue)"


def _code_too_large(tree: Object, spec: JobSpec) -> Iterator[Problem]:
    """Code that no ConfigMap can hold."""
    why = launch.too_large(spec)
    if spec.archive is None or not why:
        return
    name = labels.config_map(spec.archive)
    for path, template in templates(tree):
        volumes = template["spec"].get("volumes")
        if isinstance(volumes, list):
            for index, volume in enumerate(volumes):
                if _value_at(volume, ("configMap", "name")) == name:
                    yield (*path, "spec", "volumes", index), why


def _data_outside_of_volumes(tree: Object, platform: Platform, spec: JobSpec) -> Iterator[Problem]:
    """A data set where no pod mounts anything. An image may hold it if the pods mount nothing that outlives them."""
    if spec.data_dir is None:
        return
    mounts: list[str] = []
    lasting: list[str] = []
    for path, template in templates(tree):
        of_pod = {
            fields.text(volume, "name")
            for volume in fields.items(template, "spec", "volumes")
            if _GO_WITH_POD & volume.keys()
        }
        for _path, container in containers(template, path):
            for mount in fields.items(container, "volumeMounts"):
                mounts.append(fields.text(mount, "mountPath"))
                if fields.text(mount, "name") not in of_pod:
                    lasting.append(fields.text(mount, "mountPath"))
    folder = PurePosixPath(spec.data_dir)
    if not lasting or (".." not in folder.parts and any(folder.is_relative_to(mount) for mount in mounts)):
        return
    cure = f"write {lasting[0]}, or add `- {{mount: {folder.parent}, pvc: NAME}}` to `kubernetes: volumes:`"
    found = f"{folder} lies in none of the volumes that the pods mount ({', '.join(dict.fromkeys(lasting))})"
    yield (), f"{found}: {_place_of_data_dir(platform, spec)}: data_dir: {cure}"


def _place_of_data_dir(platform: Platform, spec: JobSpec) -> str:
    """The file and the line of the key that says where the data of a benchmark lies."""
    lines = yaml_lines.read(platform.source).lines
    own = ("benchmarks", str(spec.benchmark), "data_dir")
    path = own if own in lines else ("data_dir",)
    return f"{platform.source}:{lines.at(path)}"


# --- the site's rules ------------------------------------------------------------------------------------------------


def _broken_site_rules(
    tree: Object, platform: Platform, spec: JobSpec | None, *, is_root: bool
) -> Iterator[SiteProblem]:
    yield from _kinds(tree, platform)
    yield from _required_keys(tree, platform, is_root=is_root)
    yield from _one_of(tree, platform, is_root=is_root)
    yield from _avoid(tree, platform)
    yield from _most(tree, platform)
    yield from _max_time_of_kueue(tree, platform)
    if is_root and spec is not None:
        yield from _limits_of_jobs(tree, platform, spec)


def _kinds(tree: Object, platform: Platform) -> Iterator[SiteProblem]:
    allowed = platform.policy.kinds
    if makes_pods(tree) and allowed and tree.get("kind") not in allowed:
        whys = "; ".join(dict.fromkeys(allowed.values()))
        yield ("kind",), f"a {tree.get('kind')} may run no pods here, {_enumerate(allowed)} may: {whys}", "kinds"


def _required_keys(tree: Object, platform: Platform, *, is_root: bool) -> Iterator[SiteProblem]:
    for rule, why in platform.policy.manifest.items():
        for path, subject in _subjects(rule, tree, is_root=is_root):
            if _value_at(subject, _keys(rule)) in _EMPTY:
                yield path, f"{rule} is missing: {why}", "manifest"


def _one_of(tree: Object, platform: Platform, *, is_root: bool) -> Iterator[SiteProblem]:
    for rule, allowed in platform.policy.one_of.items():
        keys = _keys(rule)
        is_in_pod = rule.startswith(("pod.", "container."))
        for path, subject in _subjects(rule, tree, is_root=is_root):
            value = _value_at(subject, keys)
            if value in _EMPTY or lint_rules.is_open(value) or str(value) in allowed:
                continue
            place = (*path, *keys) if is_in_pod else tuple(keys)
            yield place, f"{rule}: there is no {value} here {nearest(str(value), allowed)}", "one_of"


def _avoid(tree: Object, platform: Platform) -> Iterator[SiteProblem]:
    for text, why in platform.policy.avoid.items():
        for path in _paths_of_text(tree, text):
            yield path, f"{text} should not stand here: {why}", "avoid"


def _most(tree: Object, platform: Platform) -> Iterator[SiteProblem]:
    for path, template in templates(tree):
        for resource, most in platform.policy.most.items():
            if lint_rules.is_open(most):
                continue
            total = 0.0
            for _path, container in containers(template, path):
                requested = lint_rules.amount_of(_amount(container, "requests", resource))
                limit = lint_rules.amount_of(_amount(container, "limits", resource))
                total += max(requested, limit)
            if total > quantity_of(most):
                yield (*path, "spec", "containers"), f"a pod asks for more {resource} than {most}", "most"


def _max_time_of_kueue(tree: Object, platform: Platform) -> Iterator[SiteProblem]:
    most_s = platform.policy.max_time_s
    path = ("metadata", "labels", labels.MAX_EXEC_TIME)
    written = _value_at(tree, path)
    if most_s is not None and lint_rules.amount_of(written) > most_s:
        yield path, f"{labels.MAX_EXEC_TIME}: {written} s are more than {most_s:g} s", "max_time"


def _limits_of_jobs(root: Object, platform: Platform, spec: JobSpec) -> Iterator[SiteProblem]:
    policy = platform.policy
    if policy.max_nodes is not None and spec.layout.nodes > policy.max_nodes:
        message = f"{spec.layout.nodes} nodes are more than {policy.max_nodes}"
        yield ("spec", "parallelism"), message, "max_nodes"
    if policy.max_time_s is not None and spec.time_limit_s > policy.max_time_s:
        path_of_template: TreePath = next((path for path, _template in templates(root)), ())
        message = f"{spec.time_limit_s:g} s are more than {policy.max_time_s:g} s"
        yield (*path_of_template, "spec", "activeDeadlineSeconds"), message, "max_time"
    if policy.max_running is not None and platform.max_running > policy.max_running:
        message = f"max_running: {platform.max_running} are more jobs at a time than {policy.max_running}"
        yield (), message, "max_running"


# --- paths of rules --------------------------------------------------------------------------------------------------


def _subjects(rule: str, tree: Object, *, is_root: bool) -> Iterator[tuple[TreePath, Mapping[str, Any]]]:
    """The subjects of a rule: each container, each pod template, or the root."""
    if rule.startswith("container."):
        for path, template in templates(tree):
            yield from containers(template, path)
    elif rule.startswith("pod."):
        yield from templates(tree)
    elif is_root:
        yield (rule.partition(".")[0],), tree


def _keys(rule: str) -> list[str]:
    """The keys of a rule below its subject: `container.resources.limits[a/b]` is resources, limits, a/b."""
    below_subject = rule.removeprefix("pod.").removeprefix("container.")
    return [match[1] or match[2] for match in _KEY.finditer(below_subject)]


def _value_at(tree: object, keys: Sequence[str]) -> object:
    for key in keys:
        if isinstance(tree, Mapping):
            tree = tree.get(key)
        elif isinstance(tree, list) and key.isdigit() and int(key) < len(tree):
            tree = tree[int(key)]
        else:
            return None
    return tree


def _paths_of_text(tree: object, text: str, path: TreePath = ()) -> Iterator[TreePath]:
    """The paths at which a text stands as a value or as a part of one."""
    if isinstance(tree, str):
        if text in tree:
            yield path
    elif isinstance(tree, Mapping):
        for key, child in tree.items():
            yield from _paths_of_text(child, text, (*path, key))
    elif isinstance(tree, list):
        for index, child in enumerate(tree):
            yield from _paths_of_text(child, text, (*path, index))


def _amount(container: Object, kind: str, resource: str) -> object:
    """A request or limit; 0 if there is none, or only a placeholder."""
    return fields.mapping(container, "resources", kind).get(resource, 0)


def _enumerate(names: Mapping[str, object]) -> str:
    *rest, last = names
    return f"{', '.join(rest)} and {last}" if rest else last
