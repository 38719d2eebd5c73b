"""Who makes a platform's blocking calls: a thread for each platform, or whoever asks, one after the other."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Protocol


class Worker(Protocol):
    """Takes one turn at a time."""

    @property
    def busy(self) -> bool:
        """Whether the turn that was started last is still under way."""
        ...

    def start(self, turn: Callable[[], None]) -> None:
        """Take a turn, now or at once after; not while busy."""
        ...

    def nudge(self) -> None:
        """Make sure that a turn which start() was interrupted in, by Ctrl-C, is taken; otherwise without effect."""
        ...

    def take_crash(self) -> BaseException | None:
        """What a turn raised and nobody has heard of yet."""
        ...

    def stop(self) -> None:
        """Hold nothing while there is nothing to do; start() works again afterwards."""
        ...


class WorkerPool(Protocol):
    """Where workers come from, and how the main thread waits for them."""

    def worker(self, name: str) -> Worker: ...

    def rest(self, seconds: float) -> None:
        """Do nothing for some seconds, or less when a turn ends meanwhile."""
        ...


class ThreadPool:
    """A thread a worker. They are daemons: a platform that hangs never keeps a session from ending."""

    def __init__(self) -> None:
        self._ended: SimpleQueue[None] = SimpleQueue()

    def worker(self, name: str) -> Worker:
        return _ThreadWorker(name, self._ended)

    def rest(self, seconds: float) -> None:
        with contextlib.suppress(Empty):
            self._ended.get(timeout=seconds)


class _ThreadWorker:
    """One slot for a turn, and tokens that wake the thread: a token too many does no harm, one that was lost is
    replaced by nudge(). A thread that waits for a token costs nothing, and starting one would cost five times more."""

    def __init__(self, name: str, ended: SimpleQueue[None]) -> None:
        self._name, self._ended = name, ended
        self._turn: Callable[[], None] | None = None
        self._crash: BaseException | None = None
        self._thread: Thread | None = None
        self._tokens: SimpleQueue[bool] = SimpleQueue()

    @property
    def busy(self) -> bool:
        return self._turn is not None

    def start(self, turn: Callable[[], None]) -> None:
        self._turn = turn
        self.nudge()

    def nudge(self) -> None:
        if self._thread is None or not self._thread.is_alive():
            self._tokens = SimpleQueue()
            self._thread = Thread(target=self._work, args=(self._tokens,), name=self._name, daemon=True)
            self._thread.start()
        self._tokens.put(True)

    def take_crash(self) -> BaseException | None:
        crash, self._crash = self._crash, None
        return crash

    def stop(self) -> None:
        if self._thread is not None:
            self._thread = None
            self._tokens.put(False)

    def _work(self, tokens: SimpleQueue[bool]) -> None:
        while tokens.get():
            if (turn := self._turn) is None:
                continue
            try:
                turn()
            except BaseException as error:  # for the main thread, which is the one that can end the session
                self._crash = error
            turn = self._turn = None
            self._ended.put(None)


class InlinePool:
    """Turns are taken by whoever starts them, so that what happens is the same every time."""

    busy = False

    def __init__(self, sleep: Callable[[float], None] = time.sleep) -> None:
        self.rest = sleep

    def worker(self, name: str) -> Worker:
        return self

    def start(self, turn: Callable[[], None]) -> None:
        turn()

    def nudge(self) -> None:
        """Nothing is ever pending."""

    def take_crash(self) -> None:
        """Turns raise where they are started."""

    def stop(self) -> None:
        """There is no thread."""
