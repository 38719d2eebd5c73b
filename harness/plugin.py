"""Where pytest ends: every hook, each handing over to a plain object at once. Nothing here decides anything.

What only a session with jobs needs is imported when the first one is made: listing tests must be quick.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from pytest_benchmark.session import PerformanceRegression

from harness import collection, options, outcome, output_paths, record, suite
from harness.console import Console
from harness.suite import SUITE, suite_of

pytest_plugins = ["harness.fixtures"]
CONSOLE = pytest.StashKey[Console]()
MARKS = (
    "workload(benchmark=… or command=[…], launcher='torchrun', presets={…}, arguments=[…], time_limit='1h', "
    "manifest='pod.yaml' or {…} or function, namespace=…, context=…, kubeconfig=…): the job"
)


def pytest_addoption(parser: pytest.Parser) -> None:
    options.add(parser)


@pytest.hookimpl(tryfirst=True)  # before pytest's cache and pytest-benchmark look for their folders
def pytest_configure(config: pytest.Config) -> None:
    output_paths.settle(config)
    if config.getoption("resume") is not None:
        from harness import resume

        resume.restore(config)
    config.stash[SUITE] = suite.start(config)
    config.addinivalue_line("markers", MARKS)
    for name, of in suite.marks(config.stash[SUITE]).items():
        config.addinivalue_line("markers", f"{name}: {of}")


def pytest_sessionstart(session: pytest.Session) -> None:
    session.config.stash[CONSOLE] = Console(session.config)
    collection.remember_failed(session.config)


@pytest.hookimpl(tryfirst=True)
def pytest_collect_directory(path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    return collection.folder(path, parent)


@pytest.hookimpl(tryfirst=True)
def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Module | None:
    return collection.module(module_path, parent)


@pytest.hookimpl(tryfirst=True)  # our part of the id comes before the test's own parameters
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    try:
        suite.parametrize(suite_of(metafunc.config), metafunc)
    except pytest.UsageError as error:  # of one test: its sentence, without the way there through pytest
        raise pytest.Collector.CollectError(str(error)) from None


def pytest_itemcollected(item: pytest.Item) -> None:
    record.prepare(item, is_measured=suite_of(item.config).options.trials.are_measurements)
    suite_of(item.config).carried_marks.update(mark.name for mark in item.iter_markers())


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(session: pytest.Session, config: pytest.Config, items: list[pytest.Item]) -> None:
    if not session.testsfailed:  # what cannot be imported may carry any mark
        suite.check_marks(suite_of(config), config)
    suite.choose(suite_of(config), config, items)


def pytest_report_collectionfinish(config: pytest.Config) -> list[str]:
    return suite.left_out_lines(suite_of(config))


@pytest.hookimpl(wrapper=True)
def pytest_runtestloop(session: pytest.Session) -> Generator[None, object, object]:
    config, mine = session.config, suite_of(session.config)
    looking = config.option.collectonly or config.option.setupplan or config.option.setuponly
    if looking or session.testsfailed or hasattr(config, "workerinput"):  # a worker of xdist: refused by its controller
        return (yield)
    if mine.options.dry_run:
        from harness.dry_run import dry_run

        dry_run(mine, session.items, config.stash[CONSOLE])
        session.items.clear()
        return (yield)
    suite.require_report_file(mine)
    from harness import submission

    with submission.submitted(mine, config, session.items, config.stash[CONSOLE]):
        return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    mine = suite_of(item.config)
    if item.nodeid in mine.jobs:
        from harness import submission

        submission.wait(mine, item, item.config.stash[CONSOLE])
    result = yield
    mine.test_ended(item)
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, None, None]:
    mine = suite_of(item.config)
    outcome.fail_body(mine.jobs.get(item.nodeid))
    yield
    if item.nodeid in mine.jobs:
        from harness import bodies

        bodies.finish(mine, item, item.config.stash[CONSOLE])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    mine = suite_of(item.config)
    outcome.add_job_facts(report, mine.jobs.get(item.nodeid))
    item.stash.setdefault(outcome.REPORTS, {})[report.when] = report
    if report.failed:
        record.withdraw(item)
        mine.test_failed(item, report)
    return report


@pytest.hookimpl(wrapper=True)  # last, so that it is what one sees
def pytest_terminal_summary(config: pytest.Config) -> Generator[None, None, None]:
    try:
        yield
    except PerformanceRegression:
        suite.regressed(config, config.stash[CONSOLE])
    finally:
        suite.report_end(suite_of(config), config.stash[CONSOLE])


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> Generator[None, None, None]:
    mine = suite_of(session.config)
    session.exitstatus = outcome.exit_status(int(session.exitstatus), mine.pending)
    if session.exitstatus != pytest.ExitCode.USAGE_ERROR:  # else nothing was submitted
        suite.write_report(mine, session.config)
    try:
        yield
    except OSError as error:  # what pytest-benchmark saves, for one
        suite.not_written(mine, error)
    suite.refuse_unwritten_history(mine)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_unconfigure(config: pytest.Config) -> Generator[None, None, None]:
    try:
        yield
    finally:  # pytest's own report of an interrupt fails where the terminal has gone
        if SUITE in config.stash:
            suite_of(config).end()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_node_collection_finished(ids: Sequence[str]) -> None:
    from harness import job_checks

    job_checks.refuse_xdist(ids)


@pytest.hookimpl(optionalhook=True)
def pytest_benchmark_generate_machine_info() -> Mapping[str, str]:
    return record.machine_info()


# Not in conftest.py: there `pytest-benchmark compare` on the command line would take it for the only grouping there is.
@pytest.hookimpl(optionalhook=True, tryfirst=True)
def pytest_benchmark_group_stats(benchmarks: Sequence[Mapping[str, Any]], group_by: str) -> object:
    return record.group_stats(benchmarks, group_by)
