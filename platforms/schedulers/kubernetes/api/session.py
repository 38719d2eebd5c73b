"""Requests to one cluster that know what may be asked twice, and when the kubeconfig is to be read again."""

from __future__ import annotations

import random
import socket
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
    ApiError,
    Expired,
    TransientError,
    json_object,
    translated_errors,
)
from platforms.schedulers.kubernetes.api.kubeconfig import ClusterTarget, ResolvedTarget

CONNECT_S = 10.0
READ_S = 30.0
GLANCE_S = 5.0
CHANGE_S = 65.0  # a server ends every request after a minute: its own word is better than our silence
PAUSES_S = (0.5, 1.0, 2.0, 4.0)  # before a request is repeated
BUDGET_S = 60.0  # no request is repeated later than this
PERSON_S = 5.0  # how long nothing is asked after a login was refused
CHUNK = 1 << 16
JSON = "application/json"

Query = list[tuple[str, str]]
T = TypeVar("T")


class ResponseStream:
    """An answer as it comes. stop(), by another thread, ends it at once, as if its connection had broken."""

    def __init__(self, pieces: Iterator[bytes], response: Any) -> None:
        self._pieces, self._response = pieces, response

    def __iter__(self) -> Iterator[bytes]:
        return self._pieces

    def __next__(self) -> bytes:
        return next(self._pieces)

    def stop(self) -> None:
        with suppress(Exception):  # it is over, or of a library that has it elsewhere: then its silence limit ends it
            if hasattr(self._response, "shutdown"):  # since urllib3 2.3
                self._response.shutdown()
            else:
                self._response._fp.fp.raw._sock.shutdown(socket.SHUT_RD)


class Session:
    """Thread-safe; reads its kubeconfig when it is first needed, and connects when something is first asked."""

    def __init__(
        self,
        asked: ClusterTarget,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._asked = asked
        self._clock, self._sleep, self._wall = clock, sleep, wall
        self._lock = threading.RLock()
        self._found: ResolvedTarget | None = None
        self._connection: ClusterConnection | None = None
        self._refusal: tuple[float, LoginNeeded] | None = None

    @property
    def found(self) -> ResolvedTarget:
        with self._lock:
            return self._found or self._find()

    def ask(
        self,
        method: str,
        path: str,
        *,
        query: Query | None = None,
        body: Mapping[str, Any] | None = None,
        content_type: str = JSON,
        repeat: bool = True,
    ) -> dict[str, Any]:
        """One request, or a few within a minute, until there is an answer; without `repeat` only after an answer which
        says that nothing was done. Its JSON."""
        limit_s = READ_S if method == "GET" else CHANGE_S
        what: dict[str, Any] = {"query": query or (), "body": body, "content_type": content_type}
        return self._repeated(
            lambda connection: self._once(connection, method, path, limit_s, **what), TRANSIENT if repeat else UNDONE
        )

    def glance(self, path: str) -> dict[str, Any] | None:
        """What lies there, asked once and not waited for long. None without an answer, and for whatever is none: its
        401, too, says nothing about us where an extension of the API, set up badly, answers in its own place."""
        try:
            return self._once(self._connected(), "GET", path, GLANCE_S)
        except (ApiError, Expired, TransientError):
            return None

    def _once(
        self, connection: ClusterConnection, method: str, path: str, limit_s: float, **what: Any
    ) -> dict[str, Any]:
        with translated_errors(self.found, limit_s):
            response = connection.request(method, path, timeout_s=(min(CONNECT_S, limit_s), limit_s), **what)
            content = response.data
        return json_object(self.found, content)

    @contextmanager
    def stream(self, path: str, query: Query, silence_s: float) -> Iterator[Iterator[bytes]]:
        """The pieces of an answer as they come. Asked once, but again when the server wants it to be asked later.

        They raise AwayError when the connection breaks or nothing comes for `silence_s`.
        """

        def once(connection: ClusterConnection) -> Any:
            with translated_errors(self.found, silence_s):
                return connection.request("GET", path, query=query, timeout_s=(CONNECT_S, silence_s))

        response = self._repeated(once, (TOO_MANY,))
        try:
            yield ResponseStream(self._pieces(response, silence_s), response)
        finally:
            response.close()  # and its connection, unless it was read to its end

    def _pieces(self, response: Any, silence_s: float) -> Iterator[bytes]:
        try:
            with translated_errors(self.found, silence_s):
                yield from response.stream(CHUNK)
        except TransientError as trouble:
            raise AwayError(f"{self.found.where}: {trouble.message}") from None

    def _repeated(self, once: Callable[[ClusterConnection], T], repeat: Collection[int]) -> T:
        begun_s, pauses, refused = self._clock(), iter(PAUSES_S), False
        while True:
            connection = self._connected()
            try:
                return once(connection)
            except TransientError as trouble:
                if trouble.status == UNAUTHORIZED:
                    self._unknown(connection, again=refused)
                    refused = True
                    continue
                pause_s = next(pauses, None) if trouble.status in repeat else None
                wait_s = max((pause_s or 0.0) * random.uniform(0.5, 1.0), trouble.after_s)
                if pause_s is None or self._clock() - begun_s + wait_s >= BUDGET_S:
                    raise AwayError(f"{self.found.where}: {trouble.message}") from None
            self._sleep(wait_s)

    # --- who we are --------------------------------------------------------------------------------------------------

    def _find(self) -> ResolvedTarget:
        """Read the kubeconfig. The first time decides where we are: no change of current-context takes us elsewhere."""
        self._found = found = kubeconfig.resolve(self._asked)
        self._asked = replace(self._asked, context=found.context, contexts=(), namespace=found.namespace)
        return found

    def _connected(self) -> ClusterConnection:
        with self._lock:
            if self._refusal and self._clock() - self._refusal[0] < PERSON_S:
                raise LoginNeeded(str(self._refusal[1]), self._refusal[1].command)
            now_s, held = self._wall(), self._connection
            if held is None or (held.until_s is not None and now_s >= held.until_s):
                held = self._connection = self._connect(now_s)
            return held

    def _connect(self, now_s: float) -> ClusterConnection:
        try:
            connection = connect(self._find(), now_s)
        except LoginNeeded as error:
            self._refusal = (self._clock(), error)
            raise
        self._refusal = None
        return connection

    def _unknown(self, connection: ClusterConnection, *, again: bool) -> None:
        """The server does not know us: the kubeconfig is read again, once for all who ask. Raises LoginNeeded when that
        was of no use."""
        with self._lock:
            if self._connection is connection:
                self._connection = None
            if again:
                error = credentials.login_needed(self.found, "the server does not know us (401 Unauthorized)")
                self._refusal = (self._clock(), error)
                raise error
