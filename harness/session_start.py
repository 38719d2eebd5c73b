"""How a session begins: it says that it is there, looks who else is, and takes over what an earlier one has left."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from harness.options import KEPT, Options
from platforms.job import JobSpec
from platforms.rundir import job_folder, session_history, session_liveness
from platforms.rundir.session_history import Attempt, SessionRecord
from platforms.rundir.session_journal import Journal
from platforms.runner import messages

NAMED = 3  # tests in one line
TRIES = 5
TOO_OLD_S = 12 * 3600.0  # what was left longer ago is a result of another day, unless it is named by --resume


def plan(config: pytest.Config, jobs: Mapping[str, JobSpec]) -> dict[str, object]:
    """What another session needs to go on with ours."""
    options = {name: value for name in KEPT if (value := config.getoption(name))}
    archives = {spec.archive.name for spec in jobs.values() if spec.archive is not None}
    site = config.getoption("site")
    where = {"site": str(Path(site).absolute())} if site else {}
    return {"tests": list(jobs), "options": options, "code": sorted(archives), **where}


@dataclass(frozen=True)
class StartedSession:
    """This session's journal, and what it goes on with. `attempts` are those of all its tests, `before` which of these
    earlier sessions have begun, or may have: of a run without a record that is `unknown`; `carried` are tests of theirs
    that are not ours and have no result yet; `told` is what a person should know of it."""

    journal: Journal
    attempts: Mapping[str, Attempt]
    before: frozenset[str]
    unknown: bool = False
    carried: Sequence[str] = ()
    told: Sequence[str] = ()


class SimultaneousStart(Exception):
    """Another session of the run begins as we do, and one of the two must step back."""


def stepping_back(begin: Callable[[], StartedSession]) -> StartedSession:
    """`begin`, again after a moment where somebody else begins at the same time. Raises UsageError."""
    said = ""
    for number in range(TRIES):
        try:
            return begin()
        except SimultaneousStart as error:
            said = str(error)
            time.sleep(random.uniform(0.1, 1.0 + number))  # longer and longer: where disks are slow, so is beginning
    raise pytest.UsageError(said)


def begin(
    options: Options,
    run_id: str,
    plan: Mapping[str, object],
    jobs: Mapping[str, JobSpec],
    beat_s: float,
    tell: Callable[[str], None],
) -> StartedSession:
    """We say that we are there, and then look who else is: of two that begin, one sees the other.

    `tell` is given what takes a while. Raises UsageError when another session of the run lives that has a test of ours,
    or was quicker to go on; BothBegin; RefusedError when our record cannot be kept.
    """
    refuse_archived(options.runs, run_id)
    folder = options.runs / run_id
    mine, how = Journal(folder, plan, beat_s), session_history.DONE
    try:
        known = [past for past in session_history.sessions(folder) if past.name != mine.name]
        if options.resume and known and not any(past.open for past in known):
            raise pytest.UsageError(_quicker(run_id))
        before = [past for past in known if past.open and not jobs.keys().isdisjoint(past.tests)]
        for past in before:
            if session_liveness.alive(past, mine.touched_s, tell):
                kind = pytest.UsageError if past.states else SimultaneousStart
                raise kind(f"run {run_id} is under way in {past}; nothing was submitted")
        old = [past for past in before if options.run_again and mine.touched_s() - past.beat_at_s > TOO_OLD_S]
        for past in before:
            if past not in old:
                before_it, how = how, session_history.PENDING  # what is taken is ours from then on
                if not mine.take_over(past):
                    how = before_it
                    raise pytest.UsageError(_quicker(run_id))
        us = next(past for past in session_history.sessions(folder) if past.name == mine.name)
    except BaseException:
        mine.end(how)
        raise
    begun = {test: attempt for test, attempt in us.attempts.items() if test in jobs}
    carried = [test for test in us.tests if test not in jobs and not is_read(folder, us, test)]
    told = [f"going on with run {run_id}: {len(begun)} of {len(jobs)} jobs were begun before"] if before != old else []
    if begun and len(begun) < len(jobs) and any(past.plan.get("code") != plan["code"] for past in before):
        told.append("the code has changed since: those that are begun now run other code than the rest")
    told += [_not_among(options, run_id, carried)] if carried else []
    told += [f"what {past} has left is of another day: {options.again(run_id)} reads it" for past in old]
    others = [past for past in known if options.resume and past.open and past not in before]
    for past in others:
        if not session_liveness.lives(past):
            told.append(f"then {options.again(run_id)} once more: {past} has left jobs that are not among these")
    unknown = options.resume and not known
    attempts = {test: _attempt(options.runs, run_id, test, begun.get(test), unknown=unknown) for test in jobs}
    return StartedSession(mine, attempts, frozenset(jobs if unknown else begun), unknown, carried, told)


def _not_among(options: Options, run_id: str, carried: Sequence[str]) -> str:
    some = ", ".join(carried[:NAMED]) + (", …" if len(carried) > NAMED else "")
    return (
        f"{len(carried)} unfinished jobs of it are not among these tests ({some}): {options.again(run_id)} goes on "
        f"with them, python -m platforms cancel {run_id}{options.where} ends them"
    )


def _attempt(runs: Path, run_id: str, test: str, begun: Attempt | None, *, unknown: bool) -> Attempt:
    """The one that was begun, unless its session has ended it; else one whose folder is not used yet, since what lies
    in another is not of this measurement. Of a run without a record the last one whose folder is."""
    number = 1
    while job_folder.is_used(job_folder.of_attempt(runs, run_id, test, number)):
        number += 1
    if unknown:
        return Attempt(max(1, number - 1))
    if begun is None:
        return Attempt(number)
    if _was_ended(runs, run_id, test, begun):
        return replace(begun, number=number, asked_s=None, ending=False)
    return begun


def refuse_archived(runs: Path, run_id: str) -> None:
    """Its jobs would have the names of those that it had: a platform might hand out their results for tonight's."""
    archived = runs / "old" / f"{run_id}.tar.gz"
    if archived.exists() and not (runs / run_id).exists():
        raise pytest.UsageError(
            f"run {run_id} has ended and lies in {archived}: choose another --run-id, or bring it back: "
            f"tar -xf {archived} -C {runs}"
        )


def is_read(run: Path, past: SessionRecord, test: str) -> bool:
    """Whether a session has written its result down."""
    attempt = past.attempts.get(test)
    folder = None if attempt is None else job_folder.of_attempt(run.parent, run.name, test, attempt.number)
    return folder is not None and (folder / "run.json").exists()


def _quicker(run_id: str) -> str:
    return f"run {run_id}: another session has just gone on with it; nothing was submitted"


def _was_ended(runs: Path, run_id: str, test: str, attempt: Attempt) -> bool:
    """By a session of this run, which then could not end the others: it has no result yet."""
    found = job_folder.recorded(job_folder.of_attempt(runs, run_id, test, attempt.number))
    return found is not None and found[0].status.reason in (messages.ENDED_BY_US, messages.NEVER_SUBMITTED)
