"""Which direction of a metric is good. ReFrame records none, so it is decided here."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from platforms.job import RefusedError

Direction = Literal["higher", "lower"]
DIRECTIONS: Mapping[str, Direction] = {"higher": "higher", "lower": "lower"}

_CLOCK = r"((nano|micro|milli|[nuµμm])?s(ec(ond)?s?)?\.?|min(ute)?s?|h(ou)?r?s?)"
_LONG = r"(days?|d|h(ou)?r?s?)"
_DURATION = rf"({_CLOCK}|{_LONG})"
_SIMULATED = r"([fpnuµμ]s|years?)"  # what a simulation moves on by, as in hour/ns and ns/day
_TIME = re.compile(rf"(?i){_CLOCK}(/(?!{_DURATION}$).+)?|(s|{_LONG})/{_SIMULATED}")  # also of work, as in s/step
_NAMED_RATE = r"[kmgtpe]?(flops|iops|i?b(it|yte)?ps|teps|[lg]?ups)|[kmgtpe]ops|[fqt]ps"
_RATE = re.compile(rf"(?i)(?!{_DURATION}/).*/{_DURATION}|{_SIMULATED}/{_LONG}|{_NAMED_RATE}")
_PER_DEVICE = re.compile(r"(?i)/(gpu|cpu|device|accelerator|chip|node|socket|core|rank|process|task)s?$")
_BRACKETED = re.compile(r"(?i)^(?:t|time|latency)?\s*[\[(](.+)[\])]$")  # as in t[usec]
# These are no work. More of them in a second is not better, and a longer time from one to the next is not worse.
_COST = r"cost|joule|watt|\b(usd|eur|[kmg]?(j|wh?))\b|[$€°]"
_TROUBLE = r"err|fail|miss|fault|drop|los[st]|retr(ans|y|ies)|stall|abort|timeout|crash|interrupt|conflict|throttl"
_NO_WORK = re.compile(rf"(?i){_COST}|{_TROUBLE}")


@dataclass(frozen=True)
class MetricName:
    """A metric of a check. All tests that the check is parametrised into share its direction."""

    check: str
    metric: str
    unit: str


@dataclass(frozen=True)
class Decision:
    """Which direction is good, and why. None as direction means that a person must say it."""

    direction: Direction | None
    reason: str


@dataclass(frozen=True)
class Said:
    """What the user has typed: `--better METRIC=lower` or, for one check alone, `--better CHECK:METRIC=lower`."""

    words: Mapping[str, Direction] = field(default_factory=dict)

    @classmethod
    def parse(cls, words: Sequence[str]) -> Said:
        """Read the values of `--better`. Raises RefusedError."""
        said: dict[str, Direction] = {}
        for word in words:
            name, _, direction = word.rpartition("=")
            if not name or direction not in DIRECTIONS:
                raise RefusedError(f"--better={word}: write METRIC=lower or METRIC=higher, as in latency=lower")
            said[name] = DIRECTIONS[direction]
        return cls(said)

    def of(self, name: MetricName) -> Direction | None:
        return self.words.get(f"{name.check}:{name.metric}", self.words.get(name.metric))

    def unknown(self, names: Iterable[MetricName]) -> list[str]:
        """The words that fit no metric."""
        fitting = {word for name in names for word in (name.metric, f"{name.check}:{name.metric}")}
        return [word for word in self.words if word not in fitting]


def decide(name: MetricName, alone: Collection[str], said: Direction | None, before: Direction | None) -> Decision:
    """Decide one metric.

    Args:
        alone: which bounds, `lower` and `upper`, a reference of the metric ever had without the other one.
        said: what the user has typed.
        before: the direction with which the history already has this metric. It stays, so that a series is one series.
    """
    if said is not None:
        return Decision(said, "as --better says")
    if before is not None:
        return Decision(before, "as imported before")
    if set(alone) == {"lower"}:
        return Decision("higher", "its reference has only a lower bound")
    if set(alone) == {"upper"}:
        return Decision("lower", "its reference has only an upper bound")
    unit = _PER_DEVICE.sub("", _BRACKETED.sub(r"\1", re.sub(r"\s*(\bper\b|/)\s*", "/", name.unit.strip())))
    if not _NO_WORK.search(unit):
        if _TIME.fullmatch(unit):
            return Decision("lower", "its unit is a time")
        if _RATE.fullmatch(unit):
            return Decision("higher", "its unit is a rate")
    return Decision(None, "neither its references nor its unit say it")
