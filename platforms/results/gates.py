"""The general gates on the reading side: what a log says of its run against what was asked, and against itself."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping

from platforms.job import JobSpec, Run, Window

SCHEMA = 1
IDENTITY_LIMIT = 0.03
UNSTEADY = 0.1  # spread of the windows of one job from which on its mean says little
SUM_TOLERANCE = 1e-6

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


def part(value: Mapping[str, object], key: str) -> Mapping[str, object]:
    """The mapping under a key, empty where there is none."""
    found = value.get(key)
    return found if isinstance(found, Mapping) else {}


def windows_of(values: Mapping[int, Mapping[str, object]]) -> tuple[tuple[Window, ...], list[str]]:
    """The windows that can be reckoned with, in order, and what is wrong with the rest."""
    windows: list[Window] = []
    problems: list[str] = []
    for index, value in sorted(values.items()):
        wrong = [f"{key} is {_said(value.get(key))}" for key in (*_COUNTS, *_TIMES) if not _usable(key, value.get(key))]
        if wrong:
            problems.append(f"window {index} cannot be used: {', '.join(wrong)}")
        else:
            steps, samples, wall_s, stall_s, compute_s = (number(value[key]) or 0.0 for key in (*_COUNTS, *_TIMES))
            windows.append(Window(int(samples), int(steps), wall_s, stall_s, compute_s))
    missing = [index for index in range(max(values, default=-1)) if index not in values]
    if missing:
        problems.append(f"windows are missing from the log: {', '.join(map(str, missing[:5]))}")
    if len({window.samples for window in windows}) > 1:
        counts_seen = ", ".join(str(window.samples) for window in windows[:8])
        problems.append(f"the windows have different numbers of samples: {counts_seen}")
    return tuple(windows), problems


def _usable(key: str, value: object) -> bool:
    """Whether a window's value makes sense: whole positive counts, positive times, a stall of 0 or more."""
    known = number(value)
    if known is None:
        return False
    if key in _COUNTS:
        return known > 0 and known == int(known)
    return known >= 0 if key == "stall_s" else known > 0


def _said(value: object) -> str:
    text = repr(value)
    return "missing" if value is None else text if len(text) <= 60 else text[:59] + "…"


def contradictions(run: Run, spec: JobSpec | None) -> Iterator[Problem]:
    """Everything about a run with a start and windows that cannot be, or is not what was asked."""
    if run.start:
        yield from _start(run.start)
        if spec is not None:
            yield from _as_asked(run.start, spec)
    if run.windows:
        yield from _steps(run)
        yield from _sums(run)
        yield from _physics(run, spec)


def doubts(run: Run, spec: JobSpec | None) -> Iterator[str]:
    """What is printed and fails nothing."""
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
    if spec is not None and not spec.starts_ranks and size is not None and size != spec.ranks:
        yield f"world size: the program has {size:g} ranks on {spec.ranks} devices"


def _start(start: Mapping[str, object]) -> Iterator[Problem]:
    if start.get("schema") != SCHEMA or isinstance(start.get("schema"), bool):
        said = _said(start.get("schema"))
        yield "schema", f"the job writes schema {said} of the wire, and this suite reads schema {SCHEMA} (update it)"


def _as_asked(start: Mapping[str, object], spec: JobSpec) -> Iterator[Problem]:
    request, world = part(start, "request"), part(start, "world")
    for key, asked in spec.request.items():
        if key not in request:
            yield "request", f"{key}: asked for {asked!r}, and the job does not say what it did"
        elif not same(asked, request[key]):
            yield "request", f"{key}: asked for {asked!r}, and the job ran with {request[key]!r}"
    if spec.starts_ranks and number(world.get("size")) != spec.ranks:
        yield "world", f"world size: {spec.ranks} ranks were started, and the job says {_said(world.get('size'))}"
    yield from _placed(start, spec)
    if spec.benchmark is None:
        return
    if start.get("benchmark") != spec.benchmark:
        yield "request", f"benchmark: asked for {spec.benchmark!r}, and the job ran {start.get('benchmark')!r}"
    device = part(start, "device").get("type")
    if _unit(device) != spec.layout.unit:
        yield "device", f"device: asked for {spec.layout.unit}, and the job ran on {_said(device)}"
    sent = re.fullmatch(r"models-([0-9a-f]+)\.pyz", spec.archive.name) if spec.archive else None
    if sent and start.get("code") != sent[1]:
        yield "code", f"code: sent was {sent[1]}, and the job ran {_said(start.get('code'))}"


def _placed(start: Mapping[str, object], spec: JobSpec) -> Iterator[Problem]:
    """The hosts that took part against the layout's nodes; a job that does not know its hosts is not judged by them."""
    world = part(start, "world")
    hosts = number(world.get("hosts"))
    if hosts is None:
        return
    if hosts != spec.layout.nodes:
        first = part(start, "host").get("name")
        where = f" ({first})" if hosts == 1 and first else ""
        advice = "" if spec.starts_ranks else '; let launcher="torchrun" or "srun" start them (docs/foreign-loops.md)'
        asked = f"hosts: layout {spec.layout} asks for {spec.layout.nodes}"
        yield "hosts", f"{asked}, and its ranks ran on {hosts:g}{where}{advice}"
        return
    counts = world.get("ranks_per_host")
    if spec.starts_ranks and counts != [spec.ranks_per_node] * 2:
        asked = f"hosts: {spec.ranks_per_node} ranks were started on each"
        yield "hosts", f"{asked}, and the fewest and the most on one were {_said(counts)}"


def same(asked: object, answered: object) -> bool:
    """Equal, numbers by value and lists item by item; true is not 1, and is what `on` asks for."""
    if isinstance(answered, bool) and isinstance(asked, str):
        return asked == ("on" if answered else "off")
    if isinstance(asked, bool) or isinstance(answered, bool):
        return asked is answered
    left, right = number(asked), number(answered)
    if left is not None and right is not None:
        return math.isclose(left, right, rel_tol=1e-9)
    if isinstance(asked, list | tuple) and isinstance(answered, list | tuple):
        return len(asked) == len(answered) and all(map(same, asked, answered))
    return asked == answered


def _unit(device: object) -> str:
    """The layout's unit for a device type of the wire: every GPU is `gpu`."""
    if not isinstance(device, str):
        return ""
    return device if device in ("cpu", "ipu", "csx") else "gpu"


def _mode(run: Run) -> object:
    return part(run.start, "request").get("mode")


def _steps(run: Run) -> Iterator[Problem]:
    """Steps and samples against the request as the job understood it, where it names them."""
    request = part(run.start, "request")
    windows, steps, batch = (number(request.get(key)) for key in ("windows", "steps_per_window", "global_batch_size"))
    by_time = bool(number(request.get("window_s")))  # then so many steps are the least
    if steps and windows is not None and windows != len(run.windows):
        yield "steps", f"windows: asked for {windows:g}, and there are {len(run.windows)}"
    for index, window in enumerate(run.windows):
        if steps and (window.steps < steps if by_time else window.steps != steps):
            yield "steps", f"window {index} has {window.steps} steps, and asked for were {steps:g}"
        if batch and window.samples != window.steps * batch:
            expected = f"{window.steps} steps of the global batch size {batch:g}"
            yield "samples", f"window {index} has {window.samples} samples, which are not {expected}"


def _sums(run: Run) -> Iterator[Problem]:
    """The summary against the sums of the windows."""
    if not run.summary:
        return
    own: dict[str, float | None] = {"windows": len(run.windows)}
    own |= {key: math.fsum(getattr(window, key) for window in run.windows) for key in (*_COUNTS, *_TIMES)}
    own |= {key: getattr(run, key) for key in _NUMBERS}
    for key, expected in own.items():
        said = number(run.summary.get(key))
        if expected is None or (said is not None and math.isclose(said, expected, rel_tol=SUM_TOLERANCE, abs_tol=1e-9)):
            continue
        yield "sums", f"{key} is {_said(run.summary.get(key))} in the summary, and {expected:.9g} by the windows"


def _physics(run: Run, spec: JobSpec | None) -> Iterator[Problem]:
    effective, compute, fraction = run.effective_throughput, run.compute_throughput, run.compute_fraction
    assert effective is not None
    assert compute is not None
    assert fraction is not None
    if not 0 <= fraction <= 1:
        yield "fraction", f"compute fraction is {fraction:.4g}: more stall than time was measured"
    if effective > compute * (1 + IDENTITY_LIMIT):
        yield "identity", f"more came out ({effective:.6g} samples/s) than was computed ({compute:.6g} samples/s)"
    elif (gap := run.identity_gap or 0.0) > IDENTITY_LIMIT and _mode(run) == "blocking":
        text = "time is counted twice or not at all, as when a synchronisation is missing"
        yield "identity", f"the three numbers disagree by {gap:.1%} (limit {IDENTITY_LIMIT:.0%}): {text}"
    peak = number(part(run.start, "device").get("peak_flops"))
    work = number(run.summary.get("flop_per_sample"))
    devices = spec.layout.devices if spec else number(part(run.start, "world").get("size"))
    if peak and work and devices and compute * work > peak * devices:
        yield "roofline", f"{compute * work:.4g} FLOP/s are more than {devices:g} devices can do ({peak:.4g} each)"
