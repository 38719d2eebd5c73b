"""Reads one followed log at full speed, in a thread that does nothing else.

A kubelet skips whole files when its reader is slow. So neither our disk nor a look at the pod may hold a stream up.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

from platforms.job import AwayError

HELD_MAX = 32 << 20  # bytes that have arrived and are not taken yet
GATHER_S = 0.01  # after the first chunk, so long for others: a kubelet sends each line by itself
TOGETHER_S = 0.1  # chunks that arrive within so long are joined
STOP_S = 1.0  # how long an open stream may take to end

Arrival = tuple[float, bytes]  # the time by the clock, and a chunk; an empty one: nothing has come for a while
Request = Callable[[], AbstractContextManager[Iterator[bytes]]]


class Pump:
    """One stream. `request` opens it, in the pump's thread, which waits there as long as the container is silent."""

    def __init__(self, request: Request, clock: Callable[[], float], name: str) -> None:
        """Raises AwayError when this process may have no more threads."""
        self._request = request
        self._clock = clock
        self._changed = threading.Condition()
        self._arrived: deque[Arrival] = deque()
        self._held = 0  # bytes
        self._stream: object = None
        self._ended = False
        self._stopped = False
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        try:
            self._thread.start()
        except RuntimeError as error:
            raise AwayError(f"{name} cannot be read: {error}") from None

    def _run(self) -> None:
        try:
            with self._request() as chunks:
                with self._changed:
                    self._stream = chunks
                for chunk in chunks:
                    if not self._keep(self._clock(), chunk):
                        break
        except Exception as error:
            self._error = error
        with self._changed:
            self._ended = True
            self._stream = None
            self._changed.notify_all()

    def _keep(self, now_s: float, chunk: bytes) -> bool:
        """Store a chunk, when there is room for it. Returns False when the pump was stopped."""
        with self._changed:
            self._changed.wait_for(lambda: self._held < HELD_MAX or self._stopped)
            if not self._arrived:
                self._changed.notify_all()
            self._arrived.append((now_s, chunk))
            self._held += len(chunk)
            return not self._stopped

    def arrivals(self, quiet_s: float) -> Iterator[Arrival]:
        """Yield what arrives, and an empty chunk whenever nothing has come for `quiet_s`.

        Raises what the stream raises.
        """
        while not self._stopped:
            with self._changed:
                self._changed.wait_for(lambda: self._arrived or self._ended or self._stopped, quiet_s)
                ended = self._ended
            if not ended:
                time.sleep(GATHER_S)
            with self._changed:
                arrivals = self._take_together()
                self._changed.notify_all()
            if arrivals:
                arrived_s, _first = arrivals[0]
                yield arrived_s, b"".join(chunk for _arrived_s, chunk in arrivals)
            elif ended:
                break
            else:
                yield self._clock(), b""
        if self._stopped:
            raise AwayError("the stream was ended because it was silent")
        if self._error is not None:
            raise self._error

    def _take_together(self) -> list[Arrival]:
        """Take the next chunk and those that arrived soon after it."""
        if not self._arrived:
            return []
        arrivals = [self._arrived.popleft()]
        while self._arrived and self._arrived[0][0] - arrivals[0][0] < TOGETHER_S:
            arrivals.append(self._arrived.popleft())
        self._held -= sum(len(chunk) for _arrived_s, chunk in arrivals)
        return arrivals

    def stop(self) -> None:
        """End the stream, from any thread. One that is not open yet ends as soon as it is."""
        with self._changed:
            self._stopped = not self._ended or bool(self._arrived)
            stream = self._stream
            self._changed.notify_all()
        stop = getattr(stream, "stop", None)
        if stop is not None:  # a stream without it ends by its own time limit
            stop()

    def close(self) -> None:
        """End the stream, and wait for its thread if the stream was open."""
        with self._changed:
            was_open = self._stream is not None
        self.stop()
        if was_open:
            self._thread.join(STOP_S)
