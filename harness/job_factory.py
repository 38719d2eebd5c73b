"""Makes the jobs of a session's tests: which plan a test has, and the JobSpec of each request of a plan."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from harness import output_paths
from harness.plans import Plan, TrialRequest
from harness.plans.campaign import Campaign
from harness.plans.confirmed import Confirmed
from harness.plans.once import Once
from harness.spec import spec_of
from harness.trial_options import STACK, places
from platforms import checkout
from platforms.job import BenchError, ConfigError, JobSpec, RefusedError, Role
from platforms.rundir import code_archive
from platforms.schedulers import NodeState, backend_of

if TYPE_CHECKING:
    from harness.node_visits import NodeVisits
    from harness.selection import Selection
    from platforms.config.schema import Platform

REPEAT_START_LIMIT_S = 3600.0
"""A repeat of a suspect run may wait so long for its start: a person waits for the verdict."""
LEAST = 2  # treated and control nodes: with fewer `compare` has no verdict
FEW = 3  # with fewer its interval is very wide


class JobFactory:
    """Makes the plans and the jobs of these tests, in their order. It begins nothing.

    Attributes:
        repeats: what is to be repeated of a test, since its run is suspect.
    """

    def __init__(self, selection: Selection, items: Sequence[pytest.Item], run_id: str) -> None:
        self._selection = selection
        self._inputs = selection.inputs
        self._items = {item.nodeid: item for item in items}
        self._run_id = run_id
        self.repeats: Callable[[str], Sequence[TrialRequest]] = lambda test: []
        self._plans: dict[str, Plan] = {}
        self._warnings: list[str] = []
        self._idle: dict[str, tuple[str, ...]] = {}  # nodes, by platform
        self._specs: dict[tuple[str, TrialRequest], JobSpec] = {}
        self._archives: dict[str | None, Path] = {}  # by commit; None is this checkout
        self._commits: dict[str, str] = {}  # that stacks name, as 40 digits

    def leave_out_refused(self) -> None:
        """Leave out each test whose own mistake keeps its job from being made: it is an error, and the others run."""
        self._archive(self._inputs.options.code)  # an error of this is no test's own
        for test in list(self._items):
            try:
                self.job(test, TrialRequest())
            except pytest.UsageError as error:
                self._selection.refused[test] = str(error)
                del self._items[test]

    def plan(self, test: str) -> Plan:
        """The plan of a test. Raises UsageError where the options do not go with it."""
        if test not in self._plans:
            self._plans[test] = self._new_plan(test)
        return self._plans[test]

    def _new_plan(self, test: str) -> Plan:
        options = self._inputs.options.trials
        size = self._selection.case(self._items[test]).layout.nodes
        if options.is_campaign:
            return self._campaign(test, size)
        if options.arms:
            return self._in_blocks(test, size)
        if options.single_nodes:
            return self.visits.plan(test)
        if options.nodes and len(options.nodes) != size:
            raise pytest.UsageError(
                f"--nodes names {len(options.nodes)} nodes, and {test} runs on {size}: name {size}, or add --repeat "
                f"{max(1, len(options.nodes) // size)} for a job on each of them"
            )
        if options.nodes or self._inputs.options.gate == "off":
            return Once(options.nodes)
        platform = self._selection.case(self._items[test]).platform
        return Confirmed(test, lambda test: self.repeats(test), has_one_node=backend_of(platform).is_one_machine)

    def _campaign(self, test: str, size: int) -> Plan:
        """The plan of a test in a campaign; in an upgrade, repeats on each treated and each control node."""
        options = self._inputs.options.trials
        for name in ("nodes", "treated", "control"):
            _refuse_too_few(name, getattr(options, name), test, size)
        if options.treated:
            treated = places(options.treated, size)
            control = places(options.control, size)
            self._warn_of_small_groups(min(len(treated), len(control)), size)
            both = _alternating(treated, control)
            return Campaign(options.label, options.repeats * len(both), both, options.treated)
        nodes = options.nodes
        if not nodes and options.repeats > 1:
            nodes = self._idle_nodes(self._selection.case(self._items[test]).platform)
        return Campaign(options.label, options.repeats, places(nodes, size))

    def _warn_of_small_groups(self, least: int, size: int) -> None:
        """Say before the session what `compare` could only say after the upgrade.

        Args:
            least: how many jobs of a test fit side by side on the nodes of the smaller group.
            size: nodes of such a job.
        """
        if least >= FEW:
            return
        what = "node" if size == 1 else f"set of {size} nodes"
        if least < LEAST:
            said = f"a group of one {what} has no verdict in `python -m reporting compare`"
        else:
            said = f"with two {what}s in a group, the interval of `python -m reporting compare` is very wide"
        warning = f"warning: --treated and --control: {said}: name {FEW} or more in each (docs/compare.md)"
        if warning not in self._warnings:
            self._warnings.append(warning)

    def _idle_nodes(self, platform: Platform) -> tuple[str, ...]:
        """The nodes over which the repeats of a campaign are spread: those that are idle now.

        It is () where the scheduler cannot say so, or has one node; then it chooses the nodes itself.
        """
        if platform.name not in self._idle:
            states: Sequence[NodeState] = ()
            if not self._inputs.options.dry_run:
                with contextlib.suppress(BenchError):
                    states = backend_of(platform).nodes(platform)
            idle = tuple(node.name for node in states if node.state == "idle")
            self._idle[platform.name] = idle if len(states) > 1 else ()
        return self._idle[platform.name]

    def _in_blocks(self, test: str, size: int) -> Plan:
        """The plan of a test whose platform's stacks are compared. Raises UsageError for a stack that it has not."""
        from harness.plans.in_blocks import InBlocks  # imported here, as other sessions do without its arithmetic

        options = self._inputs.options.trials
        platform = self._selection.case(self._items[test]).platform
        arm_a, arm_b = options.arms
        try:
            for arm in options.arms:
                platform.with_stack(arm)
        except ConfigError as error:
            raise pytest.UsageError(f"--ab {STACK}{arm_a},{arm_b}: {error}") from None
        _refuse_too_few("nodes", options.nodes, test, size)
        sets = places(options.nodes, size)
        return InBlocks(test, (arm_a, arm_b), options.blocks, self._with_room(platform).max_running, sets)

    def _with_room(self, platform: Platform) -> Platform:
        """The platform as --ab uses it: jobs that could share a node, and disturb each other, follow each other.

        Blocks of one test on different nodes of --nodes run side by side.
        """
        if not self._inputs.options.trials.arms or not backend_of(platform).packs_nodes:
            return platform
        tests = [item for item in self._items.values() if self._selection.case(item).platform.name == platform.name]
        most = 1
        if len(tests) == 1:
            sets = places(self._inputs.options.trials.nodes, self._selection.case(tests[0]).layout.nodes)
            most = max(1, min(len(sets), platform.max_running))
        return platform.model_copy(update={"max_running": most})

    @cached_property
    def visits(self) -> NodeVisits:
        """The visits of `--each-node` and `--check`. Raises UsageError where no node can be visited."""
        from harness.node_visits import NodeVisits  # it reads the history, which few sessions need before they submit

        jobs = {test: self.job(test, TrialRequest())[0] for test in self._items}
        return NodeVisits(self._inputs, next(iter(self._items.values())).config, jobs)

    @property
    def notices(self) -> list[str]:
        """What a person should know of the choice of nodes, a line each."""
        if self._items and self._inputs.options.trials.single_nodes:
            return self.visits.notices
        return self._warnings

    def first_jobs(self) -> dict[str, JobSpec]:
        """The first job of each test, by the test's id."""
        return {test: self.job(test, self.plan(test).first()[0])[0] for test in self._items}

    @property
    def records_numbers(self) -> bool:
        """Whether one of the tests records numbers."""
        return any("record" in getattr(item, "fixturenames", ()) for item in self._items.values())

    def each_stacks_jobs(self) -> list[dict[str, JobSpec]]:
        """A job of each test, by the test's id, for each stack that is compared; without --ab its first job."""
        arms = self._inputs.options.trials.arms
        if not arms:
            return [self.first_jobs()]
        return [
            {test: self.job(test, replace(self.plan(test).first()[0], stack=arm))[0] for test in self._items}
            for arm in arms
        ]

    def all_first_jobs(self) -> list[JobSpec]:
        """All jobs that begin before the first test waits."""
        return [self.job(test, request)[0] for test in self._items for request in self.plan(test).first()]

    def most_device_hours(self) -> float:
        """What all jobs may cost, with those that plans may ask for later, in device-hours."""
        jobs = self.first_jobs()
        return sum(spec.device_hours * self.plan(test).most for test, spec in jobs.items() if spec.platform != "local")

    def job(self, test: str, request: TrialRequest) -> tuple[JobSpec, Platform]:
        """The spec of a test's request, and the platform that it is for. A session asks several times for the first."""
        if (test, request) not in self._specs:
            self._specs[test, request] = self._spec(test, request)
        spec = self._specs[test, request]
        return spec, self._with_room(self._inputs.platforms[spec.platform])

    def _spec(self, test: str, request: TrialRequest) -> JobSpec:
        item = self._items[test]
        case = self._selection.case(item)
        commit = self._inputs.options.code
        if request.stack is not None:
            case = replace(case, platform=case.platform.with_stack(request.stack))
            commit = self._commit_of_stack(case.platform) or commit
        spec = spec_of(item, case, self._run_id, self._archive(commit), item.config.rootpath, request)
        spec = replace(spec, reservation=self._inputs.options.trials.reservation, values=self._selection.values(item))
        if spec.node_facts is not None:  # a commit that a stack names may be older than what reads the facts
            spec = replace(spec, node_facts=self._archive(None))
        if request.trial.role in (Role.CONFIRM, Role.PINNED):
            spec = replace(spec, start_limit_s=min(spec.start_limit_s, REPEAT_START_LIMIT_S))
        return spec

    def _commit_of_stack(self, platform: Platform) -> str | None:
        """The commit that the platform's stack names; None if it names none. Raises UsageError."""
        assert platform.stack is not None
        name = platform.stacks[platform.stack].code
        if name is None:
            return None
        if name not in self._commits:
            try:
                self._commits[name] = code_archive.full_commit(checkout.ROOT, name)
            except RefusedError as error:
                raise pytest.UsageError(f"{platform.source}: stacks.{platform.stack}.code: {error}") from None
        return self._commits[name]

    def _archive(self, commit: str | None) -> Path:
        """The code of our benchmarks, of a commit or of this checkout. Raises UsageError for a commit without it."""
        if commit not in self._archives:
            self._archives[commit] = self._build(commit)
        return self._archives[commit]

    def _build(self, commit: str | None) -> Path:
        folder = self._inputs.options.runs / "archives"
        try:
            if commit is None:
                return code_archive.build(checkout.ROOT / "models", folder).path
            return code_archive.build_from_commit(checkout.ROOT, commit, folder).path
        except OSError as error:
            raise output_paths.unwritable(self._inputs.options.runs, error) from None
        except RefusedError as error:
            raise pytest.UsageError(f"--code, or `code:` of a stack: {error}") from None


def _refuse_too_few(option: str, nodes: Sequence[str], test: str, size: int) -> None:
    if nodes and len(nodes) < size:
        raise pytest.UsageError(f"--{option} names {len(nodes)} nodes, and {test} needs {size}")


def _alternating(treated: Sequence[tuple[str, ...]], control: Sequence[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Sets of treated and of control nodes in turn, so that what changes within an evening changes for both."""
    pairs = zip_longest(treated, control)
    return [nodes for pair in pairs for nodes in pair if nodes is not None]
