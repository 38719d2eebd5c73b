"""The types of values in platform files. Each refuses a wrong value with a sentence that says what to write.

The types of values under `kubernetes:` refuse here what an API server or a kubelet would refuse later.
"""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema

from platforms.config.yaml_lines import Float, Int
from platforms.job import Layout

# Marks that mean something to pytest, its plugins or the suite, and the words of `-m` expressions.
RESERVED_MARKS = frozenset({
    "and", "or", "not", "skip", "skipif", "xfail", "parametrize", "usefixtures", "filterwarnings", "tryfirst",
    "trylast", "hookwrapper", "benchmark", "workload", "timeout", "flaky", "xdist_group", "asyncio", "anyio",
})  # fmt: skip
NAME = r"[a-z][a-z0-9_]*"

_DURATION = re.compile(r"(?:(\d+)-)?(\d+):([0-5]\d):([0-5]\d)")
_UNITS = re.compile(r"(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s)?")


_SUFFIXES: Mapping[str, float] = {
    "": 1, "n": 1e-9, "u": 1e-6, "m": 1e-3,
    **{name: 1000.0**power for power, name in enumerate("kMGTPE", 1)},
    **{f"{name}i": 1024.0**power for power, name in enumerate("KMGTPE", 1)},
}  # fmt: skip
_QUANTITY = re.compile(rf"(\d+(?:\.\d*)?(?:[eE][+-]?\d+)?)({'|'.join(_SUFFIXES)})")
_NO_QUANTITY = "{!r} is no quantity (write a number with a unit of Kubernetes, as in 64Gi, 500m or 8)"


MPI_LAUNCHERS = ("mpirun", "mpiexec", "mpiexec.hydra", "orterun")
OTHER_DEVICE_NAMES: Mapping[str, tuple[str, ...]] = {  # by the suite's word for such a device
    "gpu": ("amd", "cuda", "hip", "nvidia", "rocm"),
    "ipu": ("graphcore",),
    "csx": ("cerebras", "cs2", "cs3", "wafer", "wse"),
}


def no_mpi_launcher(value: object) -> object:
    """Return the value of `launcher:`. Raises ValueError with what to write instead if it is a launcher of MPI."""
    if value in MPI_LAUNCHERS:
        raise ValueError(
            f"{value!r} is not one of ours (on Slurm write srun, which starts the ranks of MPI programs; elsewhere "
            f"write {value} into the test's own command, with launcher='none': docs/foreign-loops.md)"
        )
    return value


def no_other_device_name(value: object) -> object:
    """Return the value of `device:`. Raises ValueError with the suite's word if it is another name of such a device."""
    for ours, others in OTHER_DEVICE_NAMES.items():
        if isinstance(value, str) and value.lower() in others:
            raise ValueError(f"{value!r} is not one of ours (write {ours})")
    return value


def text_of(value: object) -> str:
    """Return a scalar as it was written. Raises ValueError for anything else."""
    if isinstance(value, Int | Float):
        return value.text
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return value
    raise ValueError("needs a text")


def _filled(value: str) -> str:
    if not value.strip():
        raise ValueError("is empty (write a text, or remove the line)")
    return value


def _without_variables(value: str) -> str:
    if "$" in value:
        raise ValueError(f"{value!r} has a $, and variables are not filled in here (write the path; ~ is your home)")
    return value


def _seconds(value: object) -> float:
    """Read `1:30:00`, `1-12:00:00`, `90m`, `1h30m`; a plain number is taken from code (seconds) but not from a file."""
    if isinstance(value, Int | Float):
        raise ValueError(f"{value.text} of what? (write {value.text}s, {value.text}m, or H:MM:SS as in 1:30:00)")
    if isinstance(value, int | float) and not isinstance(value, bool):
        seconds = float(value)
    elif isinstance(value, str):
        seconds = seconds_of(value)
    else:
        raise ValueError("needs a time (as in 1:30:00, 90m or 45s)")
    if not 0 < seconds < math.inf:
        raise ValueError(f"{value!r} must be longer than nothing (as in 1:30:00)")
    return seconds


def seconds_of(text: str) -> float:
    """Read `1:30:00`, `1-12:00:00`, `90m`, `1h30m`, `45s`. Raises ValueError with what to write."""
    duration = _DURATION.fullmatch(text)
    if duration:
        days, hours, minutes, seconds = (float(part or 0) for part in duration.groups())
        return ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    units = _UNITS.fullmatch(text)
    if units and any(units.groups()):
        hours, minutes, seconds = (float(part or 0) for part in units.groups())
        return hours * 3600 + minutes * 60 + seconds
    if re.fullmatch(r"\d+:\d\d", text):
        raise ValueError(f"{text!r} may be hours or minutes (write {text}:00 or 0:{text.zfill(5)})")
    raise ValueError(f"{text!r} is no time (write H:MM:SS as in 1:30:00, or 90m, 2h, 45s)")


def clock(seconds: float) -> str:
    """Format seconds as seconds_of reads them: `1:30:00`. Drops a part of a second."""
    whole = int(seconds)
    return f"{whole // 3600}:{whole // 60 % 60:02d}:{whole % 60:02d}"


def short_clock(seconds: float) -> str:
    """Format seconds for people: `0:05`, `12:05`, `3:00:00`. Drops a part of a second."""
    whole = int(seconds)
    return clock(whole) if whole >= 3600 else f"{whole // 60}:{whole % 60:02d}"


def _count_or_auto(value: object) -> object:
    return None if isinstance(value, str) and value == "auto" else value


def _count_schema(least: int) -> WithJsonSchema:
    return WithJsonSchema({"anyOf": [{"type": "integer", "minimum": least}, {"const": "auto"}]})


def _name(value: str) -> str:
    if not re.fullmatch(NAME, value):
        raise ValueError(f"{value!r} is no name (small letters, digits and _, beginning with a letter)")
    return value


def mark(value: str) -> str:
    """Return a value that can be a mark. Raises ValueError for any other."""
    if _name(value) in RESERVED_MARKS:
        raise ValueError(f"{value!r} already means something to pytest (choose another word)")
    return value


def _variable(value: str) -> str:
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", value):
        raise ValueError(f"{value!r} is no name of an environment variable")
    return value


def _flag(value: str) -> str:
    if not re.fullmatch(r"--[a-z][a-z-]*", value):
        raise ValueError(f"{value!r} is no option (write it in its long form, as in --account)")
    return value


def is_open(value: str) -> bool:
    """Return whether the site has not set all of it: `<key: set in site.yaml>`. Its use is an error later."""
    return ": set in site.yaml>" in value


def _absolute(value: str) -> str:
    if not value.startswith(("/", "<")):
        raise ValueError(f"{value!r} is no absolute path (write one that login and compute nodes see)")
    if any(not letter.isprintable() for letter in value):
        raise ValueError(f"{value!r} is no path that a batch script can name")
    return value.rstrip("/") or "/"


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


def _manifest_path(value: str) -> str:
    if not re.fullmatch(r"[A-Za-z][\w/-]*(\.[A-Za-z][\w/-]*|\[[\w./-]+\])*", value):
        raise ValueError(
            f"{value!r} is no path in a manifest (write it as in metadata.labels[kueue.x-k8s.io/queue-name])"
        )
    return value


def _layout(value: str) -> str:
    if value != "auto":
        Layout.parse(value, "")
    return value


def _day(value: object) -> datetime.date | None:
    if value is None or isinstance(value, datetime.date):
        return value
    try:
        if isinstance(value, str) and re.fullmatch(r"\d{4}-\d\d-\d\d", value):
            return datetime.date.fromisoformat(value)
    except ValueError:
        pass
    raise ValueError("is no day (write YYYY-MM-DD, as in 2026-12-31)")


def _time_of_day(value: object) -> datetime.time:
    if isinstance(value, datetime.time):
        return value
    if isinstance(value, list | Mapping):
        raise ValueError("needs a time of day (as in 12:00)")
    text = text_of(value)
    if not re.fullmatch(r"([01]?\d|2[0-3]):[0-5]\d", text):
        raise ValueError(f"{text!r} is no time of day (write HH:MM, as in 12:00)")
    hour, minute = text.split(":")
    return datetime.time(int(hour), int(minute))


def _option(value: object) -> str | int | float | bool:
    if isinstance(value, Int):
        return int(value)
    if isinstance(value, Float):
        return float(value)
    if isinstance(value, str | int | float):
        return value
    raise ValueError("needs one value, not a list or a mapping")


T = TypeVar("T")


def _unique(values: tuple[T, ...]) -> tuple[T, ...]:
    doubled = [value for index, value in enumerate(values) if value in values[:index]]
    if doubled:
        raise ValueError(f"{doubled[0]} is written twice (keep one)")
    return values


def _some(values: tuple[T, ...]) -> tuple[T, ...]:
    if not values:
        raise ValueError("is empty (write at least one)")
    return values


def _has_default(layouts: Mapping[str, T]) -> Mapping[str, T]:
    if "default" not in layouts:
        raise ValueError("has no set `default` (write default: [1x4])")
    return layouts


# --- values under `kubernetes:` --------------------------------------------------------------------------------------

_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_WORD = re.compile(r"[A-Za-z0-9]([-\w.]*[A-Za-z0-9])?", re.ASCII)
_SUITE_LABELS = ("hpc-ml-bench/", "app.kubernetes.io/managed-by")  # platforms/schedulers/kubernetes/objects/labels.py
_LONGEST_LABEL = 63
_LONGEST_NAME = 253
_MOST_USER = (1 << 31) - 1
_HOST = r"(?:localhost|[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+|[A-Za-z0-9.-]+(?=:\d))(?::\d+)?"
_PART = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_IMAGE = re.compile(rf"(?:{_HOST}/)?{_PART}(?:/{_PART})*(?::\w[\w.-]{{0,127}})?(?:@sha256:[0-9a-f]+)?", re.ASCII)
_TOLERATION = ("key", "operator", "value", "effect", "tolerationSeconds")
_OPERATORS = ("Exists", "Equal")
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")


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
    return value.rstrip("/") or "/"


def check_image(value: str) -> str:
    """Return the name of an image of Kubernetes. Raises ValueError for any other text."""
    if not is_open(value) and not _IMAGE.fullmatch(value):
        cure = "registry.example/name:tag or name@sha256:…, in small letters; a registry has a dot or a port"
        raise ValueError(f"{value!r} is no image (write {cure})")
    return value


def _amount(value: str) -> str:
    if not value.startswith("<") and quantity_of(value) == 0:
        raise ValueError(f"{value!r} is nothing (write how much, or remove the line)")
    return value


def _user_id(value: int) -> int:
    if not 0 <= value <= _MOST_USER:
        raise ValueError(f"{value} is no user id (0 to {_MOST_USER})")
    return value


def _toleration(value: Mapping[str, Any]) -> Mapping[str, Any]:
    """Check a toleration as the API server does. Raises ValueError with the field."""
    for field in value:
        if field not in _TOLERATION:
            raise ValueError(f"{field}: unknown key (known: {', '.join(_TOLERATION)})")
    texts = {field: text_of(content) for field, content in value.items() if field != "tolerationSeconds"}
    for field, choices in (("operator", _OPERATORS), ("effect", _EFFECTS)):
        choice = texts.get(field, choices[0])
        if not is_open(choice) and choice not in choices:
            raise ValueError(f"{field}: {choice!r} is not one of {', '.join(choices)}")
    if "key" in texts:
        _label_key(texts["key"])
    elif texts.get("operator") != "Exists":
        raise ValueError("needs a key (or `operator: Exists` alone, which tolerates everything)")
    if texts.get("operator") == "Exists" and texts.get("value"):
        raise ValueError("value: means nothing to operator Exists (remove it, or write `operator: Equal`)")
    _label_value(texts.get("value", ""))
    return {**texts, **_toleration_seconds(value, texts)}


def _toleration_seconds(value: Mapping[str, Any], texts: Mapping[str, str]) -> Mapping[str, int]:
    seconds = value.get("tolerationSeconds")
    if seconds is None:
        return {}
    if isinstance(seconds, bool) or not isinstance(seconds, int):
        raise ValueError(f"tolerationSeconds: needs a whole number, not {text_of(seconds)!r}")
    if texts.get("effect") != "NoExecute":
        raise ValueError("tolerationSeconds: means something with `effect: NoExecute` only (write that, or remove it)")
    return {"tolerationSeconds": int(seconds)}


# --- the types -------------------------------------------------------------------------------------------------------

SCALAR = WithJsonSchema({"type": ["string", "number", "boolean"]})
_NAME = WithJsonSchema({"type": "string", "pattern": f"^{NAME}$"})
_TIME = WithJsonSchema(
    {
        "type": "string",
        "pattern": r"^(([0-9]+-)?[0-9]+:[0-5][0-9]:[0-5][0-9]|([0-9.]+h)?([0-9.]+m)?([0-9.]+s)?|.*\$\{site\..*)$",
    }
)

Text = Annotated[str, BeforeValidator(text_of), SCALAR]
Filled = Annotated[str, BeforeValidator(text_of), AfterValidator(_filled), SCALAR]
PlainFolder = Annotated[
    str, BeforeValidator(text_of), AfterValidator(_filled), AfterValidator(_without_variables), SCALAR
]
Seconds = Annotated[float, BeforeValidator(_seconds), _TIME]
Count = Annotated[int, Field(ge=1, strict=True)]
ZeroOrMore = Annotated[int, Field(ge=0, strict=True)]
CountOrAuto = Annotated[Count | None, BeforeValidator(_count_or_auto), _count_schema(1)]
ZeroOrMoreOrAuto = Annotated[
    Annotated[int, Field(ge=0, strict=True)] | None, BeforeValidator(_count_or_auto), _count_schema(0)
]
Name = Annotated[str, AfterValidator(_name), _NAME]
Mark = Annotated[str, AfterValidator(mark), _NAME]
Variable = Annotated[str, AfterValidator(_variable)]
LayoutText = Annotated[str, BeforeValidator(text_of), AfterValidator(_layout), WithJsonSchema({"type": "string"})]
Day = Annotated[datetime.date | None, BeforeValidator(_day), WithJsonSchema({"type": "string", "format": "date"})]
TimeOfDay = Annotated[datetime.time, BeforeValidator(_time_of_day)]
Option = Annotated[Any, BeforeValidator(_option), SCALAR]
Flag = Annotated[str, AfterValidator(_flag)]
Quantity = Annotated[str, BeforeValidator(_quantity), SCALAR]
ManifestPath = Annotated[str, AfterValidator(_manifest_path)]
Absolute = Annotated[str, BeforeValidator(text_of), AfterValidator(_filled), AfterValidator(_absolute), SCALAR]
Unique = AfterValidator(_unique)
NoMpiLauncher = BeforeValidator(no_mpi_launcher)
NoOtherDeviceName = BeforeValidator(no_other_device_name)
Some = AfterValidator(_some)
HasDefault = AfterValidator(_has_default)

ClusterName = Annotated[str, BeforeValidator(text_of), AfterValidator(_cluster_name), SCALAR]
LabelKey = Annotated[str, BeforeValidator(text_of), AfterValidator(_label_key), SCALAR]
LabelValue = Annotated[str, BeforeValidator(text_of), AfterValidator(_label_value), SCALAR]
Labels = Annotated[Mapping[LabelKey, LabelValue], AfterValidator(_site_labels)]
PodPath = Annotated[str, BeforeValidator(text_of), AfterValidator(_pod_path), SCALAR]
NodePath = Annotated[str, BeforeValidator(text_of), AfterValidator(_node_path), SCALAR]
Image = Annotated[str, BeforeValidator(text_of), AfterValidator(check_image), SCALAR]
Amount = Annotated[Quantity, AfterValidator(_amount)]
User = Annotated[
    int,
    Field(strict=True),
    AfterValidator(_user_id),
    WithJsonSchema({"type": "integer", "minimum": 0, "maximum": _MOST_USER}),
]
Toleration = Annotated[Mapping[str, Any], AfterValidator(_toleration)]
