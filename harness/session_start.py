"""Starting a session of a run: which other sessions are there, and what this one takes over from them.

A session first writes its own journal and only then looks for others, so of two sessions that start at the same time at
least one sees the other. docs/resuming.md explains the rules to users.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from harness.options import KEPT, Options
from harness.wording import first_of
from platforms import checkout
from platforms.job import JobSpec
from platforms.rundir import job_folder, job_json, session_history, session_liveness
from platforms.rundir.session_history import Attempt, SessionRecord
from platforms.rundir.session_journal import Journal
from platforms.runner import messages
from platforms.schedulers.past_jobs import Place, refuse_moved

if TYPE_CHECKING:
    from platforms.config.schema import Platform

TESTS_PER_LINE = 3
START_TRIES = 5
# What a session left longer ago is a result of another day. Only --resume, which names the run, goes on with it.
STALE_S = 12 * 3600.0


@dataclass(frozen=True)
class StartedSession:
    """This session's journal, and what it goes on with.

    Attributes:
        attempt_of: which attempt a job is that begins now, by its key.
        begun_jobs: the test of each job that earlier sessions have begun of this session's tests, by the job's key.
        begun_tests: these tests; all tests of a run without a record.
        without_record: the run has no journal of an earlier session, so jobs must be searched for by their names.
        carried: tests of earlier sessions that are not among this session's and have no result yet.
        notices: what a person should know, a line each.
    """

    journal: Journal
    attempt_of: Callable[[str], Attempt]
    begun_jobs: Mapping[str, str]
    begun_tests: frozenset[str]
    without_record: bool = False
    carried: Sequence[str] = ()
    notices: Sequence[str] = ()


class SimultaneousStart(Exception):
    """Another session of the run is starting at this moment, and one of the two must wait."""


def session_plan(
    config: pytest.Config, jobs: Mapping[str, JobSpec], history: Path, site_name: str
) -> dict[str, object]:
    """What another session needs to go on with this one: its tests, options, site, code and history.

    The site's name is that under which the run's lines stand in the history, whatever site.yaml says later.
    """
    options = {option.name: value for option in KEPT if (value := config.getoption(option.name))}
    archives = {spec.archive.name for spec in jobs.values() if spec.archive is not None}
    plan: dict[str, object] = {"tests": list(jobs), "options": options, "code": sorted(archives)}
    plan["history"] = str(history)
    plan["site_name"] = site_name
    gate = config.getoption("gate")
    if gate:
        plan["gate"] = gate
    site = config.getoption("site")
    if site:
        plan["site"] = str(checkout.absolute(Path(site)))
    return plan


def start(
    options: Options,
    run_id: str,
    plan: Mapping[str, object],
    jobs: Mapping[str, JobSpec],
    platforms: Mapping[str, Platform],
    beat_s: float,
    report: Callable[[str], None],
) -> StartedSession:
    """Start a session of a run, and try again when another session starts at the same time.

    Args:
        plan: of session_plan().
        beat_s: seconds between two signs of life in the journal.
        report: is called with a line about anything that takes a while.

    Raises:
        UsageError: another session of the run lives and has a test of ours, or was quicker to go on with it.
        RefusedError: the journal cannot be written, or a past job is not where its platform says now.
    """
    for tries in range(START_TRIES):
        try:
            return _start(options, run_id, plan, jobs, platforms, beat_s, report)
        except SimultaneousStart as error:
            other = str(error)
            # The pauses grow: where disks are slow, the other session takes long to start, too.
            time.sleep(random.uniform(0.1, 1.0 + tries))
    raise pytest.UsageError(other)


def _start(
    options: Options,
    run_id: str,
    plan: Mapping[str, object],
    jobs: Mapping[str, JobSpec],
    platforms: Mapping[str, Platform],
    beat_s: float,
    report: Callable[[str], None],
) -> StartedSession:
    refuse_archived(options.runs, run_id)
    run_folder = options.runs / run_id
    journal = Journal(run_folder, plan, beat_s)
    taken: list[SessionRecord] = []
    try:
        others = [record for record in session_history.read_sessions(run_folder) if record.name != journal.name]
        if options.resume and others and not any(record.open for record in others):
            raise pytest.UsageError(_too_late(run_id))
        rivals = [record for record in others if record.open and not jobs.keys().isdisjoint(record.tests)]
        _refuse_living(run_id, rivals, journal, report)
        stale = _stale(options, rivals, journal)
        taken_over = [record for record in rivals if record not in stale]
        _refuse_moved(run_folder, taken_over, jobs, platforms)
        _take_over(taken_over, journal, run_id, taken)
        # Read again: now our own record includes the attempts of the sessions that we took over.
        own = next(record for record in session_history.read_sessions(run_folder) if record.name == journal.name)
    except BaseException:
        journal.end(session_history.PENDING if taken else session_history.DONE)
        raise
    begun = {key: attempt for key, attempt in own.attempts.items() if own.states[key]["test"] in jobs}
    carried = [test for test in own.tests if test not in jobs and not has_result(run_folder, own, test)]
    notices = []
    if taken:
        first = sum(spec.key in begun for spec in jobs.values())
        notices.append(f"going on with run {run_id}: the jobs of {first} of {len(jobs)} tests were begun before")
    if 0 < len(begun) < len(jobs) and any(record.plan.get("code") != plan["code"] for record in rivals):
        notices.append("the code has changed since: jobs that begin now run other code than the rest")
    notices += _left_elsewhere(options, run_id, carried, stale, [record for record in others if record not in rivals])
    without_record = options.resume and not others

    def attempt_of(key: str) -> Attempt:
        return _attempt(options.runs, run_id, key, begun.get(key), without_record=without_record)

    begun_jobs = {key: str(own.states[key]["test"]) for key in begun}
    begun_tests = frozenset(jobs if without_record else begun_jobs.values())
    return StartedSession(journal, attempt_of, begun_jobs, begun_tests, without_record, carried, notices)


def _refuse_living(
    run_id: str, rivals: Sequence[SessionRecord], journal: Journal, report: Callable[[str], None]
) -> None:
    """Raise UsageError where a session with tests of ours lives; SimultaneousStart where that one is starting, too."""
    for record in rivals:
        if session_liveness.wait_if_alive(record, journal.touch, report):
            message = f"run {run_id} is under way in {record}; nothing was submitted"
            has_jobs = bool(record.states)
            raise pytest.UsageError(message) if has_jobs else SimultaneousStart(message)


def _stale(options: Options, rivals: Sequence[SessionRecord], journal: Journal) -> list[SessionRecord]:
    """The sessions whose results are of another day. There are none where --resume asks for exactly this run."""
    if options.run_id is None or options.resume:
        return []
    now_s = journal.touch()
    return [record for record in rivals if now_s - record.beat_at_s > STALE_S]


def _refuse_moved(
    run_folder: Path, records: Sequence[SessionRecord], jobs: Mapping[str, JobSpec], platforms: Mapping[str, Platform]
) -> None:
    """Raise RefusedError where a job that may exist, and has no result yet, does not lie where its platform says."""
    places: dict[str, dict[str, Place]] = {}  # by platform, then by name
    for record in records:
        for key, state in record.states.items():
            may_exist = state.get("job_id") or record.attempts[key].asked_s is not None
            if state["test"] in jobs and may_exist and not _has_ended(run_folder, record, key):
                places.setdefault(state["platform"], {})[state["name"]] = state.get("place", {})
    for platform, of_jobs in places.items():
        refuse_moved(platforms[platform], of_jobs)


def _take_over(records: Sequence[SessionRecord], journal: Journal, run_id: str, taken: list[SessionRecord]) -> None:
    """Take over sessions, and add each to `taken`. Raises UsageError when another session is quicker."""
    for record in records:
        taken.append(record)  # before it is tried: an interrupt in between must leave the run unfinished
        if not journal.take_over(record):
            taken.pop()
            raise pytest.UsageError(_too_late(run_id))


def _left_elsewhere(
    options: Options,
    run_id: str,
    carried: Sequence[str],
    stale: Sequence[SessionRecord],
    without_our_tests: Sequence[SessionRecord],
) -> list[str]:
    """Notices on what this session does not go on with: other tests, what is of another day, and other sessions."""
    again = options.again(run_id)
    notices = []
    if carried:
        tests = first_of(carried, TESTS_PER_LINE)
        notices.append(
            f"{len(carried)} unfinished jobs of it are not among these tests ({tests}): {again} goes on with them, "
            f"python -m platforms cancel {run_id}{options.typed_places} ends them"
        )
    for record in stale:
        notices.append(f"what {record} has left is of another day: {again} reads it")
    if options.resume:
        for record in without_our_tests:
            if record.open and not session_liveness.seems_alive(record):
                notices.append(f"then {again} once more: {record} has left jobs that are not among these")
    return notices


def _attempt(runs: Path, run_id: str, key: str, begun: Attempt | None, *, without_record: bool) -> Attempt:
    """Which attempt of a job this session goes on with, or makes, by the key of the job.

    A new attempt never gets a folder that is in use, because the files there belong to another measurement. In a run
    without a record the last folder in use is the attempt to look for.
    """
    number = 1
    while job_folder.is_used(job_folder.attempt_folder(runs, run_id, key, number)):
        number += 1
    if without_record:
        return Attempt(max(1, number - 1))
    if begun is None:
        return Attempt(number)
    if _was_cancelled(runs, run_id, key, begun):
        return replace(begun, number=number, asked_s=None, ending=False)
    return begun


def _was_cancelled(runs: Path, run_id: str, key: str, attempt: Attempt) -> bool:
    """Whether a session of this run has cancelled the job: then it has no result, and is measured again."""
    found = job_json.read_run(job_folder.attempt_folder(runs, run_id, key, attempt.number))
    return found is not None and found[0].status.reason in (messages.ENDED_BY_US, messages.NEVER_SUBMITTED)


def refuse_archived(runs: Path, run_id: str) -> None:
    """Raise UsageError for the id of an archived run.

    Job names derive from the run id, so a scheduler could return the results of the archived run's jobs.
    """
    archived = runs / "old" / f"{run_id}.tar.gz"
    if archived.exists() and not (runs / run_id).exists():
        raise pytest.UsageError(
            f"run {run_id} has ended and lies in {archived}: choose another --run-id, or bring it back: "
            f"tar -xf {archived} -C {runs}"
        )


def has_result(run_folder: Path, record: SessionRecord, test: str) -> bool:
    """Whether a session has written down the results of all jobs that it has begun for a test."""
    begun = [key for key in record.attempts if record.states[key]["test"] == test]
    return bool(begun) and all(_has_ended(run_folder, record, key) for key in begun)


def _has_ended(run_folder: Path, record: SessionRecord, key: str) -> bool:
    """Whether a session has written down the result of a job."""
    folder = job_folder.attempt_folder(run_folder.parent, run_folder.name, key, record.attempts[key].number)
    return (folder / "run.json").exists()


def _too_late(run_id: str) -> str:
    return f"run {run_id}: another session has just gone on with it; nothing was submitted"
