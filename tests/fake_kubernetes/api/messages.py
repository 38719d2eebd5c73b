"""Requests and answers."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl

from tests.fake_kubernetes.api.errors import bad_request
from tests.fake_kubernetes.store.trees import Tree


@dataclass
class Request:
    """A client's request. `status` is the code of the answer; 0 if there is none (yet)."""

    method: str
    path: str
    query: dict[str, str]
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)  # names in lower case
    body: bytes = field(default=b"", repr=False)
    t: float = field(default_factory=time.monotonic)  # seconds
    status: int = 0

    @property
    def target(self) -> str:
        """Path and query, sorted by name. Faults are matched with it."""
        return self.path + ("?" if self.query else "") + "&".join(f"{k}={v}" for k, v in sorted(self.query.items()))

    @property
    def watches(self) -> bool:
        return self.query.get("watch") in {"1", "true", "True"}

    def json(self) -> Any:
        """Return the body as JSON. Raises KubeError 400."""
        try:
            return json.loads(self.body)
        except ValueError as error:
            raise bad_request(f"couldn't get version/kind; json parse error: {error}") from error


def query_of(text: str) -> dict[str, str]:
    """Return the first value of each name, as the API server does."""
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
    """An answer in pieces. None means that nothing came for a while: check that the client still listens."""

    content_type: str
    pieces: Iterator[bytes | None]


PAGE_NOT_FOUND = Answer(404, "404 page not found\n", {"X-Content-Type-Options": "nosniff"})
