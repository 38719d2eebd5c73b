"""Authenticates and authorizes each request, and hands it to the module that answers it."""

from __future__ import annotations

import threading

from tests.fake_kubernetes.api import access_reviews, deleting, discovery, pod_subresources, reading, watch, writing
from tests.fake_kubernetes.api.access import Access
from tests.fake_kubernetes.api.errors import KubeError
from tests.fake_kubernetes.api.messages import PAGE_NOT_FOUND, Answer, Request, Stream
from tests.fake_kubernetes.api.resource_ref import ResourceRef, parse_path
from tests.fake_kubernetes.node.logs import LogSource
from tests.fake_kubernetes.store.store import Store

VERBS = {"POST": "create", "PATCH": "patch"}


class Api:
    """The API of a cluster."""

    def __init__(self, store: Store, logs: LogSource, access: Access) -> None:
        self._store = store
        self._logs = logs
        self._access = access
        self.version = dict(discovery.VERSION)
        self.bookmark_s = 60.0

    def respond(self, request: Request, stop: threading.Event) -> Answer | Stream:
        """Answer a request. Raises KubeError for a refusal."""
        self._access.authenticate(request)
        found = discovery.answer(self._store, request.path, self.version)
        if found is not None:
            return found
        ref = parse_path(self._store, request.path)
        if ref is None:
            return PAGE_NOT_FOUND
        verb = _verb(ref, request)
        self._access.authorize(verb, ref.resource, ref.kind.group, ref.namespace or "", ref.name)
        if not ref.kind.stored:
            return access_reviews.answer(self._access, ref, request)
        if verb == "watch":
            return watch.stream(self._store, ref, request, self.bookmark_s, stop)
        if ref.subresource in {"log", "eviction"}:
            return self._pod(ref, request)
        return self._object(ref, request)

    def _pod(self, ref: ResourceRef, request: Request) -> Answer | Stream:
        if (ref.subresource, request.method) == ("log", "GET"):
            return pod_subresources.log(self._store, self._logs, ref, request)
        if (ref.subresource, request.method) == ("eviction", "POST"):
            return pod_subresources.evict(self._store, ref, request)
        raise _not_allowed()

    def _object(self, ref: ResourceRef, request: Request) -> Answer:
        by_method = {"GET": reading.list_, "POST": writing.create}
        if ref.name:
            by_method = {"GET": reading.get, "PATCH": writing.patch, "DELETE": deleting.delete}
        if request.method not in by_method:
            raise _not_allowed()
        return by_method[request.method](self._store, ref, request)


def _verb(ref: ResourceRef, request: Request) -> str:
    if request.method == "GET":
        return "watch" if request.watches else "get" if ref.name else "list"
    if request.method == "DELETE":
        return "delete" if ref.name else "deletecollection"
    return VERBS.get(request.method, request.method.lower())


def _not_allowed() -> KubeError:
    return KubeError(405, "the server does not allow this method on the requested resource")
