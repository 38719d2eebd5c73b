"""What a session's jobs have cost: how long each waited, and for what, how long it ran, and device-hours."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

HEADINGS = ("job", "platform", "ended as", "for a place", "in the queue", "to start", "ran", "device-hours")
WORDS = 3  # columns that are no numbers


@dataclass(frozen=True)
class Spent:
    """One job. Seconds; None where nobody knows, as of a job that an earlier session submitted.

    `place_s` it waited with us, since its platform takes no more jobs at a time (`max_running:`); `queue_s` at its
    scheduler; `start_s` went from its start into imports, data and the device, before the first batch; `run_s` is all
    of its time there, on so many devices.
    """

    name: str
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
    rows = [HEADINGS, *(_cells(job) for job in jobs)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADINGS))]
    total = sum(job.device_hours for job in jobs)
    lines = ["  ".join(_padded(row, widths)).rstrip() for row in rows]
    return [lines[0], "-" * max(map(len, lines)), *lines[1:], f"{len(jobs)} jobs, {total:.3g} device-hours"]


def _cells(job: Spent) -> tuple[str, ...]:
    times = (job.place_s, job.queue_s, job.start_s, job.run_s)
    return (job.name, job.platform, job.state, *map(clock, times), f"{job.device_hours:.3g}")


def _padded(row: Sequence[str], widths: Sequence[int]) -> list[str]:
    return [
        cell.ljust(width) if column < WORDS else cell.rjust(width)
        for column, (cell, width) in enumerate(zip(row, widths, strict=True))
    ]


def clock(seconds: float | None) -> str:
    """`4.2 s`, `12:05`, `3:00:00`."""
    if seconds is None:
        return "-"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
