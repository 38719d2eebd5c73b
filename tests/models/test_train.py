"""Training for real: tiny cubes, the true net, one process and two, and every way in which a job can end.

Jobs are forked from one process that has imported torch already. Two start from nothing instead: under torchrun,
and from an archive.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from models.data import synthetic_cosmoflow, synthetic_resnet50
from models.data.synthetic import write_set
from tests.models.jobs import ENVIRON, PATIENCE_S, ROOT, Ended, Nursery, free_port, ranks_of

pytestmark = pytest.mark.slow
needs_two_cores = pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="two ranks need two cores")
SAMPLES = 24


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data") / "cosmoflow"
    write_set(str(folder), synthetic_cosmoflow.recipe("smoke", SAMPLES, 0), processes=1)
    return folder


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Data of which processes are the loaders, and whose size can be chosen when they are read."""
    folder = tmp_path_factory.mktemp("data") / "resnet50"
    write_set(str(folder), synthetic_resnet50.recipe("smoke", 8, 0), processes=1)
    return folder


def tiny(data: Path, *more: object) -> list[object]:
    """The least that still trains: four optimiser steps of four samples."""
    words = ["train", data.name, "--data-dir", data, "--device", "cpu", "--size", "smoke", "--trace-losses", "losses"]
    return [*words, "--warmup-steps", 1, "--windows", 1, "--steps-per-window", 3, *more]


EXACT = ("--configuration", "gbs32", "--workers", 0, "--global-batch-size", 4)


@pytest.fixture(scope="module")
def alone(nursery: Nursery, data: Path) -> Ended:
    """One process that accumulates two micro-batches a step."""
    return nursery.run(*tiny(data, *EXACT, "--accumulation-steps", 2))


# --- a run that ends well


def test_a_run_writes_the_whole_wire(alone: Ended) -> None:
    assert alone.code == 0, alone.errors
    start, window, summary, end = (alone.value(f"hpcml_{key}") for key in ("start", "window", "summary", "end"))
    assert start["schema"] == 1
    assert (start["benchmark"], start["workload_version"], start["code"]) == ("cosmoflow", 3, None)
    assert start["request"] == {
        **{"configuration": "gbs32", "size": "smoke", "mode": "overlap", "variant": "mlperf", "dtype": "fp32"},
        **{"channels_last": False, "compile": False, "seed": 1, "workers": 0, "worker_start": "thread"},
        **{"global_batch_size": 4, "local_batch_size": 2, "accumulation_steps": 2, "world_size": 1, "device": "cpu"},
        **{"warmup_steps": 1, "windows": 1, "steps_per_window": 3, "window_s": 0.0},
        **{"shape": "32x32x32", "augment": False, "skip_corrupt": False, "cache": "as-is"},
    }
    assert set(start["device"]) >= {"type", "name", "count", "memory_bytes", "driver", "peak_flops"}
    assert start["device"]["multiplied_in"] == {"product": "fp32", "convolution": "fp32"}
    world = {"size": 1, "local_size": 1, "nodes": 1, "backend": None, "launcher": "none"}
    assert start["world"] == {**world, "hosts": 1, "ranks_per_host": [1, 1]}
    assert set(start["versions"]) >= {"python", "torch", "numpy"}
    assert start["host"]["threads"] == 1
    assert "cpu_quota" in start["host"]
    assert (start["data"]["kind"], start["data"]["samples"]) == ("synthetic", SAMPLES)
    assert (window["steps"], window["samples"]) == (3, 12)
    assert summary["optimizer_steps"] == 4
    assert summary["parameters_identical"] is None
    assert (summary["slowest"], summary["longest_stall"]) == (None, None)  # one rank
    assert 0 < summary["contention"]["used_cores"][0] < 2  # one thread
    assert "energy" not in summary  # processors have no counter that users may read
    assert summary["flop_per_sample"] == pytest.approx(3_001_468_416)
    assert summary["peak_memory_bytes"] > 100e6  # parameters, gradients and momentum alone
    assert summary["attainable_flops"] > summary["compute_throughput"] * summary["flop_per_sample"] / 1.5
    assert summary["product_flops"] > 1e9
    assert end["exit_code"] == 0
    assert alone.values("hpcml_problem") == []


def test_mlperfs_keys(alone: Ended) -> None:
    keys = [json.loads(line.split(":::MLLOG ", 1)[1])["key"] for line in alone.log.splitlines()]
    order = ["init_start", "submission_benchmark", "init_stop", "hpcml_start", "run_start", "run_stop", "hpcml_end"]
    assert [key for key in keys if key in order] == order
    assert alone.value("submission_benchmark") == "cosmoflow"
    assert (alone.value("global_batch_size"), alone.value("gradient_accumulation_steps")) == (4, 2)
    assert (alone.value("train_samples"), alone.value("opt_name")) == (SAMPLES, "sgd")


def test_what_was_not_checked_or_written_loses_no_windows(nursery: Nursery, data: Path) -> None:
    ended = nursery.run(*tiny(data, *EXACT, "--time-limit-s", 0.1, "--trace-losses", "missing/losses"))
    assert ended.code == 0, ended.errors
    warnings = ended.value("hpcml_summary")["warnings"]
    assert "--trace-losses: missing/losses is not whole: No such file or directory" in warnings
    (said,) = [text for text in warnings if "--time-limit-s" in text]
    assert said.startswith("--time-limit-s was not checked: a warm-up of 1 step(s)")
    assert said.endswith("use --warmup-steps 2")


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


@needs_two_cores
def test_a_stall_injected_on_one_rank_is_the_stall_of_both(alone: Ended, nursery: Nursery, data: Path) -> None:
    """And changes nothing of what is learned."""
    more = ("--inject-stall-s", 0.5, "--inject-rank", 1)
    ranks = nursery.together(*((tiny(data, *EXACT, *more), environ) for environ in ranks_of("openmpi")))
    assert_as_alone(ranks, alone, "openmpi")
    assert ranks[1].log == ""
    assert ranks[0].value("hpcml_summary")["stall_s"] >= 3 * 0.5
    assert ranks[0].value("hpcml_window")["wait_s"][2] >= 3 * 0.5
    assert min(ranks[0].seconds("wait")) < min(ranks[1].seconds("wait"))
    assert min(ranks[1].seconds("wait")) >= 0.5
    assert ranks[0].value("hpcml_start")["request"]["inject"] == {"stall_s": 0.5, "rank": 1}
    summary = ranks[0].value("hpcml_summary")
    assert any("injected on purpose" in warning for warning in summary["warnings"])
    assert summary["longest_stall"]["rank"] == 1


@needs_two_cores
@pytest.mark.nightly("models/world.py", "models/ranks.py", "models/train.py", "models/command_line.py")
def test_two_ranks_under_torchrun(alone: Ended, data: Path, tmp_path: Path) -> None:
    """It starts three interpreters, each of which imports torch. What it leaves in the environment: test_world.py."""
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", free_port()]
    words = [str(word) for word in (*torchrun, "-m", "models", *tiny(data, *EXACT))]
    done = subprocess.run(words, cwd=tmp_path, env=ENVIRON, capture_output=True, text=True, timeout=PATIENCE_S)
    assert_as_alone([Ended(done.returncode, done.stdout, done.stderr, tmp_path)], alone, "torchrun")
    assert (tmp_path / "steps-rank1.csv.gz").exists()


@needs_two_cores
def test_a_rank_that_computes_slowly_is_named(nursery: Nursery, data: Path) -> None:
    """Neither the steps nor the stalls of the two differ: the other one waits in its own backward."""
    more = ("--inject-slow", 8, "--inject-rank", 1, "--steps-per-window", 2)
    ranks = nursery.together(*((tiny(data, *EXACT, *more), environ) for environ in ranks_of("slurm")))
    assert [rank.code for rank in ranks] == [0, 0], ranks[0].errors + ranks[1].errors
    summary = ranks[0].value("hpcml_summary")
    assert (summary["slowest"]["rank"], summary["slowest"]["host"]) == (1, platform.node())
    assert summary["slowest"]["own_s"] > 2 * summary["slowest"]["others_own_s"]
    assert any(text.startswith(f"straggler: rank 1 on {platform.node()} ") for text in summary["warnings"])


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


# --- data that is corrupt or missing


def damaged(data: Path, folder: Path, numbers: slice) -> Path:
    """A copy of the set in which these samples are none."""
    copy = folder / data.name
    shutil.copytree(data, copy)
    for file in sorted(copy.glob("train/*"))[numbers]:
        file.write_bytes(b"no sample")
    return copy


@needs_two_cores
def test_corrupt_data_on_one_rank_ends_both(nursery: Nursery, data: Path, tmp_path: Path) -> None:
    """Without a launcher that would kill the other one, which waits for its gradients."""
    broken = damaged(data, tmp_path, slice(1, None))
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
def test_corrupt_data_of_all_ranks_is_counted(nursery: Nursery, data: Path, tmp_path: Path) -> None:
    """The run reads each sample once."""
    broken = damaged(data, tmp_path, slice(5, 15, 2))
    more = ("--skip-corrupt", "--global-batch-size", SAMPLES, "--warmup-steps", 0, "--steps-per-window", 1)
    ranks = nursery.together(*((tiny(broken, *EXACT, *more), environ) for environ in ranks_of("pmi")))
    assert ranks[0].code == 0, ranks[0].errors
    said = [text for text in ranks[0].value("hpcml_summary")["warnings"] if "skipped" in text]
    assert said == ["5 corrupt samples were skipped"]


@needs_two_cores
def test_a_request_that_one_rank_cannot_fulfil_ends_both(nursery: Nursery, data: Path, tmp_path: Path) -> None:
    first, second = ranks_of("pmi")
    missing = tmp_path / data.name
    ranks = nursery.together((tiny(data, *EXACT), first), (tiny(missing, *EXACT), second))
    assert [rank.code for rank in ranks] == [66, 66]
    assert ranks[0].value("hpcml_end")["exit_code"] == 66
    assert ranks[0].value("hpcml_problem")["text"].startswith(f"rank 1: there is no data set at {tmp_path}")
    assert ranks[1].log == ""


# --- what is refused


def test_a_run_that_outlasts_its_time_limit(nursery: Nursery, data: Path) -> None:
    more = ("--time-limit-s", 100, "--windows", 100_000, "--warmup-steps", 2)
    ended = nursery.run(*tiny(data, *EXACT, *more))
    assert ended.code == 78
    assert "s and --time-limit-s is 100: " in ended.value("hpcml_problem")["text"]
    assert "windows of 3 steps take" in ended.errors


def test_out_of_memory(nursery: Nursery, pictures: Path) -> None:
    """A processor's memory is the host's; the limit leaves room for the net and none for such pictures."""
    taken = int(Path(f"/proc/{nursery.process.pid}/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    ended = nursery.run(*tiny(pictures, *EXACT, "--shape", "1024x1024"), memory=taken + 900 * 2**20)
    assert ended.code == 5, (ended.code, ended.errors)
    assert ended.value("hpcml_end")["exit_code"] == 5
    assert "--local-batch-size" in ended.value("hpcml_problem")["text"]


# --- how it is started, and how its process ends

ARCHIVE_MAIN = "import sys\nfrom models.command_line import main\nif __name__ == '__main__':\n    sys.exit(main())\n"


def test_an_archive_with_loader_processes_that_start_from_nothing(pictures: Path, tmp_path: Path) -> None:
    archive = tmp_path / "models-0123456789ab.pyz"
    with zipfile.ZipFile(archive, "w") as file:
        for path in sorted((ROOT / "models").rglob("*.py")):
            file.write(path, str(path.relative_to(ROOT)))
        file.writestr("__main__.py", ARCHIVE_MAIN)
    environ = {name: value for name, value in ENVIRON.items() if name != "PYTHONPATH"}
    steps = ("--steps-per-window", 1, "--shape", "32x32", "--global-batch-size", 2)
    job = tiny(pictures, "--workers", 1, "--worker-start", "spawn", *steps)
    words = [sys.executable, str(archive), *map(str, job)]
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
    look = "import sys, models.command_line as m\n"
    look += "try: m.main(['train', '--help'])\nfinally: print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", look], env=ENVIRON, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "--inject-stall-s" in done.stdout
    assert done.stdout.endswith("False\n")
