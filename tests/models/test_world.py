"""Where a rank finds out who it is: one table of environments a launcher."""

from __future__ import annotations

import pytest

from models.errors import ImpossibleRequest
from models.world import World, detect, first_host, tasks_per_node

TORCHRUN = {
    "RANK": "5",
    "WORLD_SIZE": "8",
    "LOCAL_RANK": "1",
    "LOCAL_WORLD_SIZE": "4",
    "GROUP_WORLD_SIZE": "2",
    "MASTER_ADDR": "node7",
    "MASTER_PORT": "29400",
}
SLURM = {
    "SLURM_JOB_ID": "4711",
    "SLURM_STEP_ID": "0",
    "SLURM_STEP_NUM_TASKS": "7",
    "SLURM_STEP_NUM_NODES": "4",
    "SLURM_STEP_TASKS_PER_NODE": "2(x3),1",
    "SLURM_STEP_NODELIST": "nid[001023-001024,001030],login1",
    "SLURM_PROCID": "6",
    "SLURM_LOCALID": "0",
    "SLURM_NODEID": "3",
}
OPENMPI = {
    "OMPI_COMM_WORLD_RANK": "3",
    "OMPI_COMM_WORLD_SIZE": "4",
    "OMPI_COMM_WORLD_LOCAL_RANK": "3",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "4",
    "PMIX_NAMESPACE": "prterun-node7-1234@1",
}
HYDRA = {"PMI_RANK": "2", "PMI_SIZE": "4", "MPI_LOCALRANKID": "2", "MPI_LOCALNRANKS": "4"}
PALS = {
    "PMI_RANK": "9",
    "PMI_SIZE": "24",
    "PALS_RANKID": "9",
    "PALS_LOCAL_RANKID": "9",
    "PALS_LOCAL_SIZE": "12",
    "PALS_APID": "6f1e7a2c",
    "MASTER_ADDR": "x4210",
}
DERIVED = -1  # a port made from the name of the job
CRAY = {"PMI_RANK": "1", "PMI_SIZE": "2", "PMI_LOCAL_RANK": "1", "PMI_LOCAL_SIZE": "2"}


BY_TORCHRUN = World(5, 8, 1, 4, 2, "torchrun", "node7", 29400)
WORLDS = {
    "nothing": ({}, World()),
    "torchrun": (TORCHRUN, BY_TORCHRUN),
    "torchrun in srun": ({**SLURM, **TORCHRUN}, BY_TORCHRUN),
    "a pod a rank": (
        {"RANK": "1", "WORLD_SIZE": "3", "MASTER_ADDR": "worker-0", "MASTER_PORT": "23456"},
        World(1, 3, 0, 1, 3, "torchrun", "worker-0", 23456),
    ),
    "srun": (SLURM, World(6, 7, 0, 1, 4, "slurm", "nid001023", DERIVED)),
    "srun, told where": (
        {**SLURM, "MASTER_ADDR": "ib7", "MASTER_PORT": "12345"},
        World(6, 7, 0, 1, 4, "slurm", "ib7", 12345),
    ),
    "mpirun": (OPENMPI, World(3, 4, 3, 4, 1, "openmpi", "127.0.0.1", DERIVED)),
    "mpirun over srun": ({**SLURM, **OPENMPI}, World(3, 4, 3, 4, 1, "openmpi", "127.0.0.1", DERIVED)),
    "mpiexec": (HYDRA, World(2, 4, 2, 4, 1, "pmi", "127.0.0.1", DERIVED)),
    "mpiexec over srun": ({**SLURM, **HYDRA}, World(2, 4, 2, 4, 1, "pmi", "127.0.0.1", DERIVED)),
    "PALS": (PALS, World(9, 24, 9, 12, 2, "pmi", "x4210", DERIVED)),
    "Cray PMI": (CRAY, World(1, 2, 1, 2, 1, "pmi", "127.0.0.1", DERIVED)),
    "one rank of mpiexec": ({"PMI_RANK": "0", "PMI_SIZE": "1"}, World(launcher="pmi")),
}


@pytest.mark.parametrize("name", WORLDS)
def test_detect(name: str) -> None:
    environ, expected = WORLDS[name]
    world = detect(environ)
    if expected.master_port == DERIVED:  # below the ports of outgoing connections, above those of services
        assert 20000 <= world.master_port < 32000
        world = world._replace(master_port=DERIVED)
    assert world == expected


def test_srun_with_pmi2_is_srun() -> None:
    assert detect({**SLURM, "PMI_RANK": "6", "PMI_SIZE": "7"}).launcher == "slurm"


@pytest.mark.parametrize(
    "environ",
    [
        pytest.param({"SLURM_JOB_ID": "1", "SLURM_PROCID": "0", "SLURM_NTASKS": "8"}, id="sbatch script"),
        pytest.param({**SLURM, "SLURM_STEP_ID": "4294967291"}, id="batch step"),
        pytest.param({**SLURM, "SLURM_STEP_ID": "4294967290"}, id="interactive step"),
    ],
)
def test_a_script_of_sbatch_is_no_rank(environ: dict[str, str]) -> None:
    assert detect(environ) == World()


def test_all_ranks_of_a_step_meet_at_the_same_place() -> None:
    worlds = [detect({**SLURM, "SLURM_PROCID": str(rank), "SLURM_NODEID": "0"}) for rank in range(7)]
    assert len({(world.master_addr, world.master_port) for world in worlds}) == 1
    another = detect({**SLURM, "SLURM_STEP_ID": "1"})
    assert another.master_port != worlds[0].master_port


REFUSED = {
    "PMI, two nodes": ({**HYDRA, "MPI_LOCALNRANKS": "3"}, "started ranks on 2 nodes.*set MASTER_ADDR"),
    "mpirun, two": ({**OPENMPI, "OMPI_COMM_WORLD_SIZE": "8"}, "mpirun started ranks on 2 nodes.*set MASTER_ADDR"),
    "bare PMI": ({"PMI_RANK": "1", "PMI_SIZE": "2"}, "does not say which of them share a node"),
    "PMI without a size": ({"PMI_RANK": "1"}, "not how many there are"),
    "no port": ({"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "a"}, "MASTER_PORT is not"),
    "rank beyond the size": ({**TORCHRUN, "RANK": "8"}, "contradicts itself: rank 8 of 8"),
    "no number": ({**SLURM, "SLURM_PROCID": "x"}, "SLURM_PROCID is 'x'"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_known_is_refused(name: str) -> None:
    environ, sentence = REFUSED[name]
    with pytest.raises(ImpossibleRequest, match=sentence) as caught:
        detect(environ)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("nodelist", "first"),
    [
        ("nid001023", "nid001023"),
        ("nid[001023-001030,002000],login1", "nid001023"),
        ("cn[7,9-11]-ib", "cn7-ib"),
        ("r1i[0-2]n[3-5]", "r1i0n3"),
        ("a,b[1-2]", "a"),
        ("login-2", "login-2"),
        ("", None),
    ],
)
def test_first_host(nodelist: str, first: str | None) -> None:
    assert first_host(nodelist) == first


def test_tasks_per_node() -> None:
    assert tasks_per_node("2(x3),1") == (2, 2, 2, 1)
    assert tasks_per_node("64") == (64,)
