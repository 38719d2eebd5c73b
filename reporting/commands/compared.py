"""What `python -m reporting compare` says of each test: a sentence, a row, and the numbers to recompute it."""

from __future__ import annotations

import datetime
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import stdev, variance
from typing import Any

from reporting.compare.causes import Causes, ProvenanceChange, causes_of
from reporting.compare.contrast import Contrast, Contrasts, Side
from reporting.compare.differing import changed_in_part, notes_between
from reporting.compare.interval import Interval, change_of
from reporting.compare.split import Split
from reporting.phrases import listed, number, percent, size, spaced
from reporting.references.answers import Note, References
from reporting.tables.grouped import Table

MOST_VALUES = 20  # sessions in a line
MANY = 10  # intervals, of which some miss by chance
PART_COLUMNS: Mapping[str, str] = {
    "wait_ms": "wait",
    "h2d_ms": "h2d",
    "stall_ms": "wait+h2d",
    "step_ms": "device step",
    "other_ms": "other",
}
NUMBERS = ("runs", "sessions", "before", "after", "change", "95 % interval", *PART_COLUMNS.values())


@dataclass(frozen=True)
class Report:
    """What a comparison says, in the shapes in which it is printed.

    Attributes:
        sentences: one for each row.
        not_compared: a sentence on each test, or part of one, without a partner.
        table: with a row for each contrast.
        numbers: of each row, the lines from which a person can recompute it.
        contents: of each row, what CSV and JSON have.
        slower: something is slower by more than chance explains.
    """

    sentences: Sequence[str]
    not_compared: Sequence[str]
    table: Table
    numbers: Sequence[Sequence[str]]
    contents: Sequence[Mapping[str, Any]]
    slower: bool


def report(both: Contrasts, title: str, references: References, night_ends: datetime.time) -> Report:
    """What two selections say, test by test.

    Args:
        title: of the table; it says what the two selections are.
    """
    found = [Compared.of(contrast, references, night_ends) for contrast in both.found]
    return Report(
        sentences(found),
        both.not_compared,
        table_of(found, title),
        [numbers_of(one) for one in found],
        [content(one) for one in found],
        any(one.contrast.verdict == "slower" for one in found),
    )


@dataclass(frozen=True)
class Compared:
    """A contrast, and what may explain it. `in_part` is the provenance that changed in some of the runs."""

    contrast: Contrast
    causes: Causes
    in_part: Sequence[ProvenanceChange]

    @classmethod
    def of(cls, contrast: Contrast, references: References, night_ends: datetime.time) -> Compared:
        before = contrast.before.runs
        after = contrast.after.runs
        notes = notes_between(before, after, references, night_ends)
        return cls(contrast, causes_of(before, after, notes, contrast.metric), changed_in_part(before, after))

    @property
    def split(self) -> Split | None:
        return self.causes.split


def interval_text(interval: Interval) -> str:
    """An interval in per cent: `[-4.9, -3.3]`."""
    return f"[{100 * interval.low:+.1f}, {100 * interval.high:+.1f}]"


def sentences(found: Sequence[Compared]) -> list[str]:
    """A sentence for each contrast. The metric is named where a test has several."""
    metrics = Counter(one.contrast.subject for one in found)
    return [_sentence(one, with_metric=metrics[one.contrast.subject] > 1) for one in found]


def _sentence(one: Compared, *, with_metric: bool) -> str:
    contrast = one.contrast
    metric = f"{spaced(contrast.metric)} " if with_metric else ""
    text = f"{contrast.subject}: {metric}{percent(contrast.change)}"
    if contrast.interval is None:
        text += f", no verdict: {contrast.why_none}"
    else:
        text += f" {interval_text(contrast.interval)}"
    if contrast.verdict == "unclear":
        text += ", no change that these runs can show"
    elif contrast.better == "lower" and contrast.interval is not None:
        text += f", {contrast.verdict}"
    causes = one.causes if contrast.verdict != "unclear" else replace(one.causes, split=None, no_split="")
    text += f"{', ' if causes.in_step else '; '}{causes.sentence(one.in_part)}"
    return text


def table_of(found: Sequence[Compared], title: str) -> Table:
    """A row for each contrast. The parts of a step are the change of each in ms per step."""
    parts = [name for name in PART_COLUMNS if any(one.split and name in one.split.before for one in found)]
    headings = ("test", "metric", "unit", "runs", "sessions", "before", "after", "change", "95 % interval", "verdict")
    rows = []
    for one in found:
        contrast = one.contrast
        cells = [contrast.subject, spaced(contrast.metric), contrast.unit or "-"]
        cells.append(f"{len(contrast.before.runs)} + {len(contrast.after.runs)}")
        cells.append(f"{len(contrast.before.sessions)} + {len(contrast.after.sessions)}")
        level = contrast.before.level
        cells += [number(level, level), number(contrast.after.level, level)]
        cells.append(percent(contrast.change))
        cells += ["-" if contrast.interval is None else interval_text(contrast.interval), contrast.verdict]
        cells += [part_cell(one.split, name) for name in parts]
        rows.append(tuple(cells))
    notes = table_notes(parts, sum(one.contrast.interval is not None for one in found))
    columns = (*headings, *(PART_COLUMNS[name] for name in parts))
    return Table(title, columns, tuple(rows), headings.index("before"), tuple(notes), numbers=NUMBERS)


def table_notes(parts: Sequence[str], intervals: int) -> list[str]:
    """What stands below a table.

    Args:
        parts: of a step, which have columns.
        intervals: how many the table has.
    """
    notes = []
    if parts:
        notes.append(f"{', '.join(PART_COLUMNS[name] for name in parts)}: their change in ms per step")
    if intervals >= MANY:
        missed = round(intervals / 20)
        notes.append(
            f"{intervals} intervals: about {missed} of them miss the true change by chance; repeat what matters"
        )
    return notes


def part_cell(split: Split | None, name: str) -> str:
    """The change of a part of a step in ms."""
    if split is None or name not in split.before:
        return "-"
    return f"{split.change[name]:+.2f}"


def numbers_of(one: Compared) -> list[str]:
    """The lines from which a person can recompute a contrast, and what else differs."""
    contrast = one.contrast
    lines = [f"{contrast.subject}: {spaced(contrast.metric)}, {contrast.better} is better"]
    lines += [_side_line(side, contrast.unit) for side in (contrast.before, contrast.after)]
    level = contrast.before.level
    after, before = number(contrast.after.level, level / 10), number(level, level / 10)
    ratio = f"{after} / {before}"
    lines.append(line("change", f"{percent(contrast.change)} = {less_one(ratio, contrast.better)}"))
    if contrast.interval is None:
        lines.append(line("interval", f"none: {contrast.why_none}"))
        lines.append(line("", "two sessions a side have one, or treated and control nodes in one (docs/compare.md)"))
    elif contrast.paired:
        lines += _pair_lines(contrast, contrast.interval)
    else:
        lines += _group_lines(contrast, contrast.interval)
    if one.split is not None:
        name, _, rest = one.split.numbers().partition(": ")
        lines.append(line(name, rest))
    lines += [line("changed", change.text) for change in one.causes.changed]
    lines += [line("in part", change.text) for change in one.in_part]
    lines += [note_line(note) for note in one.causes.notes]
    return lines + [line("remark", remark) for remark in contrast.remarks]


def less_one(ratio: str, better: str) -> str:
    """How a change is computed from a ratio, so that it is negative where it is worse."""
    return f"{ratio} - 1" if better == "higher" else f"1 - {ratio}"


def line(name: str, text: str) -> str:
    """A line of numbers, with its name in a column."""
    return f"  {name:<12}  {text}"


def note_line(note: Note) -> str:
    """A line on what a person has noted."""
    return line("note", f"{note.at} on {note.platform}: {note.text} ({note.author.by})")


def _side_line(side: Side, unit: str) -> str:
    level = side.level
    values = [f"{number(side.medians[run_id], level / 10)} ({len(values)})" for run_id, values in side.sessions.items()]
    if len(values) == 1:
        jobs = len(side.runs)
        what = "1 session, one job" if jobs == 1 else f"1 session, the median of its {jobs} jobs"
        return line(side.word, f"{number(level, level / 10)} {unit}: {what}")
    what = f"the geometric mean of {len(values)} sessions; their medians, and jobs"
    return line(side.word, f"{number(level, level / 10)} {unit}, {what}: {listed(values, MOST_VALUES)}")


def _group_lines(contrast: Contrast, interval: Interval) -> Iterator[str]:
    parts = []
    for side in (contrast.before, contrast.after):
        logs = [math.log(value) for value in side.medians.values()]
        parts.append(f"{100 * math.sqrt(variance(logs)):.3f}^2 / {len(logs)}")
    yield line("error", f"{size(interval.error)} = sqrt({' + '.join(parts)}) %, of the logarithms of the medians")
    yield interval_line(interval)


def _pair_lines(contrast: Contrast, interval: Interval) -> Iterator[str]:
    old = contrast.before.medians
    logs = [math.log(value / old[run_id]) for run_id, value in contrast.after.medians.items()]
    changes = listed([f"{100 * change_of(log, contrast.better):+.2f}" for log in logs], MOST_VALUES)
    yield line("paired", f"the change within each of {len(logs)} sessions, in %: {changes}")
    yield line("error", f"{size(interval.error)} = {100 * stdev(logs):.3f} / sqrt({len(logs)}) %, of their logarithms")
    yield interval_line(interval)


def interval_line(interval: Interval) -> str:
    """How the ends of an interval are computed."""
    middle = 100 * interval.difference
    signs = "-+" if interval.better == "higher" else "+-"
    ratio = f"exp({middle:+.2f} % {signs} {interval.quantile:.2f} x {size(interval.error)})"
    ends = less_one(ratio, interval.better)
    freedom = f"t of {interval.freedom:.1f} degrees of freedom"
    return line("interval", f"{interval_text(interval)} % = {ends}; {freedom}")


def content(one: Compared) -> dict[str, Any]:
    """A contrast as CSV and JSON have it; fractions and logarithms have all their digits."""
    contrast = one.contrast
    interval = contrast.interval
    found: dict[str, Any] = {
        "test_before": contrast.tests[0],
        "test_after": contrast.tests[1],
        "metric": contrast.metric,
        "unit": contrast.unit,
        "better": contrast.better,
        "runs_before": len(contrast.before.runs),
        "runs_after": len(contrast.after.runs),
        "sessions_before": len(contrast.before.sessions),
        "sessions_after": len(contrast.after.sessions),
        "level_before": contrast.before.level,
        "level_after": contrast.after.level,
        "change_fraction": contrast.change,
        "low_fraction": None if interval is None else interval.low,
        "high_fraction": None if interval is None else interval.high,
        "error_of_log": None if interval is None else interval.error,
        "freedom": None if interval is None else interval.freedom,
        "is_paired": contrast.paired,
        "verdict": contrast.verdict,
        "why_no_verdict": contrast.why_none,
    }
    for name in PART_COLUMNS:
        for word in ("before", "after"):
            found[f"{name}_{word}"] = None if one.split is None else getattr(one.split, word).get(name)
    found["where"] = one.causes.in_step or None
    found["changed"] = "; ".join(change.text for change in one.causes.changed)
    found["changed_in_part"] = "; ".join(change.text for change in one.in_part)
    found["notes"] = "; ".join(f"{note.at} on {note.platform}: {note.text}" for note in one.causes.notes)
    found["remarks"] = "; ".join(contrast.remarks)
    return found
