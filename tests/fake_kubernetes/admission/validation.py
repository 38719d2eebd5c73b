"""Validation of decoded objects: 422, with one cause for each refused field."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tests.fake_kubernetes.admission import custom_schema
from tests.fake_kubernetes.admission.field_errors import (
    IS_LABEL,
    IS_SERVICE,
    IS_SUBDOMAIN,
    IS_VALUE,
    LABEL,
    SERVICE,
    SUBDOMAIN,
    VALUE,
    Cause,
    label_key,
    labels,
    required,
    unsupported,
    wrong,
)
from tests.fake_kubernetes.api.errors import invalid
from tests.fake_kubernetes.store.kinds import Kind
from tests.fake_kubernetes.store.quantities import quantity
from tests.fake_kubernetes.store.trees import Tree

MOST_DATA = 1 << 20
COUNTED = {"cpu", "memory", "ephemeral-storage"}  # can be promised more than once; others, as GPUs, cannot


def check(kind: Kind, obj: Tree) -> None:
    """Raise KubeError 422 with the causes, if the object has any."""
    causes = [*_meta(kind, obj.get("metadata") or {}), *_content(kind, obj)]
    if causes:
        raise invalid(kind.qualified, obj.get("metadata", {}).get("name", ""), causes)


def _content(kind: Kind, obj: Tree) -> Iterator[Cause]:
    spec = obj.get("spec") or {}
    if kind.custom and kind.schema:
        yield from custom_schema.faults(kind.schema, obj)
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
        yield from label_key(key, "metadata.annotations")


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
    for at, toleration in enumerate(spec.get("tolerations") or []):
        yield from _toleration(toleration, f"{path}.tolerations[{at}]")
    yield from _users(spec.get("securityContext") or {}, f"{path}.securityContext")
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
    # a claim's name may be anything: such a pod stays Pending
    if "persistentVolumeClaim" in volume and not (volume["persistentVolumeClaim"] or {}).get("claimName"):
        yield required(f"{path}.persistentVolumeClaim.claimName")


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
        elif mount["mountPath"] in [one.get("mountPath") for one in container["volumeMounts"][:at]]:
            yield wrong(f"{path}.volumeMounts[{at}].mountPath", mount["mountPath"], "must be unique")
    yield from _users(container.get("securityContext") or {}, f"{path}.securityContext")
    yield from _resources(container.get("resources") or {}, f"{path}.resources")


def _users(context: Tree, path: str) -> Iterator[Cause]:
    for name in ("runAsUser", "runAsGroup", "fsGroup"):
        if not 0 <= context.get(name, 0) < 1 << 31:
            yield wrong(f"{path}.{name}", context[name], "must be between 0 and 2147483647, inclusive")


def _toleration(one: Tree, path: str) -> Iterator[Cause]:
    operator, effect = one.get("operator", ""), one.get("effect", "")
    if one.get("key"):
        yield from label_key(one["key"], f"{path}.key")
    elif operator != "Exists":
        why = 'operator must be Exists when `key` is empty, which means "match all values and all keys"'
        yield wrong(f"{path}.operator", operator, why)
    if "tolerationSeconds" in one and effect != "NoExecute":
        yield wrong(f"{path}.effect", effect, "effect must be 'NoExecute' when `tolerationSeconds` is set")
    if operator not in {"", "Equal", "Exists"}:
        yield unsupported(f"{path}.operator", operator, "Equal", "Exists")
    elif operator == "Exists" and one.get("value"):
        yield wrong(f"{path}.operator", str(one), "value must be empty when `operator` is 'Exists'")
    elif operator != "Exists" and not re.fullmatch(VALUE, one.get("value", "")):
        yield wrong(f"{path}.operator", one["value"], IS_VALUE)
    if effect not in {"", "NoSchedule", "PreferNoSchedule", "NoExecute"}:
        yield unsupported(f"{path}.effect", effect, "NoSchedule", "PreferNoSchedule", "NoExecute")


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
