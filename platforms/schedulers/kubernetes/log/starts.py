"""What a pod object says of its containers' starts: which have a log, which one is given, and which have ended."""

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
    """A container that has started, once or again. A `run` is one start of it.

    `run` is the one whose log is given, `before` the one that `previous` gives, if any; both by the container's id, or
    by number. `count` is the number of `run`: 0 is the first. `over`: the pod has ended, and nobody has said how
    this container did. `fixed`: it never starts again. `began_s`, `before_began_s`: when `run` and `before` began, in
    whole Unix seconds by the node's clock. `found`: else its node has lost it, and does not say whether it ever ran, or
    which start of it was the last.
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
    began_s: float | None
    before_began_s: float | None
    found: bool = True

    @property
    def key(self) -> str:
        return f"{self.uid}/{self.container}"

    @property
    def name(self) -> str:
        """For people."""
        return f"container {self.container} of pod {self.pod}"


def container_starts(pod: Object) -> Iterator[ContainerStart]:
    """Init containers first. Those that people attach to debug are not the job's."""
    statuses = [*items(pod, "status", "initContainerStatuses"), *items(pod, "status", "containerStatuses")]
    specs = {text(each, "name"): each for key in ("initContainers", "containers") for each in items(pod, "spec", key)}
    alone = (len(specs) or len(statuses)) == 1
    for status in statuses:
        own_policy = text(specs.get(text(status, "name")), "restartPolicy")
        never = (text(pod, "spec", "restartPolicy") or "Never") == "Never" and own_policy in ("", "Never")
        fixed = never or text(pod, "status", "phase") in OVER
        if (seen := _seen(pod, status, alone, fixed)) is not None:
            yield seen


def _seen(pod: Object, status: Object, alone: bool, fixed: bool) -> ContainerStart | None:
    running, ended = dig(status, "state", "running") is not None, mapping(status, "state", "terminated")
    last = mapping(status, "lastState", "terminated")
    count = number(status, "restartCount") or 0
    if not running and not _ran(ended):
        if not last and not _lost(ended):
            return None
        ended, last = last or ended, {}  # between two starts, or for good: the log is that of the last one
    begun = ended or mapping(status, "state", "running")
    return ContainerStart(
        pod=text(pod, "metadata", "name"),
        uid=uid(pod),
        container=text(status, "name"),
        alone=alone,
        run=text(ended, "containerID") or text(status, "containerID") or f"#{count}",
        before=(text(last, "containerID") or f"#{count - 1}") if last else "",
        count=count,
        ended=not running,
        over=text(pod, "status", "phase") in OVER,
        ended_s=timestamp_s(ended, "finishedAt"),
        fixed=fixed,
        began_s=timestamp_s(begun, "startedAt"),
        before_began_s=timestamp_s(last, "startedAt"),
        found=running or not _lost(ended),
    )


def _ran(ended: Object) -> bool:
    """A command that could not be started says that it began in 1970, and has no log."""
    return timestamp_s(ended, "startedAt") is not None


def _lost(ended: Object) -> bool:
    return dig(ended, "reason") == "ContainerStatusUnknown" and not _ran(ended)
