"""Reads one followed log at full speed, in a thread that does nothing else.

A kubelet whose reader is slow skips whole files. So neither our disk nor a look at the pod may hold a stream up.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

from platforms.job import AwayError

HELD_MAX = 32 << 20  # bytes that have come and are not sorted yet
GATHER_S = 0.01  # for so long more is waited for: a kubelet sends each line by itself
TOGETHER_S = 0.1  # what has come within so long is given as one
STOP_S = 1.0  # how long an open stream may take to end

Arrival = tuple[float, bytes]  # by the clock; no bytes: nothing has come for a while
Ask = Callable[[], AbstractContextManager[Iterator[bytes]]]


class Pump:
    """One stream. `ask` opens it, in the pump's thread, which waits there as long as the container says nothing."""

    def __init__(self, ask: Ask, clock: Callable[[], float], name: str) -> None:
        """Raises AwayError when this process may have no more threads."""
        self._ask, self._clock = ask, clock
        self._changed = threading.Condition()
        self._arrived: deque[Arrival] = deque()
        self._held = 0
        self._stream: object = None
        self._ended = self._stopped = False
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        try:
            self._thread.start()
        except RuntimeError as error:
            raise AwayError(f"{name} cannot be read: {error}") from None

    def _run(self) -> None:
        try:
            with self._ask() as chunks:
                with self._changed:
                    self._stream = chunks
                for chunk in chunks:
                    if not self._keep(self._clock(), chunk):
                        break
        except Exception as error:
            self._error = error
        with self._changed:
            self._ended, self._stream = True, None
            self._changed.notify_all()

    def _keep(self, now_s: float, chunk: bytes) -> bool:
        """False: nobody wants it any more."""
        with self._changed:
            self._changed.wait_for(lambda: self._held < HELD_MAX or self._stopped)
            if not self._arrived:
                self._changed.notify_all()
            self._arrived.append((now_s, chunk))
            self._held += len(chunk)
            return not self._stopped

    def arrivals(self, quiet_s: float) -> Iterator[Arrival]:
        """All that comes, and an empty one whenever nothing has come for so long. Raises what the stream raises."""
        while not self._stopped:
            with self._changed:
                self._changed.wait_for(lambda: self._arrived or self._ended or self._stopped, quiet_s)
                ended = self._ended
            if not ended:
                time.sleep(GATHER_S)
            with self._changed:
                arrivals = self._together()
                self._changed.notify_all()
            if not arrivals and ended:
                break
            yield (self._clock(), b"") if not arrivals else (arrivals[0][0], b"".join(chunk for _, chunk in arrivals))
        if self._stopped:
            raise AwayError("the stream was ended: it said nothing any more")
        if self._error is not None:
            raise self._error

    def _together(self) -> list[Arrival]:
        arrivals = [self._arrived.popleft()] if self._arrived else []
        while self._arrived and self._arrived[0][0] - arrivals[0][0] < TOGETHER_S:
            arrivals.append(self._arrived.popleft())
        self._held -= sum(len(chunk) for _, chunk in arrivals)
        return arrivals

    def stop(self) -> None:
        """End the stream, from any thread. One that is not open yet ends as soon as it is."""
        with self._changed:
            self._stopped = not self._ended or bool(self._arrived)
            stream = self._stream
            self._changed.notify_all()
        if (stop := getattr(stream, "stop", None)) is not None:  # else its own time limit ends it
            stop()

    def close(self) -> None:
        """End it, and wait for its thread, if its stream was open."""
        with self._changed:
            opened = self._stream is not None
        self.stop()
        if opened:
            self._thread.join(STOP_S)
