"""The gates: does a log agree with what was asked of the job, with itself, and with what the devices can do?

Pure functions of the values in the log; log_reader.py calls them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

from platforms.job import DEVICE_UNITS, JobSpec, Run, Window

SCHEMA = 1
IDENTITY_LIMIT = 0.03  # how far the three numbers of a run may disagree
LOG_DOUBT = "log may lack lines"  # how the warning of a log that a node may have rotated unseen begins
UNSTEADY = 0.1  # if the windows of a job spread by more than this, their mean says little
SUM_TOLERANCE = 1e-6
LONGEST_VALUE = 60  # characters of a value in a message
SPLIT = ("stall_s", "compute_s", "stall_h2d_s", "wait_s", "h2d_s", "busy_s")  # null where there is no split

_COUNTS = ("steps", "samples")
_TIMES = ("wall_s", "stall_s", "compute_s")
_NUMBERS = ("effective_throughput", "compute_fraction", "compute_throughput", "identity_gap")

Problem = tuple[str, str]
"""The gate's name and one sentence. A gate that the job itself reported is not reported twice."""


def number(value: object) -> float | None:
    """A finite number, or None."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:  # a whole number of hundreds of digits
        return None


def part(value: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """The mapping under a key, empty where there is none."""
    found = value.get(key)
    return found if isinstance(found, Mapping) else {}


def is_load_known(run: Run) -> bool:
    """Whether the job, or all of its nodes, have looked at what else used its cores."""
    if run.summary or not run.nodes:
        watched = [run.summary]
    else:  # a program that says nothing itself
        watched = [part(node, "after") for node in run.nodes.values()]
    return all(number(part(each, "contention").get("neighbours_cores")) is not None for each in watched)


def windows_of(
    values: Mapping[int, Mapping[str, object]], no_split: str | None = None
) -> tuple[tuple[Window, ...], list[str]]:
    """The usable windows of a log, in order, and what is wrong with the others.

    Args:
        values: the `hpcml_window` of each index.
        no_split: why the job cannot tell waiting from computing (`Run.no_split`). Without a reason, a window that lacks
            one of these times cannot be used. With one, a window that has any of them cannot be used.
    """
    windows: list[Window] = []
    problems: list[str] = []
    for index, value in sorted(values.items()):
        wrong = list(_wrong_in_window(value, no_split))
        if wrong:
            problems.append(f"window {index} cannot be used: {', '.join(wrong)}")
            continue
        window = Window(
            samples=int(number(value["samples"]) or 0),
            steps=int(number(value["steps"]) or 0),
            wall_s=number(value["wall_s"]) or 0.0,
            stall_s=number(value.get("stall_s")),
            compute_s=number(value.get("compute_s")),
            stall_h2d_s=number(value.get("stall_h2d_s")),
        )
        windows.append(window)
    missing = [index for index in range(max(values, default=-1)) if index not in values]
    if missing:
        named = [*map(str, missing[:5]), *(["…"] if len(missing) > 5 else [])]
        problems.append(f"windows are missing from the log: {', '.join(named)}")
    if len({window.samples for window in windows}) > 1:
        counts = ", ".join(str(window.samples) for window in windows[:8])
        problems.append(
            f"the windows have different numbers of samples: {counts} (drop_last=True leaves out a smaller batch)"
        )
    return tuple(windows), problems


def _wrong_in_window(value: Mapping[str, object], no_split: str | None) -> Iterator[str]:
    needed = (*_COUNTS, *_TIMES) if no_split is None else (*_COUNTS, "wall_s")
    usable = [key for key in needed if _is_usable(key, value.get(key))]
    yield from (f"{key} is {_in_message(value.get(key))}" for key in needed if key not in usable)
    if no_split is not None:
        for key in SPLIT:
            if value.get(key) is not None:
                yield f"{key} is {_in_message(value[key])}, and the summary says that there is no split ({no_split})"
    elif len(usable) == len(needed) and not _is_part_of_stall(value):
        yield f"stall_h2d_s is {_in_message(value['stall_h2d_s'])} of stall_s {value['stall_s']}"


def _is_usable(key: str, value: object) -> bool:
    """Whether a window's value is possible: counts are whole and positive, times positive, a stall 0 or more."""
    known = number(value)
    if known is None:
        return False
    if key in _COUNTS:
        return known > 0 and known == int(known)
    if key == "stall_s":
        return known >= 0
    return known > 0


def _is_part_of_stall(value: Mapping[str, object]) -> bool:
    """Whether the copy's part of a window's stall is possible, or is not known: not there, or null."""
    if value.get("stall_h2d_s") is None:
        return True
    copying = number(value["stall_h2d_s"])
    stall = number(value["stall_s"])
    return copying is not None and stall is not None and 0 <= copying <= stall * (1 + SUM_TOLERANCE)


def _in_message(value: object) -> str:
    """A value of the log for a sentence; a long one is cut off."""
    if value is None:
        return "missing"
    text = repr(value)
    if len(text) <= LONGEST_VALUE:
        return text
    return text[: LONGEST_VALUE - 1] + "…"


def contradictions(run: Run, spec: JobSpec | None) -> Iterator[Problem]:
    """What in a run is impossible, or is not what was asked. Each of these fails the test.

    Args:
        spec: what was asked; None if that is not known.
    """
    if run.start:
        yield from _check_schema(run.start)
        if spec is not None:
            yield from _check_request(run.start, spec)
    if run.windows:
        yield from _check_steps(run)
        yield from _check_sums(run)
        yield from _check_physics(run, spec)


def warnings_on(run: Run, spec: JobSpec | None) -> Iterator[str]:
    """Warnings about a run. They are printed and fail no test."""
    gap = run.identity_gap
    if gap is not None and gap > IDENTITY_LIMIT and _mode(run) != "blocking":
        yield f"the three numbers disagree by {gap:.1%} (overlap mode: no gate)"
    if run.spread is not None and run.spread > UNSTEADY:
        yield f"unsteady: its windows spread by {run.spread:.0%}, as beside other work or with changing clocks"
    if number(run.summary.get("flop_per_sample")) and not number(part(run.start, "device").get("peak_flops")):
        yield "peak unknown: compute throughput was not compared with what the devices can do"
    size = number(part(run.start, "world").get("size"))
    if size is not None and size > 1 and part(run.start, "request").get("size") == "smoke":
        yield "smoke: its steps are so short that several ranks mostly wait for each other; no measure of scaling"
    if spec is not None and spec.unsupported is not None:
        yield f"tried: its platform's file says that it cannot run there: {spec.unsupported}"
    if spec is not None and not spec.starts_ranks and size is not None and size != spec.ranks:
        yield f"world size: the program has {size:g} ranks on {spec.ranks} devices"
    device = part(run.start, "device").get("type")
    if spec is not None and spec.benchmark is None and device is not None and not _is_device_of(spec, device):
        said = _in_message(device)
        yield f"device: asked for {spec.layout.unit}, and meter.py saw {said} only (docs/foreign-loops.md)"


def _check_schema(start: Mapping[str, object]) -> Iterator[Problem]:
    schema = start.get("schema")
    if schema != SCHEMA or isinstance(schema, bool):
        written = _in_message(schema)
        yield "schema", f"the job writes schema {written} of the wire, and this suite reads schema {SCHEMA} (update it)"


def _check_request(start: Mapping[str, object], spec: JobSpec) -> Iterator[Problem]:
    """What the job says it does, against what was asked."""
    request = part(start, "request")
    world = part(start, "world")
    for key, asked in spec.request.items():
        if key not in request:
            yield "request", f"{key}: asked for {asked!r}, and the job does not say what it did"
        elif not is_same(asked, request[key]):
            yield "request", f"{key}: asked for {asked!r}, and the job ran with {request[key]!r}"
    if spec.starts_ranks and number(world.get("size")) != spec.ranks:
        yield "world", f"world size: {spec.ranks} ranks were started, and the job says {_in_message(world.get('size'))}"
    yield from _check_hosts(start, spec)
    yield from _check_devices(start, spec)
    if spec.benchmark is None:
        return
    if start.get("benchmark") != spec.benchmark:
        yield "request", f"benchmark: asked for {spec.benchmark!r}, and the job ran {start.get('benchmark')!r}"
    device = part(start, "device").get("type")
    if not _is_device_of(spec, device):
        yield "device", f"device: asked for {spec.layout.unit}, and the job ran on {_in_message(device)}"
    if spec.archive is None:
        return
    archive = re.fullmatch(r"models-([0-9a-f]+)\.pyz", spec.archive.name)
    if archive and start.get("code") != archive[1]:
        yield "code", f"code: sent was {archive[1]}, and the job ran {_in_message(start.get('code'))}"


def _is_device_of(spec: JobSpec, device: object) -> bool:
    return device in DEVICE_UNITS[spec.layout.unit].types


def _check_hosts(start: Mapping[str, object], spec: JobSpec) -> Iterator[Problem]:
    """The hosts that took part, against the nodes of the layout. A job that does not know its hosts passes."""
    world = part(start, "world")
    hosts = number(world.get("hosts"))
    if hosts is None:
        return
    if hosts != spec.layout.nodes:
        host = part(start, "host").get("name")
        where = f" ({host})" if hosts == 1 and host else ""
        advice = "" if spec.starts_ranks else '; let launcher="torchrun" or "srun" start them (docs/foreign-loops.md)'
        asked = f"hosts: layout {spec.layout} asks for {spec.layout.nodes}"
        yield "hosts", f"{asked}, and its ranks ran on {hosts:g}{where}{advice}"
        return
    fewest_and_most = world.get("ranks_per_host")
    if spec.starts_ranks and fewest_and_most != [spec.ranks_per_node] * 2:
        asked = f"hosts: {spec.ranks_per_node} ranks were started on each"
        yield "hosts", f"{asked}, and the fewest and the most on one were {_in_message(fewest_and_most)}"


def trained_on(start: Mapping[str, object]) -> tuple[int, int] | None:
    """Copies of the model and devices of each, where a rank drives several devices; None elsewhere."""
    world = part(start, "world")
    replicas, devices = number(world.get("replicas")), number(world.get("devices_per_replica"))
    return None if replicas is None or devices is None else (int(replicas), int(devices))


def _check_devices(start: Mapping[str, object], spec: JobSpec) -> Iterator[Problem]:
    """The copies of the model and their devices against the layout, where a rank drives several devices."""
    unit = spec.layout.unit
    copies = "1 copy" if spec.replicas == 1 else f"{spec.replicas} copies"
    asked = f"devices: asked for {copies} of the model on {spec.devices_per_replica} {unit} each (layout {spec.layout})"
    trained = trained_on(start)
    if trained is None:
        if {"replicas", "devices_per_replica"} <= spec.request.keys():
            yield "devices", f"{asked}, and the job does not say how many it had (world.replicas in hpcml_start)"
        return
    replicas, devices = trained
    if replicas != spec.replicas or replicas * devices != spec.layout.devices:
        yield "devices", f"{asked}, and the job had {replicas} on {devices} each"


def is_same(asked: object, answered: object) -> bool:
    """Whether two values are equal: numbers by value, lists item by item. true is not 1, and means the same as `on`."""
    if isinstance(answered, bool) and isinstance(asked, str):
        return asked == ("on" if answered else "off")
    if isinstance(asked, bool) or isinstance(answered, bool):
        return asked is answered
    asked_number = number(asked)
    answered_number = number(answered)
    if asked_number is not None and answered_number is not None:
        return math.isclose(asked_number, answered_number, rel_tol=1e-9)
    if isinstance(asked, list | tuple) and isinstance(answered, list | tuple):
        return len(asked) == len(answered) and all(map(is_same, asked, answered))
    return asked == answered


def _mode(run: Run) -> object:
    return part(run.start, "request").get("mode")


def _check_steps(run: Run) -> Iterator[Problem]:
    """Windows, steps and samples against the request as the job understood it, as far as it names them."""
    request = part(run.start, "request")
    windows = number(request.get("windows"))
    steps = number(request.get("steps_per_window"))
    batch = number(request.get("global_batch_size"))
    ends_by_time = bool(number(request.get("window_s")))  # then a window has at least that many steps
    if steps and windows is not None and windows != len(run.windows):
        yield "steps", f"windows: asked for {windows:g}, and there are {len(run.windows)}"
    for index, window in enumerate(run.windows):
        if steps:
            wrong = window.steps < steps if ends_by_time else window.steps != steps
            if wrong:
                yield "steps", f"window {index} has {window.steps} steps, and asked for were {steps:g}"
        if batch and window.samples != window.steps * batch:
            expected = f"{window.steps} steps of the global batch size {batch:g}"
            yield "samples", f"window {index} has {window.samples} samples, which are not {expected}"


def _check_sums(run: Run) -> Iterator[Problem]:
    """The summary against the sums of the windows."""
    if not run.summary:
        return
    expected: dict[str, float | None] = {
        "windows": len(run.windows),
        "steps": sum(window.steps for window in run.windows),
    }
    for key in ("samples", *_TIMES, *_NUMBERS):
        expected[key] = getattr(run, key)
    for key, value in expected.items():
        if value is None:
            if run.summary.get(key) is not None:
                yield "sums", f"{key} is {_in_message(run.summary[key])} in the summary, and the windows do not know it"
            continue
        written = number(run.summary.get(key))
        if written is None or not math.isclose(written, value, rel_tol=SUM_TOLERANCE, abs_tol=1e-9):
            in_summary = _in_message(run.summary.get(key))
            yield "sums", f"{key} is {in_summary} in the summary, and {value:.9g} by the windows"


def _check_physics(run: Run, spec: JobSpec | None) -> Iterator[Problem]:
    """The numbers against each other, and against what the devices can do."""
    effective = run.effective_throughput
    compute = run.compute_throughput
    fraction = run.compute_fraction
    assert effective is not None
    if fraction is not None and not 0 <= fraction <= 1:
        yield "fraction", f"compute fraction is {fraction:.4g}: more stall than time was measured"
    gap = run.identity_gap or 0.0
    if compute is not None and effective > compute * (1 + IDENTITY_LIMIT):
        out, computed = (run.throughput_unit.metric(rate) for rate in (effective, compute))
        yield (
            "identity",
            f"more came out ({out.value:.6g} {out.unit}) than was computed ({computed.value:.6g} {computed.unit})",
        )
    elif gap > IDENTITY_LIMIT and _mode(run) == "blocking":
        why = "time is counted twice or not at all, as when a synchronisation is missing"
        yield "identity", f"the three numbers disagree by {gap:.1%} (limit {IDENTITY_LIMIT:.0%}): {why}"
    peak = number(part(run.start, "device").get("peak_flops"))
    work = number(run.summary.get("flop_per_sample"))
    devices = devices_of_peak(run.start, spec)
    rate = compute or effective  # without a split: computing was at least as fast as what came out
    if peak and work and devices and rate * work > peak * devices:
        unit = "node(s)" if part(run.start, "device").get("type") == "cpu" else "devices"
        yield "roofline", f"{rate * work:.4g} FLOP/s are more than {devices:g} {unit} can do ({peak:.4g} each)"


def devices_of_peak(start: Mapping[str, object], spec: JobSpec | None) -> float | None:
    """How many devices the job has, of which `peak_flops` is that of one; on CPUs it is that of a node."""
    if part(start, "device").get("type") == "cpu":
        return spec.layout.nodes if spec else number(part(start, "world").get("hosts")) or 1
    return spec.layout.devices if spec else _devices_that_trained(start)


def _devices_that_trained(start: Mapping[str, object]) -> float | None:
    """The devices of all replicas where a rank drives several of them, else one for each rank."""
    trained = trained_on(start)
    return number(part(start, "world").get("size")) if trained is None else math.prod(trained)
