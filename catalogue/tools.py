"""What the tests of this folder share: the shell script of a job, its MPI ranks, what is read from its log."""

from __future__ import annotations

import functools
import json
import math
import re
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from models.gpt_definition import GptSize, sizes
from platforms.results import field, one_number, plain_text

# Ends the job where the ranks are on fewer nodes than the layout has, as those of an mpirun that knows its own node
# alone: their numbers would be taken for those of several nodes. `$hosts` has a line for each rank: what the probe
# itself printed, without a launcher's prefix, and no banner.
ON_NODES = """
hosts=$($run sh -c 'echo "a rank is on <$(hostname)>"')
hosts=$(echo "$hosts" | grep -o 'a rank is on <[^<> ]*>' || :)
found=$(echo "$hosts" | sort -u | wc -l)
[ "$found" -ge "$nodes" ] || {
  echo "MPI's ranks are on $found of $nodes nodes: catalogue/README.md, MPI ranks"; exit 127
}
"""
# A job of Slurm has one task on each node, so that OpenMPI counts one slot there: it must take more. Ranks that wait do
# not yield their cores all the same.
RANKS = """
nodes={nodes} per_node={ranks_per_node}
[ {ranks} -gt 1 ] || per_node=2
run="${CATALOGUE_MPIRUN:-mpirun --oversubscribe --mca mpi_yield_when_idle 0 --map-by ppr:$per_node:node}"
command -v ${run%% *} >/dev/null || { echo "${run%% *} is not on this node: catalogue/README.md, MPI ranks"; exit 127; }
"""
RANKS += ON_NODES
# The physical cores that the job may use, and of these as many as a pod's limit of CPUs has (cgroup v2, then v1). The
# suite sets OMP_NUM_THREADS for trainings, and nproc says that instead.
CORES = """
unset OMP_NUM_THREADS
cores=$(lscpu -p=CORE,SOCKET | grep -v '^#' | sort -u | wc -l)
[ "$cores" -le "$(nproc)" ] || cores=$(nproc)
group=/sys/fs/cgroup
quota=$(cat $group/cpu.max 2>/dev/null || cat $group/cpu/cpu.cfs_quota_us $group/cpu/cpu.cfs_period_us 2>/dev/null) || :
cores=$(echo $quota | awk -v cores="$cores" '$1 + 0 > 0 && $1 < cores * $2 {cores = $1 / $2}
  END {print cores < 1 ? 1 : int(cores)}')
"""
# The last caches of the node together. Some virtual machines, and some kernels on ARM, know none.
CACHE = """
cache=${CATALOGUE_CACHE:-$(lscpu --bytes -C=ALL-SIZE | tail -n 1 | tr -dc 0-9)}
[ "${cache:-0}" -gt 0 ] || { echo "lscpu knows no cache of this node: write CATALOGUE_CACHE, the bytes of its last" \\
  "caches together, into the platform's env:"; exit 127; }
echo "last cache: $cache bytes"
"""
# The folder $folder of the storage that is measured.
SCRATCH = """
mkdir -p "${CATALOGUE_SCRATCH:-{data_dir}}"
folder=$(mktemp -d -p "${CATALOGUE_SCRATCH:-{data_dir}}" catalogue.XXXXXX)
trap 'rm -rf "$folder"' EXIT
echo "file system: $(stat -f -c %T "$folder")"
"""
COMPRESSED = 'echo "compressed: $(head -c 16M %s | gzip -1 | wc -c) of $(head -c 16M %s | wc -c) bytes"\n'
# Names of `stat -f`. tmpfs has nothing to fetch, and is refused by that.
COUNTED = ("ext2/ext3", "xfs", "btrfs", "f2fs", "nfs", "overlayfs", "tmpfs")
# A job has one task on each node. srun takes these numbers before its own --ntasks-per-node.
TASKS = "unset SLURM_NTASKS SLURM_NPROCS\n"
# Kubernetes starts the command in each pod of the job. The first pod does the work, as the first node does elsewhere.
FIRST = '[ "${JOB_COMPLETION_INDEX:-0}" = 0 ] || exit 0\n'
CHECK = 'command -v %s >/dev/null || { echo "%s is not on this node: %s"; exit 127; }\n'


def script(text: str, **needs: str) -> list[str]:
    """Make the command of a job from a shell script, which stops at the first command that fails.

    Args:
        needs: the programs that it calls, each with where it comes from; the job ends with that sentence where it is
            missing. The first is the job's program, of which run.json has the hash.
    """
    checks = "".join(CHECK % (program, program, source) for program, source in needs.items())
    return ["sh", "-ec", FIRST + TASKS + checks + text, *needs]


def ranks(text: str, **needs: str) -> list[str]:
    """Make the command of a job from a shell script in which `$run` before a program starts its MPI ranks."""
    return script(RANKS + text, **needs)


def assert_from_storage(log: Path, fetched: float, read: float) -> None:
    """Refuse reads that a page cache has answered, on a file system of which the kernel counts what a process fetches.

    Lustre's direct I/O is not counted (llite/rw.c), nor is what daemons fetch, as GPFS' mmfsd does.
    """
    if counts(log):
        assert fetched > 0.95 * read, f"of {read:.0f} bytes, {fetched:.0f} came from storage, the rest from a cache"


def counts(log: Path) -> bool:
    """Whether the kernel counts what a process fetches from the file systems that the log names."""
    return all(kind in COUNTED for kind in re.findall(r"^file system: (.*)$", plain_text(log), re.MULTILINE))


def compressed(file: str) -> str:
    """Return the line of a job's script by which `assert_incompressible` judges a file, named as the shell does."""
    return COMPRESSED % (file, file)


def assert_copies(log: Path) -> None:
    """Refuse times in which OpenMPI's copies between processes have failed, as where a container forbids them."""
    assert "Read -1, expected" not in plain_text(log), (
        "OpenMPI may not copy between processes here, and the time of each failure was measured: write "
        "OMPI_MCA_btl_vader_single_copy_mechanism: none into the `env:` of the platform's file"
    )


def assert_incompressible(log: Path) -> None:
    """Refuse data of which a storage that compresses stores less, and so is fast."""
    packed, whole = one_number(log, r"^compressed: (\d+) of"), one_number(log, r"^compressed: .* of (\d+) bytes")
    assert packed > 0.95 * whole, f"the data are compressible: gzip makes {packed:.0f} bytes of {whole:.0f}"


def json_in(log: Path, key: str, tool: str, names: str = "") -> Callable[..., Any]:
    """Find the JSON object in a log that begins with this key on its own or on the next line.

    Args:
        tool: the tool, and which of its versions are read, for `field`.
        names: the key by which the rows of a list have their names: a name leads to its row.

    Returns:
        `field` of that object: it takes the keys that lead to a value.

    Raises:
        ValueError: there is none, or a second one, or it is in pieces.
    """
    text = plain_text(log)
    begins = [found.start() for found in re.finditer(rf'\{{\s*"{re.escape(key)}"\s*:', text)]
    if len(begins) != 1:
        raise ValueError(
            f"{log} has {len(begins) or 'no'} JSON objects that begin with {key!r}, and one is wanted: {tool}"
        )
    decoder = json.JSONDecoder(object_hook=functools.partial(_by_name, names=names))
    try:
        value = decoder.raw_decode(text, begins[0])[0]
    except json.JSONDecodeError as error:
        there = text[max(0, error.pos - 30) : error.pos + 30]
        raise ValueError(f"{log}: the JSON object that begins with {key!r} breaks at {there!r}: {error.msg}") from error
    return functools.partial(field, value, where=log, tool=tool)


def _by_name(value: dict[str, Any], names: str) -> dict[str, Any]:
    """Make mappings of the lists in a JSON object whose rows have names, each another one."""
    for key, rows in value.items():
        if isinstance(rows, list) and all(isinstance(row, dict) and isinstance(row.get(names), str) for row in rows):
            found = {row[names]: row for row in rows}
            value[key] = found if len(found) == len(rows) else rows
    return value


def size_of(**fields: object) -> tuple[str, GptSize]:
    """Return the size of models/gpt_definition.json, and its name, that has these values of its fields."""
    for name, size in sizes().items():
        if all(getattr(size, field) == value for field, value in fields.items()):
            return name, size
    values = ", ".join(f"{field}={value}" for field, value in fields.items())
    raise AssertionError(f"no size of models/gpt_definition.json has {values}")


def assert_each_step(log: str, steps: Sequence[int], row: str, part: str, done: str) -> None:
    """Refuse the log of a training in which the line of a step is missing, comes too often, or is in pieces.

    Args:
        log: the plain text of the log.
        steps: those of the lines that could be read, at least four; ranks may print the same steps.
        row: the pattern of such a line.
        part: the pattern of what only such a line has, or a piece of one.
        done: the pattern of how many steps were asked for, in a log that says that all of them were done.
    """
    for line in log.splitlines():
        assert re.search(row, line) or not re.search(part, line), f"the line of a step is in pieces: {line!r}"
    often = Counter(steps)
    others = sorted(often)[1:]
    every = min(after - before for before, after in pairwise(others))
    total = re.search(done, log, re.DOTALL)
    last = int(total[1]) if total else others[-1]
    missing = sorted({*range(min(often) // every * every + every, last + 1, every)} - {*others})
    assert not missing, f"of every {every} steps one is logged, but not step {missing[0]}"
    odd = [step for step in others[1:] if often[step] != often[others[-1]]]
    assert not odd, f"step {odd[0]} is logged {often[odd[0]]} times, step {others[-1]} {often[others[-1]]} times"


def assert_learns(losses: Sequence[float]) -> None:
    """Refuse a training whose losses, in the order of its steps, are not finite or do not fall."""
    assert losses, "no loss is logged: a rank that has none writes -1"
    assert all(map(math.isfinite, losses)), f"a loss is not finite: {losses}"
    assert losses[-1] < losses[0], f"the loss did not fall: {losses[0]} at first, {losses[-1]} at last"
