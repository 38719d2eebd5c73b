"""The gate: one run beside the history of its series. docs/gate.md describes the rules, with a worked example."""

from __future__ import annotations

import dataclasses
import datetime
import itertools
import math
from bisect import bisect_right
from collections.abc import Sequence
from statistics import median

from reporting.compare.causes import Causes
from reporting.gate import estimates, explanation
from reporting.gate.comparison import Comparison, LevelChange, compare
from reporting.gate.confirmation import confirmed, known_node, repeats_named, settled, stored_confirmation
from reporting.gate.course import noise_of_level
from reporting.gate.estimates import LARGE, PIN_RUNS, Strictness, strictness
from reporting.gate.explanation import Subject
from reporting.gate.series import (
    CALM,
    Departure,
    RunValue,
    Series,
    departure,
    learned,
    of_test,
    order,
    pin_of,
    series_of_sorted,
)
from reporting.gate.verdict import Kind, Suspect, Verdict
from reporting.history import one_device, same_values
from reporting.history.envelope import Envelope
from reporting.history.nights import night_of
from reporting.phrases import percent
from reporting.references.answers import Acknowledgement, References

RED = frozenset({Kind.SLOWER, Kind.DRIFTED, Kind.LEFT})
COARSE_RUNS = 5  # the median of fewer may itself be of slow runs
BLIND_NIGHTS = 3  # a night or two are missed for many reasons
KNOWN_RUNS = 4
"""A loss that was acknowledged from fewer runs is known no better than a single run is."""


def judge(
    current: Envelope,
    past: Sequence[Envelope],
    references: References,
    night_ends: datetime.time,
    *,
    options: str = "",
    repeats_follow: bool = False,
    tonight: datetime.date | None = None,
) -> dict[str, Verdict]:
    """The verdict on each judged metric of a run, by metric. It does not depend on the order of `past`.

    Args:
        current: a run whose test has passed its own assertions and recorded its numbers. A job of another role than
            `measure` gets no verdict. If a verdict that is stored in it says what repeats have shown, that counts.
        past: the history. Runs of other tests, and runs that started later, are left out.
        references: what people have answered. An accepted level counts from its first night on.
        night_ends: the hour at which the site's nights end.
        options: what the commands in the texts need beside their arguments, such as `--site=centre`.
        repeats_follow: suspects are repeated, so one with `known` set stays a suspect. Else what is known counts.
        tonight: the present night, if it is later than that of the run: until then acknowledgements and nights
            without a run count.

    Raises:
        ValueError: a metric of the run is not finite.
    """
    if not current.trial.in_series:
        return {}
    runs = same_values.joined([*past, dataclasses.replace(current, sane=True)])
    *past, current = one_device.joined(runs)
    before = _before(current, past)
    verdicts = {}
    for metric, measured in current.metrics.items():
        if not math.isfinite(measured.value):
            raise ValueError(f"{current.key.test}: {metric} is {measured.value}, and only finite numbers can be judged")
        series = series_of_sorted(metric, current, [*before, current], night_ends)
        night = night_of(current.time_s, night_ends)
        strict = strictness_of(references, len(current.metrics))
        subject = Subject(current, series, references, night, max(night, tonight or night), options, strict)
        left = departure(metric, current, before, references, night_ends)
        verdict = _verdict(subject) if left is None else _left(subject, left)
        stored = stored_confirmation(current.verdicts.get(metric, {}))
        if stored is not None:
            verdict = confirmed(verdict, stored)
        if not repeats_follow:
            verdict = settled(verdict)
        verdicts[metric] = _with_blindness(subject, verdict)
    return verdicts


def strictness_of(references: References, metrics: int) -> Strictness:
    """How strict the gate is at a site, with a test that has so many metrics.

    The metrics of one test share its part of the site's false alarms.
    """
    return strictness(references.judged_tests * metrics, references.false_reds_a_month)


def _before(current: Envelope, past: Sequence[Envelope]) -> list[Envelope]:
    """The runs of the same test that started before a run, in their order."""
    runs = sorted(of_test(current, past), key=order)
    started = bisect_right(runs, order(current), key=order)
    return [run for run in runs[:started] if run.key != current.key]


def _verdict(subject: Subject) -> Verdict:
    """The verdict on a run that has not left its series."""
    series = subject.series
    previous = dataclasses.replace(series, runs=series.runs[:-1])
    acceptance = subject.references.acceptance(series.test, series.metric, series.comparability, subject.night)
    pin = pin_of(previous, acceptance)
    if pin is None:
        return _learning(subject, learned(previous))
    if pin.level == 0:
        sentence = explanation.zero_sentence(subject)
        if series.runs[-1].value == 0:
            return _of(subject, Kind.OK, "0, as its pin", [sentence], runs=pin.runs, pinned=True)
        not_judged = _of(subject, Kind.BLIND, "not judged: its pin is 0", [sentence], runs=pin.runs, pinned=True)
        return dataclasses.replace(not_judged, blind=True)
    return _compared(subject, compare(series, pin, subject.strictness))


def _learning(subject: Subject, known: Sequence[RunValue]) -> Verdict:
    """The verdict on a run whose series has no pin yet: only a coarse step is seen."""
    series, run = subject.series, subject.series.runs[-1]
    level = median([value.value for value in known]) if len(known) >= COARSE_RUNS else 0.0
    if level != 0:
        limit = max(LARGE, estimates.step_limit(estimates.noise_of(series.changes(known, level))))
        far = [one for one in _unanswered(series) if series.change(one.value, level) < -limit]
        if far:
            return _coarse(subject, known, level, far[-1], limit)
    runs = len(known) + (1 if run.eligible else 0)
    lines = [explanation.learning_sentence(subject, runs), *explanation.doubts(subject)]
    return _of(subject, Kind.LEARNING, f"learning, {runs} of {PIN_RUNS} runs", lines, runs=runs)


def _unanswered(series: Series) -> list[RunValue]:
    """The last run; if it is in doubt, the last eligible one before it, too, since a run in doubt clears no red."""
    *earlier, run = series.runs
    if run.eligible:
        return [run]
    last = [one for one in earlier if one.eligible][-1:]
    return [*[one for one in last if not series.passed_step(one)], run]


def _coarse(subject: Subject, known: Sequence[RunValue], level: float, run: RunValue, limit: float) -> Verdict:
    found = LevelChange(Kind.SLOWER, run.value, subject.series.change(run.value, level), limit)
    causes = explanation.causes_between(subject, known, [run])
    lines = [
        explanation.coarse_sentence(subject, found, level, len(known), run.night),
        *explanation.doubts(subject),
        *explanation.why(subject, found, causes, known, [run], run.night),
    ]
    short = f"{percent(found.change)} from the median of {len(known)} runs, slower since {run.night}"
    verdict = _of(subject, found.kind, short, lines, found, since=run.night, runs=len(known), causes=causes)
    if run is subject.series.runs[-1]:
        verdict = _suspected(subject, verdict, level, found)
    return _answered(subject, verdict, [found], found.limit)


def _compared(subject: Subject, comparison: Comparison) -> Verdict:
    """The verdict on a run whose series has a pin."""
    verdict = _beside_pin(subject, comparison)
    return dataclasses.replace(verdict, level=comparison.pin.level, scale=comparison.noise.scale)


def _beside_pin(subject: Subject, comparison: Comparison) -> Verdict:
    findings = comparison.findings()
    runs = comparison.pin.runs
    doubts = explanation.doubts(subject)
    numbers = explanation.numbers(subject, comparison)
    if not findings:
        lines = [explanation.ok_sentence(subject, comparison), *doubts, *numbers]
        verdict = _of(subject, Kind.OK, "ok", lines, comparison.summary(), runs=runs, pinned=True)
        return _anchored(subject, verdict, comparison.summary().value, comparison)
    found = findings[0]
    extent = comparison.extent(found)
    change = dataclasses.replace(found, value=extent.value, change=extent.change, nights=extent.nights)
    since = comparison.since()
    before, after = explanation.around(comparison.runs_at_level(), comparison.start())
    causes = explanation.causes_between(subject, before, after)
    lines = [
        explanation.change_sentence(subject, comparison, change),
        *explanation.outlook(comparison, change),
        *explanation.this_run(comparison, found, change),
        *doubts,
        *explanation.why(subject, change, causes, before, after, since, comparison.since_run()),
        *numbers,
    ]
    word = "faster" if found.kind is Kind.FASTER else "slower"
    short = f"{percent(extent.change)}, {word} since {since}"
    verdict = _of(subject, found.kind, short, lines, found, since=since, runs=runs, pinned=True, causes=causes)
    verdict = dataclasses.replace(verdict, since_run=comparison.since_run(), extent=extent)
    if comparison.is_new_step:
        verdict = _suspected(subject, verdict, comparison.pin.level, found, again=comparison.again)
    verdict = _anchored(subject, verdict, extent.value, comparison)
    losses = [finding for finding in findings if finding.kind in RED]
    return _answered(subject, verdict, losses, comparison.step_limit)


def _suspected(subject: Subject, verdict: Verdict, level: float, found: LevelChange, *, again: bool = False) -> Verdict:
    """The verdict on a run that is far from its level by itself: a repeat must confirm it, unless it is known.

    Its nodes may be known: repeats have named them, no run there was good since, and the loss was like this one.
    """
    series = subject.series
    *earlier, run = series.runs
    eligible = [one for one in earlier if one.eligible]
    if eligible and series.was_red_step(eligible[-1]):
        return verdict
    change = series.change(run.value, level)
    suspect = Suspect(subject.current, series.metric, level, change, found.limit, again=again)
    there = [one for one in earlier if one.envelope.nodes and set(one.envelope.nodes) == set(subject.current.nodes)]
    slow = list(itertools.takewhile(lambda one: series.change(one.value, level) < -found.limit, reversed(there)))
    suspect = dataclasses.replace(suspect, since=(slow[-1] if slow else run).night)
    named = [one for one in there if repeats_named(one.said(series.metric))]
    if named and there[-1].said(series.metric).get("kind") == Kind.NODE:
        then = series.change(named[-1].value, level)
        known = known_node(suspect, named[-1].said(series.metric), then, named[-1].night)
        suspect = dataclasses.replace(suspect, known=known)
    return dataclasses.replace(verdict, suspect=suspect)


def _left(subject: Subject, left: Departure) -> Verdict:
    """The verdict on a run that has left a series that was learned."""
    series, pin = left.series, left.pin
    run = subject.series.runs[-1]
    change, limit = 0.0, estimates.LEAST_STEP  # of a pin of 0, or in another unit, nothing is a fraction
    own = subject.series
    is_one_unit = (own.unit, own.better) == (series.unit, series.better)
    if pin.level != 0 and is_one_unit:
        change = series.change(run.value, pin.level)
        limit = estimates.step_limit(noise_of_level(series, pin))
    found = LevelChange(Kind.LEFT, run.value, change, limit)
    before = series.runs[-explanation.RUNS_BEFORE :]
    causes = explanation.causes_between(subject, before, subject.series.runs)
    lines = [
        explanation.left_sentence(subject, left),
        *explanation.doubts(subject),
        explanation.left_numbers(subject, left, found),
        *explanation.why(subject, found, causes, before, subject.series.runs, left.since),
    ]
    short = f"left its series: {'; '.join(left.differences)}"
    verdict = _of(subject, Kind.LEFT, short, lines, found, since=left.since, runs=pin.runs, causes=causes)
    return _answered(subject, verdict, [found], found.limit)


def _of(
    subject: Subject,
    kind: Kind,
    short: str,
    lines: Sequence[str],
    found: LevelChange | None = None,
    *,
    runs: int,
    since: datetime.date | None = None,
    pinned: bool = False,
    causes: Causes | None = None,
) -> Verdict:
    verdict = Verdict(
        test=subject.series.test,
        metric=subject.series.metric,
        kind=kind,
        red=kind in RED,
        short=short,
        text="\n".join(lines),
        since=since,
        runs=runs,
        pinned=pinned,
        causes=causes,
    )
    if found is None:
        return verdict
    return dataclasses.replace(
        verdict, change=found.change, compared=found.value, compared_nights=found.nights, limit=found.limit
    )


def _anchored(subject: Subject, verdict: Verdict, value: float, comparison: Comparison) -> Verdict:
    """After an acceptance a verdict shows the distance from the series' first pin, too, which no acceptance moves."""
    acceptance = comparison.pin.acceptance
    if acceptance is None or acceptance.anchor == 0:
        return verdict
    change = subject.series.change(value, acceptance.anchor)
    short = f"{verdict.short} ({percent(change)} of the first pin)"
    return dataclasses.replace(verdict, short=short)


def _answered(subject: Subject, verdict: Verdict, losses: Sequence[LevelChange], limit_of_run: float) -> Verdict:
    """A red verdict is amber while an acknowledgement holds: until its day, and unless it is worse than then.

    Args:
        losses: all that is red.
        limit_of_run: how far a single run may be away from a level.
    """
    if not losses:
        return verdict
    verdict = dataclasses.replace(verdict, worst=_worst(verdict, losses))
    test, metric = verdict.test, verdict.metric
    answer = subject.references.acknowledgement(test, metric, subject.tonight)
    if answer is None:
        earlier = subject.references.acknowledgement(test, metric, datetime.date.min)
        return verdict if earlier is None else _with_line(verdict, explanation.expired_line(earlier))
    was_known_well = len(_runs_known_to(answer, subject, verdict)) >= KNOWN_RUNS
    for loss in losses:
        limit = loss.limit if was_known_well else max(loss.limit, limit_of_run)
        if loss.change < answer.change - limit:
            return _with_line(verdict, explanation.worse_line(answer, loss, limit))
    amber = _with_line(verdict, explanation.acknowledged_line(answer))
    short = f"acked until {answer.until}: {verdict.short}"
    return dataclasses.replace(amber, kind=Kind.ACKNOWLEDGED, red=False, short=short, suspect=None)


def _worst(verdict: Verdict, losses: Sequence[LevelChange]) -> float:
    """The loss that an acknowledgement is given for: its size since it began, unless something is clearly worse."""
    if verdict.extent is None:
        return min(loss.change for loss in losses)
    size = verdict.extent.change
    return min((loss.change for loss in losses if loss.change < size - loss.limit), default=size)


def _runs_known_to(answer: Acknowledgement, subject: Subject, verdict: Verdict) -> list[RunValue]:
    """The runs of a change that there were when it was acknowledged."""
    since = verdict.since or subject.night
    runs = subject.series.runs
    return [run for run in runs if run.night >= since and run.envelope.time_s <= answer.author.at.timestamp()]


def _with_blindness(subject: Subject, verdict: Verdict) -> Verdict:
    """A series without an eligible run for three nights is blind, whatever else is said of it.

    Tonight is one of them only if it has this run: it is not over.
    """
    day = datetime.timedelta(days=1)
    runs = subject.series.runs
    last = next((run.night for run in reversed(runs) if run.eligible), runs[0].night - day)
    nights = (max(subject.night, subject.tonight - day) - last).days
    if nights < BLIND_NIGHTS:
        return verdict
    verdict = dataclasses.replace(verdict, blind=True)
    said = f"blind since {last + day}: no run without doubt for {nights} nights"
    if verdict.kind in CALM:
        text = f"{verdict.test}: {subject.name} is {said}\n{verdict.text}"
        return dataclasses.replace(verdict, kind=Kind.BLIND, short=said, text=text)
    verdict = dataclasses.replace(verdict, short=f"{verdict.short}; blind since {last + day}")
    return _with_line(verdict, f"The series is {said}.")


def _with_line(verdict: Verdict, line: str) -> Verdict:
    """The same verdict with a line after its first one."""
    first, *rest = verdict.text.split("\n")
    return dataclasses.replace(verdict, text="\n".join([first, line, *rest]))
