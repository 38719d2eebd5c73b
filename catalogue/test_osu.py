"""All-reduce and all-to-all of MPI ranks, by the OSU Micro-Benchmarks.

Tool: https://mvapich.cse.ohio-state.edu/benchmarks/, version 7.1 or newer, built with the site's MPI; Debian has no
package of it. The folder of `osu_allreduce` and `osu_alltoall` (libexec/osu-micro-benchmarks/mpi/collective) is on the
job's PATH: by `modules:` of the platform's file, or by PATH in its `env:`. Tried: 7.4 by Debian 12's OpenMPI 4.1.4 on a
virtual machine with two cores: two ranks there and in a pod, and ranks on two nodes of a Slurm on that machine, so
that no network was measured.

README.md says which ranks run. Messages are in the host's memory. The data are floats, as gradients are: OSU's default
are bytes, and a sum that does not fit into a byte is wrong in OpenMPI on CPUs with AVX (open-mpi/ompi#8045; seen here).

Primary: allreduce (the time of 8 bytes), allreduce_16_mib (of 16 MiB), alltoall_64_kib (each rank sends 64 KiB to each
other one). OSU's times are means of all calls and ranks; the P99 of the first stands beside it. Runs of their own
compare what arrives.

There is no ceiling here. A link's would hold for the ring and Rabenseifner's algorithm, with one rank a node: of n
ranks each sends 2 (n - 1) / n of the message. Others send more, SHARP's switches need less, and OSU does not say which
algorithm MPI has taken.
"""

from __future__ import annotations

import re
from collections import Counter

import pytest

from catalogue import tools
from platforms.results import one_number, plain_text

OSU = """
osu() { program=$(command -v "osu_$1"); shift; $run "$program" -T mpi_float -f "$@"; }
osu allreduce -c -i 10 -x 2 -u 1 -m 4:16777216
osu alltoall -c -i 10 -x 2 -u 1 -m 4:65536
osu allreduce -z -m 8:8
osu allreduce -z -m 16777216:16777216
osu alltoall -z -m 65536:65536
"""
SOURCE = "https://mvapich.cse.ohio-state.edu/benchmarks/: see catalogue/test_osu.py"
MEAN = r"^%d +([\d.]+) +[\d.]+ +[\d.]+ +\d+ +[\d.]+ +[\d.]+ +[\d.]+$"
P99 = r"^8 +[\d.]+ +[\d.]+ +[\d.]+ +\d+ +[\d.]+ +[\d.]+ +([\d.]+)$"
pytestmark = [pytest.mark.nightly, pytest.mark.acceptance]


@pytest.mark.workload(command=tools.ranks(OSU, osu_allreduce=SOURCE, osu_alltoall=SOURCE), launcher="none")
def test_collectives(run, record):
    tools.assert_copies(run.log)
    checks = Counter(re.findall(r"^(\d+) .* (Pass|Fail)$", plain_text(run.log), re.MULTILINE))
    assert {said for _, said in checks} <= {"Pass"}, "what arrived is not what was sent, or not its sum"
    for size, collectives in ((8, 2), (64 << 10, 2), (16 << 20, 1)):  # all-to-all ends at 64 KiB
        compared = checks[str(size), "Pass"]
        assert compared == collectives, f"OSU compared {size} bytes in {compared} of {collectives} collectives"
    latency, p99 = one_number(run.log, MEAN % 8), one_number(run.log, P99)
    large, alltoall = one_number(run.log, MEAN % (16 << 20)), one_number(run.log, MEAN % (64 << 10))
    record(
        run,
        metrics={
            "allreduce": (latency, "us", "lower"),
            "allreduce_16_mib": (large, "us", "lower"),
            "alltoall_64_kib": (alltoall, "us", "lower"),
        },
        allreduce_p99_us=p99,
    )
