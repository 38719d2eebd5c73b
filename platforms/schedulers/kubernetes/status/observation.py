"""One job as one look at the cluster showed it: the raw objects, and the same objects read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from platforms.job import State
from platforms.schedulers.kubernetes.objects.fields import Object, text
from platforms.schedulers.kubernetes.objects.pod_history import PodHistory, deletion_requested_s
from platforms.schedulers.kubernetes.status import exits, kinds
from platforms.schedulers.kubernetes.status.events import ClusterEvent, read_events
from platforms.schedulers.kubernetes.status.pods import Pod, read_pods
from platforms.schedulers.kubernetes.status.reasons import Finding


@dataclass(frozen=True)
class Observation:
    """All objects of the cluster that concern one job.

    root:          the object that makes the pods; None if it is not in the cluster (any more)
    pods:          its pods that are in the cluster
    gone_pods:     its pods that have vanished, as they were seen last
    gone_root:     the root that has vanished, as it was seen last
    saw_deletion:  that is surely the state in which it was deleted
    workload:      Kueue's Workload of the job
    events:        the events about any of these objects, in any order
    nodes:         the nodes of its pods by name, as far as we may see them
    histories:     what earlier observations of its pods showed, by uid
    waited_s:      gives for how many seconds the condition of a name has been true without a break
    start_limit_s: how long its pods may take to start once they have a node
    """

    root: Object | None
    pods: tuple[Object, ...] = ()
    gone_pods: tuple[Object, ...] = ()
    gone_root: Object | None = None
    saw_deletion: bool = False
    workload: Object | None = None
    events: tuple[Object, ...] = ()
    nodes: Mapping[str, Object] = field(default_factory=dict)
    histories: Mapping[str, PodHistory] = field(default_factory=dict)
    waited_s: Callable[[str], float] = lambda name: 0.0
    start_limit_s: float | None = None


@dataclass(frozen=True)
class JobView:
    """An observation, read: the questions that a verdict asks about a job."""

    observation: Observation

    # --- the object that makes the pods ---

    @cached_property
    def root(self) -> Object:
        """The root as it was seen last; empty if it was never seen."""
        return self.observation.root or self.observation.gone_root or {}

    @property
    def root_exists(self) -> bool:
        return self.observation.root is not None

    @cached_property
    def is_pod(self) -> bool:
        """True if the root is itself the only pod."""
        return text(self.root, "kind") == "Pod"

    @cached_property
    def completion(self) -> kinds.Completion | Literal["running"] | None:
        """The root's own report on how far it is; None if it leaves that to its pods."""
        return kinds.completion(self.root)

    @cached_property
    def expected_pods(self) -> int | None:
        """The number of pods that must succeed; None if only the root's controller knows."""
        return kinds.expected_pods(self.root)

    @property
    def needed_pods(self) -> int:
        """The least number of pods that must succeed."""
        return self.expected_pods or 1

    @cached_property
    def retries(self) -> bool:
        """True if the root's controller replaces or restarts pods that fail."""
        return kinds.retries(self.root)

    @property
    def being_deleted(self) -> bool:
        return deletion_requested_s(self.root) is not None

    # --- its pods ---

    @cached_property
    def pods(self) -> list[Pod]:
        """All pods, also those that have vanished; the pod of rank 0 comes first."""
        seen = self.observation
        there = seen.pods
        gone = seen.gone_pods
        if self.is_pod and seen.root:
            there = (seen.root, *there)
        elif self.is_pod and seen.gone_root:
            gone = (seen.gone_root, *gone)
        return read_pods(there, gone, seen.histories)

    @property
    def live_pods(self) -> list[Pod]:
        """The pods that may still do something."""
        return [pod for pod in self.pods if not pod.gone and not pod.ended]

    @property
    def ended_pods(self) -> list[Pod]:
        """The pods that were seen to end, whether or not they still exist."""
        return [pod for pod in self.pods if pod.ended]

    @property
    def succeeded_pods(self) -> list[Pod]:
        return [pod for pod in self.ended_pods if pod.succeeded]

    @property
    def vanished_pods(self) -> list[Pod]:
        """The pods that do not exist any more and were not seen to end."""
        return [pod for pod in self.pods if pod.gone and not pod.ended]

    @property
    def has_run(self) -> bool:
        """True if any main container has ever run, as far as pods and events still show it."""
        return any(exits.is_start(event) for event in self.events) or any(pod.has_run for pod in self.pods)

    def succeeded_by_itself(self, pod: Pod) -> bool:
        """True if a pod ended with exit code 0 and was not stopped from outside."""
        return pod.succeeded and not exits.was_stopped(pod, pod.main_containers, self.events)

    def was_replaced(self, pod: Pod) -> bool:
        """True if another pod was created after this one had left."""
        times = (pod.created_s, pod.started_s, pod.ended_s, pod.deletion_requested_s)
        left_s = max((time for time in times if time is not None), default=0.0)
        created_s = pod.created_s or 0.0
        for other in self.live_pods + self.ended_pods:
            other_created_s = other.created_s or 0.0
            # A pod that was created in the same second is its neighbour and not its successor.
            if other is not pod and other_created_s >= left_s and other_created_s > created_s:
                return True
        return False

    # --- what else counts ---

    @cached_property
    def events(self) -> list[ClusterEvent]:
        """The events about the job, oldest first."""
        return read_events(self.observation.events)

    @property
    def state_until_known(self) -> State:
        """The state of a job that has ended as long as nothing says how."""
        return State.RUNNING if self.has_run else State.STARTING

    def has_lasted(self, condition: str, limit_s: float) -> bool:
        """True if the condition of that name has been true for so many seconds."""
        return self.observation.waited_s(condition) >= limit_s

    def reason_with_pod(self, pod: Pod, found: Finding) -> str:
        """A finding's reason, with the pod's name if the job has several pods."""
        has_several = len(self.pods) > 1 or self.needed_pods > 1
        if not has_several or not found.reason or not pod.name:
            return found.reason
        if any(found.reason.startswith(f"{other.name}: ") for other in self.pods):
            return found.reason
        return f"{pod.name}: {found.reason}"
