"""Many jobs on simulated platforms, by the real runner, journal and folders, so that hours pass in seconds.

The clock moves on when no platform's thread is at work. Every job waits 60 s, runs 240 s and writes a log of the wire
meanwhile. Schedulers count what they are asked.
"""

from __future__ import annotations

import json
import math
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from platforms.config.schema import Platform
from platforms.job import JobSpec, Layout, State, Status, Submitted, job_name, run_label
from platforms.rundir.session_history import DONE
from platforms.rundir.session_journal import Journal
from platforms.runner import Job, Runner
from platforms.runner.workers import InlinePool, ThreadPool, Worker, WorkerPool

QUEUE_S, RUN_S = 60.0, 240.0
POLL_S = 10.0
LAYOUT = Layout(1, 1, "cpu")
BEGAN_S = 1.8e9
WINDOWS, PROGRESSES = 5, 60


class Clock:
    """Seconds that pass when nobody has anything to do."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def wall(self) -> float:
        """Unix seconds."""
        return BEGAN_S + self.now

    def forward(self, seconds: float) -> None:
        self.now += seconds


class Instant:
    """Real threads for platforms that answer at once: while a turn is under way no time passes."""

    def __init__(self, clock: Clock) -> None:
        self._clock, self._threads = clock, ThreadPool()
        self._workers: list[Worker] = []

    def worker(self, name: str) -> Worker:
        self._workers.append(self._threads.worker(name))
        return self._workers[-1]

    def rest(self, seconds: float) -> None:
        if any(worker.busy for worker in self._workers):
            self._threads.rest(1.0)
        else:
            self._clock.forward(seconds)


def wire(key: str, value: Mapping[str, object], seq: int) -> str:
    metadata = {"file": "meter.py", "lineno": 0, "rank": 0, "seq": seq}
    event = {"namespace": "hpcml", "time_ms": 1, "event_type": "POINT_IN_TIME", "key": key, "value": value}
    return f":::MLLOG {json.dumps({**event, 'metadata': metadata})}\n"


def whole_log() -> bytes:
    """What every job writes: a line for people and the wire of a good run."""
    spans = {name: [0.1, 0.2, 0.3] for name in ("wait_s", "h2d_s", "busy_s")}
    window = {"steps": 5, "samples": 160, "wall_s": 2.0, "stall_s": 0.5, "compute_s": 1.5, **spans, "loss": 1.0}
    sums = {name: WINDOWS * window[name] for name in ("steps", "samples", "wall_s", "stall_s", "compute_s")}
    rates = {"effective_throughput": 80.0, "compute_fraction": 0.75, "compute_throughput": 320 / 3, "identity_gap": 0.0}
    said: list[tuple[str, Mapping[str, object]]] = [
        ("hpcml_start", {"schema": 1, "benchmark": None, "request": {}, "world": {"size": 1}}),
        *(("hpcml_progress", {"phase": "window", "step": 1 + n, "steps": PROGRESSES}) for n in range(PROGRESSES)),
        *(("hpcml_window", {"index": index, **window}) for index in range(WINDOWS)),
        ("hpcml_summary", {"windows": WINDOWS, **sums, **rates}),
    ]
    said.append(("hpcml_end", {"exit_code": 0, "lines": len(said)}))
    return ("loading\n" + "".join(wire(key, value, seq) for seq, (key, value) in enumerate(said))).encode()


LOG = whole_log()


@dataclass
class Simulated:
    """The Scheduler of one platform, whose jobs go by the clock; it counts what it is asked."""

    clock: Callable[[], float]
    queue_s: float = QUEUE_S
    run_s: float = RUN_S
    calls: Counter[str] = field(default_factory=Counter)
    queried: list[float] = field(default_factory=list)  # when
    held: dict[str, tuple[str, float]] = field(default_factory=dict)  # by name: id, when submitted

    text_name = "job.sh"
    log_in_folder = False
    clean_deletes = False
    first_look_s = glance_s = math.inf

    def has_news(self, jobs: Sequence[Submitted]) -> bool:
        return False

    def render(self, spec: JobSpec) -> str:
        return f"#!/bin/sh\n# {spec.name}\n" + "\n".join(spec.arguments) + "\n"

    def lint(self, spec: JobSpec, text: str) -> Sequence[str]:
        return ()

    def check(self, spec: JobSpec, text: str) -> Sequence[str]:
        return ()

    def submit(self, spec: JobSpec, text: str, folder: Path) -> str:
        self.calls["submit"] += 1
        return self.held.setdefault(spec.name, (str(1000 + self.calls["submit"]), self.clock()))[0]

    def status(self, jobs: Sequence[Submitted]) -> Mapping[str, Status]:
        self.queried.append(self.clock())
        return {job.job_id: self._status(job) for job in jobs}

    def read(self, job: Submitted, offset: int, known: bytes = b"") -> bytes:
        self.calls["read"] += 1
        ran_s = max(0.0, self._age_s(job) - self.queue_s)
        return LOG[offset : int(ran_s / self.run_s * len(LOG)) if ran_s < self.run_s else None]

    def gaps(self, job: Submitted) -> Sequence[str]:
        self.calls["gaps"] += 1
        return ()

    def log_doubts(self, job: Submitted) -> Sequence[str]:
        return ()

    def cancel(self, jobs: Sequence[Submitted]) -> Mapping[str, str]:
        self.calls["cancel"] += 1
        return {}

    def clean(self, job: Submitted) -> None:
        self.calls["clean"] += 1

    def hints(self, job: Submitted) -> tuple[str, ...]:
        self.calls["hints"] += 1
        return (f"look {job.job_id}",)

    def _age_s(self, job: Submitted) -> float:
        return self.clock() - self.held[job.name][1]

    def _status(self, job: Submitted) -> Status:
        began_s, age_s = BEGAN_S + self.held[job.name][1], self._age_s(job)
        if age_s < self.queue_s:
            return Status(State.QUEUED, "others are before it", submitted_s=began_s)
        times = {"submitted_s": began_s, "started_s": began_s + self.queue_s}
        if age_s < self.queue_s + self.run_s:
            return Status(State.RUNNING, nodes=("n1",), **times)
        ended_s = began_s + self.queue_s + self.run_s
        return Status(State.SUCCEEDED, exit_code=0, nodes=("n1",), ended_s=ended_s, **times)


@dataclass
class Session:
    """A runner with its simulated platforms, as many jobs on each."""

    folder: Path
    platforms: int
    max_running: int
    threads: bool = True
    schedulers: dict[str, Simulated] = field(default_factory=dict)
    clock: Clock = field(default_factory=Clock)
    changes: int = 0

    def run(self, jobs: int) -> Runner:
        """All of them to their end, read in the tests' order. Raises what ended one badly."""
        names = [f"p{number:02d}" for number in range(self.platforms)]
        known = {"scheduler": "slurm", "device": "cpu", "poll_s": POLL_S, "max_running": self.max_running}
        platforms = [Platform(name=name, source=Path(f"{name}.yaml"), **known) for name in names]
        tests = [f"test_many.py::test_many[p{n % self.platforms:02d}-1x1cpu-{n}]" for n in range(jobs)]
        journal = Journal(self.folder / "scale", {"tests": tests, "options": {}})
        turns: WorkerPool = Instant(self.clock) if self.threads else InlinePool(self.clock.forward)
        runner = Runner(
            self.folder, "scale", journal=journal, clock=self.clock, wall=self.clock.wall, workers=turns,
            on_change=self._change, connect=self._connect,
        )  # fmt: skip
        for number, test in enumerate(tests):
            runner.add(_spec(test, names[number % self.platforms]), platforms[number % self.platforms])
        for job in list(runner.jobs):
            runner.wait(job)
            if job.result().problems:
                raise RuntimeError(f"{job.spec.name}: {job.result().problems}")
        journal.end(DONE)
        return runner

    @property
    def counts(self) -> Counter[str]:
        return sum((scheduler.calls for scheduler in self.schedulers.values()), Counter())

    @property
    def queries(self) -> list[list[float]]:
        """When each platform was asked for its jobs' states."""
        return [scheduler.queried for scheduler in self.schedulers.values()]

    @property
    def journal_bytes(self) -> int:
        return sum(path.stat().st_size for path in (self.folder / "scale" / "sessions").glob("*.jsonl"))

    def _connect(self, platform: Platform) -> Simulated:
        return self.schedulers.setdefault(platform.name, Simulated(self.clock))

    def _change(self, job: Job) -> None:
        self.changes += 1


def _spec(test: str, platform: str) -> JobSpec:
    words = ("python3", "my_training.py", "--steps", "1000")
    name = job_name("many", LAYOUT, "scale", test)
    return JobSpec(name, test, platform, LAYOUT, words, run=run_label("scale"), time_limit_s=600)


@contextmanager
def counted_fsyncs() -> Iterator[Counter[str]]:
    """How often files are brought to the disk meanwhile."""
    counted, real = Counter[str](), os.fsync

    def fsync(file: int) -> None:
        counted["fsync"] += 1
        real(file)

    os.fsync = fsync
    try:
        yield counted
    finally:
        os.fsync = real
