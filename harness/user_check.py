"""`--check PLATFORM --nodes LIST`: which test a user's check runs, and where it writes.

The user owns nothing of the suite: the checkout, the centre's folder and its history are read, and everything is
written below the user's home.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Sequence
from pathlib import Path, PurePosixPath
from statistics import median

import pytest

from platforms.config.schema import Platform
from reporting.history.envelope import Envelope

FOLDER = "hpc-ml-bench-check"  # below the home
HISTORY = "history"  # beside the runs
WANTED_S = 180.0  # how long a check should take
FEW_RUNS = 8  # fewer say little


def folder() -> Path:
    """Where a check writes its runs, its history and everything else."""
    return Path.home() / FOLDER


def own_platform(platform: Platform) -> Platform:
    """The platform with a `work_dir` that the user can write to; its data and its Python stay those of the centre.

    Only a folder of this machine can be tried. On another machine, the platform's file must give each user a folder.
    """
    theirs = platform.work_dir
    if theirs is None or platform.transport != "local" or os.access(theirs, os.W_OK | os.X_OK):
        return platform
    base = PurePosixPath(theirs)
    benchmarks = dict(platform.benchmarks)
    for name, keys in platform.benchmarks.items():
        if "data_dir" in keys.model_fields_set:
            benchmarks[name] = keys.model_copy(update={"data_dir": str(base / keys.data_dir)})
    changes: dict[str, object] = {
        "work_dir": str(folder() / "work"),
        "data_dir": str(base / platform.data_dir),
        "benchmarks": benchmarks,
    }
    prepared = f"{theirs}/env-{platform.name}/bin/python"
    if platform.python == "auto" and os.access(prepared, os.X_OK):
        changes["python"] = prepared
    return platform.model_copy(update=changes)


def one_test(items: Sequence[pytest.Item], past: Iterable[Envelope]) -> pytest.Item:
    """The test that answers in about three minutes, by its runs in the centre's history.

    Tests with few runs come last, and of tests without any ResNet-50 is the first.
    """
    seconds: dict[str, list[float]] = {}
    for run in past:
        if run.sane and run.started_s is not None and run.ended_s is not None:
            seconds.setdefault(run.key.test, []).append(run.ended_s - run.started_s)

    def preference(item: pytest.Item) -> tuple[bool, float, bool]:
        known = [one for one in seconds.get(item.nodeid, ()) if one > 0]
        # by the ratio: a test that takes half as long is as far away as one that takes twice as long
        distance = abs(math.log(median(known) / WANTED_S)) if known else 0.0
        marks = [mark.kwargs.get("benchmark") for mark in item.iter_markers("workload")]
        return len(known) < FEW_RUNS, distance, marks[:1] != ["resnet50"]

    return min(items, key=preference)
