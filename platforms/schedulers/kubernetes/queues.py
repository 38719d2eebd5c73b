"""Where Kueue's Workloads stand in their queues, as its visibility API tells, where it is served and open to us."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from platforms.job import BenchError, LoginNeeded
from platforms.schedulers.kubernetes.api.client import Client
from platforms.schedulers.kubernetes.api.resources import Resource
from platforms.schedulers.kubernetes.objects.fields import Object, items, text
from platforms.schedulers.kubernetes.status import kueue

LOOK_S = 5.0  # how old a queue's order may be
SILENT_S = 300.0  # for how long a queue is not asked for that nobody tells of


class QueuePositions:
    """The LocalQueues of one namespace, each asked for once, however many jobs wait in it. Nobody needs it, so that
    what goes wrong with it is nobody's error."""

    def __init__(self, client: Client, clock: Callable[[], float] = time.monotonic) -> None:
        self._client, self._clock = client, clock
        self._served: str | None = None  # the version to ask in
        self._seen: dict[str, tuple[float, Mapping[str, int]]] = {}  # when to ask again, and what is true until then

    def position(self, workload: Object) -> int | None:
        """1 is the next. None for one that waits no more, and where nobody tells. Raises LoginNeeded."""
        if not kueue.pending(workload):
            return None
        return self._positions(text(workload, "spec", "queueName")).get(text(workload, "metadata", "name"))

    def _positions(self, queue: str) -> Mapping[str, int]:
        again_s, found = self._seen.get(queue, (float("-inf"), {}))
        if self._clock() >= again_s:
            summary = self._ask(queue)
            found = {} if summary is None else kueue.positions(summary)
            self._seen[queue] = (self._clock() + (SILENT_S if summary is None else LOOK_S), found)
        return found

    def _ask(self, queue: str) -> Object | None:
        try:
            self._served = self._served or self._version()
            if self._served is None:
                return None
            queues = Resource(f"{kueue.VISIBILITY}/{self._served}", "LocalQueue", "localqueues")
            summary = self._client.try_get(queues.path(self._client.namespace, queue, "pendingworkloads"))
        except LoginNeeded:
            raise
        except BenchError:
            return None
        if summary is None:
            self._served = None  # Kueue may have been replaced by a newer one
        return summary

    def _version(self) -> str | None:
        group = self._client.try_get(f"/apis/{kueue.VISIBILITY}")
        return kueue.version([text(each, "version") for each in items(group, "versions")])
