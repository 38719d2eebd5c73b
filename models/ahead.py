"""The items of an iterator, one of them fetched ahead by a thread."""

from __future__ import annotations

import queue
import threading
from typing import Iterator, NamedTuple, Optional, TypeVar

Item = TypeVar("Item")

EXIT_PATIENCE_S = 8.0  # a thread that hangs in a file system is left to the kernel


class _Fetched(NamedTuple):
    """One item, or the end, or the error in the place of an item."""

    item: object = None
    is_end: bool = False
    error: Optional[BaseException] = None


def one_ahead(items: Iterator[Item]) -> Iterator[Item]:
    """Yield the items, while a thread fetches the one behind the item that the consumer has.

    The thread asks for an item only when the consumer has taken the one before, so one waits at most, and an item that
    is late holds up none that is there. The thread starts with the first next(); it ends, at the latest after the item
    that it is fetching, when this generator is closed or used up. An error is raised in the place of its item.
    """
    wanted = threading.Semaphore(1)
    closing = threading.Event()
    fetched: queue.SimpleQueue[_Fetched] = queue.SimpleQueue()
    thread = threading.Thread(target=_fetch, args=(items, wanted, closing, fetched), name="ahead", daemon=True)
    del items  # the thread alone holds them, and so closes them when it ends
    thread.start()
    try:
        while True:
            found = fetched.get()
            if found.error is not None:
                raise found.error
            if found.is_end:
                return
            wanted.release()
            yield found.item  # type: ignore[misc]
    finally:
        closing.set()
        wanted.release()
        thread.join(EXIT_PATIENCE_S)


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
        except BaseException as error:  # whatever it is, it belongs to the consumer
            fetched.put(_Fetched(error=error))
            return
