"""Many tests of a platform are suspect in one session: it is the platform, not a node, and two repeats are enough.

Suspects become known one after the other. Until it is known whether there will be many, two of them may be repeated.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from platforms.job import Role
from reporting.gate.confirmation import (
    Decision,
    Measured,
    Place,
    Repeat,
    decide,
    first_repeat,
    measured,
    table,
    unknown,
)
from reporting.gate.verdict import Confirmation, Kind, Suspect

REPEATED = 2
LEAST_SUSPECTS = 3
SHARE = 1 / 3


@dataclass(frozen=True)
class TestSoFar:
    """What is known of a test of the platform in this session.

    Attributes:
        ended: it is known whether its run is suspect. A run that has failed is none.
        suspects: by metric; empty for a run that is normal.
        repeats: of the run, in the order in which they were begun.
        unread: only the test's body, which has not run, can say whether it is suspect. Such a test is not counted.
    """

    __test__ = False  # for pytest, which takes it for a test class

    ended: bool
    suspects: Mapping[str, Suspect]
    repeats: Sequence[Repeat] = ()
    unread: bool = False


@dataclass(frozen=True)
class PlatformSoFar:
    """What is known of all tests of a platform in this session.

    Attributes:
        tests, suspects: how many there are.
        running: how many of them are not known yet.
        repeated: the suspect ones of which a repeat was begun, in this session or before it was resumed.
    """

    tests: int
    suspects: int
    running: int
    repeated: tuple[TestSoFar, ...]

    @property
    def many(self) -> int:
        """From so many suspects on it is the platform."""
        return max(LEAST_SUSPECTS, math.ceil(SHARE * self.tests))


def platform_so_far(tests: Collection[TestSoFar]) -> PlatformSoFar:
    """What the tests of a platform say together."""
    tests = [one for one in tests if not one.unread]
    return PlatformSoFar(
        tests=len(tests),
        suspects=sum(bool(one.suspects) for one in tests),
        running=sum(not one.ended for one in tests),
        repeated=tuple(one for one in tests if one.repeats),
    )


def decide_together(own: TestSoFar, platform: PlatformSoFar, place: Place) -> Decision:
    """What follows for one suspect test, with regard to the others of its platform."""
    if platform.suspects + platform.running < platform.many:
        return decide(own.suspects, own.repeats, place)
    if not own.repeats and len(platform.repeated) < REPEATED:
        return Decision((first_repeat(next(iter(own.suspects.values())), place),), waits=True)
    if platform.suspects < platform.many or any(_confirm(one).live for one in platform.repeated):
        return Decision(waits=True)
    return Decision(confirmations=_of_platform(own, platform))


def _confirm(one: TestSoFar) -> Repeat:
    return next(repeat for repeat in one.repeats if repeat.trial.role is Role.CONFIRM)


def _of_platform(own: TestSoFar, platform: PlatformSoFar) -> dict[str, Confirmation]:
    """What the two repeats say of a suspect test, whether it is one of the repeated ones or not."""
    repeated = platform.repeated
    worst = [_worst(one) for one in repeated]
    found = [each for each in worst if isinstance(each, Measured)]
    how_many = f"{platform.suspects} of {platform.tests} tests of the platform are slow"
    confirmations = {}
    for metric, suspect in own.suspects.items():
        if len(found) == len(worst) and all(each.slow for each in found):
            said = f"the platform, not a node: {how_many}, and {len(found)} repeats too"
            confirmations[metric] = Confirmation(Kind.SLOWER, True, said, (f"It is {said}.", *_tables(repeated)))
        elif len(found) == len(worst) and not any(each.slow for each in found):
            said = f"transient: {how_many}, and {len(found)} repeats are normal"
            confirmations[metric] = Confirmation(Kind.TRANSIENT, False, said, (f"It is {said}.", *_tables(repeated)))
        else:
            why = f"{how_many}, and of {len(worst)} repeats {sum(each.slow for each in found)} is slow"
            confirmations[metric] = unknown(suspect, why, _tables(repeated))
    return confirmations


def _worst(one: TestSoFar) -> Measured | str:
    """What a repeat says of the metric that it finds worst; a sentence if it says nothing."""
    each = [measured(suspect, _confirm(one)) for suspect in one.suspects.values()]
    found = [one_of for one_of in each if isinstance(one_of, Measured)]
    return min(found, key=lambda run: run.change) if found else str(each[0])


def _tables(repeated: Sequence[TestSoFar]) -> list[str]:
    """The repeated runs and their repeats, with the ids of their tests."""
    lines = []
    for one in repeated:
        for suspect in one.suspects.values():
            again = measured(suspect, _confirm(one))
            run = suspect.run
            runs = [Measured("this run", run.nodes, suspect.measured.value, suspect.change, True, run.doubts)]
            heading, *rows = table(suspect, [*runs, *([again] if isinstance(again, Measured) else [])])
            lines += [f"{run.key.test}, {suspect.metric.replace('_', ' ')}: {heading}", *rows]
            if isinstance(again, str):
                lines.append(f"  {again}")
    return lines
