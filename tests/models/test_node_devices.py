"""What GPUs say of themselves through nvidia-smi, amd-smi and rocm-smi: scripts on PATH say what these tools say.

H200 is what nvidia-smi of R580 has printed, with another identity. All other output is no copy: it is written after
public outputs and sources, shortened, with other numbers and identities:
nvidia-smi: the field names and the order of `--query-gpu` in nvidia-smi(1) 565.57; A100 with R550 and H100 with R535
for the form of a line, 580.173 for the sentence about a field that is not known (it comes with exit code 2), the MIG
User Guide for `-L`.
amd-smi: ROCm/device-metrics-exporter, the test of its testrunner, for an MI210 with the kernel's own driver (a list
below `gpu_data`); ROCm/amdsmi, CHANGELOG.md of ROCm 6.3 and 7, for an MI300X: `ppt0` and the violations.
rocm-smi: wandb/wandb at 3ada41c0, tests/unit_tests/test_system_metrics/test_gpu_amd.py, for an MI210 with ROCm 5.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from models import node_devices
from models.accelerators import gpu_health

A100 = """\
NVIDIA A100-SXM4-40GB, GPU-a1000001-1111-4111-8111-000000000001, 00000000:07:00.0, 550.163.01, 40960, Disabled, \
400.00, 1410, 1395, 1215, 61, 399.52, 3, 0, 0x0000000000000004
NVIDIA A100-SXM4-40GB, GPU-a1000002-2222-4222-8222-000000000002, 00000000:0A:00.0, 550.163.01, 40960, Disabled, \
400.00, 1410, 210, 1215, 31, 52.07, 0, 0, 0x0000000000000001
"""
H100 = """\
NVIDIA H100 80GB HBM3, GPU-b1000003-3333-4333-8333-000000000003, 00000000:19:00.0, 535.129.03, 81559, Enabled, \
700.00, 1980, 1980, 2619, 33, 73.31, [N/A], [N/A], 0x0000000000000000
NVIDIA H100 80GB HBM3, GPU-b1000004-4444-4444-8444-000000000004, 00000000:3B:00.0, 535.129.03, 81559, Disabled, \
700.00, 1980, 1980, 2619, 34, [Unknown Error], 0, 0, [N/A]
"""
H200 = """\
NVIDIA H200, GPU-d1000007-7777-4777-8777-000000000007, 00000000:00:06.0, 580.159.04, 143771, Disabled, 700.00, 1980, \
345, 3201, 37, 80.63, 0, 0, 0x0000000000000001
"""
LIST = """\
GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-b1000003-3333-4333-8333-000000000003)
  MIG 3g.40gb     Device  0: (UUID: MIG-c1000005-5555-5555-8555-000000000005)
  MIG 1g.10gb+me  Device  1: (UUID: MIG-c1000006-6666-5666-8666-000000000006)
GPU 1: NVIDIA H100 80GB HBM3 (UUID: GPU-b1000004-4444-4444-8444-000000000004)
"""

MI210 = """{"gpu_data": [{"gpu": 0,
"asic": {"market_name": "AMD Instinct MI210", "asic_serial": "0xD1000007E1000008"}, "bus": {"bdf": "0000:63:00.0"},
"limit": {"max_power": {"value": 300, "unit": "W"}, "socket_power": {"value": 290, "unit": "W"}},
"driver": {"name": "amdgpu", "version": "Linuxversion6.14.0-24-generic(buildd@host)(x86_64-linux-gnu-gcc-13"},
"vram": {"type": "HBM", "size": {"value": 65520, "unit": "MB"}}}]}"""
MI210_NOW = """WARNING: User is missing the following required groups: render
[{"gpu": 0, "power": {"socket_power": {"value": 41, "unit": "W"}, "throttle_status": "THROTTLED"},
"clock": {"gfx_0": {"clk": {"value": 800, "unit": "MHz"}, "max_clk": {"value": 1700, "unit": "MHz"}}},
"temperature": {"edge": "N/A", "hotspot": {"value": 37, "unit": "C"}}, "throttle": {"ppt_violation_status": "N/A"},
"ecc": {"total_correctable_count": 2, "total_uncorrectable_count": 0}}]"""
MI300X = """[{"gpu": 0, "asic": {"market_name": "AMD Instinct MI300X", "asic_serial": "0xF1000009E1000A"}}, {"gpu": 1,
"asic": {"market_name": "AMD Instinct MI300X", "asic_serial": "0xF100000BE100000C"},
"limit": {"ppt0": {"socket_power_limit": {"value": 750, "unit": "W"}}, "ppt1": {"socket_power_limit": "N/A"}},
"driver": {"name": "amdgpu", "version": "6.12.12"}, "partition": {"accelerator_partition": "CPX"}}]"""
MI300X_NOW = """{"gpu_data": [{"gpu": 1,
"throttle": {"ppt_violation_status": "ACTIVE", "hbm_thermal_violation_status": "NOT ACTIVE"}}]}"""
ROCM_SMI = """WARNING: AMD GPU device(s) is/are in a low-power state. Check power control/runtime_status

{"card0": {"Unique ID": "0xd1000007e1000008", "Temperature (Sensor junction) (C)": "35.0",
"mclk clock speed:": "(1600Mhz)", "sclk clock speed:": "(800Mhz)", "Max Graphics Package Power (W)": "300.0",
"Average Graphics Package Power (W)": "41.0", "PCI Bus": "0000:63:00.0", "VRAM Total Memory (B)": "68702699520",
"Card series": "AMD INSTINCT MI210"}, "system": {"Driver version": "5.18.13"}}"""


def tool(folder: Path, name: str, **outputs: str) -> dict[str, str]:
    """Put a script on PATH that says one of these texts, by its first argument, and return the environment for it."""
    script = "#!/bin/sh\n"
    for number, (word, text) in enumerate(outputs.items()):
        (folder / f"{name}.{number}").write_text(text)
        script += f"case $1 in *{word}*) cat '{folder}/{name}.{number}';; esac\n"
    return broken(folder, name, script)


def broken(folder: Path, name: str, script: str) -> dict[str, str]:
    (folder / name).write_text(script)
    (folder / name).chmod(0o755)
    return {"PATH": str(folder)}


def test_a_look_at_two_a100(tmp_path: Path) -> None:
    looked = node_devices.look(tool(tmp_path, "nvidia-smi", query=A100))
    assert looked.why is None
    device, health = looked.devices[0], looked.health[0]
    assert tuple(device) == node_devices.DEVICE
    identity = ["NVIDIA A100-SXM4-40GB", "GPU-a1000001", "0000:07:00.0", "550.163.01"]
    assert list(device.values()) == [*identity, 40 * 2**30, None, 400, 1410]
    state = "uuid clock_mhz memory_clock_mhz temperature_c power_w ecc_corrected ecc_uncorrected throttled"
    assert " ".join(health) == state
    assert list(health.values()) == ["GPU-a1000001", 1395, 1215, 61, 399.52, 3, 0, ["power cap"]]
    assert looked.health[1]["throttled"] == []  # an idle GPU is slow by its own choice


def test_a_look_at_an_idle_h200(tmp_path: Path) -> None:
    looked = node_devices.look(tool(tmp_path, "nvidia-smi", query=H200))
    identity = ["NVIDIA H200", "GPU-d1000007", "0000:00:06.0", "580.159.04"]
    assert list(looked.devices[0].values()) == [*identity, 143771 * 2**20, None, 700, 1980]
    assert list(looked.health[0].values()) == ["GPU-d1000007", 345, 3201, 37, 80.63, 0, 0, []]


def test_mig_devices_stand_for_their_gpu_and_what_is_not_known_is_absent(tmp_path: Path) -> None:
    looked = node_devices.look(tool(tmp_path, "nvidia-smi", query=H100, L=LIST))
    assert [each["uuid"] for each in looked.devices] == ["MIG-c1000005", "MIG-c1000006", "GPU-b1000004"]
    assert [each["mig"] for each in looked.devices] == ["3g.40gb", "1g.10gb+me", None]
    assert ["memory_bytes" in each for each in looked.devices] == [False, False, True]
    assert "ecc_corrected" not in looked.health[0]
    assert not {"power_w", "throttled"} & set(looked.health[2])


@pytest.mark.parametrize(
    ("visible", "uuids"),
    [
        ("1", ["GPU-b1000004"]),
        ("GPU-b1000004-4,MIG-c1000006-6666-5666-8666-000000000006", ["GPU-b1000004", "MIG-c1000006"]),
        ("0", ["MIG-c1000005", "MIG-c1000006"]),
        ("1,7,0", ["GPU-b1000004"]),
        ("NoDevFiles", []),
        ("", []),
    ],
)
def test_only_what_cuda_may_use_is_shown(visible: str, uuids: list[str], tmp_path: Path) -> None:
    environ = tool(tmp_path, "nvidia-smi", query=H100, L=LIST)
    looked = node_devices.look({**environ, "CUDA_VISIBLE_DEVICES": visible})
    assert [each["uuid"] for each in looked.devices] == [each["uuid"] for each in looked.health] == uuids


def test_an_older_driver_leaves_out_the_field_that_it_does_not_know(tmp_path: Path) -> None:
    line = "Tesla V100-SXM2-16GB, GPU-1, 0:1A:00.0, 440.33.01, 16160, 300.00, 1530, 135, 877, 34, 41.2, 0, 0, 0x1"
    unknown = 'Field "mig.mode.current" is not a valid field to query.'
    script = f"#!/bin/sh\ncase $1 in *mig.mode*) echo '{unknown}'; exit 2;; esac; echo '{line}'\n"
    looked = node_devices.look(broken(tmp_path, "nvidia-smi", script))
    assert looked.why is None
    assert (looked.devices[0]["power_limit_w"], looked.devices[0]["mig"]) == (300, None)


def test_amd_smi_of_an_mi210(tmp_path: Path) -> None:
    looked = node_devices.look(tool(tmp_path, "amd-smi", static=MI210, metric=MI210_NOW))
    assert looked.why is None
    identity = ["AMD Instinct MI210", "GPU-d1000007e1000008", "0000:63:00.0", "kernel 6.14.0-24-generic"]
    assert list(looked.devices[0].values()) == [*identity, 65520 * 2**20, None, 290, 1700]
    assert list(looked.health[0].values()) == ["GPU-d1000007e1000008", 800, 37, 41, 2, 0, ["no reason given"]]


def test_amd_smi_of_the_mi300x_that_two_variables_leave(tmp_path: Path) -> None:
    environ = tool(tmp_path, "amd-smi", static=MI300X, metric=MI300X_NOW)
    hidden = {"ROCR_VISIBLE_DEVICES": "1", "HIP_VISIBLE_DEVICES": "0", "CUDA_VISIBLE_DEVICES": "1"}
    (device,), (health,), _ = node_devices.look({**environ, **hidden})
    assert (device["driver"], device["mig"], device["power_limit_w"]) == ("6.12.12", "CPX", 750)
    assert health == {"uuid": "GPU-f100000be100000c", "throttled": ["power cap"]}
    named = node_devices.look({**environ, "ROCR_VISIBLE_DEVICES": "GPU-00f1000009e1000a"})
    assert [each["uuid"] for each in named.devices] == ["GPU-00f1000009e1000a"]


def test_rocm_smi_answers_where_there_is_no_amd_smi(tmp_path: Path) -> None:
    (device,), (health,), _ = node_devices.look(tool(tmp_path, "rocm-smi", show=ROCM_SMI))
    identity = ["AMD INSTINCT MI210", "GPU-d1000007e1000008", "0000:63:00.0", "5.18.13"]
    assert list(device.values()) == [*identity, 68702699520, None, 300]
    assert list(health.values()) == ["GPU-d1000007e1000008", 800, 1600, 35, 41]


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("#!/bin/sh\necho 'No devices were found'; exit 6\n", "ended with exit code 6: No devices were found"),
        ("#!/bin/sh\necho 'No devices were found'\n", "says what is no answer: No devices were found"),
        ("#!/bin/sh\necho 'NVML: lost' >&2; exit 15\n", "ended with exit code 15: NVML: lost"),
        ("#!/no/such/shell\n", "cannot be started: No such file or directory"),
    ],
)
def test_a_tool_that_fails_says_why_nothing_is_known(script: str, why: str, tmp_path: Path) -> None:
    assert node_devices.look(broken(tmp_path, "nvidia-smi", script)) == ([], [], f"nvidia-smi {why}")


def test_a_warning_with_an_exit_code_of_its_own_costs_no_facts(tmp_path: Path) -> None:
    warning = "WARNING: infoROM is corrupted at gpu 0000:07:00.0"
    looked = node_devices.look(broken(tmp_path, "nvidia-smi", f"#!/bin/sh\necho '{A100}{warning}'; exit 14\n"))
    assert (len(looked.devices), looked.why) == (2, f"nvidia-smi ended with exit code 14: {warning}")


def test_a_tool_that_hangs_costs_no_more_than_its_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_devices, "LIMIT_S", 0.05)
    environ = broken(tmp_path, "nvidia-smi", f"#!/bin/sh\nsleep 60\ntouch {tmp_path}/over\n")
    assert node_devices.look(environ).why == "nvidia-smi has not answered within 0.05 s"
    assert not (tmp_path / "over").exists()


def test_nonsense_for_json_and_a_machine_without_tools(tmp_path: Path) -> None:
    assert node_devices.look({"PATH": str(tmp_path)}) == ([], [], None)
    looked = node_devices.look(tool(tmp_path, "amd-smi", static="{'gpu'"))
    assert looked == ([], [], "amd-smi says what is no answer: {'gpu'")


def test_reasons_are_named_as_by_the_libraries() -> None:
    assert list(node_devices.AMD_REASONS.values()) == list(gpu_health.AMD_VIOLATIONS.values())
