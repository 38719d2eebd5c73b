"""What people read of nodes: after visits of all nodes, for a user whose job was slow, and after a user's own check."""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from reporting.fleet.node_runs import NodeJob, NodeRun, node_jobs, node_runs, workload_of
from reporting.fleet.nodes import RUNS_TO_NAME, WHY_NOT_JUDGED, NodeRecord, Standing, records_of
from reporting.history.envelope import Envelope
from reporting.phrases import listed, percent, size

NAMED_TO_USERS = 5  # nodes of one kind in a sentence
NAMED_TO_ADMINISTRATORS = 20


def with_limit(run: NodeRun) -> str:
    """`-8.1 % (limit 3.0 %)`, of a run that is judged."""
    return f"{percent(run.change)} (limit {size(run.limit, 1)})"


def minute(started_s: float) -> str:
    """`2026-11-22 23:08`, in this machine's time."""
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(started_s))


# --- after visits of all nodes: do they fit? --------------------------------------------------------------------------


@dataclass(frozen=True)
class NodeVisit:
    """A visit that has ended.

    Attributes:
        failure: why it measured nothing, as in `did not start: node lost`.
        reached: the job was allowed on the node. If it was not, the visit says nothing of the node, which may not
            even exist.
        drainable: the failure is a reason to take the node out of service.
    """

    node: str
    failure: str = ""
    reached: bool = True
    drainable: bool = True


@dataclass(frozen=True)
class GoNoGo:
    """The answer after a maintenance.

    Attributes:
        text: the sentence, and lines on what is not known and on what an administrator may type.
        short: the sentence without its numbers.
        fits: every visited node was reached, and fits. Nodes that are left for another night do not count.
    """

    text: str
    short: str
    fits: bool


@dataclass(frozen=True)
class _Unfit:
    """A node that does not fit. `why_drain` is empty if nothing says that it must be taken out, as of a suspect, which
    one more run may clear."""

    name: str
    brief: str
    long: str
    why_drain: str


def go_no_go(
    visits: Sequence[NodeVisit],
    records: Mapping[str, NodeRecord],
    drain_command: Callable[[str, str], str | None] = lambda node, reason: None,
) -> GoNoGo:
    """Say how many nodes fit.

    Args:
        visits: in the order in which they began. The last one of a node says whether it runs.
        records: of these nodes, with these visits.
        drain_command: writes the command that takes a node out of service, from the node and the reason. It is printed
            and never run.
    """
    last = {visit.node: visit for visit in visits}
    unreached = [visit for visit in last.values() if visit.failure and not visit.reached]
    for visit in unreached:
        del last[visit.node]
    found = [_unfit(visit, records[visit.node]) for visit in last.values()]
    unfit = [node for node in found if node is not None]
    sentence = f"{len(last) - len(unfit)} of {len(last)} nodes fit"
    lines = ["; ".join([sentence, *(node.long for node in unfit)])]
    brief = [node.brief for node in unfit]
    if unreached:
        lines.append(f"Not measured: {'; '.join(f'{visit.node} {visit.failure}' for visit in unreached)}.")
        brief.append(f"not measured: {listed([visit.node for visit in unreached], NAMED_TO_ADMINISTRATORS)}")
    unfit_names = {node.name for node in unfit}
    unjudged = [name for name in last if name not in unfit_names and records[name].standing is Standing.UNKNOWN]
    if unjudged:
        names = listed(unjudged, NAMED_TO_ADMINISTRATORS)
        lines.append(f"The speed of {names} is not judged yet: {WHY_NOT_JUDGED}.")
    commands = [drain_command(node.name, node.why_drain) for node in unfit if node.why_drain]
    if any(commands):
        lines += ["To take them out of service, an administrator types:", *(f"  {line}" for line in commands if line)]
    short = "; ".join(filter(None, [sentence, ", ".join(brief)]))
    return GoNoGo("\n".join(lines), short, fits=not brief)


def _unfit(visit: NodeVisit, record: NodeRecord) -> _Unfit | None:
    """What is wrong with a visited node; None if it fits, or if its speed is not judged."""
    name = visit.node
    if visit.failure:
        said = f"{name} {visit.failure}"
        return _Unfit(name, said, said, visit.failure if visit.drainable else "")
    if record.standing is Standing.SLOW:
        change = percent(record.deviation)
        return _Unfit(name, f"{name} {change}", record.sentence, f"{change} beside other nodes")
    if record.standing is Standing.SUSPECT:
        change = percent(record.slow_streak[-1].change)
        return _Unfit(name, f"{name} {change} (suspect)", record.sentence, "")
    return None


# --- my job was slow: is it me or the machine? ------------------------------------------------------------------------


@dataclass(frozen=True)
class JobAnswer:
    """What is known of a job's nodes at its time.

    Attributes:
        text: sentences.
        runs: by which it is answered; () if the job's time is not known, or nothing was measured then.
        is_slow: the answer names a slow node.
    """

    text: str
    runs: tuple[NodeRun, ...]
    is_slow: bool


def answer(records: Sequence[NodeRecord]) -> str:
    """The answer about now, for a user whose job ran on these nodes.

    A slow node is named first, then a suspect one. Nodes that nobody has measured leave the question open.
    """
    of_standing: dict[Standing, list[NodeRecord]] = {standing: [] for standing in Standing}
    for record in records:
        of_standing[record.standing].append(record)
    slow = "; ".join(record.sentence for record in of_standing[Standing.SLOW])
    if slow:
        return f"It may be the machine: {slow}; tell your centre."
    suspect = "; ".join(record.sentence for record in of_standing[Standing.SUSPECT])
    if suspect:
        return f"It may be the machine, and one more run decides: {suspect}."
    unknown = listed([_why_unknown(record) for record in of_standing[Standing.UNKNOWN]], NAMED_TO_USERS)
    changes = [
        f"{record.name} {percent(record.deviation)} on {record.runs[-1].night}" for record in of_standing[Standing.FIT]
    ]
    if not changes:
        return f"Nothing is known of the machine: {unknown}."
    fit = f"It is not the machine, as far as our runs say: {listed(changes, NAMED_TO_USERS)}"
    return f"{fit}; not known: {unknown}." if unknown else f"{fit}."


def _why_unknown(record: NodeRecord) -> str:
    if not record.runs:
        return f"{record.name} was never measured"
    return f"{record.name} has no run that other nodes can be compared with ({WHY_NOT_JUDGED})"


def job_answer(records: Sequence[NodeRecord], job_id: str, started_s: float | None) -> JobAnswer:
    """The answer about the time of a job, for a user whose job ran on these nodes.

    The job itself counts if it is one of the suite's. Otherwise the last run before its start and the first one after
    it count, on each node.

    Args:
        records: of the job's nodes.
        job_id: the scheduler's.
        started_s: when it started, in Unix seconds; None if nothing says so. Then the answer is about now.
    """
    used = {record.name: _runs_of_job(record, job_id, started_s) for record in records}
    runs = tuple(run for of_node in used.values() for run in of_node)
    if not runs:
        said = [answer(records)]
        if started_s is None:
            said.append(f"When job {job_id} ran is not known, so this is about now.")
        is_slow = any(record.standing is Standing.SLOW for record in records)
        return JobAnswer(" ".join(said), (), is_slow)
    slow = [name for name, of_node in used.items() if any(run.slow for run in of_node)]
    named = slow or [name for name, of_node in used.items() if of_node]
    measured = "; ".join(_beside_job(name, used[name], job_id) for name in named)
    said = [f"It is not the machine, as far as our runs of that time say: {measured}."]
    if slow:
        said = [f"It may be the machine: {measured}; tell your centre."]
    unknown = [name for name, of_node in used.items() if not of_node]
    if unknown:
        said.append(f"Not known: {', '.join(unknown)}.")
    said += [_now(record, was_slow=record.name in slow) for record in records]
    return JobAnswer(" ".join(filter(None, said)), runs, bool(slow))


def is_of_job(run_job_id: str | None, job_id: str) -> bool:
    """Whether a run is this job. Kubernetes' ids end with the name by which people know the job."""
    return run_job_id is not None and (run_job_id == job_id or run_job_id.endswith(f"/{job_id}"))


def _runs_of_job(record: NodeRecord, job_id: str, started_s: float | None) -> list[NodeRun]:
    own = [run for run in record.judged if is_of_job(run.job.job_id, job_id)]
    if own:
        return own[-1:]
    if started_s is None:
        return []
    before = [run for run in record.judged if run.job.started_s <= started_s]
    after = [run for run in record.judged if run.job.started_s > started_s]
    return [*before[-1:], *after[:1]]


def _beside_job(name: str, runs: Sequence[NodeRun], job_id: str) -> str:
    """As in `n07 -8.1 % (limit 3.0 %) at 2026-11-22 23:08`, for each run."""
    changes = " and ".join(_at(run) for run in runs)
    in_this_job = " in this job" if is_of_job(runs[0].job.job_id, job_id) else ""
    return f"{name} {changes}{in_this_job}"


def _at(run: NodeRun) -> str:
    return f"{with_limit(run)} at {minute(run.job.started_s)}"


def _now(record: NodeRecord, *, was_slow: bool) -> str:
    """What has changed since the job; "" if nothing has."""
    if was_slow and record.standing is Standing.FIT:
        return f"Now {record.name} is fit: {_at(record.judged[-1])}."
    if not was_slow and record.standing in (Standing.SLOW, Standing.SUSPECT):
        return f"Now it is different: {record.sentence}, since {minute(record.slow_streak[0].job.started_s)}."
    return ""


# --- a user's own check ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class NodeAnswer:
    """Whether a node is as fast as it should be. `as_fast` is None if there is nothing to compare it with."""

    text: str
    as_fast: bool | None


def check_answer(node: str, own: Sequence[Envelope], past: Sequence[NodeJob], night_ends: datetime.time) -> NodeAnswer:
    """Compare a node with the other nodes of its platform.

    Args:
        node: its name, as it was asked for.
        own: the user's runs on it, one or two, in the order of their starts.
        past: the jobs of the test in the centre's history.
    """
    workload = workload_of(own[-1])
    record = records_of(node_runs([*past, *node_jobs(own)], night_ends))[node]
    run = record.runs[-1]
    if not run.judged:
        why = f"the centre has too few runs to compare it with: {WHY_NOT_JUDGED}"
        return NodeAnswer(f"{node} ran {workload}, and {why}", as_fast=None)
    if not run.slow:
        return NodeAnswer(f"{node} is as fast as the fleet: {workload} {with_limit(run)}", as_fast=True)
    if record.standing is Standing.SLOW:
        return NodeAnswer(f"{record.sentence} ({workload}): tell your centre", as_fast=False)
    if len(record.slow_streak) < RUNS_TO_NAME:
        return NodeAnswer(f"{node} was slow once: {workload} {with_limit(run)}; one more run decides", as_fast=False)
    return NodeAnswer(f"{record.sentence} ({workload}); one more run decides", as_fast=False)
