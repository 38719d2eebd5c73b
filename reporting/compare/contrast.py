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
from reporting.history.comparability import differences
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
        test: its id.
        paired: each session has both sides, and the change is the mean of those within the sessions.
        interval: of the change; None if there are too few sessions.
        why_none: why there is no interval; empty if there is one.
        remarks: what of the selections is left out, and why.
    """

    subject: str
    test: str
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


def contrasts(before: Iterable[Envelope], after: Iterable[Envelope]) -> Contrasts:
    """Compare two selections of runs of one site, test by test and metric by metric."""
    both = side_by_side(before, after)
    return replace(both, found=[_with_interval(contrast) for contrast in both.found])


def side_by_side(before: Iterable[Envelope], after: Iterable[Envelope]) -> Contrasts:
    """The same without intervals: what is comparable in two selections."""
    old = _by_test(before)
    new = _by_test(after)
    both = sorted(old.keys() & new.keys())
    not_compared = [f"{test}: not compared: it ran only before" for test in sorted(old.keys() - new.keys())]
    not_compared += [f"{test}: not compared: it ran only after" for test in sorted(new.keys() - old.keys())]
    short = {test: subject_of(test, old[test][0]) for test in both}
    subjects = Counter(short.values())
    found: list[Contrast] = []
    for test in both:
        subject = short[test] if subjects[short[test]] == 1 else test
        for metric in dict.fromkeys(name for run in (*old[test], *new[test]) if run.sane for name in run.metrics):
            contrast = _contrast(test, subject, metric, old[test], new[test])
            if isinstance(contrast, Contrast):
                found.append(contrast)
            else:
                not_compared.append(contrast)
    return Contrasts(found, not_compared)


def _by_test(runs: Iterable[Envelope]) -> dict[str, list[Envelope]]:
    found: dict[str, list[Envelope]] = {}
    for run in runs:
        found.setdefault(run.key.test, []).append(run)
    return found


def subject_of(test: str, run: Envelope) -> str:
    """Short words for a test: its benchmark, or the name of its function, and what stands in the brackets of its id."""
    _, is_ours, name = test.rpartition("::")
    function, bracket, parameters = name.partition("[")
    if not (is_ours and bracket):
        return test
    return f"{run.benchmark or function.removeprefix('test_')}, {parameters.removesuffix(']')}"


# --- which runs are comparable ---------------------------------------------------------------------------------------


def _contrast(
    test: str, subject: str, metric: str, all_before: Sequence[Envelope], all_after: Sequence[Envelope]
) -> Contrast | str:
    """The contrast of one metric, or a sentence that says why there is none."""
    before = [run for run in all_before if run.sane and metric in run.metrics]
    after = [run for run in all_after if run.sane and metric in run.metrics]
    name = f"{subject}: {spaced(metric)} is not compared:"
    for word, runs, whole in (("before", before, all_before), ("after", after, all_after)):
        if not runs:
            return f"{name} {word}, no run has it ({_outcomes(whole)})"
    groups = {run.comparability for run in before}
    shared = [run for run in after if run.comparability in groups]
    if not shared:
        return f"{name} {_differences(before[-1].fields, after[-1].fields)}"
    last = shared[-1]
    unit = last.metrics[metric]
    sides = []
    remarks = []
    for word, runs, whole in (("before", before, all_before), ("after", after, all_after)):
        side = _side(word, metric, runs, last.comparability)
        metrics = [run.metrics[metric] for run in side.runs]
        if any((one.unit, one.better) != (unit.unit, unit.better) for one in metrics):
            return f"{name} its unit or its direction has changed"
        if any(one.value <= 0 or not math.isfinite(one.value) for one in metrics):
            return f"{name} a value is not above 0, so that there is no relative change"
        sides.append(side)
        remarks += _remarks(side, [run for run in runs if run.comparability != last.comparability], whole)
    old, new = sides
    return Contrast(
        subject, test, metric, unit.unit, unit.better, old, new, paired=False, interval=None, remarks=tuple(remarks)
    )


def _side(word: str, metric: str, runs: Sequence[Envelope], comparability: str) -> Side:
    """The comparable runs without doubt; those in doubt where there are no others."""
    comparable = [run for run in runs if run.comparability == comparability]
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
