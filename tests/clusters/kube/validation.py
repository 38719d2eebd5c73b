"""What the API server refuses in an object that decodes: 422, with a cause for each field."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from tests.clusters.kube import crds
from tests.clusters.kube.errors import invalid
from tests.clusters.kube.kinds import Kind
from tests.clusters.kube.quantities import quantity
from tests.clusters.kube.trees import Tree

Cause = tuple[str, str, str]
LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
SUBDOMAIN = rf"{LABEL}(\.{LABEL})*"
SERVICE = "[a-z]([-a-z0-9]*[a-z0-9])?"
VALUE = "(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?"
KEY = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
IS_LABEL = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with "
    "an "
    f"alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '{LABEL}')"
)
IS_SUBDOMAIN = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and "
    f"end with an alphanumeric character (e.g. 'example.com', regex used for validation is '{SUBDOMAIN}')"
)
IS_SERVICE = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, "
    "and "
    f"end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '{SERVICE}')"
)
IS_VALUE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
    "end "
    f"with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    f"'{VALUE}')"
)
IS_KEY = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
    f"character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '{KEY}')"
)
MOST_DATA = 1 << 20
COUNTED = {"cpu", "memory", "ephemeral-storage"}  # can be promised more than once; others, as GPUs, cannot


def check(kind: Kind, obj: Tree) -> None:
    """422."""
    causes = [*_meta(kind, obj.get("metadata") or {}), *_content(kind, obj)]
    if causes:
        raise invalid(kind.qualified, obj.get("metadata", {}).get("name", ""), causes)


def _content(kind: Kind, obj: Tree) -> Iterator[Cause]:
    spec = obj.get("spec") or {}
    if kind.custom and kind.schema:
        yield from crds.faults(kind.schema, obj)
    elif kind.kind == "Pod":
        yield from pod_spec(spec, "spec")
    elif kind.kind == "Job" and kind.group == "batch":
        yield from _job(spec, obj.get("metadata", {}).get("name", ""))
    elif kind.kind in {"ConfigMap", "Secret"}:
        yield from _data(kind, obj)
    elif kind.kind == "PersistentVolumeClaim":
        if not spec.get("accessModes"):
            yield required("spec.accessModes", "at least 1 access mode is required")
        if "storage" not in spec.get("resources", {}).get("requests", {}):
            yield required("spec.resources[storage]")


def required(field: str, why: str = "") -> Cause:
    return field, "FieldValueRequired", f"Required value: {why}" if why else "Required value"


def wrong(field: str, value: Any, why: str) -> Cause:
    shown = f'"{value}"' if isinstance(value, str) else value
    return field, "FieldValueInvalid", f"Invalid value: {shown}: {why}"


def unsupported(field: str, value: Any, *values: str) -> Cause:
    supported = ", ".join(f'"{one}"' for one in values)
    return field, "FieldValueNotSupported", f'Unsupported value: "{value}": supported values: {supported}'


def _meta(kind: Kind, meta: Tree) -> Iterator[Cause]:
    pattern, why, most = SUBDOMAIN, IS_SUBDOMAIN, 253
    if kind.kind == "Service":
        pattern, why, most = SERVICE, IS_SERVICE, 63
    elif kind.kind == "Namespace":
        pattern, why, most = LABEL, IS_LABEL, 63
    name, prefix = meta.get("name", ""), meta.get("generateName", "")
    if not name and not prefix:
        yield required("metadata.name", "name or generateName is required")
    if prefix and not name and not re.fullmatch(pattern, prefix.rstrip("-.") or prefix):
        yield wrong("metadata.generateName", prefix, why)
    if len(name) > most:
        yield wrong("metadata.name", name, f"must be no more than {most} bytes")
    if name and kind.group != "rbac.authorization.k8s.io" and not re.fullmatch(pattern, name):
        yield wrong("metadata.name", name, why)
    yield from labels(meta.get("labels") or {}, "metadata.labels")
    for key in meta.get("annotations") or {}:
        yield from _key(key, "metadata.annotations")


def labels(pairs: Tree, field: str) -> Iterator[Cause]:
    for key, value in pairs.items():
        yield from _key(key, field)
        if len(value) > 63:
            yield wrong(field, value, "must be no more than 63 bytes")
        if not re.fullmatch(VALUE, value):
            yield wrong(field, value, IS_VALUE)


def _key(key: str, field: str) -> Iterator[Cause]:
    prefix, slash, name = key.rpartition("/")
    if slash and not re.fullmatch(SUBDOMAIN, prefix):
        yield wrong(field, key, f"prefix part {IS_SUBDOMAIN}")
    if len(name) > 63:
        yield wrong(field, key, "name part must be no more than 63 bytes")
    if not re.fullmatch(KEY, name):
        yield wrong(field, key, IS_KEY)


def _data(kind: Kind, obj: Tree) -> Iterator[Cause]:
    for key in [*(obj.get("data") or {}), *(obj.get("binaryData") or {})]:
        if not re.fullmatch(r"[-._a-zA-Z0-9]+", key) or len(key) > 253:
            why = "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or "
            why += "'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
            yield wrong(f"data[{key}]", key, why)
    encoded = [*(obj.get("binaryData") or {}).values()]
    plain = [*(obj.get("data") or {}).values()]
    if kind.kind == "Secret":
        encoded, plain = plain, []
    size = sum(len(text.encode()) for text in plain) + sum(len(text) * 3 // 4 - text.count("=") for text in encoded)
    if size > MOST_DATA:
        field = "data" if kind.kind == "Secret" else "[]"
        yield field, "FieldValueTooLong", f"Too long: may not be more than {MOST_DATA} bytes"


def _job(spec: Tree, name: str) -> Iterator[Cause]:
    if len(name) > 63:  # its pods are labelled with it
        yield wrong("spec.template.labels", name, "must be no more than 63 bytes")
    for field in ("completions", "parallelism", "backoffLimit", "activeDeadlineSeconds", "ttlSecondsAfterFinished"):
        if spec.get(field, 0) < 0:
            yield wrong(f"spec.{field}", spec[field], "must be greater than or equal to 0")
    mode = spec.get("completionMode", "NonIndexed")
    if mode not in {"Indexed", "NonIndexed"}:
        yield unsupported("spec.completionMode", mode, "Indexed", "NonIndexed")
    if mode == "Indexed" and "completions" not in spec:
        yield required("spec.completions", "when completion mode is Indexed")
    template = spec.get("template") or {}
    yield from labels(template.get("metadata", {}).get("labels") or {}, "spec.template.labels")
    inner = template.get("spec") or {}
    yield from pod_spec(inner, "spec.template.spec")
    policy, field = inner.get("restartPolicy", "Always"), "spec.template.spec.restartPolicy"
    if policy == "Always":
        yield required(field, 'valid values: "OnFailure", "Never"')
    elif policy not in {"OnFailure", "Never"}:
        yield unsupported(field, policy, "OnFailure", "Never")
    if spec.get("podFailurePolicy") and policy != "Never":
        yield wrong(field, policy, 'only "Never" is supported when podFailurePolicy is specified')


def pod_spec(spec: Tree, path: str) -> Iterator[Cause]:
    if not spec.get("containers"):
        yield required(f"{path}.containers")
    volumes = [volume.get("name", "") for volume in spec.get("volumes") or []]
    for at, volume in enumerate(spec.get("volumes") or []):
        yield from _volume(volume, volumes[:at], f"{path}.volumes[{at}]")
    for group in ("initContainers", "containers"):
        names: list[str] = []
        for at, container in enumerate(spec.get(group) or []):
            yield from _container(container, names, volumes, f"{path}.{group}[{at}]")
            names.append(container.get("name", ""))
    policy = spec.get("restartPolicy", "Always")
    if path == "spec" and policy not in {"Always", "OnFailure", "Never"}:
        yield unsupported(f"{path}.restartPolicy", policy, "Always", "OnFailure", "Never")
    if not 1 <= spec.get("activeDeadlineSeconds", 1) < 1 << 31:
        yield wrong(
            f"{path}.activeDeadlineSeconds",
            spec["activeDeadlineSeconds"],
            "must be between 1 and 2147483647, inclusive",
        )
    yield from labels(spec.get("nodeSelector") or {}, f"{path}.nodeSelector")
    for name in ("hostname", "subdomain"):
        if name in spec and not re.fullmatch(LABEL, spec[name]):
            yield wrong(f"{path}.{name}", spec[name], IS_LABEL)


def _volume(volume: Tree, before: list[str], path: str) -> Iterator[Cause]:
    name = volume.get("name", "")
    if not name:
        yield required(f"{path}.name")
    elif not re.fullmatch(LABEL, name) or len(name) > 63:
        yield wrong(f"{path}.name", name, IS_LABEL)
    if name in before:
        yield f"{path}.name", "FieldValueDuplicate", f'Duplicate value: "{name}"'
    sources = sorted(set(volume) - {"name"})
    if not sources:
        yield required(path, "must specify a volume type")
    for source in sources[1:]:
        yield f"{path}.{source}", "FieldValueForbidden", "Forbidden: may not specify more than 1 volume type"


def _container(container: Tree, before: list[str], volumes: list[str], path: str) -> Iterator[Cause]:
    name = container.get("name", "")
    if not name:
        yield required(f"{path}.name")
    elif not re.fullmatch(LABEL, name) or len(name) > 63:
        yield wrong(f"{path}.name", name, IS_LABEL)
    if name in before:
        yield f"{path}.name", "FieldValueDuplicate", f'Duplicate value: "{name}"'
    if not container.get("image"):
        yield required(f"{path}.image")
    elif container["image"] != container["image"].strip():
        yield wrong(f"{path}.image", container["image"], "must not have leading or trailing whitespace")
    for at, entry in enumerate(container.get("env") or []):
        if not entry.get("name"):
            yield required(f"{path}.env[{at}].name")
        if entry.get("value") and entry.get("valueFrom"):
            why = "may not be specified when `value` is not empty"
            yield wrong(f"{path}.env[{at}].valueFrom", "", why)
    for at, mount in enumerate(container.get("volumeMounts") or []):
        if mount.get("name", "") not in volumes:
            yield f"{path}.volumeMounts[{at}].name", "FieldValueNotFound", f'Not found: "{mount.get("name", "")}"'
        if not mount.get("mountPath"):
            yield required(f"{path}.volumeMounts[{at}].mountPath")
    yield from _resources(container.get("resources") or {}, f"{path}.resources")


def _resources(resources: Tree, path: str) -> Iterator[Cause]:
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    for field, pairs in (("limits", limits), ("requests", requests)):
        for name, text in pairs.items():
            if quantity(text) < 0:
                yield wrong(f"{path}.{field}[{name}]", text, "must be greater than or equal to 0")
            if "/" not in name and name not in COUNTED and not name.startswith("hugepages-"):
                yield wrong(f"{path}.{field}[{name}]", name, "must be a standard resource type or fully qualified")
            elif "/" in name and quantity(text).denominator != 1:
                yield wrong(f"{path}.{field}[{name}]", text, "must be an integer")
    for name, text in requests.items():
        if name not in limits:
            if "/" in name:
                yield required(f"{path}.limits", "Limit must be set for non overcommitable resources")
        elif "/" in name and quantity(text) != quantity(limits[name]):
            yield wrong(f"{path}.requests", text, f"must be equal to {name} limit of {limits[name]}")
        elif quantity(text) > quantity(limits[name]):
            yield wrong(f"{path}.requests", text, f"must be less than or equal to {name} limit of {limits[name]}")
