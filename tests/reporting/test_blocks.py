"""A/B in blocks: the arithmetic by hand, when it is decided, and that chance alone decides as rarely as it should."""

from __future__ import annotations

import math
import random

import pytest

from reporting.compare.blocks import LOOKS, ArmsAnswer, Block, judge, order_of

ROOT_2 = math.sqrt(2)


def block(number: int, value: float, of_a: float = 0.0, of_b: float = 0.0) -> Block:
    """A block with this value, whose two runs of each arm differ so that `repeats` are these."""
    a = (math.exp(-of_a / ROOT_2), math.exp(of_a / ROOT_2))
    b = (math.exp(value - of_b / ROOT_2), math.exp(value + of_b / ROOT_2))
    return Block(number, ("n01",), a, b)


def blocks(*values: float, repeat: float = 0.01) -> list[Block]:
    return [block(number, value, repeat, -repeat) for number, value in enumerate(values, 1)]


def test_a_block_is_the_difference_of_mean_logarithms() -> None:
    found = Block(1, ("n01",), (100.0, 102.0), (97.0, 98.0))
    by_hand = (math.log(97) + math.log(98)) / 2 - (math.log(100) + math.log(102)) / 2
    assert found.value == pytest.approx(by_hand) == pytest.approx(-0.03523, abs=1e-5)
    assert found.repeats == pytest.approx((math.log(1.02) / ROOT_2, math.log(98 / 97) / ROOT_2))


def test_a_linear_drift_cancels() -> None:
    for order in ("ABBA", "BAAB"):
        runs = [100 * math.exp(0.01 * place) for place in range(4)]
        of_arm = {arm: [run for run, name in zip(runs, order, strict=True) if name == arm] for arm in "AB"}
        drifting = Block(1, (), (of_arm["A"][0], of_arm["A"][1]), (of_arm["B"][0], of_arm["B"][1]))
        assert drifting.value == pytest.approx(0)


def test_the_noise_is_that_of_values_and_repeats_together() -> None:
    judgement = judge(blocks(-0.03, -0.01, -0.03, -0.01))
    # values: 4 x .01^2 about their mean; repeats: 8 x .01^2; 3 x 4 - 1 degrees of freedom; alone: .0004 / 3
    assert judgement.noise == pytest.approx(math.sqrt(max(0.0012 / 11, 0.0004 / 3)))
    assert judgement.error == pytest.approx(judgement.noise / 2)
    assert judgement.change == pytest.approx(math.exp(-0.02) - 1)
    low, high = judgement.interval
    assert low == pytest.approx(math.exp(-0.02 - 4.79 * judgement.error) - 1)
    assert high == pytest.approx(math.exp(-0.02 + 4.79 * judgement.error) - 1)


def test_repeats_that_vary_more_than_the_values_count() -> None:
    judgement = judge(blocks(-0.03, -0.01, -0.03, -0.01, repeat=0.02))
    assert judgement.noise == pytest.approx(math.sqrt((0.0004 + 8 * 0.0004) / 11))


def test_blocks_that_agree_by_luck_have_some_noise() -> None:
    assert judge(blocks(-0.02, -0.02, -0.02, -0.02, repeat=0.0)).noise == 0.001


def test_a_block_far_away_counts_as_three_scales_away() -> None:
    judgement = judge(blocks(-0.02, -0.02, -0.02, -0.02, -0.02, -0.02, -0.02, -0.60))
    assert judgement.values[-1] == pytest.approx(-0.02 - 3 * 1.4826 * 0.01)
    assert judgement.decision is ArmsAnswer.WORSE
    assert judgement.change > -0.03


@pytest.mark.parametrize(("change", "decision"), [(-0.05, ArmsAnswer.WORSE), (0.05, ArmsAnswer.BETTER)])
def test_a_large_change_is_decided_at_the_first_look(change: float, decision: ArmsAnswer) -> None:
    found = blocks(*[change - 0.01, change + 0.01] * 2)
    assert judge(found).decision is decision
    lower = judge(found, better="lower").decision
    assert {decision, lower} == {ArmsAnswer.WORSE, ArmsAnswer.BETTER}


def test_a_small_change_is_decided_later_or_not_at_all() -> None:
    for count in (4, 8, 12):
        assert judge(blocks(*[-0.016, 0.004] * (count // 2))).decision is ArmsAnswer.UNDECIDED
    judgement = judge(blocks(*[-0.016, 0.004] * 8))
    assert judgement.decision is ArmsAnswer.NO_DIFFERENCE
    error = math.sqrt(16 * 0.0001 / 15) / 4
    assert judgement.largest == pytest.approx(1 - math.exp(-0.006 - 2.03 * error))
    assert judge(blocks(*[-0.018, 0.002] * 8)).decision is ArmsAnswer.WORSE


def test_blocks_that_are_missing_at_a_look_make_it_ask_for_more() -> None:
    judgement = judge(blocks(*[-0.016, -0.01] * 7, -0.013))
    assert (len(judgement.blocks), judgement.look) == (15, LOOKS[2])
    assert judge(blocks(*[-0.016, 0.004] * 7, -0.006)).decision is ArmsAnswer.UNDECIDED
    assert judge(blocks(*[-0.016, 0.004] * 7, -0.006), final=True).decision is ArmsAnswer.NO_DIFFERENCE
    few = judge(blocks(-0.05, -0.05, -0.05), final=True)
    assert few.decision is ArmsAnswer.UNDECIDED
    assert all(map(math.isnan, few.interval))


def test_a_planned_number_of_blocks_has_one_look() -> None:
    found = blocks(*[-0.05, -0.03] * 3)
    assert judge(found, planned=8).decision is ArmsAnswer.UNDECIDED
    judgement = judge(found, planned=6)
    assert judgement.decision is ArmsAnswer.WORSE
    # Student's t with 12 degrees of freedom, from a printed table
    assert (judgement.look.decides, judgement.look.interval) == pytest.approx((3.0545, 2.1788), abs=1e-4)
    assert judge(blocks(-0.5), planned=1).decision is ArmsAnswer.UNDECIDED


def test_of_two_blocks_each_has_another_order() -> None:
    orders = [order_of("test_a.py::test_a[x]", number) for number in range(1, 41)]
    assert {first + second for first, second in zip(orders[::2], orders[1::2], strict=True)} == {"ABBABAAB", "BAABABBA"}
    assert orders == [order_of("test_a.py::test_a[x]", number) for number in range(1, 41)]
    assert orders != [order_of("test_b.py::test_b[x]", number) for number in range(1, 41)]


@pytest.mark.slow
def test_chance_alone_rarely_decides() -> None:
    chance = random.Random(1)
    wrong = 0
    for _ in range(500):
        found = [
            block(number, chance.gauss(0, 0.01), chance.gauss(0, 0.01), chance.gauss(0, 0.01))
            for number in range(1, 17)
        ]
        wrong += any(judge(found[: look.blocks]).decision in ("worse", "better") for look in LOOKS)
    assert wrong <= 12  # 5 are expected; more than 12 happen once in 500 times


def test_two_planned_blocks_are_the_least_that_decide() -> None:
    assert judge(blocks(-0.5, -0.5), planned=2).decision is ArmsAnswer.WORSE
    assert judge(blocks(-0.5), planned=1).decision is ArmsAnswer.UNDECIDED
