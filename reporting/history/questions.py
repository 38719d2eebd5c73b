"""What commands ask the index of a history: its runs, its tests, and which of its lines cannot be read."""

from __future__ import annotations

import datetime
import itertools
import json
import math
import sqlite3
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path

from platforms.job import Role
from platforms.printable import printable
from reporting.history import one_device, same_values
from reporting.history.comparability import VALUES
from reporting.history.envelope import Envelope
from reporting.history.envelope_json import from_content, ids_in_lines, may_be_of
from reporting.history.index_rows import COLUMNS, LINES, MEASURED, EnvelopeMaker, Row, restored, storable
from reporting.history.measured import JobNumbers
from reporting.history.run_facts import THROUGHPUT

WHAT_TO_DO = " (copy the file again from a backup, or delete this line)"
CLOCKS_DIFFER_S = 86400.0  # at most, those of machines that write one history
_COLUMNS = ", ".join(COLUMNS)
_LINE = f"SELECT {_COLUMNS} FROM line"


class Questions:
    """Questions to an index.

    A job that is later than now counts as little as a damaged line: it would stay the latest one of its test for years.

    Args:
        folder: of the history, as messages name it.
    """

    def __init__(self, folder: Path, index: sqlite3.Connection) -> None:
        self._folder = folder
        self._index = index
        self._latest_s = time.time() + CLOCKS_DIFFER_S
        files = index.execute("SELECT id, path FROM file")
        self._paths = {file: restored(path) for file, path in files}
        self._file_order = {
            file: number for number, file in enumerate(sorted(self._paths, key=self._paths.__getitem__))
        }

    def envelopes(self, tests: Collection[str] | None, *, visits: bool) -> list[Envelope]:
        """The last envelope of each job, in the order in which the jobs started.

        Args:
            tests: ids, or `test_x.py::test_x[` for all cases of one; None stands for all tests.
            visits: False leaves visits to nodes out.
        """
        kinds = self._kinds(tests)
        if any(VALUES in like.fields for like in kinds.values()):
            # Which test a run is of follows from the runs beside it.
            make = EnvelopeMaker(kinds, self._part)
            runs = one_device.joined(same_values.joined(self._in_order(kinds, make)))
            return [run for run in runs if visits or run.trial.role is not Role.VISIT]
        chosen = self._named(kinds)
        if not visits:
            chosen = {kind: like for kind, like in chosen.items() if like.trial.role is not Role.VISIT}
        make = EnvelopeMaker(chosen, self._part)
        return self._in_order(chosen, make)

    def measured(
        self, site: str, is_wanted: Callable[[Envelope], bool], before_s: float = math.inf
    ) -> Iterator[JobNumbers] | None:
        """What jobs of a site have measured that started before a time, each test's in the order of their starts.

        Args:
            is_wanted: whether the jobs of a kind are asked for, by an envelope of it.

        Returns:
            None if that takes envelopes: the test or the number of a job follows from other lines or files.
        """
        kinds = {kind: like for kind, like in self._kinds(None).items() if like.key.site == site}
        if self._instead or any(VALUES in like.fields or may_lack_windows(like) for like in kinds.values()):
            return None
        chosen = {kind: like for kind, like in self._named(kinds).items() if is_wanted(like)}
        make = EnvelopeMaker(chosen, self._part)
        of_kind = f"SELECT {', '.join(MEASURED)} FROM line WHERE kind = ? AND last = 1 AND time_s < ?"
        until_s = min(before_s, self._latest_s)
        tests: dict[str, list[int]] = {}
        for kind, like in chosen.items():
            tests.setdefault(like.key.test, []).append(kind)
        files = self._file_order

        def of_test(kinds: Iterable[int]) -> list[Row]:
            rows = itertools.chain(*(self._index.execute(of_kind, (kind, until_s)) for kind in kinds))
            return sorted(rows, key=lambda row: (row[2], row[3], files[row[1] // LINES], row[1]))

        return map(make.measured, itertools.chain.from_iterable(map(of_test, tests.values())))

    def damage(self, tests: Collection[str] | None) -> list[str]:
        """A sentence for each file with lines that cannot be read, and that may be of these tests."""
        ids = None if tests is None else ids_in_lines(tests)
        found: dict[str, list[tuple[int, str]]] = {}
        for line, why, start in self._index.execute("SELECT line, why, start FROM damage"):
            if ids is None or may_be_of(start, ids):
                found.setdefault(self._paths[line // LINES], []).append((line % LINES, why))
        kinds = self._kinds(tests) if self._future else {}
        for row in self._future:
            if row[5] in kinds:
                start = datetime.datetime.fromtimestamp(row[4])
                why = f"its job started at {start:%Y-%m-%d %H:%M}, which is in the future: a clock was wrong"
                found.setdefault(self._paths[row[0] // LINES], []).append((row[0] % LINES, why))
        sentences = []
        for path, lines in sorted(found.items()):
            number, why = min(lines)
            more = f" (and {len(lines) - 1} more of this file)" if len(lines) > 1 else ""
            where = f"{self._folder / path}:{number}"
            sentences.append(printable(f"{where}: this line of the history is skipped: {why}{WHAT_TO_DO}{more}"))
        return sentences

    def sites(self) -> set[str]:
        """The sites that have runs."""
        return {like.key.site for like in self._present()}

    def platforms(self, site: str) -> set[str]:
        """The platforms of which a site has runs."""
        return {like.platform for like in self._present() if like.key.site == site}

    def tests(self, site: str) -> set[str]:
        """The tests of which a site has runs."""
        present = self._present()
        if any(VALUES in like.fields for like in present):
            present = self.envelopes(None, visits=True)
        return {like.key.test for like in present if like.key.site == site}

    def tests_since(self, site: str, month: str) -> int:
        """How many tests of a site have their last run in a month's folder or a later one's, as `2026-11`."""
        last = "SELECT id FROM line WHERE kind = ? AND last = 1 ORDER BY time_s DESC LIMIT 1"
        found: set[object] = set()
        for kind, test in self._index.execute("SELECT id, test FROM kind WHERE site = ?", (storable(site),)).fetchall():
            if test not in found:
                found |= {test for (row,) in self._index.execute(last, (kind,)) if self._paths[row // LINES] >= month}
        return len(found)

    # --- rows --------------------------------------------------------------------------------------------------------

    def _kinds(self, tests: Collection[str] | None) -> dict[int, Envelope]:
        """The kinds of these tests' jobs, by their ids."""
        kinds = "SELECT id, test, content FROM kind WHERE EXISTS (SELECT 1 FROM line WHERE line.kind = kind.id)"
        return {
            kind: from_content(json.loads(content))
            for kind, test, content in self._index.execute(kinds)
            if tests is None or _is_of(restored(test), tests)
        }

    def _present(self) -> list[Envelope]:
        """The kinds of jobs that are no later than now."""
        instead = {row[5] for row in self._instead}
        kinds = self._kinds(None).items()
        return [like for kind, like in kinds if kind in instead or next(self._of_kind(kind), None)]

    def _named(self, kinds: Mapping[int, Envelope]) -> dict[int, Envelope]:
        """Kinds of jobs with the series to which they belong: the first job of each kind tells that."""
        make = EnvelopeMaker(kinds, self._part)
        first = {kind: make.envelope(row) for kind in kinds if (row := next(self._of_kind(kind), None))}
        first |= {row[5]: make.envelope(row) for row in self._instead if row[5] in kinds and row[5] not in first}
        named = zip(first, one_device.joined(list(first.values())), strict=True)
        return {kind: replace(kinds[kind], comparability=run.comparability) for kind, run in named}

    def _in_order(self, kinds: Collection[int], make: EnvelopeMaker) -> list[Envelope]:
        """The last envelope of each job of these kinds, in the order in which the jobs started."""
        files = self._file_order
        if len(kinds) == self._index.execute("SELECT count(*) FROM kind").fetchone()[0]:  # twice as fast
            all_rows = f"{_LINE} WHERE last = 1 AND time_s <= ?"
            of_kinds: Iterable[Row] = self._index.execute(all_rows, (self._latest_s,))
        else:
            of_kinds = itertools.chain(*map(self._of_kind, kinds))
        rows = itertools.chain(of_kinds, (row for row in self._instead if row[5] in kinds))
        found = [(row[4], row[3], files[row[0] // LINES], row[0], make.envelope(row)) for row in rows]
        found.sort()
        return [run for *_, run in found]

    def _of_kind(self, kind: int) -> Iterator[Row]:
        query = f"{_LINE} WHERE kind = ? AND last = 1 AND time_s <= ? ORDER BY time_s"
        return self._index.execute(query, (kind, self._latest_s))

    @cached_property
    def _future(self) -> list[Row]:
        """The lines of jobs that are later than now."""
        found: list[Row] = []
        for (file,) in self._index.execute("SELECT id FROM file WHERE latest_s > ?", (self._latest_s,)).fetchall():
            lines = f"{_LINE} WHERE id > ? AND id < ? AND time_s > ?"
            rows = self._index.execute(lines, (file * LINES, (file + 1) * LINES, self._latest_s))
            found += rows.fetchall()
        return found

    @cached_property
    def _instead(self) -> list[Row]:
        """The lines that count where a job's last line is later than now."""
        found: dict[int, Row] = {}
        for row in self._future:
            of_job = f"SELECT {_COLUMNS}, last FROM line WHERE key = ? AND time_s <= ?"
            others = self._index.execute(of_job, (row[1], self._latest_s)).fetchall()
            if others and not any(is_last for *_, is_last in others):
                found[row[1]] = max(others, key=self._rank)[:-1]
        return list(found.values())

    def _rank(self, row: Row) -> tuple[int, float, int, int]:
        """Of the lines of a job, whose columns are COLUMNS, the one with the highest rank is the last."""
        return row[2], row[3], self._file_order[row[0] // LINES], row[0]

    def _part(self, part: int) -> str:
        found = self._index.execute("SELECT content FROM part WHERE id = ?", (part,)).fetchone()
        if found is None:
            raise sqlite3.DatabaseError(f"the index lacks the part {part}")
        return str(found[0])


def may_lack_windows(run: Envelope) -> bool:
    """Whether the throughput of a run may be that of its fastest stretch, as in older lines."""
    return not run.statistic and THROUGHPUT in run.metrics


def _is_of(test: str, tests: Collection[str]) -> bool:
    return test in tests or same_values.function(test) in tests
