"""Which lines an index does not have yet, and how it gets them.

A session's file grows while the session lives. So a file that has changed is read from where the last reading ended,
if all before that is still the same; else the whole file is read again. A last line without an end may be half of a
line that is being written: it counts if it can be understood, and is read again with what follows.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from platforms.printable import printable
from reporting.history.envelope import Revision
from reporting.history.envelope_json import job_of, job_that_ended
from reporting.history.files import Files, unreadable
from reporting.history.index_rows import COLUMNS, LINES, Row, RowMaker, restored, storable
from reporting.history.index_shares import Share, shares_of

LONGEST_START = 1000  # of a damaged line that is kept: its test stands there
CLOCK_STEP_NS = 2_000_000_000  # a file may change twice in this time, and have the same time of change
MUCH = 1 << 23  # bytes, which not every command is to compare again
_BLOCK = 1 << 23  # bytes that are read together

_COLUMNS = ", ".join(f"{name} {of_type}".strip() for name, of_type in COLUMNS.items())
TABLES = f"""
    CREATE TABLE file (id INTEGER PRIMARY KEY, path TEXT UNIQUE, size, changed, length, lines, digest, latest_s);
    CREATE TABLE damage (line INTEGER PRIMARY KEY, why, start);
    CREATE TABLE kind (id INTEGER PRIMARY KEY, content, site, test);
    CREATE TABLE part (id INTEGER PRIMARY KEY, content);
    CREATE TABLE line ({_COLUMNS}, last DEFAULT 1);
    CREATE VIEW job AS
        SELECT site, test, json_extract(kind.content, '$.platform') AS platform,
            json_extract(kind.content, '$.outcome') AS outcome, json_extract(kind.content, '$.sane') AS sane,
            coalesce(json_extract(kind.content, '$.role'), 'measure') AS role,
            (SELECT json_extract(content, '$') FROM part WHERE id = line.run_id) AS run_id, job_id,
            (SELECT json_extract(content, '$') FROM part WHERE id = coalesce(line.node, line.nodes)) AS nodes,
            datetime(time_s, 'unixepoch') AS started, metric.key AS metric,
            CASE typeof(numbers) WHEN 'text' THEN json_extract(numbers, '$[0]') ELSE numbers END AS value,
            json_extract(metric.value, '$.unit') AS unit
        FROM line JOIN kind ON kind.id = line.kind, json_each(kind.content, '$.metrics') AS metric
        WHERE last AND metric.id = (SELECT min(id) FROM json_each(kind.content, '$.metrics'));
"""
"""`job` is for people (docs/history.md): the last line of each job with numbers, and its first metric."""
# They are made when the lines of the first reading are there, which is quicker.
_INDEXES = (
    "CREATE INDEX IF NOT EXISTS by_key ON line (key)",
    "CREATE INDEX IF NOT EXISTS by_kind ON line (kind, last, time_s)",
)

Shown = Callable[[int], None]


@dataclass(frozen=True)
class _Known:
    """What an index knows of a file.

    Attributes:
        size, changed: of the whole file, when it was last compared. `changed` is "" if it may have changed at that
            very time.
        length, lines: of its complete lines, in bytes and in number.
        digest: of these bytes.
    """

    id: int
    size: int = 0
    changed: str = ""
    length: int = 0
    lines: int = 0
    digest: bytes = b""


# --- files -----------------------------------------------------------------------------------------------------------


def _stamp(found: os.stat_result) -> str:
    return f"{found.st_mtime_ns} {found.st_ctime_ns}"


def _known(index: sqlite3.Connection) -> dict[str, _Known]:
    files = index.execute("SELECT path, id, size, changed, length, lines, digest FROM file")
    return {restored(path): _Known(*rest) for path, *rest in files}


def _lines_of(file: int, after: int = 0) -> tuple[int, int]:
    """Between which ids the lines of a file are that follow its first ones."""
    return file * LINES + after, (file + 1) * LINES


# --- what is new -----------------------------------------------------------------------------------------------------


def is_current(index: sqlite3.Connection, folder: Path, files: Files, problems: list[str]) -> bool:
    """Whether an index has all lines of these files, and no others.

    Args:
        problems: gets a sentence for each file that cannot be read.
    """
    known = _known(index)
    if not known.keys() <= files.keys():
        return False
    compared = 0
    said = []
    for path in _changed(known, files):
        before = known.get(path)
        try:
            with (folder / path).open("rb") as file:
                if before is None or not _begins_as(file, before, hashlib.blake2b(digest_size=16)) or file.read(1):
                    return False
        except OSError as error:
            if before is not None:
                return False
            said.append(unreadable(folder / path, error))
        else:
            compared += before.length if _is_settled(files[path]) else 0
    if compared >= MUCH:
        return False
    problems += said
    return True


def _changed(known: Mapping[str, _Known], files: Files) -> list[str]:
    changed = []
    for path, found in files.items():
        before = known.get(path)
        if before is None or (before.size, before.changed) != (found.st_size, _stamp(found)):
            changed.append(path)
    return changed


def _is_settled(found: os.stat_result) -> bool:
    """Whether a change after now has another time than the last one."""
    return time.time_ns() - max(found.st_mtime_ns, found.st_ctime_ns) > CLOCK_STEP_NS


def _begins_as(file: BinaryIO, before: _Known, digest: Any) -> bool:
    """Whether the lines that are known stand at the beginning of a file. The file is then read up to their end."""
    left = before.length
    while left and (piece := file.read(min(left, 1 << 20))):
        digest.update(piece)
        left -= len(piece)
    return not left and digest.digest() == before.digest


def blocks(file: BinaryIO) -> Iterator[list[bytes]]:
    """The lines of a file, many at a time. If the last one has no end yet, it is a block of its own, and the last.

    Reading single lines would not do: half a line that is being written, and its other half, would be two.
    """
    rest = b""
    while piece := file.read(_BLOCK):
        *complete, rest = (rest + piece).split(b"\n")
        if complete:
            yield [line + b"\n" for line in complete]
    if rest:
        yield [rest]


# --- reading ---------------------------------------------------------------------------------------------------------


def update(index: sqlite3.Connection, folder: Path, files: Files, shown: Shown, file: Path | None = None) -> list[str]:
    """Bring an index to what the files have now.

    Args:
        shown: is told now and then how many bytes were read.
        file: of the index, beside which other processes may write; None if it is in memory.

    Returns:
        A sentence for each file that cannot be read.
    """
    known = _known(index)
    updating = _Updating(index, folder, known, shown)
    for path in known.keys() - files.keys():
        updating.drop(known[path])
    changed = _changed(known, files)
    if updating.is_first and file is not None:
        problems = _read_in_shares(updating, file, {path: files[path].st_size for path in changed})
    else:
        problems = updating.read_all(changed)
    updating.settle()
    return problems


def _read_in_shares(updating: _Updating, file: Path, sizes: Mapping[str, int]) -> list[str]:
    """Read files into an index without rows. Returns a sentence for each one that cannot be read."""

    def read(index: sqlite3.Connection, paths: list[str]) -> bool:
        index.execute("PRAGMA synchronous = OFF")
        index.execute("PRAGMA journal_mode = OFF")
        index.executescript(TABLES)
        return not _Updating(index, updating.folder, {}, shown=lambda _: None).read_all(paths)

    mine, *rest = shares_of(sizes)
    others = [Share(paths, file.with_name(f"{file.name}.{number}"), read) for number, paths in enumerate(rest)]
    try:
        problems = updating.read_all(mine, of_all=len(rest) + 1)
        for share in others:
            if share.is_complete():
                updating.merge(share.path)
            else:
                problems += updating.read_all(share.files)
    finally:
        for share in others:
            share.remove()
    return problems


class _Updating:
    """Brings an index to what files say.

    Attributes:
        folder: of the history.
        is_first: the index has no rows yet.
    """

    def __init__(self, index: sqlite3.Connection, folder: Path, known: Mapping[str, _Known], shown: Shown) -> None:
        self.folder = folder
        self.is_first = not index.execute("SELECT 1 FROM line LIMIT 1").fetchone()
        self._index = index
        self._known = known
        self._shown = shown
        self._made = RowMaker()
        self._damaged: dict[bytes, int] = {}  # damaged lines of the present file that say the end of a job, by the job
        self._keys: set[int] | None = None if self.is_first else set()  # of jobs whose lines have changed; None: all
        if self.is_first:
            index.execute("DROP INDEX IF EXISTS by_key")
            index.execute("DROP INDEX IF EXISTS by_kind")

    def read_all(self, paths: Sequence[str], of_all: int = 1) -> list[str]:
        """Read what is new in files. Returns a sentence for each one that cannot be read.

        Args:
            of_all: so many processes read as much at the same time.
        """
        problems = []
        for path in paths:
            before = self._known.get(path) or self._new_file(path)
            try:
                self._shown(of_all * self._read(path, before))
            except OSError as error:
                self.drop(before)
                problems.append(unreadable(self.folder / path, error))
        return problems

    def merge(self, path: Path) -> None:
        """Add the rows of another index, which has other files."""
        self._index.commit()  # within a transaction no database can be attached
        self._index.execute("ATTACH ? AS other", (os.fsencode(path),))
        (files,) = self._index.execute("SELECT coalesce(max(id), 0) FROM main.file").fetchone()
        for table, first, rest, shift in (
            ("file", "id", "path, size, changed, length, lines, digest, latest_s", files),
            ("damage", "line", "why, start", files * LINES),
            ("line", "id", f"{', '.join(list(COLUMNS)[1:])}, last", files * LINES),
        ):
            copy = f"INSERT INTO main.{table} SELECT {first} + ?, {rest} FROM other.{table}"
            self._index.execute(copy, (shift,))
        for table in ("kind", "part"):
            self._index.execute(f"INSERT OR IGNORE INTO main.{table} SELECT * FROM other.{table}")
        self._index.commit()
        self._index.execute("DETACH other")

    def _new_file(self, path: str) -> _Known:
        cursor = self._index.execute("INSERT INTO file (path) VALUES (?)", (storable(path),))
        assert cursor.lastrowid is not None
        return _Known(cursor.lastrowid)

    def drop(self, file: _Known) -> None:
        """Forget a file."""
        self._forget(file, 0)
        self._index.execute("DELETE FROM file WHERE id = ?", (file.id,))

    def _forget(self, file: _Known, lines: int) -> None:
        """Forget what follows so many lines of a file."""
        after = _lines_of(file.id, lines)
        if self._keys is not None:
            self._keys.update(
                key for (key,) in self._index.execute("SELECT key FROM line WHERE id > ? AND id < ?", after)
            )
        self._index.execute("DELETE FROM line WHERE id > ? AND id < ?", after)
        self._index.execute("DELETE FROM damage WHERE line > ? AND line < ?", after)

    def _read(self, path: str, before: _Known) -> int:
        """Read the new lines of a file. Returns their bytes. Raises OSError."""
        digest = hashlib.blake2b(digest_size=16)
        with (self.folder / path).open("rb") as file:
            found = os.fstat(file.fileno())
            if not _begins_as(file, before, digest):
                before, digest = _Known(before.id), hashlib.blake2b(digest_size=16)
                file.seek(0)
            self._forget(before, before.lines)
            damage = "SELECT line, start FROM damage WHERE line > ? AND line < ?"
            found_damaged = self._index.execute(damage, _lines_of(before.id))
            self._damaged = {job: line for line, start in found_damaged if (job := job_that_ended(start)) is not None}
            lines, length = before.lines, before.length
            for block in blocks(file):
                self._add(list(enumerate(block, before.id * LINES + lines + 1)))
                if block[-1].endswith(b"\n"):
                    complete = b"".join(block)
                    digest.update(complete)
                    lines, length = lines + len(block), length + len(complete)
        changed = _stamp(found) if _is_settled(found) else ""
        values = (found.st_size, changed, length, lines, digest.digest(), *_lines_of(before.id))
        self._index.execute(
            "UPDATE file SET size = ?, changed = ?, length = ?, lines = ?, digest = ?, "
            "latest_s = (SELECT max(time_s) FROM line WHERE id > ? AND id < ?) WHERE id = ?",
            (*values, before.id),
        )
        return length - before.length

    def _add(self, lines: Sequence[tuple[int, bytes]]) -> None:
        """Add some lines of a file, with the ids of their rows.

        That a job has ended is known of nearly all jobs by a later line, so that this one need not be understood. Half
        a line or one of the future may not stay that later line.
        """
        now_s = time.time()
        rows: list[Row] = []
        ended: dict[bytes, list[tuple[int, bytes]]] = {}
        for row_id, line in lines:
            job = job_that_ended(line)
            if job is not None:
                ended.setdefault(job, []).append((row_id, line))
                continue
            row = self._row(row_id, line)
            if row is not None:
                rows.append(row)
                if row[2] > Revision.JOB_ENDED and row[4] <= now_s and line.endswith(b"\n"):
                    ended.pop(job_of(line), None)
                    if job_of(line) in self._damaged:  # read with this line, it would not have been looked at
                        self._index.execute("DELETE FROM damage WHERE line = ?", (self._damaged[job_of(line)],))
        rows += filter(None, itertools.starmap(self._row, itertools.chain(*ended.values())))
        self._write(rows)

    def _row(self, row_id: int, line: bytes) -> Row | None:
        try:
            return self._made.row(line, row_id)
        except ValueError as error:
            if line.endswith(b"\n") and line.strip():
                damage = row_id, printable(str(error)), line[:LONGEST_START]
                self._index.execute("INSERT INTO damage VALUES (?, ?, ?)", damage)
            return None

    def _write(self, rows: list[Row]) -> None:
        columns = ", ".join(COLUMNS)
        marks = ", ".join("?" * len(COLUMNS))
        self._index.executemany(f"INSERT INTO line ({columns}) VALUES ({marks})", rows)
        self._index.executemany("INSERT OR IGNORE INTO kind VALUES (?, ?, ?, ?)", self._made.kinds)
        self._index.executemany("INSERT OR IGNORE INTO part VALUES (?, ?)", self._made.parts)
        self._made.kinds.clear()
        self._made.parts.clear()
        self._made.forget()
        if self._keys is not None:
            self._keys.update(row[1] for row in rows)

    def settle(self) -> None:
        """Mark the last line of each job: of those with the highest revision the one that was written last."""
        for statement in _INDEXES:
            self._index.execute(statement)
        keys: Iterable[int] = self._keys if self._keys is not None else ()
        if self._keys is None:
            keys = [key for (key,) in self._index.execute("SELECT key FROM line GROUP BY key HAVING count(*) > 1")]
        paths = {file.id: path for path, file in _known(self._index).items()}
        for key in keys:
            found = self._index.execute(
                "SELECT id, revision, written_s, last FROM line WHERE key = ?", (key,)
            ).fetchall()
            final = max(found, default=None, key=lambda row: (row[1], row[2], paths[row[0] // LINES], row[0]))
            changed = [(row is final, row[0]) for row in found if row[3] != (row is final)]
            self._index.executemany("UPDATE line SET last = ? WHERE id = ?", changed)
