"""The items of an iterator, with the next one fetched ahead by a thread."""

from __future__ import annotations

import queue
import threading
from typing import Iterator, NamedTuple, Optional, TypeVar

Item = TypeVar("Item")

JOIN_LIMIT_S = 8.0  # a thread that hangs in a file system is left to the kernel


class _Fetched(NamedTuple):
    """One item, or the end, or the error that stands in the place of an item."""

    item: object = None
    is_end: bool = False
    error: Optional[BaseException] = None


def prefetch_one(items: Iterator[Item]) -> Iterator[Item]:
    """Yield the items, while a thread fetches the next one.

    The thread asks for an item only when the consumer has taken the one before, so at most one item waits. An item is
    yielded as soon as it is there, even if the next one is late. The thread starts with the first next(). It ends when
    this generator is closed or used up, at the latest after the item that it is fetching. An error is raised in the
    place of its item.
    """
    wanted = threading.Semaphore(1)
    closing = threading.Event()
    fetched: queue.SimpleQueue[_Fetched] = queue.SimpleQueue()
    thread = threading.Thread(target=_fetch, args=(items, wanted, closing, fetched), name="ahead", daemon=True)
    del items  # the thread has the only reference, so that the items are closed when it ends
    thread.start()
    try:
        while True:
            result = fetched.get()
            if result.error is not None:
                raise result.error
            if result.is_end:
                return
            wanted.release()
            yield result.item  # type: ignore[misc]
    finally:
        closing.set()
        wanted.release()
        thread.join(JOIN_LIMIT_S)


def _fetch(
    items: Iterator[object],
    wanted: threading.Semaphore,
    closing: threading.Event,
    fetched: queue.SimpleQueue[_Fetched],
) -> None:
    while True:
        wanted.acquire()
        if closing.is_set():
            return
        try:
            fetched.put(_Fetched(next(items)))
        except StopIteration:
            fetched.put(_Fetched(is_end=True))
            return
        except BaseException as error:  # any error is raised in the consumer
            fetched.put(_Fetched(error=error))
            return
