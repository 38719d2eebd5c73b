"""One job as it was seen at one look: what the scheduler gathered of it, and the same, read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from platforms.job import State
from platforms.schedulers.kubernetes.objects.fields import Object, text
from platforms.schedulers.kubernetes.objects.pod_history import PodHistory, deletion_requested_s
from platforms.schedulers.kubernetes.status import events, exits, kinds, pods
from platforms.schedulers.kubernetes.status.pods import Pod
from platforms.schedulers.kubernetes.status.reasons import Finding


@dataclass(frozen=True)
class Observation:
    """Everything that was seen of one job.

    `pods` are there, `gone` have vanished (as they were seen last), and so for `root` and `root_gone`. `events` are
    about any of them, in any order; `nodes` those of its pods, by name, as far as they may be seen. `pasts`: what
    earlier sights of pods have shown, by uid. `waited` says for how many seconds the condition of a name has been asked
    for without a break. `start_limit_s`: how long pods may take to begin once they have a node. `position`: the
    workload's in its queue, where Kueue tells.
    """

    root: Object | None
    pods: tuple[Object, ...] = ()
    gone: tuple[Object, ...] = ()
    root_gone: Object | None = None
    workload: Object | None = None
    events: tuple[Object, ...] = ()
    nodes: Mapping[str, Object] = field(default_factory=dict)
    pasts: Mapping[str, PodHistory] = field(default_factory=dict)
    waited: Callable[[str], float] = lambda name: 0.0
    start_limit_s: float | None = None
    position: int | None = None


@dataclass(frozen=True)
class JobView:
    """A Sight, read."""

    sight: Observation

    @cached_property
    def object(self) -> Object:
        """The root as it was seen last."""
        return self.sight.root or self.sight.root_gone or {}

    @cached_property
    def is_pod(self) -> bool:
        return text(self.object, "kind") == "Pod"

    @cached_property
    def pods(self) -> list[Pod]:
        """All of them, also those that are gone; rank 0 first. A Pod is its own root."""
        sight, own = self.sight, self.is_pod
        live = (sight.root, *sight.pods) if own and sight.root else sight.pods
        gone = (sight.root_gone, *sight.gone) if own and sight.root_gone and not sight.root else sight.gone
        return pods.seen(live, gone, self.sight.pasts)

    @cached_property
    def events(self) -> list[events.ClusterEvent]:
        return events.read(self.sight.events)

    @cached_property
    def completion(self) -> kinds.Completion | Literal["running"] | None:
        return kinds.completion(self.object)

    @cached_property
    def expected(self) -> int | None:
        return kinds.expected_pods(self.object)

    @cached_property
    def retries(self) -> bool:
        return kinds.retries(self.object)

    def well(self, pod: Pod) -> bool:
        """It ended with exit code 0, and nobody had told it to end."""
        return pod.succeeded and not exits.stopped(pod, pod.main, self.events)

    @property
    def live(self) -> list[Pod]:
        """Those that may still do something."""
        return [pod for pod in self.pods if not pod.gone and not pod.ended]

    @property
    def over(self) -> list[Pod]:
        """Those that ended while somebody looked."""
        return [pod for pod in self.pods if pod.ended]

    @property
    def torn(self) -> list[Pod]:
        """Those that are gone and were not seen to end."""
        return [pod for pod in self.pods if pod.gone and not pod.ended]

    @property
    def ran(self) -> bool:
        """Whether any of its containers has ever begun, as far as anything is left that tells."""
        started = any(event.reason == "Started" and event.field.startswith("spec.containers") for event in self.events)
        return started or any(pod.ran for pod in self.pods)

    @property
    def being_deleted(self) -> bool:
        """The deletion of the job's own object has been asked for."""
        return deletion_requested_s(self.object) is not None

    @property
    def between(self) -> State:
        """What it is while it has ended and nobody has said how."""
        return State.RUNNING if self.ran else State.STARTING

    def waited(self, name: str, limit_s: float) -> bool:
        """Whether the condition of that name has lasted so long."""
        return self.sight.waited(name) >= limit_s

    def said_of(self, pod: Pod, found: Finding) -> str:
        """A finding's words, with the pod's name where there are several."""
        several = len(self.pods) > 1 or (self.expected or 1) > 1
        said = any(found.reason.startswith(f"{each.name}: ") for each in self.pods)
        return f"{pod.name}: {found.reason}" if several and found.reason and pod.name and not said else found.reason
