"""Makes the history of a simulated centre: ten platforms with six tests each, 365 nights, and what happened to them.

    python -m tests.reporting.report_year FOLDER [--nights 365] [--platforms 10] [--seed 1] [--last 2026-11-22]

FOLDER becomes a site's folder: site.yaml, history/, references/ with people's answers, and truth.json, which says what
was planted (tests/reporting/planted.py). `python -m reporting judge --site FOLDER` and every other command reads it.

- Each job is a run.json, of which the suite's own code makes the line of the history, as a session does.
- The noise is that of a real machine: the windows of benchmarks/recorded/drift.jsonl, in blocks of 30 runs. Runs that
  others disturbed are left out, and a block is divided by its own median, since its slow drift is that of other virtual
  machines. A platform has a part of that noise, a fifth for GPUs. Nodes differ by .2 %, and .4 % of the runs are
  outliers of -4 to -9 %.
- The gate judges every run in the order of the nights and with the answers that there were. Suspect runs are repeated
  as the suite does it, and the verdicts are stored. Only the run.json's themselves are left out.

The same arguments give the same bytes, and a shorter year has the runs of the last nights of a longer one. Without
`--last` the last night is the one before today. With seed 1 the gate sees in the last night what was planted, and
nothing else. Of the seeds 1 to 12 (100 nights) one has a false red, 8, and one misses the drift of 2 %, 11.
"""

from __future__ import annotations

import argparse
import datetime
import json
import math
import multiprocessing
import random
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any

from harness.history_entries import as_stored
from platforms.job import ONLY, Layout, Outcome, Role, Trial
from reporting.gate.confirmation import Place, Repeat, confirmed
from reporting.gate.judge import judge
from reporting.gate.mass_event import TestSoFar, decide_together, platform_so_far
from reporting.gate.new_level import level_since
from reporting.gate.verdict import Confirmation, Verdict
from reporting.history.envelope import Envelope, Revision
from reporting.history.envelope_json import to_line
from reporting.history.nights import NOON
from reporting.history.run_facts import envelope_of
from reporting.references import store
from reporting.references.answers import Acknowledgement, Author, Note, Pause, References
from tests.reporting.planted import EVENTS, GIB, PLATFORMS, PlantedEvent, SimulatedPlatform

SITE = "campus"
RECORDING = Path(__file__).resolve().parents[2] / "benchmarks" / "recorded" / "drift.jsonl"
BLOCK = 30
ALONE_CORES = 0.25
"""The suite doubts a run if others used so many cores meanwhile (docs/history.md)."""
DAY = datetime.timedelta(days=1)
FEWEST_NIGHTS = 75
"""Events that began 40 nights ago need 20 nights before them, from which the gate learns."""
WINDOWS = 5
NODE_DEVIATION = 0.002
GBS32_BATCH, TUNED_BATCH = 32, 256
JOB_S = {"resnet50": 420.0, "cosmoflow": 600.0, "deepcam": 900.0, "compile_time": 1500.0}
OUTLIERS = 0.004
QUIET_NIGHTS = 3  # the last nights have no accidents beside the planted ones
NIGHTS_OF_A_COMMIT = 21
VISIT_EVERY = 14
VISITED = "alps_clariden"
COMPILE_S = 1240.0
RETRY_S = 1800.0


# --- noise -----------------------------------------------------------------------------------------------------------


@cache
def recorded() -> list[list[list[float]]]:
    """The windows of each run that others did not disturb: samples, and seconds of wall, wait, h2d and busy."""
    runs = [json.loads(line) for line in RECORDING.read_text().splitlines()]
    return [run["windows"] for run in runs if (run["neighbours"] or 0.0) < ALONE_CORES]


class RecordedNoise:
    """The noise of one series: recorded runs one after the other, in blocks.

    Args:
        seed: decides where each block begins.
        share: of the recorded deviations.
    """

    def __init__(self, seed: str, share: float) -> None:
        self._seed = seed
        self._share = share
        self._blocks: dict[int, list[list[tuple[float, float]]]] = {}

    def run(self, ago: int) -> list[tuple[float, float]]:
        """The factors of the wait and of the step in a night, by window."""
        number, place = divmod(ago, BLOCK)
        if number not in self._blocks:
            self._blocks[number] = self._block(number)
        return self._blocks[number][-1 - place]

    def _block(self, number: int) -> list[list[tuple[float, float]]]:
        runs = recorded()
        first = random.Random(f"{self._seed} {number}").randrange(len(runs) - BLOCK)
        block = runs[first : first + BLOCK]
        wait = median([window[2] for windows in block for window in windows])
        busy = median([min(window[4] for window in windows) for windows in block])
        return [[(self._factor(each[2], wait), self._factor(each[4], busy)) for each in windows] for windows in block]

    def _factor(self, value: float, usual: float) -> float:
        return 1 + self._share * (value / usual - 1)


# --- jobs ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Test:
    """One of a platform's tests. `batch` is its global batch size; `parts` are of a step, in ms."""

    __test__ = False  # for pytest, which takes it for a test class

    machine: SimulatedPlatform
    benchmark: str
    case: str
    id: str
    batch: int = 0
    parts: Mapping[str, float] = field(default_factory=dict)

    @property
    def key(self) -> tuple[str, str]:
        return self.benchmark, self.case


def tests_of(machine: SimulatedPlatform) -> list[Test]:
    """The six tests of a platform."""
    return [_test(machine, benchmark, case) for benchmark, case in machine.tests]


def _test(machine: SimulatedPlatform, benchmark: str, case: str) -> Test:
    if benchmark not in machine.rates:  # a test of the site's own, without steps
        name = f"site/test_{benchmark}.py::test_{benchmark}[{machine.name}-{machine.layout}]"
        return Test(machine, benchmark, case, name)
    rate, fraction = machine.rates[benchmark]
    batch = GBS32_BATCH
    if case == "tuned":
        batch, rate, fraction = TUNED_BATCH, rate * machine.tuned, 1 - 0.6 * (1 - fraction)
    whole_ms = 1000 * batch / rate
    stall_ms = (1 - fraction) * whole_ms
    h2d_ms = 0.0 if machine.kind == "cpu" else 0.12 * stall_ms
    other_ms = 0.002 * whole_ms
    parts = {
        "wait_ms": stall_ms - h2d_ms,
        "h2d_ms": h2d_ms,
        "step_ms": whole_ms - stall_ms - other_ms,
        "other_ms": other_ms,
    }
    name = f"test_{benchmark}.py::test_{benchmark}[{machine.name}-{machine.layout}-{case}]"
    return Test(machine, benchmark, case, name, batch, parts)


def windows_of(test: Test, noise: Sequence[tuple[float, float]], changes: Mapping[str, float]) -> list[dict[str, Any]]:
    """The windows of a job, as run.json has them.

    Args:
        changes: of the throughput by part, as fractions; the time that this takes is added to that part.
    """
    whole_ms = math.fsum(test.parts.values())
    added = {part: whole_ms * (1 / (1 + change) - 1) for part, change in changes.items()}
    windows = []
    for of_wait, of_step in noise[:WINDOWS]:
        ms = {part: usual + added.get(part, 0.0) for part, usual in test.parts.items()}
        ms["wait_ms"] = max(ms["wait_ms"], 0.0) * of_wait
        ms["step_ms"] *= of_step
        steps = max(4, math.ceil(5000 / whole_ms))
        stall_ms = ms["wait_ms"] + ms["h2d_ms"]
        windows.append(
            {
                "samples": steps * test.batch,
                "steps": steps,
                "wall_s": steps * math.fsum(ms.values()) / 1000,
                "stall_s": steps * stall_ms / 1000,
                "compute_s": steps * ms["step_ms"] / 1000,
                "stall_h2d_s": steps * ms["h2d_ms"] / 1000,
            }
        )
    return windows


@dataclass(frozen=True)
class Circumstances:
    """What of a job differs from night to night."""

    nodes: tuple[str, ...]
    started_s: float
    ended_s: float
    queue_s: float
    job_id: str
    provenance: Mapping[str, str]
    trial: Trial = ONLY
    alone: bool = True
    data_from: str = "storage"
    fails: bool = False


def run_json(test: Test, job: Circumstances, windows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """A run.json as the suite writes it for such a job."""
    machine = test.machine
    layout = Layout.parse(machine.layout[:3], machine.layout[3:])
    content: dict[str, Any] = {
        "schema": 1,
        "test": test.id,
        "platform": machine.name,
        "benchmark": test.benchmark if test.batch else None,
        "layout": machine.layout,
        "trial": job.trial.content(),
        "outcome": Outcome.ERROR if job.fails else Outcome.PASSED,
        "job_id": job.job_id,
        "nodes": list(job.nodes),
        "submitted_s": job.started_s - job.queue_s,
        "started_s": job.started_s,
        "ended_s": job.ended_s,
        "spread_within_job": 0.01,
        "metrics": {},
        "windows": windows,
        "warnings": [] if job.alone else ["not alone: others used 1.4 cores of the job's cores meanwhile"],
        "asked": {"arguments": ["train", test.benchmark], "ranks_per_device": 1, "image": machine.image or None},
        "suite": {"commit": job.provenance["commit"]},
    }
    if job.fails:
        return content
    cpu = machine.kind == "cpu"
    configuration, _, rest = test.case.partition("-")
    sizes = [word for word in rest.split("-") if word in ("smoke", "subset")]
    content["start"] = {
        "benchmark": test.benchmark,
        "workload_version": 2,
        "code": "298e77ff0e90",
        "request": {
            "configuration": configuration,
            "size": sizes[0] if sizes else "quick",
            "mode": "blocking" if "blocking" in rest else "overlap",
            "variant": "v1.5" if test.benchmark == "resnet50" else "mlperf",
            "dtype": "bf16" if configuration == "tuned" and not cpu else "fp32",
            "workers": 12,
            "global_batch_size": test.batch,
            "accumulation_steps": 1,
        },
        "device": {
            "type": machine.kind,
            "name": machine.device,
            "count": machine.sockets if cpu else layout.devices_per_node,
            "memory_bytes": machine.memory_gib * GIB - GIB // 2,
            "driver": job.provenance.get("driver"),
        },
        "world": {
            "size": layout.devices,
            "nodes": layout.nodes,
            "hosts": layout.nodes,
            "backend": machine.backend,
            "launcher": machine.launcher,
        },
        "versions": {"python": "3.11.7", "torch": job.provenance["torch"], "numpy": "2.4.6"},
        "host": {
            "name": job.nodes[0],
            "cpu": machine.cpu,
            "cores": machine.cores,
            "threads": 8,
            "kernel": job.provenance["kernel"],
        },
        "data": {"folder": f"/data/{test.benchmark}-quick", "decoder": job.provenance["decoder"]},
    }
    content["summary"] = {"data_from": job.data_from}
    return content


# --- one platform's year ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Calendar:
    """The nights of a site's year; `ago` counts them from the last one, which is 0."""

    last: datetime.date
    nights: int
    site: str = SITE

    def night(self, ago: int) -> datetime.date:
        return self.last - ago * DAY

    def events(self, platform: str) -> list[PlantedEvent]:
        """Those of a platform that began after the gate had learned."""
        return [event for event in EVENTS if event.platform == platform and event.first < self.nights - 25]


class PlatformYear:
    """Simulates the sessions of one platform, one a night.

    Args:
        folder: of the site.
        place: of the platform among the others; its sessions begin five minutes after those of the one before.
    """

    def __init__(self, folder: Path, machine: SimulatedPlatform, place: int, calendar: Calendar, seed: int) -> None:
        self._folder = folder
        self._machine = machine
        self._place = place
        self._calendar = calendar
        self._events = calendar.events(machine.name)
        self._seed = f"{seed} {machine.name}"
        self._chance = random.Random(self._seed)
        self._tests = tests_of(machine)
        self._noise = {test.id: RecordedNoise(f"{seed} {test.id}", machine.noise) for test in self._tests}
        self._repeats = RecordedNoise(self._seed, machine.noise)
        self._node_factors = {node: self._chance.gauss(1, NODE_DEVIATION) for node in self._nodes}
        self._past: dict[str, list[Envelope]] = {test.id: [] for test in self._tests}
        self._references = References()
        self._last_verdicts: dict[str, Verdict] = {}
        self._job_number = 0

    @property
    def _nodes(self) -> list[str]:
        return [self._machine.node.format(number + 1) for number in range(self._machine.nodes)]

    def simulate(self) -> int:
        """Write all sessions of the year. Returns how many jobs they had."""
        jobs = 0
        for ago in range(self._calendar.nights - 1, -1, -1):
            self._chance = random.Random(f"{self._seed} {ago}")
            self._job_number = 1_000_000 * (self._place + 1) - 1000 * ago
            self._answer(ago)
            if any(event.effect == "begins" and ago > event.first for event in self._events):
                continue
            if any(event.effect == "absent" and event.holds(ago) for event in self._events):
                continue
            if ago > QUIET_NIGHTS and self._chance.random() < 0.008:
                continue  # the session itself did not begin
            jobs += self._session(ago)
            if self._machine.name == VISITED and ago % VISIT_EVERY == VISIT_EVERY // 2:
                jobs += self._visits(ago)
        return jobs

    # A session

    def _session(self, ago: int) -> int:
        began = datetime.datetime.combine(self._calendar.night(ago), datetime.time(22), datetime.UTC)
        began += datetime.timedelta(minutes=5 * self._place, seconds=self._chance.randrange(40))
        run_id = self._run_id(began)
        ended: list[Envelope] = []
        failed: list[Envelope] = []
        for test in self._tests:
            attempts = self._attempts(test, ago, began.timestamp(), run_id)
            failed += [run for run in attempts if not run.sane]
            ended += [run for run in attempts if run.sane]
        judged, repeats = self._judge(ended, ago)
        written = [*failed, *judged, *repeats]
        for run in written:
            self._past[run.key.test].append(run)
        self._write(began, run_id, written)
        return len(written)

    def _attempts(self, test: Test, ago: int, began_s: float, run_id: str) -> list[Envelope]:
        """The jobs of a test: one that fails by chance has a second attempt."""
        planted = self._holding(test, ago, "failed")
        unlucky = ago > QUIET_NIGHTS and self._chance.random() < 0.008
        jobs = []
        if planted or unlucky:
            jobs.append(self._job(test, ago, began_s, run_id, fails=True))
        if not planted and not (unlucky and self._chance.random() < 0.3):
            jobs.append(self._job(test, ago, began_s + RETRY_S * len(jobs), run_id, attempt=1 + len(jobs)))
        return jobs

    def _job(
        self,
        test: Test,
        ago: int,
        began_s: float,
        run_id: str,
        *,
        attempt: int = 1,
        trial: Trial = ONLY,
        nodes: Sequence[str] = (),
        fails: bool = False,
    ) -> Envelope:
        chance = self._chance
        self._job_number += chance.randrange(1, 9)
        nodes = tuple(nodes) or self._placed(test, ago)
        noise = self._noise[test.id].run(ago) if trial == ONLY else self._repeats.run(chance.randrange(10 * BLOCK))
        queue_s = 30 + chance.expovariate(1 / 600)
        started_s = began_s + queue_s
        took_s = JOB_S[test.benchmark] * chance.uniform(0.95, 1.1) * (0.3 if fails else 1)
        ended_s = round(started_s + took_s, 1)
        job = Circumstances(
            nodes=nodes,
            started_s=round(started_s, 1),
            ended_s=ended_s,
            queue_s=round(queue_s, 1),
            job_id=str(self._job_number),
            provenance=self._provenance(ago),
            trial=trial,
            alone=not self._holding(test, ago, "doubt") and (ago <= QUIET_NIGHTS or chance.random() > 0.012),
            data_from="mixed" if self._holding(test, ago, "data") else "storage",
            fails=fails,
        )
        content = run_json(test, job, self._windows(test, ago, nodes, noise) if test.batch and not fails else [])
        if not test.batch and not fails:
            seconds = COMPILE_S * noise[0][1]
            content["metrics"] = {"compile_time": {"value": round(seconds, 2), "unit": "s", "better": "lower"}}
        return envelope_of(
            content,
            site=self._calendar.site,
            run_id=run_id,
            attempt=attempt,
            outcome=Outcome.ERROR if fails else Outcome.PASSED,
            sane=not fails,
            revision=Revision.TEST_ENDED,
            written_s=ended_s + 20,
        )

    def _windows(
        self, test: Test, ago: int, nodes: Sequence[str], noise: Sequence[tuple[float, float]]
    ) -> list[dict[str, Any]]:
        changes: dict[str, float] = {"step_ms": min(self._node_factors[node] for node in nodes) - 1}
        if ago > QUIET_NIGHTS and self._chance.random() < OUTLIERS:
            changes["step_ms"] -= self._chance.uniform(0.04, 0.09)
        for event in self._events:
            if event.effect != "speed" or not event.holds(ago) or test.key not in event.tests:
                continue
            if not event.node or event.node in nodes:
                changes[event.part] = (1 + changes.get(event.part, 0.0)) * (1 + event.tests[test.key]) - 1
        return windows_of(test, noise, changes)

    def _holding(self, test: Test, ago: int, effect: str) -> bool:
        return any(event.effect == effect and event.holds(ago) and event.concerns(*test.key) for event in self._events)

    def _placed(self, test: Test, ago: int) -> tuple[str, ...]:
        """Where the scheduler places a job. In the last night the first test of a platform is on its slow node."""
        nodes = self._nodes
        slow = [event.node for event in self._events if event.node and event.holds(ago)]
        if slow and ago <= QUIET_NIGHTS:
            if ago == 0 and test is self._tests[0]:
                return (slow[0],)
            nodes = [node for node in nodes if node != slow[0]]
        count = int(self._machine.layout[0])
        return tuple(sorted(self._chance.sample(nodes, count)))

    def _provenance(self, ago: int) -> dict[str, str]:
        """As it is in a night: the values at the beginning, and what events have changed since."""
        values = {"torch": "2.11.0", "kernel": "5.14.21-150500.55.49", "decoder": "simplejpeg 1.8.2"}
        if self._machine.driver:
            values["driver"] = self._machine.driver
        number = (ago + 17) // NIGHTS_OF_A_COMMIT
        values["commit"] = random.Random(f"commit {number}").randbytes(20).hex()
        for event in self._events:
            if ago <= event.first:
                values.update(event.changed)
        return values

    # The gate

    def _judge(self, runs: Sequence[Envelope], ago: int) -> tuple[list[Envelope], list[Envelope]]:
        """The runs of a session with the verdicts that are stored, and the repeats that confirm them."""
        verdicts = {
            run.key.test: judge(run, self._past[run.key.test], self._references, NOON, repeats_follow=True)
            for run in runs
        }
        confirmations, repeats = self._confirm(runs, verdicts, ago)
        stored = []
        for run in runs:
            of_test = dict(verdicts[run.key.test])
            for metric, confirmation in confirmations.get(run.key.test, {}).items():
                of_test[metric] = confirmed(of_test[metric], confirmation)
            self._last_verdicts[run.key.test] = next(iter(of_test.values()))
            red = any(verdict.red for verdict in of_test.values())
            outcome = Outcome.FAILED if red else Outcome.PASSED
            stored.append(replace(run, outcome=outcome, verdicts=as_stored(of_test)))
        return stored, repeats

    def _confirm(
        self, runs: Sequence[Envelope], verdicts: Mapping[str, Mapping[str, Verdict]], ago: int
    ) -> tuple[dict[str, Mapping[str, Confirmation]], list[Envelope]]:
        """Repeat what is suspect until the gate knows enough: confirmations by test and metric, and the repeats."""
        so_far = {}
        by_test = {run.key.test: run for run in runs}
        for test, of_test in verdicts.items():
            suspects = {metric: one.suspect for metric, one in of_test.items() if one.suspect is not None}
            so_far[test] = TestSoFar(ended=True, suspects=suspects)
        place = Place(has_one_node=self._machine.nodes == 1)
        repeats: list[Envelope] = []
        while True:
            platform = platform_so_far(so_far.values())
            confirmations: dict[str, Mapping[str, Confirmation]] = {}
            wanted = None
            for test, own in so_far.items():
                if not own.suspects:
                    continue
                steps = decide_together(own, platform, place)
                confirmations[test] = steps.confirmations
                if steps.next:
                    wanted = test, steps.next[0]
                    break
            if wanted is None:
                return confirmations, repeats
            test, asked = wanted
            again = self._repeat(by_test[test], asked.trial, asked.nodes, asked.avoid_nodes, ago)
            repeats.append(again)
            known = (*so_far[test].repeats, Repeat(asked.trial, asked=asked.nodes, envelope=again))
            so_far[test] = replace(so_far[test], repeats=known)

    def _repeat(self, run: Envelope, trial: Trial, nodes: Sequence[str], avoid: Sequence[str], ago: int) -> Envelope:
        test = next(one for one in self._tests if one.id == run.key.test)
        others = [node for node in self._nodes if node not in avoid]
        placed = nodes or sorted(self._chance.sample(others, int(self._machine.layout[0])))
        began_s = (run.ended_s or 0.0) + 10
        return self._job(test, ago, began_s, run.key.run_id, trial=trial, nodes=tuple(placed))

    # Visits, answers and files

    def _visits(self, ago: int) -> int:
        """The next morning each node is visited with one test."""
        began = datetime.datetime.combine(self._calendar.night(ago) + DAY, datetime.time(6), datetime.UTC)
        run_id = self._run_id(began)
        runs = [
            self._job(self._tests[0], ago, began.timestamp(), run_id, trial=Trial(Role.VISIT, node=node), nodes=(node,))
            for node in self._nodes
        ]
        self._past[self._tests[0].id] += runs
        self._write(began, run_id, runs)
        return len(runs)

    def _answer(self, ago: int) -> None:
        """Write what people answer before the session of a night."""
        night = self._calendar.night(ago)
        author = Author("ada", datetime.datetime.combine(night, datetime.time(9), datetime.UTC))
        for event in self._events:
            if event.note and ago == event.first - 1:
                self._keep(Note(event.platform, self._calendar.night(event.first), event.note, author))
            if event.answer is None or ago != event.first - event.answer[1]:
                continue
            kind, _, said = event.answer
            until = self._calendar.last + event.for_nights * DAY
            if kind == "pause":
                self._keep(Pause(event.platform, until, said, author))
            for test in [one for one in self._tests if one.key in event.tests]:
                if kind == "accept":
                    since = self._calendar.night(event.first)
                    metric = self._last_verdicts[test.id].metric
                    level = level_since(since, metric, self._past[test.id], self._references, NOON)
                    self._keep(level.acceptance(said, author))
                if kind == "ack":
                    verdict = self._last_verdicts[test.id]
                    assert verdict.red, f"{test.id} is {verdict.short}, and shall be acknowledged"
                    change = float(f"{verdict.change:.6f}")
                    self._keep(Acknowledgement(test.id, verdict.metric, said, until, change, author))

    def _keep(self, answer: Any) -> None:
        """Write an answer; it counts from the next session on."""
        store.append(self._folder, answer)
        self._references = store.load(self._folder)

    def _run_id(self, began: datetime.datetime) -> str:
        return f"{began:%Y%m%d-%H%M%S}-{self._chance.randrange(1 << 16):04x}"

    def _write(self, began: datetime.datetime, run_id: str, runs: Sequence[Envelope]) -> None:
        """The file of a session. Each job has two lines, when it has ended and when its test has."""
        month = self._folder / "history" / f"{began:%Y-%m}"
        month.mkdir(parents=True, exist_ok=True)
        lines = []
        for run in runs:
            ended = replace(run, revision=Revision.JOB_ENDED, sane=False, verdicts={}, written_s=run.written_s - 20)
            lines += [to_line(ended), to_line(run)]
        name = f"{began:%Y%m%dT%H%M%SZ}-{run_id[-4:]}{self._place:04x}.jsonl"
        (month / name).write_bytes(b"".join(lines))


# --- the year --------------------------------------------------------------------------------------------------------


def truth_of(calendar: Calendar, machines: Sequence[SimulatedPlatform]) -> dict[str, object]:
    """What was planted, with dates and the tests' ids."""
    events = []
    for machine in machines:
        for event in calendar.events(machine.name):
            concerned = [test for test in tests_of(machine) if event.concerns(*test.key)]
            if event.effect == "nothing":
                concerned = []
            if event.node:
                concerned = concerned[:1]
            last = None if event.last is None else calendar.night(event.last).isoformat()
            events.append(
                {
                    "name": event.name,
                    "platform": event.platform,
                    "condition": event.condition,
                    "since": calendar.night(event.first).isoformat(),
                    "until": last,
                    "tests": {test.id: event.tests.get(test.key) for test in concerned},
                    "part": event.part if event.effect == "speed" else None,
                    "node": event.node or None,
                    "changed": dict(event.changed),
                    "note": event.note or None,
                    "answer": event.answer and event.answer[2],
                }
            )
    return {
        "site": calendar.site,
        "first_night": calendar.night(calendar.nights - 1).isoformat(),
        "last_night": calendar.last.isoformat(),
        "platforms": {machine.name: [test.id for test in tests_of(machine)] for machine in machines},
        "events": events,
    }


def _simulate(arguments: tuple[Path, SimulatedPlatform, int, Calendar, int]) -> int:
    return PlatformYear(*arguments).simulate()


def make_year(
    folder: Path,
    last: datetime.date,
    *,
    nights: int = 365,
    platforms: int = len(PLATFORMS),
    seed: int = 1,
    processes: int = 1,
    site: str = SITE,
) -> int:
    """Write a site's folder with a simulated year. Returns how many jobs it has.

    Args:
        folder: is made; it must not have a history.
        last: the last night.
        nights: at least 75.
        processes: platforms are simulated in so many processes at a time; the result is the same.
        site: its name.

    Raises:
        ValueError: there are too few nights, or the folder has a history.
    """
    if nights < FEWEST_NIGHTS:
        raise ValueError(f"{nights} nights are too few: the planted events need {FEWEST_NIGHTS}")
    if (folder / "history").exists():
        raise ValueError(f"{folder} has a history already: name a new folder")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "site.yaml").write_text(f"name: {site}\n")
    calendar = Calendar(last, nights, site)
    machines = PLATFORMS[:platforms]
    truth = json.dumps(truth_of(calendar, machines), indent=1)
    (folder / "truth.json").write_text(f"{truth}\n")
    tasks = [(folder, machine, place, calendar, seed) for place, machine in enumerate(machines)]
    if processes == 1:
        return sum(map(_simulate, tasks))
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        return sum(pool.imap_unordered(_simulate, tasks))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--nights", type=int, default=365)
    parser.add_argument("--platforms", type=int, default=len(PLATFORMS), choices=range(1, len(PLATFORMS) + 1))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--last", type=datetime.date.fromisoformat, help="the last night (default: yesterday's)")
    parser.add_argument("--processes", type=int, default=multiprocessing.cpu_count())
    options = parser.parse_args()
    began = time.monotonic()
    last = options.last or datetime.date.today() - DAY
    try:
        jobs = make_year(
            options.folder,
            last,
            nights=options.nights,
            platforms=options.platforms,
            seed=options.seed,
            processes=options.processes,
        )
    except ValueError as error:
        raise SystemExit(f"report_year: {error}") from None
    print(f"{options.folder}: {jobs:,} jobs in {options.nights} nights up to {last}, {time.monotonic() - began:.0f} s")
    print(f"planted: {options.folder / 'truth.json'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
