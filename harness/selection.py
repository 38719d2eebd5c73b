"""Which tests run: the cases that are made for each test, and which of them may run.

Nothing is spent by accident. A platform other than `local` runs only when it is enabled in site.yaml and named: by an
-m expression that is true with its marks and false for a test without marks, by a node id, by --platform, or by
--resume.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import pytest

from harness import cases, naming, numbered, obstacles
from harness.cases import HOME, Case
from harness.inputs import Inputs
from harness.wording import counted
from platforms import checkout
from platforms.config.schema import Platform

CASE_KEY = pytest.StashKey[tuple[str, str] | None]()


class Selection:
    """The job tests of a session.

    Attributes:
        refused: tests whose own mistake keeps their job from being made, each with a sentence.
    """

    def __init__(self, inputs: Inputs, config: pytest.Config) -> None:
        self.inputs = inputs
        self.refused: dict[str, str] = {}
        self._config = config
        self._cases: dict[tuple[str, str], Case] = {}
        self._carried_marks: set[str] = set()  # by the tests that were collected
        self._left_out: set[str] = set()  # platforms that were not named
        self._all_skipped: dict[str, str] = {}  # chosen platforms on which no benchmark runs: a sentence
        self._on_several_nodes = 0  # tests that --each-node and --check leave out
        self._not_here: str | None = None  # what --resume goes on with and cannot find
        self._unnamed: dict[str, set[str]] = {}  # by test: parameters for which pytest made an id
        self._made_now = ""  # the test whose cases are being made
        self._values: dict[str, dict[str, str]] = {}  # by test, then by id: what the id does not say
        # of a platform, which is asked for each test
        self._is_named = cache(lambda name: naming.is_named(inputs.platforms[name], inputs.options, config))
        self._marks = cache(lambda name: [getattr(pytest.mark, each) for each in inputs.platforms[name].all_marks])

    # --- cases -------------------------------------------------------------------------------------------------------

    def parametrize(self, metafunc: pytest.Metafunc) -> None:
        """Give a job test one parameter `platform` a case; its value, which pytest-benchmark saves, is the case's id.

        The tests of platforms that could not be chosen are not made at all: a suite of 200 tests and twenty platforms
        would make 4,000 of them to drop all but 200.
        """
        test = metafunc.definition
        self._made_now = test.nodeid
        mark = cases.workload(test)
        if mark is None:
            return
        if "platform" not in metafunc.fixturenames:
            raise pytest.UsageError(f"{test.nodeid}: a workload without the fixture `run` would never be read")
        options = self.inputs.options
        own = cases.own_parameters(test)
        test_id = test.nodeid
        params = []
        for platform in self.inputs.platforms.values():
            if not cases.suits(platform, options, mark):
                continue
            is_named = self._is_named(platform.name)
            runs_unnamed = platform.name == HOME and not options.platforms
            if not is_named and not runs_unnamed:
                self._left_out.add(platform.name)
                continue
            marks = self._marks(platform.name)
            for case in cases.cases(platform, options, mark, own, is_named=is_named):
                case_id, why = case.id, case.why_skipped
                self._cases[test_id, case_id] = case
                skip = [pytest.mark.skip(reason=f"{platform.name}: {why}")] if why else []
                params.append(pytest.param(case_id, id=case_id, marks=[*marks, *skip]))
        metafunc.parametrize("platform", params, indirect=True)

    def unnamed(self, name: str) -> None:
        """Note a parameter of the test whose cases are being made, if nobody wrote an id for one of its values."""
        self._unnamed.setdefault(self._made_now, set()).add(name)

    def collected(self, item: pytest.Item) -> None:
        """Note the marks of a test that was collected, and its values if its id does not say them."""
        self._carried_marks.update(mark.name for mark in item.iter_markers())
        key = _case_key(item)
        if key is not None and key[0] in self._unnamed:
            values = numbered.values_of(item, self._unnamed[key[0]])
            if values is not None:
                self._values.setdefault(key[0], {})[item.nodeid] = values

    def values(self, item: pytest.Item) -> str | None:
        """What the id of a job test does not say; None if it says everything. Only their order tells equal ones."""
        of_test = next((of_test for of_test in self._values.values() if item.nodeid in of_test), {})
        values = of_test.get(item.nodeid)
        alike = [test for test in of_test if of_test[test] == values]
        return values if len(alike) < 2 else f"{values}; {alike.index(item.nodeid) + 1} of {len(alike)}"

    def has_job(self, item: pytest.Item) -> bool:
        return _case_key(item) in self._cases

    def case(self, item: pytest.Item) -> Case:
        """The case of a job test."""
        key = _case_key(item)
        assert key is not None
        return self._cases[key]

    def platform(self, item: pytest.Item) -> Platform:
        """The platform of a job test; a test that uses the fixtures and has no workload mark is an error."""
        if not self.has_job(item):
            needed = "@pytest.mark.workload(benchmark='resnet50') or (command=['my_program', …])"
            pytest.fail(f"{item.nodeid}: the fixtures platform, run and record need {needed}", pytrace=False)
        if item.nodeid in self.refused:
            pytest.fail(self.refused[item.nodeid], pytrace=False)
        return self.case(item).platform

    # --- what may run ------------------------------------------------------------------------------------------------

    def check_marks(self) -> None:
        """Raise UsageError for a mark in -m that nothing declares and no test carries."""
        declared = {line.partition(":")[0].partition("(")[0] for line in self._config.getini("markers")}
        known = declared | self._carried_marks | set(self.inputs.platforms.mistakes)
        naming.check_expression(naming.expression_of(self._config), known, self.inputs.not_loaded)

    def choose(self, items: list[pytest.Item]) -> None:
        """Leave only the tests that may run. The rest is deselected, as -k does it."""
        options = self.inputs.options
        if options.resume:
            from harness import resume

            self._not_here = resume.choose(self._config, items)
        jobs = [item for item in items if self.has_job(item)]
        chosen = self._that_may_run(jobs)
        for item in chosen:
            platform = self.case(item).platform
            why = cases.why_all_skipped(platform, options)
            if why is not None:
                self._all_skipped[platform.name] = why
        if options.try_unsupported and not options.resume:
            obstacles.refuse_nothing_to_try(self.inputs, [self.case(item) for item in chosen])
        if options.trials.single_nodes:
            chosen = self._on_single_nodes(chosen)
        dropped = set(jobs) - set(chosen)
        if dropped:
            self._config.hook.pytest_deselected(items=[item for item in items if item in dropped])
            items[:] = [item for item in items if item not in dropped]

    def _that_may_run(self, items: Sequence[pytest.Item]) -> list[pytest.Item]:
        """Choose among job tests, and note the other platforms. Raises UsageError if a named one may not run."""
        options = self.inputs.options
        expression = naming.expression_of(self._config)
        names = naming.names_in(expression)
        by_id = naming.named_by_id(self._config)
        resumed = self._config.stash.get(naming.WANTED, frozenset())
        is_enabled = cache(lambda name: checkout.is_enabled(self.inputs.platforms[name], self.inputs.site))
        is_named_by_marks = cache(lambda name: naming.is_named_by_marks(expression, self.inputs.platforms[name]))
        chosen: list[pytest.Item] = []
        not_enabled: dict[str, bool] = {}  # platform: whether one of its tests, or the platform, was named directly
        for item in items:
            platform = self.case(item).platform
            name = platform.name
            if options.platforms and name not in options.platforms:
                self._left_out.add(name)
                continue
            named_directly = (
                name in options.platforms
                or name in names
                or (item.path, item.nodeid.partition("::")[2]) in by_id
                or item.nodeid in resumed
            )
            named_by_mark = is_named_by_marks(name)
            if name == HOME or ((named_directly or named_by_mark) and (options.dry_run or is_enabled(name))):
                chosen.append(item)
                continue
            self._left_out.add(name)
            if named_by_mark or (named_directly and not expression):
                not_enabled[name] = not_enabled.get(name, False) or named_directly
        refused = [name for name, named_directly in not_enabled.items() if named_directly]
        if not refused and not chosen:
            refused = list(not_enabled)
        if refused:
            raise pytest.UsageError(self._not_enabled(refused))
        return chosen

    def _not_enabled(self, names: Sequence[str]) -> str:
        """What to type for platforms that were named and are not enabled."""
        options = self.inputs.options
        site = checkout.site_option(options.site)
        again = "".join(f" --platform {name}" for name in names)
        if options.try_unsupported:
            again += " --try-unsupported"
        verb = "is" if len(names) == 1 else "are"
        lines = [
            f"{', '.join(names)} {verb} not enabled on this site, so nothing was submitted. To enable and run:",
            f"    python -m platforms enable {' '.join(names)}{site}",
            f"    pytest{again}{site}",
            "(with --dry-run the jobs are shown without enabling anything)",
        ]
        for name in names:
            why = cases.why_all_skipped(self.inputs.platforms[name], options)
            if why is not None:  # to enable it would run nothing, or little
                lines.append(why)
        return "\n".join(lines)

    def _on_single_nodes(self, items: list[pytest.Item]) -> list[pytest.Item]:
        """The tests on one node; of these only one if a user checks nodes."""
        chosen = [item for item in items if self.case(item).layout.nodes == 1]
        self._on_several_nodes = len(items) - len(chosen)
        can_run = [item for item in chosen if self.case(item).why_skipped is None]
        check = self.inputs.options.trials.check
        if check is None or not can_run:
            return chosen
        from harness import node_visits, user_check

        past = node_visits.runs_of_platform(self.inputs, check, [])
        return [user_check.one_test(can_run, past)]

    def lines(self) -> list[str]:
        """A line on the platforms that were not named, and one on each whose tests are all skipped."""
        lines = [*self.inputs.not_loaded, *self._all_skipped.values()]
        for test, of_test in self._values.items():
            shown = next(iter(of_test)).removeprefix(test)
            lines.append(
                f"{test}: an id as {shown} has numbers that pytest made, so its runs are compared by their values; "
                "write ids=[…] into parametrize, or pytest.param(…, id=…) (docs/foreign-loops.md)"
            )
        if self._not_here:
            return [self._not_here, *lines]
        if self._on_several_nodes:
            tests = counted(self._on_several_nodes, "test")
            lines.append(f"left out: {tests} on several nodes: they say nothing of one node")
        if self._left_out and not self.inputs.options.platforms:
            names = sorted(self._left_out)
            example = f"other platforms than local run when enabled and named, as in -m {names[0]}"
            lines.append(f"left out: {', '.join(names)} ({example})")
        return lines


def _case_key(item: pytest.Item) -> tuple[str, str] | None:
    """Under which a job test's case stands: the test without its id, and the part of the id that is ours."""
    if CASE_KEY not in item.stash:
        item.stash[CASE_KEY] = _new_case_key(item)
    return item.stash[CASE_KEY]


def _new_case_key(item: pytest.Item) -> tuple[str, str] | None:
    callspec = getattr(item, "callspec", None)
    if callspec is None or "platform" not in callspec.params or item.get_closest_marker("workload") is None:
        return None
    return item.nodeid.removesuffix(f"[{callspec.id}]"), str(callspec.params["platform"])
