"""Logs of containers, byte for byte, whatever happens on their way: a node in this file whose clock and whose streams a
test holds in its hands, and the fake cluster over HTTP."""

from __future__ import annotations

import calendar
import json
import random
import resource
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from platforms.job import AwayError, RefusedError
from platforms.schedulers.kubernetes.api.client import ApiError, Client
from platforms.schedulers.kubernetes.api.kubeconfig import ClusterTarget
from platforms.schedulers.kubernetes.log.follower import Timeouts
from platforms.schedulers.kubernetes.log.job_log import JobLog
from platforms.schedulers.kubernetes.log.starts import container_starts
from tests.fake_kubernetes import Kube
from tests.fake_kubernetes.store.trees import timestamp
from tests.waiting import until

ROOT = Path(__file__).resolve().parents[2]
RECORDED = Path(__file__).parent / "kubernetes_recorded"
PATIENCE_S = 60.0
QUICK = Timeouts(ended_s=0.02, again_s=0.01, longest_s=0.1, sure_s=0.1)
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
        self.node, self.stopped, self._drops = node, False, node.drops
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
                while follow and self._nothing(file, at) and node.goes_on(start):
                    node.changed.wait(PATIENCE_S)
                if self._over():
                    return
                records, at, after = file.records[at:], len(file.records), file.after
            for stamp, piece in records:
                if stamp >= since:
                    yield (stamp_of(stamp).encode() + b" " if at_start else b"") + piece
                at_start = piece.endswith(b"\n") or not piece
            if after is not None and follow:
                file, at = after, 0
            elif not records and not (follow and node.goes_on(start)):
                yield node.words
                return

    def _nothing(self, file: LogFile, at: int) -> bool:
        return at == len(file.records) and file.after is None and not self._over()

    def _over(self) -> bool:
        return self.stopped or self._drops < self.node.drops

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


Cut = tuple[int | None, bool]  # after how many bytes a stream ends, and whether with an error


class Node:
    """One container and its log, given as a kubelet gives it. `cut`: by the stream's number; `trouble`: what is
    answered instead, one a request, an error or bytes; `words`: what is said at the end of a stream, and not by the
    container."""

    def __init__(
        self, name: str = "p", policy: str = "Never", cut: Callable[[int], Cut] = lambda _: (None, False)
    ) -> None:
        self.name, self.policy, self.cut = name, policy, cut
        self.trouble: list[Exception | bytes] = []
        self.words = b""
        self.asked: list[dict[str, Any]] = []
        self.starts: list[LogFile] = [LogFile()]
        self.running, self.waiting, self.drops = True, False, 0
        self.said = b""
        self.changed = threading.Condition()
        self.ended_s: float | None = None

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

    def drop(self) -> None:
        """All streams that are open end, as if they were complete."""
        with self.changed:
            self.drops += 1
            self.changed.notify_all()

    def rotate(self) -> None:
        with self.changed:
            self.starts[-1].after = LogFile()
            self.starts[-1] = self.starts[-1].after
            self.changed.notify_all()

    def restart(self) -> None:
        with self.changed:
            self.starts.append(LogFile())
            self.running, self.waiting = True, False
            self.changed.notify_all()

    def pod(self) -> dict[str, Any]:
        number = len(self.starts) - 1
        times = {"startedAt": stamp_of(NOON)[:19] + "Z", "finishedAt": stamp_of(self.ended_s or NOON)[:19] + "Z"}
        state: dict[str, Any] = {"running": {}}
        if not self.running:
            state = {"terminated": {**times, "containerID": f"c://{number}"}}
        status: dict[str, Any] = {"name": "c", "restartCount": number, "state": state, "containerID": f"c://{number}"}
        if number:
            status["lastState"] = {"terminated": {**times, "containerID": f"c://{number - 1}"}}
        if self.waiting:
            status |= {"lastState": state, "state": {"waiting": {"reason": "CrashLoopBackOff"}}}
        return {
            "metadata": {"name": self.name, "uid": f"uid-{self.name}"},
            "spec": {"containers": [{"name": "c"}], "restartPolicy": self.policy},
            "status": {"phase": "Running", "containerStatuses": [status]},
        }

    @contextmanager
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
    ) -> Iterator[Iterator[bytes]]:
        self.asked.append({"follow": follow, "since": since, "previous": previous})
        trouble = self.trouble  # which may be taken away meanwhile
        if trouble:
            answer = trouble.pop(0)
            if isinstance(answer, Exception):
                raise answer
            yield iter([answer])
            return
        start = len(self.starts) - 2 if previous else len(self.starts) - 1
        yield Stream(self, start, follow, seconds(since))

    def goes_on(self, start: int) -> bool:
        return self.running and start == len(self.starts) - 1


def stamp_of(stamp: float) -> str:
    second, part = divmod(round(stamp * 1e9), 10**9)
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second)) + f".{part:09d}Z"


def seconds(since: str | None) -> float:
    return float("-inf") if since is None else calendar.timegm(time.strptime(since, "%Y-%m-%dT%H:%M:%SZ"))


@contextmanager
def following(source: Any, folder: Path, patience: Timeouts = QUICK) -> Iterator[JobLog]:
    log = JobLog(source, folder, timeouts=patience)
    try:
        yield log
    finally:
        log.close()


def read_up_to_here(log: JobLog, node: Node) -> None:
    until(lambda: log.follow([node.pod()]) or len(log.read(0, 1 << 30)) >= len(node.said))


def settle(log: JobLog) -> None:
    """Wait until nothing is to come."""
    until(lambda: not log.to_come)


def missing(log: JobLog) -> tuple[str, ...]:
    return (*log.lost, *log.to_come)


def finish(log: JobLog, *nodes: Node) -> None:
    log.follow([node.pod() for node in nodes])
    settle(log)


def merged(folder: Path) -> bytes:
    return (folder / "log").read_bytes()


def random_cuts(chance: random.Random, most: int) -> Callable[[int], Cut]:
    """A dozen streams end within so many bytes, half of them as if they were complete."""
    return lambda number: (chance.randrange(most) if number < 12 else None, chance.random() < 0.5)


EARLIER: list[threading.Thread] = []


@pytest.fixture(autouse=True)
def earlier_threads() -> None:
    """A session of another file of tests, in this process, may still follow its logs."""
    EARLIER[:] = threading.enumerate()


def threads() -> list[str]:
    now = threading.enumerate()
    return [thread.name for thread in now if thread.name.startswith("log of") and thread not in EARLIER]


# --- nothing lost, doubled or torn -----------------------------------------------------------------------------------


@pytest.mark.parametrize("newline", [True, False])
@pytest.mark.parametrize("words", ODD, ids=range(len(ODD)))
def test_the_log_file_has_exactly_the_containers_bytes(tmp_path: Path, words: bytes, newline: bool) -> None:
    node = Node()
    node.say(NOON, b"first")
    node.say(NOON, words)
    node.say(NOON, words, newline=newline)
    node.end()
    with following(node, tmp_path) as log:
        finish(log, node)
        assert missing(log) == ()
    assert merged(tmp_path) == (tmp_path / "logs/p.log").read_bytes() == node.said


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.slow
def test_no_byte_is_lost_wherever_streams_are_cut(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    node = Node(cut=random_cuts(random.Random(seed), chance.choice([500, 2000, 50_000])))  # it draws in another thread
    stamp = NOON + 0.25
    with following(node, tmp_path) as log:
        for number in range(150):
            stamp += chance.choice([0, 0, 1e-6, 0.01, 0.3, 1.7, 5])
            node.say(stamp, chance.choice(ODD) if chance.random() < 0.05 else b"line %d" % number)
            if number % 25 == 0:
                log.follow([node.pod()])
                time.sleep(0.002)
        node.say(stamp, b"the end", newline=seed % 2 == 0)
        node.end()
        finish(log, node)
        assert missing(log) == ()
    assert merged(tmp_path) == node.said
    assert len(node.asked) > 2


@pytest.mark.parametrize("jump_s", [0.001, 1, 30, 4000])
@pytest.mark.parametrize("many", [20, 250], ids=["short", "long"])
@pytest.mark.slow
def test_no_byte_is_lost_when_the_clock_is_set_back_during_a_follow(tmp_path: Path, many: int, jump_s: float) -> None:
    """While the log is followed; later streams repeat lines of before, which were stamped with the same seconds."""
    node = Node()
    stamp = NOON + 0.0005
    with following(node, tmp_path) as log:
        for number in range(many):
            node.say(stamp := stamp + 0.4, b"before %d" % number)
        read_up_to_here(log, node)
        node.say(stamp := stamp - jump_s, b"set back")
        read_up_to_here(log, node)
        for number in range(130):
            if number % 30 == 0:
                read_up_to_here(log, node)
                node.drop()
            node.say(stamp := stamp + 0.4, b"after %d" % number)
        read_up_to_here(log, node)
        node.end(stamp)
        finish(log, node)
        assert missing(log) == ()
    assert merged(tmp_path) == node.said


@pytest.mark.parametrize("known", [20, 500], ids=["all remembered", "not all remembered"])
def test_no_byte_is_lost_when_the_clock_is_set_back_between_two_streams(tmp_path: Path, known: int) -> None:
    """`sinceTime` does not show such lines, and an end before what we know gives it away."""
    node = Node()
    with following(node, tmp_path) as log:
        for number in range(known):
            node.say(NOON + number, b"before %d" % number)
        read_up_to_here(log, node)
    for number in range(5):
        node.say(NOON - 5000 + number, b"after %d" % number)
    node.end(NOON - 4000)
    with following(node, tmp_path) as log:
        finish(log, node)
        assert missing(log) == ()
    assert merged(tmp_path) == node.said


@pytest.mark.parametrize(("known", "back_s", "seen"), [(20, 5000, False), (500, 2, False), (500, 5000, True)])
def test_no_byte_is_lost_when_the_clock_is_set_back_and_catches_up(
    tmp_path: Path, known: int, back_s: float, seen: bool
) -> None:
    """While nobody reads: a short log is remembered whole, a small step expected, and of a line that was cut off by the
    break the stamp had come."""
    node = Node()
    for number in range(known):
        node.say(NOON + number, b"before %d" % number)
    size = 31 * known + len(node.said)
    node.cut = lambda number: (size + (40 if seen else 0) if number == 0 else None, False)
    with following(node, tmp_path) as log:
        read_up_to_here(log, node)
        stamp = NOON + known - back_s
        for number in range(20):
            node.say(stamp + number * back_s / 10, b"after %d, and some more words" % number)
        node.end(stamp + 3 * back_s)
        finish(log, node)
        assert missing(log) == ()
    assert merged(tmp_path) == node.said


def test_equal_lines_and_equal_timestamps_are_kept_apart(tmp_path: Path) -> None:
    node = Node(cut=lambda number: (95 * (number + 1), number % 2 == 0))
    with following(node, tmp_path) as log:
        for words in (b"one", b"two", b"one", b"one", b"two", b"three", b"three"):
            node.say(NOON + 0.5, words)
            log.follow([node.pod()])
        node.end()
        finish(log, node)
    assert merged(tmp_path) == node.said


def test_a_slightly_late_timestamp_of_stderr_loses_no_line(tmp_path: Path) -> None:
    """Two writers: a stamp of the second before may follow one of the next."""
    node = Node(cut=lambda number: (120 if number < 3 else None, False))
    with following(node, tmp_path) as log:
        for number in range(150):
            node.say(NOON + number + 0.000_001, b"out %d" % number)
            node.say(NOON + number - 0.000_001, b"err %d" % number)
        log.follow([node.pod()])
        node.end(NOON + 200)
        finish(log, node)
    assert merged(tmp_path) == node.said


@pytest.mark.parametrize("followed", [True, False])
@pytest.mark.parametrize("cut", [0, 10, 31, 34], ids=["before it", "in its stamp", "no word", "in its words"])
def test_a_cut_reading_does_not_end_the_log(tmp_path: Path, cut: int, followed: bool) -> None:
    """Also when it is cut within the last line, and ends as if that were all."""
    node = Node()
    node.say(NOON, b"one")
    with following(node, tmp_path) as log:
        if followed:
            read_up_to_here(log, node)
        with node.changed:
            node.drop()
            read = len(node.asked)
            node.say(NOON, b"two")
            size = 2 * 31 + len(node.said)
            node.say(NOON, b"the last one")
            node.cut = lambda number: (size + cut if number == read else None, False)
            node.end()
        finish(log, node)
    assert merged(tmp_path) == node.said


def test_a_long_line_whose_start_is_not_repeated_stays_whole(tmp_path: Path) -> None:
    """Its pieces are stamped in other seconds, so that a reading that begins between them begins with its end."""
    node = Node()
    with following(node, tmp_path) as log:
        for number in range(120):
            node.say(NOON + number, b"line %d" % number)
        tail = b"2026-09-21T14:13:20.000000000Z looks like a line\n"
        node.starts[-1].records += [(NOON + 119.9, b"z" * PIECE), (NOON + 124.1, tail)]
        node.said += b"z" * PIECE + tail
        for number in range(125, 300):
            node.say(NOON + number, b"line %d" % number)
        node.cut = lambda number: (
            (len(node.said) * 2 // 3 if number == 0 else 1000, True) if number < 5 else (None, True)
        )
        log.follow([node.pod()])
        node.end(NOON + 400)
        finish(log, node)
    assert merged(tmp_path) == node.said


# --- rotation --------------------------------------------------------------------------------------------------------


def test_rotation_during_a_follow_loses_no_byte(tmp_path: Path) -> None:
    node = Node()
    with following(node, tmp_path) as log:
        for number in range(300):
            node.say(NOON + number, b"line %d" % number)
            if number % 100 == 50:
                log.follow([node.pod()])
                read_up_to_here(log, node)
                node.rotate()
        node.end(NOON + 500)
        finish(log, node)
        assert missing(log) == ()
    assert merged(tmp_path) == node.said


@pytest.mark.parametrize("before", [3, 300])
@pytest.mark.parametrize("after", [0, 1, 40])
def test_rotation_between_two_streams_is_reported_and_doubles_nothing(tmp_path: Path, before: int, after: int) -> None:
    """Nothing is doubled; lines that follow may not be the next, and the first may be the end of one: that is said."""
    node = Node()
    with following(node, tmp_path) as log:
        for number in range(before):
            node.say(NOON + number, b"line %d" % number)
        read_up_to_here(log, node)
    read, node.said = node.said, b""
    if after:
        node.say(NOON + before, b"nobody will see this")
    node.rotate()
    node.said = read
    for number in range(after):
        node.say(NOON + before + 1 + number, b"new %d" % number)
        node.said = node.said if number else read
    node.end(NOON + 1000)
    with following(node, tmp_path) as log:
        finish(log, node)
        assert ["rotated" in why for why in log.lost] == [True] * (after > 0)
        assert missing(log) == log.lost
    assert merged(tmp_path) == node.said


# --- starts ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("told", [True, False], ids=["told at once", "told late"])
@pytest.mark.parametrize("cuts", [0, 3])
@pytest.mark.slow
def test_logs_of_all_starts_follow_each_other(tmp_path: Path, cuts: int, told: bool) -> None:
    """A stream may be of the next start before the pod says that there is one."""
    node = Node(policy="OnFailure", cut=lambda number: (70 * (number + 1) if number < cuts else None, False))
    with following(node, tmp_path) as log:
        for start in range(3):
            for number in range(10):
                node.say(NOON + 100 * start + number, b"start %d line %d" % (start, number))
            if start < 2:
                log.follow([node.pod()])
                old = node.pod()
                node.end()
                node.restart()
                time.sleep(0.05)
                log.follow([old if not told else node.pod()])
                until(lambda: log.follow([node.pod()]) or state(log, node) == f"c://{len(node.starts) - 1}")
        node.end()
        finish_restartable(log, node)
        assert missing(log) == ()
    assert merged(tmp_path) == (tmp_path / "logs/p.log").read_bytes() == node.said


@pytest.mark.slow
def test_a_start_that_the_pod_status_does_not_show_yet_is_logged(tmp_path: Path) -> None:
    """The first stream is of the second start already, and it would be taken for the first."""
    node = Node(policy="OnFailure")
    node.say(NOON, b"start 0")
    old = node.pod()
    node.end()
    node.restart()
    node.say(NOON, b"start 1")
    with following(node, tmp_path) as log:
        log.follow([old])
        until(lambda: node.asked)
        time.sleep(0.05)
        node.end()
        finish_restartable(log, node)
        assert missing(log) == ()
    assert merged(tmp_path) == b"start 0\nstart 1\n"


def state(log: JobLog, node: Node) -> str:
    return log._files.progress(next(container_starts(node.pod()))).run


def finish_restartable(log: JobLog, node: Node) -> None:
    """Looks go on, as long as something may start again."""
    until(lambda: log.follow([node.pod()]) or not missing(log) or len(missing(log)) == len(log.lost))


@pytest.mark.slow
def test_starts_between_two_polls_are_reported_as_missing(tmp_path: Path) -> None:
    node = Node(policy="Always")
    with following(node, tmp_path) as log:
        for start in range(4):
            if start:
                node.end()
                node.restart()
            node.say(NOON + start, b"start %d" % start)
        node.end()
        finish_restartable(log, node)
        assert missing(log) == ("container c of pod p: 2 of its starts began and ended between two looks at the pod",)
    assert merged(tmp_path) == b"start 2\nstart 3\n"


@pytest.mark.slow
def test_a_log_between_two_starts_keeps_the_unfinished_line(tmp_path: Path) -> None:
    node = Node(policy="Always")
    node.say(NOON, b"it crashes", newline=False)
    node.end()
    node.waiting = True
    with following(node, tmp_path) as log:
        finish_restartable(log, node)
        assert merged(tmp_path) == b"it crashes"
        node.restart()
        node.say(NOON + 20, b"again")
        node.end()
        finish_restartable(log, node)
    assert merged(tmp_path) == b"it crashes\nagain\n"
    assert (tmp_path / "logs/p.log").read_bytes() == b"it crashesagain\n"


@pytest.mark.parametrize(
    ("recorded", "expected"),
    [
        ("exit3", [(0, True)]),
        ("crashloop", [(1, True)]),
        ("badcmd", []),
        ("unsched-gpu", []),
    ],
)
def test_only_started_containers_have_a_log(recorded: str, expected: list[tuple[int, bool]]) -> None:
    status = json.loads((RECORDED / f"{recorded}.json").read_text())["status"]
    found = list(container_starts({"metadata": {"name": "p", "uid": "u"}, "spec": {}, "status": status}))
    assert [(each.count, each.ended) for each in found] == expected
    assert all(each.run.startswith("containerd://") for each in found)


# --- what goes wrong -------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_log_is_not_settled_while_the_kubelet_is_away(tmp_path: Path) -> None:
    node = Node()
    node.say(NOON, b"one")
    node.end()
    node.trouble = [AwayError("dial tcp 127.0.0.1:10250: connect: connection refused")] * 1000
    with following(node, tmp_path) as log:
        log.follow([node.pod()])
        until(lambda: len(node.asked) > 3)
        (why,) = missing(log)
        assert why.startswith("container c of pod p: its log is not read to its end yet: dial tcp"), why
        assert log.lost == ()
        assert log.to_come
        node.trouble = []
        finish(log, node)
        assert missing(log) == ()
    assert merged(tmp_path) == b"one\n"


@pytest.mark.parametrize(
    ("status", "message", "running"),
    [
        (404, 'pods "p" not found', True),
        (400, "unable to retrieve container logs for containerd://0", False),
        (403, 'pods "p" is forbidden: cannot get resource "pods/log"', False),
    ],
)
@pytest.mark.slow
def test_a_lost_end_of_a_log_is_reported(tmp_path: Path, status: int, message: str, running: bool) -> None:
    node = Node()
    node.say(NOON, b"one")
    with following(node, tmp_path) as log:
        read_up_to_here(log, node)
        node.trouble = [ApiError(status, message)] * 1000
        last = node.pod()  # while it runs
        node.end()
        if running:
            log.follow([last])
            settle(log)
        else:
            finish(log, node)
        assert missing(log) == log.lost == (f"container c of pod p: the end of its log is lost: {message}",)
    assert threads() == []
    assert merged(tmp_path) == b"one\n"


GONE = ApiError(404, 'pods "p" not found')


@pytest.mark.parametrize("newline", [True, False])
@pytest.mark.parametrize("told", ["at once", "late"])
def test_a_pod_that_goes_with_its_last_line(tmp_path: Path, told: str, newline: bool) -> None:
    """As the others of a job do when one of its pods has failed: the stream has brought all."""
    node = Node()
    node.say(NOON, b"one")
    with following(node, tmp_path, replace(QUICK, sure_s=10 * PATIENCE_S)) as log:
        read_up_to_here(log, node)
        node.trouble = [GONE] * 1000
        node.say(NOON, b"two", newline=newline)
        node.end()
        if told == "late":
            until(lambda: len(node.asked) > 3)
        finish(log, node)
        assert missing(log) == ()
    assert merged(tmp_path) == node.said


@pytest.mark.parametrize("times", [1, 2, 8])
@pytest.mark.parametrize("silent", [True, False])
@pytest.mark.slow
def test_a_pod_whose_log_its_kubelet_has_lost_before_it_goes(tmp_path: Path, silent: bool, times: int) -> None:
    """The container is gone, the pod is not yet, and its end is not known yet."""
    node = Node()
    if not silent:
        node.say(NOON, b"one")
    with following(node, tmp_path, replace(QUICK, sure_s=10 * PATIENCE_S)) as log:
        read_up_to_here(log, node)
        until(lambda: log.follow([node.pod()]) or node.asked)
        node.trouble = [b"unable to retrieve container logs for containerd://0"] * times + [GONE] * 1000
        node.drop()
        until(lambda: len(node.asked) > times + 1)
        node.end()
        finish(log, node)
        assert missing(log) == ()
        assert log.read(0) == node.said


def lost_by_its_node(pod: dict[str, Any], *, ran: bool) -> dict[str, Any]:
    """As kubelets say it when a pod has met its deadline, or was evicted."""
    unknown = {"exitCode": 137, "reason": "ContainerStatusUnknown", "startedAt": None, "finishedAt": None}
    status = pod["status"]["containerStatuses"][0]
    status |= {"state": {"terminated": unknown}, "restartCount": int(ran)}
    status["lastState"] = {"terminated": unknown} if ran else {}
    del status["containerID"]
    return {**pod, "status": {**pod["status"], "phase": "Failed"}}


def test_a_container_that_never_ran_has_no_log_to_lose(tmp_path: Path) -> None:
    node = Node()
    node.trouble = [ApiError(400, 'container "c" in pod "p" is not available')] * 1000
    with following(node, tmp_path) as log:
        log.follow([lost_by_its_node(node.pod(), ran=False)])
        settle(log)
        assert missing(log) == ()
    assert node.asked == []


def test_a_container_that_its_node_has_lost_is_read_as_far_as_its_stream_went(tmp_path: Path) -> None:
    node = Node()
    node.say(NOON, b"one")
    with following(node, tmp_path) as log:
        read_up_to_here(log, node)
        node.say(NOON, b"two")
        node.trouble = [ApiError(400, 'container "c" in pod "p" is not available')] * 1000
        node.end()
        log.follow([lost_by_its_node(node.pod(), ran=True)])
        settle(log)
        assert missing(log) == ()
    assert merged(tmp_path) == node.said


@pytest.mark.parametrize(("after", "words"), [(None, b"unable to retrieve container logs\n"), (40, b"")])
def test_a_pod_that_goes_before_its_last_line_was_read(tmp_path: Path, after: int | None, words: bytes) -> None:
    """Its stream has told something else at last, or was cut."""
    node = Node(cut=lambda _: (after, True))
    node.words = words
    node.say(NOON, b"one")
    with following(node, tmp_path) as log:
        read_up_to_here(log, node)
        node.trouble = [GONE] * 1000
        node.say(NOON, b"two")
        node.end()
        finish(log, node)
        assert missing(log) == log.lost == (f"container c of pod p: the end of its log is lost: {GONE.message}",)


@pytest.mark.parametrize(
    "trouble",
    [
        [ApiError(400, 'container "c" in pod "p" is waiting to start: ContainerCreating')] * 6,
        [ApiError(404, "404 page not found")],  # once
    ],
)
@pytest.mark.slow
def test_an_answer_that_may_change_is_no_end(tmp_path: Path, trouble: list[Exception | bytes]) -> None:
    node = Node()
    node.trouble = trouble.copy()
    node.say(NOON, b"one")
    with following(node, tmp_path) as log:
        read_up_to_here(log, node)
        node.end()
        finish(log, node)
        assert missing(log) == ()


@pytest.mark.parametrize("words", [b"unable to retrieve container logs for containerd://0", b"rpc error: gone\n"])
def test_words_of_the_node_are_not_of_the_container(tmp_path: Path, words: bytes) -> None:
    node = Node()
    node.words = words
    with following(node, tmp_path) as log:
        log.follow([node.pod()])
        node.say(NOON, b"one")
        node.end()
        finish(log, node)
        assert log.lost == (f"container c of pod p: the end of its log is lost: {words.decode().strip()}",)
    assert merged(tmp_path) == b"one\n"


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_mistake_of_ours_is_said(tmp_path: Path) -> None:
    node = Node()
    node.trouble = [TypeError("unexpected")]
    node.end()
    with following(node, tmp_path) as log:
        log.follow([node.pod()])
        until(lambda: threads() == [])
        (why,) = missing(log)
    assert why.endswith("its log is not read to its end yet: TypeError: unexpected (a mistake in the suite)")


@pytest.mark.parametrize("name", ["log", "logs/p.log"])
@pytest.mark.slow
def test_what_cannot_be_written_is_written_later(tmp_path: Path, name: str) -> None:
    node = Node()
    node.say(NOON, b"one")
    node.end()
    with following(node, tmp_path) as log:
        (tmp_path / name).mkdir()
        log.follow([node.pod()])
        until(lambda: any("cannot be written" in why for why in missing(log)))
        with pytest.raises(RefusedError, match="its logs cannot be written: Is a directory"):
            log.read(0)
        (tmp_path / name).rmdir()
        finish(log, node)
        until(lambda: log.read(0) == b"one\n")
    assert merged(tmp_path) == (tmp_path / "logs/p.log").read_bytes() == b"one\n"


@pytest.mark.slow
def test_a_disk_that_is_full_for_a_while(tmp_path: Path) -> None:
    """What was written in part is written anew, at its place."""
    node = Node()
    for number in range(1000):
        node.say(NOON + number, b"line %d" % number)
    node.end(NOON + 1000)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    with following(node, tmp_path) as log:
        try:
            resource.setrlimit(resource.RLIMIT_FSIZE, (3000, before[1]))
            log.follow([node.pod()])
            until(lambda: any("File too large" in why for why in missing(log)))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        finish(log, node)
    assert merged(tmp_path) == (tmp_path / "logs/p.log").read_bytes() == node.said


# --- another session -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("spoil", ["nothing", "more", "half a line", "no state", "broken state", "less"])
def test_another_session_goes_on(tmp_path: Path, spoil: str) -> None:
    """Whatever lies beyond the state of a session that was killed is cut off and read again."""
    node = Node()
    for number in range(300):
        node.say(NOON + number / 7, b"line %d" % number)
    with following(node, tmp_path) as log:
        read_up_to_here(log, node)
    for name in ("log", "logs/p.log"):
        path = tmp_path / name
        added = {"more": b"line 300\nline 301\n", "half a line": b"line 3"}.get(spoil, b"")
        path.write_bytes(path.read_bytes()[: 1000 if spoil == "less" and name == "log" else None] + added)
    saved = tmp_path / "logs/.state.json"
    if spoil == "no state":
        saved.unlink()
    elif spoil == "broken state":
        saved.write_text(saved.read_text()[:100])
    node.asked.clear()
    for number in range(300, 400):
        node.say(NOON + number / 7, b"line %d" % number)
    node.end(NOON + 100)
    with following(node, tmp_path) as log:
        finish(log, node)
        assert missing(log) == ()
    assert merged(tmp_path) == (tmp_path / "logs/p.log").read_bytes() == node.said
    assert (node.asked[0]["since"] is None) == (spoil in ("no state", "broken state", "less"))


def test_a_complete_log_is_not_requested_again(tmp_path: Path) -> None:
    node = Node()
    node.say(NOON, b"one", newline=False)
    node.end()
    for _session in range(2):
        with following(node, tmp_path) as log:
            finish(log, node)
            assert missing(log) == ()
        node.trouble = [GONE] * 10
    assert len(node.asked) == 2
    assert merged(tmp_path) == b"one"


# --- files and threads -----------------------------------------------------------------------------------------------


def test_closing_leaves_no_thread(tmp_path: Path) -> None:
    nodes = {f"p{number}": Node(f"p{number}") for number in range(20)}
    log = JobLog(Many(nodes), tmp_path, timeouts=QUICK)
    for node in nodes.values():
        node.say(NOON, b"x" * 10, newline=False)
    log.follow([node.pod() for node in nodes.values()])
    assert len(threads()) == 20
    for node in list(nodes.values())[:10]:
        node.end()
    log.follow([node.pod() for node in nodes.values()])
    until(lambda: len(threads()) == 10)
    assert [why.rpartition(": ")[2] for why in missing(log)] == ["it still runs"] * 10
    log.close()
    assert threads() == []
    log.follow([node.pod() for node in nodes.values()])
    assert threads() == []
    assert merged(tmp_path) == b"\n".join([b"x" * 10] * 10)


class Many:
    """Nodes by the names of their pods."""

    def __init__(self, nodes: dict[str, Node]) -> None:
        self.nodes = nodes

    def log(self, pod: str, container: str, **how: Any) -> Any:
        return self.nodes[pod].log(pod, container, **how)


def test_log_file_names_are_unique_and_short(tmp_path: Path) -> None:
    pods = [("a", ["b", "c"]), ("a.b", ["x"]), ("l" * 253, ["main"]), ("m" * 253, ["main", "w" * 63])]
    with following(Many({name: Node(name) for name, _ in pods}), tmp_path) as log:
        for number, (name, names) in enumerate(pods):
            rows = [{"name": each, "state": {"running": {}}} for each in names]
            spec = {"containers": [{"name": each} for each in names]}
            metadata = {"name": name, "uid": str(number)}
            log.follow([{"metadata": metadata, "spec": spec, "status": {"containerStatuses": rows}}])
        files = [progress.file for progress in log._files.containers.values()]
    assert files[:2] == ["logs/a.b.log", "logs/a.c.log"]
    assert files[2].startswith("logs/a.b-")
    assert len(set(files)) == 6
    assert all(len(Path(file).name) < 255 for file in files)


# --- the fake cluster ------------------------------------------------------------------------------------------------


@pytest.fixture
def kube(tmp_path: Path) -> Iterator[Kube]:
    with Kube(tmp_path / "kube", nodes=False) as kube:
        yield kube


@pytest.fixture
def client(kube: Kube) -> Client:
    return Client(ClusterTarget(str(kube.kubeconfig), None, (), None))


class Pod:
    """One of one container, whose node is this test."""

    def __init__(self, kube: Kube) -> None:
        self._kube, self._began = kube, timestamp()
        spec = {"nodeName": "n", "restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}
        made = kube.store.create("pods", "default", {"metadata": {"name": "p"}, "spec": spec})
        self._file = kube.logs.open(made["metadata"]["uid"], "c")
        self._tell("Running", {"running": {"startedAt": self._began}})

    def _tell(self, phase: str, state: dict[str, Any]) -> None:
        row = {"name": "c", "restartCount": 0, "state": state, "containerID": "containerd://p"}
        self._kube.store.patch_status("pods", "default", "p", {"phase": phase, "containerStatuses": [row]})

    def say(self, words: bytes) -> None:
        self._file.write("stdout", words)

    def end(self) -> None:
        self._file.close()
        times = {"startedAt": self._began, "finishedAt": "2100-01-01T00:00:00Z"}
        self._tell("Succeeded", {"terminated": {"exitCode": 0, **times, "containerID": "containerd://p"}})

    def look(self) -> list[dict[str, Any]]:
        return [self._kube.store.get("pods", "default", "p")]


@pytest.mark.slow
def test_logs_are_whole_after_a_stream_froze(
    tmp_path: Path, kube: Kube, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("platforms.schedulers.kubernetes.api.client.LOG_SILENCE_S", 0.3)
    pod = Pod(kube)
    pod.say(words := b"one\ntwo\nthree\n")
    for cut_after in (0, 50, 70):
        kube.fault("GET", "/log.*follow=true", freeze=True, cut_after=cut_after)
    with following(client, tmp_path) as log:
        log.follow(pod.look())
        until(lambda: log.read(0) == words)
        pod.end()
        log.follow(pod.look())
        settle(log)
        assert missing(log) == ()
    assert merged(tmp_path) == words


def test_a_silent_stream_ends_when_nobody_follows_it_any_more(tmp_path: Path, kube: Kube, client: Client) -> None:
    pod = Pod(kube)
    pod.say(b"one\n")
    kube.fault("GET", "/log.*follow=true", freeze=True, cut_after=35)
    with following(client, tmp_path) as log:
        log.follow(pod.look())
        until(lambda: log.read(0) == b"one\n")
    assert threads() == []
