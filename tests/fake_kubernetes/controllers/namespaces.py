"""Namespaces: fills each new one with its default objects, and empties each deleted one."""

from __future__ import annotations

import contextlib

from tests.fake_kubernetes.api.errors import KubeError
from tests.fake_kubernetes.controllers.event_loop import EventLoop
from tests.fake_kubernetes.store.store import Store
from tests.fake_kubernetes.store.trees import Tree

CERTIFICATE = "-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n"


class NamespaceController:
    """One thread. A deleted namespace vanishes first and its objects later; a real one waits for them."""

    def __init__(self, store: Store, failures: list[BaseException]) -> None:
        self._store = store
        self._loop = EventLoop("namespaces", store.subscribe("namespaces"), self._handle, failures)

    def start(self) -> None:
        self._loop.start()

    def close(self) -> None:
        self._loop.close()

    def _handle(self, event: str, _plural: str, obj: Tree) -> None:
        name = obj["metadata"]["name"]
        if event == "ADDED":
            add_namespace_defaults(self._store, name)
        elif event == "DELETED":
            self._empty(name)

    def _empty(self, namespace: str) -> None:
        for key, kind in list(self._store.kinds.items()):
            for each in self._store.list(key, namespace)[0] if kind.namespaced and kind.stored else ():
                with contextlib.suppress(KubeError):  # gone meanwhile, with what it belonged to
                    self._store.delete(key, namespace, each["metadata"]["name"], grace_s=0)


def add_namespace_defaults(store: Store, namespace: str) -> None:
    """Create the default ServiceAccount and the API server's certificate if they are missing."""
    for plural, new in (
        ("serviceaccounts", {"metadata": {"name": "default"}}),
        ("configmaps", {"metadata": {"name": "kube-root-ca.crt"}, "data": {"ca.crt": CERTIFICATE}}),
    ):
        try:
            store.create(plural, namespace, new)
        except KubeError as error:
            if error.reason != "AlreadyExists":
                raise
