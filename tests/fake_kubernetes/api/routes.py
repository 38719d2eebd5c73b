"""Every request on its way: who asks, what for, whether they may, and who answers."""

from __future__ import annotations

import threading
from collections.abc import Callable

from tests.fake_kubernetes.admission.quota import Quota
from tests.fake_kubernetes.api import access_reviews, deleting, discovery, pod_subresources, reading, watch, writing
from tests.fake_kubernetes.api.access import Access
from tests.fake_kubernetes.api.errors import KubeError
from tests.fake_kubernetes.api.messages import PAGE_NOT_FOUND, Answer, Request, Stream
from tests.fake_kubernetes.api.target import Place, place_of
from tests.fake_kubernetes.node.logs import LogSource
from tests.fake_kubernetes.store.store import Store

VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch"}


class Api:
    """What there is to ask of a cluster."""

    def __init__(self, store: Store, logs: LogSource, access: Access, quota: Quota) -> None:
        self._store = store
        self._logs = logs
        self._access = access
        self._quota = quota
        self.version = dict(discovery.VERSION)
        self.bookmark_s = 60.0
        self.extensions: dict[str, Callable[[Place, Request], Answer]] = {}  # by subresource: who answers in its place

    def respond(self, request: Request, stop: threading.Event) -> Answer | Stream:
        """KubeError for whatever is refused."""
        self._access.authenticate(request)
        found = discovery.answer(self._store, request.path, self.version)
        if found is not None:
            return found
        place = place_of(self._store, request.path)
        if place is None:
            return PAGE_NOT_FOUND
        verb = _verb(place, request)
        self._access.authorize(verb, place.resource, place.kind.group, place.namespace or "", place.name)
        if place.subresource in self.extensions and request.method == "GET":
            return self.extensions[place.subresource](place, request)
        if not place.kind.stored:
            return access_reviews.answer(self._access, place, request)
        if verb == "watch":
            return watch.stream(self._store, place, request, self.bookmark_s, stop)
        if place.subresource in {"log", "eviction"}:
            return self._pod(place, request)
        return self._object(place, request)

    def _pod(self, place: Place, request: Request) -> Answer | Stream:
        if (place.subresource, request.method) == ("log", "GET"):
            return pod_subresources.log(self._store, self._logs, place, request)
        if (place.subresource, request.method) == ("eviction", "POST"):
            return pod_subresources.evict(self._store, place, request)
        raise _not_allowed()

    def _object(self, place: Place, request: Request) -> Answer:
        if place.key == "resourcequotas" and request.method == "GET":
            self._quota.refresh()
        by_method = {"GET": reading.list_, "POST": writing.create, "DELETE": deleting.delete_collection}
        if place.name:
            by_method = {"GET": reading.get, "PUT": writing.put, "PATCH": writing.patch, "DELETE": deleting.delete}
        if request.method not in by_method:
            raise _not_allowed()
        return by_method[request.method](self._store, place, request)


def _verb(place: Place, request: Request) -> str:
    if request.method == "GET":
        return "watch" if request.watches else "get" if place.name else "list"
    if request.method == "DELETE":
        return "delete" if place.name else "deletecollection"
    return VERBS.get(request.method, request.method.lower())


def _not_allowed() -> KubeError:
    return KubeError(405, "the server does not allow this method on the requested resource")
