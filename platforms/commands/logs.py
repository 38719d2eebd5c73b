"""`python -m platforms logs`: a job's log, printed; and how `fetch` reads those of a run, too (fetching.py).

The log that is kept in a job's folder has one writer at a time: the session that lives, else the command that holds the
lock beside it. Where the file system knows no locks, what is written stands at its own place in the file, so two that
bring the same bytes do no harm.
"""

from __future__ import annotations

import argparse
import contextlib
import select
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from platforms import checkout
from platforms.commands import find_run
from platforms.commands.find_run import Typed
from platforms.commands.job_records import RecordedJob, SchedulerPool, one, recorded_jobs
from platforms.commands.log_reading import Reader, Reading
from platforms.job import BenchError, RefusedError
from platforms.rundir import locks, session_history, session_liveness
from platforms.rundir.session_history import SessionRecord

FOLLOW_S = 1.0
CHUNK = 1 << 20
LOCK = ".log.lock"


# --- logs ------------------------------------------------------------------------------------------------------------


def add_logs(parser: argparse.ArgumentParser) -> None:
    """Options of `logs`."""
    parser.add_argument("job", metavar="JOB", help="its name, or a part of its test's id, in the last run")
    parser.add_argument("-f", "--follow", action="store_true", help="go on until it has ended")
    parser.add_argument("--run", metavar="RUN", default=find_run.LATEST, help="of this run (default: latest)")
    find_run.add_folder(parser)


def logs(options: argparse.Namespace) -> int:
    """Print a job's log: what there is of it in its folder, and then what its scheduler has. How it ended is said where
    it is followed, or has no log."""
    runs, places = find_run.folder(options), SchedulerPool(checkout.site_folder(options.site))
    typed, run_id = Typed.of(options), find_run.named(runs, options.run)
    log = _Log(one(recorded_jobs(runs, run_id), options.job, run_id, typed), places, typed, follow=options.follow)
    while not log.at_end(runs):
        _refuse_unheard()
        time.sleep(FOLLOW_S)
    if options.follow or not log.offset:
        missing = "" if log.offset else f"; no log of it is in {log.job.folder}"
        tell(f"{log.job.name} on {log.job.platform}: {log.state}{missing}")
    return 0


class _Log:
    """One job's log as it is printed: up to byte `offset`."""

    def __init__(self, job: RecordedJob, places: SchedulerPool, typed: Typed, *, follow: bool) -> None:
        self.job, self._places, self._typed, self._follow = job, places, typed, follow
        self.offset, self.state, self._said = 0, "", ""

    def at_end(self, runs: Path) -> bool:
        """Print what there is. Whether that is all. Raises BenchError."""
        self.job = self.job.again()
        if self._left and self._renew(runs):
            try:
                self._print_on()
            except locks.Taken as other:  # which brings it here, as a session does
                self._say(f"{self.job.name}: {other} reads this log, too; shown is what has come to {self.job.folder}")
            except GoneOn as other:
                self._say(str(other))
                return False
            else:
                return True
        self.offset += _print(self.job.folder / "log", self.offset)
        self.state = self.job.told if self.job.ended is None else str(self.job.ended)
        return not (self.job.open and self._follow)

    @property
    def _left(self) -> bool:
        return self.job.open and not session_liveness.lives(self.job.session)

    def _renew(self, runs: Path) -> bool:
        """Another session may go on in its place. Whether none does."""
        before = self.job
        self.job = next(each for each in recorded_jobs(runs, before.run) if each.test == before.test)
        self.offset = self.offset if self.job.folder == before.folder else 0
        return self._left

    def _print_on(self) -> None:
        """What a job's folder has from there on, and its scheduler after that. Raises RefusedError when that is not
        all, Taken while another command brings it here, GoneOn when a session does."""
        job = self.job
        with contextlib.ExitStack() as stack:
            try:
                if job.submitted is None:
                    finds = f"{self._typed.resume(job.run)} finds it" if job.unsure else "it was not submitted"
                    raise RefusedError(f"{job.name}: {job.told}; nobody has its id: {finds}")
                reader = reader_of(self._places, job.platform, [job], self._typed, follow=self._follow)
                in_folder = self._places.scheduler(job.platform).log_in_folder
                if in_folder:
                    stack.enter_context(alone(job))
            except locks.Taken:
                raise
            except BenchError:
                self.offset += _print(job.folder / "log", self.offset)
                raise
            if not in_folder:  # else the scheduler reads that file, too, and knows how much of it is to be believed
                self.offset += _print(job.folder / "log", self.offset)
            reading = Reading(job.submitted, self.offset)
            for _reading, chunk in reader.read([reading]):
                _write(chunk)
                self.offset = reading.offset
            self.state = job.told if reading.status is None else str(reading.status)
            if reading.problem:
                raise RefusedError(f"{job.name}: {reading.problem}")

    def _say(self, text: str) -> None:
        if text != self._said:
            tell(text)
        self._said = text


def tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _print(path: Path, offset: int) -> int:
    """A file from there on. Returns how much there was."""
    size = 0
    if path.exists():
        with path.open("rb") as file:
            file.seek(offset)
            while chunk := file.read(CHUNK):
                size += len(chunk)
                _write(chunk)
    return size


def _write(chunk: bytes) -> None:
    sys.stdout.buffer.write(chunk)
    sys.stdout.buffer.flush()


def _refuse_unheard() -> None:
    """Raises BrokenPipeError when nobody reads what we print: a job may say nothing for hours."""
    ends = select.poll()
    with contextlib.suppress(OSError, ValueError):  # not every output is a file
        ends.register(sys.stdout.fileno(), 0)  # what is wrong is told in any case
    if any(event & (select.POLLERR | select.POLLHUP) for _file, event in ends.poll(0)):
        raise BrokenPipeError


# --- for `fetch`, too -----------------------------------------------------------------------------------------------


@contextlib.contextmanager
def alone(job: RecordedJob) -> Iterator[None]:
    """Nobody else writes the log that is kept of a job. Raises Taken, RefusedError."""
    with contextlib.ExitStack() as stack:
        try:
            if none := stack.enter_context(locks.held(job.folder / LOCK)):
                tell(f"{none}: let one command at a time read this log")
        except OSError:
            pass  # a folder that we may only read, as we then do
        yield


class GoneOn(RefusedError):
    """Another session goes on with jobs whose logs we read: it reads them, too, into their folders."""


def reader_of(places: SchedulerPool, name: str, jobs: Sequence[RecordedJob], typed: Typed, *, follow: bool) -> Reader:
    """Of one platform's jobs. It raises GoneOn when a session goes on with them: a log has one writer."""
    sessions = _sessions(jobs)

    def check() -> None:
        _refuse_unheard()
        for session in sessions:
            if (by := session_history.taken(session.path)) is not None:
                run, other = jobs[0].run, by or "another session"
                raise GoneOn(f"run {run} was gone on with just now, in {other}: {typed.command(f'jobs {run}')}")

    poll_s = places.platform(name).poll_s
    return Reader(places.scheduler(name), poll_s, follow=follow, check=check, tell=tell)


def _sessions(jobs: Sequence[RecordedJob]) -> list[SessionRecord]:
    return list({job.session.path: job.session for job in jobs}.values())
