"""What the gate says of one metric of one run."""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from enum import StrEnum

from reporting.compare.causes import Causes
from reporting.history.envelope import Envelope, Metric


class Kind(StrEnum):
    """Every answer of the gate."""

    OK = "ok"
    LEARNING = "learning"
    """The series has no pin yet."""
    SLOWER = "slower"
    """This run is far from the pin (a step)."""
    DRIFTED = "drifted"
    """The last seven nights together are worse than the pin."""
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
    NODE = "node"
    """This run is far from the pin. It is so again on its own nodes, and not on others."""
    TRANSIENT = "transient"
    """This run is far from the pin, and a repeat of it is not."""
    SUSPECT = "suspect"
    """This run is far from the pin, and no repeat says whether that was chance."""


@dataclass(frozen=True)
class Suspect:
    """One run that is far from its pin. The nights before it are not, so a repeat must say whether it was chance.

    Attributes:
        run: what was measured.
        metric: the name of the one that is far from its pin.
        level: what it is compared with, in the metric's unit.
        change: of the run from the level, as a fraction; negative is worse.
        limit: of one run: a repeat is slow if its change is below minus this.
        since: the first night of the slow runs on its own nodes, without a good one in between; None if not known.
        known: what is said of it if nothing is repeated, since repeats have named its nodes before at a loss like this.
        again: the run before it was as far away, and no repeat has cleared it.
    """

    run: Envelope
    metric: str
    level: float
    change: float
    limit: float
    since: datetime.date | None = None
    known: Confirmation | None = None
    again: bool = False

    @property
    def measured(self) -> Metric:
        return self.run.metrics[self.metric]


@dataclass(frozen=True)
class Confirmation:
    """What repeats say of a suspect.

    Attributes:
        kind: slower, node, transient or suspect.
        red: the test fails.
        short: for a table's last column: `node n07: -15.0 % in 3 of 3, n12 normal`.
        lines: sentences, and the runs that they are made of.
    """

    kind: Kind
    red: bool
    short: str
    lines: tuple[str, ...]


@dataclass(frozen=True)
class Extent:
    """How large a change is: all runs without doubt since it began together, since one run says little by itself.

    Reports and tables show it, so that a loss has one size in all of them. The gate itself compares one run or the last
    seven nights; those numbers stand in the verdict's text, and are named there.

    Attributes:
        value: their median, in the metric's unit.
        change: of the value from the pin, as a fraction; negative is worse.
        nights: how many they are of.
    """

    value: float
    change: float
    nights: int


@dataclass(frozen=True)
class Verdict:
    """The gate's answer.

    Attributes:
        red: the test fails.
        change: of what was compared, relative to the pin, as a fraction; negative is worse whatever the metric's
            direction. None without a pin.
        compared: what was compared, in the metric's unit: the run's own value, or the median of the last nights.
        compared_nights: of how many nights together it is the median; 1 for one run.
        limit: the change beyond which it is red, as a positive fraction.
        level: of the pin, in the metric's unit.
        scale: what one run varies by, as a fraction.
        worst: the loss that an acknowledgement is given for, as a fraction; None if nothing is red.
        since: the first night of the change.
        since_run: the run id with which it began, if earlier runs of that night are without it.
        runs: how many runs the pin, or what has been learned of it, consists of.
        pinned: the series has a pin. `--gate=require` needs one.
        blind: there was no eligible run for three nights, whatever the kind. It is red under `--gate=require`.
        extent: how large the change is since it began; None without a pin, or without a change.
        short: for a table's last column: `-10.8 %, slower since 2026-11-17`, the number that of `extent`.
        text: a sentence, and lines with the numbers by which a person can recompute it, what changed in provenance,
            notes, and the commands that answer it. It is the message of a failed test.
        causes: what may explain the change, without people's notes; None if there is none.
        suspect: set if the verdict is red by this run alone, and nothing that was known before makes it sure.
        confirmation: what repeats of the run say.
    """

    test: str
    metric: str
    kind: Kind
    red: bool
    short: str
    text: str
    change: float | None = None
    compared: float | None = None
    compared_nights: int = 1
    limit: float | None = None
    level: float | None = None
    scale: float | None = None
    worst: float | None = None
    since: datetime.date | None = None
    since_run: str | None = None
    runs: int = 0
    pinned: bool = False
    blind: bool = False
    extent: Extent | None = None
    causes: Causes | None = None
    suspect: Suspect | None = None
    confirmation: Confirmation | None = None
