"""Reads from a pod which of its containers have started, and of which start its kubelet has a log."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from platforms.schedulers.kubernetes.objects.fields import (
    Object,
    dig,
    items,
    mapping,
    number,
    text,
    timestamp_s,
    uid,
)

OVER = ("Succeeded", "Failed")


@dataclass(frozen=True)
class ContainerStart:
    """The last start of a container, and the one before it.

    `run` and `before` name the two, by the container's id or by number. The kubelet gives the log of `run`, and with
    `previous` that of `before`, which may be empty. `count` is the number of `run`; the first is 0. `ended`: `run` has
    ended, at `ended_s`. `over`: the pod has ended, whatever it shows of this container. `fixed`: the container never
    starts again. `began_s`, `before_began_s`: when the two began, by the node's clock. `found`: False if the node has
    lost the container, and does not say whether it ever ran, or which start was the last. `alone`: the pod has no other
    container.
    """

    pod: str
    uid: str
    container: str
    alone: bool
    run: str
    before: str
    count: int
    ended: bool
    over: bool
    ended_s: float | None
    fixed: bool
    began_s: float | None = None
    before_began_s: float | None = None
    found: bool = True

    @property
    def key(self) -> str:
        return f"{self.uid}/{self.container}"

    @property
    def name(self) -> str:
        """The container's name for people."""
        return f"container {self.container} of pod {self.pod}"


def container_starts(pod: Object) -> Iterator[ContainerStart]:
    """Yield the containers that have started, init containers first.

    Ephemeral containers, which people attach to debug, are not the job's and are left out.
    """
    statuses = [*items(pod, "status", "initContainerStatuses"), *items(pod, "status", "containerStatuses")]
    specs = {}
    for key in ("initContainers", "containers"):
        for spec in items(pod, "spec", key):
            specs[text(spec, "name")] = spec
    alone = (len(specs) or len(statuses)) == 1
    pod_is_over = text(pod, "status", "phase") in OVER
    pod_policy = text(pod, "spec", "restartPolicy") or "Never"
    for status in statuses:
        own_policy = text(specs.get(text(status, "name")), "restartPolicy")  # a sidecar's
        never_restarts = pod_policy == "Never" and own_policy in ("", "Never")
        start = _container_start(pod, status, alone, fixed=never_restarts or pod_is_over)
        if start is not None:
            yield start


def _container_start(pod: Object, status: Object, alone: bool, *, fixed: bool) -> ContainerStart | None:
    running = dig(status, "state", "running") is not None
    ended = mapping(status, "state", "terminated")
    last = mapping(status, "lastState", "terminated")
    count = number(status, "restartCount") or 0
    if not running and not _ran(ended):
        if not last and not _is_lost(ended):
            return None
        # It waits for its next start, or it ended for good: the kubelet gives the log of its last start.
        ended = last or ended
        last = {}
    before = ""
    if last:
        before = text(last, "containerID") or f"#{count - 1}"
    return ContainerStart(
        pod=text(pod, "metadata", "name"),
        uid=uid(pod),
        container=text(status, "name"),
        alone=alone,
        run=text(ended, "containerID") or text(status, "containerID") or f"#{count}",
        before=before,
        count=count,
        ended=not running,
        over=text(pod, "status", "phase") in OVER,
        ended_s=timestamp_s(ended, "finishedAt"),
        fixed=fixed,
        began_s=timestamp_s(ended or mapping(status, "state", "running"), "startedAt"),
        before_began_s=timestamp_s(last, "startedAt"),
        found=running or not _is_lost(ended),
    )


def _ran(ended: Object) -> bool:
    """Say whether a terminated container ran. If its command could not be started, its startedAt is in 1970."""
    return timestamp_s(ended, "startedAt") is not None


def _is_lost(ended: Object) -> bool:
    return dig(ended, "reason") == "ContainerStatusUnknown" and not _ran(ended)
