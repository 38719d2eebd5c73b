"""A JobSpec as manifests, rendered without asking anybody, and read again by whoever has nothing else of the job."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from platforms.job import ConfigError, JobSpec
from platforms.printable import printable
from platforms.schedulers.kubernetes.manifest import documents, placeholders, sources, templating
from platforms.schedulers.kubernetes.manifest.sources import ManifestObject
from platforms.schedulers.kubernetes.objects import labels
from platforms.schedulers.kubernetes.objects.pod_templates import (
    NO_TEMPLATE,
    Object,
    missing_template,
    root_last,
    root_of,
    templates,
)

if TYPE_CHECKING:
    from platforms.config.schema import Platform

_PLACE = re.compile(r"# (context|kubeconfig): (.*)")


def render(spec: JobSpec, platform: Platform) -> str:
    """What is submitted: a head of comments, then every object, the one that makes the pods last.

    Raises RefusedError and ConfigError as Scheduler.render does.
    """
    known = placeholders.of(spec, platform)
    written = sources.of(spec, platform)
    objects = [_filled(source, known) for source in written]
    if (place := missing_template(objects)) is not None:
        raise ConfigError([f"{written[place[0]].where(place[1])}: {NO_TEMPLATE}"])
    root = root_of(objects)
    names = _names(objects, root, spec)
    for each, name in zip(objects, names, strict=True):
        _dress(each, name, spec, platform, root=each is root)
    _one_namespace(objects)
    checked = [documents.plain(each, str(each["kind"])) for each in root_last(objects)]
    return "".join(f"{line}\n" for line in _head(spec, platform)) + documents.write(checked)


def parse(text: str) -> tuple[Object, ...]:
    """The objects of a rendered text, the root last. Raises ConfigError when it is none."""
    objects = [document.value for document in documents.read(text, "manifest")]
    if not objects or not all(isinstance(each, dict) for each in objects):
        raise ConfigError(["manifest:1: there are no objects in it"])
    return root_last(objects)


def cluster_of(text: str) -> tuple[str | None, str | None]:
    """Context and kubeconfig, where the head of a rendered text names them."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        if not line.startswith("#"):
            break
        if match := _PLACE.fullmatch(line):
            found[match[1]] = match[2]
    return found.get("context"), found.get("kubeconfig")


def _head(spec: JobSpec, platform: Platform) -> list[str]:
    keys = platform.kubernetes
    lines = [f"# {printable(spec.test)} on {printable(spec.platform)}, {spec.layout}"]
    for name, own in (("context", keys.context), ("kubeconfig", keys.kubeconfig)):
        if value := spec.cluster.get(name) or own:
            lines.append(f"# {name}: {printable(value)}")
    if keys.user == 0:
        lines.append("# `user: 0`: as root, which clusters with the restricted Pod Security Standard refuse")
    return lines


def _filled(source: ManifestObject, known: templating.Values) -> Object:
    tree = templating.fill(source.tree, known, source.where)
    if not isinstance(tree, dict):
        raise ConfigError([f"{source.where(())}: nothing is left of it"])
    return tree


def _names(objects: Sequence[Object], root: Object, spec: JobSpec) -> list[str]:
    """The root has the job's name, by which it is found again; what stands beside it keeps its own, or gets one."""
    nameless: Counter[str] = Counter()
    names = []
    for each in objects:
        own = (each.get("metadata") or {}).get("name")
        if each is root or not own:
            kind = str(each["kind"])
            nameless[kind] += each is not root
            own = spec.name if each is root or nameless[kind] == 1 else f"{spec.name}-{nameless[kind]}"
        names.append(str(own))
    return names


def _dress(each: Object, name: str, spec: JobSpec, platform: Platform, *, root: bool) -> None:
    """What every object of ours must have, whoever wrote it."""
    metadata = _metadata(each.pop("metadata", None) or {}, name, spec, platform, root=root)
    head = {key: each.pop(key) for key in ("apiVersion", "kind")}
    rest = dict(each)
    each.clear()
    each.update(head | {"metadata": metadata} | rest)
    for path, template in templates(each):
        if path:
            template["metadata"] = _labelled(template.get("metadata") or {}, spec, platform)
        template["spec"].setdefault("activeDeadlineSeconds", placeholders.deadline_s(spec, platform))


def _metadata(own: Object, name: str, spec: JobSpec, platform: Platform, *, root: bool) -> Object:
    keys = platform.kubernetes
    metadata = _labelled({"name": name, **{key: value for key, value in own.items() if key != "name"}}, spec, platform)
    if asked := placeholders.namespace(spec, platform):
        metadata["namespace"] = asked
    if keys.annotations:
        metadata["annotations"] = {**keys.annotations, **(own.get("annotations") or {})}
    if root:
        if keys.generate_name:
            metadata.setdefault("generateName", placeholders.generate_name(spec))
        queue = metadata["labels"].get(labels.QUEUE, keys.queue)
        metadata["labels"] = {**placeholders.queue_labels(spec, platform, queue), **metadata["labels"]}
    return metadata


def _labelled(metadata: Object, spec: JobSpec, platform: Platform) -> Object:
    """The author's labels stand before the site's, and ours before everybody's."""
    own = metadata.get("labels") or {}
    return {**metadata, "labels": {**placeholders.labels_of(spec, platform), **own, **labels.of_job(spec)}}


def _one_namespace(objects: Sequence[Object]) -> None:
    """A job's objects lie in one namespace; where only some say which, all of them do. Raises ConfigError."""
    named = dict.fromkeys(each["metadata"]["namespace"] for each in objects if each["metadata"].get("namespace"))
    if len(named) > 1:
        raise ConfigError([f"manifest: its objects lie in several namespaces: {', '.join(named)}"])
    for each in objects:
        if named:
            each["metadata"]["namespace"] = next(iter(named))
