"""The files of a data set: listed without a stat each, kept as one block of bytes, read by one call."""

from __future__ import annotations

import array
import itertools
import os
from dataclasses import dataclass
from typing import Sequence, Tuple, Union

from models.errors import DataMissing


def show(path: Union[bytes, str]) -> str:
    """A path as text that can always be printed, also when its bytes are no UTF-8."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


@dataclass(frozen=True)
class Files:
    """Files below one folder, as one block of bytes.

    A list of a million strings would be copied page by page into each worker that touches their reference counts.
    """

    folder: bytes
    names: bytes
    ends: array.array[int]

    @classmethod
    def of(cls, folder: bytes, names: Sequence[bytes]) -> Files:
        ends = array.array("q", itertools.accumulate((len(name) for name in names), initial=0))
        return cls(folder, b"".join(names), ends)

    def __len__(self) -> int:
        return len(self.ends) - 1

    def path(self, index: int) -> bytes:
        return self.folder + b"/" + self.names[self.ends[index] : self.ends[index + 1]]


def list_files(folder: bytes, suffixes: Tuple[bytes, ...]) -> Files:
    """The files right below `folder` whose names end so (in any case), sorted; hidden ones apart. Raises OSError."""
    return Files.of(folder, names_in(folder, suffixes))


def names_in(folder: bytes, suffixes: Tuple[bytes, ...]) -> Sequence[bytes]:
    with os.scandir(folder) as entries:
        names = (e.name for e in entries if e.name.lower().endswith(suffixes) and e.name[:1] != b"." and not e.is_dir())
        return sorted(names)


def read_file(path: bytes) -> bytes:
    """The whole file by one read; Python's open() takes half as long again. Raises DataMissing where it cannot be."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            size = os.fstat(descriptor).st_size
            data = os.read(descriptor, size)
            while len(data) < size:  # a network file system may give less at a time
                more = os.read(descriptor, size - len(data))
                if not more:
                    break
                data += more
            return data
        finally:
            os.close(descriptor)
    except OSError as error:
        raise gone(path, error) from None


def gone(path: bytes, error: OSError) -> DataMissing:
    """What to say of a file that was listed and cannot be read."""
    return DataMissing(
        f"{show(path)} was there when the set was opened and now cannot be read ({error.strerror}): look at its file "
        f"system and who cleans it, or give another --data-dir"
    )
