"""A Kubernetes cluster in the threads of this process: an API server at the HTTP protocol, a scheduler, controllers and
nodes whose containers are processes of this machine.

    with Kube(folder) as kube:
        subprocess.run(["kubectl", "get", "nodes"], env=os.environ | kube.environ)

What the API server answers is what a Kubernetes 1.36 was seen to answer, to the word.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.fake_kubernetes.admission.custom_kinds import CustomKinds
from tests.fake_kubernetes.admission.defaults import Defaults
from tests.fake_kubernetes.admission.pod_security import PodSecurity
from tests.fake_kubernetes.admission.quota import Quota
from tests.fake_kubernetes.api.access import Access
from tests.fake_kubernetes.api.faults import Fault, Faults
from tests.fake_kubernetes.api.kubeconfig import kubeconfig_text
from tests.fake_kubernetes.api.messages import Request
from tests.fake_kubernetes.api.pod_subresources import evict
from tests.fake_kubernetes.api.resource_ref import ResourceRef
from tests.fake_kubernetes.api.routes import Api
from tests.fake_kubernetes.api.server import HOST, Server
from tests.fake_kubernetes.components import Components
from tests.fake_kubernetes.controllers.namespaces import add_namespace_defaults
from tests.fake_kubernetes.node.logs import LogSource
from tests.fake_kubernetes.store.kinds import Kind
from tests.fake_kubernetes.store.store import Store

if TYPE_CHECKING:
    from tests.fake_kubernetes.kueue.kueue import Kueue
    from tests.fake_kubernetes.node.images import Images


class Kube:
    """A cluster with one node, `node-1`. `nodes=False`: only the API server, nothing is scheduled or run."""

    def __init__(
        self, folder: Path, *, port: int = 0, nodes: bool = True, token: str = "", context: str = "fake"
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.kubeconfig = folder / "kubeconfig"
        self.context = context
        self.store = Store()
        self.logs = LogSource(folder / "logs")
        self.access = Access(token)
        quota = Quota(self.store)
        self.store.admission += [Defaults(self.store), PodSecurity(self.store), quota]
        self.custom_kinds = CustomKinds(self.store)
        self.api = Api(self.store, self.logs, self.access, quota)
        self.faults = Faults()
        self.server = Server(self.api.respond, self.faults, self._wake, port)
        self._components = Components(self) if nodes else None
        self._timers: list[threading.Timer] = []

    def __enter__(self) -> Kube:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.close()
        if kind is None:
            self.check()

    def start(self) -> None:
        """Milliseconds."""
        for name in ("default", "kube-system"):
            self.namespace(name)
        self.server.up()
        if self._components:
            self._components.start()
            self.node("node-1")
        self._write_kubeconfig()

    def close(self) -> None:
        """Ends the server and all that runs."""
        for timer in self._timers:
            timer.cancel()
        self.server.close()
        self.custom_kinds.close()
        if self._components:
            self._components.close()
        self.logs.close()

    def check(self) -> None:
        """Raises what has gone wrong in a controller or a kubelet."""
        for failure in self._components.failures if self._components else ():
            raise failure

    def _wake(self) -> None:
        """Lets every watch and every follow see that the server goes down."""
        self.logs.wake()
        with self.store.changed:
            self.store.changed.notify_all()

    # what a client needs

    @property
    def environ(self) -> dict[str, str]:
        return {"KUBECONFIG": str(self.kubeconfig)}

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.server.port}"

    @property
    def requests(self) -> list[Request]:
        """All that have come in, oldest first."""
        return self.server.requests

    def _write_kubeconfig(self) -> None:
        new = self.kubeconfig.with_suffix(".new")
        new.touch(0o600)
        new.write_text(kubeconfig_text(self.url, self.context, self.access.token))
        new.replace(self.kubeconfig)

    # what there is

    def namespace(self, name: str, labels: Mapping[str, str] | None = None) -> None:
        """With what the controllers put into each."""
        self.store.create("namespaces", "", {"metadata": {"name": name, "labels": dict(labels or {})}})
        add_namespace_defaults(self.store, name)

    def add_crd(
        self, group: str, version: str, kind: str, plural: str, controller: Any = None, *, also: tuple[str, ...] = (),
        schema: Mapping[str, Any] | None = None, status: bool = True, namespaced: bool = True,
    ) -> None:  # fmt: skip
        """Serve a custom kind from now on.

        `also` names further versions that serve it. `schema` is an openAPIV3Schema; without one the server accepts and
        keeps every field. `controller` is a CustomJobKind if a controller is to make pods for the objects.
        """
        subresources = ("status",) if status else ()
        own_schema = dict(schema) if schema else None
        new = Kind(
            group, (version, *also), kind, plural, namespaced, (), subresources, True, True, own_schema, controller
        )
        self.custom_kinds.serve(new)

    # what goes wrong

    def fault(self, method: str, path: str, times: int | None = 1, **what: Any) -> Fault:
        """For the next `times` requests (None: until clear_faults()) whose method is `method` and in whose path and
        sorted query `path` is found, both regular expressions. `what`: see Fault."""
        return self.faults.add(Fault(re.compile(method), re.compile(path), times, **what))

    def clear_faults(self) -> None:
        self.faults.clear()

    def down(self, *, graceful: bool = False) -> None:
        """The API server is killed: no connection survives, none is accepted. graceful: streams end properly."""
        self.server.down(graceful=graceful)

    def up(self) -> None:
        """It is there again, at the same address, and knows all that it knew."""
        self.server.up()

    def restart(self, down_s: float = 0.0, *, graceful: bool = False) -> None:
        """Down now, up after down_s; does not wait for it."""
        self.down(graceful=graceful)
        if not down_s:
            return self.up()
        timer = threading.Timer(down_s, self.up)
        timer.daemon = True
        self._timers.append(timer)
        return timer.start()

    def compact(self, *, running: bool = False) -> None:
        """Old resourceVersions answer 410 from now on. running: also watches that are up to date."""
        self.store.compact(running=running)

    def forbid(self, *rules: str) -> None:
        """`events`, `pods/log`, `list nodes`: 403 from now on."""
        self.access.forbid(*rules)

    def allow(self, *rules: str) -> None:
        """Takes back forbid(); all of it without arguments."""
        self.access.allow(*rules)

    def revoke_token(self) -> None:
        """401 for whoever uses the token of before. The kubeconfig has the new one after renew_token()."""
        self.access.renew()

    def renew_token(self) -> None:
        """The kubeconfig holds the token that is good now."""
        self._write_kubeconfig()

    def evict(self, pod: str, namespace: str = "default") -> None:
        """Through the eviction API, as a drain does."""
        kind = self.store.kinds["pods"]
        evict(self.store, ResourceRef(kind, "pods", "v1", namespace, pod, "eviction"), Request("POST", "", {}))

    def rotate(self, pod: str, namespace: str = "default") -> None:
        """The logs of all its containers."""
        self.logs.rotate(self.store.get("pods", namespace, pod)["metadata"]["uid"])

    def until(self, what: Callable[[], Any], timeout_s: float = 180.0) -> Any:
        """What `what` says as soon as it is true, looked at after every write. TimeoutError."""
        end = time.monotonic() + timeout_s
        with self.store.changed:
            while not (found := what()):
                if time.monotonic() > end:
                    raise TimeoutError(f"not within {timeout_s:g} s")
                self.store.changed.wait(0.1)
            return found

    # what runs

    @property
    def components(self) -> Components:
        """Kubelets, scheduler, controllers, and what can be asked of them beyond what stands here."""
        if self._components is None:
            raise ValueError("this cluster has no nodes")
        return self._components

    @property
    def images(self) -> Images:
        """Those that can be pulled, and what pulling others answers."""
        return self.components.images

    def node(
        self, name: str, labels: Mapping[str, str] | None = None, capacity: Mapping[str, str] | None = None
    ) -> None:
        """A new node, or other labels and another capacity for one that is there."""
        self.components.node(name, labels or {}, capacity or {})

    def kubelet_down(self, node: str = "node-1") -> None:
        """Containers go on; nothing is written, logs answer 500, follows end without a word."""
        self.components.kubelet_down(node)

    def kubelet_up(self, node: str = "node-1") -> None:
        """What has happened meanwhile is told now."""
        self.components.kubelet_up(node)

    def lose_node(self, node: str = "node-1") -> None:
        """Its kubelet is gone, and soon the node controller notices."""
        self.components.lose(node)

    def kueue(self, **how: Any) -> Kueue:
        """Machines.kueue()."""
        return self.components.kueue(**how)
