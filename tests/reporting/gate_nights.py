"""Histories for tests of the gate: one run a night, in the evening, unless a test says otherwise."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from platforms.job import ONLY, Metric, Outcome, Role, Trial
from reporting.gate.confirmation import Place, Repeat, confirmed, decide
from reporting.gate.judge import judge
from reporting.gate.verdict import Kind, Verdict
from reporting.history.comparability import comparability
from reporting.history.envelope import Envelope, Key
from reporting.history.nights import NOON
from reporting.references.answers import Acceptance, Author, References

TEST = "test_resnet50.py::test_resnet50[eidf_a100-1x4gpu-tuned]"
METRIC = "effective_throughput"
FIRST = datetime.date(2026, 10, 2)
FIELDS = {"benchmark": "resnet50", "layout": "1x4gpu", "device": "A100-SXM4-80GB", "data_from": "storage"}
AUTHOR = Author("ada", datetime.datetime(2026, 11, 20, 9, 0, tzinfo=datetime.UTC))
PLUS_MINUS_ONE = [0.0, 1.0, -1.0, 0.5, -0.5]
"""Percent, five nights; the median is 0, and so is the autocorrelation."""


def failed(number: int, **changes: Any) -> Envelope:
    """A job of a night that has no numbers."""
    values = {"metrics": {}, "sane": False, "outcome": Outcome.FAILED, "verdicts": {}, **changes}
    return run(number, 1.0, **values)


def accepted(since: datetime.date, level: float = 90.0, **changes: Any) -> Acceptance:
    """Five runs at a level have taken the place of a pin of 100."""
    values: dict[str, Any] = {"error": 0.006, "scale": 0.012, "runs": ("a",) * 5, "anchor": 100.0}
    values |= {"comparability": comparability(FIELDS), "reason": "ok", "author": AUTHOR}
    return Acceptance(TEST, METRIC, "samples/s", "higher", since=since, level=level, **{**values, **changes})


def night(number: int) -> datetime.date:
    """The date of a night; the first one is 0."""
    return FIRST + datetime.timedelta(days=number)


def run(number: int, value: float, **changes: Any) -> Envelope:
    """The run of a night at 22:00. The key, `hour`, `unit`, `better` and an envelope's fields may differ."""
    hour = changes.pop("hour", 22.0)
    start = datetime.datetime.combine(night(number), datetime.time()) + datetime.timedelta(hours=hour)
    metric = Metric(value, changes.pop("unit", "samples/s"), changes.pop("better", "higher"))
    run_id = changes.pop("run_id", f"nightly-{number:03}-{hour:g}")
    attempt = changes.pop("attempt", 1)
    site = changes.pop("site", "site")
    test = changes.pop("test", TEST)
    fields = changes.pop("fields", FIELDS)
    trial = changes.get("trial", ONLY)
    values: dict[str, Any] = {
        "revision": 2,
        "written_s": start.timestamp() + 700,
        "outcome": Outcome.PASSED,
        "sane": True,
        "platform": "eidf_a100",
        "started_s": start.timestamp(),
        "metrics": {METRIC: metric},
        "fields": fields,
        "comparability": comparability(fields),
        "verdicts": {METRIC: {"kind": Kind.OK, "red": False}},
        **changes,
    }
    key = Key(site, run_id, test, attempt, f"{number}-{attempt}", start.timestamp() - 60, trial.key)
    return Envelope(key=key, **values)


def nights(count: int, level: float = 100.0, first: int = 0, **changes: Any) -> list[Envelope]:
    """Nights around a level that repeat +0, +1, -1, +.5, -.5 per cent of 100."""
    return [
        run(number, level + PLUS_MINUS_ONE[number % 5] * level / 100, **changes)
        for number in range(first, first + count)
    ]


def verdict_on(
    current: Envelope, past: Sequence[Envelope], references: References | None = None, **options: Any
) -> Verdict:
    """The verdict on a run's only metric."""
    return judge(current, past, references or References(), NOON, **options)[next(iter(current.metrics))]


def replay(
    runs: Sequence[Envelope], references: References | None = None, repeats: Mapping[str, Envelope] | None = None
) -> list[Verdict]:
    """The verdicts on runs one after the other, each stored as the harness stores them.

    Args:
        repeats: of each run, by its id: what confirms it on the same node. None: nothing is repeated.
    """
    past: list[Envelope] = []
    verdicts = []
    for current in runs:
        verdict = verdict_on(current, past, references, repeats_follow=repeats is not None)
        if repeats is not None and verdict.suspect is not None:
            again = Repeat(Trial(Role.CONFIRM, repeat=1), envelope=repeats[current.key.run_id])
            decision = decide({verdict.metric: verdict.suspect}, [again], Place(has_one_node=True))
            verdict = confirmed(verdict, decision.confirmations[verdict.metric])
        verdicts.append(verdict)
        said = {"kind": verdict.kind, "red": verdict.red, "limit": verdict.limit, "level": verdict.level}
        stored = {verdict.metric: said}
        past.append(replace(current, verdicts=stored))
    return verdicts
