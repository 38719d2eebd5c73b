"""Events: notes of a controller about an object. A repeated event raises the count of the first one."""

from __future__ import annotations

import threading
import time
from typing import Any

from tests.fake_kubernetes.api.errors import KubeError
from tests.fake_kubernetes.store.store import Store
from tests.fake_kubernetes.store.trees import Tree, timestamp


class EventRecorder:
    """Writes the events of one component. Thread-safe."""

    def __init__(self, store: Store, component: str, host: str = "") -> None:
        self._store = store
        self._source = {"component": component, **({"host": host} if host else {})}
        self._recorded: dict[tuple[str, ...], str] = {}
        self._lock = threading.Lock()

    def record(self, obj: Tree, kind: str, reason: str, message: str, container: str = "") -> None:
        """Write an event of type `kind`, Normal or Warning. Nothing is written if the namespace is gone."""
        meta = obj["metadata"]
        path = f"spec.containers{{{container}}}" if container else ""
        key = (meta["uid"], kind, reason, message, path)
        home = meta.get("namespace", "default")
        with self._lock:
            try:
                if key in self._recorded:
                    self._store.change("events", home, self._recorded[key], _again)
                    return
                event = self._new(obj, kind, reason, message, path)
                self._recorded[key] = self._store.create("events", home, event)["metadata"]["name"]
            except KubeError as error:
                if error.code not in (403, 404):
                    raise

    def _new(self, obj: Tree, kind: str, reason: str, message: str, path: str) -> Tree:
        meta, now = obj["metadata"], timestamp()
        subject = {"kind": obj["kind"], "apiVersion": obj["apiVersion"], "name": meta["name"], "uid": meta["uid"]}
        subject |= {"resourceVersion": meta["resourceVersion"]}
        if "namespace" in meta:
            subject["namespace"] = meta["namespace"]
        if path:
            subject["fieldPath"] = path
        event: dict[str, Any] = {"metadata": {"name": f"{meta['name']}.{time.time_ns():x}"}, "involvedObject": subject}
        event |= {"reason": reason, "message": message, "type": kind, "source": self._source}
        event |= {"firstTimestamp": now, "lastTimestamp": now, "count": 1, "eventTime": None}
        return event | {"reportingComponent": self._source["component"], "reportingInstance": ""}


def _again(event: Tree) -> None:
    event |= {"count": event["count"] + 1, "lastTimestamp": timestamp()}
