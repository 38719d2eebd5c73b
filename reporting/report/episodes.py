"""The episodes of a test: when it was slower or had no numbers, from the first such night until a good one.

Page, month and comment are made of these alone. An episode that lasts until tonight is told by the verdict of tonight.
One that is over is judged again as its last run was, with the answers that counted before it, so that its size, its
begin and what had changed are found by the same code, also for a night of last year.
"""

from __future__ import annotations

import datetime
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from platforms.job import State
from reporting.compare.causes import Causes
from reporting.compare.split import INPUT
from reporting.gate.judge import judge
from reporting.gate.verdict import Kind, Verdict
from reporting.history.endings import Ending
from reporting.history.envelope import Envelope
from reporting.report.data import Cause, Condition, date_of
from reporting.report.one_test import FAILURES, NOTE_AFTER, NOTE_BEFORE, Asked, BuiltTest, where_of
from reporting.tables.history_rows import stored_verdicts

TOLD = (Condition.SLOWER, Condition.FAILED, Condition.SUSPECT, Condition.ACKNOWLEDGED)
NIGHTS_APART = datetime.timedelta(days=2)
"""The first night of a change is an estimate, exact within two nights nine times of ten (docs/gate.md)."""
INPUT_SHARE = 0.5
"""Of a loss: if waiting for data and copies have at least this share of it, the input is the cause."""
NOT_FAILED = Ending("")
INPUT_STATES = (State.DATA_MISSING.value, State.DATA_CORRUPT.value)


@dataclass(frozen=True)
class Episode:
    """Nights in which a test was slower, suspect or without numbers.

    Attributes:
        condition: SLOWER, FAILED, SUSPECT or ACKNOWLEDGED, as of its last night.
        since: the first night; None if it is not known. until: the first good one after it; None while it lasts.
        metric: what is slower; "" if it has no numbers.
        change: how large the loss is; None if it has no numbers, and without a pin.
        short: the verdict in a few words. has_left: it is not slower than anything, since something that was measured
            is not what it was.
        where: in which part of a step, and on which node.
        causes: what has changed at the same time.
        nodes: those of its last run, if repeats have shown that only they are slow.
        ticket: of people who know of it.
        ending: how the last job without numbers ended. failed_on: its nodes.
    """

    test: BuiltTest
    condition: Condition
    since: datetime.date | None
    until: datetime.date | None = None
    metric: str = ""
    change: float | None = None
    short: str = ""
    has_left: bool = False
    where: str = ""
    causes: Causes | None = None
    nodes: tuple[str, ...] = ()
    ticket: str = ""
    ending: Ending = NOT_FAILED
    failed_on: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """`resnet50 1x4gpu tuned`."""
        return self.test.named(self.metric)

    def cause(self, asked: Asked) -> Cause:
        """Why it was, as far as the history and people's notes say it."""
        if self.condition is Condition.FAILED:
            return Cause.INPUT if self.ending.state in INPUT_STATES else Cause.FAILED
        if self.nodes:
            return Cause.NODE
        if self.has_left:
            return Cause.INPUT if "data came from" in self.short else Cause.CHANGE
        if self.causes is None or self.since is None:
            return Cause.UNEXPLAINED
        if any(self._explains(change.name) for change in self.causes.changed):
            return Cause.CHANGE
        split = self.causes.split
        if split is not None and sum(split.shares.get(name, 0.0) for name in INPUT) >= INPUT_SHARE:
            return Cause.INPUT
        platform = self.test.report.platform
        if asked.references.notes_on(platform, self.since - NOTE_BEFORE, self.since + NOTE_AFTER):
            return Cause.CHANGE
        return Cause.UNEXPLAINED

    def _explains(self, name: str) -> bool:
        """Not the nodes: they differ from night to night, so only repeats name one. And nothing that is restless."""
        return name != "nodes" and name not in self.test.restless


def open_episode(test: BuiltTest) -> Episode | None:
    """What is to be told of a test tonight, by its most urgent series."""
    report = test.report
    if report.condition not in TOLD:
        return None
    if report.condition is Condition.FAILED:
        ending = Ending(report.failed_as, report.failed_why)
        return Episode(test, Condition.FAILED, date_of(report.failed_since), ending=ending, failed_on=report.failed_on)
    series = next(one for one in report.series if one.condition is report.condition)
    nodes: tuple[str, ...] = ()
    if series.kind == Kind.NODE:
        nodes = series.points[-1].nodes
    return Episode(
        test,
        report.condition,
        date_of(series.since or series.value_night),
        metric=series.metric,
        change=series.change,
        short=series.short,
        has_left=series.kind == Kind.LEFT,
        where=series.where,
        causes=test.verdicts[series.metric].causes,
        nodes=nodes,
        ticket=series.ticket,
    )


def episodes_since(test: BuiltTest, first: datetime.date, asked: Asked) -> Iterator[Episode]:
    """The episodes of a test that were not over in a night. A single suspect run is none: nothing says that it is slow.

    A test that is paused, or that is slower and fails, may have one that is open and not told tonight.
    """
    tonight = open_episode(test)
    if tonight is not None and tonight.condition is Condition.SUSPECT:
        tonight = None
    for stretch in _stretches(test, asked):
        if stretch.until is not None and stretch.until <= first:
            continue
        has_failed = tonight is not None and tonight.condition is Condition.FAILED
        if tonight is not None and stretch.until is None and stretch.has_failed is has_failed:
            yield tonight
            tonight = None
        elif stretch.has_failed:
            last = stretch.bad[-1]
            ending = asked.ending(last)
            yield Episode(test, Condition.FAILED, stretch.begin, stretch.until, ending=ending, failed_on=last.nodes)
        else:
            yield _judged_again(stretch, test, asked)
    if tonight is not None:  # the gate says it for the first time: its last run was recorded without a verdict
        yield tonight


@dataclass
class _Stretch:
    """Nights without a good one between them. `bad` are the runs that were red, or the jobs that failed."""

    begin: datetime.date
    has_failed: bool
    bad: list[Envelope] = field(default_factory=list)
    until: datetime.date | None = None


def _stretches(test: BuiltTest, asked: Asked) -> list[_Stretch]:
    """A good night ends a stretch. Nights without numbers end no slow one: nothing says that it is over."""
    found: list[_Stretch] = []
    slow: _Stretch | None = None
    failed: _Stretch | None = None
    for night, of_night in itertools.groupby(test.jobs, asked.night):
        jobs = list(of_night)
        with_numbers = [job for job in jobs if job.has_numbers]
        failures = [job for job in jobs if job.outcome in FAILURES and not job.sane]
        if not with_numbers:
            if failures:
                if failed is None:
                    failed = _Stretch(night, has_failed=True)
                    found.append(failed)
                failed.bad += failures
            continue
        if failed is not None:
            failed.until = night
            failed = None
        last = with_numbers[-1]  # of several runs in a night the last one says how the night ended
        if not _losses(last):
            if slow is not None:
                slow.until = night
                slow = None
            continue
        if slow is None:
            slow = _resumed(found, last)
        if slow is None:
            slow = _Stretch(night, has_failed=False)
            found.append(slow)
        slow.bad.append(last)
        slow.begin = min([slow.begin, *_begins(last)])
    if slow is not None and not _lasts(test):  # people have accepted it since
        slow.until = asked.night(slow.bad[-1]) + datetime.timedelta(days=1)
    return found


def _losses(job: Envelope) -> list[Verdict]:
    """What was red when a run was recorded, or acknowledged: a loss with a ticket is still there."""
    if not job.sane:
        return []
    return [verdict for verdict in stored_verdicts(job).values() if verdict.red or verdict.kind is Kind.ACKNOWLEDGED]


def _begins(job: Envelope) -> list[datetime.date]:
    """The first nights of what was red, as the gate said: a drift is red only some nights after it has begun."""
    return [verdict.since for verdict in _losses(job) if verdict.since is not None]


def _resumed(found: Sequence[_Stretch], job: Envelope) -> _Stretch | None:
    """The last slow stretch, if the gate says of a later red run that its loss began before that one ended."""
    for stretch in reversed(found):
        if not stretch.has_failed:
            begins = _begins(job)
            if stretch.until is None or not begins or min(begins) > stretch.until:
                return None
            stretch.until = None
            return stretch
    return None


def _lasts(test: BuiltTest) -> bool:
    """Whether what was red when the last run was recorded is so tonight, with all answers."""
    kinds = {verdict.kind for verdict in test.verdicts.values()}
    is_red = any(verdict.red for verdict in test.verdicts.values())
    return is_red or Kind.ACKNOWLEDGED in kinds or Kind.PAUSED in kinds


def _judged_again(stretch: _Stretch, test: BuiltTest, asked: Asked) -> Episode:
    """A slow stretch as the gate saw its last run. An acceptance since then would say that nothing was slower."""
    last = stretch.bad[-1]
    references = asked.references
    # An answer may date the new level two nights early, as the gate's estimate of the first night may be.
    before = [answer for answer in references.acceptances if answer.since < stretch.begin - NIGHTS_APART]
    references = replace(references, acceptances=before, acknowledgements=())
    judged = judge(last, test.jobs, references, asked.night_ends)
    losses = [verdict for verdict in judged.values() if verdict.red]
    then = _losses(last)
    if not losses:  # the limits of the site are wider by now, since it judges more tests
        losses = then
    verdict = min(losses, key=_size)
    condition = Condition.SLOWER
    if all(loss.kind is Kind.ACKNOWLEDGED for loss in then):
        condition = Condition.ACKNOWLEDGED
    nodes: tuple[str, ...] = ()
    if verdict.kind is Kind.NODE:
        nodes = last.nodes
    return Episode(
        test,
        condition,
        stretch.begin,
        stretch.until,
        metric=verdict.metric,
        change=_size(verdict),
        short=verdict.short,
        has_left=verdict.kind is Kind.LEFT,
        where=where_of(verdict, last),
        causes=verdict.causes,
        nodes=nodes,
    )


def _size(verdict: Verdict) -> float:
    """How large a loss is; 0 where nothing says it."""
    if verdict.extent is not None:
        return verdict.extent.change
    return verdict.change or 0.0
