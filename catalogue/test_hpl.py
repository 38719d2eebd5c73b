"""HPL on the CPUs of one node, with the DGEMM and the STREAM of the same program.

Tool: HPC Challenge, Debian's package hpcc or https://hpcchallenge.org; it needs an MPI (Debian: openmpi-bin).
Tried: hpcc 1.5.0 with OpenMPI 4.1.4, both Debian 12's, on a virtual machine with two cores.

One rank runs on each core of the first node that the job may use. The BLAS is the one that hpcc finds: Debian's own,
libblas3, is the reference, and not made for speed. `HPCC_N` in the `env:` of the platform's file is the order of the
matrix: 8 N^2 bytes, for HPL at its best 80 % of the memory, and at least so much that STREAM's arrays do not fit into
the last cache. Other N are other numbers: choose it once. hpcc runs its whole set, so that small nodes take minutes.

Primary: hpl. dgemm and stream say which of two it is, where hpl gets worse: the cores, or the memory. They are means of
all ranks, which run at the same time, and stream is that of all together.
"""

from __future__ import annotations

import re

import pytest

from catalogue import tools
from platforms.results import one_number, plain_text

INPUT = """HPL input
one comment
HPL.out
6 device
1 Ns
${HPCC_N:-20000} N
1 NBs
${HPCC_NB:-192} NB
0 PMAP
1 grids
$p P
$((n / p)) Q
16.0 threshold
1 PFACTs
2 PFACT
1 NBMINs
4 NBMIN
1 NDIVs
2 NDIV
1 RFACTs
1 RFACT
1 BCASTs
1 BCAST
1 DEPTHs
1 DEPTH
2 SWAP
64 swapping threshold
0 L1
0 U
1 equilibration
8 alignment
end of HPL
0 more of PTRANS
0
0 blocks of PTRANS
0
"""
HPCC = f"""{tools.CORES}{tools.CACHE}
export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1
n=${{HPCC_RANKS:-$cores}}
p=$(awk -v n="$n" 'BEGIN {{ for (p = int(sqrt(n)); n % p; p--); print p }}')
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
cat > hpccinf.txt <<END
{INPUT}END
mpirun --oversubscribe --mca mpi_yield_when_idle 0 --map-by "ppr:$n:node" -n "$n" hpcc
cat hpccoutf.txt
"""
pytestmark = [pytest.mark.nightly, pytest.mark.acceptance]


@pytest.mark.workload(
    command=tools.script(HPCC, hpcc="Debian's package hpcc", mpirun="Debian's package openmpi-bin"),
    launcher="none",
    time_limit="2h",
)
def test_hpl(run, record):
    tools.assert_copies(run.log)
    log = plain_text(run.log)
    summary = re.search(r"^Begin of Summary section\.\n((?:.*=.*\n)+)End of Summary section\.$", log, re.MULTILINE)
    assert summary, "the log has no whole summary of hpcc (1.4 and 1.5 are read): HPL alone, xhpl, prints none"
    assert set(re.findall(r"^\|\|Ax-b\|\|.*\.\. (\w+)$", log, re.MULTILINE)) == {"PASSED"}, "HPL's residual is wrong"
    assert "Success=1\n" in summary[1], "hpcc says that one of its tests is wrong: see the log for `error` and `FAILED`"

    def of(name):
        return one_number(summary[1], rf"^{name}=(\S+)$")

    ranks, vector = of("CommWorldProcs"), of("STREAM_VectorSize")
    cache = one_number(log, r"^last cache: +(\d+) bytes")
    assert 8 * vector * ranks >= 4 * cache, "STREAM measured a cache: let HPCC_N in the platform's `env:` be larger"
    metrics = {
        "hpl": (1000 * of("HPL_Tflops"), "GFLOP/s", "higher"),
        "stream": (ranks * of("StarSTREAM_Triad"), "GB/s", "higher"),
    }
    record(run, metrics=metrics, dgemm_gflops=of("StarDGEMM_Gflops"))
