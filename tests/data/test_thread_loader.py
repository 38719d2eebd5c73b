"""Threads fill the batches that one loop would have filled, in its order, and hold nobody up at the end."""

from __future__ import annotations

import itertools
import json
import os
import resource
import signal
import subprocess
import sys
import threading
import time
import tracemalloc
import weakref
from pathlib import Path

import numpy as np
import pytest
import torch

from models.data.thread_loader import ThreadLoader, sample
from models.errors import DataCorrupt, ImpossibleRequest
from tests.waiting import PATIENCE_S, until

ROOT = Path(__file__).resolve().parents[2]
SAMPLES = 24
FLOATS = 30


class Set:
    """Files of 30 floats in a folder, and the first of them again as the target."""

    blank = (((5, 6), torch.float32), ((), torch.int64))

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for index in range(SAMPLES):
            np.arange(index, index + FLOATS, dtype=np.float32).tofile(folder / str(index))

    def __getitem__(self, key):
        return sample(self, key[1])

    def fill(self, index, x, y):
        descriptor = os.open(self.folder / str(index), os.O_RDONLY)
        try:
            if os.preadv(descriptor, [x.numpy().reshape(-1).view(np.uint8)], 0) != 4 * FLOATS:
                raise DataCorrupt(f"{index} is cut off")
        finally:
            os.close(descriptor)
        y.numpy()[...] = x.numpy()[0, 0]


class Late(Set):
    """Its samples come in another order than they were asked for."""

    def fill(self, index, x, y):
        time.sleep(0.004 * (index % 3))
        super().fill(index, x, y)


class Gated(Set):
    """Samples 0 and 1 are filled at once, the others when the gate is opened; `begun` says which were begun."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.gate, self.begun = threading.Event(), []

    def fill(self, index, x, y):
        self.begun.append(index)
        assert index < 2 or self.gate.wait(PATIENCE_S)
        super().fill(index, x, y)


@pytest.fixture(autouse=True)
def no_thread_is_left():
    yield
    ended()


def threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("loader-")]


def ended() -> None:
    for thread in threads():
        thread.join(PATIENCE_S)
    assert threads() == []


def batches_of(sizes):
    """Lists of keys of these lengths, of samples 0, 1, 2, …"""
    numbers = itertools.count()
    return [[(0, next(numbers)) for _ in range(size)] for size in sizes]


def loader(data, sampler, workers=2, **options):
    return ThreadLoader(data, sampler, workers=workers, **{"pinned": False, **options})


def same(batches, others) -> bool:
    pairs = list(itertools.zip_longest(batches, others))
    return all(torch.equal(a, b) and a.dtype == b.dtype for pair in pairs for a, b in zip(*pair, strict=True))


# --- what comes ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [0, 3])
def test_batches_may_differ_in_size_and_come_to_an_end(tmp_path, workers):
    got = list(loader(Late(tmp_path), batches_of([1, 7, 2, 1, 5]), workers))
    assert [targets.tolist() for _, targets in got] == [[0], [*range(1, 8)], [8, 9], [10], [*range(11, 16)]]
    assert list(loader(Set(tmp_path), [], workers)) == []


def test_each_pass_over_the_loader_begins_anew(tmp_path):
    twice = loader(Set(tmp_path), batches_of([3, 3]))
    assert same(list(twice), list(twice))


def test_a_sample_by_itself(tmp_path):
    x, y = sample(Set(tmp_path), 4)
    assert (x.shape, x.dtype, x[0, 0], x[4, 5]) == ((5, 6), torch.float32, 4, 33)
    assert (y.shape, y.dtype, y) == ((), torch.int64, 4)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="page-locked memory needs a GPU")
def test_pinned_batches_are_filled_in_place(tmp_path):
    got = list(loader(Set(tmp_path), batches_of([3, 3]), pinned=True))
    assert all(tensor.is_pinned() for batch in got for tensor in batch)
    assert same(got, list(loader(Set(tmp_path), batches_of([3, 3]), workers=0)))


# --- who fills, when, and how much is held ---------------------------------------------------------------------------


@pytest.mark.parametrize(("sizes", "workers"), [([8] * 2, 4), ([1] * 12, 4), ([2] * 8, 5)])
def test_all_threads_fill_at_the_same_time_however_small_the_batches(tmp_path, sizes, workers):
    together = threading.Barrier(workers)

    class Meeting(Set):
        def fill(self, index, x, y):
            if index < workers:
                together.wait(PATIENCE_S)  # raises unless all of them come
            super().fill(index, x, y)

    got = list(loader(Meeting(tmp_path), batches_of(sizes), workers))
    assert [len(targets) for _, targets in got] == sizes


def test_threads_start_at_the_first_batch_and_have_names(tmp_path):
    waiting = loader(Set(tmp_path), batches_of([2] * 6), workers=3)
    batches = iter(waiting)
    assert threads() == []
    next(batches)
    assert sorted(thread.name for thread in threads()) == ["loader-0", "loader-1", "loader-2"]
    assert all(thread.daemon for thread in threads())
    assert threading.current_thread().name not in {thread.name for thread in threads()}


@pytest.mark.parametrize(
    ("size", "workers", "ahead", "under_way"), [(4, 2, 2, 2), (4, 2, 5, 5), (1, 4, 2, 5), (3, 4, 2, 3), (1, 1, 1, 2)]
)
def test_so_many_batches_are_under_way_and_no_more(tmp_path, size, workers, ahead, under_way):
    taken = []

    def sampler():
        for keys in batches_of([size] * (SAMPLES // size)):
            taken.append(keys)
            yield keys

    for number, _ in enumerate(loader(Set(tmp_path), sampler(), workers, ahead=ahead), 1):
        assert len(taken) == min(number + under_way, SAMPLES // size)
    assert number == SAMPLES // size


@pytest.mark.parametrize(("workers", "batches"), [(2, 4), (0, 2)])
def test_memory_holds_no_more_batches_than_are_under_way(tmp_path, workers, batches):
    """The consumer's, the one that is waited for and two behind it; by itself, the consumer's and the next."""

    class Big(Set):
        blank = (((1 << 20,), torch.uint8), ((), torch.uint8))

        def fill(self, index, x, y):
            pass

    tracemalloc.start()  # numpy tells it what it allocates
    try:
        for inputs, _ in loader(Big(tmp_path), batches_of([4] * 20), workers):
            assert inputs.shape == (4, 1 << 20)
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert batches <= most / (4 << 20) < batches + 0.5


# --- errors ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_an_error_comes_in_the_place_of_its_batch_and_ends_it(tmp_path, workers):
    data = Late(tmp_path)
    for index in (10, 9):  # the sooner one of two in a batch is told, whichever thread was faster
        os.truncate(tmp_path / str(index), 7)
    batches = iter(loader(data, batches_of([4] * 6), workers))
    assert [next(batches)[1].tolist() for _ in range(2)] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    with pytest.raises(DataCorrupt) as raised:
        next(batches)
    assert str(raised.value) == "9 is cut off"
    assert next(batches, "the end") == "the end"
    ended()


class Odd(BaseException):
    """Such as pytest's own, or one that a C library raised."""


@pytest.mark.parametrize("kind", [OSError, MemoryError, KeyError, Odd, SystemExit])
def test_an_error_of_any_type_reaches_the_consumer(tmp_path, kind):
    class Broken(Set):
        def fill(self, index, x, y):
            raise kind("why")

    with pytest.raises(kind, match="why"):
        next(iter(loader(Broken(tmp_path), batches_of([2]))))


def test_threads_that_cannot_be_started_are_said_in_words(tmp_path):
    before, (soft, hard) = threading.stack_size(1 << 30), resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + (5 << 29), hard))  # two stacks and a half
    try:
        with pytest.raises(ImpossibleRequest) as raised:
            next(iter(loader(Set(tmp_path), batches_of([2]), workers=8)))
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
        threading.stack_size(before)
    assert "only 2 of 8 loader threads could be started" in str(raised.value)
    assert "--workers" in str(raised.value)


# --- its end ---------------------------------------------------------------------------------------------------------


def let_go_by_close(batches):
    batches.close()


def let_go_by_forgetting(batches):
    del batches


@pytest.mark.parametrize("let_go", [let_go_by_close, let_go_by_forgetting])
def test_a_closed_iterator_cancels_what_waits(tmp_path, let_go):
    data = Gated(tmp_path)
    held = [iter(loader(data, batches_of([2] * 12), workers=2))]
    next(held[0])
    until(lambda: len(data.begun) == 4, "each thread is at the gate with a sample, two more wait")
    let_go(held.pop())
    assert len(threads()) == 2, "closing waits for no sample: both are at the gate still"
    data.gate.set()
    ended()
    assert sorted(data.begun) == [0, 1, 2, 3]


def test_an_idle_thread_keeps_no_sample(tmp_path):
    filled = []

    class Noting(Set):
        def fill(self, index, x, y):
            filled.append(weakref.ref(x))
            super().fill(index, x, y)

    batches = iter(loader(Noting(tmp_path), batches_of([2] * 3)))
    next(batches)
    until(lambda: len(filled) == 6)
    assert len(threads()) == 2
    until(lambda: all(reference() is None for reference in filled))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "status", "last"),
    [
        ("an exception while a file system hangs", 1, "ValueError: enough"),
        ("a signal while a file system hangs", 5, ""),
        ("ctrl-c while a file system hangs", -signal.SIGINT, "KeyboardInterrupt"),
        ("the end while threads are busy", 0, ""),  # one that comes back from torch to no interpreter would abort it
        ("the end of a job whose threads are late", 0, ""),
    ],
)
def test_no_thread_keeps_a_process_from_ending_as_it_wants_to(ends, how, status, last):
    ended_with, out, err = ends[how]
    assert (ended_with, out, (err.splitlines() or [""])[-1]) == (status, "first\n", last)


# --- processes of their own ------------------------------------------------------------------------------------------

SCRIPT = """
import json, os, signal, sys, torch
from models.command_line import leave
from models.data import thread_loader
from models.data.thread_loader import ThreadLoader

torch.set_num_threads(1)
codes, children = json.loads(sys.argv[1]), {}
for name, code in codes.items():  # torch takes seconds to import
    child = os.fork()
    if not child:
        for number, end in enumerate(("out", "err"), 1):
            os.dup2(os.open(f"{name}.{end}", os.O_WRONLY | os.O_CREAT), number)
        break
    children[child] = name
    print(name, child, sep="\t", flush=True)
else:
    while children:
        child, status = os.wait()
        print(children.pop(child), os.waitstatus_to_exitcode(status), sep="\t", flush=True)
    sys.exit()
exec(code)
"""

HANGING = """
thread_loader.JOIN_LIMIT_S = 1.0  # such threads never end
class Hanging:
    blank = (((1,), torch.uint8), ((1,), torch.uint8))
    def fill(self, index, x, y):
        if index:
            os.open("fifo", os.O_RDONLY)  # as from a file server that is gone: nobody ever writes

signal.signal(signal.SIGTERM, lambda *_: sys.exit(5))
batches = iter(ThreadLoader(Hanging(), [[(0, index)] for index in range(20)], workers=3, pinned=False))
next(batches)
print("first", flush=True)
"""

BUSY = """
class Busy:
    blank = (((1 << 16,), torch.float32), ((1,), torch.float32))
    def fill(self, index, x, y):
        for _ in range(5 if index else 1):
            torch.sort(x.random_())

batches = iter(ThreadLoader(Busy(), [[(0, index)] for index in range(500)], workers=4, pinned=False))
next(batches)
print("first", flush=True)
"""

CODES = {
    "an exception while a file system hangs": HANGING + "raise ValueError('enough')",
    "a signal while a file system hangs": HANGING + "next(batches)",
    "ctrl-c while a file system hangs": HANGING + "next(batches)",
    "the end while threads are busy": "thread_loader.JOIN_LIMIT_S = 100.0" + BUSY,
    "the end of a job whose threads are late": "thread_loader.JOIN_LIMIT_S = 0.0" + BUSY + "leave(0)",
}
SIGNALS = {"a signal while a file system hangs": signal.SIGTERM, "ctrl-c while a file system hangs": signal.SIGINT}


@pytest.fixture(scope="module")
def ends(tmp_path_factory) -> dict[str, tuple[int | None, str, str]]:
    """How each code ended in a process of its own: exit status (None: not in time), output and errors."""
    folder = tmp_path_factory.mktemp("ends")
    os.mkfifo(folder / "fifo")
    arguments = [sys.executable, "-c", SCRIPT, json.dumps(CODES)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        arguments, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        late = threading.Timer(PATIENCE_S, os.killpg, (process.pid, signal.SIGKILL))
        late.start()
        children = dict(process.stdout.readline().rstrip("\n").split("\t") for _ in CODES)
        for name, number in SIGNALS.items():
            out = folder / f"{name}.out"
            until(lambda out=out: out.exists() and out.read_text() == "first\n")
            time.sleep(0.2)
            os.kill(int(children[name]), number)
        statuses = dict(line.rstrip("\n").split("\t") for line in process.stdout)
        late.cancel()
    texts = {name: [(folder / f"{name}.{end}").read_text() for end in ("out", "err")] for name in CODES}
    return {name: (int(statuses[name]) if name in statuses else None, *texts[name]) for name in CODES}
