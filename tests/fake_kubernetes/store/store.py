"""The API server's store: all objects, all writes in order, and the subscriptions to them.

Everything here is thread-safe. create(), get(), list() and change() return copies, which the caller may change.
The objects in events are shared and must not be changed.
"""

from __future__ import annotations

import secrets
import threading
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from tests.fake_kubernetes.api.errors import already_exists, expired, invalid, not_found
from tests.fake_kubernetes.store import deletion
from tests.fake_kubernetes.store.kinds import BUILT_IN, Kind
from tests.fake_kubernetes.store.selectors import matcher
from tests.fake_kubernetes.store.trees import Tree, deep_copy, timestamp
from tests.fake_kubernetes.store.watch_events import Subscription, WatchEvent

Key = tuple[str, str, str]  # plural, namespace or "", name
_LETTERS = "bcdfghjklmnpqrstvwxz2456789"


class Store:
    """Objects by (plural, namespace or "", name). `changed` is notified at every write."""

    def __init__(self, kinds: Iterable[Kind] = BUILT_IN) -> None:
        self.kinds: dict[str, Kind] = {kind.plural: kind for kind in kinds}  # by the name that `plural` is here
        self.lock = threading.RLock()
        self.changed = threading.Condition(self.lock)
        # called by create() with (plural, obj) under the lock: may complete obj, or raise KubeError to refuse it
        self.admission: list[Callable[[str, Tree], None]] = []
        self._objects: dict[Key, Tree] = {}
        self._events: list[WatchEvent] = []
        self._subscriptions: list[Subscription] = []
        self._version = 100
        self._oldest = 1

    @property
    def version(self) -> int:
        """The resourceVersion of the latest write."""
        return self._version

    def create(self, plural: str, namespace: str, obj: Mapping[str, Any], *, dry_run: bool = False) -> Tree:
        """Store a new object and return it. A dry run stores nothing.

        Raises KubeError: AlreadyExists, NotFound for an unknown namespace, and what the admission raises.
        """
        kind, new = self.kinds[plural], deep_copy(obj)
        with self.lock:
            meta = new.setdefault("metadata", {})
            self._name(kind, namespace, meta)
            key = (plural, namespace if kind.namespaced else "", meta["name"])
            meta |= {"uid": str(uuid.uuid4()), "creationTimestamp": timestamp()}
            for field in ("resourceVersion", "deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"):
                meta.pop(field, None)
            if "spec" in new or kind.custom:
                meta["generation"] = 1
            new |= {"apiVersion": kind.api_version, "kind": kind.kind}
            for admit in self.admission:
                admit(plural, new)
            if key in self._objects:
                raise already_exists(kind.resource, meta["name"])
            if not dry_run:
                self._write("ADDED", key, new, None)
            return deep_copy(new)  # type: ignore[no-any-return]

    def _name(self, kind: Kind, namespace: str, meta: Tree) -> None:
        if kind.namespaced:
            home = self._objects.get(("namespaces", "", namespace))
            if home is None:
                raise not_found("namespaces", namespace)
            if "deletionTimestamp" in home["metadata"]:
                raise deletion.being_deleted(namespace)
            meta["namespace"] = namespace
        if not meta.get("name"):
            if not meta.get("generateName"):
                why = "Required value: name or generateName is required"
                raise invalid(kind.qualified, "", [("metadata.name", "FieldValueRequired", why)])
            meta["name"] = meta["generateName"][:58] + "".join(secrets.choice(_LETTERS) for _ in range(5))

    def get(self, plural: str, namespace: str, name: str) -> Tree:
        """Return an object. Raises KubeError NotFound."""
        with self.lock:
            return deep_copy(self._at((plural, namespace, name)))  # type: ignore[no-any-return]

    def exists(self, plural: str, namespace: str, name: str) -> bool:
        return (plural, namespace, name) in self._objects

    def _at(self, key: Key) -> Tree:
        if key not in self._objects:
            raise not_found(self.kinds[key[0]].resource, key[2])
        return self._objects[key]

    def list(
        self, plural: str, namespace: str | None = None, labels: str = "", fields: str = ""
    ) -> tuple[list[Tree], int]:
        """Return objects sorted by namespace and name, and the resourceVersion of the list. Namespace None: all."""
        match = matcher(labels, fields, plural)
        with self.lock:
            keys = sorted(key for key in self._objects if key[0] == plural and namespace in (None, key[1]))
            found = [self._objects[key] for key in keys]
            return [deep_copy(obj) for obj in found if match(obj)], self._version

    def change(self, plural: str, namespace: str, name: str, function: Callable[[Tree], Any]) -> Tree:
        """Let `function` change a copy in place, under the lock, and store it. An exception of it changes nothing.

        An object that is being deleted vanishes when it loses its last finalizer. Raises KubeError NotFound.
        """
        key = (plural, namespace, name)
        with self.lock:
            old = self._at(key)
            new = deep_copy(old)
            function(new)
            if new == old:
                return new  # type: ignore[no-any-return]
            if "generation" in old["metadata"] and _desired_state(new) != _desired_state(old):
                new["metadata"]["generation"] = old["metadata"]["generation"] + 1
            over = deletion.is_over(new)
            if not over or (plural == "pods" and not deletion.is_over(old)):  # watches of pods see this, too
                self._write("MODIFIED", key, new, old)
                old, new = new, deep_copy(new)
            if over:
                self._write("DELETED", key, new, old)
            return deep_copy(new)  # type: ignore[no-any-return]

    def patch_status(self, plural: str, namespace: str, name: str, status: Mapping[str, Any]) -> Tree:
        """Replace these top-level fields of the status and keep the others."""
        return self.change(
            plural, namespace, name, lambda obj: obj.setdefault("status", {}).update(deep_copy(dict(status)))
        )

    def delete(
        self,
        plural: str,
        namespace: str,
        name: str,
        *,
        grace_s: int | None = None,
        uid: str | None = None,
        version: str | None = None,
    ) -> Tree:
        """Delete an object, or mark it as being deleted, and return it. Raises KubeError NotFound or Conflict.

        A pod on a node stays, marked with deletionTimestamp, until remove(); `grace_s=0` removes it at once.
        Finalizers keep an object. The garbage collector removes what it owns.
        """
        with self.lock:
            obj = self._at((plural, namespace, name))
            deletion.check_preconditions(self.kinds[plural], obj, uid, version)
            return self.change(plural, namespace, name, lambda new: deletion.mark(plural, new, grace_s))

    def remove(self, plural: str, namespace: str, name: str, uid: str | None = None) -> None:
        """End the grace period of a deletion: the object vanishes as soon as it has no finalizers.

        An object that is gone, or has another uid by now, is no error.
        """

        def end(obj: Tree) -> None:
            deletion.set_grace(obj["metadata"], 0)

        with self.lock:
            obj = self._objects.get((plural, namespace, name))
            if obj is None or uid not in (None, obj["metadata"]["uid"]):
                return
            self.change(plural, namespace, name, end)

    def _write(self, event_type: str, key: Key, new: Tree, old: Tree | None) -> None:
        self._version += 1
        new["metadata"]["resourceVersion"] = str(self._version)
        if event_type == "DELETED":
            del self._objects[key]
        else:
            self._objects[key] = new
        self._events.append(WatchEvent(self._version, event_type, key[0], new, old))
        for subscription in self._subscriptions:
            if key[0] in subscription.plurals:
                subscription.put(event_type, key[0], new)
        self.changed.notify_all()

    def events_since(self, version: int, plural: str) -> Sequence[WatchEvent]:
        """Return the events after `version`. Raises KubeError Expired if they are forgotten."""
        with self.lock:
            if version < self._oldest:
                raise expired(version, self._oldest)
            later = []
            for event in reversed(self._events):
                if event.version <= version:
                    break
                if event.plural == plural:
                    later.append(event)
            return later[::-1]

    def wait_since(self, version: int, plural: str, timeout_s: float, stop: threading.Event) -> Sequence[WatchEvent]:
        """Wait for events after `version`. Returns [] after `timeout_s` or once `stop` is set."""
        found: list[WatchEvent] = []

        def came() -> bool:
            found[:] = self.events_since(version, plural)
            return bool(found) or stop.is_set()

        with self.changed:
            self.changed.wait_for(came, timeout_s)
        return found

    def subscribe(self, *plurals: str) -> Subscription:
        """Return a subscription: first the existing objects, then every write."""
        subscription = Subscription(plurals)
        with self.lock:
            for (plural, _, _), obj in self._objects.items():
                if plural in subscription.plurals:
                    subscription.put("ADDED", plural, obj)
            self._subscriptions.append(subscription)
        return subscription

    def compact(self, *, running: bool = False) -> None:
        """Forget all events: older watches end with 410. `running` also ends current watches."""
        with self.lock:
            self._version += running
            self._oldest = self._version
            self._events.clear()
            self.changed.notify_all()

    @property
    def oldest(self) -> int:
        """Events before this resourceVersion are forgotten."""
        return self._oldest


def _desired_state(obj: Tree) -> Tree:
    """Return what counts for the generation: not metadata, status or the node of a pod."""
    wanted = {key: value for key, value in obj.items() if key not in {"metadata", "status"}}
    if isinstance(wanted.get("spec"), dict):
        wanted["spec"] = {key: value for key, value in wanted["spec"].items() if key != "nodeName"}
    return wanted
