"""What the values of platform files may be, as types; each refuses with a sentence that says what to write instead."""

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

# Marks that pytest, its plugins or we give a meaning of their own, and the words of `-m` expressions.
RESERVED_MARKS = frozenset({
    "and", "or", "not", "skip", "skipif", "xfail", "parametrize", "usefixtures", "filterwarnings", "tryfirst",
    "trylast", "hookwrapper", "benchmark", "workload", "timeout", "flaky", "xdist_group", "asyncio", "anyio",
})  # fmt: skip
NAME = r"[a-z][a-z0-9_]*"

_DURATION = re.compile(r"(?:(\d+)-)?(\d+):([0-5]\d):([0-5]\d)")
_UNITS = re.compile(r"(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s)?")


_QUANTITY = re.compile(r"(\d+(?:\.\d*)?(?:[eE][+-]?\d+)?)([numkKMGTPE]i?)?")
_SUFFIXES: Mapping[str, float] = {
    "": 1, "n": 1e-9, "u": 1e-6, "m": 1e-3,
    **{name: 1000.0**power for power, name in enumerate("kMGTPE", 1)},
    **{f"{name}i": 1024.0**power for power, name in enumerate("KMGTPE", 1)},
}  # fmt: skip
_NO_QUANTITY = "{!r} is no quantity (write a number with a unit of Kubernetes, as in 64Gi, 500m or 8)"


MPI_LAUNCHERS = ("mpirun", "mpiexec", "mpiexec.hydra", "orterun")


def no_mpi_launcher(value: object) -> object:
    """The value of a `launcher:`, unless it is a launcher of MPI: then ValueError says what to write instead."""
    if value in MPI_LAUNCHERS:
        raise ValueError(
            f"{value!r} is not one of ours (on Slurm write srun, which starts the ranks of MPI programs; elsewhere "
            f"write {value} into the test's own command, with launcher='none': docs/foreign-loops.md)"
        )
    return value


def text_of(value: object) -> str:
    """A scalar as it was written. Raises ValueError for anything else."""
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
    if clock := _DURATION.fullmatch(text):
        days, hours, minutes, seconds = (float(part or 0) for part in clock.groups())
        return ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    units = _UNITS.fullmatch(text)
    if units and any(units.groups()):
        hours, minutes, seconds = (float(part or 0) for part in units.groups())
        return hours * 3600 + minutes * 60 + seconds
    if re.fullmatch(r"\d+:\d\d", text):
        raise ValueError(f"{text!r} may be hours or minutes (write {text}:00 or 0:{text.zfill(5)})")
    raise ValueError(f"{text!r} is no time (write H:MM:SS as in 1:30:00, or 90m, 2h, 45s)")


def clock(seconds: float) -> str:
    """As seconds_of reads it: `1:30:00`. A part of a second is dropped."""
    whole = int(seconds)
    return f"{whole // 3600}:{whole // 60 % 60:02d}:{whole % 60:02d}"


def short_clock(seconds: float) -> str:
    """For people: `0:05`, `12:05`, `3:00:00`. A part of a second is dropped."""
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
    """`value`, when it can be a mark. Raises ValueError with a sentence when it cannot."""
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
    """Whether a site has still to say it, or a part of it: `<key: set in site.yaml>`, complained of when it is used."""
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
    return float(match[1]) * _SUFFIXES[match[2] or ""]


def times(quantity: str, count: int) -> str:
    """So many times a quantity, in its own unit: `500m` and 4 are `2000m`. What a site has still to say stays so."""
    match = _QUANTITY.fullmatch(quantity)
    if match is None:
        return quantity
    number = Decimal(match[1]) * count
    return f"{number.normalize():f}{match[2] or ''}"


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
Option = Annotated[Any, BeforeValidator(_option), SCALAR]
Flag = Annotated[str, AfterValidator(_flag)]
Quantity = Annotated[str, BeforeValidator(_quantity), SCALAR]
ManifestPath = Annotated[str, AfterValidator(_manifest_path)]
Absolute = Annotated[str, BeforeValidator(text_of), AfterValidator(_filled), AfterValidator(_absolute), SCALAR]
Unique = AfterValidator(_unique)
NoMpiLauncher = BeforeValidator(no_mpi_launcher)
Some = AfterValidator(_some)
HasDefault = AfterValidator(_has_default)
