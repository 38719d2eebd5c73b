"""Ending a session that has jobs: normally, by Ctrl-C once or twice, by SIGTERM, with its terminal, or taken over."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from errno import EIO, EPIPE
from signal import SIG_IGN, SIGHUP, SIGTERM, getsignal, signal
from types import FrameType
from typing import NoReturn

import pytest

from harness.console import Console
from harness.progress_lines import describe
from harness.running import Running
from harness.session_start import StartedSession
from harness.wording import counted, first_of
from platforms.rundir import session_history
from platforms.rundir.session_journal import TakenOver
from platforms.runner import Job, Runner

JOBS_PER_LINE = 10


class Hangup(KeyboardInterrupt):
    """The terminal has gone. No user asked for the end of the jobs."""


@contextlib.contextmanager
def ended_properly(running: Running, started: StartedSession, console: Console) -> Iterator[None]:
    """Cancel or detach what is unfinished when the session ends, however it ends.

    Ctrl-C, SIGTERM and -x cancel the jobs; with --on-interrupt=detach the first two leave them running. A closed
    terminal always leaves them running, and so does every error that nobody expected. The journal gets its last line
    from running.end, when pytest has written everything: a session that is killed before that has not ended.
    """
    # nohup ignores SIGHUP, so that the session outlives its terminal: an ignored signal stays ignored.
    handlers = {number: signal(number, _interrupt) for number in (SIGTERM, SIGHUP) if getsignal(number) != SIG_IGN}
    detach = False
    try:
        yield
    except TakenOver as error:
        detach = True
        pytest.exit(str(error), returncode=pytest.ExitCode.INTERRUPTED)
    except KeyboardInterrupt as error:
        detach = running.inputs.options.detach or isinstance(error, Hangup)
        raise
    except (pytest.Session.Failed, pytest.exit.Exception):  # -x, or a test that ends the session
        raise
    except BaseException as error:
        detach = True
        if isinstance(error, OSError) and error.errno in (EIO, EPIPE):  # the terminal has gone
            signal(SIGHUP, SIG_IGN)  # it may come later, and must not end us before the journal's last line
            handlers.pop(SIGHUP, None)
        raise
    finally:
        end_state = session_history.PENDING
        try:
            _release_jobs(running, started, console, detach=detach)
            if not started.journal.is_taken_over():
                running.entries.left([job for job in running.runner.jobs if not job.done])
                if not detach:  # else the session that goes on judges them
                    running.write_interrupted()
            if _is_finished(running, started, detach=detach):
                end_state = session_history.DONE
        finally:
            running.end = lambda: started.journal.end(session_history.PENDING if running.is_unwritten else end_state)
            for number, handler in handlers.items():
                signal(number, handler)


def _interrupt(number: int, _frame: FrameType | None) -> NoReturn:
    raise Hangup("SIGHUP") if number == SIGHUP else KeyboardInterrupt("SIGTERM")


def _release_jobs(running: Running, started: StartedSession, console: Console, *, detach: bool) -> None:
    """Cancel the jobs that no session will read, or leave them and say how to go on with them."""
    if started.journal.is_taken_over():
        return  # another session goes on with our jobs
    runner = running.runner
    unseen = _unseen_tests(runner, started)
    abandoned = [job for job in runner.jobs if job.spec.test not in unseen and not job.done and job.error is None]
    if abandoned and detach:
        with contextlib.suppress(OSError):  # there may be no terminal any more
            jobs = counted(len(abandoned), "unfinished job")
            console.problem(f"{jobs} without a session from now on: {running.again} goes on with them")
    elif abandoned:
        _cancel(runner, abandoned, console)
    if unseen:
        console.problem(f"{len(unseen)} jobs were not looked for yet: {running.again} finds them")


def _is_finished(running: Running, started: StartedSession, *, detach: bool) -> bool:
    """Whether the run needs no further session."""
    runner = running.runner
    if started.carried or _unseen_tests(runner, started):
        return False
    if detach and (runner.owes_retries or running.trials.unfinished):
        return False
    return all(job.done for job in runner.jobs)


def _unseen_tests(runner: Runner, started: StartedSession) -> set[str]:
    """The tests whose jobs may exist, though this session was interrupted before it looked."""
    jobs = runner.jobs
    if started.without_record:
        jobs = [job for job in jobs if job.asked_s is not None or job.done]
    keys = {job.spec.key for job in runner.jobs}
    tests = {job.spec.test for job in jobs}
    return {test for key, test in started.begun_jobs.items() if key not in keys} | (started.begun_tests - tests)


def _cancel(runner: Runner, jobs: Sequence[Job], console: Console) -> None:
    names = first_of([job.spec.name for job in jobs], JOBS_PER_LINE)
    try:
        with contextlib.suppress(OSError):  # without a terminal the jobs are cancelled all the same
            console.line(f"cancelling {counted(len(jobs), 'unfinished job')}: {names}")
        left = runner.cancel(jobs)
    except KeyboardInterrupt:
        console.problem(f"run {runner.run_id}: interrupted while its jobs were cancelled; these may still run:")
        _list([job for job in jobs if not job.done and job.asked_s is not None], console)
        raise
    _list(left, console)


def _list(jobs: Sequence[Job], console: Console) -> None:
    """Say of each job how to end it by hand."""
    for job in jobs:
        lines = [f"{describe(job)}; see {job.folder}", *(f"  {hint}" for hint in job.hints)]
        console.problem("\n".join(lines))
