"""What GPUs say of themselves, and which GPU a rank has: by fakes of NVML, of AMD SMI and of torch.cuda."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from models.accelerators import cuda, gpu_health
from models.checks import check_devices_differ, shared_devices
from models.errors import ImpossibleRequest
from models.ranks import Ranks
from models.world import World
from tests.models.fake_amdsmi import AmdSmiClkType, AmdSmiTemperatureType, FakeAmdSmi, FakeGpu, mi210

NVML = """
def nvmlInit(): pass
def nvmlDeviceGetHandleByUUID(uuid): return uuid
def nvmlDeviceGetClockInfo(gpu, kind): return {1: 1410, 2: 1593}[kind]
def nvmlDeviceGetTemperature(gpu, sensor): return 61
def nvmlDeviceGetPowerUsage(gpu): return 399_500
def nvmlDeviceGetCurrentClocksThrottleReasons(gpu): return 0x04 | 0x40 | 0x01
def nvmlDeviceGetTotalEccErrors(gpu, kind, counter): raise RuntimeError("Not Supported")
def nvmlDeviceGetComputeRunningProcesses(gpu): return ["pid 1151", "pid 1176"]
"""
# What amdsmi does at import where ROCm is not installed (amdsmi 7.0.2, amdsmi_wrapper.py).
NO_LIBRARY = """
print("libamd_smi.so: cannot open shared object file: No such file or directory")
print("Unable to find libamd_smi.so library try installing amd-smi-lib from your package manager")
{}["libamd_smi.so"]
"""


# --- NVIDIA


@pytest.mark.parametrize(
    ("environ", "index", "expected"),
    [
        ({}, 3, 3),
        ({"CUDA_VISIBLE_DEVICES": "2,5"}, 1, 5),
        ({"CUDA_VISIBLE_DEVICES": "GPU-12ab"}, 0, None),
        ({"CUDA_VISIBLE_DEVICES": "0"}, 1, None),
    ],
)
def test_nvml_counts_all_devices(environ: dict[str, str], index: int, expected: int | None) -> None:
    assert gpu_health.nvml_index(environ, index) == expected


def test_health_of_an_nvidia_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Asked of the library, with what it does not answer left empty."""
    (tmp_path / "pynvml.py").write_text(NVML)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "pynvml", raising=False)
    health = gpu_health.nvml_health("GPU-12ab", None)
    assert health is not None
    assert (health["clock_mhz"], health["memory_clock_mhz"], health["temperature_c"]) == (1410, 1593, 61)
    assert health["power_w"] == 399.5
    assert {health[name] for name in ("power_limit_w", "ecc_uncorrected")} == {None}
    assert health["throttled"] == ["power cap", "hardware thermal"]
    assert health["processes"] == 2
    assert gpu_health.nvml_health(None, None) is None


def test_other_processes_on_a_ranks_gpu_are_told() -> None:
    """Whatever they do there, --decompose takes for the device's own computing."""
    place = "rank 0 on n07, cuda:0, GPU-c43659b6"
    alone, shared = {"processes": 1}, {"processes": 3}
    (warning,) = shared_devices(Ranks(World()), place, shared, shared)
    assert warning.startswith(f"shared device: 3 processes are on the GPU of {place}, ")
    for before, after in ((alone, alone), (alone, shared), ({}, shared), (None, None), ({"processes": None}, shared)):
        assert shared_devices(Ranks(World()), place, before, after) == []


# --- AMD


def smi(monkeypatch: pytest.MonkeyPatch, *gpus: FakeGpu, has_driver: bool = True) -> None:
    monkeypatch.setitem(sys.modules, "amdsmi", FakeAmdSmi(*gpus, has_driver=has_driver))


def health_of(pci: str) -> Mapping[str, object]:
    health = gpu_health.amd_smi_health(pci)
    assert health is not None
    return health


def test_health_of_an_mi210(monkeypatch: pytest.MonkeyPatch) -> None:
    """AMD SMI sees four GPUs in another order than HIP; the PCI address finds the right one."""
    others = [mi210(bdf, junction_c=30) for bdf in ("0000:09:00.0", "0000:49:00.0", "0000:87:00.0")]
    smi(monkeypatch, *others, mi210("0000:C9:00.0"))
    assert gpu_health.amd_smi_health("0000:c9:00") == {
        "clock_mhz": 1700,
        "clock_max_mhz": 1700,
        "memory_clock_mhz": 1600,
        "temperature_c": 61,
        "power_w": 287,  # the MI200 knows the average only
        "power_limit_w": 300.0,  # AMD SMI has µW
        "throttled": [],
        "ecc_uncorrected": 0,
    }
    assert gpu_health.amd_smi_health("0001:c9:00") is None  # another PCI domain
    assert gpu_health.amd_smi_health(None) is None


def test_health_of_an_mi300(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has the current power, and says why it is slow. What it does not support is empty."""
    violations = {
        "active_ppt_pwr": True,
        "active_socket_thrm": False,
        "active_vr_thrm": "N/A",
        "active_hbm_thrm": True,
        "active_prochot_thrm": False,
    }
    gpu = FakeGpu(
        "0000:05:00.0",
        amdsmi_get_power_info={"current_socket_power": 749, "average_socket_power": "N/A"},
        amdsmi_get_violation_status=violations,
    )
    smi(monkeypatch, gpu)
    health = health_of("0000:05:00")
    assert health["power_w"] == 749
    assert health["throttled"] == ["power cap", "memory thermal"]
    missing = ("clock_mhz", "temperature_c", "power_limit_w", "ecc_uncorrected")
    assert {health[name] for name in missing} == {None}


@pytest.mark.parametrize(
    ("status", "reasons"),
    [
        (0, []),  # ROCm 6.0: the bits
        (1 << 1, ["power cap"]),
        (1 << 16 | 1 << 40, ["current limit", "thermal"]),
        (1 << 57, ["no reason given"]),
        (2**64 - 1, None),  # the driver does not fill it
        (False, []),  # from ROCm 6.1 on: only whether
        (True, ["no reason given"]),
        ("N/A", None),
    ],
)
def test_why_an_amd_gpu_is_slow(monkeypatch: pytest.MonkeyPatch, status: object, reasons: list[str] | None) -> None:
    smi(monkeypatch, mi210("0000:c9:00.0", throttled=status))
    health = health_of("0000:c9:00")
    assert health["throttled"] == reasons


def test_the_answers_of_other_versions_of_amd_smi(monkeypatch: pytest.MonkeyPatch) -> None:
    """ROCm 6.0 has cur_clk, and 65535 for no value; the documented millidegrees are read as such."""
    gpu = FakeGpu(
        "0000:c9:00.0",
        amdsmi_get_clock_info={kind: {"cur_clk": 1650, "max_clk": 0xFFFFFFFF} for kind in AmdSmiClkType},
        amdsmi_get_power_info={"current_socket_power": 0xFFFF, "average_socket_power": 290},
        amdsmi_get_temp_metric={AmdSmiTemperatureType.JUNCTION: 61_000},
    )
    smi(monkeypatch, gpu)
    health = health_of("0000:c9:00")
    assert (health["clock_mhz"], health["clock_max_mhz"], health["memory_clock_mhz"]) == (1650, None, 1650)
    assert (health["power_w"], health["temperature_c"]) == (290, 61.0)


@pytest.mark.parametrize("current", ["N/A", 0])
def test_no_power_is_not_0_watts(monkeypatch: pytest.MonkeyPatch, current: object) -> None:
    power = {"current_socket_power": current, "average_socket_power": 0}
    gpu = FakeGpu("0000:c9:00.0", amdsmi_get_power_info=power, amdsmi_get_power_cap_info={"power_cap": 0})
    smi(monkeypatch, gpu)
    health = health_of("0000:c9:00")
    assert {health[name] for name in ("power_w", "power_limit_w")} == {None}


def test_without_a_driver_health_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    smi(monkeypatch, mi210("0000:c9:00.0"), has_driver=False)
    assert gpu_health.amd_smi_health("0000:c9:00") is None


def test_amdsmi_without_its_library_prints_nothing_into_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "amdsmi.py").write_text(NO_LIBRARY)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "amdsmi", raising=False)
    assert gpu_health.amd_smi_health("0000:c9:00") is None
    assert capsys.readouterr().out == ""


# --- which GPU a rank has


def rocm_gpu(monkeypatch: pytest.MonkeyPatch, *visible: dict[str, Any]) -> cuda.Cuda:
    """The device file on a torch for ROCm that sees these GPUs; each is what get_device_properties returns."""
    properties = [SimpleNamespace(**{"gcnArchName": "gfx90a:sramecc+:xnack-", **gpu}) for gpu in visible]
    monkeypatch.setattr(cuda.torch.version, "hip", "6.3.42134")
    monkeypatch.setattr(cuda.torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(cuda.torch.cuda, "device_count", lambda: len(properties))
    monkeypatch.setattr(cuda.torch.cuda, "set_device", lambda device: None)
    monkeypatch.setattr(cuda.torch.cuda, "get_device_properties", lambda device: properties[device.index])
    return cuda.Cuda()


def at(bus: int, **more: object) -> dict[str, Any]:
    return {"pci_domain_id": 0, "pci_bus_id": bus, "pci_device_id": 0, **more}


FOUR = [at(bus) for bus in (0xC9, 0x87, 0x49, 0x09)]  # as rocm-bandwidth-test shows them on an ARCHER2 node


def world(launcher: str, local_rank: int) -> World:
    return World(rank=local_rank, size=4, local_rank=local_rank, local_size=4, launcher=launcher)


@pytest.mark.parametrize("launcher", ["torchrun", "slurm"])
def test_a_rank_that_sees_all_gpus_takes_that_of_its_number(monkeypatch: pytest.MonkeyPatch, launcher: str) -> None:
    gpu = rocm_gpu(monkeypatch, *FOUR)
    gpu.select(world(launcher, local_rank=2))
    assert gpu.identity() == "0000:49:00"
    assert gpu.dtypes()[0] == "bf16"


def test_a_rank_that_srun_gave_one_gpu_takes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = rocm_gpu(monkeypatch, FOUR[2])  # ROCR_VISIBLE_DEVICES=2
    gpu.select(world("slurm", local_rank=2))
    assert gpu.identity() == "0000:49:00"


def test_torchrun_with_one_visible_gpu_is_refused_with_all_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """ROCR_VISIBLE_DEVICES of the task reaches all ranks that its torchrun starts."""
    monkeypatch.setenv("ROCR_VISIBLE_DEVICES", "2")
    monkeypatch.delenv("HIP_VISIBLE_DEVICES", raising=False)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    gpu = rocm_gpu(monkeypatch, FOUR[2])
    with pytest.raises(ImpossibleRequest, match="4 ranks on this node and 1 accelerator") as refusal:
        gpu.select(world("torchrun", local_rank=2))
    text = "ROCR_VISIBLE_DEVICES='2', HIP_VISIBLE_DEVICES (not set), CUDA_VISIBLE_DEVICES=''"
    assert text in str(refusal.value)


def test_two_variables_that_hide_all_gpus_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """ROCR leaves one GPU, which HIP calls 0: number 2 of it does not exist."""
    monkeypatch.setattr(cuda.torch.version, "hip", "6.3.42134")
    monkeypatch.setenv("ROCR_VISIBLE_DEVICES", "2")
    monkeypatch.setenv("HIP_VISIBLE_DEVICES", "2")
    text = cuda.no_gpu_text()
    assert "run rocm-smi on the node" in text
    assert "Set one of them only: HIP counts from 0 among the GPUs that ROCR_VISIBLE_DEVICES leaves" in text
    monkeypatch.delenv("HIP_VISIBLE_DEVICES")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert "Set one of them only" not in cuda.no_gpu_text()


@pytest.mark.parametrize(
    ("architecture", "dtypes"),
    [
        ("gfx906:sramecc+:xnack-", ("fp16", "fp32")),  # MI50
        ("gfx908:sramecc+:xnack-", ("bf16", "fp16", "fp32")),  # MI100
        ("gfx90a:sramecc+:xnack-", ("bf16", "fp16", "fp32")),  # MI210, MI250X
        ("gfx942:sramecc+:xnack-", ("bf16", "fp16", "fp32")),  # MI300X
    ],
)
def test_the_dtypes_of_an_amd_gpu(monkeypatch: pytest.MonkeyPatch, architecture: str, dtypes: tuple[str, ...]) -> None:
    assert rocm_gpu(monkeypatch, at(0xC9, gcnArchName=architecture)).dtypes() == dtypes


@pytest.mark.parametrize(
    ("properties", "identity"),
    [
        (at(0xC9, uuid="61623433-6236-3364-6563-386164616633"), "0000:c9:00 61623433-6236-3364-6563-386164616633"),
        (at(0xC9, uuid="58580000-0000-0000-0000-000000000000"), "0000:c9:00"),  # ROCr's "GPU-XX": it has none
        ({"uuid": "61623433-6236-3364-6563-386164616633"}, "61623433-6236-3364-6563-386164616633"),
        ({"uuid": "58580000-0000-0000-0000-000000000000"}, None),
        ({}, None),  # torch before 2.4
    ],
)
def test_the_identity_of_an_amd_gpu(
    monkeypatch: pytest.MonkeyPatch, properties: dict[str, Any], identity: str | None
) -> None:
    assert rocm_gpu(monkeypatch, properties).identity() == identity


@pytest.mark.parametrize(
    ("name", "identity"), [("NVIDIA H200", "GPU-c43659b6"), ("NVIDIA A100-SXM4-40GB MIG 3g.20gb", "MIG-c43659b6")]
)
def test_the_identity_of_an_nvidia_gpu_is_what_nvidia_smi_calls_it(
    monkeypatch: pytest.MonkeyPatch, name: str, identity: str
) -> None:
    """So that the GPU of a straggler's line can be found. torch has the digits only."""
    gpu = rocm_gpu(monkeypatch, at(6, name=name, uuid="c43659b6-b9b4-302f-6a43-fc5d039d23c1"))
    gpu.type = "cuda"
    assert gpu.identity() == f"{identity}-b9b4-302f-6a43-fc5d039d23c1"


class TwoRanks(Ranks):
    """Two ranks that say the same."""

    def __init__(self) -> None:
        self.size, self.rank = 2, 0

    def gather(self, value: Any) -> list[Any]:
        return [value, value]


def test_two_ranks_on_one_amd_gpu_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ImpossibleRequest, match=r"two ranks on .* use the same accelerator"):
        check_devices_differ(TwoRanks(), rocm_gpu(monkeypatch, FOUR[0]))


def test_health_of_a_rank_is_that_of_its_own_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = rocm_gpu(monkeypatch, *FOUR)
    gpu.select(world("torchrun", local_rank=3))
    smi(monkeypatch, mi210("0000:09:00.0", junction_c=70), mi210("0000:c9:00.0", junction_c=40))
    health = gpu.health()
    assert health is not None
    assert health["temperature_c"] == 70
