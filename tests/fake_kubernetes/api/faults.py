"""What goes wrong on purpose, for the next requests of a kind."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.fake_kubernetes.api.errors import KubeError
from tests.fake_kubernetes.api.messages import Answer, Request

SENTENCES = {
    429: "Too many requests, please try again later.",
    500: "etcdserver: request timed out",
    503: "apiserver not ready",
    504: "Timeout: request did not complete within requested timeout",
}


@dataclass
class Fault:
    """Something that happens to `left` more requests (None: to all) whose method and target match.

    code: answered so, nothing is done. retry_after: seconds, its header. delay_s: waits first. do: is called with the
    request first; an Answer from it is the answer. reset: the connection is reset before anything is done; lost: after
    it was done, instead of the answer. cut_after: so many bytes of the answer's body come, then the connection is
    closed, as when the API server is killed; with clean=True the answer ends properly there, as when the kubelet is
    that a log comes from. freeze: after cut_after bytes (0) nothing more comes, and nothing is closed.
    """

    method: re.Pattern[str]
    target: re.Pattern[str]
    left: int | None = 1
    code: int | None = None
    message: str = ""
    retry_after: float | None = None
    reset: bool = False
    lost: bool = False
    delay_s: float = 0.0
    cut_after: int | None = None
    clean: bool = False
    freeze: bool = False
    do: Callable[[Request], Any] | None = None
    hits: list[Request] = field(default_factory=list)

    def matches(self, request: Request) -> bool:
        return bool(self.method.fullmatch(request.method) and self.target.search(request.target))

    def answer(self) -> Answer | None:
        """Where the fault is an answer."""
        if self.code is None:
            return None
        headers = {} if self.retry_after is None else {"Retry-After": f"{self.retry_after:g}"}
        if self.code == 429:  # max in flight: no Status
            return Answer(429, SENTENCES[429] + "\n", {"Retry-After": "1"} | headers)
        error = KubeError(self.code, self.message or SENTENCES.get(self.code, "injected"))
        return Answer(self.code, error.status(), headers)


class Faults:
    """All that are still to happen; the oldest that matches a request is taken."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._faults: list[Fault] = []

    def add(self, fault: Fault) -> Fault:
        with self._lock:
            self._faults.append(fault)
        return fault

    def clear(self) -> None:
        with self._lock:
            self._faults.clear()

    def take(self, request: Request) -> Fault | None:
        with self._lock:
            for fault in self._faults:
                if fault.matches(request):
                    fault.hits.append(request)
                    if fault.left is not None:
                        fault.left -= 1
                        if fault.left <= 0:
                            self._faults.remove(fault)
                    return fault
        return None
