"""Both ends of the wire: models.meter writes, platforms.results reads. The only file that imports both sides."""

from __future__ import annotations

import json
import math
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import get_args

import pytest

from models import cgroups, contention, errors, meter, node, node_devices
from models.accelerators import FAMILIES
from models.meter import GATE_EXIT_CODE, LINE_BYTES, Meter, Solo, Wire
from platforms.config.schema import Unit
from platforms.job import DEVICE_UNITS, WIRE_EXIT_STATES, JobSpec, Layout, Metric, Outcome, State, state_of_exit
from platforms.results import gates, log_reader
from platforms.results.log_reader import LogReader, Progress
from reporting.history.run_facts import doubts_of, explanations_of

ROOT = Path(__file__).resolve().parents[1]
PATIENCE_S = 60.0
SPEC = JobSpec("n", "t", "p", Layout(1, 1, "cpu"), (), "resnet50", request={"dtype": "fp32", "global_batch_size": 8})


def start(size: int = 1, **request: object) -> dict[str, object]:
    return {
        "schema": 1,
        "benchmark": "resnet50",
        "code": None,
        "request": {"dtype": "fp32", "mode": "overlap", "global_batch_size": 8, **request},
        "device": {"type": "cpu", "name": "a CPU", "count": 1, "peak_flops": None},
        "world": {"size": size},
    }


class Time:
    """A clock that only the loop moves."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s

    def batches(self, wait_s: float) -> Iterator[int]:
        while True:
            self.now_s += wait_s
            yield 0


class Threads:
    """Ranks of one job as threads: a group as Meter wants it."""

    def __init__(self, rank: int, size: int, shared: dict[int, object], barrier: threading.Barrier) -> None:
        self.rank, self.size, self._shared, self._barrier = rank, size, shared, barrier

    def barrier(self) -> None:
        self._barrier.wait(PATIENCE_S)

    def gather(self, thing: object) -> list[object]:
        self._shared[self.rank] = thing
        self.barrier()
        things = [self._shared[rank] for rank in range(self.size)]
        self.barrier()
        return things


def read_back(write: Callable[[int], None], cut: int = 100) -> LogReader:
    """What the reader made of everything that `write` wrote to a pipe."""
    reader, (out, into) = LogReader(), os.pipe()

    def follow() -> None:
        while chunk := os.read(out, cut):
            reader.feed(chunk)

    thread = threading.Thread(target=follow)
    thread.start()
    try:
        write(into)
    finally:
        os.close(into)
        thread.join(PATIENCE_S)
        os.close(out)
    return reader


def train(meter: Meter, time: Time, *, wait_s: float, busy_s: float, loss: float = 1.0, **end: object) -> int:
    for step, _ in enumerate(meter.steps(time.batches(wait_s))):
        time.now_s += busy_s
        meter.loss(loss / (step + 1))
    return meter.finish(**end)


def one_rank(mode: str = "overlap", loss: float = 1.0, busy_s: float = 0.3, **options: object) -> tuple[LogReader, int]:
    codes: list[int] = []

    def write(fd: int) -> None:
        time = Time()
        counts = {"samples": 8, "warmup_steps": 2, "windows": 3, "steps_per_window": 2}
        meter = Meter(**{**counts, **options}, mode=mode, now=time, wire=Wire(fd=fd), folder=None)
        meter.start(start(mode=mode, windows=3, steps_per_window=2), {"seed": 1, "global_batch_size": 8})
        codes.append(train(meter, time, wait_s=0.1, busy_s=busy_s, loss=loss))

    return read_back(write), codes[0]


def test_the_three_numbers_arrive() -> None:
    reader, exit_code = one_rank()
    run = reader.finish(SPEC)
    assert (exit_code, reader.exit_code, reader.complete, run.problems) == (0, 0, True, ())
    assert [(window.samples, window.steps) for window in run.windows] == [(16, 2)] * 3
    assert run.effective_throughput == pytest.approx(48 / 2.4)
    assert run.compute_fraction == pytest.approx(0.75)
    assert run.compute_throughput == pytest.approx(48 / 1.8)
    assert run.identity_gap == pytest.approx(0)
    assert run.summary["optimizer_steps"] == 8
    assert run.warnings == ("peak unknown: compute throughput was not compared with what the devices can do",)
    rate = Metric(pytest.approx(20), "samples/s")
    assert reader.progress == Progress("window", None, 7, 8, rate, pytest.approx(1 / 7), pytest.approx(0.4))


def test_missing_numbers_arrive_with_their_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HPC_ML_BENCH_LAST_WORD", str(tmp_path / "word"))
    reader, exit_code = one_rank(no_split="its own nodes feed it", steps_per_batch=2, samples=16)
    run = reader.finish(SPEC)
    assert (exit_code, reader.complete, run.no_split) == (0, True, "its own nodes feed it")
    assert (run.compute_fraction, run.compute_throughput, run.identity_gap) == (None, None, None)
    assert [(window.samples, window.steps) for window in run.windows] == [(16, 2)] * 3
    assert run.effective_throughput == pytest.approx(48 / 1.2)
    assert run.problems == ()
    assert reader.contradictions((tmp_path / "word").read_text()) == []


def test_the_summary_is_the_sum_for_awkward_times() -> None:
    reader, _ = one_rank(busy_s=math.pi / 1e7)
    assert reader.finish(SPEC).problems == ()


@pytest.mark.parametrize("loss", [math.nan, math.inf])
def test_a_loss_that_is_not_finite_fails(loss: float) -> None:
    reader, exit_code = one_rank(loss=loss)
    run = reader.finish(SPEC)
    assert exit_code == reader.exit_code == 3
    assert state_of_exit(exit_code, speaks_wire=reader.speaks_wire) is State.GATE
    assert [problem.split(":")[0] for problem in run.problems] == ["loss_finite", "the job ended with exit code 3"]
    assert not reader.complete
    assert any("loss_finite" in line for line in reader.tail)


def test_both_sides_find_the_same_roofline() -> None:
    reader, exit_code = one_rank(flop_per_sample=10.0, peak_flops=100.0)
    assert exit_code == 3
    assert reader.finish(SPEC).problems[0].startswith("roofline: ")


def test_ranks_write_to_one_log() -> None:
    size = 4

    def write(fd: int) -> None:
        shared: dict[int, object] = {}
        barrier = threading.Barrier(size)

        def rank(number: int) -> None:
            group, time = Threads(number, size, shared, barrier), Time()
            wire = Wire(number, fd)
            counts = {"samples": 2, "warmup_steps": 1, "windows": 2, "steps_per_window": 5}
            meter = Meter(**counts, group=group, now=time, wire=wire, folder=None)
            meter.start(start(size))
            for line in range(50):
                wire.emit("seed", f"{number}-{line}" * 20)
            slow = number == 2
            train(meter, time, wait_s=0.3 if slow else 0.1, busy_s=0.2 if slow else 0.4, parameters_identical=True)

        threads = [threading.Thread(target=rank, args=(number,)) for number in range(size)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(2 * PATIENCE_S)

    reader = read_back(write, cut=1000)
    run = reader.finish(JobSpec("n", "t", "p", Layout(1, 4, "cpu"), (), "resnet50"))
    assert run.problems == ()
    assert run.samples == 2 * 5 * 2 * size
    assert run.compute_fraction == pytest.approx(1 - 0.3 / 0.5)  # of the rank that stalled longest
    assert run.summary["parameters_identical"] is True


def test_an_abort_says_why() -> None:
    def write(fd: int) -> None:
        meter = Meter(samples=1, wire=Wire(fd=fd), folder=None)
        meter.abort(errors.DataMissing.exit_code, "data", "there is no data in /d: python -m models data resnet50")

    reader = read_back(write)
    assert reader.finish(SPEC).problems == (
        "data: there is no data in /d: python -m models data resnet50 (rank 0)",
        "the job ended with exit code 66",
    )
    assert reader.why_incomplete == "the job ended with exit code 66"


def test_the_last_word_agrees_with_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "last word"
    monkeypatch.setenv("HPC_ML_BENCH_LAST_WORD", str(path))
    reader, _ = one_rank()
    said = json.loads(path.read_text())
    assert said["effective_throughput"] == pytest.approx(48 / 2.4)
    assert path.stat().st_size < 1024
    assert reader.contradictions(path.read_text()) == []
    for key, wrong in (("windows", 2), ("exit_code", 3), ("effective_throughput", 21.0)):
        (problem,) = reader.contradictions(json.dumps({**said, key: wrong}))
        assert problem.startswith(f"last word: {key} is {wrong!r} there")
    cut_off = LogReader()
    assert "last word: exit_code is 0 there, and None in the log" in cut_off.contradictions(path.read_text())


def test_a_last_word_of_somebody_else_is_no_contradiction() -> None:
    reader, _ = one_rank()
    assert reader.contradictions("") == reader.contradictions("done") == reader.contradictions('{"exit": 1}') == []


def test_a_last_word_that_cannot_be_left_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HPC_ML_BENCH_LAST_WORD", "/proc/nowhere/file")
    reader, exit_code = one_rank()
    assert (exit_code, reader.complete) == (0, True)


@pytest.mark.parametrize(
    "text", ["x" * 100_000, "é☃𝄞\ud800" * 3000, "\n\r\x1b[31m\x00\u2028", ':::MLLOG {"a": 1}', "\\" * 9999]
)
def test_texts_of_every_kind_come_through(text: str) -> None:
    reader = read_back(lambda fd: Wire(fd=fd).problem("gate", text), cut=7)
    run = reader.finish()
    assert run.problems[0].startswith("gate: ")
    assert len(run.problems[0]) <= LINE_BYTES
    assert "\n" not in run.problems[0]
    assert not any("wire lines" in problem for problem in run.problems)
    assert any(line.startswith("gate: ") or line.startswith("…") for line in reader.tail)


COMPILER_MESSAGE = [f"loc(call{n}): error: 'cirh.MaxPool3d' is no legal operation \x1b[31mred" for n in range(40)]


def test_what_a_compiler_said_comes_through_in_lines() -> None:
    text = "\n".join(["the model does not compile (RuntimeError)", "", *COMPILER_MESSAGE])

    def fail(fd: int) -> None:
        Meter(samples=1, wire=Wire(fd=fd), group=Solo(), folder=None).abort(4, "compile", text)

    reader = read_back(fail)
    run = reader.finish()
    assert run.problems[0] == "compile: the model does not compile (RuntimeError) (rank 0)"
    assert run.said == tuple(line.replace("\x1b[31m", "") for line in COMPILER_MESSAGE[:12])
    assert reader.exit_code == 4


@pytest.mark.parametrize("lines", [["é☃𝄞\ud800" * 900] * 400, [""] * 9, [":::MLLOG {}"], ["x" * 99999, "\x00"]])
def test_messages_of_every_kind_come_through(lines: list[str]) -> None:
    reader = read_back(lambda fd: Wire(fd=fd).problem("compile", "\n".join(["it failed", *lines])), cut=7)
    run = reader.finish()
    assert run.problems[0] == "compile: it failed (rank 0)"
    assert len(run.said) <= 13
    assert all(len(line) <= 400 and line.isprintable() for line in run.said)
    assert not any("wire lines" in problem for problem in run.problems)


def test_what_is_not_finite_is_null() -> None:
    value = {"phase": "window", "samples_per_s": math.inf, "loss": math.nan, "left_s": -math.inf}
    reader = read_back(lambda fd: Wire(fd=fd).emit("hpcml_progress", value))
    assert reader.progress == Progress("window")
    assert not any("NaN" in problem for problem in reader.finish().problems)


def test_exit_codes_mean_the_same_on_both_sides() -> None:
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.CommandError)]
    states = {kind: state_of_exit(kind.exit_code, speaks_wire=True) for kind in kinds}
    assert states == {
        errors.CommandError: State.EXITED,
        errors.CompileFailed: State.COMPILE_FAILED,
        errors.DeviceOutOfMemory: State.DEVICE_OUT_OF_MEMORY,
        errors.DataCorrupt: State.DATA_CORRUPT,
        errors.DataMissing: State.DATA_MISSING,
        errors.LossNotFinite: State.GATE,
        errors.MachineFailed: State.NODE_LOST,
        errors.ImpossibleRequest: State.REQUEST_REFUSED,
    }
    assert errors.LossNotFinite.exit_code == GATE_EXIT_CODE
    assert {kind.exit_code for kind in kinds} == {1, *WIRE_EXIT_STATES}
    assert {state.outcome for state in states.values()} == {Outcome.FAILED, Outcome.ERROR}


def test_limits_are_the_same_on_both_sides() -> None:
    assert meter.IDENTITY_LIMIT == gates.IDENTITY_LIMIT
    assert meter.SPLIT == gates.SPLIT


def test_the_words_of_the_doubts_and_explanations_are_those_of_the_jobs_own_warnings() -> None:
    throttling = cgroups.Throttling(periods=100, throttled=50, throttled_s=1.0)
    counted = {
        "host": "n01",
        "node": "n01",
        "elapsed_s": 10.0,
        "used_s": 5.0,
        "waited_s": 1.0,
        "threads": 4,
        "cores": [frozenset({0, 1}), frozenset({0, 1})],
        "busy_s": {0: 8.0, 1: 8.0},
        "stolen_s": 0.0,
        "pressure_s": {},
        "quotas": [1.0, math.inf],
        "throttling": throttling,
    }
    warnings = contention.join([counted], on_cpu=True).warnings
    assert len(warnings) == 4
    assert list(doubts_of({"warnings": warnings})) == ["not alone", "crowded"]
    assert list(explanations_of({"warnings": warnings})) == ["throttled", "throttled"]


def test_many_devices_of_a_node_take_several_lines(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    gpu = {"name": "NVIDIA A100-SXM4-80GB MIG", "driver": "550.54", "mig": "1g.10gb"}
    gpus: list[dict[str, object]] = [{**gpu, "uuid": f"{number:08x}"} for number in range(56)]
    monkeypatch.setattr(node_devices, "look", lambda: node_devices.Look(gpus, [], None))
    assert node.main(["true"]) == 0
    log = capfd.readouterr().out
    assert max(map(len, log.splitlines())) <= LINE_BYTES
    (facts,) = log_reader.parse(log).nodes.values()
    assert facts["devices"]["list"] == gpus


def test_each_unit_of_layouts_is_a_device_that_models_can_train_on() -> None:
    assert set(DEVICE_UNITS) == set(get_args(Unit))
    assert {unit.family for unit in DEVICE_UNITS.values()} == set(FAMILIES)
