"""One job as this process knows it: read from its id and its folder, followed, and in the end judged for good."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from platforms.job import RefusedError, Status, Submitted
from platforms.schedulers.kubernetes.api.kubeconfig import ClusterTarget
from platforms.schedulers.kubernetes.api.resources import Resource
from platforms.schedulers.kubernetes.manifest import render
from platforms.schedulers.kubernetes.objects import labels

TEXT, CREATED = "manifest.yaml", "created.json"  # in its folder: what was submitted, and what became of that


@dataclass(frozen=True)
class Address:
    """A job's id, `kind-kind:default/job.batch/resnet50-1x4gpu-k3f9a2bc`: it names the same job whatever becomes the
    current context later."""

    context: str
    namespace: str
    resource: str
    name: str

    @classmethod
    def parse(cls, job_id: str) -> Address:
        """Raises RefusedError when it is none."""
        where, _, rest = job_id.rpartition(":")
        match = re.fullmatch(r"([^/]+)/([^/]+)/([^/]+)", rest)
        if not match:
            raise RefusedError(f"{job_id!r} is no job of Kubernetes: <context>:<namespace>/<resource>/<name>")
        return cls(where, *match.groups())

    def __str__(self) -> str:
        return f"{self.context}:{self.namespace}/{self.resource}/{self.name}"


class Timers:
    """For how long conditions have been true without a break: those that nobody asks for in a round begin anew."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._since: dict[str, float] = {}
        self._asked: dict[str, float] = {}

    def waited(self, name: str) -> float:
        """Seconds since it was first asked for in an unbroken row of rounds."""
        now = self._clock()
        self._asked[name] = self._since.get(name, now)
        return now - self._asked[name]

    def next_round(self) -> None:
        self._since, self._asked = self._asked, {}


@dataclass
class JobRecord:
    """`objects` is what was submitted, the root last. `ended` is the verdict that nothing changes any more."""

    submitted: Submitted
    address: Address
    objects: tuple[Mapping[str, Any], ...]
    place: ClusterTarget
    timers: Timers = field(default_factory=Timers)
    failed: Status | None = None  # it has failed, and what still runs of it is being stopped
    stopping: float | None = None  # since when
    unstopped: str = ""  # why it could not be at the last try
    ended: Status | None = None
    deleted: bool = False

    @property
    def root(self) -> Mapping[str, Any]:
        return self.objects[-1]

    @property
    def run(self) -> str:
        """The label that it shares with the other jobs of its run."""
        return str(self.root["metadata"]["labels"][labels.RUN])

    @property
    def name(self) -> str:
        return str(self.root["metadata"]["name"])

    @property
    def unowned(self) -> list[tuple[str, str, str]]:
        """apiVersion, kind and name of each object beside the root that does not go when that goes."""
        try:
            record = json.loads((self.submitted.folder / CREATED).read_text(encoding="utf-8"))
            return [(str(version), str(kind), str(name)) for version, kind, name in record.get("unowned", ())]
        except (OSError, ValueError, AttributeError, TypeError):
            return []


def read(submitted: Submitted, clock: Callable[[], float] = time.monotonic) -> JobRecord:
    """Raises RefusedError when the folder does not hold what was submitted, or nothing that can be read."""
    address = Address.parse(submitted.job_id)
    path = submitted.folder / TEXT
    try:
        text = path.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError as error:
        raise RefusedError(f"{path}: what was submitted cannot be read any more: {error.strerror}") from None
    _context, kubeconfig = render.cluster_of(text)
    place = ClusterTarget(kubeconfig, address.context, (), address.namespace)
    return JobRecord(submitted, address, render.parse(text), place, Timers(clock))


def address_of(context: str, namespace: str, resource: Resource, root: Mapping[str, Any]) -> Address:
    return Address(context, namespace, resource.kubectl, str(root["metadata"]["name"]))


def target_of(text: str, asked: ClusterTarget, objects: tuple[Mapping[str, Any], ...]) -> ClusterTarget:
    """Where a manifest goes: what its head and its objects say, else what the platform says."""
    context, kubeconfig = render.cluster_of(text)
    namespace = objects[-1]["metadata"].get("namespace", asked.namespace)
    contexts = () if context else asked.contexts
    return ClusterTarget(kubeconfig or asked.kubeconfig, context or asked.context, contexts, namespace)
