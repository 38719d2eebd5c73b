"""The history of a site becomes a `ReportData`."""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Sequence
from typing import Literal

from platforms.job import Outcome, RefusedError
from reporting.compare.scaling import scalings
from reporting.fleet.node_runs import node_runs
from reporting.fleet.nodes import Standing, records_of
from reporting.history.endings import ReadsEnding, by_outcome
from reporting.history.envelope import Envelope
from reporting.history.nights import night_of
from reporting.phrases import plain
from reporting.references.answers import Author, References
from reporting.report.data import (
    SCHEMA,
    Condition,
    MonthReport,
    NodeReport,
    NoteReport,
    PlatformReport,
    ReportData,
    TestReport,
    iso,
)
from reporting.report.incidents import incidents_of
from reporting.report.month import month_report, period_of
from reporting.report.one_test import URGENCY, Asked, BuiltTest, built_test
from reporting.report.totals import Totals, totals_by
from reporting.tables.history_rows import by_test

MOST_NAMED = 4  # of platforms: the headline must fit on a telephone
NOT_COMPARED = frozenset({Condition.LEARNING, Condition.BLIND, Condition.FAILED, Condition.PAUSED})
MANY_BLIND = 0.1
"""Of the tests: a headline about slower ones tells of blind ones only if they are more."""


def build(
    envelopes: Sequence[Envelope],
    references: References,
    site: str,
    night_ends: datetime.time,
    now: datetime.datetime,
    problems: Sequence[str] = (),
    *,
    options: str = "",
    made_at: datetime.datetime | None = None,
    ending: ReadsEnding = by_outcome,
    month: datetime.date | None = None,
    totals: Totals | None = None,
) -> ReportData:
    """A report of some tests of a site.

    Args:
        envelopes: all jobs of these tests, of this site alone, in the order of their starts. Those that visit nodes may
            be missing if there are `totals`, and no month is told.
        references: what people have answered.
        site: its name.
        night_ends: the hour at which its nights end.
        now: the time for which the report speaks.
        problems: what could not be read of the history.
        made_at: the present time, if it is another one.
        options: what the commands in the verdicts' texts need, such as `--site=centre`.
        ending: reads how a job without numbers ended.
        month: any day of the month that is to be told, too.
        totals: of all jobs, if they are known.

    Raises:
        RefusedError: no job of these tests is in a series.
    """
    asked = Asked(references, night_ends, now, options, ending)
    totals = totals or totals_by(envelopes)
    nodes = _nodes(totals, asked)
    tests = _built(envelopes, totals, nodes, asked)
    if not tests:
        if all(job.is_vain_try or job.outcome is Outcome.SKIPPED for job in envelopes):
            raise RefusedError(
                "these jobs are of tests that cannot run there, as their platforms' files say, and `--try-unsupported` "
                "has tried them in vain"
            )
        raise RefusedError(
            "these jobs are of campaigns, visits or A/B runs, which are in no series, so there is nothing to report "
            "(`python -m reporting compare LABEL LABEL` compares those with --label)"
        )
    reports = tuple(test.report for test in tests)
    first = night_of(totals.first_s, night_ends)
    return ReportData(
        schema=SCHEMA,
        site=site,
        made_at=(made_at or now).astimezone().isoformat(timespec="seconds"),
        night=str(asked.tonight),
        first_night=str(first),
        headline=headline(reports, nodes),
        incidents=incidents_of(tests, nodes, asked),
        conditions=_counted(reports),
        platforms=_platforms(tests, totals, asked),
        tests=reports,
        nodes=nodes,
        notes=_notes(reports, first, asked),
        problems=(*problems, *references.problems),
        month=None if month is None else _month(site, month, envelopes, asked),
        scalings=tuple(scalings([job for job in envelopes if job.trial.in_series])),
    )


def _built(envelopes: Sequence[Envelope], totals: Totals, nodes: Sequence[NodeReport], asked: Asked) -> list[BuiltTest]:
    """The tests of these jobs, in the order of a report. One whose jobs were all skipped has nothing to report."""
    slow_nodes: dict[str, dict[str, NodeReport]] = {}
    for node in nodes:
        if node.standing == Standing.SLOW:
            slow_nodes.setdefault(node.platform, {})[node.name] = node
    tests = []
    for test, jobs in by_test(envelopes).items():
        if any(job.outcome is not Outcome.SKIPPED for job in jobs):
            hours = totals.device_hours.get(test, 0.0)
            tests.append(built_test(jobs, hours, slow_nodes.get(jobs[-1].platform, {}), asked))
    return sorted(tests, key=lambda test: _place(test.report))


def _month(site: str, month: datetime.date, envelopes: Sequence[Envelope], asked: Asked) -> MonthReport:
    """A month, by the jobs until its last night: what came later says nothing of it."""
    period, at_its_end = period_of(month, asked)
    jobs = [job for job in envelopes if asked.night(job) <= period.last]
    totals = totals_by(jobs)
    tests = _built(jobs, totals, _nodes(totals, at_its_end), at_its_end)
    return month_report(site, period, tests, jobs, at_its_end)


def headline(tests: Sequence[TestReport], nodes: Sequence[NodeReport] = ()) -> str:
    """The answer in one sentence: `3 of 60 tests are slower, on eidf_a100 and archer2; 1 has failed`."""
    slower = [test for test in tests if test.condition is Condition.SLOWER]
    if slower:
        verb = "is" if len(slower) == 1 else "are"
        said = [f"{len(slower)} of {len(tests)} tests {verb} slower, on {_named(slower)}"]
    elif all(test.condition in NOT_COMPARED for test in tests):
        said = ["Nothing can be said of the speed yet", *_slow_nodes(nodes)]
    else:
        said = ["No test is slower", *_slow_nodes(nodes)]
    said += _failed(tests)
    for condition in (Condition.ACKNOWLEDGED, Condition.BLIND, Condition.LEARNING, Condition.PAUSED):
        count = sum(test.condition is condition for test in tests)
        is_many = condition is Condition.BLIND and count > MANY_BLIND * len(tests)
        is_told = not slower or condition is Condition.ACKNOWLEDGED or is_many
        if count and is_told:
            said.append(f"{count} {condition}")
    return "; ".join(said)


def _slow_nodes(nodes: Sequence[NodeReport]) -> list[str]:
    names = [node.name for node in nodes if node.standing == Standing.SLOW]
    if len(names) == 1:
        return [f"{names[0]} is a slow node"]
    return [f"{_list(names)} are slow nodes"] if names else []


def _failed(tests: Sequence[TestReport]) -> list[str]:
    """`deepcam on archer2 has failed`, `3 have failed, on archer2 and eidf_a100`."""
    failed = [test for test in tests if test.condition is Condition.FAILED]
    if not failed:
        return []
    if len(failed) == 1:
        return [f"{failed[0].workload} on {failed[0].platform} has failed"]
    return [f"{len(failed)} have failed, on {_named(failed)}"]


def _named(tests: Sequence[TestReport]) -> str:
    """The platforms of some tests, those with most of them first."""
    return _list([name for name, _count in Counter(test.platform for test in tests).most_common()])


def _list(names: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b, c and 3 more`."""
    if len(names) > MOST_NAMED:
        return f"{', '.join(names[: MOST_NAMED - 1])} and {len(names) - MOST_NAMED + 1} more"
    return " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))


def _place(test: TestReport) -> tuple[str, str, str, str]:
    return test.platform, test.workload, test.setting, test.id


def _counted(tests: Sequence[TestReport]) -> dict[str, int]:
    counts = Counter(test.condition for test in tests)
    return {condition.value: counts[condition] for condition in URGENCY if counts[condition]}


def _platforms(tests: Sequence[BuiltTest], totals: Totals, asked: Asked) -> tuple[PlatformReport, ...]:
    found = []
    for name in sorted({test.report.platform for test in tests}):
        reports = [test.report for test in tests if test.report.platform == name]
        pause = asked.references.pause("", name, asked.now.date())
        paused = ""
        if pause is not None:
            paused = f"until {pause.until}: {pause.reason}"
        devices = Counter(report.device for report in reports if report.device)
        found.append(
            PlatformReport(
                name=name,
                tests=len(reports),
                conditions=_counted(reports),
                device=next((device for device, _count in devices.most_common(1)), None),
                device_hours=sum(report.device_hours for report in reports),
                last_night=str(night_of(totals.last_s[name], asked.night_ends)),
                paused=paused,
            )
        )
    return tuple(found)


def _nodes(totals: Totals, asked: Asked) -> tuple[NodeReport, ...]:
    """The nodes of each platform that were measured alone, beside its other nodes."""
    return tuple(
        NodeReport(
            platform=platform,
            name=record.name,
            runs=len(record.runs),
            standing=record.standing.value,
            deviation=record.deviation,
            error=record.error,
            last_night=str(record.runs[-1].night),
            suspicions=record.suspicions,
            slow_since=iso(record.slow_since),
            said=record.sentence,
        )
        for platform, jobs in sorted(totals.node_jobs.items())
        for record in records_of(node_runs(jobs, asked.night_ends)).values()
    )


def _notes(tests: Sequence[TestReport], first: datetime.date, asked: Asked) -> tuple[NoteReport, ...]:
    """What people have said of these tests and their platforms since the first night, in order of the nights."""
    names = {test.id for test in tests} | {test.platform for test in tests}
    references = asked.references
    found = [_note("note", note.platform, note.at, note.text, note.author) for note in references.notes]
    for answer in references.acceptances:
        text = f"{answer.metric.replace('_', ' ')} {plain(answer.level, 6)} {answer.unit}: {answer.reason}"
        found.append(_note("accept", answer.test, answer.since, text, answer.author))
    for known in references.acknowledgements:
        text = f"{known.metric.replace('_', ' ')} {100 * known.change:+.1f} % until {known.until}: {known.ticket}"
        found.append(_note("ack", known.test, known.author.at.date(), text, known.author))
    for pause in references.pauses:
        text = f"until {pause.until}: {pause.reason}"
        found.append(_note("pause", pause.name, pause.author.at.date(), text, pause.author))
    chosen = [note for note in found if note.subject in names and note.night >= str(first)]
    return tuple(sorted(chosen, key=lambda note: note.night))


def _note(
    kind: Literal["note", "accept", "ack", "pause"], subject: str, night: datetime.date, text: str, author: Author
) -> NoteReport:
    return NoteReport(str(night), kind, subject, text, author.by, str(author.at.date()))
