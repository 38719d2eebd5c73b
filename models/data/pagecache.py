"""How much of a data set's files is in memory before a run, and --cache: load them into memory, or drop them from it.

Linux only. models/data/mincore.py says for which file systems the kernel reports it.
"""

from __future__ import annotations

import errno
import functools
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Callable, Iterable, Iterator, List, Optional, Sequence, Tuple

from models.data.file_list import printable, unreadable
from models.data.mincore import NotKnown, check_kernel, of_file, opened
from models.errors import ImpossibleRequest
from models.host import memory_bytes

COLD = 0.1  # at most this share of the bytes is resident
WARM = 0.9  # at least this share is
MOST = 1000  # files that are checked, one after the other: a parallel file system may take milliseconds to open one
THREADS = 8  # they hide the latency of a parallel file system
PIECE = 4 << 20  # bytes of one read


def resident(paths: Iterable[bytes], most: int = MOST) -> Optional[Tuple[int, int]]:
    """Return (bytes in the page cache, all bytes) of these files, by an even sample of at most `most` of them.

    None where it cannot be known. No file is read.
    """
    try:
        return _resident(_sequence(paths), most)
    except (NotKnown, OSError):
        return None


def drop(paths: Iterable[bytes]) -> None:
    """Drop the files from the page cache, unless a process maps or locks them; dirty pages are written first.

    Raises DataMissing for a file that cannot be read or written back, ImpossibleRequest where this is not Linux.
    """
    if not hasattr(os, "posix_fadvise"):
        raise ImpossibleRequest("only Linux lets files be dropped from memory; train without --cache cold")
    _each(_drop, paths)


def load(paths: Iterable[bytes]) -> int:
    """Read the files, so that the page cache has them. Return the bytes read. Raises DataMissing."""
    return sum(_each(functools.partial(_read_through, threading.local()), paths))


def prepare(paths: Iterable[bytes], wish: str) -> Optional[float]:
    """Bring the files that a rank will read into the state of --cache; return the share of their bytes in memory.

    wish: `cold`, at most a tenth is in memory; `warm`, at least nine tenths; `as-is`, nothing is changed, and the share
    is None where it cannot be known. Raises ImpossibleRequest, with the reason, if that cannot be done or verified,
    DataMissing for a file that cannot be read.
    """
    files = _sequence(paths)
    if wish == "as-is":
        inside, size = resident(files) or (0, 0)
        return inside / size if size else None
    try:
        return _cold(files) if wish == "cold" else _warm(files)
    except NotKnown as reason:
        raise ImpossibleRequest(f"--cache {wish} cannot be verified: {reason}; train without --cache {wish}") from None
    except OSError as error:
        raise unreadable(os.fsencode(error.filename or files[0]), error) from None


def mean_bytes(paths: Iterable[bytes]) -> Optional[float]:
    """Return the mean size of these files, by an even sample of at most MOST of them; None if a stat fails."""
    files = _sequence(paths)
    try:
        return _mean_bytes(files) if files else None
    except OSError:
        return None


# --- checking ---------------------------------------------------------------------------------------------------------


def _resident(files: Sequence[bytes], most: int) -> Tuple[int, int]:
    check_kernel()
    found = [of_file(path) for path in _even(files, most)]
    return sum(inside for inside, _ in found), sum(size for _, size in found)


def _share(files: Sequence[bytes]) -> float:
    inside, size = _resident(files, MOST)
    if not size:
        raise NotKnown("there is no byte to read")
    return inside / size


def _even(files: Sequence[bytes], most: int) -> Iterator[bytes]:
    """Return at most `most` of the files, at equal distances."""
    count = min(most, len(files))
    return (files[number * len(files) // count] for number in range(count))


def _sequence(paths: Iterable[bytes]) -> Sequence[bytes]:
    return paths if isinstance(paths, Sequence) else list(paths)


# --- dropping and loading --------------------------------------------------------------------------------------------


def _drop(path: bytes) -> int:
    with opened(path) as descriptor:
        try:
            os.fdatasync(descriptor)  # a dirty page stays
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.EROFS):  # a file system that never writes
                raise
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    return 0


def _read_through(own: threading.local, path: bytes) -> int:
    if not hasattr(own, "buffer"):
        own.buffer = bytearray(PIECE)
    with opened(path) as descriptor:
        done, more = 0, -1
        while more:
            more = os.preadv(descriptor, [own.buffer], done)
            done += more
    return done


def _each(work: Callable[[bytes], int], paths: Iterable[bytes]) -> List[int]:
    """Call work(path) for each path, in THREADS threads; return the sum of the results of each thread.

    An error in one of them, or Ctrl-C, ends all after the file that they are at.
    """
    files = _sequence(paths)
    stop = threading.Event()
    indices = iter(range(len(files)))  # shared: no two threads get the same number from a range

    def run() -> int:
        total = 0
        for index in indices:
            if stop.is_set():
                break
            try:
                total += work(files[index])
            except OSError as error:
                stop.set()
                raise unreadable(files[index], error) from None
        return total

    with ThreadPoolExecutor(THREADS, "page-cache") as pool:
        try:
            return [thread.result() for thread in [pool.submit(run) for _ in range(THREADS)]]
        finally:
            stop.set()


# --- cold and warm ----------------------------------------------------------------------------------------------------


def _cold(files: Sequence[bytes]) -> float:
    _share(files[:1])  # before anything is dropped: raises NotKnown if the result could not be verified
    drop(files)
    share = _share(files)
    if share > COLD:
        folder = printable(os.path.dirname(files[0]))
        raise ImpossibleRequest(
            f"--cache cold: {share:.0%} of the bytes of {len(files):,} file(s) in {folder} stay in memory: "
            "the folder itself is in memory (tmpfs), or another process reads or maps the files; give --data-dir a "
            "copy on a disk that no other process reads, or train without --cache cold"
        )
    return share


def _warm(files: Sequence[bytes]) -> float:
    memory = memory_bytes()
    size = _bytes(files)
    without = "ask for fewer steps, use a node with more memory, or train without --cache warm"
    if memory and size > memory:
        raise ImpossibleRequest(
            f"--cache warm: {len(files):,} file(s) of {_gb(size)} do not fit into the {_gb(memory)} of memory that "
            f"this node, or this container, has; {without}"
        )
    _share(files[:1])
    load(files)
    share = _share(files)
    if share < WARM:
        raise ImpossibleRequest(
            f"--cache warm: only {share:.0%} of {_gb(size)} stay in memory after all was read: the "
            f"{_gb(memory) if memory else 'memory'} of this node, or this container, must also hold what processes "
            f"use, and a scheduler may allow a job less; {without}"
        )
    return share


def _bytes(files: Sequence[bytes]) -> int:
    """Return the size of all files, by the mean of an even sample. Raises OSError."""
    return int(_mean_bytes(files) * len(files))


def _mean_bytes(files: Sequence[bytes]) -> float:
    sizes = [os.stat(path).st_size for path in _even(files, MOST)]
    return sum(sizes) / max(1, len(sizes))


def _gb(size: int) -> str:
    return f"{size / 1e9:,.1f} GB"
