"""What earlier observations of a pod showed that its last one does not show any more.

The kubelet ends the deletion of a pod with a DELETE of its own, which overwrites the time at which the deletion was
first requested. A container that the kubelet cannot find any more loses the time at which it started. So each
observation of a pod leaves here what a later one may lack. Observations come in the order of the API server, so that
no clocks are needed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from platforms.schedulers.kubernetes.objects.fields import Object, items, mapping, number, text, timestamp_s


@dataclass(frozen=True)
class PodHistory:
    """Facts about a pod that its last observation may not show.

    asked_s:         when its deletion was first requested, in Unix seconds
    started:         the names of containers that had started
    waiting:         by the name of a container, what it waited for when it last waited, as in its state
    ended_by_itself: the runs of containers (container_run) that had ended before the deletion was requested
    stopped:         the runs of containers that still went on afterwards
    """

    asked_s: float | None = None
    started: frozenset[str] = frozenset()
    waiting: Mapping[str, Object] = field(default_factory=dict)
    ended_by_itself: frozenset[str] = frozenset()
    stopped: frozenset[str] = frozenset()


NO_HISTORY = PodHistory()


def with_observation(history: PodHistory, pod: Object) -> PodHistory:
    """Add what one observation of the pod shows. Observations may come in any order."""
    running: set[str] = set()
    ended: set[str] = set()
    started: set[str] = set()
    waiting: dict[str, Object] = {}
    for status in [*items(pod, "status", "initContainerStatuses"), *items(pod, "status", "containerStatuses")]:
        name = text(status, "name")
        state = mapping(status, "state")
        if "running" in state:
            running.add(container_run(status))
            started.add(name)
        if "terminated" in state:
            ended.add(container_run(status))
        if "waiting" in state:
            waiting[name] = mapping(state, "waiting")
    asked_s = deletion_requested_s(pod)
    times = [time for time in (history.asked_s, asked_s) if time is not None]
    being_deleted = asked_s is not None
    return PodHistory(
        asked_s=min(times, default=None),
        started=history.started | started,
        waiting={**history.waiting, **waiting},
        ended_by_itself=history.ended_by_itself if being_deleted else history.ended_by_itself | ended,
        stopped=history.stopped | running if being_deleted else history.stopped,
    )


def deletion_requested_s(tree: Object) -> float | None:
    """The time at which an object's deletion was requested, as the object says; None if it is not being deleted."""
    # The deletionTimestamp is the time at which the grace period will have passed.
    due_s = timestamp_s(tree, "metadata", "deletionTimestamp")
    if due_s is None:
        return None
    return due_s - float(number(tree, "metadata", "deletionGracePeriodSeconds") or 0)


def container_run(status: Object) -> str:
    """Name one start of one container, from its status: `benchmark#0`."""
    return f"{text(status, 'name')}#{number(status, 'restartCount') or 0}"
