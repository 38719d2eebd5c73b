"""Datasets of HDF5 files, read straight into a tensor's memory, by any number of threads; no file stays open."""

from __future__ import annotations

import contextlib
import os
from typing import Any, Callable, Iterator, Mapping, Tuple, Union

import numpy as np

from models.data.files import gone, show
from models.data.hdf5_layout import Array as Array
from models.data.hdf5_layout import Path, fill, find, opened_by_hdf5
from models.data.hdf5_layout import described as described
from models.data.hdf5_layout import versions as versions
from models.errors import DataCorrupt

SLOW = "read through HDF5, one thread at a time, as it is chunked, compressed or of another number format"

Buffer = Any  # a numpy array or a CPU tensor: contiguous, of the dataset's shape


def describe(path: Path, names: Tuple[str, ...]) -> Tuple[Array, ...]:
    """What the file says of these datasets. Raises as read."""
    with _opened(path) as descriptor:
        return find(path, descriptor, names)


def read(path: Path, into: Mapping[str, Union[Buffer, Callable[[Array], Buffer]]]) -> None:
    """Fill each buffer with the dataset of that name; a function is asked for the buffer, given what was found.

    Where dataset and buffer have the same dtype and the dataset lies in one piece, the bytes go from the file into the
    buffer with no lock held. All else goes through HDF5, one thread at a time; it may change byte order, widen, and
    turn one floating dtype into another. Raises DataMissing for a file that cannot be opened or read, DataCorrupt for
    one that is no HDF5, is cut off, lacks a dataset or has another shape or dtype, Impossible without h5py.
    """
    with _opened(path) as descriptor:
        left = {}
        for name, found in zip(into, find(path, descriptor, tuple(into))):
            buffer = _array(into[name], found)
            _check(path, name, found, buffer)
            if found.lies_as(buffer.dtype):
                _read_values(path, name, descriptor, found, buffer)
            else:
                left[name] = buffer
        if left:
            with opened_by_hdf5(path, descriptor) as (h5py, file):
                for name, buffer in left.items():
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
        raise gone(os.fsencode(path), error) from None


def _array(buffer: Any, found: Array) -> Any:
    """The buffer as a numpy array on the same memory."""
    if callable(buffer):
        buffer = buffer(found)
    array = buffer if isinstance(buffer, np.ndarray) else buffer.numpy()
    if not array.flags.c_contiguous:
        raise ValueError("a buffer to read into must be contiguous: a copy of it would be filled")
    return array


def _check(path: Path, name: str, found: Array, buffer: Any) -> None:
    floating = found.dtype.kind == buffer.dtype.kind == "f"
    if found.shape != buffer.shape or not (floating or np.can_cast(found.dtype, buffer.dtype)):
        raise DataCorrupt(
            f"{show(path)}: {name} is {found}, and {described(buffer.shape, buffer.dtype)} is expected: replace the "
            f"file, or give the folder of another set"
        )


def _read_values(path: Path, name: str, descriptor: int, found: Array, buffer: Any) -> None:
    first = found.offset or 0
    done = fill(descriptor, first, memoryview(buffer.reshape(-1).view(np.uint8)))
    if done < found.bytes:
        raise DataCorrupt(
            f"{show(path)} is cut off: {name} lies at bytes {first:,} to {first + found.bytes:,} and the file ends at "
            f"{first + done:,}: copy it again"
        )
