"""What of a run.json goes into an envelope: the judged number, why it may be doubted, what may explain a change."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from platforms.job import Metric, Outcome, ThroughputUnit, Trial, Window, split_refusal, throughput_unit
from platforms.results.gates import LOG_DOUBT, UNSTEADY, number, part
from reporting.history import node_facts
from reporting.history.comparability import comparability, fields_of
from reporting.history.envelope import ALL_WINDOWS, THROTTLED, TRIED, UNSTEADY_RUN, Envelope, Key
from reporting.history.sample_energy import energy_of
from reporting.history.stretches import all_windows, fastest_stretch

THROUGHPUT = "effective_throughput"
FASTEST = "fastest_stretch"
"""The effective throughput of the run's fastest stretch. It stands beside the judged one, which is of all windows."""
NOT_ALONE = "not alone"
STEP_PARTS = ("wait_ms", "h2d_ms", "stall_ms", "step_ms", "other_ms")
"""What stands beside a run and says where the time of a step goes (docs/history.md)."""
EXCHANGE = "exchange_ms"
"""For how long of `step_ms` even the last rank to be ready exchanges gradients; missing where that is not known."""
EXPECTED_LIMITS = ("power cap",)  # a GPU under full load runs at its power cap: that is no disturbance

# The job knows when others' work and its own threads disturb it (docs/measuring.md), and says so in a warning that
# begins with one of these words.
DOUBTED_BY_JOB: Mapping[str, str] = {
    NOT_ALONE: NOT_ALONE,
    "a virtual machine": NOT_ALONE,  # a hypervisor gave its processor time to others
    "crowded": "crowded",
    "suspended": "suspended",
    "tried": TRIED,
    "steps not known": "steps not known",  # Slurm has no account of them (platforms/schedulers/slurm/judge.py)
    "read ahead": "read ahead",
}
# These words say why a number may be low. Such a run counts like any other: heat and stalls are what a gate is for.
EXPLAINED_BY_JOB: Mapping[str, str] = {
    "throttled": THROTTLED,
    "the CPU quota changed while this job was measured": THROTTLED,
}


def envelope_of(
    run_json: Mapping[str, Any],
    *,
    site: str,
    run_id: str,
    attempt: int,
    outcome: Outcome,
    sane: bool,
    revision: int,
    written_s: float,
) -> Envelope:
    """The envelope of a job.

    Args:
        run_json: the content of its run.json.
        site: the centre's name.
        outcome: of the test, or of the job while its test has not ended.
        sane: the test has passed its own assertions and recorded its numbers.
        revision: which envelope of the same key counts (`Revision`).
        written_s: now, in Unix seconds.
    """
    fields = fields_of(run_json)
    trial = Trial.from_content(part(run_json, "trial"))
    return Envelope(
        key=Key(
            site, run_id, run_json["test"], attempt, run_json.get("job_id"), run_json.get("submitted_s"), trial.key
        ),
        revision=revision,
        written_s=written_s,
        outcome=outcome,
        sane=sane,
        platform=run_json["platform"],
        benchmark=run_json.get("benchmark"),
        layout=run_json.get("layout") or "",
        trial=trial,
        started_s=run_json.get("started_s"),
        ended_s=run_json.get("ended_s"),
        metrics=metrics_of(run_json),
        beside=beside_of(run_json),
        no_split=split_refusal(part(run_json, "summary")),
        fields=fields,
        comparability=comparability(fields),
        doubts=tuple(dict.fromkeys(doubts_of(run_json))),
        explanations=tuple(dict.fromkeys(explanations_of(run_json))),
        statistic=ALL_WINDOWS,
        provenance=provenance_of(run_json),
        network=node_facts.network_of(run_json),
    )


def metrics_of(run_json: Mapping[str, Any]) -> dict[str, Metric]:
    """What is judged of a run: its effective throughput, if it has any, and the metrics that its test recorded.

    Throughput is N / T over all windows. Without windows it is the mean of what the test read from the log.
    """
    found = {}
    windows = _windows(run_json)
    throughput = run_json.get("effective_throughput")
    if windows:
        throughput = _throughput(all_windows(windows))
    if throughput is not None:
        found[THROUGHPUT] = _unit(run_json).metric(throughput)
    for name, metric in part(run_json, "metrics").items():
        found[name] = Metric(**metric)
    return found


def beside_of(run_json: Mapping[str, Any]) -> dict[str, Metric]:
    """What says where a change is.

    These are two numbers whose product is the effective throughput, the parts of a step, the fastest stretch, and the
    energy.
    """
    windows = _windows(run_json)
    if not windows:
        return {}
    run = all_windows(windows)
    unit = _unit(run_json)
    found: dict[str, Metric] = {}
    if run.stall_s is not None and run.compute_s is not None:
        found["compute_throughput"] = unit.metric(run.samples / run.compute_s)
        found["compute_fraction"] = Metric(1 - run.stall_s / run.wall_s, "")
        for name, seconds in _parts_of_wall(run, run.stall_s, run.compute_s).items():
            found[name] = Metric(1000 * seconds / run.steps, "ms", "lower")
        exchange = number(part(run_json, "summary").get("exchange_share"))
        if exchange is not None:
            found[EXCHANGE] = Metric(1000 * exchange * run.wall_s / run.steps, "ms", "lower")
    found[FASTEST] = unit.metric(_throughput(fastest_stretch(windows)))
    energy = energy_of(part(run_json, "summary"), run.samples, run.wall_s, unit)
    if isinstance(energy, Metric):
        found[f"energy_per_{unit.item}"] = energy
    return found


def _unit(run_json: Mapping[str, Any]) -> ThroughputUnit:
    return throughput_unit(part(run_json, "start"))


def _throughput(window: Window) -> float:
    return window.samples / window.wall_s


def _parts_of_wall(run: Window, stall_s: float, compute_s: float) -> dict[str, float]:
    """The parts of a run in seconds, which add up to its wall time: docs/history.md defines them."""
    parts = {}
    if run.stall_h2d_s is None:
        parts["stall_ms"] = stall_s
    else:
        parts["wait_ms"] = stall_s - run.stall_h2d_s
        parts["h2d_ms"] = run.stall_h2d_s
    parts["step_ms"] = compute_s
    parts["other_ms"] = run.wall_s - stall_s - compute_s
    return parts


def _windows(run_json: Mapping[str, Any]) -> list[Window]:
    return [Window(**window) for window in run_json.get("windows") or ()]


def explanations_of(run_json: Mapping[str, Any]) -> Iterator[str]:
    """Why the number of a run may be low (docs/history.md); a word may come twice."""
    spread = run_json.get("spread_within_job")
    if spread is not None and spread > UNSTEADY:
        yield UNSTEADY_RUN
    for warning in run_json.get("warnings") or ():
        subject = str(warning).partition(":")[0]
        if subject in EXPLAINED_BY_JOB:
            yield EXPLAINED_BY_JOB[subject]
    health = part(part(run_json, "summary"), "health")
    for reasons in (*part(health, "throttled").values(), node_facts.throttled(run_json)):
        if set(reasons).difference(EXPECTED_LIMITS):
            yield THROTTLED


def doubts_of(run_json: Mapping[str, Any]) -> Iterator[str]:
    """Why a run fills no pin and clears no red (docs/history.md); a word may come twice."""
    for warning in run_json.get("warnings") or ():
        subject = str(warning).partition(":")[0]
        if subject in DOUBTED_BY_JOB:
            yield DOUBTED_BY_JOB[subject]
        if subject == LOG_DOUBT and (not run_json.get("windows") or run_json.get("metrics")):
            yield LOG_DOUBT  # the lines that windows are read from are numbered, those that a test reads are not
    if part(run_json, "asked").get("unsupported"):
        yield TRIED
    if part(part(run_json, "start"), "request").get("inject"):
        yield "slowed on purpose"


def provenance_of(run_json: Mapping[str, Any]) -> dict[str, str]:
    """What may explain a change of the numbers, as short texts under flat names, so that two can be compared."""
    start = part(run_json, "start")
    device = part(start, "device")
    host = part(start, "host")
    request = part(start, "request")
    health = part(part(part(run_json, "summary"), "health"), "before")
    asked = part(run_json, "asked")
    found: dict[str, Any] = {
        "nodes": ",".join(run_json.get("nodes") or ()) or host.get("name"),
        "device": device.get("name"),
        "driver": device.get("driver"),
        "kernel": host.get("kernel"),
        "image": asked.get("image"),
        "group": asked.get("group"),
        "cpu": host.get("cpu"),
        "cores": host.get("cores"),
        "threads": host.get("threads"),
        "workers": request.get("workers"),
        "batch": _batch(request),
        "fits_by": ", ".join(name for name in ("sharded", "recompute") if request.get(name)),
        "power_limit_w": health.get("power_limit_w"),
        "clock_max_mhz": health.get("clock_max_mhz"),
        "clock_cap_mhz": health.get("clock_cap_mhz"),
        "governor": health.get("governor"),
        "launcher": part(start, "world").get("launcher"),
        "backend": part(start, "world").get("backend"),
        "data_folder": part(start, "data").get("folder"),
        "decoder": part(start, "data").get("decoder"),
        "code": start.get("code"),
        "commit": part(run_json, "suite").get("commit"),
        **part(start, "versions"),
    }
    if not start:
        found["command"] = " ".join(_without_folder(str(word)) for word in asked.get("arguments") or ())[:200]
    known = {name: _text(value) for name, value in found.items() if value not in (None, "")}
    return {**node_facts.provenance_of(run_json), **known}


def _without_folder(word: str) -> str:
    """A file by its name alone: a checkout in another folder changes no number."""
    return word.rpartition("/")[2] if word.startswith("/") else word


def _batch(request: Mapping[str, Any]) -> str | None:
    """The global batch size, and into how many micro-batches a rank's share of it is cut: `32`, `32 in 2`."""
    size = request.get("global_batch_size")
    if size is None:
        return None
    parts = request.get("accumulation_steps", 1)
    return str(size) if parts == 1 else f"{size} in {parts}"


def _text(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
