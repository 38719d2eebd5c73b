"""Render a JobSpec as the manifest that is submitted, without asking the cluster; and read such a manifest again."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from platforms.job import ConfigError, JobSpec
from platforms.schedulers.job_spec import check_nodes, check_replicas
from platforms.schedulers.kubernetes.manifest import documents, placeholders, sources, templating
from platforms.schedulers.kubernetes.objects import labels
from platforms.schedulers.kubernetes.objects.node_states import NODE_NAME
from platforms.schedulers.kubernetes.objects.pod_templates import (
    NO_TEMPLATE,
    Object,
    containers,
    missing_template,
    root_last,
    root_of,
    templates,
)

if TYPE_CHECKING:
    from platforms.config.schema import Platform

_HEAD_LINE = re.compile(r"# (context|kubeconfig): (.*)")


def render(spec: JobSpec, platform: Platform) -> str:
    """Render the text that is submitted: comments at the top, then every object, the root last.

    The root is the object that makes the pods. Raises RefusedError and ConfigError as Scheduler.render does.
    """
    check_nodes(spec, reservations="Kubernetes has no reservations")
    check_replicas(spec, platform)
    values = placeholders.of(spec, platform)
    written = sources.of(spec, platform)
    objects = [_fill(source, values) for source in written]
    missing = missing_template(objects)
    if missing is not None:
        number, path = missing
        raise ConfigError([f"{written[number].where(path)}: {NO_TEMPLATE}"])
    if platform.stack is not None:
        _check_image_of_stack(objects, written[0].where(()), platform.stacks[platform.stack].image)
    root = root_of(objects)
    names = _names(objects, root, spec)
    for tree, name in zip(objects, names, strict=True):
        _add_what_is_ours(tree, name, spec, platform, is_root=tree is root)
    _share_one_namespace(objects)
    lines = _head(spec, platform)
    checked = [documents.plain(tree, str(tree["kind"])) for tree in root_last(objects)]
    return "".join(f"{line}\n" for line in lines) + documents.write(checked)


def parse(text: str) -> tuple[Object, ...]:
    """Read the objects of a rendered text, the root last. Raises ConfigError if it holds none."""
    objects = [document.value for document in documents.read(text, "manifest")]
    if not objects or not all(isinstance(tree, dict) for tree in objects):
        raise ConfigError(["manifest:1: there are no objects in it"])
    return root_last(objects)


def cluster_of(text: str) -> tuple[str | None, str | None]:
    """The context and the kubeconfig that the comments at the top of a rendered text name."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        if not line.startswith("#"):
            break
        match = _HEAD_LINE.fullmatch(line)
        if match:
            found[match[1]] = match[2]
    return found.get("context"), found.get("kubeconfig")


def _head(spec: JobSpec, platform: Platform) -> list[str]:
    keys = platform.kubernetes
    lines = [f"# {_one_line(spec.key)} on {_one_line(spec.platform)}, {spec.layout}"]
    for name, default in (("context", keys.context), ("kubeconfig", keys.kubeconfig)):
        value = spec.cluster.get(name) or default
        if value:
            lines.append(f"# {name}: {_one_line(value)}")
    if keys.user == 0:
        lines.append("# `user: 0`: as root, which clusters with the restricted Pod Security Standard refuse")
    return lines


def _one_line(text: str) -> str:
    """Make a text safe for a comment, where a line break would begin an object."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def _fill(source: sources.ManifestObject, values: templating.Values) -> Object:
    tree = templating.fill(source.tree, values, source.where)
    if not isinstance(tree, dict):
        raise ConfigError([f"{source.where(())}: nothing is left of it"])
    return tree


def _check_image_of_stack(objects: Sequence[Object], where: str, image: str | None) -> None:
    """Raise ConfigError if a stack names an image and the manifest does not use it, so that nothing would differ."""
    images = []
    for tree in objects:
        for path, template in templates(tree):
            images += [container.get("image") for _path, container in containers(template, path)]
    if image is not None and image not in images:
        raise ConfigError([f"{where}: it does not use the image of the stack, {image} (write `image: ${{image}}`)"])


def _names(objects: Sequence[Object], root: Object, spec: JobSpec) -> list[str]:
    """The root gets the job's name, by which it is found again. Other objects keep their names or get one."""
    nameless: Counter[str] = Counter()
    names = []
    for tree in objects:
        own_name = (tree.get("metadata") or {}).get("name")
        if tree is root:
            names.append(spec.name)
        elif own_name:
            names.append(str(own_name))
        else:
            kind = str(tree["kind"])
            nameless[kind] += 1
            names.append(spec.name if nameless[kind] == 1 else f"{spec.name}-{nameless[kind]}")
    return names


def _add_what_is_ours(tree: Object, name: str, spec: JobSpec, platform: Platform, *, is_root: bool) -> None:
    """Add what every object has, in every manifest: name, labels, namespace; and the deadline and nodes of its pods."""
    api_version = tree.pop("apiVersion")
    kind = tree.pop("kind")
    own_metadata = tree.pop("metadata", None) or {}
    rest = dict(tree)
    tree.clear()
    tree["apiVersion"] = api_version
    tree["kind"] = kind
    tree["metadata"] = _metadata(own_metadata, name, spec, platform, is_root=is_root)
    tree.update(rest)
    for path, template in templates(tree):
        is_the_object = not path
        if not is_the_object:
            template["metadata"] = _with_labels(template.get("metadata") or {}, spec, platform)
        template["spec"].setdefault("activeDeadlineSeconds", placeholders.deadline_s(spec, platform))
        if spec.nodes:
            _require_nodes(template["spec"], spec.nodes)


def _require_nodes(pod: Object, nodes: Sequence[str]) -> None:
    """Let a pod run on these nodes only. The pod's own demands on nodes stay: it needs one of its terms, and a node."""
    affinity = pod["affinity"] = dict(pod.get("affinity") or {})
    of_nodes = affinity["nodeAffinity"] = dict(affinity.get("nodeAffinity") or {})
    required = dict(of_nodes.get("requiredDuringSchedulingIgnoredDuringExecution") or {})
    terms = []
    for term in required.get("nodeSelectorTerms") or [{}]:
        for node in nodes:
            field = {"key": NODE_NAME, "operator": "In", "values": [node]}  # the API takes one name in a field
            terms.append({**term, "matchFields": [field, *(term.get("matchFields") or ())]})
    of_nodes["requiredDuringSchedulingIgnoredDuringExecution"] = {**required, "nodeSelectorTerms": terms}


def _metadata(own_metadata: Object, name: str, spec: JobSpec, platform: Platform, *, is_root: bool) -> Object:
    keys = platform.kubernetes
    metadata: Object = {"name": name, **own_metadata}
    metadata["name"] = name  # the manifest's own name does not count
    metadata = _with_labels(metadata, spec, platform)
    namespace = placeholders.namespace(spec, platform)
    if namespace:
        metadata["namespace"] = namespace
    if keys.annotations:
        metadata["annotations"] = {**keys.annotations, **(metadata.get("annotations") or {})}
    if is_root and keys.generate_name:
        metadata.setdefault("generateName", placeholders.generate_name(spec))
    if is_root:
        queue = metadata["labels"].get(labels.QUEUE, keys.queue)
        metadata["labels"] = {**placeholders.queue_labels(spec, platform, queue), **metadata["labels"]}
    return metadata


def _with_labels(metadata: Object, spec: JobSpec, platform: Platform) -> Object:
    """Add labels. The manifest's own labels take precedence over the site's, and ours over both."""
    own_labels = metadata.get("labels") or {}
    all_labels = {**placeholders.labels_of(spec, platform), **own_labels, **labels.of_job(spec)}
    return {**metadata, "labels": all_labels}


def _share_one_namespace(objects: Sequence[Object]) -> None:
    """Give all objects the namespace that some of them name. Raises ConfigError if they name several."""
    named = dict.fromkeys(tree["metadata"]["namespace"] for tree in objects if tree["metadata"].get("namespace"))
    if len(named) > 1:
        raise ConfigError([f"manifest: its objects lie in several namespaces: {', '.join(named)}"])
    for namespace in named:
        for tree in objects:
            tree["metadata"]["namespace"] = namespace
