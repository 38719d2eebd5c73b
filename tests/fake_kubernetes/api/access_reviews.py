"""Access reviews: POST requests that ask who the user is and what they may do. They store nothing."""

from __future__ import annotations

from tests.fake_kubernetes.api.access import Access
from tests.fake_kubernetes.api.errors import KubeError
from tests.fake_kubernetes.api.messages import Answer, Request
from tests.fake_kubernetes.api.resource_ref import ResourceRef
from tests.fake_kubernetes.store.trees import Tree


def answer(access: Access, ref: ResourceRef, request: Request) -> Answer:
    """Answer 201 with the status of the review."""
    if request.method != "POST":
        raise KubeError(405, "the server does not allow this method on the requested resource")
    asked = request.json()
    status = _who(access) if ref.kind.kind == "SelfSubjectReview" else _may(access, asked.get("spec", {}))
    answer_body = {"kind": ref.kind.kind, "apiVersion": ref.kind.api_version, "metadata": {}}
    return Answer(201, answer_body | {"spec": asked.get("spec", {}), "status": status})


def _who(access: Access) -> Tree:
    groups = ["system:serviceaccounts", "system:serviceaccounts:default", "system:authenticated"]
    return {"userInfo": {"username": access.user, "groups": groups}}


def _may(access: Access, spec: Tree) -> Tree:
    what = spec.get("resourceAttributes", {})
    resource = what.get("resource", "") + (f"/{what['subresource']}" if what.get("subresource") else "")
    allowed = access.may(what.get("verb", ""), resource)
    return {"allowed": True, "reason": "RBAC: allowed"} if allowed else {"allowed": False}
