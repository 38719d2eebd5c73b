"""TFRecord files of one tf.train.Example each, plain or in gzip, read and written without TensorFlow.

A record is the length of an Example, a checksum of it, the Example, a checksum of it. It is read in pieces: each goes
from decompression through the checksum to its place while it is in the cache, and nothing as large as a sample is made.
"""

from __future__ import annotations

import contextlib
import functools
import os
import struct
import zlib
from dataclasses import dataclass
from importlib import metadata
from typing import Any, Callable, Dict, Iterator, List, Mapping, Sequence, Tuple, Union

import numpy as np

from models.data import crc32c
from models.data.files import gone, show
from models.data.tf_example import Example, Malformed, Span, serialise
from models.errors import DataCorrupt

Path = Union[str, bytes]
Take = Callable[[int], bytes]  # the next bytes of a file's records, at most so many; none at the end

GZIP = b"\x1f\x8b\x08"
LEVEL = 6  # with which the real set was compressed
READ = 1 << 20  # bytes of a compressed file at a time
MOST_BESIDE = 1 << 16  # bytes of an Example that are not those of x


# --- reading ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Reader:
    """Reads with the libraries of these names, from GUNZIP and from crc32c.IMPLEMENTATIONS: see fastest().

    warnings: why they are not the fastest.
    """

    gunzip: str
    checksum: str
    warnings: Tuple[str, ...] = ()

    @property
    def decoder(self) -> str:
        """E.g. "isal 1.9.1, google-crc32c 1.9.0"."""
        return f"{_version(self.gunzip)}, {_version(self.checksum)}"

    def array_bytes(self, path: Path) -> int:
        """How many bytes feature x has. Nothing behind its beginning is looked at. Raises as read."""
        with self._opened(path) as take:
            start, stop = self._begin(take)[2]
            return stop - start

    def read(self, path: Path, x: Any, y: Any) -> None:
        """Read the one sample of a file: the bytes of feature x into x, the floats of feature y into y.

        x: a numpy array of uint8, y: of float32, each of one dimension. Other threads run meanwhile. Raises DataMissing
        for a file that cannot be read; DataCorrupt, perhaps with x filled, for one that is cut off or damaged, holds
        more or less than this, or floats that are not finite.
        """
        with self._opened(path) as take:
            length, first, (start, stop) = self._begin(take)
            if stop - start != len(x):
                raise Malformed(f"its feature x has {stop - start:,} bytes, and {len(x):,} are expected")
            if length - len(x) > MOST_BESIDE:
                raise Malformed(f"it has {length - len(x):,} bytes beside its feature x")
            beside = self._scatter(take, length, first, start, x)
            if take(1):
                raise Malformed("another follows it, and one in each file is read")
            Example(beside, length, (start, stop)).read_numbers(y)

    def _begin(self, take: Take) -> Tuple[int, bytes, Span]:
        """Length of the Example, its first piece, and where in it the bytes of feature x lie."""
        stored, crc = _exactly(take, 8), _exactly(take, 4)
        (length,) = struct.unpack("<Q", stored)
        self._check(self._crc32c.extend(0, stored), crc, "length")
        first = _exactly(take, min(length, self._crc32c.piece))
        return length, first, Example(first, length, (len(first), length)).find_array()

    def _scatter(self, take: Take, length: int, piece: bytes, start: int, x: Any) -> bytes:
        """Read on from an Example's first piece. What lies from `start` on goes into x; the rest is returned."""
        at = crc = 0
        (extend, most), beside = self._crc32c, []
        while True:
            crc = extend(crc, piece)
            begin, end = (min(max(edge - at, 0), len(piece)) for edge in (start, start + len(x)))
            x[at + begin - start : at + end - start] = np.frombuffer(piece, np.uint8)[begin:end]
            beside += [piece[:begin], piece[end:]]
            at += len(piece)
            if at == length:
                break
            piece = _exactly(take, min(length - at, most))
        self._check(crc, _exactly(take, 4), "data")
        return b"".join(beside)

    @property
    def _crc32c(self) -> crc32c.Checksum:
        return crc32c.IMPLEMENTATIONS[self.checksum]()

    def _check(self, crc: int, stored: bytes, what: str) -> None:
        if struct.pack("<I", crc32c.masked(crc)) != stored:
            raise Malformed(f"the checksum of its {what} does not match")

    @contextlib.contextmanager
    def _opened(self, path: Path) -> Iterator[Take]:
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                take: Take = functools.partial(os.read, descriptor)
                if not os.fstat(descriptor).st_size:
                    raise Malformed("the file is empty")
                if os.pread(descriptor, len(GZIP), 0) == GZIP:
                    take = _Gunzip(GUNZIP[self.gunzip](), take)
                yield take
            finally:
                os.close(descriptor)
        except OSError as error:
            raise gone(os.fsencode(path), error) from None
        except Malformed as error:
            raise DataCorrupt(
                f"{show(path)}, record 1: {error}; copy the file again, or pass over such files with --skip-corrupt"
            ) from None


def _exactly(take: Take, size: int) -> bytes:
    pieces: List[bytes] = []
    missing = size
    while missing:
        piece = take(missing)
        if not piece:
            raise Malformed("the file ends before it does")
        pieces.append(piece)
        missing -= len(piece)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


class _Gunzip:
    """Takes from the gzip stream that `read` gives, with zlib's or isal's decompressor."""

    def __init__(self, stream: Any, read: Take) -> None:
        self._stream, self._read = stream, read
        self._rest = b""  # that zlib has not taken; isal keeps it

    def __call__(self, most: int) -> bytes:
        while not self._stream.eof:
            piece = self._decompress(most)
            if piece:
                return piece
            if not self._stream.eof:
                self._rest = self._read(READ)
                if not self._rest:
                    raise Malformed("the gzip stream ends before it does")
        if self._stream.unused_data or self._read(1):
            raise Malformed("something follows its gzip stream")
        return b""

    def _decompress(self, most: int) -> bytes:
        try:
            piece: bytes = self._stream.decompress(self._rest, most)
        except MemoryError:
            raise
        except Exception as error:  # zlib.error, isal's IsalError
            raise Malformed(f"it cannot be decompressed ({error})") from None
        self._rest = getattr(self._stream, "unconsumed_tail", b"")
        return piece


# --- writing ---------------------------------------------------------------------------------------------------------


def write(path: Path, x: bytes, y: Sequence[float], *, gzip: bool = True) -> int:
    """Write the file of one sample as the reference's prepare.py does. Returns its bytes."""
    data = framed(serialise({"x": x, "y": y}))
    if gzip:
        stream = zlib.compressobj(LEVEL, zlib.DEFLATED, 31)
        data = stream.compress(data) + stream.flush()
    with open(path, "wb") as file:
        return file.write(data)


def framed(data: bytes) -> bytes:
    """A record."""
    extend = crc32c.IMPLEMENTATIONS[fastest().checksum]().extend
    length = struct.pack("<Q", len(data))
    checks = [struct.pack("<I", crc32c.masked(extend(0, part))) for part in (length, data)]
    return b"".join((length, checks[0], data, checks[1]))


# --- which libraries there are ---------------------------------------------------------------------------------------


def _isal() -> Any:
    from isal import igzip_lib

    return igzip_lib.IgzipDecompressor(igzip_lib.DECOMP_GZIP)


GUNZIP: Dict[str, Callable[[], Any]] = {"isal": _isal, "zlib": lambda: zlib.decompressobj(31)}


@functools.lru_cache(maxsize=None)
def fastest() -> Reader:
    """The reader with the best of what is installed."""
    gunzip, no_isal = _first(GUNZIP)
    checksum, no_google = _first(crc32c.IMPLEMENTATIONS)
    warnings = []
    if no_isal:
        warnings.append(f"slow path: zlib decompresses, 2.6 times as slowly as isal ({no_isal}): pip install isal")
    if no_google:
        warnings.append(f"slow path: numpy takes the checksums ({no_google}): pip install google-crc32c")
    return Reader(gunzip, checksum, tuple(warnings))


def _first(choices: Mapping[str, Callable[[], Any]]) -> Tuple[str, str]:
    """The first that can be imported, and why it is not the very first."""
    *better, last = choices
    why = ""
    for name in better:
        try:
            choices[name]()
            return name, why
        except ImportError as error:
            why = str(error)
    return last, why


def _version(library: str) -> str:
    versions = {"zlib": zlib.ZLIB_RUNTIME_VERSION, "numpy": np.__version__}
    try:
        return f"{library} {versions.get(library) or metadata.version(library)}"
    except metadata.PackageNotFoundError:
        return library
