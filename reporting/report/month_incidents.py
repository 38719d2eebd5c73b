"""The incidents of a month: when tests were slower or had no numbers, why, and what people answered."""

from __future__ import annotations

import datetime
import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from statistics import median
from typing import Any

from platforms.job import State, setting_of
from reporting.compare.causes import Causes, ProvenanceChange, causes_of
from reporting.compare.split import INPUT
from reporting.fleet.node_runs import workload_of
from reporting.gate.confirmation import stored_confirmation
from reporting.gate.judge import strictness_of
from reporting.gate.power import CHANCE, NIGHTS, sight_of
from reporting.gate.series import RunValue, Series, pin_of, series_of
from reporting.gate.verdict import Kind
from reporting.history.comparability import differences
from reporting.history.endings import ReadsEnding
from reporting.history.envelope import Envelope
from reporting.history.nights import night_of
from reporting.references.answers import References
from reporting.report.data import Condition
from reporting.report.incidents import NIGHTS_APART
from reporting.report.one_test import FAILURES, NOTE_AFTER, NOTE_BEFORE, RUNS_BEFORE, SIGHT_TRIALS
from reporting.tables.nights import RESTLESS

INPUT_SHARE = 0.5
"""Of a loss: if waiting for data and copies have at least this share of it, the input is the cause."""
SHORT_NIGHTS = 7  # the window of the gate: a loss by chance is red for no longer
STILL_SLOW = (Condition.SLOWER, Condition.ACKNOWLEDGED)
INPUT_STATES = (State.DATA_MISSING.value, State.DATA_CORRUPT.value)


class Cause(StrEnum):
    """Why tests were slower or had no numbers, as far as the history says it."""

    NODE = "node"
    CHANGE = "change of software or machine"
    INPUT = "input or storage"
    FAILED = "failed jobs"
    UNEXPLAINED = "unexplained"


@dataclass(frozen=True)
class MonthIncident:
    """Tests of one platform that changed for one cause at about the same time.

    Attributes:
        begin: the first night of it, which may lie before the month.
        end: the first night in which all of its tests were well again; None if that is not before the month's end.
        tests: ids, the worst first; of_tests: how many tests the platform was asked for in the month.
        worst: the change of the test that lost most, negative; None for jobs that failed, and if no change is known.
        nights: those of the month that had such a run.
        what: `2 of 6 tests 5.1 to 8.4 % slower`, `1 of 6 tests without numbers`.
        why: `changed: driver 570 -> 580`, `node lost (3), time limit (1)`.
        answered: what people have said to it, as `accepted by ada on 2026-11-20`; "" for nothing.
    """

    cause: Cause
    platform: str
    begin: datetime.date
    end: datetime.date | None
    tests: tuple[str, ...]
    of_tests: int
    worst: float | None
    nights: tuple[datetime.date, ...]
    what: str
    why: str
    answered: str
    may_be_chance: bool = False
    """One test had a small loss without any cause, which was soon over without an answer."""


@dataclass(frozen=True)
class Period:
    """The nights of a month until now. `tonight` may lie after the last one."""

    first: datetime.date
    last: datetime.date
    tonight: datetime.date
    night_ends: datetime.time

    def night(self, job: Envelope) -> datetime.date:
        """The night of a job."""
        return night_of(job.time_s, self.night_ends)

    def has(self, night: datetime.date) -> bool:
        return self.first <= night <= self.last


@dataclass
class _Episode:
    """Nights of one test in which it was slower, or had no numbers, until a good night.

    Attributes:
        begin: the night since which it is slower, as the gate said in the end; of failed jobs the first such night.
        before: the last runs with numbers before its begin.
        first_s: when its first run started, if it began in the night of its first red run; else 0.
        during: all runs with numbers from its begin to the last bad night. A drift is red only some nights after it
            has begun, so they are more than the bad ones.
        bad: the runs that were red, or the jobs that failed.
        end: the first good night after it; None if there is none.
        change: the median of its runs in the month from the level before it, as a fraction; negative is worse. None if
            jobs failed, and if it left its series.
        sight: the lasting loss that the gate finds in the series within six nights, 80 times of 100, as a fraction.
            Only a short loss without a cause has it.
    """

    has_failed: bool
    begin: datetime.date
    first_s: float = 0.0
    before: list[Envelope] = field(default_factory=list)
    during: list[Envelope] = field(default_factory=list)
    bad: list[Envelope] = field(default_factory=list)
    end: datetime.date | None = None
    change: float | None = None
    sight: float | None = None

    @property
    def test(self) -> str:
        return self.bad[-1].key.test

    @property
    def platform(self) -> str:
        return self.bad[-1].platform


@dataclass(frozen=True)
class _Explained:
    """An episode with its cause, and the words that say why. `ended_as` counts how jobs without numbers ended."""

    episode: _Episode
    cause: Cause
    why: str
    ended_as: Counter[str] = field(default_factory=Counter)


def spoken_name(job: Envelope) -> str:
    """What people call the test of a job beside its platform: `resnet50 1x4gpu tuned`."""
    return " ".join(filter(None, [workload_of(job), job.layout, setting_of(job.key.test)]))


def incidents_in(
    period: Period,
    jobs: Sequence[Envelope],
    references: References,
    conditions: Mapping[str, Condition],
    ending: ReadsEnding,
) -> tuple[MonthIncident, ...]:
    """The incidents of a period, by cause, then by begin.

    Args:
        jobs: all jobs of a site until the period's last night, in the order of their starts.
        conditions: of the tests at the period's end, with all answers.
        ending: reads how a job without numbers ended.
    """
    of_test: dict[str, list[Envelope]] = {}
    asked: dict[str, set[str]] = {}
    for job in jobs:
        if job.trial.in_series and not job.is_vain_try:
            of_test.setdefault(job.key.test, []).append(job)
            if period.has(period.night(job)):
                asked.setdefault(job.platform, set()).add(job.key.test)
    explained = []
    for test, of_this in of_test.items():
        for episode in _episodes(of_this, period):
            if not any(period.has(period.night(job)) for job in episode.bad):
                continue
            one = _explained(episode, references, ending)
            if not episode.has_failed:
                _measure(one, of_this, references, period)
                if conditions.get(test) not in STILL_SLOW:
                    _end_by_acceptance(episode, references, period)
            explained.append(one)
    found = [
        _incident(group, len(asked[group[0].episode.platform]), period, references) for group in _groups(explained)
    ]
    order = list(Cause)
    return tuple(sorted(found, key=lambda one: (order.index(one.cause), one.begin, one.platform)))


# --- the episodes of one test ----------------------------------------------------------------------------------------


def _episodes(jobs: Sequence[Envelope], period: Period) -> list[_Episode]:
    """A good night ends an episode. Nights without numbers end no slow one: nothing says that it is over."""
    of_night: dict[datetime.date, list[Envelope]] = {}
    for job in jobs:
        of_night.setdefault(period.night(job), []).append(job)
    found: list[_Episode] = []
    good: list[Envelope] = []
    slow: _Episode | None = None
    failed: _Episode | None = None
    for night in sorted(of_night):
        with_numbers = [job for job in of_night[night] if job.has_numbers]
        failures = [job for job in of_night[night] if job.outcome in FAILURES and not job.sane]
        if not with_numbers:
            if failures:
                failed = failed or _begun(found, True, night)
                failed.bad += failures
            continue
        if failed is not None:
            failed.end = night
            failed = None
        if _bad_verdicts(with_numbers[-1]):
            slow = slow or _resumed(found, with_numbers[-1]) or _begun(found, False, night)
            slow.bad += [job for job in with_numbers if _bad_verdicts(job)]
        else:
            if slow is not None:
                slow.end = night
                slow = None
            good += with_numbers
    for episode in found:
        if not episode.has_failed:
            _set_begin_and_runs(episode, jobs, good, period)
    return found


def _begun(found: list[_Episode], has_failed: bool, night: datetime.date) -> _Episode:
    found.append(_Episode(has_failed, night))
    return found[-1]


def _resumed(found: Sequence[_Episode], job: Envelope) -> _Episode | None:
    """The last slow episode, if the gate says of a later slow run that its loss began before that one ended."""
    since = _since(job)
    for episode in reversed(found):
        if not episode.has_failed:
            if episode.end is None or since is None or since > episode.end:
                return None
            episode.end = None
            return episode
    return None


def _set_begin_and_runs(episode: _Episode, jobs: Sequence[Envelope], good: Sequence[Envelope], period: Period) -> None:
    """Set when a slow episode began, and the runs before and since. The gate's last word on that knows the most."""
    since = _since(episode.bad[-1])
    if since is not None:
        episode.begin = min(since, episode.begin)
    if period.night(episode.bad[0]) == episode.begin:
        episode.first_s = episode.bad[0].time_s  # the runs of that night before it are without the loss
    last = period.night(episode.bad[-1])
    episode.during = [
        job
        for job in jobs
        if job.has_numbers and episode.begin <= period.night(job) <= last and job.time_s >= episode.first_s
    ]
    episode.before = [job for job in good if period.night(job) < episode.begin][-RUNS_BEFORE:]


def _since(job: Envelope) -> datetime.date | None:
    """The night since which a run is slower, as the gate said."""
    dates = [str(stored["since"]) for stored in _bad_verdicts(job).values() if stored.get("since")]
    return min(map(datetime.date.fromisoformat, dates), default=None)


def _bad_verdicts(job: Envelope) -> dict[str, Mapping[str, Any]]:
    """The stored verdicts, by metric, that are red or acknowledged: a loss with a ticket is still there."""
    if not job.sane:
        return {}
    return {
        metric: stored
        for metric, stored in job.verdicts.items()
        if stored.get("red") or stored.get("kind") == Kind.ACKNOWLEDGED
    }


def _measure(explained: _Explained, jobs: Sequence[Envelope], references: References, period: Period) -> None:
    """Set how large the loss of a slow episode is, by the metric that lost most, and what the gate finds for sure."""
    episode = explained.episode
    last = episode.bad[-1]
    for metric, stored in _bad_verdicts(last).items():
        if stored.get("kind") == Kind.LEFT:
            continue
        series = series_of(metric, last, jobs, period.night_ends)
        day_before = episode.begin - datetime.timedelta(days=1)
        pin = pin_of(series, references.acceptance(series.test, metric, series.comparability, day_before))
        if pin is None or pin.level == 0:
            changes = _stored_changes(episode, metric)
        else:
            changes = series.changes(_runs_of(explained, series, period), pin.level)
        change = median(changes) if changes else None
        if change is None or (episode.change is not None and episode.change <= change):
            continue  # nothing is known of it, or another metric lost more
        episode.change = change
        if pin is not None and explained.cause is Cause.UNEXPLAINED and _was_short(episode, period):
            strictness = strictness_of(references, len(last.metrics))
            sight = sight_of(series, pin, trials=SIGHT_TRIALS, strictness=strictness)
            episode.sight = None if sight is None else sight.loss()


def _stored_changes(episode: _Episode, metric: str) -> list[float]:
    """What the gate said of the red runs of a series that had no pin yet."""
    stored = [_bad_verdicts(job).get(metric, {}).get("change") for job in episode.bad]
    return [float(change) for change in stored if change is not None]


def _runs_of(explained: _Explained, series: Series, period: Period) -> list[RunValue]:
    """The runs of the month that measure a loss: of a slow node the red ones, else all without doubt since it began."""
    episode = explained.episode
    if explained.cause is Cause.NODE:
        bad_ids = {job.key.run_id for job in episode.bad}
        return [run for run in series.runs if run.run_id in bad_ids and period.has(run.night)]
    begin = max(episode.begin, period.first)
    last = period.night(episode.bad[-1])
    return [
        run
        for run in series.runs
        if run.eligible and begin <= run.night <= last and run.envelope.time_s >= episode.first_s
    ]


def _was_short(episode: _Episode, period: Period) -> bool:
    """Whether it was over within a week of its first red run."""
    return episode.end is not None and (episode.end - period.night(episode.bad[0])).days <= SHORT_NIGHTS


def _end_by_acceptance(episode: _Episode, references: References, period: Period) -> None:
    """End an open loss after its last red run if people have accepted it.

    Only for a test that is no longer slower at the end of the month.
    """
    first = episode.begin - datetime.timedelta(days=NIGHTS_APART)
    night = period.night(episode.bad[-1])
    if episode.end is None and any(
        answer.test == episode.test and first <= answer.since <= night for answer in references.acceptances
    ):
        episode.end = night + datetime.timedelta(days=1)


# --- causes ----------------------------------------------------------------------------------------------------------


def _explained(episode: _Episode, references: References, ending: ReadsEnding) -> _Explained:
    if episode.has_failed:
        counts = Counter(ending(job).state for job in episode.bad)
        is_input = counts.most_common(1)[0][0] in INPUT_STATES
        return _Explained(episode, Cause.INPUT if is_input else Cause.FAILED, "", counts)
    nodes = list(dict.fromkeys(_named_nodes(episode)))
    if nodes:
        return _Explained(episode, Cause.NODE, ", ".join(nodes))
    left = _left(episode)
    if left:
        is_input = all(sentence.startswith("data came from") for sentence in left)
        return _Explained(episode, Cause.INPUT if is_input else Cause.CHANGE, "; ".join(left))
    return _of_change(episode, references)


def _named_nodes(episode: _Episode) -> Iterator[str]:
    """The nodes that repeats have named: `node n07`."""
    for job in episode.bad:
        for stored in _bad_verdicts(job).values():
            found = stored_confirmation(stored)
            if found is not None and found.kind is Kind.NODE:
                yield found.short.partition(":")[0]


def _left(episode: _Episode) -> list[str]:
    """What was measured otherwise than before, if the episode left its series."""
    for job in episode.bad:
        if episode.before and any(stored.get("kind") == Kind.LEFT for stored in _bad_verdicts(job).values()):
            return differences(episode.before[-1].fields, job.fields)
    return []


def _of_change(episode: _Episode, references: References) -> _Explained:
    """The cause that provenance, notes and the parts of a step show."""
    metric = next(iter(_bad_verdicts(episode.bad[0])))
    notes = references.notes_on(episode.platform, episode.begin - NOTE_BEFORE, episode.begin + NOTE_AFTER)
    causes = causes_of(episode.before, episode.during, notes, metric)
    changed = tuple(change for change in causes.changed if _says_something(change, episode))
    split = causes.split
    said = [causes.in_step] if causes.in_step else []
    noted = [f"noted on {note.at}: {note.text}" for note in notes]
    if changed:
        return _Explained(episode, Cause.CHANGE, "; ".join([Causes(None, changed, ()).sentence(), *noted, *said]))
    of_input = 0.0 if split is None else sum(share for name, share in split.shares.items() if name in INPUT)
    if of_input >= INPUT_SHARE:
        return _Explained(episode, Cause.INPUT, "; ".join([*noted, *said]))
    if noted:
        return _Explained(episode, Cause.CHANGE, "; ".join([*noted, *said]))
    return _Explained(episode, Cause.UNEXPLAINED, "; ".join([*said, "nothing that is recorded has changed"]))


def _says_something(change: ProvenanceChange, episode: _Episode) -> bool:
    """Not the nodes, which differ from night to night: only repeats name one. And nothing that changes all the time."""
    before = [job.provenance.get(change.name) for job in episode.before]
    changes = sum(one != other for one, other in itertools.pairwise(before))
    return change.name != "nodes" and changes <= max(1, RESTLESS * len(before))


# --- incidents -------------------------------------------------------------------------------------------------------


def _groups(explained: Sequence[_Explained]) -> list[list[_Explained]]:
    """Episodes of one platform and cause that began at about the same time. All episodes of a node are one incident."""

    def kind(one: _Explained) -> tuple[str, bool, Cause, str]:
        node = one.why if one.cause is Cause.NODE else ""
        return one.episode.platform, one.episode.has_failed, one.cause, node

    groups: list[list[_Explained]] = []
    for one in sorted(explained, key=lambda one: (kind(one), one.episode.begin)):
        if groups and kind(groups[-1][-1]) == kind(one):
            apart = one.episode.begin - groups[-1][-1].episode.begin
            if apart <= datetime.timedelta(days=NIGHTS_APART) or one.cause is Cause.NODE:
                groups[-1].append(one)
                continue
        groups.append([one])
    return groups


def _incident(group: Sequence[_Explained], of_tests: int, period: Period, references: References) -> MonthIncident:
    episodes = [one.episode for one in group]
    changes = _changes(episodes)
    tests = tuple(sorted({episode.test for episode in episodes}, key=lambda test: (changes.get(test, 0.0), test)))
    begin = min(episode.begin for episode in episodes)
    is_open = any(episode.end is None for episode in episodes)
    end = None if is_open else max(episode.end for episode in episodes if episode.end is not None)
    bad_nights = {period.night(job) for episode in episodes for job in episode.bad}
    answered = _answered(tests, episodes[0].platform, begin, end or period.tonight, references)
    may_be_chance = len(group) == 1 and not answered and _is_small(episodes[0])
    why = _why(group)
    if may_be_chance and episodes[0].sight is not None:
        loss = f"{100 * episodes[0].sight:.1f} %"
        why = f"the gate finds a lasting loss of {loss} within {NIGHTS} nights {100 * CHANCE:.0f} times of 100"
    return MonthIncident(
        cause=group[0].cause,
        platform=episodes[0].platform,
        begin=begin,
        end=end,
        tests=tests,
        of_tests=of_tests,
        worst=min(changes.values(), default=None),
        nights=tuple(sorted(night for night in bad_nights if period.has(night))),
        what=_what(episodes, changes, of_tests),
        why=why,
        answered=answered,
        may_be_chance=may_be_chance,
    )


def _is_small(episode: _Episode) -> bool:
    """Whether a loss is below what the gate finds for sure; only a short one without a cause has a `sight`."""
    return episode.change is not None and episode.sight is not None and -episode.change < episode.sight


def _changes(episodes: Sequence[_Episode]) -> dict[str, float]:
    """How much each test has changed; of a test that was slower several times the median."""
    of_test: dict[str, list[float]] = {}
    for episode in episodes:
        if episode.change is not None:
            of_test.setdefault(episode.test, []).append(episode.change)
    return {test: median(changes) for test, changes in of_test.items()}


def _what(episodes: Sequence[_Episode], changes: Mapping[str, float], of_tests: int) -> str:
    tests = len({episode.test for episode in episodes})
    subject = spoken_name(episodes[0].bad[-1]) if tests == 1 else f"{tests} of {of_tests} tests"
    if episodes[0].has_failed:
        return f"{subject} without numbers"
    if not changes:
        return f"{subject} left {'its' if tests == 1 else 'their'} series"
    losses = sorted({f"{100 * max(-change, 0.0):.1f}" for change in changes.values()}, key=float)
    size = losses[0] if len(losses) == 1 else f"{losses[0]} to {losses[-1]}"
    return f"{subject} {size} % slower"


def _why(group: Sequence[_Explained]) -> str:
    """What most of the episodes say; of jobs without numbers how they ended."""
    if not group[0].episode.has_failed:
        return Counter(one.why for one in group).most_common(1)[0][0]
    counts: Counter[str] = Counter()
    for one in group:
        counts += one.ended_as
    return ", ".join(f"{state} ({count})" for state, count in counts.most_common())


def _answered(
    tests: Sequence[str], platform: str, begin: datetime.date, end: datetime.date, references: References
) -> str:
    """What people have said to an incident: accepted levels, tickets and pauses that fall into it."""
    first = begin - datetime.timedelta(days=NIGHTS_APART)
    said: dict[str, set[str]] = {}
    for answer in references.acceptances:
        if answer.test in tests and first <= answer.since <= end:
            text = f"accepted by {answer.author.by} on {answer.author.at.date()}"
            said.setdefault(text, set()).add(answer.test)
    for known in references.acknowledgements:
        if known.test in tests and first <= known.author.at.date() <= end:
            said.setdefault(f"acknowledged until {known.until}: {known.ticket}", set()).add(known.test)
    for pause in references.pauses:
        if pause.name in (platform, *tests) and begin <= pause.author.at.date() <= end and pause.until >= begin:
            said.setdefault(f"paused until {pause.until}: {pause.reason}", set()).update(tests)
    sentences = []
    for text, of_tests in said.items():
        several = "" if len(of_tests) == len(tests) else f" ({len(of_tests)} of {len(tests)} tests)"
        sentences.append(text + several)
    return "; ".join(sentences)
