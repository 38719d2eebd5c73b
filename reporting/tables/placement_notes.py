"""Lines below a table on where the nodes of a run lie, where Slurm knows of a topology."""

from __future__ import annotations

from collections.abc import Sequence

from platforms.job import Run
from platforms.results.gates import part
from reporting.compare.placement import LEVELS
from reporting.phrases import listed
from reporting.tables.row import of_run

MOST_NAMED = 4


def placement_notes(runs: Sequence[Run]) -> list[str]:
    """A line for each run on several nodes whose places are all known: `4 nodes under 2 switches leaf3, leaf7`."""
    lines = []
    for run in runs:
        places = [part(facts, "place") for facts in run.nodes.values()]
        level = next((level for level in LEVELS if places and all(level in place for place in places)), None)
        if level is None or len(places) < max(2, len(run.status.nodes)):
            continue
        names = sorted({str(place[level]) for place in places})
        noun = level if len(names) == 1 else f"{len(names)} {LEVELS[level]}"
        which = f"{of_run(run)}: " if len(runs) > 1 else ""
        lines.append(f"{which}{len(places)} nodes under {noun} {listed(names, MOST_NAMED)}")
    return lines
