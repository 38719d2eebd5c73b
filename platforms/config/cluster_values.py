"""What values under `kubernetes:` may be, as types: what an API server or a kubelet would refuse is refused here."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema

from platforms.config.values import SCALAR, Quantity, is_open, quantity_of, text_of

_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_WORD = re.compile(r"[A-Za-z0-9]([-\w.]*[A-Za-z0-9])?", re.ASCII)
_OURS = ("hpc-ml-bench/", "app.kubernetes.io/managed-by")  # platforms/schedulers/kubernetes/objects/labels.py
_LONGEST_LABEL, _LONGEST_NAME = 63, 253
_MOST_USER = (1 << 31) - 1
_HOST = r"(?:localhost|[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+|[A-Za-z0-9.-]+(?=:\d))(?::\d+)?"
_PART = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_IMAGE = re.compile(rf"(?:{_HOST}/)?{_PART}(?:/{_PART})*(?::\w[\w.-]{{0,127}})?(?:@sha256:[0-9a-f]+)?", re.ASCII)
_TOLERATION = ("key", "operator", "value", "effect", "tolerationSeconds")
_OPERATORS = ("Exists", "Equal")
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")


def _name(value: str) -> str:
    if not is_open(value) and (not _SUBDOMAIN.fullmatch(value) or len(value) > _LONGEST_NAME):
        raise ValueError(f"{value!r} is no name that Kubernetes takes (small letters, digits, - and .)")
    return value


def _key(value: str) -> str:
    prefix, slash, word = value.rpartition("/")
    right = _WORD.fullmatch(word) and len(word) <= _LONGEST_LABEL
    if slash:
        right = right and _SUBDOMAIN.fullmatch(prefix) and len(prefix) <= _LONGEST_NAME
    if not right and not is_open(value):
        raise ValueError(f"{value!r} is no key of a label (letters, digits, -, _ and ., as in nvidia.com/gpu.product)")
    return value


def _value(value: str) -> str:
    if value and not is_open(value) and (not _WORD.fullmatch(value) or len(value) > _LONGEST_LABEL):
        raise ValueError(f"{value!r} is no value of a label (63 letters, digits, -, _ and . at most)")
    return value


def _theirs(labels: Mapping[str, str]) -> Mapping[str, str]:
    for key in labels:
        if key.startswith(_OURS):
            raise ValueError(f"{key} is a label of ours, by which jobs are found again (remove it, or name another)")
    return labels


def _pod_path(value: str) -> str:
    return _path(value, "as the pods see it")


def _node_path(value: str) -> str:
    if ".." in value.split("/"):
        raise ValueError(f"{value!r}: `..` may not stand in it (write the path without)")
    return _path(value, "as the node sees it")


def _path(value: str, whose: str) -> str:
    if not value.startswith(("/", "<")):
        raise ValueError(f"{value!r} is no absolute path (write it {whose}: /data)")
    if ":" in value.replace(": set in site.yaml>", "") or not value.isprintable():
        raise ValueError(f"{value!r} is no path that a pod can mount (no colons and control characters)")
    return value.rstrip("/") or "/"


def _image(value: str) -> str:
    if not is_open(value) and not _IMAGE.fullmatch(value):
        cure = "registry.example/name:tag or name@sha256:…, in small letters; a registry has a dot or a port"
        raise ValueError(f"{value!r} is no image (write {cure})")
    return value


def _amount(value: str) -> str:
    if not value.startswith("<") and quantity_of(value) == 0:
        raise ValueError(f"{value!r} is nothing (write how much, or remove the line)")
    return value


def _user(value: int) -> int:
    if not 0 <= value <= _MOST_USER:
        raise ValueError(f"{value} is no user id (0 to {_MOST_USER})")
    return value


def _toleration(value: Mapping[str, Any]) -> Mapping[str, Any]:
    """As the API server reads it. Raises ValueError with the field."""
    if unknown := [field for field in value if field not in _TOLERATION]:
        raise ValueError(f"{unknown[0]}: unknown key (known: {', '.join(_TOLERATION)})")
    texts = {field: text_of(each) for field, each in value.items() if field != "tolerationSeconds"}
    for field, known in (("operator", _OPERATORS), ("effect", _EFFECTS)):
        if not is_open(said := texts.get(field, known[0])) and said not in known:
            raise ValueError(f"{field}: {said!r} is not one of {', '.join(known)}")
    if "key" in texts:
        _key(texts["key"])
    elif texts.get("operator") != "Exists":
        raise ValueError("needs a key (or `operator: Exists` alone, which tolerates everything)")
    if texts.get("operator") == "Exists" and texts.get("value"):
        raise ValueError("value: means nothing to operator Exists (remove it, or write `operator: Equal`)")
    _value(texts.get("value", ""))
    return {**texts, **_seconds(value, texts)}


def _seconds(value: Mapping[str, Any], texts: Mapping[str, str]) -> Mapping[str, int]:
    seconds = value.get("tolerationSeconds")
    if seconds is None:
        return {}
    if isinstance(seconds, bool) or not isinstance(seconds, int):
        raise ValueError(f"tolerationSeconds: needs a whole number, not {text_of(seconds)!r}")
    if texts.get("effect") != "NoExecute":
        raise ValueError("tolerationSeconds: means something with `effect: NoExecute` only (write that, or remove it)")
    return {"tolerationSeconds": int(seconds)}


ClusterName = Annotated[str, BeforeValidator(text_of), AfterValidator(_name), SCALAR]
LabelKey = Annotated[str, BeforeValidator(text_of), AfterValidator(_key), SCALAR]
LabelValue = Annotated[str, BeforeValidator(text_of), AfterValidator(_value), SCALAR]
Labels = Annotated[Mapping[LabelKey, LabelValue], AfterValidator(_theirs)]
PodPath = Annotated[str, BeforeValidator(text_of), AfterValidator(_pod_path), SCALAR]
NodePath = Annotated[str, BeforeValidator(text_of), AfterValidator(_node_path), SCALAR]
Image = Annotated[str, BeforeValidator(text_of), AfterValidator(_image), SCALAR]
Amount = Annotated[Quantity, AfterValidator(_amount)]
User = Annotated[
    int,
    Field(strict=True),
    AfterValidator(_user),
    WithJsonSchema({"type": "integer", "minimum": 0, "maximum": _MOST_USER}),
]
Toleration = Annotated[Mapping[str, Any], AfterValidator(_toleration)]
