"""The state of one session: options, platforms, the case of each test, its job, and what was recorded."""

from __future__ import annotations

import functools
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from harness import collection, obstacles, options, outcome, select
from harness.console import Console
from harness.options import Options
from harness.select import Case
from platforms import checkout
from platforms.checkout import Platforms
from platforms.config.schema import Platform, Site
from platforms.job import ConfigError, Outcome, Role, Run, StillPending

if TYPE_CHECKING:
    from harness.confirmations import Confirmations
    from harness.history_entries import HistoryEntries
    from harness.judging import Judging
    from harness.plans import Conclusion, TrialRequest
    from harness.trials import Trials
    from platforms.runner import Job, Runner
    from reporting.gate.verdict import Verdict


@dataclass
class Suite:
    """One per session, in the config's stash."""

    options: Options
    site: Site
    platforms: Platforms
    cases: dict[tuple[str, str], Case] = field(default_factory=dict)
    carried_marks: set[str] = field(default_factory=set)  # by the tests that were collected
    left_out: set[str] = field(default_factory=set)
    all_skipped: dict[str, str] = field(default_factory=dict)  # chosen platforms on which no benchmark runs: a sentence
    on_several_nodes: int = 0  # tests that --each-node and --check leave out
    not_here: str | None = None  # what --resume goes on with and cannot find
    runner: Runner | None = None
    trials: Trials | None = None  # set when jobs are submitted
    jobs: dict[str, Job] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)  # tests whose own mistake keeps their job from being made
    recorded: dict[str, Run] = field(default_factory=dict)
    remarks: dict[str, str] = field(default_factory=dict)  # on what is recorded of tests with several jobs
    verdicts: dict[str, Mapping[str, Verdict]] = field(default_factory=dict)  # of the gate, by test and metric
    regressed: dict[str, str] = field(default_factory=dict)  # tests that the gate has failed, each with a short line
    discarded: set[str] = field(default_factory=set)  # tests that failed, and whose numbers mean nothing
    ended_tests: set[str] = field(default_factory=set)  # their outcome is in the history
    conclusions: dict[str, Conclusion] = field(default_factory=dict)  # what several jobs of a test say together
    entries: HistoryEntries | None = None  # set before jobs are submitted
    judging: Judging | None = None  # None with --gate=off
    report_is_due: bool = False  # --report names a file that can be written, and tests were to run
    report_line: str = ""  # what became of it
    confirmations: Confirmations | None = None  # set when jobs are submitted; None with --gate=off
    unrecorded: list[str] = field(default_factory=list)  # tests that passed and did not call record(run)
    began_s: float = field(default_factory=time.time)
    end: Callable[[], None] = lambda: None  # to be called when pytest has written all that it writes
    unwritten: bool = False  # it could not, or was found to be unable to before anything was submitted
    deadline: float | None = None  # on time.monotonic: when we stop waiting

    @property
    def pending(self) -> int:
        """How many jobs we stopped waiting for."""
        return sum(isinstance(job.error, StillPending) for job in self.jobs.values())

    def case(self, item: pytest.Item) -> Case:
        key = case_key(item)
        assert key is not None
        return self.cases[key]

    def platform(self, item: pytest.Item) -> Platform:
        """The platform of a job test; a test that uses the fixtures and has no workload mark is an error."""
        if case_key(item) not in self.cases:
            needed = "@pytest.mark.workload(benchmark='resnet50') or (command=['my_program', …])"
            pytest.fail(f"{item.nodeid}: the fixtures platform, run and record need {needed}", pytrace=False)
        if item.nodeid in self.refused:
            pytest.fail(self.refused[item.nodeid], pytrace=False)
        return self.case(item).platform

    def run(self, item: pytest.Item) -> Run | None:
        """What the fixture `run` gives: the machine's mistakes are raised here, the workload's in the test's place."""
        job = self.jobs.get(item.nodeid)
        if job is None:  # --setup-only: fixtures run, jobs do not
            return None
        run = outcome.run_or_raise(job)
        if job.error is None and "record" in getattr(item, "fixturenames", ()):
            self._require_pin(job)
        return run

    def _require_pin(self, job: Job) -> None:
        """Fail where --gate=require finds nothing to compare the job with."""
        if self.judging is None or self.entries is None or not job.spec.trial.in_series:
            return
        envelope = self.entries.envelope(job)
        why = None if envelope is None else self.judging.why_not_comparable(envelope)
        if why is not None:
            pytest.fail(why, pytrace=False)

    def repeats(self, test: str) -> Sequence[TrialRequest]:
        """What is to be repeated of a test now, since its run is suspect."""
        return [] if self.confirmations is None else self.confirmations.repeats(test)

    def judge(self, item: pytest.Item) -> None:
        """Judge what a test has recorded, once its body has passed. A regression fails the test."""
        assert self.trials is not None
        conclusion = self.trials.conclusion(item.nodeid)
        if conclusion is not None:
            self.conclusions[item.nodeid] = conclusion
        envelopes = [result.envelope for result in self.trials.results(item.nodeid) if result.envelope is not None]
        measured = [envelope for envelope in envelopes if envelope.trial.in_series]
        if self.judging is not None and measured:
            verdicts = self.judging.verdicts(measured[-1], measured[:-1])
            if self.confirmations is not None:
                verdicts = self.confirmations.confirmed(item.nodeid, verdicts)
            verdicts = self.judging.settled(verdicts)
            self.verdicts[item.nodeid] = verdicts
            red = self.judging.failing(verdicts)
            if red:
                shorts = [f"{verdict.metric}: {verdict.short}" for verdict in red]
                self.regressed[item.nodeid] = "; ".join(shorts)
                pytest.fail(self.judging.text(red), pytrace=False)
        if conclusion is not None and conclusion.fails:
            self.regressed[item.nodeid] = conclusion.short
            pytest.fail(conclusion.text, pytrace=False)

    def test_failed(self, item: pytest.Item, report: pytest.TestReport) -> None:
        """Forget the numbers of a test that failed. Those of a regression stay, for the tables and the history."""
        if report.when == "call" and item.nodeid in self.regressed:
            outcome.set_summary_line(report, self.regressed[item.nodeid])
        else:
            self.recorded.pop(item.nodeid, None)
            self.discarded.add(item.nodeid)

    def test_ended(self, item: pytest.Item) -> None:
        """Write the outcome of a test into the history, after its teardown."""
        if item.nodeid not in self.jobs or self.entries is None or self.trials is None:
            return
        test_outcome = outcome.of_test(item.stash.setdefault(outcome.REPORTS, {}), self.jobs[item.nodeid])
        if test_outcome is Outcome.PENDING:
            return
        self.ended_tests.add(item.nodeid)
        if item.nodeid not in self.conclusions:  # the body has not run: no job has measured well
            conclusion = self.trials.conclusion(item.nodeid)
            if conclusion is not None:
                self.conclusions[item.nodeid] = conclusion
        results = [result for result in self.trials.results(item.nodeid) if result.job is not None]
        for result in results:
            assert result.job is not None
            verdicts: Mapping[str, Verdict] = {}
            if result.request.trial.role is Role.MEASURE:
                verdicts = self.verdicts.get(item.nodeid, {})
            is_red = any(verdict.red for verdict in verdicts.values())
            job_outcome = test_outcome if is_red or len(results) == 1 else outcome.of_trial(result)
            sane = item.nodeid not in self.discarded and self.trials.has_passed(item.nodeid, result.job)
            self.entries.test_ended(result.job, job_outcome, sane, verdicts)

    def write_interrupted(self) -> None:
        """Write the numbers of tests whose body has passed, and that an interrupt has ended before their verdict.

        A test that is pending gets its verdict when the run is resumed.
        """
        if self.entries is None or self.trials is None:
            return
        for test in self.jobs.keys() - self.ended_tests:
            if isinstance(self.jobs[test].error, StillPending):
                continue
            for job in self.trials.jobs(test):
                if job.done and self.trials.has_passed(test, job):
                    self.entries.test_ended(job, Outcome.PASSED, True, {})


SUITE = pytest.StashKey[Suite]()


def suite_of(config: pytest.Config) -> Suite:
    return config.stash[SUITE]


def case_key(item: pytest.Item) -> tuple[str, str] | None:
    """Under which a job test's case stands: the test without its id, and the part of the id that is ours."""
    callspec = getattr(item, "callspec", None)
    if callspec is None or "platform" not in callspec.params or item.get_closest_marker("workload") is None:
        return None
    return item.nodeid.removesuffix(f"[{callspec.id}]"), str(callspec.params["platform"])


def start(config: pytest.Config) -> Suite:
    """Read site and platforms. A mistake in site.yaml is a usage error, and so is one in a named platform's file."""
    site_folder = options.site_folder(config)
    collection.choose(config, site_folder)
    try:
        site, loaded = checkout.load(site_folder)
    except ConfigError as error:
        raise pytest.UsageError(str(error)) from None
    resolved = options.resolve(config, site.options, site_folder)
    if not any(resolved.layouts in platform.layouts for platform in loaded.values()):
        known = sorted({name for platform in loaded.values() for name in platform.layouts})
        raise pytest.UsageError(f"--layouts: no platform has a set {resolved.layouts!r}; there are: {', '.join(known)}")
    for name, mistakes in loaded.mistakes.items():
        if name in resolved.platforms or select.names_directly(name, config):
            raise pytest.UsageError("\n".join(mistakes))
    for name in (*resolved.platforms, *site.enabled):
        if name not in loaded and name not in loaded.mistakes:
            where = str(site_folder / "site.yaml") + ": enabled"
            if name == resolved.trials.check:
                where = "--check"
            elif name in resolved.platforms:
                where = "--platform"
            raise pytest.UsageError(f"{where}: there is no platform {name!r}; there are: {', '.join(sorted(loaded))}")
    check = resolved.trials.check
    if check is not None:
        from harness import user_check

        loaded[check] = user_check.own_platform(loaded[check])
    return Suite(resolved, site, loaded)


def parametrize(suite: Suite, metafunc: pytest.Metafunc) -> None:
    """Give a job test one parameter `platform` a case; its value, which pytest-benchmark saves, is the case's id."""
    mark = select.workload(metafunc.definition)
    if mark is None:
        return
    if "platform" not in metafunc.fixturenames:
        raise pytest.UsageError(
            f"{metafunc.definition.nodeid}: a workload without the fixture `run` would never be read"
        )
    own = select.own_parameters(metafunc.definition)
    params = []
    for platform in suite.platforms.values():
        if not select.suits(platform, suite.options, mark):
            continue
        if not select.may_be_chosen(platform, suite.options, metafunc.config):
            suite.left_out.add(platform.name)
            continue
        marks = [getattr(pytest.mark, name) for name in platform.all_marks]
        is_named = select.is_named(platform, suite.options, metafunc.config)
        for case in select.cases(platform, suite.options, mark, own, is_named=is_named):
            suite.cases[(metafunc.definition.nodeid, case.id)] = case
            skip = [pytest.mark.skip(reason=f"{platform.name}: {case.why_skipped}")] if case.why_skipped else []
            params.append(pytest.param(case.id, id=case.id, marks=[*marks, *skip]))
    metafunc.parametrize("platform", params, indirect=True)


def new_run_id(suite: Suite) -> str:
    """--run-id, else the date and four letters."""
    return suite.options.run_id or time.strftime("%Y%m%d-%H%M%S-") + secrets.token_hex(2)


def report_end(suite: Suite, console: Console) -> None:
    """Show what the jobs took and measured, and one line on those that go on without this session."""
    all_jobs = suite.runner.jobs if suite.runner else []
    console.summary(list(suite.recorded.values()), suite.remarks, suite.verdicts, all_jobs, suite.began_s)
    if suite.confirmations is not None:
        for line in suite.confirmations.summary():
            console.problem(line)
    if suite.judging is not None:
        for line in suite.judging.summary(suite.verdicts):
            console.problem(line)
        for line in suite.judging.sight_lines(suite.verdicts, each=console.verbose):
            console.line(line)
    for line in obstacles.lines(suite):
        console.always(line)
    for test, conclusion in suite.conclusions.items():
        if test not in suite.regressed:  # else it is the message of the failure
            console.always(f"{test}: {conclusion.text}")
    for test in suite.unrecorded:  # the table of results has the warnings of the others
        run = suite.jobs[test].run
        for warning in run.warnings if run is not None else ():
            console.problem(f"{test}: {warning}")
    if suite.unrecorded:
        tests = suite.unrecorded[0]
        if len(suite.unrecorded) > 1:
            tests += f" and {len(suite.unrecorded) - 1} more"
        console.problem(f"{tests}: nothing is recorded, since record(run) was not called")
    if suite.report_line:
        console.always(suite.report_line)
    if suite.pending and suite.runner is not None:
        jobs = "1 job is" if suite.pending == 1 else f"{suite.pending} jobs are"
        unsent = sum(job.left is not None and job.asked_s is None for job in suite.jobs.values())
        which = f"PENDING, {unsent} not submitted yet" if unsent else "PENDING"
        console.problem(
            f"{jobs} {which}: {suite.options.again(suite.runner.run_id)} goes on waiting (-rs says for what)"
        )


def require_report_file(suite: Suite) -> None:
    """Raise UsageError if the file of --report cannot be written."""
    if suite.options.report is not None:
        from harness import report_page

        report_page.refuse_unwritable(suite.options.report)
        suite.report_is_due = True


def write_report(suite: Suite, config: pytest.Config) -> None:
    """Write the page that --report asks for, once everything else of the session is in the history."""
    if suite.report_is_due and suite.options.report is not None:
        from harness import report_page

        suite.report_line = report_page.write(suite, suite.options.report, config.getoption("history"))


def regressed(config: pytest.Config, console: Console) -> None:
    """--benchmark-compare-fail has found slower numbers, and pytest-benchmark has named them."""
    console.problem("numbers have regressed, named above; the exit code is 1")
    session: Any = config.pluginmanager.get_plugin("session")
    if session.exitstatus in (pytest.ExitCode.OK, outcome.EXIT_PENDING):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def refuse_unwritten_history(suite: Suite) -> None:
    """Leave the run unfinished, because an entry of the history could not be written. Raises pytest's Exit."""
    if suite.entries is not None and suite.entries.error is not None:
        not_written(suite, suite.entries.error)


def not_written(suite: Suite, error: Exception) -> None:
    """Leave the run unfinished, because its results could not be written.

    Raises pytest's Exit, or the error itself where there are no jobs and no earlier message said so.
    """
    if suite.runner is None:
        if suite.unwritten:
            return
        raise error
    suite.unwritten = True
    again = suite.options.again(suite.runner.run_id)
    pytest.exit(
        f"results cannot be written: {error}; {again} reads and writes them again", pytest.ExitCode.INTERNAL_ERROR
    )


def marks(suite: Suite) -> dict[str, str]:
    """The marks that the platforms' files declare, each with a sentence on the platforms that carry it."""
    platforms_of: dict[str, list[str]] = {}
    for platform in suite.platforms.values():
        for mark in platform.all_marks:
            platforms_of.setdefault(mark, []).append(platform.name)
    return {mark: f"runs on {', '.join(names)}" for mark, names in platforms_of.items()}


def check_marks(suite: Suite, config: pytest.Config) -> None:
    """Raise UsageError for a mark in -m that nothing declares and no test carries."""
    declared = {line.partition(":")[0].partition("(")[0] for line in config.getini("markers")}
    known = declared | suite.carried_marks | set(suite.platforms.mistakes)
    select.check_expression(config.getoption("markexpr") or "", known, _not_loaded(suite))


def choose(suite: Suite, config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave only the tests that may run. The rest is deselected, as -k does it."""
    if config.getoption("resume") is not None:
        from harness import resume

        suite.not_here = resume.choose(config, items)
    jobs = [item for item in items if case_key(item) in suite.cases]
    enabled = functools.cache(lambda name: checkout.is_enabled(suite.platforms[name], suite.site))
    chosen, left_out = select.choose(jobs, suite.case, suite.options, enabled, config)
    suite.left_out.update(left_out)
    for item in chosen:
        platform = suite.case(item).platform
        why = select.why_all_skipped(platform, suite.options)
        if why is not None:
            suite.all_skipped[platform.name] = why
    if suite.options.try_unsupported and not suite.options.resume:
        obstacles.refuse_nothing_to_try(suite, chosen)
    if suite.options.trials.single_nodes:
        chosen = _on_single_nodes(suite, config, chosen)
    dropped = set(jobs) - set(chosen)
    if dropped:
        config.hook.pytest_deselected(items=[item for item in items if item in dropped])
        items[:] = [item for item in items if item not in dropped]


def _on_single_nodes(suite: Suite, config: pytest.Config, items: list[pytest.Item]) -> list[pytest.Item]:
    """The tests on one node; of these only one if a user checks nodes."""
    chosen = [item for item in items if suite.case(item).layout.nodes == 1]
    suite.on_several_nodes = len(items) - len(chosen)
    can_run = [item for item in chosen if suite.case(item).why_skipped is None]
    if suite.options.trials.check is None or not can_run:
        return chosen
    from harness import node_visits, user_check

    past = node_visits.runs_of_platform(suite, config, suite.options.trials.check, [])
    return [user_check.one_test(can_run, _benchmark, past)]


def _benchmark(item: pytest.Item) -> str:
    return str((select.workload(item) or {}).get("benchmark"))


def _not_loaded(suite: Suite) -> list[str]:
    """A line on the platforms whose files have mistakes, with the first of them; none where all are loaded."""
    mistakes = [mistake for of_file in suite.platforms.mistakes.values() for mistake in of_file]
    if not mistakes:
        return []
    more = f" (and {len(mistakes) - 1} more)" if mistakes[1:] else ""
    return [f"not loaded: {', '.join(suite.platforms.mistakes)}: {mistakes[0]}{more}"]


def left_out_lines(suite: Suite) -> list[str]:
    """A line on the platforms that were not named, and one on each whose tests are all skipped."""
    lines = [*_not_loaded(suite), *suite.all_skipped.values()]
    if suite.not_here:
        return [suite.not_here, *lines]
    if suite.on_several_nodes:
        tests = "1 test" if suite.on_several_nodes == 1 else f"{suite.on_several_nodes} tests"
        lines.append(f"left out: {tests} on several nodes: they say nothing of one node")
    if suite.left_out and not suite.options.platforms:
        names = sorted(suite.left_out)
        example = f"other platforms than local run when enabled and named, as in -m {names[0]}"
        lines.append(f"left out: {', '.join(names)} ({example})")
    return lines
