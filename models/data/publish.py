"""Writes a synthetic data set with several processes; its folder appears complete or not at all."""

from __future__ import annotations

import errno
import glob
import multiprocessing
import os
import secrets
import shlex
import shutil
import signal
from multiprocessing.connection import wait
from typing import Any, Callable, Dict

from models.data.file_list import printable
from models.errors import CommandError, ImpossibleRequest


def check_space(folder: str, files: int, bytes_per_file: int) -> str:
    """Return in one line how much space the set needs, how much is free, and what others have begun.

    They may still write on another machine, so none of their folders is deleted here. Raises
    ImpossibleRequest if the set does not fit, or if `folder` is a mount point.
    """
    if os.path.ismount(folder):
        inside = os.path.join(folder, "set")
        raise ImpossibleRequest(
            f"{printable(folder)} is a mount point, and a set appears by renaming a whole folder: give a folder below "
            f"it, --data-dir {shlex.quote(printable(inside))}"
        )
    existing = folder
    while not os.path.isdir(existing):
        existing = os.path.dirname(existing)
    needed = files * bytes_per_file
    free = shutil.disk_usage(existing).free
    line = f"{files:,} files need {needed / 1e9:,.2f} GB, {printable(existing)} has {free / 1e9:,.2f} GB free"
    unfinished = sorted(glob.glob(glob.escape(_part_start(folder)) + "*"))
    if unfinished:
        names = shlex.join(map(printable, unfinished))
        line += f"; others began to write here; if none of them runs any more, free their space: rm -r {names}"
    if needed > free:
        raise ImpossibleRequest(f"{line}: give a --data-dir on a larger file system, or a smaller --size")
    return line


def publish(folder: str, fill: Callable[[str], object]) -> bool:
    """Call `fill` with a new folder beside `folder`, then rename it to `folder`.

    Return False, and remove what was written, if another writer has put a set there meanwhile. An error leaves nothing
    behind; one of the file system raises ImpossibleRequest.
    """
    part = _new_part(folder)
    try:
        fill(part)
        return _rename(part, folder)
    except OSError as error:
        raise ImpossibleRequest(
            f"writing {printable(folder)} failed, nothing was left there ({error.strerror}): give a --data-dir on "
            f"another file system, or make room"
        ) from None
    finally:
        shutil.rmtree(part, ignore_errors=True)


def write_files(
    part: str,
    write: Callable[[str, int], int],
    files: int,
    processes: int,
    progress: Callable[[int, int], None],
    *,
    files_per_process: int = 64,
) -> int:
    """Call write(part, index) for every index below `files`; return the sum of its results, the bytes.

    write: must survive pickling, as it is called in at most `processes` processes. progress(done, files) is called in
    this one. files_per_process: how many are worth the half second in which a process starts.
    """
    done = 0
    total_bytes = 0

    def on_written(size: int) -> None:
        nonlocal done, total_bytes
        done += 1
        total_bytes += size
        progress(done, files)

    processes = min(processes, -(-files // files_per_process))
    if processes > 1:
        _in_parallel(part, write, files, processes, on_written)
    else:
        for index in range(files):
            on_written(write(part, index))
    return total_bytes


def _rename(part: str, folder: str) -> bool:
    try:
        os.rename(part, folder)  # replaces an empty folder, but no other
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
            return False
        raise
    return True


def _part_start(folder: str) -> str:
    """Return how the paths begin of the folders beside `folder` that writers fill."""
    parent, name = os.path.split(folder)
    return os.path.join(parent, f".{name}.part-")


def _new_part(folder: str) -> str:
    """Make the folder that is filled and then renamed."""
    part = _part_start(folder) + secrets.token_hex(4)
    try:
        os.makedirs(part)  # with the user's umask: others may have to read the set
    except OSError as error:
        raise ImpossibleRequest(
            f"{printable(os.path.dirname(folder))} cannot be written to ({error.strerror}): give another --data-dir"
        ) from None
    return part


def _in_parallel(
    part: str, write: Callable[[str, int], int], files: int, processes: int, on_written: Callable[[int], None]
) -> None:
    """Let each process write every `processes`-th file and send its size through a pipe of its own.

    A pool would not do, because its workers outlive a parent that is killed; these fail to write to their pipe and end.
    """
    context = multiprocessing.get_context("spawn")
    started: Dict[Any, Any] = {}
    try:
        for first in range(processes):
            ours, theirs = context.Pipe(duplex=False)
            process = context.Process(target=_write_some, args=(theirs, part, write, range(first, files, processes)))
            process.start()
            theirs.close()
            started[ours] = process
        waiting = list(started)
        while waiting:
            for pipe in wait(waiting):
                try:
                    on_written(_size(pipe.recv()))  # type: ignore[union-attr,call-arg]
                except EOFError:
                    waiting.remove(pipe)
                    _check_end(started[pipe])
    finally:
        for pipe, process in started.items():
            pipe.close()
            process.terminate()
            process.join()


def _write_some(pipe: Any, part: str, write: Callable[[str, int], int], indices: range) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # on Ctrl-C the parent ends this process
    try:
        for index in indices:
            pipe.send(write(part, index))
    except BrokenPipeError:
        return  # the parent is gone
    except OSError as error:
        pipe.send(error)


def _size(message: Any) -> int:
    if isinstance(message, OSError):
        raise message
    return int(message)


def _check_end(process: Any) -> None:
    process.join()
    if process.exitcode:
        raise CommandError(
            f"a process that wrote the data set ended with exit code {process.exitcode} (-9: killed, often for "
            f"memory), nothing was left behind: try again with --processes 1"
        )
