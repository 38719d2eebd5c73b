"""What finds that B is slower than A on a real machine, and how often it is wrong: blocks, one run each, two sessions.

    python benchmarks/ab_trials.py [FILE] [--first N] [--trials 1000] [--stretches 1 3] [--order drawn|alternating|ABBA]
    python benchmarks/ab_trials.py --bounds            # a few minutes

FILE is a recording of benchmarks/record_drift.py: the same training again and again, so that whatever differs is the
machine's drift. A trial begins at a random run, goes on at the beginning after the last one, and takes the runs one
after the other as those of A and B. B is made slower by a known effect. The number of a run is that of its judged
stretch. With `--stretches 3` three recorded runs are one run of three stretches, as a run of the size `quick` has five.

- blocks: as `pytest --ab` does it, at most 16 blocks of four runs, or exactly 32 as with `--blocks 32`; also of values
  that are rounded to 1 % and .1 % of the first one.
- one run each: B's run against A's, at another time of the recording; slower by more than 5 or 2 % is "found". The
  number is the mean of the rounds, as in `pytest --benchmark-compare-fail=mean:5%`, or N / T over all windows.
- two sessions: 32 runs of A, and 32 of B that begin at least a quarter of the recording later; Welch's t at 1 %.

`--bounds` simulates the numbers in reporting/compare/blocks.py. Prints Markdown. Exit code 1: the blocks are wrong in
more than 1 % of the trials without an effect, by more than chance explains.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median, variance

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from platforms.job import Window
from reporting.compare import blocks
from reporting.compare.blocks import ArmsAnswer, Block, Judgement, judge, order_of
from reporting.compare.robust import scaled_mad
from reporting.compare.student import quantile
from reporting.history.stretches import all_windows

RECORDING = Path(__file__).parent / "recorded" / "drift.jsonl"
EFFECTS = (0.0, -0.01, -0.02, -0.04)
RUNS = 4 * blocks.MOST_BLOCKS
BLIND_TRIALS = 200_000


@dataclass(frozen=True)
class RecordedRun:
    """One run: seconds per sample of its rounds, and the throughput of all its windows."""

    rounds: tuple[float, ...]
    throughput: float

    @property
    def mean_throughput(self) -> float:
        """By the mean of the rounds, which pytest-benchmark compares."""
        return 1 / fmean(self.rounds)


class Recording:
    """Runs in the order in which they were recorded. After the last one the first one follows.

    Args:
        stretches: how many recorded runs are one run.
    """

    def __init__(self, lines: Sequence[Mapping[str, list[list[float]]]], stretches: int) -> None:
        self._windows = [[_window(values) for values in line["windows"]] for line in lines]
        self._stretches = stretches
        self.length = len(lines)

    def runs(self, start: int, count: int) -> list[RecordedRun]:
        """So many runs, one after the other, the first of which begins with the recorded run `start`."""
        return [self._run(start + number * self._stretches) for number in range(count)]

    def _run(self, start: int) -> RecordedRun:
        parts = [self._windows[(start + offset) % self.length] for offset in range(self._stretches)]
        rounds = tuple(window.seconds_per_sample for windows in parts for window in windows)
        run = all_windows([window for windows in parts for window in windows])
        return RecordedRun(rounds, run.samples / run.wall_s)


def _window(values: Sequence[float]) -> Window:
    samples, wall_s, wait_s, h2d_s, busy_s = values
    return Window(int(samples), 1, wall_s, wait_s + h2d_s, busy_s)


# --- the ways to compare ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Trial:
    """What one trial said: whether B differs, and by how many runs; of blocks, also how they judged."""

    found: bool
    runs: int
    judgement: Judgement | None = None


Method = Callable[[Recording, random.Random, float], Trial]


def in_blocks(order: str, planned: int | None = None, rounded: float = 0.0) -> Method:
    """Blocks in this order: `drawn` as the suite does it, `alternating`, or always `ABBA`.

    Args:
        planned: exactly so many; None for as many as it takes, at most 16.
        rounded: to which fraction of the first run's the values are rounded; 0 for as they are.
    """
    most = planned or blocks.MOST_BLOCKS
    looks = [planned] if planned else [look.blocks for look in blocks.LOOKS]

    def compare(recording: Recording, chance: random.Random, effect: float) -> Trial:
        runs = recording.runs(chance.randrange(recording.length), 4 * most)
        test = str(chance.random())
        found: list[Block] = []
        for number in range(1, most + 1):
            four = [run.throughput for run in runs[4 * number - 4 : 4 * number]]
            found.append(_block(number, _order(order, test, number), four, effect, rounded * runs[0].throughput))
        for count in looks:
            judgement = judge(found[:count], planned=planned)
            if judgement.decision is not ArmsAnswer.UNDECIDED:
                break
        return Trial(judgement.decision in (ArmsAnswer.WORSE, ArmsAnswer.BETTER), 4 * count, judgement)

    return compare


def _order(order: str, test: str, number: int) -> str:
    if order == "drawn":
        return order_of(test, number)
    return blocks.ORDERS[(number - 1) % 2] if order == "alternating" else order


def _block(number: int, order: str, four: Sequence[float], effect: float, step: float = 0.0) -> Block:
    """A block with this effect; its values are multiples of `step`, unless that is 0."""
    of_a = [value for arm, value in zip(order, four, strict=True) if arm == "A"]
    of_b = [value * (1 + effect) for arm, value in zip(order, four, strict=True) if arm == "B"]
    if step:
        of_a, of_b = ([step * round(value / step) for value in values] for values in (of_a, of_b))
    return Block(number, ("here",), (of_a[0], of_a[1]), (of_b[0], of_b[1]))


def one_run_each(threshold: float, number: Callable[[RecordedRun], float]) -> Method:
    """B's run is slower than A's by more than the threshold."""

    def compare(recording: Recording, chance: random.Random, effect: float) -> Trial:
        (run_a,) = recording.runs(chance.randrange(recording.length), 1)
        (run_b,) = recording.runs(chance.randrange(recording.length), 1)
        slower = number(run_a) / (number(run_b) * (1 + effect)) - 1
        return Trial(slower > threshold, 2)

    return compare


def two_sessions(recording: Recording, chance: random.Random, effect: float) -> Trial:
    """All runs of A in one session and all of B in another one, by Welch's t test at 1 %."""
    count = RUNS // 2
    start = chance.randrange(recording.length)
    later = start + chance.randrange(recording.length // 4, 3 * recording.length // 4)
    of_a = [math.log(run.throughput) for run in recording.runs(start, count)]
    of_b = [math.log(run.throughput * (1 + effect)) for run in recording.runs(later, count)]
    error = math.sqrt((variance(of_a) + variance(of_b)) / count)
    limit = quantile(0.995, 2 * count - 2)
    return Trial(abs(fmean(of_b) - fmean(of_a)) > limit * error, RUNS)


# --- the table --------------------------------------------------------------------------------------------------------


def share(trials: Sequence[Trial]) -> float:
    return sum(trial.found for trial in trials) / len(trials)


def replay(recording: Recording, methods: Mapping[str, Method], count: int, seed: int) -> dict[str, list[list[Trial]]]:
    """The trials of each method, for each effect."""
    return {
        name: [[method(recording, chance, effect) for _ in range(count)] for effect in EFFECTS]
        for name, method in methods.items()
        for chance in [random.Random(f"{name} {seed}")]
    }


def print_table(trials: Mapping[str, Sequence[Sequence[Trial]]]) -> None:
    heads = ["wrong without an effect", *(f"found at {100 * effect:.0f} %" for effect in EFFECTS[1:])]
    print(f"| | {' | '.join(heads)} | runs at -2 % (median) |\n|---|{'---|' * (len(heads) + 1)}")
    for name, by_effect in trials.items():
        shares = " | ".join(f"{100 * share(each):.1f} %" for each in by_effect)
        print(f"| {name} | {shares} | {median(trial.runs for trial in by_effect[2]):.0f} |")


def print_blocks(by_effect: Sequence[Sequence[Trial]]) -> None:
    """How many blocks were used, what was stated, and how often the interval held the effect."""
    print("\n| effect | blocks (median) | change stated where it was found (median) | interval holds the effect |")
    print("|---|---|---|---|")
    for effect, trials in zip(EFFECTS, by_effect, strict=True):
        judgements = [trial.judgement for trial in trials if trial.judgement is not None]
        stated = [trial.judgement.change for trial in trials if trial.found and trial.judgement is not None]
        held = [low <= effect <= high for low, high in (judgement.interval for judgement in judgements)]
        text = f"{100 * median(stated):+.1f} %" if stated else "-"
        used = median(trial.runs // 4 for trial in trials)
        print(f"| {100 * effect:.0f} % | {used:.0f} | {text} | {100 * sum(held) / len(held):.1f} % |")


def describe(recording: Recording) -> None:
    """How much runs vary, and how much blocks that begin with each of them."""
    values = [math.log(run.throughput) for run in recording.runs(0, recording.length)]
    block_values = []
    for start in range(recording.length):
        four = [run.throughput for run in recording.runs(start, 4)]
        block_values.append(_block(1, "ABBA", four, 0.0).value)
    print(
        f"{recording.length} recorded runs; a run varies by {100 * math.sqrt(variance(values)):.1f} %, a block by "
        f"{100 * math.sqrt(variance(block_values)):.1f} % (scaled MAD {100 * scaled_mad(block_values):.1f} %)\n"
    )


# --- the bounds -------------------------------------------------------------------------------------------------------


def simulated_blocks(chance: random.Random, count: int) -> list[Block]:
    """Blocks without an effect, of runs that vary independently by 1 %."""

    def two() -> tuple[float, float]:
        return math.exp(chance.gauss(0, 0.01)), math.exp(chance.gauss(0, 0.01))

    return [Block(number, (), two(), two()) for number in range(1, count + 1)]


def errors_of(found: Sequence[Block]) -> float:
    """How many standard errors the change has."""
    judgement = Judgement(ArmsAnswer.UNDECIDED, tuple(found), look=None)
    return abs(judgement.difference) / judgement.error


def print_bounds(count: int, seed: int) -> None:
    """The standard errors that spend `wrong * (blocks / 16)^3` up to each look."""
    chance = random.Random(seed)
    seen = [
        [errors_of(found[: look.blocks]) for look in blocks.LOOKS]
        for found in (simulated_blocks(chance, blocks.MOST_BLOCKS) for _ in range(count))
    ]
    for wrong in (blocks.WRONG, blocks.OUTSIDE):
        going_on = seen
        spent = 0
        for number, look in enumerate(blocks.LOOKS):
            allowed = round(count * wrong * (look.blocks / blocks.MOST_BLOCKS) ** 3) - spent
            values = sorted((each[number] for each in going_on), reverse=True)
            bound = values[allowed]
            going_on = [each for each in going_on if each[number] <= bound]
            spent += allowed
            print(f"{100 * wrong:.0f} %, {look.blocks} blocks: {bound:.2f}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path, nargs="?", default=RECORDING)
    parser.add_argument("--first", type=int, help="replay only so many runs of the recording, from its beginning")
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument("--stretches", type=int, nargs="+", default=[1, 3])
    parser.add_argument("--order", choices=("drawn", "alternating", "ABBA"), default="drawn")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--bounds", action="store_true")
    options = parser.parse_args()
    if options.bounds:
        print_bounds(BLIND_TRIALS, options.seed)
        return 0
    lines = [json.loads(line) for line in options.file.read_text(encoding="utf-8").splitlines()]
    lines = lines[: options.first]
    methods: dict[str, Method] = {
        "blocks": in_blocks(options.order),
        "32 blocks": in_blocks(options.order, 32),
        "blocks, rounded to 1 %": in_blocks(options.order, rounded=0.01),
        "blocks, rounded to .1 %": in_blocks(options.order, rounded=0.001),
        "one run each, 5 %": one_run_each(0.05, lambda run: run.throughput),
        "one run each, 2 %": one_run_each(0.02, lambda run: run.throughput),
        "one run each, mean of rounds, 5 %": one_run_each(0.05, lambda run: run.mean_throughput),
        "two sessions": two_sessions,
    }
    wrong = 0.0
    for stretches in options.stretches:
        recording = Recording(lines, stretches)
        print(f"\n### Runs of {stretches} stretch{'es' if stretches > 1 else ''}\n")
        describe(recording)
        trials = replay(recording, methods, options.trials, options.seed)
        print_table(trials)
        print_blocks(trials["blocks"])
        wrong = max(wrong, *(share(trials[name][0]) for name in methods if name.startswith("blocks")))
    return 1 if wrong > blocks.WRONG + 3 * math.sqrt(blocks.WRONG / options.trials) else 0


if __name__ == "__main__":
    sys.exit(main())
