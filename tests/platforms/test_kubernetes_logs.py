"""Logs of containers, byte for byte, whatever happens on their way: a node in this file whose clock and whose streams a
test holds in its hands, and the fake cluster over HTTP."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from platforms.job import AwayError
from platforms.schedulers.kubernetes.client import ApiError
from platforms.schedulers.kubernetes.log_reading import Patience
from platforms.schedulers.kubernetes.logs import JobLog

PATIENCE_S = 20.0
QUICK = Patience(ended_s=0.01, again_s=0.005, longest_s=0.05, sure_s=0.05, late_s=0.1)
NOON = 1_790_000_000  # any second
PIECE = 16 * 1024
ODD = [
    b"",
    b"\r",
    b"50 %\r60 %\r\x1b[0m",
    b"\xff\xfe\x00\x80 not UTF-8",
    b"2026-09-21T14:13:20.000000000Z as if it were stamped",
    b"2026-09-21T14:13:20.5+01:00 ",
    b" ",
    "ünïcödé \u2028 \x85 \x0b \x0c \x1c".encode(),
    b"x" * PIECE,
    b"2026-09-21T14:13:20.000000000Z " * 1200,
    b"y" * (5 * PIECE + 3),
]


# --- a node ----------------------------------------------------------------------------------------------------------


@dataclass
class LogFile:
    """Records `(stamp, piece)` as a container runtime writes them; `after`: what took its place in a rotation."""

    records: list[tuple[float, bytes]] = field(default_factory=list)
    after: LogFile | None = None


class Stream:
    """An open log, which another thread can end."""

    def __init__(self, node: Node, start: int, follow: bool, since: float) -> None:
        self.node, self.stopped = node, False
        self._pieces = self._cut(self._all(start, follow, since), *node.cut(len(node.asked) - 1))

    def __iter__(self) -> Iterator[bytes]:
        return self._pieces

    def stop(self) -> None:
        with self.node.changed:
            self.stopped = True
            self.node.changed.notify_all()

    def _all(self, start: int, follow: bool, since: float) -> Iterator[bytes]:
        node, file, at, at_start = self.node, self.node.starts[start], 0, True
        while True:
            with node.changed:
                waiting = lambda: at == len(file.records) and file.after is None and not self.stopped  # noqa: E731
                while follow and waiting() and node.goes_on(start):
                    node.changed.wait(5)
                records, at, after = file.records[at:], len(file.records), file.after
            for stamp, piece in records:
                if stamp >= since:
                    yield (stamp_of(stamp).encode() + b" " if at_start else b"") + piece
                at_start = piece.endswith(b"\n") or not piece
            if self.stopped or not node.kubelet:
                return
            if after is not None and follow:
                file, at = after, 0
            elif not records and not (follow and node.goes_on(start)):
                return

    @staticmethod
    def _cut(pieces: Iterator[bytes], size: int | None, broken: bool) -> Iterator[bytes]:
        for piece in pieces:
            if size is not None and len(piece) >= size:
                yield piece[:size]
                if broken:
                    raise AwayError("the connection broke: Connection reset by peer")
                return
            size = None if size is None else size - len(piece)
            yield piece


class Node:
    """One container and its log, given as a kubelet gives it. `cut(stream number)`: after how many bytes which stream
    ends, and whether with an error; `trouble`: what is answered instead, one a request."""

    def __init__(self, name: str = "p", policy: str = "Never") -> None:
        self.name, self.policy = name, policy
        self.cut: Callable[[int], tuple[int | None, bool]] = lambda number: (None, False)
        self.trouble: list[Exception] = []
        self.asked: list[dict[str, Any]] = []
        self.starts: list[LogFile] = [LogFile()]
        self.running, self.kubelet = True, True
        self.said = b""
        self.changed = threading.Condition()
        self.ended_s: float | None = None
        self.open = 0

    def say(self, stamp: float, words: bytes, *, newline: bool = True) -> None:
        with self.changed:
            text = words + b"\n" if newline else words
            self.said += text
            pieces = [words[at : at + PIECE] for at in range(0, len(words), PIECE)] or [b""]
            pieces[-1] += b"\n" if newline else b""
            self.starts[-1].records += [(stamp, piece) for piece in pieces]
            self.changed.notify_all()

    def end(self, ended_s: float | None = None) -> None:
        with self.changed:
            self.running, self.ended_s = False, ended_s
            self.changed.notify_all()

    def rotate(self) -> None:
        with self.changed:
            self.starts[-1].after = LogFile()
            self.starts[-1] = self.starts[-1].after
            self.changed.notify_all()

    def restart(self) -> None:
        with self.changed:
            self.starts.append(LogFile())
            self.running = True
            self.changed.notify_all()

    def pod(self) -> dict[str, Any]:
        number = len(self.starts) - 1
        times = {"startedAt": stamp_of(NOON)[:19] + "Z", "finishedAt": stamp_of(self.ended_s or NOON)[:19] + "Z"}
        state = {"running": {}} if self.running else {"terminated": {**times, "containerID": f"c://{number}"}}
        status: dict[str, Any] = {"name": "c", "restartCount": number, "state": state, "containerID": f"c://{number}"}
        if number:
            status["lastState"] = {"terminated": {**times, "containerID": f"c://{number - 1}"}}
        return {
            "metadata": {"name": self.name, "uid": f"uid-{self.name}"},
            "spec": {"containers": [{"name": "c"}], "restartPolicy": self.policy},
            "status": {"phase": "Running", "containerStatuses": [status]},
        }

    @contextmanager
    def log(
        self, pod: str, container: str, *, follow: bool, since: str | None, previous: bool = False
    ) -> Iterator[Iterator[bytes]]:
        number = len(self.asked)
        self.asked.append({"follow": follow, "since": since, "previous": previous})
        if self.trouble:
            raise self.trouble.pop(0)
        if not self.kubelet:
            raise AwayError("dial tcp 127.0.0.1:10250: connect: connection refused")
        start = len(self.starts) - 2 if previous else len(self.starts) - 1
        self.open += 1
        try:
            yield Stream(self, start, follow, seconds(since))
        finally:
            self.open -= 1

    def goes_on(self, start: int) -> bool:
        return self.kubelet and self.running and start == len(self.starts) - 1


def stamp_of(stamp: float) -> str:
    second, part = divmod(round(stamp * 1e9), 10**9)
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second)) + f".{part:09d}Z"


def seconds(since: str | None) -> float:
    import calendar

    return float("-inf") if since is None else calendar.timegm(time.strptime(since, "%Y-%m-%dT%H:%M:%SZ"))


def until(what: Callable[[], Any]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not what():
        assert time.monotonic() < end, "not in time"
        time.sleep(0.005)


def held(folder: Path) -> bytes:
    return (folder / "log").read_bytes()


@contextmanager
def following(node: Any, folder: Path) -> Iterator[JobLog]:
    log = JobLog(node, folder, patience=QUICK)
    try:
        yield log
    finally:
        log.close()


def finish(log: JobLog, *nodes: Node) -> None:
    log.follow([node.pod() for node in nodes])
    assert log.settled(PATIENCE_S), log.missing


def random_cuts(seed: int, most: int, share: float = 0.7) -> Callable[[int], tuple[int | None, bool]]:
    chance = random.Random(seed)
    return lambda number: (chance.randrange(most) if chance.random() < share else None, chance.random() < 0.5)


@pytest.mark.parametrize("seed", range(40))
def test_fuzz(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    node = Node()
    node.cut = random_cuts(seed, 60_000)
    stamp = NOON + 0.25
    with following(node, tmp_path) as log:
        for number in range(300):
            stamp += chance.choice([0, 0, 1e-6, 0.01, 0.3, 1.7, 5])
            words = chance.choice(ODD) if chance.random() < 0.3 else b"line %d" % number
            node.say(stamp, words)
            if number % 20 == 0:
                log.follow([node.pod()])
                time.sleep(0.002)
        node.say(stamp, b"the end", newline=chance.random() < 0.5)
        node.end(stamp)
        finish(log, node)
        assert log.missing == ()
    assert held(tmp_path) == node.said
    print(len(node.asked))
