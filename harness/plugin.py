"""Where pytest ends: every hook, each handing over to a plain object at once. Nothing here decides anything.

What only a session with jobs needs is imported when the first one is made: listing tests must be quick.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from pathlib import Path

import pytest
from pytest_benchmark.session import PerformanceRegression

from harness import collection, inputs, options, outcome, output_paths, record
from harness.console import Console
from harness.selection import Selection
from harness.suite import SUITE, Suite, suite_of

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
    own = inputs.read(config)
    config.stash[SUITE] = Suite(own, Selection(own, config))
    config.addinivalue_line("markers", MARKS)
    for name, of in own.marks.items():
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
        suite_of(metafunc.config).selection.parametrize(metafunc)
    except pytest.UsageError as error:  # of one test: its sentence, without the way there through pytest
        raise pytest.Collector.CollectError(str(error)) from None


@pytest.hookimpl(tryfirst=True)
def pytest_make_parametrize_id(config: pytest.Config, argname: str) -> None:
    suite_of(config).selection.unnamed(argname)


def pytest_itemcollected(item: pytest.Item) -> None:
    mine = suite_of(item.config)
    record.prepare(item, is_measured=mine.inputs.options.trials.are_measurements)
    mine.selection.collected(item)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(session: pytest.Session, config: pytest.Config, items: list[pytest.Item]) -> None:
    selection = suite_of(config).selection
    if not session.testsfailed:  # what cannot be imported may carry any mark
        selection.check_marks()
    selection.choose(items)


def pytest_report_collectionfinish(config: pytest.Config) -> list[str]:
    return suite_of(config).selection.lines()


@pytest.hookimpl(wrapper=True)
def pytest_runtestloop(session: pytest.Session) -> Generator[None, object, object]:
    config, mine = session.config, suite_of(session.config)
    looking = config.option.collectonly or config.option.setupplan or config.option.setuponly
    if looking or session.testsfailed or hasattr(config, "workerinput"):  # a worker of xdist: refused by its controller
        return (yield)
    if mine.inputs.options.dry_run:
        from harness.dry_run import dry_run

        dry_run(mine.selection, session.items, config.stash[collection.FILES], config.stash[CONSOLE])
        session.items.clear()
        return (yield)
    if mine.inputs.options.report is not None:
        from harness.report_page import ReportPage

        mine.report = ReportPage(mine.inputs.options.report)
    from harness import submission

    with submission.submitted(mine, config, session.items, config.stash[CONSOLE]):
        return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    running = suite_of(item.config).running
    if running is None or item.nodeid not in running.tests:
        return (yield)
    running.wait(item, item.config.stash[CONSOLE])
    result = yield
    running.test_ended(item)
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, None, None]:
    running = suite_of(item.config).running
    if running is None or item.nodeid not in running.tests:
        return (yield)
    outcome.fail_body(running.tests[item.nodeid].job)
    yield
    from harness import bodies

    bodies.finish(running, item, item.config.stash[CONSOLE])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    running = suite_of(item.config).running
    if running is not None and item.nodeid in running.tests:
        outcome.add_job_facts(report, running.tests[item.nodeid].job)
    item.stash.setdefault(outcome.REPORTS, {})[report.when] = report
    if report.failed:
        record.withdraw(item)
        if running is not None:
            running.test_failed(item, report)
    return report


@pytest.hookimpl(wrapper=True)  # last, so that it is what one sees
def pytest_terminal_summary(config: pytest.Config) -> Generator[None, None, None]:
    mine, console = suite_of(config), config.stash[CONSOLE]
    try:
        yield
    except PerformanceRegression:
        outcome.regressed(config, console)
    finally:
        if mine.running is not None:
            mine.running.report(console)
        if mine.report is not None and mine.report.line:
            console.always(mine.report.line)
        if mine.running is not None:
            mine.running.report_pending(console)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> Generator[None, None, None]:
    mine = suite_of(session.config)
    running = mine.running
    if running is not None:
        session.exitstatus = outcome.exit_status(int(session.exitstatus), len(running.pending))
    is_refused = session.exitstatus == pytest.ExitCode.USAGE_ERROR  # nothing was submitted, and a message says why
    if mine.report is not None and not is_refused:
        mine.report.write(mine.inputs, running)
    try:
        yield
    except OSError as error:  # what pytest-benchmark saves, for one
        if running is not None:
            running.not_written(error)
        if not is_refused:
            raise
    if running is not None and running.entries.error is not None:
        running.not_written(running.entries.error)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_unconfigure(config: pytest.Config) -> Generator[None, None, None]:
    try:
        yield
    finally:  # pytest's own report of an interrupt fails where the terminal has gone
        running = config.stash[SUITE].running if SUITE in config.stash else None
        if running is not None:
            running.end()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_node_collection_finished(ids: Sequence[str]) -> None:
    from harness import job_checks

    job_checks.refuse_xdist(ids)


@pytest.hookimpl(optionalhook=True)
def pytest_benchmark_generate_machine_info() -> Mapping[str, str]:
    return record.machine_info()
