"""An all-reduce of torch's gloo: of processes on CPUs, through torch and TCP.

Tool: PARAM, https://github.com/facebookresearch/param, as torch has no benchmark of its own; a link of the name
`param_bench` to its checkout stands in a folder that PYTHONPATH in the `env:` of the platform's file names. Tried: its
commit 1e115ff of June 2026 with torch 2.13 (CPU) on a virtual machine with two cores: two ranks there and in a pod,
four on two nodes of a Slurm on that machine, and on two pods there.

Ranks are those of the layout, as in training: on one node `ranks_per_device: 2` makes two. On several, gloo takes the
interface of the node's name; `env: {GLOO_SOCKET_IFNAME: ib0}` names another one.

Primary: allreduce (the time of 8 bytes) and allreduce_16_mib (of 16 MiB): means of all calls, the median of the ranks.
PARAM compares the sum of each size, and ends with an error where it is wrong.
"""

from __future__ import annotations

import pytest

from platforms.results import numbers, one_number

PARAM = (
    "-m param_bench.train.comms.pt.comms --backend gloo --device cpu --collective all_reduce --begin-size 8 "
    "--end-size 16M --f 8 --num_iters 50 --w 5 --blocking 1 --c 1"
)
TIME = r"^\s*COMMS-RES-all_reduce-float32 +%d +\d+ +([\d.]+)(?: +[\d.]+){3,} *$"
pytestmark = [pytest.mark.nightly, pytest.mark.acceptance]


@pytest.mark.workload(command=["{python}", *PARAM.split()], launcher="torchrun")
def test_all_reduce(run, record):
    assert min(numbers(run.log, r"world_size: (\d+)")) > 1, (
        "one rank reduces nothing: ranks_per_device: 2, or two nodes"
    )
    latency, large = one_number(run.log, TIME % 8), one_number(run.log, TIME % (16 << 20))
    record(run, metrics={"allreduce": (latency, "us", "lower"), "allreduce_16_mib": (large, "us", "lower")})
