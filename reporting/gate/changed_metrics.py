"""Which metrics a test does not record any more, and which have another unit or direction than in its last run."""

from __future__ import annotations

import datetime
from collections.abc import Sequence

from platforms.job import Metric
from reporting.gate.explanation import number
from reporting.gate.series import of_test, order
from reporting.history.envelope import Envelope
from reporting.history.nights import night_of


def changed_metrics(current: Envelope, past: Sequence[Envelope], night_ends: datetime.time) -> list[str]:
    """Sentences on the metrics of a test's last run that the current run lacks, or has in another unit or direction.

    Args:
        current: a sane run.
        past: the history. Runs of other tests, and runs that started later, are left out.
        night_ends: the hour at which the site's nights end.
    """
    others = [run for run in of_test(current, past) if run.key.run_id != current.key.run_id]
    last = max((run for run in others if order(run) < order(current)), key=order, default=None)
    if last is None:
        return []
    lines = []
    for name, was in last.metrics.items():
        now = current.metrics.get(name)
        if now is None:
            night = night_of(last.time_s, night_ends)
            value = f"{number(was.value, was.value)} {was.unit}".strip()
            lines.append(f"{name} is no longer recorded; its last value, {value}, is of {night}")
        else:
            lines += _differences(name, was, now)
    return lines


def _differences(name: str, was: Metric, now: Metric) -> list[str]:
    lines = []
    if now.unit != was.unit:
        lines.append(f"{name} is in {now.unit or 'no unit'} now, was in {was.unit or 'no unit'}: a new series")
    if now.better != was.better:
        lines.append(f"{name} is better when it is {now.better} now, was when {was.better}: a new series")
    return lines
