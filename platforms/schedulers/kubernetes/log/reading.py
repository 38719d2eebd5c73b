"""What following a log is made of: where it comes from, with how much patience, and what one stream has brought."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol


class LogSource(Protocol):
    """What gives logs: a Client. A stream that has a stop() can be ended by another thread while it is waited for."""

    def log(
        self,
        pod: str,
        container: str,
        *,
        follow: bool,
        since: str | None,
        previous: bool = False,
        tail: int | None = None,
        limit: int | None = None,
    ) -> AbstractContextManager[Iterator[bytes]]: ...


@dataclass(frozen=True)
class Timeouts:
    """In seconds.

    `ended_s`: when a stream has ended cleanly, how long the word that its container has ended is waited for. `again_s`:
    before the second attempt after a failure, doubled each time up to `longest_s`. `sure_s`: by how much a look at
    the pod must be later than a stream's beginning to say which start of the container it is of; three times as long
    one is waited for. `late_s`: how long a stream may say nothing when its container has ended. `quiet_s`: after so
    long without a word nothing more is expected to follow the last line at once. `silent_s`: how long a stream may say
    nothing before it is looked whether it still lives.
    """

    ended_s: float = 1.0
    again_s: float = 0.5
    longest_s: float = 15.0
    sure_s: float = 5.0
    late_s: float = 3.0
    quiet_s: float = 1.0
    silent_s: float = 120.0


DEFAULT_TIMEOUTS = Timeouts()


@dataclass(frozen=True)
class StreamResult:
    """One stream, from its beginning to wherever it ended.

    `size`: bytes, of which `rest` came after the last newline; `new`: lines. `known`: it went on from what was known of
    the log, or is taken for that because it says the same each time; `found`: it surely did. `strange`: words that are
    not the container's. `broken`: why it has ended, unless it did so by itself, which means little. `behind`: its last
    line came late.
    """

    size: int
    rest: bytes
    new: int
    known: bool
    found: bool
    strange: bytes
    broken: str
    behind: bool
    lived_s: float

    def same_end(self, other: StreamResult | None) -> bool:
        """Both have come to the end, or were cut at the same byte."""
        return other is not None and not self.broken and not other.broken and self.rest == other.rest
