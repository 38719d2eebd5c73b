"""Pods as they were seen last: what each container did, and what the cluster says of the whole."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from platforms.schedulers.kubernetes.objects.capacity import amounts
from platforms.schedulers.kubernetes.objects.fields import (
    Condition,
    Object,
    conditions,
    items,
    label,
    mapping,
    number,
    text,
    timestamp_s,
    uid,
)
from platforms.schedulers.kubernetes.objects.pod_history import (
    NO_HISTORY,
    PodHistory,
    container_run,
    deletion_requested_s,
)

INDEX = "batch.kubernetes.io/job-completion-index"
_JOB_INDEX = "jobset.sigs.k8s.io/job-index"
_REPLICA_INDEX = "training.kubeflow.org/replica-index"
_REPLICA_TYPE = "training.kubeflow.org/replica-type"
_FIRST = ("master", "launcher", "chief")  # which of a kind's replicas holds rank 0
_NEVER_BEGAN = ("StartError", "ContainerCannotRun", "RunContainerError")
_NOT_FOUND = "ContainerStatusUnknown"  # the kubelet looked for it and found nothing, whether or not it had ever run
_HAD_RUN = "used to be Running"  # what the kubelet says of one that had


@dataclass(frozen=True)
class End:
    """How a container ended. Times are Unix seconds, to the second."""

    exit_code: int | None
    signal: int | None
    reason: str
    message: str
    started_s: float | None
    ended_s: float | None

    @property
    def began(self) -> bool:
        if self.reason == _NOT_FOUND:
            return self.started_s is not None or _HAD_RUN in self.message
        return self.reason not in _NEVER_BEGAN

    @property
    def last_word(self) -> str:
        """What the container itself has left as its termination message."""
        return self.message if self.began and self.reason != _NOT_FOUND else ""

    @property
    def good(self) -> bool:
        return self.exit_code == 0 and self.reason != "OOMKilled"


@dataclass(frozen=True)
class Container:
    """One container. `role` is "init" for those that must end before the others begin, "sidecar" for init containers
    that go on beside them, and "" for the others, which count. `run` names this start of it; `seen_running`: it ran
    when it was seen earlier."""

    name: str
    role: str
    run: str = ""
    image: str = ""
    waiting: str = ""
    message: str = ""
    running: bool = False
    seen_running: bool = False
    started_s: float | None = None
    end: End | None = None
    last: End | None = None
    restarts: int = 0

    @property
    def ran(self) -> bool:
        """Whether its process has ever lived."""
        if self.running or self.seen_running:
            return True
        return any(end is not None and end.began for end in (self.end, self.last))

    @property
    def called(self) -> str:
        return f"{self.role} container {self.name}".lstrip()


@dataclass(frozen=True)
class Pod:
    """One pod. `rank` sorts the pods of a job, the one with rank 0 first; `gone`: it is not there any more. `knew`:
    whether its kubelet knew of its deletion when it last reported; None where it is not being deleted, or the cluster
    does not say."""

    name: str
    uid: str
    rank: tuple[int, ...]
    gone: bool
    phase: str
    reason: str
    message: str
    node: str
    containers: tuple[Container, ...]
    conditions: dict[str, Condition]
    created_s: float | None
    deleted_s: float | None  # when it was first asked to go
    knew: bool | None
    past: PodHistory
    grace_s: float
    once: bool  # containers are not restarted
    gates: tuple[str, ...]
    memory: frozenset[str]  # volumes that are memory
    requests: Mapping[str, float]  # in Kubernetes' own units: cores, bytes, devices

    @property
    def main(self) -> tuple[Container, ...]:
        """The containers that count."""
        return tuple(each for each in self.containers if not each.role)

    @property
    def settled(self) -> bool:
        """The cluster says that it has ended."""
        return self.phase in ("Succeeded", "Failed")

    @property
    def ended(self) -> bool:
        """All of its containers have, and none is started again, whether or not the cluster has noticed."""
        ends = [each.end for each in self.main]
        return self.settled or (bool(ends) and all(end is not None and (self.once or end.good) for end in ends))

    @property
    def succeeded(self) -> bool:
        """By its phase, or by the exit codes of its containers."""
        codes = [each.end.exit_code if each.end else None for each in self.main]
        return self.phase == "Succeeded" or (self.phase != "Failed" and self.ended and not any(codes))

    @property
    def ran(self) -> bool:
        return any(each.ran for each in self.main)

    @property
    def disruption(self) -> Condition | None:
        """What ended it, or is about to, from outside."""
        found = (self.conditions.get(name) for name in ("DisruptionTarget", "TerminationTarget"))
        return next((each for each in found if each is not None and each.true), None)

    @property
    def ready(self) -> bool:
        return "Ready" not in self.conditions or self.conditions["Ready"].true

    @property
    def started_s(self) -> float | None:
        """When the first of its containers began."""
        times = [end.started_s for each in self.main for end in (each.end, each.last) if end is not None]
        times += [each.started_s for each in self.main]
        return min((time for time in times if time is not None), default=None)

    @property
    def ended_s(self) -> float | None:
        """When the last of its containers ended. None for one that never began."""
        times = [each.end.ended_s for each in self.main if each.end and each.end.began]
        return max((time for time in times if time is not None), default=None)


def read(pod: Object, *, gone: bool = False, past: PodHistory = NO_HISTORY) -> Pod:
    """What a pod's object says, and what it said earlier."""
    listed = tuple(_containers(pod, past))
    never = text(pod, "spec", "restartPolicy") == "Never"
    times = [time for time in (past.asked_s, deletion_requested_s(pod)) if time is not None]
    volumes = (each for each in items(pod, "spec", "volumes") if text(each, "emptyDir", "medium") == "Memory")
    return Pod(
        name=text(pod, "metadata", "name"),
        uid=uid(pod),
        rank=_rank(pod),
        gone=gone,
        phase=text(pod, "status", "phase"),
        reason=text(pod, "status", "reason"),
        message=text(pod, "status", "message"),
        node=text(pod, "spec", "nodeName"),
        containers=listed,
        conditions=conditions(pod),
        created_s=timestamp_s(pod, "metadata", "creationTimestamp"),
        deleted_s=min(times, default=None),
        knew=_knew(pod),
        past=past,
        grace_s=float(number(pod, "metadata", "deletionGracePeriodSeconds") or 0),
        once=never,
        gates=tuple(text(gate, "name") for gate in items(pod, "spec", "schedulingGates")),
        memory=frozenset(text(each, "name") for each in volumes),
        requests=_requests(pod),
    )


def _knew(pod: Object) -> bool | None:
    """By the generations, which grow with a deletion (Kubernetes 1.34 and newer): of the pod, and of what its kubelet
    had seen of it when it reported."""
    wanted, reported = number(pod, "metadata", "generation"), number(pod, "status", "observedGeneration")
    if deletion_requested_s(pod) is None or wanted is None or not reported:
        return None
    return reported >= wanted


def _requests(pod: Object) -> Mapping[str, float]:
    """What has only a limit is requested as much."""
    found: Counter[str] = Counter()
    for each in items(pod, "spec", "containers"):
        limits, requests = (amounts(mapping(each, "resources", what)) for what in ("limits", "requests"))
        found.update({**limits, **requests})
    return found


def seen(live: Iterable[Object], gone: Iterable[Object], pasts: Mapping[str, PodHistory]) -> list[Pod]:
    """All pods once, the one with rank 0 first, and of one rank the newest first."""
    found: dict[str, Pod] = {}
    for is_gone, objects in ((False, live), (True, gone)):
        for each in objects:
            pod = read(each, gone=is_gone, past=pasts.get(uid(each), NO_HISTORY))
            found.setdefault(pod.uid or pod.name, pod)
    return sorted(found.values(), key=lambda pod: (pod.rank, pod.gone, -(pod.created_s or 0.0), pod.name))


def _rank(pod: Object) -> tuple[int, ...]:
    role = label(pod, _REPLICA_TYPE).lower()
    indices = (label(pod, _JOB_INDEX), label(pod, INDEX, _REPLICA_INDEX))
    return (0 if role in ("", *_FIRST) else 1, *(int(index) if index.isdecimal() else 0 for index in indices))


def _containers(pod: Object, past: PodHistory) -> Iterator[Container]:
    for part, statuses, usual in (("initContainers", "init", "init"), ("containers", "", "")):
        field = "initContainerStatuses" if statuses else "containerStatuses"
        by_name = {text(each, "name"): each for each in items(pod, "status", field)}
        declared = items(pod, "spec", part) or list(by_name.values())
        for each in declared:
            name = text(each, "name")
            role = "sidecar" if usual and text(each, "restartPolicy") == "Always" else usual
            yield _container(name, role, text(each, "image"), by_name.get(name, {}), past)


def _container(name: str, role: str, image: str, status: Object, past: PodHistory) -> Container:
    state = mapping(status, "state")
    waiting = mapping(state, "waiting")
    if text(state, "terminated", "reason") == _NOT_FOUND and name not in past.started:
        waiting = past.waiting.get(name, {})
    return Container(
        name=name,
        role=role,
        run=container_run(status),
        image=image or text(status, "image"),
        waiting=text(waiting, "reason"),
        message=text(waiting, "message"),
        running="running" in state,
        seen_running=name in past.started,
        started_s=timestamp_s(state, "running", "startedAt"),
        end=_end(mapping(state, "terminated")),
        last=_end(mapping(status, "lastState", "terminated")),
        restarts=number(status, "restartCount") or 0,
    )


def _end(terminated: Object) -> End | None:
    if not terminated:
        return None
    code, sent, reason = number(terminated, "exitCode"), number(terminated, "signal"), text(terminated, "reason")
    number_of_signal = sent or (code - 128 if code is not None and 128 < code <= 192 else None)
    started_s = timestamp_s(terminated, "startedAt")
    ended_s = timestamp_s(terminated, "finishedAt")
    if started_s is not None and ended_s is not None:
        started_s = min(started_s, ended_s)  # containerd dates the start of short containers after their end
    return End(code, number_of_signal, reason, text(terminated, "message"), started_s, ended_s)
