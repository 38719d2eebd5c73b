"""Which metrics a test does not record any more, and which have another unit or direction than in its last run."""

from __future__ import annotations

import datetime
from collections.abc import Sequence

from reporting.gate.series import of_test, order, unit_differences
from reporting.history.envelope import Envelope
from reporting.history.nights import night_of
from reporting.phrases import number


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
            lines += [f"{name} {difference}: a new series" for difference in unit_differences(was, now)]
    return lines
