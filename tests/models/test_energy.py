"""Energy of the devices: two sources that agree, or none; by fakes of NVML and AMD SMI, and what an H200 said."""

from __future__ import annotations

import csv
import itertools
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from models import energy
from models.accelerators import gpu_health
from models.energy import EnergySource, EnergyWatch, Watches
from models.meter import Meter
from models.node import NodeWatch
from tests.models.fake_amdsmi import FakeAmdSmi, FakeGpu, mi210

GOOD = {"seconds": 20.0, "joules": 5213.0, "polled": 5190.0, "limit_w": 400.0}
COUNTED = {"device": "GPU-1 on n1", "parts": 1, "joules": 5213.0, "polled_joules": 5190.0, "seconds": 20.0}


class Bench:
    """A device on a clock of its own, which moves on by half a second whenever it is read."""

    def __init__(self, watts: float = 300.0, counted_w: float = 300.0) -> None:
        self.at_s = 0.0
        self.reads = 0
        self.enough = threading.Event()
        self._watts = watts
        self._counted_w = counted_w
        self.source = EnergySource("GPU-1", self._joules, self._power, limit_w=400.0)

    def now(self) -> float:
        self.at_s += 0.5
        return self.at_s

    def _joules(self) -> float:
        return 1e6 + self._counted_w * self.at_s

    def _power(self) -> float:
        self.reads += 1
        if self.reads == 30:
            self.enough.set()
        return self._watts


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_counter_and_power_are_read_before_and_after_the_windows(bench: Bench) -> None:
    watches = Watches(NodeWatch(of_node=False), EnergyWatch(bench.source, bench.now, poll_s=0.0005))
    meter = Meter(samples=1, warmup_steps=1, windows=1, steps_per_window=2, folder=None, watch=watches)
    reads = []

    def batches() -> Iterator[int]:
        for number in itertools.count():
            reads.append(bench.reads)
            if number == 2:
                assert bench.enough.wait(10)
            yield number

    list(meter.steps(batches()))
    assert reads[0] == 0
    assert bench.reads > 30
    counted = watches.energy.counted()
    assert counted is not None
    assert watches.node.counted(threads=1, of_node=True) is not None
    seconds = counted["seconds"]
    assert [counted["joules"], counted["polled_joules"]] == pytest.approx([300 * seconds] * 2, rel=0.1)
    assert "energy" not in [thread.name for thread in threading.enumerate()]


def test_power_is_read_four_times_a_second(bench: Bench) -> None:
    assert energy.POLL_S == 0.25
    watch = EnergyWatch(bench.source, bench.now, poll_s=60)
    watch.begin()
    watch.end()
    assert bench.reads == 2  # at the begin and at the end


def test_a_library_that_does_not_return_holds_no_job(bench: Bench) -> None:
    hangs = threading.Event()
    source = bench.source._replace(watts=lambda: hangs.wait(10) and None)
    watch = EnergyWatch(source, bench.now, join_s=0.01)
    watch.begin()
    watch.end()
    assert watch.counted() == {"why": "its library did not answer to the end"}
    hangs.set()


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({}, None),
        ({"joules": 187.0, "polled": 327.0}, "says 187 J, and its power adds up to 327 J: they differ by more"),
        ({"joules": 9000.0, "polled": 8900.0}, "in 20.0 s: more than its limit of 400 W allows"),
        ({"joules": 8300.0, "polled": 8200.0}, None),  # the limit may be exceeded for a moment
        ({"joules": 9000.0, "polled": 8900.0, "limit_w": None}, None),
        ({"joules": None}, "tells no energy, and one source alone"),
        ({"polled": None}, "tells no power, and one source alone"),
        ({"joules": -3.0}, "its counter of energy went backwards"),
        ({"seconds": 4.2}, "4.2 s are too short"),
    ],
)
def test_no_number_without_two_sources_that_agree(change: dict[str, float], why: str | None) -> None:
    found = energy.doubt(**{**GOOD, **change})
    assert found is None if why is None else why in (found or "")


def test_the_lag_of_a_real_gpus_power_is_less_than_what_is_allowed() -> None:
    """h200_energy.csv: NVML of an H200 (driver 580), idle for a second, then three of products, then idle."""
    with Path(__file__).with_name("h200_energy.csv").open() as file:
        rows = [[float(cell) for cell in row] for row in itertools.islice(csv.reader(file), 1, None)]
    at_s, joules, watts = [[row[column] for row in rows] for column in range(3)]

    def missing_j(end: int) -> float:
        polled = sum((at_s[n + 1] - at_s[n]) * (watts[n] + watts[n + 1]) / 2 for n in range(end))
        return joules[end] - polled

    end_of_work = max(number for number, power in enumerate(watts) if power > 680)
    lag_s = missing_j(end_of_work) / max(watts)
    assert 0.3 < lag_s < energy.DISAGREE * energy.SHORTEST_S / 2
    assert abs(missing_j(len(watts) - 1)) < 0.01 * joules[-1]  # it is made up for when the work is over


def test_energy_is_the_sum_over_devices() -> None:
    others = [{**COUNTED, "device": "GPU-2 on n1", "seconds": 20.1}, {**COUNTED, "device": "GPU-1 on n2"}]
    value = energy.join([COUNTED, *others])["energy"]
    assert value == {"joules": 15639.0, "polled_joules": 15570.0, "devices": 3, "seconds": 20.1}


def test_one_device_without_a_number_is_none_for_all() -> None:
    assert energy.join([COUNTED, {"why": "no driver"}]) == {"energy": {"why": "no driver (rank 1)"}}


def test_ranks_that_share_a_device_count_it_once() -> None:
    shared = {**COUNTED, "parts": 2}
    assert energy.join([shared, shared])["energy"]["joules"] == 5213.0
    why = "this job has 1 of 2 parts of GPU-1 on n1, and the counter is of all of them"
    assert energy.join([shared]) == {"energy": {"why": why}}


def test_nothing_is_said_where_nobody_expects_it() -> None:
    watch = EnergyWatch(None)
    watch.begin()
    watch.end()
    assert energy.join([watch.counted(), None]) == {}


# --- NVML

NVML = """
def nvmlInit(): pass
def nvmlDeviceGetHandleByUUID(uuid):
    if uuid != b"GPU-12ab":
        raise RuntimeError("Not Found")
    return uuid
def nvmlDeviceGetMigMode(gpu): return [MIG, MIG]
def nvmlDeviceGetTotalEnergyConsumption(gpu): return 5_213_000
def nvmlDeviceGetPowerUsage(gpu): return 399_500
def nvmlDeviceGetEnforcedPowerLimit(gpu): return 400_000
"""
Nvml = Callable[[str], None]


@pytest.fixture
def nvml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Nvml:
    def install(text: str) -> None:
        (tmp_path / "pynvml.py").write_text(text)
        monkeypatch.syspath_prepend(tmp_path)
        monkeypatch.delitem(sys.modules, "pynvml", raising=False)

    return install


def why_of(source: EnergySource | str) -> str:
    assert isinstance(source, str)
    return source


def test_nvml_tells_energy_and_power(nvml: Nvml) -> None:
    nvml(NVML.replace("MIG", "0"))
    source = gpu_health.nvml_energy("GPU-12ab")
    assert isinstance(source, EnergySource)
    assert (source.joules(), source.watts(), source.limit_w, source.parts) == (5213.0, 399.5, 400.0, 1)


def test_nvml_before_volta_has_no_counter(nvml: Nvml) -> None:
    nvml(NVML.replace("return 5_213_000", "raise RuntimeError('Not Supported')").replace("MIG", "0"))
    source = gpu_health.nvml_energy("GPU-12ab")
    assert isinstance(source, EnergySource)
    assert source.joules() is None


def test_nvml_without_a_gpu_of_its_own_has_a_reason(nvml: Nvml, monkeypatch: pytest.MonkeyPatch) -> None:
    nvml(NVML.replace("MIG", "1"))
    assert why_of(gpu_health.nvml_energy("GPU-12ab")).startswith("a MIG slice has no counter")
    assert why_of(gpu_health.nvml_energy("GPU-34cd")) == "NVML does not answer for this GPU: Not Found"
    assert why_of(gpu_health.nvml_energy(None)).endswith("this torch does not tell which one it is")
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert why_of(gpu_health.nvml_energy("GPU-12ab")).startswith("NVML does not answer for this GPU: import of pynvml")


# --- AMD SMI


def smi(monkeypatch: pytest.MonkeyPatch, *gpus: FakeGpu) -> None:
    monkeypatch.setitem(sys.modules, "amdsmi", FakeAmdSmi(*gpus))


@pytest.mark.parametrize("name", ["power", "energy_accumulator"])
def test_amd_smi_counts_in_ticks(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = mi210("0000:C9:00.0")
    gpu.answers["amdsmi_get_energy_count"] = {name: 1_000_000, "counter_resolution": 15.3, "timestamp": 7}
    smi(monkeypatch, mi210("0000:09:00.0"), gpu)
    source = gpu_health.amd_smi_energy("0000:c9:00")
    assert isinstance(source, EnergySource)
    assert source.joules() == pytest.approx(15.3)
    assert (source.watts(), source.limit_w, source.parts) == (287, 300.0, 1)


def test_a_divided_amd_gpu_has_parts_and_a_missing_one_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    smi(monkeypatch, mi210("0000:C9:00.0"), mi210("0000:C9:00.1"))
    source = gpu_health.amd_smi_energy("0000:c9:00")
    assert isinstance(source, EnergySource)
    assert (source.parts, source.joules()) == (2, None)
    assert why_of(gpu_health.amd_smi_energy("0000:09:00")).endswith("LookupError('it knows none at 0000:09:00')")
    monkeypatch.setitem(sys.modules, "amdsmi", None)
    assert why_of(gpu_health.amd_smi_energy("0000:c9:00")).startswith("AMD SMI does not answer for this GPU: ")
