"""What must hold for every benchmark: it learns, ranks and micro-batches do not matter, nor how its data is read."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import pytest

from models import benchmarks
from models.data.synthetic import generator_of, write_set
from tests.models.jobs import Ended, Nursery, ranks_of

EXACT = ("--configuration", "gbs32", "--workers", 0)
needs_two_cores = pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="two ranks need two cores")


@dataclass(frozen=True)
class Bench:
    """A benchmark, its smoke data, and one process that accumulates two micro-batches a step."""

    name: str
    folder: Path
    nursery: Nursery

    def words(self, *more: object) -> list[object]:
        steps = ("--warmup-steps", 1, "--windows", 1, "--steps-per-window", 3)
        words = ["train", self.name, "--data-dir", self.folder, "--device", "cpu", "--size", "smoke", *steps]
        return [*words, "--trace-losses", "losses", *more]

    @property
    def exact(self) -> tuple[object, ...]:
        """Two micro-batches; DeepCAM's are of one sample, as a step of it takes seconds."""
        return (*EXACT, "--global-batch-size", self.batch)

    @property
    def batch(self) -> int:
        return 2 if self.name == "deepcam" else 4

    def run(self, *more: object, **environ: str) -> Ended:
        ended = self.nursery.run(*self.words(*more), **environ)
        assert ended.code == 0, ended.errors
        return ended

    def together(self, *more: object) -> list[Ended]:
        return self.nursery.together(*((self.words(*more), environ) for environ in ranks_of("slurm")))


@pytest.fixture(scope="module", params=benchmarks.names())
def bench(request: pytest.FixtureRequest, nursery: Nursery, tmp_path_factory: pytest.TempPathFactory) -> Bench:
    name = request.param
    generator = generator_of(name)
    folder = tmp_path_factory.mktemp("data") / name
    write_set(str(folder), generator.recipe("smoke", 16, 0, generator.FORMATS[0]), processes=1)
    return Bench(name, folder, nursery)


@pytest.fixture(scope="module")
def alone(bench: Bench) -> Ended:
    return bench.run(*bench.exact, "--accumulation-steps", 2)


def test_what_it_says_of_itself(bench: Bench, alone: Ended) -> None:
    start, summary = alone.value("hpcml_start"), alone.value("hpcml_summary")
    module = benchmarks.load(bench.name)
    request = start["request"]
    assert (start["benchmark"], start["workload_version"]) == (bench.name, module.WORKLOAD_VERSION)
    assert request["variant"] == next(iter(module.VARIANTS))
    assert tuple(map(int, request["shape"].split("x"))) == module.SIZES["smoke"]["cpu"].shape
    assert request["worker_start"] == {"thread": "thread", "process": "fork"}[module.LOADER]
    assert start["data"]["kind"] == "synthetic"
    assert start["data"]["samples"] == 16
    assert start["data"]["bytes"] == sum(
        path.stat().st_size for path in bench.folder.glob("train/**/*") if path.is_file()
    )
    assert start["data"]["format"]
    assert summary["optimizer_steps"] == 4
    assert summary["samples"] == 3 * bench.batch
    shape = module.SIZES["smoke"]["cpu"].shape
    assert summary["flop_per_sample"] == module.flop_per_sample(request["variant"], shape)[1]
    assert alone.value("submission_benchmark") == module.MLPERF_NAME


def test_it_learns(bench: Bench) -> None:
    """On a handful of samples, seen again and again: the last losses are clearly below the first."""
    size, steps = (1, 7) if bench.name == "deepcam" else (2, 15)
    more = ("--configuration", "tuned", "--dtype", "fp32", "--global-batch-size", size, "--steps-per-window", steps)
    losses = bench.run(*more, "--workers", 1).losses
    first, last = sum(losses[:3]) / 3, sum(losses[-3:]) / 3
    assert last < 0.9 * first, losses


def test_the_same_seed_gives_the_same_losses_however_data_is_read(bench: Bench, alone: Ended) -> None:
    """By another number of workers, and by processes where threads are the rule."""
    exact = (*bench.exact, "--accumulation-steps", 2, "--worker-start", "fork")
    assert bench.run(*exact, "--workers", 1).losses == alone.losses
    assert len(set(alone.losses)) == 4
    other = bench.run(*exact, "--workers", 0, "--seed", 2, "--warmup-steps", 0, "--steps-per-window", 1)
    assert other.losses[0] != alone.losses[0]


@needs_two_cores
def test_two_ranks_learn_what_one_learns(bench: Bench, alone: Ended) -> None:
    """Dropout included: what it drops depends on the micro-batch and not on who computes it."""
    first, second = bench.together(*bench.exact)
    assert (first.code, second.code) == (0, 0), first.errors + second.errors
    assert first.losses == pytest.approx(alone.losses, rel=1e-4, abs=1e-5)
    assert first.value("hpcml_summary")["parameters_identical"] is True
    assert first.value("hpcml_start")["world"]["size"] == 2


@pytest.mark.parametrize(("dtype", "tolerance"), [("fp32", 1e-3), ("bf16", 0.2)])
def test_a_job_computes_in_the_layout_and_dtype_asked_for(
    bench: Bench, alone: Ended, dtype: str, tolerance: float
) -> None:
    """The first loss is that of the plain layout in fp32, as far as BatchNorm over two samples lets roundings be.

    After a step it amplifies them further, so nothing later is compared; what a step computes: test_layouts.py.
    """
    more = ("--accumulation-steps", 2, "--channels-last", "on", "--dtype", dtype, "--steps-per-window", 1)
    ended = bench.run(*bench.exact, *more)
    request = ended.value("hpcml_start")["request"]
    assert (request["dtype"], request["channels_last"]) == (dtype, True)
    assert ended.losses[0] == pytest.approx(alone.losses[0], rel=tolerance)


def test_a_global_batch_larger_than_a_synthetic_set_reads_it_again(bench: Bench) -> None:
    ended = bench.run(
        "--global-batch-size", 18, "--accumulation-steps", 9, "--warmup-steps", 0, "--steps-per-window", 1
    )
    assert ended.value("hpcml_summary")["data_from"] == "memory"
    assert ended.value("hpcml_window")["samples"] == 18


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        (["--variant", "v0"], "unknown variant 'v0'; --variant is one of "),
        (["--shape", "33x33x33x33"], "33x33x33x33"),
        (["--dtype", "fp16"], "does not train in fp16"),
        (["--time-limit-s", 1, "--windows", 100_000, "--warmup-steps", 2], "--time-limit-s is 1: "),
    ],
)
def test_the_impossible_is_refused_in_one_sentence(bench: Bench, more: list[object], sentence: str) -> None:
    ended = bench.nursery.run(*bench.words("--global-batch-size", 2, *more))
    assert ended.code == 78, ended.errors
    assert sentence in ended.value("hpcml_problem")["text"]
    assert ended.errors.count("\n") == 1
    assert ended.value("hpcml_end")["exit_code"] == 78


def test_the_data_of_another_benchmark_is_refused(bench: Bench) -> None:
    names = benchmarks.names()
    other = names[names.index(bench.name) - 1]
    ended = bench.nursery.run("train", other, "--data-dir", bench.folder, "--device", "cpu", "--size", "smoke")
    assert ended.code == 66
    assert f"is a data set of benchmark '{bench.name}', not of {other}" in ended.errors


def test_no_data_names_the_command_that_makes_it(bench: Bench, tmp_path: Path) -> None:
    folder = tmp_path / f"{bench.name}-smoke"
    ended = bench.nursery.run("train", bench.name, "--data-dir", folder, "--device", "cpu", "--size", "smoke")
    assert ended.code == 66
    assert f"python -m models data {bench.name} --data-dir {folder} --size smoke" in ended.errors
