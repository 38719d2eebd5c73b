"""Lines stay whole: real pipes, real processes, and texts of every kind."""

import contextlib
import fcntl
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy
import pytest

from models.meter import LINE_BYTES, Wire

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def pipe():
    """A pipe's two ends, closed if still open."""
    ends = os.pipe()
    yield ends
    for end in ends:
        with contextlib.suppress(OSError):
            os.close(end)


def parse(raw):
    return json.loads(raw.decode().removeprefix(":::MLLOG "))


def written(pipe, key, value, **options):
    reader, writer = pipe
    Wire(fd=writer, **options).emit(key, value)
    raw = os.read(reader, 65536)
    assert raw.endswith(b"\n")
    assert raw.count(b"\n") == 1
    assert len(raw) <= LINE_BYTES
    return parse(raw)


def test_a_line_is_mlperfs(pipe):
    assert written(pipe, "seed", 7, rank=3, now_ms=lambda: 1795217674000) == {
        "namespace": "hpcml",
        "time_ms": 1795217674000,
        "event_type": "POINT_IN_TIME",
        "key": "seed",
        "value": 7,
        "metadata": {"file": "meter.py", "lineno": 0, "rank": 3, "seq": 0},
    }


@pytest.mark.parametrize(("key", "event"), [("run_start", "INTERVAL_START"), ("run_stop", "INTERVAL_END")])
def test_mlperfs_intervals_keep_their_event(pipe, key, event):
    assert written(pipe, key, None)["event_type"] == event


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (float("nan"), None),
        ([1.5, float("-inf"), True, None], [1.5, None, True, None]),
        ({"a": (1, 2), 3: {"b": float("nan")}}, {"a": [1, 2], "3": {"b": None}}),
        (numpy.float32(0.5), 0.5),
        (numpy.float64("nan"), None),
        (numpy.int64(7), 7),
        (numpy.array(2.5), 2.5),
        (Path("/data/x"), "/data/x"),
        ("two\nlines \u2028 and a tab\t", "two\nlines \u2028 and a tab\t"),
        ("a file name that is no UTF-8: \udcff", "a file name that is no UTF-8: ?"),
        ("Grüße 🙂", "Grüße 🙂"),
    ],
)
def test_values_are_plain_json(pipe, value, expected):
    assert written(pipe, "k", value)["value"] == expected


@pytest.mark.parametrize("text", ["x" * 10_000, "ü" * 10_000, "🙂" * 10_000, '"\\\n' * 5_000])
def test_long_texts_are_shortened(pipe, text):
    value = written(pipe, "hpcml_problem", {"gate": "g", "text": text})["value"]
    assert value["gate"] == "g"
    assert value["text"].endswith("…")
    assert value["text"][:-1] == text[: len(value["text"]) - 1]
    assert len(value["text"]) >= 100


def test_long_lists_are_shortened(pipe):
    value = written(pipe, "hpcml_summary", {"warnings": ["w" * 500] * 1000, "steps": 5})["value"]
    assert value["steps"] == 5
    assert value["warnings"][-1] == "…"
    assert value["warnings"][0].endswith("…")


def test_what_cannot_be_shortened_is_left_out(pipe):
    assert written(pipe, "k", {f"key {index}": index for index in range(1000)})["value"] == "…"


def test_numbers_without_a_gap_from_several_threads(tmp_path):
    with (tmp_path / "log").open("wb") as file:
        wire = Wire(fd=file.fileno())
        threads = [threading.Thread(target=lambda: [wire.emit("k", 1) for _ in range(200)]) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    seqs = [parse(line)["metadata"]["seq"] for line in (tmp_path / "log").read_bytes().splitlines()]
    assert seqs == list(range(800))
    assert wire.lines == 800


WRITERS = """
import os, sys
from models.meter import Wire
ready, go = os.pipe()
rank = next((rank for rank in range(1, 8) if os.fork() == 0), 0)
if rank:
    os.close(go)
    os.read(ready, 1)  # ends when rank 0 has closed it: all at once, when all of them are there
else:
    os.close(go)
wire = Wire(rank)
for index in range(300):
    wire.emit("k", "x" * (index * 13 % 4000))
"""


@pytest.mark.slow
def test_lines_of_8_processes_in_one_pipe_are_all_whole():
    done = subprocess.run([sys.executable, "-c", WRITERS], cwd=ROOT, capture_output=True, check=True)
    lines = [parse(line) for line in done.stdout.splitlines()]
    for rank in range(8):
        assert [line["metadata"]["seq"] for line in lines if line["metadata"]["rank"] == rank] == list(range(300))


def fill(writer):
    """Fill a pipe until nothing goes in any more."""
    os.set_blocking(writer, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(writer, b"." * 1024)


def drain(reader, seen):
    """Read everything once four signals were seen, in a thread; returns the thread and where the bytes go."""
    raw = bytearray()

    def main():
        deadline = time.monotonic() + 60
        while len(seen) < 4 and time.monotonic() < deadline:
            time.sleep(0.01)
        while chunk := os.read(reader, 65536):
            raw.extend(chunk)

    thread = threading.Thread(target=main)
    thread.start()
    return thread, raw


@pytest.mark.parametrize("blocking", [True, False])
def test_a_full_pipe_is_waited_for_through_signals(pipe, blocking):
    """A pipe that is read late, with a signal every 5 ms in the meantime."""
    reader, writer = pipe
    fill(writer)
    os.set_blocking(writer, blocking)
    seen = []
    before = signal.signal(signal.SIGALRM, lambda *_: seen.append(1))
    signal.setitimer(signal.ITIMER_REAL, 0.005, 0.005)
    try:
        thread, raw = drain(reader, seen)
        Wire(fd=writer).emit("k", "x" * 2000)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    os.close(writer)
    thread.join()
    assert len(seen) > 3
    assert parse(bytes(raw).lstrip(b"."))["value"] == "x" * 2000


@pytest.mark.skipif(not hasattr(fcntl, "F_SETPIPE_SZ"), reason="the size of a pipe can be set on Linux only")
def test_a_full_pipe_that_nobody_reads_is_given_up(pipe, monkeypatch):
    _, writer = pipe
    fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)
    fill(writer)
    monkeypatch.setattr("models.meter.WRITE_PATIENCE_S", 0.05)
    wire = Wire(fd=writer)
    wire.emit("k", 1)
    assert wire.lines == 1


def test_a_closed_pipe_ends_nothing(pipe):
    reader, writer = pipe
    os.close(reader)
    wire = Wire(fd=writer)
    wire.emit("k", 1)
    os.close(writer)
    wire.emit("k", 2)
    assert wire.lines == 2


@pytest.mark.slow
def test_what_was_printed_before_stands_before():
    program = "from models.meter import Wire; print('one'); Wire().emit('two', 2); print('three')"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    one, two, three = done.stdout.splitlines()
    assert (one, parse(two.encode())["key"], three) == ("one", "two", "three")


def test_a_line_fits_into_one_write_to_a_pipe():
    assert LINE_BYTES <= select.PIPE_BUF
