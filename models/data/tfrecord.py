"""TFRecord files of one tf.train.Example each, plain or in gzip, read and written without TensorFlow.

A record is the length of an Example, a checksum of the length, the Example, and a checksum of the Example. Its array is
brought to its place in a batch piece by piece, and each piece is checked while it is in the cache.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import struct
import zlib
from dataclasses import dataclass
from importlib import metadata
from typing import Any, Callable, Dict, Iterator, Sequence, Tuple, Union

import numpy as np

from models.data import crc32c
from models.data.file_list import printable, unreadable
from models.data.tf_example import Example, Malformed, Span, serialise
from models.errors import DataCorrupt

Path = Union[str, bytes]
ReadInto = Callable[[memoryview], int]  # reads the next bytes of a file's records, like io.RawIOBase.readinto
Gunzip = Callable[[Any, int], ReadInto]  # of an open file, of whose content so many bytes are wanted

GZIP = b"\x1f\x8b\x08"
LEVEL = 6  # of compression, as in the real set
MOST_BESIDE = 1 << 16  # bytes of an Example beside its feature x
FRAME = 16  # bytes of a record beside its Example
CHUNK = 1 << 18  # bytes of a compressed file that are read at a time


# --- reading ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TfRecordReader:
    """Reads with two libraries, named as in GUNZIP and in crc32c.IMPLEMENTATIONS; `fastest()` chooses them.

    warnings: which faster library is missing.
    """

    gunzip: str
    checksum: str
    warnings: Tuple[str, ...] = ()

    @property
    def decoder(self) -> str:
        """The libraries and their versions, e.g. "deflate 0.9.0, google-crc32c 1.9.0"."""
        return f"{_version(self.gunzip)}, {_version(self.checksum)}"

    def array_bytes(self, path: Path) -> int:
        """Return how many bytes feature x has, without reading them. Raises as read."""
        with _opened(path, _by_zlib, CHUNK) as source:
            _, _, (start, stop) = self._begin(source)
            return stop - start

    def read(self, path: Path, x: Any, y: Any) -> None:
        """Read the one sample of a file: the bytes of feature x into x, the floats of feature y into y.

        x: a numpy array of uint8, y: of float32, each contiguous and of one dimension. Other threads run meanwhile.
        Raises DataMissing for a file that cannot be read. Raises DataCorrupt, perhaps with x filled, for one that is
        cut off or damaged, holds more or less than this, or holds floats that are not finite.
        """
        with _opened(path, GUNZIP[self.gunzip], len(x) + MOST_BESIDE + FRAME) as source:
            length, head, (start, stop) = self._begin(source)
            if stop - start != len(x):
                raise Malformed(f"its feature x has {stop - start:,} bytes, and {len(x):,} are expected")
            if length - len(x) > MOST_BESIDE:
                raise Malformed(f"it has {length - len(x):,} bytes beside its feature x")
            crc = self._fill(source, self._crc32c.extend(0, head), head[start:stop], memoryview(x))
            tail = _take(source, length - max(stop, len(head)))
            self._check(self._crc32c.extend(crc, tail), _take(source, 4), "data")
            if _read_some(source, memoryview(bytearray(1))):
                raise Malformed("another record follows it, and only files of one record are read")
            Example(head[:start] + head[stop:] + tail, length, (start, stop)).read_numbers(y)

    def _begin(self, source: ReadInto) -> Tuple[int, bytes, Span]:
        """Return the length of the Example, its first bytes, and where in it those of feature x are."""
        stored = _take(source, 8)
        self._check(self._crc32c.extend(0, stored), _take(source, 4), "length")
        (length,) = struct.unpack("<Q", stored)
        head = _take(source, min(length, MOST_BESIDE))
        return length, head, Example(head, length, (len(head), length)).find_array()

    def _fill(self, source: ReadInto, crc: int, first: bytes, x: memoryview) -> int:
        """Read the rest of x, which begins with `first`. Return the checksum, which was `crc` so far."""
        x[: len(first)] = first
        for at in range(len(first), len(x), self._crc32c.piece):
            piece = x[at : at + self._crc32c.piece]
            _read_all(source, piece)
            crc = self._crc32c.extend(crc, piece)
        return crc

    @property
    def _crc32c(self) -> crc32c.Checksum:
        return crc32c.IMPLEMENTATIONS[self.checksum]()

    def _check(self, crc: int, stored: bytes, part: str) -> None:
        if struct.pack("<I", crc32c.masked(crc)) != stored:
            raise Malformed(f"the checksum of its {part} does not match")


@contextlib.contextmanager
def _opened(path: Path, gunzip: Gunzip, most: int) -> Iterator[ReadInto]:
    """Open a file of records, of which `most` bytes are wanted."""
    try:
        with open(path, "rb", buffering=0) as file:
            if not os.fstat(file.fileno()).st_size:
                raise Malformed("the file is empty")
            is_compressed = os.pread(file.fileno(), len(GZIP), 0) == GZIP
            yield gunzip(file, most) if is_compressed else file.readinto
    except OSError as error:
        raise unreadable(os.fsencode(path), error) from None
    except Malformed as error:
        raise DataCorrupt(
            f"{printable(path)}, record 1: {error}; copy the file again, or skip such files with --skip-corrupt"
        ) from None


def _take(source: ReadInto, size: int) -> bytes:
    buffer = bytearray(size)
    _read_all(source, memoryview(buffer))
    return bytes(buffer)


def _read_all(source: ReadInto, view: memoryview) -> None:
    while view:
        read = _read_some(source, view)
        if not read:
            raise Malformed("the file ends before it does")
        view = view[read:]


def _read_some(source: ReadInto, view: memoryview) -> int:
    try:
        return source(view)
    except (EOFError, zlib.error) as error:
        raise Malformed(f"it cannot be decompressed ({error})") from None


# --- decompression: which libraries are there -------------------------------------------------------------------------


@functools.lru_cache(maxsize=None)
def libdeflate() -> ctypes.CDLL:
    """Return the C library in the package deflate, because the package's own function hides where a stream ends.

    Raises ImportError without the package; OSError or AttributeError if it hides the C functions, too.
    """
    import deflate

    library = ctypes.CDLL(getattr(deflate, "_deflate", deflate).__file__)  # below 0.8 the package is the library
    pointer = ctypes.c_void_p
    size = ctypes.c_size_t
    library.libdeflate_alloc_decompressor.restype = pointer
    library.libdeflate_free_decompressor.argtypes = (pointer,)
    library.libdeflate_gzip_decompress_ex.argtypes = (pointer, pointer, size, pointer, size, pointer, pointer)
    return library


def _by_deflate(file: Any, most: int) -> ReadInto:
    """Decompress a file's one stream in one call, which is faster without pieces, and lets other threads run.

    Where that fails, zlib says why. Where the file goes on after the stream, zlib reads it.
    """
    library = libdeflate()
    data = file.read()
    content = np.empty(most, np.uint8)
    end = ctypes.c_size_t()  # of the stream
    size = ctypes.c_size_t()  # of its content
    decompressor = library.libdeflate_alloc_decompressor()
    if not decompressor:
        raise MemoryError("libdeflate has no memory")
    failed = library.libdeflate_gzip_decompress_ex(
        decompressor, data, len(data), content.ctypes.data, most, ctypes.byref(end), ctypes.byref(size)
    )
    library.libdeflate_free_decompressor(decompressor)
    if not failed and end.value == len(data):
        return _Copied(content[: size.value]).readinto
    file.seek(0)
    return _by_zlib(file, most)


def _by_zlib(file: Any, most: int) -> ReadInto:
    return _Decompressed(file).readinto


class _Copied:
    """Content that is in memory, as a numpy array of uint8."""

    def __init__(self, content: Any) -> None:
        self._content = content

    def readinto(self, view: memoryview) -> int:
        piece = self._content[: len(view)]
        np.frombuffer(view, np.uint8)[: len(piece)] = piece  # without Python's lock
        self._content = self._content[len(piece) :]
        return len(piece)


class _Decompressed:
    """The content of a file of gzip streams, one after the other, which zeros may pad."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self._stream = zlib.decompressobj(31)
        self._rest = b""  # input that was not consumed

    def readinto(self, view: memoryview) -> int:
        while not self._stream.eof or self._next_stream():
            piece = self._stream.decompress(self._rest, len(view))
            self._rest = self._stream.unconsumed_tail
            if piece:
                np.frombuffer(view, np.uint8)[: len(piece)] = np.frombuffer(piece, np.uint8)  # without Python's lock
                return len(piece)
            if not self._stream.eof:
                self._rest = self._file.read(CHUNK)
                if not self._rest:
                    raise EOFError("the gzip stream is cut off")
        return 0

    def _next_stream(self) -> bool:
        rest = self._stream.unused_data.lstrip(b"\0")
        while not rest:
            data = self._file.read(CHUNK)
            if not data:
                return False
            rest = data.lstrip(b"\0")
        self._stream = zlib.decompressobj(31)
        self._rest = rest
        return True


GUNZIP: Dict[str, Gunzip] = {"deflate": _by_deflate, "zlib": _by_zlib}


@functools.lru_cache(maxsize=None)
def fastest() -> TfRecordReader:
    """Return the reader with the fastest libraries that are installed."""
    warnings = []
    gunzip = "deflate"
    checksum = "google-crc32c"
    try:
        libdeflate()
    except (ImportError, OSError, AttributeError) as error:
        gunzip = "zlib"
        warnings.append(f"slow path: zlib decompresses, 3 times as slowly as deflate ({error}): pip install deflate")
    try:
        crc32c.google()
    except ImportError as error:
        checksum = "numpy"
        warnings.append(f"slow path: numpy takes the checksums ({error}): pip install google-crc32c")
    return TfRecordReader(gunzip, checksum, tuple(warnings))


def _version(library: str) -> str:
    versions = {"zlib": zlib.ZLIB_RUNTIME_VERSION, "numpy": np.__version__}
    try:
        return f"{library} {versions.get(library) or metadata.version(library)}"
    except metadata.PackageNotFoundError:
        return library


# --- writing ---------------------------------------------------------------------------------------------------------


def write(path: Path, x: bytes, y: Sequence[float], *, gzip: bool = True) -> int:
    """Write the file of one sample as the reference's prepare.py does. Return its size in bytes."""
    data = framed(serialise({"x": x, "y": y}))
    if gzip:
        stream = zlib.compressobj(LEVEL, zlib.DEFLATED, 31)
        data = stream.compress(data) + stream.flush()
    with open(path, "wb") as file:
        return file.write(data)


def framed(data: bytes) -> bytes:
    """Return a record of these data."""
    extend = crc32c.IMPLEMENTATIONS[fastest().checksum]().extend

    def checksum(part: bytes) -> bytes:
        return struct.pack("<I", crc32c.masked(extend(0, part)))

    length = struct.pack("<Q", len(data))
    return b"".join((length, checksum(length), data, checksum(data)))
