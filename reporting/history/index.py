"""The index of a history: what its lines say, in a file of SQLite beside them, so that no command parses a year again.

The lines are the record. The index is made of them alone, and may be deleted at any time: the next command makes it
again. Nothing stands in it that depends on the present time, on site.yaml, or on people's answers.

Nobody writes to an index that others may read: a command changes a copy, and renames it to the index. So no lock of a
database is needed, which shared file systems do not always keep, and a command that is killed leaves a copy behind and
nothing else. Two commands that add lines at once both know all lines; the later copy stays.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import sqlite3
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote

from reporting.history.files import Files, files_of
from reporting.history.index_update import TABLES, Shown, is_current, update

INDEX_NAME = ".index-1.sqlite"  # another number for other tables, and for lines that are understood otherwise
ABANDONED_S = 3600.0  # the age of a copy whose command was killed
SLOW_S = 2.0  # who waits for longer sees how far the reading is

Answer = TypeVar("Answer")
Question = Callable[[sqlite3.Connection], Answer]

_in_memory: dict[Path, sqlite3.Connection] = {}
"""The indexes that cannot be written, by the folders of their histories."""


def ask(folder: Path, problems: list[str], question: Question[Answer]) -> Answer:
    """Answer a question to the index of a history, which has all lines that are there now.

    Args:
        problems: gets a sentence for each part of the history that cannot be read.
        question: reads the index. It is asked again where the file turns out to be damaged.
    """
    files = files_of(folder, problems)
    try:
        return _answer(folder, files, problems, question, anew=False)
    except Exception:  # a damaged file may have any answer
        if folder in _in_memory:
            _in_memory.pop(folder).close()
        return _answer(folder, files, problems, question, anew=True)


def _answer(folder: Path, files: Files, problems: list[str], question: Question[Answer], *, anew: bool) -> Answer:
    said: list[str] = []
    index = _current(folder, files, said, anew=anew)
    try:
        answer = question(index)
    finally:
        if index is not _in_memory.get(folder):
            index.close()
    problems += said
    return answer


def _current(folder: Path, files: Files, problems: list[str], *, anew: bool) -> sqlite3.Connection:
    """The index with all lines that the files have now.

    Args:
        anew: it is made of the lines alone.

    Raises sqlite3.DatabaseError where the file is damaged, or no index.
    """
    path = folder / INDEX_NAME
    index = None if anew else _in_memory.get(folder) or _opened(path)
    if index is None and not files:
        return _with_tables(":memory:")
    if index is not None:
        try:
            if is_current(index, folder, files, problems):
                return index
        except BaseException:
            index.close()
            raise
    remark = ""
    if folder not in _in_memory:
        if index is not None:
            index.close()
        try:
            return _written(path, folder, files, problems, anew=anew)
        except (OSError, sqlite3.OperationalError) as error:
            why = error.strerror if isinstance(error, OSError) else str(error)
            remark = f"{path} cannot be written ({why}), so each command reads the lines again"
            _in_memory[folder] = _copied(None if anew else _opened(path))
    with progress(files, remark) as shown:
        problems += update(_in_memory[folder], folder, files, shown)
    return _in_memory[folder]


def _opened(path: Path) -> sqlite3.Connection | None:
    return _read_only(path) if path.exists() else None


def _read_only(path: Path) -> sqlite3.Connection:
    # It never changes, so SQLite need not lock it.
    index = sqlite3.connect(f"file:{quote(os.fsencode(path))}?mode=ro&immutable=1", uri=True)
    try:
        index.execute("SELECT id FROM file LIMIT 1")  # only this opens the file
    except sqlite3.Error:
        index.close()
        raise
    return index


def _written(path: Path, folder: Path, files: Files, problems: list[str], *, anew: bool) -> sqlite3.Connection:
    """Write an index with all lines. Raises OSError and sqlite3.OperationalError where that fails."""
    draft = path.with_name(f"{INDEX_NAME}.{os.getpid()}.{secrets.token_hex(4)}")
    try:
        _remove_abandoned(folder)
        if path.exists() and not anew:
            shutil.copyfile(path, draft)
            index = sqlite3.connect(draft)
        else:
            index = _with_tables(draft)
        with contextlib.closing(index):
            index.execute("PRAGMA synchronous = OFF")  # it is flushed once, as a whole
            index.execute("PRAGMA journal_mode = OFF")
            with progress(files) as shown:
                said = update(index, folder, files, shown, file=draft)
            index.commit()
        draft.chmod(0o600 | (folder.stat().st_mode & 0o044))  # who may list the folder reads it, whatever the umask
        with draft.open("rb") as file:
            os.fsync(file.fileno())
        # Once it is renamed, another command may put its own in its place, which lacks what has come since it looked.
        written = _read_only(draft)
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
    problems += said
    return written


def _with_tables(path: Path | str) -> sqlite3.Connection:
    index = sqlite3.connect(path, check_same_thread=False)  # one in memory is asked by all threads
    index.executescript(TABLES)
    return index


def _copied(index: sqlite3.Connection | None) -> sqlite3.Connection:
    """A copy in memory; an empty index of None."""
    if index is None:
        return _with_tables(":memory:")
    copy = sqlite3.connect(":memory:", check_same_thread=False)
    with contextlib.closing(index):
        index.backup(copy)
    return copy


def _remove_abandoned(folder: Path) -> None:
    for draft in folder.glob(f"{INDEX_NAME}.*"):
        with contextlib.suppress(OSError):
            if time.time() - draft.stat().st_mtime > ABANDONED_S:
                draft.unlink()


@contextlib.contextmanager
def progress(files: Files, remark: str = "") -> Iterator[Shown]:
    """Show how far the reading is, where somebody looks at a terminal and waits; then the remark, if it took long."""
    began = time.monotonic()
    total = sum(found.st_size for found in files.values())
    done = 0
    drawn = False

    def shown(size: int) -> None:
        nonlocal done, drawn
        done += size
        if time.monotonic() - began > SLOW_S and sys.stderr.isatty():
            drawn = True
            print(f"\rreading the history: {100 * done // max(total, 1)} %", end="", file=sys.stderr, flush=True)

    try:
        yield shown
    finally:
        if drawn:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
        if remark and time.monotonic() - began > SLOW_S:
            print(remark, file=sys.stderr)
