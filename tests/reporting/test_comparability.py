"""Which runs are comparable, and that nothing which varies on a healthy machine ends a series."""

from __future__ import annotations

from typing import Any

import pytest

from reporting.history.comparability import asked, comparability, differences, fields_of, measured, rounded_gib
from tests.reporting.run_json import cpu_run, gpu_run

FIELDS = {
    "benchmark": "resnet50",
    "variant": "v1.5",
    "configuration": "tuned",
    "size": "subset",
    "mode": "overlap",
    "layout": "1x4gpu",
    "workload_version": 2,
    "device": "A100-SXM4-80GB",
    "devices": 4,
    "memory_gib": 80.0,
    "dtype": "bf16",
    "cpu_quota": "max",
    "data_from": "storage",
}


def same(run: dict[str, Any], other: dict[str, Any]) -> bool:
    return comparability(fields_of(run)) == comparability(fields_of(other))


def test_the_hash_of_these_fields_is_the_same_for_ever() -> None:
    assert fields_of(gpu_run()) == FIELDS
    assert comparability(FIELDS) == "b98aaac906a2"
    assert comparability(dict(reversed(FIELDS.items()))) == "b98aaac906a2"


@pytest.mark.parametrize(
    "change",
    [
        {"start__device__name": "A100-SXM4-80GB"},  # by a driver before 470
        {"start__device__memory_bytes": 85_094_825_984},  # by another driver
        {"start__device__count": 4},  # of the eight GPUs of the node, the others are hidden now
        {"start__device__driver": "580.1"},
        {"start__host__name": "n02"},
        {"start__host__cores": 16},
        {"start__code": "another"},
        {"suite__commit": "another"},
        {"start__versions__torch": "2.14.0"},
        {"start__request__workers": 7},
    ],
)
def test_what_is_looked_for_or_varies_on_a_healthy_machine_ends_no_series(change: dict[str, object]) -> None:
    assert same(gpu_run(), gpu_run(**change))


@pytest.mark.parametrize(
    ("dtype", "product", "convolution", "found"),
    [
        ("fp32", "fp32", "fp32", "fp32"),
        ("fp32", "fp32", "bf16", "fp32, multiplied in bf16"),
        ("fp32", "tf32", "fp32", "fp32, multiplied in tf32"),
        ("tf32", "fp32", "tf32", "tf32"),
        ("tf32", "bf16", "tf32", "tf32, multiplied in bf16"),
        ("bf16", "bf16", "bf16", "bf16"),
        ("fp16", "tf32", "bf16", "fp16"),
        ("fp32", "fp64", None, "fp32"),
    ],
)
def test_a_run_that_multiplied_in_less_than_its_dtype_has_a_series_of_its_own(
    dtype: str, product: str, convolution: str | None, found: str
) -> None:
    formats = {"product": product, "convolution": convolution}
    run = gpu_run(start__request__dtype=dtype, start__device__multiplied_in=formats)
    assert fields_of(run)["dtype"] == found
    assert same(run, gpu_run(start__request__dtype=dtype)) == (found == dtype)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"summary__data_from": "mixed"}, "data came from storage, is mixed"),
        ({"start__world__size": 2}, "2 devices, were 4"),
        ({"start__device__name": "NVIDIA H100 80GB HBM3"}, "device is H100 80GB HBM3, was A100-SXM4-80GB"),
        ({"start__device__memory_bytes": 42_298_834_944}, "memory of a device is 40 GiB, was 80 GiB"),
        ({"start__device__name": "NVIDIA A100-SXM4-80GB MIG 1g.10gb"}, "MIG profile is 1g.10gb, was none"),
        ({"start__host__cpu_quota": 7.5}, "CPU quota is 7.5, was max"),
        ({"start__request__dtype": "fp32"}, "dtype is fp32, was bf16"),
        ({"summary__data_from": "unknown"}, "data came from storage, is not known"),
    ],
)
def test_what_was_measured_differently_is_said(change: dict[str, object], sentence: str) -> None:
    before = fields_of(gpu_run())
    now = fields_of(gpu_run(**change))
    assert differences(before, now) == [sentence]
    assert asked(before) == asked(now)
    assert measured(before) != measured(now)
    assert comparability(before) != comparability(now)


@pytest.mark.parametrize(
    ("world", "asked_for"),
    [
        ({"size": 1, "replicas": 8, "devices_per_replica": 1}, {"replicas_per_rank": 8}),
        ({"size": 2, "replicas": 4, "devices_per_replica": 2}, {"replicas_per_rank": 2, "devices_per_replica": 2}),
        ({"size": 2}, {"replicas_per_rank": 2, "devices_per_replica": 2}),  # a program that does not say it
        ({"size": 16}, {"ranks_per_device": 2}),  # as before there were replicas
    ],
)
def test_devices_are_those_that_the_ranks_drive(world: dict[str, int], asked_for: dict[str, int]) -> None:
    assert fields_of(gpu_run(start__world=world, asked=asked_for))["devices"] == 8


def test_another_workload_version_is_asked_for() -> None:
    before = fields_of(gpu_run())
    now = fields_of(gpu_run(start__workload_version=3))
    assert differences(before, now) == ["workload version is 3, was 2"]
    assert measured(before) == measured(now)
    assert asked(before) != asked(now)


def test_a_missing_field_equals_only_a_missing_field() -> None:
    known = fields_of(gpu_run())
    unknown = fields_of(gpu_run(start__host__cpu_quota=None))
    assert "cpu_quota" not in unknown
    assert comparability(known) != comparability(unknown)
    assert same(gpu_run(start__host__cpu_quota=None), gpu_run(start__host__cpu_quota=None))


def test_fields_of_other_programs_are_asked_for() -> None:
    assert asked({"environ": "gnu", "device": "A100"}) == {"environ": "gnu"}


def test_on_cpus_devices_are_the_sockets_of_all_hosts() -> None:
    assert fields_of(cpu_run())["devices"] == 2
    assert fields_of(cpu_run(start__world__hosts=3))["devices"] == 6
    assert same(cpu_run(), cpu_run(start__world__size=16))  # ranks of the same two sockets


def test_a_kernel_that_keeps_more_memory_ends_no_series() -> None:
    assert same(cpu_run(), cpu_run(start__device__memory_bytes=266_900_000_000))
    assert fields_of(cpu_run())["memory_gib"] == 256


def test_a_program_without_the_wire_has_the_fields_that_were_asked() -> None:
    run = gpu_run(benchmark=None, start={}, summary={}, asked={"request": {}})
    assert fields_of(run) == {"layout": "1x4gpu"}


def test_a_job_that_never_began_has_what_was_asked_of_it() -> None:
    fields = fields_of(gpu_run(start={}, summary={}))
    assert fields == {"benchmark": "resnet50", "layout": "1x4gpu", "configuration": "tuned"}


NOMINAL_GIB = {79.15: 80, 79.4: 80, 39.4: 40, 31.7: 32, 15.8: 16, 9.5: 10, 4.75: 5, 44.4: 48, 64: 64, 139.8: 144}
NOMINAL_GIB |= {191.98: 192, 251: 256, 253.9: 256, 503: 512, 376: 384, 1511: 1536}


@pytest.mark.parametrize(("reported_gib", "nominal"), NOMINAL_GIB.items())
def test_a_memory_is_rounded_up_to_its_nominal_size(reported_gib: float, nominal: float) -> None:
    assert rounded_gib(int(reported_gib * 2**30)) == nominal


@pytest.mark.parametrize("size", [None, 0, -1, "80 GB"])
def test_a_memory_that_is_not_known_has_no_size(size: object) -> None:
    assert rounded_gib(size) is None
