"""All-reduce and all-to-all of the GPUs of a job, with NCCL or RCCL alone.

Tool: nccl-tests, https://github.com/NVIDIA/nccl-tests, or rccl-tests, which has the same programs and prints the same.
Tried: its version of July 2026 with NCCL 2.28 on one H200, where there is nobody to talk to: what GPUs print that talk
to each other is read in public recordings. For several nodes it must be built with MPI=1, and NCCL_TESTS_START in the
`env:` of the platform's file may say what starts it, as `srun --mpi=pmix --ntasks-per-node=4` (default: srun, a task a
GPU).

Primary: bus_bandwidth of the largest message (NCCL_TESTS_BYTES, default 4G) and latency of the smallest one, 8 bytes
or more. The bus bandwidth
is what one GPU would send if a ring did the work (nccl-tests, doc/PERFORMANCE.md), so no link bounds it where switches
add (NVLS, SHARP): 480 GB/s on links of 450 GB/s is right. Where `env:` has both `NCCL_ALGO: Ring` and
`CATALOGUE_LINK_GB_S: 450`, an all-reduce above the link fails.

It fails if a value that arrived is wrong, if the ranks did not find each other, and on several nodes if NCCL says that
it went over TCP. CATALOGUE_FABRIC in `env:` asks for more: a pattern of what NCCL says, as `NET/IB.*/GDRDMA`, which is
GPUDirect, or `NET/AWS Libfabric.*`.
"""

from __future__ import annotations

import re

import pytest

from catalogue import tools

NCCL = r"""
folder=$(mktemp -d -p "$PWD" nccl.XXXXXX)
trap 'rm -rf "$folder"' EXIT
export NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,NET,P2P NCCL_DEBUG_FILE="$folder/%h.%p"
start= gpus={devices}
if [ {nodes} -gt 1 ]; then gpus=1; start=${NCCL_TESTS_START:-srun --ntasks-per-node={devices_per_node}}; fi
$start {collective}_perf -b 8 -e ${NCCL_TESTS_BYTES:-4G} -f 2 -g $gpus -c 1
echo "nodes: {nodes}, GPUs: {devices}, fabric: ${CATALOGUE_FABRIC:-(?!NET/Socket).*}"
echo "ring on links of ${CATALOGUE_LINK_GB_S:-unknown} GB/s: ${NCCL_ALGO:-no}"
cat "$folder"/* | sed -nE 's|.* via ([^/]+/[^/]+)(/[0-9]+(\([0-9]+\))?)?(/GDRDMA)?.*|transport: \1\4|p' | sort | uniq -c
"""
# size, count, type, operation, root; then time, algbw, busbw and #wrong, out of place and in place
ROW = r"^ *(?!0 )\d+ +\d+ +\w+ +\w+ +-?\d+ +(\S+) +\S+ +(\S+) +(\S+) +\S+ +\S+ +\S+ +(\S+) *$"


@pytest.mark.nightly
@pytest.mark.acceptance
@pytest.mark.parametrize("collective", ["all_reduce", "alltoall"])
@pytest.mark.workload(
    command=tools.script(NCCL, all_reduce_perf="https://github.com/NVIDIA/nccl-tests, or rccl-tests for AMD's GPUs"),
    launcher="none",
)
def test_nccl(run, record, collective):
    log = run.log.read_text()
    rows = re.findall(ROW, log, re.MULTILINE)
    ((nodes, gpus, fabric),) = re.findall(r"^nodes: (\d+), GPUs: (\d+), fabric: (.+)$", log, re.MULTILINE)
    assert gpus != "1", "one GPU has nobody to talk to: name a layout with several"
    ranks = len(set(re.findall(r"^# +Rank +(\d+) ", log, re.MULTILINE)))
    assert ranks == int(gpus), (
        f"{ranks} of {gpus} GPUs found each other: is it built with MPI=1, and what starts it for that MPI?"
    )
    assert rows, "nccl-tests printed no row"
    assert {wrong for *_, out, into in rows for wrong in (out, into)} <= {"0", "N/A"}, "values that arrived are wrong"
    transports = set(re.findall(r"^ *\d+ transport: (.+)$", log, re.MULTILINE))
    networks = {name for name in transports if name.startswith(("NET/", "P2P/MNNVL"))}  # NVLink between nodes is one
    if nodes != "1":
        assert networks, "NCCL does not say over which network it went"
        other = sorted(name for name in networks if not re.fullmatch(fabric, name))
        assert not other, f"NCCL went over {', '.join(other)}, and not as CATALOGUE_FABRIC says: {fabric}"
    latency, bandwidth = float(rows[0][0]), float(rows[-1][1])
    for link in re.findall(r"^ring on links of ([\d.]+) GB/s: (?i:ring)$", log, re.MULTILINE):
        assert bandwidth <= float(link) or collective != "all_reduce", (
            f"a ring over links of {link} GB/s cannot have {bandwidth} GB/s"
        )
    record(
        run,
        metrics={"bus_bandwidth": (bandwidth, "GB/s", "higher"), "latency": (latency, "us", "lower")},
        transports=", ".join(sorted(transports)),
    )
