"""What the steps of doctor share when they look at a cluster: the client, and the jobs that pytest would submit."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from platforms.job import JobSpec, RefusedError
from platforms.schedulers.doctor_steps import Visit
from platforms.schedulers.kubernetes.api.client import Client
from platforms.schedulers.kubernetes.api.kubeconfig import ClusterTarget
from platforms.schedulers.kubernetes.api.resources import Resource
from platforms.schedulers.kubernetes.manifest import render
from platforms.schedulers.kubernetes.objects import pod_templates
from platforms.schedulers.kubernetes.objects.capacity import PodDemand, demands
from platforms.schedulers.kubernetes.status import kueue

Object = dict[str, Any]


@dataclass(frozen=True)
class RenderedJob:
    """One job as pytest would submit it."""

    spec: JobSpec
    text: str
    objects: tuple[Object, ...]

    @property
    def root(self) -> Object:
        return pod_templates.root_of(self.objects)

    @property
    def demands(self) -> list[PodDemand]:
        return list(demands(self.root))

    @property
    def queue(self) -> str:
        """The Kueue LocalQueue that the job names; empty when it names none."""
        return kueue.queue_of(self.root)

    def __str__(self) -> str:
        return f"{self.spec.benchmark} {self.spec.layout}"


@dataclass(frozen=True)
class ClusterVisit:
    """A visit to a cluster. Client and jobs are made when the first step wants them, and may raise BenchErrors.

    `cluster_queues`: what the step `queue` has seen of the ClusterQueues behind the LocalQueues that jobs name.
    """

    visit: Visit
    cluster_queues: dict[str, Object] = field(default_factory=dict)

    @cached_property
    def client(self) -> Client:
        return Client(ClusterTarget.of(self.visit.platform))

    @cached_property
    def jobs(self) -> tuple[RenderedJob, ...]:
        """The jobs of each benchmark in each of its layouts, the largest first."""
        jobs = []
        for spec in self.visit.specs():
            text = self.visit.scheduler.render(spec)
            jobs.append(RenderedJob(spec, text, tuple(render.parse(text))))
        jobs.sort(key=lambda job: -job.spec.layout.devices)
        return tuple(jobs)

    def kueue_kind(self, kind: str) -> Resource | None:
        """Look up one of Kueue's kinds. Returns None when the cluster has no Kueue."""
        version = kueue.version(self.client.served_versions(kueue.GROUP))
        if not version:
            return None
        return self.client.resource(f"{kueue.GROUP}/{version}", kind)

    def refusal(self, problem: str, keys: str) -> RefusedError:
        """Make the error that states a problem of the cluster and the keys of the platform's file to look at."""
        return RefusedError(f"{self.client.where}: {problem}; {keys} in {self.visit.platform.source}")
