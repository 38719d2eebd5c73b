"""pytest and the commands beside it on a Kubernetes cluster that takes jobs and runs them."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from platforms.__main__ import main
from tests.fake_kubernetes import Kube, Request
from tests.fake_kubernetes.controllers.custom_jobs import JOB_SET, PYTORCH_JOB
from tests.harness.nursery import Session
from tests.waiting import until

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "kubernetes.md").read_text(encoding="utf-8")
IMAGE = "bench.local/python:3.11"
CLOUD = f"""\
scheduler: kubernetes
device: gpu
layouts: {{default: [1x1]}}
data_dir: /data
kubernetes: {{context: fake, image: "{IMAGE}", cpu: 100m, memory: 64Mi}}
"""
POD = """\
apiVersion: v1
kind: Pod
metadata: {name: theirs, labels: {team: theirs}}
spec:
  restartPolicy: Never
  containers:
    - name: says
      image: ${image}
      command: [sh, -c, 'echo "I am a pod, $PART of the GPUs"']
      env: [{name: PART, value: "${device_amount}"}]
      resources: {limits: {nvidia.com/gpu: "${device_amount}"}}
"""


class Cloud:
    """A project whose site has one cluster, `cloud`, with four GPUs."""

    def __init__(self, project: Any, kube: Kube) -> None:
        self.project, self.kube, self.site = project, kube, project.path / "site"
        project.write("site/site.yaml", "enabled: [cloud]\n")
        self.platform(CLOUD)

    def platform(self, text: str) -> None:
        self.project.write("site/platforms/cloud.yaml", text)

    def test(self, text: str) -> None:
        self.project.write("tests/test_mine.py", f"import pytest\n\n{text}")

    def pytest(self, *words: str, mark: str = "cloud") -> pytest.RunResult:
        result: pytest.RunResult = self.project.pytest("tests", "-m", mark, *words)
        return result

    def passes(self, count: int, *words: str, mark: str = "cloud") -> None:
        result = self.pytest(*words, mark=mark)
        assert result.parseoutcomes().get("passed") == count, result.stdout.str() + result.stderr.str()
        assert result.ret == 0

    def created(self, plural: str) -> list[dict[str, Any]]:
        """Objects that were made, by what was sent."""
        return [request.json() for request in self.kube.requests if makes(request, plural)]

    def command(self, *words: str) -> int:
        return main([*words, "--site", str(self.site)])

    def elsewhere(self, *words: str) -> Session:
        """pytest in a process of its own."""
        session: Session = self.project.begin("tests", "-m", "cloud", "-p", "no:cacheprovider", *words)
        return session

    def killed_while_running(self, *words: str) -> None:
        """A session that is gone without a word, while its one job runs, of which it knows and which has said so."""
        session = self.elsewhere(*words)
        session.until(lambda: [pod for pod in self.pods() if pod["status"]["phase"] == "Running"])
        session.until(lambda: list(self.project.path.glob("runs/*/*/submitted.json")))
        logs = self.kube.folder / "logs"
        session.until(lambda: [log for log in logs.glob("*/*/0.log") if b" begins\n" in log.read_bytes()])
        session.kill()

    def pods(self) -> list[dict[str, Any]]:
        return self.kube.store.list("pods")[0]


def makes(request: Request, plural: str) -> bool:
    return request.method == "POST" and request.path.endswith(f"/{plural}") and "dryRun" not in request.query


@pytest.fixture
def kube(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kube]:
    folder = tmp_path_factory.mktemp("kube")
    with Kube(folder) as kube:
        kube.node("node-1", capacity={"cpu": "16", "memory": "64Gi", "nvidia.com/gpu": "4"})
        yield kube


@pytest.fixture
def cloud(project: Any, kube: Kube, monkeypatch: pytest.MonkeyPatch) -> Cloud:
    monkeypatch.setenv("KUBECONFIG", str(kube.kubeconfig))
    return Cloud(project, kube)


# --- manifests --------------------------------------------------------------------------------------------------------


def test_a_manifest_by_its_path_or_by_a_function(cloud: Cloud) -> None:
    cloud.project.write("tests/pod.yaml", POD)
    cloud.test(
        """
@pytest.mark.workload(manifest="pod.yaml")
def test_path(run):
    assert (run.folder / "log").read_text() == "I am a pod, 1 of the GPUs\\n"

def made(num_gpus):
    limits = {"nvidia.com/gpu": str(num_gpus)}
    container = {"name": "says", "image": "${image}", "command": ["echo", f"{num_gpus} GPUs"]}
    pod = {"restartPolicy": "Never", "containers": [container | {"resources": {"limits": limits}}]}
    return {"apiVersion": "batch/v1", "kind": "Job", "spec": {"backoffLimit": 0, "template": {"spec": pod}}}

@pytest.mark.parametrize("num_gpus", [1, 4])
@pytest.mark.workload(manifest=made)
def test_function(run, num_gpus):
    assert (run.folder / "log").read_text() == f"{num_gpus} GPUs\\n"
    assert not run.problems
"""
    )
    cloud.passes(3)
    (pod,) = cloud.created("pods")
    assert pod["metadata"]["labels"]["team"] == "theirs"
    templates = [job["spec"]["template"] for job in cloud.created("jobs")]
    wanted = [each["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] for each in templates]
    assert wanted == ["1", "4"]
    assert len({each["metadata"]["labels"]["hpc-ml-bench/job"] for each in templates}) == 2
    assert not cloud.pods()
    assert not cloud.kube.store.list("jobs")[0]


@pytest.mark.parametrize(
    ("kind", "group", "version", "shape", "nodes"),
    [
        ("PyTorchJob", "kubeflow.org", "v1", PYTORCH_JOB, 2),
        ("JobSet", "jobset.x-k8s.io", "v1alpha2", JOB_SET, 2),
    ],
)
def test_kinds_as_the_documentation_has_them(
    cloud: Cloud, kind: str, group: str, version: str, shape: Any, nodes: int
) -> None:
    plural = f"{kind.lower()}s"
    cloud.kube.add_crd(group, version, kind, plural, shape)
    (written,) = re.findall(rf"^```yaml\n(apiVersion: {group}/{version}\n.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    cloud.project.write("tests/own.yaml", written)
    cloud.platform(CLOUD.replace("1x1", f"{nodes}x1") + "launcher: none\n")
    cloud.test(
        f"""
@pytest.mark.workload(manifest="own.yaml", command=["sh", "-c", "echo node $JOB_COMPLETION_INDEX meets $MASTER_ADDR"])
def test_own(run):
    said = sorted((run.folder / "log").read_text().splitlines())
    assert [line.partition(" meets ")[0] for line in said] == [f"node {{number}}" for number in range({nodes})]
    assert len(list((run.folder / "logs").glob("*.log"))) == {nodes}
    assert not run.problems
"""
    )
    cloud.passes(1)
    (made,) = cloud.created(plural)
    assert made["metadata"]["labels"]["app.kubernetes.io/managed-by"] == "hpc-ml-bench"
    assert not cloud.kube.store.list(plural)[0]
    until(lambda: not cloud.pods())


def test_a_test_names_its_own_namespace_and_its_own_cluster(
    cloud: Cloud, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    cloud.kube.namespace("mine")
    cloud.test(
        """
@pytest.mark.workload(command=["echo", "hello"])
def test_here(run): pass

@pytest.mark.workload(command=["echo", "hello"], namespace="mine")
def test_namespace(run): pass

@pytest.mark.workload(command=["echo", "hello"], context="other")
def test_cluster(run): pass
"""
    )
    with Kube(tmp_path_factory.mktemp("other"), context="other") as other:
        other.node("node-1", capacity={"cpu": "4", "memory": "8Gi", "nvidia.com/gpu": "4"})
        monkeypatch.setenv("KUBECONFIG", f"{cloud.kube.kubeconfig}:{other.kubeconfig}")
        cloud.passes(3)
        there = [request.path for request in other.requests if makes(request, "jobs")]
    here = [request.path for request in cloud.kube.requests if makes(request, "jobs")]
    assert [path.split("/")[5] for path in here] == ["default", "mine"]
    assert [path.split("/")[5] for path in there] == ["default"]


# --- dry runs ---------------------------------------------------------------------------------------------------------

HELLO = """
@pytest.mark.workload(command=["echo", "hello"])
def test_hello(run, tmp_path):
    assert (run.folder / "log").read_text().count("hello\\n") == 1
"""


def test_a_dry_run_shows_and_asks_nobody(cloud: Cloud) -> None:
    cloud.test(HELLO)
    result = cloud.pytest("--dry-run")
    assert result.ret == 0
    result.stdout.fnmatch_lines(["kind: Job", "*- hello", "*dry run: 1 job rendered, none submitted*"])
    assert not cloud.kube.requests


def test_the_server_looks_at_it_and_makes_nothing(cloud: Cloud) -> None:
    cloud.test(HELLO)
    result = cloud.pytest("--dry-run=server")
    assert result.ret == 0
    result.stdout.fnmatch_lines(["kind: Job", "cloud has nothing against it"])
    assert {request.query.get("dryRun") for request in cloud.kube.requests if request.method == "POST"} == {"All"}
    assert not cloud.kube.store.list("jobs")[0]


def test_what_the_server_has_against_it_is_told(cloud: Cloud) -> None:
    cloud.project.write("tests/pod.yaml", POD.replace("  restartPolicy:", "  nodeSelctor: {}\n  restartPolicy:"))
    cloud.test('@pytest.mark.workload(manifest="pod.yaml")\ndef test_mine(run): pass\n')
    assert cloud.pytest("--dry-run").ret == 0
    result = cloud.pytest("--dry-run=server")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(['*cloud would refuse it: Pod *unknown field "spec.nodeSelctor"*'])
    assert not cloud.pods()


# --- a cluster that is used because it is there -----------------------------------------------------------------------


def test_kind_is_there_with_its_context(
    cloud: Cloud, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    cloud.test(HELLO)
    result = cloud.pytest(mark="kind")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert not cloud.kube.requests
    with Kube(tmp_path_factory.mktemp("kind"), context="kind-here") as kind:
        image = yaml.safe_load((ROOT / "platforms" / "kind.yaml").read_text())["kubernetes"]["image"]
        kind.images[image] = {}
        monkeypatch.setenv("KUBECONFIG", str(kind.kubeconfig))
        spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
        claim = {"metadata": {"name": "hpc-ml-bench-data"}, "spec": spec}
        kind.store.create("persistentvolumeclaims", "default", claim)
        cloud.passes(1, mark="kind")
        assert any(makes(request, "jobs") for request in kind.requests)


# --- sessions that are killed -----------------------------------------------------------------------------------------


def waiting(cloud: Cloud, more: str = "") -> Path:
    """A test whose job ends when somebody makes the file that is returned."""
    gate = cloud.kube.folder / "gate"
    gate.mkdir()
    volume = f'{{mount: /gate, host_path: "{gate}"}}'
    cloud.platform(CLOUD.replace("cpu: 100m", f"cpu: 100m, volumes: [{volume}]{more}"))
    command = ["sh", "-c", "trap exit TERM; echo begins; until [ -e /gate/open ]; do sleep 0.1; done; echo ends"]
    cloud.test(
        f"""
@pytest.mark.workload(command={command})
def test_long(run):
    assert (run.folder / "log").read_text() == "begins\\nends\\n"
    assert not run.problems
"""
    )
    return gate / "open"


def test_a_session_killed_before_it_knew_of_its_job_makes_no_second_one(cloud: Cloud) -> None:
    gate = waiting(cloud)
    cloud.kube.fault("POST", "/jobs$", lost=True)
    file = cloud.site / "platforms/cloud.yaml"
    text = file.read_text()
    file.write_text(f"{text}poll_s: 600\n")  # so long it does not ask again
    session = cloud.elsewhere("--run-id=mine")
    session.until(lambda: cloud.kube.store.list("jobs")[0])
    session.kill()
    file.write_text(text)
    assert not list(cloud.project.path.glob("runs/mine/*/submitted.json"))
    (job,) = cloud.kube.store.list("jobs")[0]
    gate.touch()
    cloud.passes(1, "--run-id=mine")
    first, second = (request for request in cloud.kube.requests if makes(request, "jobs"))
    assert second.status == 409
    assert first.json()["metadata"]["name"] == second.json()["metadata"]["name"] == job["metadata"]["name"]
    assert not cloud.kube.store.list("jobs")[0]


def test_prune_leaves_what_lives_and_what_a_run_needs(cloud: Cloud, capsys: pytest.CaptureFixture[str]) -> None:
    gate = waiting(cloud)
    cloud.killed_while_running("--run-id=mine")
    (job,) = cloud.created("jobs")
    name = job["metadata"]["name"]
    assert cloud.command("prune", "cloud", "--yes", "--keep-days=0") == 0
    assert re.search(rf"job.batch/{name} .* stays: its job waits or runs\n", capsys.readouterr().out)
    assert [pod["status"]["phase"] for pod in cloud.pods()] == ["Running"]
    gate.touch()
    until(lambda: [pod for pod in cloud.pods() if pod["status"]["phase"] == "Succeeded"])
    until(lambda: cloud.kube.store.list("jobs")[0][0]["status"].get("completionTime"))
    runs = cloud.project.path / "runs"
    assert cloud.command("prune", "cloud", "--yes", "--keep-days=0", f"--runs-dir={runs}") == 0
    assert re.search(rf"job.batch/{name} .* stays: run mine: unfinished: pytest --resume=mine", capsys.readouterr().out)
    assert len(cloud.pods()) == 1
    assert cloud.command("prune", "cloud", "--yes") == 0
    assert "1 younger ones stay" in capsys.readouterr().out
    assert cloud.command("prune", "cloud", "--yes", "--keep-days=0") == 0
    assert "1 of 1 gone" in capsys.readouterr().out
    until(lambda: not cloud.pods())
    assert not cloud.kube.store.list("jobs")[0]
    assert cloud.command("prune", "cloud") == 0
    assert "nothing is old enough to go" in capsys.readouterr().out


# --- --ab -----------------------------------------------------------------------------------------------------------


def test_runs_of_a_comparison_that_may_share_a_node_follow_each_other(cloud: Cloud) -> None:
    cloud.platform(CLOUD + "stacks: {old: {}, new: {}}\n")
    cloud.test(
        "from platforms.results import numbers\n\n"
        '@pytest.mark.parametrize("which", [1, 2])\n'
        '@pytest.mark.workload(command=["sh", "-c", "sleep 0.1; echo rate: 5"])\n'
        "def test_rate(run, record, which):\n"
        '    rate, = numbers(run.log, r"rate: (.+)")\n'
        '    record(run, metrics={"rate": (rate, "1/s", "higher")})\n'
    )
    most = 0
    stopped = threading.Event()

    def look() -> None:
        nonlocal most
        while not stopped.wait(0.05):
            running = [job for job in cloud.kube.store.list("jobs")[0] if not job.get("status", {}).get("succeeded")]
            most = max(most, len(running))

    watcher = threading.Thread(target=look)
    watcher.start()
    try:
        cloud.passes(2, "--ab=stack=old,new", "--blocks=2")
    finally:
        stopped.set()
        watcher.join()
    assert len(cloud.created("jobs")) == 16
    assert most == 1
