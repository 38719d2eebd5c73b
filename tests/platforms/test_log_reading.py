"""Logs read through a scheduler that says what a script has it say, by a clock that moves while somebody sleeps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from platforms.commands.log_reading import FIRST_S, QUIET_S, LogReading
from platforms.job import AwayError, BenchError, LoginNeeded, RefusedError, State, Status, Submitted
from platforms.runner.finalizer import LOG_S
from platforms.schedulers import log_file

RUNS, WAITS, ENDED = Status(State.RUNNING), Status(State.QUEUED, "Priority"), Status(State.SUCCEEDED)
AWAY = Status(State.UNKNOWN, "nobody answers")
Log = Callable[[float], bytes]


@dataclass
class Scripted:
    """A scheduler of one job, whose log and state are functions of time."""

    log: Log
    state: Callable[[float], Status] = lambda now: RUNS
    log_in_folder: bool = True
    now: float = 0.0
    looks: int = 0
    look_s: float = 0.0
    said: list[str] = field(default_factory=list)

    def status(self, jobs: Sequence[Submitted]) -> dict[str, Status]:
        self.looks += 1
        self.now += self.look_s
        return {job.job_id: self.state(self.now) for job in jobs}

    def read(self, job: Submitted, offset: int, known: bytes = b"") -> bytes:
        found = self.log(self.now)[offset - len(known) : offset + 4]
        return log_file.new_bytes(found, known, "the log")

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def reading(self, *, check: Callable[[], None] = lambda: None, **settings: Any) -> LogReading:
        times = {"clock": lambda: self.now, "sleep": self.sleep}
        values = {"offset": 0, "poll_s": 1.0, "check": check, "notify": self.said.append, **times, **settings}
        return LogReading(self, Submitted("17", "one-k1", 0.0), **values)  # type: ignore[arg-type]

    def reads(self, **settings: Any) -> bytes:
        """What came."""
        return b"".join(self.reading(**settings).chunks())


def grows(*lines: tuple[float, bytes]) -> Log:
    """Lines by when they come."""
    return lambda now: b"".join(line for at_s, line in lines if now >= at_s)


def refuses(until_s: float, text: bytes) -> Log:
    """A log whose lines are still to come."""

    def log(now: float) -> bytes:
        if now < until_s:
            raise RefusedError("container c of pod p: its log is not read to its end yet")
        return text

    return log


def test_what_comes_late_is_waited_for_without_following() -> None:
    scheduler = Scripted(grows((3.0, b"begins\n"), (4.5, b"goes on\n"), (4.5 + 2 * QUIET_S, b"too late\n")))
    assert scheduler.reads(follow=False) == b"begins\ngoes on\n"
    assert scheduler.now == pytest.approx(4.5 + QUIET_S, abs=1.0)


def test_a_look_that_takes_long_is_not_repeated_at_once() -> None:
    """A cluster that does not answer keeps each look for seconds."""
    scheduler = Scripted(lambda now: b"", lambda now: AWAY, look_s=20.0)
    with pytest.raises(RefusedError, match="its log is not known: nobody answers"):
        scheduler.reads(follow=False, poll_s=10.0)
    assert scheduler.looks == 1


def test_a_job_that_says_nothing_is_not_waited_for_long() -> None:
    scheduler = Scripted(lambda now: b"")
    assert scheduler.reads(follow=False) == b""
    assert scheduler.now == pytest.approx(FIRST_S, abs=1.0)
    scheduler = Scripted(lambda now: b"", state=lambda now: WAITS)
    assert scheduler.reads(follow=False) == b""
    assert (scheduler.now, scheduler.said) == (0.0, ["one-k1: queued: Priority"])


def test_a_scheduler_that_has_the_log_itself_is_asked_once() -> None:
    for state in (RUNS, ENDED):
        scheduler = Scripted(lambda now: b"0123456789", state=lambda now, state=state: state, log_in_folder=False)
        assert scheduler.reads(follow=False, offset=2) == b"23456789"
        assert (scheduler.now, scheduler.looks) == (0.0, 1)


def test_a_log_is_followed_to_its_end() -> None:
    lines = grows((0.0, b"a\n"), (50.0, b"b\n"), (99.5, b"c\n"))
    scheduler = Scripted(lines, state=lambda now: WAITS if now < 5 else RUNS if now < 100 else ENDED)
    assert scheduler.reads(follow=True, poll_s=10.0) == b"a\nb\nc\n"
    assert scheduler.looks <= 12
    assert scheduler.said == ["one-k1: queued: Priority"]


@pytest.mark.parametrize("follow", [True, False])
def test_the_end_of_a_log_may_take_its_time(follow: bool) -> None:
    scheduler = Scripted(refuses(LOG_S / 2, b"all\n"), state=lambda now: ENDED)
    assert scheduler.reads(follow=follow) == b"all\n"
    assert len(scheduler.said) == 1


def test_an_end_that_never_comes_is_said() -> None:
    scheduler = Scripted(refuses(9e9, b""), state=lambda now: ENDED)
    why = "one-k1: nothing more of its log came for 120 s: container c of pod p: its log is not read to its end yet"
    with pytest.raises(RefusedError, match=why):
        scheduler.reads(follow=False)
    assert scheduler.now == pytest.approx(LOG_S, abs=2.0)


def test_a_running_jobs_log_that_cannot_be_read_is_said_at_once() -> None:
    scheduler = Scripted(refuses(9e9, b""))
    with pytest.raises(RefusedError, match="one-k1: container c of pod p"):
        scheduler.reads(follow=False)
    assert scheduler.now <= 1.0


@pytest.mark.parametrize("later", [b"bbbbbbbbbb", b"aa", b""])
def test_a_log_that_is_not_the_one_that_was_read_is_said(later: bytes) -> None:
    scheduler = Scripted(lambda now: b"aaaaaaaa" if now < 5 else later, state=lambda now: RUNS if now < 9 else ENDED)
    came = scheduler.reading(follow=True).chunks()
    assert next(came) + next(came) == b"aaaaaaaa"
    with pytest.raises(RefusedError, match="the log was truncated or replaced while its job wrote"):
        list(came)


def test_who_follows_does_not_mind_that_nobody_answers_for_a_while() -> None:
    def state(now: float) -> Status:
        if 10 <= now < 60:
            raise AwayError("far: the connection was lost")
        return RUNS if now < 70 else ENDED

    scheduler = Scripted(grows((0.0, b"a\n"), (65.0, b"b\n")), state=state)
    assert scheduler.reads(follow=True) == b"a\nb\n"
    assert scheduler.said == ["far: the connection was lost"]


@pytest.mark.parametrize(
    ("follow", "error", "after_s"),
    [
        (True, AwayError("far: the connection was lost"), LOG_S),
        (False, AwayError("far: the connection was lost"), 0.0),
        (True, LoginNeeded("far: log in. Type `ssh far`", "ssh far"), 0.0),
    ],
)
def test_but_not_for_ever(follow: bool, error: AwayError, after_s: float) -> None:
    def state(now: float) -> Status:
        raise error

    scheduler = Scripted(lambda now: b"", state=state)
    with pytest.raises(type(error)):
        scheduler.reads(follow=follow)
    assert scheduler.now == pytest.approx(after_s, abs=2.0)


def test_that_there_may_be_more_is_said() -> None:
    scheduler = Scripted(lambda now: b"some\n", state=lambda now: AWAY)
    came = scheduler.reading(follow=False).chunks()
    assert next(came) + next(came) == b"some\n"
    with pytest.raises(RefusedError, match="whether there is more of its log is not known: nobody answers"):
        list(came)


def test_what_is_asked_in_between_ends_it_before_anything_more_is_handed_out() -> None:
    came: list[bytes] = []

    def check() -> None:
        if len(came) == 2:
            raise BenchError("another one reads it now")

    scheduler = Scripted(lambda now: b"0123456789")
    chunks = scheduler.reading(follow=True, poll_s=60.0, check=check).chunks()
    came += [next(chunks), next(chunks)]
    with pytest.raises(BenchError, match="another one reads it now"):
        next(chunks)
    assert came == [b"0123", b"4567"]
