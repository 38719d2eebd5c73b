"""Runs jobs on Kubernetes, as any kind of object that makes pods: Pods, Jobs, IPUJobs and others, also under Kueue."""

from __future__ import annotations

import math
import shlex
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from platforms.job import AwayError, JobSpec, LoginNeeded, Outcome, RefusedError, State, Status, Submitted, unseen
from platforms.schedulers.kubernetes import create, delete, evidence, job_record
from platforms.schedulers.kubernetes.api.client import ApiError, Client
from platforms.schedulers.kubernetes.api.kubeconfig import ClusterTarget
from platforms.schedulers.kubernetes.cluster import Cluster
from platforms.schedulers.kubernetes.job_record import JobRecord
from platforms.schedulers.kubernetes.manifest import policy, render
from platforms.schedulers.kubernetes.objects import labels

if TYPE_CHECKING:
    from platforms.config.schema import Platform

CLEAN_S = 30.0  # how long the last of a session's jobs is watched while it goes: a garbage collector may be busy


class KubernetesScheduler:
    """The Protocol `Scheduler` on clusters. A job's id is `<context>:<namespace>/<resource>/<name>`."""

    text_name = job_record.TEXT
    log_in_folder = True  # of many pods at once, so that reading it is no turn of the runner's
    ends_failed = True
    clean_deletes = True
    first_look_s = 0.1
    glance_s = math.inf  # a look at what the watches have seen costs as little

    def __init__(
        self,
        platform: Platform,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._platform, self._clock, self._sleep = platform, clock, sleep
        self._clusters: dict[ClusterTarget, Cluster] = {}
        self._jobs: dict[str, JobRecord] = {}
        self._ended_well: set[str] = set()  # ids at the last look: those that are cleaned next

    def render(self, spec: JobSpec) -> str:
        """Manifests, as `kubectl create -f` takes them, the one that makes the pods last."""
        return render.render(spec, self._platform)

    def lint(self, spec: JobSpec, text: str) -> Sequence[str]:
        return policy.lint(render.parse(text), self._platform, spec, text)

    def check(self, spec: JobSpec, text: str) -> Sequence[str]:
        """What the API server has against it: a dry run with strict validation, in which a quota counts, too."""
        found, client = [], self._cluster(self._place(text)).client
        for each in render.parse(text):
            try:
                client.create(client.resource(each["apiVersion"], each["kind"]), each, dry_run=True, strict=True)
            except ApiError as error:
                found.append(f"{each['kind']} {each['metadata']['name']}: {error.message}")
        return found

    def submit(self, spec: JobSpec, text: str, folder: Path) -> str:
        """Idempotent by the root's name and label; one that had been cleaned up is known by what its folder says."""
        if (before := evidence.created_job_id(folder)) is not None:
            return before
        cluster = self._cluster(self._place(text))
        client = cluster.client
        made = create.create_job(client, spec, render.parse(text), folder / self.text_name, cluster.code)
        resource = client.resource(made.root["apiVersion"], made.root["kind"])
        job_id = str(job_record.address_of(client.context, client.namespace, resource, made.root))
        try:
            evidence.record_created(folder, job_id, made.root, made.unowned)
        except RefusedError as error:
            raise RefusedError(f"{error}; {create.undo_creation(client, made)}") from None
        return job_id

    # --- following ---------------------------------------------------------------------------------------------------

    def status(self, jobs: Sequence[Submitted]) -> dict[str, Status]:
        """What watches have told, without a request; before an end is believed, one LIST a kind for all jobs."""
        clusters, unreadable = self._by_cluster(jobs)
        found = {job_id: Status(State.LOST, why) for job_id, why in unreadable.items()}
        for cluster, mine in clusters.items():
            try:
                found |= cluster.status(mine, stop=self.ends_failed)
            except LoginNeeded:
                raise
            except (AwayError, RefusedError) as error:
                found |= dict.fromkeys((job.submitted.job_id for job in mine), unseen(error))
        self._ended_well = {job_id for job_id, status in found.items() if status.state.outcome is Outcome.PASSED}
        return found

    def has_news(self, jobs: Sequence[Submitted]) -> bool:
        """A look costs as little."""
        return False

    def read(self, job: Submitted, offset: int, known: bytes = b"") -> bytes:
        """Of the merged log, a file of ours that only grows. Raises RefusedError when the job has ended and some of its
        lines have not come."""
        one = self._known(job)
        log = self._cluster(one.place).log(one)
        waits = log.to_come if one.ended is not None else ()  # before: what completes meanwhile is read
        chunk = log.read(offset)
        if not chunk and waits:
            raise RefusedError("; ".join(waits))
        return chunk

    def gaps(self, job: Submitted) -> Sequence[str]:
        """Rotated away, or gone with a pod that was deleted from under us."""
        one = self._known(job)
        try:
            return self._cluster(one.place).log(one).lost
        except RefusedError:  # its folder cannot be written: `read` has said so
            return ()

    # --- ending ------------------------------------------------------------------------------------------------------

    def cancel(self, jobs: Sequence[Submitted]) -> dict[str, str]:
        """Delete them, their pods with them, and see that they are gone; what is known of them by then stays known."""
        clusters, left = self._by_cluster(jobs)
        for cluster, mine in clusters.items():
            remains = delete.cancel_jobs(cluster.client, mine, self._clock, self._sleep)
            for one in mine:
                one.deleted = one.deleted or one.submitted.job_id not in remains
            left |= {job_id: f"{why}: {self._typed(job_id, 'delete {}')}" for job_id, why in remains.items()}
        return left

    def clean(self, job: Submitted) -> None:
        """Delete it; with the last job that anybody follows, see that all of them are gone."""
        one = self._known(job)
        cluster = self._cluster(one.place)
        delete.delete_job(cluster.client, one)
        one.deleted = True
        cluster.forget(one)
        self._ended_well.discard(job.job_id)
        if not self._ended_well and all(each.ended is not None for each in self._jobs.values()):
            deleted = [each for each in self._jobs.values() if each.deleted and each.place == one.place]
            remains = delete.wait_until_gone(cluster.client, deleted, CLEAN_S, self._clock, self._sleep)
            if remains:
                names = ", ".join(name for left in remains.values() for name in left)
                raise RefusedError(f"{cluster.client.where}: deleted, and still there: {names}")

    def hints(self, job: Submitted) -> tuple[str, ...]:
        """For kubectl; of a job that is not there any more only what its folder has."""
        one = self._known(job)
        if one.deleted:
            kept = (job.folder / name for name in (evidence.OBJECTS, "log"))
            return tuple(f"less {shlex.quote(str(path))}" for path in kept if path.exists())
        pods = f"-l {labels.JOB}={one.name}"
        return (
            self._typed(job.job_id, "describe {}"),
            self._typed(job.job_id, f"get pods {pods} -o wide"),
            self._typed(job.job_id, f"logs {pods} --all-containers --prefix --tail=-1"),
            self._typed(job.job_id, "delete {}"),
        )

    # --- clusters ----------------------------------------------------------------------------------------------------

    def _typed(self, job_id: str, words: str) -> str:
        """A command about one object, for which {} stands."""
        one = self._jobs[job_id]
        return self._cluster(one.place).client.kubectl_command(words.format(f"{one.address.resource}/{one.name}"))

    def _place(self, text: str) -> ClusterTarget:
        return job_record.target_of(text, ClusterTarget.of(self._platform), render.parse(text))

    def _cluster(self, place: ClusterTarget) -> Cluster:
        if place not in self._clusters:
            limit_s = self._platform.kubernetes.pod_start_limit_s
            self._clusters[place] = Cluster(Client(place), limit_s, self._clock)
        return self._clusters[place]

    def _known(self, job: Submitted) -> JobRecord:
        if job.job_id not in self._jobs:
            self._jobs[job.job_id] = job_record.read(job, self._clock)
        return self._jobs[job.job_id]

    def _by_cluster(self, jobs: Sequence[Submitted]) -> tuple[dict[Cluster, list[JobRecord]], dict[str, str]]:
        """And why some of them cannot be known any more, by id."""
        found: dict[Cluster, list[JobRecord]] = {}
        unreadable: dict[str, str] = {}
        for job in jobs:
            try:
                one = self._known(job)
            except RefusedError as error:
                unreadable[job.job_id] = str(error)
            else:
                found.setdefault(self._cluster(one.place), []).append(one)
        return found, unreadable
