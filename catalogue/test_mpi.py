"""A ping-pong of two MPI ranks: latency of small messages, bandwidth of large ones.

Tool: NetPIPE, Debian's package netpipe-openmpi, of http://www.scl.ameslab.gov/Projects/NetPIPE. OSU's and Intel's
benchmarks, which also have collectives, are not in Debian. Tried: 3.7.2 with OpenMPI 4.1.4, both Debian 12's, on a
virtual machine with two cores, in a pod there, and on two nodes of a Slurm on that machine, so that no network was
measured.

The ranks are on two nodes where the layout has several. Where mpirun knows its own node alone, as in a pod, such a job
is an ERROR. In a container whose user is root OpenMPI needs OMPI_ALLOW_RUN_AS_ROOT: 1 and
OMPI_ALLOW_RUN_AS_ROOT_CONFIRM: 1 in the `env:` of the platform's file.

Primary: latency (half of a round trip of 8 bytes) and bandwidth (of messages of 4 MiB, one way at a time). That of
1 MiB stands beside them. A second run of NetPIPE compares what arrives with what was sent.
"""

from __future__ import annotations

import re

import pytest

from catalogue import tools
from platforms.results import one_number, plain_text

NETPIPE = f"""
run="mpirun --oversubscribe --mca mpi_yield_when_idle 0 --map-by node -n 2"  # a job of Slurm has one slot a node
nodes={{nodes}}
[ "$nodes" = 1 ] || nodes=2
{tools.ON_NODES}
results=$(mktemp)
trap 'rm -f "$results"' EXIT
$run NPopenmpi -i -l 8 -u 1048576 -n 3 -p 0 -o /dev/null
$run NPopenmpi -l 8 -u 4194304 -p 0 -o "$results"
echo "bytes, Mbps and seconds:"
cat "$results"
"""
RATE, SECONDS = r"^ *%d +([\d.]+) +[\d.]+ *$", r"^ *%d +[\d.]+ +([\d.]+) *$"
pytestmark = [pytest.mark.nightly, pytest.mark.acceptance]


@pytest.mark.workload(
    command=tools.script(NETPIPE, NPopenmpi="Debian's package netpipe-openmpi", mpirun="Debian's package openmpi-bin"),
    launcher="none",
)
def test_ping_pong(run, record):
    tools.assert_copies(run.log)
    checks = re.findall(r"Integrity check (\w+)", plain_text(run.log))
    assert checks, "NetPIPE compared nothing"
    assert set(checks) == {"passed"}, "what arrived is not what was sent"
    seconds = one_number(run.log, SECONDS % 8)
    at_1_mib, bandwidth = one_number(run.log, RATE % (1 << 20)), one_number(run.log, RATE % (1 << 22))
    gigabytes = 2**20 / 8e9  # NetPIPE's Mbps are 2^20 bits
    record(
        run,
        metrics={"latency": (seconds * 1e6, "us", "lower"), "bandwidth": (bandwidth * gigabytes, "GB/s", "higher")},
        gb_per_s_at_1_mib=at_1_mib * gigabytes,
    )
