"""The table of a session's jobs: how long each waited and for what, how long it ran, and its device-hours."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from platforms.config.values import short_clock
from reporting.columns import aligned

HEADINGS = ("job", "setting", "platform", "ended as", "for a place", "in the queue", "to start", "ran", "device-hours")
TEXT_COLUMNS = range(4)


@dataclass(frozen=True)
class Spent:
    """What one job waited for and took, in seconds; None where that is not known.

    Attributes:
        setting: what its test's id says after the layout, as in `tuned-smoke`; "" for nothing.
        place_s: the wait for a slot of its platform (`max_running:`), before it was submitted. Not known of a job
            that an earlier session submitted.
        queue_s: the wait at its scheduler.
        start_s: from its start to its first batch: imports, data, the device.
        run_s: the whole time on its devices.
    """

    name: str
    setting: str
    platform: str
    state: str
    place_s: float | None
    queue_s: float | None
    start_s: float | None
    run_s: float | None
    devices: int

    @property
    def device_hours(self) -> float:
        return 0.0 if self.run_s is None else self.devices * self.run_s / 3600


def account(jobs: Sequence[Spent]) -> list[str]:
    """Lines to print: a row for each job, and the sum."""
    lines = aligned([HEADINGS, *map(_cells, jobs)], TEXT_COLUMNS)
    total = sum(job.device_hours for job in jobs)
    return [lines[0], "-" * max(map(len, lines)), *lines[1:], f"{len(jobs)} jobs, {total:.3g} device-hours"]


def _cells(job: Spent) -> tuple[str, ...]:
    times = (job.place_s, job.queue_s, job.start_s, job.run_s)
    return (job.name, job.setting or "-", job.platform, job.state, *map(clock, times), f"{job.device_hours:.3g}")


def clock(seconds: float | None) -> str:
    """`4.2 s`, `12:05`, `3:00:00`."""
    if seconds is None:
        return "-"
    return f"{seconds:.1f} s" if seconds < 60 else short_clock(round(seconds))
