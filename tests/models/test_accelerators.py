"""What a device family says of itself, on machines that are folders, and what it refuses."""

from __future__ import annotations

import contextlib
import importlib
import itertools
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from models import host
from models.accelerators import FAMILIES, Accelerator, attainable, choose, cuda
from models.accelerators.cpu import Cpu, keep_memory
from models.accelerators.peaks import HIGHEST_CLOCK_HZ, cpu_bound, gpu_peak
from models.errors import ImpossibleRequest
from models.world import World
from tests.models.groups import show
from tests.waiting import until

ROOT = Path(__file__).resolve().parents[2]
XEON = "fpu sse2 avx fma avx2 avx512f avx512_bf16"


def machine(root: Path, flags: str = XEON, sockets: int = 2, cores: int = 4, clock_khz: int | None = 3_500_000) -> str:
    """The files of a node with two threads a core, as the kernel shows them; returns the folder."""
    blocks = [
        f"processor\t: {thread}\nmodel name\t: Xeon 9999\nphysical id\t: {socket}\ncore id\t\t: {core}\n"
        f"cpu MHz\t\t: 2000.000\nflags\t\t: {flags}\n"
        for thread in range(2)
        for socket in range(sockets)
        for core in range(cores)
    ]
    files = {
        "proc/cpuinfo": "\n".join(blocks) + "\n",
        "proc/meminfo": "MemTotal:       16000000 kB\nMemFree: 1 kB\n",
        "proc/loadavg": "3.50 1.00 0.50 1/100 42\n",
        "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor": "performance\n",
        "sys/devices/system/cpu/cpu0/cpufreq/scaling_max_freq": "2600000\n",
    }
    if clock_khz:
        files["sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq"] = f"{clock_khz}\n"
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return str(root)


# --- choosing


def test_auto_is_what_this_machine_has() -> None:
    assert choose("auto").family == ("cuda" if torch.cuda.is_available() else "cpu")


def test_every_family_has_the_whole_face() -> None:
    for name, path in FAMILIES.items():
        module, _, family = path.partition(":")
        found = getattr(importlib.import_module(module), family)
        assert found.family == name
        wanted = {attribute for attribute in vars(Accelerator) if not attribute.startswith("_")}
        assert not {attribute for attribute in wanted if not hasattr(found, attribute)}


def test_unknown_device_names_the_known_ones() -> None:
    with pytest.raises(ImpossibleRequest, match=r"unknown device 'tpu'; .* auto, cpu, cuda, csx, ipu$"):
        choose("tpu")
    with pytest.raises(ImpossibleRequest, match=r"unknown device 'rocm'; .*, ipu; torch calls AMD's GPUs cuda, too$"):
        choose("rocm")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_cuda_without_a_gpu_says_what_to_look_at() -> None:
    with pytest.raises(ImpossibleRequest) as caught:
        choose("cuda")
    text = str(caught.value)
    assert "\n" not in text
    assert ("pip install torch --index-url" in text) if torch.version.cuda is None else ("nvidia-smi" in text)


# --- processors


def test_a_processor_trains_in_bf16_where_it_has_the_instructions(tmp_path: Path) -> None:
    assert Cpu(machine(tmp_path / "new")).dtypes() == ("bf16", "fp32")
    assert Cpu(machine(tmp_path / "old", "sse2 avx2 avx512f")).dtypes() == ("fp32", "bf16")
    assert Cpu(machine(tmp_path / "spr", "avx512f amx_bf16")).dtypes()[0] == "bf16"


def test_facts_of_a_processor(tmp_path: Path) -> None:
    facts = Cpu(machine(tmp_path)).facts("fp32")
    assert (facts["type"], facts["name"], facts["count"]) == ("cpu", "Xeon 9999", 2)
    assert facts["memory_bytes"] == 16_000_000 * 1024
    assert facts["peak_flops"] == 8 * 3.5e9 * 64  # of the node
    assert "bound" in str(facts["peak_is"])


def test_the_containers_limit_is_the_memory(tmp_path: Path) -> None:
    root = show(Path(machine(tmp_path)), "/", {"memory.max": "8000000000\n"})
    assert host.memory_bytes(root) == 8_000_000_000
    (tmp_path / "sys/fs/cgroup/memory.max").write_text("max\n")
    assert host.memory_bytes(root) == 16_000_000 * 1024


def test_a_quota_makes_the_bound_lower(tmp_path: Path) -> None:
    root = show(Path(machine(tmp_path)), "/pod", {"pod/cpu.max": "90000 100000\n"})
    assert cpu_bound("fp32", root) == 0.9 * 3.5e9 * 64
    (tmp_path / "sys/fs/cgroup/pod/cpu.max").write_text("6400000 100000\n")  # of a node with fewer cores
    assert cpu_bound("fp32", root) == 8 * 3.5e9 * 64


@pytest.mark.parametrize(
    ("flags", "dtype", "per_cycle"),
    [
        ("sse2 avx fma avx2", "fp32", 32),
        ("sse2 avx fma avx2 avx512f", "fp32", 64),
        (XEON, "bf16", 128),
        ("avx512f amx_bf16", "bf16", 1024),
        ("fp asimd", "fp32", 32),
        ("fp asimd sve bf16", "bf16", 256),
    ],
)
def test_bound_of_a_processor(tmp_path: Path, flags: str, dtype: str, per_cycle: int) -> None:
    assert cpu_bound(dtype, machine(tmp_path, flags)) == 8 * 3.5e9 * per_cycle


def test_a_clock_that_is_not_told_is_the_highest_on_sale(tmp_path: Path) -> None:
    assert cpu_bound("fp32", machine(tmp_path, clock_khz=None)) == 8 * HIGHEST_CLOCK_HZ * 64


def test_no_bound_for_an_unknown_processor(tmp_path: Path) -> None:
    assert cpu_bound("fp32", machine(tmp_path, "mystery")) is None
    assert cpu_bound("fp32", str(tmp_path / "nowhere")) is None


@pytest.mark.slow
def test_a_kernel_is_timed_without_what_else_runs_on_its_core() -> None:
    walls_s = []

    def compute() -> None:
        began_s, begin_s = time.monotonic(), time.thread_time()
        while time.thread_time() < begin_s + 0.01:
            pass
        time.sleep(0.1)  # as if another process ran
        walls_s.append(time.monotonic() - began_s)

    rate = attainable._rate(attainable.Kernel(compute, flop=1.0), kernel_s=0.0)
    assert 1 / min(walls_s) < rate <= 1 / 0.01


def test_what_plain_kernels_reach_is_below_the_bound() -> None:
    torch.manual_seed(1)
    expected = torch.rand(1)
    torch.manual_seed(1)
    one, two = (attainable.attainable_flops("bf16", threads, kernel_s=0.0) for threads in (1, 2))
    assert torch.rand(1) == expected  # the model is initialised as without it
    assert 0 < one < two
    bound = cpu_bound("bf16")
    assert bound is None or one < bound


def test_health_of_a_processor(tmp_path: Path) -> None:
    expected = {"clock_mhz": 2000.0, "clock_cap_mhz": 2600.0, "governor": "performance", "load": 3.5}
    root = machine(tmp_path)
    assert Cpu(root).health() == {**expected, "cpu_ticks": None, "stolen_ticks": None}
    (tmp_path / "proc" / "stat").write_text("cpu  100 0 50 1000 20 0 0 30 0 0\n")
    assert Cpu(root).health() == {**expected, "cpu_ticks": 1200, "stolen_ticks": 30}


def test_more_ranks_than_cores_are_refused() -> None:
    cores = os.cpu_count() or 1
    alone = World(size=4096, local_size=cores, launcher="torchrun")
    Cpu().select(alone)
    with pytest.raises(ImpossibleRequest, match=f"{cores + 1} ranks on this node, which has {cores} cores"):
        Cpu().select(alone._replace(local_size=cores + 1))


# --- GPUs


@pytest.mark.parametrize(
    ("name", "dtype", "tflops"),
    [
        ("Tesla V100-SXM2-16GB", "fp32", 15.7),
        ("Tesla V100-SXM2-16GB", "bf16", None),
        ("Tesla V100-PCIE-32GB", "fp16", 112.0),
        ("NVIDIA A100-SXM4-40GB", "tf32", 156.0),
        ("NVIDIA A100 80GB PCIe", "bf16", 312.0),
        ("NVIDIA A100-SXM4-80GB MIG 3g.40gb", "bf16", 312.0),
        ("NVIDIA A10", "fp16", 125.0),
        ("NVIDIA H100 80GB HBM3", "bf16", 989.5),
        ("NVIDIA H100 PCIe", "bf16", 756.0),
        ("NVIDIA H100 NVL", "bf16", 835.5),
        ("NVIDIA H200", "fp32", 67.0),
        ("NVIDIA H20", "bf16", 148.0),
        ("NVIDIA GH200 480GB", "bf16", 989.5),
        ("NVIDIA L40S", "bf16", 366.5),
        ("NVIDIA L4", "fp32", 30.3),
        ("AMD Instinct MI100", "bf16", 92.3),
        ("AMD Instinct MI210", "fp32", 45.3),
        ("AMD Instinct MI250X", "fp16", 191.5),
        ("AMD Instinct MI300X", "bf16", 1307.4),
        ("NVIDIA T400", "fp32", None),
        ("Somebody's GPU", "fp32", None),
    ],
)
def test_peaks(name: str, dtype: str, tflops: float | None) -> None:
    assert gpu_peak(name, dtype) == (None if tflops is None else pytest.approx(tflops * 1e12))


class Copied:
    """A tensor whose copies and uses are noted."""

    def __init__(self, name: str, seen: list[str]) -> None:
        self.name, self.seen = name, seen

    def to(self, device: object, non_blocking: bool = False) -> Copied:
        assert non_blocking
        self.seen.append(f"copy {self.name}")
        return self

    def record_stream(self, stream: object) -> None:
        self.seen.append(f"keep {self.name}")


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> tuple[Any, list[str]]:
    """A GPU without CUDA, and what was asked of it."""
    seen: list[str] = []
    events = itertools.count()
    computing = SimpleNamespace(wait_event=lambda event: seen.append(f"wait {event}"))
    streams = SimpleNamespace(
        Stream=lambda device: SimpleNamespace(record_event=lambda: next(events)),
        current_stream=lambda device: computing,
        stream=lambda stream: contextlib.nullcontext(),
        set_device=lambda device: None,
    )
    monkeypatch.setattr(cuda, "torch", SimpleNamespace(cuda=streams))
    device: Any = object.__new__(cuda.Cuda)
    device.device = "cuda:0"
    return device, seen


def test_the_stream_that_computes_waits_for_a_batchs_own_copy(gpu: tuple[Any, list[str]]) -> None:
    device, seen = gpu
    for batch in device.ahead([[Copied("0", seen)], [Copied("1", seen)], [Copied("2", seen)]]):
        seen.append(f"out {batch[0].name}")
    for number in "012":
        of_batch = [what for what in seen if what.endswith(number)]
        assert of_batch == [f"copy {number}", f"wait {number}", f"keep {number}", f"out {number}"]


def test_the_next_copy_is_issued_while_a_batch_is_computed(gpu: tuple[Any, list[str]]) -> None:
    """Not more than one ahead, and none waits for the next: tests/models/test_prefetch.py."""
    device, seen = gpu
    batches = device.ahead([[Copied("0", seen)], [Copied("1", seen)]])
    next(batches)
    until(lambda: "copy 1" in seen)
    batches.close()


# --- how a process uses memory and cores

IN_A_PROCESS = """
import models.command_line, json, os, resource, threading, torch
from models import host
from models.accelerators.cpu import keep_memory
found = {"kept": keep_memory(), "bound": len(os.sched_getaffinity(0))}
for step in range(30):
    if step == 20:  # by then it has all that alignment makes it take
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    torch.ones(1 << 24)
found["faults"] = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
def free():
    host.run_on(host.AFFINITY)
    found["freed"] = len(os.sched_getaffinity(0))
thread = threading.Thread(target=free)
thread.start()
thread.join()
print(json.dumps({"own": host.own_cores(), **found}))
"""


def in_a_process(**environ: str) -> dict[str, int]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    command = [sys.executable, "-c", IN_A_PROCESS]
    done = subprocess.run(command, cwd=ROOT, env={**clean, **environ}, capture_output=True, text=True, check=True)
    found: dict[str, int] = json.loads(done.stdout)
    return found


@pytest.fixture(scope="module")
def process() -> dict[str, int]:
    """OMP_PROC_BIND is set on many clusters."""
    return in_a_process(OMP_PROC_BIND="true")


@pytest.mark.slow
def test_a_step_takes_no_memory_anew(process: dict[str, int]) -> None:
    """Ten times 64 MB, freed each time: the kernel hands out no page of them again."""
    assert process["kept"]
    assert process["faults"] < 1000


@pytest.mark.nightly("models/accelerators/cpu.py")
def test_a_step_takes_all_memory_anew_by_default() -> None:
    assert in_a_process(MALLOC_ARENA_TEST="8")["faults"] > 100_000


def test_the_users_own_settings_of_malloc_have_precedence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MALLOC_ARENA_TEST", "8")
    assert not keep_memory()


@pytest.mark.slow
@pytest.mark.skipif(host.own_cores() < 2, reason="one core is all cores")
def test_threads_may_leave_the_core_that_openmp_binds_the_first_to(process: dict[str, int]) -> None:
    """A loader's threads would inherit it from whom they start from."""
    assert process["own"] == process["freed"] == host.own_cores() > process["bound"]
