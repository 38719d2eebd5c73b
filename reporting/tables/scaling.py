"""The layouts of one test in one session as a table: speedup, efficiency, and where the rest is lost."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from reporting.compare.scaling import NAMES, Kind, Scaling
from reporting.tables.grouped import WARNINGS, Table
from reporting.tables.row import number, percent

NUMBERS = ("devices", "runs", "batch", "throughput", "of each device", "speedup", "efficiency")
HEADINGS = ("layout", "devices", "runs", "batch", *NUMBERS[3:6], "scaling", "efficiency", WARNINGS, "lost in")
WAITS = f"{NAMES['computing_ms']}: the device step without that exchange; waiting for a slower rank is a part of it"


def scaling_tables(found: Sequence[Scaling]) -> list[Table]:
    """A table for each test."""
    return [_table(one) for one in found]


def _table(scaling: Scaling) -> Table:
    doubts = list(dict.fromkeys(doubt for one in scaling.layouts for doubt in one.doubts))
    rows = tuple(
        (
            one.layout,
            str(one.devices),
            str(one.runs),
            "-" if one.batch is None else str(one.batch),
            number(one.throughput),
            number(one.of_device),
            f"{one.speedup:.2f}",
            one.kind.value,
            "-" if one.kind is Kind.BASE else percent(one.efficiency),
            " ".join(f"[{doubts.index(doubt) + 1}]" for doubt in one.doubts) or "none",
            one.lost,
        )
        for one in scaling.layouts
    )
    notes = [*_notes(scaling), *(f"[{place}] in doubt: {doubt}" for place, doubt in enumerate(doubts, 1))]
    return Table(title_of(scaling), HEADINGS, rows, 1, tuple(notes), NUMBERS)


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
    if any(NAMES["computing_ms"] in one.lost for one in scaling.layouts):
        yield WAITS
    yield from scaling.notes
