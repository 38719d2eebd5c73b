"""Tables of published numbers: all of a benchmark, and those that may stand beside our runs."""

from __future__ import annotations

from collections.abc import Sequence

from reporting.anchors.catalogue import Anchor, devices_of, neighbours
from reporting.tables.grouped import OURS, Table
from reporting.tables.row import Row, number, percent

EFFECTIVE = "effective_throughput"
MOST_BESIDE = 3  # published numbers beside one row of ours


def anchor_tables(anchors: Sequence[Anchor]) -> list[Table]:
    """A table for each benchmark and variant."""
    grouped: dict[str, list[Anchor]] = {}
    for anchor in anchors:
        grouped.setdefault(f"{anchor.benchmark}, {anchor.variant}, {anchor.shape}", []).append(anchor)
    return [_anchor_table(name, members) for name, members in grouped.items()]


def _anchor_table(name: str, anchors: Sequence[Anchor]) -> Table:
    headings = ("device", "devices", "system", "setting", "source")
    numbers = ("compute thr.", "compute fr.", "effective thr.", "per device", "likeness", "remarks")
    sources: list[str] = []
    remarks: list[str] = []
    rows = []
    for anchor in anchors:
        source = f"{anchor.source} ({anchor.published}), {anchor.place}: {anchor.url}"
        said = [f"{metric.replace('_', ' ')}: {why}" for metric, why in anchor.doubted.items()]
        said += [anchor.differs] if anchor.differs else []
        rows.append(
            (
                anchor.device,
                str(anchor.devices),
                anchor.system,
                _setting(anchor),
                f"S{_position(sources, source)}",
                number(anchor.values.get("compute_throughput")),
                percent(anchor.values.get("compute_fraction")),
                number(anchor.values[EFFECTIVE]),
                number(anchor.effective_per_device),
                anchor.likeness.value,
                " ".join(f"[{_position(remarks, remark)}]" for remark in said) or "none",
            )
        )
    notes = [f"S{place} {source}" for place, source in enumerate(sources, 1)]
    notes += [f"[{place}] {remark}" for place, remark in enumerate(remarks, 1)]
    return Table(
        f"{name}, published: throughputs in samples/s over all devices",
        (*headings, *numbers),
        tuple(rows),
        len(headings),
        tuple(notes),
        numbers=(*OURS, "per device"),
    )


def beside(rows: Sequence[Row]) -> list[Table]:
    """One table of the published numbers that may stand beside these rows; none if there is no such number."""
    lines = []
    sources: list[str] = []
    for row in rows:
        throughput, count = row.run.effective_throughput, devices_of(row.run)
        if throughput is None or count is None:
            continue
        for neighbour in neighbours(row.run)[:MOST_BESIDE]:
            anchor = neighbour.anchor
            source = f"{anchor.source} ({anchor.published}), {anchor.place}: {anchor.url}"
            lines.append(
                (
                    row.run.platform,
                    row.run.test,
                    number(throughput / count),
                    number(anchor.effective_per_device),
                    neighbour.likeness.value,
                    f"{anchor.system}, {anchor.device} [{_position(sources, source)}]",
                    "; ".join(neighbour.differences) or "nothing",
                )
            )
    if not lines:
        return []
    headings = ("platform", "test", "ours", "published", "likeness", "system", "what differs")
    notes = [f"[{place}] {source}" for place, source in enumerate(sources, 1)]
    title = "published numbers beside ours: effective throughput of one device, in samples/s"
    return [Table(title, headings, tuple(lines), 2, tuple(notes), numbers=("ours", "published"))]


def _setting(anchor: Anchor) -> str:
    parts = [anchor.precision] if anchor.precision else []
    if anchor.batch:
        parts.append(f"batch {anchor.batch}")
    return " ".join(parts) or "-"


def _position(texts: list[str], text: str) -> int:
    """The place of a text among others, from 1. It is added if it is new."""
    if text not in texts:
        texts.append(text)
    return texts.index(text) + 1
