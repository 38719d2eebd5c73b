"""What a session's jobs have cost: how long each waited, and for what, how long it ran, and device-hours."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from platforms.config.values import short_clock
from reporting.columns import aligned

HEADINGS = ("job", "setting", "platform", "ended as", "for a place", "in the queue", "to start", "ran", "device-hours")
WORDS = range(4)  # columns that are no numbers


@dataclass(frozen=True)
class Spent:
    """One job. Seconds; None where they are not known, as of a job that an earlier session submitted.

    `setting` is what its test's id says after the layout, which the job's name does not: `tuned-smoke`, "" for nothing.
    `place_s` it waited with us, since its platform takes no more jobs at a time (`max_running:`); `queue_s` at its
    scheduler; `start_s` went from its start into imports, data and the device, before the first batch; `run_s` is all
    of its time there, on so many devices.
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
    """Lines to print: a row a job, and the sum."""
    lines = aligned([HEADINGS, *map(_cells, jobs)], WORDS)
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
