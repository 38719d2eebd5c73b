"""How a session leaves its jobs: at its end, by Ctrl-C once or twice, by SIGTERM, with its terminal, or taken over."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from errno import EIO, EPIPE
from signal import SIG_IGN, SIGHUP, SIGTERM, getsignal, signal
from types import FrameType
from typing import NoReturn

import pytest

from harness.console import Console, describe
from harness.session_start import StartedSession
from harness.suite import Suite
from platforms.rundir import session_history
from platforms.rundir.session_journal import TakenOver
from platforms.runner import Job, Runner

NAMED = 10  # jobs in one line


class Hangup(KeyboardInterrupt):
    """The terminal is gone, and nobody has asked for an end."""


@contextlib.contextmanager
def leaving(suite: Suite, runner: Runner, begun: StartedSession, show: Console) -> Iterator[None]:
    """While a session has jobs. In the end those that nobody will read are cancelled; what has become of all is written
    down when pytest has written everything, too (suite.end): until then a session that is killed has not ended.

    Ctrl-C and SIGTERM let them go on instead, with --on-interrupt=detach; a terminal that is closed always does.
    """
    handlers = {number: signal(number, _interrupt) for number in (SIGTERM, SIGHUP) if getsignal(number) != SIG_IGN}
    go_on, how = False, session_history.PENDING
    try:
        yield
    except TakenOver as error:
        go_on = True
        pytest.exit(str(error), returncode=pytest.ExitCode.INTERRUPTED)
    except KeyboardInterrupt as error:
        go_on = suite.options.detach or isinstance(error, Hangup)
        raise
    except OSError as error:
        go_on = error.errno in (EIO, EPIPE)  # what we write reaches nobody: the terminal is gone before SIGHUP is here
        raise
    finally:
        try:
            unseen = _unseen(suite, begun)
            ours = [job for job in runner.jobs if job.spec.test not in unseen]
            abandoned = [job for job in ours if not job.done and job.error is None]
            lost = begun.journal.lost()  # to a session that goes on in our place, with our jobs
            if abandoned and not lost:
                if go_on:
                    _detach(suite.options.again(runner.run_id), abandoned, show)
                else:
                    _cancel(runner, abandoned, show)
            if unseen and not lost:
                show.problem(
                    f"{len(unseen)} jobs were not looked for yet: {suite.options.again(runner.run_id)} finds them"
                )
            owed = begun.carried or unseen or (go_on and runner.owes_attempts)
            if not owed and all(job.done for job in runner.jobs):
                how = session_history.DONE
        finally:
            suite.end = lambda: begun.journal.end(session_history.PENDING if suite.unwritten else how)
            for number, handler in handlers.items():
                signal(number, handler)


def _unseen(suite: Suite, begun: StartedSession) -> set[str]:
    """Tests whose jobs may be there, and an interrupt came before we had looked for them."""
    asked = {test for test, job in suite.jobs.items() if job.asked_s is not None or job.done}
    return set(begun.before - (asked if begun.unknown else suite.jobs.keys()))


def _interrupt(number: int, _frame: FrameType | None) -> NoReturn:
    raise Hangup("SIGHUP") if number == SIGHUP else KeyboardInterrupt("SIGTERM")


def _detach(again: str, jobs: Sequence[Job], show: Console) -> None:
    with contextlib.suppress(OSError):  # there may be no terminal any more
        show.problem(f"{_many(jobs)} without a session from now on: {again} goes on with them")


def _cancel(runner: Runner, jobs: Sequence[Job], show: Console) -> None:
    names = ", ".join(job.spec.name for job in jobs[:NAMED]) + (", …" if len(jobs) > NAMED else "")
    try:
        with contextlib.suppress(OSError):  # nobody reads what we say, and the jobs must go
            show.line(f"cancelling {_many(jobs)}: {names}")
        left = runner.cancel(jobs)
    except KeyboardInterrupt:
        show.problem(f"interrupted while jobs were cancelled; nobody has seen whether these are gone, {runner.run_id}:")
        _list([job for job in jobs if not job.done and job.asked_s is not None], show)
        raise
    _list(left, show)


def _list(jobs: Sequence[Job], show: Console) -> None:
    """What may still run, and how to end it by hand."""
    for job in jobs:
        show.problem("\n".join([f"{describe(job)}; see {job.folder}", *(f"  {hint}" for hint in job.hints)]))


def _many(jobs: Sequence[Job]) -> str:
    return f"{len(jobs)} unfinished job{'s' * (len(jobs) > 1)}"
