"""The table of a session's jobs: how long each waited and for what, how long it ran, and its device-hours."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from platforms.config.durations import short_clock
from reporting.columns import aligned
from reporting.phrases import counted

COMPILED = "compiled"
HEADINGS = (
    *("job", "setting", "platform", "ended as", "for a place", "in the queue", "to start", COMPILED, "ran"),
    "device-hours",
)
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
        compile_s: of that time, the part in which the device's program was compiled.
        compile_cache: `hit` if a compiled program was found, `miss` if it was made; None: not known.
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
    compile_s: float | None = None
    compile_cache: str | None = None

    @property
    def device_hours(self) -> float:
        return 0.0 if self.run_s is None else self.devices * self.run_s / 3600


def account(jobs: Sequence[Spent]) -> list[str]:
    """Lines to print: a row for each job, and the sum. Compilation has a column if a job has compiled."""
    rows = [HEADINGS, *map(_cells, jobs)]
    if not any(map(_compiled, jobs)):
        rows = [tuple(cell for cell, name in zip(row, HEADINGS, strict=True) if name != COMPILED) for row in rows]
    lines = aligned(rows, TEXT_COLUMNS)
    total = sum(job.device_hours for job in jobs)
    count = counted(len(jobs), "job")
    return [lines[0], "-" * max(map(len, lines)), *lines[1:], f"{count}, {total:.3g} device-hours"]


def _cells(job: Spent) -> tuple[str, ...]:
    waited = map(clock, (job.place_s, job.queue_s, job.start_s))
    took = (_compiled(job) or "-", clock(job.run_s), f"{job.device_hours:.3g}")
    return (job.name, job.setting or "-", job.platform, job.state, *waited, *took)


def _compiled(job: Spent) -> str:
    """`40:00, miss`; "" if nothing is known to have been compiled."""
    took = None if job.compile_s is None else clock(job.compile_s)
    return ", ".join(filter(None, (took, job.compile_cache)))


def clock(seconds: float | None) -> str:
    """`4.2 s`, `12:05`, `3:00:00`."""
    if seconds is None:
        return "-"
    return f"{seconds:.1f} s" if seconds < 60 else short_clock(round(seconds))
