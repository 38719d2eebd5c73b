"""A synthetic DeepCAM set: the same whoever writes it, as large and laid out as the real one, and learnable."""

from __future__ import annotations

import sys
import zlib
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch

from models.data.deepcam import open_folder
from models.data.hdf5 import describe
from models.data.synthetic import write_set
from models.data.synthetic_deepcam import FORMATS, SAMPLES, SHAPES, file_name, recipe
from models.data.weather import CHANNELS, NUMBER, sample
from models.errors import ImpossibleRequest
from tests.data.sets import digests

SMALL, TRUE = SHAPES["smoke"], SHAPES["quick"]
SAMPLES_HERE = 12
NAMES = ("climate/data", "climate/labels_0", "climate/labels_1")


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("sets") / "set"
    write_set(str(folder), recipe("smoke", SAMPLES_HERE, seed=0), processes=1)
    return folder


@pytest.fixture(scope="module")
def true_size(tmp_path_factory) -> Path:
    """One file of true size."""
    folder = tmp_path_factory.mktemp("sets") / "true"
    write_set(str(folder), recipe("quick", 1, seed=0), processes=1)
    return folder


def content(path: Path) -> list[np.ndarray]:
    with h5py.File(path) as file:
        return [file[name][...] for name in NAMES]


def all_images(folder: Path) -> np.ndarray:
    return np.stack([content(path)[0] for path in sorted((folder / "train").iterdir())])


# --- what is written -------------------------------------------------------------------------------------------------


def test_sizes():
    assert SAMPLES == {"smoke": 64, "quick": 12, "subset": 512}
    assert SHAPES == {"smoke": (96, 144), "quick": (768, 1152), "subset": (768, 1152)}
    assert FORMATS == ("hdf5",)
    for size, samples in SAMPLES.items():
        made = recipe(size, None, 7, "hdf5")
        assert (made.samples, made.shape, made.seed, made.format) == (samples, SHAPES[size], 7, "hdf5")


def test_files_are_named_as_the_real_ones_and_sorted_in_their_order():
    assert file_name(0) == "train/data-1996-01-01-00-1.h5"
    names = [file_name(index) for index in range(20_000)]
    assert names == sorted(set(names))
    assert names[8 * 366] == "train/data-1997-01-01-00-1.h5"


@pytest.mark.slow
def test_the_bytes_do_not_depend_on_the_number_of_processes(folder, tmp_path):
    steps: list[tuple[int, int]] = []
    shared = recipe("smoke", SAMPLES_HERE, seed=0)
    object.__setattr__(shared, "files_per_process", 4)
    write_set(str(tmp_path / "set"), shared, processes=3, progress=lambda *step: steps.append(step))
    assert digests(tmp_path / "set") == digests(folder)
    assert sorted(path.name for path in (tmp_path / "set").iterdir()) == ["manifest.json", "stats.h5", "train"]
    assert steps == [(done, SAMPLES_HERE) for done in range(1, SAMPLES_HERE + 1)]


def test_no_two_samples_are_the_same_and_another_seed_gives_others(folder, tmp_path):
    write_set(str(tmp_path / "set"), recipe("smoke", SAMPLES_HERE, seed=1), processes=1)
    train = [set(digests(where / "train").values()) for where in (folder, tmp_path / "set")]
    assert [len(found) for found in train] == [SAMPLES_HERE] * 2
    assert not train[0] & train[1]


@pytest.mark.parametrize("size", ["smoke", pytest.param("quick", marks=pytest.mark.slow)])
@pytest.mark.slow
def test_the_file_holds_the_sample_and_is_as_the_real_one(size, folder, true_size):
    path = {"smoke": folder, "quick": true_size}[size] / file_name(0)
    data, labels, relaxed = content(path)
    height, width = SHAPES[size]
    assert (data.dtype, data.shape) == (np.float32, (height, width, 16))
    assert (labels.dtype, labels.shape, relaxed.dtype, relaxed.shape) == (np.int32, (height, width)) * 2
    for found, made in zip((data, labels, relaxed), sample(0, 0, SHAPES[size]), strict=True):
        assert found.tobytes() == made.tobytes()
    assert all(array.offset is not None for array in describe(str(path), NAMES))
    if size == "quick":
        assert path.stat().st_size == pytest.approx(63.705e6, abs=0.001e6)


@pytest.mark.slow
def test_it_compresses_as_badly_as_measurements_do(true_size):
    data = content(true_size / file_name(0))[0]
    part = data[300:360].tobytes()
    assert 1.0 < len(part) / len(zlib.compress(part, 6)) < 1.12


@pytest.mark.parametrize(("shape", "index"), [(SMALL, 0), (SMALL, 1), pytest.param(TRUE, 2, marks=pytest.mark.slow)])
def test_the_classes_have_their_shares_to_the_pixel(shape, index):
    _, labels, relaxed = sample(3, index, shape)
    pixels = shape[0] * shape[1]
    counts = [round(pixels * 0.000457871), round(pixels * 0.0132743)]
    assert np.bincount(labels.ravel()).tolist() == [pixels - sum(counts), *counts]
    assert np.bincount(relaxed.ravel()).tolist() == [pixels - 2 * sum(counts), *(2 * count for count in counts)]
    assert (relaxed[labels > 0] > 0).mean() > 0.95, "relaxed thresholds find what strict ones do"
    if shape == TRUE:
        assert counts == [405, 11744]
        assert labels.size / labels[labels == 0].size == pytest.approx(1 / 0.986268, rel=1e-5)


@pytest.mark.slow
def test_values_are_those_of_a_climate(folder, true_size):
    for images in (all_images(folder), all_images(true_size)):
        low, high = images.min((0, 1, 2)), images.max((0, 1, 2))
        assert np.isfinite(images).all()
        for number, channel in enumerate(CHANNELS):
            assert channel.low <= low[number] < high[number] <= channel.high, channel.name
            assert (images[..., number] == channel.low).mean() < 0.01, f"{channel.name} is cut off below"
            assert (images[..., number] == channel.high).mean() < 0.001, f"{channel.name} is cut off above"
            spread = images[..., number].std() / (high[number] - low[number])
            assert 0.02 < spread < 0.4, channel.name


@pytest.mark.slow
def test_weather_is_smooth(true_size):
    """The power falls with the frequency as k^-3: little of it is left between neighbours."""
    data = content(true_size / file_name(0))[0]
    for name in ("TMQ", "U850", "PSL", "T200", "T500", "TREFHT", "Z200"):
        plane = data[..., NUMBER[name]]
        plane = plane - plane.mean(1, keepdims=True)
        assert 0 < np.diff(plane, axis=1).std() / plane.std() < 0.25, name


# --- the whole set ---------------------------------------------------------------------------------------------------


def test_stats_are_true_of_the_files(folder):
    images = all_images(folder).astype(np.float64)
    with h5py.File(folder / "stats.h5") as file:
        stats = {name: file["climate"][name][()] for name in file["climate"]}
    assert sorted(stats) == ["count", "maxval", "mean", "minval", "sqmean"]
    assert stats["count"] == SAMPLES_HERE
    assert stats["minval"].tolist() == images.min((0, 1, 2)).tolist()
    assert stats["maxval"].tolist() == images.max((0, 1, 2)).tolist()
    scale = np.sqrt((images**2).mean((0, 1, 2)))

    assert (np.abs(stats["mean"] - images.mean((0, 1, 2))) < 1e-4 * scale).all()
    assert (np.abs(stats["sqmean"] - scale**2) < 1e-4 * scale**2).all()
    assert [stats[name].dtype for name in ("minval", "maxval", "mean", "sqmean")] == [np.float32] * 4
    data = open_folder(str(folder), shape=SMALL)
    assert data.minimum.tolist() == stats["minval"].tolist()
    assert data.maximum.tolist() == stats["maxval"].tolist()


def test_files_are_alike_so_that_hdf5_is_asked_once(folder):
    starts = {path.read_bytes()[:2048] for path in (folder / "train").iterdir()}
    assert len(starts) == 1


@pytest.mark.slow
def test_what_it_takes_on_disk_is_said_beforehand(true_size):
    assert (true_size / file_name(0)).stat().st_size < recipe("quick", None, 0).bytes_per_sample < 63.72e6


@pytest.mark.slow
def test_the_weather_can_be_learned(folder):
    """One convolution finds cyclones and rivers in samples that it has not seen, after 100 steps of Adam."""
    torch.manual_seed(0)
    data = open_folder(str(folder), shape=SMALL)
    x, y = map(torch.stack, zip(*(data[(0, index)] for index in range(len(data))), strict=True))
    x = (x.permute(0, 3, 1, 2) - x.mean((0, 1, 2)).view(-1, 1, 1)) / x.std((0, 1, 2)).view(-1, 1, 1)
    weights = (torch.bincount(y.flatten().long()) / y.numel()) ** -0.125
    net = torch.nn.Conv2d(16, 3, 5, padding=2)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.02)
    losses = []
    for step in range(100):
        index = step % 8
        loss = torch.nn.functional.cross_entropy(net(x[index, None]), y[index, None].long(), weights)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    assert sum(losses[-10:]) < 0.2 * sum(losses[:10])
    with torch.no_grad():
        logits = net(x[8:])
    guess, river = logits.argmax(1) == 2, y[8:] == 2
    assert (guess & river).sum() / (guess | river).sum() > 0.6
    places = (logits[:, 1] - logits[:, 0]).flatten(1).argmax(1)
    assert [label.flatten()[place].item() for label, place in zip(y[8:], places, strict=True)] == [1] * 4


def test_without_h5py_it_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(ImpossibleRequest, match=r"DeepCAM's files are HDF5, and h5py cannot be imported.*pip install"):
        write_set(str(tmp_path / "set"), recipe("smoke", 1, 0), processes=1)
    assert list(tmp_path.iterdir()) == []
