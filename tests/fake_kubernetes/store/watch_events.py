"""Writes as others see them: events for watches, subscriptions for controllers."""

from __future__ import annotations

import json
import queue
from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property

from tests.fake_kubernetes.store.trees import Tree


@dataclass(frozen=True)
class WatchEvent:
    """One write. `before` is the object until then, None for ADDED."""

    version: int
    type: str  # ADDED, MODIFIED, DELETED
    plural: str
    obj: Tree
    before: Tree | None

    @cached_property
    def text(self) -> str:
        """The object as JSON, written once for all watches."""
        return json.dumps(self.obj)


class Subscription:
    """A queue of (type, plural, object) for one controller; existing objects come first, as ADDED."""

    def __init__(self, plurals: Collection[str]) -> None:
        self.plurals = frozenset(plurals)
        self._queue: queue.SimpleQueue[tuple[str, str, Tree] | None] = queue.SimpleQueue()

    def put(self, event_type: str, plural: str, obj: Tree) -> None:
        self._queue.put((event_type, plural, obj))

    def get(self, timeout_s: float | None = None) -> tuple[str, str, Tree] | None:
        """Return the next event; None after `timeout_s` seconds without one, and once for each wake()."""
        try:
            return self._queue.get(timeout=timeout_s)
        except queue.Empty:
            return None

    def wake(self) -> None:
        """Let the current or the next get() return None."""
        self._queue.put(None)
