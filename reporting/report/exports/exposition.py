"""How Prometheus's text format and OpenMetrics write a family of metrics, a label, a number and a time."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from platforms.printable import visible

PREFIX = "hpc_ml_bench_"
UNITS = ("seconds", "ratio")


@dataclass(frozen=True)
class Family:
    """A metric's name and what it means. All of ours are gauges.

    Attributes:
        help: one line without quotes and backslashes.
    """

    name: str
    help: str

    @property
    def unit(self) -> str:
        """The base unit with which the name ends; "" if it has none."""
        return next((unit for unit in UNITS if self.name.endswith(f"_{unit}")), "")


def family(name: str, help_text: str) -> Family:
    """A family of this project: its name begins with ours."""
    return Family(PREFIX + name, help_text)


def header(of: Family) -> list[str]:
    """What stands once above the samples of a family, in both formats."""
    return [f"# HELP {of.name} {of.help}", f"# TYPE {of.name} gauge"]


def label_set(labels: Mapping[str, str]) -> str:
    """The labels in braces. An empty label is left out: to Prometheus it is the same as none."""
    pairs = [f'{name}="{escaped(text)}"' for name, text in labels.items() if text]
    return "{" + ",".join(pairs) + "}" if pairs else ""


def escaped(text: str) -> str:
    """A label's text. Line breaks survive; other characters that cannot be printed are shown by their codes.

    A test's id may hold bytes that are no UTF-8. One of them would make Prometheus refuse the whole file.
    """
    shown = "\n".join(visible(line) for line in text.split("\n"))
    return shown.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def number(value: float) -> str:
    """All digits that the number has."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return repr(float(value)).removesuffix(".0")


def shortened(text: str, longest: int) -> str:
    """A text in one line of at most `longest` characters."""
    line = " ".join(text.split())
    return line if len(line) <= longest else line[: longest - 1].rstrip() + "…"
