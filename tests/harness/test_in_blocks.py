"""`--ab stack=A,B`: which runs are begun, on which nodes, until when; and what the session says in the end."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from harness.plans import TrialRequest, TrialResult
from harness.plans.in_blocks import InBlocks
from platforms.job import Metric, Outcome, Role, State, Status
from reporting.compare.blocks import order_of
from reporting.history import reader
from reporting.history.envelope import Envelope, Key
from tests.harness.conftest import Project

TEST = "test_a.py::test_a[cluster-1x4gpu]"
ARMS = ("old", "new")
STEP_MS = 100.0


@dataclass(frozen=True)
class EndedOrLive:
    """What a plan reads of a job."""

    status: Status
    done: bool
    left: None = None


def ran(plan: InBlocks, throughput: Callable[[TrialRequest], float | None]) -> tuple[list[TrialResult], int]:
    """Run what a plan asks for. The jobs end in the order in which they were begun.

    Args:
        throughput: of a job, relative to 1; None for one that fails.

    Returns:
        The results, and how many jobs were live at most.
    """
    results: list[TrialResult] = []
    ended = most_live = 0
    requests = plan.first()
    while True:
        results += [live(request) for request in requests]
        most_live = max(most_live, len(results) - ended)
        if ended == len(results):
            return results, most_live
        request = results[ended].request
        results[ended] = with_number(request, throughput(request))
        ended += 1
        requests = plan.more(results)


def live(request: TrialRequest) -> TrialResult:
    return TrialResult(request, job(State.RUNNING, request, done=False))


def job(state: State, request: TrialRequest, *, done: bool) -> Any:
    return EndedOrLive(Status(state, nodes=request.nodes or (f"n0{request.trial.block}",)), done)


def with_number(request: TrialRequest, throughput: float | None) -> TrialResult:
    if throughput is None:
        return TrialResult(request, job(State.OUT_OF_MEMORY, request, done=True))
    ended = job(State.SUCCEEDED, request, done=True)
    step_ms = STEP_MS / throughput - 10
    parts = {"wait_ms": 6.0, "h2d_ms": 3.0, "step_ms": step_ms, "other_ms": 1.0}
    envelope = Envelope(
        Key("site", "r", TEST, 1, "1", 1.0),
        1,
        1.0,
        Outcome.PASSED,
        True,
        "cluster",
        trial=request.trial,
        metrics={"effective_throughput": Metric(1000 * throughput, "samples/s")},
        beside={name: Metric(value, "ms", "lower") for name, value in parts.items()},
        provenance={"nodes": ",".join(ended.status.nodes)},
    )
    return TrialResult(request, ended, envelope)


def noisy(change: float, noise: float = 0.01, seed: int = 1) -> Callable[[TrialRequest], float]:
    chance = random.Random(seed)
    return lambda request: math.exp(chance.gauss(0, noise)) * (1 + change * (request.stack == "new"))


def orders(results: list[TrialResult]) -> dict[int, str]:
    """The arms of each block as they were begun."""
    found: dict[int, str] = {}
    for result in results:
        trial = result.request.trial
        found[trial.block] = found.get(trial.block, "") + "AB"[ARMS.index(str(trial.arm))]
    return found


def test_each_block_has_its_order_and_its_nodes() -> None:
    results, most_live = ran(InBlocks(TEST, ARMS, running=8), noisy(-0.1))
    assert orders(results) == {number: order_of(TEST, number) for number in (1, 2, 3, 4)}
    assert most_live == 4
    for number in (1, 2, 3, 4):
        first, *others = [result.request for result in results if result.request.trial.block == number]
        assert first.nodes == ()
        assert [request.nodes for request in others] == [(f"n0{number}",)] * 3
    assert {result.request.trial.role for result in results} == {Role.AB}
    assert all(result.request.stack == result.request.trial.arm for result in results)
    keys = sorted(result.request.trial.key for result in results if result.request.trial.block == 1)
    assert keys == ["ab-new-b1-1", "ab-new-b1-2", "ab-old-b1-1", "ab-old-b1-2"]


def test_a_machine_with_one_slot_runs_one_block_after_the_other() -> None:
    results, most_live = ran(InBlocks(TEST, ARMS, blocks=3), noisy(-0.1))
    assert most_live == 1
    assert [result.request.trial.block for result in results] == [1] * 4 + [2] * 4 + [3] * 4


def test_named_nodes_are_taken_one_after_the_other() -> None:
    plan = InBlocks(TEST, ARMS, blocks=4, running=8, places=[("n1", "n2"), ("n3", "n4")])
    results, most_live = ran(plan, noisy(-0.1))
    assert most_live == 2
    nodes = {result.request.trial.block: result.request.nodes for result in results}
    assert nodes == {1: ("n1", "n2"), 2: ("n3", "n4"), 3: ("n1", "n2"), 4: ("n3", "n4")}


def test_no_two_blocks_share_named_nodes_however_their_runs_end() -> None:
    plan = InBlocks(TEST, ARMS, blocks=6, running=8, places=[("n1",), ("n2",)])
    chance = random.Random(3)
    results = [live(request) for request in plan.first()]
    while running := [number for number, result in enumerate(results) if result.live]:
        on_nodes = [results[number].request.nodes for number in running]
        assert len(on_nodes) == len(set(on_nodes))
        number = chance.choice(running[-1:] * 3 + running)  # mostly the one that began last
        throughput = None if chance.random() < 0.1 else 1.0
        results[number] = with_number(results[number].request, throughput)
        results += [live(request) for request in plan.more(results)]
    assert {result.request.trial.block for result in results} == {1, 2, 3, 4, 5, 6}


def test_it_ends_at_the_look_that_decides() -> None:
    plan = InBlocks(TEST, ARMS, running=8)
    used = {}
    for change in (-0.10, -0.03, 0.0):
        results, _ = ran(plan, noisy(change))
        used[change] = len(results) // 4
    assert used == {-0.10: 4, -0.03: 8, 0.0: 16}
    assert plan.most == 64


def test_the_conclusion_has_change_interval_blocks_nodes_and_split() -> None:
    plan = InBlocks(TEST, ARMS, running=8)
    results, _ = ran(plan, noisy(-0.10, noise=0.002))
    conclusion = plan.conclusion(results)
    sentence, *numbers = conclusion.text.splitlines()
    assert not conclusion.fails
    assert sentence.startswith("new against old: -10.")
    assert sentence.endswith("], 4 blocks on n01, n02, n03, n04; all of it in the device step; input unchanged")
    assert [line.split()[0] for line in numbers] == ["blocks,", "repeats", "mean", "ms"]


def test_no_difference_is_said_with_how_large_one_could_have_been() -> None:
    plan = InBlocks(TEST, ARMS, running=8)
    results, _ = ran(plan, noisy(0.0))
    sentence = plan.conclusion(results).short
    assert sentence.startswith("new against old: no difference larger than ")
    assert "in 16 blocks on n01, n02, n03, n04 and 12 more: " in sentence


def test_a_block_with_a_run_that_failed_is_begun_once_more() -> None:
    failing = noisy(-0.1)
    results, _ = ran(
        InBlocks(TEST, ARMS, running=8),
        lambda request: None if request.trial.key == "ab-new-b2-1" else failing(request),
    )
    keys = [result.request.trial.key for result in results if result.request.trial.block == 2]
    order = order_of(TEST, 2)
    assert len(keys) == order.index("B") + 1 + 4
    assert sorted(keys[-4:]) == ["ab-new-b2-3", "ab-new-b2-4", "ab-old-b2-3", "ab-old-b2-4"]
    conclusion = InBlocks(TEST, ARMS).conclusion(results)
    assert "4 blocks on n01" in conclusion.text
    assert "without a number: ab-new-b2-1 (out of memory)" in conclusion.short


def test_an_arm_that_always_fails_is_given_up() -> None:
    plan = InBlocks(TEST, ARMS, running=8)
    results, _ = ran(plan, lambda request: None if request.stack == "new" else 1.0)
    assert len(results) <= 16
    conclusion = plan.conclusion(results)
    assert conclusion.fails
    assert conclusion.short.startswith("new against old: no block of four runs could be compared; without a number: ")
    assert "ab-new-b1-1 (out of memory)" in conclusion.short


def test_nothing_is_begun_beyond_what_it_may_cost() -> None:
    plan = InBlocks(TEST, ARMS, running=8)
    results, _ = ran(plan, noisy(0.0))
    fewer = [*results[:22], TrialResult(results[22].request, None)]
    assert plan.more(fewer) == []
    conclusion = plan.conclusion(fewer)
    assert "(max_device_hours)" in conclusion.short
    assert "4 blocks" in conclusion.short


# --- in a session ---

STACKS = 'max_running: 4\nstacks:\n  old: {}\n  new: {env: {SLOWER: "1.1"}}\n  same: {}\n'


TRAINING = """
import pytest

@pytest.mark.workload(benchmark="resnet50")
def test_resnet50(run, record):
    record(run)
"""

LATENCY = """
import pytest
from platforms.results import numbers

@pytest.mark.workload(command=["sh", "-c", 'if [ "$SLOWER" ]; then echo latency: 5.5; else echo latency: 5.0; fi'])
def test_rate(run, record):
    latency, = numbers(run.log, r"latency: (.+)")
    record(run, metrics={"latency": (latency, "us", "lower")})
"""


@pytest.mark.slow
def test_a_session_compares_two_stacks(project: Project) -> None:
    project.platform("here", STACKS)
    project.job_test("seconds=4,4")
    result = project.pytest("--platform=here", "--ab=stack=old,new")
    result.assert_outcomes(passed=1, warnings=0)
    result.stdout.fnmatch_lines(["*test_it*: new against old: -9.1 % ?-9.*, -8.*?, 4 blocks on *"])
    runs = reader.read(project.path / "site/history")
    assert len(runs) == 16
    assert {run.trial.role for run in runs} == {Role.AB}
    assert sorted({(run.trial.arm, run.metrics["effective_throughput"].value) for run in runs}) == [
        ("new", pytest.approx(200 / 8.8)),
        ("old", pytest.approx(200 / 8.0)),
    ]
    assert not project.saved()


@pytest.mark.slow
def test_a_comparison_goes_on_after_its_session_was_killed(project: Project) -> None:
    project.platform("here", STACKS)
    project.job_test("seconds=4,4", "sleep=0.3")
    words = ("--platform=here", "--ab=stack=old,new", "--run-id=ab")
    project.killed(lambda: len(list(project.path.glob("runs/ab/*/run.json"))) >= 6, *words)
    result = project.pytest("--resume=ab")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["*test_it*: new against old: -9.1 % ?-9.*, -8.*?, 4 blocks on *"])
    runs = reader.read(project.path / "site/history")
    assert len({run.trial.key for run in runs}) == len(runs) == 16


@pytest.mark.slow
def test_a_program_that_measures_by_itself_is_compared(project: Project) -> None:
    project.platform("here", STACKS)
    project.write("test_rate.py", LATENCY)
    result = project.pytest("--platform=here", "--ab=stack=new,old")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["*test_rate*: latency, old against new: +9.1 % ?+8.*, +9.*?, 4 blocks on *"])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["--ab=stack=old,newer"],
            "--ab stack=old,newer: *here.yaml: stacks: there is no stack 'newer' (did you mean*",
        ),
        (["--ab=stack=old"], "--ab: 'stack=old': write two of the platform's `stacks:`*"),
        (["--ab=stack=old,old"], "--ab: 'stack=old,old': write two of the platform's `stacks:`*"),
    ],
)
def test_stacks_that_are_not_there_are_refused_at_once(project: Project, words: list[str], message: str) -> None:
    project.platform("here", STACKS)
    project.job_test("seconds=4,4")
    project.refuses("--platform=here", *words, says=f"ERROR: {message}")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("stack", "message"),
    [
        ("arguments: [--sed, 7]", "*would refuse `arguments:` of *here.yaml, of its stack new *--sed 7*"),
        ("code: no-such-tag", "*here.yaml: stacks.new.code: * has no commit 'no-such-tag'*"),
    ],
)
def test_a_stack_that_cannot_run_is_refused_before_anything_is_submitted(
    project: Project, stack: str, message: str
) -> None:
    project.platform("here", f"stacks:\n  old: {{}}\n  new: {{{stack}}}\n")
    project.write("test_mine.py", TRAINING)
    project.refuses("--platform=here", "--size=smoke", "--ab=stack=old,new", says=f"ERROR: {message}")


def test_a_platform_without_stacks_is_refused(project: Project) -> None:
    project.job_test("seconds=4,4")
    said = "ERROR: --ab stack=old,new: *stacks: there is no stack 'old' (it has none: write*"
    project.refuses("--ab=stack=old,new", says=said)
