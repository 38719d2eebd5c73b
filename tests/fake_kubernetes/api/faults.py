"""Faults that a test injects into the next matching requests."""

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
    """A fault for `left` more requests (None: for all) whose method and target match.

    - `code`: answer with this code and do nothing. `retry_after`: seconds for its header.
    - `do`: call this with the request first. If it returns an Answer, that is the answer.
    - `reset`: reset the connection before anything is done. `lost`: reset it afterwards, instead of an answer.
    - `cut_after`: close the connection after so many bytes of the body, as if the API server were killed.
      With `clean` the answer ends properly there, as if the kubelet that sends a log were killed.
    - `freeze`: send nothing after `cut_after` bytes (default 0), and close nothing.
    """

    method: re.Pattern[str]
    target: re.Pattern[str]
    left: int | None = 1
    code: int | None = None
    message: str = ""
    retry_after: float | None = None
    reset: bool = False
    lost: bool = False
    cut_after: int | None = None
    clean: bool = False
    freeze: bool = False
    do: Callable[[Request], Any] | None = None
    hits: list[Request] = field(default_factory=list)

    def matches(self, request: Request) -> bool:
        return bool(self.method.fullmatch(request.method) and self.target.search(request.target))

    def answer(self) -> Answer | None:
        """Return the answer of a fault with a code, else None."""
        if self.code is None:
            return None
        headers = {} if self.retry_after is None else {"Retry-After": f"{self.retry_after:g}"}
        if self.code == 429:  # max in flight: no Status
            return Answer(429, SENTENCES[429] + "\n", {"Retry-After": "1"} | headers)
        error = KubeError(self.code, self.message or SENTENCES.get(self.code, "injected"))
        return Answer(self.code, error.status(), headers)


class Faults:
    """The pending faults. The oldest one that matches a request is used."""

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
