"""Which statistic of a run's windows varies least from run to run: the same training several times, on this machine.

python benchmarks/run_statistic.py [--runs 8] [--neighbours 2] [--windows-file FILE] [-- train cosmoflow --windows 5 …]
python benchmarks/run_statistic.py --windows-file FILE --runs 0        computes the table again, without training

Each statistic is a rate in samples/s. The table says by how much it varies: standard deviation over mean of the runs.
Neighbours are processes that use a core for some seconds (4 in the mean) and then none for longer (12 in the mean).
On a machine that others use, `taskset -c 0 nice -n -15 python benchmarks/run_statistic.py …` trains on one core, almost
undisturbed by them.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from platforms.job import Run, Window
from platforms.results.log_reader import parse
from reporting.history.stretches import SHORTEST_S, fastest_stretch

ROOT = Path(__file__).resolve().parents[1]
TRAINING = ("train", "cosmoflow", "--size", "quick", "--windows", "5")
BUSY_S = 4.0  # mean length of a neighbour's busy spells
IDLE_S = 12.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=8)
    parser.add_argument("--neighbours", type=int, default=0, help="how many processes disturb each run")
    parser.add_argument("--data-dir", type=Path, help="data set of the benchmark (default: it is made)")
    parser.add_argument(
        "--windows-file", type=Path, help="the windows of each run are added to this file, one run a line"
    )
    parser.add_argument("training", nargs="*", help=f"what `python -m models` does (default: {' '.join(TRAINING)})")
    options = parser.parse_args()
    training = tuple(options.training) or TRAINING
    with tempfile.TemporaryDirectory() as folder:
        data_dir = options.data_dir or Path(folder) / "data"
        if options.runs:
            make_data(training, data_dir)
        made = [measure(training, data_dir, options.neighbours, seed) for seed in range(options.runs)]
    earlier = read_windows(options.windows_file) if options.windows_file else []
    if options.windows_file:
        with options.windows_file.open("a", encoding="utf-8") as file:
            file.writelines(f"{json.dumps([vars(window) for window in windows])}\n" for windows in made)
    print(table([*earlier, *made]))
    return 0


def make_data(training: Sequence[str], data_dir: Path) -> None:
    size = training[training.index("--size") + 1] if "--size" in training else "quick"
    command = [sys.executable, "-m", "models", "data", training[1], "--size", size, "--data-dir", str(data_dir)]
    subprocess.run(command, cwd=ROOT, check=True, stdout=sys.stderr)


def measure(training: Sequence[str], data_dir: Path, neighbours: int, seed: int) -> tuple[Window, ...]:
    """One training beside neighbours, in a process of its own. Returns its windows."""
    beside = [multiprocessing.Process(target=disturb, args=(100 * seed + n,), daemon=True) for n in range(neighbours)]
    for process in beside:
        process.start()
    try:
        command = [sys.executable, "-m", "models", *training, "--data-dir", str(data_dir)]
        with tempfile.TemporaryDirectory() as folder:
            environment = {**os.environ, "PYTHONPATH": str(ROOT)}
            done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, check=False)
    finally:
        for process in beside:
            process.kill()
    run = parse(done.stdout)
    if done.returncode or not run.windows:
        raise SystemExit(f"the training failed: {done.stderr.decode(errors='replace')[-2000:]}")
    print(line_of(run), flush=True)
    return run.windows


def disturb(seed: int) -> None:
    """Use a core for a random spell, then none for another, until this process is killed."""
    generator = random.Random(seed)
    while True:
        until_s = time.monotonic() + generator.expovariate(1 / BUSY_S)
        while time.monotonic() < until_s:
            pass
        time.sleep(generator.expovariate(1 / IDLE_S))


def line_of(run: Run) -> str:
    rates = " ".join(f"{window.samples / window.wall_s:.3f}" for window in run.windows)
    lengths = [window.wall_s for window in run.windows]
    warnings = "; ".join(text.partition(":")[0] for text in run.warnings)
    return f"{rates}   windows of {min(lengths):.1f} to {max(lengths):.1f} s   {warnings}"


def read_windows(path: Path) -> list[tuple[Window, ...]]:
    if not path.exists():
        return []
    lines = path.read_text(encoding="utf-8").splitlines()
    return [tuple(Window(**window) for window in json.loads(line)) for line in lines]


# --- the statistics --------------------------------------------------------------------------------------------------


def rates(windows: Sequence[Window]) -> list[float]:
    """Samples per second of each window, the fastest first."""
    return sorted((window.samples / window.wall_s for window in windows), reverse=True)


def mean_rate(windows: Sequence[Window]) -> float:
    return sum(window.samples for window in windows) / sum(window.wall_s for window in windows)


def median_window(windows: Sequence[Window]) -> float:
    return statistics.median(rates(windows))


def best_half(windows: Sequence[Window]) -> float:
    """Samples over seconds of the faster half of the windows, with the middle one of an odd number."""
    fastest = sorted(windows, key=lambda window: window.wall_s / window.samples)
    return mean_rate(fastest[: (len(fastest) + 1) // 2])


def second_best(windows: Sequence[Window]) -> float:
    return rates(windows)[min(1, len(windows) - 1)]


def best_window(windows: Sequence[Window]) -> float:
    return rates(windows)[0]


def judged(windows: Sequence[Window]) -> float:
    """The one that the suite has chosen."""
    return mean_rate([fastest_stretch(windows)])


def worst_window(windows: Sequence[Window]) -> float:
    return rates(windows)[-1]


STATISTICS: Mapping[str, Callable[[Sequence[Window]], float]] = {
    "mean rate N / T": mean_rate,
    "median window": median_window,
    "mean of the best half": best_half,
    "second best window": second_best,
    "best window": best_window,
    "best stretch, judged": judged,
    "worst window": worst_window,
}


def table(runs: Sequence[Sequence[Window]]) -> str:
    lengths = [window.wall_s for windows in runs for window in windows]
    lines = [f"{len(runs)} runs of {len(runs[0])} windows of {min(lengths):.1f} to {max(lengths):.1f} s"]
    if min(lengths) < SHORTEST_S:
        lines.append(f"some windows last less than {SHORTEST_S:g} s")
    lines.append(f"{'statistic':24}{'mean':>10}{'varies by':>12}{'lowest':>10}{'highest':>10}")
    for name, statistic in STATISTICS.items():
        values = [statistic(windows) for windows in runs]
        mean = statistics.fmean(values)
        variation = statistics.stdev(values) / mean
        lines.append(f"{name:24}{mean:10.3f}{variation:12.1%}{min(values):10.3f}{max(values):10.3f}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
