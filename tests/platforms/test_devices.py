"""Counting accelerators in made-up machines: a folder with the device files that a kernel would make."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from platforms.config.devices import DeviceCount, count_accelerators


def nvidia(root: Path, count: int) -> None:
    (root / "dev").mkdir(exist_ok=True)
    for name in [*(f"nvidia{number}" for number in range(count)), "nvidiactl", "nvidia-uvm", "nvidia-modeset"]:
        (root / "dev" / name).write_text("")
    (root / "dev" / "nvidia-caps").mkdir(exist_ok=True)


def rocm(root: Path, count: int, render: int | None = None) -> None:
    """Two CPUs and `count` GPUs, of which `render` have a render file here (None: all, -1: there is no /dev/dri)."""
    (root / "dev" / "dri").mkdir(parents=True)
    (root / "dev" / "kfd").write_text("")
    nodes = root / "sys/class/kfd/kfd/topology/nodes"
    for node in range(count + 2):
        (nodes / str(node)).mkdir(parents=True)
        simds, minor = (0, 0) if node < 2 else (440, 126 + node)
        text = f"cpu_cores_count {64 if node < 2 else 0}\nsimd_count {simds}\ndrm_render_minor {minor}\nname gfx 90a\n"
        (nodes / str(node) / "properties").write_text(text)
    for number in range(count if render is None else max(render, 0)):
        (root / "dev" / "dri" / f"renderD{128 + number}").write_text("")
    if render == -1:
        (root / "dev" / "dri").rmdir()


def test_a_machine_without_accelerators(tmp_path: Path) -> None:
    assert count_accelerators({}, tmp_path) == DeviceCount("cpu", 1)
    (tmp_path / "dev").mkdir()
    assert count_accelerators({"CUDA_VISIBLE_DEVICES": "0,1"}, tmp_path) == DeviceCount("cpu", 1)


@pytest.mark.parametrize("count", [1, 4, 12])
def test_nvidia(tmp_path: Path, count: int) -> None:
    nvidia(tmp_path, count)
    assert count_accelerators({}, tmp_path) == DeviceCount("cuda", count)


@pytest.mark.parametrize(
    ("variable", "count"),
    [
        ("0", 1), ("0,1", 2), ("3,2,1,0", 4), (" 0 , 1 ", 2), ("00,1", 2),
        ("", 0), ("-1", 0), ("none", 0), ("NoDevFiles", 0), (",", 0),
        ("0,-1,1", 1), ("0,7,1", 1), ("7", 0),
        ("GPU-5a4c", 1), ("GPU-5a4c,GPU-6b7d", 2),
        ("MIG-5a4c", 1), ("MIG-5a4c,MIG-6b7d", 1), ("MIG-GPU-5a4c/1/0", 0),
    ],
)  # fmt: skip
def test_cuda_visible_devices(tmp_path: Path, variable: str, count: int) -> None:
    nvidia(tmp_path, 4)
    expected = DeviceCount("cuda", count) if count else DeviceCount("cpu", 1)
    assert count_accelerators({"CUDA_VISIBLE_DEVICES": variable}, tmp_path) == expected


def test_variables_of_amd_hide_nothing_of_nvidia(tmp_path: Path) -> None:
    nvidia(tmp_path, 4)
    assert count_accelerators({"HIP_VISIBLE_DEVICES": "", "ROCR_VISIBLE_DEVICES": ""}, tmp_path) == DeviceCount(
        "cuda", 4
    )


def test_rocm(tmp_path: Path) -> None:
    rocm(tmp_path, 8)
    assert count_accelerators({}, tmp_path) == DeviceCount("rocm", 8)


def test_without_the_driver_there_is_no_rocm(tmp_path: Path) -> None:
    rocm(tmp_path, 8)
    (tmp_path / "dev" / "kfd").unlink()
    assert count_accelerators({}, tmp_path) == DeviceCount("cpu", 1)


@pytest.mark.parametrize(("render", "count"), [(2, 2), (0, 0), (-1, 8)])
def test_a_container_sees_the_render_files_of_its_own_devices(tmp_path: Path, render: int, count: int) -> None:
    rocm(tmp_path, 8, render)
    assert count_accelerators({}, tmp_path) == (DeviceCount("rocm", count) if count else DeviceCount("cpu", 1))


def test_a_node_that_cannot_be_read_is_somebody_elses(tmp_path: Path) -> None:
    rocm(tmp_path, 2)
    properties = tmp_path / "sys/class/kfd/kfd/topology/nodes/3/properties"
    properties.unlink()
    properties.mkdir()  # reading it fails, whoever we are
    assert count_accelerators({}, tmp_path) == DeviceCount("rocm", 1)


@pytest.mark.parametrize(
    ("environ", "count"),
    [
        ({"ROCR_VISIBLE_DEVICES": "0,1,2"}, 3),
        ({"HIP_VISIBLE_DEVICES": "0,1"}, 2),
        ({"CUDA_VISIBLE_DEVICES": "0"}, 1),
        ({"HIP_VISIBLE_DEVICES": "0,1", "CUDA_VISIBLE_DEVICES": ""}, 2),
        ({"ROCR_VISIBLE_DEVICES": "4,5", "HIP_VISIBLE_DEVICES": "0,1,2"}, 2),
        ({"ROCR_VISIBLE_DEVICES": "4,5", "HIP_VISIBLE_DEVICES": "1"}, 1),
        ({"ROCR_VISIBLE_DEVICES": "4", "CUDA_VISIBLE_DEVICES": "0"}, 1),
        ({"ROCR_VISIBLE_DEVICES": "4", "CUDA_VISIBLE_DEVICES": "4"}, 0),  # as seen on Frontier: Parsl/parsl issue 3858
        ({"ROCR_VISIBLE_DEVICES": "4", "HIP_VISIBLE_DEVICES": "0", "CUDA_VISIBLE_DEVICES": "4"}, 1),
        ({"ROCR_VISIBLE_DEVICES": "GPU-5a4c,GPU-6b7d"}, 2),
        ({"ROCR_VISIBLE_DEVICES": ""}, 0),
        ({"HIP_VISIBLE_DEVICES": "-1"}, 0),
    ],
)
def test_variables_of_rocm(tmp_path: Path, environ: dict[str, str], count: int) -> None:
    rocm(tmp_path, 8)
    assert count_accelerators(environ, tmp_path) == (DeviceCount("rocm", count) if count else DeviceCount("cpu", 1))


def test_hidden_nvidia_and_visible_amd(tmp_path: Path) -> None:
    rocm(tmp_path, 2)
    nvidia(tmp_path, 1)
    environ = {"CUDA_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": "0,1"}
    assert count_accelerators(environ, tmp_path) == DeviceCount("rocm", 2)


@pytest.mark.slow
def test_this_machine_is_counted_without_torch() -> None:
    code = "import sys; from platforms.config.devices import count_accelerators as c; print(c({}).count, *sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=Path(__file__).parents[2], capture_output=True, text=True, check=True
    )
    count, *modules = done.stdout.split()
    assert int(count) >= 1
    assert "platforms.config.devices" in modules
    assert "torch" not in modules
