"""Takes what a test records, and hands it to pytest-benchmark: a round for each window, on a clock that only they move.

A test without seconds per sample gives pytest-benchmark its first metric. If higher is better, one round takes the
inverse of its value, so that OPS is the metric. If lower is better, one round takes its value.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NoReturn

import pytest

from harness import own_metrics
from platforms.job import Run


class JobClock:
    """A timer that stands still, except for the seconds that are replayed on it."""

    __name__ = "job_clock"
    __module__ = "hpc_ml_bench"  # together they stand as options.timer in the saved JSON

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def rewind(self) -> None:
        """Before each round: the end of a round is then its seconds to the last bit, however many went before."""
        self.now = 0.0

    def advance(self, seconds: float) -> None:
        self.now += seconds


CLOCK = JobClock()


@dataclass(frozen=True)
class Recording:
    """What a test asked to record; it counts only once the test has passed.

    Attributes:
        run: with everything that the test has read from the log.
        rounds: in seconds per sample, or one of the first metric.
        seconds_given: the test has given `rounds` itself, as seconds per sample.
        jobs: how many jobs the rounds are of.
    """

    run: Run
    rounds: tuple[float, ...]
    extra: Mapping[str, object]
    benchmark: Any  # pytest-benchmark's fixture
    seconds_given: bool = False
    jobs: int = 1

    @property
    def remark(self) -> str | None:
        """What a reader of the figures must know; None for those of the only job."""
        if self.jobs == 1:
            return None
        middle = "middle" if self.jobs % 2 else "slower middle"
        return f"the figures are those of {self.run.name}, the {middle} one of {self.jobs} jobs"


RECORDING = pytest.StashKey[Recording]()


class Recorder:
    """The fixture `record`."""

    def __init__(self, item: pytest.Item, benchmark: object) -> None:
        self._item = item
        self._benchmark = benchmark

    def __call__(
        self,
        run: Run,
        *,
        seconds_per_sample: Sequence[float] | None = None,
        metrics: Mapping[str, tuple[float, str, str]] | None = None,
        **extra: object,
    ) -> None:
        """Record a run. A second call adds to the first.

        Args:
            run: what the fixture `run` gave. A run with problems is refused: its numbers mean nothing.
            seconds_per_sample: what the test read from the log of a program without the wire, one value a window.
            metrics: other numbers that the test read from the log, by name, as in `{"triad": (812, "GB/s", "higher")}`:
                the value, its unit, and whether higher or lower is better. Each is judged by itself.
            extra: more of the run's figures, kept beside ours in `extra_info`.
        """
        if run.problems:
            _refuse("record(run): a run whose sanity failed is never recorded: " + "; ".join(run.problems))
        try:
            checked = own_metrics.checked(metrics or {})
        except ValueError as error:
            _refuse(f"record(run, metrics=…): {error}")
        earlier = self._item.stash.get(RECORDING, None)
        if earlier is not None:
            twice = [name for name in checked if name in earlier.run.metrics]
            twice += [name for name in extra if name in earlier.extra]
            if earlier.seconds_given and seconds_per_sample is not None:
                twice.append("seconds_per_sample")
            if twice:
                _refuse(
                    f"record(run): this test has recorded {', '.join(twice)} before: record each value once, or give "
                    "the second one another name"
                )
            checked = {**earlier.run.metrics, **checked}
            extra = {**earlier.extra, **extra}
            if earlier.seconds_given:
                seconds_per_sample = earlier.rounds
        seconds = tuple(map(float, run.seconds_per_sample if seconds_per_sample is None else seconds_per_sample))
        has_seconds = bool(seconds) or seconds_per_sample is not None or not checked
        if has_seconds and not _are_seconds(seconds):
            _refuse(
                f"record(run): {list(seconds)} are no seconds per sample. Has the log measured windows? Write them "
                "with meter.py (docs/foreign-loops.md), or pass seconds_per_sample=[…] or metrics={…}"
            )
        if not run.windows:
            run = replace(run, read_by_test=seconds)
        run = replace(run, metrics=checked)
        rounds = seconds or _round_of_first_metric(run)
        given = seconds_per_sample is not None
        self._item.stash[RECORDING] = Recording(run, rounds, extra, self._benchmark, given)


def _refuse(why: str) -> NoReturn:
    pytest.fail(why, pytrace=False)


def _are_seconds(values: Sequence[float]) -> bool:
    return bool(values) and all(math.isfinite(value) and value > 0 for value in values)


def _round_of_first_metric(run: Run) -> tuple[float]:
    metric = next(iter(run.metrics.values()))
    return (1 / metric.value,) if metric.better == "higher" else (metric.value,)


def prepare(item: pytest.Item, *, is_measured: bool) -> None:
    """Give a test that records the job's clock, before pytest-benchmark makes its fixture.

    Args:
        is_measured: its numbers are for pytest-benchmark, which would else warn that it was given none.
    """
    if "record" in getattr(item, "fixturenames", ()):
        item.add_marker(pytest.mark.benchmark(timer=CLOCK, warmup=False, cprofile=False))
        if not is_measured:
            item.add_marker(pytest.mark.filterwarnings("ignore:Benchmark fixture was not used"))


def recorded_run(item: pytest.Item) -> Run | None:
    """The run that the body of a test has recorded, with what it has read from the log; None if it recorded none."""
    recording = item.stash.get(RECORDING, None)
    return None if recording is None else recording.run


def save_recorded(run: Run) -> None:
    """After a body that passed: write what it has read from the log into the run's run.json."""
    if run.read_by_test or run.metrics:
        from platforms.rundir import job_json

        job_json.add_recorded(run)


def take(item: pytest.Item) -> Recording | None:
    """Take away what a body has recorded, so that the test's next body may record again."""
    recording = item.stash.get(RECORDING, None)
    if recording is not None:
        del item.stash[RECORDING]
    return recording


def put(item: pytest.Item, recording: Recording | None) -> None:
    """Let this be what the test has recorded."""
    if recording is not None:
        item.stash[RECORDING] = recording


def joined(recordings: Sequence[Recording]) -> Recording | None:
    """What several jobs of a test have recorded, as one: the rounds of all, and the figures of the middle job."""
    if not recordings:
        return None
    by_seconds = sorted(recordings, key=lambda recording: math.fsum(recording.rounds) / len(recording.rounds))
    rounds = tuple(seconds for recording in recordings for seconds in recording.rounds)
    return replace(by_seconds[len(by_seconds) // 2], rounds=rounds, jobs=len(recordings))


def replay(item: pytest.Item) -> None:
    """Hand the recording of a body that passed to pytest-benchmark."""
    recording = item.stash[RECORDING]
    recording.benchmark.group = group(recording.run, recording.jobs)
    recording.benchmark.extra_info.update(extra_info(recording.run), **recording.extra)
    per_sample = recording.run.throughput_unit.per_sample if recording.run.seconds_per_sample else 1
    seconds: Iterator[float] = iter([seconds / per_sample for seconds in recording.rounds])
    recording.benchmark.pedantic(
        lambda: CLOCK.advance(next(seconds, 0.0)), setup=CLOCK.rewind, rounds=len(recording.rounds)
    )


def remark(item: pytest.Item) -> str | None:
    """What a reader of a test's figures must know."""
    recording = item.stash.get(RECORDING, None)
    return None if recording is None else recording.remark


def hand_over_nothing(item: pytest.Item) -> None:
    """Tell pytest-benchmark that the body has numbers, and that none of them are for it."""
    benchmark = getattr(item, "funcargs", {}).get("benchmark")
    if benchmark is not None:
        benchmark.skipped = True


def withdraw(item: pytest.Item) -> None:
    """Discard the numbers of a test that failed after its body had passed (in teardown, by xfail_strict)."""
    benchmark = getattr(item, "funcargs", {}).get("benchmark")
    if benchmark is not None:
        benchmark.has_error = True


def group(run: Run, jobs: int = 1) -> str:
    """The heading under which pytest-benchmark lists it; no group mixes benchmarks, sizes or modes.

    Args:
        jobs: how many jobs its rounds are of.
    """
    words = [run.benchmark or run.test.partition("::")[2].partition("[")[0]]
    request = run.start.get("request")
    if isinstance(request, Mapping):
        words += [str(request[name]) for name in ("size", "mode") if request.get(name)]
    return f"{' '.join(words)}, {_meaning(run)}" + (f", the mean of {jobs} jobs" if jobs > 1 else "")


def _meaning(run: Run) -> str:
    """What the columns of pytest-benchmark mean."""
    if run.seconds_per_sample:
        return f"seconds per {run.throughput_unit.item}"
    name, metric = next(iter(run.metrics.items()))
    column = "OPS" if metric.better == "higher" else "seconds"
    return f"{column}: {name} in {metric.unit}"


def extra_info(run: Run) -> dict[str, object]:
    """What stands beside the seconds in the saved JSON: the three numbers, their unit, and where they come from."""
    from platforms.results import gates

    unit = run.throughput_unit
    return {
        "schema": 1,
        "benchmark_id": run.test,
        "platform": run.platform,
        "layout": run.layout,
        "effective_throughput": unit.of(run.effective_throughput),
        "compute_fraction": run.compute_fraction,
        "compute_throughput": unit.of(run.compute_throughput),
        "throughput_unit": unit.name,
        "identity_gap": run.identity_gap,
        "spread_within_job": run.spread,
        "metrics": {name: vars(metric) for name, metric in run.metrics.items()},
        "warnings": list(run.warnings),
        "load_looked_at": gates.is_load_known(run),
        "job_name": run.name,
        "folder": str(run.folder) if run.folder else None,
        "queue_s": _span(run.status.submitted_s, run.status.started_s),
        "run_s": run.status.run_s,
        "nodes": list(run.status.nodes),
        "start": dict(run.start),
        "summary": dict(run.summary),
    }


def _span(begin: float | None, end: float | None) -> float | None:
    """Seconds between two times. They may come from two clocks, so that the end seems to be before the beginning."""
    if begin is None or end is None:
        return None
    return max(0.0, end - begin)


def machine_info() -> dict[str, str]:
    """The same everywhere: the submitting machine says nothing about the measured ones, which stand in `extra_info`."""
    return {"node": "hpc-ml-bench", "see": "extra_info.start of each benchmark"}
