"""Requests of an administrator, without the client library and past all injected faults."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Mapping
from typing import Any

from tests.fake_kubernetes.api.errors import KubeError
from tests.fake_kubernetes.api.messages import Answer, Request, Stream

Tree = dict[str, Any]
GROUPS = {
    **dict.fromkeys(("jobs",), "apis/batch/v1"),
    "priorityclasses": "apis/scheduling.k8s.io/v1",
    "storageclasses": "apis/storage.k8s.io/v1",
    "customresourcedefinitions": "apis/apiextensions.k8s.io/v1",
    "selfsubjectaccessreviews": "apis/authorization.k8s.io/v1",
    **dict.fromkeys(("clusterqueues", "resourceflavors", "localqueues", "workloads"), "apis/kueue.x-k8s.io/v1beta1"),
}
CLUSTER_WIDE = (
    "nodes", "namespaces", "priorityclasses", "storageclasses", "customresourcedefinitions", "selfsubjectaccessreviews",
    "clusterqueues", "resourceflavors",
)  # fmt: skip


class ClusterAdmin:
    """An administrator of the cluster. Kinds are named as in `pods` or `racks.bench.local/v1`."""

    def __init__(self, respond: Callable[[Request], Answer | Stream], namespace: str) -> None:
        self._respond, self.namespace = respond, namespace
        self.made: list[tuple[str, str, str]] = []

    def ask(self, method: str, path: str, body: Tree | None = None, query: Mapping[str, str] | None = None) -> Any:
        """Send a request and return the body of the answer. Raises KubeError for a refusal."""
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        content = b"" if body is None else json.dumps(body).encode()
        request = Request(method, path, dict(query or {}), {"content-type": kind}, content)
        answer = self._get_with_retries(request) if method == "GET" else self._respond(request)
        if isinstance(answer, Stream):
            return b"".join(piece for piece in answer.pieces if piece)
        if answer.status >= 400:
            said = answer.body if isinstance(answer.body, dict) else {"message": answer.body}
            raise KubeError(answer.status, str(said.get("message")), reason=str(said.get("reason", "")))
        return answer.body

    def _get_with_retries(self, request: Request) -> Answer | Stream:
        """Send a GET, and again after a connection error or a server error."""
        for pause_s in (0.2, 1.0, 3.0):
            with contextlib.suppress(ConnectionError):
                answer = self._respond(request)
                if isinstance(answer, Stream) or answer.status not in (429, 500, 502, 503, 504):
                    return answer
            time.sleep(pause_s)
        return self._respond(request)

    def path(self, kind: str, name: str = "", *below: str, namespace: str = "") -> str:
        plural, _, group = kind.partition(".")
        base = f"apis/{group}" if group else GROUPS.get(plural, "api/v1")
        home = () if plural in CLUSTER_WIDE else ("namespaces", namespace or self.namespace)
        return "/" + "/".join(part for part in (base, *home, plural, name, *below) if part)

    def get(self, kind: str, name: str) -> Tree | None:
        """Return an object, None if it does not exist."""
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
        """Create an object, which Stage.sweep() deletes."""
        made: Tree = self.ask("POST", self.path(kind), obj)
        self.made.append((kind, made["metadata"]["name"], made["metadata"]["uid"]))
        return made

    def patch(self, kind: str, name: str, patch: Tree, *below: str) -> None:
        self.ask("PATCH", self.path(kind, name, *below), patch)

    def delete(self, kind: str, name: str, **options: Any) -> None:
        """Delete an object. A refusal or a missing object is ignored."""
        with contextlib.suppress(KubeError):
            self.ask("DELETE", self.path(kind, name), {"propagationPolicy": "Background", **options})

    def evict(self, pod: str) -> None:
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod, "namespace": self.namespace}}
        self.ask("POST", self.path("pods", pod, "eviction"), body)

    def may(self, verb: str, resource: str, below: str = "") -> bool:
        """Return whether we have a right such as (`list`, `jobs`) or (`create`, `pods`, `eviction`)."""
        group = GROUPS.get(resource, "").removeprefix("apis/").partition("/")[0]
        place = {"verb": verb, "resource": resource, "group": group, "subresource": below}
        if resource not in CLUSTER_WIDE:
            place["namespace"] = self.namespace
        review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview"}
        answer = self.ask(
            "POST", self.path("selfsubjectaccessreviews"), review | {"spec": {"resourceAttributes": place}}
        )
        return bool(answer["status"]["allowed"])
