"""What all of the suite's own tests share: their strictness, and the clusters that they use: the real Slurm of those
marked real_slurm, and a Kubernetes, which is real on demand."""

from __future__ import annotations

import atexit
import os
import signal
import tempfile
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages

import kubernetes.config
import pytest
import urllib3

import platforms
from platforms.job import ConfigError, RefusedError
from platforms.schedulers.kubernetes.api.kubeconfig import ClusterTarget, resolve
from tests.clusters.slurm import Cluster
from tests.clusters.slurm_daemons import ClusterError
from tests.clusters.slurm_slots import slot
from tests.kubernetes_scenarios.stage import Stage, fake_stage, real_stage
from tests.programs import pytest_terminal_summary as pytest_terminal_summary

pytest_plugins = ["pytester", "tests.crashed_workers", "tests.sets"]

# A shell starts what stands before a & with SIGINT ignored, and every process inherits that. The sessions that tests
# start and interrupt would never end.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

NEEDED = "skipped where %s is missing (HPC_ML_BENCH_REQUIRE_REAL=1: fails)"
MARKS = (
    f"real_slurm: starts a real Slurm on this machine; {NEEDED % 'one of its packages'}",
    f"real_ssh: starts a real sshd on this machine; {NEEDED % 'it'}",
    "live_k8s: runs on a Kubernetes stand-in, or on a real cluster with --kubeconfig FILE --live-image I",
)
# A warning is an error here, a mark that is not known among them. In a measurement it is none (pytest.ini).
WARNINGS = ("error", "default::pytest_benchmark.logger.PytestBenchmarkWarning")

# A test's pytester forgets in the end what was imported meanwhile. Half of a package that is imported anew has each
# class twice, and threads that live on would import it for themselves.
KEPT = (
    kubernetes.config,
    urllib3,
    *(import_module(name) for _, name, _ in walk_packages(platforms.__path__, "platforms.")),
)

os.environ.pop("CI_PIPELINE_ID", None)  # the name of a run, but of no run that a test makes
# A benchmark of this machine's user holds the ordinary lock for hours.
LOCK = Path(tempfile.gettempdir(), f"hpc-ml-bench-tests-{os.getpid()}.lock")
os.environ.update(HPC_ML_BENCH_LOCK=str(LOCK))
atexit.register(LOCK.unlink, missing_ok=True)

# The files that take longest, in the order in which workers of xdist take them: longest first, so that none is left to
# run alone at the end. build/test.xml says how long each test took.
LONGEST = (
    "kubernetes_scenarios/test_scenarios.py",
    "platforms/test_slurm_real.py",
    "pipeline/test_four_states.py",
    "platforms/test_transports.py",
    "harness/test_jobs.py",
    "reporting/test_page_in_browser.py",
    "test_first_result_kubernetes.py",
    "platforms/test_slurm_answers.py",
    "test_first_result.py",
    "platforms/test_changed_logs.py",
    "harness/test_confirmations.py",
    "models/test_train.py",
    "platforms/test_ssh.py",
    "models/test_benchmarks.py",
    "harness/test_resume.py",
    "platforms/test_local.py",
    "models/test_ipu.py",
    "harness/test_selection.py",
    "platforms/test_doctor.py",
    "pipeline/test_choice_and_refusals.py",
    "harness/test_kubernetes.py",
    "platforms/test_kubernetes_logs.py",
    "harness/test_trials.py",
    "clusters/test_slurm_cluster.py",
    "models/test_meter_foreign.py",
    "pipeline/test_templates.py",
    "models/test_slow_first_step.py",
    "harness/test_history.py",
    "reporting/test_shared_branch.py",
    "harness/test_each_node.py",
    "reporting/test_year.py",
    "harness/test_foreign.py",
    "harness/test_gate.py",
    "platforms/test_runner.py",
    "models/test_layouts.py",
    "harness/test_record.py",
    "platforms/test_slurm_nodes.py",
    "kubernetes_scenarios/test_sessions.py",
    "platforms/test_kubernetes_creation.py",
    "data/test_thread_loader.py",
    "harness/test_torture.py",
    "platforms/test_prepare.py",
    "harness/test_connections.py",
    "models/test_new_benchmark.py",
)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--seeds", type=int, default=5, help="how often test_torture.py kills sessions, on each platform")
    group = parser.getgroup("a real Kubernetes for the suite's own tests")
    group.addoption("--kubeconfig", help="tests marked live_k8s run on its current context's cluster")
    group.addoption("--live-image", help="an image with sh and python3 which that cluster can pull; needed there")
    group.addoption("--live-torch-image", help="one with what the benchmarks need; without it none is trained there")


def pytest_configure(config: pytest.Config) -> None:
    """These tests' marks and strictness; and what is wrong with the real Kubernetes that is named."""
    for mark in MARKS:
        config.addinivalue_line("markers", mark)
    for each in WARNINGS:
        config.addinivalue_line("filterwarnings", each)
    named: str | None = config.getoption("--kubeconfig")
    if named is None:
        return
    files = [Path(part).expanduser().absolute() for part in named.split(os.pathsep) if part]
    if not any(path.is_file() for path in files):
        raise pytest.UsageError(f"--kubeconfig: there is no file {named!r}")
    config.option.kubeconfig = os.pathsep.join(map(str, files))
    try:
        resolve(ClusterTarget(), {**os.environ, "KUBECONFIG": config.option.kubeconfig})
    except (ConfigError, RefusedError) as error:
        raise pytest.UsageError(f"--kubeconfig: {error}") from None
    if config.getoption("--live-image") is None:
        example = "--live-image docker.io/library/python:3.12-slim"
        raise pytest.UsageError(f"--kubeconfig: name an image with sh and python3 that the cluster can pull: {example}")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest files come first; the others stay in their order."""
    here = Path(__file__).parent
    places = {here / name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path, len(places)))


@pytest.fixture(scope="session")
def slurm_cluster() -> Iterator[Cluster]:
    """One cluster a session, or a worker of xdist. A test takes `slurm`, which also mends what the test broke."""
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
        if name.startswith(("SLURM", "SBATCH_", "SQUEUE_", "SACCT_", "SRUN_", "SCANCEL_", "SCONTROL_")):
            monkeypatch.delenv(name)
    for name, value in slurm_cluster.environ.items():
        monkeypatch.setenv(name, value)
    yield slurm_cluster
    slurm_cluster.heal()


@pytest.fixture(scope="session")
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """A Kubernetes: a stand-in in this process, or that of --kubeconfig. What was made there is gone at the end."""
    kubeconfig, *images = (
        request.config.getoption(f"--{name}") for name in ("kubeconfig", "live-image", "live-torch-image")
    )
    folder = tmp_path_factory.mktemp("kube")
    with real_stage(folder, kubeconfig, *images) if kubeconfig else fake_stage(folder) as stage:
        yield stage
