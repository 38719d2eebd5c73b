"""What the gate says of one metric of one run."""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """Every answer of the gate."""

    OK = "ok"
    LEARNING = "learning"
    """The series has no pin yet."""
    SLOWER = "slower"
    """This run is far from the pin (a step)."""
    DRIFTED = "drifted"
    """The last seven nights together are away from the pin."""
    LEFT = "left its series"
    """Something that was measured, such as the device or where the data came from, is not what it was."""
    BLIND = "blind"
    """No eligible run for three nights."""
    ACKNOWLEDGED = "acknowledged"
    """It is worse than the pin, and a person has said so and given a ticket."""
    PAUSED = "paused"
    """A person has paused the test or its platform. No run has this verdict; only tables do."""
    FASTER = "faster"
    """The last seven nights together are better than the pin: a finding."""


@dataclass(frozen=True)
class Verdict:
    """The gate's answer.

    Attributes:
        red: the test fails.
        change: of what was compared, relative to the pin, as a fraction; negative is worse whatever the metric's
            direction. None without a pin.
        limit: the change beyond which it is red, as a positive fraction.
        since: the first night of the change.
        since_run: the run id with which it began, if earlier runs of that night are without it.
        runs: how many runs the pin, or what has been learned of it, consists of.
        pinned: the series has a pin. `--gate=require` needs one.
        blind: there was no eligible run for three nights, whatever the kind. It is red under `--gate=require`.
        anchor_change: of what was compared, relative to the series' first pin of all; only after an acceptance.
        short: for a table's last column: `-10.8 % of 20, slower since 2026-11-17`.
        text: a sentence, and lines with the numbers by which a person can recompute it, what changed in provenance,
            notes, and the commands that answer it. It is the message of a failed test.
    """

    test: str
    metric: str
    kind: Kind
    red: bool
    short: str
    text: str
    change: float | None = None
    limit: float | None = None
    since: datetime.date | None = None
    since_run: str | None = None
    runs: int = 0
    pinned: bool = False
    blind: bool = False
    anchor_change: float | None = None
