"""The whole cluster: an API server, a scheduler, controllers, and nodes whose containers are processes.

    with Kube(folder) as kube:
        subprocess.run(["kubectl", "get", "nodes"], env=os.environ | kube.environ)

The API server gives the answers of Kubernetes 1.36, word for word.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tests.fake_kubernetes.admission.defaults import Defaults
from tests.fake_kubernetes.api.access import Access
from tests.fake_kubernetes.api.faults import Fault, Faults
from tests.fake_kubernetes.api.kubeconfig import kubeconfig_text
from tests.fake_kubernetes.api.messages import Request
from tests.fake_kubernetes.api.routes import Api
from tests.fake_kubernetes.api.server import HOST, Server
from tests.fake_kubernetes.components import Components
from tests.fake_kubernetes.controllers.namespaces import add_namespace_defaults
from tests.fake_kubernetes.node.logs import LogSource
from tests.fake_kubernetes.store.kinds import Kind
from tests.fake_kubernetes.store.store import Store


class Kube:
    """A cluster with one node, `node-1`.

    `folder` gets the kubeconfig, the logs and the pods' files. With `nodes=False` only the API server runs, and nothing
    is scheduled. `token` is the bearer token; by default it is random.
    """

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
        self.store.admission += [Defaults(self.store)]
        self.api = Api(self.store, self.logs, self.access)
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
        """Start the server and the node, and write the kubeconfig. This takes milliseconds."""
        for name in ("default", "kube-system"):
            self.namespace(name)
        self.server.up()
        if self._components:
            self._components.start()
            self.node("node-1")
        self._write_kubeconfig()

    def close(self) -> None:
        """End the server, all threads and all containers."""
        for timer in self._timers:
            timer.cancel()
        self.server.close()
        if self._components:
            self._components.close()
        self.logs.close()

    def check(self) -> None:
        """Raise the first exception of a controller or a kubelet, if there was one."""
        for failure in self._components.failures if self._components else ():
            raise failure

    def _wake(self) -> None:
        """Wake all watches and log streams, so that they notice that the server goes down."""
        self.logs.wake()
        with self.store.changed:
            self.store.changed.notify_all()

    # --- what a client needs ---

    @property
    def environ(self) -> dict[str, str]:
        return {"KUBECONFIG": str(self.kubeconfig)}

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.server.port}"

    @property
    def requests(self) -> list[Request]:
        """All requests so far, oldest first."""
        return self.server.requests

    def _write_kubeconfig(self) -> None:
        new = self.kubeconfig.with_suffix(".new")
        new.touch(0o600)
        new.write_text(kubeconfig_text(self.url, self.context, self.access.token))
        new.replace(self.kubeconfig)

    # --- objects and kinds ---

    def namespace(self, name: str, labels: Mapping[str, str] | None = None) -> None:
        """Create a namespace with the objects that controllers put into each one."""
        self.store.create("namespaces", "", {"metadata": {"name": name, "labels": dict(labels or {})}})
        add_namespace_defaults(self.store, name)

    def add_crd(
        self, group: str, version: str, kind: str, plural: str, controller: Any = None, *, also: tuple[str, ...] = (),
        status: bool = True, namespaced: bool = True,
    ) -> None:  # fmt: skip
        """Serve a custom kind from now on.

        `also` names further versions that serve it. The server accepts and keeps every field. `controller` is a
        CustomJobKind if a controller is to make pods for the objects.
        """
        subresources = ("status",) if status else ()
        versions = (version, *also)
        new = Kind(group, versions, kind, plural, namespaced, (), subresources, custom=True, controller=controller)
        with self.store.lock:  # no object is created before all know the kind
            taken = self.store.kinds.get(plural)
            key = plural if taken is None or taken.group == group else new.resource
            self.store.kinds[key] = new
            if self._components:
                self._components.follow(key, new)

    # --- failures on purpose ---

    def fault(self, method: str, path: str, times: int | None = 1, **what: Any) -> Fault:
        """Let the next `times` matching requests fail; with None all of them, until clear_faults().

        A request matches if its method fully matches the regular expression `method`, and if `path` is found in its
        path and sorted query. `what` are the fields of Fault.
        """
        return self.faults.add(Fault(re.compile(method), re.compile(path), times, **what))

    def clear_faults(self) -> None:
        self.faults.clear()

    def down(self, *, graceful: bool = False) -> None:
        """Kill the API server: connections break, and new ones are refused. `graceful` lets streams end properly."""
        self.server.down(graceful=graceful)

    def up(self) -> None:
        """Start the API server again, at the same address and with all its objects."""
        self.server.up()

    def restart(self, down_s: float = 0.0, *, graceful: bool = False) -> None:
        """Take the API server down now and up again after `down_s`. The call does not wait for that."""
        self.down(graceful=graceful)
        if not down_s:
            return self.up()
        timer = threading.Timer(down_s, self.up)
        timer.daemon = True
        self._timers.append(timer)
        return timer.start()

    def compact(self, *, running: bool = False) -> None:
        """Answer 410 to all resourceVersions until now. `running` also ends the watches that are up to date."""
        self.store.compact(running=running)

    def forbid(self, *rules: str) -> None:
        """Answer 403 from now on to requests such as `events`, `pods/log` or `list nodes`."""
        self.access.forbid(*rules)

    def revoke_token(self) -> None:
        """Answer 401 to the old token. renew_token() writes the new one into the kubeconfig."""
        self.access.renew()

    def renew_token(self) -> None:
        """Write the token that is valid now into the kubeconfig."""
        self._write_kubeconfig()

    def until(self, condition: Callable[[], Any], timeout_s: float = 180.0) -> Any:
        """Wait until `condition()` is true and return its value. It is called after every write to the store.

        Raises TimeoutError after `timeout_s` seconds.
        """
        end = time.monotonic() + timeout_s
        with self.store.changed:
            while not (found := condition()):
                if time.monotonic() > end:
                    raise TimeoutError(f"not within {timeout_s:g} s")
                self.store.changed.wait(0.1)
            return found

    # --- nodes and controllers ---

    @property
    def components(self) -> Components:
        """Kubelets, scheduler and controllers, for settings and actions that this class does not offer."""
        if self._components is None:
            raise ValueError("this cluster has no nodes")
        return self._components

    @property
    def images(self) -> dict[str, dict[str, str]]:
        """The images that nodes have, with their environments."""
        return self.components.images

    def node(
        self, name: str, labels: Mapping[str, str] | None = None, capacity: Mapping[str, str] | None = None
    ) -> None:
        """Create a node, or replace labels and capacity of an existing one."""
        self.components.node(name, labels or {}, capacity or {})

    def kubelet_down(self, node: str = "node-1") -> None:
        """Stop a kubelet: containers run on, statuses freeze, logs answer 500, and log streams end silently."""
        self.components.kubelet_down(node)

    def kubelet_up(self, node: str = "node-1") -> None:
        """Start a kubelet again. It reports what has happened meanwhile."""
        self.components.kubelet_up(node)

    def lose_node(self, node: str = "node-1") -> None:
        """Stop a kubelet for good. After `timings.lost_s` the node controller marks the node as lost."""
        self.components.lose(node)

    def play(self, job: str, recording: str) -> None:
        """Play to the job of that name, once it is created, what a real cluster did (recorded.py)."""
        self.components.player.play(job, recording)

    def go_on(self, job: str) -> None:
        """Begin the next act of a recording, which waits for somebody's deed."""
        self.components.player.go_on(job)

    def suspend_new_jobs(self) -> None:
        """As Kueue's webhook does, for a queue that admits nothing."""
        self.store.admission.append(lambda plural, obj: obj["spec"].update(suspend=True) if plural == "jobs" else None)
