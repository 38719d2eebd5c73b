"""One thread that handles the store's events and timers. Kubelets and controllers run on it."""

from __future__ import annotations

import heapq
import itertools
import threading
import time
from collections.abc import Callable
from typing import Any

from tests.fake_kubernetes.api.errors import KubeError
from tests.fake_kubernetes.store.trees import Tree
from tests.fake_kubernetes.store.watch_events import Subscription

Handler = Callable[[str, str, Tree], None]


class EventLoop:
    """Call handle(event type, plural, object) and due timers, one at a time, and sleep in between.

    Exceptions go to `failures`. A 404 is ignored: its object was deleted meanwhile, and that event comes.
    """

    def __init__(self, name: str, subscription: Subscription, handle: Handler, failures: list[BaseException]) -> None:
        self.subscription = subscription
        self._handle = handle
        self._failures = failures
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self._lock = threading.Lock()
        self._busy = threading.Lock()  # held while an action runs, or while the loop is paused
        self._paused = False
        self._closed = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def after(self, seconds: float, action: Callable[[], None]) -> None:
        """Call `action` in this loop's thread after so many seconds. Any thread may call this."""
        with self._lock:
            heapq.heappush(self._due, (time.monotonic() + seconds, next(self._numbers), action))
        if threading.current_thread() is not self._thread:
            self.subscription.wake()

    def pause(self) -> None:
        """Stop handling. After resume() the loop handles what has come meanwhile, in order."""
        if not self._paused:
            self._busy.acquire()
            self._paused = True

    def resume(self) -> None:
        if self._paused:
            self._paused = False
            self._busy.release()

    @property
    def paused(self) -> bool:
        return self._paused

    def close(self) -> None:
        self._closed = True
        self.resume()
        self.subscription.wake()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while not self._closed:
            event = self.subscription.get(self._seconds_to_next_timer())
            with self._busy:
                if event is not None:
                    self._run_safely(self._handle, *event)
                for action in self._pop_due():
                    self._run_safely(action)

    def _seconds_to_next_timer(self) -> float | None:
        with self._lock:
            return max(0.0, self._due[0][0] - time.monotonic()) if self._due else None

    def _pop_due(self) -> list[Callable[[], None]]:
        found = []
        with self._lock:
            while self._due and self._due[0][0] <= time.monotonic():
                found.append(heapq.heappop(self._due)[2])
        return found

    def _run_safely(self, action: Callable[..., None], *arguments: Any) -> None:
        if self._closed:
            return
        try:
            action(*arguments)
        except KubeError as error:
            if error.code != 404:  # the object was deleted meanwhile, and its event comes
                self._failures.append(error)
        except Exception as error:
            self._failures.append(error)
