"""What each run of a test is compared with: the first pin of its series, or the level that people accepted since."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence

from reporting.gate.series import Pin, Series, pin_of, series_of
from reporting.history.envelope import Envelope
from reporting.history.nights import night_of
from reporting.references.answers import References


class Pins:
    """The pins of one test. Each series is read once, however many runs it has."""

    def __init__(self, jobs: Sequence[Envelope], references: References, night_ends: datetime.time) -> None:
        self._jobs = jobs
        self._references = references
        self._night_ends = night_ends
        self._learned: dict[tuple[str, ...], tuple[Series, Pin | None]] = {}

    def of(self, run: Envelope) -> Mapping[str, float]:
        """The levels that counted in the night of a run, by metric. A metric without a pin is missing."""
        night = night_of(run.time_s, self._night_ends)
        found = {}
        for metric in run.metrics:
            series, first = self._series(metric, run)
            acceptance = self._references.acceptance(run.key.test, metric, run.comparability, night)
            pin = first
            if acceptance is not None:
                pin = pin_of(series, acceptance)
            if pin is not None:
                found[metric] = pin.level
        return found

    def _series(self, metric: str, run: Envelope) -> tuple[Series, Pin | None]:
        measured = run.metrics[metric]
        key = (metric, run.comparability, measured.unit, measured.better)
        if key not in self._learned:
            series = series_of(metric, run, self._jobs, self._night_ends)
            self._learned[key] = (series, pin_of(series, None))
        return self._learned[key]
