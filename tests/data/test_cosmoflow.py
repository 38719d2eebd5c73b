"""A CosmoFlow folder in either format gives the same samples, and says in a sentence what is wrong with another."""

from __future__ import annotations

import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch

from models.data import tfrecord
from models.data.cosmoflow import CosmoFlowData, open_folder
from models.errors import DataCorrupt, DataMissing

SHAPE = (6, 5, 4)
SAMPLES = 7
SLOW = tfrecord.TfRecordReader("zlib", "numpy", ("slow path: …",))


def counts(index: int, shape: tuple[int, ...] = (*SHAPE, 4)) -> np.ndarray:
    return np.random.default_rng(index).integers(0, 2000, shape).astype(np.int16)


def parameters(index: int) -> np.ndarray:
    return np.random.default_rng(index).uniform(-1, 1, 4).astype(np.float32)


def save(path: Path, index: int = 0, gzip: bool = True, **arrays: np.ndarray) -> Path:
    """A file as the reference's prepare.py writes it: in the format that its name says."""
    arrays = {"x": counts(index), "y": parameters(index)} | arrays
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix.lower() == ".tfrecord":
        tfrecord.write(str(path), arrays["x"].tobytes(), arrays["y"].tolist(), gzip=gzip)
        return path
    with h5py.File(path, "w") as file:
        for name, array in arrays.items():
            file.create_dataset(name, data=array, compression="gzip" if gzip and name == "x" else None)
    return path


def name(index: int, suffix: str) -> str:
    """As the files of the real set are called."""
    return f"train/{21688988 + index // 3}_univ_ics_2019-03_a1017748{index // 3}_{index % 3:03d}.{suffix}"


KINDS = ["tfrecord-gzip", "tfrecord-plain", "hdf5-plain", "hdf5-gzip", "h5-plain"]


def folder_of(kind: str, folder: Path) -> Path:
    suffix, compression = kind.split("-")
    for index in range(SAMPLES):
        save(folder / name(index, suffix), index, compression == "gzip")
    return folder


@pytest.fixture(scope="module", params=KINDS)
def folder(request, tmp_path_factory) -> Path:
    return folder_of(request.param, tmp_path_factory.mktemp("sets") / request.param)


@pytest.fixture(params=["tfrecord", "hdf5"])
def suffix(request) -> str:
    return request.param


def opened(folder: Path, shape: tuple[int, ...] = SHAPE, **options) -> CosmoFlowData:
    return open_folder(str(folder), shape=shape, **options)


def refused(folder: Path, error: type[Exception] = DataMissing, shape: tuple[int, ...] = SHAPE) -> str:
    with pytest.raises(error) as said:
        opened(folder, shape)
    return str(said.value)


# --- what is read ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reader", [None, SLOW], ids=["fast", "slow"])
def test_samples_are_what_was_written(folder, reader):
    data = opened(folder, reader=reader)
    assert len(data) == SAMPLES
    for index in range(SAMPLES):
        x, y = data[(3, index)]
        assert (x.dtype, y.dtype) == (torch.int16, torch.float32)
        assert np.array_equal(x.numpy(), counts(index))
        assert np.array_equal(y.numpy(), parameters(index))
        assert data.path(index).endswith(name(index, folder.name.split("-")[0]))


def test_a_sample_goes_into_its_place_of_a_batch_and_nowhere_else(folder):
    data = opened(folder)
    (x_shape, x_dtype), (y_shape, y_dtype) = data.blank
    x, y = torch.full((3, *x_shape), -1, dtype=x_dtype), torch.full((3, *y_shape), -9, dtype=y_dtype)
    data.fill(4, x[1], y[1])
    assert np.array_equal(x[1].numpy(), counts(4))
    assert np.array_equal(y[1].numpy(), parameters(4))
    assert (x[::2] == -1).all()
    assert (y[::2] == -9).all()
    with pytest.raises(ValueError, match="contiguous"):
        data.fill(0, torch.zeros((4, *SHAPE), dtype=torch.int16).permute(1, 2, 3, 0), y[0])


def test_what_a_set_says_of_itself(folder):
    data = opened(folder)
    suffix, compression = folder.name.split("-")
    assert (data.kind, data.bytes, data.transforms) == ("real", None, None)
    assert data.format == ("tfrecord" if suffix == "tfrecord" else "hdf5")
    assert data.decoder.startswith("deflate 0." if suffix == "tfrecord" else "h5py 3.")
    assert data.blank == (((*SHAPE, 4), torch.int16), ((4,), torch.float32))
    slow = suffix != "tfrecord" and compression == "gzip"
    assert len(data.warnings) == slow
    assert all("one thread at a time" in text and data.path(0) in text for text in data.warnings)
    assert opened(folder, reader=SLOW).warnings == (SLOW.warnings if suffix == "tfrecord" else data.warnings)


@pytest.mark.slow
def test_many_threads_read_at_once(folder):
    data = opened(folder)

    def same(index: int) -> bool:
        x, y = data[(0, index)]
        return np.array_equal(x.numpy(), counts(index)) and np.array_equal(y.numpy(), parameters(index))

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(same, [index % SAMPLES for index in range(200)]))


def test_files_are_sorted_and_others_passed_over(tmp_path, suffix):
    for index, letter in enumerate("bca"):
        save(tmp_path / f"train/{letter}.{suffix.upper()}", index)
    for other in ("train/text.txt", f"train/.{suffix}", f"validation/a.{suffix}", "train/x.tfrecord.part"):
        save(tmp_path / other)
    (tmp_path / f"train/folder.{suffix}").mkdir()
    data = opened(tmp_path)
    assert [Path(data.path(index)).name for index in range(len(data))] == [f"{c}.{suffix.upper()}" for c in "abc"]
    assert np.array_equal(data[(0, 0)][0].numpy(), counts(2))


def test_numbers_of_other_kinds_in_hdf5_that_mean_the_same(tmp_path):
    for index, (x, y) in enumerate([("<i2", "<f8"), (">i2", ">f4"), ("<i2", ">f8"), ("u1", "<f2")]):
        arrays = {"x": (counts(0) % 200).astype(x), "y": np.array([0, 1, -1, 0.5], y)}
        save(tmp_path / f"{index}/train/a.hdf5", gzip=False, **arrays)
        data = opened(tmp_path / str(index))
        read, numbers = data[(0, 0)]
        assert np.array_equal(read.numpy(), counts(0) % 200)
        assert numbers.tolist() == [0, 1, -1, 0.5]
        assert len(data.warnings) == (x != "<i2")


# --- what is refused -------------------------------------------------------------------------------------------------


def test_two_formats_in_one_folder_and_how_to_choose(tmp_path):
    folder = tmp_path / "my set"
    for index in range(3):
        save(folder / f"train/{index}.tfrecord", index)
        save(folder / f"train/{index}.hdf5", 9 + index)
    save(folder / "train/0.h5")
    text = refused(folder)
    assert text.startswith(f"{folder}/train holds 3 *.tfrecord and 4 *.hdf5 or *.h5, and a set has one format: ")
    subprocess.run(["bash", "-c", "mkdir" + text.partition(": mkdir")[2]], check=True)
    data = opened(tmp_path / "my set-tfrecord")
    assert (data.format, len(data)) == ("tfrecord", 3)
    assert np.array_equal(data[(0, 2)][0].numpy(), counts(2))


def test_samples_of_another_shape(tmp_path, suffix):
    save(tmp_path / f"train/a.{suffix}", x=np.zeros((32, 32, 32, 4), np.int16))
    make = f"or make a synthetic set elsewhere: python -m models data cosmoflow --data-dir {tmp_path}-synthetic --size"
    assert refused(tmp_path, shape=(128, 128, 128)) == (
        f"{tmp_path}/train/a.{suffix} holds a sample of 32x32x32 and 128x128x128 is asked for: train on them with "
        f"--size smoke, {make} quick"
    )
    assert "holds a sample of 32x32x32 and 6x5x4 is asked for: train" in refused(tmp_path)
    assert opened(tmp_path, (32, 32, 32))[(0, 0)][0].shape == (32, 32, 32, 4)
    save(tmp_path / f"train/a.{suffix}")
    found = "960 bytes" if suffix == "tfrecord" else "6x5x4"
    assert refused(tmp_path, shape=(32, 32, 32)) == (
        f"{tmp_path}/train/a.{suffix} holds a sample of {found} and 32x32x32 is asked for: {make} smoke"
    )


@pytest.mark.parametrize("dtype", ["<f4", "<f8", "<i4", "<u2"])
def test_counts_that_somebody_converted(tmp_path, dtype):
    save(tmp_path / "train/a.hdf5", x=counts(0, (4, *SHAPE)).astype(dtype))
    text = refused(tmp_path)
    assert text.startswith(
        f"{tmp_path}/train/a.hdf5: x is {np.dtype(dtype).name} of 4x6x5x4, and expected is int16 of 6x5x4x4, "
        "counts that are not normalised, as the reference's prepare.py writes them: give --data-dir"
    )


def test_channels_first_is_another_shape(tmp_path):
    save(tmp_path / "train/a.hdf5", x=counts(0, (4, *SHAPE)))
    assert "a.hdf5 holds a sample of 4x6x5 and 6x5x4 is asked for" in refused(tmp_path)


@pytest.mark.parametrize("y", [[0, 1, np.nan, 0], [np.inf, 0, 0, 0], [0, 0, 0], [0] * 5])
def test_parameters_that_are_none(tmp_path, suffix, y):
    for index in range(2):
        save(tmp_path / f"train/{index}.{suffix}", index, gzip=False)
    save(tmp_path / f"train/1.{suffix}", 1, gzip=False, y=np.array(y, np.float32))
    data = opened(tmp_path)
    data[(0, 0)]
    with pytest.raises(DataCorrupt, match=rf"{tmp_path}/train/1.{suffix}.*y") as said:
        data[(0, 1)]
    assert ("not finite" in str(said.value)) == (len(y) == 4)
    assert said.value.exit_code == 65


def test_parameters_must_be_floats(tmp_path):
    save(tmp_path / "train/a.hdf5", y=np.array([1, 2, 3, 4]))
    with pytest.raises(DataCorrupt, match="y is int64 of 4, and float32 of 4 is expected"):
        opened(tmp_path)[(0, 0)]


def test_a_later_file_that_is_not_as_the_first(tmp_path, suffix):
    for index in range(5):
        save(tmp_path / f"train/{index}.{suffix}", index, gzip=False)
    data = opened(tmp_path)
    save(Path(data.path(2)), x=counts(2, (6, 5, 5, 4)))
    Path(data.path(3)).write_bytes(Path(data.path(3)).read_bytes()[:-100])
    Path(data.path(4)).write_bytes(b"")
    assert np.array_equal(data[(0, 0)][0].numpy(), counts(0))
    for index in (2, 3, 4):
        with pytest.raises(DataCorrupt, match=rf"{tmp_path}/train/{index}.{suffix}"):
            data[(0, index)]


def test_a_first_file_that_cannot_be_read(tmp_path, suffix):
    save(tmp_path / f"train/a.{suffix}").write_bytes(b"text")
    assert refused(tmp_path, DataCorrupt).startswith(f"{tmp_path}/train/a.{suffix}")
    (tmp_path / f"train/a.{suffix}").unlink()
    (tmp_path / f"train/a.{suffix}").symlink_to("nowhere")
    assert refused(tmp_path).startswith(f"{tmp_path}/train/a.{suffix} was there when the set was opened and now cannot")
