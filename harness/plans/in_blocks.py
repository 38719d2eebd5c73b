"""`--ab stack=A,B`: two stacks of a platform on the same nodes, in blocks of four runs, until it is decided.

The runs of a block follow each other; blocks run side by side. The first run of a block may run anywhere, or on the
nodes of --nodes, and the other three run where it ran. If a run fails, its block is void and is begun once more.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from harness.plans import Conclusion, TrialRequest, TrialResult
from platforms.job import Role, Trial
from reporting.compare.arms import ArmsComparison, compare_arms
from reporting.compare.blocks import LOOKS, MOST_BLOCKS, ArmsAnswer, order_of
from reporting.history.envelope import Envelope

RUNS = 4  # as ABBA or BAAB: a drift that is a straight line cancels out
ATTEMPTS = 2
MOST_SIDE_BY_SIDE = LOOKS[0].blocks
NAMED = 5  # failed runs that a sentence names


@dataclass(frozen=True)
class _Attempt:
    """The runs of a block, as far as they were begun, in their order."""

    number: int
    attempt: int
    runs: tuple[TrialResult, ...]

    @property
    def is_void(self) -> bool:
        return any(run.envelope is None and not run.live for run in self.runs)

    @property
    def is_complete(self) -> bool:
        return len(self.runs) == RUNS and all(run.envelope is not None for run in self.runs)

    @property
    def is_waiting(self) -> bool:
        return any(run.live for run in self.runs)

    @property
    def is_closed(self) -> bool:
        """No more runs of this block will be begun, and none is live."""
        return self.is_complete or (self.is_void and self.attempt == ATTEMPTS and not self.is_waiting)

    @property
    def envelopes(self) -> list[Envelope]:
        return [run.envelope for run in self.runs if run.envelope is not None]


class InBlocks:
    """The plan of a test in an A/B comparison.

    Args:
        test: its id, from which the order of each block is drawn.
        arms: A, which is the reference, and B: names of stacks.
        blocks: how many; None for as many as it takes, at most 16.
        running: how many jobs the platform takes at a time. With one slot the blocks follow each other.
        places: sets of nodes, of which the blocks take one after the other; () leaves the choice to the scheduler.
    """

    def __init__(
        self,
        test: str,
        arms: tuple[str, str],
        blocks: int | None = None,
        running: int = 1,
        places: Sequence[tuple[str, ...]] = (),
    ) -> None:
        self.most = RUNS * (blocks or MOST_BLOCKS)
        self._test = test
        self._arms = arms
        self._planned = blocks
        self._side_by_side = min(MOST_SIDE_BY_SIDE, running, len(places) or running)
        self._places = places

    def first(self) -> Sequence[TrialRequest]:
        return self.more([])

    def more(self, results: Sequence[TrialResult]) -> Sequence[TrialRequest]:
        if any(result.job is None for result in results):
            return []  # what it may cost is used up
        blocks = _last_attempts(results)
        requests = []
        taken = {self._nodes(block) for block in blocks.values() if not block.is_closed and not block.is_void}
        for block in blocks.values():
            if block.is_waiting or block.is_closed:
                continue
            going_on = block
            if block.is_void:
                going_on = _Attempt(block.number, ATTEMPTS, ())
                if self._must_wait(going_on, taken):
                    continue
            requests.append(self._next(going_on))
            taken.add(self._nodes(going_on))
        free = self._side_by_side - sum(not block.is_closed for block in blocks.values())
        last = self._last_block(blocks)
        while free > 0 and len(blocks) < last:
            block = _Attempt(len(blocks) + 1, 1, ())
            if self._must_wait(block, taken):
                break
            blocks[block.number] = block
            requests.append(self._next(block))
            taken.add(self._nodes(block))
            free -= 1
        return requests

    def _must_wait(self, block: _Attempt, taken: Collection[tuple[str, ...]]) -> bool:
        """Whether another block still runs on the named nodes on which this one would begin."""
        return bool(self._places) and self._nodes(block) in taken

    def conclusion(self, results: Sequence[TrialResult]) -> Conclusion:
        blocks = _last_attempts(results)
        is_left = any(result.job is not None and result.job.left is not None for result in results)
        comparison = self._compare(blocks, final=not is_left)
        failed = _failed(results)
        if comparison is None:
            arm_a, arm_b = self._arms
            text = f"{arm_b} against {arm_a}: no block of four runs could be compared{failed}"
            return Conclusion(text, text, fails=not is_left)
        lines = "".join(f"\n  {line}" for line in comparison.numbers)
        return Conclusion(f"{comparison.sentence}{failed}{lines}", f"{comparison.sentence}{failed}")

    def _last_block(self, blocks: Mapping[int, _Attempt]) -> int:
        """The number of the last block that may be begun now: that of the next look, or of the last one."""
        if self._planned is not None:
            return self._planned
        looks = [look.blocks for look in LOOKS]
        reached = [count for count in looks if count <= len(blocks)]
        if not reached:
            return looks[0]
        ended = len(blocks) == reached[-1] and all(block.is_closed for block in blocks.values())
        if len(blocks) > reached[-1] or not ended:
            return min(count for count in looks if count >= len(blocks))
        comparison = self._compare(blocks, final=False)
        undecided = comparison is not None and comparison.judgement.decision is ArmsAnswer.UNDECIDED
        return min((count for count in looks if undecided and count > len(blocks)), default=len(blocks))

    def _compare(self, blocks: Mapping[int, _Attempt], *, final: bool) -> ArmsComparison | None:
        complete = {number: block.envelopes for number, block in blocks.items() if block.is_complete}
        return compare_arms(self._arms, complete, planned=self._planned, final=final)

    def _next(self, block: _Attempt) -> TrialRequest:
        """The next run of a block."""
        order = order_of(self._test, block.number)
        letter = order[len(block.runs)]
        arm = self._arms["AB".index(letter)]
        earlier_of_arm = order[: len(block.runs)].count(letter)
        repeat = 2 * (block.attempt - 1) + earlier_of_arm + 1
        return TrialRequest(
            Trial(Role.AB, arm=arm, block=block.number, repeat=repeat), nodes=self._nodes(block), stack=arm
        )

    def _nodes(self, block: _Attempt) -> tuple[str, ...]:
        if self._places:
            return self._places[(block.number + block.attempt - 2) % len(self._places)]
        first = block.runs[0].job if block.runs else None
        return () if first is None else first.status.nodes


def _last_attempts(results: Sequence[TrialResult]) -> dict[int, _Attempt]:
    """The last attempt of each block, by its number."""
    runs: dict[tuple[int, int], list[TrialResult]] = {}
    for result in results:
        trial = result.request.trial
        assert trial.block is not None
        assert trial.repeat is not None
        runs.setdefault((trial.block, (trial.repeat + 1) // 2), []).append(result)
    return {number: _Attempt(number, attempt, tuple(runs[number, attempt])) for number, attempt in sorted(runs)}


def _failed(results: Sequence[TrialResult]) -> str:
    """Which runs have given no number, for the end of a sentence."""
    failed = [result for result in results if result.envelope is None and not result.live]
    if not failed:
        return ""
    named = [f"{result.request.trial.key} ({_why(result)})" for result in failed[:NAMED]]
    if len(failed) > NAMED:
        named.append(f"and {len(failed) - NAMED} more")
    return f"; without a number: {', '.join(named)}"


def _why(result: TrialResult) -> str:
    if result.job is None:
        return "max_device_hours"
    if result.error is not None:
        return result.error.splitlines()[0]
    if result.job.left is not None:
        return "still pending"
    return result.job.status.state.value
