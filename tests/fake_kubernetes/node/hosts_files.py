"""DNS for pods: a hosts file for each pod, replaced when pods or services of its namespace change."""

from __future__ import annotations

import threading
from pathlib import Path

from tests.fake_kubernetes.store.selectors import matcher
from tests.fake_kubernetes.store.store import Store
from tests.fake_kubernetes.store.trees import Tree

DOMAIN = "svc.cluster.local"


class NamespaceHosts:
    """Pods, services and host names of one namespace."""

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Tree]] = {"pods": {}, "services": {}}  # by uid
        self.served: dict[str, tuple[Path, str]] = {}  # uid of a pod -> its folder, its own lines
        self.text = ""  # the lines that all its pods share

    def refresh(self) -> bool:
        """Compute the shared lines anew and return whether they have changed."""
        lines = []
        for service in self.objects["services"].values():
            selector = service["spec"].get("selector")
            match = matcher(",".join(f"{key}={value}" for key, value in (selector or {}).items()), "", "pods")
            for pod in filter(match, self.objects["pods"].values() if selector else ()):
                if _reachable(pod, always=bool(service["spec"].get("publishNotReadyAddresses"))):
                    lines.append(f"{pod['status']['podIP']} {' '.join(_names(pod, service))}\n")
        old, self.text = self.text, "".join(lines)
        return self.text != old


class HostsFiles:
    """Watches pods and services, and writes `hosts` into the folder of each pod."""

    def __init__(self, store: Store) -> None:
        self._namespaces: dict[str, NamespaceHosts] = {}
        self._lock = threading.Lock()
        self._subscription = store.subscribe("pods", "services")
        self._closed = False
        self._thread = threading.Thread(target=self._follow, name="dns", daemon=True)
        self._thread.start()

    def serve(self, pod: Tree, folder: Path) -> None:
        """Write folder/hosts now and keep it up to date. The pod must have its address."""
        folder.mkdir(parents=True, exist_ok=True)
        meta, address = pod["metadata"], pod.get("status", {}).get("podIP", "127.0.0.1")
        own = f"127.0.0.1 localhost\n::1 localhost\n{address} {pod['spec'].get('hostname') or meta['name']}\n"
        with self._lock:
            namespace_hosts = self._namespaces.setdefault(meta["namespace"], NamespaceHosts())
            namespace_hosts.served[meta["uid"]] = (folder, own)
            _write(folder, own + namespace_hosts.text)

    def forget(self, pod: Tree) -> None:
        """Stop writing the hosts file of a pod, before its folder is deleted."""
        with self._lock:
            self._namespaces[pod["metadata"]["namespace"]].served.pop(pod["metadata"]["uid"], None)

    def close(self) -> None:
        self._closed = True
        self._subscription.wake()
        self._thread.join()

    def _follow(self) -> None:
        while not self._closed:
            event = self._subscription.get()
            if event is not None:
                with self._lock:
                    self._update(*event)

    def _update(self, event: str, plural: str, obj: Tree) -> None:
        namespace_hosts = self._namespaces.setdefault(obj["metadata"]["namespace"], NamespaceHosts())
        objects = namespace_hosts.objects[plural]
        objects.pop(obj["metadata"]["uid"], None)
        if event != "DELETED":
            objects[obj["metadata"]["uid"]] = obj
        if namespace_hosts.refresh():
            for folder, own in namespace_hosts.served.values():
                _write(folder, own + namespace_hosts.text)


def _write(folder: Path, text: str) -> None:
    (folder / "hosts.new").write_text(text)
    (folder / "hosts.new").replace(folder / "hosts")


def _reachable(pod: Tree, *, always: bool) -> bool:
    status = pod.get("status", {})
    if not status.get("podIP") or status.get("phase") in ("Succeeded", "Failed"):
        return False
    return always or any(c["type"] == "Ready" and c["status"] == "True" for c in status.get("conditions", []))


def _names(pod: Tree, service: Tree) -> list[str]:
    name, namespace, spec = service["metadata"]["name"], service["metadata"]["namespace"], pod["spec"]
    names = [f"{name}{rest}" for rest in ("", f".{namespace}", f".{namespace}.svc", f".{namespace}.{DOMAIN}")]
    if spec.get("subdomain") == name and spec.get("hostname"):
        names = [f"{spec['hostname']}.{each}" for each in names] + names
    return names
