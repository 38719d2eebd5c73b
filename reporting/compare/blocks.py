"""Whether one arm of an A/B comparison is slower than the other one, from blocks of four runs on the same nodes.

A block is four runs, A B B A or B A A B, one after the other. Its value is the mean of the logarithms of B's two runs
less that of A's: a drift that is linear over the four runs cancels. docs/compare.md has a worked example;
benchmarks/ab_trials.py shows what the rule finds on a real machine and how often it is wrong.
"""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from statistics import fmean, median
from typing import Literal

from reporting.compare.interval import change_of
from reporting.compare.robust import NORMAL_PER_MAD
from reporting.compare.student import quantile

FARTHEST = 3.0  # scales; a difference that is larger counts as this large
SAME = 1e-9  # logarithms that differ by less are of the same value, computed in another way
LEAST_NOISE = 0.001  # of a block: the differences of few blocks may agree by luck
WRONG = 0.01  # how often a verdict is given where there is no difference, in all looks together and both directions
OUTSIDE = 0.05  # how often an interval misses the true change, in all looks together
ORDERS = ("ABBA", "BAAB")
LEAST_BLOCKS = 2  # one block does not say how much blocks vary


def order_of(test: str, number: int) -> str:
    """The order of the runs of a block, which is always the same for a test: `ABBA` or `BAAB`.

    Of blocks 1 and 2, 3 and 4, … one has each order. Which one comes first is drawn, so that no drift of a machine can
    follow the order.
    """
    pair = (number - 1) // 2
    drawn = hashlib.sha256(f"{test} {pair}".encode()).digest()[0] % 2
    return ORDERS[(number - 1 + drawn) % 2]


class ArmsAnswer(StrEnum):
    """What the blocks say of B beside A."""

    UNDECIDED = "undecided"
    WORSE = "worse"
    BETTER = "better"
    NO_DIFFERENCE = "no difference"


@dataclass(frozen=True)
class Block:
    """Four runs of two arms on the same nodes.

    Attributes:
        number: from 1.
        nodes: where they ran.
        a, b: the values of each arm's two runs in the order in which they ran: throughputs, or any metric above 0.
    """

    number: int
    nodes: tuple[str, ...]
    a: tuple[float, float]
    b: tuple[float, float]

    @property
    def value(self) -> float:
        """The mean of the logarithms of B less that of A: -.02 is about -2 %."""
        return fmean(map(math.log, self.b)) - fmean(map(math.log, self.a))

    @property
    def repeats(self) -> tuple[float, float]:
        """How far the two runs of each arm differ, divided by the root of two.

        Where all runs vary alike, these vary as the value does. A drift makes them vary more.
        """
        return math.log(self.a[1] / self.a[0]) / math.sqrt(2), math.log(self.b[1] / self.b[0]) / math.sqrt(2)


@dataclass(frozen=True)
class Look:
    """How many standard errors are asked for after so many blocks.

    Attributes:
        decides: the change is decided if it has more standard errors than this.
        interval: how many standard errors lie between the change and an end of its interval.
    """

    blocks: int
    decides: float
    interval: float


# Up to each look (blocks / 16)^3 of the 1 % (5 %) is spent: .016, .125, .42 and 1 %. The numbers are simulated:
# `python benchmarks/ab_trials.py --bounds`.
LOOKS = (Look(4, 6.20, 4.79), Look(8, 3.70, 2.99), Look(12, 3.06, 2.42), Look(16, 2.71, 2.03))
MOST_BLOCKS = LOOKS[-1].blocks


@dataclass(frozen=True)
class Judgement:
    """What blocks say of B beside A.

    Attributes:
        decision: of the metric, whose direction is known.
        blocks: on which it rests.
        look: the number of standard errors that were asked for; None where the blocks are too few.
        better: which values of the metric are the better ones.
    """

    decision: ArmsAnswer
    blocks: tuple[Block, ...]
    look: Look | None
    better: Literal["higher", "lower"] = "higher"

    @cached_property
    def values(self) -> list[float]:
        """The values of the blocks. One that is farther than three scales from their median counts as three away."""
        centre = self._centre
        most = FARTHEST * self._scale
        return [centre + min(max(block.value - centre, -most), most) for block in self.blocks]

    @cached_property
    def difference(self) -> float:
        """Of the logarithms: the mean of `values`."""
        return fmean(self.values)

    @cached_property
    def noise(self) -> float:
        """The standard deviation of a block: that of the values, or the one with the repeats if that is larger."""
        mean = self.difference
        most = FARTHEST * self._scale
        between = math.fsum((value - mean) ** 2 for value in self.values)
        within = math.fsum(min(abs(repeat), most) ** 2 for block in self.blocks for repeat in block.repeats)
        count = len(self.blocks)
        together = (between + within) / (3 * count - 1)
        alone = between / (count - 1) if count > 1 else 0.0
        return max(math.sqrt(max(together, alone)), LEAST_NOISE, self._resolution / math.sqrt(12))

    @property
    def error(self) -> float:
        """The standard error of `difference`."""
        return self.noise / math.sqrt(len(self.blocks))

    @property
    def change(self) -> float:
        """The relative change of the metric from A to B: -.02 is 2 % worse."""
        return change_of(self.difference, self.better)

    @property
    def interval(self) -> tuple[float, float]:
        """The ends of a 95 % interval of the change, which holds at all looks together; nan where there is no look."""
        reach = math.nan if self.look is None else self.look.interval * self.error
        ends = [change_of(self.difference + way * reach, self.better) for way in (-1, 1)]
        return min(ends), max(ends)

    @property
    def largest(self) -> float:
        """The largest change, in either direction, that the interval leaves open."""
        return max(map(abs, self.interval))

    @cached_property
    def _centre(self) -> float:
        return median([block.value for block in self.blocks])

    @cached_property
    def _scale(self) -> float:
        """The scaled median absolute deviation of the values and repeats of all blocks."""
        distances = [abs(block.value - self._centre) for block in self.blocks]
        distances += [abs(repeat) for block in self.blocks for repeat in block.repeats]
        return max(NORMAL_PER_MAD * median(distances), self._resolution)

    @cached_property
    def _resolution(self) -> float:
        """The smallest step between two values of an arm: what they are rounded to, if they are.

        Rounding makes many values equal, so that they seem to vary less than they do. Where nothing is rounded the
        smallest of many steps is tiny.
        """
        of_a = sorted(math.log(value) for block in self.blocks for value in block.a)
        of_b = sorted(math.log(value) for block in self.blocks for value in block.b)
        steps = [after - before for arm in (of_a, of_b) for before, after in itertools.pairwise(arm)]
        return min((step for step in steps if step > SAME), default=0.0)


def judge(
    blocks: Sequence[Block],
    *,
    planned: int | None = None,
    final: bool = False,
    better: Literal["higher", "lower"] = "higher",
) -> Judgement:
    """Say what blocks show. Call it at a look only, or after the planned number of blocks: each call may be wrong.

    Args:
        blocks: at least one. At a look some may be missing, since a run of theirs has failed.
        planned: how many blocks were asked for; they are looked at once. None: there are looks after 4, 8, 12 and 16.
        final: there will be no more blocks, though there are fewer than were meant to be.
    """
    count = len(blocks)
    look = _look(count, planned)
    ended = final or count >= (planned or MOST_BLOCKS)
    judgement = Judgement(ArmsAnswer.UNDECIDED, tuple(blocks), look, better)
    if look is None or (planned is not None and not ended):
        return judgement
    decision = ArmsAnswer.UNDECIDED
    if abs(judgement.difference) > look.decides * judgement.error:
        decision = ArmsAnswer.BETTER if judgement.change > 0 else ArmsAnswer.WORSE
    elif ended:
        decision = ArmsAnswer.NO_DIFFERENCE
    return replace(judgement, decision=decision)


def _look(count: int, planned: int | None) -> Look | None:
    """The look at this many blocks. Between two looks the earlier one, which asks for more, is taken."""
    if planned is None:
        return max((look for look in LOOKS if look.blocks <= count), key=lambda look: look.blocks, default=None)
    if count < LEAST_BLOCKS:
        return None
    freedom = 2 * count  # fewer than 3 * count - 1, since the larger of two standard deviations is taken
    return Look(count, quantile(1 - WRONG / 2, freedom), quantile(1 - OUTSIDE / 2, freedom))
