"""A request as it came in, and what it can be answered with."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl

from tests.fake_kubernetes.api.errors import bad_request
from tests.fake_kubernetes.store.trees import Tree

MOST_BYTES = 3 << 20


@dataclass
class Request:
    """What a client has sent. `status` is what it was answered: 0 while it is not, or never will be."""

    method: str
    path: str
    query: dict[str, str]
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)  # names in lower case
    body: bytes = field(default=b"", repr=False)
    t: float = field(default_factory=time.monotonic)  # seconds
    status: int = 0

    @property
    def target(self) -> str:
        """Path and query, in the order of the names: what faults are matched with."""
        return self.path + ("?" if self.query else "") + "&".join(f"{k}={v}" for k, v in sorted(self.query.items()))

    @property
    def watches(self) -> bool:
        return self.query.get("watch") in {"1", "true", "True"}

    def json(self) -> Any:
        """400 where the body is no JSON."""
        try:
            return json.loads(self.body)
        except ValueError as error:
            raise bad_request(f"couldn't get version/kind; json parse error: {error}") from error


def query_of(text: str) -> dict[str, str]:
    """The first value of each name, as the API server takes it."""
    query: dict[str, str] = {}
    for name, value in parse_qsl(text, keep_blank_values=True):
        query.setdefault(name, value)
    return query


@dataclass(frozen=True)
class Answer:
    """A whole answer."""

    status: int
    body: Tree | str = ""  # str: plain text
    headers: Mapping[str, str] = field(default_factory=dict)

    def encoded(self) -> tuple[str, bytes]:
        """Content type and bytes."""
        if isinstance(self.body, str):
            return "text/plain; charset=utf-8", self.body.encode()
        return "application/json", json.dumps(self.body).encode()


@dataclass(frozen=True)
class Stream:
    """An answer that comes in pieces. None among them: nothing has come for a while, look whether somebody listens."""

    content_type: str
    pieces: Iterator[bytes | None]


Route = Callable[[Request], "Answer | Stream"]
PAGE_NOT_FOUND = Answer(404, "404 page not found\n", {"X-Content-Type-Options": "nosniff"})
