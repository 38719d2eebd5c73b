"""From nothing to the first results on a Kubernetes cluster, with the commands that a newcomer types; on a stand-in, or
with --kubeconfig FILE --live-torch-image J on a real one, where each benchmark is trained as each kind."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.fake_kubernetes import Kube
from tests.fake_kubernetes.node.logs import parsed
from tests.kubernetes_scenarios.command_line_user import CommandLineUser
from tests.kubernetes_scenarios.stage import IMAGE, Stage, fake_stage

pytestmark = [pytest.mark.live_k8s, pytest.mark.slow, pytest.mark.timeout(900)]

CHOSEN = "gbs32 and (jobs and cosmoflow or pods and resnet50 or here and cosmoflow)"
ON_POD, ON_PODS, HERE = (
    f"test_{each}-gbs32-smoke]" for each in ("resnet50[pods-1x1cpu", "cosmoflow[jobs-2x1cpu", "cosmoflow[here-1x1cpu")
)
RUN = f"first-{os.getpid()}"  # pods of a stand-in share this machine's ports, which follow from the names of jobs
# four steps in place of fourteen
FEW_STEPS = "arguments: [--warmup-steps, '1', --steps-per-window, '1']"


class Newcomer(CommandLineUser):
    """On a stand-in of their own with one small node."""

    @property
    def kube(self) -> Kube:
        return self.stage.fake

    def edits(self, name: str, old: str, new: str) -> None:
        """One line of a file."""
        path = self.site / name
        text = path.read_text()
        assert len(re.findall(old, text, re.MULTILINE)) == 1, text
        path.write_text(re.sub(old, new, text, flags=re.MULTILINE))

    def folder_of(self, name: str) -> Path:
        return self.runs / RUN / re.sub(r"[\[\]]", "-", name).rstrip("-")


@pytest.fixture
def newcomer(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Newcomer]:
    if request.config.getoption("--kubeconfig"):
        pytest.skip("what `init` proposes is another on each cluster")
    with fake_stage(tmp_path / "kube") as stage:
        newcomer = Newcomer(stage, tmp_path)
        newcomer.kube.node("node-1", capacity={"cpu": "2", "memory": "8Gi"})
        yield newcomer


def test_from_a_clone_to_results(newcomer: Newcomer, tmp_path: Path) -> None:
    said = newcomer.run("platforms", "init", "jobs", "--context", "fake", "--enable")
    assert "python -m platforms doctor jobs" in said
    newcomer.edits("platforms/jobs.yaml", r"^  # image: .*", f"  image: {IMAGE}")
    on_two = "benchmarks: {cosmoflow: {layouts: [2x1]}}"
    newcomer.edits("platforms/jobs.yaml", r"^layouts:", f"{on_two}\n{FEW_STEPS}\nlayouts:")
    newcomer.run("platforms", "init", "pods", "--context", "fake", "--enable")
    newcomer.edits("platforms/pods.yaml", r"^  # image: .*", f"  image: {IMAGE}\n  kind: pod")
    newcomer.edits("platforms/pods.yaml", r"^layouts:", f"{FEW_STEPS}\nlayouts:")
    said = newcomer.run("platforms", "doctor", "jobs", "--node", code=1)  # the claim is still missing
    assert re.search(r"^failed +node .*platforms prepare jobs", said, re.MULTILINE)
    assert not newcomer.find_objects("jobs")

    data = prepared(newcomer)
    size, runs = "--size=smoke", f"--runs-dir={newcomer.runs}"
    said = newcomer.run("platforms", "doctor", "jobs", "--node", size, runs)
    assert len(re.findall("^ok ", said, re.MULTILINE)) == 10, said  # a stand-in's pod names its folders otherwise
    assert f"next: pytest -m jobs --size smoke --site={newcomer.site}" in said

    newcomer.write_site_file(
        "platforms/here.yaml",
        f"scheduler: local\nlayouts: {{default: [1x1]}}\nthreads_per_rank: 1\ndata_dir: {data}\n{FEW_STEPS}\n",
    )
    newcomer.edits("site.yaml", r"\bpods\b", "pods, here")
    where = [f"--platform={name}" for name in ("jobs", "pods", "here")]
    saved = tmp_path / "saved.json"
    said = newcomer.run("pytest", "-k", CHOSEN, *where, size, runs, f"--run-id={RUN}", f"--benchmark-json={saved}")
    assert "3 passed" in said
    measured = {one["name"]: one["extra_info"] for one in json.loads(saved.read_text())["benchmarks"]}
    assert measured.keys() == {ON_POD, ON_PODS, HERE}
    assert measured[ON_POD].keys() == measured[ON_PODS].keys() == measured[HERE].keys()
    for name, pods in ((ON_POD, 1), (ON_PODS, 2)):
        trained(newcomer, name, pods)
        exact(newcomer, name)

    newcomer.wait_until(
        lambda: not any(map(newcomer.find_objects, ("pods", "jobs", "services", "secrets")))
    )  # owned: by and by
    for name in ("jobs", "pods"):
        said = newcomer.run("platforms", "prune", name, "--yes", "--keep-days=0")
        assert "nothing is old enough to go" in said
        assert "stays:" not in said


def prepared(newcomer: Newcomer) -> Path:
    """The folder behind the claim, filled once."""
    size, runs = "--size=smoke", f"--runs-dir={newcomer.runs}"
    said = newcomer.run("platforms", "prepare", "jobs", size, runs)
    assert re.search(r"claim hpc-ml-bench: \d+Gi, ReadWriteMany: made", said)
    assert said.count(": succeeded") == len(BENCHMARKS)
    (claim,) = newcomer.kube.store.list("persistentvolumeclaims")[0]
    data = newcomer.kube.folder / "claims" / "default" / claim["metadata"]["name"]
    written = {path: path.stat().st_mtime_ns for path in data.rglob("*")}
    assert len(written) > 64
    said = newcomer.run("platforms", "prepare", "pods", size, runs)
    assert "made" not in said
    assert said.count(": succeeded") == len(BENCHMARKS)
    assert {path: path.stat().st_mtime_ns for path in data.rglob("*")} == written
    return data


def trained(newcomer: Newcomer, name: str, pods: int) -> None:
    """It measured something, and rank 0's last words say the same as the log."""
    folder = newcomer.folder_of(name)
    run = json.loads((folder / "run.json").read_text())
    assert run["problems"] == []
    assert run["start"]["world"]["size"] == pods
    assert run["start"]["world"]["launcher"] == ("torchrun" if pods > 1 else "none")
    seen = pods_of(folder)
    assert len(seen) == pods
    ended = [pod["status"]["containerStatuses"][0]["state"]["terminated"] for pod in seen]
    last_words = [json.loads(each["message"]) for each in ended if each.get("message")]
    assert [each["effective_throughput"] for each in last_words] == [run["effective_throughput"]]


def exact(newcomer: Newcomer, name: str) -> None:
    """What its containers have written, to the node, byte for byte."""
    folder = newcomer.folder_of(name)
    told = {pod["metadata"]["name"]: written(newcomer.kube, pod) for pod in pods_of(folder)}
    kept = {path.stem: path.read_bytes() for path in (folder / "logs").glob("*.log")}
    assert kept == {name: text for name, text in told.items() if text}
    merged = (folder / "log").read_bytes()
    assert sorted(merged.splitlines()) == sorted(line for text in told.values() for line in text.splitlines())
    assert len(kept) > 1 or merged == next(iter(kept.values()))


def pods_of(folder: Path) -> list[dict[str, Any]]:
    return [each for each in yaml.safe_load_all((folder / "objects.yaml").read_text()) if each["kind"] == "Pod"]


def written(kube: Kube, pod: dict[str, Any]) -> bytes:
    """By its container, to the node."""
    path = kube.folder / "logs" / pod["metadata"]["uid"] / pod["spec"]["containers"][0]["name"] / "0.log"
    return b"".join(parsed(line + b"\n").text for line in path.read_bytes().split(b"\n")[:-1])


# --- trainings on any cluster ----------------------------------------------------------------------------------------

BENCHMARKS = ("resnet50", "cosmoflow", "deepcam", "gpt")
# Where nobody makes volumes each pod writes its data itself: those of one size are the same everywhere.
BY_ITSELF = """\
for each in {benchmarks}; do
    python3 /hpc-ml-bench/code/*.pyz data $each --size smoke --data-dir /data/$each-smoke > /dev/null || exit
done"""
SCRATCH = {"mount": "/data", "scratch": "4Gi"}


class Trainer(Newcomer):
    """With a platform of Jobs, on two nodes Indexed ones, and one of Pods."""

    def describe(self, claim: str, benchmarks: Sequence[str] = BENCHMARKS) -> None:
        """With a claim, else data that each pod writes. All pods are on the node that has the claim's volume."""
        by_itself = BY_ITSELF.format(benchmarks=" ".join(benchmarks))
        volume = {"mount": "/data", "pvc": claim, "size": "4Gi", "access_mode": "ReadWriteOnce"} if claim else SCRATCH
        cluster = {"image": self.stage.torch_image, "cpu": 1, "memory": "4Gi", "shm": "512Mi", "volumes": [volume]}
        if claim:
            cluster["node_selector"] = {"kubernetes.io/hostname": self.stage.capabilities.storage_node}
        known = {"scheduler": "kubernetes", "device": "cpu", "size": "smoke", "data_dir": "/data", "max_running": 2}
        known |= {"setup": [] if claim else [by_itself], "time_limit": "30m"}
        for kind, layouts in (("job", ["1x1", "2x1"]), ("pod", ["1x1"])):
            named = {"kind": "pod"} if kind == "pod" else {}
            keys = {**known, "layouts": {"default": layouts}, "kubernetes": {**cluster, **named}}
            self.write_site_file(f"platforms/{self.named(kind)}.yaml", yaml.safe_dump(keys))
        self.write_site_file("site.yaml", f"enabled: [{self.named('job')}, {self.named('pod')}]\n")

    def named(self, kind: str) -> str:
        return f"{self.stage.key}_{kind}"

    def trains(self, chosen: str, *names: str) -> None:
        where = [f"--platform={self.named(kind)}" for kind in ("job", "pod")]
        said = self.run("pytest", "-k", f"gbs32{chosen}", *where, f"--runs-dir={self.runs}", f"--run-id={RUN}")
        assert f"{len(names)} passed" in said
        for name in names:
            trained(self, name, 2 if "-2x1cpu" in name else 1)
        self.wait_until(
            lambda: (
                not any(self.find_objects(kind, self.named(of)) for kind in self.stage.shown for of in ("job", "pod"))
            )
        )


@pytest.fixture
def trainer(cluster: Stage, tmp_path: Path) -> Trainer:
    if cluster.torch_image is None:
        pytest.skip("needs --live-torch-image, an image with what the benchmarks need")
    return Trainer(cluster, tmp_path)


@pytest.mark.nightly("models/data", "k8s_templates")
def test_data_that_each_pod_writes_itself(trainer: Trainer) -> None:
    if not trainer.stage.lacks("storage") and trainer.stage.fake is None:
        pytest.skip("this cluster has volumes")
    if trainer.stage.fake is None:
        trainer.describe(claim="")
        trainer.trains("", *all_of(trainer))
    else:
        trainer.describe(claim="", benchmarks=["resnet50"])
        trainer.trains(" and resnet50 and pod", f"test_resnet50[{trainer.named('pod')}-1x1cpu-gbs32]")


def test_each_benchmark_as_each_kind(trainer: Trainer) -> None:
    """With the commands that a person types, as `prepare` makes a claim and fills it."""
    if trainer.stage.fake is not None:
        pytest.skip("on the stand-in test_from_a_clone_to_results does this")
    if why := trainer.stage.lacks("storage"):
        pytest.skip(why)
    claim = f"data-{trainer.stage.key}"
    trainer.describe(claim)
    try:
        said = trainer.run("platforms", "prepare", trainer.named("job"), f"--runs-dir={trainer.runs}")
        assert said.count(": succeeded") == len(BENCHMARKS)
        said = trainer.run("platforms", "doctor", trainer.named("pod"), "--node", f"--runs-dir={trainer.runs}")
        assert not re.findall("^failed ", said, re.MULTILINE), said
        trainer.trains("", *all_of(trainer))
        said = trainer.run("platforms", "prune", trainer.named("job"), "--yes", "--keep-days=0")
        assert "nothing is old enough to go" in said
    finally:
        trainer.stage.admin.delete("persistentvolumeclaims", claim)


def all_of(trainer: Trainer) -> list[str]:
    """The ids of all trainings."""
    places = [("job", "1x1cpu"), ("job", "2x1cpu"), ("pod", "1x1cpu")]
    return [f"test_{each}[{trainer.named(kind)}-{layout}-gbs32]" for each in BENCHMARKS for kind, layout in places]
