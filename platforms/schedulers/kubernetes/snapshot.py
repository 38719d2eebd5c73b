"""Everything that is seen of many jobs of one namespace at one moment.

Jobs and pods come from the informer. Kueue's workloads, events and nodes explain a state; they are listed only when
a person reads the explanation, and once for all jobs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from platforms.job import AwayError, BenchError, LoginNeeded, RefusedError, Status, unseen
from platforms.schedulers.kubernetes.api.client import ApiError, Client
from platforms.schedulers.kubernetes.api.informer import Informer, NamespaceObjects, is_later, version_of
from platforms.schedulers.kubernetes.api.resources import EVENTS, NODES, PODS, Resource
from platforms.schedulers.kubernetes.job_record import JobRecord, job_of
from platforms.schedulers.kubernetes.objects.fields import uid
from platforms.schedulers.kubernetes.objects.node_states import named_nodes
from platforms.schedulers.kubernetes.status import kueue
from platforms.schedulers.kubernetes.status.judge import Observation
from platforms.schedulers.kubernetes.status.kinds import expected_pods, suspended

MOST_AGE_S = 60.0  # how old the last LIST of our objects may be while the watch is well
EXPLANATION_AGE_S = 5.0  # how old a LIST may be that explains a state
NAMED_NODES_AGE_S = 15.0  # how old the list of all nodes may be while a pod waits for certain nodes
REFUSED_S = 60.0  # how long such a LIST is not repeated after a refusal, and how old it may be if the cluster is away
Object = Mapping[str, Any]


class SnapshotReader:
    """Observes the jobs of one namespace."""

    def __init__(
        self, client: Client, informer: Informer, pod_start_limit_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._client = client
        self._informer = informer
        self._pod_start_limit_s = pod_start_limit_s
        self._clock = clock
        self._explanations: dict[str, tuple[float, Sequence[Object]]] = {}  # by resource: when it was listed, and what
        self._listed_now: set[str] = set()  # the resources of these that this poll has listed
        self._listed: dict[tuple[str, str], Object] = {}  # our jobs' objects in the last LIST of all there are
        self._surely_gone: set[str] = set()  # uids of pods that have vanished, and have not only lost our labels
        self._retry_s: dict[str, float] = {}  # by resource that could not be listed: when to try again
        self.unseen: dict[str, Status] = {}  # by job id: why the last look could not show the job

    def look(self, jobs: Sequence[JobRecord], *, fresh: bool = False, explain: bool = False) -> dict[str, Observation]:
        """Observe jobs; the result holds them by job id, without the jobs that `unseen` holds then.

        `fresh` lists all of our objects again. `explain` also lists what is not ours and explains their states, unless
        it was listed some seconds ago.

        Raises AwayError and LoginNeeded, and RefusedError when pods may not be listed.
        """
        view = self._view(jobs, 0.0 if fresh else MOST_AGE_S)
        seen = [job for job in jobs if job.submitted.job_id not in self.unseen]
        view = self._with_unlabelled(seen, view, 0.0 if fresh else EXPLANATION_AGE_S)
        by_name = {job.name: job for job in seen}
        pods = _pods_by_job(view.objects, by_name)
        gone_pods = _pods_by_job(view.gone, by_name)
        events: Sequence[Object] = ()
        workloads: Mapping[str, Object] | None = None
        if explain:
            events = self._list_explanation(EVENTS.plural, lambda: EVENTS) or ()
            if any(kueue.queue_of(job.root) for job in seen):
                listed = self._list_explanation("workloads", self._workload_resource)
                workloads = None if listed is None else kueue.by_owner(listed)
        observations = {}
        for job in seen:
            observations[job.submitted.job_id] = self._observe(
                job, view, pods.get(job.name, []), gone_pods.get(job.name, []), events, workloads
            )
        return observations

    def begin_poll(self) -> None:
        """Every kind that explains states may be listed once from now on."""
        self._listed_now.clear()

    def forget_explanations(self) -> None:
        """Have the explanations that this poll has not listed itself listed when they are needed next."""
        for plural in self._explanations.keys() - self._listed_now:
            del self._explanations[plural]

    def _view(self, jobs: Sequence[JobRecord], max_age_s: float) -> NamespaceObjects:
        """All our objects. If a kind other than pods cannot be listed, only the jobs of that kind are `unseen`."""
        runs = {job.run for job in jobs}
        pods = (PODS.api_version, PODS.kind)
        view = self._list_kind(pods, runs, max_age_s)  # first, so that what caused an end is never newer than it
        self.unseen = {}
        for kind in dict.fromkeys(_kind(job) for job in jobs):
            if kind == pods:
                continue
            try:
                of_kind = self._list_kind(kind, runs, max_age_s)
            except LoginNeeded:
                raise
            except (AwayError, RefusedError) as error:
                for job in jobs:
                    if _kind(job) == kind:
                        self.unseen[job.submitted.job_id] = unseen(error)
            else:
                view = NamespaceObjects(
                    {**view.objects, **of_kind.objects},
                    {**view.gone, **of_kind.gone},
                    view.histories,
                    view.deleted | of_kind.deleted,
                )
        return view

    def _with_unlabelled(self, jobs: Sequence[JobRecord], view: NamespaceObjects, max_age_s: float) -> NamespaceObjects:
        """Add what a webhook or a person has taken our labels from: to the informer it does not exist, or is deleted.

        All objects of the jobs' kinds are listed, once for all jobs, when a pod has vanished, and while a job lacks its
        root or one of its pods. A WATCH may still be behind that LIST: of two states the later one counts.
        """
        later = {
            key: dict(tree)
            for key, tree in self._listed.items()
            if key in view.objects and is_later(version_of(tree), version_of(view.objects[key]))
        }
        view = replace(view, objects={**view.objects, **later})
        by_name = {job.name: job for job in jobs}
        pods = _pods_by_job(view.objects, by_name)
        vanished = any(kind == "Pod" and uid(tree) not in self._surely_gone for (kind, _), tree in view.gone.items())
        if not vanished and not any(_lacks_something(job, view, pods.get(job.name, ())) for job in jobs):
            return view
        objects, gone, self._listed = dict(view.objects), dict(view.gone), {}
        for api_version, kind in dict.fromkeys([*map(_kind, jobs), (PODS.api_version, PODS.kind)]):
            resource = partial(self._client.resource, api_version, kind)
            listed = self._list_explanation(resource().plural, resource, 0.0 if vanished else max_age_s)
            if listed is None:
                return view
            for tree in listed:
                key = (kind, str(tree["metadata"]["name"]))
                if job_of(tree, by_name):
                    self._listed[key] = tree
                    objects.setdefault(key, dict(tree))
                    gone.pop(key, None)
        self._surely_gone |= {uid(tree) for tree in gone.values()}
        return replace(view, objects=objects, gone=gone)

    def _list_kind(self, kind: tuple[str, str], runs: set[str], max_age_s: float) -> NamespaceObjects:
        try:
            return self._informer.snapshot([self._client.resource(*kind)], runs, max_age_s=max_age_s)
        except ApiError as error:
            rights = "k8s_templates/rbac.yaml has the rights that are needed"
            raise RefusedError(f"{self._client.where}: {error.message}; {rights}") from None

    def _observe(
        self,
        job: JobRecord,
        view: NamespaceObjects,
        pods: Sequence[Object],
        gone_pods: Sequence[Object],
        events: Sequence[Object],
        workloads: Mapping[str, Object] | None,
    ) -> Observation:
        key = (job.root["kind"], job.name)
        root = view.objects.get(key)
        if root is not None and not job.owns(root):
            root = None
        gone_root = view.gone.get(key) if root is None else None
        running_pods = pods
        if job.root["kind"] == "Pod":  # it is its own root, and has no other pods
            running_pods = [root] if root is not None else []
            pods = gone_pods = ()
        workload = (workloads or {}).get(kueue.owner_key(root or gone_root or job.root))
        known = [root, view.gone.get(key), workload, *pods, *gone_pods]
        uids = {str(tree["metadata"]["uid"]) for tree in known if tree is not None}
        return Observation(
            root=root,
            gone_root=gone_root,
            saw_deletion=gone_root is not None and uid(gone_root) in view.deleted,
            pods=tuple(pods),
            gone_pods=tuple(gone_pods),
            histories=view.histories,
            workload=workload,
            events=tuple(event for event in events if _is_about(event, uids, job.name)),
            nodes=self._nodes(running_pods),
            waited_s=job.timers.waited,
            start_limit_s=self._pod_start_limit_s,
        )

    def _workload_resource(self) -> Resource | None:
        version = kueue.version(self._client.served_versions(kueue.GROUP))
        if version is None:
            return None
        return self._client.resource(f"{kueue.GROUP}/{version}", "Workload")

    def _nodes(self, pods: Sequence[Object]) -> dict[str, Object]:
        """The nodes that explain the states of these pods, by name."""
        if any(_finds_no_room(pod) for pod in pods):
            # All nodes: there may be none that is large enough.
            return self._list_nodes(MOST_AGE_S)
        if any(_waits_for_named_nodes(pod) for pod in pods):
            return self._list_nodes(NAMED_NODES_AGE_S)
        names = {pod.get("spec", {}).get("nodeName") for pod in pods if _runs_and_is_not_ready(pod)}
        if not names:
            return {}
        return {name: node for name, node in self._list_nodes(EXPLANATION_AGE_S).items() if name in names}

    def _list_nodes(self, max_age_s: float) -> dict[str, Object]:
        return _by_name(self._list_explanation(NODES.plural, lambda: NODES, max_age_s) or ())

    def _list_explanation(
        self, plural: str, resource: Callable[[], Resource | None], max_age_s: float = EXPLANATION_AGE_S
    ) -> Sequence[Object] | None:
        """A LIST of a resource that may be `max_age_s` old.

        If the cluster does not answer or refuses, this is the last LIST for REFUSED_S seconds, and then None:
        explanations become poorer, and nothing else changes. Raises LoginNeeded.
        """
        now = self._clock()
        listed_s, objects = self._explanations.get(plural, (float("-inf"), ()))
        may_ask = now >= self._retry_s.get(plural, float("-inf"))
        if may_ask and now - listed_s >= max_age_s:
            try:
                kind = resource()
                objects = self._client.list(kind)[0] if kind is not None else ()
            except LoginNeeded:
                raise
            except ApiError:
                self._retry_s[plural] = now + REFUSED_S
            except BenchError:
                self._retry_s[plural] = now + EXPLANATION_AGE_S
            else:
                listed_s = now
                self._explanations[plural] = (listed_s, objects)
                self._listed_now.add(plural)
        return objects if now - listed_s < REFUSED_S else None


def _kind(job: JobRecord) -> tuple[str, str]:
    return str(job.root["apiVersion"]), str(job.root["kind"])


def _lacks_something(job: JobRecord, view: NamespaceObjects, pods: Sequence[Object]) -> bool:
    """True if it has no root, or too few pods for a root that has a status and is not suspended."""
    root = view.objects.get((job.root["kind"], job.name))
    if root is None or not job.owns(root):
        return True
    makes_pods = root["kind"] != "Pod" and root.get("status") and not suspended(root)
    return bool(makes_pods) and len(pods) < (expected_pods(root) or 1)


def _pods_by_job(objects: Mapping[tuple[str, str], Object], jobs: Mapping[str, JobRecord]) -> dict[str, list[Object]]:
    """The pods among some objects, by the names of their jobs."""
    pods: dict[str, list[Object]] = {}
    for (kind, _name), tree in objects.items():
        if kind == "Pod":
            pods.setdefault(job_of(tree, jobs), []).append(tree)
    return pods


def _is_about(event: Object, uids: set[str], name: str) -> bool:
    """True if an event is about one of our objects, or about one that its controller made and named after it."""
    about = event.get("involvedObject") or {}
    return about.get("uid") in uids or str(about.get("name", "")).startswith(f"{name}-")


def _by_name(objects: Iterable[Object]) -> dict[str, Object]:
    return {str(tree["metadata"]["name"]): tree for tree in objects}


def _finds_no_room(pod: Object) -> bool:
    """True if it has no node because none has enough of a resource left."""
    for condition in (pod.get("status") or {}).get("conditions") or ():
        if condition.get("type") == "PodScheduled" and "Insufficient" in str(condition.get("message")):
            return True
    return False


def _waits_for_named_nodes(pod: Object) -> bool:
    return not pod.get("spec", {}).get("nodeName") and bool(named_nodes(pod))


def _runs_and_is_not_ready(pod: Object) -> bool:
    status = pod.get("status") or {}
    if status.get("phase") != "Running":
        return False
    for condition in status.get("conditions") or ():
        if condition.get("type") == "Ready" and condition.get("status") != "True":
            return True
    return False
