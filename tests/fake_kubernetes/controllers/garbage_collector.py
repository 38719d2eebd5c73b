"""The garbage collector: deletes objects whose owners are gone."""

from __future__ import annotations

from tests.fake_kubernetes.api.errors import KubeError
from tests.fake_kubernetes.controllers.event_loop import EventLoop
from tests.fake_kubernetes.store.store import Store
from tests.fake_kubernetes.store.trees import Tree

Where = tuple[str, str, str]  # plural, namespace, name


class GarbageCollector:
    """Watches all built-in kinds, and custom kinds after follow()."""

    def __init__(self, store: Store, failures: list[BaseException]) -> None:
        self._store = store
        self._alive: dict[str, Where] = {}
        self._owned: dict[str, set[str]] = {}  # owner's uid -> uids
        kinds = [kind.plural for kind in store.kinds.values() if kind.plural != "events"]
        self._loop = EventLoop("garbage", store.subscribe(*kinds), self._handle, failures)

    def start(self) -> None:
        self._loop.start()

    def close(self) -> None:
        self._loop.close()

    def follow(self, plural: str) -> None:
        """Watch a further kind."""
        self._loop.subscription.plurals |= {plural}

    def _handle(self, event: str, plural: str, obj: Tree) -> None:
        meta = obj["metadata"]
        uid, owners = meta["uid"], [owner["uid"] for owner in meta.get("ownerReferences", [])]
        if event == "DELETED":
            self._alive.pop(uid, None)
            for owner in owners:
                self._owned.get(owner, set()).discard(uid)
            for dependent in self._owned.pop(uid, set()):
                self._collect(dependent)
            return
        self._alive[uid] = (plural, meta.get("namespace", ""), meta["name"])
        for owner in owners:
            self._owned.setdefault(owner, set()).add(uid)
        if event == "ADDED" and owners and not any(self._exists(obj, owner) for owner in meta["ownerReferences"]):
            self._loop.after(0.0, lambda: self._collect(uid))

    def _exists(self, obj: Tree, owner: Tree) -> bool:
        """Return whether an owner exists. This asks the store, because the owner's event may not have come yet."""
        plurals = [kind.plural for kind in self._store.kinds.values() if kind.kind == owner["kind"]]
        for plural in plurals:
            namespace_hosts = obj["metadata"].get("namespace", "") if self._store.kinds[plural].namespaced else ""
            try:
                if self._store.get(plural, namespace_hosts, owner["name"])["metadata"]["uid"] == owner["uid"]:
                    return True
            except KubeError:
                continue
        return False

    def _collect(self, uid: str) -> None:
        """Delete an object, unless another existing owner keeps it."""
        where = self._alive.get(uid)
        if where is None:
            return
        try:
            obj = self._store.get(*where)
            kept = [o for o in obj["metadata"].get("ownerReferences", []) if self._exists(obj, o)]
            going = [self._store.get(*self._alive[o["uid"]]) for o in kept if o["uid"] in self._alive]
            orphaned = not obj["metadata"].get("ownerReferences")
            if not orphaned and all("deletionTimestamp" in one["metadata"] for one in going):
                self._store.delete(*where, uid=uid)
        except KubeError as error:
            if error.code not in (404, 409):
                raise
