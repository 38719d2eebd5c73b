"""The numbers that others have published (anchors.yaml), and the table of those that may stand beside our runs."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import yaml

from platforms.job import Run
from reporting.tables.grouped import Table
from reporting.tables.row import Row, device_count, number, part

FILE = Path(__file__).with_name("anchors.yaml")
MOST_BESIDE = 3  # published numbers beside one row of ours
SAME = "same"
HEADINGS = ("platform", "test", "ours", "published", "likeness", "system", "what differs")


@dataclass(frozen=True)
class Anchor:
    """One row of a published table. The head of anchors.yaml says what each key means.

    Attributes:
        place: where in the source, such as a table.
    """

    source: str
    url: str
    published: str
    place: str
    benchmark: str
    variant: str
    shape: str
    system: str
    device: str
    matches: str
    devices: int
    likeness: str
    effective_throughput: float
    compute_throughput: float | None = None
    compute_fraction: float | None = None
    per: str = "all"
    precision: str | None = None
    batch: int | None = None
    mode: str | None = None
    data: str | None = None
    differs: str = ""
    doubted: Mapping[str, str] = field(default_factory=dict)

    @property
    def effective_per_device(self) -> float:
        """The effective throughput of one device, in samples/s; of a language model in tokens/s."""
        if self.per == "device":
            return self.effective_throughput
        return self.effective_throughput / self.devices


@dataclass(frozen=True)
class Neighbour:
    """A published number that may stand beside one of our runs: how alike they are, and what differs."""

    anchor: Anchor
    likeness: str
    differences: tuple[str, ...]


@cache
def anchors() -> tuple[Anchor, ...]:
    """All published numbers, in the order of the file."""
    found = []
    for source in yaml.safe_load(FILE.read_text(encoding="utf-8")):
        for table in source.pop("tables"):
            for row in table.pop("rows"):
                found.append(Anchor(**{**source, **table, **row}))
    return tuple(found)


def neighbours(run: Run) -> list[Neighbour]:
    """The published numbers of the same model, input and device model as a run, the most alike ones first.

    One that names the device exactly comes before one that names its family, such as A100.
    """
    request = part(run, "request")
    ours = (run.benchmark, request.get("variant"), request.get("shape"))
    device = str(part(run, "device").get("name") or "")
    found = []
    for anchor in anchors():
        if (anchor.benchmark, anchor.variant, anchor.shape) == ours and re.search(anchor.matches, device):
            differences = _differences(anchor, run)
            likeness = "model" if differences else anchor.likeness
            found.append(Neighbour(anchor, likeness, differences))
    return sorted(found, key=_distance)


def _distance(neighbour: Neighbour) -> tuple[bool, int, int]:
    return neighbour.likeness != SAME, -len(neighbour.anchor.matches), len(neighbour.differences)


def _differences(anchor: Anchor, run: Run) -> tuple[str, ...]:
    request = part(run, "request")
    pairs = [
        ("precision", anchor.precision, request.get("dtype")),
        ("global batch", anchor.batch, request.get("global_batch_size")),
        ("devices", anchor.devices, device_count(run)),
        ("data", anchor.data, part(run, "data").get("kind")),
    ]
    differences = []
    for name, theirs, ours in pairs:
        if theirs is None:
            differences.append(f"{name} not published")
        elif theirs != ours:
            differences.append(f"{name} {theirs}, ours {ours or 'unknown'}")
    if anchor.mode not in (None, request.get("mode")):
        differences.append(f"{anchor.mode}, ours {request.get('mode')}")
    if anchor.differs:
        differences.append(anchor.differs)
    return tuple(differences)


def beside(rows: Sequence[Row]) -> list[Table]:
    """A table for each unit of the published numbers that may stand beside these rows; none if there are none."""
    units = dict.fromkeys(row.run.throughput_unit.name for row in rows)
    tables = [_beside(unit, [row for row in rows if row.run.throughput_unit.name == unit]) for unit in units]
    return [table for table in tables if table.rows]


def _beside(unit: str, rows: Sequence[Row]) -> Table:
    lines = []
    sources: dict[str, str] = {}  # the marks of the notes, by their texts
    for row in rows:
        throughput = row.run.throughput_unit.of(row.run.effective_throughput)
        devices = device_count(row.run)
        if throughput is None or devices is None:
            continue
        for neighbour in neighbours(row.run)[:MOST_BESIDE]:
            anchor = neighbour.anchor
            source = f"{anchor.source} ({anchor.published}), {anchor.place}: {anchor.url}"
            mark = sources.setdefault(source, f"[{len(sources) + 1}]")
            lines.append(
                (
                    row.run.platform,
                    row.run.test,
                    number(throughput / devices),
                    number(anchor.effective_per_device),
                    neighbour.likeness,
                    f"{anchor.system}, {anchor.device} {mark}",
                    "; ".join(neighbour.differences) or "nothing",
                )
            )
    notes = tuple(f"{mark} {source}" for source, mark in sources.items())
    title = f"published numbers beside ours: effective throughput of one device, in {unit}"
    return Table(title, HEADINGS, tuple(lines), 2, notes, numbers=("ours", "published"))
