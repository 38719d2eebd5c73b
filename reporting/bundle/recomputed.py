"""Computes the numbers of a run again, from its raw values up, and says where one does not follow from those below it.

Raw values -> windows -> summary -> run.json -> line of the history. The definitions are those of docs/measuring.md.
The three numbers, the spread and the windows are computed here a second time. Three things are shared, since their
definition lives in one place: how lines of a log become a run (platforms/results/log_reader.py), which stretch is
judged and what stands in a line of the history (reporting/history), and how a number is written in a table
(reporting/tables).
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from platforms.job import JobSpec, split_refusal
from platforms.results.gates import number
from platforms.results.log_reader import LogReader
from platforms.results.wire import MARKER
from platforms.rundir import job_json
from reporting.bundle.records import RunRecord, recomputed_envelope
from reporting.bundle.steps import ROUNDED_S, AllSteps, WindowOfSteps, percentiles
from reporting.history.envelope_json import to_line

SUMS = 1e-9  # relative: sums of the same numbers in another order


@dataclass(frozen=True)
class Difference:
    """A value that does not follow.

    Attributes:
        place: of the value in its file: `windows[1].stall_s`.
        found: what stands there; expected: what must stand there, and why.
    """

    place: str
    found: str
    expected: str


@dataclass(frozen=True)
class Wire:
    """What a job has reported: the values of its windows, by their number, and its summary."""

    windows: Mapping[int, Mapping[str, Any]]
    summary: Mapping[str, Any]
    reader: LogReader


def wire_of(lines: Iterable[bytes]) -> Wire:
    """Read the lines of a wire.log. Raises ValueError, with the number of the line, for one that is no line of it."""
    reader = LogReader()
    windows: dict[int, Mapping[str, Any]] = {}
    summary: Mapping[str, Any] = {}
    for line_number, line in enumerate(lines, 1):
        reader.feed(line)
        try:
            head, _, text = line.decode().partition(MARKER)
            found = json.loads(text)
            key, value = found["key"], found["value"]
        except (ValueError, KeyError, TypeError):
            raise ValueError(f"line {line_number} is no line of the wire") from None
        if head:
            raise ValueError(f"line {line_number} does not begin with {MARKER.strip()}")
        if key == "hpcml_window" and isinstance(value, dict):
            windows[value.get("index", -1)] = value
        if key == "hpcml_summary" and isinstance(value, dict):
            summary = value
    return Wire(windows, summary, reader)


# --- raw values -> windows ---


def of_steps(steps: AllSteps, windows: Sequence[Mapping[str, Any]], summary: Mapping[str, Any]) -> Iterator[Difference]:
    """Where the windows or the summary of a run do not follow from the steps of its ranks.

    Args:
        windows: as the job reported them (`hpcml_window`), or as they stand in run.json.
    """
    if len(steps.windows) != len(windows):
        yield Difference("windows", f"{len(windows)}", f"the steps have {len(steps.windows)}")
        return
    for index, (raw, window) in enumerate(zip(steps.windows, windows, strict=True)):
        for name, low, high in _bounds(raw):
            found = window.get(name)
            if name not in window or (name == "stall_h2d_s" and found is None):
                continue
            yield from _within(f"window {index}: {name}", found, low, high)
        if not raw.has_split and any(window.get(name) is not None for name in ("stall_s", "compute_s")):
            yield Difference(f"window {index}", "stall_s and compute_s", "the steps do not tell them apart")
    for name, counted in (("warmup_steps", steps.warmup_steps), ("optimizer_steps", steps.optimizer_steps)):
        if summary.get(name) is not None and summary[name] != counted:
            yield Difference(f"summary: {name}", str(summary[name]), f"{counted} by the steps")
    reported = summary.get("step_s")
    if isinstance(reported, list) and steps.durations_s:
        for place, (found, value) in enumerate(zip(reported, percentiles(steps.durations_s), strict=False)):
            yield from _within(f"summary: step_s[{place}]", found, value - 4 * ROUNDED_S, value + 4 * ROUNDED_S)


def _bounds(raw: WindowOfSteps) -> Iterator[tuple[str, float, float]]:
    """For each value of a window the least and the most that it can be."""
    near = raw.tolerance_s
    yield "steps", raw.steps, raw.steps
    if not raw.has_split:
        return
    yield "stall_s", math.fsum(raw.stalls) - near, math.fsum(raw.stalls) + near
    yield "compute_s", math.fsum(raw.compute_s[0]) - near, math.fsum(raw.compute_s[1]) + near
    yield "stall_h2d_s", math.fsum(raw.stall_h2d_s[0]) - near, math.fsum(raw.stall_h2d_s[1]) + near
    for name, sums in (("wait_s", raw.waits_s), ("h2d_s", raw.copies_s), ("busy_s", raw.busies_s)):
        for place, value in enumerate((min(sums), math.fsum(sums) / len(sums), max(sums))):
            yield f"{name}[{place}]", value - near, value + near


def _within(place: str, found: object, low: float, high: float) -> Iterator[Difference]:
    value = number(found)
    if value is None or not low <= value <= high:
        middle = f"{(low + high) / 2:.9g}"
        yield Difference(place, json.dumps(found), f"{middle} by the steps of all ranks")


def flat_window(window: Mapping[str, Any]) -> dict[str, Any]:
    """A window with `wait_s[0]`, `wait_s[1]`, `wait_s[2]` in place of a list."""
    found: dict[str, Any] = {}
    for name, value in window.items():
        if isinstance(value, list):
            found.update({f"{name}[{place}]": each for place, each in enumerate(value)})
        else:
            found[name] = value
    return found


# --- windows -> summary -> run.json ---


def of_wire(wire: Wire, record: RunRecord) -> Iterator[Difference]:
    """Where run.json does not hold what the job reported."""
    content = record.content
    run = wire.reader.finish(_spec(content))
    reported = [
        {name: getattr(window, name) for name in ("samples", "steps", "wall_s", "stall_s", "compute_s", "stall_h2d_s")}
        for window in run.windows
    ]
    windows = [{"stall_h2d_s": None, **window} for window in content["windows"]]
    yield from differences("windows", windows, reported, "in wire.log")
    yield from differences("start", content["start"], run.start, "in wire.log")
    yield from differences("summary", content["summary"], run.summary, "in wire.log")
    for name, found, of_log in (
        ("problems", content["problems"], run.problems),
        ("warnings", content["warnings"], run.warnings),
        ("said", content.get("said", ()), run.said if "said" in content else ()),
    ):
        for sentence in of_log:
            if sentence not in found:
                yield Difference(name, "nothing", f"{sentence!r}, by wire.log")


def _spec(content: Mapping[str, Any]) -> JobSpec:
    asked = {"asked": content.get("asked"), "benchmark": content.get("benchmark")}
    return job_json.spec_from_submitted(content["name"], content["test"], content["platform"], asked)


def of_windows(content: Mapping[str, Any]) -> Iterator[Difference]:
    """Where the numbers of a run.json do not follow from its windows, or from what the test read from the log."""
    windows = content["windows"]
    read = content.get("read_by_test") or []
    samples = sum(window["samples"] for window in windows)
    wall_s = math.fsum(window["wall_s"] for window in windows)
    stall_s, compute_s = (_sum(windows, name) for name in ("stall_s", "compute_s"))
    if windows and None in (stall_s, compute_s) and not split_refusal(content["summary"]):
        yield Difference("windows", "no stall_s or no compute_s", "a reason for that in summary.no_split")
    expected: dict[str, float | None] = dict.fromkeys(
        ("effective_throughput", "compute_fraction", "compute_throughput")
    )
    seconds_per_sample = [window["wall_s"] / window["samples"] for window in windows] or read
    if windows:
        expected["effective_throughput"] = samples / wall_s
        expected["compute_fraction"] = None if stall_s is None else 1 - stall_s / wall_s
        expected["compute_throughput"] = samples / compute_s if compute_s else None
    elif read:
        expected["effective_throughput"] = 1 / statistics.fmean(read)
    expected["identity_gap"] = _gap(expected)
    expected["spread_within_job"] = None
    if len(seconds_per_sample) > 1:
        expected["spread_within_job"] = statistics.stdev(seconds_per_sample) / statistics.fmean(seconds_per_sample)
    for name, value in expected.items():
        if content.get(name) != value:
            yield Difference(name, json.dumps(content.get(name)), f"{json.dumps(value)} by the windows")
    summary = content["summary"]
    if windows and summary:
        yield from _of_summary(summary, windows, expected)
    if content.get("run_s") is not None and content["run_s"] != content["ended_s"] - content["started_s"]:
        yield Difference("run_s", json.dumps(content["run_s"]), "ended_s - started_s")


def _sum(windows: Sequence[Mapping[str, Any]], name: str) -> float | None:
    values = [window[name] for window in windows]
    return None if None in values else math.fsum(values)


def _gap(numbers: Mapping[str, float | None]) -> float | None:
    effective, fraction = numbers["effective_throughput"], numbers["compute_fraction"]
    compute = numbers["compute_throughput"]
    if effective is None or fraction is None or compute is None:
        return None
    return abs(effective - compute * fraction) / effective


def _of_summary(
    summary: Mapping[str, Any], windows: Sequence[Mapping[str, Any]], numbers: Mapping[str, float | None]
) -> Iterator[Difference]:
    expected: dict[str, float | None] = {"windows": len(windows)}
    for name in ("wall_s", "stall_s", "compute_s", "steps", "samples"):
        expected[name] = _sum(windows, name)
    expected.update({name: value for name, value in numbers.items() if name != "spread_within_job"})
    expected["effective_throughput_best"] = max(window["samples"] / window["wall_s"] for window in windows)
    for name, value in expected.items():
        found = number(summary.get(name))
        if summary.get(name) is None and name not in ("windows", "samples", "wall_s"):
            continue  # an older meter did not say it
        near = 1e-12 if name == "identity_gap" else 0.0
        if found is None or value is None or not math.isclose(found, value, rel_tol=SUMS, abs_tol=near):
            yield Difference(f"summary.{name}", json.dumps(summary.get(name)), f"{json.dumps(value)} by the windows")


# --- run.json -> line of the history ---


def of_record(record: RunRecord) -> Iterator[Difference]:
    """Where the line of the history does not follow from run.json."""
    expected = recomputed_envelope(record.content, record.envelope)
    found, wanted = (json.loads(to_line(envelope)) for envelope in (record.envelope, expected))
    yield from differences("", found, wanted, "by run.json")


# --- values of JSON ---


def differences(place: str, found: Any, expected: Any, by: str) -> Iterator[Difference]:
    """In which values two values of JSON differ."""
    if isinstance(found, Mapping) and isinstance(expected, Mapping):
        for name in dict.fromkeys((*found, *expected)):
            below = f"{place}.{name}" if place else str(name)
            yield from differences(below, found.get(name), expected.get(name), by)
    elif isinstance(found, list | tuple) and isinstance(expected, list | tuple) and len(found) == len(expected):
        for position, (one, other) in enumerate(zip(found, expected, strict=True)):
            yield from differences(f"{place}[{position}]", one, other, by)
    elif found != expected or isinstance(found, bool) != isinstance(expected, bool):
        yield Difference(place, _shown(found), f"{_shown(expected)} {by}")


def _shown(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= 80 else f"{text[:79]}…"
