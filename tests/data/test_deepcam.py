"""A DeepCAM folder is read bit by bit, by any number of threads, and what is wrong with one is said in words."""

from __future__ import annotations

import re
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch

from models.data.deepcam import CHANNELS, open_folder
from models.errors import DataCorrupt, DataMissing

SHAPE = (24, 36)
SAMPLES = 8


def image(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((*SHAPE, 16), dtype=np.float32) * 1e4


def labels(seed: int) -> np.ndarray:
    return np.random.default_rng((seed, 1)).integers(0, 3, SHAPE).astype(np.int32)


def save(path: Path, data: np.ndarray, classes: np.ndarray, **options: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with h5py.File(path, "w") as file:
        file.create_dataset("climate/data", data=data, **options)
        file.create_dataset("climate/labels_0", data=classes, **options)
        file.create_dataset("climate/labels_1", data=np.minimum(classes + 1, 2))
    return path


def save_stats(path: Path, **changes: object) -> None:
    values = {"count": 8, "mean": np.zeros(16, "f4"), "sqmean": np.ones(16, "f4")}
    ends = {"minval": np.arange(16, dtype="f4") - 50, "maxval": np.arange(16, dtype="f4") + 50}
    with h5py.File(path, "w") as file:
        for name, value in {**values, **ends, **changes}.items():
            if value is not None:
                file[f"climate/{name}"] = value


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Eight samples, named and laid out as real ones are."""
    for number in range(SAMPLES):
        save(tmp_path / f"set/train/data-1996-01-0{number + 1}-00-1.h5", image(number), labels(number))
    save_stats(tmp_path / "set/stats.h5")
    return tmp_path / "set"


def first(folder: Path) -> Path:
    return folder / "train/data-1996-01-01-00-1.h5"


def opened(folder: Path, shape: tuple[int, ...] = SHAPE):
    return open_folder(str(folder), shape=shape)


# --- what is read ----------------------------------------------------------------------------------------------------


def test_a_real_folder(folder):
    data = opened(folder)
    assert (len(data), data.kind, data.bytes, data.format, data.warnings) == (8, "real", None, "hdf5", ())
    assert re.fullmatch(r"h5py \d[\w.]*, HDF5 \d[\w.]*", data.decoder)
    assert data.transforms is None
    assert data.blank == (((24, 36, 16), torch.float32), ((24, 36), torch.uint8))
    assert data.path(2) == str(folder / "train/data-1996-01-03-00-1.h5")
    for index in range(SAMPLES):
        x, y = data[(3, index)]
        assert (x.dtype, y.dtype, x.is_contiguous()) == (torch.float32, torch.uint8, True)
        with h5py.File(data.path(index)) as file:
            assert x.numpy().tobytes() == file["climate/data"][...].tobytes() == image(index).tobytes()
            assert np.array_equal(y.numpy(), file["climate/labels_0"][...])
    assert (data.minimum.dtype, data.minimum.tolist()) == (torch.float32, list(range(-50, -34)))
    assert data.maximum.tolist() == list(range(50, 66))


def test_channels_are_those_of_the_real_set():
    real = "TMQ U850 V850 UBOT VBOT QREFHT PS PSL T200 T500 PRECT TS TREFHT Z1000 Z200 ZBOT"
    assert list(CHANNELS) == real.split()


def test_chunks_are_read_and_that_is_said(folder):
    save(first(folder), image(0), labels(0), chunks=True)
    data = opened(folder)
    assert all("one thread at a time" in warning and str(first(folder)) in warning for warning in data.warnings)
    assert len(data.warnings) == 2
    x, y = data[(0, 0)]
    assert (x.numpy().tobytes(), y.tolist()) == (image(0).tobytes(), labels(0).tolist())


@pytest.mark.parametrize("dtype", ["i1", "u1", "<i2", "<u2", "<i4", "<u4", "<i8", "<f4", "<f8", ">i4", ">i8", ">f4"])
def test_labels_may_be_any_number(folder, dtype):
    save(first(folder), image(0), labels(0).astype(dtype))
    data = opened(folder)
    assert data[(0, 0)][1].tolist() == labels(0).tolist()
    assert data.warnings == (), "labels are turned around without HDF5"
    assert data[(0, 1)][1].tolist() == labels(1).tolist(), "and the next file's are read as its own"


@pytest.mark.parametrize("dtype", [">f4", "<f8"])
def test_values_of_another_number_format_are_converted_and_that_is_said(folder, dtype):
    save(first(folder), image(0).astype(dtype), labels(0))
    data = opened(folder)
    assert data[(0, 0)][0].numpy().tobytes() == image(0).tobytes()
    assert len(data.warnings) == 1
    assert "climate/data" in data.warnings[0]


def test_files_that_real_copies_hold_beside_samples_are_left_out(folder):
    (folder / "train/.data-1996-01-01-00-1.h5").write_bytes(b"hidden")
    (folder / "train/files.txt").write_text("text")
    (folder / "train/old.h5").mkdir()
    save(folder / "train/data-1995-01-01-00-1.HDF5", image(9), labels(9))
    (folder / "stats.h5").rename(folder / "train/stats.h5")
    data = opened(folder)
    assert len(data) == SAMPLES + 1
    assert data[(0, 0)][0].numpy().tobytes() == image(9).tobytes()
    assert data.maximum[0] == 50


# --- what can be wrong -----------------------------------------------------------------------------------------------


def test_images_of_another_size(folder):
    with pytest.raises(DataMissing, match=r"-1\.h5 holds a sample of 24x36 and 96x144 is asked for: .* --size smoke$"):
        opened(folder, (96, 144))


@pytest.mark.parametrize("shape", [(24, 36, 15), (16, 24, 36), (24, 36)])
def test_other_channels(folder, shape):
    save(first(folder), np.zeros(shape, "f4"), labels(0))
    found = "x".join(map(str, shape))
    with pytest.raises(DataMissing, match=f"climate/data is float32 of {found}, not height x width x 16"):
        opened(folder)


@pytest.mark.parametrize(
    ("data", "classes", "text"),
    [
        (np.zeros((24, 37, 16), "f4"), labels(0), "climate/data is float32 of 24x37x16, and float32 of 24x36x16"),
        (image(0), np.zeros((24, 37), "i4"), "climate/labels_0 is int32 of 24x37, and int32 of 24x36"),
        (image(0), np.zeros((24, 36), "S1"), "climate/labels_0 is bytes8 of 24x36, and uint8 of 24x36"),
    ],
)
def test_a_later_file_that_is_another(folder, data, classes, text):
    opened_before = opened(folder)
    path = Path(opened_before.path(3))
    path.unlink()
    with h5py.File(path, "w") as file:
        file["climate/data"], file["climate/labels_0"] = data, classes
    with pytest.raises(DataCorrupt) as error:
        opened_before[(0, 3)]
    assert f"{path}: {text} is expected" in str(error.value)


@pytest.mark.parametrize(
    ("dtype", "value", "shown"),
    [
        ("i4", 3, "3"),
        ("i4", -1, "-1"),
        ("i8", 2**32, "4294967296"),
        ("f4", 0.5, "0.5"),
        ("f4", np.nan, "nan"),
        (">i4", 3, "3"),
    ],
)
def test_a_label_that_is_no_class(folder, dtype, value, shown):
    wrong = labels(0).astype(dtype)
    wrong[3, 4] = wrong[9, 9] = value
    data = opened(folder)
    save(first(folder), image(0), wrong)
    with pytest.raises(DataCorrupt) as error:
        data[(0, 0)]
    classes = "0 (background), 1 (tropical cyclone), 2 (atmospheric river)"
    said = f"{first(folder)}: 2 values of climate/labels_0 are none of {classes}, the first is {shown}:"
    assert said in str(error.value)


def test_nans_are_the_losses_business(folder):
    """A look at each of 14 million values would take as long as reading them."""
    values = image(0)
    values[0, 0, 0] = np.nan
    save(first(folder), values, labels(0))
    assert torch.isnan(opened(folder)[(0, 0)][0][0, 0, 0])


def test_stats_that_are_missing(folder):
    (folder / "stats.h5").unlink()
    with pytest.raises(DataMissing) as error:
        opened(folder)
    assert f"{folder / 'stats.h5'} is missing; it lies beside train/" in str(error.value)
    assert f"python -m models data deepcam --data-dir {folder}-synthetic" in str(error.value)


@pytest.mark.parametrize(
    ("channel", "low", "high"),
    [(0, 5.0, -5.0), (3, 1.0, 1.0), (6, np.nan, 1.0), (10, 0.0, np.inf), (15, -np.inf, 0.0), (13, 0.0, np.nan)],
)
def test_stats_that_are_no_range(folder, channel, low, high):
    minval, maxval = np.zeros(16, "f4"), np.ones(16, "f4")
    minval[channel], maxval[channel] = low, high
    save_stats(folder / "stats.h5", minval=minval, maxval=maxval)
    with pytest.raises(DataCorrupt, match=f"channel {CHANNELS[channel]} goes from {low:g} to {high:g}, which"):
        opened(folder)
