"""Going on with a run that an earlier session has left: which one, its tests and options, and which of its jobs."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from harness.options import CHOICES, LAST, Options, run_name
from platforms import journal
from platforms.job import JobSpec, RefusedError
from platforms.journal import Attempt, Journal
from platforms.runner import evidence, explain

# What decides which jobs tests make; a run goes on with what it began with.
KEPT = ("platform", *CHOICES, "variant", "layouts", "preset")
TRIES = 5
TOO_OLD_S = 12 * 3600.0  # what was left longer ago is a result of another day, unless it is named by --resume


def restore(config: pytest.Config) -> None:
    """--resume: before anything is collected, select that run's tests, with its options. Raises UsageError."""
    named: str | None = config.getoption("resume")
    if named is None:
        return
    if config.getoption("run_id"):
        raise pytest.UsageError("--resume and --run-id both name a run: --resume=RUN alone goes on with it")
    runs = Path(config.getoption("runs_dir") or config.rootpath / "runs")
    try:
        run_id = _named(runs, named)
        config.option.run_id = run_id
        _refuse_archived(runs, run_id)
        left = [past for past in journal.sessions(runs / run_id) if past.open]
    except RefusedError as error:
        raise pytest.UsageError(f"--resume: {error}") from None
    if not left:
        _refuse(config, runs, run_id)
        return
    if _selects(config):
        raise pytest.UsageError(f"--resume={run_id} takes the tests and options of that run: leave the others out")
    dead = [past for past in left if not journal.lives(past)] or left  # those that only seem to live are waited for
    options = dead[-1].plan["options"]
    tests = dict.fromkeys(test for past in dead if past.plan["options"] == options for test in past.tests)
    config.args = [str(config.rootpath / test) for test in tests]
    config.option.markexpr = config.option.keyword = ""
    for name, value in options.items():
        setattr(config.option, name, value)


def _named(runs: Path, word: str) -> str:
    """The run that is meant. Raises UsageError, RefusedError."""
    from platforms import which_run  # who does not resume does not wait for its modules

    if word == which_run.LATEST:
        return which_run.latest(runs)
    if word != LAST:
        return run_name("--resume", word)
    found, unread = which_run.unfinished(runs)
    if not found:
        why = "; ".join(unread) or "--runs-dir names another folder"
        raise pytest.UsageError(f"--resume: no run in {runs} is unfinished; {why}")
    return found[0]


def _refuse(config: pytest.Config, runs: Path, run_id: str) -> None:
    """Unless nothing is known of the run here: with its tests named again, their jobs are found by their names."""
    if journal.sessions(runs / run_id):
        raise pytest.UsageError(f"--resume: run {run_id} has ended; its results are in {runs / run_id}")
    if not _selects(config):
        raise pytest.UsageError(
            f"--resume: {runs} knows no run {run_id}. Name its tests as they were named then, and the platforms find "
            f"its jobs by their names: pytest --resume={run_id} -m … (or its folder: --runs-dir=…)"
        )


def _selects(config: pytest.Config) -> bool:
    chosen = config.option.markexpr or config.option.keyword or any(config.getoption(name) for name in KEPT)
    return bool(chosen) or config.args_source is pytest.Config.ArgsSource.ARGS


def plan(config: pytest.Config, jobs: Mapping[str, JobSpec]) -> dict[str, object]:
    """What another session needs to go on with ours."""
    options = {name: value for name in KEPT if (value := config.getoption(name))}
    archives = {spec.archive.name for spec in jobs.values() if spec.archive is not None}
    return {"tests": list(jobs), "options": options, "code": sorted(archives)}


@dataclass(frozen=True)
class Begun:
    """This session's journal, and what it goes on with. `attempts` are those of its tests that earlier sessions have
    begun; `carried` are tests of theirs that are not ours; `told` is what a person should know of it."""

    journal: Journal
    attempts: Mapping[str, Attempt]
    carried: Sequence[str] = ()
    told: Sequence[str] = ()


class BothBegin(Exception):
    """Another session of the run begins as we do, and one of the two must step back."""


def stepping_back(begin: Callable[[], Begun]) -> Begun:
    """`begin`, again after a moment where somebody else begins at the same time. Raises UsageError."""
    said = ""
    for _ in range(TRIES):
        try:
            return begin()
        except BothBegin as error:
            said = str(error)
            time.sleep(random.uniform(0.1, 1.0))
    raise pytest.UsageError(said)


def begin(
    options: Options,
    run_id: str,
    plan: Mapping[str, object],
    jobs: Mapping[str, JobSpec],
    beat_s: float,
    tell: Callable[[str], None],
) -> Begun:
    """We say that we are there, and then look who else is: of two that begin, one sees the other.

    `tell` is given what takes a while. Raises UsageError when another session of the run lives that has a test of ours,
    or was quicker to go on; BothBegin; RefusedError when our record cannot be kept.
    """
    _refuse_archived(options.runs, run_id)
    folder = options.runs / run_id
    mine, how = Journal(folder, plan, beat_s), journal.DONE
    try:
        known = [past for past in journal.sessions(folder) if past.name != mine.name]
        if options.resume and known and not any(past.open for past in known):
            raise pytest.UsageError(_quicker(run_id))
        before = [past for past in known if past.open and not jobs.keys().isdisjoint(past.tests)]
        for past in before:
            if journal.alive(past, mine.touched_s, tell):
                kind = pytest.UsageError if past.states else BothBegin
                raise kind(f"run {run_id} is under way in {past}; nothing was submitted")
        old = [past for past in before if options.run_again and mine.touched_s() - past.beat_at_s > TOO_OLD_S]
        for past in before:
            if past not in old:
                how = journal.PENDING  # what is taken is ours from then on
                if not mine.takes(past):
                    raise pytest.UsageError(_quicker(run_id))
        us = next(past for past in journal.sessions(folder) if past.name == mine.name)
    except BaseException:
        mine.end(how)
        raise
    carried = [test for test in us.tests if test not in jobs]
    begun = {test: attempt for test, attempt in us.attempts.items() if test in jobs}
    begun |= {
        test: _unused(options.runs, run_id, test)
        for test, attempt in begun.items()
        if _was_ended(options.runs, run_id, test, attempt)
    }
    told = [f"going on with run {run_id}: {len(begun)} of {len(jobs)} jobs were begun before"] if before != old else []
    if begun and len(begun) < len(jobs) and any(past.plan.get("code") != plan["code"] for past in before):
        told.append("the code has changed since: those that are begun now run other code than the rest")
    if carried:
        told.append(f"{len(carried)} jobs of it are not among these tests: pytest --resume={run_id} goes on with all")
    for past in old:
        told.append(f"what {past} has left is of another day and left alone: pytest --resume={run_id} reads it")
        left = {test for test in past.attempts if test in jobs and test not in begun}  # and nobody has begun tonight
        begun |= {test: _unused(options.runs, run_id, test) for test in left}
    if options.resume and not known:  # nobody knows what was asked for
        begun = {test: _last_attempt(options.runs, run_id, test) for test in jobs}
    for past in known if options.resume else ():
        if past.open and past not in before and not journal.lives(past):
            told.append(f"then pytest --resume={run_id} once more: {past} has left jobs that are not among these")
    return Begun(mine, begun, carried, told)


def _refuse_archived(runs: Path, run_id: str) -> None:
    """Its jobs would have the names of those that it had: a platform might hand out their results for tonight's."""
    archived = runs / "old" / f"{run_id}.tar.gz"
    if archived.exists() and not (runs / run_id).exists():
        raise pytest.UsageError(
            f"run {run_id} has ended and lies in {archived}: choose another --run-id, or bring it back: "
            f"tar -xf {archived} -C {runs}"
        )


def _quicker(run_id: str) -> str:
    return f"run {run_id}: another session has just gone on with it; nothing was submitted"


def _was_ended(runs: Path, run_id: str, test: str, attempt: Attempt) -> bool:
    """By a session of this run, which then could not end the others: it has no result yet."""
    found = evidence.recorded(evidence.of_attempt(runs, run_id, test, attempt.number))
    return found is not None and found[0].status.reason in (explain.ENDED_BY_US, explain.NEVER_SUBMITTED)


def _last_attempt(runs: Path, run_id: str, test: str) -> Attempt:
    """Of a run without a record: that one of which there is a folder, and there may be a job of it."""
    return Attempt(max(1, _unused(runs, run_id, test).number - 1), asked_s=time.time())


def _unused(runs: Path, run_id: str, test: str) -> Attempt:
    number = 1
    while evidence.of_attempt(runs, run_id, test, number).exists():
        number += 1
    return Attempt(number)
