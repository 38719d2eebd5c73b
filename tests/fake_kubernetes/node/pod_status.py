"""Computes the status of a pod from the states of its containers. Pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tests.fake_kubernetes.store.trees import Tree, timestamp

if TYPE_CHECKING:
    from tests.fake_kubernetes.node.container_start import ContainerProcess

NEVER = "1970-01-01T00:00:00Z"
OF_POD = {"observedGeneration": 1, "lastProbeTime": None}  # further fields of a pod's conditions


@dataclass
class PodContainer:
    """One container of a pod, over all its restarts."""

    spec: Tree
    initial: bool = False
    state: Tree = field(default_factory=lambda: {"waiting": {"reason": "ContainerCreating"}})
    last: Tree = field(default_factory=dict)
    restarts: int = 0
    image_id: str = ""
    id: str = ""  # containerd://…
    busy: bool = False  # a start is under way or scheduled
    process: ContainerProcess | None = None  # while the runtime runs it

    @property
    def name(self) -> str:
        return str(self.spec["name"])

    @property
    def running(self) -> bool:
        return "running" in self.state

    @property
    def exit_code(self) -> int | None:
        """None while it has not ended."""
        return self.state["terminated"]["exitCode"] if "terminated" in self.state else None

    def wait(self, reason: str, message: str = "") -> None:
        self.state = {"waiting": {"reason": reason, **({"message": message} if message else {})}}


def container_status(container: PodContainer) -> Tree:
    status: Tree = {
        "name": container.name,
        "state": container.state,
        "lastState": container.last,
        "ready": container.running,
    }
    if container.initial:
        status["ready"] = container.exit_code == 0
    status |= {"restartCount": container.restarts, "image": container.spec["image"], "imageID": container.image_id}
    if container.id:
        status["containerID"] = container.id
    status["started"] = container.running
    return status


def phase_of(containers: Sequence[PodContainer], policy: str) -> str:
    """Compute the phase from container states as the kubelet does, without regard to what still runs."""
    initial = [container for container in containers if container.initial]
    if any(container.exit_code not in (None, 0) for container in initial) and policy == "Never":
        return "Failed"
    if any(container.exit_code != 0 for container in initial):
        return "Pending"
    main = [container for container in containers if not container.initial]
    if any("waiting" in container.state and not container.last for container in main):
        return "Pending"
    if any(container.running for container in main) or policy == "Always":
        return "Running"
    if all(container.exit_code == 0 for container in main):
        return "Succeeded"
    return "Failed" if policy == "Never" else "Running"


def conditions(containers: Sequence[PodContainer], phase: str, old: Iterable[Tree]) -> list[Tree]:
    """Return the five conditions of every pod and those of others (DisruptionTarget), with transition times kept."""
    before = {condition["type"]: condition for condition in old}
    over = phase in ("Succeeded", "Failed")
    ended = {"Succeeded": {"reason": "PodCompleted"}, "Failed": {"reason": "PodFailed"}}.get(phase, {})
    unready = [container.name for container in containers if not container.initial and not container.running]
    why = {"reason": "ContainersNotReady", "message": f"containers with unready status: [{' '.join(unready)}]"}
    ready = {"status": "False", **(ended or why)} if unready or over else {"status": "True"}
    initial = [container.name for container in containers if container.initial and container.exit_code != 0]
    initialised: Tree = {"status": "True", **({"reason": "PodCompleted"} if phase == "Succeeded" else {})}
    if initial:
        message = f"containers with incomplete status: [{' '.join(initial)}]"
        initialised = {"status": "False", "reason": "ContainersNotInitialized", "message": message}
    # the sandbox is up once a container has got anywhere, even to an image that cannot be pulled
    up = any(
        container.state.get("waiting", {}).get("reason") not in ("ContainerCreating", "PodInitializing")
        for container in containers
    )
    now = {
        "PodReadyToStartContainers": {"status": "True" if up and not over else "False"},
        "Initialized": initialised,
        "Ready": ready,
        "ContainersReady": ready,
        "PodScheduled": {"status": "True"},
    }
    others = [condition for condition in before.values() if condition["type"] not in now]
    return others + [stamped(name, body, before.get(name), **OF_POD) for name, body in now.items()]


def stamped(name: str, body: Mapping[str, Any], before: Tree | None, **more: Any) -> Tree:
    """Return a condition with its transition time, which changes only with the status."""
    changed = before is None or before["status"] != body["status"]
    moment = timestamp() if changed or before is None else before["lastTransitionTime"]
    return {"type": name, **more, "lastTransitionTime": moment, **body}


def set_condition(status: Tree, name: str, value: str, reason: str, message: str, **more: Any) -> None:
    """Set a condition of any object, in place. `more` are further fields of its conditions (OF_POD)."""
    listed = status.setdefault("conditions", [])
    before = next((condition for condition in listed if condition["type"] == name), None)
    told = {**({"reason": reason} if reason else {}), **({"message": message} if message else {})}
    new = stamped(name, {"status": value, **told}, before, **more)
    if before is None:
        listed.append(new)
    else:
        listed[listed.index(before)] = new


def terminated(code: int, reason: str, started: str, finished: str, container_id: str, message: str = "") -> Tree:
    told = {"message": message} if message else {}
    times = {"startedAt": started, "finishedAt": finished}
    return {"terminated": {"exitCode": code, "reason": reason, **told, **times, "containerID": container_id}}


def missing(message: str) -> Tree:
    """Return the state of a container that the kubelet cannot locate: without times and id."""
    return {"terminated": {"exitCode": 137, "reason": "ContainerStatusUnknown", "message": message,
                           "startedAt": None, "finishedAt": None}}  # fmt: skip
