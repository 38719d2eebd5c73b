"""What people answer to the gate. Each answer says who gave it, when and why."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from reporting.history.same_values import function


@dataclass(frozen=True)
class Author:
    """Who wrote an answer, and when (with its time zone). In CI it is the user who triggered the pipeline."""

    by: str
    at: datetime.datetime


@dataclass(frozen=True)
class Acceptance:
    """A new level of one series, in place of the pin that the gate had.

    Attributes:
        comparability: of the series (reporting/history/comparability.py).
        since: the first night of the new level.
        level: the pin, in the metric's unit.
        error: the standard error of the level, as a fraction of it. The limits of the gate are wider by it.
        scale: of one run, as a fraction of the level: the standard deviation that the old pin had.
        runs: the run ids whose numbers the level is made of, five at least.
        anchor: the level of the series' first pin of all, which no acceptance moves.
        autocorrelation: of neighbouring runs, as the old pin had it; it is kept like the scale.
    """

    test: str
    metric: str
    unit: str
    better: Literal["higher", "lower"]
    comparability: str
    since: datetime.date
    level: float
    error: float
    scale: float
    runs: tuple[str, ...]
    anchor: float
    reason: str
    author: Author
    autocorrelation: float = 0.0

    def is_of(self, test: str, metric: str, comparability: str) -> bool:
        """Whether it is of a series. One whose values are known may have had another id, or no values yet."""
        plain, dash, _ = comparability.partition("-")
        is_moved = bool(dash) and self.comparability == comparability and function(self.test) == function(test)
        is_at_id = self.test == test and self.comparability in (comparability, plain)
        return self.metric == metric and (is_moved or is_at_id)


@dataclass(frozen=True)
class Acknowledgement:
    """A regression that people know of: amber, and red again once it is worse or the day has passed.

    `change` is how much worse than the pin the series was then, as a fraction, negative.
    """

    test: str
    metric: str
    ticket: str
    until: datetime.date
    change: float
    author: Author


@dataclass(frozen=True)
class Note:
    """What happened to a platform that provenance cannot show: firmware, file system, cooling."""

    platform: str
    at: datetime.date
    text: str
    author: Author


@dataclass(frozen=True)
class Pause:
    """Tests that are skipped until a day has passed. `name` is a platform or the id of a test."""

    name: str
    until: datetime.date
    reason: str
    author: Author


@dataclass(frozen=True)
class References:
    """Everything that people have answered at one site.

    `problems` are sentences on answers that cannot be read, each with file and line.

    Two numbers say how strict the gate has to be: how many tests the site judges, and how many false reds a month it
    wants at most (`false_reds_a_month:` of site.yaml).
    """

    acceptances: Sequence[Acceptance] = ()
    acknowledgements: Sequence[Acknowledgement] = ()
    notes: Sequence[Note] = ()
    pauses: Sequence[Pause] = ()
    problems: Sequence[str] = ()
    judged_tests: int = 1
    false_reds_a_month: float = 1.0

    def acceptance(
        self, test: str, metric: str, comparability: str, night: datetime.date = datetime.date.max
    ) -> Acceptance | None:
        """The last acceptance of a series whose level is that of a night; without a night the last one of all."""
        found = [
            answer for answer in self.acceptances if answer.is_of(test, metric, comparability) and answer.since <= night
        ]
        if not found:
            return None
        return found[-1]

    def acknowledgement(self, test: str, metric: str, night: datetime.date) -> Acknowledgement | None:
        """The last acknowledgement of a metric, if it is still valid in that night.

        Earlier ones do not count: the last one may end them before their time.
        """
        found = [answer for answer in self.acknowledgements if (answer.test, answer.metric) == (test, metric)]
        if not found or found[-1].until < night:
            return None
        return found[-1]

    def notes_on(self, platform: str, first: datetime.date, last: datetime.date) -> list[Note]:
        """The notes on a platform from one day to another, both included, in order."""
        found = [note for note in self.notes if note.platform == platform and first <= note.at <= last]
        return sorted(found, key=lambda note: note.at)

    def pause(self, test: str, platform: str, day: datetime.date) -> Pause | None:
        """The pause that a test is under on a day, by its own id or by its platform's name.

        Of each name only the last one counts that was given by then: it may end an earlier one before its time. A pause
        that is given today says nothing of the nights before, so that months that are over stay as they were.
        """
        given = [answer for answer in self.pauses if answer.author.at.astimezone().date() <= day]
        last = {answer.name: answer for answer in given}
        for name in (test, platform):
            if name in last and day <= last[name].until:
                return last[name]
        return None
