"""Copies between a node and its GPUs, and inside of each GPU's memory: one GPU after the other.

Tool: nvbandwidth, https://github.com/NVIDIA/nvbandwidth, built with CUDA's compiler and Boost's program_options.
Tried: 0.8 (CUDA 13.0, driver 580) on one H200 and 16 cores. It compares what a copy has brought with what was sent.

Primary: to_gpu and from_gpu (from and to page-locked memory of the host, one way, by the copy engine) and gpu_memory
(a copy within the GPU; nvbandwidth counts its bytes once, so that the memory moves twice as many). Each is that of the
node's slowest GPU, so that one bad slot or GPU is seen. The first node alone runs it.
"""

from __future__ import annotations

import pytest

from catalogue import tools

TO_GPU, FROM_GPU, LOCAL = "host_to_device_memcpy_ce", "device_to_host_memcpy_ce", "device_local_copy"
COMMAND = f"nvbandwidth --json -t {TO_GPU} {FROM_GPU} {LOCAL}\n"
pytestmark = [pytest.mark.nightly, pytest.mark.acceptance]


@pytest.mark.workload(
    command=tools.script(COMMAND, nvbandwidth="https://github.com/NVIDIA/nvbandwidth"), launcher="none"
)
def test_nvbandwidth(run, record):
    of = tools.json_in(run.log, "nvbandwidth", "nvbandwidth 0.5 and newer", names="name")
    error = of("nvbandwidth", kind=dict).get("error")
    assert not error, f"nvbandwidth says: {error}"
    to_gpu, from_gpu, local = _rates(of, TO_GPU), _rates(of, FROM_GPU), _rates(of, LOCAL)
    record(
        run,
        metrics={
            "to_gpu": (min(to_gpu), "GB/s", "higher"),
            "from_gpu": (min(from_gpu), "GB/s", "higher"),
            "gpu_memory": (min(local), "GB/s", "higher"),
        },
        gpus=len(to_gpu),
    )


def _rates(of, case):
    status = of("nvbandwidth", "testcases", case, "status")
    assert status != "Waived", f"nvbandwidth has waived {case}: these GPUs have no such copy"
    assert status == "Passed", f"nvbandwidth says of {case}: {status}; a copy is wrong"
    matrix = of("nvbandwidth", "testcases", case, "bandwidth_matrix", kind=list)
    rates = [float(cell) for row in matrix for cell in row if cell != "N/A"]
    gpus = max(1, len(of("nvbandwidth").get("GPU Device list", [])))
    assert len(rates) >= gpus, f"nvbandwidth measured {case} of {len(rates)} GPUs, and there are {gpus}"
    return rates
