"""`models vet`: a node beside what was signed, in a prolog, and the nodes of a job beside each other."""

from __future__ import annotations

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

from models import node, node_devices, vet, vet_job

ROOT = Path(__file__).resolve().parents[2]
KIB = 263_700_000
ENVIRON = {"SLURMD_NODENAME": "n07", "PATH": "/nowhere"}
Capture = pytest.CaptureFixture[str]


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A node with four cores, 251 GiB, a port of 200 Gbit/s and /scratch on Lustre."""
    root = tmp_path / "root"
    write(root / "proc/meminfo", f"MemTotal:       {KIB} kB\n")
    cores = [f"processor\t: {core}\nphysical id\t: 0\ncore id\t: {core}\n" for core in range(4)]
    write(root / "proc/cpuinfo", "\n".join(cores))
    write(root / "proc/self/mounts", "/dev/sda / xfs rw 0 0\nmgs:/x /scratch lustre rw 0 0\n")
    write(root / "sys/devices/system/cpu/cpu0/cpufreq/scaling_max_freq", "2500000\n")
    port = root / "sys/class/infiniband/mlx5_0/ports/1"
    write(port / "rate", "200 Gb/sec (4X HDR)\n")
    write(port / "state", "4: ACTIVE\n")
    return root


@pytest.fixture
def limits(tmp_path: Path) -> Path:
    """What was signed of this node."""
    folder = tmp_path / "etc"
    folder.mkdir()
    folder.chmod(0o755)
    signed = {
        "memory GiB": 251.484,
        "cores": 4,
        "clock cap MHz": 2500,
        "links of 200 Gbit/s": 1,
        "file system of /scratch": "lustre",
    }
    path = folder / "limits.json"
    path.write_text(json.dumps({"schema": 1, "nodes": {"n07": signed}}))
    path.chmod(0o644)
    return path


def verdict(limits: Path, root: Path, capfd: Capture, **environ: str) -> tuple[int, str]:
    code = vet.by_limits(str(limits), {**ENVIRON, **environ}, str(root))
    return code, capfd.readouterr().out


def test_a_node_as_it_was_signed_is_fit(limits: Path, root: Path, capfd: Capture) -> None:
    assert verdict(limits, root, capfd) == (0, "n07 is as signed\n")


def test_a_name_with_a_domain_is_the_same_node(limits: Path, root: Path, capfd: Capture) -> None:
    code, said = verdict(limits, root, capfd, SLURMD_NODENAME="n07.example.org")
    assert (code, said) == (0, "n07.example.org is as signed\n")


def test_a_pod_has_the_limits_of_its_node_and_else_those_of_every_other(
    limits: Path, root: Path, capfd: Capture
) -> None:
    limits.write_text('{"nodes": {"n08": {"cores": 4}, "*": {"cores": 8}}}')
    assert verdict(limits, root, capfd, NODE_NAME="n08") == (0, "n08 is as signed\n")
    assert verdict(limits, root, capfd) == (vet.UNFIT, "n07 is unfit: cores 4, signed 8\n")


@pytest.mark.parametrize(
    ("file", "text", "said"),
    [
        ("proc/meminfo", f"MemTotal: {KIB // 2} kB\n", "memory GiB 125.742, signed 251.484"),
        ("proc/cpuinfo", "processor\t: 0\nphysical id\t: 0\ncore id\t: 0\n", "cores 1, signed 4"),
        ("sys/devices/system/cpu/cpu0/cpufreq/scaling_max_freq", "1200000\n", "clock cap MHz 1200, signed 2500"),
        ("sys/class/infiniband/mlx5_0/ports/1/rate", "100 Gb/sec (2X HDR)\n", "links of 200 Gbit/s 0, signed 1"),
        ("sys/class/infiniband/mlx5_0/ports/1/state", "1: DOWN\n", "links of 200 Gbit/s 0, signed 1"),
        ("proc/self/mounts", "/dev/sda / xfs rw 0 0\n", "file system of /scratch xfs, signed lustre"),
    ],
)
def test_a_node_that_has_less_than_was_signed_is_unfit(
    limits: Path, root: Path, capfd: Capture, file: str, text: str, said: str
) -> None:
    write(root / file, text)
    assert verdict(limits, root, capfd) == (vet.UNFIT, f"n07 is unfit: {said}\n")


def test_a_kernel_may_keep_a_little_memory_for_itself(limits: Path, root: Path, capfd: Capture) -> None:
    write(root / "proc/meminfo", f"MemTotal: {KIB * 99 // 100} kB\n")
    assert verdict(limits, root, capfd)[0] == 0


def test_what_cannot_be_read_is_not_unfit(limits: Path, tmp_path: Path, capfd: Capture) -> None:
    code, said = verdict(limits, tmp_path / "nothing", capfd)
    assert (code, said.partition("; ")[0]) == (0, "n07 is as signed")
    assert said.endswith(
        "; not known: memory GiB, cores, clock cap MHz, links of 200 Gbit/s, file system of /scratch\n"
    )


def test_a_limit_that_is_mistyped_forbids_nothing(limits: Path, root: Path, capfd: Capture) -> None:
    limits.write_text('{"nodes": {"n07": {"cores": "4", "memory": 1000, "file system of /scratch": 4}}}')
    said = "n07 is as signed; not known: cores, memory, file system of /scratch\n"
    assert verdict(limits, root, capfd) == (0, said)


def test_a_file_system_that_is_mounted_on_first_use_is_not_known(limits: Path, root: Path, capfd: Capture) -> None:
    write(root / "proc/self/mounts", "/dev/sda / xfs rw 0 0\nauto /scratch autofs rw 0 0\n")
    assert verdict(limits, root, capfd) == (0, "n07 is as signed; not known: file system of /scratch\n")


def test_a_pod_has_devices_ports_and_mounts_of_its_own(limits: Path, root: Path, capfd: Capture) -> None:
    write(root / "proc/self/mounts", "overlay / overlay rw 0 0\n")
    assert verdict(limits, root, capfd, KUBERNETES_SERVICE_HOST="10.0.0.1")[0] == 0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "No such file or directory"),
        ("{", "JSONDecodeError: "),
        ("[]", "TypeError: "),
        ('{"nodes": {"n08": {}}}', "has no limits of n07"),
        ('{"nodes": {"n07": [64]}}', "has no limits of n07"),
    ],
)
def test_limits_that_cannot_be_used_take_no_node_out_of_service(
    limits: Path, root: Path, capfd: Capture, text: str | None, said: str
) -> None:
    if text is None:
        limits.unlink()
    else:
        limits.write_text(text)
    code, line = verdict(limits, root, capfd)
    assert (code, line.startswith("n07 is not vetted: "), said in line) == (0, True, True), line


@pytest.mark.parametrize("is_folder", [False, True])
def test_limits_that_others_can_write_are_not_signed(limits: Path, root: Path, capfd: Capture, is_folder: bool) -> None:
    write(root / "proc/meminfo", "MemTotal: 1 kB\n")
    (limits.parent if is_folder else limits).chmod(0o777)
    code, line = verdict(limits, root, capfd)
    assert (code, "others than root can write" in line) == (0, True), line


def test_a_mistake_of_our_own_takes_no_node_out_of_service(
    limits: Path, root: Path, capfd: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def breaks(*_: object) -> None:
        raise RuntimeError("a mistake")

    monkeypatch.setattr(vet, "compared", breaks)
    assert verdict(limits, root, capfd) == (0, "n07 is not vetted: RuntimeError: a mistake\n")


def test_a_port_that_is_not_up_yet_is_not_unfit(limits: Path, root: Path, capfd: Capture) -> None:
    write(root / "sys/class/infiniband/mlx5_0/ports/1/state", "3: ARMED\n")
    assert verdict(limits, root, capfd) == (0, "n07 is as signed; not known: links of 200 Gbit/s\n")


GPU = "GPU {0}: NVIDIA A100-SXM4-40GB (UUID: GPU-{0}d2b7c1e-0000-4000-8000-00000000000{0})"
LOST = "Unable to determine the device handle for GPU 0000:44:00.0: GPU is lost.  Reboot the system to recover this GPU"


@pytest.mark.parametrize(
    ("listed", "code", "verdict"),
    [
        ([GPU.format(number) for number in range(4)], 0, ([], [])),
        ([GPU.format(0), LOST, GPU.format(2), GPU.format(3)], 15, (["devices 3, signed 4"], [])),
        (["No devices were found"], 6, ([], ["devices"])),
        ([GPU.format(0), "Failed to initialize NVML: Driver/library version mismatch"], 18, ([], ["devices"])),
    ],
)
def test_a_gpu_that_is_lost_is_unfit(
    tmp_path: Path, listed: list[str], code: int, verdict: tuple[list[str], list[str]]
) -> None:
    """All GPUs of the node are counted, whichever the job may use."""
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\ncat <<'END'\n" + "\n".join(listed) + f"\nEND\nexit {code}\n")
    tool.chmod(0o755)
    environ = {**ENVIRON, "CUDA_VISIBLE_DEVICES": "0", "PATH": f"{tmp_path}:/usr/bin:/bin"}
    assert vet.compared({"devices": 4}, environ) == verdict


def test_the_lowest_power_limit_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    gpus = [{"power_limit_w": watts} for watts in (400.0, 250.0)]
    monkeypatch.setattr(node_devices, "look", lambda environ: node_devices.Look(gpus, [], None))
    assert vet.compared({"GPU power limit W": 400}, ENVIRON).unfit == ["GPU power limit W 250, signed 400"]


# --- the script that Slurm starts -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("python", "code"),
    [
        ("exit 0", 0),
        ("exit 97", 1),
        ("exit 1", 0),
        ("exit 2", 0),
        ("kill -KILL $$", 0),
        ("kill -SEGV $$", 0),
        ("trap '' TERM; sleep 60; touch over", 0),
    ],
)
def test_only_a_verdict_ends_the_prolog_with_1(tmp_path: Path, python: str, code: int) -> None:
    (tmp_path / "python").write_text(f"#!/bin/sh\n{python}\n")
    (tmp_path / "python").chmod(0o755)
    script = (ROOT / "slurm_templates" / "prolog.sh").read_text()
    for old, new in (("python=/usr/bin/python3", f"python={tmp_path}/python"), ("seconds=8", "seconds=1")):
        assert old in script
        script = script.replace(old, new)
    (tmp_path / "prolog.sh").write_text(script.replace("    sleep 1\n", ""))
    done = subprocess.run(
        ["sh", "prolog.sh"], cwd=tmp_path, env={"SLURM_JOB_ID": "7"}, capture_output=True, check=False
    )
    assert (done.returncode, (tmp_path / "over").exists()) == (code, False), done.stderr


def test_a_prolog_without_a_python_ends_with_0(tmp_path: Path) -> None:
    script = (ROOT / "slurm_templates" / "prolog.sh").read_text()
    script = script.replace("python=/usr/bin/python3", "python=/nowhere/python3").replace("    sleep 1\n", "")
    (tmp_path / "prolog.sh").write_text(script)
    assert subprocess.run(["sh", f"{tmp_path}/prolog.sh"], env={}, capture_output=True, check=False).returncode == 0


# --- the nodes of a job -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", range(2, 10))
def test_each_pair_meets_once_and_each_node_one_other_in_a_round(size: int) -> None:
    rounds = vet_job.rounds(size)
    assert len(rounds) == size - 1 + size % 2
    met = [pair for pairs in rounds for pair in pairs]
    assert sorted(met) == list(itertools.combinations(range(size), 2))
    for pairs in rounds:
        assert len(set(itertools.chain(*pairs))) == 2 * len(pairs)


def looks(count: int = 8) -> list[vet_job.Look]:
    usual = {
        "main_memory_bytes": 256 << 30,
        "node_cores": 64,
        "shm_free_bytes": 100 << 30,
        "clock_s": 1e3,
        "leaked": [],
    }
    measured = {"devices": 2, "product_gflop_s": [100.0, 101.0], "copy_gb_s": [20.0, 20.5], "link_gb_s": 1.2}
    return [{"node": f"n{number}", **usual, **measured} for number in range(count)]


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"main_memory_bytes": 128 << 30}, "memory 128 GiB (usual 256)"),
        ({"product_gflop_s": [100.0, 60.0]}, "matrix products of device 1 60 GFLOP/s (usual 100)"),
        ({"link_gb_s": 0.1}, "its fastest exchange with another node 0.1 GB/s (usual 1.2)"),
        ({"shm_free_bytes": 1 << 20}, "room in /dev/shm 0.0009766 GiB (usual 10)"),
        ({"device_error": "CUDA error: uncorrectable ECC"}, "its device fails: CUDA error: uncorrectable ECC"),
    ],
)
def test_a_node_far_below_its_siblings_is_unfit(changes: dict[str, Any], why: str) -> None:
    of_job = looks()
    of_job[3].update(changes)
    assert vet_job.judged(of_job, {}).unfit == {"n3": why}


def test_nodes_that_are_alike_are_fit() -> None:
    assert vet_job.judged(looks(), {}) == ({}, [])
    assert vet_job.judged(looks(1), {}) == ({}, [])


def test_of_two_nodes_nothing_says_which_is_wrong() -> None:
    of_job = looks(2)
    of_job[1]["main_memory_bytes"] = 128 << 30
    assert vet_job.judged(of_job, {}) == ({}, [])


def test_a_pair_that_is_slow_while_both_are_fast_with_others_is_found() -> None:
    pairs = dict.fromkeys(itertools.combinations(range(8), 2), 1.1)
    assert vet_job.slow_pairs(pairs) == []
    pairs[2, 5] = 0.2
    assert vet_job.slow_pairs(pairs) == [(2, 5)]
    (text,) = vet_job.judged(looks(), {(2, 5): 0.2}).warnings
    assert text == "slow link: n2 and n5 exchange 0.2 GB/s, and each of them 1.2 with others"
    of_job = looks()
    of_job[5]["main_memory_bytes"] = 128 << 30
    assert vet_job.judged(of_job, {(2, 5): 0.2}).warnings == []  # n5 is unfit anyway


class AllRanks:
    """Rank 0, and the others, which are fast with each other."""

    rank, size = 0, 16

    def gather(self, thing: Any) -> list[Any]:
        is_rates = isinstance(thing, dict)
        return [thing, dict.fromkeys(itertools.combinations(range(1, 16), 2), 1.0) if is_rates else thing]


@pytest.mark.parametrize(("slow_alone", "expected"), [(False, {}), (True, {(0, 5): 0.1})])
def test_only_a_pair_that_is_slow_alone_too_is_a_bad_link(
    monkeypatch: pytest.MonkeyPatch, slow_alone: bool, expected: dict[tuple[int, int], float]
) -> None:
    def exchange(rank: int, pair: tuple[int, int], times: int) -> float:
        is_alone = times == vet_job.ALONE_TIMES
        return 0.1 if pair == (0, 5) and (slow_alone or not is_alone) else 1.0

    monkeypatch.setattr(vet_job, "_exchange", exchange)
    assert vet_job.pair_rates(AllRanks(), time.monotonic() + 60)[1] == expected


def test_an_error_of_all_devices_is_no_nodes_fault() -> None:
    of_job = looks()
    for look in of_job:
        look["device_error"] = "CUDA error: no kernel image is available"
    unfit, warnings = vet_job.judged(of_job, {})
    assert (unfit, len(warnings)) == ({}, 8)


def test_a_clock_that_is_off_is_a_warning() -> None:
    of_job = looks()
    of_job[3]["clock_s"] -= 3.5
    assert vet_job.judged(of_job, {}) == ({}, ["the clock of n3 is -3.5 s off"])


def test_a_moment_of_another_process_accuses_no_node(monkeypatch: pytest.MonkeyPatch) -> None:
    look: vet_job.Look = {}
    rates = iter([[60.0, 100.0], [99.0, 61.0]])
    monkeypatch.setattr(vet_job, "device_rates", lambda: {"devices": 2, "product_gflop_s": next(rates)})
    for _ in range(2):
        vet_job._measure_devices(look)
    assert look == {"devices": 2, "product_gflop_s": [99.0, 100.0]}


def test_variables_that_leaked_are_named_once() -> None:
    environ = {
        "CUDA_LAUNCH_BLOCKING": "1",
        "NCCL_DEBUG": "INFO",
        "NCCL_VERSION": "2.28.3-1",
        "OMP_NUM_THREADS": "4",
        "HOME": "/root",
    }
    assert vet_job.facts(environ, ["OMP_NUM_THREADS"])["leaked"] == ["CUDA_LAUNCH_BLOCKING=1", "NCCL_DEBUG=INFO"]
    of_job = looks()
    for look in of_job[:6]:
        look["leaked"] = ["CUDA_LAUNCH_BLOCKING=1"]
    (text,) = vet_job.judged(of_job, {}).warnings
    assert text == "leaked: CUDA_LAUNCH_BLOCKING=1 on 6 of 8 nodes; `env:` of the platform does not set that"


def test_reasons_are_one_word_for_the_shell() -> None:
    assert vet_job.one_word({"n07": "a 1; b", "n08": "c d"}) == "n07:a_1,_b;n08:c_d"


def test_a_rate_is_the_median_of_many_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    moments = itertools.chain([0.0, 7.0], itertools.count(8.0))
    monkeypatch.setattr(vet_job, "time", SimpleNamespace(perf_counter=lambda: next(moments)))
    calls: list[int] = []
    assert vet_job.seconds_of(lambda: calls.append(1), lambda: None, 9.0) == 1.0
    assert len(calls) == 4


def test_one_node_prints_what_it_measured(monkeypatch: pytest.MonkeyPatch, capfd: Capture) -> None:
    for name in [name for name in os.environ if name.startswith(("SLURM", "PMI", "OMPI", "NCCL"))]:
        monkeypatch.delenv(name)
    for name in ("RANK", "WORLD_SIZE", "OMP_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    rates = {"devices": 1, "product_gflop_s": [98.7], "copy_gb_s": [12.3]}
    monkeypatch.setattr(vet_job, "device_rates", lambda: rates)
    assert vet_job.main([]) == 0
    wire, device, end = capfd.readouterr().out.splitlines()
    value = json.loads(wire.partition(" ")[2])["value"]
    assert (value["part"], value["node"]) == ("vet", node.node_name(os.environ))
    assert value["facts"].keys() >= {"product_gflop_s", "main_memory_bytes", "node_cores", "disk_free_bytes"}
    assert device == "vet: device 0: matrix products 98.700 GFLOP/s, copies 12.300 GB/s"
    assert end.startswith("vet: 1 of 1 nodes fit, after ")


def test_a_job_goes_on_where_nothing_could_be_measured(monkeypatch: pytest.MonkeyPatch, capfd: Capture) -> None:
    def breaks() -> None:
        raise ImportError("No module named 'torch'")

    monkeypatch.setattr(vet_job, "device_rates", breaks)
    monkeypatch.setattr(vet_job, "detect", lambda environ: vet_job.World())
    assert vet_job.main([]) == 0
    wire, said = capfd.readouterr().out.splitlines()
    assert json.loads(wire.partition(" ")[2])["value"]["facts"]["warnings"] == ["not vetted: No module named 'torch'"]
    assert said.endswith(" is not vetted: No module named 'torch'")


def test_by_hand_the_exit_code_says_whether_all_are_fit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    of_job = looks()
    monkeypatch.setattr(vet_job, "_measure", lambda look, world, deadline_s: (of_job, {}))
    monkeypatch.setattr(vet_job, "detect", lambda environ: vet_job.World())
    assert vet_job.main([]) == 0
    of_job[3]["main_memory_bytes"] = 128 << 30
    assert vet_job.main([]) == vet.UNFIT
    assert vet_job.main([f"--unfit={tmp_path / 'unfit'}"]) == 0  # job.sh reads the file
    assert (tmp_path / "unfit").read_text() == "n3:memory_128_GiB_(usual_256)"


@pytest.mark.slow
@pytest.mark.parametrize("is_importing", [False, True])
def test_who_waits_too_long_gives_up_and_says_so(tmp_path: Path, is_importing: bool) -> None:
    """For the other one of two ranks, which never comes; or for a torch that takes long to import."""
    if is_importing:
        (tmp_path / "torch.py").write_text("import time; time.sleep(20)")
    program = "from models import vet_job; vet_job.GIVE_UP_S = 1.0; raise SystemExit(vet_job.main([]))"
    world = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0", "PATH": os.environ["PATH"]}
    environ = {**world, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environ, cwd=ROOT, capture_output=True, text=True, timeout=10
    )
    assert (done.returncode, "not vetted: not all nodes have answered after 1 s" in done.stdout) == (0, True), done
