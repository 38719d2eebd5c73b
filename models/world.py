"""Which rank this process is, read from the environment variables of torchrun, srun, Open MPI or a PMI launcher.

With that a stock torch from PyPI starts under each of them.
"""

from __future__ import annotations

import re
import zlib
from typing import Mapping, NamedTuple, Optional, Tuple

from models.errors import ImpossibleRequest

# Below 32768, where Linux takes the ports of outgoing connections from, and clear of Slurm's usual 6817-6819.
_FIRST_PORT = 20000
_PORTS = 12000
# Slurm's own steps, which are not started by srun: batch script, external launcher, interactive shell, pending.
FIRST_SPECIAL_STEP = 4294967290
# Each names the job and is the same on all of its ranks; the port is made from the first that is set.
_JOB_NAMES = ("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "PALS_APID", "PBS_JOBID", "LSB_JOBID", "SLURM_JOB_ID")
# A rank's number among those of its node, and how many those are, by the flavours of PMI.
_PMI_LOCAL = (
    ("MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
    ("PMI_LOCAL_RANK", "PMI_LOCAL_SIZE"),
    ("PALS_LOCAL_RANKID", "PALS_LOCAL_SIZE"),
)


class World(NamedTuple):
    """One of `size` ranks, `local_size` of which run on this node. Rank 0 listens at `master_addr:master_port`."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    local_size: int = 1
    nodes: int = 1
    launcher: str = "none"  # torchrun, slurm, openmpi, pmi, none
    master_addr: str = "127.0.0.1"
    master_port: int = 0


def detect(environ: Mapping[str, str]) -> World:
    """Return this process's place among the ranks.

    Raises ImpossibleRequest where the launcher does not say enough to find the others. The order matters: mpirun and
    mpiexec reach other nodes through srun, so their ranks have Slurm's variables too, with the numbers of the step that
    started the daemons.
    """
    for read in (_torchrun, _openmpi, _hydra, _slurm, _pmi):
        world = read(environ)
        if world is not None:
            return _checked(world)
    return World()


def _checked(world: World) -> World:
    if not (0 <= world.rank < world.size and 0 <= world.local_rank < world.local_size <= world.size):
        raise ImpossibleRequest(
            f"the environment of {world.launcher} contradicts itself: rank {world.rank} of {world.size}, on its node "
            f"{world.local_rank} of {world.local_size}; start the job again from a clean shell"
        )
    return world


def _torchrun(environ: Mapping[str, str]) -> Optional[World]:
    if not ("RANK" in environ and "WORLD_SIZE" in environ):
        return None
    size = _number(environ, "WORLD_SIZE")
    local_size = _number(environ, "LOCAL_WORLD_SIZE", 1)
    nodes = _number(environ, "GROUP_WORLD_SIZE", _nodes(size, local_size))
    if size > 1 and "MASTER_PORT" not in environ:
        raise ImpossibleRequest(
            "RANK and WORLD_SIZE are set but MASTER_PORT is not; start the ranks with torchrun, or set it"
        )
    address, port = _meeting_point(environ, "torchrun", nodes, "")
    rank = _number(environ, "RANK")
    local_rank = _number(environ, "LOCAL_RANK", 0)
    return World(rank, size, local_rank, local_size, nodes, "torchrun", address, port)


def _openmpi(environ: Mapping[str, str]) -> Optional[World]:
    if "OMPI_COMM_WORLD_RANK" not in environ:
        return None
    size = _number(environ, "OMPI_COMM_WORLD_SIZE")
    local_size = _number(environ, "OMPI_COMM_WORLD_LOCAL_SIZE")
    nodes = _nodes(size, local_size)
    address, port = _meeting_point(environ, "mpirun", nodes, _job_name(environ))
    rank = _number(environ, "OMPI_COMM_WORLD_RANK")
    local_rank = _number(environ, "OMPI_COMM_WORLD_LOCAL_RANK")
    return World(rank, size, local_rank, local_size, nodes, "openmpi", address, port)


def _hydra(environ: Mapping[str, str]) -> Optional[World]:
    """Read the environment of MPICH's, Intel's and Cray's mpiexec, which say more than a bare PMI."""
    if not any(name in environ for name in ("MPI_LOCALRANKID", "PALS_RANKID")):
        return None
    return _pmi(environ)


def _slurm(environ: Mapping[str, str]) -> Optional[World]:
    """Read the environment of a task that srun started.

    A plain sbatch script has SLURM_PROCID as well, but no step of its own.
    """
    if not all(name in environ for name in ("SLURM_STEP_NUM_TASKS", "SLURM_PROCID", "SLURM_STEP_ID")):
        return None
    if _number(environ, "SLURM_STEP_ID") >= FIRST_SPECIAL_STEP:
        return None
    size = _number(environ, "SLURM_STEP_NUM_TASKS")
    rank = _number(environ, "SLURM_PROCID")
    nodes = _number(environ, "SLURM_STEP_NUM_NODES", 1)
    node = _number(environ, "SLURM_NODEID", 0)
    even_share = -(-size // nodes)
    tasks = tasks_per_node(environ.get("SLURM_STEP_TASKS_PER_NODE", f"{even_share}(x{nodes})"))
    local_size = tasks[node] if node < len(tasks) else even_share
    first = first_host(environ.get("SLURM_STEP_NODELIST", ""))
    job = f"{environ.get('SLURM_JOB_ID', '')}.{environ['SLURM_STEP_ID']}"
    address, port = _meeting_point(environ, "srun", nodes, job, first)
    return World(rank, size, _number(environ, "SLURM_LOCALID"), local_size, nodes, "slurm", address, port)


def _pmi(environ: Mapping[str, str]) -> Optional[World]:
    rank = _number(environ, "PMI_RANK", _number(environ, "PALS_RANKID", -1))
    if rank < 0:
        return None
    size = _number(environ, "PMI_SIZE", -1)
    if size < 0:
        raise ImpossibleRequest(
            "the launcher says this rank's number but not how many there are (PMI_SIZE); use torchrun or srun"
        )
    if size == 1:
        return World(launcher="pmi")
    for rank_name, size_name in _PMI_LOCAL:
        if rank_name in environ and size_name in environ:
            local_rank = _number(environ, rank_name)
            local_size = _number(environ, size_name)
            break
    else:
        raise ImpossibleRequest(
            f"mpiexec started {size} ranks and does not say which of them share a node (MPI_LOCALRANKID and "
            "MPI_LOCALNRANKS, or PMI_LOCAL_RANK and PMI_LOCAL_SIZE); set them, or use torchrun or srun"
        )
    nodes = _nodes(size, local_size)
    address, port = _meeting_point(environ, "mpiexec", nodes, _job_name(environ))
    return World(rank, size, local_rank, local_size, nodes, "pmi", address, port)


def _meeting_point(
    environ: Mapping[str, str], launcher: str, nodes: int, job: str, first: Optional[str] = None
) -> Tuple[str, int]:
    """Return the address and port at which rank 0 listens.

    MASTER_ADDR and MASTER_PORT have precedence. Without them it is this node if it is the only one, else the first one
    if the launcher names it. The port is made from the job's name, so that two jobs on one node get different ones.
    """
    address = environ.get("MASTER_ADDR")
    if not address:
        address = "127.0.0.1" if nodes == 1 else first
    if not address:
        raise ImpossibleRequest(
            f"{launcher} started ranks on {nodes} nodes and does not say on which of them rank 0 runs; "
            "set MASTER_ADDR to that host's name for every rank"
        )
    if environ.get("MASTER_PORT"):
        return address, _number(environ, "MASTER_PORT")
    return address, _FIRST_PORT + zlib.crc32(job.encode()) % _PORTS


def first_host(nodelist: str) -> Optional[str]:
    """Return the first host of a Slurm list: nid001023 of `nid[001023-001030,002000],login1`. None if it is empty."""
    match = re.match(r"(?:[^,\[]|\[[^\]]*\])+", nodelist)
    return re.sub(r"\[([^\],-]*)[^\]]*\]", r"\1", match.group()) if match else None


def tasks_per_node(text: str) -> Tuple[int, ...]:
    """Expand Slurm's short form of the tasks on each node: `2(x3),1` is (2, 2, 2, 1)."""
    counts = re.findall(r"(\d+)(?:\(x(\d+)\))?", text)
    return tuple(int(tasks) for tasks, times in counts for _ in range(int(times or 1)))


def _job_name(environ: Mapping[str, str]) -> str:
    for name in _JOB_NAMES:
        if environ.get(name):
            return environ[name]
    return ""


def _nodes(size: int, local_size: int) -> int:
    return -(-size // max(1, local_size))


def _number(environ: Mapping[str, str], name: str, default: Optional[int] = None) -> int:
    text = environ.get(name)
    if text is None and default is not None:
        return default
    if text is None or not re.fullmatch(r"\d+", text):
        raise ImpossibleRequest(f"{name} is {text!r} where the launcher should have set a number; start the job again")
    return int(text)
