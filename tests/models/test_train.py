"""Training for real: tiny pictures, the true net, one process and two, and every way in which a job can end.

Jobs are forked from one process that has imported torch already. Two start from nothing instead: under torchrun,
and from an archive.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from models.checks import check_parameters_finite
from models.data.synthetic import write_set
from models.data.synthetic_resnet50 import recipe_of
from models.meter import Meter, Wire
from tests.models.jobs import ENVIRON, PATIENCE_S, ROOT, Ended, Nursery, free_port, ranks_of


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data") / "resnet50"
    write_set(str(folder), recipe_of(24, 3, 0), processes=1)
    return folder


def tiny(data: Path, *more: object) -> list[object]:
    """The least that still trains: four optimiser steps of four samples, 32 pixels wide."""
    options = {"--size": "smoke", "--shape": "32x32", "--warmup-steps": 1, "--windows": 1, "--steps-per-window": 3}
    words: list[object] = ["train", "resnet50", "--data-dir", data, "--device", "cpu", "--trace-losses", "losses"]
    return [*words, *(word for option in options.items() for word in option), *more]


EXACT = ("--configuration", "gbs32", "--no-augment", "--workers", 0, "--global-batch-size", 4)


@pytest.fixture(scope="module")
def alone(nursery: Nursery, data: Path) -> Ended:
    """One process that accumulates two micro-batches a step."""
    return nursery.run(*tiny(data, *EXACT, "--accumulation-steps", 2))


# --- a run that ends well


def test_a_run_writes_the_whole_wire(alone: Ended) -> None:
    assert alone.code == 0, alone.errors
    start, window, summary, end = (alone.value(f"hpcml_{key}") for key in ("start", "window", "summary", "end"))
    assert start["schema"] == 1
    assert (start["benchmark"], start["workload_version"], start["code"]) == ("resnet50", 2, None)
    assert start["request"] == {
        **{"configuration": "gbs32", "size": "smoke", "mode": "overlap", "variant": "v1.5", "dtype": "fp32"},
        **{"channels_last": False, "compile": False, "seed": 1, "workers": 0, "worker_start": "fork"},
        **{"global_batch_size": 4, "local_batch_size": 2, "accumulation_steps": 2, "world_size": 1, "device": "cpu"},
        **{"warmup_steps": 1, "windows": 1, "steps_per_window": 3, "window_s": 0.0},
        **{"shape": "32x32", "augment": False, "skip_corrupt": False, "cache": "as-is"},
    }
    assert set(start["device"]) >= {"type", "name", "count", "memory_bytes", "driver", "peak_flops"}
    world = {"size": 1, "local_size": 1, "nodes": 1, "backend": None, "launcher": "none"}
    assert start["world"] == {**world, "hosts": 1, "ranks_per_host": [1, 1]}
    assert set(start["versions"]) >= {"python", "torch", "numpy", "pillow"}
    assert start["host"]["threads"] == 1
    assert "cpu_quota" in start["host"]
    assert (start["data"]["kind"], start["data"]["samples"]) == ("synthetic", 24)
    assert (window["steps"], window["samples"]) == (3, 12)
    assert summary["optimizer_steps"] == 4
    assert summary["parameters_identical"] is None
    assert (summary["slowest"], summary["longest_stall"]) == (None, None)  # one rank
    assert 0 < summary["contention"]["used_cores"][0] < 2  # one thread
    assert summary["flop_per_sample"] == pytest.approx(507_936_768)
    assert summary["peak_memory_bytes"] > 300e6  # parameters, gradients and momentum alone
    assert summary["attainable_flops"] > summary["compute_throughput"] * summary["flop_per_sample"] / 1.5
    assert summary["product_flops"] > 1e9
    assert end["exit_code"] == 0
    assert alone.values("hpcml_problem") == []


def test_mlperfs_keys(alone: Ended) -> None:
    keys = [json.loads(line.split(":::MLLOG ", 1)[1])["key"] for line in alone.log.splitlines()]
    order = ["init_start", "submission_benchmark", "init_stop", "hpcml_start", "run_start", "run_stop", "hpcml_end"]
    assert [key for key in keys if key in order] == order
    assert alone.value("submission_benchmark") == "resnet"
    assert (alone.value("global_batch_size"), alone.value("gradient_accumulation_steps")) == (4, 2)
    assert (alone.value("train_samples"), alone.value("opt_name")) == (24, "sgd")


def test_the_same_seed_gives_the_same_losses(alone: Ended, nursery: Nursery, data: Path) -> None:
    """Also when a loader process reads what the process itself read before."""
    again = nursery.run(*tiny(data, *EXACT, "--accumulation-steps", 2, "--workers", 1))
    assert again.code == 0, again.errors
    assert again.losses == alone.losses
    assert len(set(alone.losses)) == 4


def test_blocking_bf16_channels_last(nursery: Nursery, data: Path) -> None:
    """The other half of the options, with a different seed and real augmentation."""
    more = ("--mode", "blocking", "--dtype", "bf16", "--configuration", "tuned", "--local-batch-size", 2, "--seed", 7)
    ended = nursery.run(*tiny(data, *more, "--workers", 0))
    assert ended.code in (0, 3), ended.errors  # a machine this busy may fail the identity gate on so few steps
    request = ended.value("hpcml_start")["request"]
    assert (request["dtype"], request["channels_last"], request["mode"]) == ("bf16", True, "blocking")
    assert len(ended.losses) == 4


# --- two ranks


def assert_as_alone(ranks: Sequence[Ended], alone: Ended, launcher: str) -> None:
    """The two parts of each batch teach two ranks what they teach one that takes them one after the other."""
    assert [rank.code for rank in ranks] == [0] * len(ranks), ranks[0].errors + ranks[-1].errors
    first = ranks[0]
    assert first.losses == pytest.approx(alone.losses, abs=1e-5)
    assert first.value("hpcml_summary")["parameters_identical"] is True
    assert first.value("hpcml_window")["samples"] == 12
    world = {"size": 2, "local_size": 2, "nodes": 1, "backend": "gloo", "launcher": launcher}
    assert first.value("hpcml_start")["world"] == {**world, "hosts": 1, "ranks_per_host": [2, 2]}
    assert (first.value("hpcml_start")["request"]["local_batch_size"], first.value("number_of_nodes")) == (2, 1)


needs_two_cores = pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="two ranks need two cores")


@needs_two_cores
@pytest.mark.parametrize("launcher", ["slurm", "pmi"])
def test_two_ranks_learn_what_one_learns(launcher: str, alone: Ended, nursery: Nursery, data: Path) -> None:
    ranks = nursery.together(*((tiny(data, *EXACT), environ) for environ in ranks_of(launcher)))
    assert_as_alone(ranks, alone, launcher)
    assert ranks[1].log == ""


@needs_two_cores
def test_two_ranks_under_torchrun(alone: Ended, data: Path, tmp_path: Path) -> None:
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", free_port()]
    words = [str(word) for word in (*torchrun, "-m", "models", *tiny(data, *EXACT))]
    done = subprocess.run(words, cwd=tmp_path, env=ENVIRON, capture_output=True, text=True, timeout=PATIENCE_S)
    assert_as_alone([Ended(done.returncode, done.stdout, done.stderr, tmp_path)], alone, "torchrun")
    assert (tmp_path / "steps-rank1.csv.gz").exists()


@needs_two_cores
def test_corrupt_data_on_one_rank_ends_both(nursery: Nursery, data: Path, tmp_path: Path) -> None:
    """Without a launcher that would kill the other one, which waits for its gradients."""
    broken = tmp_path / "broken"
    subprocess.run(["cp", "-r", data, broken], check=True)
    for file in sorted(broken.glob("train/*/*.JPEG"))[1:]:
        file.write_bytes(b"no picture")
    first, second = ranks_of("slurm")
    ranks = nursery.together((tiny(data, *EXACT), first), (tiny(broken, *EXACT, "--workers", 1), second))
    assert [rank.code for rank in ranks] == [65, 65], ranks[0].errors + ranks[1].errors
    assert ranks[0].value("hpcml_end")["exit_code"] == 65
    problem = ranks[0].value("hpcml_problem")["text"]
    assert problem.startswith("rank 1: ")
    assert str(broken) in problem
    assert "\n" not in problem
    assert ranks[1].value("hpcml_problem")["text"] == problem.removeprefix("rank 1: ")


@needs_two_cores
def test_a_request_that_one_rank_cannot_fulfil_ends_both(nursery: Nursery, data: Path, tmp_path: Path) -> None:
    first, second = ranks_of("pmi")
    ranks = nursery.together((tiny(data, *EXACT), first), (tiny(tmp_path / "nothing", *EXACT), second))
    assert [rank.code for rank in ranks] == [66, 66]
    assert ranks[0].value("hpcml_end")["exit_code"] == 66
    assert ranks[0].value("hpcml_problem")["text"].startswith(f"rank 1: there is no data set at {tmp_path}")
    assert ranks[1].log == ""


# --- what checks the checker


@needs_two_cores
def test_a_stall_injected_on_one_rank_is_the_stall_of_both(alone: Ended, nursery: Nursery, data: Path) -> None:
    """And changes nothing of what is learned."""
    more = ("--inject-stall-s", 0.5, "--inject-rank", 1)
    ranks = nursery.together(*((tiny(data, *EXACT, *more), environ) for environ in ranks_of("openmpi")))
    assert_as_alone(ranks, alone, "openmpi")
    assert ranks[0].value("hpcml_summary")["stall_s"] >= 3 * 0.5
    assert ranks[0].value("hpcml_window")["wait_s"][2] >= 3 * 0.5
    assert min(ranks[0].seconds("wait")) < 0.5 <= min(ranks[1].seconds("wait"))
    assert ranks[0].value("hpcml_start")["request"]["inject"] == {"stall_s": 0.5, "rank": 1}
    summary = ranks[0].value("hpcml_summary")
    assert any("injected on purpose" in warning for warning in summary["warnings"])
    assert summary["longest_stall"]["rank"] == 1


@needs_two_cores
def test_a_rank_that_computes_slowly_is_named(nursery: Nursery, data: Path) -> None:
    """Neither the steps nor the stalls of the two differ: the other one waits in its own backward."""
    more = ("--inject-slow", 8, "--inject-rank", 1)
    ranks = nursery.together(*((tiny(data, *EXACT, *more), environ) for environ in ranks_of("slurm")))
    assert [rank.code for rank in ranks] == [0, 0], ranks[0].errors + ranks[1].errors
    summary = ranks[0].value("hpcml_summary")
    assert (summary["slowest"]["rank"], summary["slowest"]["host"]) == (1, platform.node())
    assert summary["slowest"]["own_s"] > 2 * summary["slowest"]["others_own_s"]
    assert any(text.startswith(f"straggler: rank 1 on {platform.node()} ") for text in summary["warnings"])


def test_injected_slowness_is_computing(alone: Ended, nursery: Nursery, data: Path) -> None:
    more = ("--inject-slow", 10, "--accumulation-steps", 2, "--steps-per-window", 1, "--warmup-steps", 0)
    ended = nursery.run(*tiny(data, *EXACT, *more))
    assert ended.code == 0, ended.errors
    assert ended.value("hpcml_summary")["compute_s"] > 1.5 * min(alone.seconds("busy"))


@pytest.mark.parametrize("mode", ["overlap", "blocking"])
def test_an_injected_copy_is_the_copy_in_both_modes(nursery: Nursery, data: Path, mode: str) -> None:
    """Once a step, however many micro-batches it has. On CPUs there is no copy otherwise."""
    ended = nursery.run(*tiny(data, *EXACT, "--accumulation-steps", 2, "--inject-copy-s", 0.25, "--mode", mode))
    assert ended.code == 0, ended.errors
    window = ended.value("hpcml_window")
    copies = ended.seconds("h2d")
    assert 0.25 <= min(copies) < 2 * 0.25  # on a busy machine a single one may last longer
    assert window["stall_h2d_s"] == pytest.approx(sum(copies[1:]), abs=1e-6)
    assert window["wait_s"][2] < window["stall_h2d_s"]
    assert ended.value("hpcml_start")["request"]["inject"] == {"copy_s": 0.25}


# --- what is refused


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        (
            ["--global-batch-size", 9, "--accumulation-steps", 2],
            "9 does not divide by 1 replica(s) x 2 accumulation step(s); use a --global-batch-size",
        ),
        (["--global-batch-size", 4, "--local-batch-size", 4], "say the same thing twice"),
        (["--shape", "32x"], "'32x' is no shape, as in 224x224"),
        (["--shape", "32x64"], "ResNet-50 trains on squares, not on 32x64"),
        (["--worker-start", "thread"], "resnet50 is decoded by processes; --worker-start is one of fork, "),
        (["--expect-world-size", 4], "--expect-world-size 4, and 1 rank(s) were started (launcher: none)"),
        (["--dtype", "fp16"], "does not train in fp16; --dtype is one of auto, "),
        (["--device", "tpu"], "unknown device 'tpu'; --device is one of auto, cpu, cuda"),
        (["--configuration", "gbs64"], "unknown configuration 'gbs64'; --configuration is one of gbs32, tuned"),
        (["--size", "huge"], "unknown size 'huge'; --size is one of smoke, quick, subset, full"),
        (["--variant", "v1"], "unknown variant 'v1'; --variant is one of v1.5, epcc"),
        (["--backend", "nccl"], "--backend nccl needs GPUs and the device is cpu"),
        (["--workers", "many"], "--workers is a number or auto, not 'many'"),
        (["--inject-slow", 2, "--inject-rank", 1], "--inject-rank 1: there are ranks 0 to 0"),
        (["--windows", 0], "'0' is not a whole number of 1 or more"),
        (["--gpus", 2], "unrecognized arguments: --gpus 2"),
    ],
)
def test_impossible_requests(more: list[object], sentence: str, nursery: Nursery, data: Path) -> None:
    assert_refused(nursery.run(*tiny(data, *more)), 78, sentence)


def test_losses_that_cannot_be_written_lose_no_windows(nursery: Nursery, data: Path) -> None:
    ended = nursery.run(*tiny(data, "--trace-losses", "missing/losses"))
    assert ended.code == 0, ended.errors
    warnings = ended.value("hpcml_summary")["warnings"]
    assert "--trace-losses: missing/losses is not whole: No such file or directory" in warnings


def assert_refused(ended: Ended, code: int, sentence: str) -> None:
    """One sentence, the same on stderr and in the log, and nothing was trained."""
    assert ended.code == code, ended.errors
    assert ended.value("hpcml_end")["exit_code"] == code
    problem = ended.value("hpcml_problem")["text"]
    assert sentence in problem
    assert ended.errors == f"error: {problem}\n"
    assert "\n" not in problem
    assert not ended.values("hpcml_start") or "time-limit" in sentence


def test_a_gpu_that_is_not_there(nursery: Nursery, data: Path) -> None:
    ended = nursery.run(*tiny(data, "--device", "cuda"), CUDA_VISIBLE_DEVICES="")
    assert ended.code == 78
    assert "--device cpu" in ended.errors or "nvidia-smi" in ended.errors or "rocm-smi" in ended.errors


@pytest.mark.skipif((os.cpu_count() or 1) > 8, reason="it takes a process a core")
def test_more_ranks_than_cores(nursery: Nursery, data: Path) -> None:
    cores = os.cpu_count() or 1
    many = {"MASTER_PORT": free_port(), "PMI_SIZE": str(cores + 1), "MPI_LOCALNRANKS": str(cores + 1)}
    environs = [{**many, **dict.fromkeys(("PMI_RANK", "MPI_LOCALRANKID"), str(rank))} for rank in range(cores + 1)]
    ranks = nursery.together(*((tiny(data), environ) for environ in environs))
    assert {rank.code for rank in ranks} == {78}
    assert_refused(ranks[0], 78, f"{cores + 1} ranks on this node, which has {cores} cores")
    assert [rank.log for rank in ranks[1:]] == [""] * cores


def test_ranks_that_cannot_be_found(nursery: Nursery, data: Path) -> None:
    ended = nursery.run(*tiny(data), PMI_RANK="1", PMI_SIZE="2")
    assert ended.code == 78
    assert "does not say which of them share a node" in ended.errors


def test_unknown_benchmark(nursery: Nursery) -> None:
    ended = nursery.run("train", "resnet51", "--data-dir", "data")
    assert_refused(ended, 78, "unknown benchmark 'resnet51'; there is cosmoflow, deepcam, resnet50")


def test_missing_data(nursery: Nursery, tmp_path: Path) -> None:
    assert_refused(nursery.run(*tiny(tmp_path / "none")), 66, "python -m models data resnet50 --data-dir")


def test_a_run_that_outlasts_its_time_limit(nursery: Nursery, data: Path) -> None:
    more = ("--time-limit-s", 100, "--windows", 100_000, "--warmup-steps", 2)
    ended = nursery.run(*tiny(data, *EXACT, *more))
    assert_refused(ended, 78, "s and --time-limit-s is 100: ")
    assert "windows of 3 steps take" in ended.errors


@pytest.mark.parametrize("steps", [0, 1])
def test_a_time_limit_that_is_not_checked_is_said(nursery: Nursery, data: Path, steps: int) -> None:
    ended = nursery.run(*tiny(data, *EXACT, "--time-limit-s", 0.1, "--warmup-steps", steps))
    (said,) = [text for text in ended.value("hpcml_summary")["warnings"] if "--time-limit-s" in text]
    assert said.startswith(f"--time-limit-s was not checked: a warm-up of {steps} step(s)")
    assert said.endswith("use --warmup-steps 2")


@pytest.mark.parametrize(("wrong", "code"), [(None, 0), (float("inf"), 3), (float("nan"), 3)])
def test_parameters_that_are_not_finite_fail_a_run_whose_losses_are(
    wrong: float | None, code: int, tmp_path: Path
) -> None:
    net = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 1))
    if wrong is not None:
        net[1].bias.data[0] = wrong
    with (tmp_path / "log").open("wb") as file:
        meter = Meter(
            samples=1, warmup_steps=1, windows=1, steps_per_window=1, wire=Wire(fd=file.fileno()), folder=None
        )
        for _ in meter.steps(iter(range(2))):
            meter.loss(1.0)
        check_parameters_finite(net, meter)
        assert meter.finish() == code
    sentence = "1.bias is not finite after the last step, as 1 of 4 parameter tensors"
    assert (sentence in (tmp_path / "log").read_text()) is bool(code)


def test_out_of_memory(nursery: Nursery, data: Path) -> None:
    """A processor's memory is the host's; the limit leaves room for the net and none for such pictures."""
    taken = int(Path(f"/proc/{nursery.process.pid}/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    ended = nursery.run(*tiny(data, *EXACT, "--shape", "1024x1024"), memory=taken + 900 * 2**20)
    assert_ended_for_memory(ended)


def assert_ended_for_memory(ended: Ended) -> None:
    assert ended.code == 5, (ended.code, ended.errors)
    assert ended.value("hpcml_end")["exit_code"] == 5
    assert "--local-batch-size" in ended.value("hpcml_problem")["text"]


def test_corrupt_data_can_be_passed_over(nursery: Nursery, data: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    subprocess.run(["cp", "-r", data, broken], check=True)
    for number in (5, 6):
        sorted(broken.glob("train/*/*.JPEG"))[number].write_bytes(b"no picture")
    steps = ("--global-batch-size", 24, "--steps-per-window", 1, "--warmup-steps", 0)
    ended = nursery.run(*tiny(broken, *EXACT, *steps, "--skip-corrupt"))
    assert ended.code == 0, ended.errors
    assert "2 corrupt samples were skipped" in ended.value("hpcml_summary")["warnings"]


def test_corrupt_data_of_all_ranks_is_counted(nursery: Nursery, data: Path, tmp_path: Path) -> None:
    """The run reads each sample once."""
    broken = tmp_path / "broken"
    subprocess.run(["cp", "-r", data, broken], check=True)
    files = sorted(broken.glob("train/*/*.JPEG"))
    for file in files[5:15:2]:
        file.write_bytes(b"no picture")
    more = ("--skip-corrupt", "--warmup-steps", 0, "--windows", 1, "--steps-per-window", len(files) // 4)
    ranks = nursery.together(*((tiny(broken, *EXACT, *more), environ) for environ in ranks_of("openmpi")))
    assert ranks[0].code == 0, ranks[0].errors
    said = [text for text in ranks[0].value("hpcml_summary")["warnings"] if "skipped" in text]
    assert said == [f"{len(files[5:15:2])} corrupt samples were skipped"]


# --- how it is started


def test_an_archive_with_loader_processes_that_start_from_nothing(data: Path, tmp_path: Path) -> None:
    archive = tmp_path / "models-0123456789ab.pyz"
    with zipfile.ZipFile(archive, "w") as file:
        for path in sorted((ROOT / "models").rglob("*.py")):
            file.write(path, str(path.relative_to(ROOT)))
        file.writestr(
            "__main__.py",
            "import sys\nfrom models.__main__ import main\nif __name__ == '__main__':\n    sys.exit(main())\n",
        )
    environ = {name: value for name, value in ENVIRON.items() if name != "PYTHONPATH"}
    words = [
        str(word)
        for word in (
            sys.executable,
            archive,
            *tiny(data, "--workers", 1, "--worker-start", "spawn", "--steps-per-window", 1),
        )
    ]
    done = subprocess.run(words, cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=PATIENCE_S)
    ended = Ended(done.returncode, done.stdout, done.stderr, tmp_path)
    assert ended.code == 0, ended.errors
    assert ended.value("hpcml_start")["code"] == "0123456789ab"


def test_a_numpy_that_cannot_be_imported_is_said_and_is_no_failure_of_the_benchmark(tmp_path: Path) -> None:
    """In one sentence, with numpy's own reason, which it puts last."""
    said = "IMPORTANT: PLEASE READ THIS\n\nOriginal error was: libblas.so is missing\n"
    (tmp_path / "numpy.py").write_text(f"raise ImportError({said!r}, name='numpy._core')\n")
    environ = {**ENVIRON, "PYTHONPATH": f"{tmp_path}:{ROOT}"}
    words = [sys.executable, "-m", "models", "train", "resnet50", "--data-dir", "none"]
    done = subprocess.run(words, env=environ, capture_output=True, text=True, timeout=PATIENCE_S)
    ended = Ended(done.returncode, done.stdout, done.stderr, tmp_path)
    assert ended.code == 78, ended.errors
    problem = ended.value("hpcml_problem")["text"]
    assert "(Original error was: libblas.so is missing); pip install --force-reinstall numpy" in problem
    assert "Traceback" not in ended.errors


def test_help_needs_no_torch() -> None:
    look = "import sys, models.__main__ as m\ntry: m.main(['train', '--help'])\nfinally: print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", look], env=ENVIRON, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "--inject-stall-s" in done.stdout
    assert done.stdout.endswith("False\n")


def test_data_is_written_and_left_alone(tmp_path: Path, nursery: Nursery) -> None:
    folder = tmp_path / "set"
    words = ("data", "resnet50", "--data-dir", folder, "--samples", 8, "--processes", 1)
    first, second = nursery.run(*words), nursery.run(*words)
    assert (first.code, second.code) == (0, 0), first.errors + second.errors
    assert "8 samples in 1 classes" in first.log
    assert len(list(folder.glob("train/*/*.JPEG"))) == 8
    other = nursery.run(*words[:-1], 1, "--seed", 3)
    assert other.code == 78
    assert other.errors.startswith("error: ")
    assert ":::MLLOG" not in other.log


# --- the end of the process

BUSY_AT_THE_END = """
import threading, time
import torch
from models.__main__ import leave

def compute():
    matrix = torch.ones(600, 600)
    while True:
        matrix @ matrix

for _ in range(3):
    threading.Thread(target=compute, daemon=True).start()
time.sleep(0.3)
print("complete")
leave(0)
"""


def test_a_thread_that_computes_at_the_end_does_not_abort_the_process() -> None:
    done = subprocess.run(
        [sys.executable, "-c", BUSY_AT_THE_END],
        cwd=ROOT,
        env=ENVIRON,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "complete\n", "")
