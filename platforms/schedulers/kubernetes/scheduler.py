"""Runs jobs on Kubernetes, as any kind of object that makes pods: Pods, Jobs, IPUJobs and others, also under Kueue."""

from __future__ import annotations

import math
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from platforms.config.cluster_values import quantity_of
from platforms.job import (
    AwayError,
    JobSpec,
    LoginNeeded,
    MachineError,
    RefusedError,
    State,
    Status,
    Submitted,
    describe_error,
    unseen,
)
from platforms.schedulers import Scheduler
from platforms.schedulers.kubernetes import create, delete, evidence, job_record, node_queries
from platforms.schedulers.kubernetes.api.client import ApiError, Client
from platforms.schedulers.kubernetes.api.kubeconfig import ClusterTarget
from platforms.schedulers.kubernetes.cluster import Cluster
from platforms.schedulers.kubernetes.job_record import JobRecord
from platforms.schedulers.kubernetes.manifest import policy, render
from platforms.schedulers.kubernetes.objects import labels
from platforms.schedulers.kubernetes.objects.node_states import why_out_of_service

if TYPE_CHECKING:
    from platforms.config.schema import Platform

NODES_AGE_S = 30.0  # how old the list of all nodes may be before a submission: many jobs are submitted at once


class KubernetesScheduler(Scheduler):
    """A Scheduler for Kubernetes clusters. A job's id is `<context>:<namespace>/<resource>/<name>`."""

    text_name = job_record.TEXT
    log_in_folder = True  # threads follow the logs of many pods, so the runner's thread does not read them
    ends_failed = True
    clean_deletes = True
    first_look_s = 0.1
    glance_s = math.inf  # status() costs no request while a watch is open

    def __init__(
        self,
        platform: Platform,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._platform = platform
        self._clock = clock
        self._sleep = sleep
        self._clusters: dict[ClusterTarget, Cluster] = {}
        self._jobs: dict[str, JobRecord] = {}
        self._nodes: dict[tuple[str, ...], tuple[float, Mapping[str, Any]]] = {}  # when they were listed, and which

    def render(self, spec: JobSpec) -> str:
        """Return manifests that `kubectl create -f` takes; the last one makes the pods."""
        return render.render(spec, self._platform.with_stack(spec.stack))

    def lint(self, spec: JobSpec, text: str) -> Sequence[str]:
        return policy.lint(render.parse(text), self._platform, spec, text)

    def check(self, spec: JobSpec, text: str) -> Sequence[str]:
        """Return what the API server would refuse: a dry run with strict validation, which counts quotas, too."""
        client = self._cluster(self._target(text)).client
        refusals = []
        for obj in render.parse(text):
            resource = client.resource(obj["apiVersion"], obj["kind"])
            try:
                client.create(resource, obj, dry_run=True, strict=True)
            except ApiError as error:
                refusals.append(f"{obj['kind']} {obj['metadata']['name']}: {error.message}")
        return refusals

    def submit(self, spec: JobSpec, text: str, folder: Path) -> str:
        """Create the job's objects and return its id.

        Submitting again returns the same job, by the root's name and label, or by its folder if the job was deleted.
        """
        created_before = evidence.created_job_id(folder)
        if created_before is not None:
            return created_before
        cluster = self._cluster(self._target(text))
        client = cluster.client
        self._check_nodes(client, spec, render.parse(text)[-1], folder)
        made = create.create_job(client, spec, render.parse(text), folder / self.text_name, cluster.code)
        resource = client.resource(made.root["apiVersion"], made.root["kind"])
        job_id = str(job_record.address_of(client.context, client.namespace, resource, made.root))
        # If our own disk is full, the next submission finds the job by its name.
        evidence.record_created(folder, job_id, made.root, made.unowned)
        return job_id

    def _check_nodes(self, client: Client, spec: JobSpec, root: Mapping[str, Any], folder: Path) -> None:
        """Refuse a job that needs a node that takes no pods, unless it exists already.

        The nodes are listed for such jobs only, and once for all of them that are submitted together. Where they may
        not be listed, the pods show it later. Raises MachineError.
        """
        if not spec.nodes:
            return
        listed_s, nodes = self._nodes.get(client.key, (-math.inf, {}))
        if self._clock() - listed_s > NODES_AGE_S:
            try:
                nodes = node_queries.list_nodes(client)
            except RefusedError:
                nodes = {}
            self._nodes[client.key] = (self._clock(), nodes)
        if not nodes:
            return
        why, _passes = why_out_of_service(spec.nodes, nodes)
        if why and not self._may_exist(client, root):
            raise MachineError(f"{spec.name}: {why}", Status(State.NEVER_ADMISSIBLE, why), folder)

    def _may_exist(self, client: Client, root: Mapping[str, Any]) -> bool:
        """Return whether another submission may have created the job. If so, creating it again finds it."""
        try:
            client.get(client.resource(root["apiVersion"], root["kind"]), root["metadata"]["name"])
        except ApiError as error:
            return error.status != 404
        return True

    # --- following ---------------------------------------------------------------------------------------------------

    def status(self, jobs: Sequence[Submitted]) -> dict[str, Status]:
        """Return each job's status from what the watches have seen, without a request.

        Before a job counts as ended, one LIST a kind is sent for all jobs.
        """
        clusters, unreadable = self._by_cluster(jobs)
        statuses = {}
        for job_id, why in unreadable.items():
            is_lost = isinstance(why, RefusedError)
            statuses[job_id] = Status(State.LOST, str(why)) if is_lost else unseen(why)
        for cluster, records in clusters.items():
            try:
                statuses.update(cluster.status(records, stop=self.ends_failed))
            except LoginNeeded:
                raise
            except (AwayError, RefusedError) as error:
                for record in records:
                    statuses[record.submitted.job_id] = unseen(error)
        return statuses

    def read(self, job: Submitted, offset: int, known: bytes = b"") -> bytes:
        """Return the next bytes of the merged log, a local file that only grows.

        Raises RefusedError when the job has ended and some of its lines have not come.
        """
        record = self._record(job)
        log = self._cluster(record.target).log(record)
        to_come: tuple[str, ...] = ()
        if record.ended is not None:
            to_come = log.to_come  # asked before reading: what comes in between is read
        chunk = log.read(offset)
        if not chunk and to_come:
            raise RefusedError("; ".join(to_come))
        return chunk

    def gaps(self, job: Submitted) -> Sequence[str]:
        """Return what was lost of the log: rotated away, or gone with a pod that others deleted."""
        record = self._record(job)
        try:
            return self._cluster(record.target).log(record).lost
        except RefusedError:  # its folder cannot be written: read() has said so
            return ()

    def log_doubts(self, job: Submitted) -> Sequence[str]:
        """Return which containers wrote so much that their nodes may have rotated lines away unseen."""
        record = self._record(job)
        rotated_from = quantity_of(self._platform.kubernetes.log_rotates_at)
        try:
            return self._cluster(record.target).log(record).doubts(rotated_from)
        except RefusedError:  # its folder cannot be written: read() has said so
            return ()

    # --- ending ------------------------------------------------------------------------------------------------------

    def cancel(self, jobs: Sequence[Submitted]) -> dict[str, str]:
        """Delete the jobs with their pods and wait until they are gone. Returns by id what may still be there."""
        clusters, unreadable = self._by_cluster(jobs)
        problems = {job_id: describe_error(why) for job_id, why in unreadable.items()}
        for cluster, records in clusters.items():
            remaining = delete.cancel_jobs(cluster.client, records, self._clock, self._sleep)
            for record in records:
                job_id = record.submitted.job_id
                if job_id in remaining:
                    problems[job_id] = f"{remaining[job_id]}: {self._kubectl(record, 'delete {}')}"
                else:
                    record.deleted = True
        return problems

    def clean(self, job: Submitted) -> None:
        """Delete a job that has passed. The cluster's garbage collector removes its pods."""
        record = self._record(job)
        cluster = self._cluster(record.target)
        delete.delete_job(cluster.client, record)
        record.deleted = True
        cluster.forget(record)

    def hints(self, job: Submitted) -> tuple[str, ...]:
        """Return kubectl commands about the job; for a deleted job only commands that show its folder's files."""
        record = self._record(job)
        if record.deleted:
            files = [job.folder / evidence.OBJECTS, job.folder / "log"]
            return tuple(f"less {shlex.quote(str(path))}" for path in files if path.exists())
        pods = f"-l {labels.JOB}={record.name}"
        beside: tuple[str, ...] = ()
        if record.ended is not None and record.ended.state is State.SECRET:
            beside = (self._kubectl(record, "get secrets,configmaps"),)
        return (
            *beside,
            self._kubectl(record, "describe {}"),
            self._kubectl(record, f"get pods {pods} -o wide"),
            self._kubectl(record, f"logs {pods} --all-containers --prefix --tail=-1"),
            self._kubectl(record, "delete {}"),
        )

    # --- clusters ----------------------------------------------------------------------------------------------------

    def _kubectl(self, record: JobRecord, arguments: str) -> str:
        """Return a kubectl command. In `arguments` {} stands for the job's root."""
        root = f"{record.address.resource}/{record.name}"
        return self._cluster(record.target).client.kubectl_command(arguments.format(root))

    def _target(self, text: str) -> ClusterTarget:
        return job_record.target_of(text, ClusterTarget.of(self._platform), render.parse(text))

    def _cluster(self, target: ClusterTarget) -> Cluster:
        if target not in self._clusters:
            limit_s = self._platform.kubernetes.pod_start_limit_s
            self._clusters[target] = Cluster(Client(target), limit_s, self._clock)
        return self._clusters[target]

    def _record(self, job: Submitted) -> JobRecord:
        if job.job_id not in self._jobs:
            self._jobs[job.job_id] = job_record.read(job, self._clock)
        return self._jobs[job.job_id]

    def _by_cluster(self, jobs: Sequence[Submitted]) -> tuple[dict[Cluster, list[JobRecord]], dict[str, Exception]]:
        """Group the jobs' records by cluster. Returns also, by id, why some records cannot be read."""
        clusters: dict[Cluster, list[JobRecord]] = {}
        unreadable: dict[str, Exception] = {}
        for job in jobs:
            try:
                record = self._record(job)
            except Exception as error:  # of this job alone
                unreadable[job.job_id] = error
            else:
                clusters.setdefault(self._cluster(record.target), []).append(record)
        return clusters, unreadable
