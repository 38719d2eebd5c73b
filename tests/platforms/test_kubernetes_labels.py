"""Jobs on Kubernetes whose labels a webhook or a person changes: followed, cancelled and pruned by their uids."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from platforms.config.schema import Platform
from platforms.job import JobSpec, Layout, State, Status, Submitted
from platforms.schedulers.kubernetes import create
from platforms.schedulers.kubernetes.api.client import ApiError
from platforms.schedulers.kubernetes.api.informer import Informer, NamespaceObjects
from platforms.schedulers.kubernetes.api.resources import PODS, Resource
from platforms.schedulers.kubernetes.leftovers import NamespaceLeftovers
from platforms.schedulers.kubernetes.objects import labels
from platforms.schedulers.kubernetes.scheduler import KubernetesScheduler
from platforms.schedulers.kubernetes.snapshot import EXPLANATION_AGE_S
from tests.fake_kubernetes import Kube
from tests.waiting import until

OUR_KEYS = (labels.MANAGED_BY, labels.RUN, labels.JOB, labels.PLATFORM, labels.TEST)


@pytest.fixture
def kube(tmp_path: Path) -> Iterator[Kube]:
    with Kube(tmp_path / "kube") as kube:
        yield kube


@pytest.fixture
def gate() -> Iterator[Path]:
    """Jobs end when somebody makes this file. It is not in /tmp, of which a pod has one of its own."""
    folder = Path(tempfile.mkdtemp(dir="/var/tmp"))
    yield folder / "gate"
    shutil.rmtree(folder)


class Following:
    """One job, and the session that follows it, whose clock may be moved on."""

    def __init__(self, kube: Kube, folder: Path, gate: Path, kind: str) -> None:
        cluster = {"kubeconfig": str(kube.kubeconfig), "image": "i:1", "cpu": "50m", "memory": "64Mi", "kind": kind}
        known = {"name": "k", "source": folder / "k.yaml", "scheduler": "kubernetes", "device": "cpu"}
        self.platform = Platform.model_validate(known | {"layouts": {"default": ("1x1",)}, "kubernetes": cluster})
        self.kube, self.folder, self.plural = kube, folder / "job", f"{kind}s"
        kube.images["i:1"] = {}
        self.gate = gate
        self.command = f"trap 'exit 1' TERM; echo begun; until [ -e {self.gate} ]; do sleep 0.05; done; echo done"
        layout = Layout(1, 1, "cpu")
        self.spec = JobSpec(
            "it-1x1cpu-kabcdefg", "test_it.py::test_it[k]", "k", layout, ("sh", "-c", self.command), run="rabcdefg"
        )
        self.new_session()

    def new_session(self) -> None:
        self.skipped_s = 0.0
        self.scheduler = KubernetesScheduler(self.platform, clock=lambda: time.monotonic() + self.skipped_s)

    def submit(self) -> Submitted:
        self.folder.mkdir(exist_ok=True)
        text = self.scheduler.render(self.spec)
        (self.folder / self.scheduler.text_name).write_text(text)
        self.job = Submitted(
            self.scheduler.submit(self.spec, text, self.folder), self.spec.name, time.time(), self.folder
        )
        return self.job

    def look(self) -> Status:
        self.skipped_s += EXPLANATION_AGE_S / 4
        return self.scheduler.status([self.job])[self.job.job_id]

    def until(self, state: State) -> Status:
        seen: list[Status] = []

        def reached() -> bool:
            seen.append(self.look())
            assert seen[-1].state.live or seen[-1].state is state, seen[-1]
            return seen[-1].state is state

        until(reached, f"it is {state}", longest_s=0.1)
        return seen[-1]

    def log(self) -> bytes:
        return (self.folder / "log").read_bytes() if (self.folder / "log").exists() else b""

    def leftovers(self) -> dict[str, str]:
        return {found.name: found.stays for found in NamespaceLeftovers(self.platform).find()}


def webhook(kube: Kube, plurals: tuple[str, ...], keys: tuple[str, ...], value: str | None) -> None:
    """Each new object of these kinds loses these labels, or gets them with another value."""

    def mutate(plural: str, obj: dict[str, Any]) -> None:
        if plural in plurals:
            obj["metadata"]["labels"] = changed(obj, keys, value)

    kube.store.admission.append(mutate)


def changed(obj: dict[str, Any], keys: tuple[str, ...], value: str | None) -> dict[str, Any]:
    kept = {key: old for key, old in obj["metadata"].get("labels", {}).items() if key not in keys}
    return kept | ({} if value is None else dict.fromkeys(keys, value))


WEBHOOKS = {
    "who manages it": (("jobs", "pods", "configmaps"), (labels.MANAGED_BY,), "Helm"),
    "all of the job": (("jobs",), OUR_KEYS, None),
    "all of its pods": (("pods",), OUR_KEYS, None),
    "all": (("jobs", "pods"), OUR_KEYS, None),
    "other values": (("jobs", "pods"), OUR_KEYS, "theirs"),
}


@pytest.mark.parametrize(("kind", "what"), [*(("job", what) for what in WEBHOOKS), ("pod", "all")])
def test_a_job_whose_labels_a_webhook_changes_is_followed_to_its_end(
    kube: Kube, tmp_path: Path, gate: Path, kind: str, what: str
) -> None:
    webhook(kube, *WEBHOOKS[what])
    job = Following(kube, tmp_path, gate, kind)
    job.submit()
    job.until(State.RUNNING)
    until(lambda: job.look() and b"begun" in job.log(), "its log is read")
    job.gate.touch()
    job.until(State.SUCCEEDED)
    until(lambda: job.log() == b"begun\ndone\n", "its log is whole")


def test_a_pod_that_alone_has_no_labels_is_one_of_its_job(kube: Kube, tmp_path: Path, gate: Path) -> None:
    """As where a webhook looks at what a pod asks for."""
    job = Following(kube, tmp_path, gate, "job")
    is_second = iter((False, True))
    kube.store.admission.append(
        lambda plural, obj: obj["metadata"].pop("labels") if plural == "pods" and next(is_second) else None
    )
    box = {"name": "benchmark", "image": "i:1", "command": ["sh", "-c", job.command]}
    template = {"spec": {"restartPolicy": "Never", "containers": [box]}}
    spec = {"backoffLimit": 0, "completions": 2, "parallelism": 2, "template": template}
    job.spec = replace(job.spec, manifest={"apiVersion": "batch/v1", "kind": "Job", "spec": spec})
    job.submit()
    until(lambda: job.look() and job.log().count(b"begun") == 2, "both are read")
    job.gate.touch()
    job.until(State.SUCCEEDED)
    until(lambda: job.log().count(b"done") == 2, "the log is whole")


@pytest.mark.parametrize("plural", ["jobs", "pods"])
def test_a_job_whose_labels_a_person_removes_is_followed_to_its_end(
    kube: Kube, tmp_path: Path, gate: Path, plural: str
) -> None:
    """To a watch by labels that looks as if it were deleted."""
    job = Following(kube, tmp_path, gate, "job")
    job.submit()
    job.until(State.RUNNING)
    for obj in kube.store.list(plural, "default")[0]:
        kube.store.change(
            plural,
            "default",
            obj["metadata"]["name"],
            lambda there: there["metadata"].update(labels=changed(there, OUR_KEYS, None)),
        )
    for _ in range(20):
        assert job.look().state is State.RUNNING
        time.sleep(0.02)
    job.gate.touch()
    job.until(State.SUCCEEDED)


def test_a_watch_that_is_behind_a_list_takes_no_job_back(
    kube: Kube, tmp_path: Path, gate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The LIST of all pods has shown that the pod runs; after that the watch brings what it was before."""
    job = Following(kube, tmp_path, gate, "job")
    job.submit()
    until(lambda: [pod["status"]["phase"] for pod in kube.store.list("pods", "default")[0]] == ["Running"], "it runs")
    (now,) = kube.store.list("pods", "default")[0]
    before = {**now, "metadata": now["metadata"] | {"resourceVersion": "1"}, "status": {"phase": "Pending"}}
    behind: dict[tuple[str, str], Any] = {}
    whole = Informer.snapshot

    def snapshot(self: Informer, resources: list[Resource], *args: Any, **kwargs: Any) -> NamespaceObjects:
        return NamespaceObjects(behind, {}) if PODS in resources else whole(self, resources, *args, **kwargs)

    monkeypatch.setattr(Informer, "snapshot", snapshot)
    assert job.look().state is State.RUNNING
    behind["Pod", now["metadata"]["name"]] = before
    assert job.look().state is State.RUNNING
    job.gate.touch()
    behind.clear()
    job.until(State.SUCCEEDED)


@pytest.mark.parametrize(("kind", "what"), [("job", "all"), ("pod", "all")])
def test_a_cancel_waits_for_pods_that_have_lost_their_labels(
    kube: Kube, tmp_path: Path, gate: Path, kind: str, what: str
) -> None:
    webhook(kube, *WEBHOOKS[what])
    job = Following(kube, tmp_path, gate, kind)
    job.submit()
    job.until(State.RUNNING)
    assert job.scheduler.cancel([job.job]) == {}
    assert kube.store.list("pods", "default")[0] == []


def test_an_object_that_has_taken_our_name_is_not_ours(kube: Kube, tmp_path: Path, gate: Path) -> None:
    """Somebody has deleted the job and created it again from its manifest: another uid, and no job of this session."""
    job = Following(kube, tmp_path, gate, "job")
    job.submit()
    job.until(State.RUNNING)
    (ours,) = kube.store.list("jobs", "default")[0]
    kube.store.delete("jobs", "default", job.spec.name)
    kube.until(lambda: not kube.store.exists("jobs", "default", job.spec.name))
    again = {"metadata": {key: ours["metadata"][key] for key in ("name", "labels")}, "spec": ours["spec"]}
    del again["spec"]["selector"]
    theirs = kube.store.create("jobs", "default", again)["metadata"]["uid"]
    job.scheduler.cancel([job.job])
    assert [each["metadata"]["uid"] for each in kube.store.list("jobs", "default")[0]] == [theirs]


def test_an_answer_that_was_lost_makes_no_second_job_of_one_without_labels(
    kube: Kube, tmp_path: Path, gate: Path
) -> None:
    webhook(kube, *WEBHOOKS["all of the job"])
    job = Following(kube, tmp_path, gate, "job")
    first = job.submit()
    (job.folder / "created.json").unlink()
    job.new_session()
    assert job.submit() == Submitted(first.job_id, first.name, job.job.submitted_s, first.folder)
    assert len(kube.store.list("jobs", "default")[0]) == 1


@pytest.mark.parametrize("what", ["who manages it", "all of the job"])
def test_prune_finds_a_job_that_has_lost_its_labels(kube: Kube, tmp_path: Path, gate: Path, what: str) -> None:
    webhook(kube, *WEBHOOKS[what])
    job = Following(kube, tmp_path, gate, "job")
    job.submit()
    job.until(State.RUNNING)
    name = f"job.batch/{job.spec.name}"
    assert job.leftovers()[name] == "its job waits or runs"
    job.gate.touch()
    job.until(State.SUCCEEDED)
    place = NamespaceLeftovers(job.platform)
    (found,) = (each for each in place.find() if each.name == name)
    assert (found.owner, found.stays, place.remove([found])) == (job.spec.name, "", [])
    assert kube.store.list("jobs", "default")[0] == []
    read = [one for one in kube.requests if one.path.endswith("/secrets") and one.method == "GET"]
    assert read
    assert all("labelSelector" in one.query for one in read), "other people's are read, too"


def test_an_object_of_another_job_with_a_name_that_the_manifest_fixes_is_not_ours() -> None:
    env = [{"name": create.NOT_AFTER, "value": "1"}]
    there = {"metadata": {"name": "cache", "labels": {labels.JOB: "other"}}, "spec": {"containers": [{"env": env}]}}
    client: Any = SimpleNamespace(where="here", get=lambda resource, name: there)
    wanted = {"metadata": {"name": "cache", "labels": {labels.JOB: "mine"}}}
    with pytest.raises(ApiError, match="it is not ours"):
        create._existing(client, PODS, wanted, ApiError(409, "it exists"))
