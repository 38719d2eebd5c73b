"""apache-otava's opinion of simulated nights; benchmarks/gate_simulation.py runs this with the Python that has otava.

Reads a JSON object from standard input: `series`, lists of values; `nights`, for each series the indexes of nights that
are judged; `since`, a number of nights. Writes a list for each series: whether otava, given the nights up to and
including that one, finds a change for the worse in the last `since` of them.
"""

import json
import sys

from otava.analysis import compute_change_points
from otava.series import AnalysisOptions

OPTIONS = AnalysisOptions()  # otava's own defaults: p .001, window 50, any magnitude


def worse(values: list, since: int) -> bool:
    """Whether a change for the worse lies in the last nights."""
    points, _ = compute_change_points(
        values, window_len=OPTIONS.window_len, max_pvalue=OPTIONS.max_pvalue, min_magnitude=OPTIONS.min_magnitude
    )
    return any(point.index >= len(values) - since and point.stats.mean_2 < point.stats.mean_1 for point in points)


def main() -> None:
    asked = json.load(sys.stdin)
    answers = []
    for values, nights in zip(asked["series"], asked["nights"], strict=True):
        answers.append([worse(values[: night + 1], asked["since"]) for night in nights])
    json.dump(answers, sys.stdout)


if __name__ == "__main__":
    main()
