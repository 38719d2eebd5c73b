"""Everything that is seen of many jobs of one namespace: what the informer holds, and, only while somebody must be told
why something waits or failed, Kueue's workloads, events and nodes, with one LIST each for all jobs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from platforms.job import AwayError, BenchError, LoginNeeded, RefusedError, Status, unseen
from platforms.schedulers.kubernetes.api.client import ApiError, Client
from platforms.schedulers.kubernetes.api.informer import Informer, NamespaceObjects
from platforms.schedulers.kubernetes.api.resources import EVENTS, NODES, PODS, Resource
from platforms.schedulers.kubernetes.job_record import JobRecord
from platforms.schedulers.kubernetes.objects import labels
from platforms.schedulers.kubernetes.queues import QueuePositions
from platforms.schedulers.kubernetes.status import kueue
from platforms.schedulers.kubernetes.status.judge import Observation

TRUTH_S = 60.0  # how old the last LIST of our objects may be while the watch is well
ASIDE_S = 5.0  # how old what explains a state may be
REFUSED_S = 60.0  # for how long it is not asked for after a refusal, and how old it may be where nobody answers
Object = Mapping[str, Any]


class SnapshotReader:
    """What one namespace shows of our jobs."""

    def __init__(
        self, client: Client, informer: Informer, pod_start_limit_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._client, self._informer, self._clock = client, informer, clock
        self._pod_start_limit_s = pod_start_limit_s
        self._queues = QueuePositions(client, clock)
        self._asides: dict[str, tuple[float, Sequence[Object]]] = {}
        self.unseen: dict[str, Status] = {}  # ids of jobs whose kind nobody showed us at the last look, and why
        self._refused: dict[str, float] = {}  # what of the explanations cannot be listed, and when to try again

    def look(self, jobs: Sequence[JobRecord], *, fresh: bool = False, explain: bool = False) -> dict[str, Observation]:
        """By job id, without those that `unseen` has. `fresh` asks for all of our objects anew, `explain` also for what
        is not ours and says why.

        Raises AwayError, LoginNeeded; RefusedError when pods may not be listed.
        """
        view = self._view(jobs, 0.0 if fresh else TRUTH_S)
        jobs = [job for job in jobs if job.submitted.job_id not in self.unseen]
        pods, gone = _by_job(view.objects), _by_job(view.gone)
        events: Sequence[Object] = ()
        workloads: Mapping[str, Object] = {}
        if explain:
            if fresh:
                self._asides.clear()  # an old reason would explain a new end wrongly
            events = self._aside(EVENTS.plural, lambda: EVENTS)
            if any(kueue.queue_of(job.root) for job in jobs):
                workloads = kueue.by_owner(self._aside("workloads", self._workloads))
        return {
            job.submitted.job_id: self._sight(
                job, view, pods.get(job.name, ()), gone.get(job.name, ()), events, workloads
            )
            for job in jobs
        }

    def _view(self, jobs: Sequence[JobRecord], max_age_s: float) -> NamespaceObjects:
        """Pods first: what caused an end is never older than it. Where another kind is out of sight, that is only its
        jobs' trouble."""
        pods, runs = (PODS.api_version, PODS.kind), {job.run for job in jobs}
        view, self.unseen = self._seen(pods, runs, max_age_s), {}
        for kind in dict.fromkeys(_kind(job) for job in jobs if _kind(job) != pods):
            try:
                more = self._seen(kind, runs, max_age_s)
            except LoginNeeded:
                raise
            except (AwayError, RefusedError) as error:
                self.unseen |= {job.submitted.job_id: unseen(error) for job in jobs if _kind(job) == kind}
            else:
                view = NamespaceObjects({**view.objects, **more.objects}, {**view.gone, **more.gone}, view.histories)
        return view

    def _seen(self, kind: tuple[str, str], runs: set[str], max_age_s: float) -> NamespaceObjects:
        try:
            return self._informer.snapshot([self._client.resource(*kind)], runs, max_age_s=max_age_s)
        except ApiError as error:
            rights = "k8s_templates/rbac.yaml has the rights that are needed"
            raise RefusedError(f"{self._client.where}: {error.message}; {rights}") from None

    def _sight(
        self,
        job: JobRecord,
        view: NamespaceObjects,
        pods: Sequence[Object],
        gone: Sequence[Object],
        events: Sequence[Object],
        workloads: Mapping[str, Object],
    ) -> Observation:
        key = (job.root["kind"], job.name)
        root, root_gone = view.objects.get(key), view.gone.get(key)
        if job.root["kind"] == "Pod":  # which is its own root
            pods, gone = [], []
        workload = workloads.get(kueue.owner_key(root or root_gone or job.root))
        ours = {str(each["metadata"]["uid"]) for each in (root, root_gone, workload, *pods, *gone) if each is not None}
        there = [root] if root is not None and root["kind"] == "Pod" else pods
        nodes = self._nodes(there)
        about = tuple(event for event in events if _is_about(event, ours, job.name))
        return Observation(
            root=root,
            root_gone=None if root is not None else root_gone,
            pods=tuple(pods),
            gone=tuple(gone),
            pasts=view.histories,
            workload=workload,
            events=about,
            nodes=nodes,
            waited=job.timers.waited,
            start_limit_s=self._pod_start_limit_s,
            position=None if workload is None else self._queues.position(workload),
        )

    def _workloads(self) -> Resource | None:
        served = kueue.version(self._client.served_versions(kueue.GROUP))
        return None if served is None else self._client.resource(f"{kueue.GROUP}/{served}", "Workload")

    def _nodes(self, pods: Sequence[Object]) -> dict[str, Object]:
        """Those of pods that are not well; all of them where one finds no room, since there may be none that is large
        enough."""
        if any(_roomless(pod) for pod in pods):
            return _by_name(self._aside(NODES.plural, lambda: NODES, TRUTH_S))
        names = {pod.get("spec", {}).get("nodeName") for pod in pods if _unready(pod)}
        found = _by_name(self._aside(NODES.plural, lambda: NODES)) if names else {}
        return {name: node for name, node in found.items() if name in names}

    def _aside(
        self, plural: str, resource: Callable[[], Resource | None], max_age_s: float = ASIDE_S
    ) -> Sequence[Object]:
        """A LIST that is a few seconds old at most. Where nobody answers, or we may not see it, the last one for a
        while, then nothing: explanations are poorer, and no more than that. Raises LoginNeeded."""
        now = self._clock()
        listed_s, found = self._asides.get(plural, (float("-inf"), ()))
        if now >= self._refused.get(plural, float("-inf")) and now - listed_s >= max_age_s:
            try:
                kind = resource()
                listed_s, found = now, () if kind is None else self._client.list(kind)[0]
            except LoginNeeded:
                raise
            except (ApiError, BenchError) as error:
                self._refused[plural] = now + (REFUSED_S if isinstance(error, ApiError) else ASIDE_S)
            else:
                self._asides[plural] = (listed_s, found)
        return found if now - listed_s < REFUSED_S else ()


def _kind(job: JobRecord) -> tuple[str, str]:
    return str(job.root["apiVersion"]), str(job.root["kind"])


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


def _by_name(objects: Iterable[Object]) -> dict[str, Object]:
    return {str(each["metadata"]["name"]): each for each in objects}


def _roomless(pod: Object) -> bool:
    """It has no node, since none has enough of something left."""
    conditions: Iterable[Mapping[str, Any]] = (pod.get("status") or {}).get("conditions") or ()
    return any(each.get("type") == "PodScheduled" and "Insufficient" in str(each.get("message")) for each in conditions)


def _unready(pod: Object) -> bool:
    """It runs, and its node says nothing good of it, or nothing at all."""
    status = pod.get("status") or {}
    conditions: Iterable[Mapping[str, Any]] = status.get("conditions") or ()
    return status.get("phase") == "Running" and any(
        each.get("type") == "Ready" and each.get("status") != "True" for each in conditions
    )
