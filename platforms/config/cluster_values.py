"""The types of values under `kubernetes:`. They refuse what an API server or a kubelet would refuse later."""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema

from platforms.config.values import SCALAR, is_open, plain_path, text_of
from platforms.config.yaml_lines import Float, Int

_SUFFIXES: Mapping[str, float] = {
    "": 1, "n": 1e-9, "u": 1e-6, "m": 1e-3,
    **{name: 1000.0**power for power, name in enumerate("kMGTPE", 1)},
    **{f"{name}i": 1024.0**power for power, name in enumerate("KMGTPE", 1)},
}  # fmt: skip
_QUANTITY = re.compile(rf"(\d+(?:\.\d*)?(?:[eE][+-]?\d+)?)({'|'.join(_SUFFIXES)})")
_NO_QUANTITY = "{!r} is no quantity (write a number with a unit of Kubernetes, as in 64Gi, 500m or 8)"


# --- quantities ------------------------------------------------------------------------------------------------------


def _quantity(value: object) -> str:
    text = value.text if isinstance(value, Int | Float) else str(value)
    if isinstance(value, bool) or (not _QUANTITY.fullmatch(text) and not text.startswith("<")):
        raise ValueError(_NO_QUANTITY.format(text))
    return text


def quantity_of(text: str) -> float:
    """Read a quantity of Kubernetes: `64Gi`, `500m`, `1e3`, `8`. Raises ValueError when it is none."""
    match = _QUANTITY.fullmatch(text)
    if match is None:
        raise ValueError(_NO_QUANTITY.format(text))
    return float(match[1]) * _SUFFIXES[match[2]]


def times(quantity: str, count: int) -> str:
    """Multiply a quantity, in its own unit: `500m` times 4 is `2000m`. A value that the site has not set stays so."""
    match = _QUANTITY.fullmatch(quantity)
    if match is None:
        return quantity
    number = Decimal(match[1]) * count
    return f"{number.normalize():f}{match[2]}"


# --- names, labels, paths --------------------------------------------------------------------------------------------

_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_WORD = re.compile(r"[A-Za-z0-9]([-\w.]*[A-Za-z0-9])?", re.ASCII)
_SUITE_LABELS = ("hpc-ml-bench/", "app.kubernetes.io/managed-by")  # platforms/schedulers/kubernetes/objects/labels.py
_LONGEST_LABEL = 63
_LONGEST_NAME = 253
_MOST_USER = (1 << 31) - 1


def _cluster_name(value: str) -> str:
    if not is_open(value) and (not _SUBDOMAIN.fullmatch(value) or len(value) > _LONGEST_NAME):
        raise ValueError(f"{value!r} is no name that Kubernetes takes (small letters, digits, - and .)")
    return value


def _label_key(value: str) -> str:
    prefix, slash, word = value.rpartition("/")
    valid = bool(_WORD.fullmatch(word)) and len(word) <= _LONGEST_LABEL
    if slash:
        valid = valid and bool(_SUBDOMAIN.fullmatch(prefix)) and len(prefix) <= _LONGEST_NAME
    if not valid and not is_open(value):
        raise ValueError(f"{value!r} is no key of a label (letters, digits, -, _ and ., as in nvidia.com/gpu.product)")
    return value


def _label_value(value: str) -> str:
    if value and not is_open(value) and (not _WORD.fullmatch(value) or len(value) > _LONGEST_LABEL):
        raise ValueError(f"{value!r} is no value of a label (63 letters, digits, -, _ and . at most)")
    return value


def _site_labels(labels: Mapping[str, str]) -> Mapping[str, str]:
    for key in labels:
        if key.startswith(_SUITE_LABELS):
            raise ValueError(f"{key} is a label of the suite, which finds its jobs by it (remove it, or name another)")
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
    return plain_path(value)


def _amount(value: str) -> str:
    if not value.startswith("<") and quantity_of(value) == 0:
        raise ValueError(f"{value!r} is nothing (write how much, or remove the line)")
    return value


def _user_id(value: int) -> int:
    if not 0 <= value <= _MOST_USER:
        raise ValueError(f"{value} is no user id (0 to {_MOST_USER})")
    return value


# --- the types -------------------------------------------------------------------------------------------------------

Quantity = Annotated[str, BeforeValidator(_quantity), SCALAR]
ClusterName = Annotated[str, BeforeValidator(text_of), AfterValidator(_cluster_name), SCALAR]
LabelKey = Annotated[str, BeforeValidator(text_of), AfterValidator(_label_key), SCALAR]
LabelValue = Annotated[str, BeforeValidator(text_of), AfterValidator(_label_value), SCALAR]
Labels = Annotated[Mapping[LabelKey, LabelValue], AfterValidator(_site_labels)]
PodPath = Annotated[str, BeforeValidator(text_of), AfterValidator(_pod_path), SCALAR]
NodePath = Annotated[str, BeforeValidator(text_of), AfterValidator(_node_path), SCALAR]
Amount = Annotated[Quantity, AfterValidator(_amount)]
User = Annotated[
    int,
    Field(strict=True),
    AfterValidator(_user_id),
    WithJsonSchema({"type": "integer", "minimum": 0, "maximum": _MOST_USER}),
]
