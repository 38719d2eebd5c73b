"""Which runs stay because a test is red: the lines of the history say what the gate found in each run.

reporting/history writes them, and is not imported here: `prune` needs four keys of each line (docs/history.md).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from platforms.rundir.accepted_runs import read_files, unreadable

# The verdicts that end a red. A loss that people know of (acknowledged) is no red and has not ended, and a run that is
# in doubt (blind, suspect, transient) says nothing of it.
ENDING = ("ok", "faster", "learning")


class _RunVerdicts(NamedTuple):
    """What the gate said of one run of a test, by metric. `written_s` is in Unix seconds."""

    written_s: float
    test: str
    run_id: str
    verdicts: Mapping[str, Mapping[str, Any]]


def read_open_reds(history: Path) -> dict[str, str]:
    """The test that is red, by the id of each run with a red verdict that no later one on the same metric has ended.

    A history that does not exist is empty. Raises RefusedError where one cannot be read: any run may be named there.
    """
    judged: list[_RunVerdicts] = []
    for path, content in read_files(history, _has_verdicts):
        judged += _judged(path, content)
    judged.sort(key=lambda each: each.written_s)
    runs: dict[tuple[str, str], list[str]] = {}  # of each red, by test and metric
    for each in judged:
        for metric, verdict in each.verdicts.items():
            if verdict.get("red"):
                runs.setdefault((each.test, metric), []).append(each.run_id)
            elif verdict.get("kind") in ENDING:
                runs.pop((each.test, metric), None)
    return {run_id: test for (test, _metric), run_ids in runs.items() for run_id in run_ids}


def _has_verdicts(name: str) -> bool:
    return name.endswith(".jsonl") and not name.endswith(".runs.jsonl")


def _judged(path: Path, content: bytes) -> Iterator[_RunVerdicts]:
    lines = content.split(b"\n")
    for number, line in enumerate(lines[:-1], 1):  # what follows the last end of a line is torn, or being written now
        if b'"verdicts"' not in line:
            continue
        try:
            keys = json.loads(line)
            verdicts = {metric: dict(verdict) for metric, verdict in keys["verdicts"].items()}
            yield _RunVerdicts(float(keys["written_s"]), str(keys["test"]), str(keys["run_id"]), verdicts)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise unreadable(f"{path}:{number}", repr(error)) from None
