"""STREAM: the bandwidth of the memory of the first node, by all of its cores.

Tool: stream.c of https://www.cs.virginia.edu/stream/, version 5.10; Debian has no package of it. `STREAM_C` in the
`env:` of the platform's file names the file where the job sees it; the job compiles it (`STREAM_CC`, default gcc, with
`STREAM_CFLAGS`). Tried: 5.10 by gcc 12.2, on a virtual machine with two cores and a last cache of 32 MiB.

Each of the three arrays has four times the size of the node's last caches together, as the rules of STREAM say, with
elements of 8 bytes: leave STREAM_TYPE alone. Where lscpu knows no cache, CATALOGUE_CACHE in that `env:` has its bytes.
STREAM checks its own results.

Primary: triad, the best of ten repetitions, with one thread on each core that the job may use. gcc makes no streaming
stores, and vendors' figures are of compilers that do: STREAM_CC and STREAM_CFLAGS name one.
"""

from __future__ import annotations

import pytest

from catalogue import tools
from platforms.results import one_number, plain_text

STREAM = f"""{tools.CORES}{tools.CACHE}
export OMP_NUM_THREADS="$cores" OMP_PROC_BIND=spread OMP_PLACES=cores
"""
STREAM += """
[ -f "$STREAM_C" ] || { echo "STREAM_C in the platform's env: names no file: get stream.c from" \\
  "https://www.cs.virginia.edu/stream/ and write its path there"; exit 127; }
binary=$(mktemp)
trap 'rm -f "$binary"' EXIT
case $(uname -m) in x86_64) model=-mcmodel=medium ;; *) model= ;; esac
"${STREAM_CC:-gcc}" ${STREAM_CFLAGS:--O3 -march=native -fopenmp} $model -DSTREAM_ARRAY_SIZE=$((cache / 2)) \\
  -o "$binary" "$STREAM_C"
"$binary"
"""
ROW = r"^%s: +([\d.]+) +[\d.]+ +[\d.]+ +[\d.]+ *$"
pytestmark = [pytest.mark.nightly, pytest.mark.acceptance]


@pytest.mark.workload(command=tools.script(STREAM, lscpu="Debian's package util-linux"), launcher="none")
def test_stream(run, record):
    log = plain_text(run.log)
    assert "Solution Validates" in log, "STREAM says that its results are wrong"
    cache, elements = one_number(log, r"^last cache: +(\d+) bytes"), one_number(log, r"^Array size = (\d+)")
    each = one_number(log, r"(\d+) bytes per (?:array element|DOUBLE PRECISION word)")
    assert each * elements >= 4 * cache, (
        f"arrays of {each * elements:.0f} bytes, {each:.0f} an element: STREAM measured a cache of {cache:.0f}"
    )
    copy, triad = one_number(log, ROW % "Copy"), one_number(log, ROW % "Triad")
    record(run, metrics={"triad": (triad / 1000, "GB/s", "higher")}, copy_gb_per_s=copy / 1000)
