"""`python -m platforms doctor` on a cluster: a line a step, the first failure named with its cure, nothing made."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from platforms import checkout, schedulers
from platforms.__main__ import main
from platforms.commands.doctor import node_checks
from platforms.config.schema import Platform
from platforms.job import RefusedError
from platforms.schedulers.doctor_steps import Visit
from platforms.schedulers.kubernetes.doctor import rights as cluster_rights
from platforms.schedulers.kubernetes.doctor.context import ClusterVisit
from tests.fake_kubernetes import Kube

ROOT = Path(__file__).resolve().parents[2]
PRODUCT, A100 = "nvidia.com/gpu.product", "NVIDIA-A100-SXM4-40GB"
KUEUE = "kueue.x-k8s.io"
Object = dict[str, Any]


@pytest.fixture
def kube(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Kube]:
    """An API server with a namespace that has all that a platform can want, and nothing that runs pods."""
    with Kube(tmp_path / "kube", nodes=False) as kube:
        monkeypatch.setenv("KUBECONFIG", str(kube.kubeconfig))
        for kind, plural, namespaced in (("LocalQueue", "localqueues", True), ("ClusterQueue", "clusterqueues", False)):
            kube.add_crd(KUEUE, "v1beta1", kind, plural, namespaced=namespaced)
        put(kube, "localqueues", "mine", spec={"clusterQueue": "team"}, status=active("True"))
        gpus = {"name": "nvidia.com/gpu", "nominalQuota": 12}
        others = [{"name": "cpu", "nominalQuota": 999}, {"name": "memory", "nominalQuota": "9Ti"}]
        flavor = {"name": "all", "resources": [gpus, *others]}
        groups = [{"coveredResources": ["nvidia.com/gpu", "cpu", "memory"], "flavors": [flavor]}]
        put(kube, "clusterqueues", "team", spec={"resourceGroups": groups}, status=active("True"))
        taint = {"key": "nvidia.com/gpu", "effect": "NoSchedule"}
        for name in ("a-1", "a-2"):
            node(kube, name, {"cpu": "96", "memory": "960Gi", "nvidia.com/gpu": "8"}, {PRODUCT: A100}, taint)
        node(kube, "c-1", {"cpu": "64", "memory": "512Gi"})
        put(kube, "resourcequotas", "team", spec={"hard": {"requests.cpu": "100"}})
        kube.store.patch_status("resourcequotas", "default", "team", {"hard": {"requests.cpu": "100"}, "used": {}})
        claim(kube, "sets")
        yield kube


def put(kube: Kube, plural: str, name: str, **keys: Any) -> None:
    """An object as it is, its status, too."""
    namespace = "default" if kube.store.kinds[plural].namespaced else ""
    status, metadata = keys.pop("status", None), {"name": name, **keys.pop("metadata", {})}
    kube.store.create(plural, namespace, {"metadata": metadata, **keys})
    if status is not None:
        kube.store.patch_status(plural, namespace, name, status)


def active(status: str, reason: str = "Ready", message: str = "Can submit new workloads") -> Object:
    return {"conditions": [{"type": "Active", "status": status, "reason": reason, "message": message}]}


def node(
    kube: Kube, name: str, allocatable: Mapping[str, str], labels: Mapping[str, str] | None = None, *taints: Object
) -> None:
    status = {"allocatable": {"pods": "110", **allocatable}, "conditions": [{"type": "Ready", "status": "True"}]}
    put(kube, "nodes", name, metadata={"labels": labels or {}}, spec={"taints": list(taints)}, status=status)


def claim(kube: Kube, name: str, phase: str = "Bound", mode: str = "ReadWriteMany", storage_class: str = "fs") -> None:
    resources = {"requests": {"storage": "50Gi"}}
    spec = {"accessModes": [mode], "resources": resources, "storageClassName": storage_class}
    capacity = {"capacity": {"storage": "50Gi"}} if phase == "Bound" else {}
    put(kube, "persistentvolumeclaims", name, spec=spec, status={"phase": phase, **capacity})


@pytest.fixture
def site(tmp_path: Path) -> Path:
    (tmp_path / "site" / "platforms").mkdir(parents=True)
    (tmp_path / "site" / "site.yaml").write_text("enabled: [it]\n")
    return tmp_path / "site"


LAYOUTS = {"default": ["1x4"], "large": ["1x8"]}
KEYS: Object = {"scheduler": "kubernetes", "device": "gpu", "layouts": LAYOUTS, "data_dir": "/data"}
CLUSTER: Object = {
    "context": "fake",
    "queue": "mine",
    "image": "registry.example/torch@sha256:" + 64 * "0",
    "cpu": "32",
    "memory": "256Gi",
    "shm": "16Gi",
    "node_selector": {PRODUCT: A100},
    "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}],
    "volumes": [{"mount": "/data", "pvc": "sets"}],
}


def write(site: Path, cluster: Mapping[str, Any] | None = None, **keys: Any) -> None:
    """The platform `it`; None takes a key away."""
    inner = {key: value for key, value in {**CLUSTER, **(cluster or {})}.items() if value is not None}
    (site / "platforms" / "it.yaml").write_text(yaml.safe_dump({**KEYS, **keys, "kubernetes": inner}))


def doctor(site: Path, *words: str) -> int:
    return main(["doctor", "it", "--site", str(site), "--runs-dir", f"{site.parent}/runs", *words])


def steps(printed: str) -> list[tuple[str, str]]:
    """(ok, failed or skipped; title) of every line."""
    return [(line.split()[0], line.split()[1]) for line in printed.splitlines() if not line.startswith("next:")]


WELL = ["file", "context", "kind", "rights", "queue", "quota", "nodes", "storage", "policy", "server"]


@pytest.mark.slow
def test_all_is_well(kube: Kube, site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(site)
    assert doctor(site) == 0
    printed = capsys.readouterr().out
    assert steps(printed) == [*(("ok", title) for title in WELL), ("skipped", "node"), ("skipped", "data")]
    for words in (
        "cluster fake, namespace default: Kubernetes v1.36",
        "served: job.batch",
        "everything that is needed is allowed\n",
        "mine of ClusterQueue team takes jobs, 0 wait, 0 admitted",
        "every layout fits into ResourceQuota team, ClusterQueue team\n",
        "nodes that suit every layout: 2 of 3",
        "sets: Bound, ReadWriteMany",
        "takes 1 manifest in a dry run\n",
        "only a job can see that, with --node",
    ):
        assert words in printed
    assert printed.endswith(f"next: pytest -m it --site={site}\n")
    made = [each for each in kube.requests if each.method != "GET" and each.query.get("dryRun") != "All"]
    assert {each.path.rpartition("/")[2] for each in made} == {"selfsubjectaccessreviews"}


@pytest.mark.slow
def test_a_file_that_init_drafted_needs_only_an_image(
    kube: Kube, site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["init", "it", "--context", "fake", "--site", str(site)]) == 0
    path = site / "platforms" / "it.yaml"
    path.write_text(path.read_text().replace("# image: nvcr.io", "image: nvcr.io"))
    capsys.readouterr()
    assert doctor(site) == 0
    assert steps(capsys.readouterr().out)[: len(WELL)] == [("ok", title) for title in WELL]


def test_what_we_need_not_see(kube: Kube, site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kube.forbid("nodes", "events", "resourcequotas", "namespaces", "clusterqueues", "workloads")
    write(site)
    assert doctor(site) == 0
    printed = capsys.readouterr().out
    skipped = [title for word, title in steps(printed) if word == "skipped"]
    assert skipped == ["quota", "nodes", "node", "data"]
    assert "without `list events` no message says why a pod waits" in printed
    assert "without `list workloads.kueue.x-k8s.io` no message says why Kueue lets a job wait" in printed
    assert "whether the namespace is there we may not see" in printed
    assert "ClusterQueue team may not be seen" in printed


@pytest.mark.parametrize(
    ("pvc", "refused"), [("sets", ""), ("new", "not allowed: create persistentvolumeclaims.")], ids=["there", "missing"]
)
def test_a_claim_that_is_there_need_not_be_made(
    pvc: str, refused: str, kube: Kube, site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kube.forbid("create persistentvolumeclaims")
    write(site, {"volumes": [{"mount": "/data", "pvc": pvc, "size": "1Gi"}]})
    assert doctor(site) == (1 if refused else 0)
    assert refused in capsys.readouterr().out


@pytest.mark.slow
def test_what_only_prune_needs_is_said(
    kube: Kube, site: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HPC_ML_BENCH_HF", "hf_x")
    kube.forbid("list services", "list secrets", "get persistentvolumeclaims")
    write(site, layouts={"default": ["2x4"]}, env={"HF_TOKEN": "${site.hf}"})
    assert doctor(site) == 0
    printed = capsys.readouterr().out
    for right in ("list services", "list secrets", "get persistentvolumeclaims"):
        assert f"without `{right}` " in printed


# What is wrong -> what is done about it in the file or the cluster, the step that finds it, and what it says.
Arrange = Callable[[Kube], object]
RANGE = 'pods "it" is forbidden: maximum memory usage per Pod is 64Gi, but limit is 274877906944'  # of a LimitRange
WRONG: dict[str, tuple[Mapping[str, Any], Arrange, str, str]] = {
    "context": ({"context": "fakes"}, lambda kube: None, "context", "there is no context 'fakes'"),
    "kubeconfig": ({"kubeconfig": "/no/such"}, lambda kube: None, "context", "/no/such"),
    "namespace": (
        {"namespace": "defualt"}, lambda kube: None, "context",
        "there is no namespace 'defualt' (did you mean 'default'?); `kubernetes: {namespace: …}` in ",
    ),
    "login": ({}, lambda kube: kube.revoke_token(), "context", "kubectl"),
    "image": ({"image": None}, lambda kube: None, "kind", "`kubernetes: {image: …}`"),
    "kind": ({"kind": "ipujob"}, lambda kube: None, "kind", "there is no kind IPUJob of graphcore.ai/v1alpha1"),
    "rights": (
        {}, lambda kube: kube.forbid("create jobs", "pods/log"), "rights",
        "not allowed: create jobs.batch, get pods/log. The namespace's administrator can allow it: "
        "sed 's/namespace: default/namespace: default/' k8s_templates/rbac.yaml | kubectl --context fake",
    ),
    "queue": ({"queue": "mien"}, lambda kube: None, "queue", "no LocalQueue 'mien' (did you mean 'mine'?); `kubernet"),
    "stopped": (
        {}, lambda kube: kube.store.patch_status("localqueues", "default", "mine",
                                                 active("False", "ClusterQueueIsInactive", "Can't submit")),
        "queue", "LocalQueue mine takes no jobs (ClusterQueueIsInactive: Can't submit)",
    ),
    "behind": (
        {}, lambda kube: kube.store.change("clusterqueues", "", "team", lambda q: q["spec"].update(stopPolicy="Hold")),
        "queue", "ClusterQueue team, behind LocalQueue mine is stopped (Hold)",
    ),
    "quota": (
        {"cpu": "101"}, lambda kube: None, "quota",
        "cosmoflow 1x4gpu asks for 101 requests.cpu, and ResourceQuota team never allows more than 100; `layouts:` or",
    ),
    "queue's quota": (
        {}, lambda kube: kube.store.change("clusterqueues", "", "team", lambda it: it["spec"]["resourceGroups"][0][
            "flavors"][0]["resources"][0].update(nominalQuota="3")),
        "quota", "asks for 4 nvidia.com/gpu, and ClusterQueue team never allows more than 3",
    ),
    "no quota": (
        {}, lambda kube: kube.store.change("clusterqueues", "", "team", lambda it: it["spec"]["resourceGroups"][0][
            "flavors"][0]["resources"][0].update(nominalQuota="0")),
        "quota", "ClusterQueue team does not cover nvidia.com/gpu, so Kueue never admits cosmoflow 1x4gpu: ask its",
    ),
    "uncovered": (
        {}, lambda kube: kube.store.change("clusterqueues", "", "team", lambda it: it["spec"]["resourceGroups"][0][
            "flavors"][0]["resources"].pop(0)),
        "quota", "ClusterQueue team does not cover nvidia.com/gpu, so Kueue never admits cosmoflow 1x4gpu: ask its",
    ),
    "range": (
        {}, lambda kube: kube.fault("POST", "/pods", None, code=403, message=RANGE), "server", f"its pods: {RANGE}",
    ),
    "product": (
        {"node_selector": {PRODUCT: "NVIDIA-A100-SXM4-40G"}}, lambda kube: None, "nodes",
        f"no node has {PRODUCT} 'NVIDIA-A100-SXM4-40G' (did you mean '{A100}'?); `kubernetes: {{node_selector: …}}` in",
    ),
    "label": ({"node_selector": {"gpu": "a100"}}, lambda kube: None, "nodes", "no node has a label gpu"),
    "large": (
        {"memory": "1000Gi"}, lambda kube: None, "nodes", "no node is large enough for a pod of cosmoflow 1x4gpu"
    ),
    "taint": (
        {"tolerations": None}, lambda kube: None, "nodes", "taints keep pods of cosmoflow 1x4gpu off every node"
    ),
    "cordon": (
        {}, lambda kube: [kube.store.change("nodes", "", name, lambda it: it["spec"].update(unschedulable=True))
                          for name in ("a-1", "a-2")],
        "nodes", "is ready and takes pods now (a-1, a-2); ask again later",
    ),
    "claim": (
        {"volumes": [{"mount": "/data", "pvc": "set"}]}, lambda kube: None, "storage",
        "there is no claim 'set' (did you mean 'sets'?): create it, or say its `size:` and `python -m platforms prep",
    ),
    "account": ({"service_account": "robot"}, lambda kube: None, "server", "its pods: "),
    "priority": ({"priority_class": "hihg"}, lambda kube: None, "server", "no PriorityClass with name hihg was found"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_named(name: str, kube: Kube, site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cluster, arrange, title, message = WRONG[name]
    arrange(kube)
    write(site, cluster)
    assert doctor(site) == 1
    printed = capsys.readouterr().out
    assert message in printed
    assert steps(printed)[-1] == ("failed", title)
    assert all(word != "failed" for word, _ in steps(printed)[:-1])
    assert "next:" not in printed


def test_the_sites_rules(kube: Kube, site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(site, policy={"most": {"nvidia.com/gpu": 2}})
    assert doctor(site) == 1
    printed = capsys.readouterr().out
    assert steps(printed)[-1] == ("failed", "policy")
    assert "nvidia.com/gpu" in printed


@pytest.mark.slow
def test_several_nodes_and_a_claim_of_one(kube: Kube, site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    claim(kube, "own", mode="ReadWriteOnce")
    write(site, {"volumes": [{"mount": "/data", "pvc": "own"}]}, layouts={"default": ["2x2"]})
    assert doctor(site) == 1
    printed = capsys.readouterr().out
    assert "served: job.batch, service\n" in printed
    assert "claim own is ReadWriteOnce, and the pods of cosmoflow 2x2gpu are on several nodes" in printed
    write(site, layouts={"default": ["2x7"]})
    assert doctor(site) == 1
    assert "asks for 14 nvidia.com/gpu, and ClusterQueue team never allows more than 12" in capsys.readouterr().out
    kube.forbid("patch services")
    assert doctor(site) == 1
    assert "not allowed: patch services." in capsys.readouterr().out


@pytest.mark.slow
def test_what_is_only_said(kube: Kube, site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kube.store.change("persistentvolumeclaims", "default", "sets", lambda it: it.update(status={"phase": "Pending"}))
    new = {"mount": "/new", "pvc": "new", "size": "1Gi"}
    write(site, {"queue": None, "volumes": [*CLUSTER["volumes"], new]})
    assert doctor(site) == 0
    printed = capsys.readouterr().out
    assert "sets: Pending, ReadWriteMany" in printed
    assert "new is not there yet: `python -m platforms prepare it" in printed
    assert ("skipped", "queue") in steps(printed)
    assert "is named; there are: mine: does the site demand one?" in printed
    assert doctor(site, "--node") == 1
    assert "failed   node       no pod can start before new is there" in capsys.readouterr().out
    assert not kube.store.list("jobs")[0]


@pytest.mark.slow
def test_a_cluster_without_kueue(tmp_path: Path, site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Kube(tmp_path / "bare", nodes=False) as bare:
        node(bare, "a-1", {"cpu": "96", "memory": "960Gi", "nvidia.com/gpu": "8"}, {PRODUCT: A100})
        claim(bare, "sets")
        write(site, {"kubeconfig": str(bare.kubeconfig)})
        assert doctor(site) == 1
        assert "there is no Kueue, and so no queue mine: remove; `kubernetes: {queue: …}` in" in capsys.readouterr().out
        write(site, {"kubeconfig": str(bare.kubeconfig), "queue": None})
        assert doctor(site) == 0
        assert "the cluster has no Kueue" in capsys.readouterr().out


# --- a job of seconds ------------------------------------------------------------------------------------------------


@pytest.fixture
def running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Kube]:
    """A cluster whose nodes run pods."""
    with Kube(tmp_path / "kube") as kube:
        monkeypatch.setenv("KUBECONFIG", str(kube.kubeconfig))
        yield kube


def image(folder: Path) -> None:
    """A Python that has what jobs need, by its name only."""
    (folder / "packages").mkdir()
    for name, version in (("torch", "2.9.1"), ("numpy", "2.1"), ("h5py", "3.9"), ("PIL", "10.0")):
        (folder / "packages" / f"{name}.py").write_text(f"__version__ = {version!r}\n")
    with (folder / "packages" / "torch.py").open("a") as file:
        file.write("class cuda:\n    is_available = staticmethod(lambda: False)\n")
    (folder / "python").write_text('#!/bin/sh\nPYTHONPATH=${0%/*}/packages exec python3 -S "$@"\n')
    (folder / "python").chmod(0o755)


@pytest.mark.parametrize(
    ("missing", "expected", "words"),
    [
        ("", ("ok", "data"), "numpy 2.1, h5py 3.9, Pillow 10.0"),
        ("cosmoflow-quick", ("failed", "data"), "no data set of cosmoflow quick ({folder}/cosmoflow-quick); make it:"),
    ],
)
@pytest.mark.slow
def test_a_pod_says_what_it_finds(
    missing: str, expected: tuple[str, str], words: str, running: Kube, site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = site.parent / "volume"
    for name in ("resnet50", "cosmoflow", "deepcam", "gpt"):
        (folder / f"{name}-quick").mkdir(parents=True)
    image(folder)
    if missing:
        (folder / missing).rename(folder / "elsewhere")
    cluster = {"image": "bench.local/python:3.11", "volumes": [{"mount": str(folder), "host_path": str(folder)}]}
    cluster |= dict.fromkeys(("queue", "node_selector", "tolerations", "cpu", "memory"))
    write(site, cluster, device="cpu", layouts={"default": ["1x1"]}, python=f"{folder}/python", data_dir=str(folder))
    assert doctor(site, "--node") == (1 if expected[0] == "failed" else 0)
    printed = capsys.readouterr().out
    assert steps(printed)[-2:] == [("ok", "node"), expected]
    assert words.format(folder=folder) in printed
    assert running.store.list("jobs")[0] == []
    assert requested(running) - granted("Role") - granted("ClusterRole") == set()


@pytest.mark.parametrize(
    ("packages", "message"),
    [
        ({"h5py": None}, "missing: h5py: name an image that has it, in place of registry.example/torch@sha256:0"),
        ({"torch": None}, "torch is missing: name an image that has it"),
        ({"torch": "1.13"}, "torch 1.13 is older than 2.0: name an image"),
        (
            {},
            "torch 2.9.1 sees no GPU: is it a build for CPUs, or did the job get none? `kubernetes: {image: …, reso",
        ),
    ],
    ids=str,
)
def test_what_an_image_lacks(packages: Mapping[str, str | None], message: str, site: Path) -> None:
    write(site)
    there = {"torch": "2.9.1", "numpy": "2.1", "h5py": "3.9", "PIL": "10.0", **packages}
    found = {name: {"version": version, "error": None} for name, version in there.items()}
    report = {"executable": "/usr/bin/python3", "node": "a-1", "packages": found, "devices": []}
    with pytest.raises(RefusedError, match=re.escape(message)):
        node_checks.judge(report, look_at(site).visit.platform)


def test_the_job_of_seconds_needs_no_archive_in_the_image(site: Path) -> None:
    write(site, {"archive": "/opt/models.pyz"})
    visit = look_at(site).visit
    backend = schedulers.backend_of(visit.platform)
    spec = node_checks.node_check_spec(visit.platform, site.parent, "doctor-1", *visit.data_folders().values())
    text = schedulers.connect(backend.platform_for_doctor(visit.platform)).render(spec)
    assert "/opt/models.pyz" not in text
    assert str(spec.archive and spec.archive.name) in text
    assert "- /data/cosmoflow-quick" in text


def look_at(site: Path, **keys: Any) -> ClusterVisit:
    file = yaml.safe_load((site / "platforms" / "it.yaml").read_text())
    file["layouts"] = {name: tuple(each) for name, each in file["layouts"].items()}
    platform = Platform.model_validate({"name": "it", "source": Path("it.yaml"), **file, **keys})
    return ClusterVisit(Visit(platform, None, schedulers.connect(platform), checkout.benchmarks(), checkout.ROOT))  # type: ignore[arg-type]


# --- rights ----------------------------------------------------------------------------------------------------------


def granted(document: str) -> set[tuple[str, str, str]]:
    """(verb, group, resource) of the Role or ClusterRole in k8s_templates/rbac.yaml."""
    objects = list(yaml.safe_load_all((ROOT / "k8s_templates/rbac.yaml").read_text()))
    rules = next(each["rules"] for each in objects if each["kind"] == document)
    return {
        (verb, group, resource)
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def requested(kube: Kube) -> set[tuple[str, str, str]]:
    """The same of what has been asked of a cluster, but for what everybody may ask."""
    found = set()
    for each in kube.requests:
        match = re.fullmatch(r"/apis?/(?:([\w.-]+)/)?v\w+(?:/namespaces/default)?/(\w+)(?:/([^/]+)(/\w+)?)?", each.path)
        if match and not match[2].startswith("selfsubject"):
            reads = "watch" if each.watches else "get" if match[3] else "list"
            verb = {"GET": reads, "POST": "create", "PATCH": "patch", "DELETE": "delete"}[each.method]
            found.add((verb, match[1] or "", match[2] + (match[4] or "")))
    return found


def asked(look: ClusterVisit) -> set[tuple[str, str, str]]:
    rights = [*cluster_rights.needed(look), *cluster_rights.optional(look)]
    return {(right.verb, right.group, right.resource) for right in rights}


@pytest.mark.slow
def test_the_role_grants_what_doctor_asks_for(kube: Kube, site: Path) -> None:
    kube.add_crd("graphcore.ai", "v1alpha1", "IPUJob", "ipujobs")
    new = {"mount": "/data", "pvc": "new", "size": "1Gi"}
    write(site, {"volumes": [new]}, layouts={"default": ["1x4", "2x4"]})
    needs = asked(look_at(site, env={"HF_TOKEN": "x"}))
    for kind in ("pod", "ipujob"):
        write(site, {"kind": kind, "resource": "graphcore.ai/ipu"})
        needs |= asked(look_at(site))
    role = granted("Role")
    assert needs <= role | granted("ClusterRole")
    others = {each for each in role - needs if each[1] not in ("kubeflow.org", "jobset.x-k8s.io")}
    assert others == {
        ("list", "", "persistentvolumeclaims"),
        ("list", KUEUE, "localqueues"),
    }
    assert {("create", "", "secrets"), ("patch", "", "services"), ("watch", "graphcore.ai", "ipujobs")} <= needs
    assert not any(verb in ("*", "deletecollection", "update", "escalate") for verb, _, _ in role)
    assert {verb for verb, _, _ in granted("ClusterRole")} == {"get", "list"}


def test_the_role_is_explained_rule_by_rule() -> None:
    text = (ROOT / "k8s_templates/rbac.yaml").read_text()
    lines = text.splitlines()
    rules = [number for number, line in enumerate(lines) if line.lstrip().startswith("- apiGroups:")]
    assert len(rules) > 10
    assert all(lines[number - 1].lstrip().startswith("#") for number in rules)
