"""The options that give a test several jobs in one session, or say on which nodes they run."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from platforms.nodes import node_names

NAMES = ("nodes", "reservation", "repeat", "label", "treated", "control", "each_node", "ab", "blocks", "check")
"""The options, as a resumed run keeps them."""
STACK = "stack="
MOST_REPEATS = 1000
MOST_BLOCKS = 1000


@dataclass(frozen=True)
class TrialOptions:
    """What was typed.

    Attributes:
        nodes: on which jobs may run; () leaves that to the scheduler.
        reservation: the scheduler's name of one that jobs may use.
        repeats: how many jobs each test has.
        label: of a campaign.
        treated, control: the nodes of an upgrade; the repeats of each test run on both.
        each_node: `idle`, `stale:20` or a list of nodes; None if nodes are not visited.
        arms: the stacks of an A/B comparison; () if there is none.
        blocks: how many blocks it has; None until it is decided.
        check: the platform whose nodes a user wants to be checked.
    """

    nodes: tuple[str, ...] = ()
    reservation: str | None = None
    repeats: int = 1
    label: str | None = None
    treated: tuple[str, ...] = ()
    control: tuple[str, ...] = ()
    each_node: str | None = None
    arms: tuple[str, ...] = ()
    blocks: int | None = None
    check: str | None = None

    @property
    def single_nodes(self) -> bool:
        """Whether each job is about one node, so that tests on several nodes are left out."""
        return self.each_node is not None or self.check is not None

    @property
    def are_measurements(self) -> bool:
        """Whether jobs are measurements of their tests, which enter series and pytest-benchmark's files."""
        return not self.arms and not self.single_nodes

    @property
    def is_campaign(self) -> bool:
        return self.repeats > 1 or self.label is not None or bool(self.treated)


def add(group: pytest.OptionGroup) -> None:
    """Declare the options."""
    group.addoption("--nodes", metavar="LIST", help="jobs run on these nodes, as in n01,n03..n20 or n[01-20]")
    group.addoption("--reservation", metavar="NAME", help="jobs use this reservation of the scheduler")
    group.addoption("--repeat", metavar="N", help="each test has N jobs in this session")
    group.addoption("--label", metavar="NAME", help="name of a campaign, for `python -m reporting compare`")
    group.addoption(
        "--treated",
        metavar="LIST",
        help="with --label and --control: nodes that an upgrade changes; each test runs on all of these and of those",
    )
    group.addoption("--control", metavar="LIST", help="nodes that the upgrade does not change")
    group.addoption(
        "--each-node",
        metavar="WHICH",
        help="one run on each node: idle, stale:20 (the 20 that were not measured for longest), or a list of nodes",
    )
    group.addoption("--ab", metavar="stack=A,B", help="compare two stacks of a platform on the same nodes")
    group.addoption(
        "--blocks",
        metavar="N",
        help="with --ab: exactly N blocks of four runs (default: until decided, at most 16)",
    )
    group.addoption("--check", metavar="PLATFORM", help="are the nodes of --nodes as fast as the others? For any user")


def resolve(config: pytest.Config) -> TrialOptions:
    """Read what was typed. Raises UsageError."""
    options = TrialOptions(
        nodes=_nodes(config, "nodes"),
        reservation=config.getoption("reservation"),
        repeats=_number(config, "repeat", MOST_REPEATS) or 1,
        label=_label(config.getoption("label")),
        treated=_nodes(config, "treated"),
        control=_nodes(config, "control"),
        each_node=config.getoption("each_node"),
        arms=_arms(config.getoption("ab")),
        blocks=_number(config, "blocks", MOST_BLOCKS),
        check=config.getoption("check"),
    )
    _refuse_contradictions(options, config)
    return options


def _refuse_contradictions(options: TrialOptions, config: pytest.Config) -> None:
    kinds = {
        "--repeat, --label or --treated": options.is_campaign,
        "--each-node": options.each_node is not None,
        "--ab": bool(options.arms),
        "--check": options.check is not None,
    }
    given = [name for name, used in kinds.items() if used]
    if len(given) > 1:
        raise pytest.UsageError(f"{' and '.join(given)} are two questions: ask one in a session")
    if options.blocks is not None and not options.arms:
        raise pytest.UsageError("--blocks is for --ab stack=A,B")
    if bool(options.treated) != bool(options.control):
        raise pytest.UsageError("--treated and --control belong together: control nodes show what the days did")
    if options.treated and options.label is None:
        raise pytest.UsageError("--treated and --control need --label before, and later --label after")
    both = sorted({*options.treated} & {*options.control})
    if both:
        raise pytest.UsageError(f"--treated and --control: {', '.join(both)} cannot be both")
    if options.treated and options.nodes:
        raise pytest.UsageError("--nodes: --treated and --control name the nodes already")
    if options.each_node is not None and options.nodes:
        raise pytest.UsageError("--nodes: --each-node names the nodes already, as in --each-node=n01..n20")
    if options.check is not None and not options.nodes:
        raise pytest.UsageError(f"--check {options.check}: which nodes? As in --nodes n07")
    if len(given) == 1 and config.getoption("benchmark_compare_fail", None):
        raise pytest.UsageError(f"{given[0]} and --benchmark-compare-fail do not go together: leave one out")


def _nodes(config: pytest.Config, name: str) -> tuple[str, ...]:
    typed: str | None = config.getoption(name)
    if typed is None:
        return ()
    try:
        return tuple(node_names(typed))
    except ValueError as error:
        raise pytest.UsageError(f"--{name}: {error}") from None


def _number(config: pytest.Config, name: str, most: int) -> int | None:
    typed: str | None = config.getoption(name)
    if typed is None:
        return None
    if not str(typed).isdecimal() or not 1 <= int(typed) <= most:
        raise pytest.UsageError(f"--{name}: {typed!r} is no number from 1 to {most}")
    return int(typed)


def _label(typed: str | None) -> str | None:
    if typed is not None and not re.fullmatch(r"[A-Za-z][\w.]{0,39}", typed, re.ASCII):
        raise pytest.UsageError(f"--label: {typed!r} can be no label: a letter, then letters, digits, _ and .")
    return typed


def _arms(typed: str | None) -> tuple[str, ...]:
    if typed is None:
        return ()
    arms = tuple(typed.removeprefix(STACK).split(","))
    if not typed.startswith(STACK) or len(arms) != 2 or not all(arms) or arms[0] == arms[1]:
        raise pytest.UsageError(f"--ab: {typed!r}: write two of the platform's `stacks:`, as in stack=cuda12,cuda13")
    return arms


def places(nodes: Sequence[str], size: int) -> list[tuple[str, ...]]:
    """Cut nodes into sets for jobs of `size` nodes each. What is left over is not used."""
    return [tuple(nodes[start : start + size]) for start in range(0, len(nodes) - size + 1, size)]
