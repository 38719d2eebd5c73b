"""Reads the JSON files that pytest-benchmark saves: in `.benchmarks/`, or by `--benchmark-json`.

The mean seconds are judged; lower is better. Tests of this suite are left out: the history has their runs already.
"""

from __future__ import annotations

import datetime
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from platforms.job import Metric, Outcome
from reporting.history.comparability import comparability
from reporting.history.envelope import Envelope, Key, Revision

SOURCE = "pytest-benchmark"
OURS = "benchmark_id"  # a key of `extra_info` in our tests' benchmarks


def files_in(path: Path, problems: list[str]) -> list[Path]:
    """The file itself, or all saved files in a folder. `problems` gets a sentence if it has none."""
    if not path.is_dir():
        return [path]
    found = sorted(path.rglob("*.json"))
    if not found:
        problems.append(f"{path}: this folder has no file of pytest-benchmark (*.json)")
    return found


def read_file(path: Path, site: str, written_s: float, problems: list[str]) -> list[Envelope]:
    """The envelopes of a file: one for each benchmark that has numbers and is not of this suite.

    Args:
        site: the centre's name.
        written_s: now, in Unix seconds.
        problems: gets a sentence for a file or a benchmark that cannot be read.

    Raises:
        OSError: the file cannot be read.
    """
    try:
        content = json.loads(path.read_bytes())
        saved = datetime.datetime.fromisoformat(content["datetime"])
        if saved.tzinfo is None:  # older versions write UTC and do not say so
            saved = saved.replace(tzinfo=datetime.UTC)
        saved_s = saved.timestamp()
        benchmarks = list(content["benchmarks"])
    except (ValueError, KeyError, TypeError) as error:
        problems.append(f"{path}: this is no file of pytest-benchmark, and is skipped: {_text(error)}")
        return []
    envelopes = []
    for number, benchmark in enumerate(benchmarks):
        try:
            if OURS not in (benchmark.get("extra_info") or {}):
                envelopes.append(_envelope(benchmark, content, site, saved_s, written_s))
        except (ValueError, KeyError, TypeError, AttributeError, ZeroDivisionError) as error:
            problems.append(f"{path}: benchmarks[{number}] is skipped: {_text(error)}")
    return envelopes


def _envelope(
    benchmark: Mapping[str, Any], content: Mapping[str, Any], site: str, saved_s: float, written_s: float
) -> Envelope:
    mean_s = float(benchmark["stats"]["mean"])
    if not math.isfinite(mean_s) or mean_s <= 0:
        raise ValueError(f"its mean is {mean_s} s")
    machine = content.get("machine_info") or {}
    cpu = machine.get("cpu") or {}
    fields = {"source": SOURCE, "device": cpu.get("brand_raw")}
    fields = {name: value for name, value in fields.items() if value}
    provenance = {
        "nodes": machine.get("node"),
        "cpu": cpu.get("brand_raw"),
        "cores": cpu.get("count"),
        "kernel": machine.get("release"),
        "python": machine.get("python_version"),
        "pytest-benchmark": content.get("version"),
        "commit": (content.get("commit_info") or {}).get("id"),
    }
    return Envelope(
        key=Key(site, _run_id(saved_s), str(benchmark["fullname"]), 1, None, None),
        revision=Revision.TEST_ENDED,
        written_s=written_s,
        outcome=Outcome.PASSED,
        sane=True,
        platform=str(machine.get("node") or "unknown"),
        benchmark=str(benchmark["fullname"]).rpartition("::")[2].partition("[")[0],
        ended_s=saved_s,
        metrics={"mean": Metric(mean_s, "s", "lower")},
        fields=fields,
        comparability=comparability(fields),
        provenance={name: str(value) for name, value in provenance.items() if value},
        source=SOURCE,
    )


def _run_id(saved_s: float) -> str:
    """pytest-benchmark names no run; a session saves its results once, at one time."""
    saved = datetime.datetime.fromtimestamp(saved_s, datetime.UTC)
    return f"pytest-benchmark-{saved:%Y%m%dT%H%M%S.%fZ}"


def _text(error: Exception) -> str:
    if isinstance(error, KeyError):
        return f"it has no {error}"
    return str(error)
