"""What a real cluster has and lets us do, looked at once: a scenario that needs what is not there says so and is
skipped."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from functools import cached_property

from tests.fake_kubernetes.api.errors import KubeError
from tests.kubernetes_scenarios.cluster_admin import ClusterAdmin, Tree

STAND_IN = {
    "kubelet": "needs a node that a test may take away",
    "kinds": "needs the controllers of custom kinds, which the stand-in has",
}
RIGHTS = {
    "events": [("list", "events", "")],
    "nodes": [("list", "nodes", "")],
    "quota": [("create", "resourcequotas", "")],
    "device": [("patch", "nodes", "status"), ("list", "nodes", "")],
    "priority": [("create", "priorityclasses", "")],
    "namespace": [("create", "namespaces", "")],
    "evict": [("create", "pods", "eviction")],
    "kueue": [
        ("create", "clusterqueues", ""),
        ("create", "resourceflavors", ""),
        ("create", "localqueues", ""),
        ("patch", "workloads", "status"),
    ],
}
PATIENCE_S, PULL_S = 120.0, 900.0
MOST_NODES = 16  # to which an image is brought beforehand
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


def probe(name: str, image: str, *command: str, labels: Tree | None = None, **spec: object) -> Tree:
    """A small pod, as the restricted Pod Security Standard wants it."""
    inner = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    box = {"name": "c", "image": image, "command": list(command), "securityContext": inner}
    box["resources"] = {"requests": {"cpu": "10m", "memory": "32Mi"}}
    outer = {"runAsNonRoot": True, "runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"}}
    made = {"restartPolicy": "Never", "automountServiceAccountToken": False, "terminationGracePeriodSeconds": 1}
    metadata = {"name": name, "labels": labels or {}}
    pod = {**made, "securityContext": outer, "containers": [box], **spec}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": pod}


class Capabilities:
    """Of one session, whose `key` is in the names of what is made for it."""

    def __init__(self, admin: ClusterAdmin, image: str, key: str) -> None:
        self._admin, self._image, self._key = admin, image, key
        self._known: dict[str, str] = {}

    def lacks(self, need: str) -> str:
        """Why there is none; empty: there is."""
        if need not in self._known:
            self._known[need] = self._lacks(need)
        return self._known[need]

    def _lacks(self, need: str) -> str:
        if need in STAND_IN:
            return STAND_IN[need]
        if missing := self._forbidden(need):
            return f"needs the right to {', '.join(missing)}"
        probes = {"registry": self._no_registry, "storage": self._no_storage,
                  "device": self._no_node, "kueue": self._no_kueue}  # fmt: skip
        return probes[need]() if need in probes else ""

    def _forbidden(self, need: str) -> list[str]:
        asked = RIGHTS.get(need, [])
        return [f"{verb} {resource}{below and '/' + below}" for verb, resource, below in asked
                if not self._admin.may(verb, resource, below)]  # fmt: skip

    # nodes

    @cached_property
    def nodes(self) -> list[Tree]:
        """Those that take pods, as far as we may see them."""
        found = self._admin.list("nodes") if self._admin.may("list", "nodes") else []
        return [each for each in found if not any(map(_repels, each["spec"].get("taints") or ()))]

    def _no_node(self) -> str:
        return "" if self.nodes else "needs a node without taints"

    def pull(self) -> None:
        """The image is on each node, or on one where nodes may not be seen: no limit has to hold its pull.

        Raises AssertionError with what a node says of it.
        """
        hosts = [each["metadata"]["labels"].get("kubernetes.io/hostname") for each in self.nodes[:MOST_NODES]]
        names = [f"pull-{self._key}-{number}" for number, _ in enumerate(hosts or [None])]
        for name, host in zip(names, hosts or [None], strict=True):
            chosen = {"nodeSelector": {"kubernetes.io/hostname": host}} if host else {}
            self._admin.create("pods", probe(name, self._image, "sh", "-c", "command -v python3", **chosen))
        self._until(lambda: all(self._pulled(name) for name in names), PULL_S)
        assert any(self._phase(name) == "Succeeded" for name in names), (
            f"--live-image {self._image}: no pod with it has ended well on any node: {self._said(names[0])}"
        )
        for name in names:
            self._admin.delete("pods", name)

    def _pulled(self, name: str) -> bool:
        said = self._said(name)
        assert "ImagePullBackOff" not in said, f"--live-image {self._image}: {said}"
        assert "InvalidImageName" not in said, f"--live-image {self._image}: {said}"
        return self._phase(name) in ("Succeeded", "Failed")

    def _said(self, name: str) -> str:
        status = self._pod(name)["status"]
        waits = [box["state"].get("waiting") or {} for box in status.get("containerStatuses", ())]
        rows = [f"{each.get('reason')}: {each.get('message')}" for each in (*waits, *status.get("conditions", ()))
                if each.get("message")]  # fmt: skip
        return "; ".join([str(status.get("phase")), *rows])

    # probes

    @cached_property
    def registry(self) -> tuple[int, str]:
        """Its port, and the node on which it listens. Raises KubeError, AssertionError."""
        port, name = 20000 + secrets.randbelow(10000), f"registry-{self._key}"
        pod = probe(name, self._image, "python3", "-c", REGISTRY, str(port), hostNetwork=True)
        self._admin.create("pods", pod)
        assert self._until(lambda: self._phase(name) == "Running"), f"it does not run: {self._said(name)}"
        time.sleep(1.0)  # until it listens
        return port, str(self._pod(name)["spec"]["nodeName"])

    def _no_registry(self) -> str:
        return self._tried(lambda: bool(self.registry), "a pod in its node's network")

    def _no_kueue(self) -> str:
        return self._tried(lambda: bool(self._admin.ask("GET", "/apis/kueue.x-k8s.io")), "a Kueue")

    @cached_property
    def storage_node(self) -> str:
        """A pod on it has a volume of a claim that names no class; empty: nobody makes one."""
        name = f"storage-{self._key}"
        spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}}
        claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name}, "spec": spec}
        self._admin.create("persistentvolumeclaims", claim)
        volume = {"name": "v", "persistentVolumeClaim": {"claimName": name}}
        self._admin.create("pods", probe(name, self._image, "true", volumes=[volume]))
        ended = self._until(lambda: self._phase(name) == "Succeeded")
        return str(self._pod(name)["spec"]["nodeName"]) if ended else ""

    def _no_storage(self) -> str:
        return self._tried(lambda: bool(self.storage_node), "somebody who makes volumes for claims")

    def _tried(self, works: Callable[[], bool], what: str) -> str:
        try:
            return "" if works() else f"needs {what}"
        except KubeError as error:
            return f"needs {what}: {error.message}"
        except AssertionError as error:
            return f"needs {what}: {error}"

    def _phase(self, name: str) -> str:
        return str(self._pod(name)["status"].get("phase"))

    def _pod(self, name: str) -> Tree:
        return self._admin.get("pods", name) or {"status": {}, "spec": {}}

    def _until(self, true: Callable[[], bool], limit_s: float = PATIENCE_S) -> bool:
        end = time.monotonic() + limit_s
        while not true():
            if time.monotonic() > end:
                return False
            time.sleep(0.2)
        return True


def _repels(taint: Tree) -> bool:
    return taint.get("effect") != "PreferNoSchedule"
