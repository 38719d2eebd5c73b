"""Serves the kinds of CustomResourceDefinitions, a moment after each definition was accepted."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable

from tests.fake_kubernetes.admission.custom_schema import kind_of
from tests.fake_kubernetes.api.errors import KubeError
from tests.fake_kubernetes.store.kinds import Kind
from tests.fake_kubernetes.store.store import Store
from tests.fake_kubernetes.store.trees import Tree, timestamp

KEY = "customresourcedefinitions"


class CustomKinds:
    """An admission function of the store. A kind is served after `established_s` seconds (2.1 on a real cluster)."""

    def __init__(self, store: Store, established_s: float = 0.1) -> None:
        self.established_s = established_s
        self.served: list[Callable[[Kind], None]] = []  # called with each new kind
        self._store = store
        self._timers: list[threading.Timer] = []
        store.admission.append(self)

    def __call__(self, plural: str, obj: Tree) -> None:
        if plural == KEY:
            obj["status"] = {"conditions": [], "storedVersions": []}
            timer = threading.Timer(self.established_s, self._establish, [obj])
            timer.daemon = True
            self._timers.append(timer)
            timer.start()

    def _establish(self, obj: Tree) -> None:
        name, kind = obj["metadata"]["name"], kind_of(obj)
        there, _ = self._store.list(KEY, fields=f"metadata.name={name}")
        if [one["metadata"]["uid"] for one in there] != [obj["metadata"]["uid"]]:
            return  # the create was a dry run or refused, or the definition was deleted meanwhile
        self.serve(kind)
        now = timestamp()
        conditions = [
            {"type": "NamesAccepted", "status": "True", "reason": "NoConflicts", "message": "no conflicts found"},
            {"type": "Established", "status": "True", "reason": "InitialNamesAccepted"}
            | {"message": "the initial names have been accepted"},
        ]
        status = {
            "conditions": [row | {"lastTransitionTime": now} for row in conditions],
            "storedVersions": list(kind.versions[:1]),
            "acceptedNames": {"kind": kind.kind, "plural": kind.plural, "listKind": f"{kind.kind}List"},
        }
        with contextlib.suppress(KubeError):  # deleted just now
            self._store.patch_status(KEY, "", name, status)

    def serve(self, kind: Kind) -> None:
        """Serve a kind from now on. A kind of another group with the same plural stays."""
        with self._store.lock:  # no object is created before all callbacks know the kind
            taken = self._store.kinds.get(kind.plural)
            key = kind.plural if taken is None or taken.group == kind.group else kind.resource
            self._store.kinds[key] = kind
            for callback in self.served:
                callback(kind)

    def close(self) -> None:
        for timer in self._timers:
            timer.cancel()
