"""The real Slurm that tests marked real_slurm use."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.clusters.slurm import PROGRAMS, Cluster
from tests.clusters.slurm_daemons import ClusterError
from tests.clusters.slurm_slots import slot
from tests.clusters.sshd import require


@pytest.fixture(scope="session")
def slurm_cluster() -> Iterator[Cluster]:
    """One cluster a session, or a worker of xdist. A test takes `slurm`, which also mends what the test broke."""
    require(*PROGRAMS)
    with slot() as (folder, port):
        cluster = Cluster(folder, port)
        try:
            cluster.up()
            yield cluster
        except ClusterError as error:
            pytest.fail(str(error), pytrace=False)
        finally:
            cluster.down()


@pytest.fixture
def slurm(slurm_cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """The cluster, with this process as one of its clients."""
    for name in os.environ:
        if name.startswith(("SLURM", "SBATCH_", "SQUEUE_", "SACCT_", "SRUN_")):
            monkeypatch.delenv(name)
    for name, value in slurm_cluster.environ.items():
        monkeypatch.setenv(name, value)
    yield slurm_cluster
    slurm_cluster.heal()
