"""The series of one metric: the runs that are comparable, in order, and the pin that they are compared with."""

from __future__ import annotations

import datetime
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from statistics import median
from typing import Any, Literal, NamedTuple

from reporting.compare.interval import sign_of
from reporting.gate import estimates
from reporting.gate.estimates import PIN_RUNS
from reporting.gate.verdict import Kind
from reporting.history.comparability import asked, differences
from reporting.history.envelope import Envelope, Metric
from reporting.history.nights import night_of
from reporting.references.answers import Acceptance, References

# Verdicts of runs that are at the level of their pin. The others say nothing about its noise.
CALM = frozenset({Kind.OK, Kind.LEARNING, Kind.BLIND})
# Steps that no repeat has confirmed. They stay red only if they are large.
UNCONFIRMED = frozenset({Kind.TRANSIENT, Kind.SUSPECT})
# Repeats have shown that such a run was slow through its nodes, or by chance. It is no part of a lasting change.
EXCEPTIONAL = frozenset({Kind.NODE, Kind.TRANSIENT})


SAME_ANCHOR = 0.05  # two levels of one series' first runs differ by less


class RunValue(NamedTuple):
    """The value of one run id in a series.

    Attributes:
        value: the median, if the run has several jobs.
        eligible: it may fill a pin, stand in a window and clear a red.
        calm: it is eligible, and no stored verdict says that it was away from the pin.
        envelope: of the last job.
        judged: a verdict is stored. Imported runs have none, nor have those of `--gate=off`.
    """

    run_id: str
    night: datetime.date
    value: float
    eligible: bool
    calm: bool
    envelope: Envelope
    judged: bool = True

    def said(self, metric: str) -> Mapping[str, Any]:
        """The stored verdict on a metric of the run; empty if there is none."""
        stored: Mapping[str, Any] = self.envelope.verdicts.get(metric, {})
        return stored


@dataclass(frozen=True)
class Series:
    """Comparable runs of one test and metric, in the order of their starts."""

    test: str
    metric: str
    unit: str
    better: Literal["higher", "lower"]
    comparability: str
    runs: tuple[RunValue, ...]

    def change(self, value: float, level: float) -> float:
        """A value relative to a level, as a fraction; negative is worse, whichever direction is better."""
        return estimates.change_from(level, value, self.better)

    def changes(self, runs: Iterable[RunValue], level: float) -> list[float]:
        """The changes of several runs."""
        sign, size = sign_of(self.better), abs(level)  # once, and not for each run
        return [sign * (run.value - level) / size for run in runs]

    def value_at(self, change: float, level: float) -> float:
        """The value that is so far from a level."""
        return level + sign_of(self.better) * change * abs(level)

    def worse(self, one: float, other: float) -> float:
        """The worse of two values."""
        return min(one, other, key=lambda value: sign_of(self.better) * value)

    def passed_step(self, run: RunValue) -> bool:
        """Whether a run was far from its pin, and passed since no repeat had confirmed that."""
        said = run.said(self.metric)
        return said.get("kind") in UNCONFIRMED and not said.get("red")

    def was_red_step(self, run: RunValue) -> bool:
        """Whether a run was red by itself, and a repeat had confirmed that."""
        said = run.said(self.metric)
        return said.get("kind") == Kind.SLOWER and bool(said.get("red"))

    def was_exceptional(self, run: RunValue) -> bool:
        """Whether repeats have shown that a run was slow through its nodes, or by chance."""
        return run.said(self.metric).get("kind") in EXCEPTIONAL

    def eligible_since(self, night: datetime.date) -> list[RunValue]:
        """The eligible runs of a night and all later ones."""
        return [run for run in self.runs if run.eligible and run.night >= night]


@dataclass(frozen=True)
class Pin:
    """What a series is compared with.

    Attributes:
        level: in the metric's unit.
        first, last: the nights of the first and last run that it was learned from; for an acceptance `last` is None.
        runs: how many runs it was learned from.
        acceptance: the answer that has moved it.
    """

    level: float
    first: datetime.date
    last: datetime.date | None
    runs: int
    acceptance: Acceptance | None = None

    def error(self, noise: estimates.Noise) -> float:
        """The standard error of its level, as a fraction."""
        return estimates.error_of_median(noise, self.runs) if self.acceptance is None else self.acceptance.error


def order(envelope: Envelope) -> tuple[float, str, str]:
    """Runs are sorted by this. It does not depend on files and lines."""
    return envelope.time_s, envelope.key.run_id, str(envelope.key.job_id)


def series_of(metric: str, like: Envelope, envelopes: Iterable[Envelope], night_ends: datetime.time) -> Series:
    """The series of a metric that a run belongs to.

    Args:
        metric: its name.
        like: the run. Its site, test, comparability, unit and direction are those of the series.
        envelopes: of any tests, in any order. What does not belong to the series is left out.
        night_ends: the hour at which the site's nights end.
    """
    return series_of_sorted(metric, like, sorted(of_test(like, envelopes), key=order), night_ends)


def series_of_sorted(metric: str, like: Envelope, in_order: Iterable[Envelope], night_ends: datetime.time) -> Series:
    """The same, of envelopes that `of_test` has found and that are in their order."""
    wanted = like.metrics[metric]
    jobs: dict[str, list[Envelope]] = {}
    for envelope in in_order:
        found = envelope.metrics.get(metric)
        if envelope.comparability != like.comparability or found is None or not math.isfinite(found.value):
            continue
        if found.unit == wanted.unit and found.better == wanted.better:
            jobs.setdefault(envelope.key.run_id, []).append(envelope)
    runs = [_run_value(metric, jobs_of_run, night_ends) for jobs_of_run in jobs.values()]
    if any(len(of_run) > 1 for of_run in jobs.values()):  # the last job of a run may be later than the next run
        runs.sort(key=lambda run: order(run.envelope))
    return Series(
        test=like.key.test,
        metric=metric,
        unit=wanted.unit,
        better=wanted.better,
        comparability=like.comparability,
        runs=tuple(runs),
    )


def of_test(like: Envelope, envelopes: Iterable[Envelope]) -> list[Envelope]:
    """The sane runs of a run's test at its own site, without those of campaigns.

    Sites that share a history may have tests of one name.
    """
    return [
        run
        for run in envelopes
        if run.key.test == like.key.test and run.key.site == like.key.site and run.sane and run.trial.in_series
    ]


def _run_value(metric: str, jobs: Sequence[Envelope], night_ends: datetime.time) -> RunValue:
    """One value of the jobs of one run. Jobs in doubt count only if there is no other."""
    counted = [job for job in jobs if not job.doubts]  # which makes it eligible: all are of a series, and sane
    eligible = calm = bool(counted)
    judged = True
    for job in counted or jobs:
        stored = job.verdicts.get(metric)
        if stored is None:
            judged = False
        elif stored.get("red") or stored.get("kind", Kind.OK) not in CALM:
            calm = False
    last = (counted or jobs)[-1]
    value = last.metrics[metric].value
    if len(jobs) > 1:
        value = median([job.metrics[metric].value for job in counted or jobs])
    return RunValue(last.key.run_id, night_of(last.time_s, night_ends), value, eligible, calm, last, judged)


def learned(series: Series) -> list[RunValue]:
    """The runs that the pin consists of, at most 20: the first eligible ones that were not red."""
    return list(islice((run for run in series.runs if run.calm), PIN_RUNS))


def pin_of(series: Series, acceptance: Acceptance | None) -> Pin | None:
    """The pin of a series; None while it learns.

    An acceptance in another unit does not count, nor one that is older than the values of the series, if its anchor
    shows that the id had other values then.
    """
    runs = learned(series)
    if acceptance is not None and (acceptance.unit, acceptance.better) == (series.unit, series.better):
        first = median([run.value for run in runs]) if runs else math.inf
        if acceptance.comparability == series.comparability or abs(first / acceptance.anchor - 1) < SAME_ANCHOR:
            return Pin(acceptance.level, acceptance.since, None, len(acceptance.runs), acceptance)
    if len(runs) < PIN_RUNS:
        return None
    return Pin(median([run.value for run in runs]), runs[0].night, runs[-1].night, len(runs))


@dataclass(frozen=True)
class Departure:
    """A run has left a series that was learned, through something that was measured.

    Attributes:
        series: the one that was left, and its pin.
        differences: a sentence for each field that differs.
        since: the first night of the new series.
    """

    series: Series
    pin: Pin
    differences: tuple[str, ...]
    since: datetime.date


def departure(
    metric: str, current: Envelope, past: Sequence[Envelope], references: References, night_ends: datetime.time
) -> Departure | None:
    """Whether a run has left a learned series: the same was asked for, and something else was measured.

    So has one whose metric has another unit or direction: a loss could hide behind it. A series that began before the
    other one was learned is a series of its own, and so is one that was accepted.
    """
    wanted = current.metrics[metric]
    test = current.key.test
    night = night_of(current.time_s, night_ends)
    accepted = references.acceptance(test, metric, current.comparability, night)
    if accepted is not None and (accepted.unit, accepted.better) == (wanted.unit, wanted.better):
        return None
    own = _series_key(metric, current)
    if all(metric not in run.metrics or _series_key(metric, run) == own for run in past):
        return None  # as for nearly all tests: there is no other series
    with_metric = [run for run in of_test(current, past) if metric in run.metrics]
    same_test = sorted([*with_metric, current], key=order)
    first = next(run for run in same_test if _series_key(metric, run) == own)
    found = None
    for like in _last_of_each_series(metric, same_test, current):
        earlier = [run for run in same_test if order(run) < order(first)]
        series = series_of(metric, like, earlier, night_ends)
        pin = pin_of(series, references.acceptance(test, metric, like.comparability, night))
        if pin is not None:
            changed = (*differences(like.fields, current.fields), *unit_differences(like.metrics[metric], wanted))
            found = Departure(series, pin, changed, night_of(first.time_s, night_ends))
    return found


def unit_differences(was: Metric, now: Metric) -> list[str]:
    """Sentences on the unit and the direction of a metric, if they have changed."""
    found = []
    if now.unit != was.unit:
        found.append(f"is in {now.unit or 'no unit'} now, was in {was.unit or 'no unit'}")
    if now.better != was.better:
        found.append(f"is better when it is {now.better} now, was when {was.better}")
    return found


def _series_key(metric: str, run: Envelope) -> tuple[str, str, str]:
    measured = run.metrics[metric]
    return run.comparability, measured.unit, measured.better


def _last_of_each_series(metric: str, runs: Sequence[Envelope], current: Envelope) -> list[Envelope]:
    """The last run of each other series of a metric for which the same was asked, the latest series last."""
    own = _series_key(metric, current)
    last = {key: run for run in runs if (key := _series_key(metric, run)) != own}
    wanted = asked(current.fields)
    return sorted((run for run in last.values() if asked(run.fields) == wanted), key=order)
