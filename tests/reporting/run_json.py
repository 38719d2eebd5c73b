"""A run.json as a job on one GPU node writes it, for tests that change a few of its values."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

WINDOW = {"samples": 4000, "steps": 50, "wall_s": 10.0, "stall_s": 0.5, "compute_s": 9.5}
GPU: Mapping[str, Any] = {
    "schema": 1,
    "name": "resnet50-1x4gpu-k2moumhl",
    "test": "test_resnet50.py::test_resnet50[a100-1x4gpu-tuned]",
    "platform": "a100",
    "benchmark": "resnet50",
    "layout": "1x4gpu",
    "outcome": "passed",
    "job_id": "4711",
    "nodes": ["n01"],
    "submitted_s": 1795385019.8,
    "started_s": 1795385573.2,
    "ended_s": 1795385678.2,
    "effective_throughput": 400.0,
    "spread_within_job": 0.01,
    "read_by_test": [],
    "metrics": {},
    "windows": [WINDOW, WINDOW, WINDOW],
    "start": {
        "benchmark": "resnet50",
        "workload_version": 2,
        "code": "298e77ff0e90",
        "request": {
            "configuration": "tuned",
            "size": "subset",
            "mode": "overlap",
            "variant": "v1.5",
            "dtype": "bf16",
            "workers": 15,
            "global_batch_size": 1024,
            "accumulation_steps": 1,
        },
        "device": {
            "type": "cuda",
            "name": "NVIDIA A100-SXM4-80GB",
            "count": 8,
            "memory_bytes": 84987740160,
            "driver": "550.54",
        },
        "world": {"size": 4, "nodes": 1, "hosts": 1, "backend": "nccl", "launcher": "torchrun"},
        "versions": {"python": "3.11.7", "torch": "2.13.0", "cuda": "12.8"},
        "host": {"name": "n01", "cpu": "AMD EPYC 7742", "cores": 64, "cpu_quota": "max", "threads": 16},
        "data": {"folder": "/data/imagenet", "decoder": "simplejpeg"},
    },
    "summary": {
        "data_from": "storage",
        "health": {
            "before": {"power_limit_w": 400.0, "clock_max_mhz": 1410},
            "after": {"power_limit_w": 400.0, "clock_max_mhz": 1410},
            "throttled": {"rank 0": ["power cap"]},
        },
    },
    "warnings": [],
    "asked": {"arguments": ["train", "resnet50"], "ranks_per_device": 1, "request": {"configuration": "tuned"}},
    "suite": {"commit": "d3830d8"},
}


def gpu_run(**changes: object) -> dict[str, Any]:
    """The run.json with other values: `start__device__name="…"` changes a nested one."""
    run = copy.deepcopy(dict(GPU))
    for path, value in changes.items():
        *parts, last = path.split("__")
        place: Any = run
        for part in parts:
            place = place[part]
        place[last] = value
    return run


def cpu_run(**changes: object) -> dict[str, Any]:
    """The same job on a node of two sockets, which is one device of a layout."""
    device = {"type": "cpu", "name": "AMD EPYC 7742 64-Core", "count": 2, "memory_bytes": 269_500_000_000}
    world = {"size": 8, "nodes": 1, "hosts": 1}
    on_cpus = {"layout": "1x1cpu", "start__device": device, "start__world": world, "asked__ranks_per_device": 8}
    return gpu_run(**{**on_cpus, **changes})
