"""Writes histories with whole run.json's, for tests of what shows them."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from harness.history_entries import as_stored
from platforms.job import Outcome
from reporting.gate.judge import judge
from reporting.history.envelope import Envelope
from reporting.history.nights import NOON
from reporting.history.reader import read
from reporting.history.run_facts import envelope_of
from reporting.history.writer import HistoryWriter
from reporting.references.answers import References
from tests.reporting.run_json import gpu_run

FIRST = datetime.datetime(2026, 10, 1, 22, 0)
REST: Mapping[str, Any] = {  # of a run.json
    "state": "succeeded",
    "reason": "",
    "exit_code": 0,
    "signal": None,
    "events": [],
    "problems": [],
    "error": None,
}


def record(folder: Path, night: int, rate: float, sane: bool = True, **changes: Any) -> Envelope:
    """Write the run of a night, with the gate's verdict. `changes` are of its run.json, as in `gpu_run`."""
    started_s = (FIRST + datetime.timedelta(days=night)).timestamp()
    window = {"samples": 4000, "steps": 50, "wall_s": 4000 / rate, "stall_s": 200 / rate, "compute_s": 3800 / rate}
    window["stall_h2d_s"] = 50 / rate
    numbers = {"effective_throughput": rate, "compute_throughput": rate / 0.95, "compute_fraction": 0.95}
    times = {"submitted_s": started_s - 60, "started_s": started_s, "ended_s": started_s + 100}
    content = gpu_run(**{**REST, "windows": [window, window], **numbers, **times, **changes})
    envelope = envelope_of(
        content,
        site="site",
        run_id=f"nightly-{night:03}",
        attempt=1,
        outcome=Outcome.PASSED if sane else Outcome.ERROR,
        sane=sane,
        revision=3,
        written_s=started_s + 200,
    )
    if sane:
        verdicts = judge(envelope, read(folder, {envelope.key.test}), References(), NOON)
        envelope = replace(envelope, verdicts=as_stored(verdicts))
    return HistoryWriter(folder, clock=lambda: started_s).write(envelope, content)


def record_nights(folder: Path, count: int, level: float = 400.0, first: int = 0, **changes: Any) -> None:
    """Write nights around a level that repeat +0, +1, -1, +.5, -.5 per cent."""
    for night in range(first, first + count):
        record(folder, night, level * (1 + (0.0, 1.0, -1.0, 0.5, -0.5)[night % 5] / 100), **changes)
