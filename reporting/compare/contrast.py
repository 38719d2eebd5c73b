"""Two selections of runs, test by test: the level of each side, and the change between them with its interval.

A session's jobs share its day, so that a session is one value: the median of its jobs. Sides with the same sessions are
compared within these. docs/compare.md explains the rules.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import fmean, median
from typing import Any, Literal

from reporting.compare import interval
from reporting.compare.interval import Interval, change_of
from reporting.history.comparability import asked, differences
from reporting.history.envelope import Envelope
from reporting.phrases import counted, spaced


def values_by_session(runs: Iterable[Envelope], metric: str) -> dict[str, list[float]]:
    """The values of the jobs of each session, by run id."""
    found: dict[str, list[float]] = {}
    for run in runs:
        found.setdefault(run.key.run_id, []).append(run.metrics[metric].value)
    return found


@dataclass(frozen=True)
class Side:
    """The runs of one metric in one selection, in the order of their starts.

    Attributes:
        word: `before` or `after`.
        left_out: comparable runs in doubt.
    """

    word: str
    metric: str
    runs: tuple[Envelope, ...]
    left_out: tuple[Envelope, ...] = ()

    @cached_property
    def sessions(self) -> dict[str, list[float]]:
        """The values of the jobs of each session, by run id."""
        return values_by_session(self.runs, self.metric)

    @cached_property
    def medians(self) -> dict[str, float]:
        """The value of each session."""
        return {run_id: median(values) for run_id, values in self.sessions.items()}

    @cached_property
    def level(self) -> float:
        """The geometric mean of the sessions' values. Of one session it is the median of its jobs."""
        return math.exp(fmean(math.log(value) for value in self.medians.values()))


@dataclass(frozen=True)
class Contrast:
    """One metric of one test in two selections.

    Attributes:
        subject: short words for the test, such as `deepcam, a100-1x4gpu-tuned`.
        tests: its ids before and after; they differ if platforms are compared.
        paired: each session has both sides, and the change is the mean of those within the sessions.
        interval: of the change; None if there are too few sessions.
        why_none: why there is no interval; empty if there is one.
        remarks: what of the selections is left out, and why.
    """

    subject: str
    tests: tuple[str, str]
    metric: str
    unit: str
    better: Literal["higher", "lower"]
    before: Side
    after: Side
    paired: bool
    interval: Interval | None
    why_none: str = ""
    remarks: tuple[str, ...] = ()

    @property
    def change(self) -> float:
        """By how much the level after is away from the level before, as a fraction; negative is worse."""
        return change_of(math.log(self.after.level / self.before.level), self.better)

    @property
    def verdict(self) -> Literal["slower", "faster", "unclear", "no verdict"]:
        """What the interval says. `unclear`: it has 0 in it."""
        return "no verdict" if self.interval is None else self.interval.verdict


@dataclass(frozen=True)
class Contrasts:
    """All tests of two selections. `not_compared` has a sentence for each test, or part of one, without a partner."""

    found: Sequence[Contrast]
    not_compared: Sequence[str]


@dataclass(frozen=True)
class _Matched:
    """The runs of one test in two selections."""

    subject: str
    tests: tuple[str, str]
    before: Sequence[Envelope]
    after: Sequence[Envelope]
    across_platforms: bool


def contrasts(before: Iterable[Envelope], after: Iterable[Envelope]) -> Contrasts:
    """Compare two selections of runs of one site, test by test and metric by metric."""
    both = side_by_side(before, after)
    return replace(both, found=[_with_interval(contrast) for contrast in both.found])


def side_by_side(before: Iterable[Envelope], after: Iterable[Envelope]) -> Contrasts:
    """The same without intervals: what is comparable in two selections."""
    matched, not_compared = _matched(_by_test(before), _by_test(after))
    found: list[Contrast] = []
    for pair in matched:
        for metric in _metrics(pair):
            contrast = _contrast(pair, metric)
            if isinstance(contrast, Contrast):
                found.append(contrast)
            else:
                not_compared.append(contrast)
    return Contrasts(found, not_compared)


# --- which tests belong together -------------------------------------------------------------------------------------


def _by_test(runs: Iterable[Envelope]) -> dict[str, list[Envelope]]:
    found: dict[str, list[Envelope]] = {}
    for run in runs:
        found.setdefault(run.key.test, []).append(run)
    return found


def _matched(
    before: Mapping[str, list[Envelope]], after: Mapping[str, list[Envelope]]
) -> tuple[list[_Matched], list[str]]:
    """Tests with the same id, then those whose ids differ by the name of the platform alone."""
    matched = []
    for test in sorted(before.keys() & after.keys()):
        name = subject_of(test, before[test][0])
        matched.append(_Matched(name, (test, test), before[test], after[test], across_platforms=False))
    old = _by_rest({test: runs for test, runs in before.items() if test not in after})
    new = _by_rest({test: runs for test, runs in after.items() if test not in before})
    alone = []
    for rest in sorted(old.keys() | new.keys()):
        olds = old.get(rest, [])
        news = new.get(rest, [])
        if len(olds) == len(news) == 1:
            first, second = before[olds[0]], after[news[0]]
            name = subject_of(rest, first[0])
            matched.append(_Matched(name, (olds[0], news[0]), first, second, across_platforms=True))
        elif olds and news:
            alone.append(f"{rest}: not compared: several platforms have it: {', '.join([*olds, *news])}")
        else:
            where = "before" if olds else "after"
            alone += [f"{test}: not compared: it ran only {where}" for test in (*olds, *news)]
    subjects = Counter(pair.subject for pair in matched)
    named = [pair if subjects[pair.subject] == 1 else replace(pair, subject=pair.tests[0]) for pair in matched]
    return named, alone


def _by_rest(tests: Mapping[str, list[Envelope]]) -> dict[str, list[str]]:
    """The ids of tests, by what is left of an id without its platform."""
    found: dict[str, list[str]] = {}
    for test, runs in tests.items():
        found.setdefault(test.replace(f"[{runs[0].platform}-", "[", 1), []).append(test)
    return found


def subject_of(test: str, run: Envelope) -> str:
    """Short words for a test: its benchmark, or the name of its function, and what stands in the brackets of its id."""
    _, is_ours, name = test.rpartition("::")
    function, bracket, parameters = name.partition("[")
    if not (is_ours and bracket):
        return test
    return f"{run.benchmark or function.removeprefix('test_')}, {parameters.removesuffix(']')}"


def _metrics(pair: _Matched) -> list[str]:
    return list(dict.fromkeys(name for run in (*pair.before, *pair.after) if run.sane for name in run.metrics))


# --- which runs are comparable ---------------------------------------------------------------------------------------


def _contrast(pair: _Matched, metric: str) -> Contrast | str:
    """The contrast of one metric, or a sentence that says why there is none."""
    before = [run for run in pair.before if run.sane and metric in run.metrics]
    after = [run for run in pair.after if run.sane and metric in run.metrics]
    name = f"{pair.subject}: {spaced(metric)} is not compared:"
    if not before or not after:
        word, runs = ("after", pair.after) if before else ("before", pair.before)
        return f"{name} {word}, no run has it ({_outcomes(runs)})"
    old, new = before[-1], after[-1]
    shared = {_group(run, pair) for run in before} & {_group(run, pair) for run in after}
    if not shared:
        return f"{name} {_differences(_compared(old, pair), _compared(new, pair))}"
    group = _group(next(run for run in reversed(after) if _group(run, pair) in shared), pair)
    unit = next(run for run in reversed(after) if _group(run, pair) == group).metrics[metric]
    sides = [_side(word, metric, runs, group, pair) for word, runs in (("before", before), ("after", after))]
    for side in sides:
        metrics = [run.metrics[metric] for run in side.runs]
        if any((one.unit, one.better) != (unit.unit, unit.better) for one in metrics):
            return f"{name} its unit or its direction has changed"
        if any(one.value <= 0 or not math.isfinite(one.value) for one in metrics):
            return f"{name} a value is not above 0, so that there is no relative change"
    remarks = []
    for side, runs, whole in ((sides[0], before, pair.before), (sides[1], after, pair.after)):
        remarks += _remarks(side, [run for run in runs if _group(run, pair) != group], whole)
    contrast = Contrast(
        pair.subject, pair.tests, metric, unit.unit, unit.better, sides[0], sides[1], paired=False, interval=None
    )
    return replace(contrast, remarks=tuple(remarks))


def _compared(run: Envelope, pair: _Matched) -> dict[str, Any]:
    """The fields in which two runs must agree. Of two platforms it is what was asked for, and where data came from."""
    if not pair.across_platforms:
        return dict(run.fields)
    fields = {name: value for name, value in asked(run.fields).items() if name != "platform"}
    return {**fields, "data_from": run.fields.get("data_from")}


def _group(run: Envelope, pair: _Matched) -> str:
    """Runs of one group are comparable."""
    return str(sorted(_compared(run, pair).items())) if pair.across_platforms else run.comparability


def _side(word: str, metric: str, runs: Sequence[Envelope], group: str, pair: _Matched) -> Side:
    """The comparable runs without doubt; those in doubt where there are no others."""
    comparable = [run for run in runs if _group(run, pair) == group]
    clean = [run for run in comparable if not run.doubts]
    if not clean:
        return Side(word, metric, tuple(comparable))
    return Side(word, metric, tuple(clean), tuple(run for run in comparable if run.doubts))


def _remarks(side: Side, others: Sequence[Envelope], whole: Sequence[Envelope]) -> list[str]:
    """What of a side is left out."""
    remarks = []
    if side.left_out:
        doubts = sorted({doubt for run in side.left_out for doubt in run.doubts})
        remarks.append(f"{side.word}, {_runs_are(side.left_out)} in doubt left out ({', '.join(doubts)})")
    elif any(run.doubts for run in side.runs):
        doubts = sorted({doubt for run in side.runs for doubt in run.doubts})
        remarks.append(f"{side.word}, all runs are in doubt ({', '.join(doubts)})")
    if others:
        what = _differences(side.runs[-1].fields, others[-1].fields)
        remarks.append(f"{side.word}, {_runs_are(others)} not comparable: {what}")
    failed = [run for run in whole if not run.sane]
    if failed:
        remarks.append(f"{side.word}, {_runs_are(failed)} without numbers ({_outcomes(failed)})")
    return remarks


def _differences(one: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    return "; ".join(differences(one, other)) or "they are of different series, whose fields are not recorded"


def _runs_are(runs: Sequence[Envelope]) -> str:
    return counted(len(runs), "run is", "runs are")


def _outcomes(runs: Sequence[Envelope]) -> str:
    return ", ".join(f"{count} {outcome}" for outcome, count in Counter(run.outcome.value for run in runs).items())


# --- the interval ----------------------------------------------------------------------------------------------------


def _with_interval(contrast: Contrast) -> Contrast:
    """Compare within sessions if at least half of the sessions of each side, and two of them, have both sides."""
    before, after = contrast.before, contrast.after
    old, new = before.medians, after.medians
    common = [run_id for run_id in old if run_id in new]
    most = max(len(old), len(new))
    if len(common) >= interval.LEAST and 2 * len(common) >= most:
        logs = [math.log(new[run_id] / old[run_id]) for run_id in common]
        paired = replace(
            contrast,
            before=_of_sessions(before, common),
            after=_of_sessions(after, common),
            paired=True,
            interval=replace(interval.of_pairs(logs), better=contrast.better),
        )
        others = len(old) + len(new) - 2 * len(common)
        if others:
            remark = counted(
                others, "session has one side alone and is left out", "sessions have one side alone and are left out"
            )
            return replace(paired, remarks=(*contrast.remarks, remark))
        return paired
    if min(len(old), len(new)) >= interval.LEAST:
        logs_before = [math.log(value) for value in old.values()]
        logs_after = [math.log(value) for value in new.values()]
        found = interval.of_two_groups(logs_before, logs_after)
        return replace(contrast, interval=replace(found, better=contrast.better))
    if common and most == 1:
        why = "both sides are of one session, which does not say how their difference varies from day to day"
    elif most == 1:
        why = "one session a side cannot tell the change from the day"
    else:
        word = "before" if len(old) == 1 else "after"
        why = f"one session {word} cannot tell the change from the day"
    return replace(contrast, why_none=why)


def _of_sessions(side: Side, run_ids: Sequence[str]) -> Side:
    return replace(side, runs=tuple(run for run in side.runs if run.key.run_id in run_ids))
