"""--resume: which run is meant, and its tests, selected with the options that it began with."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import pytest

from harness.collection import TestFiles
from harness.options import KEPT, LAST, run_name, runs_folder, site_folder
from harness.select import WANTED
from harness.session_start import NAMED, is_read, refuse_archived
from platforms.job import RefusedError
from platforms.rundir import session_history, session_liveness
from platforms.rundir.session_history import SessionRecord


def restore(config: pytest.Config) -> None:
    """--resume: before anything is collected, select that run's tests, with its options. Raises UsageError."""
    named: str | None = config.getoption("resume")
    if named is None:
        return
    if config.getoption("run_id"):
        raise pytest.UsageError("--resume and --run-id both name a run: --resume=RUN alone goes on with it")
    runs = runs_folder(config)
    try:
        run_id = _named(runs, named)
        config.option.run_id = run_id
        refuse_archived(runs, run_id)
        left = [past for past in session_history.sessions(runs / run_id) if past.open]
    except RefusedError as error:
        raise pytest.UsageError(f"--resume: {error}") from None
    if not left:
        _refuse(config, runs, run_id)
        return
    if _selects(config):
        raise pytest.UsageError(f"--resume={run_id} takes the tests and options of that run: leave the others out")
    dead = [
        past for past in left if not session_liveness.lives(past)
    ] or left  # those that only seem to live are waited for
    options = _options_of(runs / run_id, dead)
    tests = [test for past in dead for test, with_these in past.options.items() if with_these == options]
    site = dead[-1].plan.get("site")
    if site and not config.option.site and Path(site).is_dir():
        config.option.site = site
    where = TestFiles(config.rootpath, site_folder(config).absolute())
    files = dict.fromkeys(where.of_test(test) for test in tests)
    config.args = [str(file) for file in files if file.exists()]
    if not config.args:
        raise pytest.UsageError(_not_here(run_id, tests))
    config.stash[WANTED] = frozenset(tests)
    config.option.markexpr = config.option.keyword = ""
    for name in KEPT:
        setattr(config.option, name, options.get(name, [] if name == "platform" else None))


def _options_of(run: Path, sessions: Sequence[SessionRecord]) -> Mapping[str, object]:
    """Those with which tests were selected that have no result yet: of several the last ones."""
    last: Mapping[str, object] = sessions[-1].plan["options"]
    for past in reversed(sessions):
        unread = [options for test, options in past.options.items() if not is_read(run, past, test)]
        if unread:
            return last if last in unread else unread[-1]
    return last


def _not_here(run_id: str, tests: Collection[str]) -> str:
    some = ", ".join(sorted(tests)[:NAMED]) + (", …" if len(tests) > NAMED else "")
    return (
        f"not in this checkout, with this site: {len(tests)} of run {run_id}'s tests: {some}. Was it another --site, "
        f"or are they renamed? `python -m platforms cancel {run_id}` ends the jobs of those without a result"
    )


def choose(config: pytest.Config, items: list[pytest.Item]) -> str | None:
    """Of what was collected leave the tests that --resume goes on with. Returns what is to be said of those that are
    not there. Raises UsageError where none is."""
    wanted = config.stash.get(WANTED, None)
    if wanted is None:
        return None
    if others := [item for item in items if item.nodeid not in wanted]:
        config.hook.pytest_deselected(items=others)
    items[:] = [item for item in items if item.nodeid in wanted]
    if not (missing := wanted - {item.nodeid for item in items}):
        return None
    if not items:
        raise pytest.UsageError(_not_here(config.getoption("run_id"), missing))
    return _not_here(config.getoption("run_id"), missing)


def _named(runs: Path, word: str) -> str:
    """The run that is meant. Raises UsageError, RefusedError."""
    from platforms.commands import find_run  # who does not resume does not wait for its modules

    if word == find_run.LATEST:
        return find_run.latest(runs)
    if word != LAST:
        return run_name("--resume", word)
    found, unread = find_run.unfinished(runs)
    if not found:
        why = "; ".join(unread) or "--runs-dir names another folder"
        raise pytest.UsageError(f"--resume: no run in {runs} is unfinished; {why}")
    left = {name: [past for past in session_history.sessions(runs / name) if past.open] for name in found}
    return next((name for name in found if not all(map(session_liveness.lives, left[name]))), found[0])


def _refuse(config: pytest.Config, runs: Path, run_id: str) -> None:
    """Unless nothing is known of the run here: with its tests named again, their jobs are found by their names."""
    if session_history.sessions(runs / run_id):
        raise pytest.UsageError(f"--resume: run {run_id} has ended; its results are in {runs / run_id}")
    if not _selects(config):
        raise pytest.UsageError(
            f"--resume: {runs} knows no run {run_id}. Name its tests as they were named then, and the platforms find "
            f"its jobs by their names: pytest --resume={run_id} -m … (or its folder: --runs-dir=…)"
        )


def _selects(config: pytest.Config) -> bool:
    """Whether tests, or options of theirs, were typed; what stands in `addopts` is no request of now."""
    parser = ArgumentParser(add_help=False, allow_abbrev=False)
    for option in ("-m", "-k", *(f"--{name}" for name in KEPT)):
        parser.add_argument(option)
    typed, _others = parser.parse_known_args([str(word) for word in config.invocation_params.args])
    return any(vars(typed).values()) or config.args_source is pytest.Config.ArgsSource.ARGS
