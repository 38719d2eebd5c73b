"""Datasets of HDF5 files reach a tensor bit by bit, whatever way they are stored, and a bad file is said in words."""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
import threading
import time
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch

from models.data import hdf5
from models.data.hdf5 import describe, read
from models.errors import DataCorrupt, DataMissing
from tests.data.sets import open_below

ROOT = Path(__file__).resolve().parents[2]
SHAPE = (24, 36, 5)
NAME = "climate/data"


def values(seed: int = 0, dtype: str = "<f4", shape: tuple[int, ...] = SHAPE) -> np.ndarray:
    """Random bytes, NaNs and all, so that a value that was converted would show."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    return np.frombuffer(np.random.default_rng(seed).bytes(size), dtype).reshape(shape)


def save(path: Path, array: np.ndarray, **options: object) -> Path:
    with h5py.File(path, "w") as file:
        file.create_dataset(NAME, data=array, **options)
    return path


def load(path: str | bytes, names: tuple[str, ...]) -> dict[str, np.ndarray]:
    """Datasets as new arrays, of whatever shape and dtype they have."""
    arrays: dict[str, np.ndarray] = {}

    def place(name: str):
        return lambda found: arrays.setdefault(name, np.empty(found.shape, found.dtype))

    read(path, {name: place(name) for name in names})
    return arrays


def where(offset: int) -> bytes:
    """How the header of a contiguous dataset says where its values lie: layout version 3, class 1, address."""
    return b"\3\1" + offset.to_bytes(8, "little")


@pytest.fixture(autouse=True)
def no_layouts():
    """What one test's files taught is not known to the next."""
    hdf5._layouts.clear()


# --- what is read ----------------------------------------------------------------------------------------------------

STORED = {
    "contiguous": {},
    "chunked": {"chunks": (5, 7, 5)},
    "gzip": {"chunks": (24, 36, 1), "compression": "gzip", "shuffle": True},
    "lzf": {"compression": "lzf"},
    "checksums": {"fletcher32": True},
    "times": {"track_times": True},
}


@pytest.mark.parametrize("dtype", ["<f4", "<i2", "<i8", "u1", ">f4", ">i2"])
@pytest.mark.parametrize("stored", STORED)
def test_every_bit_arrives_however_it_is_stored(tmp_path, stored, dtype):
    array = values(dtype=dtype)
    path = save(tmp_path / "a.h5", array, **STORED[stored])
    tensor = torch.zeros(SHAPE, dtype=getattr(torch, np.dtype(dtype).name))
    read(str(path), {NAME: tensor})
    with h5py.File(path) as file:
        assert tensor.numpy().tobytes() == file[NAME][...].astype(np.dtype(dtype).newbyteorder("=")).tobytes()
    assert tensor.numpy().byteswap().tobytes() == array.tobytes() or dtype[0] != ">"
    (found,) = describe(str(path), (NAME,))
    assert (found.shape, found.dtype) == (SHAPE, np.dtype(dtype))
    assert (found.offset is not None) == (stored in ("contiguous", "times"))


@pytest.mark.parametrize("options", [{"libver": "earliest"}, {"libver": "latest"}, {"userblock_size": 1024}])
def test_every_generation_of_the_format(tmp_path, options):
    array = values()
    with h5py.File(tmp_path / "a.h5", "w", **options) as file:
        file[NAME], file["climate/labels_0"] = array, array[..., 0]
        file["climate"].attrs["units"] = "K"
    data, labels = np.zeros(SHAPE, "f4"), np.zeros(SHAPE[:2], "f4")
    read(str(tmp_path / "a.h5"), {NAME: data, "climate/labels_0": labels})
    assert (data.tobytes(), labels.tobytes()) == (array.tobytes(), array[..., 0].tobytes())
    (found,) = describe(str(tmp_path / "a.h5"), (NAME,))
    assert (tmp_path / "a.h5").read_bytes()[found.offset :][: array.nbytes] == array.tobytes()


def test_slices_of_a_batch_are_filled_and_nothing_beside_them(tmp_path):
    path = save(tmp_path / "a.h5", values(dtype="<i2"))
    batch = torch.full((3, *SHAPE), 7, dtype=torch.int16)
    read(os.fsencode(path), {NAME: batch[1]})
    assert torch.equal(batch[1], torch.from_numpy(values(dtype="<i2").copy()))
    assert (batch[0] == 7).all()
    assert (batch[2] == 7).all()
    with pytest.raises(ValueError, match="contiguous"):
        read(str(path), {NAME: torch.zeros(5, 36, 24, dtype=torch.int16).permute(2, 1, 0)})


def test_one_value_and_small_datasets(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["count"], file["y"] = 12, np.arange(4.0)
    found = load(str(tmp_path / "a.h5"), ("count", "y"))
    assert (int(found["count"]), found["y"].tolist()) == (12, [0, 1, 2, 3])


@pytest.mark.parametrize(
    ("stored", "wanted"), [("<f8", "f4"), (">f8", "f4"), ("<f4", "f8"), ("i1", "i4"), ("u1", "i2")]
)
def test_what_can_be_converted_without_harm_is(tmp_path, stored, wanted):
    array = np.arange(-3, 5).astype(stored)
    read(str(save(tmp_path / "a.h5", array)), {NAME: (buffer := np.zeros(8, wanted))})
    assert buffer.tolist() == array.tolist()


# --- what another file taught is never taken for this one ------------------------------------------------------------


def test_files_of_one_layout_are_looked_at_once_and_each_gives_its_own_values(tmp_path):
    paths = [save(tmp_path / f"{number}.h5", values(number)) for number in range(5)]
    for number, path in enumerate(paths):
        read(str(path), {NAME: (buffer := np.zeros(SHAPE, "f4"))})
        assert buffer.tobytes() == values(number).tobytes()
    assert len(hdf5._layouts) == 1


def test_a_file_that_changes_is_seen_to_have_changed(tmp_path):
    """The same size all the time; what the last look said would be wrong each time."""
    path = tmp_path / "a.h5"
    wide, high = (12, 24), (24, 12)
    for shape, dtype in [(wide, "<f4"), (high, "<f4"), (wide, ">f4"), (wide, "<i4"), (wide, "<f4")]:
        save(path, values(1, dtype, shape))
        found = load(str(path), (NAME,))[NAME]
        assert (found.dtype, found.tobytes()) == (np.dtype(dtype), values(1, dtype, shape).tobytes())
        assert found.shape == shape
    with path.open("r+b") as file:  # as a disk would do it: one byte of the metadata
        (array,) = describe(str(path), (NAME,))
        file.seek(path.read_bytes().index(where(array.offset)))
        file.write(where(array.offset - 8))
    assert describe(str(path), (NAME,))[0].offset == array.offset - 8


def test_only_the_newest_layouts_are_kept(tmp_path):
    for number in range(hdf5.MOST_LAYOUTS + 3):
        path = save(tmp_path / f"{number}.h5", values(shape=(number + 1, 8)))
        assert load(str(path), (NAME,))[NAME].shape == (number + 1, 8)
    assert [layout.arrays[0].shape[0] for layout in hdf5._layouts] == [7, 6, 5, 4]


# --- threads and other processes -------------------------------------------------------------------------------------


def test_the_interpreter_goes_on_while_a_file_system_is_slow(tmp_path):
    """A pipe in place of a file system that does not answer: the read stands still, this thread does not."""
    os.mkfifo(tmp_path / "a.h5")
    failed = []

    def work() -> None:
        try:
            describe(str(tmp_path / "a.h5"), (NAME,))
        except (DataCorrupt, DataMissing) as error:
            failed.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    time.sleep(0.05)
    assert thread.is_alive()
    with (tmp_path / "a.h5").open("wb"):
        thread.join(120)
    assert not thread.is_alive()
    assert len(failed) == 1


@pytest.mark.slow
def test_a_file_that_another_process_has_locked_is_read(tmp_path):
    path = save(tmp_path / "a.h5", values())
    hold = "import h5py, sys; file = h5py.File(sys.argv[1], 'r+'); print('held', flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", hold, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout.readline() == "held\n"
        assert load(str(path), (NAME,))[NAME].tobytes() == values().tobytes()
        process.stdin.close()


def test_no_file_stays_open(tmp_path):
    for name, options in STORED.items():
        load(str(save(tmp_path / f"{name}.h5", values(), **options)), (NAME,))
    (tmp_path / "bad.h5").write_bytes(b"text")
    with pytest.raises(DataCorrupt):
        load(str(tmp_path / "bad.h5"), (NAME,))
    assert open_below(tmp_path) == []


# --- what can be wrong -----------------------------------------------------------------------------------------------


def refused(path: Path, buffer: object = None) -> str:
    with pytest.raises(DataCorrupt) as error:
        read(str(path), {NAME: np.zeros(SHAPE, "f4") if buffer is None else buffer})
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize("warm", [False, True])
@pytest.mark.parametrize("keep", [0, 4, 100, 700, 2100, -1])
@pytest.mark.parametrize("stored", ["contiguous", "gzip"])
def test_a_file_that_is_cut_off(tmp_path, stored, keep, warm):
    path = save(tmp_path / "a.h5", values(), **STORED[stored])
    if warm:
        load(str(path), (NAME,))
    os.truncate(path, keep % path.stat().st_size)
    assert re.search(r"is no readable HDF5 \(.*(signature|truncated|ends|empty)", refused(path)), refused(path)


def test_a_file_that_is_cut_off_while_it_is_read(tmp_path):
    path = save(tmp_path / "a.h5", values())
    (array,) = describe(str(path), (NAME,))

    def cut(_: hdf5.StoredArray) -> np.ndarray:
        os.truncate(path, array.offset + 100)
        return np.zeros(SHAPE, "f4")

    end = array.offset + values().nbytes
    text = f"{NAME} lies at bytes {array.offset:,} to {end:,} and the file ends at {array.offset + 100:,}"
    assert f"is cut off: {text}" in refused(path, cut)


def test_a_header_that_points_beyond_the_end(tmp_path):
    path = save(tmp_path / "a.h5", values())
    (array,) = describe(str(path), (NAME,))
    path.write_bytes(path.read_bytes().replace(where(array.offset), where(array.offset + 96)))
    assert re.search(f"is cut off: {NAME} lies|holds no readable dataset {NAME} .*invalid", refused(path))


@pytest.mark.parametrize(
    "content", [b"", b"text", b"\x89HDF\r\n\x1a\n", b"\x89HDF\r\n\x1a\n" + b"\xff" * 4000, b"\0" * 9000]
)
def test_a_file_that_is_no_hdf5(tmp_path, content):
    (tmp_path / "a.h5").write_bytes(content)
    assert "is no readable HDF5 (" in refused(tmp_path / "a.h5")


def test_damaged_metadata_and_damaged_chunks(tmp_path):
    """Any byte may be wrong: values come out, or our own error."""
    said = []
    for stored in ("contiguous", "gzip"):
        path = save(tmp_path / "a.h5", values(), **STORED[stored])
        good = path.read_bytes()
        for seed in range(60):
            at = random.Random(seed).randrange(min(len(good), 2000))
            path.write_bytes(good[:at] + bytes([good[at] ^ 0xFF]) + good[at + 1 :])
            try:
                read(str(path), {NAME: np.zeros(SHAPE, "f4")})
            except DataCorrupt as error:
                said.append(str(error))
    assert len(said) > 20
    assert all(str(path) in text for text in said)


def test_a_dataset_that_is_missing_is_a_group_or_was_never_written(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["climate/other"] = 1
    assert f"holds no readable dataset {NAME} (" in refused(tmp_path / "a.h5")
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_group(NAME)
    assert f"holds no readable dataset {NAME} (" in refused(tmp_path / "a.h5")
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset(NAME, SHAPE, "f4")
    assert f"{NAME} was made and never written" in refused(tmp_path / "a.h5")


@pytest.mark.parametrize(
    ("array", "found"),
    [
        (np.zeros((24, 36, 4), "f4"), "float32 of 24x36x4"),
        (np.zeros(SHAPE, "i4"), "int32 of 24x36x5"),
        (np.zeros(SHAPE, [("a", "f4")]), "void32 of 24x36x5"),
        (np.float32(1), "float32 of one value"),
    ],
)
def test_another_shape_or_dtype(tmp_path, array, found):
    text = refused(save(tmp_path / "a.h5", array))
    assert f"{NAME} is {found}, and float32 of 24x36x5 is expected" in text


def test_integers_are_never_clipped_or_wrapped(tmp_path):
    path = save(tmp_path / "a.h5", np.full(SHAPE, 300, "i8"))
    assert "int64 of 24x36x5, and uint8" in refused(path, np.zeros(SHAPE, "u1"))


def test_a_file_that_is_gone_or_may_not_be_read(tmp_path):
    path = save(tmp_path / "a.h5", values())
    load(str(path), (NAME,))
    path.unlink()
    with pytest.raises(DataMissing, match=r"a\.h5 .*No such file"):
        load(str(path), (NAME,))
    path.mkdir()
    with pytest.raises(DataMissing, match=r"a\.h5 .*[Ii]s a directory"):
        load(str(path), (NAME,))


UNREADABLE = """
import sys
from models.data.hdf5 import describe
from models.errors import DataMissing
try:
    describe(sys.argv[1], ("climate/data",))
except DataMissing:
    print("missing")
"""


@pytest.mark.slow
def test_a_process_that_could_not_read_a_file_ends_as_it_wants_to(tmp_path):
    """HDF5 crashed at the end of the process."""
    command = [sys.executable, "-c", UNREADABLE, str(tmp_path)]  # a folder can be opened, and not read
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert (done.returncode, done.stdout, done.stderr) == (0, "missing\n", "")
