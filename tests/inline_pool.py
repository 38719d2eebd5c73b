"""Workers without threads, for tests of the runner in which everything happens in the same order every time."""

from __future__ import annotations

import time
from collections.abc import Callable

from platforms.runner.workers import Task, Worker


class InlinePool:
    """A WorkerPool whose only worker runs each task on the thread that starts it."""

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
