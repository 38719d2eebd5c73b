"""The table of the published numbers that may stand beside our runs."""

from __future__ import annotations

from collections.abc import Sequence

from reporting.anchors.catalogue import devices_of, neighbours
from reporting.tables.grouped import Table
from reporting.tables.row import Row, number

MOST_BESIDE = 3  # published numbers beside one row of ours


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


def _position(texts: list[str], text: str) -> int:
    """The place of a text among others, from 1. It is added if it is new."""
    if text not in texts:
        texts.append(text)
    return texts.index(text) + 1
