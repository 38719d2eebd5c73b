"""The tables of results, shaped like the paper's: one for each benchmark, size and mode, with a row for each run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from platforms.job import Run
from reporting.columns import aligned

TEXT_HEADINGS = ("platform", "hardware", "devices", "setting", "data from")
HEADINGS = (*TEXT_HEADINGS, "compute thr.", "compute fr.", "effective thr.", "spread", "warnings")
HOME = "local"  # a table of this machine alone need not name it


def tables(runs: Sequence[Run]) -> list[str]:
    """Lines to print: a table for each benchmark, size and mode; below it what bounds it, and its numbered warnings."""
    grouped: dict[str, list[Run]] = {}
    for run in runs:
        grouped.setdefault(_title(run), []).append(run)
    lines: list[str] = []
    for title, members in grouped.items():
        lines += ["", title, *_table(members)]
    return lines[1:]


def _part(run: Run, name: str) -> Mapping[str, Any]:
    part = run.start.get(name)
    return part if isinstance(part, Mapping) else {}


def _title(run: Run) -> str:
    request = _part(run, "request")
    what = [run.benchmark or run.test.partition("::")[2].partition("[")[0]]
    what += [str(request[name]) for name in ("variant", "size", "mode") if request.get(name)]
    return ", ".join(what) + ": throughputs in samples/s over all devices, spread within the job"


def _table(runs: Sequence[Run]) -> list[str]:
    notes: list[str] = []
    rows = [list(HEADINGS)]
    for run in runs:
        marks = []
        for warning in run.warnings:
            if warning not in notes:
                notes.append(warning)
            marks.append(f"[{notes.index(warning) + 1}]")
        rows.append([*_cells(run), " ".join(marks) or "none"])
    headings = list(HEADINGS)
    if all(run.platform == HOME for run in runs):
        rows = [row[1:] for row in rows]
        headings = headings[1:]
    text_columns = [column for column, name in enumerate(headings) if name in (*TEXT_HEADINGS, "warnings")]
    head, *lines = aligned(rows, text_columns)
    footnotes = [f"[{number}] {note}" for number, note in enumerate(notes, 1)]
    return [head, "-" * len(head), *lines, *bounds(runs), *shares_of_attainable(runs), *footnotes]


def bounds(runs: Sequence[Run]) -> list[str]:
    """One line on what takes most of the time: to compute, or to wait for data. None where that is not known."""
    computing = [run.compute_fraction for run in runs if run.compute_fraction is not None]
    if not computing:
        return []
    waiting = [1 - fraction for fraction in computing]
    by_data = sum(fraction > 0.5 for fraction in waiting)
    if by_data == 0:
        bound = "compute"
    elif by_data == len(waiting):
        bound = "data"
    else:
        bound = f"compute, {by_data} of {len(waiting)} rows by data"
    return [f"bound by {bound}: {_range(computing)} of the time was computing, {_range(waiting)} waiting for data"]


def _range(shares: Sequence[float]) -> str:
    low, high = f"{min(shares):.0%}", f"{max(shares):.0%}"
    return low if low == high else f"{low} to {high}"


def shares_of_attainable(runs: Sequence[Run]) -> list[str]:
    """One line on how near computing comes to what the same cores reach in plain kernels, where that was measured."""
    shares = []
    for run in runs:
        work, attainable = run.summary.get("flop_per_sample"), run.summary.get("attainable_flops")
        if isinstance(work, int | float) and isinstance(attainable, int | float) and run.compute_throughput:
            shares.append(run.compute_throughput * work / attainable)
    if not shares:
        return []
    return [f"computing at {_range(shares)} of what plain products and convolutions reach on the same cores"]


def _cells(run: Run) -> list[str]:
    device = _part(run, "device")
    return [
        run.platform,
        str(device.get("name") or _nodes(run)),
        _devices(run),
        _setting(run),
        str(run.summary.get("data_from") or "unknown"),
        _number(run.compute_throughput),
        "-" if run.compute_fraction is None else f"{run.compute_fraction:.1%}",
        _number(run.effective_throughput),
        "-" if run.spread is None else f"{run.spread:.1%}",
    ]


def _nodes(run: Run) -> str:
    """The nodes that the scheduler names. They stand in place of a device that the program did not name."""
    nodes = run.status.nodes
    if not nodes:
        return "unknown"
    if len(nodes) == 1:
        return f"on {nodes[0]}"
    return f"on {nodes[0]} and {len(nodes) - 1} more"


def _devices(run: Run) -> str:
    parts = [run.layout]
    cores = _part(run, "host").get("cores")
    if _part(run, "device").get("type") == "cpu" and cores:
        quota = _part(run, "host").get("cpu_quota")  # "max" where none is set
        is_limited = isinstance(quota, int | float) and quota < cores
        parts.append(f"{quota:.2g} of {cores} cores" if is_limited else f"{cores} cores")
    ranks = _part(run, "world").get("size", 1)
    if ranks != 1:
        parts.append(f"{ranks} ranks")
    return ", ".join(parts)


def _setting(run: Run) -> str:
    request = _part(run, "request")
    parts = [str(request[name]) for name in ("configuration", "dtype") if request.get(name)]
    if request.get("global_batch_size"):
        parts.append(f"batch {request['global_batch_size']}")
    return " ".join(parts) or "-"


def _number(value: float | None) -> str:
    """Three to four significant figures: more would claim a precision that no run has."""
    if value is None:
        return "-"
    if value >= 1000:
        return f"{value:.0f}"
    if value >= 10:
        return f"{value:.1f}"
    return f"{value:#.3g}"
