"""Which nodes a session visits (`--each-node`) or checks (`--check`), and the plans of its tests."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import pytest

from harness.plans.check import Check
from harness.plans.each_node import EachNode
from platforms.job import BenchError, JobSpec
from platforms.nodes import node_names
from platforms.schedulers import NodeState, backend_of
from reporting.fleet.node_runs import node_jobs_of, node_runs
from reporting.fleet.nodes import records_of
from reporting.fleet.visits import in_order
from reporting.history import reader

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
        name = self._platform.name
        of_site = inputs.history, inputs.site.name
        self._past = reader.measured(*of_site, node_jobs_of, problems, is_wanted=lambda like: like.platform == name)
        self.notices = [f"warning: {problem}" for problem in problems]
        self._chosen: Sequence[str] = ()

    def plan(self, test: str) -> EachNode:
        """The plan of a test. Raises UsageError where no node can be visited."""
        inputs = self._inputs
        night_ends = inputs.site.night_ends
        past = [job for job in self._past if job.test == test]
        if inputs.options.trials.check is not None:
            return Check(inputs.options.trials.nodes, past, night_ends)
        if not self._chosen:
            self._chosen = self._choose(str(inputs.options.trials.each_node))
            # A resumed session visits the same nodes, whatever is idle or stale by then.
            self._config.option.each_node = ",".join(self._chosen)
        return EachNode(self._chosen, past, night_ends, backend_of(self._platform).drain_command)

    def _only_platform(self) -> Platform:
        names = sorted({spec.platform for spec in self._jobs.values()})
        if len(names) > 1:
            raise pytest.UsageError(
                f"--each-node visits the nodes of one platform, and tests of {' and '.join(names)} are selected: name "
                f"one, as in -m {names[0]}. Nothing was submitted"
            )
        return self._inputs.platforms[names[0]]

    def _choose(self, typed: str) -> Sequence[str]:
        """The names of the nodes, in the order of the visits. Raises UsageError if there is none."""
        if self._inputs.options.resume:
            return node_names(typed)
        names, most = self._candidates(typed)
        records = records_of(node_runs(self._past, self._inputs.site.night_ends), names)
        chosen = [record.name for record in in_order(map(records.__getitem__, names))][:most]
        if not chosen:
            raise pytest.UsageError(
                f"--each-node={typed}: {self._platform.name} has no such node now. Nothing was submitted"
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


def runs_of_platform(inputs: Inputs, platform: str, problems: list[str]) -> list[Envelope]:
    """The site's runs on a platform, from the history that the session reads.

    Args:
        problems: gets a sentence for each file that cannot be read.
    """
    runs = reader.read(inputs.history, problems=problems)
    return [run for run in runs if run.platform == platform and run.key.site == inputs.site.name]
