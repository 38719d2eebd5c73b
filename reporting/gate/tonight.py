"""What the gate says of a test tonight: its latest run may be old, and people may have paused it."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Sequence

from platforms.job import Outcome
from reporting.gate.judge import BLIND_NIGHTS, judge
from reporting.gate.series import CALM, series_of
from reporting.gate.verdict import Kind, Verdict
from reporting.history.envelope import Envelope
from reporting.history.nights import night_of
from reporting.phrases import counted, spaced
from reporting.references.answers import Pause, References


def judge_tonight(
    latest: Envelope,
    past: Sequence[Envelope],
    references: References,
    night_ends: datetime.time,
    now: datetime.datetime,
    *,
    options: str = "",
) -> dict[str, Verdict]:
    """The verdicts of `judge` on the latest run of a test, unless the series is blind by now, or paused.

    A series is blind after three nights without a run without doubt. Tonight is not one of them: it is not over.

    Args:
        latest: the last run of the test that has numbers.
        past: all jobs of the test, also those that have failed since.
        now: the present time. The other arguments are those of `judge`.
    """
    tonight = night_of(now.timestamp(), night_ends)
    verdicts = judge(latest, past, references, night_ends, options=options, tonight=tonight)
    pause = references.pause(latest.key.test, latest.platform, now.date())
    if pause is not None:
        return {metric: _paused(verdict, pause) for metric, verdict in verdicts.items()}
    return {
        metric: _blind(verdict, _last_night(metric, latest, past, night_ends), past, night_ends, tonight)
        for metric, verdict in verdicts.items()
    }


def _paused(verdict: Verdict, pause: Pause) -> Verdict:
    short = f"paused until {pause.until}: {pause.reason}"
    text = f"{verdict.test}: {short} ({pause.author.by})\n{verdict.text}"
    return dataclasses.replace(verdict, kind=Kind.PAUSED, red=False, blind=False, short=short, text=text)


def _last_night(metric: str, latest: Envelope, past: Sequence[Envelope], night_ends: datetime.time) -> datetime.date:
    """The last night with an eligible run; the one before the first run if no run is eligible."""
    runs = series_of(metric, latest, past, night_ends).runs
    nights = [run.night for run in runs if run.eligible]
    return nights[-1] if nights else runs[0].night - datetime.timedelta(days=1)


def _blind(
    verdict: Verdict,
    last: datetime.date,
    past: Sequence[Envelope],
    night_ends: datetime.time,
    tonight: datetime.date,
) -> Verdict:
    nights = (tonight - last).days - 1
    if nights < BLIND_NIGHTS:
        return verdict
    since = last + datetime.timedelta(days=1)
    failed = [
        run
        for run in past
        if run.outcome in (Outcome.FAILED, Outcome.ERROR) and not run.sane and night_of(run.time_s, night_ends) >= since
    ]
    said = f"blind since {since}: no run without doubt for {nights} nights"
    if failed:
        said += f" ({counted(len(failed), 'failed run')} since)"
    if verdict.kind in CALM:
        text = f"{verdict.test}: {spaced(verdict.metric)} is {said}\n{verdict.text}"
        return dataclasses.replace(verdict, kind=Kind.BLIND, blind=True, short=said, text=text)
    first, *rest = verdict.text.split("\n")
    text = "\n".join([first, f"The series is {said}.", *rest])
    return dataclasses.replace(verdict, blind=True, short=f"{verdict.short}; blind since {since}", text=text)
