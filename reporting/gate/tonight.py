"""What the gate says of a test tonight: its latest run may be old, and people may have paused it."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Sequence

from reporting.gate.judge import judge
from reporting.gate.verdict import Kind, Verdict
from reporting.history.envelope import Envelope
from reporting.history.nights import night_of
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
    """The verdicts of `judge` on the latest run of a test as of now, unless the test is paused.

    Args:
        latest: the last run of the test that has numbers.
        past: all jobs of the test.
        now: the present time. The other arguments are those of `judge`.
    """
    tonight = night_of(now.timestamp(), night_ends)
    verdicts = judge(latest, past, references, night_ends, options=options, tonight=tonight)
    pause = references.pause(latest.key.test, latest.platform, now.date())
    if pause is None:
        return verdicts
    return {metric: _paused(verdict, pause) for metric, verdict in verdicts.items()}


def _paused(verdict: Verdict, pause: Pause) -> Verdict:
    short = f"paused until {pause.until}: {pause.reason}"
    text = f"{verdict.test}: {short} ({pause.author.by})\n{verdict.text}"
    return dataclasses.replace(verdict, kind=Kind.PAUSED, red=False, blind=False, short=short, text=text)
