"""Watches: streams of the writes after a resourceVersion."""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Callable, Iterator

from tests.fake_kubernetes.api.errors import KubeError, bad_request
from tests.fake_kubernetes.api.messages import Request, Stream
from tests.fake_kubernetes.api.resource_ref import ResourceRef
from tests.fake_kubernetes.store.selectors import matcher
from tests.fake_kubernetes.store.store import Store
from tests.fake_kubernetes.store.trees import Tree
from tests.fake_kubernetes.store.watch_events import WatchEvent

IDLE_S = 1.0
SHORTEST_S = 1800.0  # without timeoutSeconds a watch lasts once to twice as long


def version_of(request: Request) -> int | None:
    """Return the resourceVersion of a request, None if it has none. Raises KubeError 400."""
    text = request.query.get("resourceVersion", "")
    if text and not text.isdecimal():
        raise bad_request(f'Invalid value: "{text}": strconv.ParseUint: parsing "{text}": invalid syntax')
    return int(text) if text else None


def stream(store: Store, ref: ResourceRef, request: Request, bookmark_s: float, stop: threading.Event) -> Stream:
    """Return the stream of a watch. Raises KubeError 400 for bad selectors.

    An expired resourceVersion is reported by an event in the stream.
    """
    fields = request.query.get("fieldSelector", "")
    if ref.name:
        fields = ",".join(filter(None, [fields, f"metadata.name={ref.name}"]))
    match = matcher(request.query.get("labelSelector", ""), fields, ref.key)
    here = ref.namespace

    def wanted(obj: Tree) -> bool:
        return here in (None, obj["metadata"].get("namespace")) and match(obj)

    watch = _Watch(store, ref, wanted, bookmark_s if "allowWatchBookmarks" in request.query else None, stop)
    seconds = request.query.get("timeoutSeconds", "")
    timeout_s = float(seconds) if seconds.isdecimal() and seconds != "0" else random.uniform(1, 2) * SHORTEST_S
    return Stream("application/json", watch.pieces(version_of(request) or 0, timeout_s))


class _Watch:
    def __init__(
        self,
        store: Store,
        ref: ResourceRef,
        wanted: Callable[[Tree], bool],
        bookmark_s: float | None,
        stop: threading.Event,
    ) -> None:
        self._store = store
        self._ref = ref
        self._wanted = wanted
        self._bookmark_s = bookmark_s
        self._stop = stop

    def pieces(self, version: int, timeout_s: float) -> Iterator[bytes | None]:
        store, end = self._store, time.monotonic() + timeout_s
        if version == 0:
            objects, version = store.list(self._ref.key)
            yield from (self._line("ADDED", json.dumps(obj)) for obj in objects if self._wanted(obj))
        last_bookmark = time.monotonic()
        while not self._stop.is_set():  # even the shortest watch sends what is there
            rest_s = max(0.0, end - time.monotonic())
            try:
                events = store.wait_since(version, self._ref.key, min(IDLE_S, rest_s), self._stop)
            except KubeError as error:
                yield self._line("ERROR", json.dumps(error.status()))
                return
            for event in events:
                version = event.version
                if line := self._event_line(event):
                    yield line
            if not events:
                yield None
            if self._bookmark_s is not None and time.monotonic() - last_bookmark >= self._bookmark_s:
                last_bookmark = time.monotonic()
                with store.lock:
                    version = version if store.events_since(version, self._ref.key) else store.version
                yield self._bookmark(version)
            if time.monotonic() >= end:
                return

    def _event_line(self, event: WatchEvent) -> bytes | None:
        """Return the line for an event. An object that starts to match is ADDED, one that stops matching is DELETED."""
        before = event.before is not None and self._wanted(event.before)
        now = event.type != "DELETED" and self._wanted(event.obj)
        if not before and not now:
            return None
        kind = "DELETED" if not now else "MODIFIED" if before else "ADDED"
        return self._line(kind, event.text)

    def _bookmark(self, version: int) -> bytes:
        kind = self._ref.kind
        obj = {"kind": kind.kind, "apiVersion": kind.served_as(self._ref.version)}
        return self._line("BOOKMARK", json.dumps(obj | {"metadata": {"resourceVersion": str(version)}}))

    def _line(self, event_type: str, obj: str) -> bytes:
        kind = self._ref.kind
        if self._ref.version != kind.versions[0] and event_type != "ERROR":
            tree = json.loads(obj)
            obj = json.dumps(tree | {"apiVersion": kind.served_as(self._ref.version)})
        return f'{{"type":"{event_type}","object":{obj}}}\n'.encode()
