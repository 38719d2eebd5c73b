"""Sends requests to one cluster: repeats those that may be repeated, and logs in again when credentials expire."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any, TypeVar

from platforms.job import AwayError, LoginNeeded
from platforms.schedulers.kubernetes.api import credentials, kubeconfig
from platforms.schedulers.kubernetes.api.connection import ClusterConnection, connect
from platforms.schedulers.kubernetes.api.errors import (
    TOO_MANY,
    TRANSIENT,
    UNAUTHORIZED,
    UNDONE,
    TransientError,
    json_object,
    translated_errors,
)
from platforms.schedulers.kubernetes.api.kubeconfig import ClusterTarget, ResolvedTarget

CONNECT_S = 10.0
READ_S = 30.0
CHANGE_S = 65.0  # a server ends every request after a minute: its answer is better than our time-out
PAUSES_S = (0.5, 1.0, 2.0, 4.0)  # before a request is repeated
BUDGET_S = 60.0  # no request is repeated later than this
LOGIN_REFUSED_S = 5.0  # after a refused login no request is sent for so long
CHUNK = 1 << 16
JSON = "application/json"

Query = list[tuple[str, str]]
T = TypeVar("T")


class ResponseStream:
    """The chunks of an answer as they come.

    Another thread may call stop(): the stream then ends as if it broke.
    """

    def __init__(self, chunks: Iterator[bytes], response: Any) -> None:
        self._chunks = chunks
        self._response = response

    def __iter__(self) -> Iterator[bytes]:
        return self._chunks

    def __next__(self) -> bytes:
        return next(self._chunks)

    def stop(self) -> None:
        with suppress(OSError, RuntimeError, ValueError):  # the stream is over
            self._response.shutdown()


class Session:
    """Requests to one cluster.

    Thread-safe; the kubeconfig is read and the connection made when first needed.
    """

    def __init__(
        self,
        target: ClusterTarget,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._wanted = target
        self._clock = clock
        self._sleep = sleep
        self._wall = wall
        self._lock = threading.RLock()
        self._target: ResolvedTarget | None = None
        self._connection: ClusterConnection | None = None
        self._login_refused: LoginNeeded | None = None
        self._login_refused_s = 0.0

    @property
    def target(self) -> ResolvedTarget:
        with self._lock:
            return self._target or self._resolve()

    def request(
        self,
        method: str,
        path: str,
        *,
        query: Query | None = None,
        body: Mapping[str, Any] | None = None,
        content_type: str = JSON,
        repeat: bool = True,
    ) -> dict[str, Any]:
        """Send a request and return the JSON object of its answer.

        It is repeated for up to a minute until there is an answer; without `repeat` only after an answer which says
        that nothing was done.
        """
        limit_s = READ_S if method == "GET" else CHANGE_S

        def send(connection: ClusterConnection) -> dict[str, Any]:
            return self._send(
                connection, method, path, limit_s, query=query or (), body=body, content_type=content_type
            )

        return self._repeated(send, TRANSIENT if repeat else UNDONE)

    def _send(
        self, connection: ClusterConnection, method: str, path: str, limit_s: float, **options: Any
    ) -> dict[str, Any]:
        timeout_s = (min(CONNECT_S, limit_s), limit_s)
        with translated_errors(self.target, limit_s):
            response = connection.request(method, path, timeout_s=timeout_s, **options)
            body = response.data
        return json_object(self.target, body)

    @contextmanager
    def stream(self, path: str, query: Query, silence_s: float) -> Iterator[Iterator[bytes]]:
        """Stream the chunks of an answer. The request is sent once, and again only when the server asks for that (429).

        Reading raises AwayError when the connection breaks or nothing comes for `silence_s`.
        """

        def send(connection: ClusterConnection) -> Any:
            with translated_errors(self.target, silence_s):
                return connection.request("GET", path, query=query, timeout_s=(CONNECT_S, silence_s))

        response = self._repeated(send, (TOO_MANY,))
        try:
            yield ResponseStream(self._chunks(response, silence_s), response)
        finally:
            response.close()  # this closes the connection, too, unless the answer was read to its end

    def _chunks(self, response: Any, silence_s: float) -> Iterator[bytes]:
        try:
            with translated_errors(self.target, silence_s):
                yield from response.stream(CHUNK)
        except TransientError as error:
            raise AwayError(f"{self.target.where}: {error.message}") from None

    def _repeated(self, send: Callable[[ClusterConnection], T], repeatable: Collection[int]) -> T:
        """Send until there is an answer.

        `repeatable`: the statuses after which the request may be sent again.
        """
        began_s = self._clock()
        pauses = iter(PAUSES_S)
        was_unauthorized = False
        while True:
            connection = self._connected()
            try:
                return send(connection)
            except TransientError as error:
                if error.status == UNAUTHORIZED:
                    self._renew_login(connection, is_second=was_unauthorized)
                    was_unauthorized = True
                    continue
                pause_s = next(pauses, None) if error.status in repeatable else None
                if pause_s is None:
                    raise AwayError(f"{self.target.where}: {error.message}") from None
                wait_s = max(pause_s * random.uniform(0.5, 1.0), error.after_s)
                if self._clock() - began_s + wait_s >= BUDGET_S:
                    raise AwayError(f"{self.target.where}: {error.message}") from None
            self._sleep(wait_s)

    # --- kubeconfig and login ----------------------------------------------------------------------------------------

    def _resolve(self) -> ResolvedTarget:
        """Read the kubeconfig.

        The first reading fixes context and namespace: jobs stay where they were submitted.
        """
        target = kubeconfig.resolve(self._wanted)
        self._target = target
        self._wanted = replace(self._wanted, context=target.context, contexts=(), namespace=target.namespace)
        return target

    def _connected(self) -> ClusterConnection:
        with self._lock:
            refused = self._login_refused
            if refused is not None and self._clock() - self._login_refused_s < LOGIN_REFUSED_S:
                raise LoginNeeded(str(refused), refused.command)
            now_s = self._wall()
            connection = self._connection
            if connection is not None and (connection.until_s is None or now_s < connection.until_s):
                return connection
            try:
                self._connection = connect(self._resolve(), now_s)
            except LoginNeeded as error:
                self._note_refused_login(error)
                raise
            self._login_refused = None
            return self._connection

    def _renew_login(self, connection: ClusterConnection, *, is_second: bool) -> None:
        """Drop the connection after a 401, so that the next request reads the kubeconfig again.

        All threads that shared the connection share the new one. Raises LoginNeeded when this is the second 401.
        """
        with self._lock:
            if self._connection is connection:
                self._connection = None
            if is_second:
                error = credentials.login_needed(self.target, "the server does not accept our login (401 Unauthorized)")
                self._note_refused_login(error)
                raise error

    def _note_refused_login(self, error: LoginNeeded) -> None:
        self._login_refused = error
        self._login_refused_s = self._clock()
