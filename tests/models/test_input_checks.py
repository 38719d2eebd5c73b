"""Data that no benchmark has fails a run: samples that are all the same value, files that are absurdly small."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import h5py
import pytest
import torch
from PIL import Image

from models.checks import MOST_PACKED, FirstInputs
from models.data import tfrecord
from models.data.synthetic import generator_of, write_set
from tests.models.jobs import Ended, Nursery

AT_NIGHT = pytest.mark.nightly("models/checks.py", "models/benchmarks", "models/data")
NAMES = ["cosmoflow", pytest.param("resnet50", marks=AT_NIGHT), pytest.param("deepcam", marks=AT_NIGHT)]
ONE_STEP = ("--warmup-steps", 0, "--windows", 1, "--steps-per-window", 1, "--global-batch-size", 2, "--workers", 0)


def blank_jpeg(path: Path) -> None:
    Image.new("RGB", (500, 375)).save(path, "JPEG", quality=90)


def blank_counts(path: Path) -> None:
    tfrecord.write(str(path), bytes(32**3 * 4 * 2), [0.1, 0.2, 0.3, 0.4])


def blank_fields(path: Path) -> None:
    with h5py.File(path, "r+") as file:
        file["climate/data"][...] = range(16)  # each channel has a value of its own


BLANK: dict[str, Callable[[Path], None]] = {"resnet50": blank_jpeg, "cosmoflow": blank_counts, "deepcam": blank_fields}


def real_set(name: str, folder: Path, change: Callable[[Path], None]) -> Path:
    """A set of two samples that says nothing of itself, each of its files changed."""
    generator = generator_of(name)
    write_set(str(folder), generator.recipe("smoke", 2, 0, generator.FORMATS[0]), processes=1)
    (folder / "manifest.json").unlink()
    for path in folder.glob("train/**/*"):
        if path.is_file():
            change(path)
    return folder


def one_step(nursery: Nursery, name: str, folder: Path, *more: object) -> Ended:
    words = ("train", name, "--data-dir", folder, "--device", "cpu", "--size", "smoke", "--dtype", "fp32")
    return nursery.run(*words, *ONE_STEP, *more)


def problems(ended: Ended) -> dict[str, str]:
    return {value["gate"]: value["text"] for value in ended.values("hpcml_problem")}


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_samples_of_one_value_fail_the_run(name: str, nursery: Nursery, tmp_path: Path) -> None:
    folder = real_set(name, tmp_path / "set", BLANK[name])
    ended = one_step(nursery, name, folder)
    assert ended.code == 3, ended.errors
    found = problems(ended)["input_varies"]
    assert f"so {folder} is not this benchmark's data" in found
    assert f"python -m models data {name} --data-dir {folder}-synthetic" in found
    assert max(ended.value("hpcml_summary")["input_std"]) == 0


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_set_that_says_nothing_of_itself_is_weighed_and_passes(name: str, nursery: Nursery, tmp_path: Path) -> None:
    folder = real_set(name, tmp_path / "set", lambda path: None)
    ended = one_step(nursery, name, folder)
    assert ended.code == 0, ended.errors
    data = ended.value("hpcml_start")["data"]
    sizes = [path.stat().st_size for path in folder.glob("train/**/*") if path.is_file()]
    assert (data["kind"], data["bytes"], data["bytes_per_sample"]) == ("real", None, sum(sizes) / 2)
    assert min(ended.value("hpcml_summary")["input_std"]) > 0


def test_a_sample_may_be_packed_a_hundred_times_and_no_more() -> None:
    inputs = FirstInputs()
    inputs.take(torch.arange(2 * 10 * 10 * 3, dtype=torch.uint8).view(2, 10, 10, 3))
    assert [gate for gate, _ in inputs.problems(300 / MOST_PACKED, "set", "make")] == []
    assert [gate for gate, _ in inputs.problems(299 / MOST_PACKED, "set", "make")] == ["data_bytes"]
    assert [gate for gate, _ in inputs.problems(None, "set", "make")] == []


def test_one_sample_that_varies_is_enough() -> None:
    inputs = FirstInputs()
    inputs.take(torch.stack([torch.zeros(4, 4, 2), torch.rand(4, 4, 2)]))
    assert list(inputs.problems(None, "set", "make")) == []
