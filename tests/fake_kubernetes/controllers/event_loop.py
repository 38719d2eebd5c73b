"""One thread that reacts to the store's events and to times that come: what kubelets and controllers run on."""

from __future__ import annotations

import heapq
import itertools
import threading
import time
from collections.abc import Callable

from tests.fake_kubernetes.api.errors import KubeError
from tests.fake_kubernetes.store.trees import Tree
from tests.fake_kubernetes.store.watch_events import Subscription

Handler = Callable[[str, str, Tree], None]


class EventLoop:
    """Calls react(event type, plural, object) and what is due, one after the other. Sleeps in between."""

    def __init__(self, name: str, subscription: Subscription, react: Handler, failures: list[BaseException]) -> None:
        self.subscription = subscription
        self._handle = react
        self._failures = failures
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self._lock = threading.Lock()
        self._turn = threading.Lock()  # of who is at work, or has paused us
        self._paused = False
        self._closed = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def after(self, seconds: float, action: Callable[[], None]) -> None:
        """From any thread."""
        with self._lock:
            heapq.heappush(self._due, (time.monotonic() + seconds, next(self._numbers), action))
        if threading.current_thread() is not self._thread:
            self.subscription.wake()

    def pause(self) -> None:
        """When this returns nothing is done any more until resume(); then all that has come meanwhile, in order."""
        if not self._paused:
            self._turn.acquire()
            self._paused = True

    def resume(self) -> None:
        if self._paused:
            self._paused = False
            self._turn.release()

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
            event = self.subscription.get(self._pause_s())
            with self._turn:
                if event is not None:
                    self._safely(lambda event=event: self._handle(*event))  # type: ignore[misc]
                for action in self._now():
                    self._safely(action)

    def _pause_s(self) -> float | None:
        with self._lock:
            return max(0.0, self._due[0][0] - time.monotonic()) if self._due else None

    def _now(self) -> list[Callable[[], None]]:
        found = []
        with self._lock:
            while self._due and self._due[0][0] <= time.monotonic():
                found.append(heapq.heappop(self._due)[2])
        return found

    def _safely(self, action: Callable[[], None]) -> None:
        if self._closed:
            return
        try:
            action()
        except KubeError as error:
            if error.code != 404:  # somebody has deleted what this was about: its own event comes
                self._failures.append(error)
        except Exception as error:
            self._failures.append(error)
