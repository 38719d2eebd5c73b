"""What a request comes to: defaults, batches that fit into the device's memory, and what is refused."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from models import benchmarks
from models.accelerators.cpu import Cpu
from models.command_line import parser
from models.errors import ImpossibleRequest
from models.request import Request, fit, resolve
from models.time_limit import check_time
from models.training_setup import warnings_on_request
from models.world import World, detect


def resolved(benchmark: str, *words: str, family: str = "cuda", gib: float | None = 80, ranks: int = 1) -> Request:
    """The request of a command line, on a node with `ranks` devices of so much memory."""
    first = {"RANK": "0", "LOCAL_RANK": "0", "MASTER_PORT": "1"}
    environ = {**first, "WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(ranks)}
    accelerator = SimpleNamespace(
        family=family,
        accumulates=False,
        replicas=lambda options, world: world.size,
        steps_per_batch=lambda common_divisor: 1,
        memory_bytes=lambda: None if gib is None else int(gib * 2**30),
        dtypes=lambda: ("bf16", "fp32"),
        facts=lambda dtype: {"name": "a device"},
    )
    options = parser().parse_args(["train", benchmark, "--data-dir", "d", *words])
    return resolve(options, benchmarks.load(benchmark), accelerator, detect(environ))


@pytest.mark.parametrize(
    ("name", "words", "gib", "local"),
    [
        ("resnet50", ["--dtype", "bf16"], 16, 128),
        ("resnet50", ["--dtype", "bf16"], 40, 256),
        ("resnet50", ["--dtype", "fp32"], 40, 128),
        ("resnet50", ["--dtype", "bf16"], 141, 256),
        ("resnet50", ["--dtype", "bf16", "--variant", "epcc"], 80, 128),
        ("resnet50", ["--dtype", "fp32"], 4, 16),
        ("resnet50", [], None, 256),
    ],
)
def test_a_tuned_batch_fills_the_device(name: str, words: list[str], gib: float | None, local: int) -> None:
    request = resolved(name, *words, gib=gib)
    assert (request.local_batch_size, request.accumulation_steps) == (local, 1)


@pytest.mark.parametrize("name", benchmarks.names())
@pytest.mark.parametrize(
    ("words", "family", "window_s"),
    [
        (["--size", "quick"], "cpu", 5.0),
        (["--size", "quick"], "cuda", 0.0),
        (["--size", "smoke"], "cpu", 0.0),
        (["--size", "quick", "--steps-per-window", "2"], "cpu", 0.0),
        (["--size", "quick", "--cache", "cold"], "cpu", 0.0),
    ],
)
def test_windows_go_by_time_where_a_step_of_quick_may_be_short(
    name: str, words: list[str], family: str, window_s: float
) -> None:
    """Not where the number of steps was asked for, nor where it says which samples are read once."""
    request = resolved(name, *words, family=family)
    assert request.window_s == window_s
    longest = 50 if window_s else request.steps_per_window
    assert request.steps == request.warmup_steps + request.windows * longest


@pytest.mark.parametrize(("typed", "is_said"), [([], False), (["--warmup-steps", "1"], True)])
def test_a_warm_up_that_leaves_the_time_limit_unchecked_is_said_if_it_was_typed(
    typed: list[str], is_said: bool
) -> None:
    """DeepCAM's `quick` has one step on CPUs on purpose, and each job has a limit: no user could act on it."""
    words = ["train", "deepcam", "--data-dir", "d", "--size", "quick", "--time-limit-s", "9", *typed]
    options, deepcam, cpu = parser().parse_args(words), benchmarks.load("deepcam"), Cpu()
    request = resolve(options, deepcam, cpu, World())
    assert request.warmup_steps == 1
    said = warnings_on_request(request, deepcam, cpu, options)
    assert any(text.startswith("--time-limit-s was not checked: ") for text in said) is is_said


def test_the_time_limit_is_compared_with_windows_as_long_as_they_become() -> None:
    request = resolved("resnet50", "--size", "quick", family="cpu")
    check_time(request, elapsed_s=4.0, step_s=1.0, limit_s=20.0)
    with pytest.raises(ImpossibleRequest, match="3 windows of 5 steps take 1 s each step"):
        check_time(request, elapsed_s=4.0, step_s=1.0, limit_s=18.0)
    check_time(request, elapsed_s=4.0, step_s=0.01, limit_s=6.0)  # 50 steps at most


@pytest.mark.parametrize("name", benchmarks.names())
def test_gbs32_is_32_samples_however_small_the_memory(name: str) -> None:
    """What does not fit at once is accumulated; the local batch and the number of micro-batches are powers of two."""
    words = ("--configuration", "gbs32", "--size", "subset")
    seen = set()
    for gib in (8 if name == "gpt" else 1, 8, 24, 80, 1000):  # a language model is itself 2 GB
        request = resolved(name, *words, gib=gib)
        assert request.global_batch_size == 32 == request.local_batch_size * request.accumulation_steps
        seen.add(request.local_batch_size)
    assert seen >= {32}
    spread = resolved(name, *words, gib=1000, ranks=4)
    assert (spread.local_batch_size, spread.accumulation_steps, spread.global_batch_size) == (8, 1, 32)


def test_ranks_share_the_memory_of_a_processor_and_not_that_of_gpus() -> None:
    words = ("--configuration", "gbs32", "--size", "subset", "--dtype", "fp32")
    alone, shared = (resolved("resnet50", *words, family="cpu", gib=3, ranks=ranks) for ranks in (1, 4))
    assert (alone.local_batch_size, alone.accumulation_steps) == (8, 4)
    assert (shared.local_batch_size, shared.accumulation_steps) == (2, 4)
    assert resolved("resnet50", *words, gib=3, ranks=4).local_batch_size == 8


def test_what_is_typed_stands_above_the_size_and_that_above_the_configuration() -> None:
    def of(*words: str) -> tuple[int, int, int]:
        request = resolved("resnet50", "--configuration", "gbs32", *words)
        return request.global_batch_size, request.local_batch_size, request.accumulation_steps

    assert of("--size", "smoke") == (4, 4, 1)
    assert of("--size", "smoke", "--global-batch-size", "6") == (6, 6, 1)
    assert of("--size", "smoke", "--local-batch-size", "3", "--accumulation-steps", "2") == (6, 3, 2)
    assert of("--size", "quick", "--accumulation-steps", "8") == (32, 4, 8)


@pytest.mark.parametrize("name", benchmarks.names())
@pytest.mark.parametrize("size", ["smoke", "quick", "subset", "full"])
@pytest.mark.parametrize("family", ["cpu", "cuda"])
def test_every_size_of_every_benchmark(name: str, size: str, family: str) -> None:
    shapes = {
        "resnet50": ((64, 64), (224, 224)),
        "cosmoflow": ((32,) * 3, (128,) * 3),
        "deepcam": ((96, 144), (768, 1152)),
        "gpt": ((64,), (512,) if (size, family) == ("quick", "cpu") else (1024,)),
    }
    request = resolved(name, "--size", size, family=family)
    assert request.shape == shapes[name][size != "smoke"]
    assert request.windows == (2 if (name, size, family) == ("deepcam", "quick", "cpu") else 3)
    if size == "smoke":
        assert request.local_batch_size == {"resnet50": 4, "cosmoflow": 2, "deepcam": 2, "gpt": 2}[name]
    if size == "subset":
        assert (request.warmup_steps, request.steps_per_window) == (10, 50)
    assert request.wire()["shape"] == "x".join(map(str, request.shape))


@pytest.mark.parametrize("name", ["cosmoflow", "deepcam", "gpt"])
def test_where_nothing_is_augmented_there_is_nothing_to_leave_out(name: str) -> None:
    assert resolved(name).augment is False
    assert resolved(name).worker_start == "thread"
    assert resolved(name, "--worker-start", "spawn").worker_start == "spawn"
    with pytest.raises(ImpossibleRequest, match=f"{name} augments nothing; leave out --no-augment"):
        resolved(name, "--no-augment")


def test_a_cold_run_reads_nothing_twice() -> None:
    words = ("--configuration", "gbs32", "--cache", "cold", "--steps-per-window", "2", "--warmup-steps", "1")
    request = resolved("cosmoflow", *words)  # seven steps of 32 samples
    assert fit(request, Set(range(224)), "cosmoflow", "here").cache == "cold"
    with pytest.raises(ImpossibleRequest, match=r"reads 224 and the data set at here has 223: .* --samples 224"):
        fit(request, Set(range(223)), "cosmoflow", "here")


class Set(list):  # type: ignore[type-arg]
    kind = "real"


def test_a_real_set_that_is_smaller_than_a_step_is_refused_and_a_synthetic_one_repeats() -> None:
    request, small = resolved("deepcam", "--configuration", "gbs32", "--size", "full", gib=1000), Set(range(12))
    with pytest.raises(ImpossibleRequest, match=r"a step takes 32 samples .* at here has 12; .*data deepcam --size"):
        fit(request, small, "deepcam", "here")
    small.kind = "synthetic"
    assert fit(request, small, "deepcam", "here").steps_per_window == 1
    assert fit(request, Set(range(100)), "deepcam", "here").steps_per_window == 3


def test_a_fault_is_injected_into_a_rank_that_exists() -> None:
    assert resolved("cosmoflow", "--inject-stall-s", "0.1", "--inject-rank", "1", ranks=2)
    with pytest.raises(ImpossibleRequest, match="--inject-rank 2: there are ranks 0 to 1"):
        resolved("cosmoflow", "--inject-stall-s", "0.1", "--inject-rank", "2", ranks=2)


@pytest.mark.parametrize(
    ("variant", "gib", "ranks", "expected"),
    [
        ("gpt2-124m", 80, 1, (False, False, 64)),
        ("llama-1b", 80, 1, (False, False, 1)),
        ("llama-1b", 48, 1, (False, True, 1)),
        ("llama-8b", 80, 8, (True, True, 2)),
        ("llama-8b", 180, 8, (True, False, 1)),
        ("llama-8b", None, 1, (False, False, 64)),
    ],
)
def test_a_large_model_is_split_and_computed_again_only_where_it_does_not_fit(
    variant: str, gib: float | None, ranks: int, expected: tuple[bool, bool, int]
) -> None:
    request = resolved("gpt", "--variant", variant, gib=gib, ranks=ranks)
    assert (request.sharded, request.recompute, request.local_batch_size) == expected
    assert request.shape == benchmarks.load("gpt").shape_of(variant)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("words", "family", "gib", "said"),
    [
        (["gpt", "--variant", "llama-8b"], "cuda", 80, "needs 144.5 GB for weights, .* start 4 or more, or give"),
        (["gpt", "--variant", "llama-8b"], "cuda", 16, "give a smaller --variant or --shape"),
        (["gpt", "--shard", "on"], "cuda", 80, "one rank has nobody to share the model with"),
        (["resnet50", "--shard", "on"], "cuda", 80, "--shard on is for large models, and resnet50 is none"),
        (["gpt"], "csx", 80, "gpt is not trained on csx: Cerebras' own Model Zoo"),
        (["gpt", "--shape", "8x8"], "cuda", 80, "a sample of gpt is a sequence"),
    ],
)
def test_a_large_model_that_cannot_be_trained_is_refused(words: list[str], family: str, gib: float, said: str) -> None:
    with pytest.raises(ImpossibleRequest, match=said):
        resolved(*words, family=family, gib=gib)


def test_a_split_model_is_not_compiled() -> None:
    with pytest.raises(ImpossibleRequest, match="--compile has not been tried with a model that is split over 2 ranks"):
        resolved("gpt", "--shard", "on", "--compile", ranks=2)
