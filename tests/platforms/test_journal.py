"""What sessions write down, as the next one reads it: torn, taken over, by processes here and on other machines."""

from __future__ import annotations

import json
import multiprocessing
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from platforms.commands import find_run
from platforms.job import RefusedError
from platforms.rundir import session_history, session_journal, session_liveness
from platforms.rundir.session_history import DONE, PENDING, Attempt, SessionRecord
from platforms.rundir.session_journal import Journal, TakenOver
from tests.waiting import until

PLAN = {"tests": ["test_a.py::test_a[x]", "test_b.py::test_b[x]"], "options": {"size": "smoke"}}
JOB = {"test": PLAN["tests"][0], "attempt": 1, "name": "a-1x1cpu-kabcdefg", "platform": "x", "state": "queued"}


@pytest.fixture
def mine(tmp_path: Path) -> Iterator[Journal]:
    journal = Journal(tmp_path / "runs/r1", PLAN)
    yield journal
    journal.end(DONE)


def only(folder: Path) -> SessionRecord:
    (past,) = session_history.read_sessions(folder)
    return past


def test_a_session_is_read_as_it_was_written(tmp_path: Path) -> None:
    mine = Journal(tmp_path, PLAN)
    again = Attempt(2, ("attempt 1 ended as node lost",), ("node7",))
    mine.write_jobs([JOB, {**JOB, "test": PLAN["tests"][1], **again.journal_entry()}])
    mine.write_jobs([{**JOB, "state": "running", "job_id": "17"}])
    past = only(tmp_path)
    assert (past.name, past.plan, past.end) == (mine.name, PLAN, None)
    assert past.attempts == {PLAN["tests"][0]: Attempt(1), PLAN["tests"][1]: again}
    assert past.states[PLAN["tests"][0]]["job_id"] == "17"
    assert past.open
    mine.end(PENDING)
    assert only(tmp_path).end == PENDING
    assert only(tmp_path).open
    mine = Journal(tmp_path / "done", PLAN)
    mine.end(DONE)
    assert not only(tmp_path / "done").open


def test_the_oldest_session_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the random part of its name says."""
    for token in ("bbbbbb", "aaaaaa"):
        monkeypatch.setattr("secrets.token_hex", lambda _, token=token: token)
        Journal(tmp_path, PLAN).end(DONE)
    assert [past.name[-6:] for past in session_history.read_sessions(tmp_path)] == ["bbbbbb", "aaaaaa"]


def test_after_a_full_disk_only_the_lines_without_room_are_missing(tmp_path: Path) -> None:
    mine = Journal(tmp_path, PLAN)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (mine.path.stat().st_size + 20, limits[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            mine.write_jobs([JOB])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, before)
    mine.write_jobs([{**JOB, "state": "running"}])
    assert only(tmp_path).states[JOB["test"]]["state"] == "running"


def test_two_sessions_of_the_same_second_have_files_of_their_own(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        journals = list(pool.map(lambda _: Journal(tmp_path, PLAN), range(8)))
    for one in journals:
        one.end(DONE)
    assert len(session_history.read_sessions(tmp_path)) == len({one.path for one in journals}) == 8


@pytest.mark.parametrize("kept", range(0, 120, 23))
def test_a_torn_last_line_is_ignored(tmp_path: Path, kept: int) -> None:
    mine = Journal(tmp_path, PLAN)
    mine.write_jobs([JOB])
    before = mine.path.read_bytes()
    mine.write_jobs([{**JOB, "state": "running"}])
    mine.end(DONE)
    mine.path.write_bytes(mine.path.read_bytes()[: len(before) + kept])
    past = only(tmp_path)
    assert past.states[JOB["test"]]["state"] == "queued"
    assert past.open


@pytest.mark.parametrize("text", [b"", b"\x00" * 100, b'{"schema": 1'])
def test_a_session_without_its_first_line_had_done_nothing(tmp_path: Path, text: bytes) -> None:
    folder = tmp_path / session_history.FOLDER
    folder.mkdir()
    (folder / "20261121T000000Z-abcdef.jsonl").write_bytes(text)
    assert session_history.read_sessions(tmp_path) == []


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b'{"schema": 1}\n', "does not begin as the record of a session does"),
        (b'{"schema": 99}\n', "it has the schema 99, and this checkout knows 1: a newer one reads it"),
    ],
)
def test_a_record_that_is_not_understood_is_refused(tmp_path: Path, text: bytes, why: str) -> None:
    folder = tmp_path / "it" / session_history.FOLDER
    folder.mkdir(parents=True)
    (folder / "20261121T000000Z-abcdef.jsonl").write_bytes(text)
    assert session_history.runs_with_sessions(tmp_path) == ["it"]
    with pytest.raises(RefusedError, match=rf"20261121T000000Z-abcdef.jsonl cannot be read: .*{why}"):
        session_history.read_sessions(tmp_path / "it")


def test_a_journal_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / session_history.FOLDER).write_text("a file")
    with pytest.raises(RefusedError, match=r"this session.s record cannot be kept: .*--runs-dir"):
        Journal(tmp_path, PLAN)


def test_a_record_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    (tmp_path / session_history.FOLDER / "20261121T000000Z-abcdef.jsonl").mkdir(parents=True)
    with pytest.raises(RefusedError, match=r"the record of a session cannot be read: .*20261121T000000Z-abcdef"):
        session_history.read_sessions(tmp_path)


def test_nothing_is_written_after_the_end(tmp_path: Path) -> None:
    """By a turn that was under way; the number of the file may be another's by now."""
    mine = Journal(tmp_path, PLAN)
    mine.end(DONE)
    before = mine.path.read_bytes()
    mine.write_jobs([JOB])
    assert mine.path.read_bytes() == before


def test_unfinished_runs_are_listed_newest_first(tmp_path: Path) -> None:
    for run, how in (("first", PENDING), ("second", DONE), ("third", PENDING)):
        Journal(tmp_path / run, PLAN).end(how)
        time.sleep(0.01)
    (tmp_path / "latest").symlink_to("third")
    assert find_run.unfinished(tmp_path) == (["third", "first"], [])


# --- who lives -------------------------------------------------------------------------------------------------------

LIVES = """
import sys, time
from pathlib import Path
from platforms.rundir.session_journal import Journal
Journal(Path(sys.argv[1]), {"tests": [], "options": {}})
print("there", flush=True)
time.sleep(600)
"""


@pytest.mark.slow
@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGSTOP, None], ids=["killed", "stopped", "lives"])
def test_whether_a_session_on_this_machine_lives_is_seen_at_once(
    tmp_path: Path, mine: Journal, end: signal.Signals | None
) -> None:
    """One that is only stopped may go on any time."""
    command = [sys.executable, "-c", LIVES, str(tmp_path / "r")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=Path(__file__).parents[2]) as session:
        try:
            assert session.stdout is not None
            assert session.stdout.readline() == b"there\n"
            if end is not None:
                session.send_signal(end)
            if end == signal.SIGKILL:
                session.wait()
            waits = lambda _: pytest.fail("nothing is waited for")  # noqa: E731
            assert session_liveness.wait_if_alive(only(tmp_path / "r"), mine.touch, sleep=waits) == (
                end != signal.SIGKILL
            )
        finally:
            session.kill()


def test_a_session_whose_pid_belongs_to_another_process_is_dead(tmp_path: Path, mine: Journal) -> None:
    past = only(mine.path.parents[1])
    assert session_liveness.wait_if_alive(past, mine.touch)
    assert not session_liveness.wait_if_alive(replace(past, process={**past.process, "began": "1"}), mine.touch)


class Elsewhere:
    """A session of another machine, and a file system's clock that we move on."""

    def __init__(self, folder: Path, ahead_s: float) -> None:
        self.ahead_s = ahead_s  # of ours; it does not matter
        self.journal = Journal(folder, PLAN)
        self.journal._stop_beating.set()  # its heart is ours to beat
        self.journal._thread.join()
        self.now_s = time.time() + ahead_s
        self.beat()
        past = only(folder)
        self.past = replace(past, process={**past.process, "boot": "another machine's"})

    def beat(self) -> None:
        os.utime(self.journal.path, (self.now_s, self.now_s))

    def clock(self) -> float:
        return self.now_s


@pytest.mark.parametrize("ahead_s", [0.0, -86400.0, 86400.0])
@pytest.mark.parametrize("beats", [0, 1])
def test_a_session_elsewhere_lives_if_its_next_beat_comes(tmp_path: Path, ahead_s: float, beats: int) -> None:
    there = Elsewhere(tmp_path, ahead_s)
    slept = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        there.now_s += seconds
        if beats and sum(slept) > there.past.beat_s:
            there.beat()

    assert session_liveness.wait_if_alive(there.past, there.clock, sleep=sleep) == bool(beats)
    assert there.past.beat_s < sum(slept) < (session_liveness.MISSED_BEATS + 1) * there.past.beat_s


def test_a_session_elsewhere_that_was_silent_for_long_is_dead_at_once(tmp_path: Path) -> None:
    there = Elsewhere(tmp_path, 0.0)
    there.now_s += 60
    assert not session_liveness.wait_if_alive(there.past, there.clock, lambda _: pytest.fail("nothing is waited for"))


def test_a_session_gives_signs_of_life(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_journal, "BEAT_S", 0.05)
    mine = Journal(tmp_path, PLAN, beat_s=0.05)
    os.utime(mine.path, (0, 0))
    until(lambda: mine.path.stat().st_mtime > 1)
    mine.end(DONE)
    mine._thread.join(60)
    assert not mine._thread.is_alive()


# --- taking over -----------------------------------------------------------------------------------------------------


def _take(path: Path, name: str) -> bool:
    past = session_history.read_session(path)
    assert past is not None
    return session_journal.take_over(past, name)


@pytest.mark.slow
def test_one_of_many_sessions_takes_over(tmp_path: Path, mine: Journal) -> None:
    with multiprocessing.get_context("spawn").Pool(4) as pool:
        won = pool.starmap(_take, [(mine.path, f"session {number}") for number in range(16)])
    assert sum(won) == 1
    assert only(mine.path.parents[1]).successor == f"session {won.index(True)}"
    assert not only(mine.path.parents[1]).open


def test_a_session_that_was_taken_over_stops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_journal, "BEAT_S", 0.05)
    mine = Journal(tmp_path, PLAN, beat_s=0.05)
    mine.refuse_taken_over()
    assert session_journal.take_over(only(tmp_path), "another one")

    def stops() -> bool:
        try:
            mine.refuse_taken_over()
        except TakenOver as error:
            return "session another one goes on in its place; nothing was cancelled" in str(error)
        return False

    until(stops)
    mine.end(PENDING)


def test_a_session_that_wakes_up_sees_that_it_was_taken_over(tmp_path: Path) -> None:
    mine = Journal(tmp_path, PLAN, beat_s=3600)
    assert session_journal.take_over(only(tmp_path), "another one")
    mine.refuse_taken_over()  # no beat has found it yet
    assert mine.is_taken_over()
    with pytest.raises(TakenOver):
        mine.refuse_taken_over()
    mine.end(PENDING)


def test_a_session_has_the_jobs_of_the_one_it_took_over(tmp_path: Path) -> None:
    """Twice, by sessions that were killed at once."""
    before = Journal(tmp_path, PLAN)
    before.write_jobs([JOB, {**JOB, "state": "running", "job_id": "17"}])
    for _ in range(2):
        past = session_history.read_session(before.path)
        assert past is not None
        before.end(PENDING)
        mine = Journal(tmp_path, {"tests": ["test_c.py::test_c[x]"], "options": {}})
        assert mine.take_over(past)
        before = mine
    (last,) = [past for past in session_history.read_sessions(tmp_path) if past.open]
    assert last.name == mine.name
    assert set(last.tests) == {"test_c.py::test_c[x]", *PLAN["tests"]}
    assert last.attempts == {JOB["test"]: Attempt(1)}
    assert last.states[JOB["test"]]["job_id"] == "17"
    mine.write_jobs([{**JOB, "state": "succeeded", "attempt": 2}])
    (last,) = [past for past in session_history.read_sessions(tmp_path) if past.open]
    assert (last.attempts[JOB["test"]].number, last.states[JOB["test"]]["state"]) == (2, "succeeded")
    mine.end(DONE)


@pytest.mark.parametrize("first", [1, 2])
def test_the_later_attempt_counts_when_two_sessions_were_taken_over(tmp_path: Path, first: int) -> None:
    journals = [Journal(tmp_path, PLAN) for _ in range(2)]
    for one, number in zip(journals, (first, 3 - first), strict=True):
        one.write_jobs([{**JOB, "attempt": number, "job_id": f"of attempt {number}"}])
        one.end(PENDING)
    mine = Journal(tmp_path, PLAN)
    assert all(mine.take_over(past) for past in session_history.read_sessions(tmp_path) if past.name != mine.name)
    (last,) = [past for past in session_history.read_sessions(tmp_path) if past.open]
    assert last.attempts[JOB["test"]].number == 2
    assert last.states[JOB["test"]]["job_id"] == "of attempt 2"
    mine.end(DONE)


@pytest.mark.parametrize("written", ["", "20261121T0000"])
def test_a_session_that_was_killed_while_it_took_over_can_be_taken_over(tmp_path: Path, written: str) -> None:
    before = Journal(tmp_path, PLAN)
    before.write_jobs([JOB])
    before.end(PENDING)
    mine = Journal(tmp_path, PLAN)
    assert mine.take_over(only_other(tmp_path, mine))
    before.path.with_suffix(".taken").write_text(written)
    (last,) = [past for past in session_history.read_sessions(tmp_path) if past.open]
    assert (last.name, last.attempts) == (mine.name, {JOB["test"]: Attempt(1)})
    mine.end(DONE)


def only_other(folder: Path, mine: Journal) -> SessionRecord:
    (past,) = [past for past in session_history.read_sessions(folder) if past.name != mine.name]
    return past


def test_a_session_that_cannot_be_claimed_is_refused(tmp_path: Path) -> None:
    mine = Journal(tmp_path, PLAN)
    mine.end(PENDING)
    past = only(tmp_path)
    mine.path.unlink()
    mine.path.parent.rmdir()
    with pytest.raises(RefusedError, match=r"record cannot be kept: .*\.taken"):
        session_journal.take_over(past, "another one")


@pytest.mark.slow
def test_a_long_chain_of_take_overs_is_read(tmp_path: Path) -> None:
    """One an hour, by cron; each goes on with what the one before had."""
    before = Journal(tmp_path, PLAN)
    before.write_jobs([JOB])
    before.end(PENDING)
    for number in range(1100):
        mine = tmp_path / session_history.FOLDER / f"20261122T000000Z-{number:06x}.jsonl"
        head, *_ = before.path.read_text().splitlines()
        mine.write_text(json.dumps({**json.loads(head), "session": mine.stem}) + "\n")
        session_journal.take_over(SessionRecord(before.name, before.path), mine.stem)
        before.name, before.path = mine.stem, mine
    (last,) = [past for past in session_history.read_sessions(tmp_path) if past.open]
    assert (last.name, last.attempts) == (before.name, {JOB["test"]: Attempt(1)})


def test_each_test_has_the_options_it_was_selected_with(tmp_path: Path) -> None:
    before = Journal(tmp_path, {"tests": ["a", "b"], "options": {"size": "smoke"}})
    before.end(PENDING)
    mine = Journal(tmp_path, {"tests": ["b", "c"], "options": {"size": "quick"}})
    assert mine.take_over(only_other(tmp_path, mine))
    (last,) = [past for past in session_history.read_sessions(tmp_path) if past.open]
    assert last.options == {"a": {"size": "smoke"}, "b": {"size": "quick"}, "c": {"size": "quick"}}
    mine.end(DONE)


def test_the_time_of_a_request_without_an_answer_is_kept(tmp_path: Path) -> None:
    """Until there is an id, whatever is said meanwhile."""
    mine = Journal(tmp_path, PLAN)
    mine.write_jobs(
        [{**JOB, "asked_s": 17.5, "state": session_history.ASKED}, {**JOB, "asked_s": 17.5, "state": "unknown"}]
    )
    assert only(tmp_path).attempts[JOB["test"]].asked_s == 17.5
    mine.end(PENDING)
