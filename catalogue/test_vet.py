"""Matrix products and copies in memory of each node: some seconds, to see which node of a fleet is slower.

Tool: the suite's own `vet job` (models/vet_job.py), with the torch of the job's Python: it is in the code archive that
each job gets, unless the platform's file says `node_facts: false`. Not tried on GPUs.

`--each-node` visits the nodes, and the history of all of them judges (docs/nodes.md): one node alone says nothing.

Primary: products (GFLOP/s, fp32 on a processor, on GPUs the best dtype) and copies (GB/s, read and written). Each is
the median of all calls of about a second; of several devices the slowest one's.
"""

from __future__ import annotations

import pytest

from platforms.results import numbers

ARCHIVE = "${HPC_ML_BENCH_MODELS:?the platform has node_facts: false}"
VET = f'exec "$0" "{ARCHIVE}" vet job --known OMP_NUM_THREADS --unfit /dev/null'  # its number counts, also if it is low


@pytest.mark.acceptance
@pytest.mark.workload(command=["sh", "-c", VET, "{python}"], launcher="none")
def test_vet(run, record):
    begun = numbers(run.log, r"vet: device (\d+)")
    products = numbers(run.log, r"^vet: device \d+: matrix products ([\d.]+) GFLOP/s, copies [\d.]+ GB/s$")
    copies = numbers(run.log, r"^vet: device \d+: matrix products [\d.]+ GFLOP/s, copies ([\d.]+) GB/s$")
    assert len(products) == len(begun), f"{len(products)} of {len(begun)} lines `vet: device` are whole"
    record(
        run,
        metrics={"products": (min(products), "GFLOP/s", "higher"), "copies": (min(copies), "GB/s", "higher")},
        devices_measured=len(products),
    )
