"""The three numbers, the gates and the lines of a Meter, on scripted time: every figure can be worked out by hand."""

import contextlib
import csv
import gzip
import itertools
import json
import math
import platform
import threading

import pytest

from models.meter import Meter, Wire


class Time:
    """The host's clock, which moves when it is told to."""

    def __init__(self):
        self.s = 0.0

    def __call__(self):
        return self.s

    def sleep(self, seconds):
        self.s += seconds


class Device:
    """A device with a timeline of its own: work is enqueued without waiting, synchronize() waits for all of it."""

    apart = True

    def __init__(self, host):
        self.host, self.free_s, self.synchronisations = host, 0.0, 0

    def enqueue(self, seconds):
        self.free_s = max(self.free_s, self.host.s) + seconds

    def mark(self):
        return max(self.free_s, self.host.s)

    def synchronize(self):
        self.synchronisations += 1
        self.host.s = max(self.free_s, self.host.s)

    def seconds(self, begin, end):
        return end - begin


class Ranks:
    """Ranks that are threads; meeting brings every rank's clock to the latest one's, as a collective does."""

    def __init__(self, size):
        self.size, self.clocks, self.things = size, [Time() for _ in range(size)], [None] * size
        self._met = threading.Barrier(size, timeout=300)

    def meet(self, rank):
        self._met.wait()
        latest = max(clock.s for clock in self.clocks)
        self._met.wait()
        self.clocks[rank].s = latest

    def run(self, program):
        """program(side, clock) on every rank; its results in order of rank."""
        results = [None] * self.size

        def main(rank):
            try:
                results[rank] = program(Side(self, rank), self.clocks[rank])
            except BaseException as error:
                results[rank] = error
                self._met.abort()

        threads = [threading.Thread(target=main, args=(rank,)) for rank in range(self.size)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for result in results:
            if isinstance(result, BaseException) and not isinstance(result, threading.BrokenBarrierError):
                raise result
        return results


class Side:
    """What one rank sees of the others."""

    def __init__(self, ranks, rank):
        self._ranks, self.rank, self.size = ranks, rank, ranks.size

    def barrier(self):
        self._ranks.meet(self.rank)

    def gather(self, thing):
        self._ranks.things[self.rank] = thing
        self._ranks.meet(self.rank)
        things = list(self._ranks.things)
        self._ranks.meet(self.rank)
        return things


class Log:
    """A file to write to and its lines as they are read again."""

    def __init__(self, path, file):
        self._path, self._file = path, file

    def wire(self, rank=0):
        return Wire(rank, self._file.fileno(), now_ms=lambda: 0)

    def lines(self):
        text = self._path.read_text(encoding="utf-8")
        return [json.loads(line.removeprefix(":::MLLOG ")) for line in text.splitlines()]

    def of(self, key):
        return [line["value"] for line in self.lines() if line["key"] == key]

    def one(self, key):
        (value,) = self.of(key)
        return value

    def problems(self):
        return {value["gate"]: value["text"] for value in self.of("hpcml_problem")}


@pytest.fixture
def time():
    return Time()


@pytest.fixture
def logs(tmp_path):
    """Makes logs."""
    with contextlib.ExitStack() as files:

        def make(name):
            return Log(tmp_path / name, files.enter_context((tmp_path / name).open("wb")))

        yield make


@pytest.fixture
def log(logs):
    return logs("log")


def loader(time, wait_s, batches=None):
    """Batches that are waited for; endless unless told how many."""
    for batch in itertools.count() if batches is None else range(batches):
        time.sleep(wait_s)
        yield batch


def rows_of(folder, rank=0):
    with gzip.open(folder / f"steps-rank{rank}.csv.gz", "rt") as file:
        return list(csv.DictReader(file))


def meter_on(time, log, **options):
    own = {"samples": 4, "warmup_steps": 2, "windows": 2, "steps_per_window": 4, "folder": None, "wire": log.wire()}
    return Meter(now=time, **{**own, **options})


def run(time, log, wait_s=0.5, work_s=0.5, *, losses=lambda batch: 1.0, batches=None, finish=None, **options):
    """Measure a plain loop; the exit code. work_s: seconds, or a function of the batch."""
    meter = meter_on(time, log, **options)
    for batch in meter.steps(loader(time, wait_s, batches)):
        time.sleep(work_s(batch) if callable(work_s) else work_s)
        meter.loss(losses(batch))
    return meter.finish(**(finish or {}))


def run_together(ranks, log, loop, finish=lambda rank: {}, **options):
    """loop(meter, side, clock) on each rank; their exit codes. finish: what a rank tells at the end."""

    def program(side, time):
        meter = meter_on(time, log, group=side, wire=log.wire(side.rank), **options)
        loop(meter, side, time)
        return meter.finish(**finish(side.rank))

    return ranks.run(program)


# --- the three numbers


def test_exact_numbers_of_a_plain_loop(time, log):
    meter = meter_on(time, log)
    time.sleep(7)
    for batch in meter.steps(loader(time, 0.25)):
        time.sleep(0.75)
        meter.loss(100 - batch)
    assert meter.finish() == 0
    assert log.of("hpcml_window") == [
        {
            "index": index,
            "steps": 4,
            "samples": 16,
            "wall_s": 4.0,
            "stall_s": 1.0,
            "compute_s": 3.0,
            "stall_h2d_s": 0.0,
            "wait_s": [1.0, 1.0, 1.0],
            "h2d_s": [0.0, 0.0, 0.0],
            "busy_s": [3.0, 3.0, 3.0],
            "loss": loss,
        }
        for index, loss in [(0, 95.0), (1, 91.0)]
    ]
    summary = log.one("hpcml_summary")
    assert summary["effective_throughput"] == 4
    assert summary["compute_fraction"] == 0.75
    assert summary["compute_throughput"] == pytest.approx(16 / 3)
    assert summary["identity_gap"] == pytest.approx(0)
    expected = {
        **{"windows": 2, "steps": 8, "samples": 32, "wall_s": 8.0, "stall_s": 2.0, "compute_s": 6.0},
        **{"warmup_steps": 2, "startup_s": 9.0, "first_batch_s": 0.25, "compile_s": None, "optimizer_steps": 10},
        **{"loss_first": 100.0, "loss_last": 91.0, "parameters_identical": None, "data_from": "unknown"},
        **{"flop_per_sample": None, "peak_memory_bytes": None, "meter_s": 0.0, "step_s": [1.0] * 4, "health": None},
    }
    assert {key: summary[key] for key in expected} == expected


def test_windows_are_back_to_back(time, log):
    """The loader is asked for the next batch at the very moment at which the window before was closed."""
    asked = []

    def noting():
        for batch in itertools.count():
            asked.append(time())
            time.sleep(0.5)
            yield batch

    meter = meter_on(time, log, warmup_steps=1, windows=3, steps_per_window=2)
    for _ in meter.steps(noting()):
        time.sleep(0.5)
    meter.finish()
    assert asked == [0, 1, 2, 3, 4, 5, 6]
    assert sum(window["wall_s"] for window in log.of("hpcml_window")) == 6


@pytest.mark.parametrize(
    ("step_s", "window_s", "steps"), [(1.0, 0.0, 4), (1.0, 3.0, 4), (1.0, 6.5, 7), (1 / 64, 5.0, 50), (0.0, 5.0, 4)]
)
def test_a_window_that_would_be_short_has_more_steps(time, log, step_s, window_s, steps):
    """By the fastest step of the warm-up: the first one takes longer than all that follow."""
    assert run(time, log, 0.0, lambda step: step_s if step else 30 * step_s, window_s=window_s) == 0
    assert [window["steps"] for window in log.of("hpcml_window")] == [steps] * 2


def test_all_ranks_have_as_many_steps_in_a_window(log):
    def loop(meter, side, time):
        for _ in meter.steps(loader(time, 0.0)):
            time.sleep(1.0 + side.rank)

    assert run_together(Ranks(2), log, loop, window_s=6.0) == [0, 0]
    assert [window["steps"] for window in log.of("hpcml_window")] == [6, 6]


def test_the_best_window_stands_beside_the_mean(time, log):
    run(time, log, 0.0, lambda step: 2.0 if step < 6 else 1.0)
    summary = log.one("hpcml_summary")
    assert (summary["effective_throughput"], summary["effective_throughput_best"]) == (32 / 12, 4.0)


def test_micro_batches_are_summed_into_steps(time, log):
    meter = meter_on(time, log, micro_batches=3, samples=len, warmup_steps=1, windows=1, steps_per_window=2)
    batches = iter([["a"] * size for size in (1, 1, 1, 2, 3, 4, 5, 6, 7)])
    for batch in meter.steps(batches):
        time.sleep(len(batch))
        meter.loss(len(batch))
    assert meter.finish() == 0
    (window,) = log.of("hpcml_window")
    assert (window["steps"], window["samples"], window["busy_s"][0], window["loss"]) == (2, 27, 27.0, 6.0)
    assert log.one("hpcml_summary")["step_s"] == [9.0, 9.0, 18.0, 18.0]


@pytest.mark.parametrize("micro_batches", [1, 3])
def test_what_the_meter_itself_takes_is_told_per_step(log, micro_batches):
    """On a clock that moves only by being read, the readings are the cost: two before each batch and two after it."""

    class Ticking(Time):
        def __call__(self):
            self.s += 1 / 1024
            return self.s

    meter = meter_on(Ticking(), log, micro_batches=micro_batches, steps_per_window=50)
    for _ in meter.steps(itertools.repeat(None)):
        pass
    meter.finish()
    assert log.one("hpcml_summary")["meter_s"] == pytest.approx(4 / 1024 * micro_batches, rel=0.05)


@pytest.mark.parametrize(
    ("size", "resident", "data_from"),
    [
        (40, None, "unknown"),
        (39, None, "memory"),
        (None, None, "unknown"),
        (40, 0.1, "storage"),
        (40, 0.11, "mixed"),
        (40, 0.89, "mixed"),
        (40, 0.9, "memory"),
        (39, 0.0, "memory"),
        (None, 0.0, "storage"),
    ],
)
def test_where_the_data_came_from(time, log, size, resident, data_from):
    """From memory when a sample was read twice, else by what share of it was there before."""
    run(time, log, data_samples=size, data_resident=resident)  # reads (2 + 2 x 4) x 4 samples
    assert log.one("hpcml_summary")["data_from"] == data_from


@pytest.mark.parametrize(
    ("queued", "warmup_steps", "warns"),
    [(60, 10, True), (24, 2, True), (4, 10, False), (0, 2, False)],
)
def test_windows_that_use_up_a_queue_are_a_warning(time, log, queued, warmup_steps, warns):
    """A loader that takes twice as long as the device, after a slow first step that let batches lie ready."""

    def after_a_slow_step():
        ready_s = 0.0
        for batch in itertools.count():
            ready_s = max(ready_s, time() - queued) + 1.0  # so many lie ready at most
            time.s = max(time.s, ready_s)
            yield batch

    meter = meter_on(time, log, warmup_steps=warmup_steps, windows=3, steps_per_window=50)
    for step in meter.steps(after_a_slow_step()):
        time.sleep(0.5 if step else 100.0)
    assert meter.finish() == 0
    warnings = [text for text in log.one("hpcml_summary")["warnings"] if "rises from window to window" in text]
    assert bool(warnings) is warns
    if queued == 60:
        assert "(0%, 0%, 44% of the time)" in warnings[0]


@pytest.mark.parametrize(
    ("theirs", "differs"), [(4.11, False), (3.89, False), (4.13, True), (3.87, True), (None, False)]
)
def test_a_rate_of_the_devices_software_that_is_another_is_a_warning(time, log, theirs, differs):
    meter = meter_on(time, log)
    for _ in meter.steps(loader(time, 0.25)):
        time.sleep(0.75)
    meter.of_vendor["vendor_throughput"] = {"windows": theirs}
    assert meter.finish() == 0
    warnings = [text for text in log.one("hpcml_summary")["warnings"] if text.startswith("two rates: ")]
    assert bool(warnings) is differs


def test_timed_batches_have_the_length_of_their_loader(time, log):
    meter = meter_on(time, log)
    assert len(meter.steps([1, 2, 3])) == 3
    with pytest.raises(TypeError, match="has no len"):
        len(meter.steps(loader(time, 0)))
    assert next(meter.steps([7])) == 7


# --- several ranks


def train_together(ranks, log, waits, work_s, steps=4):
    """Ranks that meet at the end of every step, as in an all-reduce. waits: (rank, step) -> seconds in next()."""

    def loop(meter, side, time):
        def own_loader():
            for step in itertools.count():
                time.sleep(waits(side.rank, step))
                yield step

        for _ in meter.steps(own_loader()):
            time.sleep(work_s)
            side.barrier()

    options = {"samples": 1, "warmup_steps": 1, "steps_per_window": steps, "mode": "blocking"}
    assert set(run_together(ranks, log, loop, **options)) == {0}


def test_a_rank_that_stalls_alone_is_seen(log):
    """Rank 1 waits 3 s and computes 1 s; rank 0 waits for nothing and books rank 1's stall as its own busy time."""
    train_together(Ranks(2), log, waits=lambda rank, step: 3.0 * rank, work_s=1.0)
    summary, window = log.one("hpcml_summary"), log.of("hpcml_window")[0]
    assert (window["wait_s"], window["busy_s"]) == ([0.0, 6.0, 12.0], [4.0, 10.0, 16.0])
    assert (window["wall_s"], window["stall_s"], window["compute_s"]) == (16.0, 12.0, 4.0)
    assert summary["effective_throughput"] == 0.5
    assert summary["compute_fraction"] == 0.25  # rank 0's own view: 1.0
    assert summary["compute_throughput"] == 2.0
    assert summary["identity_gap"] == 0
    assert summary["slowest"] is None, "without marks of the exchange no rank is called slow"


def test_the_slowest_rank_may_be_another_in_each_step(log):
    train_together(Ranks(3), log, waits=lambda rank, step: 2.0 if step % 3 == rank else 0.0, work_s=1.0, steps=3)
    window, summary = log.of("hpcml_window")[0], log.one("hpcml_summary")
    assert window["wait_s"] == [2.0, 2.0, 2.0]  # no rank stalls more than another, and the run stalls in every step
    assert (window["wall_s"], window["stall_s"], window["compute_s"], window["samples"]) == (9.0, 6.0, 3.0, 9)
    assert summary["compute_fraction"] == pytest.approx(1 / 3)


def test_the_copy_is_that_of_the_rank_that_stalls_longest(log):
    """Rank 0 copies for 2 s. Rank 1 copies for 1 s and waits for 3 s before: its copy stands in the window."""

    def loop(meter, side, time):
        for _ in meter.steps(loader(time, 3.0 * side.rank)):
            with meter.h2d():
                time.sleep(2.0 - side.rank)
            side.barrier()

    assert run_together(Ranks(2), log, loop, mode="blocking", samples=1) == [0, 0]
    window = log.of("hpcml_window")[0]
    assert (window["h2d_s"], window["stall_s"], window["stall_h2d_s"]) == ([4.0, 6.0, 8.0], 16.0, 4.0)


def test_the_wall_time_is_the_longest_of_all_ranks(log):
    def program(side, time):
        def leave_late():
            side._ranks.meet(side.rank)
            time.sleep(0.25 * next(edges) * side.rank)

        edges, side.barrier = itertools.count(), leave_late
        meter = meter_on(time, log, group=side, wire=log.wire(side.rank))
        for _ in meter.steps(loader(time, 0.5)):
            time.sleep(0.5)
        return meter.finish()

    assert Ranks(2).run(program) == [0, 0]
    assert [window["wall_s"] for window in log.of("hpcml_window")] == [4.25, 4.5]  # rank 0 saw 4 and 4.25


def exchange_together(ranks, log, own_s, waits_s=(0.0, 0.0, 0.0), micro_batches=1):
    """Ranks that compute for so long in each batch and then exchange gradients, which takes .25 s; two windows."""

    def loop(meter, side, time):
        for batch in meter.steps(loader(time, waits_s[side.rank])):
            time.sleep(own_s[side.rank])
            meter.exchange_begins()
            if (batch + 1) % micro_batches == 0:
                side.barrier()
                time.sleep(0.25)
                meter.exchange_ends()

    options = {"samples": 1, "warmup_steps": 1, "steps_per_window": 2, "micro_batches": micro_batches}
    assert set(run_together(ranks, log, loop, **options)) == {0}
    return log.one("hpcml_summary")


@pytest.mark.parametrize("micro_batches", [1, 2])
def test_a_rank_whose_own_work_is_slow_is_named(log, micro_batches):
    """The steps of all ranks take 3.25 s: the others wait for rank 1, inside their busy time."""
    summary = exchange_together(Ranks(3), log, own_s=(1.0, 3.0, 2.0), micro_batches=micro_batches)
    assert {wait for window in log.of("hpcml_window") for wait in window["wait_s"]} == {0.0}
    host = platform.node()
    own = {"own_s": 3.0 * micro_batches, "others_own_s": 1.5 * micro_batches}
    assert summary["slowest"] == {"rank": 1, "host": host, **own}
    (warning,) = [text for text in summary["warnings"] if text.startswith("straggler: ")]
    assert f"rank 1 on {host} needs 2.00 times the others' time for its own work" in warning


def test_a_slow_network_between_the_ranks_is_named(log):
    summary = exchange_together(Ranks(2), log, own_s=(0.0625, 0.0833), waits_s=(0.0, 0.0))
    assert summary["exchange_share"] == pytest.approx(0.75, abs=0.001)
    (warning,) = [text for text in summary["warnings"] if text.startswith("exchange: ")]
    assert "in 75% of the time" in warning


@pytest.mark.parametrize(("paused_s", "named"), [(5.0, True), (0.5, False)])
def test_a_step_in_which_the_process_was_stopped_is_named(time, log, paused_s, named):
    assert run(time, log, 0.25, lambda step: 0.75 + (paused_s if step == 7 else 0.0)) == 0
    pauses = [text for text in log.one("hpcml_summary")["warnings"] if text.startswith("pause: ")]
    assert len(pauses) == named
    if named:
        assert f"step 7 of rank 0 on {platform.node()} computed for 5.75 s, and the median step for 0.75 s" in pauses[0]


def test_a_rank_that_waits_longest_for_its_data_is_named(log):
    summary = exchange_together(Ranks(3), log, own_s=(1.0, 1.0, 1.0), waits_s=(0.0, 0.0, 3.75))
    assert summary["longest_stall"] == {"rank": 2, "host": platform.node(), "share": 0.75, "others_share": 0.0}
    said = f"data late: rank 2 on {platform.node()} waits for its data in 75% of the time, the others in 0%"
    assert [text for text in summary["warnings"] if not text.startswith("peak unknown")] == [said]


def test_ranks_that_are_equally_fast_are_not_warned_of(log):
    summary = exchange_together(Ranks(3), log, own_s=(1.0, 1.125, 1.0))
    assert summary["slowest"]["rank"] == 1
    assert [text for text in summary["warnings"] if not text.startswith("peak unknown")] == []


def test_the_node_is_looked_at_before_the_first_window_and_after_the_last(time, log):
    class Watch:
        def __init__(self):
            self.looks = []

        def begin(self):
            time.sleep(5.0)  # what a look takes is in no window
            self.looks.append(("begin", time.s))

        def end(self):
            self.looks.append(("end", time.s))

    watch = Watch()
    assert run(time, log, 0.25, 0.75, watch=watch) == 0
    assert watch.looks == [("begin", 2 + 5.0), ("end", 2 + 5.0 + 8)]
    assert [window["wall_s"] for window in log.of("hpcml_window")] == [4.0, 4.0]


def test_what_one_rank_sees_fails_every_rank(log):
    """A loss that only rank 1 has; and what the ranks give to finish() is put together."""

    def loop(meter, side, time):
        for step, _ in enumerate(meter.steps(itertools.repeat([1] * (side.rank + 1)))):
            time.sleep(1.0)
            meter.loss(math.nan if side.rank == 1 and step == 4 else 1.0)
            side.barrier()

    def finish(rank):
        told = {"parameters_identical": rank == 0, "peak_memory_bytes": 100 + rank, "compile_s": 2.0 - rank}
        return {**told, "warnings": ["same", f"rank {rank}"]}

    options = {"samples": len, "warmup_steps": 3, "windows": 3, "steps_per_window": 2}
    assert run_together(Ranks(2), log, loop, finish, **options) == [3, 3]
    summary = log.one("hpcml_summary")
    assert log.problems().keys() == {"loss_finite", "parameters_identical"}
    assert "step 4 on rank 1" in log.problems()["loss_finite"]
    assert (summary["samples"], summary["peak_memory_bytes"], summary["compile_s"]) == (18, 101, 2.0)
    assert summary["warnings"][:3] == ["same", "rank 0", "rank 1"]
    assert {line["metadata"]["rank"] for line in log.lines()} == {0}


# --- a device that runs by itself


class Forgetful(Device):
    """The synchronisation after a step is left out: the one directly after the step's last mark does nothing."""

    marked = False

    def enqueue(self, seconds):
        super().enqueue(seconds)
        self.marked = False

    def mark(self):
        self.marked = True
        return super().mark()

    def synchronize(self):
        if not self.marked:
            super().synchronize()


def blocking_loop(device, time, log, **options):
    meter = meter_on(time, log, mode="blocking", clock=device, **options)
    for _ in meter.steps(loader(time, 0.25)):
        with meter.h2d():
            device.enqueue(0.5)
        time.sleep(0.125)  # launching
        device.enqueue(2)
    return meter.finish()


def test_blocking_mode_is_silent_where_it_synchronises(time, log):
    assert blocking_loop(Device(time), time, log) == 0
    window, summary = log.of("hpcml_window")[0], log.one("hpcml_summary")
    assert (window["wait_s"][0], window["h2d_s"][0], window["busy_s"][0], window["wall_s"]) == (1.0, 2.0, 8.5, 11.5)
    assert (window["stall_s"], window["stall_h2d_s"]) == (3.0, 2.0)
    assert summary["identity_gap"] < 1e-9
    assert not log.problems()


def test_a_missing_synchronisation_after_the_step_fails_the_run(time, log):
    """Without it kernels are counted twice: as busy, and as the copy that had to wait for them."""
    assert blocking_loop(Forgetful(time), time, log) == 3
    assert log.one("hpcml_summary")["identity_gap"] > 0.5
    assert "a synchronisation is missing" in log.problems()["identity"]
    assert log.one("hpcml_end")["exit_code"] == 3


def overlap_loop(device, time, log, wait_s, work_s, copy_s=0.0, ahead=2, windows=2):
    """A loop whose host may be `ahead` steps before the device, as a loader with that many pinned buffers lets it."""
    meter = meter_on(time, log, clock=device, windows=windows, steps_per_window=64, samples=1)
    ends = []
    for step in meter.steps(loader(time, wait_s)):
        if step >= ahead:
            time.s = max(time.s, ends[step - ahead])
        with meter.h2d():
            device.enqueue(copy_s)
        device.enqueue(work_s)
        ends.append(device.free_s)
    assert meter.finish() == 0
    return log.one("hpcml_summary")


def test_overlap_with_a_loader_that_keeps_up(time, log):
    """The host waits in next() while the device still computes: nobody stalls."""
    summary = overlap_loop(Device(time), time, log, wait_s=0.75, work_s=1.0)
    assert summary["compute_fraction"] > 0.98
    assert summary["compute_throughput"] == pytest.approx(1.0)
    assert summary["identity_gap"] < 0.01
    first, *_ = log.of("hpcml_window")
    assert first["wait_s"][0] == 0.75  # of the one step that follows the barrier, when the device's queue is empty


def test_overlap_with_a_loader_that_does_not_keep_up(time, log):
    summary = overlap_loop(Device(time), time, log, wait_s=2.0, work_s=0.5)
    # the device works in the host's shadow: a gap of 1.5 s a step, of 2 s after the edge of a window, which ends it
    assert summary["compute_fraction"] == pytest.approx(1 - (63 * 1.5 + 2) / (64 * 2 + 0.5))
    assert summary["compute_throughput"] == pytest.approx(2.0)
    assert summary["identity_gap"] < 0.01


def test_overlap_shows_the_copy_that_is_exposed(time, log):
    summary = overlap_loop(Device(time), time, log, wait_s=0.25, work_s=1.0, copy_s=0.5)
    window = log.of("hpcml_window")[1]
    assert (window["wait_s"][0], window["h2d_s"][0]) == (0.25, 64 * 0.5)  # waited for only after the edge
    assert summary["compute_fraction"] == pytest.approx(2 / 3, abs=0.01)
    assert summary["identity_gap"] < 0.01


def test_overlap_synchronises_only_at_edges_and_reads_losses_only_there(time, log):
    device = Device(time)

    class Loss:
        reads = 0

        def detach(self):
            return self

        def __float__(self):
            Loss.reads += 1
            assert time.s >= device.free_s, "read while the device still computes"
            return 1.0

    seen = []
    meter = meter_on(time, log, clock=device, warmup_steps=2, windows=1, steps_per_window=6)
    for _ in meter.steps(loader(time, 0.125)):
        device.enqueue(2)
        meter.loss(Loss())
        seen.append((device.synchronisations, Loss.reads))
    before = seen[0][0]
    assert seen == [(before, 0)] * 2 + [(before + 2, 2)] * 6
    assert meter.finish() == 0
    assert log.of("hpcml_progress")[0]["loss"] is None  # not read before the first edge


@pytest.mark.parametrize(
    ("mode", "host_waits", "copy_s"), [("overlap", False, 0.0), ("overlap", True, 1.0), ("blocking", True, 1.0)]
)
def test_a_copy_that_the_host_waits_for_is_a_stall_in_both_modes(time, log, mode, host_waits, copy_s):
    meter = meter_on(time, log, mode=mode)
    for _ in meter.steps(loader(time, 0.25)):
        with meter.h2d(host_waits=host_waits):
            time.sleep(0.25)
        time.sleep(0.5)
    meter.finish()
    window = log.of("hpcml_window")[0]
    assert (window["wait_s"][0], window["h2d_s"][0], window["busy_s"][0]) == (1.0, copy_s, 3.0 - copy_s)
    assert (window["stall_s"], window["stall_h2d_s"]) == (1.0 + copy_s, copy_s)


@pytest.mark.parametrize("mode", ["overlap", "blocking"])
def test_a_device_that_is_idle_before_its_copy_copies_for_longer(time, log, mode):
    """As models/fault_injection.py does it: the host waits for the device, and then sleeps."""
    device = Device(time)
    meter = meter_on(time, log, clock=device, mode=mode)
    for _ in meter.steps(loader(time, 0.0)):
        with meter.h2d():
            device.synchronize()
            time.sleep(0.5)
        device.enqueue(2.0)
    assert meter.finish() == 0
    window = log.of("hpcml_window")[1]
    assert (window["wall_s"], window["stall_s"], window["stall_h2d_s"], window["compute_s"]) == (10.0, 2.0, 2.0, 8.0)


# --- gates


def test_a_loss_that_is_not_finite_fails_the_run(time, log):
    assert run(time, log, losses=lambda step: math.inf if step == 1 else 2.0) == 3  # in the warm-up, too
    assert log.problems() == {"loss_finite": "the loss of step 1 on rank 0 is inf"}
    assert log.one("hpcml_end") == {"exit_code": 3, "lines": len(log.lines()) - 1}


@pytest.mark.parametrize(
    ("loss", "options", "fails"),
    [
        (lambda step: 1.0, {"learnable": True}, True),
        (lambda step: 1.0 + step, {"learnable": True}, True),
        (lambda step: 100.0 - step, {"learnable": True}, False),
        (lambda step: 1.0, {"learnable": False}, False),
        (lambda step: 1.0, {"learnable": True, "steps_per_window": 10}, False),
    ],
)
def test_the_loss_must_fall_over_100_steps_on_learnable_data(time, log, loss, options, fails):
    assert run(time, log, losses=loss, **{"steps_per_window": 49, **options}) == (3 if fails else 0)
    assert ("loss_falls" in log.problems()) is fails


@pytest.mark.parametrize(("peak", "fails"), [(799.0, True), (801.0, False)])
def test_nothing_computes_faster_than_its_device(time, log, peak, fails):
    """8 samples/s of 100 FLOP while computing."""
    assert run(time, log, flop_per_sample=100.0, peak_flops=peak) == (3 if fails else 0)
    assert log.problems().keys() == ({"roofline"} if fails else set())
    assert not log.one("hpcml_summary")["warnings"]


@pytest.mark.parametrize(("reached", "fails"), [(799.0 / 1.5, True), (801.0 / 1.5, False), (None, False)])
def test_nothing_computes_much_faster_than_plain_kernels_on_the_same_cores(time, log, reached, fails):
    finish = {"attainable_flops": reached}
    assert run(time, log, flop_per_sample=100.0, peak_flops=1e6, finish=finish) == (3 if fails else 0)
    assert log.one("hpcml_summary")["attainable_flops"] == reached
    assert [*log.problems()] == (["attainable"] if fails else [])


def test_an_unknown_peak_is_a_warning(time, log):
    assert run(time, log, flop_per_sample=100.0) == 0
    assert log.one("hpcml_summary")["warnings"][0].startswith("peak unknown")


@pytest.mark.parametrize("batches", [0, 1, 2, 7])
def test_a_loader_that_ends_early_fails_the_run(time, log, batches):
    assert run(time, log, batches=batches) == 3
    assert f"ended after {batches} optimiser steps" in log.problems()["steps"]
    assert log.one("hpcml_summary")["windows"] == max(0, batches - 2) // 4


def test_a_problem_somebody_else_reported_fails_the_run(time, log):
    meter = meter_on(time, log)
    for _ in meter.steps(loader(time, 1)):
        time.sleep(1)
    meter.wire.problem("memory", "grew")
    meter.wire.problem("memory", "grew again")
    assert meter.finish() == 3
    assert log.problems() == {"memory": "grew"}


# --- lines and files


def test_the_order_of_the_lines(time, log):
    meter = meter_on(time, log)
    meter.start({"schema": 1}, {"seed": 5, "global_batch_size": 32})
    for _ in meter.steps(loader(time, 0.25)):
        time.sleep(0.25)
        meter.loss(math.nan)
    assert meter.finish() == 3
    keys = [line["key"] for line in log.lines() if line["key"] != "hpcml_progress"]
    opening = ["seed", "global_batch_size", "hpcml_start", "run_start"]
    assert keys == [*opening, "run_stop", *["hpcml_window"] * 2, "hpcml_problem", "hpcml_summary", "hpcml_end"]
    assert [line["metadata"]["seq"] for line in log.lines()] == list(range(len(log.lines())))
    assert {line["namespace"] for line in log.lines()} == {"hpcml"}


def test_progress_comes_once_a_second_from_rank_0(time, log):
    run(time, log, 0.125, 0.125, losses=float, steps_per_window=8)
    progress = log.of("hpcml_progress")
    assert [value["step"] for value in progress] == [1, 5, 9, 13, 17]
    assert progress[1] == {
        **{"phase": "window", "epoch": None, "step": 5, "steps": 18},
        **{"samples_per_s": 16.0, "loss": 4.0, "left_s": 3.25},
    }
    assert progress[0]["phase"] == "warmup"


def test_every_step_is_in_the_file(time, log, tmp_path):
    run(time, log, 0.25, lambda step: step + 1, folder=str(tmp_path), warmup_steps=1, steps_per_window=2)
    rows = rows_of(tmp_path)
    assert [row["window"] for row in rows] == ["", "0", "0", "1", "1"]
    assert [float(row["busy"]) for row in rows] == [1, 2, 3, 4, 5]
    assert {(row["wait"], row["h2d"]) for row in rows} == {("0.250000000", "0.000000000")}


def test_a_folder_that_cannot_be_written_is_a_warning(time, log, tmp_path):
    assert run(time, log, folder=str(tmp_path / "missing")) == 0
    assert "steps of rank 0 were not written" in log.one("hpcml_summary")["warnings"][0]


def test_abort_says_why_and_ends_the_log(time, log):
    meter = meter_on(time, log)
    for _ in meter.steps(loader(time, 1)):
        meter.abort(5, "device_out_of_memory", "no memory left")
        break
    meter.abort(1, "other", "too late")
    meter.wire.emit("hpcml_progress", {"phase": "too late"})
    assert meter.finish() == 5
    assert log.problems() == {"device_out_of_memory": "no memory left"}
    assert log.lines()[-1]["value"] == {"exit_code": 5, "lines": len(log.lines()) - 1}


def test_abort_on_another_rank_leaves_the_end_to_rank_0(log, time):
    side = Side(Ranks(2), 1)
    Meter(samples=1, now=time, group=side, wire=log.wire(1), folder=None).abort(65, "data", "x.jpeg is cut off")
    assert [line["key"] for line in log.lines()] == ["hpcml_problem"]


def test_finish_writes_once_and_keeps_a_given_exit_code(time, log):
    meter = meter_on(time, log)
    for _ in meter.steps(loader(time, 1)):
        time.sleep(1)
    assert [meter.finish(exit_code=4), meter.finish()] == [4, 4]
    assert log.one("hpcml_end")["exit_code"] == 4
    assert list(meter.steps([1, 2])) == [1, 2]  # not measured any more, and not in the way


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"mode": "fast"}, "overlap or blocking, not 'fast'"),
        ({"no_split": " "}, "no_split is the reason, one clause"),
        ({"no_split": True}, "no_split is the reason, one clause"),
        ({"steps_per_batch": 4, "warmup_steps": 3}, "a batch has 4 optimiser steps, so both are multiples of that"),
        ({"steps_per_batch": 4, "warmup_steps": 4, "steps_per_window": 6}, "a batch has 4 optimiser steps"),
    ],
)
def test_options_that_make_no_windows_are_refused(options, why):
    with pytest.raises(ValueError, match=why):
        Meter(samples=1, **options)


def test_warmup_of_no_steps(time, log):
    assert run(time, log, warmup_steps=0) == 0
    assert log.one("hpcml_summary")["warmup_steps"] == 0
    assert log.one("hpcml_summary")["startup_s"] == 0


# --- batches of several optimiser steps


def test_a_batch_of_several_steps_is_as_many_steps(time, log, tmp_path):
    """Two steps a batch, 8 samples and 2 s: windows of 4 steps are 2 batches; its loss is the mean of its steps."""
    options = {"samples": 8, "steps_per_batch": 2, "folder": str(tmp_path)}
    assert run(time, log, 0.5, 1.5, losses=lambda batch: 10 - batch, **options) == 0
    numbers = ("steps", "samples", "wall_s", "stall_s", "compute_s", "loss")
    assert [[window[key] for key in numbers] for window in log.of("hpcml_window")] == [
        [4, 16, 4.0, 1.0, 3.0, 8.0],
        [4, 16, 4.0, 1.0, 3.0, 6.0],
    ]
    summary = log.one("hpcml_summary")
    assert (summary["warmup_steps"], summary["optimizer_steps"]) == (2, 10)
    assert (summary["effective_throughput"], summary["compute_fraction"]) == (4.0, 0.75)
    assert (summary["loss_first"], summary["loss_last"], summary["step_s"]) == (10.0, 6.0, [1.0] * 4)
    rows = rows_of(tmp_path)
    assert [row["step"] for row in rows] == [str(step) for step in range(10)]
    assert [row["window"] for row in rows] == ["", "", *"00001111"]
    assert {(float(row["wait"]), float(row["busy"])) for row in rows} == {(0.25, 0.75)}


def test_progress_counts_steps_where_a_batch_has_several(time, log):
    run(time, log, 0.5, 1.5, samples=8, steps_per_batch=2)
    progress = log.of("hpcml_progress")
    assert [(value["step"], value["left_s"]) for value in progress] == [
        (2, None),  # not of the warm-up, whose first step may take minutes
        *((step, 10.0 - step) for step in (4, 6, 8, 10)),
    ]
    assert {value["steps"] for value in progress} == {10}
    assert {value["samples_per_s"] for value in progress} == {4.0}


@pytest.mark.parametrize(("window_s", "steps"), [(0.0, 4), (4.5, 8), (8.5, 12), (90.0, 48)])
def test_a_window_is_made_longer_by_whole_batches(time, log, window_s, steps):
    """A step takes 1 s, and a batch has four."""
    assert run(time, log, 1.0, 3.0, warmup_steps=4, steps_per_batch=4, window_s=window_s) == 0
    assert [window["steps"] for window in log.of("hpcml_window")] == [steps, steps]


def test_an_epoch_makes_windows_of_whole_batches(time, log):
    """Twelve batches of two steps: one is warm-up, five are each window, and the last one is in none."""
    meter = meter_on(time, log, steps_per_window=None, steps_per_batch=2)
    for _ in meter.steps(list(range(12))):
        time.sleep(1.0)
    assert meter.finish() == 0
    assert [window["steps"] for window in log.of("hpcml_window")] == [10, 10]


@pytest.mark.parametrize(("falls", "exit_code"), [(True, 0), (False, 3)])
def test_the_loss_of_few_batches_with_many_steps_must_fall_too(time, log, falls, exit_code):
    """Seven batches of 16 steps: the first is compared with the last."""
    options = {"warmup_steps": 16, "windows": 1, "steps_per_window": 96, "steps_per_batch": 16, "learnable": True}
    assert run(time, log, losses=lambda batch: 10.0 - batch if falls else 1.0, **options) == exit_code


# --- what the device says of itself


@pytest.mark.parametrize(("worked_s", "h2d_s", "busy_s"), [(1.5, 0.5, 1.5), (2.0, 0.0, 2.0), (5.0, 0.0, 2.0)])
def test_the_rest_of_a_call_in_which_the_device_worked_is_the_copy(time, log, worked_s, h2d_s, busy_s):
    """A call takes 2 s. A device that says more than that cannot be right."""
    meter = meter_on(time, log)
    for _ in meter.steps(loader(time, 1.0)):
        time.sleep(2.0)
        meter.worked(worked_s)
    assert meter.finish() == 0
    window = log.of("hpcml_window")[0]
    assert (window["wait_s"], window["h2d_s"], window["busy_s"]) == ([4.0] * 3, [4 * h2d_s] * 3, [4 * busy_s] * 3)
    assert (window["wall_s"], window["stall_s"], window["stall_h2d_s"]) == (12.0, 4 + 4 * h2d_s, 4 * h2d_s)
    assert log.one("hpcml_summary")["identity_gap"] == pytest.approx(0)


def test_what_the_device_said_of_one_batch_is_not_said_of_the_next(time, log):
    meter = meter_on(time, log, warmup_steps=0, windows=1)
    for batch in meter.steps(loader(time, 0.0)):
        time.sleep(2.0)
        if batch == 0:
            meter.worked(0.5)
    meter.finish()
    assert log.of("hpcml_window")[0]["h2d_s"] == [1.5] * 3


def test_a_host_that_does_not_wait_for_its_device_cannot_say_how_long_it_worked(time, log):
    with pytest.raises(ValueError, match=r"worked\(\) is for a host that waits for its device"):
        meter_on(time, log, clock=Device(time)).worked(1.0)


# --- no split

NO_SPLIT = "the wafer's own nodes feed it"
IN_WINDOW = ("stall_s", "compute_s", "stall_h2d_s", "wait_s", "h2d_s", "busy_s")
IN_SUMMARY = ("stall_s", "compute_s", "compute_fraction", "compute_throughput", "identity_gap")


def test_without_a_split_its_numbers_are_null_and_the_others_exact(time, log, tmp_path):
    finish = {"compile_s": 60.0, "compile_cache": "miss"}
    assert run(time, log, 0.25, 0.75, finish=finish, no_split=NO_SPLIT, folder=str(tmp_path)) == 0
    for window in log.of("hpcml_window"):
        assert [window[key] for key in IN_WINDOW] == [None] * 6
        assert (window["steps"], window["samples"], window["wall_s"]) == (4, 16, 4.0)
    summary = log.one("hpcml_summary")
    assert [summary[key] for key in IN_SUMMARY] == [None] * 5
    assert (summary["no_split"], summary["effective_throughput"], summary["wall_s"]) == (NO_SPLIT, 4.0, 8.0)
    assert (summary["compile_s"], summary["compile_cache"], summary["step_s"]) == (60.0, "miss", [1.0] * 4)
    rows = rows_of(tmp_path)
    assert {(row["wait"], row["h2d"], row["busy"], row["whole"]) for row in rows} == {("", "", "", "1.000000000")}


def test_without_a_split_no_rank_is_called_late_and_no_stall_rising(log):
    """Rank 1 seems to wait longer and longer. With a split, both would be warnings."""

    def loop(meter, side, time):
        def late():
            for step in itertools.count():
                time.sleep(side.rank * step)
                yield step

        for _ in meter.steps(late()):
            time.sleep(1.0)
            meter.exchange_begins()
            side.barrier()
            meter.exchange_ends()

    options = {"no_split": NO_SPLIT, "peak_flops": 1e9, "flop_per_sample": 1.0}
    assert run_together(Ranks(2), log, loop, **options) == [0, 0]
    summary = log.one("hpcml_summary")
    assert (summary["slowest"], summary["longest_stall"], summary["warnings"]) == (None, None, [])


@pytest.mark.parametrize(("peak", "fails"), [(399.0, True), (401.0, False)])
def test_without_a_split_no_more_comes_out_than_the_device_can_do(time, log, peak, fails):
    """4 samples/s of 100 FLOP: computing is at least as fast."""
    options = {"flop_per_sample": 100.0, "peak_flops": peak, "no_split": NO_SPLIT}
    assert run(time, log, **options) == (3 if fails else 0)
    assert [*log.problems()] == (["roofline"] if fails else [])


def test_the_last_word_has_null_where_there_is_no_split(time, log, tmp_path, monkeypatch):
    monkeypatch.setenv("HPC_ML_BENCH_LAST_WORD", str(tmp_path / "word"))
    assert run(time, log, no_split=NO_SPLIT) == 0
    word = json.loads((tmp_path / "word").read_text())
    assert (word["compute_fraction"], word["compute_throughput"]) == (None, None)
    assert word["effective_throughput"] == 4.0


@pytest.mark.parametrize(
    ("said", "found"), [(("hit", "miss"), "miss"), (("hit", "hit"), "hit"), ((None, "hit"), "hit")]
)
def test_a_program_that_one_rank_had_to_compile_was_not_found(log, said, found):
    def loop(meter, side, time):
        for _ in meter.steps(loader(time, 1.0)):
            time.sleep(1.0)

    assert run_together(Ranks(2), log, loop, lambda rank: {"compile_cache": said[rank]}) == [0, 0]
    assert log.one("hpcml_summary")["compile_cache"] == found
