"""The types of values in platform files. Each refuses a wrong value with a sentence that says what to write.

Those under `kubernetes:` are in cluster_values.py.
"""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema

from platforms.config.durations import seconds_of
from platforms.config.yaml_lines import Float, Int
from platforms.job import Layout

# Marks that mean something to pytest, its plugins or the suite, and the words of `-m` expressions.
RESERVED_MARKS = frozenset({
    "and", "or", "not", "skip", "skipif", "xfail", "parametrize", "usefixtures", "filterwarnings", "tryfirst",
    "trylast", "hookwrapper", "benchmark", "workload", "timeout", "flaky", "xdist_group", "asyncio", "anyio",
})  # fmt: skip
NAME = r"[a-z][a-z0-9_]*"

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


def plain_path(value: str) -> str:
    """Return an absolute path as everything else writes it: /a/b for /a//./b/."""
    return str(PurePosixPath(re.sub("^//+", "/", value)))


def _absolute(value: str) -> str:
    if not value.startswith(("/", "<")):
        raise ValueError(f"{value!r} is no absolute path (write one that login and compute nodes see)")
    if any(not letter.isprintable() for letter in value):
        raise ValueError(f"{value!r} is no path that a batch script can name")
    return plain_path(value)


def _manifest_path(value: str) -> str:
    if not re.fullmatch(r"[A-Za-z][\w/-]*(\.[A-Za-z][\w/-]*|\[[\w./-]+\])*", value):
        raise ValueError(
            f"{value!r} is no path in a manifest (write it as in metadata.labels[kueue.x-k8s.io/queue-name])"
        )
    return value


def _layout(value: object) -> object:
    """Read `1x4`. What it counts follows from the platform's device."""
    if isinstance(value, Layout) or value == "auto":
        return value
    return Layout.parse(text_of(value), "")


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
PlatformLayout = Annotated[Layout | Literal["auto"], BeforeValidator(_layout), WithJsonSchema({"type": "string"})]
Day = Annotated[datetime.date | None, BeforeValidator(_day), WithJsonSchema({"type": "string", "format": "date"})]
TimeOfDay = Annotated[datetime.time, BeforeValidator(_time_of_day)]
Option = Annotated[Any, BeforeValidator(_option), SCALAR]
Flag = Annotated[str, AfterValidator(_flag)]
ManifestPath = Annotated[str, AfterValidator(_manifest_path)]
Absolute = Annotated[str, BeforeValidator(text_of), AfterValidator(_filled), AfterValidator(_absolute), SCALAR]
Unique = AfterValidator(_unique)
NoMpiLauncher = BeforeValidator(no_mpi_launcher)
NoOtherDeviceName = BeforeValidator(no_other_device_name)
Some = AfterValidator(_some)
HasDefault = AfterValidator(_has_default)
