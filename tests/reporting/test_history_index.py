"""The index answers what the lines say, whatever became of them since it was made, and whoever made it."""

from __future__ import annotations

import io
import multiprocessing
import os
import random
import shutil
import signal
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from platforms.job import Metric, Role, Trial
from reporting.__main__ import main
from reporting.history import index, index_update, reader
from reporting.history.envelope import Envelope, Key, Revision
from reporting.history.envelope_json import from_line, to_line
from reporting.history.index import INDEX_NAME
from reporting.history.index_shares import Share
from reporting.history.measured import JobNumbers, measured_by
from tests.reporting.history_lines import BEGAN_S, TEST, envelope

DAY_S = 86400.0
DAMAGE = (b"{\n", to_line(envelope()).replace(b'"ended_s"', b"ended_s"), b'{"test":"half of a line')


@pytest.fixture(autouse=True)
def _nothing_in_memory() -> Iterator[None]:
    yield
    for connection in index._in_memory.values():
        connection.close()
    index._in_memory.clear()


def plainly(folder: Path) -> list[Envelope]:
    """The last envelope of each job, by reading all lines."""
    latest: dict[Key, tuple[int, float, str, int, Envelope]] = {}
    for path in sorted(folder.glob("*/*.jsonl")):
        for number, line in enumerate(path.read_bytes().splitlines(keepends=True)):
            try:
                run = from_line(line)
            except ValueError:
                continue
            if run.time_s <= time.time() + DAY_S:
                rank = (run.revision, run.written_s, str(path), number, run)
                latest[run.key] = max(latest.get(run.key, rank), rank, key=lambda one: one[:4])
    return [
        rank[-1] for rank in sorted(latest.values(), key=lambda one: (one[-1].time_s, one[-1].written_s, *one[2:4]))
    ]


def some_line(rng: random.Random) -> bytes:
    """Jobs have several lines, in any order and file; some lines are damaged, in the future, or say the same again."""
    if rng.random() < 0.05:
        return rng.choice(DAMAGE[:2])
    job = rng.randrange(40)
    began_s = BEGAN_S + DAY_S * job - 40 * DAY_S
    if rng.random() < 0.03:
        began_s = time.time() + 3 * DAY_S
    node = (None, "n1", "n2")[job % 3]
    return to_line(
        envelope(
            rng.choice((TEST, TEST.replace("tuned", "gbs32"))),
            job_id=str(job),
            submitted_s=BEGAN_S + job,
            revision=rng.choice(list(Revision)),
            written_s=BEGAN_S + rng.randrange(5),
            started_s=began_s,
            trial=Trial() if node is None else Trial(Role.VISIT, node=node),
            metrics={"effective throughput": Metric(rng.choice((4, 4.0, 5.5)), "samples/s")},
            verdicts=rng.choice(({}, {"effective throughput": {"kind": "ok", "change": rng.random()}})),
            provenance=rng.choice(
                ({"nodes": "n1", "driver": "1"}, {"driver": "1", "nodes": ["n1", "n2"]}, {"threads": 4})
            ),
        )
    )


def changed_somehow(folder: Path, rng: random.Random) -> None:
    """What sessions, git and people do to the files of a history."""
    path = folder / rng.choice(("2026-10", "2026-11")) / f"{rng.choice('abc')}.jsonl"
    path.parent.mkdir(exist_ok=True)
    what = rng.choice(("append", "append", "append", "torn", "rewrite", "cut", "remove", "same size"))
    old = path.read_bytes() if path.exists() else b""
    new = b"".join(some_line(rng) for _ in range(rng.randrange(1, 8)))
    if what == "remove":
        path.unlink(missing_ok=True)
    elif what == "append":
        with path.open("ab") as file:
            file.write(new)
    else:
        cut = rng.randrange(len(old) + 1)
        changed = {"torn": old + new[:-9], "rewrite": new, "cut": old[:cut], "same size": old[::-1]}[what]
        path.write_bytes(changed)


def seen(job: JobNumbers) -> str:
    """What a job has measured, and what it is like."""
    like = job.like
    return repr(
        (job[1:-2], job.facts.nodes, job.facts.provenance, job.network, like.key.test, like.trial.role, like.sane)
    )


def repr_of(runs: list[Envelope]) -> list[str]:
    """With all types: 4 is not 4.0."""
    return [repr(run) for run in runs]


is_complete = Share.is_complete


@pytest.mark.parametrize("seed", range(12))
def test_whatever_happens_to_the_files_the_index_says_what_they_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Also where several processes read them first, one of which fails."""
    rng = random.Random(seed)
    processes = 2 if seed < 3 else 1
    monkeypatch.setattr(index_update, "shares_of", lambda sizes: [[*sizes][n::processes] for n in range(processes)])
    monkeypatch.setattr(Share, "is_complete", lambda share: is_complete(share) and rng.random() < 0.7)
    for _ in range(25):
        changed_somehow(tmp_path, rng)
        problems: list[str] = []
        assert repr_of(reader.read(tmp_path, problems=problems)) == repr_of(plainly(tmp_path))
        measured = reader.measured(tmp_path, "site", lambda jobs: [seen(job) for job in jobs], [])
        assert sorted(measured) == sorted(seen(measured_by(run)) for run in plainly(tmp_path))
        made_at_once = tmp_path.with_name("copy")
        shutil.copytree(tmp_path, made_at_once, ignore=lambda *_: [INDEX_NAME])
        again: list[str] = []
        assert repr_of(reader.read(made_at_once, problems=again)) == repr_of(plainly(tmp_path))
        assert [text.replace("/copy/", f"/{tmp_path.name}/") for text in again] == problems
        shutil.rmtree(made_at_once)


def test_only_new_lines_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also those of a file that was read before."""
    path = a_history(tmp_path, 5)
    read = []
    row = index_update.RowMaker.row
    monkeypatch.setattr(
        index_update.RowMaker, "row", lambda self, line, number: read.append(line) or row(self, line, number)
    )
    assert len(reader.read(tmp_path)) == 5
    assert len(read) == 5
    with path.open("ab") as file:
        file.write(to_line(envelope(job_id="new")))
    assert len(reader.read(tmp_path)) == 6
    assert len(reader.read(tmp_path, [TEST], visits=False)) == 6
    assert len(read) == 6


class Growing(io.RawIOBase):
    """A file to which another process adds while it is read."""

    def __init__(self, *pieces: bytes) -> None:
        self._pieces = [*pieces]

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        piece = self._pieces.pop(0) if self._pieces else b""
        buffer[: len(piece)] = piece
        return len(piece)


@pytest.mark.parametrize(
    ("pieces", "lines"),
    [
        ((b"one\ntw", b"", b"o\n"), [b"one\n", b"two\n"]),
        ((b"one\ntw", b"", b"o"), [b"one\n", b"two"]),
        ((b"one", b"\n"), [b"one\n"]),
        ((), []),
    ],
)
def test_a_line_that_is_being_written_is_never_two(pieces: tuple[bytes, ...], lines: list[bytes]) -> None:
    found = list(index_update.blocks(io.BufferedReader(Growing(*pieces))))
    assert [line for block in found for line in block] == lines
    assert all(line.endswith(b"\n") for block in found[:-1] for line in block)


def a_history(folder: Path, jobs: int) -> Path:
    path = folder / "2026-11" / "a.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(to_line(envelope(job_id=str(job))) for job in range(jobs)))
    return path


def test_a_change_that_leaves_size_and_time_is_seen(tmp_path: Path) -> None:
    """As when git writes a file twice within a tick of the file system's clock."""
    path = a_history(tmp_path, 2)
    before = path.stat()
    assert len(reader.read(tmp_path)) == 2
    path.write_bytes(path.read_bytes().replace(b"123.456", b"123.457"))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert {run.metrics["effective throughput"].value for run in reader.read(tmp_path)} == {123.457}


@pytest.mark.parametrize("what", ["empty", "text", "half", "middle", "other tables", "lacks a part"])
def test_a_damaged_index_is_made_again_and_is_no_error(tmp_path: Path, what: str) -> None:
    a_history(tmp_path, 300)
    expected = reader.read(tmp_path)
    path = tmp_path / INDEX_NAME
    content = path.read_bytes()
    if what == "other tables":
        path.unlink()
        sqlite3.connect(path).execute("CREATE TABLE other (x)").connection.close()
    elif what == "lacks a part":
        connection = sqlite3.connect(path)
        connection.execute("DELETE FROM part")
        connection.commit()
        connection.close()
    else:
        middle = len(content) // 2
        damaged = {
            "empty": b"",
            "text": b"x" * 5000,
            "half": content[:middle],
            "middle": content[:4096] + b"\0" * 50_000,
        }
        path.write_bytes(damaged[what])
    assert reader.read(tmp_path) == expected
    assert reader.read(tmp_path) == expected


def test_who_may_not_write_the_index_reads_without_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_args: object, **_kwargs: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(index.os, "fsync", refused)
    path = a_history(tmp_path, 3)
    assert len(reader.read(tmp_path)) == 3
    with path.open("ab") as file:
        file.write(to_line(envelope(job_id="new")))
    assert len(reader.read(tmp_path)) == 4
    assert [each.name for each in tmp_path.iterdir()] == ["2026-11"]


@pytest.mark.parametrize("mode", [0o700, 0o750, 0o755])
def test_who_may_list_the_history_reads_its_index(tmp_path: Path, mode: int) -> None:
    """Else two users with a umask of 077 would make it again and again."""
    a_history(tmp_path, 1)
    tmp_path.chmod(mode)
    before = os.umask(0o077)
    try:
        reader.read(tmp_path)
    finally:
        os.umask(before)
    assert (tmp_path / INDEX_NAME).stat().st_mode & 0o777 == 0o600 | (mode & 0o044)


@pytest.mark.parametrize("name", [b"2026-11/\xff.jsonl", b"2026-11/\xc3\xa9?#%.jsonl"])
def test_names_of_any_bytes_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: bytes) -> None:
    by_another: list[bool] = []
    monkeypatch.setattr(index_update, "shares_of", lambda sizes: [[], [*sizes]])
    monkeypatch.setattr(Share, "is_complete", lambda share: by_another.append(is_complete(share)) or by_another[-1])
    folder = tmp_path / os.fsdecode(b"h\xff?")
    a_history(folder, 1).rename(folder / os.fsdecode(name))
    assert len(reader.read(folder)) == len(reader.read(folder)) == 1
    assert by_another == [True]
    assert (folder / INDEX_NAME).exists()


def test_a_line_that_is_nested_too_deeply_is_damaged(tmp_path: Path) -> None:
    path = a_history(tmp_path, 1)
    with path.open("ab") as file:
        file.write(to_line(envelope(job_id="2")).replace(b'"mig":false', b'"mig":' + b"[" * 985 + b"]" * 985))
    problems: list[str] = []
    assert len(reader.read(tmp_path, problems=problems)) + len(problems) == 2


def test_a_damaged_end_of_a_job_is_no_problem_once_its_test_has_ended(tmp_path: Path) -> None:
    """It would not be looked at, if both lines were read together."""
    path = a_history(tmp_path, 0)
    path.write_bytes(to_line(envelope(revision=Revision.JOB_ENDED)).replace(b'"outcome":"passed"', b'"outcome":"odd"'))
    problems: list[str] = []
    assert reader.read(tmp_path, problems=problems) == []
    assert len(problems) == 1
    with path.open("ab") as file:
        file.write(to_line(envelope()))
    problems.clear()
    assert reader.read(tmp_path, problems=problems) == [envelope()]
    assert problems == []


def test_what_is_looked_up_is_what_is_read(tmp_path: Path) -> None:
    """Jobs of the future do not count."""
    path = a_history(tmp_path, 1)
    later = envelope(TEST.replace("tuned", "later"), started_s=time.time() + 3 * DAY_S, platform="later")
    path.write_bytes(path.read_bytes() + to_line(later))
    assert (reader.tests(tmp_path, "site"), reader.platforms(tmp_path, "site")) == ({TEST}, {"a100"})
    assert reader.sites(tmp_path, []) == {"site"}


def test_a_history_without_lines_has_no_index(tmp_path: Path) -> None:
    assert reader.read(tmp_path / "none") == reader.read(tmp_path) == []
    assert list(tmp_path.iterdir()) == []


def test_a_command_that_is_killed_leaves_the_index_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At any time of reading, the first one or a later one."""
    rng = random.Random(1)
    monkeypatch.setattr(index_update, "shares_of", lambda sizes: [[*sizes][::2], [*sizes][1::2]])
    path = a_history(tmp_path, 2000)
    path.with_name("b.jsonl").write_bytes(b"".join(to_line(envelope(job_id=f"b{job}")) for job in range(2000)))
    for _ in range(20):
        with path.open("ab") as file:
            file.write(to_line(envelope(job_id=str(rng.random()))))
        reading = multiprocessing.get_context("fork").Process(target=reader.read, args=(tmp_path,))
        reading.start()
        time.sleep(rng.random() / 10)
        os.kill(reading.pid or 0, signal.SIGKILL)
        reading.join()
        assert repr_of(reader.read(tmp_path)) == repr_of(plainly(tmp_path))
        os.utime(path)
        (tmp_path / INDEX_NAME).unlink() if rng.random() < 0.5 else None
    for draft in tmp_path.glob(f"{INDEX_NAME}.*"):
        os.utime(draft, (0, 0))
    (tmp_path / INDEX_NAME).unlink(missing_ok=True)
    reader.read(tmp_path)
    assert sorted(each.name for each in tmp_path.iterdir()) == [INDEX_NAME, "2026-11"]


def test_a_report_of_two_tests_by_their_ids_on_a_night_when_one_had_no_run_yet(tmp_path: Path) -> None:
    (tmp_path / "site.yaml").write_text("name: site\n")
    other = TEST.replace("tuned", "gbs32")
    path = a_history(tmp_path / "history", 1)
    path.write_bytes(path.read_bytes() + to_line(envelope(other, job_id="later", started_s=BEGAN_S + 2 * DAY_S)))
    assert main(["trend", TEST, other, f"--site={tmp_path}", "--tonight=2026-11-22"]) == 0
