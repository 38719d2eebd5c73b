"""All-reduce and all-to-all of the GPUs of a job, with NCCL or RCCL alone.

Tool: nccl-tests, https://github.com/NVIDIA/nccl-tests, or rccl-tests, which has the same programs and prints the same.
Tried: its version of July 2026 with NCCL 2.28 on one H200, where there is nobody to talk to: what GPUs print that talk
to each other is read in public recordings. For several nodes it must be built with MPI=1, and NCCL_TESTS_START in the
`env:` of the platform's file may say what starts it, as `srun --mpi=pmix --ntasks-per-node=4` (default: srun, a task a
GPU).

Primary: bus_bandwidth of the largest message (NCCL_TESTS_BYTES, default 4G) and latency of the smallest one, 8 bytes
or more. The bus bandwidth is what one GPU would send if a ring did the work (nccl-tests, doc/PERFORMANCE.md), so no
link bounds it where switches add (NVLS, SHARP): 480 GB/s on links of 450 GB/s is right. Where `env:` has both
`NCCL_ALGO: Ring` and `CATALOGUE_LINK_GB_S: 450`, an all-reduce above the link fails.

It fails if a value that arrived is wrong or was not compared, if the ranks did not find each other, if the row of the
smallest or of the largest message is not there (nccl-tests takes smaller ones where the memory does not suffice), and
on several nodes if NCCL went over a network that is not known to be fast (FAST below), as TCP. CATALOGUE_FABRIC in
`env:` takes its place: a pattern of what NCCL says, as `NET/IB.*/GDRDMA`, which is GPUDirect, or `NET/MyPlugin`.
"""

from __future__ import annotations

import re

import pytest

from catalogue import tools
from platforms.results import one_number, plain_text

NCCL = r"""
folder=$(mktemp -d -p "$PWD" nccl.XXXXXX)
trap 'rm -rf "$folder"' EXIT
export NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,NET,P2P NCCL_DEBUG_FILE="$folder/%h.%p"
start= gpus={devices}
if [ {nodes} -gt 1 ]; then gpus=1; start=${NCCL_TESTS_START:-srun --ntasks-per-node={devices_per_node}}; fi
$start {collective}_perf -b 8 -e ${NCCL_TESTS_BYTES:-4G} -f 2 -g $gpus -c 1
echo "nodes: {nodes}, GPUs: {devices}, fabric: ${CATALOGUE_FABRIC:-a known fast network}"
echo "ring on links of ${CATALOGUE_LINK_GB_S:-unknown} GB/s: ${NCCL_ALGO:-no}"
name='(NET|P2P|SHM)/(AWS Libfabric|direct pointer|[^/ ]+)'
cat "$folder"/* | sed -nE -e "s#.* via ($name)(/[0-9]+(\([0-9]+\))?)?(/GDRDMA)?.*#transport: \1\6#p" \
  -e 's#.*NET/OFI Selected [Pp]rovider is ([a-z0-9]+).*#transport: OFI/\1#p' | sort | uniq -c
"""
# What NCCL, RCCL and their plugins call networks other than the kernel's TCP; behind OFI/, the providers of libfabric.
FAST = (
    r"NET/(IB(ext(_v\d+)?|-CAST)?|gIB|SPCX|RCCL-ANP|FasTrak|UCX[\w-]*|PSM[23]|(AWS )?Libfabric|OFI)(/GDRDMA)?"
    r"|NET/[\w-]*(?i:cxi|slingshot)[\w-]*(/GDRDMA)?|P2P/MNNVL|OFI/(efa|cxi|verbs|opx|psm[23]|gni)"
)
KNOWN = "a known fast network"
# size, count, type, operation, root; then time, algbw, busbw and #wrong, out of place and in place. Before 2.12 there
# is no root, and all-to-all has no operation.
TIMES = r" +(\d[\d.e+]*) +\d[\d.e+]* +(\d[\d.e+]*) +(\d[\d.e+-]*|N/A)"
ROW = rf"^ *(\d+) +\d+ +\w+(?: +[a-z]+)?(?: +-?\d+)?{TIMES}{TIMES} *$"
pytestmark = [pytest.mark.nightly, pytest.mark.acceptance]


@pytest.mark.parametrize("collective", ["all_reduce", "alltoall"])
@pytest.mark.workload(
    command=tools.script(NCCL, all_reduce_perf="https://github.com/NVIDIA/nccl-tests, or rccl-tests for AMD's GPUs"),
    launcher="none",
)
def test_nccl(run, record, collective):
    log = plain_text(run.log)
    nodes, gpus = one_number(log, r"^nodes: (\d+), GPUs: "), one_number(log, r"^nodes: \d+, GPUs: (\d+), fabric: ")
    assert gpus != 1, "one GPU has nobody to talk to: name a layout with several"
    ranks = len(set(re.findall(r"^# +Rank +(\d+) ", log, re.MULTILINE)))
    assert ranks == gpus, (
        f"{ranks} of {gpus:.0f} GPUs found each other: is it built with MPI=1, and what starts it for that MPI?"
    )
    asked = re.search(r"minBytes:? (\d+) maxBytes:? (\d+) step:? 2\(factor\)", log)
    assert asked, "nccl-tests does not say what it was asked for: `minBytes 8 maxBytes … step: 2(factor)`"
    least, most = int(asked[1]), int(asked[2])
    rows = [(int(size), *row) for size, *row in re.findall(ROW, log, re.MULTILINE)]
    empty = sum(size == 0 for size, *_ in rows)  # of an all-to-all, which has less than a value for each rank
    smallest = _row(log, rows, least << empty)
    largest = _row(log, rows, least << (most // least).bit_length() - 1)
    wrong = {(out, into) for size, _, _, out, _, _, into in rows if size}
    assert all(out != "N/A" for out, _ in wrong), "nccl-tests compared nothing that arrived: #wrong is N/A"
    # Before 2.13 the columns say how far a sum is off, and the end of the log whether that is too far.
    right = wrong <= {("0", "0"), ("0", "N/A")} if "#wrong" in log else "# Out of bounds values : 0 OK" in log
    assert right, "values that arrived are wrong"
    transports = set(re.findall(r"^ *\d+ transport: (.+)$", log, re.MULTILINE))
    if nodes != 1:
        fabric = re.search(r"^nodes: .*, fabric: (.+)$", log, re.MULTILINE)[1]
        # NVLink between nodes is a network, too.
        networks = {name for name in transports if name.startswith(("NET/", "P2P/MNNVL"))}
        assert networks, "NCCL does not say over which network it went"
        providers = {name for name in transports if name.startswith("OFI/") and fabric == KNOWN}
        right = FAST if fabric == KNOWN else fabric
        other = ", ".join(sorted(name for name in networks | providers if not re.fullmatch(right, name)))
        assert not other, (
            f"NCCL went over {other}, and not as CATALOGUE_FABRIC says: {fabric}. If it is right, write "
            f"`CATALOGUE_FABRIC: {'|'.join(sorted(networks))}` into the `env:` of the platform's file"
        )
    latency, bandwidth = float(smallest[1]), float(largest[2])
    for link in re.findall(r"^ring on links of ([\d.]+) GB/s: (?i:ring)$", log, re.MULTILINE):
        assert bandwidth <= float(link) or collective != "all_reduce", (
            f"a ring over links of {link} GB/s cannot have {bandwidth} GB/s"
        )
    record(
        run,
        metrics={"bus_bandwidth": (bandwidth, "GB/s", "higher"), "latency": (latency, "us", "lower")},
        transports=", ".join(sorted(transports)),
    )


def _row(log, rows, size):
    """Return the row of a message that was asked for; an all-to-all leaves away what does not divide by the ranks."""
    found = [row for row in rows if size / 2 < row[0] <= size]
    reduced = re.search(r"^# (Reducing maxBytes to \d+)", log, re.MULTILINE)
    assert len(found) == 1, (
        f"nccl-tests was asked for {size} bytes, and printed {len(found)} whole rows of them"
        f"{f' ({reduced[1]}: let NCCL_TESTS_BYTES be smaller)' if reduced else ''}"
    )
    return found[0]
