"""What `python -m reporting compare` says of each test: a sentence, a row, and the numbers to recompute it.

A row is a contrast of two groups of runs, or an effect of an upgrade on treated beside control nodes. The two differ in
some columns, keys and lines; `Compared` holds these, and everything else is written once for both.
"""

from __future__ import annotations

import datetime
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import stdev, variance
from typing import Any

from platforms.job import RefusedError
from reporting.compare.causes import Causes, ProvenanceChange, causes_of
from reporting.compare.contrast import Contrast, Contrasts, Side
from reporting.compare.differing import changed_in_part, notes_between
from reporting.compare.interval import Interval, change_of, sign_of
from reporting.compare.split import Split
from reporting.compare.treated import Group, NodeChange, TreatedEffect, effect_of
from reporting.history.run_facts import THROUGHPUT
from reporting.phrases import counted, listed, number, percent, size, spaced
from reporting.references.answers import References
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
NO_SPLIT = Split({}, {})
TEXTS = ("test", "metric", "unit", "verdict")  # all other columns hold numbers, and are aligned to the right


@dataclass(frozen=True)
class Report:
    """What a comparison says, in the shapes in which it is printed.

    Attributes:
        sentences: one for each row.
        not_compared: a sentence on each test, or part of one, without a partner.
        table: with a row for each test and metric.
        numbers: of each row, the lines from which a person can recompute it.
        contents: of each row, what JSON has.
        slower: something is slower by more than chance explains.
    """

    sentences: Sequence[str]
    not_compared: Sequence[str]
    table: Table
    numbers: Sequence[Sequence[str]]
    contents: Sequence[Mapping[str, Any]]
    slower: bool


@dataclass(frozen=True)
class Compared:
    """One metric of one test, as every shape of the output has it.

    Attributes:
        contrast: names the test and the metric.
        found: what is said of it: the contrast itself, or the effect on its treated nodes.
        causes: what may explain the change.
        also: what the sentence adds on provenance that changed in some of the runs alone.
        beyond: what the change in the sentence is beyond; "" for a contrast.
        columns: the cells between the metric and the interval, by heading.
        values: the fields that JSON has of this kind alone.
        lines: those between the heading and the notes.
    """

    contrast: Contrast
    found: Contrast | TreatedEffect
    causes: Causes
    also: str
    beyond: str
    columns: Mapping[str, str]
    values: Mapping[str, Any]
    lines: Sequence[str]

    @property
    def change(self) -> float:
        return self.found.effect if isinstance(self.found, TreatedEffect) else self.found.change


def report(both: Contrasts, title: str, references: References, night_ends: datetime.time) -> Report:
    """What two selections say, test by test.

    Args:
        title: of the table; it says what the two selections are.
    """
    rows = [_of_contrast(contrast, references, night_ends) for contrast in both.found]
    return _report(rows, both.not_compared, title)


def report_of_groups(
    both: Contrasts,
    treated: frozenset[str],
    control: frozenset[str],
    title: str,
    references: References,
    night_ends: datetime.time,
) -> Report:
    """What two selections say of a change that only some nodes have had.

    Args:
        treated, control: names of nodes.
        title: as of `report`.
    """
    rows = []
    not_compared = list(both.not_compared)
    for contrast in both.found:
        effect = effect_of(contrast, treated, control)
        if isinstance(effect, TreatedEffect):
            rows.append(_of_effect(effect, references, night_ends))
        else:
            not_compared.append(effect)
    return _report(rows, not_compared, title, ", treated less control")


# --- what both kinds of rows have in common --------------------------------------------------------------------------


def _report(rows: Sequence[Compared], not_compared: Sequence[str], title: str, of_parts: str = "") -> Report:
    """Raises RefusedError where nothing can be compared."""
    if not rows:
        raise RefusedError("\n".join(["nothing can be compared:", *(f"  {one}" for one in not_compared)]))
    metrics = Counter(row.contrast.subject for row in rows)
    return Report(
        [_sentence(row, with_metric=metrics[row.contrast.subject] > 1) for row in rows],
        not_compared,
        _table(rows, title, of_parts),
        [_numbers(row) for row in rows],
        [_content(row) for row in rows],
        any(row.found.verdict == "slower" for row in rows),
    )


def _sentence(row: Compared, *, with_metric: bool) -> str:
    """The answer. The metric is named where a test has several."""
    found = row.found
    text = f"{row.contrast.subject}: "
    if with_metric:
        text += f"{spaced(row.contrast.metric)} "
    text += percent(row.change)
    if found.interval is not None:
        text += f" {_interval(found.interval)}"
    text += row.beyond
    causes = row.causes
    if found.interval is None:
        text += f", no verdict: {found.why_none}"
    elif found.verdict == "unclear":
        text += ", no change that these runs can show"
        causes = replace(causes, split=None, no_split="")  # there is no change whose place could be named
    elif row.contrast.better == "lower":
        text += f", {found.verdict}"  # a minus sign alone may be read as a gain
    between = ", " if causes.in_step else "; "
    return f"{text}{between}{causes.sentence(row.also)}"


def _table(rows: Sequence[Compared], title: str, of_parts: str) -> Table:
    """A row for each test and metric. The parts of a step are the change of each in ms per step."""
    splits = [row.causes.split for row in rows if row.causes.split is not None]
    parts = [name for name in PART_COLUMNS if any(name in split.before for split in splits)]
    cells = []
    for row in rows:
        interval = row.found.interval
        changes = (row.causes.split or NO_SPLIT).change
        cells.append(
            {
                "test": row.contrast.subject,
                "metric": spaced(row.contrast.metric),
                **row.columns,
                "95 % interval": "-" if interval is None else _interval(interval),
                "verdict": row.found.verdict,
                **{PART_COLUMNS[name]: f"{changes[name]:+.2f}" if name in changes else "-" for name in parts},
            }
        )
    notes = []
    if parts:
        notes.append(f"{', '.join(PART_COLUMNS[name] for name in parts)}: their change in ms per step{of_parts}")
    intervals = sum(row.found.interval is not None for row in rows)
    if intervals >= MANY:
        # each 95 % interval misses once in twenty
        missed = f"about {round(intervals / 20)} of them miss the true change by chance"
        notes.append(f"{intervals} intervals: {missed}; repeat what matters")
    headings = tuple(cells[0])
    texts = tuple(tuple(cell.values()) for cell in cells)
    numbers = [heading for heading in headings if heading not in TEXTS]
    identity = headings.index("sessions") + 1
    return Table(title, headings, texts, identity, tuple(notes), numbers=numbers)


def _numbers(row: Compared) -> list[str]:
    """The lines from which a person can recompute a row, and what else differs."""
    contrast = row.contrast
    notes = [f"{note.at} on {note.platform}: {note.text} ({note.author.by})" for note in row.causes.notes]
    return [
        f"{contrast.subject}: {spaced(contrast.metric)}, {contrast.better} is better",
        *row.lines,
        *(line("seen", seen) for seen in row.causes.seen),
        *(line("note", note) for note in notes),
        *(line("remark", remark) for remark in row.found.remarks),
    ]


def _content(row: Compared) -> dict[str, Any]:
    """A row as JSON has it; fractions and logarithms have all their digits."""
    contrast = row.contrast
    interval = row.found.interval
    ends: dict[str, float | None] = dict.fromkeys(("low_fraction", "high_fraction", "error_of_log", "freedom"))
    if interval is not None:
        ends = dict(zip(ends, (interval.low, interval.high, interval.error, interval.freedom), strict=True))
    return {
        "test": contrast.test,
        "metric": contrast.metric,
        "unit": contrast.unit,
        "better": contrast.better,
        **row.values,
        **ends,
        "verdict": row.found.verdict,
        "why_no_verdict": row.found.why_none,
        "where": row.causes.in_step or None,
        "seen": "; ".join(row.causes.seen),
        "notes": "; ".join(f"{note.at} on {note.platform}: {note.text}" for note in row.causes.notes),
        "remarks": "; ".join(row.found.remarks),
    }


def line(name: str, text: str) -> str:
    """A line of numbers, with its name in a column."""
    return f"  {name:<12}  {text}"


def _interval(interval: Interval) -> str:
    """An interval in per cent: `[-4.9, -3.3]`."""
    return f"[{100 * interval.low:+.1f}, {100 * interval.high:+.1f}]"


def _interval_line(interval: Interval) -> str:
    """How the ends of an interval are computed."""
    middle = 100 * interval.difference
    signs = "-+" if interval.better == "higher" else "+-"
    ratio = f"exp({middle:+.2f} % {signs} {interval.quantile:.2f} x {size(interval.error)})"
    ends = _less_one(ratio, interval.better)
    freedom = f"t of {interval.freedom:.1f} degrees of freedom"
    return line("interval", f"{_interval(interval)} % = {ends}; {freedom}")


def _less_one(ratio: str, better: str) -> str:
    """How a change is computed from a ratio, so that it is negative where it is worse."""
    return f"{ratio} - 1" if better == "higher" else f"1 - {ratio}"


def _texts(changes: Sequence[ProvenanceChange]) -> str:
    return "; ".join(change.text for change in changes)


# --- two groups of runs ----------------------------------------------------------------------------------------------


def _of_contrast(contrast: Contrast, references: References, night_ends: datetime.time) -> Compared:
    before = contrast.before
    after = contrast.after
    notes = notes_between(before.runs, after.runs, references, night_ends)
    causes = causes_of(before.runs, after.runs, notes, contrast.metric)
    in_part = changed_in_part(before.runs, after.runs)
    columns = {
        "unit": contrast.unit or "-",
        "runs": f"{len(before.runs)} + {len(after.runs)}",
        "sessions": f"{len(before.sessions)} + {len(after.sessions)}",
        "before": number(before.level, before.level),
        "after": number(after.level, before.level),
        "change": percent(contrast.change),
    }
    values: dict[str, Any] = {
        "runs_before": len(before.runs),
        "runs_after": len(after.runs),
        "sessions_before": len(before.sessions),
        "sessions_after": len(after.sessions),
        "level_before": before.level,
        "level_after": after.level,
        "change_fraction": contrast.change,
        "is_paired": contrast.paired,
        "changed": _texts(causes.changed),
        "changed_in_part": _texts(in_part),
    }
    split = causes.split or NO_SPLIT
    for name in PART_COLUMNS:
        values[f"{name}_before"] = split.before.get(name)
        values[f"{name}_after"] = split.after.get(name)
    lines = [*_contrast_lines(contrast)]
    if causes.split is not None:
        name, _, rest = causes.split.numbers().partition(": ")
        lines.append(line(name, rest))
    lines += [line("changed", change.text) for change in causes.changed]
    lines += [line("in part", change.text) for change in in_part]
    also = ""
    if in_part:
        also = f"changed in part: {', '.join(change.name for change in in_part)}"
    return Compared(contrast, contrast, causes, also, "", columns, values, lines)


def _contrast_lines(contrast: Contrast) -> Iterator[str]:
    """The two levels, the change, and its interval."""
    before = contrast.before
    after = contrast.after
    yield _side_line(before, contrast.unit)
    yield _side_line(after, contrast.unit)
    # one digit more than the table has, so that the change can be computed from the two levels
    ratio = f"{number(after.level, before.level / 10)} / {number(before.level, before.level / 10)}"
    yield line("change", f"{percent(contrast.change)} = {_less_one(ratio, contrast.better)}")
    interval = contrast.interval
    if interval is None:
        yield line("interval", f"none: {contrast.why_none}")
        yield line("", "two sessions a side have one, or treated and control nodes in one (docs/compare.md)")
        return
    if contrast.paired:
        logs = [math.log(value / before.medians[run_id]) for run_id, value in after.medians.items()]
        changes = listed([f"{100 * change_of(log, contrast.better):+.2f}" for log in logs], MOST_VALUES)
        yield line("paired", f"the change within each of {len(logs)} sessions, in %: {changes}")
        formula = f"{100 * stdev(logs):.3f} / sqrt({len(logs)}) %, of their logarithms"
    else:
        parts = []
        for side in (before, after):
            logs = [math.log(value) for value in side.medians.values()]
            parts.append(f"{100 * math.sqrt(variance(logs)):.3f}^2 / {len(logs)}")
        formula = f"sqrt({' + '.join(parts)}) %, of the logarithms of the medians"
    yield line("error", f"{size(interval.error)} = {formula}")
    yield _interval_line(interval)


def _side_line(side: Side, unit: str) -> str:
    level = f"{number(side.level, side.level / 10)} {unit}"
    values = [
        f"{number(side.medians[run_id], side.level / 10)} ({len(values)})" for run_id, values in side.sessions.items()
    ]
    if len(values) == 1:
        return line(side.word, f"{level}: 1 session, the median of {counted(len(side.runs), 'job')}")
    what = f"the geometric mean of {len(values)} sessions; their medians, and jobs"
    return line(side.word, f"{level}, {what}: {listed(values, MOST_VALUES)}")


# --- treated beside control nodes ------------------------------------------------------------------------------------


def _of_effect(effect: TreatedEffect, references: References, night_ends: datetime.time) -> Compared:
    contrast = effect.contrast
    treated = effect.treated
    control = effect.control
    before = (*treated.runs_before, *control.runs_before)
    after = (*treated.runs_after, *control.runs_after)
    notes = notes_between(before, after, references, night_ends)
    causes = causes_of(treated.runs_before, treated.runs_after, notes, contrast.metric)
    on_control = causes_of(control.runs_before, control.runs_after).changed
    # What changed on the control nodes, too, explains no difference between the two groups.
    alone = tuple(change for change in causes.changed if change not in on_control)
    split = effect.split() if contrast.metric == THROUGHPUT else None
    causes = replace(causes, split=split, changed=alone)
    columns = {
        "nodes": f"{len(treated.nodes)} + {len(control.nodes)}",
        "sessions": f"{len(effect.by_session_before)} + {len(effect.by_session_after)}",
        "treated": percent(treated.change),
        "control": percent(control.change),
        "effect": percent(effect.effect),
    }
    values: dict[str, Any] = {
        "nodes_treated": len(treated.nodes),
        "nodes_control": len(control.nodes),
        "sessions_before": len(effect.by_session_before),
        "sessions_after": len(effect.by_session_after),
        "change_treated_fraction": treated.change,
        "change_control_fraction": control.change,
        "effect_fraction": effect.effect,
        "changed_on_treated": _texts(alone),
        "changed_on_control": _texts(on_control),
    }
    for name in PART_COLUMNS:
        values[f"{name}_effect"] = (split or NO_SPLIT).change.get(name)
    lines = [*_effect_lines(effect, with_split=split is not None)]
    lines += [line("changed", f"{change.text}, on the treated nodes alone") for change in alone]
    lines += [line("changed", f"{change.text}, on the control nodes") for change in on_control]
    also = ""
    if on_control:
        also = f"changed on the control nodes, too: {', '.join(change.text for change in on_control)}"
    beyond = " on the treated nodes beyond the control nodes"
    return Compared(contrast, effect, causes, also, beyond, columns, values, lines)


def _effect_lines(effect: TreatedEffect, *, with_split: bool) -> Iterator[str]:
    """The nodes of both groups, the effect, and its interval."""
    better = effect.contrast.better
    groups = (effect.treated, effect.control)
    for group in groups:
        what = f"the geometric mean of {counted(len(group.nodes), 'node')}, after / before in {effect.contrast.unit}"
        yield line(group.word, f"{100 * group.change:+.2f} %, {what}:")
        for node in group.nodes:
            yield line("", _node(node, better))
    sign = sign_of(better)
    ratio = f"(1 {_signed(sign * effect.treated.change)}) / (1 {_signed(sign * effect.control.change)})"
    yield line("effect", f"{100 * effect.effect:+.2f} % = {_less_one(ratio, better)}")
    if effect.of_nodes is None:
        yield line("interval", f"none: {effect.why_none}")
    else:
        formula = f"sqrt({_scatter(effect.treated)} + {_scatter(effect.control)}) %"
        yield line("error", f"{size(effect.of_nodes.error)} = {formula}, of the logarithms of the nodes' changes")
        yield _interval_line(effect.of_nodes)
    # If the distance between the groups moves by itself from session to session, the days do not cancel.
    for word, sessions in (("before", effect.by_session_before), ("after", effect.by_session_after)):
        texts = [f"{run_id} {100 * change_of(log, better):+.2f} %" for run_id, log in sessions.items()]
        yield line(word, f"treated beside control, by session: {', '.join(texts)}")
    if effect.of_sessions is not None:
        yield f"{_interval_line(effect.of_sessions)}, of the sessions; the wider interval counts"
    for group in groups:
        split = group.split()
        if with_split and split is not None:
            yield line("ms per step", f"{group.word}: {split.numbers().partition(': ')[2]}")


def _node(node: NodeChange, better: str) -> str:
    after = number(node.after, node.before / 10)
    before = number(node.before, node.before / 10)
    return f"{node.node}  {after} / {before}: {100 * change_of(node.log, better):+.2f} %"


def _signed(fraction: float) -> str:
    return f"{fraction:+.5f}".replace("+", "+ ").replace("-", "- ")


def _scatter(group: Group) -> str:
    return f"{100 * stdev(node.log for node in group.nodes):.3f}^2 / {len(group.nodes)}"
