"""--resume: finds the run that is meant, and selects its tests with the options that it began with."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from harness.collection import TestFiles
from harness.naming import WANTED
from harness.options import KEPT, LAST, run_name, runs_folder, site_folder
from harness.session_start import TESTS_PER_LINE, has_result, refuse_archived
from harness.wording import first_of
from platforms import checkout
from platforms.job import RefusedError
from platforms.rundir import job_folder, session_history, session_liveness
from platforms.rundir.session_history import SessionRecord


def restore(config: pytest.Config) -> None:
    """Before anything is collected, select that run's tests, with its options. Raises UsageError."""
    typed: str | None = config.getoption("resume")
    if typed is None:
        return
    if config.getoption("run_id"):
        raise pytest.UsageError("--resume and --run-id both name a run: --resume=RUN alone goes on with it")
    runs = runs_folder(config)
    try:
        run_id = _run_id(runs, typed)
        config.option.run_id = run_id
        refuse_archived(runs, run_id)
        unfinished = [record for record in session_history.read_sessions(runs / run_id) if record.open]
    except RefusedError as error:
        raise pytest.UsageError(f"--resume: {error}") from None
    if not unfinished:
        _refuse_finished(config, runs, run_id)
        return
    if _selects(config):
        raise pytest.UsageError(f"--resume={run_id} takes the tests and options of that run: leave the others out")
    dead = [record for record in unfinished if not session_liveness.seems_alive(record)]
    sessions = dead or unfinished  # session_start waits for those that only seem to live
    options = _options_of(runs / run_id, sessions)
    tests = [
        test for record in sessions for test, options_of_test in record.options.items() if options_of_test == options
    ]
    _restore_places(config, sessions[-1].plan, is_carried=job_folder.is_carried(runs / run_id))
    test_files = TestFiles(config.rootpath, checkout.absolute(site_folder(config)))
    paths = dict.fromkeys(test_files.of_test(test) for test in tests)
    config.args = [str(path) for path in paths if path.exists()]
    if not config.args:
        raise pytest.UsageError(_not_here(run_id, tests))
    config.stash[WANTED] = frozenset(tests)
    config.option.markexpr = config.option.keyword = ""
    for option in KEPT:
        setattr(config.option, option.name, options.get(option.name, option.keywords.get("default")))


def _restore_places(config: pytest.Config, plan: Mapping[str, Any], *, is_carried: bool) -> None:
    """Take the site, the history and the gate of a session, as far as no others are typed.

    A run that was carried here was begun in another clone: this clone has a site and a history of its own.
    """
    site = plan.get("site")
    if site and not is_carried and not config.option.site and Path(site).is_dir():
        config.option.site = site
    for name in ("gate",) if is_carried else ("history", "gate"):
        recorded = plan.get(name)
        if recorded and not getattr(config.option, name):
            setattr(config.option, name, recorded)


def _options_of(run: Path, sessions: Sequence[SessionRecord]) -> Mapping[str, object]:
    """The options of the latest session that left tests without a result."""
    latest: Mapping[str, object] = sessions[-1].plan["options"]
    for record in reversed(sessions):
        unfinished = [options for test, options in record.options.items() if not has_result(run, record, test)]
        if latest in unfinished:
            return latest
        if unfinished:
            return unfinished[-1]
    return latest


def _not_here(run_id: str, tests: Collection[str]) -> str:
    names = first_of(sorted(tests), TESTS_PER_LINE)
    return (
        f"not in this checkout, with this site: {len(tests)} of run {run_id}'s tests: {names}. Was it another --site, "
        f"or are they renamed? `python -m platforms cancel {run_id}` ends the jobs of those without a result"
    )


def choose(config: pytest.Config, items: list[pytest.Item]) -> str | None:
    """Leave only the tests that --resume goes on with.

    Returns a sentence on those that were not collected, or None. Raises UsageError where none of them was.
    """
    wanted = config.stash.get(WANTED, None)
    if wanted is None:
        return None
    others = [item for item in items if item.nodeid not in wanted]
    if others:
        config.hook.pytest_deselected(items=others)
    items[:] = [item for item in items if item.nodeid in wanted]
    missing = wanted - {item.nodeid for item in items}
    if not missing:
        return None
    message = _not_here(config.getoption("run_id"), missing)
    if not items:
        raise pytest.UsageError(message)
    return message


def _run_id(runs: Path, typed: str) -> str:
    """The id of the run that is meant. Raises UsageError, RefusedError."""
    from platforms.commands import find_run  # imported here, because other sessions need not wait for its modules

    if typed == find_run.LATEST:
        return find_run.latest(runs)
    if typed != LAST:
        try:
            return run_name(typed)
        except ValueError as error:
            raise pytest.UsageError(f"--resume: {error}") from None
    unfinished, unreadable = find_run.unfinished(runs)
    if not unfinished:
        reason = "; ".join(unreadable) or "--runs-dir names another folder"
        raise pytest.UsageError(f"--resume: no run in {runs} is unfinished; {reason}")
    for run_id in unfinished:
        sessions = [record for record in session_history.read_sessions(runs / run_id) if record.open]
        if not all(session_liveness.seems_alive(record) for record in sessions):
            return run_id
    return unfinished[0]


def _refuse_finished(config: pytest.Config, runs: Path, run_id: str) -> None:
    """Raise UsageError for a run that has ended, and for an unknown one whose tests were not named.

    The jobs of an unknown run can be found by their names, when the same tests are named again.
    """
    if session_history.read_sessions(runs / run_id):
        raise pytest.UsageError(f"--resume: run {run_id} has ended; its results are in {runs / run_id}")
    if not _selects(config):
        raise pytest.UsageError(
            f"--resume: {runs} knows no run {run_id}. Name its tests as they were named then, and the platforms find "
            f"its jobs by their names: pytest --resume={run_id} -m … (or its folder: --runs-dir=…)"
        )


def _selects(config: pytest.Config) -> bool:
    """Whether the command line names tests or options of theirs. What stands in `addopts` does not count."""
    parser = ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("-m")
    parser.add_argument("-k")
    for option in KEPT:
        parser.add_argument(option.flag, action="store_true" if option.is_flag else "store")
    typed, _others = parser.parse_known_args([str(word) for word in config.invocation_params.args])
    return any(vars(typed).values()) or config.args_source is pytest.Config.ArgsSource.ARGS
