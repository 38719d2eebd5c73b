"""What a contract promises (`committed:` of a platform's file): whether a run meets it, and how many in a row have.

It needs no pin, and no pin, scale or red of the gate depends on it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import NamedTuple

from platforms.config import loading, yaml_lines
from platforms.config.keys import CommittedKeys
from platforms.config.schema import Platform
from platforms.job import Outcome
from reporting.gate.estimates import change_from
from reporting.gate.series import order
from reporting.history.envelope import Envelope, Metric
from reporting.phrases import percent, plain, size, spaced

WORDS: Mapping[str, tuple[str, str]] = {"higher": ("least", "below"), "lower": ("most", "above")}


@dataclass(frozen=True)
class Commitment:
    """One committed value: the item with this index in the file of a platform."""

    keys: CommittedKeys
    file: Path
    index: int

    def __str__(self) -> str:
        value = self.keys.value
        return f"{spaced(self.keys.metric)}, at {WORDS[value.better][0]} {plain(value.value, 6)} {value.unit}"

    def change(self, value: float) -> float:
        """A value beside the committed one, as a fraction; negative is worse."""
        return change_from(self.keys.value.value, value, self.keys.value.better)

    def missed(self, value: float) -> str:
        """The sentence on a value that misses it."""
        level = self.keys.value
        change = f"{size(-self.change(value), 1)} {WORDS[level.better][1]}"
        measured = f"{spaced(self.keys.metric)} {plain(value, 6)} {level.unit}"
        return f"{measured} is {change} the committed {plain(level.value, 6)} ({self.keys.source})"

    def mistake(self, key: str, what: str) -> str:
        """A sentence on a mistake in one of its keys, with file and line."""
        document = yaml_lines.read(self.file)
        document.complaints.clear()
        document.complain(("committed", self.index, key), what)
        return document.problems[0]

    def misfit(self, metrics: Mapping[str, Metric]) -> str | None:
        """A sentence on why it cannot be compared with what its test has recorded; None if it can."""
        found = metrics.get(self.keys.metric)
        if found is None:
            nearest = loading.nearest(self.keys.metric, metrics)
            return self.mistake("metric", f"the test records no {self.keys.metric!r} {nearest}")
        if not self.fits(found):
            write = f"at {WORDS[found.better][0]} … {found.unit}"
            return self.mistake("value", f"its unit is {found.unit}, and {found.better} is better (write {write})")
        return None

    def fits(self, found: Metric) -> bool:
        """Whether a number has the unit and the direction of the committed one."""
        return (found.unit, found.better) == (self.keys.value.unit, self.keys.value.better)


class Counted(NamedTuple):
    """A run beside a committed value. `is_met` is None where it counts neither way; `said` is why."""

    job: Envelope
    value: float | None
    is_met: bool | None
    said: str


def commitments(platforms: Iterable[Platform]) -> list[Commitment]:
    """What is committed of these platforms."""
    return [
        Commitment(keys, platform.source, index)
        for platform in platforms
        for index, keys in enumerate(platform.committed)
    ]


def counted(commitment: Commitment, envelopes: Iterable[Envelope]) -> list[Counted]:
    """The runs of its test at the site of the last one, in the order of their starts.

    Of two envelopes with one key the later one counts. Repeats of suspects, campaigns and visits to nodes are left out.
    """
    of_test = [run for run in envelopes if run.key.test == commitment.keys.test and run.trial.in_series]
    of_site = {run.key: run for run in of_test if run.key.site == of_test[-1].key.site}
    runs: dict[str, list[Envelope]] = {}
    for envelope in sorted(of_site.values(), key=order):
        runs.setdefault(envelope.key.run_id, []).append(envelope)
    return [_counted(commitment, jobs) for jobs in runs.values()]


def _counted(commitment: Commitment, jobs: Sequence[Envelope]) -> Counted:
    """One run. The value of several jobs is their median; a test that failed on its own has missed every value."""
    metric = commitment.keys.metric
    with_value = [job for job in jobs if job.sane and metric in job.metrics and commitment.fits(job.metrics[metric])]
    eligible = [job for job in with_value if job.eligible]
    last = (eligible or with_value or jobs)[-1]
    if not with_value:
        is_met = False if last.outcome is Outcome.FAILED else None
        return Counted(last, None, is_met, f"no number: {last.outcome.value}")
    value = median([job.metrics[metric].value for job in eligible or with_value])
    if not eligible:
        return Counted(last, value, None, f"in doubt: {', '.join(last.doubts)}")
    change = commitment.change(value)
    return Counted(last, value, change >= 0, f"{'met' if change >= 0 else 'missed'}, {percent(change)}")


def standing(commitment: Commitment, runs: Sequence[Counted]) -> str:
    """Whether it is met: how many runs in a row have met it, up to the last one."""
    in_a_row = 0
    for run in reversed(runs):
        if run.is_met is False:
            break
        in_a_row += run.is_met is True
    if in_a_row >= commitment.keys.runs:
        return f"met in {in_a_row} consecutive runs"
    return f"met in {in_a_row} of {commitment.keys.runs} consecutive runs so far"
