"""A real cluster behind a server of our own, so that requests to it can go wrong on purpose, too."""

from __future__ import annotations

import contextlib
import json
import os
import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from platforms.schedulers.kubernetes.api.connection import ClusterConnection, connect
from platforms.schedulers.kubernetes.api.errors import HttpError
from platforms.schedulers.kubernetes.api.kubeconfig import ClusterTarget, ResolvedTarget, resolve
from tests.fake_kubernetes.api.access import Access
from tests.fake_kubernetes.api.faults import Fault, Faults
from tests.fake_kubernetes.api.kubeconfig import kubeconfig_text
from tests.fake_kubernetes.api.messages import Answer, Request, Stream
from tests.fake_kubernetes.api.server import HOST, Server

CONTEXT = "relayed"
TIMES_S = (10.0, 300.0)  # to connect, and between two bytes: a watch may be silent for minutes


class Relay:
    """The face of Kube, as far as requests go. `kubeconfig` leads here, those that it is given to the cluster."""

    def __init__(self, folder: Path, kubeconfig: str) -> None:
        """`kubeconfig`: a file, or several as $KUBECONFIG names them. ConfigError, RefusedError for what is none."""
        folder.mkdir(parents=True, exist_ok=True)
        self.kubeconfig = folder / "kubeconfig"
        self._environ = {**os.environ, "KUBECONFIG": kubeconfig}
        self.namespace = self._find().namespace
        self.access = Access()
        self.faults = Faults()
        self._open: set[Any] = set()
        self._held: ClusterConnection | None = None
        self._lock = threading.Lock()
        self._server = Server(self._respond, self.faults, self._wake)

    def start(self) -> None:
        self._server.up()
        self.renew_token()

    def close(self) -> None:
        self._server.down()

    @property
    def requests(self) -> list[Request]:
        """All that have come in, oldest first."""
        return self._server.requests

    # what goes wrong

    def fault(self, method: str, path: str, times: int | None = 1, **what: Any) -> Fault:
        return self.faults.add(Fault(re.compile(method), re.compile(path), times, **what))

    def clear_faults(self) -> None:
        self.faults.clear()

    def down(self) -> None:
        self._server.down()

    def up(self) -> None:
        self._server.up()

    def revoke_token(self) -> None:
        self.access.renew()

    def renew_token(self) -> None:
        tree = json.loads(kubeconfig_text(f"http://{HOST}:{self._server.port}", CONTEXT, self.access.token))
        tree["contexts"][0]["context"]["namespace"] = self.namespace
        self.kubeconfig.touch(0o600)
        new = self.kubeconfig.with_suffix(".new")
        new.write_text(json.dumps(tree))
        new.replace(self.kubeconfig)

    # what is handed on

    def _respond(self, request: Request, _stop: threading.Event) -> Answer | Stream:
        self.access.authenticate(request)
        return self.forward(request)

    def forward(self, request: Request) -> Answer | Stream:
        """What the cluster answers, word for word. ConnectionError where it does not."""
        import urllib3

        try:
            response = self._connection().request(
                request.method,
                request.path,
                query=list(request.query.items()),
                body=request.json() if request.body else None,
                content_type=request.headers.get("content-type", "application/json"),
                timeout_s=TIMES_S,
            )
        except HttpError as refused:
            text = refused.body.decode(errors="replace")
            kept = {name: value for name, value in refused.headers.items() if name.lower() == "retry-after"}
            return Answer(refused.status or 502, _tree(text), kept)
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise ConnectionError(str(error)) from None
        if response.status == 204:
            return Answer(204)
        if request.watches or request.path.endswith("/log"):
            return Stream(response.headers.get("Content-Type", "application/json"), self._pieces(response))
        return Answer(response.status, _tree(response.data.decode()))

    def _connection(self) -> ClusterConnection:
        with self._lock:
            now_s = time.time()
            if self._held is None or (self._held.until_s is not None and now_s >= self._held.until_s):
                self._held = connect(self._find(), now_s)
            return self._held

    def _find(self) -> ResolvedTarget:
        return resolve(ClusterTarget(), self._environ)

    def _pieces(self, response: Any) -> Iterator[bytes | None]:
        import urllib3

        self._open.add(response)
        try:
            yield from response.stream(1 << 16)
        except (urllib3.exceptions.HTTPError, ValueError, AttributeError) as error:  # closed under our hands
            raise ConnectionError(str(error)) from None
        finally:
            self._open.discard(response)
            response.close()

    def _wake(self) -> None:
        """Ends what is waited for, since nobody waits for it any more."""
        for response in list(self._open):
            with contextlib.suppress(Exception):  # it has ended meanwhile
                response.shutdown()


def _tree(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
