"""The HTTP server: connections, authentication, faults, and answers whole or in pieces."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import struct
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler

from tests.clusters.ports import reserved_port
from tests.fake_kubernetes.api.errors import KubeError
from tests.fake_kubernetes.api.faults import Fault, Faults
from tests.fake_kubernetes.api.messages import Answer, Request, Stream, query_of

Respond = Callable[[Request, threading.Event], "Answer | Stream"]
HOST = "127.0.0.1"


class Server:
    """Listen on HOST and answer with `respond(request, stop)`.

    A stream ends once `stop` is set; `wake` is called then, so that streams notice.
    """

    def __init__(self, respond: Respond, faults: Faults, wake: Callable[[], None], port: int = 0) -> None:
        self.respond = respond
        self._wake = wake
        self.faults = faults
        self.requests: list[Request] = []
        self.port = port
        self.stop = threading.Event()
        self.lock = threading.Lock()
        self._switching = threading.RLock()  # held by up() and down()
        self.busy: set[socket.socket] = set()  # connections with a request that is not answered yet
        self._listening: socket.socket | None = None
        self._closed = False
        self._reserved: weakref.finalize | None = None  # keeps the port for us while we do not listen
        self._connections: set[socket.socket] = set()

    def up(self) -> None:
        """Listen, on the same port as before. Nothing happens if the server listens already."""
        with self._switching:
            if self._listening is not None or self._closed:
                return
            self.stop = threading.Event()
            if self._reserved is None:
                reserved = reserved_port(self.port)
                self.port = reserved.getsockname()[1]
                self._reserved = weakref.finalize(self, os.close, reserved.detach())
            self._listening = socket.create_server((HOST, self.port), backlog=512)
            threading.Thread(target=self._accept, args=(self._listening,), name="apiserver", daemon=True).start()

    def down(self, *, graceful: bool = False, grace_s: float = 10.0) -> None:
        """Stop to listen. Every connection breaks at once, as after SIGKILL.

        With `graceful` streams and requests end properly within `grace_s` seconds, as after SIGTERM.
        """
        with self._switching:
            listening, self._listening = self._listening, None
            if listening is not None:
                _shut(listening)
            self._break(idle_only=graceful)
            self.stop.set()
            self._wake()
            end = time.monotonic() + grace_s
            while self._connections and time.monotonic() < end:
                time.sleep(0.01)
            self._break(idle_only=False)

    def close(self) -> None:
        """Stop for good and free the port."""
        with self._switching:
            self._closed = True
            self.down()
            if self._reserved is not None:
                self._reserved()

    def _break(self, *, idle_only: bool) -> None:
        for connection in self._connections - self.busy if idle_only else set(self._connections):
            with contextlib.suppress(OSError):  # it has ended meanwhile
                connection.shutdown(socket.SHUT_RDWR)

    def _accept(self, listening: socket.socket) -> None:
        while True:
            try:
                connection, address = listening.accept()
            except OSError:
                return
            self._connections.add(connection)
            if listening is not self._listening:  # it went down in between
                self._connections.discard(connection)
                _shut(connection)
                return
            threading.Thread(target=self._serve, args=(connection, address), name="request", daemon=True).start()

    def _serve(self, connection: socket.socket, address: object) -> None:
        try:
            _Handler(connection, address, self)  # type: ignore[arg-type]
        except (OSError, ValueError):  # the client is gone, or another thread has closed the connection
            pass
        finally:
            self._connections.discard(connection)
            self.busy.discard(connection)
            _shut(connection)


def _shut(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):  # it was not connected any more
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # headers and body in one packet
    disable_nagle_algorithm = True
    server: Server  # type: ignore[assignment]

    def handle(self) -> None:
        self._stop = self.server.stop
        self.close_connection = True
        self.handle_one_request()
        while not self.close_connection and not self._stop.is_set():
            self.handle_one_request()

    def log_message(self, *_: object) -> None:
        pass

    def _handle_request(self) -> None:
        self.server.busy.add(self.connection)
        self._answer_request()
        self.server.busy.discard(self.connection)

    def _answer_request(self) -> None:
        path, _, query = self.path.partition("?")
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        headers = {name.lower(): value for name, value in self.headers.items()}
        request = Request(self.command, path, query_of(query), headers, body)
        with self.server.lock:
            self.server.requests.append(request)
        fault = self.server.faults.take(request)
        try:
            answer = self._apply_fault(request, fault) or self._respond(request)
        except KubeError as error:
            answer = Answer(error.code, error.status())
        if fault and fault.lost:
            return self._reset()
        if fault and fault.freeze and fault.cut_after is None and isinstance(answer, Answer):
            return self._freeze()
        request.status = 200 if isinstance(answer, Stream) else answer.status
        if isinstance(answer, Stream):
            return self._send_stream(answer, fault)
        return self._send_answer(answer, fault)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = do_HEAD = do_OPTIONS = _handle_request

    def _respond(self, request: Request) -> Answer | Stream:
        return self.server.respond(request, self._stop)

    def _apply_fault(self, request: Request, fault: Fault | None) -> Answer | None:
        """Do what the fault demands before the request is handled; return the fault's answer, if it has one."""
        if fault is None:
            return None
        answer = fault.do(request) if fault.do else None
        if fault.reset:
            self._reset()
        return answer if isinstance(answer, Answer) else fault.answer()

    def _reset(self) -> None:
        """Reset the connection: the client also loses what it has not read yet."""
        self.close_connection = True
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()
        raise ConnectionResetError

    def _freeze(self) -> None:
        """Send nothing until the server or the client ends."""
        self.wfile.flush()
        while not self._stop.wait(0.2) and not self._client_is_gone():
            pass
        self.close_connection = True
        if self._stop.is_set():
            self._reset()

    def _client_is_gone(self) -> bool:
        readable, _, _ = select.select([self.connection], [], [], 0)
        return bool(readable) and not self.connection.recv(1, socket.MSG_PEEK)

    def _send_answer(self, answer: Answer, fault: Fault | None) -> None:
        content_type, body = answer.encoded()
        self.send_response(answer.status)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        if answer.status != 204:
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(body)))
        self._end_headers()
        if fault and fault.cut_after is not None:
            self.wfile.write(body[: fault.cut_after])
            self.wfile.flush()
            return self._freeze() if fault.freeze else self._drop()
        if answer.status != 204:
            self.wfile.write(body)
        return self.wfile.flush()

    def _end_headers(self) -> None:
        if self.close_connection:  # the client has asked for it
            self.send_header("Connection", "close")
        self.end_headers()

    def _drop(self) -> None:
        """Closed where it is, as by a process that was killed."""
        self.close_connection = True
        _shut(self.connection)

    def _send_stream(self, stream: Stream, fault: Fault | None) -> None:
        pieces = stream.pieces
        if fault and (fault.cut_after is not None or fault.freeze):
            pieces = _first(pieces, fault.cut_after or 0)
        self.send_response(200)
        self.send_header("Content-Type", stream.content_type)
        self.send_header("Transfer-Encoding", "chunked")
        self._end_headers()
        self.wfile.flush()
        for piece in pieces:
            if self._stop.is_set() or (piece is None and self._client_is_gone()):
                break
            if piece:
                self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
                self.wfile.flush()
        if fault and fault.freeze:
            return self._freeze()
        if fault and fault.cut_after is not None and not fault.clean:
            return self._drop()
        self.wfile.write(b"0\r\n\r\n")
        return self.wfile.flush()


def _first(pieces: Iterator[bytes | None], size: int) -> Iterator[bytes | None]:
    """Yield the first `size` bytes of a stream."""
    while size > 0:
        piece = next(pieces, b"")
        if piece == b"":
            return
        yield piece if piece is None else piece[:size]
        size -= len(piece or b"")
