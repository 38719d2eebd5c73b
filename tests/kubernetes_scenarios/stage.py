"""The cluster on which scenarios are played, a fake or a real one: what it offers, and what can be done to it."""

from __future__ import annotations

import contextlib
import json
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from tests.fake_kubernetes import Kube
from tests.fake_kubernetes.api.errors import KubeError
from tests.fake_kubernetes.api.messages import Answer, Request, Stream
from tests.kubernetes_scenarios.capabilities import Capabilities
from tests.kubernetes_scenarios.cluster_admin import ClusterAdmin, Tree
from tests.kubernetes_scenarios.relay import Relay

IMAGE = "bench.local/python:3.11"
OURS = "app.kubernetes.io/managed-by=hpc-ml-bench"
GONE_S = 120.0
SHOWN = ("pods", "jobs", "services", "secrets", "configmaps")


@dataclass
class Stage:
    """`front` is what our requests go to; `fake` is the stand-in where it is one.

    `interceptors`: what comes of creating a job of that name. `key` is in the names of what belongs to this session.
    """

    front: Kube | Relay
    admin: ClusterAdmin
    fake: Kube | None
    image: str
    torch_image: str | None
    later: ExitStack = field(default_factory=ExitStack)
    key: str = field(default_factory=lambda: f"k{secrets.token_hex(3)}")
    notes: dict[str, Any] = field(default_factory=dict)
    interceptors: dict[str, Callable[[Request], Answer | None]] = field(default_factory=dict)

    @property
    def namespace(self) -> str:
        return self.admin.namespace

    def intercept_creations(self) -> None:
        """From now on what creates a Job or a Pod is looked at."""
        self.front.fault("POST", "/(jobs|pods)$", None, do=self._intercept)

    def _intercept(self, request: Request) -> Answer | None:
        known = self.interceptors.get(request.json()["metadata"]["name"])
        return known(request) if known else None

    def node_kills(self, pod: str) -> None:
        """Kill the first process of each container of a pod, as its node would."""
        assert self.fake is not None
        self.fake.components.kill(pod)

    # what there is

    def lacks(self, need: str) -> str:
        """Return why the cluster lacks this, "" if it has it."""
        return "" if self.fake is not None else self.capabilities.lacks(need)

    @cached_property
    def capabilities(self) -> Capabilities:
        return Capabilities(self.admin, self.image, self.key)

    @cached_property
    def shown(self) -> tuple[str, ...]:
        """The kinds of our objects that we may list."""
        return tuple(kind for kind in SHOWN if self.fake is not None or self.admin.may("list", kind))

    @property
    def node(self) -> str:
        """The name of a node that takes pods."""
        return str(self.capabilities.nodes[0]["metadata"]["name"])

    def limit_s(self, short_s: int) -> int:
        """Return `short_s` on a fake cluster, and more on a real one, which does other things at the same time."""
        return 20 if self.fake is None else short_s

    def device(self, name: str, count: int | None) -> None:
        """Give one node this number of devices; None removes the resource."""
        amount = {name: None if count is None else str(count)}
        self.admin.patch("nodes", self.node, {"status": {"capacity": amount, "allocatable": amount}}, "status")
        if count is not None:
            self.later.callback(self.device, name, None)

    def priority_class(self, value: int) -> str:
        name = f"bench-{self.key}-{value}"
        if self.admin.get("priorityclasses", name) is None:
            kind = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass"}
            self.admin.create("priorityclasses", {**kind, "metadata": {"name": name}, "value": value})
        return name

    def serves(self, kind: str) -> bool:
        """`racks.bench.local/v1`."""
        try:
            self.admin.list(kind)
        except KubeError:
            return False
        return True

    @cached_property
    def other_namespace(self) -> str:
        name = f"hpc-ml-bench-{self.key}-b"
        kind = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        self.admin.create("namespaces", kind)
        self._wait(lambda: self.admin.list("serviceaccounts", namespace=name), f"{name} is usable")
        return name

    def other_context(self) -> tuple[Path, str]:
        """Write a kubeconfig with a second context, and return its path and that context."""
        tree: Tree = json.loads(self.front.kubeconfig.read_text())
        named, user = tree["contexts"][0]["context"], tree["users"][0]["name"]
        tree["contexts"] = [
            {"name": "nowhere", "context": {"cluster": "nowhere", "user": user}},
            {"name": "there", "context": {**named, "namespace": self.other_namespace}},
        ]
        tree["clusters"].append({"name": "nowhere", "cluster": {"server": "http://127.0.0.1:1"}})
        path = self.front.kubeconfig.with_name("other")
        path.touch(0o600)
        path.write_text(json.dumps({**tree, "current-context": "nowhere"}))
        return path, "there"

    def move(self) -> str:
        """Move into a namespace of our own if we may make one, and return the namespace."""
        admin, name = self.admin, f"hpc-ml-bench-{self.key}"
        if admin.may("create", "namespaces") and admin.may("delete", "namespaces"):
            admin.create("namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
            admin.namespace = name
            self._wait(lambda: admin.get("serviceaccounts", "default"), f"{name} is usable")
        return admin.namespace

    # images that cannot be pulled

    def image_that(self, answers: str) -> Mapping[str, Any]:
        """`image` and `nodeSelector` of a pod whose image's pull is answered with `401`, `404`, `500` or `refused`."""
        if self.fake is not None or answers == "refused":
            return {"image": "127.0.0.1:1/bench/none:1", "nodeSelector": {}}
        port, node = self.capabilities.registry
        return {"image": f"127.0.0.1:{port}/bench/{answers}:1", "nodeSelector": {"kubernetes.io/hostname": node}}

    # the end

    def sweep(self) -> None:
        """Delete everything that was made and check that it is gone. One failure does not stop the others."""
        with ExitStack() as steps:  # from the last to the first
            steps.callback(self._wait, lambda: not self._left(), "all is gone")
            for kind in SHOWN:
                steps.callback(self._delete_ours, kind)
            for made in self.admin.made:
                steps.callback(self.admin.delete, *made[:2])
            steps.callback(self.front.clear_faults)
            steps.callback(self.later.close)

    def _delete_ours(self, kind: str) -> None:
        for each in self._listed(kind):
            self.admin.delete(kind, each["metadata"]["name"], gracePeriodSeconds=1)

    def _listed(self, kind: str) -> list[Tree]:
        found = self.admin.list(kind, OURS) if kind in self.shown else []
        return [each for each in found if self._mine(each)]

    def _mine(self, each: Tree) -> bool:
        """Return whether an object is of this session. The namespace may have objects of other sessions."""
        labels = each["metadata"].get("labels", {})
        return labels.get("hpc-ml-bench/platform", "").startswith(self.key) or self.key in each["metadata"]["name"]

    def _left(self) -> list[str]:
        made = [f"{kind}/{name}" for kind, name, uid in self.admin.made if self._lives(kind, name, uid)]
        return made + [f"{kind}/{each['metadata']['name']}" for kind in SHOWN for each in self._listed(kind)]

    def _lives(self, kind: str, name: str, uid: str) -> bool:
        found = self.admin.get(kind, name)
        return found is not None and found["metadata"]["uid"] == uid

    def _wait(self, true: Callable[[], object], what: str) -> None:
        end = time.monotonic() + GONE_S
        while not true():
            assert time.monotonic() < end, f"waited in vain: {what}: {self._left() if what == 'all is gone' else ''}"
            time.sleep(0.05 if self.fake else 0.5)


@contextlib.contextmanager
def fake_stage(folder: Path) -> Iterator[Stage]:
    """Yield a stage with a fake cluster in the threads of this process."""
    with Kube(folder) as kube:

        def respond(request: Request) -> Answer | Stream:
            headers = {**request.headers, "authorization": f"Bearer {kube.access.token}"}
            return kube.api.respond(Request(request.method, request.path, request.query, headers, request.body), stop)

        stop = threading.Event()
        stage = Stage(kube, ClusterAdmin(respond, "default"), kube, IMAGE, IMAGE)
        for kind, namespaced in (("Workload", True), ("LocalQueue", True), ("ClusterQueue", False)):
            kube.add_crd("kueue.x-k8s.io", "v1beta1", kind, f"{kind.lower()}s", namespaced=namespaced)
        yield stage
        stage.sweep()


@contextlib.contextmanager
def real_stage(folder: Path, kubeconfig: str, image: str, torch_image: str | None) -> Iterator[Stage]:
    """Yield a stage with a real cluster, in a namespace of our own if we may make one, else in the context's."""
    relay = Relay(folder, kubeconfig)
    stage = Stage(relay, ClusterAdmin(relay.forward, relay.namespace), None, image, torch_image)
    with ExitStack() as ends:
        ends.callback(relay.close)
        ends.callback(stage.sweep)
        relay.namespace = stage.move()
        relay.start()
        stage.capabilities.pull()
        yield stage
