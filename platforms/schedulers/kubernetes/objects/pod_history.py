"""What earlier sights of a pod have shown that its last one does not show any more.

The kubelet ends the deletion of a pod with a DELETE of its own, which overwrites the time at which the pod was first
asked to go; and a container that the kubelet cannot find any more loses the time at which it started. So each sight of
a pod leaves here what a later one may lack. The order of sights is that of the API server, so it needs no clocks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from platforms.schedulers.kubernetes.objects.fields import (
    Object,
    items,
    mapping,
    number,
    text,
    timestamp_s,
)


@dataclass(frozen=True)
class PodHistory:
    """What is known of one pod beside its last sight. `asked_s`: when it was first asked to go, in Unix seconds.

    `started`: names of containers that had started. `waiting`: what each container waited for when it was last seen to
    wait, as in its state. `ended_by_itself`: runs of containers (run_of) that had ended before the pod was asked to
    go. `stopped`: runs that still went on afterwards.
    """

    asked_s: float | None = None
    started: frozenset[str] = frozenset()
    waiting: Mapping[str, Object] = field(default_factory=dict)
    ended_by_itself: frozenset[str] = frozenset()
    stopped: frozenset[str] = frozenset()


NO_HISTORY = PodHistory()


def with_observation(past: PodHistory, pod: Object) -> PodHistory:
    """The same, and what this sight of the pod shows, in whatever order sights come."""
    asked_s = deletion_requested_s(pod)
    deleted = asked_s is not None
    running: set[str] = set()
    ended: set[str] = set()
    started: set[str] = set()
    waiting: dict[str, Object] = {}
    for status in _statuses(pod):
        name, state = text(status, "name"), mapping(status, "state")
        if "running" in state:
            running.add(container_run(status))
            started.add(name)
        if "terminated" in state:
            ended.add(container_run(status))
        if "waiting" in state:
            waiting[name] = mapping(state, "waiting")
    times = [time for time in (past.asked_s, asked_s) if time is not None]
    return PodHistory(
        asked_s=min(times, default=None),
        started=past.started | started,
        waiting={**past.waiting, **waiting},
        ended_by_itself=past.ended_by_itself if deleted else past.ended_by_itself | ended,
        stopped=past.stopped | running if deleted else past.stopped,
    )


def deletion_requested_s(pod: Object) -> float | None:
    """When the deletion of an object was asked for, as the object itself says: its deletionTimestamp is when its grace
    will have passed. None for an object that is not being deleted."""
    due_s = timestamp_s(pod, "metadata", "deletionTimestamp")
    if due_s is None:
        return None
    return due_s - float(number(pod, "metadata", "deletionGracePeriodSeconds") or 0)


def container_run(status: Object) -> str:
    """One start of one container, from its status."""
    return f"{text(status, 'name')}#{number(status, 'restartCount') or 0}"


def _statuses(pod: Object) -> Iterator[Object]:
    for kind in ("initContainerStatuses", "containerStatuses"):
        yield from items(pod, "status", kind)
