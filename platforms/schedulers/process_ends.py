"""Tells at once when processes of this machine end: the kernel says it, so no one has to look again and again."""

from __future__ import annotations

import os
import select
from collections.abc import Callable
from threading import Lock, Thread


class ProcessEnds:
    """Watches processes by one thread, which lives as long as one of them."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._told: dict[int, Callable[[], None]] = {}  # by the descriptor of the process
        self._epoll: select.epoll | None = None

    def watch(self, pid: int, told: Callable[[], None]) -> None:
        """Call `told` on another thread when a process ends.

        Raises OSError where there is none, or where the kernel (before Linux 5.3) or the sandbox does not tell it.
        """
        descriptor = os.pidfd_open(pid)
        try:
            with self._lock:
                if self._epoll is None:
                    epoll = select.epoll()
                    Thread(target=self._work, args=(epoll,), name="process ends", daemon=True).start()
                    self._epoll = epoll
                self._epoll.register(descriptor, select.EPOLLIN)
                self._told[descriptor] = told
        except BaseException:
            os.close(descriptor)
            raise

    def _work(self, epoll: select.epoll) -> None:
        while True:
            ended = epoll.poll()
            with self._lock:
                told = [self._told.pop(descriptor) for descriptor, _ in ended]
                for descriptor, _ in ended:
                    epoll.unregister(descriptor)  # a child that is about to begin may have it open, too
                    os.close(descriptor)
                if not self._told:
                    self._epoll = None
                    epoll.close()
            for call in told:
                call()
            if epoll.closed:
                return
