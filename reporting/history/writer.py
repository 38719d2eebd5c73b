"""Writes the lines of this session to the history. A line is on the disk when `write` returns.

A session has two files of its own, so writers need no lock: `<month>/<name>.jsonl` holds its envelopes, and
`<month>/<name>.runs.jsonl` the run.json's that they refer to. The line of a run.json is written first, so that an
envelope never refers to a line that is missing.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import stat
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from platforms import atomic_file
from platforms.job import RefusedError
from platforms.rundir.job_json import as_json
from reporting.history.envelope import Envelope, Key, RunReference
from reporting.history.envelope_json import to_line


class HistoryWriter:
    """This session's files in the history. Any thread may call `write`.

    The first write makes the files, so that a session without jobs leaves none. The month is that in which the session
    began. The files are not kept open, because a session may wait for hours and a file server may restart meanwhile.

    Args:
        folder: of the history. It is made if it does not exist.
        clock: gives Unix seconds.

    Raises:
        RefusedError: nothing can be written there. So make a writer before you submit a job.
    """

    def __init__(self, folder: Path, clock: Callable[[], float] = time.time) -> None:
        began = time.gmtime(clock())
        self._folder = folder
        self._month = time.strftime("%Y-%m", began)
        self._name = f"{time.strftime('%Y%m%dT%H%M%SZ', began)}-{secrets.token_hex(4)}"
        self._lock = threading.Lock()
        self._created: set[str] = set()
        self._torn: dict[str, int] = {}  # by file, where a line begins that could not be written as a whole
        self._runs: dict[Key, tuple[bytes, RunReference]] = {}  # with the digest of the line
        _try_folder(folder, self._month)

    def write(self, envelope: Envelope, run_json: Mapping[str, object] | None) -> Envelope:
        """Write an envelope, and the content of the job's run.json if there is one.

        If this session writes a key again and the run.json has not changed, the new envelope refers to the line that
        exists.

        Returns:
            The envelope with the reference to its run.json.

        Raises:
            RefusedError: the disk is full, for example. The same envelope can be written again later.
        """
        with self._lock:
            envelope = replace(envelope, run=self._reference(envelope, run_json))
            self._append(f"{self._month}/{self._name}.jsonl", to_line(envelope))
        return envelope

    def write_all(self, envelopes: Sequence[Envelope]) -> None:
        """Write many envelopes at once, without run.json's. All are on the disk when this returns.

        If the process is killed meanwhile, only the first ones may be there.

        Raises:
            RefusedError: the disk is full, for example.
        """
        with self._lock:
            self._append(f"{self._month}/{self._name}.jsonl", b"".join(map(to_line, envelopes)))

    def _reference(self, envelope: Envelope, run_json: Mapping[str, object] | None) -> RunReference | None:
        digest, known = self._runs.get(envelope.key, (b"", envelope.run))
        if run_json is None:
            return known
        line = as_json(run_json, compact=True).encode()
        new_digest = hashlib.sha256(line).digest()
        if known is not None and new_digest == digest:
            return known
        file = f"{self._month}/{self._name}.runs.jsonl"
        reference = RunReference(file, self._append(file, line + b"\n"), len(line))
        self._runs[envelope.key] = new_digest, reference
        return reference

    def _append(self, name: str, line: bytes) -> int:
        """Add a line to one of this session's files. Returns where it begins, in bytes. Raises RefusedError."""
        path = self._folder / name
        try:
            make_month(self._folder, self._month)
            file = self._open(name)
            try:
                size = os.fstat(file).st_size
                begin = min(size, self._torn.get(name, size))
                if begin < size:
                    os.ftruncate(file, begin)
                self._torn[name] = begin
                _write_whole(file, line)
                os.fsync(file)
                del self._torn[name]
            finally:
                os.close(file)
        except OSError as error:
            raise _unwritable(path, error) from None
        return begin

    def _open(self, name: str) -> int:
        path = self._folder / name
        if name in self._created:
            return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL, 0o644)
        self._created.add(name)
        with contextlib.suppress(OSError):  # a file system without permission bits
            os.fchmod(file, 0o200 | _mode(self._folder) & 0o444)
        with contextlib.suppress(OSError):  # one that cannot flush folders
            atomic_file.sync_folder(path.parent)
        return file


def _try_folder(folder: Path, month: str) -> None:
    """Write a file and remove it, so that a history which cannot be written is refused before a job is submitted.

    Args:
        folder: of the history. It is made if it does not exist.
        month: the folder in it, as in `2026-11`.

    Raises:
        RefusedError: nothing can be written there.
    """
    probe = folder / month / f".probe-{secrets.token_hex(8)}"
    try:
        make_month(folder, month)
        file = os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        try:
            _write_whole(file, b"\n")
            os.fsync(file)
        finally:
            os.close(file)
            probe.unlink()
    except OSError as error:
        raise _unwritable(probe.parent, error) from None


def make_month(folder: Path, month: str) -> None:
    """Make the folder of a month. Everyone who may write to the history may write there, whatever the umask is."""
    path = folder / month
    if path.is_dir():
        return
    folder.mkdir(parents=True, exist_ok=True)
    path.mkdir(exist_ok=True)
    with contextlib.suppress(OSError):  # another session has made it, or the file system has no permission bits
        path.chmod(_mode(folder))
    with contextlib.suppress(OSError):  # a file system that cannot flush folders
        atomic_file.sync_folder(folder)


def _mode(folder: Path) -> int:
    return stat.S_IMODE(folder.stat().st_mode)


def _write_whole(file: int, content: bytes) -> None:
    while content:
        content = content[os.write(file, content) :]


def _unwritable(path: Path, error: OSError) -> RefusedError:
    return RefusedError(
        f"{path}: the history cannot be written: {error.strerror} (make it writable, or name another folder with "
        "--history=DIR or with `history:` in site.yaml)"
    )
