"""The zip file of a bundle: uncompressed, with the same bytes wherever it is written, and read strictly.

Every byte follows from the files' names and contents: no times, no owners, no comments, no compression (whose output
differs between versions of zlib). So a reader can compare every byte that is no content with the one that must stand
there, and no file of a bundle can grow while it is read. Nothing is ever extracted.
"""

from __future__ import annotations

import os
import re
import struct
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from platforms.job import RefusedError
from platforms.printable import printable

MOST_BYTES = 2**31 - 1  # of a bundle; more needs zip64, which not every unzip reads
MOST_FILES = 65_534
CHUNK = 1 << 20
PIECE = 1 << 16

_LOCAL = struct.Struct("<4sHHHHHIIIHH")
_CENTRAL = struct.Struct("<4sHHHHHHIIIHHHHHII")
_END = struct.Struct("<4sHHHHIIH")
_LOCAL_MARK, _CENTRAL_MARK, _END_MARK = b"PK\x03\x04", b"PK\x01\x02", b"PK\x05\x06"
_VERSION = 20  # of the zip format that a reader must know
_UNIX = 3 << 8
_DAY = 0x21  # 1980-01-01, the first day that a zip file can name
_MODE = 0o100644 << 16
_LONGEST_NAME = 400
_NAME = re.compile(r"[A-Za-z0-9_.=+-]+(/[A-Za-z0-9_.=+-]+)*", re.ASCII)


class Damaged(RefusedError):
    """A file is not the zip file that `write` makes. The message says why, in one sentence."""


@dataclass(frozen=True)
class Entry:
    """A file of a bundle: where its content begins in the zip file, its size in bytes, and the checksum of the zip."""

    name: str
    offset: int
    size: int
    crc: int


def write(files: Mapping[str, bytes]) -> bytes:
    """The zip file with these contents, by their names in it; the order is that of the mapping.

    Raises RefusedError: it would be too large.
    """
    if len(files) > MOST_FILES or sum(map(len, files.values())) > MOST_BYTES:
        raise RefusedError(
            f"the bundle would have {len(files)} files and {sum(map(len, files.values()))} bytes, and may have "
            f"{MOST_FILES} and {MOST_BYTES}: make bundles of fewer runs"
        )
    parts: list[bytes] = []
    directory: list[bytes] = []
    offset = 0
    for name, content in files.items():
        assert _NAME.fullmatch(name), name
        entry = Entry(name, offset + _LOCAL.size + len(name), len(content), zlib.crc32(content))
        parts += [_local_header(entry), content]
        directory.append(_central_header(entry))
        offset = entry.offset + entry.size
    central = b"".join(directory)
    return b"".join([*parts, central, _end(len(files), len(central), offset)])


def _local_header(entry: Entry) -> bytes:
    sizes = (entry.crc, entry.size, entry.size, len(entry.name), 0)
    return _LOCAL.pack(_LOCAL_MARK, _VERSION, 0, 0, 0, _DAY, *sizes) + entry.name.encode()


def _central_header(entry: Entry) -> bytes:
    begin = entry.offset - _LOCAL.size - len(entry.name)
    sizes = (entry.crc, entry.size, entry.size, len(entry.name), 0, 0, 0, 0, _MODE, begin)
    return _CENTRAL.pack(_CENTRAL_MARK, _UNIX | _VERSION, _VERSION, 0, 0, 0, _DAY, *sizes) + entry.name.encode()


def _end(files: int, size: int, offset: int) -> bytes:
    return _END.pack(_END_MARK, 0, 0, files, files, size, offset, 0)


class BundleFile:
    """The files of a bundle, for reading. Its memory does not grow with their sizes.

    Args:
        path: of the zip file.

    Attributes:
        entries: by name, in the order of the file.

    Raises:
        Damaged: it is not a file that `write` has made.
        OSError: it cannot be read.
    """

    def __enter__(self) -> BundleFile:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __init__(self, path: Path) -> None:
        self._file = path.open("rb")
        try:
            self.entries = _entries(self._file, os.fstat(self._file.fileno()).st_size)
        except BaseException:
            self.close()
            raise

    def chunks(self, name: str) -> Iterator[bytes]:
        """The content of a file, in pieces."""
        yield from self._pieces(self.entries[name], CHUNK)

    def lines(self, name: str, longest: int) -> Iterator[bytes]:
        """The lines of a file, with their ends. Raises ValueError for one of more than `longest` bytes."""
        begun = b""
        for piece in self._pieces(self.entries[name], PIECE):  # many files are read side by side, one for each rank
            *lines, begun = (begun + piece).split(b"\n")
            if max(map(len, (*lines, begun))) >= longest:
                raise ValueError(f"it has a line of {longest} bytes or more")
            for line in lines:
                yield line + b"\n"
        if begun:
            yield begun

    def _pieces(self, entry: Entry, size: int) -> Iterator[bytes]:
        done = 0
        while done < entry.size:
            piece = os.pread(self._file.fileno(), min(size, entry.size - done), entry.offset + done)
            if not piece:
                return
            done += len(piece)
            yield piece

    def close(self) -> None:
        self._file.close()

    def read(self, name: str, most: int) -> bytes:
        """The whole content of a file. Raises ValueError if it has more than `most` bytes."""
        size = self.entries[name].size
        if size > most:
            raise ValueError(f"it has {size} bytes, and at most {most} are read")
        return b"".join(self.chunks(name))


def _entries(file: BinaryIO, size: int) -> dict[str, Entry]:
    files, offset, directory = _directory(file, size)
    found: dict[str, Entry] = {}
    at = 0
    begin = 0  # of the next local header
    for _number in range(files):
        entry = _entry(directory, at)
        if entry.name in found:
            raise Damaged(f"the file {printable(entry.name)} stands in it twice")
        if directory[at : at + _CENTRAL.size + len(entry.name)] != _central_header(entry):
            raise Damaged(f"what the zip file says about {entry.name} (times, rights, sizes) is not what bundle writes")
        if entry.offset != begin + _LOCAL.size + len(entry.name):
            raise Damaged(f"{entry.name} does not stand where the file before it ends")
        file.seek(begin)
        if file.read(_LOCAL.size + len(entry.name)) != _local_header(entry):
            raise Damaged(f"the two places in which the zip file describes {entry.name} differ")
        found[entry.name] = entry
        at += _CENTRAL.size + len(entry.name)
        begin = entry.offset + entry.size
    if at != len(directory) or begin != offset:
        raise Damaged("it holds bytes that belong to none of its files")
    return found


def _directory(file: BinaryIO, size: int) -> tuple[int, int, bytes]:
    """How many files there are, where the zip's list of them begins, and the list."""
    if size > MOST_BYTES + MOST_FILES * (_CENTRAL.size + _LOCAL.size + 2 * _LONGEST_NAME):
        raise Damaged(f"it has {size} bytes, more than a bundle can have")
    file.seek(max(0, size - _END.size))
    tail = file.read()
    if len(tail) < _END.size or not tail.startswith(_END_MARK):
        file.seek(0)
        if file.read(4) not in (_LOCAL_MARK, _END_MARK):
            raise Damaged("it is no zip file")
        raise Damaged("the zip file is cut off, or something was added behind its end")
    _mark, disk, first, here, files, length, offset, comment = _END.unpack(tail)
    if disk or first or comment or here != files:
        raise Damaged("the end of the zip file is not what bundle writes: a comment, or one part of several")
    if files > MOST_FILES or offset == 0xFFFFFFFF:
        raise Damaged("it is a zip64 file, and bundle writes none")
    if offset + length + _END.size != size or length > files * (_CENTRAL.size + _LONGEST_NAME):
        raise Damaged("the zip file is damaged: its list of files does not end where it says")
    file.seek(offset)
    return files, offset, file.read(length)


def _entry(directory: bytes, at: int) -> Entry:
    """The entry that begins at this byte, with a sentence for each way in which it could be dangerous."""
    if len(directory) - at < _CENTRAL.size:
        raise Damaged("the zip file is damaged: its list of files is cut off")
    fields = _CENTRAL.unpack_from(directory, at)
    mark, flags, method, crc, packed, size, length = (fields[place] for place in (0, 3, 4, 7, 8, 9, 10))
    name = directory[at + _CENTRAL.size : at + _CENTRAL.size + length].decode("utf-8", "replace")
    shown = printable(name[:100])
    if mark != _CENTRAL_MARK:
        raise Damaged("the zip file is damaged: its list of files holds something else")
    if not _NAME.fullmatch(name) or any(part.strip(".") == "" for part in name.split("/")) or len(name) != length:
        raise Damaged(f"a file in it is named {shown!r}, which could be written outside of a folder; nothing was")
    if length > _LONGEST_NAME:
        raise Damaged(f"the name {shown}… has more than {_LONGEST_NAME} characters")
    if flags & 1:
        raise Damaged(f"{shown} is encrypted, and bundle encrypts nothing")
    if method != 0:
        raise Damaged(
            f"{shown} is compressed, and bundle compresses nothing: another program has packed the files again "
            "(unpack them with it, and `sha256sum -c MANIFEST` compares them)"
        )
    if packed != size:
        raise Damaged(f"{shown} has two sizes: {packed} and {size} bytes")
    return Entry(name, fields[16] + _LOCAL.size + length, size, crc)
