"""Where the datasets of an HDF5 file lie, and the file opened for HDF5 itself where only it can read one.

HDF5 has one lock for all threads, and is asked seldom: a file whose size and metadata are those of one before is laid
out as that one was. No file is locked, which many parallel file systems refuse.
"""

from __future__ import annotations

import contextlib
import os
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Tuple, Union

import numpy as np

from models.data.files import show
from models.errors import DataCorrupt, Impossible, JobError

Path = Union[str, bytes]
MOST_LAYOUTS = 4  # a set written by one program has one or two; where each file has its own, looking must stay cheap


class Array(NamedTuple):
    """One dataset. `dtype` is numpy's, with the file's byte order; `offset` is where its bytes lie in the file, None
    where only HDF5 can tell them: chunked, compressed, compact, external."""

    shape: Tuple[int, ...]
    dtype: Any
    offset: Optional[int]

    def __str__(self) -> str:
        return described(self.shape, self.dtype)

    @property
    def bytes(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64)) * int(self.dtype.itemsize)

    def lies_as(self, dtype: Any) -> bool:
        """Whether the file holds the very bytes of an array of that dtype, so that HDF5 need not read them."""
        return self.offset is not None and self.dtype == np.dtype(dtype)


def described(shape: Tuple[int, ...], dtype: Any) -> str:
    return f"{np.dtype(dtype).name} of {'x'.join(map(str, shape)) or 'one value'}"


def versions() -> str:
    """Who says where the bytes lie, e.g. "h5py 3.16.0, HDF5 2.0.0". Raises Impossible without h5py."""
    h5py = _h5py()
    return f"h5py {h5py.version.version}, HDF5 {h5py.version.hdf5_version}"


def fill(descriptor: int, offset: int, view: memoryview) -> int:
    """Read from `offset` on until `view` is full or the file ends; returns how many bytes there were."""
    done = 0
    while done < len(view):  # Linux gives at most 2 GiB at a time, a network file system may give less
        more = os.preadv(descriptor, [view[done:]], offset + done)
        if not more:
            break
        done += more
    return done


# --- what is known of other files ------------------------------------------------------------------------------------


class _Layout(NamedTuple):
    """What HDF5 told of a file of `size` bytes after it had read `pieces` of it, by their offsets.

    HDF5's answer follows from these bytes alone, so it holds for each file that has them.
    """

    names: Tuple[str, ...]
    size: int
    pieces: Tuple[Tuple[int, bytes], ...]
    arrays: Tuple[Array, ...]

    def holds(self, descriptor: int, size: int, names: Tuple[str, ...]) -> bool:
        if (size, names) != (self.size, self.names):
            return False
        return all(os.pread(descriptor, len(piece), at) == piece for at, piece in self.pieces)


_layouts: List[_Layout] = []  # the newest first; each call that changes it is one step for other threads


def find(path: Path, descriptor: int, names: Tuple[str, ...]) -> Tuple[Array, ...]:
    size = os.fstat(descriptor).st_size
    for layout in _layouts[:]:
        if layout.holds(descriptor, size, names):
            return layout.arrays
    layout = _ask(path, descriptor, size, names)
    _layouts.insert(0, layout)
    del _layouts[MOST_LAYOUTS:]
    return layout.arrays


def _ask(path: Path, descriptor: int, size: int, names: Tuple[str, ...]) -> _Layout:
    pieces: Dict[int, bytes] = {}
    with opened_by_hdf5(path, descriptor, pieces) as (h5py, file):
        arrays = tuple(_dataset(path, name, h5py, file) for name in names)
    values = [array.offset for array in arrays if array.offset is not None]
    return _Layout(names, size, tuple(_metadata(pieces, values)), arrays)


def _dataset(path: Path, name: str, h5py: Any, file: Any) -> Array:
    try:
        dataset = h5py.h5d.open(file, name.encode())
    except KeyError as error:
        raise DataCorrupt(
            f"{show(path)} holds no readable dataset {name} ({_why(error)}): replace the file, or give the folder of "
            f"another set"
        ) from None
    found = Array(dataset.shape, dataset.dtype, dataset.get_offset())
    if found.bytes and not dataset.get_storage_size():
        raise DataCorrupt(f"{show(path)}: {name} was made and never written: copy the file again")
    return found


def _metadata(pieces: Dict[int, bytes], values: List[int]) -> List[Tuple[int, bytes]]:
    """What HDF5 read, joined, and without the values that it read beyond a header because it guesses the length of one.

    values: where the values of the datasets begin.
    """
    joined: List[Tuple[int, bytes]] = []
    for at, piece in sorted(pieces.items()):
        piece = piece[: min([len(piece)] + [first - at for first in values if at < first])]
        before, bytes_before = joined[-1] if joined else (0, b"")
        known = before + len(bytes_before) - at
        if joined and known >= 0:
            joined[-1] = (before, bytes_before + piece[known:])
        else:
            joined.append((at, piece))
    return joined


# --- HDF5 ------------------------------------------------------------------------------------------------------------


class _Source:
    """What HDF5 reads a file through: a descriptor of ours, so that it opens and locks nothing itself, and another
    thread may run while it waits for the file system. Keeps what was read in `pieces`, and an error of reading."""

    def __init__(self, descriptor: int, pieces: Optional[Dict[int, bytes]]) -> None:
        self.descriptor, self.pieces = descriptor, pieces
        self.at = 0
        self.error: Optional[OSError] = None

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self.at = offset + (os.fstat(self.descriptor).st_size if whence == os.SEEK_END else 0)
        return self.at

    def tell(self) -> int:
        return self.at

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer)
        try:
            done = fill(self.descriptor, self.at, view)
        except OSError as error:
            self.error = error
            raise
        if done < len(view):
            raise EOFError(f"the file ends at byte {self.at + done:,}")
        if self.pieces is not None:
            self.pieces[self.at] = max(self.pieces.get(self.at, b""), bytes(view), key=len)
        return done


@contextlib.contextmanager
def opened_by_hdf5(path: Path, descriptor: int, pieces: Optional[Dict[int, bytes]] = None) -> Iterator[Tuple[Any, Any]]:
    """(h5py, the opened file). Its errors become ours: h5py raises OSError, KeyError, ValueError, RuntimeError, …"""
    h5py = _h5py()
    source = _Source(descriptor, pieces)
    try:
        access = h5py.h5p.create(h5py.h5p.FILE_ACCESS)
        access.set_fclose_degree(h5py.h5f.CLOSE_STRONG)
        access.set_fileobj_driver(h5py.h5fd.fileobj_driver, source)
        file = h5py.h5f.open(b"an open file", h5py.h5f.ACC_RDONLY, access)
        try:
            yield h5py, file
        finally:
            file.close()
    except MemoryError:
        raise
    except Exception as error:
        if source.error is not None:
            raise source.error from None
        if isinstance(error, JobError):
            raise
        raise DataCorrupt(f"{show(path)} is no readable HDF5 ({_why(error)}): copy it again") from None


def _why(error: Exception) -> str:
    """The cause that h5py gives in brackets behind "Unable to open …"."""
    text = " ".join(str(error.args[0] if error.args else "").split()) or type(error).__name__
    inside = text.partition("(")[2]
    return inside[:-1] if inside.endswith(")") else text


def _h5py() -> Any:
    try:
        import h5py
    except ImportError as error:
        raise Impossible(
            f"HDF5 files are read with h5py, which cannot be imported ({error}): pip install h5py"
        ) from None
    return h5py
