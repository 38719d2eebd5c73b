"""Reads the published numbers, and says which of them one of our runs can stand beside."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from platforms.job import Layout, Run

FOLDER = Path(__file__).parent
VALUES = ("compute_throughput", "compute_fraction", "effective_throughput")


class Likeness(StrEnum):
    """How much a published number and one of ours have in common."""

    SAME = "same"
    """Model, batch, precision, kind of data."""
    MODEL = "model"
    """The model and its input; the setting differs."""
    MAGNITUDE = "magnitude"
    """Only the order of magnitude can be compared."""


@dataclass(frozen=True)
class Anchor:
    """One row of a published table. It is something to look at beside our numbers, and never a limit.

    Attributes:
        place: where in the source, such as a table.
        matches: a regular expression, which finds the device in the name that a job reports.
        devices: how many took part.
        precision, batch, mode, data: of the setting; None where they are not published. The batch is the global one.
        values: by the names in VALUES, throughputs in samples/s over all devices.
        likeness: to a run with the same setting.
        differs: what always differs from our runs; empty for nothing.
        doubted: which values cannot be right, and why.
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
    values: Mapping[str, float]
    likeness: Likeness
    precision: str | None
    batch: int | None
    mode: str | None
    data: str | None
    differs: str
    doubted: Mapping[str, str]

    @property
    def effective_per_device(self) -> float:
        """The effective throughput of one device, in samples/s."""
        return self.values["effective_throughput"] / self.devices


@dataclass(frozen=True)
class Neighbour:
    """A published number that may stand beside one of our runs: how alike they are, and what differs."""

    anchor: Anchor
    likeness: Likeness
    differences: tuple[str, ...]


@cache
def anchors() -> tuple[Anchor, ...]:
    """All published numbers, in the order of the files."""
    return tuple(anchor for path in sorted(FOLDER.glob("*.yaml")) for anchor in _in_file(path))


def _in_file(path: Path) -> Iterator[Anchor]:
    content = yaml.safe_load(path.read_text(encoding="utf-8"))
    tables = content.pop("tables")
    for table in tables:
        rows = table.pop("rows")
        for row in rows:
            yield _anchor({**content, **table, **row})


def _anchor(keys: Mapping[str, Any]) -> Anchor:
    devices = keys["devices"]
    values = {name: float(keys[name]) for name in VALUES if name in keys}
    if keys.get("per") == "device":
        values = {name: value * devices for name, value in values.items()}
    return Anchor(
        source=keys["source"],
        url=keys["url"],
        published=str(keys["published"]),
        place=keys["place"],
        benchmark=keys["benchmark"],
        variant=keys["variant"],
        shape=keys["shape"],
        system=keys["system"],
        device=keys["device"],
        matches=keys["matches"],
        devices=devices,
        values=values,
        likeness=Likeness(keys["likeness"]),
        precision=keys.get("precision"),
        batch=keys.get("batch"),
        mode=keys.get("mode"),
        data=keys.get("data"),
        differs=keys.get("differs", ""),
        doubted=keys.get("doubted", {}),
    )


def neighbours(run: Run) -> list[Neighbour]:
    """The published numbers of the same model, input and device model as a run, the most alike ones first.

    One that names the device exactly comes before one that names its family, such as A100.
    """
    found = []
    for anchor in anchors():
        if anchor.likeness is not Likeness.MAGNITUDE and _is_same_work(anchor, run):
            differences = _differences(anchor, run)
            likeness = Likeness.MODEL if differences else anchor.likeness
            found.append(Neighbour(anchor, likeness, differences))
    return sorted(found, key=_distance)


def _distance(neighbour: Neighbour) -> tuple[bool, int, int]:
    is_other_setting = neighbour.likeness is not Likeness.SAME
    return is_other_setting, -len(neighbour.anchor.matches), len(neighbour.differences)


def _is_same_work(anchor: Anchor, run: Run) -> bool:
    """Whether both train the same network on samples of the same shape, on the same model of device."""
    request, device = _section(run, "request"), _section(run, "device")
    ours = (run.benchmark, request.get("variant"), request.get("shape"))
    theirs = (anchor.benchmark, anchor.variant, anchor.shape)
    return ours == theirs and re.search(anchor.matches, str(device.get("name") or "")) is not None


def _differences(anchor: Anchor, run: Run) -> tuple[str, ...]:
    request = _section(run, "request")
    pairs = [
        ("precision", anchor.precision, request.get("dtype")),
        ("global batch", anchor.batch, request.get("global_batch_size")),
        ("devices", anchor.devices, devices_of(run)),
        ("data", anchor.data, _section(run, "data").get("kind")),
    ]
    differences = []
    for name, theirs, ours in pairs:
        if theirs is None:
            differences.append(f"{name} not published")
        elif theirs != ours:
            differences.append(f"{name} {theirs}, ours {'unknown' if ours is None else ours}")
    if anchor.mode is not None and anchor.mode != request.get("mode"):
        differences.append(f"{anchor.mode}, ours {request.get('mode')}")
    if anchor.differs:
        differences.append(anchor.differs)
    return tuple(differences)


def devices_of(run: Run) -> int | None:
    """How many devices a run had; None if its layout is not known."""
    try:
        return Layout.parse(re.sub(r"[a-z]+$", "", run.layout), "").devices
    except ValueError:
        return None


def _section(run: Run, name: str) -> Mapping[str, Any]:
    section = run.start.get(name)
    return section if isinstance(section, Mapping) else {}
