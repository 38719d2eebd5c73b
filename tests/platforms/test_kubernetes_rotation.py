"""Logs that a kubelet may have rotated: a doubt says so of each, and of no other.

The kubelet is the stand-in's, which follows and skips as a real one does. The clock is the test's: it goes on only as a
stream is read, so that the machine's speed changes nothing.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from platforms.job import AwayError
from platforms.schedulers.kubernetes.log.follower import Timeouts
from platforms.schedulers.kubernetes.log.job_log import JobLog
from platforms.schedulers.kubernetes.log.lines import SECOND
from tests.fake_kubernetes.api.messages import Request
from tests.fake_kubernetes.api.pod_subresources import LogRequest
from tests.fake_kubernetes.node.logs import LogFile
from tests.fake_kubernetes.store.trees import timestamp, unix
from tests.waiting import until

QUICK = Timeouts(ended_s=0.02, again_s=0.01, longest_s=0.05, sure_s=0.05)
BEGUN_S = 1_790_000_000.0
TICK_S = 0.02
ROTATES_S = 3.0  # how often the kubelet looks at the size
BLOCK = 8192  # what the container writes at once, wherever a line ends
FILLER = b"." * 3000
ROTATES_AT = 1 << 20  # bytes; the default of `kubernetes: log_rotates_at`


@dataclass
class Line:
    """How fast a client's line is, and what happens to it. `cut_s`: after how long a stream is cut, on average.
    `stalls`: begin and length, in seconds from the beginning."""

    bytes_s: float = 50e6
    cut_s: float = 0.0
    stalls: tuple[tuple[float, float], ...] = ()


class World:
    """A container that writes for `lasts_s`, the node whose log it is, and a client's line to it."""

    def __init__(self, folder: Path, seed: int, line: Line, *, lines_s: float, lasts_s: float = 18.0) -> None:
        self.chance, self.line, self.lines_s, self.lasts_s = random.Random(seed), line, lines_s, lasts_s
        self.now_s = BEGUN_S + self.chance.random()
        self.began_s = self.now_s
        self.log_file = LogFile(folder / "0.log", lambda: int(self.now_s * SECOND))
        self.rotate_max = ROTATES_AT
        self.pipe_max = self.chance.choice([200_000, 1_000_000])
        self.silent: tuple[tuple[float, float], ...] = ()  # begin and end, in seconds from the beginning
        self.written: dict[bytes, int] = {}  # stamps by lines
        self._buffer, self._due, self._rotated_s = b"", 0.0, self.now_s + self.chance.random() * ROTATES_S
        self._passing_s = 0.0
        self._lock = threading.Lock()
        self.over = False

    # --- the node ----------------------------------------------------------------------------------------------------

    def passes(self, seconds: float) -> None:
        self._passing_s += seconds
        while self._passing_s >= TICK_S:
            self._passing_s -= TICK_S
            self.now_s += TICK_S
            if not self.over:
                self._write()
            if self.now_s - self._rotated_s >= ROTATES_S:
                self._rotated_s = self.now_s
                if self.log_file.size > self.rotate_max:
                    self.log_file.rotate()

    def _write(self) -> None:
        at_s = self.now_s - self.began_s
        quiet = any(begin <= at_s < end for begin, end in self.silent)
        self._due += 0.0 if quiet else self.lines_s * TICK_S
        while self._due >= 1:
            self._due -= 1
            self._say(b"line %07d %s\n" % (len(self.written), FILLER[: self.chance.randrange(len(FILLER))]))
        if at_s >= self.lasts_s:
            self._say(b"line %07d the last" % len(self.written))
            self.log_file.write("stdout", self._buffer)
            self.log_file.close()
            self.over = True
        elif quiet:
            self.log_file.write("stdout", self._buffer)
            self._buffer = b""

    def _say(self, words: bytes) -> None:
        self.written[words.rstrip(b"\n")] = int(self.now_s * SECOND)
        self._buffer += words
        while len(self._buffer) >= BLOCK:
            self.log_file.write("stdout", self._buffer[:BLOCK])
            self._buffer = self._buffer[BLOCK:]

    def pod(self) -> dict[str, Any]:
        times = {"startedAt": timestamp(self.began_s), "finishedAt": timestamp(self.now_s)}
        state = {"terminated": times} if self.over else {"running": {"startedAt": times["startedAt"]}}
        status = {"name": "c", "restartCount": 0, "state": state, "containerID": "c://0"}
        return {
            "metadata": {"name": "p", "uid": "u"},
            "spec": {"containers": [{"name": "c"}], "restartPolicy": "Never"},
            "status": {"phase": "Running", "containerStatuses": [status]},
        }

    # --- the API -----------------------------------------------------------------------------------------------------

    @contextmanager
    def log(self, pod: str, container: str, *, since: str | None, **asked: Any) -> Iterator[Iterator[bytes]]:
        query = {"follow": str(asked["follow"]).lower(), "timestamps": "true"}
        reading = LogRequest(Request("GET", "", query), 0.0 if since is None else float(int(unix(since))))
        if asked["follow"]:
            yield self._stream(reading.given(self.log_file.followed()))
        else:
            with self._lock:
                whole = b"".join(text for text in reading.select(self.log_file) if text is not None)
            yield iter([whole])

    def _stream(self, texts: Iterator[bytes | None]) -> Iterator[bytes]:
        opened_s, pipe, ended = self.now_s, b"", False
        cut_s = opened_s + self.chance.expovariate(1 / self.line.cut_s) if self.line.cut_s else float("inf")
        while True:
            with self._lock:
                pipe, ended = self._filled(pipe, texts, ended)
                standing_s = self._stands_still()
                chunk = b"" if standing_s else pipe[: 1 + self.chance.randrange(60_000)]
                pipe = pipe[len(chunk) :]
                self.passes(standing_s or (len(chunk) / self.line.bytes_s if chunk else TICK_S))
            if chunk:
                yield chunk
                time.sleep(0.0005)  # who sorts it keeps up
            if self.now_s >= cut_s and not ended:
                if self.chance.random() < 0.3:
                    return
                raise AwayError("the connection broke: Connection reset by peer")
            if ended and not pipe and not chunk:
                return

    def _filled(self, pipe: bytes, texts: Iterator[bytes | None], ended: bool) -> tuple[bytes, bool]:
        pieces, size = [pipe], len(pipe)
        while size < self.pipe_max and not ended:
            text = next(texts, b"")
            if text is None:
                break
            ended = not text
            pieces.append(text)
            size += len(text)
        return b"".join(pieces), ended

    def _stands_still(self) -> float:
        """For a moment, in which the pipe is filled. 0: it does not."""
        at_s = self.now_s - self.began_s
        return 0.2 if any(begin <= at_s < begin + length for begin, length in self.line.stalls) else 0.0


class Told:
    """What a log reader made of it."""

    def __init__(self, world: World, folder: Path, late_s: float = 0.0) -> None:
        world.passes(late_s)
        log = JobLog(world, folder, timeouts=QUICK)
        try:
            until(lambda: log.follow([world.pod()]) or (world.over and not log.to_come))
            self.missing, self.doubts = (*log.lost, *log.to_come), log.doubts(ROTATES_AT)
        finally:
            log.close()
        self.is_whole = (folder / "log").read_bytes().split(b"\n") == list(world.written)


def told(folder: Path, seed: int, line: Line, *, late_s: float = 0.0, **how: Any) -> Told:
    chance = random.Random(seed)
    world = World(folder / "node", seed, line, lines_s=chance.choice([250, 500, 1000]), **how)
    return Told(world, folder, late_s)


def a_stall(chance: random.Random) -> Line:
    return Line(stalls=((chance.uniform(2, 10), chance.uniform(4, 20)),))


@pytest.mark.parametrize(
    "seed",
    [0, *(pytest.param(seed, marks=pytest.mark.nightly("platforms/schedulers/kubernetes/log")) for seed in (1, 2, 3))],
)
@pytest.mark.parametrize(
    "line",
    [
        lambda _chance: Line(),
        a_stall,
        lambda chance: Line(bytes_s=chance.choice([200_000, 400_000, 800_000])),
        lambda chance: Line(cut_s=chance.choice([0.5, 2, 5]), bytes_s=5e6),
    ],
    ids=["fast", "stalls", "slow", "cut"],
)
@pytest.mark.slow
def test_a_log_that_was_rotated_is_never_believed_in_silence(tmp_path: Path, line: Any, seed: int) -> None:
    """Whether lines are missing cannot be seen. That they may be is said of each such log."""
    found = told(tmp_path, seed, line(random.Random(seed)))
    (doubt,) = found.doubts
    assert doubt.startswith("container c of pod p wrote about ")
    assert "lines may be missing" in doubt


def test_a_log_whose_beginning_was_rotated_away_is_doubted_though_little_of_it_is_left(tmp_path: Path) -> None:
    world = World(tmp_path / "node", 1, Line(), lines_s=500, lasts_s=8.0)
    world.passes(7.8)
    world.log_file.rotate()
    found = Told(world, tmp_path, late_s=1.0)
    assert (tmp_path / "log").stat().st_size < ROTATES_AT / 2
    assert not found.is_whole
    assert found.doubts


@pytest.mark.parametrize("late_s", [0.0, 30.0])
def test_a_log_that_is_too_short_to_be_rotated_is_whole_and_believed(tmp_path: Path, late_s: float) -> None:
    """Also where the program was silent at first, and where the log is opened late."""
    world = World(tmp_path / "node", 1, Line(stalls=((5.0, 4.0),)), lines_s=20)
    world.silent = ((0.0, 4.0), (8.0, 10.5), (14.0, 16.5))
    found = Told(world, tmp_path, late_s)
    assert (found.is_whole, found.missing, found.doubts) == (True, (), ())
