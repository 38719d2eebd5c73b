"""Many tests of a platform are suspect in one session: it is the platform, not a node, and two repeats are enough.

Suspects become known one after the other. Until it is known whether there will be many, two of them may be repeated.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from platforms.job import Role
from reporting.gate.confirmation import (
    Measured,
    NextSteps,
    Place,
    Repeat,
    decide,
    first_repeat,
    is_alike,
    measured,
    named_in_session,
    second_repeat,
    table,
    unknown,
)
from reporting.gate.verdict import Confirmation, Kind, Suspect
from reporting.phrases import counted, percent, spaced

# Two, since a single repeat may meet a slow node by chance. Each more costs as many device-hours as a test.
REPEATED = 2
# A slow node has the tests that ran on it, which are fewer than a third on a platform of several nodes.
SHARE = 1 / 3
LEAST_SUSPECTS = 3


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
        slow_nodes: those of suspects of which nothing is known.
        named: suspects whose node their repeats have named in this session.
    """

    tests: int
    suspects: int
    running: int
    repeated: tuple[TestSoFar, ...]
    slow_nodes: frozenset[str] = frozenset()
    named: tuple[Suspect, ...] = ()

    @property
    def many(self) -> int:
        """From so many suspects on it is the platform."""
        return max(LEAST_SUSPECTS, math.ceil(SHARE * self.tests))


def platform_so_far(tests: Collection[TestSoFar]) -> PlatformSoFar:
    """What the tests of a platform say together."""
    tests = [one for one in tests if not one.unread]
    named = _named_here(tests)
    tests = [_with_named(one, named) for one in tests]
    suspects = [suspect for one in tests for suspect in one.suspects.values()]
    slow_nodes = frozenset(node for suspect in suspects if suspect.known is None for node in suspect.run.nodes)
    return PlatformSoFar(
        tests=len(tests),
        suspects=sum(not _is_known(_with_doubt(one, slow_nodes)) for one in tests if one.suspects),
        running=sum(not one.ended for one in tests),
        repeated=tuple(one for one in tests if one.repeats),
        slow_nodes=slow_nodes,
        named=named,
    )


def _named_here(tests: Sequence[TestSoFar]) -> tuple[Suspect, ...]:
    """The suspects of this session whose nodes their repeats have named."""
    found = []
    for one in tests:
        if one.repeats:
            said = decide(one.suspects, one.repeats, Place()).confirmations
            found += [
                suspect for metric, suspect in one.suspects.items() if _names_all_nodes(said.get(metric), suspect)
            ]
    return tuple(found)


def _names_all_nodes(said: Confirmation | None, suspect: Suspect) -> bool:
    """Whether repeats have named the node; of several nodes a part of them may be meant, which is not asked here."""
    return said is not None and said.kind is Kind.NODE and len(suspect.run.nodes) == 1


def _with_named(one: TestSoFar, named: Sequence[Suspect]) -> TestSoFar:
    """The same test; if nothing of it was repeated, what repeats of other tests say of its node is known."""
    if one.repeats:
        return one
    suspects = {}
    for metric, suspect in one.suspects.items():
        alike = [other for other in named if is_alike(suspect, other)]
        suspects[metric] = suspect
        if alike and suspect.known is None:
            suspects[metric] = dataclasses.replace(suspect, known=named_in_session(suspect, alike[0]))
    return dataclasses.replace(one, suspects=suspects)


def _with_doubt(one: TestSoFar, slow_nodes: frozenset[str]) -> TestSoFar:
    """The same test; what is known of its nodes explains nothing while other nodes of the session are slow too."""
    suspects = {}
    for metric, suspect in one.suspects.items():
        suspects[metric] = suspect
        if slow_nodes - set(suspect.run.nodes):
            suspects[metric] = dataclasses.replace(suspect, known=None)
    return dataclasses.replace(one, suspects=suspects)


def _is_known(one: TestSoFar) -> bool:
    return not one.repeats and all(suspect.known is not None for suspect in one.suspects.values())


def decide_together(own: TestSoFar, platform: PlatformSoFar, place: Place) -> NextSteps:
    """What follows for one suspect test, with regard to the others of its platform."""
    own = _with_doubt(_with_named(own, platform.named), platform.slow_nodes)
    if _is_known(own):
        if platform.running:  # they may show that other nodes are slow, too
            return NextSteps(waits=True)
        return decide(own.suspects, own.repeats, place)
    if platform.suspects + platform.running < platform.many:
        return decide(own.suspects, own.repeats, place)
    second = second_repeat(own.repeats)
    if second is not None:
        return NextSteps((second,), waits=True)
    if not own.repeats and len(platform.repeated) < REPEATED:
        return NextSteps((first_repeat(next(iter(own.suspects.values())), place),), waits=True)
    if platform.suspects < platform.many or any(map(_is_open, platform.repeated)):
        return NextSteps(waits=True)
    return NextSteps(confirmations=_of_platform(own, platform))


def _confirm(one: TestSoFar) -> Repeat:
    return [repeat for repeat in one.repeats if repeat.trial.role is Role.CONFIRM][-1]


def _is_open(one: TestSoFar) -> bool:
    """Whether the repeat of a test has not ended, or another one follows it."""
    return _confirm(one).live or second_repeat(one.repeats) is not None


def sentence(platform: PlatformSoFar) -> str | None:
    """What a session says once of a platform with many suspects.

    None if there are few, if nothing was repeated, or if repeats are live.
    """
    if platform.suspects < platform.many or not platform.repeated or any(map(_is_open, platform.repeated)):
        return None
    slow = [found.slow for found in map(_worst, platform.repeated) if isinstance(found, Measured)]
    how_many = f"{platform.suspects} of {platform.tests} tests are slow"
    if len(slow) == len(platform.repeated) and all(slow):
        return f"{how_many}, and {len(slow)} repeats too: it is the platform, not a node"
    if len(slow) == len(platform.repeated) and not any(slow):
        return f"{how_many}, and {len(slow)} repeats are normal: it is over"
    are_slow = counted(sum(slow), "is slow", "are slow")
    return f"{how_many}, and of {len(platform.repeated)} repeats {are_slow}: it is not known why"


def _of_platform(own: TestSoFar, platform: PlatformSoFar) -> dict[str, Confirmation]:
    """What the two repeats say of a suspect test, whether it is one of the repeated ones or not."""
    repeated = [one for one in platform.repeated if one.suspects]
    found = [_worst(one) for one in repeated]
    slow = [each.slow for each in found if isinstance(each, Measured)]
    said = sentence(platform) or ""
    runs = _tables(own) if own.repeats else [_named(repeated)]
    lines = [f"On this platform {said}.", *runs]
    confirmations = {}
    for metric, suspect in own.suspects.items():
        if not slow or len(slow) < len(found) or len(set(slow)) > 1:
            confirmations[metric] = unknown(suspect, f"on this platform {said}", lines[1:])
        elif slow[0]:
            confirmations[metric] = Confirmation(Kind.SLOWER, True, "the platform, not a node", tuple(lines))
        else:
            short = f"transient: {percent(suspect.change)}, as many tests of the platform"
            confirmations[metric] = Confirmation(Kind.TRANSIENT, False, short, tuple(lines))
    return confirmations


def _named(repeated: Sequence[TestSoFar]) -> str:
    tests = [next(iter(one.suspects.values())).run.key.test for one in repeated]
    return f"Repeated were {' and '.join(tests)}."


def _worst(one: TestSoFar) -> Measured | str:
    """What a repeat says of the metric that it finds worst; a sentence if it says nothing."""
    each = [measured(suspect, _confirm(one)) for suspect in one.suspects.values()]
    found = [one_of for one_of in each if isinstance(one_of, Measured)]
    return min(found, key=lambda run: run.change) if found else "no repeat has numbers"


def _tables(own: TestSoFar) -> list[str]:
    """The runs of a test and its repeat, metric by metric."""
    lines = []
    for suspect in own.suspects.values():
        again = measured(suspect, _confirm(own))
        run = suspect.run
        runs = [Measured("this run", run.nodes, suspect.measured.value, suspect.change, True, run.doubts)]
        said = []
        if isinstance(again, Measured):
            runs.append(again)
        else:
            said.append(f"  {again}")
        heading, *rows = table(suspect, runs)
        lines += [f"{run.key.test}, {spaced(suspect.metric)}: {heading}", *rows, *said]
    return lines
