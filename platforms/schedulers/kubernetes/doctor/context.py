"""A platform that is a cluster, being looked at: how it is reached, and the jobs that pytest would submit there."""

from __future__ import annotations

from dataclasses import dataclass
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
        """Its pods."""
        return list(demands(self.root))

    @property
    def queue(self) -> str:
        """Kueue's LocalQueue; empty when it names none."""
        return kueue.queue_of(self.root)

    def __str__(self) -> str:
        return f"{self.spec.benchmark} {self.spec.layout}"


@dataclass(frozen=True)
class ClusterVisit:
    """A visit to a cluster. Client and jobs are made when the first step wants them, and may raise BenchErrors."""

    visit: Visit

    @cached_property
    def client(self) -> Client:
        return Client(ClusterTarget.of(self.visit.platform))

    @cached_property
    def jobs(self) -> tuple[RenderedJob, ...]:
        """A job of each benchmark in each of its layouts, the largest first."""
        made = [(spec, self.visit.scheduler.render(spec)) for spec in self.visit.specs()]
        jobs = [RenderedJob(spec, text, tuple(render.parse(text))) for spec, text in made]
        return tuple(sorted(jobs, key=lambda job: -job.spec.layout.devices))

    def kueue_kind(self, kind: str) -> Resource | None:
        """A kind of Kueue's; None: the cluster has no Kueue."""
        version = kueue.version(self.client.served_versions(kueue.GROUP))
        return self.client.resource(f"{kueue.GROUP}/{version}", kind) if version else None

    def wrong(self, said: str, keys: str) -> RefusedError:
        """What is wrong there, and which keys of the platform's file to look at."""
        return RefusedError(f"{self.client.where}: {said}; {keys} in {self.visit.platform.source}")
