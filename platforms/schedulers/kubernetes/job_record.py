"""The record of one job in this process: where its objects are, what was submitted, and how it ended."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from platforms.job import RefusedError, Status, Submitted
from platforms.schedulers.kubernetes.api.kubeconfig import ClusterTarget
from platforms.schedulers.kubernetes.api.resources import Resource
from platforms.schedulers.kubernetes.manifest import render
from platforms.schedulers.kubernetes.objects import fields, labels

TEXT = "manifest.yaml"  # in the job's folder: what was submitted
CREATED = "created.json"  # in the job's folder: what was created


@dataclass(frozen=True)
class Address:
    """A job's id, as in `kind-kind:default/job.batch/resnet50-1x4gpu-k3f9a2bc`.

    It names the same job whatever context is the current one later.
    """

    context: str
    namespace: str
    resource: str
    name: str

    @classmethod
    def parse(cls, job_id: str) -> Address:
        """Raises RefusedError for something else."""
        where, _, rest = job_id.rpartition(":")
        match = re.fullmatch(r"([^/]+)/([^/]+)/([^/]+)", rest)
        if not match:
            raise RefusedError(f"{job_id!r} is not the id of a Kubernetes job: <context>:<namespace>/<resource>/<name>")
        return cls(where, *match.groups())

    def __str__(self) -> str:
        return f"{self.context}:{self.namespace}/{self.resource}/{self.name}"


class Timers:
    """How long conditions have been true without a break: one that a round does not ask for starts at 0 again."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._since: dict[str, float] = {}
        self._asked: dict[str, float] = {}

    def waited(self, name: str) -> float:
        """Return the seconds since a condition was first asked for in an unbroken row of rounds."""
        now = self._clock()
        since = self._since.get(name, now)
        self._asked[name] = since
        return now - since

    def next_round(self) -> None:
        self._since = self._asked
        self._asked = {}


@dataclass
class JobRecord:
    """A job that was submitted. `objects` are the submitted ones, the root last."""

    submitted: Submitted
    address: Address
    objects: tuple[Mapping[str, Any], ...]
    target: ClusterTarget
    timers: Timers = field(default_factory=Timers)
    failed: Status | None = None  # its end, while pods of it may still run and are being stopped
    stopping: float | None = None  # since when, by the clock
    unstopped: str = ""  # why they could not be stopped in the last attempt
    ended: Status | None = None  # the final verdict
    deleted: bool = False

    @property
    def root(self) -> Mapping[str, Any]:
        return self.objects[-1]

    @property
    def run(self) -> str:
        """The label that the jobs of its run share."""
        return str(self.root["metadata"]["labels"][labels.RUN])

    @property
    def name(self) -> str:
        return str(self.root["metadata"]["name"])

    @property
    def unowned(self) -> list[tuple[str, str, str]]:
        """apiVersion, kind and name of each further object that is not deleted together with the root."""
        try:
            return [(str(version), str(kind), str(name)) for version, kind, name in self._created.get("unowned", ())]
        except (ValueError, TypeError):
            return []

    @property
    def uid(self) -> str:
        """The root's; "" if it could not be written down."""
        return fields.text(self._created, "uid")

    @cached_property
    def _created(self) -> Mapping[str, Any]:
        try:
            return fields.mapping(json.loads((self.submitted.folder / CREATED).read_text(encoding="utf-8")))
        except (OSError, ValueError):
            return {}

    def owns(self, obj: Mapping[str, Any]) -> bool:
        """Whether an object is the job's root or one of its pods, whatever its labels say by now.

        The uid of the root decides. A pod may also belong to what the root's controller has made and named after it.
        """
        owners = fields.items(obj, "metadata", "ownerReferences")
        for kind, metadata in ((obj.get("kind"), obj["metadata"]), *((owner.get("kind"), owner) for owner in owners)):
            if (kind, metadata.get("name")) == (self.root["kind"], self.name):
                return self.uid in ("", metadata.get("uid"))
        if any(fields.text(owner, "name").startswith(f"{self.name}-") for owner in owners):
            return True
        return fields.text(obj, "metadata", "labels", labels.JOB) == self.name


def job_of(obj: Mapping[str, Any], jobs: Mapping[str, JobRecord]) -> str:
    """Return which of some jobs, by name, owns a root or a pod; "" if none does."""
    labelled = jobs.get(fields.text(obj, "metadata", "labels", labels.JOB))
    candidates = jobs.values() if labelled is None else (labelled,)
    return next((job.name for job in candidates if job.owns(obj)), "")


def read(submitted: Submitted, clock: Callable[[], float] = time.monotonic) -> JobRecord:
    """Read the record of a job from its id and its folder. Raises RefusedError when its manifest cannot be read."""
    address = Address.parse(submitted.job_id)
    path = submitted.folder / TEXT
    try:
        text = path.read_text(encoding="utf-8", errors="surrogateescape")
    except FileNotFoundError as error:
        raise RefusedError(f"{path}: the submitted manifest cannot be read: {error.strerror}") from None
    _context, kubeconfig = render.cluster_of(text)
    target = ClusterTarget(kubeconfig, address.context, (), address.namespace)
    return JobRecord(submitted, address, render.parse(text), target, Timers(clock))


def address_of(context: str, namespace: str, resource: Resource, root: Mapping[str, Any]) -> Address:
    return Address(context, namespace, resource.kubectl, str(root["metadata"]["name"]))


def target_of(text: str, asked: ClusterTarget, objects: tuple[Mapping[str, Any], ...]) -> ClusterTarget:
    """Return where a manifest is submitted: what its head and its objects name, else what the platform names."""
    context, kubeconfig = render.cluster_of(text)
    namespace = objects[-1]["metadata"].get("namespace", asked.namespace)
    contexts = () if context else asked.contexts
    return ClusterTarget(kubeconfig or asked.kubeconfig, context or asked.context, contexts, namespace)
