"""A cluster as scenarios need it, a stand-in or a real one: what may be made on it, and what can be done to it."""

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

from tests.clusters.kube import Kube
from tests.clusters.kube.errors import KubeError
from tests.clusters.kube.message import Answer, Request, Stream
from tests.clusters.relay import Relay

Tree = dict[str, Any]
IMAGE = "bench.local/python:3.11"
OURS = "app.kubernetes.io/managed-by=hpc-ml-bench"
GROUPS = {
    **dict.fromkeys(("jobs",), "apis/batch/v1"),
    "priorityclasses": "apis/scheduling.k8s.io/v1",
    "customresourcedefinitions": "apis/apiextensions.k8s.io/v1",
    "selfsubjectaccessreviews": "apis/authorization.k8s.io/v1",
}
CLUSTER_WIDE = ("nodes", "namespaces", "priorityclasses", "customresourcedefinitions", "selfsubjectaccessreviews")
GONE_S = 120.0
SHOWN = ("pods", "jobs", "services", "secrets", "configmaps")
# A registry that refuses by the name of the image, for nodes that take 127.0.0.1 for one without TLS
REGISTRY = """
import http.server, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        code = next((int(part) for part in self.path.split("/") if part in ("401", "404", "500")), 200)
        self.send_response(code)
        self.send_header("Content-Length", "0")
        self.end_headers()
    do_HEAD = do_GET
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


class Hands:
    """What a person at the cluster does, past all faults. Objects are named as in `pods`, `racks.bench.local/v1`."""

    def __init__(self, respond: Callable[[Request], Answer | Stream], namespace: str) -> None:
        self._respond, self.namespace = respond, namespace
        self.made: list[tuple[str, str, str]] = []

    def ask(self, method: str, path: str, body: Tree | None = None, query: Mapping[str, str] | None = None) -> Any:
        """Raises KubeError for every answer that is a no."""
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        content = b"" if body is None else json.dumps(body).encode()
        answer = self._respond(Request(method, path, dict(query or {}), {"content-type": kind}, content))
        if isinstance(answer, Stream):
            return b"".join(piece for piece in answer.pieces if piece)
        if answer.status >= 400:
            said = answer.body if isinstance(answer.body, dict) else {"message": answer.body}
            raise KubeError(answer.status, str(said.get("message")), reason=str(said.get("reason", "")))
        return answer.body

    def path(self, kind: str, name: str = "", *below: str, namespace: str = "") -> str:
        plural, _, group = kind.partition(".")
        base = f"apis/{group}" if group else GROUPS.get(plural, "api/v1")
        home = () if plural in CLUSTER_WIDE else ("namespaces", namespace or self.namespace)
        return "/" + "/".join(part for part in (base, *home, plural, name, *below) if part)

    def get(self, kind: str, name: str) -> Tree | None:
        """None where there is none."""
        try:
            found: Tree = self.ask("GET", self.path(kind, name))
        except KubeError as error:
            if error.code != 404:
                raise
            return None
        return found

    def list(self, kind: str, selector: str = "", namespace: str = "") -> list[Tree]:
        query = {"labelSelector": selector} if selector else {}
        found: list[Tree] = self.ask("GET", self.path(kind, namespace=namespace), query=query)["items"]
        return found

    def create(self, kind: str, obj: Tree) -> Tree:
        """It is deleted at the end."""
        made: Tree = self.ask("POST", self.path(kind), obj)
        self.made.append((kind, made["metadata"]["name"], made["metadata"]["uid"]))
        return made

    def patch(self, kind: str, name: str, patch: Tree, *below: str) -> None:
        self.ask("PATCH", self.path(kind, name, *below), patch)

    def delete(self, kind: str, name: str, **options: Any) -> None:
        """Gone already is fine."""
        with contextlib.suppress(KubeError):
            self.ask("DELETE", self.path(kind, name), {"propagationPolicy": "Background", **options})

    def evict(self, pod: str) -> None:
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod, "namespace": self.namespace}}
        self.ask("POST", self.path("pods", pod, "eviction"), body)

    def may(self, verb: str, resource: str, group: str = "", below: str = "") -> bool:
        place = {"verb": verb, "resource": resource, "group": group, "subresource": below}
        if resource not in CLUSTER_WIDE:
            place["namespace"] = self.namespace
        review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview"}
        answer = self.ask(
            "POST", self.path("selfsubjectaccessreviews"), review | {"spec": {"resourceAttributes": place}}
        )
        return bool(answer["status"]["allowed"])


@dataclass
class Stage:
    """`front` is what our requests go to; `fake` is the stand-in where it is one.

    `surprises`: what comes of creating a Job of that name. `key` is in the names of what belongs to this session.
    """

    front: Kube | Relay
    hands: Hands
    fake: Kube | None
    image: str
    torch_image: str | None
    later: ExitStack = field(default_factory=ExitStack)
    key: str = field(default_factory=lambda: f"k{secrets.token_hex(3)}")
    notes: dict[str, Any] = field(default_factory=dict)
    surprises: dict[str, Callable[[Request], Answer | None]] = field(default_factory=dict)

    @property
    def namespace(self) -> str:
        return self.hands.namespace

    def surprise(self) -> None:
        """From now on what creates a Job is looked at."""
        self.front.fault("POST", "/jobs", None, do=self._surprise)

    def _surprise(self, request: Request) -> Answer | None:
        known = self.surprises.get(request.json()["metadata"]["name"])
        return known(request) if known else None

    def node_kills(self, pod: str) -> None:
        """The first process of each of its containers, from outside."""
        assert self.fake is not None
        self.fake.machines.kill(pod)

    # what there is

    def lacks(self, need: str) -> str:
        """Why a scenario that needs this cannot be played here; empty: it can."""
        if self.fake is not None:
            return ""
        if need in ("kubelet", "old", "kueue"):
            return {
                "kubelet": "needs a node that a test may take away",
                "old": "needs a cluster that speaks as Kubernetes 1.20 did",
                "kueue": "needs a Kueue whose queues a test may change",
            }[need]
        if need == "registry":
            return self._no_registry
        rights = {
            "events": [("list", "events", "", "")],
            "quota": [("create", "resourcequotas", "", "")],
            "device": [("patch", "nodes", "", "status"), ("list", "nodes", "", "")],
            "priority": [("create", "priorityclasses", "scheduling.k8s.io", "")],
            "kinds": [("create", "customresourcedefinitions", "apiextensions.k8s.io", "")],
            "namespace": [("create", "namespaces", "", "")],
        }[need]
        missing = [f"{verb} {resource}{below and '/' + below}" for verb, resource, group, below in rights
                   if not self.hands.may(verb, resource, group, below)]  # fmt: skip
        return f"needs the right to {', '.join(missing)}" if missing else ""

    @cached_property
    def node(self) -> str:
        """One that takes pods."""
        nodes = self.hands.list("nodes")
        return next(str(each["metadata"]["name"]) for each in nodes if not each["spec"].get("taints"))

    def device(self, name: str, count: int | None) -> None:
        """So many of them on one node from now on; None: it does not know such a thing."""
        amount = {name: None if count is None else str(count)}
        self.hands.patch("nodes", self.node, {"status": {"capacity": amount, "allocatable": amount}}, "status")
        if count is not None:
            self.later.callback(self.device, name, None)

    def priority_class(self, value: int) -> str:
        name = f"bench-{self.key}-{value}"
        if self.hands.get("priorityclasses", name) is None:
            kind = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass"}
            self.hands.create("priorityclasses", {**kind, "metadata": {"name": name}, "value": value})
        return name

    def kind(self, group: str, version: str, kind: str) -> None:
        """From now on there is one; what the objects of it hold is not looked at."""
        plural = f"{kind.lower()}s"
        schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        served = {"name": version, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
        names = {"kind": kind, "plural": plural, "singular": kind.lower(), "listKind": f"{kind}List"}
        spec: Tree = {"group": group, "scope": "Namespaced", "names": names}
        spec |= {"versions": [{**served, "subresources": {"status": {}}}]}
        definition = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition"}
        name = f"{plural}.{group}"
        if self.hands.get("customresourcedefinitions", name) is None:
            self.hands.create("customresourcedefinitions", {**definition, "metadata": {"name": name}, "spec": spec})
            self._wait(lambda: self.serves(f"{plural}.{group}/{version}"), f"{name} is served")

    def serves(self, kind: str) -> bool:
        """`racks.bench.local/v1`."""
        try:
            self.hands.list(kind)
        except KubeError:
            return False
        return True

    @cached_property
    def other_namespace(self) -> str:
        name = f"hpc-ml-bench-{self.key}-b"
        kind = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        self.hands.create("namespaces", kind)
        self._wait(lambda: self.hands.list("serviceaccounts", namespace=name), f"{name} is usable")
        return name

    def other_context(self) -> tuple[Path, str]:
        """A kubeconfig in which it is named, and not the current one."""
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

    # images that cannot be pulled

    def image_that(self, answers: str) -> Mapping[str, Any]:
        """`image` and `nodeSelector` of a pod whose image's pull is answered with `401`, `404`, `500` or `refused`."""
        if self.fake is not None:
            image = f"127.0.0.1:25999/bench/{answers}-{secrets.token_hex(3)}:1"
            self.fake.images.refuse(image, {"404": "NotFound"}.get(answers, answers))
            return {"image": image, "nodeSelector": {}}
        if answers == "refused":
            return {"image": "127.0.0.1:1/bench/none:1", "nodeSelector": {}}
        port, node = self._registry
        return {"image": f"127.0.0.1:{port}/bench/{answers}:1", "nodeSelector": {"kubernetes.io/hostname": node}}

    @cached_property
    def _no_registry(self) -> str:
        """Why there can be none."""
        try:
            assert self._registry
        except KubeError as error:
            return f"needs a pod in its node's network: {error.message}"
        return ""

    @cached_property
    def _registry(self) -> tuple[int, str]:
        port, name = 20000 + secrets.randbelow(10000), f"registry-{self.key}"
        command = ["python3", "-c", REGISTRY, str(port)]
        spec = {"hostNetwork": True, "containers": [{"name": "c", "image": self.image, "command": command}]}
        self.hands.create("pods", {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec})
        self._wait(lambda: self._pod(name)["status"].get("phase") == "Running", "the registry runs")
        time.sleep(1.0)  # until it listens
        return port, str(self._pod(name)["spec"]["nodeName"])

    def _pod(self, name: str) -> Tree:
        return self.hands.get("pods", name) or {"status": {}, "spec": {}}

    def heal(self, pod: Tree) -> None:
        """Its image can be had from now on: from its registry, or since somebody gives it another one."""
        image = pod["spec"]["containers"][0]["image"]
        if self.fake is not None:
            for refusal in self.fake.images.refusals:
                refusal.times = 0 if refusal.pattern.search(image) else refusal.times
            return
        containers = [{**pod["spec"]["containers"][0], "image": self.image}]
        self.hands.patch("pods", pod["metadata"]["name"], {"spec": {"containers": containers}})

    # the end

    def sweep(self) -> None:
        """Delete everything that was made, and see that it is gone. AssertionError."""
        self.later.close()
        self.front.clear_faults()
        for kind, name, _uid in reversed(self.hands.made):
            self.hands.delete(kind, name)
        for kind in SHOWN:
            for each in self._listed(kind):
                self.hands.delete(kind, each["metadata"]["name"], gracePeriodSeconds=1)
        self._wait(lambda: not self._left(), "all is gone")

    def _listed(self, kind: str) -> list[Tree]:
        return [each for each in self.hands.list(kind, OURS) if self._mine(each)]

    def _mine(self, each: Tree) -> bool:
        """Of this session: jobs of other people's sessions may be in the namespace, too."""
        labels = each["metadata"].get("labels", {})
        return bool(labels.get("hpc-ml-bench/platform", "").startswith(self.key))

    def _left(self) -> list[str]:
        made = [f"{kind}/{name}" for kind, name, uid in self.hands.made if self._lives(kind, name, uid)]
        return made + [f"{kind}/{each['metadata']['name']}" for kind in SHOWN for each in self._listed(kind)]

    def _lives(self, kind: str, name: str, uid: str) -> bool:
        found = self.hands.get(kind, name)
        return found is not None and found["metadata"]["uid"] == uid

    def _wait(self, true: Callable[[], object], what: str) -> None:
        end = time.monotonic() + GONE_S
        while not true():
            assert time.monotonic() < end, f"waited in vain: {what}: {self._left() if what == 'all is gone' else ''}"
            time.sleep(0.05 if self.fake else 0.5)


@contextlib.contextmanager
def fake_stage(folder: Path) -> Iterator[Stage]:
    """A stand-in in the threads of this process."""
    with Kube(folder) as kube:

        def respond(request: Request) -> Answer | Stream:
            headers = {**request.headers, "authorization": f"Bearer {kube.access.token}"}
            return kube.api.respond(Request(request.method, request.path, request.query, headers, request.body), stop)

        stop = threading.Event()
        stage = Stage(kube, Hands(respond, "default"), kube, IMAGE, IMAGE)
        yield stage
        stage.sweep()


@contextlib.contextmanager
def real_stage(folder: Path, kubeconfig: Path, image: str, torch_image: str | None) -> Iterator[Stage]:
    """In a namespace of its own where we may make one, else in the context's."""
    relay = Relay(folder, kubeconfig)
    hands = Hands(relay.forward, relay.namespace)
    own = f"hpc-ml-bench-{secrets.token_hex(4)}"
    if hands.may("create", "namespaces") and hands.may("delete", "namespaces"):
        hands.create("namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": own}})
        relay.namespace = hands.namespace = own
    relay.start()
    stage = Stage(relay, hands, None, image, torch_image)
    stage._wait(lambda: hands.namespace != own or hands.get("serviceaccounts", "default"), "the namespace is usable")
    try:
        yield stage
    finally:
        stage.sweep()
        relay.close()
