"""The sentence of an A/B comparison: what is compared, where a change is, and on which nodes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from platforms.job import Metric, Outcome, Role, Trial
from reporting.compare.arms import compare_arms
from reporting.compare.blocks import ArmsAnswer
from reporting.history.envelope import Envelope, Key

ARMS = ("old", "new")
PARTS = ("wait_ms", "h2d_ms", "step_ms", "other_ms")


def run(
    arm: str, block: int, metrics: dict[str, Metric], parts: tuple[float, ...] = (), nodes: str = "n01"
) -> Envelope:
    return Envelope(
        Key("site", "r", "test_a.py::test_a[it]", 1, None, None),
        1,
        1.0,
        Outcome.PASSED,
        True,
        "it",
        trial=Trial(Role.AB, arm=arm, block=block),
        metrics=metrics,
        beside={name: Metric(value, "ms", "lower") for name, value in zip(PARTS, parts, strict=False)},
        provenance={"nodes": nodes},
    )


def throughput(value: float) -> dict[str, Metric]:
    return {"triad": Metric(1.0, "GB/s"), "effective_throughput": Metric(value, "samples/s")}


def block_of(number: int, old: dict[str, Metric], new: dict[str, Metric], **more: str) -> list[Envelope]:
    return [run(arm, number, old if arm == "old" else new, **more) for arm in ("old", "new", "new", "old")]


def test_an_answer_without_a_split_says_why() -> None:
    blocks = {}
    for number in range(1, 9):
        runs = block_of(number, throughput(100 + number % 2), throughput(95))
        blocks[number] = [replace(one, no_split="its own nodes feed it") for one in runs]
    found = compare_arms(ARMS, blocks)
    assert found.is_decided
    assert found.sentence.endswith("; where in a step is not known (its own nodes feed it)")


def test_throughput_is_compared_before_other_metrics() -> None:
    blocks = {number: block_of(number, throughput(100), throughput(95)) for number in (1, 2, 3, 4)}
    found = compare_arms(ARMS, blocks)
    assert found.metric == "effective_throughput"
    assert found.judgement.decision is ArmsAnswer.WORSE
    assert found.sentence.startswith("new against old: -5.0 % [")
    assert found.numbers[0] == "blocks, in %: 1: -5.13, 2: -5.13, 3: -5.13, 4: -5.13"
    assert found.numbers[1] == "repeats of old and new, in %: +0.00 +0.00, +0.00 +0.00, +0.00 +0.00, +0.00 +0.00"
    assert found.numbers[2] == (
        "mean -5.13 %; a block varies by 0.10 %, so the mean by 0.05 %: 102.6 errors, 6.20 were needed"
    )


def test_another_metric_is_named_and_lower_may_be_better() -> None:
    old, new = ({"latency": Metric(value, "us", "lower")} for value in (5.0, 5.5))
    found = compare_arms(ARMS, {number: block_of(number, old, new) for number in (1, 2, 3, 4)})
    assert found.judgement.decision is ArmsAnswer.WORSE
    assert found.sentence.startswith("latency, new against old: -10.0 % [")


@pytest.mark.parametrize("metrics", [{}, {"gap": Metric(0.0, "s", "lower")}])
def test_runs_without_a_number_above_zero_are_not_compared(metrics: dict[str, Metric]) -> None:
    assert compare_arms(ARMS, {1: block_of(1, metrics, metrics)}) is None
    assert compare_arms(ARMS, {}) is None


def test_many_nodes_are_counted() -> None:
    blocks = {
        number: block_of(number, throughput(100), throughput(95), nodes=f"n0{number},n1{number}")
        for number in range(1, 5)
    }
    found = compare_arms(ARMS, blocks)
    assert "4 blocks on n01, n11, n02, n12 and 4 more" in found.sentence
    unknown = compare_arms(ARMS, {1: block_of(1, throughput(1), throughput(1), nodes="")}, planned=1)
    assert unknown.sentence == (
        "new against old: not decided: +0.0 %; 1 block on unknown nodes is too few to say how much it varies"
    )


def test_a_drift_of_the_input_from_block_to_block_does_not_hide_where_the_change_is() -> None:
    blocks = {}
    for number in (1, 2, 3, 4):
        wait = 20.0 * number
        sides = {"old": (wait, 1.0, 100.0, 1.0), "new": (wait, 1.0, 106.0, 1.0)}
        blocks[number] = [
            run(arm, number, throughput(32000 / sum(sides[arm])), sides[arm]) for arm in ("old", "new", "new", "old")
        ]
    found = compare_arms(ARMS, blocks)
    assert found.split.sentence() == "all of it in the device step; input unchanged"
    assert found.numbers[3] == (
        "ms per step: wait 50.0 -> 50.0, h2d 1.0 -> 1.0, device step 100.0 -> 106.0, other 1.0 -> 1.0 = 152.0 -> 158.0"
    )


def test_only_throughput_has_parts_whose_absence_is_explained() -> None:
    blocks = {}
    for number in range(1, 9):
        runs = block_of(number, {"triad": Metric(100 + number % 2, "GB/s")}, {"triad": Metric(95, "GB/s")})
        blocks[number] = [replace(one, no_split="its own nodes feed it") for one in runs]
    found = compare_arms(ARMS, blocks)
    assert found.is_decided
    assert "where in a step" not in found.sentence
