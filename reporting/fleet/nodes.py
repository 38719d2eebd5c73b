"""What the runs on a node say of it: it is slow, suspect or fit, by how much, and when it was last measured."""

from __future__ import annotations

import datetime
import math
import re
from array import array
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from itertools import islice
from statistics import fmean, median

from reporting.compare.robust import MEDIAN_PER_MEAN
from reporting.fleet.node_runs import FEWEST_CHANGES, FEWEST_NODES, LEAST_LIMIT, NodeRun, NodeRuns
from reporting.phrases import percent, size

RUNS_TO_NAME = 2
# Of the mean of two runs, which varies by a scale / 1.41: so it is 3.9 deviations below the others. Of 1,000 visits .2
# to .4 name a good node without outliers, and 1 or 2 with 3 % of them (benchmarks/fleet_simulation.py).
NAMED_SCALES = 2.75
RECENT_RUNS = 20  # a node is repaired now and then; what it was a year ago says little
WHY_NOT_JUDGED = f"this needs comparable runs of {FEWEST_NODES} other nodes, and {FEWEST_CHANGES} runs in all"


class Standing(StrEnum):
    """What is known of a node."""

    SLOW = "slow"
    """Its last two runs, or the last two of one test, were slow, and their mean is beyond the limit of two runs."""
    SUSPECT = "suspect"
    """Its last run was slow: its next one decides."""
    FIT = "fit"
    UNKNOWN = "not judged"
    """It has no run that can be compared with those of other nodes."""


@dataclass(frozen=True)
class NodeRecord:
    """A node and its runs, in the order of their starts. A node that was never measured has none.

    Attributes:
        suspicions: how many of its runs were slow beside other nodes, or slower than their series by the gate.
    """

    name: str
    runs: NodeRuns
    suspicions: int = 0

    @cached_property
    def _compared(self) -> NodeRuns:
        return self.runs.compared()

    @property
    def judged(self) -> list[NodeRun]:
        """The runs that can be compared with those of other nodes."""
        return [run for run in self._compared if run.judged]

    @cached_property
    def _last_judged(self) -> list[NodeRun]:
        """The last 20 of them."""
        return list(islice((run for run in reversed(self._compared) if run.judged), RECENT_RUNS))[::-1]

    @cached_property
    def slow_streak(self) -> list[NodeRun]:
        """The slow runs at the end of its last 20.

        If the last two of one test were slow, they count although runs of other tests came between: a node may be slow
        in what one test alone needs.
        """
        recent = self._last_judged
        longest = _slow_at_end(recent)
        for test in dict.fromkeys(run.job.test for run in recent):
            streak = _slow_at_end([run for run in recent if run.job.test == test])
            if len(streak) >= RUNS_TO_NAME and len(streak) > len(longest):
                longest = streak
        return longest

    @cached_property
    def standing(self) -> Standing:
        if not self._last_judged:
            return Standing.UNKNOWN
        streak = self.slow_streak
        if len(streak) >= RUNS_TO_NAME and _mean(streak) < -_limit_of_two(streak):
            return Standing.SLOW
        return Standing.SUSPECT if streak else Standing.FIT

    @property
    def deviation(self) -> float | None:
        """How far the node is from the others: the mean of its last two runs if both were slow, else the median of its
        last 20."""
        if len(self.slow_streak) >= RUNS_TO_NAME:
            return _mean(self.slow_streak)
        changes = [run.change for run in self._compared[-RECENT_RUNS:] if run.change is not None]
        return median(changes) if changes else None

    @property
    def error(self) -> float | None:
        """The standard error of the deviation."""
        scales = [run.scale for run in self._last_judged if run.scale is not None]
        if not scales:
            return None
        if len(self.slow_streak) >= RUNS_TO_NAME:
            return median(scales) / math.sqrt(RUNS_TO_NAME)
        factor = MEDIAN_PER_MEAN if len(scales) > 2 else 1.0  # the median of two is their mean
        return factor * median(scales) / math.sqrt(len(scales))

    @property
    def last_seen_s(self) -> float | None:
        """When its last run started, in Unix seconds."""
        return self.runs[-1].job.started_s if self.runs else None

    @property
    def slow_since(self) -> datetime.date | None:
        """The night of the first of its last runs that were all slow, of 20 at most; None if its last run was not."""
        streak = self.slow_streak
        return streak[0].night if streak else None

    @property
    def sentence(self) -> str:
        """What is wrong with the node and the numbers by which; empty for one that is not slow or suspect."""
        streak = self.slow_streak
        if not streak:
            return ""
        last = streak[-1]
        if len(streak) < RUNS_TO_NAME:
            change = percent(last.change)
            return f"{self.name} {change} in 1 run{self._of_test} (limit {size(last.limit, 1)}): suspect"
        both = " and ".join(percent(run.change) for run in streak[-RUNS_TO_NAME:])
        limit = size(_limit_of_two(streak), 1)
        suspect = "" if self.standing is Standing.SLOW else ": suspect"
        return f"{self.name} {percent(_mean(streak))} in 2 runs{self._of_test} (limit {limit}): {both}{suspect}"

    @property
    def _of_test(self) -> str:
        """` of deepcam`, if all slow runs are of it, and the node has runs of other tests, too."""
        slow = {run.job.workload for run in self.slow_streak}
        has_others = len({run.job.workload for run in self.runs}) > 1
        return f" of {slow.pop()}" if len(slow) == 1 and has_others else ""


def _slow_at_end(runs: Sequence[NodeRun]) -> list[NodeRun]:
    streak: list[NodeRun] = []
    for run in reversed(runs):
        if not run.slow:
            break
        streak.insert(0, run)
    return streak


def _mean(streak: Sequence[NodeRun]) -> float:
    """The mean change of the last two runs."""
    return fmean(run.change or 0.0 for run in streak[-RUNS_TO_NAME:])


def _limit_of_two(streak: Sequence[NodeRun]) -> float:
    """The limit of the mean of the last two runs, which may be of different tests."""
    return max(NAMED_SCALES * fmean(run.scale or 0.0 for run in streak[-RUNS_TO_NAME:]), LEAST_LIMIT)


def records_of(runs: NodeRuns, nodes: Iterable[str] = ()) -> dict[str, NodeRecord]:
    """The record of each node, by name, in the order of the names.

    Args:
        runs: all those of `node_runs`.
        nodes: more nodes of the platform, which may have no run.
    """
    of_node = {name: array("q") for name in nodes}
    for place, job in enumerate(runs.jobs):
        places = of_node.get(job.node)
        if places is None:
            places = of_node[job.node] = array("q")
        places.append(place)
    suspicions = Counter(run.job.node for run in runs.may_be_suspicious() if run.slow or run.suspected)
    names = sorted(of_node, key=natural)
    return {name: NodeRecord(name, runs.of(of_node[name]), suspicions[name]) for name in names}


def natural(name: str) -> list[str | int]:
    """Sorts n2 before n10."""
    return [int(part) if part.isdecimal() else part for part in re.split(r"(\d+)", name)]
