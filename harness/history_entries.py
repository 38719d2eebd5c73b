"""Writes what becomes of a session's jobs into the history: that a job is left, how it ended, what its test said.

A file `in_history` in a job's folder names the history that has the end of the job. So the next session finds what a
session that was killed in between still owes, without reading the history.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from platforms import checkout
from platforms.job import BenchError, Outcome, Run, Trial, job_key
from platforms.rundir import job_folder, job_json, session_history, session_liveness
from platforms.runner.messages import NEVER_SUBMITTED
from reporting.history.envelope import Envelope, Revision
from reporting.history.files import is_empty
from reporting.history.run_facts import envelope_of
from reporting.history.writer import HistoryWriter

if TYPE_CHECKING:
    from platforms.rundir.session_history import SessionRecord
    from platforms.runner import Job
    from reporting.gate.verdict import Verdict

MARK = "in_history"

_Stamp = tuple[int, int, int]


@dataclass(frozen=True)
class JobFolder:
    """The folder of one attempt of a test."""

    path: Path
    attempt: int

    @property
    def run_id(self) -> str:
        return self.path.parent.name

    @property
    def run_json(self) -> dict[str, Any]:
        return job_json.read_json(self.path / "run.json")

    @property
    def submitted_s(self) -> float | None:
        """When we submitted the job. The scheduler's own time may be another one, and is not known from the start."""
        seconds = job_json.read_json(self.path / "submitted.json").get("submitted_s")
        return None if seconds is None else float(seconds)


@dataclass(frozen=True)
class UnfinishedRun:
    """A run with a dead session that may owe entries.

    Attributes:
        killed: the session has not ended, and no other one has taken its jobs over.
    """

    folder: Path
    killed: bool


class HistoryEntries:
    """The entries of one session.

    Worker threads call `job_ended`, the main thread calls everything else.

    Args:
        folder: of the history, absolute.
        site: the name of the site, for runs whose sessions have written none down. Each run keeps its first one.

    Attributes:
        is_first: the history had no line when this session began.
        error: why an entry could not be written; None if all were. `--resume` writes them again.
    """

    def __init__(self, folder: Path, site: str) -> None:
        self.folder = folder
        self.error: Exception | None = None
        self._site_of = cache(lambda run_folder: session_history.site_name(run_folder) or site)
        self.is_first = is_empty(folder)
        self._writer = HistoryWriter(folder)
        self._envelopes: dict[Path, tuple[_Stamp, Envelope]] = {}  # of recorded jobs, by their folders

    def job_ended(self, job: Job) -> None:
        """Write how a job has ended. The outcome of a job that succeeded is pending until its test has said more."""
        folder = JobFolder(job.folder, job.attempt.number)
        stamp = _stamp(folder.path / "run.json")
        if stamp is not None:
            with self._errors_kept():
                self._envelopes[folder.path] = (stamp, _of_recorded(self._write_end(folder)))

    def left(self, jobs: Sequence[Job]) -> None:
        """Write that jobs go on without this session."""
        for job in jobs:
            if job.job_id is None:
                continue
            with self._errors_kept():
                spec = job.spec
                run = spec.named(Run(status=job.status))
                content = job_json.run_content(run, spec, job.job_id, job.queue_s, None)
                folder = JobFolder(job.folder, job.attempt.number)
                envelope = self._envelope(folder, content, Outcome.PENDING, Revision.PENDING)
                self._writer.write(envelope, None)

    def envelope(self, job: Job) -> Envelope | None:
        """The envelope of a job whose test has recorded its numbers; None if there is no run.json.

        A session asks for it several times, so it is made again only if run.json has changed.
        """
        folder = JobFolder(job.folder, job.attempt.number)
        stamp = _stamp(folder.path / "run.json")
        if stamp is None:
            return None
        known = self._envelopes.get(folder.path)
        if known is None or known[0] != stamp:
            content = folder.run_json
            if not content:
                return None
            envelope = self._envelope(folder, content, Outcome.PASSED, Revision.TEST_ENDED)
            known = self._envelopes[folder.path] = (stamp, _of_recorded(envelope))
        return replace(known[1], written_s=time.time())

    def test_ended(self, job: Job, outcome: Outcome, sane: bool, verdicts: Mapping[str, Verdict]) -> None:
        """Write the outcome of a test.

        Args:
            sane: the test has recorded numbers, and no assertion has failed. A regressed number is sane.
            verdicts: of the gate, by metric.
        """
        with self._errors_kept():
            envelope = self.envelope(job)
            if envelope is None:
                return
            envelope = replace(envelope, outcome=outcome, sane=sane, verdicts=as_stored(verdicts))
            folder = JobFolder(job.folder, job.attempt.number)
            self._write(envelope, folder, folder.run_json)

    def unfinished(self, runs: Path) -> list[UnfinishedRun]:
        """The runs of which a dead session may not have written everything.

        Such a session was killed, could not write, or left jobs that `python -m platforms cancel` has ended. Sessions
        that wrote into another history are left out, and so are runs that we may not read.
        """
        found = []
        for run_id in session_history.runs_with_sessions(runs):
            with contextlib.suppress(BenchError, OSError):  # its owner's next session looks at it
                dead = self._dead_sessions(runs / run_id)
                if dead:
                    killed = any(record.end is None and record.successor is None for record in dead)
                    found.append(UnfinishedRun(runs / run_id, killed))
        return found

    def write_owed(self, runs: Sequence[UnfinishedRun]) -> int:
        """Write the ends of jobs that dead sessions of these runs owe. Returns how many they are."""
        folders: list[JobFolder] = []
        for run in runs:
            with contextlib.suppress(BenchError, OSError):
                folders += _without_mark(run.folder)
        written = 0
        for folder in folders:
            with contextlib.suppress(Exception):  # a later session tries again
                self._write_end(folder)
                written += 1
        return written

    def _dead_sessions(self, run_folder: Path) -> list[SessionRecord]:
        """The dead sessions of a run that may not have written everything into this history."""
        dead = []
        for path in session_history.files_of_unfinished(run_folder):
            record = session_history.read_session(path)
            history = record.plan.get("history") if record else None
            if record is None or history is None or not checkout.is_same(Path(history), self.folder):
                continue
            if not session_liveness.seems_alive(record):
                dead.append(record)
        return dead

    def _write_end(self, folder: JobFolder) -> Envelope:
        content = folder.run_json
        outcome = Outcome(content["outcome"])
        if outcome is Outcome.PASSED:
            outcome = Outcome.PENDING
        if content.get("reason") == NEVER_SUBMITTED:  # the session was ended first: nothing has failed
            outcome = Outcome.SKIPPED
        envelope = self._envelope(folder, content, outcome, Revision.JOB_ENDED)
        self._write(envelope, folder, content)
        return envelope

    def _envelope(
        self, folder: JobFolder, content: Mapping[str, Any], outcome: Outcome, revision: Revision
    ) -> Envelope:
        envelope = envelope_of(
            content,
            site=self._site_of(folder.path.parent),
            run_id=folder.run_id,
            attempt=folder.attempt,
            outcome=outcome,
            sane=False,
            revision=revision,
            written_s=time.time(),
        )
        return replace(envelope, key=envelope.key._replace(submitted_s=folder.submitted_s))

    def _write(self, envelope: Envelope, folder: JobFolder, run_json: Mapping[str, Any]) -> None:
        self._writer.write(envelope, run_json)
        with contextlib.suppress(OSError):  # without it a later session writes the entry again, with the same key
            (folder.path / MARK).write_text(f"{self.folder}\n")

    @contextlib.contextmanager
    def _errors_kept(self) -> Iterator[None]:
        """Keep an error for the end of the session. It must not end a job, or the results of other jobs."""
        try:
            yield
        except Exception as error:
            self.error = error


def _of_recorded(envelope: Envelope) -> Envelope:
    """The envelope of a job as it is once its test has recorded its numbers."""
    return replace(envelope, outcome=Outcome.PASSED, sane=True, revision=Revision.TEST_ENDED)


def _stamp(path: Path) -> _Stamp | None:
    """What changes whenever a file is written as a whole; None if there is no file."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


def as_stored(verdicts: Mapping[str, Verdict]) -> dict[str, dict[str, object]]:
    """What an envelope keeps of the gate's verdicts, by metric."""
    stored: dict[str, dict[str, object]] = {}
    for metric, verdict in verdicts.items():
        since = None if verdict.since is None else verdict.since.isoformat()
        stored[metric] = {
            "kind": verdict.kind.value,
            "red": verdict.red,
            "change": verdict.change,
            "since": since,
            "limit": verdict.limit,
            "level": verdict.level,
            "scale": verdict.scale,
        }
        if verdict.confirmation is not None:
            stored[metric]["confirmation"] = {
                "short": verdict.confirmation.short,
                "text": "\n".join(verdict.confirmation.lines),
            }
    return stored


def _without_mark(run_folder: Path) -> Iterator[JobFolder]:
    """The folders of a run that hold the result of a job and no mark, and that we may write to."""
    for path in sorted(run_folder.iterdir()):
        if not (path / "run.json").exists() or (path / MARK).exists() or not os.access(path, os.W_OK):
            continue
        content = job_json.read_json(path / "run.json")
        key = job_key(str(content.get("test", "")), Trial.from_content(content.get("trial", {})).key)
        number = path.name.removeprefix(job_folder.folder_name(key)).removeprefix(".") or "1"
        if number.isdecimal():
            yield JobFolder(path, int(number))
