"""A synthetic CosmoFlow set: the same everywhere, as large and as costly to read as the real one, and learnable."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

import numpy as np
import pytest

from models.data.cosmoflow import open_folder
from models.data.synthetic import write_set
from models.data.synthetic_cosmoflow import FORMATS, GROWTH, SAMPLES, SHAPES, recipe, sample
from models.errors import ImpossibleRequest
from tests.data.sets import digests

CUBE, SMALL = SHAPES["quick"], SHAPES["smoke"]
REAL_BYTES = 2_828_486  # mean of the real set, by MLPerf Storage's configuration


@pytest.fixture(scope="module", params=FORMATS)
def folder(request, tmp_path_factory) -> Path:
    """A small set that two processes wrote."""
    folder = tmp_path_factory.mktemp("sets") / request.param
    both = dataclasses.replace(recipe("smoke", 6, 3, request.param), files_per_process=3)
    write_set(str(folder), both, processes=2)
    return folder


@pytest.fixture(scope="module")
def smoke() -> tuple[np.ndarray, np.ndarray]:
    """The samples of the smoke set, and their targets."""
    x, y = zip(*(sample(0, index, SMALL) for index in range(SAMPLES["smoke"])), strict=True)
    return np.stack(x), np.stack(y)


# --- what is written -------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_bytes_do_not_depend_on_the_number_of_processes(folder, tmp_path):
    write_set(str(tmp_path / "set"), recipe("smoke", 6, 3, folder.name), processes=1)
    assert digests(tmp_path / "set") == digests(folder)
    assert len(set(digests(folder).values())) == 7, "no two are the same"


def test_we_read_it(folder):
    data = open_folder(str(folder), shape=SMALL)
    assert (data.kind, data.format, len(data), data.warnings) == ("synthetic", folder.name, 6, ())
    for index in range(6):
        for ours, written in zip(data[(0, index)], sample(3, index, SMALL), strict=True):
            assert np.array_equal(ours.numpy(), written)


def test_recipes():
    assert SAMPLES == {"smoke": 64, "quick": 32, "subset": 2048}
    assert recipe("quick", None, 0).shape == recipe("subset", None, 0).shape == (128, 128, 128)
    names = [recipe("subset", None, 0).name(index) for index in range(200)]
    assert names[63] == "train/univ_ics_synthetic_a00000000_063.tfrecord"
    assert names[64] == "train/univ_ics_synthetic_a00000001_000.tfrecord"
    assert names == sorted(set(names)), "sorted by name they are in order"
    made = recipe("subset", 5, 2, "hdf5")
    assert (made.samples, made.seed, made.format, made.version) == (5, 2, "hdf5", 1)


def test_the_check_of_the_disk_counts_enough(folder, tmp_path):
    sizes = [path.stat().st_size for path in (folder / "train").iterdir()]
    promised = recipe("smoke", 6, 3, folder.name).bytes_per_sample
    assert max(sizes) <= promised < 1.2 * np.mean(sizes)


def test_without_h5py_there_is_no_hdf5(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(ImpossibleRequest, match=r"h5py, which cannot be imported .*, or give --format tfrecord"):
        write_set(str(tmp_path / "set"), recipe("smoke", 1, 0, "hdf5"), processes=1)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("file_format", FORMATS)
def test_a_disk_that_fills_up_leaves_nothing(tmp_path, small_files, file_format):
    with pytest.raises(ImpossibleRequest, match=r"nothing was left there \(File too large\)"):
        write_set(str(tmp_path / "set"), recipe("smoke", 2, 0, file_format), processes=1)
    assert list(tmp_path.iterdir()) == []


# --- what is in it ---------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_sample_of_true_size_is_as_large_as_the_real_ones(tmp_path):
    made = recipe("quick", 2, 0)
    (tmp_path / "train").mkdir()
    sizes = [made.write(str(tmp_path), index) for index in range(2)]
    assert np.mean(sizes) == pytest.approx(REAL_BYTES, rel=0.03)
    data = open_folder(str(tmp_path), shape=CUBE)
    x, y = data[(0, 1)]
    assert x.shape == (*CUBE, 4)
    assert data.kind == "real", "there is no manifest"
    counts = x.numpy().reshape(-1, 4)
    assert counts.min() == 0
    assert 200 < counts.max() < 20_000
    assert (counts == 0).mean() == pytest.approx(0.6, abs=0.05)
    assert counts.mean(0) == pytest.approx(np.ones(4), rel=0.1)
    assert ((y >= 0.2) & (y <= 1)).all()


def test_samples_differ_and_depend_on_seed_and_index_only():
    x, y = sample(7, 5, SMALL)
    sample(8, 0, (16, 16, 16))
    again = sample(7, 5, SMALL)
    assert np.array_equal(again[0], x)
    assert np.array_equal(again[1], y)
    assert (x.dtype, y.dtype, x.shape, y.shape) == (np.int16, np.float32, (*SMALL, 4), (4,))
    for other in (sample(7, 4, SMALL), sample(6, 5, SMALL)):
        assert (other[0] != x).mean() > 0.3
        assert not np.array_equal(other[1], y)


@pytest.mark.slow
def test_contrast_grows_with_time_on_large_scales(smoke):
    """As gravity has it: the variance falls from redshift to redshift, and far cells still know of each other."""
    x = np.log1p(smoke[0].astype(np.float32))
    spread = smoke[0].std((1, 2, 3)).mean(0)
    assert list(spread) == sorted(spread, reverse=True)
    assert len(spread) == len(GROWTH)
    centred = x[..., 0] - x[..., 0].mean((1, 2, 3), keepdims=True)
    near, far = ((centred * np.roll(centred, by, 1)).mean() / (centred**2).mean() for by in (1, 4))
    assert near > 0.15
    assert 0.02 < far < near


def summaries(x: np.ndarray) -> np.ndarray:
    """What a net can easily find: mean, spread and roughness of each channel."""
    logs = np.log1p(x.astype(np.float32))
    centred = logs - logs.mean((1, 2, 3), keepdims=True)
    near = (centred * np.roll(centred, 1, 1)).mean((1, 2, 3)) / (centred**2).mean((1, 2, 3))
    return np.hstack([x.mean((1, 2, 3)), logs.mean((1, 2, 3)), logs.std((1, 2, 3)), near, np.ones((len(x), 1))])


@pytest.mark.slow
def test_each_target_shows(smoke):
    """A line fitted to half of the samples tells the targets of the others."""
    x, y = summaries(smoke[0]), smoke[1]
    more = [sample(1, index, SMALL) for index in range(64)]
    fitted = np.linalg.lstsq(x, y, rcond=None)[0]
    others = np.stack([targets for _, targets in more])
    errors = summaries(np.stack([counts for counts, _ in more])) @ fitted - others
    explained = 1 - (errors**2).mean(0) / others.var(0)
    assert (explained > 0.3).all(), explained
