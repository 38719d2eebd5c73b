"""Validation of decoded objects: 422, with one cause for each refused field, in the words of the API server.

It finds what a template of ours, or one of a site, may get wrong.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from tests.fake_kubernetes.api.errors import invalid
from tests.fake_kubernetes.store.kinds import Kind
from tests.fake_kubernetes.store.quantities import quantity
from tests.fake_kubernetes.store.trees import Tree

Cause = tuple[str, str, str]
COUNTED = {"cpu", "memory", "ephemeral-storage"}  # can be promised more than once; others, as GPUs, cannot
LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
SUBDOMAIN = rf"{LABEL}(\.{LABEL})*"
VALUE = "(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?"
IS_LABEL = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with "
    f"an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '{LABEL}')"
)
IS_SUBDOMAIN = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and "
    f"end with an alphanumeric character (e.g. 'example.com', regex used for validation is '{SUBDOMAIN}')"
)
IS_VALUE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
    f"end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    f"'{VALUE}')"
)


def check(kind: Kind, obj: Tree) -> None:
    """Raise KubeError 422 with the causes, if the object has any."""
    meta, spec = obj.get("metadata") or {}, obj.get("spec") or {}
    causes = list(_meta(meta))
    if kind.kind == "Pod":
        causes += _pod_spec(spec, "spec", "Always", "OnFailure", "Never")
    elif kind.kind == "Job" and kind.group == "batch":
        causes += _job(spec)
    if causes:
        raise invalid(kind.qualified, meta.get("name", ""), causes)


def required(field: str, why: str = "") -> Cause:
    return field, "FieldValueRequired", f"Required value: {why}" if why else "Required value"


def wrong(field: str, value: Any, why: str) -> Cause:
    shown = f'"{value}"' if isinstance(value, str) else value
    return field, "FieldValueInvalid", f"Invalid value: {shown}: {why}"


def unsupported(field: str, value: Any, *values: str) -> Cause:
    supported = ", ".join(f'"{one}"' for one in values)
    return field, "FieldValueNotSupported", f'Unsupported value: "{value}": supported values: {supported}'


def _meta(meta: Tree) -> Iterator[Cause]:
    name = meta.get("name", "")
    if not name and not meta.get("generateName"):
        yield required("metadata.name", "name or generateName is required")
    if name and not re.fullmatch(SUBDOMAIN, name):
        yield wrong("metadata.name", name, IS_SUBDOMAIN)
    yield from _labels(meta.get("labels") or {}, "metadata.labels")


def _labels(pairs: Tree, field: str) -> Iterator[Cause]:
    for value in pairs.values():
        if len(value) > 63:
            yield wrong(field, value, "must be no more than 63 bytes")
        if not re.fullmatch(VALUE, value):
            yield wrong(field, value, IS_VALUE)


def _job(spec: Tree) -> Iterator[Cause]:
    mode = spec.get("completionMode", "NonIndexed")
    if mode not in {"Indexed", "NonIndexed"}:
        yield unsupported("spec.completionMode", mode, "Indexed", "NonIndexed")
    if mode == "Indexed" and "completions" not in spec:
        yield required("spec.completions", "when completion mode is Indexed")
    template = spec.get("template") or {}
    yield from _labels(template.get("metadata", {}).get("labels") or {}, "spec.template.labels")
    inner = template.get("spec") or {}
    if "restartPolicy" not in inner:
        yield required("spec.template.spec.restartPolicy", 'valid values: "OnFailure", "Never"')
    yield from _pod_spec(inner, "spec.template.spec", "OnFailure", "Never")


def _pod_spec(spec: Tree, path: str, *policies: str) -> Iterator[Cause]:
    if not spec.get("containers"):
        yield required(f"{path}.containers")
    volumes = [volume.get("name", "") for volume in spec.get("volumes") or []]
    for at, volume in enumerate(spec.get("volumes") or []):
        yield from _name(volume, volumes[:at], f"{path}.volumes[{at}]")
    for group in ("initContainers", "containers"):
        names: list[str] = []
        for at, container in enumerate(spec.get(group) or []):
            yield from _name(container, names, f"{path}.{group}[{at}]")
            yield from _container(container, volumes, f"{path}.{group}[{at}]")
            names.append(container.get("name", ""))
    policy = spec.get("restartPolicy", policies[0])
    if policy not in policies:
        yield unsupported(f"{path}.restartPolicy", policy, *policies)


def _name(named: Tree, before: list[str], path: str) -> Iterator[Cause]:
    """Of a volume or a container, among those before it."""
    name = named.get("name", "")
    if not name:
        yield required(f"{path}.name")
    elif not re.fullmatch(LABEL, name) or len(name) > 63:
        yield wrong(f"{path}.name", name, IS_LABEL)
    if name in before:
        yield f"{path}.name", "FieldValueDuplicate", f'Duplicate value: "{name}"'


def _container(container: Tree, volumes: list[str], path: str) -> Iterator[Cause]:
    if not container.get("image"):
        yield required(f"{path}.image")
    for at, entry in enumerate(container.get("env") or []):
        if not entry.get("name"):
            yield required(f"{path}.env[{at}].name")
    for at, mount in enumerate(container.get("volumeMounts") or []):
        if mount.get("name", "") not in volumes:
            yield f"{path}.volumeMounts[{at}].name", "FieldValueNotFound", f'Not found: "{mount.get("name", "")}"'
        if mount.get("mountPath") in [one.get("mountPath") for one in container["volumeMounts"][:at]]:
            yield wrong(f"{path}.volumeMounts[{at}].mountPath", mount["mountPath"], "must be unique")
    yield from _resources(container.get("resources") or {}, f"{path}.resources")


def _resources(resources: Tree, path: str) -> Iterator[Cause]:
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    for field, pairs in (("limits", limits), ("requests", requests)):
        for name, text in pairs.items():
            if "/" not in name and name not in COUNTED and not name.startswith("hugepages-"):
                yield wrong(f"{path}.{field}[{name}]", name, "must be a standard resource type or fully qualified")
            elif "/" in name and quantity(text).denominator != 1:
                yield wrong(f"{path}.{field}[{name}]", text, "must be an integer")
    for name, text in requests.items():
        if "/" in name and name not in limits:
            yield required(f"{path}.limits", "Limit must be set for non overcommitable resources")
        elif name in limits and quantity(text) > quantity(limits[name]):
            yield wrong(f"{path}.requests", text, f"must be less than or equal to {name} limit of {limits[name]}")
