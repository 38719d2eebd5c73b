"""What the runs of two arms say: the sentence of an A/B comparison, and the numbers by which a person can check it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from platforms.job import Metric
from reporting.compare.blocks import ArmsAnswer, Block, Judgement, judge
from reporting.compare.interval import sign_of
from reporting.compare.split import Split, no_split_of, split_of, where
from reporting.history.envelope import Envelope
from reporting.history.run_facts import STEP_PARTS, THROUGHPUT
from reporting.phrases import counted, listed, percent, size

MOST_NODES = 4  # that a sentence names


@dataclass(frozen=True)
class ArmsComparison:
    """Two arms beside each other.

    Attributes:
        arms: A, which is the reference, and B.
        metric: the name of the one that is compared.
        judgement: what its blocks say.
        split: where in a step the change is; None if the runs do not say it.
        nodes: on which the blocks ran, in the order in which they were used.
        no_split: why the runs do not say where it is; "" if they do, or do not say why.
    """

    arms: tuple[str, str]
    metric: str
    judgement: Judgement
    split: Split | None
    nodes: tuple[str, ...]
    no_split: str = ""

    @property
    def is_decided(self) -> bool:
        return self.judgement.decision in (ArmsAnswer.WORSE, ArmsAnswer.BETTER)

    @property
    def sentence(self) -> str:
        """`cuda13 against cuda12: -2.1 % [-2.7, -1.5], 8 blocks on n01, n04; all of it in the device step`."""
        arm_a, arm_b = self.arms
        what = "" if self.metric == THROUGHPUT else f"{self.metric}, "
        said = f"{what}{arm_b} against {arm_a}: {self._answer()}"
        in_step = where(self.split, self.no_split)
        return f"{said}; {in_step}" if self.is_decided and in_step else said

    def _answer(self) -> str:
        judgement = self.judgement
        count = len(judgement.blocks)
        nodes = listed(self.nodes, MOST_NODES) or "unknown nodes"
        change = percent(judgement.change)
        if judgement.look is None:
            too_few = counted(count, f"block on {nodes} is too few", f"blocks on {nodes} are too few")
            return f"not decided: {change}; {too_few} to say how much it varies"
        where = f"{counted(count, 'block')} on {nodes}"
        low, high = [percent(end).removesuffix(" %") for end in judgement.interval]
        if self.is_decided:
            return f"{change} [{low}, {high}], {where}"
        if judgement.decision is ArmsAnswer.NO_DIFFERENCE:
            return f"no difference larger than {size(judgement.largest, 1)} in {where}: {change} [{low}, {high}]"
        return f"not decided yet: {change} [{low}, {high}], {where}"

    @property
    def numbers(self) -> list[str]:
        """Lines from which a person can compute the verdict again."""
        judgement = self.judgement
        arm_a, arm_b = self.arms
        sign = sign_of(judgement.better)
        values = [f"{block.number}: {_in_percent(sign * block.value)}" for block in judgement.blocks]
        repeats = [" ".join(map(_in_percent, block.repeats)) for block in judgement.blocks]
        found = [f"blocks, in %: {', '.join(values)}", f"repeats of {arm_a} and {arm_b}, in %: {', '.join(repeats)}"]
        if judgement.look is not None:
            errors = abs(judgement.difference) / judgement.error
            mean = _in_percent(sign * judgement.difference)
            found.append(
                f"mean {mean} %; a block varies by {100 * judgement.noise:.2f} %, so the "
                f"mean by {100 * judgement.error:.2f} %: {errors:.1f} errors, {judgement.look.decides:.2f} were needed"
            )
        if self.split is not None:
            found.append(self.split.numbers())
        return found


def compare_arms(
    arms: tuple[str, str],
    blocks: Mapping[int, Sequence[Envelope]],
    *,
    planned: int | None = None,
    final: bool = False,
) -> ArmsComparison | None:
    """Judge complete blocks.

    Args:
        arms: A, which is the reference, and B.
        blocks: the four runs of each block by its number, in the order in which they ran.
        planned, final: as in `judge`.

    Returns:
        None if there is no block, or if its runs have no number above 0 in common.
    """
    runs = [run for block in blocks.values() for run in block]
    metric = _compared(runs)
    if metric is None:
        return None
    judged = [_block(number, block, arms, metric) for number, block in blocks.items()]
    judgement = judge(judged, planned=planned, final=final, better=runs[0].metrics[metric].better)
    nodes = dict.fromkeys(node for block in judged for node in block.nodes)
    split = _split(arms, list(blocks.values()))
    no_split = no_split_of(runs) if split is None and metric == THROUGHPUT else ""
    return ArmsComparison(arms, metric, judgement, split, tuple(nodes), no_split)


def _compared(runs: Sequence[Envelope]) -> str | None:
    """The metric that is compared: throughput, else the first one that all runs have."""
    if not runs:
        return None
    for name in sorted(runs[0].metrics, key=lambda name: name != THROUGHPUT):
        if all(name in run.metrics and run.metrics[name].value > 0 for run in runs):
            return name
    return None


def _block(number: int, runs: Sequence[Envelope], arms: tuple[str, str], metric: str) -> Block:
    values = {arm: [run.metrics[metric].value for run in runs if run.trial.arm == arm] for arm in arms}
    a, b = (values[arm] for arm in arms)
    return Block(number, runs[0].nodes, (a[0], a[1]), (b[0], b[1]))


def _split(arms: tuple[str, str], blocks: Sequence[Sequence[Envelope]]) -> Split | None:
    """Where in a step B differs from A.

    Each part of a run is taken relative to the mean of its block, so that what the machine does between two blocks
    hides no difference between two arms.
    """
    names = [name for name in STEP_PARTS if all(name in run.beside for block in blocks for run in block)]
    means = {name: fmean(run.beside[name].value for block in blocks for run in block) for name in names}
    sides: dict[str, list[Mapping[str, Metric]]] = {arm: [] for arm in arms}
    for block in blocks:
        drift = {name: fmean(run.beside[name].value for run in block) - means[name] for name in names}
        for run in block:
            steady = {name: replace(run.beside[name], value=run.beside[name].value - drift[name]) for name in names}
            sides[str(run.trial.arm)].append({**run.beside, **steady})
    return split_of(*sides.values())


def _in_percent(difference: float) -> str:
    """A difference of logarithms in hundredths, which is nearly the change in per cent."""
    return f"{100 * difference + 0.0:+.2f}"
