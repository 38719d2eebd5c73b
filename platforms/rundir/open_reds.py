"""Which runs stay because a test is red: the lines of the history say what the gate found in each run.

reporting/history writes them, and is not imported here: `prune` needs four keys of each line (docs/history.md).
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from platforms.job import RefusedError

STILL_WORSE = "acknowledged"  # a loss that people know of is no red, and has not ended either


class _Judged(NamedTuple):
    """What the gate said of one run of a test, by metric. `written_s` is in Unix seconds."""

    written_s: float
    test: str
    run_id: str
    verdicts: Mapping[str, Mapping[str, Any]]


def read_open_reds(history: Path) -> dict[str, str]:
    """The test that is red, by the id of each run with a red verdict that no later one on the same metric has ended.

    A history that does not exist is empty. Raises RefusedError where one cannot be read: any run may be named there.
    """
    judged = sorted(each for path in _files(history) for each in _judged(path))
    runs: dict[tuple[str, str], list[str]] = {}  # of each red, by test and metric
    for each in judged:
        for metric, verdict in each.verdicts.items():
            if verdict.get("red"):
                runs.setdefault((each.test, metric), []).append(each.run_id)
            elif verdict.get("kind") != STILL_WORSE:
                runs.pop((each.test, metric), None)
    return {run_id: test for (test, _metric), run_ids in runs.items() for run_id in run_ids}


def _files(history: Path) -> Iterator[Path]:
    def refuse(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError):
            raise _unreadable(Path(error.filename), str(error.strerror))

    for folder, _folders, names in os.walk(history, onerror=refuse):
        for name in names:
            if name.endswith(".jsonl") and not name.endswith(".runs.jsonl"):
                yield Path(folder, name)


def _judged(path: Path) -> Iterator[_Judged]:
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        raise _unreadable(path, str(error.strerror)) from None
    for number, line in enumerate(lines[:-1], 1):  # what follows the last end of a line is torn, or being written now
        if b'"verdicts"' not in line:
            continue
        try:
            content = json.loads(line)
            if content["verdicts"]:
                test, run_id = str(content["test"]), str(content["run_id"])
                yield _Judged(float(content["written_s"]), test, run_id, dict(content["verdicts"]))
        except (ValueError, KeyError, TypeError) as error:
            raise _unreadable(Path(f"{path}:{number}"), repr(error)) from None


def _unreadable(path: Path, why: str) -> RefusedError:
    return RefusedError(f"{path}: cannot be read, and may name runs that must stay: {why}")
