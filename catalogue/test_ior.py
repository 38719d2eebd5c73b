"""Storage by all nodes of a layout at once: IOR writes and reads data, mdtest makes, looks up and removes files.

Tool: https://github.com/hpc/ior, version 4.0.0 or newer, built with the site's MPI; Debian has no package of it. `ior`
and `mdtest` are on the job's PATH. Tried: 4.0.0 and the main branch of April 2026 with Debian 12's OpenMPI 4.1.4 on a
virtual machine with two cores, on ext4: two ranks there, and with the latter in a pod, and ranks on two nodes of a
Slurm on that machine. Not tried: Lustre, GPFS, NFS.

README.md says which ranks run. They write into the platform's `data_dir:`, or into the folder CATALOGUE_SCRATCH of the
`env:` of its file, which each node can write. IOR_SIZE there (default 1g) is what each rank writes into a file of its
own, MDTEST_FILES (default 2000) the number of its empty files. The server of a network's storage has a cache, which no
client sees: let the ranks together write more.

Primary of IOR: write (until the storage has all of it) and read, of all ranks together. What was written is read back
and compared, apart from both. Data are IOR's `random` ones: those that it calls `incompressible` gzip makes a
hundredth of.

The page cache of a client must not answer. I/O is direct, and on several nodes each rank reads what another node has
written. On one node the test fails if the kernel counts less than was read as fetched from storage, as on tmpfs
(test_fio.py says on which file systems).

Primary of mdtest: create, stat, remove, of all ranks together. On several nodes each rank looks up files that another
node has made, else the test fails. On one node stat is a number of the client's memory, and stands apart.
"""

from __future__ import annotations

import re

import pytest

from catalogue import tools
from platforms.results import numbers, one_number, plain_text

IOR = """
$run sh -ec '"$0" "$@"; grep ^read_bytes /proc/$$/io' "$(command -v ior)" -a POSIX --posix.odirect \\
  -w -W -r -C -e -F -k -l random -G 1 -t 4m -b "${IOR_SIZE:-1g}" -o "$folder/data" \\
  -O summaryFormat=JSON -O summaryFile="$folder/summary"
cat "$folder/summary"
"""
# -N 1: each rank looks up the files of a rank of the next node; on one node, of the next rank.
MDTEST = """
$run "$(command -v mdtest)" -F -C -T -r -u -N 1 -n "${MDTEST_FILES:-2000}" -d "$folder"
"""
PHASE = r"^ +File %s +[\d.]+ +[\d.]+ +([\d.]+) +[\d.]+ *$"
SOURCE = "https://github.com/hpc/ior: see catalogue/test_ior.py"
pytestmark = [pytest.mark.nightly, pytest.mark.acceptance]


@pytest.mark.workload(
    command=tools.ranks(tools.SCRATCH + IOR + tools.compressed('"$folder/data.00000000"'), ior=SOURCE), launcher="none"
)
def test_ior(run, record):
    of = tools.json_in(run.log, "Version", "IOR 4.0.0 and newer", names="operation")
    assert "Incorrect data" not in plain_text(run.log), "what is read back is not what was written"
    fetched = numbers(run.log, r"^read_bytes: (\d+)$")
    write, read = _rate(of, "write", len(fetched)), _rate(of, "read", len(fetched))
    if of("tests", 0, "Parameters", "nodes") == 1:
        bytes_read = 2 * of("summary", "read", "xsizeMiB") * 2**20  # once to compare, once to measure
        tools.assert_from_storage(run.log, sum(fetched), bytes_read)
    tools.assert_incompressible(run.log)
    record(run, metrics={"write": (write, "GB/s", "higher"), "read": (read, "GB/s", "higher")})


def _rate(of, phase, ranks):
    tasks = of("summary", phase, "numTasks")
    assert tasks == ranks, f"{ranks} ranks say what they fetched, and IOR has {tasks} in its {phase}"
    asked = tasks * of("summary", phase, "blockSize") * of("summary", phase, "segmentCount")
    moved = of("summary", phase, "xsizeMiB", kind=float) * 2**20
    assert moved == asked, f"IOR was asked to {phase} {asked} bytes, and moved {moved:.0f}"
    return of("summary", phase, "bwMeanMIB", kind=float) * 2**20 / 1e9


@pytest.mark.workload(command=tools.ranks(tools.SCRATCH + MDTEST, mdtest=SOURCE), launcher="none")
def test_mdtest(run, record):
    log = plain_text(run.log)
    is_read = re.search(r"^mdtest-(?![0-3]\.)\S+ was launched", log, re.MULTILINE)
    assert is_read, "read is mdtest 4.0.0 and newer: before, its rate was the mean of its ranks"
    maps = re.findall(r"^Nodemap: ([01]+)$", log, re.MULTILINE)  # 1: a rank that is there
    assert len(maps) == 1, f"mdtest printed {len(maps)} lines `Nodemap`: did its ranks find each other?"
    first_node, shift = maps[0], int(one_number(log, r"Shifting ranks by (\d+)"))
    several, makers = "0" in first_node, first_node[shift:] + first_node[:shift]
    own = ("1", "1") in zip(first_node, makers, strict=True)
    assert not (several and own), (
        "nodes look their own files up: let the first ranks be on one node, the next on another"
    )
    create, remove = one_number(log, PHASE % "creation"), one_number(log, PHASE % "removal")
    stat = one_number(log, PHASE % "stat")
    metrics = {"create": (create, "files/s", "higher"), "remove": (remove, "files/s", "higher")}
    record(run, metrics=metrics, stat_files_per_s=stat)
    if several:
        record(run, metrics={"stat": (stat, "files/s", "higher")})
