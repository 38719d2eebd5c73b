"""What a user waits for before anything is computed: an empty job, and `import torch`, cold and warm.

Tool: none but Python; torch is the one of the job's Python. Tried: torch 2.13.0 (CPU) on ext4, on a virtual machine
with two cores, in pods there, with torch in their image, and through Slurm on two nodes that shared this machine. Not
tried: a network's storage.

`import torch` runs on every node of the layout: on Slurm by `srun`, one task a node, on Kubernetes in each pod. Nodes
or pods that share a machine share its page cache: what one of them imports is not cold, and the test may fail.

Cold: the files of torch's folder have left the page cache of the node; the test fails if nothing was fetched from
storage (test_fio.py says on which file systems). Files that another program of the node maps do not leave it, those of
an image that is one file (Apptainer's) may come from its pages in memory, and the servers of a network's storage have
caches of their own. Warm: the next import, in a process of its own.

Primary: cold_import and warm_import, the seconds of the slowest node. On Slurm, empty_step: an srun, one task a node,
that does nothing. Elsewhere empty_job: the seconds from the start to the end of a job that does nothing, as the suite
has them, without the queue. Less than 0.1 s is recorded as 0.1 s. Pods have whole seconds, and less than 1 s is 1 s.
"""

from __future__ import annotations

import pytest

from catalogue import tools
from platforms.results import numbers, one_number, plain_text

IMPORTS = """
import importlib.util, os, pathlib, resource, subprocess, sys, time
(folder,) = importlib.util.find_spec("torch").submodule_search_locations
for path in pathlib.Path(folder).rglob("*"):
    if path.is_file():
        with path.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
print("one node of", sys.argv[1], "imports torch", flush=True)
subprocess.run(["stat", "-f", "-c", "file system: %T", folder], check=True)
for name in ("cold", "warm"):
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_inblock
    begin = time.perf_counter()
    subprocess.run([sys.executable, "-c", "import torch"], check=True)
    seconds = time.perf_counter() - begin
    fetched = (resource.getrusage(resource.RUSAGE_CHILDREN).ru_inblock - before) * 512
    print(f"{name} import: {seconds:.3f} s, {fetched} bytes fetched from storage", flush=True)
"""
EACH_NODE = 'exec ${SLURM_JOB_ID:+srun --ntasks-per-node=1} "$0" -c "$1" "$2"'
pytestmark = [pytest.mark.nightly, pytest.mark.acceptance]


@pytest.mark.workload(command=["sh", "-c", EACH_NODE, "{python}", IMPORTS, "{nodes}"], launcher="none")
def test_import_torch(run, record):
    fetched = numbers(run.log, r"^cold import: .* s, (\d+) bytes")
    if tools.counts(run.log):
        assert min(fetched) > 10e6, "the first import was not cold: almost nothing was fetched from storage"
    cold, warm = numbers(run.log, r"^cold import: ([\d.]+) s,"), numbers(run.log, r"^warm import: ([\d.]+) s,")
    nodes = max(numbers(run.log, r"^one node of (\d+) imports torch$"))
    assert len(cold) == len(warm) == nodes, f"of {nodes:.0f} nodes, {len(cold)} tell a cold import, {len(warm)} a warm"
    record(
        run,
        metrics={"cold_import": (max(cold), "s", "lower"), "warm_import": (max(warm), "s", "lower")},
        nodes_imported=len(cold),
    )


EMPTY = """
[ -n "${SLURM_JOB_ID:-}" ] || exit 0
begin=$(date +%s%N)
srun --ntasks-per-node=1 true
echo "empty step: $((($(date +%s%N) - begin) / 1000)) us"
"""


@pytest.mark.workload(command=["sh", "-ec", EMPTY], launcher="none")
def test_empty_job(run, record):
    if "empty step: " in plain_text(run.log):
        microseconds = one_number(run.log, r"^empty step: (\d+) us$")
        record(run, metrics={"empty_step": (microseconds / 1e6, "s", "lower")}, empty_job_s=run.status.run_s)
    else:
        shortest = 1.0 if float(run.status.run_s).is_integer() else 0.1
        record(run, metrics={"empty_job": (max(shortest, run.status.run_s), "s", "lower")})
