"""How much of a set's files lies in memory before a run; how to bring them there, or to drop them. Linux only: what the
kernel tells of which file systems stands in models/data/mincore.py."""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Callable, Dict, Iterable, Iterator, List, Optional, Sequence, Set, Tuple

from models.data.files import gone, show
from models.data.mincore import IN_MEMORY, NotKnown, check_kernel, file_system, of_file, opened, text_of
from models.errors import Impossible
from models.host import memory_bytes

COLD, WARM = 0.1, 0.9  # at most, at least so much of the bytes is resident
MOST = 1000  # files that are looked at, one after the other: a parallel file system may take milliseconds to open one
THREADS = 8  # they hide the latency of a parallel file system
PIECE = 4 << 20  # bytes of one read


def resident(paths: Iterable[bytes], most: int = MOST) -> Optional[Tuple[int, int]]:
    """(bytes in the page cache, all bytes) of these files, of an even sample of at most `most` of them.

    None where it cannot be known. Nothing is read.
    """
    try:
        return _resident(_sequence(paths), most)
    except (NotKnown, OSError):
        return None


def drop(paths: Iterable[bytes]) -> None:
    """Take the files out of the page cache, unless somebody maps or locks them; what is dirty is written first.

    Raises DataMissing for a file that cannot be read or written back, Impossible where this is not Linux.
    """
    if not hasattr(os, "posix_fadvise"):
        raise Impossible("only Linux lets files be dropped from memory; train without --cache cold")
    _each(_drop, paths)


def load(paths: Iterable[bytes]) -> int:
    """Read the files through, so that the page cache has them. Returns the bytes read. Raises DataMissing."""
    return sum(_each(functools.partial(_read_through, threading.local()), paths))


def prepare(paths: Iterable[bytes], wish: str) -> Optional[float]:
    """Bring the files that a rank will read into the state it wishes for; returns the resident share of their bytes.

    wish: cold, at most a tenth is resident; warm, at least nine tenths; as-is, nothing is changed, and the share is
    None where it cannot be known. Raises Impossible, with the reason, for what cannot be done or cannot be verified,
    DataMissing for a file that cannot be read.
    """
    files = _sequence(paths)
    if wish == "as-is":
        inside, size = resident(files) or (0, 0)
        return inside / size if size else None
    try:
        return _cold(files) if wish == "cold" else _warm(files)
    except NotKnown as reason:
        raise Impossible(f"--cache {wish} cannot be verified: {reason}; train without --cache {wish}") from None
    except OSError as error:
        raise gone(os.fsencode(error.filename or files[0]), error) from None


def mean_bytes(paths: Iterable[bytes]) -> Optional[float]:
    """Mean size of these files, by an even sample of at most MOST of them; None where one cannot be looked at."""
    files = _sequence(paths)
    try:
        return _mean_bytes(files) if files else None
    except OSError:
        return None


# --- looking ---------------------------------------------------------------------------------------------------------


def _resident(files: Sequence[bytes], most: int) -> Tuple[int, int]:
    check_kernel()
    found = [of_file(path) for path in _even(files, most)]
    return sum(inside for inside, _ in found), sum(size for _, size in found)


def _share(files: Sequence[bytes]) -> float:
    inside, size = _resident(files, MOST)
    if not size:
        raise NotKnown("there is not a byte to read")
    return inside / size


def _even(files: Sequence[bytes], most: int) -> Iterator[bytes]:
    """At most `most` of them, at equal distances."""
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
    """The sum of work(path) in each of some threads. An error in one of them, or Ctrl-C, ends all after their file."""
    files = _sequence(paths)
    numbers, stop = iter(range(len(files))), threading.Event()  # no two threads get the same number from a range

    def run() -> int:
        total = 0
        for number in numbers:
            if stop.is_set():
                break
            try:
                total += work(files[number])
            except OSError as error:
                stop.set()
                raise gone(files[number], error) from None
        return total

    with ThreadPoolExecutor(THREADS, "page-cache") as pool:
        try:
            return [thread.result() for thread in [pool.submit(run) for _ in range(THREADS)]]
        finally:
            stop.set()


# --- wishes ----------------------------------------------------------------------------------------------------------


def _cold(files: Sequence[bytes]) -> float:
    _share(files[:1])  # what cannot be verified is refused before anything is dropped
    drop(files)
    share = _share(files)
    if share > COLD:
        raise Impossible(
            f"--cache cold: {share:.0%} of the bytes of {len(files):,} file(s) stay in memory, as "
            f"{_why_they_stay(files)}; give --data-dir a copy on a disk, which nobody else uses, or train without "
            f"--cache cold"
        )
    return share


def _warm(files: Sequence[bytes]) -> float:
    memory, size = memory_bytes(), _bytes(files)
    without = "ask for fewer steps, use a node with more memory, or train without --cache warm"
    if memory and size > memory:
        raise Impossible(
            f"--cache warm: {len(files):,} file(s) of {_gb(size)} do not fit into the {_gb(memory)} of memory that "
            f"this node, or this container, has; {without}"
        )
    _share(files[:1])
    load(files)
    share = _share(files)
    if share < WARM:
        raise Impossible(
            f"--cache warm: only {share:.0%} of {_gb(size)} stay in memory after all was read: the "
            f"{_gb(memory) if memory else 'memory'} of this node, or this container, also has to hold what processes "
            f"use, and a scheduler may allow a job less; {without}"
        )
    return share


def _bytes(files: Sequence[bytes]) -> int:
    """Of all files, by the mean of an even sample. Raises OSError."""
    return int(_mean_bytes(files) * len(files))


def _mean_bytes(files: Sequence[bytes]) -> float:
    sizes = [os.stat(path).st_size for path in _even(files, MOST)]
    return sum(sizes) / max(1, len(sizes))


def _gb(size: int) -> str:
    return f"{size / 1e9:,.1f} GB"


def _why_they_stay(files: Sequence[bytes]) -> str:
    """The reason, as far as it can be told from outside."""
    stay = [path for path in _even(files, MOST) if _stays(path)] or [files[0]]
    kinds = [IN_MEMORY[kind] for kind in map(_kind, stay) if kind in IN_MEMORY]
    if kinds:
        return f"{show(os.path.dirname(stay[0]))} is kept in memory and not on a disk ({kinds[0]})"
    holders = _mapped_by({os.path.realpath(path) for path in stay})
    for path, process in holders.items():
        return f"{process} maps {show(path)}" + (f" and {len(holders) - 1:,} more" if len(holders) > 1 else "")
    return (
        f"happens where somebody else reads them, where a process of another user maps them, and on a file system that "
        f"drops nothing (the first is {show(stay[0])})"
    )


def _stays(path: bytes) -> bool:
    inside, size = of_file(path)
    return inside > COLD * size


def _kind(path: bytes) -> int:
    with opened(path) as descriptor:
        return file_system(descriptor)


def _mapped_by(files: Set[bytes]) -> Dict[bytes, str]:
    """The files that a process maps into its memory, and which one does; other users' cannot be looked into."""
    found: Dict[bytes, str] = {}
    for process in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError), open(f"/proc/{process}/maps", "rb") as lines:
            for line in lines:
                path = line.rstrip(b"\n").split(None, 5)[5:]
                if path and path[0] in files:
                    name = text_of(f"/proc/{process}/comm").strip()
                    found.setdefault(path[0], f"process {process} ({name})")
    return found
