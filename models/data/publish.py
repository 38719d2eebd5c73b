"""Writes a synthetic data set with several processes, and lets it appear as a whole folder or not at all."""

from __future__ import annotations

import errno
import multiprocessing
import os
import secrets
import shlex
import shutil
import signal
import socket
import time
from multiprocessing.connection import wait
from typing import Any, Callable, Dict

from models.data.files import show
from models.errors import Impossible, JobError

DEAD_AFTER_S, SILENT_AFTER_S = 60.0, 3600.0  # since a writer last touched its folder
TOUCH_EVERY = 16  # files


def check_space(folder: str, files: int, bytes_per_file: int) -> str:
    """What the set needs and what the file system has, as one line. Raises Impossible when it cannot go there."""
    if os.path.ismount(folder):
        inside = os.path.join(folder, "set")
        raise Impossible(
            f"{show(folder)} is a mount point, and a set appears by renaming a whole folder: give a folder below it, "
            f"--data-dir {shlex.quote(show(inside))}"
        )
    place = folder
    while not os.path.isdir(place):
        place = os.path.dirname(place)
    needed, free = files * bytes_per_file, shutil.disk_usage(place).free
    line = f"{files:,} files need {needed / 1e9:,.2f} GB, {show(place)} has {free / 1e9:,.2f} GB free"
    if needed > free:
        raise Impossible(f"{line}: give a --data-dir on a larger file system, or a smaller --size")
    return line


def publish(folder: str, fill: Callable[[str], object]) -> bool:
    """Call `fill` with a new folder beside `folder`, then rename it to `folder`.

    Returns False, and removes what was written, when somebody else put a set there meanwhile. Whatever goes wrong,
    nothing is left behind; a file system that refuses is Impossible.
    """
    part = _new_part(folder)
    try:
        fill(part)
        return _rename(part, folder)
    except OSError as error:
        raise Impossible(
            f"writing {show(folder)} failed, nothing was left there ({error.strerror}): give a --data-dir on another "
            f"file system, or make room"
        ) from None
    finally:
        shutil.rmtree(part, ignore_errors=True)


def remove_leftovers(folder: str, now: Callable[[], float] = time.time) -> None:
    """Delete what killed writers left: dead on this machine and silent for a minute, or silent for an hour anywhere."""
    parent, start = os.path.dirname(folder), _part_start(folder)
    for entry in os.listdir(parent) if os.path.isdir(parent) else []:
        if not entry.startswith(start):
            continue
        path = os.path.join(parent, entry)
        try:
            silent_s = now() - os.stat(path).st_mtime
            host, pid, _ = entry[len(start) :].rsplit("-", 2)
        except (OSError, ValueError):
            continue
        dead = host == socket.gethostname() and not os.path.exists(f"/proc/{pid}")
        if silent_s > SILENT_AFTER_S or (dead and silent_s > DEAD_AFTER_S):
            shutil.rmtree(path, ignore_errors=True)


def write_files(
    part: str,
    write: Callable[[str, int], int],
    files: int,
    processes: int,
    progress: Callable[[int, int], None],
    *,
    files_per_process: int = 64,
) -> int:
    """Call write(part, index) for every index below `files`, in at most `processes` processes; returns the sum of what
    it returned, the bytes. `write` must survive pickling; progress(done, files) is called here. files_per_process: how
    many are worth the half second in which a process starts."""
    done = total = 0

    def wrote(size: int) -> None:
        nonlocal done, total
        done, total = done + 1, total + size
        if done % TOUCH_EVERY == 0:
            os.utime(part)  # so that nobody takes it for a leftover
        progress(done, files)

    processes = min(processes, -(-files // files_per_process))
    if processes > 1:
        _in_parallel(part, write, files, processes, wrote)
    else:
        for index in range(files):
            wrote(write(part, index))
    return total


def _rename(part: str, folder: str) -> bool:
    try:
        os.rename(part, folder)  # takes the place of an empty folder, never of a full one
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
            return False
        raise
    return True


def _part_start(folder: str) -> str:
    return f".{os.path.basename(folder)}.part-"


def _new_part(folder: str) -> str:
    """The folder that is filled and then renamed; its name says who fills it."""
    parent = os.path.dirname(folder)
    part = os.path.join(parent, f"{_part_start(folder)}{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}")
    try:
        os.makedirs(part)  # with the user's umask: others may have to read the set
    except OSError as error:
        raise Impossible(f"{show(parent)} cannot be written to ({error.strerror}): give another --data-dir") from None
    return part


def _in_parallel(
    part: str, write: Callable[[str, int], int], files: int, processes: int, wrote: Callable[[int], None]
) -> None:
    """Each process writes every `processes`-th file and tells its size through a pipe of its own.

    No pool: its workers outlive a parent that is killed; these fail to write to their pipe and end.
    """
    context = multiprocessing.get_context("spawn")
    started: Dict[Any, Any] = {}
    try:
        for first in range(processes):
            ours, theirs = context.Pipe(duplex=False)
            process = context.Process(target=_process, args=(theirs, part, write, range(first, files, processes)))
            process.start()
            theirs.close()
            started[ours] = process
        waiting = list(started)
        while waiting:
            for pipe in wait(waiting):
                try:
                    wrote(_size(pipe.recv()))  # type: ignore[union-attr,call-arg]
                except EOFError:
                    waiting.remove(pipe)
                    _check_end(started[pipe])
    finally:
        for pipe, process in started.items():
            pipe.close()
            process.terminate()
            process.join()


def _process(pipe: Any, part: str, write: Callable[[str, int], int], indices: range) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent answers Ctrl-C, and ends this one
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
        raise JobError(
            f"a process that wrote the data set ended with exit code {process.exitcode} (-9: killed, often for "
            f"memory), nothing was left behind: try again with --processes 1"
        )
