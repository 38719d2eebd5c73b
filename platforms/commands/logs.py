"""`python -m platforms logs`: prints a job's log.

A job's folder keeps its log, and that file has one writer at a time: the living session, else the command that holds
the lock beside it. On a file system without locks two commands may write; each byte goes to its own place in the file,
so they do no harm to each other.
"""

from __future__ import annotations

import argparse
import contextlib
import select
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from platforms import checkout
from platforms.commands import find_run
from platforms.commands.find_run import TypedOptions
from platforms.commands.job_records import RecordedJob, SchedulerPool, find_job, recorded_jobs
from platforms.commands.log_reading import LogReading
from platforms.job import BenchError, RefusedError
from platforms.rundir import locks, session_history, session_liveness

FOLLOW_S = 1.0
CHUNK = 1 << 20
LOCK = ".log.lock"


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("job", metavar="JOB", help="its name, or a part of its test's id, in the last run")
    parser.add_argument("-f", "--follow", action="store_true", help="go on until it has ended")
    parser.add_argument("--run", metavar="RUN", default=find_run.LATEST, help="of this run (default: latest)")
    find_run.add_runs_dir(parser)


def main(options: argparse.Namespace) -> int:
    """Print a job's log: first what its folder has, then what its scheduler has beyond that.

    With --follow, and for a job without a log, a last line on stderr says how the job ended.
    """
    runs = find_run.runs_folder(options)
    schedulers = SchedulerPool(checkout.site_folder(options.site))
    typed = TypedOptions.of(options)
    run_id = find_run.named(runs, options.run)
    job = find_job(recorded_jobs(runs, run_id), options.job, run_id, typed)
    log = _PrintedLog(job, runs, schedulers, typed, follow=options.follow)
    while not log.print_more():
        _refuse_closed_output()
        time.sleep(FOLLOW_S)
    if options.follow or not log.offset:
        line = f"{log.job.name} on {log.job.platform}: {log.state}"
        if not log.offset:
            line += f"; no log of it is in {log.job.folder}"
        notify(line)
    return 0


class _PrintedLog:
    """One job's log, printed up to byte `offset`. `state` says how the job fared by then."""

    def __init__(
        self, job: RecordedJob, runs: Path, schedulers: SchedulerPool, typed: TypedOptions, *, follow: bool
    ) -> None:
        self.job = job
        self.offset = 0
        self.state = ""
        self._runs = runs
        self._schedulers = schedulers
        self._typed = typed
        self._follow = follow
        self._last_notice = ""

    def print_more(self) -> bool:
        """Print what there is. Returns whether that was all. Raises BenchError."""
        self.job = self.job.refreshed()
        if self._has_no_session and self._still_has_no_session():
            try:
                self._print_from_scheduler()
            except locks.Taken as holder:
                # The holder brings the log into the folder, as a session does, so it is printed from there.
                folder = self.job.folder
                self._notify(f"{self.job.name}: {holder} reads this log, too; shown is what has come to {folder}")
            except TakenOverMeanwhile as error:
                self._notify(str(error))
                return False
            else:
                return True
        self.offset += _print_file(self.job.folder / "log", self.offset)
        self.state = self.job.last_state if self.job.ended is None else str(self.job.ended)
        return not (self.job.open and self._follow)

    @property
    def _has_no_session(self) -> bool:
        return self.job.open and not session_liveness.seems_alive(self.job.session)

    def _still_has_no_session(self) -> bool:
        """Read the record again: another session may have taken over the job, with a new attempt."""
        folder = self.job.folder
        self.job = next(job for job in recorded_jobs(self._runs, self.job.run) if job.test == self.job.test)
        if self.job.folder != folder:
            self.offset = 0
        return self._has_no_session

    def _print_from_scheduler(self) -> None:
        """Print what the job's folder has beyond `offset`, and after that what its scheduler has.

        Raises:
            RefusedError: that is not the whole log.
            Taken: another command brings the log into the folder.
            TakenOverMeanwhile: a session does.
        """
        job = self.job
        with contextlib.ExitStack() as stack:
            try:
                if job.submitted is None:
                    where = f"{self._typed.resume(job.run)} finds it" if job.unsure else "it was not submitted"
                    raise RefusedError(f"{job.name}: {job.last_state}; its id is not known: {where}")
                scheduler = self._schedulers.scheduler(job.platform, [job])
                if scheduler.log_in_folder:
                    stack.enter_context(sole_writer(job))
            except locks.Taken:
                raise
            except BenchError:
                self.offset += _print_file(job.folder / "log", self.offset)
                raise
            if not scheduler.log_in_folder:  # else it reads that file, and knows how much of it is complete
                self.offset += _print_file(job.folder / "log", self.offset)
            reading = LogReading(
                scheduler,
                job.submitted,
                self.offset,
                self._schedulers.platform(job.platform).poll_s,
                follow=self._follow,
                check=lambda: refuse_taken_over(job, self._typed),
                notify=notify,
            )
            for chunk in reading.chunks():
                _write(chunk)
                self.offset = reading.offset
            self.state = str(reading.status)

    def _notify(self, text: str) -> None:
        if text != self._last_notice:
            notify(text)
        self._last_notice = text


def notify(text: str) -> None:
    """Write a line for people to stderr: stdout is for the log."""
    print(text, file=sys.stderr, flush=True)


def _print_file(path: Path, offset: int) -> int:
    """Print a file from byte `offset` on. Returns how many bytes it printed."""
    if not path.exists():
        return 0
    size = 0
    with path.open("rb") as file:
        file.seek(offset)
        while chunk := file.read(CHUNK):
            size += len(chunk)
            _write(chunk)
    return size


def _write(chunk: bytes) -> None:
    sys.stdout.buffer.write(chunk)
    sys.stdout.buffer.flush()


def _refuse_closed_output() -> None:
    """Raise BrokenPipeError when the reader of our output has gone: a job may print nothing for hours."""
    output = select.poll()
    with contextlib.suppress(OSError, ValueError):  # not every output is a file
        output.register(sys.stdout.fileno(), 0)  # errors are reported without being asked for
    if any(event & (select.POLLERR | select.POLLHUP) for _file, event in output.poll(0)):
        raise BrokenPipeError


@contextlib.contextmanager
def sole_writer(job: RecordedJob) -> Iterator[None]:
    """Be the only process that writes the log in a job's folder. Raises Taken, RefusedError."""
    with contextlib.ExitStack() as stack:
        try:
            no_lock = stack.enter_context(locks.held(job.folder / LOCK))
            if no_lock:
                notify(f"{no_lock}: let one command at a time read this log")
        except OSError:
            pass  # we may only read this folder, so we write nothing
        yield


class TakenOverMeanwhile(BenchError):
    """A session has taken over the job whose log we read, and reads it into its folder itself: a log has one writer."""


def refuse_taken_over(job: RecordedJob, typed: TypedOptions) -> None:
    """Raise TakenOverMeanwhile when a session has taken over, and BrokenPipeError when our output is closed."""
    _refuse_closed_output()
    taken_by = session_history.read_successor(job.session.path)
    if taken_by is not None:
        other = taken_by or "another session"
        raise TakenOverMeanwhile(
            f"run {job.run} was gone on with just now, in {other}: {typed.command(f'jobs {job.run}')}"
        )
