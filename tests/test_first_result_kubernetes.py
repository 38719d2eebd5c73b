"""From nothing to the first results on a Kubernetes cluster, with the commands that a newcomer types."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.clusters.kube import Kube
from tests.clusters.kube.logs import parsed

ROOT = Path(__file__).resolve().parents[1]
PATIENCE_S = 600
IMAGE = "bench.local/python:3.11"  # this Python, with torch
CHOSEN = "gbs32 and (jobs and not resnet50 or pods and resnet50 or here and cosmoflow)"
ON_JOB, ON_POD, ON_PODS, HERE = (
    f"test_{each}-gbs32-smoke]"
    for each in (
        "deepcam[jobs-1x1cpu",
        "resnet50[pods-1x1cpu",
        "cosmoflow[jobs-2x1cpu",
        "cosmoflow[here-1x1cpu",
    )
)


class Person:
    """Somebody at a clone, whose kubeconfig knows the cluster."""

    def __init__(self, kube: Kube, folder: Path) -> None:
        self.kube, self.folder = kube, folder
        self.site, self.runs = folder / "site", folder / "runs"
        (self.site / "platforms").mkdir(parents=True)

    def types(self, *words: str, code: int = 0) -> str:
        """What it printed."""
        ours = ("PYTEST_", "KUBE", "HPC_ML_BENCH")  # pytest-benchmark saves nothing in what it takes for a worker
        environ = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
        done = subprocess.run(
            [sys.executable, "-m", *words, f"--site={self.site}"],
            cwd=ROOT,
            env=environ | self.kube.environ | {"HPC_ML_BENCH_LOCK": str(self.folder / "lock")},
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    def edits(self, name: str, old: str, new: str) -> None:
        """One line of a file."""
        path = self.site / name
        text = path.read_text()
        assert len(re.findall(old, text, re.MULTILINE)) == 1, text
        path.write_text(re.sub(old, new, text, flags=re.MULTILINE))

    def finds(self, plural: str) -> list[dict[str, Any]]:
        """What is on the cluster."""
        return self.kube.store.list(plural)[0]


@pytest.fixture
def person(tmp_path: Path) -> Iterator[Person]:
    with Kube(tmp_path / "kube") as kube:
        kube.node("node-1", capacity={"cpu": "2", "memory": "8Gi"})
        yield Person(kube, tmp_path)


def test_from_a_clone_to_results(person: Person, tmp_path: Path) -> None:
    said = person.types("platforms", "init", "jobs", "--context", "fake", "--enable")
    assert "python -m platforms doctor jobs" in said
    person.edits("platforms/jobs.yaml", r"^  # image: .*", f"  image: {IMAGE}")
    person.edits("platforms/jobs.yaml", r"^layouts:", "benchmarks: {cosmoflow: {layouts: [2x1]}}\nlayouts:")
    person.types("platforms", "init", "pods", "--context", "fake", "--enable")
    person.edits("platforms/pods.yaml", r"^  # image: .*", f"  image: {IMAGE}\n  kind: pod")
    said = person.types("platforms", "doctor", "jobs", "--node", code=1)  # the claim is still missing
    assert re.search(r"^failed +node .*platforms prepare jobs", said, re.MULTILINE)
    assert not person.finds("jobs")

    data = prepared(person)
    size, runs = "--size=smoke", f"--runs-dir={person.runs}"
    said = person.types("platforms", "doctor", "jobs", "--node", size, runs)
    assert len(re.findall("^ok ", said, re.MULTILINE)) == 11, said
    assert f"next: pytest -m jobs --site={person.site}" in said

    (person.site / "platforms/here.yaml").write_text(
        f"scheduler: local\nlayouts: {{default: [1x1]}}\nthreads_per_rank: 1\ndata_dir: {data}\n"
    )
    person.edits("site.yaml", r"\bpods\b", "pods, here")
    where = [f"--platform={name}" for name in ("jobs", "pods", "here")]
    saved = tmp_path / "saved.json"
    said = person.types("pytest", "-k", CHOSEN, *where, size, runs, "--run-id=first", f"--benchmark-json={saved}")
    assert "4 passed" in said
    measured = {one["name"]: one["extra_info"] for one in json.loads(saved.read_text())["benchmarks"]}
    assert measured.keys() == {ON_JOB, ON_POD, ON_PODS, HERE}
    assert measured[ON_JOB].keys() == measured[ON_POD].keys() == measured[ON_PODS].keys() == measured[HERE].keys()
    for name, pods in ((ON_JOB, 1), (ON_POD, 1), (ON_PODS, 2)):
        check(person, name, pods)

    assert not any(map(person.finds, ("pods", "jobs", "services", "secrets")))
    for name in ("jobs", "pods"):
        said = person.types("platforms", "prune", name, "--yes")
    assert f"nothing of {name} is left there" in said


def prepared(person: Person) -> Path:
    """The folder behind the claim, filled once."""
    size, runs = "--size=smoke", f"--runs-dir={person.runs}"
    said = person.types("platforms", "prepare", "jobs", size, runs)
    assert re.search(r"claim hpc-ml-bench: \d+Gi, ReadWriteMany: made", said)
    assert said.count(": succeeded") == 3
    (claim,) = person.finds("persistentvolumeclaims")
    data = person.kube.folder / "claims" / "default" / claim["metadata"]["name"]
    written = {path: path.stat().st_mtime_ns for path in data.rglob("*")}
    assert len(written) > 64
    said = person.types("platforms", "prepare", "pods", size, runs)
    assert "made" not in said
    assert said.count(": succeeded") == 3
    assert {path: path.stat().st_mtime_ns for path in data.rglob("*")} == written
    return data


def check(person: Person, name: str, pods: int) -> None:
    folder = person.runs / "first" / re.sub(r"[\[\]]", "-", name).rstrip("-")
    run = json.loads((folder / "run.json").read_text())
    assert run["problems"] == []
    assert run["start"]["world"]["size"] == pods
    assert run["start"]["world"]["launcher"] == ("torchrun" if pods > 1 else "none")
    objects = list(yaml.safe_load_all((folder / "objects.yaml").read_text()))
    seen = [each for each in objects if each["kind"] == "Pod"]
    assert len(seen) == pods
    ended = [pod["status"]["containerStatuses"][0]["state"]["terminated"] for pod in seen]
    last_words = [json.loads(each["message"]) for each in ended if each.get("message")]
    assert [each["effective_throughput"] for each in last_words] == [run["effective_throughput"]]
    told = {pod["metadata"]["name"]: written(person.kube, pod) for pod in seen}
    kept = {path.stem: path.read_bytes() for path in (folder / "logs").glob("*.log")}
    assert kept == {name: text for name, text in told.items() if text}
    merged = (folder / "log").read_bytes()
    assert sorted(merged.splitlines()) == sorted(line for text in told.values() for line in text.splitlines())
    assert len(kept) > 1 or merged == next(iter(kept.values()))


def written(kube: Kube, pod: dict[str, Any]) -> bytes:
    """By its container, to the node."""
    path = kube.folder / "logs" / pod["metadata"]["uid"] / pod["spec"]["containers"][0]["name"] / "0.log"
    return b"".join(parsed(line + b"\n").text for line in path.read_bytes().split(b"\n")[:-1])
