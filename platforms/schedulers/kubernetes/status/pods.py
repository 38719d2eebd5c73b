"""Pods as they were seen last: what each container did, what the cluster says of the whole, and how to say it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
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
from platforms.schedulers.kubernetes.objects.node_states import named_nodes
from platforms.schedulers.kubernetes.objects.pod_history import (
    NO_HISTORY,
    PodHistory,
    container_run,
    deletion_requested_s,
)
from platforms.schedulers.kubernetes.status.events import ClusterEvent

COMPLETION_INDEX = "batch.kubernetes.io/job-completion-index"
_JOB_INDEX = "jobset.sigs.k8s.io/job-index"
_REPLICA_INDEX = "training.kubeflow.org/replica-index"
_REPLICA_TYPE = "training.kubeflow.org/replica-type"
_RANK_0_REPLICAS = ("master", "launcher", "chief")  # the replica types of Kubeflow that hold rank 0

NEVER_STARTED = ("StartError", "ContainerCannotRun", "RunContainerError")
_STATUS_UNKNOWN = "ContainerStatusUnknown"  # the kubelet found no container, whether or not one had ever run
_HAD_RUN = "used to be Running"  # the kubelet's message about a container that had run

# Kubelet and container runtime repeat the same error once in each of their layers.
_LAYERS = re.compile(
    r'Back-off pulling image "[^"]*"(: )?|ErrImagePull: |rpc error: code = \w+ desc = |Error response from daemon: |'
    r'failed to (pull and unpack image|resolve reference|pull image) "[^"]*": |Failed to pull image "[^"]*": |'
    r"failed to create containerd task: |failed to create shim task: |OCI runtime create failed: |"
    r"runc create failed: |unable to start container process: |: unknown$",
)


@dataclass(frozen=True)
class ContainerEnd:
    """The end of a container. Times are Unix seconds, to the second."""

    exit_code: int | None
    signal: int | None
    reason: str
    message: str
    started_s: float | None
    ended_s: float | None

    @property
    def has_run(self) -> bool:
        if self.reason == _STATUS_UNKNOWN:
            return self.started_s is not None or _HAD_RUN in self.message
        return self.reason not in NEVER_STARTED

    @property
    def termination_message(self) -> str:
        """The message that the container itself left; empty if the kubelet or the runtime wrote it."""
        if not self.has_run or self.reason == _STATUS_UNKNOWN:
            return ""
        return self.message

    @property
    def successful(self) -> bool:
        return self.exit_code == 0 and self.reason != "OOMKilled"


@dataclass(frozen=True)
class Container:
    """One container.

    `role` is "init" for containers that must end before the others begin, "sidecar" for init containers that run beside
    the others, and "" for main containers. `run` names this start of the container. `was_seen_running` is true if an
    earlier observation showed it running. `previous_end` is how the start before this one ended.
    """

    name: str
    role: str
    run: str = ""
    image: str = ""
    waiting_reason: str = ""
    waiting_message: str = ""
    running: bool = False
    was_seen_running: bool = False
    started_s: float | None = None
    end: ContainerEnd | None = None
    previous_end: ContainerEnd | None = None
    restarts: int = 0

    @property
    def ends(self) -> list[ContainerEnd]:
        return [end for end in (self.end, self.previous_end) if end is not None]

    @property
    def has_run(self) -> bool:
        """True if its process has ever run."""
        return self.running or self.was_seen_running or any(end.has_run for end in self.ends)

    @property
    def title(self) -> str:
        return f"{self.role} container {self.name}".lstrip()


@dataclass(frozen=True)
class Pod:
    """One pod as it was seen last.

    `rank` sorts the pods of a job, the pod of rank 0 first. `gone`: it is not in the cluster any more.
    `kubelet_knew_deletion`: whether the kubelet knew that the pod was being deleted when it last reported; None if the
    pod is not being deleted or the cluster does not say.
    """

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
    deletion_requested_s: float | None  # the first time that its deletion was requested
    kubelet_knew_deletion: bool | None
    history: PodHistory
    grace_s: float
    never_restarts: bool  # restartPolicy: Never
    scheduling_gates: tuple[str, ...]
    memory_volumes: frozenset[str]  # names of emptyDir volumes with medium Memory
    requests: Mapping[str, float]  # in the units of Kubernetes: cores, bytes, devices
    named_nodes: tuple[str, ...]  # the only nodes on which it may run; empty if it names none

    @property
    def main_containers(self) -> tuple[Container, ...]:
        """All containers that are neither init containers nor sidecars."""
        return tuple(container for container in self.containers if not container.role)

    @property
    def running(self) -> bool:
        return any(container.running for container in self.main_containers)

    @property
    def phase_is_final(self) -> bool:
        """True if the cluster says that it has ended."""
        return self.phase in ("Succeeded", "Failed")

    @property
    def ended(self) -> bool:
        """True if all main containers have ended for good, even if the cluster has not noticed yet."""
        if self.phase_is_final:
            return True
        for container in self.main_containers:
            end = container.end
            if end is None:
                return False
            will_restart = not self.never_restarts and not end.successful
            if will_restart:
                return False
        return bool(self.main_containers)

    @property
    def succeeded(self) -> bool:
        """True if its phase says so or, before its phase says anything, the exit codes of its main containers."""
        if self.phase_is_final:
            return self.phase == "Succeeded"
        if not self.ended:
            return False
        return not any(container.end.exit_code for container in self.main_containers if container.end)

    @property
    def has_run(self) -> bool:
        return any(container.has_run for container in self.main_containers)

    @property
    def disruption(self) -> Condition | None:
        """The condition that says what ended the pod, or is about to end it, from outside."""
        for name in ("DisruptionTarget", "TerminationTarget"):
            condition = self.conditions.get(name)
            if condition is not None and condition.true:
                return condition
        return None

    @property
    def ready(self) -> bool:
        return "Ready" not in self.conditions or self.conditions["Ready"].true

    @property
    def started_s(self) -> float | None:
        """The time at which the first of its main containers started."""
        times = []
        for container in self.main_containers:
            times += [container.started_s, *(end.started_s for end in container.ends)]
        return min((time for time in times if time is not None), default=None)

    @property
    def ended_s(self) -> float | None:
        """The time at which the last of its main containers ended. None if none of them ever ran."""
        ends = [container.end for container in self.main_containers if container.end and container.end.has_run]
        return max((end.ended_s for end in ends if end.ended_s is not None), default=None)


# --- reading pods ----------------------------------------------------------------------------------------------------


def read_pods(there: Iterable[Object], gone: Iterable[Object], histories: Mapping[str, PodHistory]) -> list[Pod]:
    """Each pod once: the pod of rank 0 first, and of several pods of one rank the newest first."""
    pods: dict[str, Pod] = {}
    for is_gone, objects in ((False, there), (True, gone)):
        for tree in objects:
            pod = read_pod(tree, gone=is_gone, history=histories.get(uid(tree), NO_HISTORY))
            pods.setdefault(pod.uid or pod.name, pod)
    return sorted(pods.values(), key=lambda pod: (pod.rank, pod.gone, -(pod.created_s or 0.0), pod.name))


def read_pod(tree: Object, *, gone: bool = False, history: PodHistory = NO_HISTORY) -> Pod:
    """Combine what a pod's object says now with what earlier observations of it showed."""
    deletion_times = [time for time in (history.asked_s, deletion_requested_s(tree)) if time is not None]
    memory_volumes = []
    for volume in items(tree, "spec", "volumes"):
        if text(volume, "emptyDir", "medium") == "Memory":
            memory_volumes.append(text(volume, "name"))
    return Pod(
        name=text(tree, "metadata", "name"),
        uid=uid(tree),
        rank=_rank(tree),
        gone=gone,
        phase=text(tree, "status", "phase"),
        reason=text(tree, "status", "reason"),
        message=text(tree, "status", "message"),
        node=text(tree, "spec", "nodeName"),
        containers=(*_init_containers(tree, history), *_main_containers(tree, history)),
        conditions=conditions(tree),
        created_s=timestamp_s(tree, "metadata", "creationTimestamp"),
        deletion_requested_s=min(deletion_times, default=None),
        kubelet_knew_deletion=_kubelet_knew_deletion(tree),
        history=history,
        grace_s=float(number(tree, "metadata", "deletionGracePeriodSeconds") or 0),
        never_restarts=text(tree, "spec", "restartPolicy") == "Never",
        scheduling_gates=tuple(text(gate, "name") for gate in items(tree, "spec", "schedulingGates")),
        memory_volumes=frozenset(memory_volumes),
        requests=_requests(tree),
        named_nodes=named_nodes(tree),
    )


def _rank(tree: Object) -> tuple[int, ...]:
    replica_type = label(tree, _REPLICA_TYPE).lower()
    numbers = []
    for index in (label(tree, _JOB_INDEX), label(tree, COMPLETION_INDEX, _REPLICA_INDEX)):
        numbers.append(int(index) if index.isdecimal() else 0)
    holds_rank_0 = replica_type in ("", *_RANK_0_REPLICAS)
    return (0 if holds_rank_0 else 1, *numbers)


def _kubelet_knew_deletion(tree: Object) -> bool | None:
    # A deletion increases the generation (Kubernetes 1.34 and newer); the kubelet reports the generation that it knows.
    wanted = number(tree, "metadata", "generation")
    reported = number(tree, "status", "observedGeneration")
    if deletion_requested_s(tree) is None or wanted is None or not reported:
        return None
    return reported >= wanted


def _requests(tree: Object) -> Mapping[str, float]:
    total: Counter[str] = Counter()
    for container in items(tree, "spec", "containers"):
        limits = amounts(mapping(container, "resources", "limits"))
        requests = amounts(mapping(container, "resources", "requests"))
        total.update({**limits, **requests})  # a resource with only a limit is requested as much
    return total


def _init_containers(tree: Object, history: PodHistory) -> list[Container]:
    containers = []
    for spec, status in _specs_and_statuses(tree, "initContainers", "initContainerStatuses"):
        role = "sidecar" if text(spec, "restartPolicy") == "Always" else "init"
        containers.append(_container(role, spec, status, history))
    return containers


def _main_containers(tree: Object, history: PodHistory) -> list[Container]:
    pairs = _specs_and_statuses(tree, "containers", "containerStatuses")
    return [_container("", spec, status, history) for spec, status in pairs]


def _specs_and_statuses(tree: Object, in_spec: str, in_status: str) -> list[tuple[Object, Object]]:
    """Pair each container of a pod's spec with its status; without a spec, each status stands for both."""
    statuses = {text(status, "name"): status for status in items(tree, "status", in_status)}
    specs = items(tree, "spec", in_spec) or list(statuses.values())
    return [(spec, statuses.get(text(spec, "name"), {})) for spec in specs]


def _container(role: str, spec: Object, status: Object, history: PodHistory) -> Container:
    name = text(spec, "name")
    state = mapping(status, "state")
    was_seen_running = name in history.started
    waiting = mapping(state, "waiting")
    if text(state, "terminated", "reason") == _STATUS_UNKNOWN and not was_seen_running:
        waiting = history.waiting.get(name, {})  # what it waited for explains more than that it is unknown
    return Container(
        name=name,
        role=role,
        run=container_run(status),
        image=text(spec, "image") or text(status, "image"),
        waiting_reason=text(waiting, "reason"),
        waiting_message=text(waiting, "message"),
        running="running" in state,
        was_seen_running=was_seen_running,
        started_s=timestamp_s(state, "running", "startedAt"),
        end=_end(mapping(state, "terminated")),
        previous_end=_end(mapping(status, "lastState", "terminated")),
        restarts=number(status, "restartCount") or 0,
    )


def _end(terminated: Object) -> ContainerEnd | None:
    if not terminated:
        return None
    exit_code = number(terminated, "exitCode")
    signal = number(terminated, "signal")
    if not signal:
        signal = exit_code - 128 if exit_code is not None and 128 < exit_code <= 192 else None
    started_s = timestamp_s(terminated, "startedAt")
    ended_s = timestamp_s(terminated, "finishedAt")
    if started_s is not None and ended_s is not None:
        started_s = min(started_s, ended_s)  # containerd dates the start of short containers after their end
    return ContainerEnd(exit_code, signal, text(terminated, "reason"), text(terminated, "message"), started_s, ended_s)


# --- describing containers -------------------------------------------------------------------------------------------


def prefix(pod: Pod, container: Container) -> str:
    """Name the container where it is not the only one; else empty."""
    if container.role or len(pod.main_containers) > 1:
        return f"{container.title}: "
    return ""


def without_layers(message: str) -> str:
    """Remove what kubelet and container runtime add to an error in each of their layers."""
    return _LAYERS.sub("", message).strip()


def pull_error(container: Container, events: Sequence[ClusterEvent]) -> str:
    """The message of a waiting container; if it says only that the kubelet backs off, the event that says why."""
    if container.waiting_reason != "ImagePullBackOff" or "ErrImagePull" in container.waiting_message:
        return container.waiting_message
    for event in reversed(events):
        if "Failed to pull image" in event.message and container.image in event.message:
            return event.message
    return container.waiting_message


def waiting_explanation(container: Container, events: Sequence[ClusterEvent]) -> str:
    """Say why a container waits, and name its image if the reason is about the image."""
    message = pull_error(container, events)
    explanation = without_layers(message) or message or container.waiting_reason
    is_about_image = "Image" in container.waiting_reason and container.waiting_reason != "InvalidImageName"
    if not is_about_image:
        return explanation
    quoted = re.search(r'image "([^"]+)"', message)
    image = quoted[1] if quoted else container.image
    return explanation if image in explanation else f"{image}: {explanation}"


def last_waited_for(pod: Pod) -> str:
    """Say what a pod that never ran was waiting for when it was seen last; empty if it was not waiting."""
    for container in pod.containers:
        if container.waiting_reason and container.waiting_message:
            return f"{container.waiting_reason}: {waiting_explanation(container, ())}"
        if container.waiting_reason:
            return container.waiting_reason
    scheduled = pod.conditions.get("PodScheduled")
    if scheduled is None or scheduled.true:
        return ""
    return scheduled.message
