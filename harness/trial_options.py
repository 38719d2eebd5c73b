"""The options that give a test several jobs in one session, or say on which nodes they run."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pytest

from harness.declared import option
from platforms.nodes import node_names

STACK = "stack="
MOST = 1000  # repeats, and blocks


def _nodes(typed: str | None) -> tuple[str, ...]:
    return () if typed is None else tuple(node_names(typed))


def _number(default: int | None) -> Callable[[str | None], int | None]:
    def read(typed: str | None) -> int | None:
        if typed is None:
            return default
        if not typed.isdecimal() or not 1 <= int(typed) <= MOST:
            raise ValueError(f"{typed!r} is no number from 1 to {MOST}")
        return int(typed)

    return read


def _label(typed: str | None) -> str | None:
    if typed is not None and not re.fullmatch(r"[A-Za-z][\w.]{0,39}", typed, re.ASCII):
        raise ValueError(f"{typed!r} can be no label: a letter, then letters, digits, _ and .")
    return typed


def _arms(typed: str | None) -> tuple[str, ...]:
    if typed is None:
        return ()
    arms = tuple(typed.removeprefix(STACK).split(","))
    if not typed.startswith(STACK) or len(arms) != 2 or not all(arms) or arms[0] == arms[1]:
        raise ValueError(f"{typed!r}: write two of the platform's `stacks:`, as in stack=cuda12,cuda13")
    return arms


@dataclass(frozen=True)
class TrialOptions:
    """What was typed. A resumed run keeps all of it.

    Attributes:
        label: of a campaign.
        treated, control: the nodes of an upgrade; the repeats of each test run on both.
        each_node: `idle`, `stale:20` or a list of nodes; None if nodes are not visited.
        arms: the stacks of an A/B comparison; () if there is none.
        blocks: how many blocks it has; None until it is decided.
        check: the platform whose nodes a user wants to be checked.
    """

    nodes: tuple[str, ...] = option(
        "--nodes", "jobs run on these nodes, as in n01,n03..n20 or n[01-20]", read=_nodes, metavar="LIST"
    )
    reservation: str | None = option("--reservation", "jobs use this reservation of the scheduler", metavar="NAME")
    repeats: int = option("--repeat", "each test has N jobs in this session", read=_number(1), metavar="N")
    label: str | None = option(
        "--label", "name of a campaign, for `python -m reporting compare`", read=_label, metavar="NAME"
    )
    treated: tuple[str, ...] = option(
        "--treated",
        "with --label and --control: nodes that an upgrade changes; each test runs on all of these and of those",
        read=_nodes,
        metavar="LIST",
    )
    control: tuple[str, ...] = option(
        "--control", "nodes that the upgrade does not change", read=_nodes, metavar="LIST"
    )
    each_node: str | None = option(
        "--each-node",
        "one run on each node: idle, stale:20 (the 20 that were not measured for longest), or a list of nodes",
        metavar="WHICH",
    )
    arms: tuple[str, ...] = option(
        "--ab", "compare two stacks of a platform on the same nodes", read=_arms, metavar="stack=A,B"
    )
    blocks: int | None = option(
        "--blocks",
        "with --ab: exactly N blocks of four runs (default: until decided, at most 16)",
        read=_number(None),
        metavar="N",
    )
    check: str | None = option(
        "--check", "are the nodes of --nodes as fast as the others? For any user", metavar="PLATFORM"
    )

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

    @property
    def questions(self) -> list[str]:
        """The options that ask a question of their own; a session answers one at a time."""
        asked = {
            "--repeat, --label or --treated": self.is_campaign,
            "--each-node": self.each_node is not None,
            "--ab": bool(self.arms),
            "--check": self.check is not None,
        }
        return [name for name, is_asked in asked.items() if is_asked]


def refuse_contradictions(options: TrialOptions, config: pytest.Config) -> None:
    """Raise UsageError for options that do not go together."""
    given = options.questions
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


def places(nodes: Sequence[str], size: int) -> list[tuple[str, ...]]:
    """Cut nodes into sets for jobs of `size` nodes each. What is left over is not used."""
    return [tuple(nodes[start : start + size]) for start in range(0, len(nodes) - size + 1, size)]
