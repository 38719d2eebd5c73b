"""The clusters that tests use: the real Slurm of those marked real_slurm, and a Kubernetes, which is real on demand."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clusters.slurm import PROGRAMS, Cluster
from tests.clusters.slurm_daemons import ClusterError
from tests.clusters.slurm_slots import slot
from tests.clusters.sshd import require
from tests.clusters.stage import IMAGE, Stage, fake_stage, real_stage

os.environ.pop("CI_PIPELINE_ID", None)  # the name of a run, but of no run that a test makes
MINUTES = ("test_first_result", "test_first_result_kubernetes", "test_slurm_real", "test_benchmarks", "test_train")


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("a real Kubernetes for the suite's own tests")
    group.addoption("--kubeconfig", type=Path, help="tests marked live_k8s run on its current context's cluster")
    group.addoption("--live-image", default=IMAGE, help="an image with sh and python3 there; default: %(default)s")
    group.addoption("--live-torch-image", help="an image with what benchmarks need; without one none is trained there")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The files that take minutes come first, so that no worker of xdist is left alone with one at the end."""
    items.sort(key=lambda item: item.path.stem not in MINUTES)


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


@pytest.fixture(scope="session")
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """A Kubernetes: a stand-in in this process, or that of --kubeconfig. What was made there is gone at the end."""
    folder, kubeconfig = tmp_path_factory.mktemp("kube"), request.config.getoption("--kubeconfig")
    options = [request.config.getoption(f"--live-{name}") for name in ("image", "torch-image")]
    with real_stage(folder, kubeconfig.resolve(), *options) if kubeconfig else fake_stage(folder) as stage:
        yield stage
