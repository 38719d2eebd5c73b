"""The layouts of one test in one session as a table: speedup, efficiency, and where the rest is lost."""

from __future__ import annotations

from collections.abc import Iterator

from reporting.compare.scaling import COMPUTING, NAMES, UNSPLIT, Kind, Scaling
from reporting.tables.grouped import WARNINGS, Table
from reporting.tables.row import number, percent

NUMBERS = ("devices", "batch", "throughput", "per device", "speedup", "efficiency")
HEADINGS = ("layout", *NUMBERS[:5], "scaling", "efficiency", "lost in", WARNINGS)


def scaling_table(scaling: Scaling) -> Table:
    """A row for each layout; a mark for each doubt in its runs."""
    doubts = list(dict.fromkeys(doubt for one in scaling.layouts for doubt in one.doubts))
    rows = []
    for one in scaling.layouts:
        marks = " ".join(f"[{doubts.index(doubt) + 1}]" for doubt in one.doubts) or "none"
        numbers = (str(one.devices), str(one.batch or "-"), number(one.throughput), number(one.of_device))
        scaled = (f"{one.speedup:.2f}", one.kind.value, percent(one.efficiency))
        rows.append((one.layout, *numbers, *scaled, one.lost, marks))
    notes = [*_notes(scaling), *(f"[{place}] in doubt: {doubt}" for place, doubt in enumerate(doubts, 1))]
    return Table(title_of(scaling), HEADINGS, tuple(rows), 1, tuple(notes), NUMBERS)


def title_of(scaling: Scaling) -> str:
    of_session = f"session {scaling.run_id}, throughput in {scaling.unit}"
    return f"{scaling.name} on {scaling.platform}: scaling against {scaling.base.layout}, {of_session}"


def _notes(scaling: Scaling) -> Iterator[str]:
    kinds = {one.kind for one in scaling.layouts}
    base = scaling.base.layout
    if Kind.WEAK in kinds:
        yield f"weak: each device has the same batch as in {base}, so a step should take as long"
    if Kind.STRONG in kinds:
        yield f"strong: the global batch is that of {base}, so n times the devices should take 1/n of the time"
    if any(NAMES[COMPUTING] in one.lost and not one.lost.startswith(UNSPLIT) for one in scaling.layouts):
        yield "computing: the device step without the exchange of gradients; waiting for a slower rank is a part of it"
    yield from scaling.notes
