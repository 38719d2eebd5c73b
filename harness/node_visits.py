"""Which nodes a session visits (`--each-node`) or checks (`--check`), and the plans of its tests."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import pytest

from harness.plans.check import Check
from harness.plans.each_node import EachNode
from platforms.job import BenchError, JobSpec
from platforms.nodes import node_names
from platforms.schedulers import NodeState, backend_of
from reporting.fleet.node_runs import node_runs
from reporting.fleet.nodes import records_of
from reporting.fleet.visits import VisitList, affordable, cost_of_visit_h, spent_h, visit_list
from reporting.history import reader
from reporting.history.nights import night_of

if TYPE_CHECKING:
    from harness.inputs import Inputs
    from platforms.config.schema import Platform
    from reporting.history.envelope import Envelope

IDLE = "idle"
STALE = "stale"
NAMED = 5  # nodes out of service that a line names


class NodeVisits:
    """The visits of one session: the nodes are chosen once, for all of its tests.

    Args:
        jobs: a job of each test as it would be without a node, by the test's id.

    Attributes:
        notices: what a person should know of the choice, a line each.
    """

    def __init__(self, inputs: Inputs, config: pytest.Config, jobs: Mapping[str, JobSpec]) -> None:
        self._inputs = inputs
        self._config = config
        self._jobs = jobs
        self._platform = self._only_platform()
        problems: list[str] = []
        self._past = runs_of_platform(inputs, self._platform.name, problems)
        self.notices = [f"warning: {problem}" for problem in problems]
        self._chosen: VisitList | None = None

    def plan(self, test: str) -> EachNode:
        """The plan of a test. Raises UsageError where no node can be visited."""
        inputs = self._inputs
        night_ends = inputs.site.night_ends
        past = [run for run in self._past if run.key.test == test]
        if inputs.options.trials.check is not None:
            return Check(inputs.options.trials.nodes, past, night_ends)
        if self._chosen is None:
            self._chosen = self._choose(str(inputs.options.trials.each_node))
            # A resumed session visits the same nodes, whatever is idle or stale by then.
            self._config.option.each_node = ",".join(self._chosen.nodes)
        chosen = self._chosen
        second_visits = None
        if chosen.left_h is not None:
            second_visits = affordable(chosen.left_h, chosen.cost_h)
        drain_command = backend_of(self._platform).drain_command
        return EachNode(chosen.nodes, second_visits, chosen.postponed, past, night_ends, drain_command)

    def _only_platform(self) -> Platform:
        names = sorted({spec.platform for spec in self._jobs.values()})
        if len(names) > 1:
            raise pytest.UsageError(
                f"--each-node visits the nodes of one platform, and tests of {' and '.join(names)} are selected: name "
                f"one, as in -m {names[0]}. Nothing was submitted"
            )
        return self._inputs.platforms[names[0]]

    def _choose(self, typed: str) -> VisitList:
        if self._inputs.options.resume:
            return VisitList(node_names(typed), (), self._cost_h(), None)
        names, most = self._candidates(typed)
        night_ends = self._inputs.site.night_ends
        records = records_of(node_runs(self._past, night_ends), names)
        budget_h = self._platform.device_hours_per_night
        if budget_h is not None:
            budget_h -= spent_h(self._past, night_of(time.time(), night_ends), night_ends)
        chosen = visit_list([records[name] for name in names], self._cost_h(), budget_h, most)
        if not chosen.nodes:
            raise pytest.UsageError(self._why_none(typed, chosen, budget_h))
        if chosen.postponed:
            self.notices.append(
                f"{len(chosen.postponed)} nodes are left for another night: a visit costs {chosen.cost_h:.2g} "
                f"device-hours, and {self._platform.source} allows {self._platform.device_hours_per_night:g} in a night"
            )
        return chosen

    def _candidates(self, typed: str) -> tuple[tuple[str, ...], int | None]:
        """The nodes that may be visited, and how many of them at most. Raises UsageError."""
        word, _, number = typed.partition(":")
        if word == IDLE and not number:
            return self._named_by_scheduler(self._is_idle), None
        if word == STALE:
            if number and not re.fullmatch(r"[1-9]\d{0,5}", number, re.ASCII):
                raise pytest.UsageError(f"--each-node: {number!r} is no number of nodes: write stale:20")
            return self._named_by_scheduler(self._in_service), int(number) if number else None
        try:
            return node_names(typed), None
        except ValueError as error:
            raise pytest.UsageError(f"--each-node: {error} (or write idle, or stale:20)") from None

    def _is_idle(self, node: NodeState) -> bool:
        """Whether a job can start there now. The nodes of our reservation count: Slurm calls them reserved."""
        return node.state == "idle" or (node.state == "reserved" and self._in_service(node))

    def _in_service(self, node: NodeState) -> bool:
        """Whether a job can start there, sooner or later: one of ours cannot in a reservation for others."""
        is_for_others = node.state == "reserved" and self._inputs.options.trials.reservation is None
        return not node.out_of_service and not is_for_others

    def _named_by_scheduler(self, fits: Callable[[NodeState], bool]) -> tuple[str, ...]:
        name = self._platform.name
        try:
            nodes = backend_of(self._platform).nodes(self._platform)
        except BenchError as error:
            raise pytest.UsageError(
                f"--each-node: the nodes of {name} are not known: {error}. Name them, as in --each-node=n01..n20"
            ) from None
        out = [node for node in nodes if not self._in_service(node)]
        if out:
            listed = ", ".join(f"{node.name} ({node.reason or node.state})" for node in out[:NAMED])
            more = f" and {len(out) - NAMED} more" if len(out) > NAMED else ""
            self.notices.append(f"not in service, not visited: {listed}{more}")
        return tuple(node.name for node in nodes if fits(node))

    def _cost_h(self) -> float:
        """The device-hours of a visit, by all tests together."""
        return sum(cost_of_visit_h(self._past, test, spec.device_hours) for test, spec in self._jobs.items())

    def _why_none(self, typed: str, chosen: VisitList, budget_h: float | None) -> str:
        if not chosen.postponed or budget_h is None:
            return f"--each-node={typed}: {self._platform.name} has no such node now. Nothing was submitted"
        return (
            f"--each-node: a visit costs {chosen.cost_h:.2g} device-hours, and {max(budget_h, 0.0):.2g} of "
            f"{self._platform.device_hours_per_night:g} are left tonight (device_hours_per_night: in "
            f"{self._platform.source}). Nothing was submitted"
        )


def runs_of_platform(inputs: Inputs, platform: str, problems: list[str]) -> list[Envelope]:
    """The site's runs on a platform, from the history that the session reads.

    Args:
        problems: gets a sentence for each file that cannot be read.
    """
    runs = reader.read(inputs.history, problems=problems)
    return [run for run in runs if run.platform == platform and run.key.site == inputs.site.name]
