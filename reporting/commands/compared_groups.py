"""What `compare --treated … --control …` says of each test: what changed on the treated nodes beyond the control."""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import stdev
from typing import Any

from reporting.commands.compared import (
    PART_COLUMNS,
    Report,
    interval_line,
    interval_text,
    less_one,
    line,
    note_line,
    part_cell,
    table_notes,
)
from reporting.compare.causes import Causes, ProvenanceChange, causes_of
from reporting.compare.contrast import Contrasts
from reporting.compare.differing import notes_between
from reporting.compare.interval import change_of
from reporting.compare.treated import Group, NodeChange, TreatedEffect, effect_of
from reporting.history.run_facts import THROUGHPUT
from reporting.phrases import counted, number, percent, size, spaced
from reporting.references.answers import References
from reporting.tables.grouped import Table

NUMBERS = ("nodes", "sessions", "treated", "control", "effect", "95 % interval", *PART_COLUMNS.values())


@dataclass(frozen=True)
class ComparedGroups:
    """An effect, and what may explain it.

    Attributes:
        causes: what is different on the treated nodes and not on the control nodes.
        on_control: the provenance that changed on the control nodes.
    """

    effect: TreatedEffect
    causes: Causes
    on_control: Sequence[ProvenanceChange]

    @classmethod
    def of(cls, effect: TreatedEffect, references: References, night_ends: datetime.time) -> ComparedGroups:
        treated = effect.treated
        control = effect.control
        before = (*treated.runs_before, *control.runs_before)
        after = (*treated.runs_after, *control.runs_after)
        notes = notes_between(before, after, references, night_ends)
        causes = causes_of(treated.runs_before, treated.runs_after, notes, effect.contrast.metric)
        on_control = causes_of(control.runs_before, control.runs_after).changed
        alone = tuple(change for change in causes.changed if change not in on_control)
        split = effect.split() if effect.contrast.metric == THROUGHPUT else None
        return cls(effect, replace(causes, split=split, changed=alone), on_control)


def report(
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
        title: of the table; it says what the two selections are.
    """
    found: list[ComparedGroups] = []
    not_compared = list(both.not_compared)
    for contrast in both.found:
        effect = effect_of(contrast, treated, control)
        if isinstance(effect, TreatedEffect):
            found.append(ComparedGroups.of(effect, references, night_ends))
        else:
            not_compared.append(effect)
    metrics = Counter(one.effect.contrast.subject for one in found)
    return Report(
        [_sentence(one, with_metric=metrics[one.effect.contrast.subject] > 1) for one in found],
        not_compared,
        _table(found, title),
        [_numbers(one) for one in found],
        [_content(one) for one in found],
        any(one.effect.verdict == "slower" for one in found),
    )


def _sentence(one: ComparedGroups, *, with_metric: bool) -> str:
    effect = one.effect
    contrast = effect.contrast
    metric = f"{spaced(contrast.metric)} " if with_metric else ""
    text = f"{contrast.subject}: {metric}{percent(effect.effect)}"
    if effect.interval is not None:
        text += f" {interval_text(effect.interval)}"
    text += " on the treated nodes beyond the control nodes"
    if effect.interval is None:
        text += f", no verdict: {effect.why_none}"
    elif effect.verdict == "unclear":
        text += ", no change that these runs can show"
    elif contrast.better == "lower":
        text += f", {effect.verdict}"
    causes = one.causes if effect.verdict != "unclear" else replace(one.causes, split=None, no_split="")
    if causes.changed or not one.on_control:
        text += f"{', ' if causes.in_step else '; '}{causes.sentence()}"
    elif causes.in_step:
        text += f", {causes.in_step}"
    if one.on_control:
        text += f"; changed on the control nodes, too: {', '.join(change.text for change in one.on_control)}"
    return text


def _table(found: Sequence[ComparedGroups], title: str) -> Table:
    parts = [
        name for name in PART_COLUMNS if any(one.causes.split and name in one.causes.split.before for one in found)
    ]
    headings = ("test", "metric", "nodes", "sessions", "treated", "control", "effect", "95 % interval", "verdict")
    rows = []
    for one in found:
        effect = one.effect
        interval = effect.interval
        rows.append(
            (
                effect.contrast.subject,
                spaced(effect.contrast.metric),
                f"{len(effect.treated.nodes)} + {len(effect.control.nodes)}",
                f"{len(effect.by_session_before)} + {len(effect.by_session_after)}",
                percent(effect.treated.change),
                percent(effect.control.change),
                percent(effect.effect),
                "-" if interval is None else interval_text(interval),
                effect.verdict,
                *(part_cell(one.causes.split, name) for name in parts),
            )
        )
    notes = table_notes(parts, sum(one.effect.interval is not None for one in found))
    if parts:
        notes[0] += ", treated less control"
    columns = (*headings, *(PART_COLUMNS[name] for name in parts))
    return Table(title, columns, tuple(rows), headings.index("treated"), tuple(notes), numbers=NUMBERS)


def _numbers(one: ComparedGroups) -> list[str]:
    """The lines from which a person can recompute an effect, and what else differs."""
    effect = one.effect
    contrast = effect.contrast
    lines = [f"{contrast.subject}: {spaced(contrast.metric)}, {contrast.better} is better"]
    for group in (effect.treated, effect.control):
        what = f"the geometric mean of {counted(len(group.nodes), 'node')}, after / before in {contrast.unit}"
        lines.append(line(group.word, f"{100 * group.change:+.2f} %, {what}:"))
        lines += [line("", _node(node, contrast.better)) for node in group.nodes]
    sign = 1 if contrast.better == "higher" else -1
    ratio = f"(1 {_signed(sign * effect.treated.change)}) / (1 {_signed(sign * effect.control.change)})"
    lines.append(line("effect", f"{100 * effect.effect:+.2f} % = {less_one(ratio, contrast.better)}"))
    if effect.of_nodes is None:
        lines.append(line("interval", f"none: {effect.why_none}"))
    else:
        parts = [_scatter(group) for group in (effect.treated, effect.control)]
        formula = f"sqrt({' + '.join(parts)}) %, of the logarithms of the nodes' changes"
        lines += [line("error", f"{size(effect.of_nodes.error)} = {formula}"), interval_line(effect.of_nodes)]
    lines += _session_lines(effect)
    for group in (effect.treated, effect.control):
        split = group.split()
        if one.causes.split is not None and split is not None:
            lines.append(line("ms per step", f"{group.word}: {split.numbers().partition(': ')[2]}"))
    lines += [line("changed", f"{change.text}, on the treated nodes alone") for change in one.causes.changed]
    lines += [line("changed", f"{change.text}, on the control nodes") for change in one.on_control]
    lines += [note_line(note) for note in one.causes.notes]
    return lines + [line("remark", remark) for remark in effect.remarks]


def _node(node: NodeChange, better: str) -> str:
    after = number(node.after, node.before / 10)
    before = number(node.before, node.before / 10)
    return f"{node.node}  {after} / {before}: {100 * change_of(node.log, better):+.2f} %"


def _signed(fraction: float) -> str:
    return f"{'-' if fraction < 0 else '+'} {abs(fraction):.5f}"


def _scatter(group: Group) -> str:
    return f"{100 * stdev(node.log for node in group.nodes):.3f}^2 / {len(group.nodes)}"


def _session_lines(effect: TreatedEffect) -> list[str]:
    """How far the groups are from each other in each session: if this moves by itself, the days do not cancel."""
    lines = []
    for word, sessions in (("before", effect.by_session_before), ("after", effect.by_session_after)):
        texts = [f"{run_id} {100 * change_of(log, effect.contrast.better):+.2f} %" for run_id, log in sessions.items()]
        lines.append(line(word, f"treated beside control, by session: {', '.join(texts)}"))
    if effect.of_sessions is not None:
        lines.append(interval_line(effect.of_sessions) + ", of the sessions; the wider interval counts")
    return lines


def _content(one: ComparedGroups) -> dict[str, Any]:
    """An effect as CSV and JSON have it; fractions and logarithms have all their digits."""
    effect = one.effect
    interval = effect.interval
    found: dict[str, Any] = {
        "test_before": effect.contrast.tests[0],
        "test_after": effect.contrast.tests[1],
        "metric": effect.contrast.metric,
        "unit": effect.contrast.unit,
        "better": effect.contrast.better,
        "nodes_treated": len(effect.treated.nodes),
        "nodes_control": len(effect.control.nodes),
        "sessions_before": len(effect.by_session_before),
        "sessions_after": len(effect.by_session_after),
        "change_treated_fraction": effect.treated.change,
        "change_control_fraction": effect.control.change,
        "effect_fraction": effect.effect,
        "low_fraction": None if interval is None else interval.low,
        "high_fraction": None if interval is None else interval.high,
        "error_of_log": None if interval is None else interval.error,
        "freedom": None if interval is None else interval.freedom,
        "verdict": effect.verdict,
        "why_no_verdict": effect.why_none,
    }
    for name in PART_COLUMNS:
        found[f"{name}_effect"] = None if one.causes.split is None else one.causes.split.change.get(name)
    found["where"] = one.causes.in_step or None
    found["changed_on_treated"] = "; ".join(change.text for change in one.causes.changed)
    found["changed_on_control"] = "; ".join(change.text for change in one.on_control)
    found["notes"] = "; ".join(f"{note.at} on {note.platform}: {note.text}" for note in one.causes.notes)
    found["remarks"] = "; ".join(effect.remarks)
    return found
