"""Where a change of throughput is: in waiting for data, in copies to the device, in the device step, or elsewhere.

The parts of a step stand beside each run (docs/history.md). docs/gate.md says how they are compared.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

from platforms.job import Metric
from reporting.compare.robust import MEDIAN_PER_MEAN, NORMAL_PER_MAD, UNCERTAINTY
from reporting.history.envelope import Envelope
from reporting.history.run_facts import EXCHANGE, STEP_PARTS
from reporting.phrases import size

PARTS: Mapping[str, str] = {
    "wait_ms": "waiting for data",
    "h2d_ms": "copies to the device",
    "stall_ms": "waiting for data and copies",
    "step_ms": "the device step",
    "other_ms": "the rest of the loop",
}
"""What a sentence calls a part."""
SHORT_NAMES: Mapping[str, str] = {
    "wait_ms": "wait",
    "h2d_ms": "h2d",
    "stall_ms": "wait and h2d",
    "step_ms": "device step",
    "other_ms": "other",
}
INPUT = ("wait_ms", "h2d_ms", "stall_ms")

ERRORS = 2.0
"""A part has moved if its medians differ by more than so many standard errors of their difference."""
LEAST_MOVED = 0.003
"""Of a step: a part that moves by less is never named. The least change that the gate looks for is 1 %."""
LEAST_NAMED = 0.05
"""Of the largest change of a part: one that moved by less has no share, which would be 5 % or less."""
LEAST_UNCLEAR = 0.5
"""Of the largest change of a part that has moved: another one that changed by so much by chance is not unchanged."""
LEAST_NAMED_EXCHANGE = 0.5
"""Of a change of the device step: a smaller share in the exchange of gradients is not told."""
LEAST_MOVED_OF_TWO_RUNS = 0.03
"""The same where each side has one run, so that its scatter is not known."""


@dataclass(frozen=True)
class Split:
    """The parts of a step before and after a change.

    Attributes:
        before, after: each part's time in ms per step, by the same names. They add up to the whole step.
        limits: by how much each part's time may differ by chance, in ms per step. A missing one is 0.
    """

    before: Mapping[str, float]
    after: Mapping[str, float]
    limits: Mapping[str, float] = field(default_factory=dict)

    @property
    def change(self) -> dict[str, float]:
        """By how much each part has changed, in ms per step. Positive is slower."""
        return {name: self.after[name] - self.before[name] for name in self.before}

    @property
    def moved(self) -> dict[str, float]:
        """The changes of the parts that have changed by more than chance, the largest first, in ms per step."""
        least = LEAST_MOVED * math.fsum(self.before.values())
        found = {}
        for name, change in self.change.items():
            if abs(change) > max(self.limits.get(name, 0.0), least):
                found[name] = change
        return dict(sorted(found.items(), key=lambda item: -abs(item[1])))

    @property
    def shares(self) -> dict[str, float]:
        """What share of the change is in each part that has moved, without those that moved little beside the largest.

        The shares add up to 1. They are empty if no part has moved, or if some take more and some take less.
        """
        moved = self.moved
        if not moved:
            return {}
        largest = max(map(abs, moved.values()))
        named = {name: change for name, change in moved.items() if abs(change) >= LEAST_NAMED * largest}
        if len({change > 0 for change in named.values()}) != 1:
            return {}
        total = math.fsum(named.values())
        return {name: change / total for name, change in named.items()}

    @property
    def unclear(self) -> list[str]:
        """The parts that vary too much to be called unchanged beside those that have moved."""
        moved = self.moved
        least = LEAST_UNCLEAR * max(map(abs, moved.values()), default=math.inf)
        return [name for name, change in self.change.items() if name not in moved and abs(change) > least]

    def sentence(self) -> str:
        """Where the change is: `all of it in the device step; input unchanged`."""
        moved = self.moved
        if not moved:
            return "no part of a step has moved by more than it varies from run to run"
        shares = self.shares
        unclear = self.unclear
        if unclear:
            others = " and ".join(PARTS[name] for name in unclear)
            return f"{self._each(moved)}; the scatter from run to run is too large to say more of {others}"
        if not shares:
            return self._each(moved)
        if len(shares) == 1:
            return f"all of it in {self._named(*shares)}{self._unchanged(moved)}"
        parts = [f"{size(share, 0)} in {self._named(name)}" for name, share in shares.items()]
        return f"{', '.join(parts)}{self._unchanged(moved)}"

    def numbers(self) -> str:
        """The line from which a person can check the sentence: each part, and the whole, before and after."""
        decimals = self._decimals()
        old = {name: round(value, decimals) for name, value in self.before.items()}
        new = {name: round(value, decimals) for name, value in self.after.items()}
        parts = [f"{SHORT_NAMES[name]} {_arrow(old[name], new[name], decimals)}" for name in STEP_PARTS if name in old]
        whole = _arrow(math.fsum(old.values()), math.fsum(new.values()), decimals)
        return f"ms per step: {', '.join(parts)} = {whole}"

    def _named(self, name: str) -> str:
        """A part in a sentence. A copy has its times, since the whole says little of a part that is so small."""
        if name != "h2d_ms":
            return PARTS[name]
        return f"{PARTS[name]} (h2d {_arrow(self.before[name], self.after[name], self._decimals())} ms per step)"

    def _each(self, moved: Mapping[str, float]) -> str:
        """`7.0 ms per step more in waiting for data, 2.0 ms per step less in the device step`."""
        decimals = self._decimals()
        said = []
        for name, change in moved.items():
            direction = "more" if change > 0 else "less"
            said.append(f"{abs(change):.{decimals}f} ms per step {direction} in {PARTS[name]}")
        return ", ".join(said)

    def _unchanged(self, moved: Mapping[str, float]) -> str:
        """Which of the input and the device step has not moved."""
        still = []
        if not any(name in moved for name in INPUT):
            still.append("input")
        if "step_ms" not in moved:
            still.append("device step")
        return f"; {' and '.join(still)} unchanged" if still else ""

    def _decimals(self) -> int:
        """So many that the largest change has two digits; at least one, and no more than make five of the whole."""
        largest = max(map(abs, self.change.values()))
        whole = abs(math.fsum(self.before.values()))
        if not largest or not whole:
            return 1
        return max(1, min(1 - math.floor(math.log10(largest)), 4 - math.floor(math.log10(whole))))


def split_of(before: Sequence[Mapping[str, Metric]], after: Sequence[Mapping[str, Metric]]) -> Split | None:
    """The split of a change, by the median of each part over the runs of each side.

    Runs that do not say what was waiting and what was copying count only if a side has no others: then both sides have
    the sum of the two.

    Args:
        before, after: what stands beside the runs (`Envelope.beside`), in any order.

    Returns:
        None if no run of a side has its parts.
    """
    sides = [_runs_with(side, ("wait_ms", "h2d_ms", "step_ms", "other_ms")) for side in (before, after)]
    if not all(sides):
        together = [[_with_stall(run) for run in side] for side in (before, after)]
        sides = [_runs_with(side, ("stall_ms", "step_ms", "other_ms")) for side in together]
    if not all(sides):
        return None
    return _split([name for name in STEP_PARTS if name in sides[0][0]], *sides)


def in_exchange(before: Sequence[Mapping[str, Metric]], after: Sequence[Mapping[str, Metric]]) -> str:
    """How much of a change of the device step is in the exchange of gradients; "" for less than half, or not known."""
    sides = [_runs_with(side, (EXCHANGE, "step_ms")) for side in (before, after)]
    if not all(sides):
        return ""
    for run in (*sides[0], *sides[1]):
        run["step_ms"] -= run[EXCHANGE]
    split = _split((EXCHANGE, "step_ms"), *sides)
    share = split.shares.get(EXCHANGE, 0.0)
    if share < LEAST_NAMED_EXCHANGE:
        return ""
    times = _arrow(split.before[EXCHANGE], split.after[EXCHANGE], 1)
    return f"of the device step {size(share, 0)} in the exchange of gradients ({times} ms per step)"


def _split(names: Sequence[str], old: Sequence[Mapping[str, float]], new: Sequence[Mapping[str, float]]) -> Split:
    before, after = ({name: median([run[name] for run in side]) for name in names} for side in (old, new))
    unknown = LEAST_MOVED_OF_TWO_RUNS * math.fsum(before.values())
    limits = {name: _limit([run[name] for run in old], [run[name] for run in new], unknown) for name in names}
    return Split(before, after, limits)


def where(split: Split | None, no_split: str | None) -> str:
    """Where in a step a change is, or why that is not known; "" if the runs say neither.

    Args:
        no_split: why the device of the runs does not tell waiting from computing.
    """
    if split is not None:
        return split.sentence()
    return f"where in a step is not known ({no_split})" if no_split else ""


def no_split_of(runs: Iterable[Envelope]) -> str:
    """Why these runs do not tell waiting from computing, by the first one that says it; "" if none does."""
    return next((run.no_split for run in runs if run.no_split), "")


def _runs_with(runs: Sequence[Mapping[str, Metric]], names: Sequence[str]) -> list[dict[str, float]]:
    """These numbers of the runs that have all of them."""
    found = []
    for run in runs:
        values = {name: run[name].value for name in names if name in run}
        if len(values) == len(names) and all(map(math.isfinite, values.values())):
            found.append(values)
    return found


def _with_stall(run: Mapping[str, Metric]) -> dict[str, Metric]:
    """A run with waiting and copying as one number."""
    if "wait_ms" not in run or "h2d_ms" not in run:
        return dict(run)
    return {**run, "stall_ms": Metric(run["wait_ms"].value + run["h2d_ms"].value, "ms", "lower")}


def _limit(before: Sequence[float], after: Sequence[float], unknown: float) -> float:
    """By how much the medians of two sides may differ by chance: two standard errors of their difference.

    Args:
        unknown: the limit of two single runs.
    """
    residuals = []
    for side in (before, after):
        if len(side) > 1:
            centre = median(side)
            residuals += sorted(abs(value - centre) for value in side)[1:]  # the run in the middle shows no scatter
    if not residuals:
        return unknown
    scale = NORMAL_PER_MAD * median(residuals) * (1 + UNCERTAINTY / math.sqrt(len(residuals)))
    return ERRORS * MEDIAN_PER_MEAN * scale * math.sqrt(1 / len(before) + 1 / len(after))


def _arrow(before: float, after: float, decimals: int) -> str:
    return f"{before + 0.0:.{decimals}f} -> {after + 0.0:.{decimals}f}"
