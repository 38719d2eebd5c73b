"""Datasets of HDF5 files, read straight into a tensor's memory by any number of threads.

HDF5 has one lock for all threads, so it is asked seldom: it says once where a dataset lies, and the bytes are then read
without it. A file whose size and metadata equal those of an earlier file is laid out as that one, so HDF5 is not asked
again. No file stays open, and none is locked, because many parallel file systems refuse locks.
"""

from __future__ import annotations

import contextlib
import os
from typing import Any, Callable, Dict, Iterator, List, Mapping, NamedTuple, Optional, Tuple, Union

import numpy as np

from models.data.file_list import printable, unreadable
from models.errors import CommandError, DataCorrupt, ImpossibleRequest

Path = Union[str, bytes]
Buffer = Any  # a numpy array or a CPU tensor: contiguous, of the dataset's shape

SLOW = "read through HDF5, one thread at a time, as it is chunked, compressed or of another number format"
MOST_LAYOUTS = 4  # a set written by one program has one or two; where each file has its own, the search must stay cheap


class StoredArray(NamedTuple):
    """One dataset of a file.

    `dtype` is numpy's, with the file's byte order. `offset` is where its bytes begin in the file; None if only HDF5 can
    read them, because they are chunked, compressed, compact or external.
    """

    shape: Tuple[int, ...]
    dtype: Any
    offset: Optional[int]

    def __str__(self) -> str:
        return described(self.shape, self.dtype)

    @property
    def bytes(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64)) * int(self.dtype.itemsize)

    def lies_as(self, dtype: Any) -> bool:
        """Tell whether the file holds the very bytes of an array of that dtype, so that HDF5 need not read them."""
        return self.offset is not None and self.dtype == np.dtype(dtype)


def described(shape: Tuple[int, ...], dtype: Any) -> str:
    return f"{np.dtype(dtype).name} of {'x'.join(map(str, shape)) or 'one value'}"


def versions() -> str:
    """Return the versions of the libraries, e.g. "h5py 3.16.0, HDF5 2.0.0". Raises ImpossibleRequest without h5py."""
    h5py = _h5py()
    return f"h5py {h5py.version.version}, HDF5 {h5py.version.hdf5_version}"


# --- reading ----------------------------------------------------------------------------------------------------------


def describe(path: Path, names: Tuple[str, ...]) -> Tuple[StoredArray, ...]:
    """Return what the file says of these datasets. Raises as read."""
    with _opened(path) as descriptor:
        return _find(path, descriptor, names)


def read(path: Path, into: Mapping[str, Union[Buffer, Callable[[StoredArray], Buffer]]]) -> None:
    """Fill each buffer with the dataset of that name; a function is given the dataset and returns the buffer.

    Where dataset and buffer have the same dtype and the dataset lies in one piece, the bytes go from the file into the
    buffer with no lock held. All else goes through HDF5, one thread at a time; it may change byte order, widen, and
    turn one floating dtype into another. Raises DataMissing for a file that cannot be opened or read, DataCorrupt for
    one that is no HDF5, is cut off, lacks a dataset or has another shape or dtype, ImpossibleRequest without h5py.
    """
    with _opened(path) as descriptor:
        through_hdf5 = {}
        for name, stored in zip(into, _find(path, descriptor, tuple(into))):
            buffer = _as_array(into[name], stored)
            _check(path, name, stored, buffer)
            if stored.lies_as(buffer.dtype):
                _read_values(path, name, descriptor, stored, buffer)
            else:
                through_hdf5[name] = buffer
        if through_hdf5:
            with _opened_by_hdf5(path, descriptor) as (h5py, file):
                for name, buffer in through_hdf5.items():
                    h5py.Dataset(h5py.h5d.open(file, name.encode())).read_direct(buffer)


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[int]:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            yield descriptor
        finally:
            os.close(descriptor)
    except OSError as error:
        raise unreadable(os.fsencode(path), error) from None


def _as_array(buffer: Any, stored: StoredArray) -> Any:
    """Return the buffer as a numpy array on the same memory."""
    if callable(buffer):
        buffer = buffer(stored)
    array = buffer if isinstance(buffer, np.ndarray) else buffer.numpy()
    if not array.flags.c_contiguous:
        raise ValueError("a buffer to read into must be contiguous: a copy of it would be filled")
    return array


def _check(path: Path, name: str, stored: StoredArray, buffer: Any) -> None:
    are_floating = stored.dtype.kind == buffer.dtype.kind == "f"
    if stored.shape != buffer.shape or not (are_floating or np.can_cast(stored.dtype, buffer.dtype)):
        raise DataCorrupt(
            f"{printable(path)}: {name} is {stored}, and {described(buffer.shape, buffer.dtype)} is expected: replace "
            "the file, or give the folder of another set"
        )


def _read_values(path: Path, name: str, descriptor: int, stored: StoredArray, buffer: Any) -> None:
    first = stored.offset or 0
    done = _fill(descriptor, first, memoryview(buffer.reshape(-1).view(np.uint8)))
    if done < stored.bytes:
        raise DataCorrupt(
            f"{printable(path)} is cut off: {name} lies at bytes {first:,} to {first + stored.bytes:,} and the file "
            f"ends at {first + done:,}: copy it again"
        )


def _fill(descriptor: int, offset: int, view: memoryview) -> int:
    """Read from `offset` on until `view` is full or the file ends; return how many bytes were read."""
    done = 0
    while done < len(view):  # Linux gives at most 2 GiB at a time, a network file system may give less
        more = os.preadv(descriptor, [view[done:]], offset + done)
        if not more:
            break
        done += more
    return done


# --- layouts of earlier files -----------------------------------------------------------------------------------------


class _Layout(NamedTuple):
    """Where the datasets lie in a file of `size` bytes, and `pieces`: the bytes that HDF5 read to find that out.

    The answer follows from these bytes alone, so it holds for each file that has the same bytes at the same offsets.
    """

    names: Tuple[str, ...]
    size: int
    pieces: Tuple[Tuple[int, bytes], ...]
    arrays: Tuple[StoredArray, ...]

    def fits(self, descriptor: int, size: int, names: Tuple[str, ...]) -> bool:
        if (size, names) != (self.size, self.names):
            return False
        return all(os.pread(descriptor, len(piece), at) == piece for at, piece in self.pieces)


_layouts: List[_Layout] = []  # the newest first; each call that changes the list is one step for other threads


def _find(path: Path, descriptor: int, names: Tuple[str, ...]) -> Tuple[StoredArray, ...]:
    """Return where these datasets lie: as in an earlier file, or as HDF5 says."""
    size = os.fstat(descriptor).st_size
    for layout in _layouts[:]:
        if layout.fits(descriptor, size, names):
            return layout.arrays
    layout = _ask_hdf5(path, descriptor, size, names)
    _layouts.insert(0, layout)
    del _layouts[MOST_LAYOUTS:]
    return layout.arrays


def _ask_hdf5(path: Path, descriptor: int, size: int, names: Tuple[str, ...]) -> _Layout:
    pieces: Dict[int, bytes] = {}
    with _opened_by_hdf5(path, descriptor, pieces) as (h5py, file):
        arrays = tuple(_dataset(path, name, h5py, file) for name in names)
    values = [array.offset for array in arrays if array.offset is not None]
    return _Layout(names, size, tuple(_metadata(pieces, values)), arrays)


def _dataset(path: Path, name: str, h5py: Any, file: Any) -> StoredArray:
    try:
        dataset = h5py.h5d.open(file, name.encode())
    except KeyError as error:
        raise DataCorrupt(
            f"{printable(path)} holds no readable dataset {name} ({_cause(error)}): replace the file, or give the "
            "folder of another set"
        ) from None
    stored = StoredArray(dataset.shape, dataset.dtype, dataset.get_offset())
    if stored.bytes and not dataset.get_storage_size():
        raise DataCorrupt(f"{printable(path)}: {name} was made and never written: copy the file again")
    return stored


def _metadata(pieces: Dict[int, bytes], values: List[int]) -> List[Tuple[int, bytes]]:
    """Join the pieces that HDF5 read, without the values that it read beyond a header, whose length it guesses.

    values: where the values of the datasets begin.
    """
    joined: List[Tuple[int, bytes]] = []
    for at, piece in sorted(pieces.items()):
        for first in values:
            if at < first:
                piece = piece[: first - at]
        if joined:
            last_at, last_piece = joined[-1]
            overlap = last_at + len(last_piece) - at
            if overlap >= 0:
                joined[-1] = (last_at, last_piece + piece[overlap:])
                continue
        joined.append((at, piece))
    return joined


# --- HDF5 itself ------------------------------------------------------------------------------------------------------


class _FileObject:
    """The file as HDF5 reads it: through a descriptor of ours, so that HDF5 itself opens and locks nothing.

    Another thread may run while it waits for the file system. Keeps the bytes that were read in `pieces`, and an error.
    """

    def __init__(self, descriptor: int, pieces: Optional[Dict[int, bytes]]) -> None:
        self.descriptor = descriptor
        self.pieces = pieces
        self.at = 0
        self.error: Optional[OSError] = None

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        start = os.fstat(self.descriptor).st_size if whence == os.SEEK_END else 0
        self.at = start + offset
        return self.at

    def tell(self) -> int:
        return self.at

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer)
        try:
            done = _fill(self.descriptor, self.at, view)
        except OSError as error:
            self.error = error
            raise
        if done < len(view):
            raise EOFError(f"the file ends at byte {self.at + done:,}")
        if self.pieces is not None:
            self.pieces[self.at] = max(self.pieces.get(self.at, b""), bytes(view), key=len)
        return done


@contextlib.contextmanager
def _opened_by_hdf5(
    path: Path, descriptor: int, pieces: Optional[Dict[int, bytes]] = None
) -> Iterator[Tuple[Any, Any]]:
    """Yield (h5py, the opened file). h5py raises OSError, KeyError, ValueError, RuntimeError, …; this DataCorrupt."""
    h5py = _h5py()
    source = _FileObject(descriptor, pieces)
    try:
        access = h5py.h5p.create(h5py.h5p.FILE_ACCESS)
        access.set_fclose_degree(h5py.h5f.CLOSE_STRONG)
        access.set_fileobj_driver(h5py.h5fd.fileobj_driver, source)
        try:
            file = h5py.h5f.open(b"an open file", h5py.h5f.ACC_RDONLY, access)
        finally:
            del access  # the traceback of an error keeps this frame, and HDF5 crashes at exit if it still has the list
        try:
            yield h5py, file
        finally:
            file.close()
    except MemoryError:
        raise
    except Exception as error:
        if source.error is not None:
            raise source.error from None
        if isinstance(error, CommandError):
            raise
        raise DataCorrupt(f"{printable(path)} is no readable HDF5 ({_cause(error)}): copy it again") from None


def _cause(error: Exception) -> str:
    """Return the cause, which h5py gives in brackets behind "Unable to open …"."""
    text = " ".join(str(error.args[0] if error.args else "").split()) or type(error).__name__
    inside = text.partition("(")[2]
    return inside[:-1] if inside.endswith(")") else text


def _h5py() -> Any:
    try:
        import h5py
    except ImportError as error:
        raise ImpossibleRequest(
            f"HDF5 files are read with h5py, which cannot be imported ({error}): pip install h5py"
        ) from None
    return h5py
