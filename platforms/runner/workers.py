"""Worker threads: each platform has one, so that a scheduler that hangs holds up no other platform.

The main thread calls everything here; only the tasks themselves run on a worker thread.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Protocol

Task = Callable[[], None]


class Worker(Protocol):
    """Runs one task at a time."""

    @property
    def busy(self) -> bool:
        """Whether the task that was started last still runs."""
        ...

    def start(self, task: Task) -> None:
        """Run a task, now or as soon as possible. Must not be called while busy."""
        ...

    def nudge(self) -> None:
        """Make sure that a task runs although Ctrl-C interrupted its start(); without effect otherwise."""
        ...

    def take_crash(self) -> BaseException | None:
        """What a task raised, once."""
        ...

    def stop(self) -> None:
        """Release the thread while there is nothing to do. start() works again afterwards."""
        ...

    def wake(self) -> None:
        """End the main thread's rest. Any thread may call this."""
        ...


class WorkerPool(Protocol):
    """Makes workers, and lets the main thread wait for them."""

    def worker(self, name: str) -> Worker: ...

    def rest(self, seconds: float) -> None:
        """Sleep for so many seconds, or less when a task ends meanwhile or a worker is to wake us."""
        ...


class ThreadPool:
    """One thread for each worker.

    The threads are daemons, so a platform that hangs cannot keep a session alive.
    """

    def __init__(self) -> None:
        self._ended: SimpleQueue[None] = SimpleQueue()

    def worker(self, name: str) -> Worker:
        return _ThreadWorker(name, self._ended)

    def rest(self, seconds: float) -> None:
        with contextlib.suppress(Empty):
            self._ended.get(timeout=seconds)


class _ThreadWorker:
    """Holds one task, and a queue of tokens that wake the thread.

    A token too many does no harm, and nudge() replaces one that was lost. A thread that waits for a token costs
    nothing; starting a thread for each task would cost five times more.
    """

    def __init__(self, name: str, ended: SimpleQueue[None]) -> None:
        self._name = name
        self._ended = ended
        self._task: Task | None = None
        self._crash: BaseException | None = None
        self._thread: Thread | None = None
        self._tokens: SimpleQueue[bool] = SimpleQueue()

    @property
    def busy(self) -> bool:
        return self._task is not None

    def start(self, task: Task) -> None:
        self._task = task
        self.nudge()

    def nudge(self) -> None:
        if self._thread is None or not self._thread.is_alive():
            self._tokens = SimpleQueue()
            self._thread = Thread(target=self._work, args=(self._tokens,), name=self._name, daemon=True)
            self._thread.start()
        self._tokens.put(True)

    def take_crash(self) -> BaseException | None:
        crash = self._crash
        self._crash = None
        return crash

    def stop(self) -> None:
        if self._thread is not None:
            self._thread = None
            self._tokens.put(False)

    def wake(self) -> None:
        self._ended.put(None)

    def _work(self, tokens: SimpleQueue[bool]) -> None:
        """Body of the thread: run a task for each token, until the token is False."""
        while tokens.get():
            task = self._task
            if task is None:
                continue
            try:
                task()
            except BaseException as error:  # the main thread raises it: only that one can end the session
                self._crash = error
            task = None  # do not keep it alive while waiting
            self._task = None
            self._ended.put(None)


class InlinePool:
    """Runs each task on the thread that starts it, so that everything happens in the same order every time."""

    busy = False

    def __init__(self, sleep: Callable[[float], None] = time.sleep) -> None:
        self.rest = sleep

    def worker(self, name: str) -> Worker:
        return self

    def start(self, task: Task) -> None:
        task()

    def nudge(self) -> None:
        """No task is ever pending."""

    def take_crash(self) -> None:
        """A task raises where it is started."""

    def stop(self) -> None:
        """There is no thread."""

    def wake(self) -> None:
        """Nobody rests while a task runs."""
