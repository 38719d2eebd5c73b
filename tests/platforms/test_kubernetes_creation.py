"""A job's objects on Kubernetes: made once whoever submits and however often, owned, and nobody else's; claims."""

from __future__ import annotations

import base64
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from platforms.config.schema import Platform
from platforms.job import AwayError, JobSpec, Layout, MachineError, NoRoom, RefusedError, State, Submitted
from platforms.schedulers.kubernetes import volume_claims
from platforms.schedulers.kubernetes.api.client import Client
from platforms.schedulers.kubernetes.api.kubeconfig import ClusterTarget
from platforms.schedulers.kubernetes.objects import labels
from platforms.schedulers.kubernetes.scheduler import KubernetesScheduler
from tests.fake_kubernetes import Kube
from tests.fake_kubernetes.api.messages import Answer

NAME = "it-2x1cpu-abcdefgh"
SUBMITTERS = 5


@pytest.fixture
def kube(tmp_path: Path) -> Iterator[Kube]:
    with Kube(tmp_path / "kube", nodes=False) as kube:
        yield kube


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    path = tmp_path / "models-0123456789ab.pyz"
    path.write_bytes(b"PK\x00\xff")
    return path


def platform_of(kube: Kube, **keys: Any) -> Platform:
    cluster = {"kubeconfig": str(kube.kubeconfig), "image": "i:1", "cpu": "1", "memory": "1Gi", **keys}
    known = {"name": "k", "source": kube.folder / "k.yaml", "scheduler": "kubernetes", "device": "cpu"}
    return Platform.model_validate(known | {"layouts": {"default": ("2x1",)}, "kubernetes": cluster})


def spec_of(archive: Path | None = None, **changes: Any) -> JobSpec:
    spec = JobSpec(NAME, "test_it.py::test_it[k]", "k", Layout(2, 1, "cpu"), ("train",), run="rabcdefg")
    return replace(spec, archive=archive, launcher="torchrun", python="python3", **changes)


def submit(kube: Kube, spec: JobSpec, folder: Path, scheduler: KubernetesScheduler | None = None, **keys: Any) -> str:
    """As a session does that knows nothing of others."""
    scheduler = scheduler or KubernetesScheduler(platform_of(kube, **keys))
    folder.mkdir(exist_ok=True)
    text = scheduler.render(spec)
    (folder / scheduler.text_name).write_text(text)
    return scheduler.submit(spec, text, folder)


def there(kube: Kube, kind: str) -> list[dict[str, Any]]:
    return [
        each for each in kube.store.list(kind, "default")[0] if labels.MANAGED_BY in each["metadata"].get("labels", {})
    ]


def made(kube: Kube) -> Counter[str]:
    """Objects that were created, by kind: 201, no 409."""
    kinds = ("jobs", "services", "secrets", "configmaps", "pods")
    return Counter({kind: len(there(kube, kind)) for kind in kinds if there(kube, kind)})


ONE_OF_EACH = {"jobs": 1, "services": 1, "secrets": 1, "configmaps": 1}


@pytest.mark.slow
def test_five_submitters_at_once_make_one_job(kube: Kube, tmp_path: Path, archive: Path) -> None:
    spec = spec_of(archive, env={"API_TOKEN": "s3cret", "PLAIN": "1"})
    with ThreadPoolExecutor(SUBMITTERS) as pool:
        ids = list(pool.map(lambda number: submit(kube, spec, tmp_path / str(number)), range(SUBMITTERS)))
    assert set(ids) == {f"fake:default/job.batch/{NAME}"}
    assert made(kube) == ONE_OF_EACH
    (root,) = there(kube, "jobs")
    for kind in ("services", "secrets"):  # they go when it goes
        (beside,) = there(kube, kind)
        assert [owner["uid"] for owner in beside["metadata"]["ownerReferences"]] == [root["metadata"]["uid"]]
    assert "ownerReferences" not in there(kube, "configmaps")[0]["metadata"]  # other jobs read it


def test_hidden_values_are_only_in_the_secret(kube: Kube, tmp_path: Path, archive: Path) -> None:
    submit(kube, spec_of(archive, env={"API_TOKEN": "s3cret", "PLAIN": "1"}), tmp_path / "job")
    (secret,) = there(kube, "secrets")
    assert base64.b64decode(secret["data"]["API_TOKEN"]) == b"s3cret"
    assert "PLAIN" not in secret["data"]
    assert "s3cret" not in str(there(kube, "jobs")) + (tmp_path / "job/manifest.yaml").read_text()


@pytest.mark.parametrize("path", ["/configmaps", "/services", "/secrets", "/jobs"])
def test_a_lost_answer_to_a_create_makes_no_second_object(kube: Kube, tmp_path: Path, archive: Path, path: str) -> None:
    """The object was made and nobody heard of it."""
    kube.fault("POST", path + "$", lost=True)
    spec = spec_of(archive, env={"API_TOKEN": "s3cret"})
    folder, scheduler = tmp_path / "job", KubernetesScheduler(platform_of(kube))
    end = time.monotonic() + 60
    while True:
        try:
            assert submit(kube, spec, folder, scheduler) == f"fake:default/job.batch/{NAME}"
            break
        except AwayError:
            assert time.monotonic() < end
    assert made(kube) == ONE_OF_EACH


def test_submit_continues_after_a_session_died_between_objects(kube: Kube, tmp_path: Path, archive: Path) -> None:
    """It had got as far as the Service: the next one goes on from there."""
    spec = spec_of(archive)
    kube.fault("POST", "/jobs$", reset=True)
    with pytest.raises(AwayError):
        submit(kube, spec, tmp_path / "first")
    assert made(kube) == {"services": 1, "configmaps": 1}
    submit(kube, spec, tmp_path / "second")
    assert made(kube) == {"jobs": 1, "services": 1, "configmaps": 1}
    assert there(kube, "services")[0]["metadata"]["ownerReferences"]


def used_up(kube: Kube, path: str, what: str, most: int) -> None:
    """Of a quota of `most` everything is used."""
    amounts = f"requested: {what}=1, used: {what}={most}, limited: {what}={most}"
    kube.fault("POST", path, None, code=403, message=f"new is forbidden: exceeded quota: team, {amounts}")


def test_a_lost_answer_is_resolved_though_the_object_fills_the_quota(kube: Kube, tmp_path: Path) -> None:
    """A quota is asked before names are: what uses it up is the very object that nobody has answered for."""
    kube.fault("POST", "/pods$", lost=True)
    scheduler, spec = KubernetesScheduler(platform_of(kube, kind="pod")), spec_of(layout=Layout(1, 1, "cpu"))
    with pytest.raises(AwayError):
        submit(kube, spec, tmp_path / "job", scheduler)
    used_up(kube, "/pods$", "pods", 1)
    assert submit(kube, spec, tmp_path / "job", scheduler) == f"fake:default/pod/{NAME}"
    with pytest.raises(NoRoom):
        submit(kube, replace(spec, name="another-1x1cpu-abcdefgh"), tmp_path / "another", scheduler)
    assert made(kube) == {"pods": 1}


SECRET = {"API_TOKEN": "s3cret"}
QUOTA = (
    'Operation cannot be fulfilled on resourcequotas "team": the object has been modified; please apply your changes'
)


@pytest.mark.slow
def test_a_quota_conflict_is_retried(kube: Kube, tmp_path: Path) -> None:
    """Nothing was made, and the next time something may be (kubernetes#67761)."""
    kube.fault("POST", "/(services|jobs)$", 2, code=409, message=QUOTA)
    submit(kube, spec_of(), tmp_path / "job")
    assert made(kube) == {"jobs": 1, "services": 1}


REFUSALS = [
    ("jobs", {"code": 403, "message": 'admission webhook "vjob.kb.io" denied the request'}, MachineError),
    ("jobs", {"code": 422}, MachineError),
    ("services", {"code": 403}, MachineError),
    ("jobs", {"code": 403, "message": "exceeded quota: q, requested: a=1, used: a=1, limited: a=1"}, NoRoom),
]


@pytest.mark.parametrize(("path", "what", "error"), REFUSALS)
def test_a_refused_job_leaves_no_objects(
    kube: Kube, tmp_path: Path, path: str, what: dict[str, Any], error: type[Exception]
) -> None:
    """Its credentials above all."""
    kube.fault("POST", f"/{path}$", **what)
    with pytest.raises(error):
        submit(kube, spec_of(env=SECRET), tmp_path / "job")
    assert made(kube) == {}


@pytest.mark.parametrize("when", ["before", "meanwhile"])
def test_a_refused_job_keeps_objects_of_another_submitter(kube: Kube, tmp_path: Path, when: str) -> None:
    def denied(_request: object) -> Answer:
        if when == "meanwhile":  # he found ours, and his job was not refused
            owner = {"apiVersion": "batch/v1", "kind": "Job", "name": NAME, "uid": "his"}
            for kind in ("secrets", "services"):
                kube.store.change(kind, "default", NAME, lambda each: each["metadata"].update(ownerReferences=[owner]))
        return Answer(403, {"kind": "Status", "message": "denied", "reason": "Forbidden"})

    if when == "before":
        kube.fault("POST", "/jobs$", reset=True)
        with pytest.raises(AwayError):
            submit(kube, spec_of(env=SECRET), tmp_path / "his")
    kube.fault("POST", "/jobs$", do=denied)
    with pytest.raises(MachineError, match="denied"):
        submit(kube, spec_of(env=SECRET), tmp_path / "mine")
    assert made(kube) == {"services": 1, "secrets": 1}


@pytest.mark.parametrize(("kinds", "code"), [("services|secrets", 403), ("services|secrets", 422), ("secrets", 500)])
@pytest.mark.parametrize("ends", ["cancel", "clean"])
@pytest.mark.slow
def test_objects_without_an_owner_reference_are_deleted_with_their_job(
    kube: Kube, tmp_path: Path, kinds: str, code: int, ends: str
) -> None:
    """Once there is a job nothing refuses it: OwnerReferencesPermissionEnforcement wants rights that not all have."""
    kube.fault("PATCH", f"/({kinds})/", None, code=code)
    job_id = submit(kube, spec_of(env=SECRET), tmp_path / "job")
    assert made(kube) == {"jobs": 1, "services": 1, "secrets": 1}
    other = KubernetesScheduler(platform_of(kube))  # of a later session
    job = Submitted(job_id, NAME, time.time(), tmp_path / "job")
    if ends == "cancel":
        assert other.cancel([job]) == {}
    else:
        other.clean(job)
    assert made(kube) == ({} if "services" in kinds else {"services": 1})  # which nobody collects here


def test_a_job_that_cannot_be_recorded_is_found_again(kube: Kube, tmp_path: Path) -> None:
    """A full disk on this machine is no reason to delete what runs there."""
    (tmp_path / "job/created.json").mkdir(parents=True)
    with pytest.raises(OSError, match=r"created.json"):
        submit(kube, spec_of(), tmp_path / "job")
    assert len(there(kube, "jobs")) == 1
    (tmp_path / "job/created.json").rmdir()
    submit(kube, spec_of(), tmp_path / "job")
    assert len(there(kube, "jobs")) == 1
    assert (tmp_path / "job/created.json").exists()


def test_a_job_that_the_cluster_has_forgotten_is_not_created_again(kube: Kube, tmp_path: Path) -> None:
    """The folder remembers: a job that ran is not run again because the cluster has forgotten it."""
    job_id = submit(kube, spec_of(), tmp_path / "job")
    kube.store.delete("jobs", "default", NAME)
    before = len(kube.requests)
    assert submit(kube, spec_of(), tmp_path / "job") == job_id
    assert len(kube.requests) == before


@pytest.mark.parametrize(
    "foreign",
    [
        {},
        {"app.kubernetes.io/managed-by": "Helm"},
        {"app.kubernetes.io/managed-by": "hpc-ml-bench", "hpc-ml-bench/job": "another"},
    ],
)
@pytest.mark.parametrize("kind", ["jobs", "services"])
def test_submit_refuses_a_name_that_another_owner_has(
    kube: Kube, tmp_path: Path, kind: str, foreign: dict[str, str]
) -> None:
    version = {"jobs": "batch/v1", "services": "v1"}[kind]
    pod = {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}
    spec = {"jobs": {"template": {"spec": pod}}, "services": {"clusterIP": "None", "selector": {"a": "b"}}}[kind]
    theirs = {"apiVersion": version, "metadata": {"name": NAME, "labels": foreign}, "spec": spec}
    uid = kube.store.create(kind, "default", theirs)["metadata"]["uid"]
    with pytest.raises(MachineError, match="already exists, and it is not ours") as refused:
        submit(kube, spec_of(), tmp_path / "job")
    assert refused.value.status.state is State.SUBMIT_REFUSED
    assert str(tmp_path / "job/manifest.yaml") in str(refused.value)
    assert kube.store.get(kind, "default", NAME)["metadata"]["uid"] == uid


def test_the_code_archive_is_uploaded_once_for_all_jobs(kube: Kube, tmp_path: Path, archive: Path) -> None:
    scheduler = KubernetesScheduler(platform_of(kube))
    for number in range(3):
        submit(kube, replace(spec_of(archive), name=f"it{number}-2x1cpu-abcdefgh"), tmp_path / str(number), scheduler)
    posts = [request for request in kube.requests if (request.method, request.path[-11:]) == ("POST", "/configmaps")]
    assert len(posts) == 1
    (code,) = there(kube, "configmaps")
    assert base64.b64decode(code["binaryData"][archive.name]) == archive.read_bytes()
    assert code["immutable"] is True


def test_submit_refuses_an_archive_that_is_too_large_for_a_config_map(
    kube: Kube, tmp_path: Path, archive: Path
) -> None:
    archive.write_bytes(b"x" * ((1 << 20) + 1))
    with pytest.raises(RefusedError, match=r"1048577 bytes are more than a ConfigMap .*`kubernetes: {archive: …}`"):
        submit(kube, spec_of(archive), tmp_path / "job")
    assert made(kube) == {}


def test_code_in_the_image_is_not_uploaded(kube: Kube, tmp_path: Path, archive: Path) -> None:
    submit(kube, spec_of(archive), tmp_path / "job", archive="/opt/models.pyz")
    assert made(kube) == {"jobs": 1, "services": 1}


def test_a_pod_knows_the_deadline_for_its_start(kube: Kube, tmp_path: Path) -> None:
    began = time.time()
    submit(kube, spec_of(start_limit_s=100.0), tmp_path / "job")
    (root,) = there(kube, "jobs")
    env = {each["name"]: each.get("value") for each in root["spec"]["template"]["spec"]["containers"][0]["env"]}
    assert int(began) + 100 <= int(env["HPC_ML_BENCH_NOT_AFTER"]) <= time.time() + 100


@pytest.mark.parametrize(
    ("most", "error", "said"), [(1, NoRoom, "used up"), (0, MachineError, "more than quota team allows at all")]
)
def test_submit_waits_for_a_used_up_quota(
    kube: Kube, tmp_path: Path, most: int, error: type[Exception], said: str
) -> None:
    """And one that will never have room is not."""
    used_up(kube, "/jobs$", "count/jobs.batch", most)
    with pytest.raises(error, match=said):
        submit(kube, spec_of(), tmp_path / "job")
    assert there(kube, "jobs") == []


# --- claims ----------------------------------------------------------------------------------------------------------


def volume(**keys: str) -> dict[str, str]:
    return {"mount": "/data", "pvc": "hpc-ml-bench-data", **keys}


def make(kube: Kube, *volumes: dict[str, str]) -> list[str]:
    platform = platform_of(kube, volumes=volumes)
    return list(volume_claims.create_missing(Client(ClusterTarget.of(platform)), platform))


def test_a_missing_claim_is_created_once(kube: Kube) -> None:
    wanted = volume(size="100Gi", storage_class="fast", access_mode="ReadWriteMany")
    (said,) = make(kube, wanted)
    assert said.endswith("claim hpc-ml-bench-data: 100Gi of class fast, ReadWriteMany: made")
    claim = kube.store.get("persistentvolumeclaims", "default", "hpc-ml-bench-data")
    assert claim["spec"]["storageClassName"] == "fast"
    assert claim["spec"]["resources"]["requests"]["storage"] == "100Gi"
    assert labels.PLATFORM not in claim["metadata"]["labels"]  # prune takes nobody's data
    assert make(kube, volume(size="1Gi")) == []


def test_a_missing_claim_without_a_size_is_refused(kube: Kube) -> None:
    with pytest.raises(RefusedError, match=r"no claim hpc-ml-bench-data, .* at /data: create it, or write `size:"):
        make(kube, volume())


@pytest.mark.parametrize(("verb", "code"), [("GET", 422), ("POST", 403)])
def test_a_refused_claim_is_an_error(kube: Kube, verb: str, code: int) -> None:
    kube.fault(verb, "/persistentvolumeclaims", code=code, message="not yours")
    with pytest.raises(RefusedError, match="claim hpc-ml-bench-data: not yours"):
        make(kube, volume(size="1Gi"))


@pytest.mark.parametrize("keys", [{}, {"size": "1Gi"}])
def test_a_claim_that_may_not_be_read_is_assumed_to_exist(kube: Kube, keys: dict[str, str]) -> None:
    kube.fault("GET", "/persistentvolumeclaims", code=403, message="not yours")
    assert make(kube, volume(**keys)) == [
        "cluster fake, namespace default: claim hpc-ml-bench-data cannot be checked: not yours"
    ]
