"""Everything that is seen of many jobs of one namespace: what the mirror holds, and, only while somebody must be told
why something waits or failed, Kueue's workloads, events and nodes, with one LIST each for all jobs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from platforms.job import RefusedError
from platforms.schedulers.kubernetes import labels
from platforms.schedulers.kubernetes.api.client import ApiError, Client
from platforms.schedulers.kubernetes.api.mirror import Mirror, View
from platforms.schedulers.kubernetes.api.resources import EVENTS, NODES, PODS, Resource
from platforms.schedulers.kubernetes.known import Known
from platforms.schedulers.kubernetes.state import kueue
from platforms.schedulers.kubernetes.state.judge import Sight

TRUTH_S = 60.0  # how old the last LIST of our objects may be while the watch is well
ASIDE_S = 5.0  # how old what explains a state may be
Object = Mapping[str, Any]


class Sights:
    """What one namespace shows of our jobs."""

    def __init__(
        self, client: Client, mirror: Mirror, pod_start_limit_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._client, self._mirror, self._clock = client, mirror, clock
        self._pod_start_limit_s = pod_start_limit_s
        self._asides: dict[str, tuple[float, Sequence[Object]]] = {}
        self._forbidden: set[str] = set()

    def look(self, jobs: Sequence[Known], *, fresh: bool = False, explain: bool = False) -> dict[str, Sight]:
        """By job id. `fresh` asks for all of our objects anew, `explain` also for what is not ours and says why.

        Raises AwayError, LoginNeeded; RefusedError when the objects themselves may not be listed.
        """
        resources = list(dict.fromkeys([PODS, *map(self._resource, jobs)]))  # what caused an end is never older than it
        try:
            view = self._mirror.look(resources, {job.run for job in jobs}, max_age_s=0.0 if fresh else TRUTH_S)
        except ApiError as error:
            rights = "k8s_templates/rbac.yaml has the rights that are needed"
            raise RefusedError(f"{self._client.where}: {error.message}; {rights}") from None
        pods, gone = _by_job(view.objects), _by_job(view.gone)
        events: Sequence[Object] = ()
        workloads: Sequence[Object] = ()
        if explain:
            if fresh:
                self._asides.clear()  # an old reason would explain a new end wrongly
            events = self._aside(EVENTS)
            if any(kueue.queue_of(job.root) for job in jobs):
                workloads = self._workloads()
        return {
            job.submitted.job_id: self._sight(
                job, view, pods.get(job.name, ()), gone.get(job.name, ()), events, workloads
            )
            for job in jobs
        }

    def _sight(
        self,
        job: Known,
        view: View,
        pods: Sequence[Object],
        gone: Sequence[Object],
        events: Sequence[Object],
        workloads: Sequence[Object],
    ) -> Sight:
        key = (job.root["kind"], job.name)
        root, root_gone = view.objects.get(key), view.gone.get(key)
        if job.root["kind"] == "Pod":  # which is its own root
            pods, gone = [], []
        workload = kueue.workload_of(root or root_gone or job.root, workloads)
        ours = {str(each["metadata"]["uid"]) for each in (root, root_gone, workload, *pods, *gone) if each is not None}
        there = [root] if root is not None and root["kind"] == "Pod" else pods
        nodes = self._nodes(there) if any(_unready(pod) for pod in there) else {}
        about = tuple(event for event in events if _is_about(event, ours, job.name))
        return Sight(
            root=root,
            root_gone=None if root is not None else root_gone,
            pods=tuple(pods),
            gone=tuple(gone),
            workload=workload,
            events=about,
            nodes=nodes,
            waited=job.timers.waited,
            start_limit_s=self._pod_start_limit_s,
        )

    def _resource(self, job: Known) -> Resource:
        return self._client.resource(job.root["apiVersion"], job.root["kind"])

    def _workloads(self) -> Sequence[Object]:
        served = kueue.version(self._client.served(kueue.GROUP))
        return () if served is None else self._aside(self._client.resource(f"{kueue.GROUP}/{served}", "Workload"))

    def _nodes(self, pods: Sequence[Object]) -> dict[str, Object]:
        names = {pod.get("spec", {}).get("nodeName") for pod in pods}
        return {each["metadata"]["name"]: each for each in self._aside(NODES) if each["metadata"]["name"] in names}

    def _aside(self, resource: Resource) -> Sequence[Object]:
        """A LIST that is a few seconds old at most; nothing where we may not see it: then explanations are poorer."""
        if resource.plural in self._forbidden:
            return ()
        listed_s, found = self._asides.get(resource.plural, (float("-inf"), ()))
        if self._clock() - listed_s >= ASIDE_S:
            try:
                found, _version = self._client.list(resource)
            except ApiError:
                self._forbidden.add(resource.plural)
                return ()
            self._asides[resource.plural] = (self._clock(), found)
        return found


def _by_job(objects: Mapping[tuple[str, str], Object]) -> dict[str, list[Object]]:
    """Pods by the job that their label names."""
    found: dict[str, list[Object]] = {}
    for (kind, _name), each in objects.items():
        if kind == "Pod":
            found.setdefault((each["metadata"].get("labels") or {}).get(labels.JOB, ""), []).append(each)
    return found


def _is_about(event: Object, uids: set[str], name: str) -> bool:
    """Of an object that is ours, or of one that its controller made, as a JobSet makes Jobs, and named by it."""
    about = event.get("involvedObject") or {}
    return about.get("uid") in uids or str(about.get("name", "")).startswith(f"{name}-")


def _unready(pod: Object) -> bool:
    """It runs, and its node says nothing good of it, or nothing at all."""
    status = pod.get("status") or {}
    conditions: Iterable[Mapping[str, Any]] = status.get("conditions") or ()
    return status.get("phase") == "Running" and any(
        each.get("type") == "Ready" and each.get("status") != "True" for each in conditions
    )
