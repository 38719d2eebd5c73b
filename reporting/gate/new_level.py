"""The level that an acceptance puts in place of a pin, computed from runs of the history.

An acceptance keeps the noise of the pin before it, so that the gate sees from the first night on. The level's own error
widens the limits.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from platforms.job import RefusedError
from reporting.compare.robust import MEDIAN_PER_MEAN, scaled_mad
from reporting.gate import estimates
from reporting.gate.course import noise_of_level
from reporting.gate.estimates import Noise
from reporting.gate.explanation import RUNS_TO_ACCEPT, eligible_from, exceptional_from
from reporting.gate.series import Pin, RunValue, Series, departure, order, pin_of, series_of
from reporting.history.envelope import Envelope
from reporting.phrases import counted, size
from reporting.references.answers import Acceptance, Author, References

DIGITS = 6  # that an answer has


@dataclass(frozen=True)
class NewLevel:
    """A level, and what it is made of.

    Attributes:
        level: in the metric's unit.
        error: its standard error, as a fraction.
        noise: of the pin before, which is kept.
        runs: what the level is made of.
        left_out: runs since then that were slow through a node or by chance.
        old_level, old_error: of the pin that it replaces; None if the series had none, or if it was 0.
        anchor: the level of the series' first pin of all.
        spread: the scaled MAD of the runs, as a fraction of the level.
        error_text, scale_text, anchor_text: where these come from.
    """

    series: Series
    since: datetime.date
    level: float
    error: float
    noise: Noise
    runs: Sequence[RunValue]
    old_level: float | None
    old_error: float | None
    anchor: float
    spread: float
    error_text: str
    scale_text: str = "as before"
    anchor_text: str = "the first pin"
    left_out: Sequence[RunValue] = ()

    def acceptance(self, reason: str, author: Author) -> Acceptance:
        """The answer that puts this level in place of the pin."""
        return Acceptance(
            test=self.series.test,
            metric=self.series.metric,
            unit=self.series.unit,
            better=self.series.better,
            comparability=self.series.comparability,
            since=self.since,
            level=_rounded(self.level),
            error=_rounded(self.error),
            scale=_rounded(self.noise.scale),
            runs=tuple(dict.fromkeys(run.run_id for run in self.runs)),
            anchor=_rounded(self.anchor),
            reason=reason,
            author=author,
            autocorrelation=_rounded(self.noise.autocorrelation),
        )

    def drift_limit(self, pin_error: float) -> float:
        """The limit of seven nights together, beside a pin with this error."""
        error = estimates.standard_error_of_change(self.noise, estimates.WINDOW_NIGHTS, pin_error)
        return estimates.drift_limit(error)


def _rounded(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")


def level_since(
    since: datetime.date | str,
    metric: str,
    envelopes: Sequence[Envelope],
    references: References,
    night_ends: datetime.time,
) -> NewLevel:
    """The level of the series to which the last run belongs, from its eligible runs since a night or a run.

    Args:
        since: the night, or the id of the run.
        envelopes: of one test.

    Raises:
        RefusedError: there are fewer than five of them, or the series began later.
    """
    last = _measured(metric, envelopes)[-1]
    series = series_of(metric, last, envelopes, night_ends)
    runs = eligible_from(series, since)
    left_out = exceptional_from(series, since)
    night = _first_night(series, since)
    if len(runs) < RUNS_TO_ACCEPT:
        raise RefusedError(_too_few(series, night, runs, left_out))
    level = median([run.value for run in runs])
    if level == 0:
        raise RefusedError(f"{series.test}: the median of the runs since {since} is 0, and 0 cannot be a pin")
    scale_text = NewLevel.scale_text
    anchor_text = NewLevel.anchor_text
    pin = pin_of(series, references.acceptance(series.test, metric, series.comparability))
    left = departure(metric, last, envelopes, references, night_ends)
    why_new = "the series had no pin"
    if pin is not None and pin.level == 0:  # nothing is a fraction of it
        pin, why_new = None, "the pin was 0"
    if left is not None and (left.series.unit, left.series.better) != (series.unit, series.better):
        left, why_new = None, "the pin was in another unit or direction"
    if left is not None and left.pin.level != 0:
        # The new runs become a series, with the noise and the anchor of the one that was left.
        pin = left.pin
        noise = noise_of_level(left.series, left.pin)
        anchor = _anchor(left.pin)
    elif pin is not None:
        noise = noise_of_level(series, pin)
        anchor = _anchor(pin)
    else:
        eligible = eligible_from(series, series.runs[0].night)
        before = eligible[: len(eligible) - len(runs)]
        has_level = len(before) >= RUNS_TO_ACCEPT and median([run.value for run in before]) != 0
        known = before if has_level else runs
        which = f"the {len(known)} runs before" if known is before else "these runs"
        scale_text = f"as {which} vary, since {why_new}"
        anchor_text = f"the median of {which}"
        anchor = median([run.value for run in known])
        noise = estimates.noise_of(series.changes(known, anchor))
    inflation = estimates.inflation(noise.autocorrelation, len(runs))
    return NewLevel(
        series=series,
        since=night,
        level=level,
        error=estimates.error_of_median(noise, len(runs)),
        noise=noise,
        runs=runs,
        old_level=None if pin is None else pin.level,
        old_error=None if pin is None else _error(pin, noise),
        anchor=anchor,
        spread=scaled_mad(series.changes(runs, level)),
        error_text=f"= {MEDIAN_PER_MEAN} x scale x sqrt({inflation:.2f} / {len(runs)})",
        scale_text=scale_text,
        anchor_text=anchor_text,
        left_out=left_out,
    )


def _first_night(series: Series, since: datetime.date | str) -> datetime.date:
    """The night of a run, or the night itself. Raises RefusedError if the series has no such run, or began later."""
    first = series.runs[0].night
    if isinstance(since, datetime.date):
        if since < first:
            raise RefusedError(
                f"--since: {since} is before the first comparable run of {series.test}, which is of the night of "
                f"{first} (if all of its runs are one level, type --since {first})"
            )
        return since
    for run in series.runs:
        if run.run_id == since:
            return run.night
    raise RefusedError(f"--since: the run {since} of {series.test} is not comparable with its last run")


def _error(pin: Pin, noise: Noise) -> float:
    """The standard error of a pin, as a fraction of it."""
    if pin.acceptance is not None:
        return pin.acceptance.error
    return estimates.error_of_median(noise, pin.runs)


def _anchor(pin: Pin) -> float:
    """The level of the first pin. An acceptance hands it on unchanged."""
    return pin.level if pin.acceptance is None else pin.acceptance.anchor


def _measured(metric: str, envelopes: Sequence[Envelope]) -> list[Envelope]:
    """The runs that have the metric, in order of their starts. The caller has chosen one that some have."""
    of_series = [run for run in envelopes if run.sane and run.trial.in_series and metric in run.metrics]
    return sorted(of_series, key=order)


def left_out_sentence(runs: Sequence[RunValue]) -> str:
    """Which runs are no part of a level, since repeats have shown that a node or chance made them slow."""
    count = counted(len(runs), "run does", "runs do")
    ids = ", ".join(run.run_id for run in runs)
    return f"{count} not count, since repeats named a node or were normal: {ids}"


def _too_few(series: Series, since: datetime.date, runs: Sequence[RunValue], left_out: Sequence[RunValue]) -> str:
    """How many runs there are, and which ones do not count."""
    beside = ""
    in_doubt = len([run for run in series.runs if run.night >= since and not run.eligible])
    if in_doubt:
        beside = f" ({in_doubt} more are in doubt, and do not count)"
    if left_out:
        beside += f" ({left_out_sentence(left_out)})"
    return (
        f"{series.test}: there are {len(runs)} of the {RUNS_TO_ACCEPT} runs that a level needs since the night of "
        f"{since}{beside}"
    )


def carried_level(
    metric: str, envelopes: Sequence[Envelope], references: References, night_ends: datetime.time
) -> tuple[NewLevel, str]:
    """The pin of a test's old workload version, times the ratio of the new version's numbers to the old one's.

    The ratio is the median of the nights in which both were measured.

    Args:
        envelopes: of one test.

    Returns:
        The level of the new series, and a sentence that says where it comes from.

    Raises:
        RefusedError: there are no two such versions, or fewer than five such nights.
    """
    runs = _measured(metric, envelopes)
    first = {run.comparability: run for run in reversed(runs)}
    new = max(first.values(), key=order)
    last = {run.comparability: run for run in runs}
    candidates = [run for run in last.values() if set(_different_fields(run, new)) == {"workload_version"}]
    olds = []
    for candidate in sorted(candidates, key=order):
        series = series_of(metric, candidate, envelopes, night_ends)
        pin = pin_of(series, references.acceptance(series.test, metric, series.comparability))
        if pin is not None and pin.level != 0:
            olds.append((series, pin, _version(candidate)))
    if not olds:
        raise RefusedError(
            f"{new.key.test}: no series with a pin differs from the newest one in workload_version only, "
            "so there is no pin to carry over"
        )
    old, pin, version = olds[-1]
    series = series_of(metric, last[new.comparability], envelopes, night_ends)
    nights = _nights_of_both(old, series)
    if len(nights) < RUNS_TO_ACCEPT:
        raise RefusedError(
            f"{series.test}: {len(nights)} of the {RUNS_TO_ACCEPT} nights are there in which both workload versions, "
            f"{version} and {_version(new)}, have runs without doubt "
            "(pytest --code COMMIT measures the old one beside the new one)"
        )
    if any(_value(each, night) == 0 for each in (series, old) for night in nights):
        raise RefusedError(f"{series.test}: a night's value is 0, so there is no ratio")
    ratios = [_value(series, night) / _value(old, night) for night in nights]
    ratio = median(ratios)
    spread = estimates.noise_of([one / ratio - 1 for one in ratios])
    error = estimates.error_of_median(spread, len(ratios))
    noise = noise_of_level(old, pin)
    old_error = _error(pin, noise)
    evidence = [run for each in (series, old) for run in each.runs if run.eligible and run.night in nights]
    level = NewLevel(
        series=series,
        since=nights[0],
        level=pin.level * ratio,
        error=math.hypot(old_error, error),
        noise=noise,
        runs=evidence,
        old_level=pin.level,
        old_error=old_error,
        anchor=_anchor(pin) * ratio,
        spread=spread.deviation,
        error_text=f"= sqrt({size(old_error)}^2 + {size(error)}^2), of the old pin and of the ratio",
    )
    sentence = (
        f"carried over from workload version {version}, pin {_rounded(pin.level)} {old.unit}, by new / old = "
        f"{ratio:.4f} +- {error:.4f}, the median of {len(nights)} nights"
    )
    return level, sentence


def _version(envelope: Envelope) -> str:
    return str(envelope.fields.get("workload_version", "unknown"))


def _different_fields(one: Envelope, other: Envelope) -> list[str]:
    names = {*one.fields, *other.fields}
    return [name for name in names if one.fields.get(name) != other.fields.get(name)]


def _nights_of_both(one: Series, other: Series) -> list[datetime.date]:
    nights = [{run.night for run in series.runs if run.eligible} for series in (one, other)]
    return sorted(nights[0] & nights[1])


def _value(series: Series, night: datetime.date) -> float:
    return median([run.value for run in series.runs if run.eligible and run.night == night])
