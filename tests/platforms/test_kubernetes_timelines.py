"""What becomes of jobs as a real cluster showed them, whatever we have seen of that: no prefix of what happened, and
no choice of moments at which it was looked at, makes a success of what was none."""

from __future__ import annotations

import itertools

import pytest

from platforms.job import Outcome, State, Status
from tests.platforms.kubernetes_objects import LONG
from tests.platforms.kubernetes_timelines import TIMELINES, Observer, moments, timeline, ways_to_see

DEADLINE = "DeadlineExceeded: Pod was active on the node longer than the specified deadline"
TAKEN = "its pod was deleted while it ran, and the job itself was not: another user or program did it"
JOB_DELETED = "another user or program deleted it: the Job, before it had ended"
ENDS: dict[str, tuple[State, str]] = {
    "deadline-started": (State.TIME_LIMIT, DEADLINE),
    "deadline-unstarted-bad-command": (State.START_DEADLINE, f"{DEADLINE}; until then RunContainerError"),
    "deadline-unstarted-never-pull": (State.START_DEADLINE, f"{DEADLINE}; until then ErrImageNeverPull"),
    "deadline-unstarted-no-volume": (State.START_DEADLINE, f"{DEADLINE}; until then ContainerCreating"),
    "deadline-unstarted-pull-hangs": (State.STARTING, "ContainerCreating"),
    "deadline-unstarted-pull-refused": (State.START_DEADLINE, f"{DEADLINE}; until then ErrImagePull"),
    "deadline-unstarted-slow-pull": (State.START_DEADLINE, f"{DEADLINE}; until then ErrImagePull"),
    "emptydir-sizelimit": (State.SIGNALLED, 'Evicted: Usage of EmptyDir volume "d" exceeds the limit "2Mi".'),
    "ephemeral-limit": (State.SIGNALLED, "Evicted: Pod ephemeral local storage usage exceeds the total limit"),
    "finished-before-started": (State.SUCCEEDED, ""),
    "job-deadline-unstarted-pull-hangs": (State.STARTING, "ContainerCreating"),
    "job-deadline-unstarted-slow-pull": (State.START_DEADLINE, f"{DEADLINE}; until then ErrImagePull"),
    "job-deleted": (State.CANCELLED, JOB_DELETED),
    "job-deleted-foreground": (State.CANCELLED, JOB_DELETED),
    "job-deleted-orphan": (State.CANCELLED, JOB_DELETED),
    "job-deleted-ttl": (State.CANCELLED, JOB_DELETED),  # a TTL deletes only what has ended
    "job-pod-deleted": (State.CANCELLED, TAKEN),
    "job-pod-deleted-at-once": (State.CANCELLED, TAKEN),
    "job-pod-evicted": (State.EVICTED, "EvictionByEvictionAPI: Eviction API: evicting"),
    "job-ttl0-exit0": (State.SUCCEEDED, ""),
    "job-ttl0-exit5": (State.EXITED, "exit code 5"),
    "one-of-two": (State.EXITED, "exit code 7"),
    "pod-deleted-sigkill": (State.CANCELLED, "another user or program deleted it"),
    "pod-deleted-sigterm-exit0": (State.CANCELLED, "another user or program deleted it"),
    "pod-evicted-sigkill": (State.EVICTED, "EvictionByEvictionAPI: Eviction API: evicting"),
    "pod-evicted-sigterm-exit0": (State.EVICTED, "EvictionByEvictionAPI: Eviction API: evicting"),
    "secret-missing-mounted": (State.STARTING, 'FailedMount: MountVolume.SetUp failed for volume "s" : secret'),
    "secret-missing-unmounted": (State.SUCCEEDED, ""),
}
GOOD = [name for name, (state, _words) in ENDS.items() if state is State.SUCCEEDED]
TORN = [name for name in TIMELINES if name.startswith(("pod-deleted", "pod-evicted", "job-pod-", "job-deleted"))]
UNSTARTED = [name for name in TIMELINES if "unstarted" in name]


def test_every_timeline_has_an_end() -> None:
    assert sorted(ENDS) == TIMELINES


@pytest.mark.parametrize("name", TIMELINES)
def test_a_timeline_watched_in_full_ends_in_its_known_state(name: str) -> None:
    state, words = ENDS[name]
    status = Observer(name).watches(len(timeline(name))).judges(lambda _: 0.0).status
    assert status.state is state
    assert words in status.reason
    assert status.run_s is None or status.run_s >= 0


def seen(name: str) -> list[tuple[str, Status]]:
    """Every verdict that can be come to with the longest patience, with how."""
    found = []
    for at, old in itertools.product(moments(name), (False, True)):
        for how, observer in ways_to_see(name, at, old=old):
            for events in (True, False):
                verdict = observer.judges(lambda _: LONG, events=events)
                found.append((f"{how} {at}, {old=}, {events=}", verdict.status))
    return found


@pytest.mark.parametrize("name", [name for name in TIMELINES if name not in GOOD])
@pytest.mark.slow
def test_no_part_of_a_timeline_misleads(name: str) -> None:
    """None looks like a success; what was taken away, or never started, is no failure, and what never ran no signal."""
    verdicts = seen(name)
    outcomes = {Outcome.PASSED, Outcome.FAILED} if name in (*TORN, *UNSTARTED) else {Outcome.PASSED}
    assert [(how, status) for how, status in verdicts if status.state.outcome in outcomes] == []
    if name in UNSTARTED:
        assert [(how, status) for how, status in verdicts if status.signal is not None] == []


@pytest.mark.parametrize("name", GOOD)
def test_a_timeline_succeeds_only_after_its_end(name: str) -> None:
    changes = timeline(name)
    for at in moments(name):
        ended = any("terminated" in str(change.object["status"]) for change in changes[:at] if change.kind == "Pod")
        for how, observer in ways_to_see(name, at):
            passed = observer.judges(lambda _: LONG).status.state.outcome is Outcome.PASSED
            assert passed <= ended, f"{how} {at}"


def test_a_container_with_an_end_before_its_start_ran_for_0_s() -> None:
    name = "finished-before-started"
    status = Observer(name).watches(len(timeline(name))).judges(lambda _: 0.0).status
    assert status.run_s == 0.0
