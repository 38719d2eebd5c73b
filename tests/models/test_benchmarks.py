"""What must hold for every benchmark: it learns, ranks and micro-batches do not matter, nor how its data is read.

`make test` asks all of it of CosmoFlow, whose steps are the cheapest, and of the others whether they learn.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import pytest

from models import benchmarks
from models.data import synthetic_deepcam
from models.data.synthetic import generator_of, write_set
from tests.models.jobs import Ended, Nursery, ranks_of

pytestmark = pytest.mark.slow

PARTS = ("models/benchmarks", "models/data", "models/deeplab.py", "models/lamb.py", "models/steps", "models/train.py")
at_night = pytest.mark.nightly(*PARTS)
WHOLE = [name if name == "cosmoflow" else pytest.param(name, marks=at_night) for name in benchmarks.names()]
each = pytest.mark.parametrize("bench", benchmarks.names(), indirect=True, scope="module")
cheapest = pytest.mark.parametrize("bench", WHOLE, indirect=True, scope="module")

SHAPES = {"cosmoflow": "32x32x32", "deepcam": "32x48", "resnet50": "48x48"}
"""The least that still trains; a benchmark that is not here has the shape of its smoke size."""


@dataclass(frozen=True)
class Bench:
    """A benchmark and a small set of its data."""

    name: str
    folder: Path
    nursery: Nursery

    @property
    def batch(self) -> int:
        """Samples of a step, in two micro-batches."""
        return 2 if self.name == "deepcam" else 4

    @property
    def steps(self) -> int:
        """So many after the first that the loss clearly falls. Dropout makes CosmoFlow's noisy; gpt begins slowly."""
        return 15 if self.name in ("cosmoflow", "gpt") else 7

    def words(self, *more: object) -> list[object]:
        steps = ("--warmup-steps", 1, "--windows", 1, "--steps-per-window", 3)
        shape = ("--shape", SHAPES[self.name]) if self.name in SHAPES else ()
        words = ["train", self.name, "--data-dir", self.folder, "--device", "cpu", "--size", "smoke", *shape]
        return [*words, *steps, "--global-batch-size", self.batch, "--trace-losses", "losses", *more]

    def run(self, *more: object) -> Ended:
        ended = self.nursery.run(*self.words(*more))
        assert ended.code == 0, ended.errors
        return ended


EXACT = ("--configuration", "gbs32", "--workers", 0)
TWICE = ("--accumulation-steps", 2)


@pytest.fixture(scope="module")
def bench(request: pytest.FixtureRequest, nursery: Nursery, tmp_path_factory: pytest.TempPathFactory) -> Bench:
    name = request.param
    folder = tmp_path_factory.mktemp("data") / name
    generator = generator_of(name)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(synthetic_deepcam.SHAPES, "smoke", (32, 48))
        write_set(str(folder), generator.recipe("smoke", 16, 0, generator.FORMATS[0]), processes=1)
    return Bench(name, folder, nursery)


@pytest.fixture(scope="module")
def trained(bench: Bench) -> Ended:
    """A training on a handful of samples, seen again and again."""
    more = ("--configuration", "tuned", "--dtype", "fp32", "--workers", 1)
    return bench.run(*more, "--steps-per-window", bench.steps)


@pytest.fixture(scope="module")
def alone(bench: Bench) -> Ended:
    """One process that accumulates two micro-batches a step."""
    return bench.run(*EXACT, *TWICE)


@each
def test_what_it_says_of_itself(bench: Bench, trained: Ended) -> None:
    start, summary = trained.value("hpcml_start"), trained.value("hpcml_summary")
    module = benchmarks.load(bench.name)
    request = start["request"]
    assert (start["benchmark"], start["workload_version"]) == (bench.name, module.WORKLOAD_VERSION)
    assert request["variant"] == (module.SIZES["smoke"]["cpu"].variant or next(iter(module.VARIANTS)))
    assert request["worker_start"] == {"thread": "thread", "process": "fork"}[module.LOADER]
    assert start["data"]["kind"] == "synthetic"
    assert start["data"]["samples"] == 16
    assert start["data"]["bytes"] == sum(path.stat().st_size for path in bench.folder.glob("train/**/*.*"))
    assert start["data"]["format"]
    assert summary["optimizer_steps"] == 1 + bench.steps
    assert summary["samples"] == bench.steps * bench.batch
    shape = tuple(map(int, request["shape"].split("x")))
    assert summary["flop_per_sample"] == module.flop_per_sample(request["variant"], shape)[1]
    assert trained.value("submission_benchmark") == module.MLPERF_NAME


@each
def test_it_learns(trained: Ended) -> None:
    first, last = sum(trained.losses[:3]) / 3, sum(trained.losses[-3:]) / 3
    assert last < 0.9 * first, trained.losses


@cheapest
def test_the_same_seed_gives_the_same_losses_however_data_is_read(bench: Bench, alone: Ended) -> None:
    """By another number of workers, and by processes where threads are the rule."""
    assert bench.run(*EXACT, *TWICE, "--worker-start", "fork", "--workers", 1).losses == alone.losses
    assert len(set(alone.losses)) == 4
    other = bench.run(*EXACT, *TWICE, "--seed", 2, "--warmup-steps", 0, "--steps-per-window", 1)
    assert other.losses[0] != alone.losses[0]


@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="two ranks need two cores")
@cheapest
def test_two_ranks_learn_what_one_learns(bench: Bench, alone: Ended) -> None:
    """Dropout included: what it drops depends on the micro-batch and not on who computes it."""
    jobs = ((bench.words(*EXACT), environ) for environ in ranks_of("slurm"))
    first, second = bench.nursery.together(*jobs)
    assert (first.code, second.code) == (0, 0), first.errors + second.errors
    assert first.losses == pytest.approx(alone.losses, rel=1e-4, abs=1e-5)
    assert first.value("hpcml_summary")["parameters_identical"] is True
    assert first.value("hpcml_start")["world"]["size"] == 2


@cheapest
@pytest.mark.parametrize(("dtype", "tolerance"), [("fp32", 1e-3), ("bf16", 0.2)])
def test_a_job_computes_in_the_layout_and_dtype_asked_for(
    bench: Bench, alone: Ended, dtype: str, tolerance: float
) -> None:
    """The first loss is that of the plain layout in fp32, as far as BatchNorm over two samples lets roundings be.

    After a step it amplifies them further, so nothing later is compared; what a step computes: test_layouts.py.
    """
    more = ("--channels-last", "on", "--dtype", dtype, "--warmup-steps", 0, "--steps-per-window", 1)
    ended = bench.run(*EXACT, *TWICE, *more)
    request = ended.value("hpcml_start")["request"]
    assert (request["dtype"], request["channels_last"]) == (dtype, True)
    assert ended.losses[0] == pytest.approx(alone.losses[0], rel=tolerance)
