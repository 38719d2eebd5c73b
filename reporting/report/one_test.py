"""One test of the history becomes a `TestReport`: each series with its verdict of tonight, its levels and its runs."""

from __future__ import annotations

import datetime
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

from platforms.job import Outcome, Role, setting_of
from platforms.rundir.job_folder import folder_name
from reporting.compare.causes import Causes, with_short_hashes
from reporting.fleet.node_runs import workload_of
from reporting.gate.estimates import PIN_RUNS
from reporting.gate.explanation import NOTE_DAYS_AFTER, NOTE_DAYS_BEFORE
from reporting.gate.series import Series, learned, pin_of, series_of
from reporting.gate.tonight import judge_tonight
from reporting.gate.verdict import Kind, Verdict
from reporting.history.endings import Ending, ReadsEnding, by_outcome
from reporting.history.envelope import Envelope
from reporting.history.nights import night_of
from reporting.history.run_facts import STEP_PARTS, THROUGHPUT
from reporting.references.answers import References
from reporting.report.data import Condition, Level, NodeReport, Part, Point, SeriesReport, TestReport, iso
from reporting.tables.history_rows import stored_kind, stored_short
from reporting.tables.nights import changes_before

NOTE_BEFORE = datetime.timedelta(days=NOTE_DAYS_BEFORE)
NOTE_AFTER = datetime.timedelta(days=NOTE_DAYS_AFTER)
WHY_NODE = "the node itself: other nodes are as they were"
RUNS_BEFORE = 20  # whose parts of a step stand beside those of the last run of a series without a change
URGENCY = list(Condition)
FAILURES = frozenset({Outcome.FAILED, Outcome.ERROR})
_CONDITIONS: Mapping[Kind, Condition] = {
    Kind.OK: Condition.OK,
    Kind.LEARNING: Condition.LEARNING,
    Kind.SLOWER: Condition.SLOWER,
    Kind.DRIFTED: Condition.SLOWER,
    Kind.LEFT: Condition.SLOWER,
    Kind.BLIND: Condition.BLIND,
    Kind.ACKNOWLEDGED: Condition.ACKNOWLEDGED,
    Kind.PAUSED: Condition.PAUSED,
    Kind.FASTER: Condition.FASTER,
    Kind.NODE: Condition.SUSPECT,
    Kind.TRANSIENT: Condition.SUSPECT,
    Kind.SUSPECT: Condition.SUSPECT,
}


@dataclass(frozen=True)
class Asked:
    """What every part of a report needs beside the runs.

    Attributes:
        references: what people have answered.
        night_ends: the hour at which the site's nights end.
        now: the present time.
        options: what the commands in the verdicts' texts need, such as `--site=centre`.
        ending: reads how a job without numbers ended.
    """

    references: References
    night_ends: datetime.time
    now: datetime.datetime
    options: str = ""
    ending: ReadsEnding = by_outcome

    @property
    def tonight(self) -> datetime.date:
        return night_of(self.now.timestamp(), self.night_ends)

    def night(self, envelope: Envelope) -> datetime.date:
        """The night of a job."""
        return night_of(envelope.time_s, self.night_ends)


@dataclass(frozen=True)
class BuiltTest:
    """A test of a report, and what it was made of.

    Attributes:
        jobs: those that the gate judges, in the order of their starts.
        verdicts: of tonight, by metric; none of a test without numbers.
        restless: provenance that differs from run to run, so that a change of it explains nothing.
    """

    report: TestReport
    jobs: Sequence[Envelope]
    verdicts: Mapping[str, Verdict]
    restless: Sequence[str]

    def named(self, metric: str) -> str:
        """`resnet50 1x4gpu tuned`, and the metric if it is not the one that stands for the test."""
        words = [self.report.workload, self.report.layout, self.report.setting]
        if metric and metric != self.report.series[0].metric:
            words.append(f"({metric.replace('_', ' ')})")
        return " ".join(filter(None, words))


def built_test(
    jobs: Sequence[Envelope], device_hours: float, slow_nodes: Mapping[str, NodeReport], asked: Asked
) -> BuiltTest:
    """One test of a report.

    Args:
        jobs: those of the test that the gate judges, in the order of their starts; one at least.
        device_hours: of all jobs of the test, repeats and visits included.
        slow_nodes: of its platform, by name.
    """
    last = jobs[-1]
    with_numbers = [job for job in jobs if job.has_numbers and job.trial.role is Role.MEASURE]
    series: list[SeriesReport] = []
    verdicts: dict[str, Verdict] = {}
    changes, restless = changes_before(jobs)
    failed_jobs = _failed_since_numbers(jobs, with_numbers)
    failed = sorted({asked.night(job) for job in failed_jobs})
    ending = Ending("")
    failed_on: tuple[str, ...] = ()
    if failed_jobs:
        ending = asked.ending(failed_jobs[-1])
        failed_on = failed_jobs[-1].nodes
    if with_numbers:
        latest = with_numbers[-1]
        verdicts = judge_tonight(latest, jobs, asked.references, asked.night_ends, asked.now, options=asked.options)
        for metric in sorted(verdicts, key=lambda name: (name != THROUGHPUT, name)):
            verdict = verdicts[metric]
            found = _series_report(verdict, latest, jobs, changes, asked)
            if verdict.kind is Kind.NODE:
                found = _of_slow_node(found, latest, slow_nodes)
            if failed and found.condition is not Condition.SLOWER:
                short = f"no numbers since {failed[0]}: {ending.state}"
                found = replace(found, condition=Condition.FAILED, short=short)
            series.append(found)
    described = (with_numbers or jobs)[-1]
    report = TestReport(
        id=last.key.test,
        platform=last.platform,
        workload=workload_of(last),
        layout=last.layout,
        setting=setting_of(last.key.test),
        device=_text_or_none(described.provenance.get("device") or described.fields.get("device")),
        devices=devices_of(described),
        condition=_condition_of_test(series, bool(failed), last, asked),
        series=tuple(series),
        folder=folder_name(last.key.test),
        last_run=last.key.run_id,
        last_outcome=last.outcome.value,
        failed_since=iso(min(failed, default=None)),
        failed_nights=len(failed),
        failed_as=ending.state,
        failed_why=ending.reason,
        failed_on=failed_on,
        device_hours=device_hours,
    )
    return BuiltTest(report, jobs, verdicts, restless)


def _of_slow_node(series: SeriesReport, latest: Envelope, slow_nodes: Mapping[str, NodeReport]) -> SeriesReport:
    """The node is slow for longer than its last run, and no change of the test explains it."""
    nights = [slow_nodes[name].slow_since for name in latest.nodes if name in slow_nodes]
    since = min(filter(None, nights), default=series.since)
    return replace(series, since=since, since_run=None, why=WHY_NODE)


def devices_of(envelope: Envelope) -> int | None:
    """How many devices a job used: as it found them, else as its layout says (`2x4gpu` are 8)."""
    found = envelope.fields.get("devices")
    if isinstance(found, int):
        return found
    nodes, times, rest = envelope.layout.partition("x")
    digits = rest[: len(rest) - len(rest.lstrip("0123456789"))]
    if times and nodes.isdecimal() and digits:
        return int(nodes) * int(digits)
    return None


def device_hours_of(devices: int | None, started_s: float | None, ended_s: float | None) -> float | None:
    """What a job took of its devices; None if a time or the number of devices is not known."""
    if devices is None or started_s is None or ended_s is None:
        return None
    return devices * max(ended_s - started_s, 0.0) / 3600


def _text_or_none(value: object) -> str | None:
    return None if value is None else str(value)


def _failed_since_numbers(jobs: Sequence[Envelope], with_numbers: Sequence[Envelope]) -> list[Envelope]:
    """The jobs since the last numbers that failed, or could not be run."""
    last = with_numbers[-1] if with_numbers else None
    later = list(itertools.takewhile(lambda job: job is not last, reversed(jobs)))
    return [job for job in reversed(later) if job.outcome in FAILURES]


def _condition_of_test(series: Sequence[SeriesReport], has_failed: bool, last: Envelope, asked: Asked) -> Condition:
    if asked.references.pause(last.key.test, last.platform, asked.now.date()) is not None:
        return Condition.PAUSED
    conditions = [one.condition for one in series]
    if has_failed:
        conditions.append(Condition.FAILED)
    if not conditions:
        return Condition.BLIND
    return min(conditions, key=URGENCY.index)


# --- one series -------------------------------------------------------------------------------------------------------


def _series_report(
    verdict: Verdict,
    latest: Envelope,
    jobs: Sequence[Envelope],
    changes: Sequence[Sequence[str]],
    asked: Asked,
) -> SeriesReport:
    metric = verdict.metric
    measured = latest.metrics[metric]
    series = series_of(metric, latest, jobs, asked.night_ends)
    acceptance = asked.references.acceptance(series.test, metric, series.comparability)
    pin = pin_of(series, acceptance)
    level = None
    compared = verdict.compared
    change = verdict.change
    nights = verdict.compared_nights
    if verdict.extent is not None:
        compared = verdict.extent.value
        change = verdict.extent.change
        nights = verdict.extent.nights
    if pin is not None:
        level = pin.level
    return SeriesReport(
        metric=metric,
        unit=measured.unit,
        better=measured.better,
        condition=condition_of(verdict),
        kind=verdict.kind.value,
        value=measured.value,
        value_night=str(asked.night(latest)),
        pin=level,
        compared=compared,
        compared_nights=nights,
        change=change,
        limit=verdict.limit,
        since=iso(verdict.since),
        since_run=verdict.since_run,
        short=verdict.short,
        text=verdict.text,
        where=where_of(verdict, latest),
        why=_why(verdict, latest.platform, asked),
        ticket=_ticket(verdict, asked),
        levels=_levels(series, asked.references),
        points=tuple(_points(metric, jobs, changes, latest, verdict, asked)),
        parts=_parts(verdict, series),
        no_split=series.runs[-1].envelope.no_split or "",
    )


def condition_of(verdict: Verdict) -> Condition:
    """The condition that a verdict means. Whatever is red is slower."""
    return Condition.SLOWER if verdict.red else _CONDITIONS[verdict.kind]


def where_of(verdict: Verdict, latest: Envelope) -> str:
    """On which node a change is, if only that is slow, and in which part of a step."""
    said = []
    if verdict.kind is Kind.NODE and latest.nodes:
        said.append(f"node {' and '.join(latest.nodes)}")
    if verdict.causes is not None and verdict.causes.in_step:
        said.append(verdict.causes.in_step)
    return "; ".join(said)


def _why(verdict: Verdict, platform: str, asked: Asked) -> str:
    if verdict.causes is None or verdict.since is None:
        return ""
    return explained(verdict.causes, platform, verdict.since, asked.references)


def explained(causes: Causes, platform: str, since: datetime.date, references: References) -> str:
    """What changed at the same time as the numbers, and what people have noted of the platform near that night."""
    notes = tuple(references.notes_on(platform, since - NOTE_BEFORE, since + NOTE_AFTER))
    noted = [f"noted on {note.at}: {note.text}" for note in notes]
    if noted and not (causes.changed or causes.seen):
        return "; ".join(noted)
    return "; ".join([causes.provenance("changed at that time"), *noted])


def _ticket(verdict: Verdict, asked: Asked) -> str:
    if verdict.kind is not Kind.ACKNOWLEDGED:
        return ""
    answer = asked.references.acknowledgement(verdict.test, verdict.metric, asked.tonight)
    return "" if answer is None else answer.ticket


def _levels(series: Series, references: References) -> tuple[Level, ...]:
    """The first pin of a series and every level that people have accepted since, each until the next one."""
    found: list[Level] = []
    runs = learned(series)
    if len(runs) == PIN_RUNS:
        level = median([run.value for run in runs])
        said = f"median of the first {PIN_RUNS} runs, {runs[0].night} to {runs[-1].night}"
        found.append(Level(level, str(runs[0].night), None, said))
    for answer in references.acceptances:
        of_series = answer.is_of(series.test, series.metric, series.comparability)
        if of_series and (answer.unit, answer.better) == (series.unit, series.better):
            since = str(answer.since)
            until = str(answer.since - datetime.timedelta(days=1))
            found = [replace(level, to_night=level.to_night or until) for level in found if level.from_night < since]
            said = f"accepted by {answer.author.by} on {answer.author.at.date()}: {answer.reason}"
            found.append(Level(answer.level, since, None, said, is_accepted=True))
    return tuple(found)


def _points(
    metric: str,
    jobs: Sequence[Envelope],
    changes: Sequence[Sequence[str]],
    latest: Envelope,
    verdict: Verdict,
    asked: Asked,
) -> Iterator[Point]:
    last = latest.metrics[metric]
    like, nodes = latest, latest.nodes
    for job, changed in zip(jobs, changes, strict=True):
        value = None
        measured = job.metrics.get(metric)
        if job.sane and measured is not None:
            if measured.unit != last.unit or measured.better != last.better:
                continue  # a number that means something else stands in no picture of this series
            if math.isfinite(measured.value):
                value = measured.value
        if value is not None and job is latest:
            condition, said = condition_of(verdict), verdict.short
        elif value is not None:
            condition, said = _said_then(metric, job)
        elif job.outcome in FAILURES:
            condition, said = Condition.FAILED, job.outcome.value
        else:
            continue
        if job.provenance is not like.provenance:  # else the nodes are the same ones
            like, nodes = job, job.nodes
        yield Point(
            night=str(asked.night(job)),
            started_s=job.time_s,
            run_id=job.key.run_id,
            value=value,
            condition=condition,
            said=said,
            comparable=job.comparability == latest.comparability,
            nodes=nodes,
            doubts=job.doubts,
            changes=tuple(map(with_short_hashes, changed)),
        )


def _said_then(metric: str, job: Envelope) -> tuple[Condition, str]:
    """What the gate said of a run when it was recorded."""
    stored = job.verdicts.get(metric, {})
    kind = stored_kind(stored)
    if kind is None:
        return Condition.LEARNING, "not judged"
    return Condition.SLOWER if stored.get("red") else _CONDITIONS[kind], stored_short(kind, stored)


def _parts(verdict: Verdict, series: Series) -> tuple[Part, ...]:
    """The parts of a step before and since a change; without a change those of the runs before, and of the last one."""
    if verdict.causes is not None and verdict.causes.split is not None:
        split = verdict.causes.split
        return tuple(Part(name, split.before[name], split.after[name]) for name in STEP_PARTS if name in split.after)
    *earlier, run = series.runs
    now = run.envelope.beside
    before = [one.envelope.beside for one in earlier if one.eligible][-RUNS_BEFORE:]
    parts = []
    for name in STEP_PARTS:
        if name in now:
            values = [beside[name].value for beside in before if name in beside]
            level = median(values) if values else None
            parts.append(Part(name, level, now[name].value))
    return tuple(parts)
