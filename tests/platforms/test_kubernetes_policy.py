"""A site's rules and general rules against manifests, with EIDF's rules and the listing of the paper above all."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from platforms.__main__ import main
from platforms.config.schema import Platform, Site, load_platforms
from platforms.job import ConfigError, JobSpec, Layout
from platforms.schedulers import FILE_KEYS
from platforms.schedulers.kubernetes.manifest import documents, policy, render
from platforms.schedulers.kubernetes.objects.pod_templates import NO_TEMPLATE

ROOT = Path(__file__).resolve().parents[2]
SPEC = JobSpec(
    "resnet50-1x4gpu-k2345abc", "test_resnet50.py::test_resnet50[x]", "cluster", Layout(1, 4, "gpu"),
    ("train", "resnet50"), benchmark="resnet50", launcher="torchrun", python="auto", archive=Path("models-01.pyz"),
    run="r2345abc",
)  # fmt: skip

# The ResNet-50 pod of HPDC'24, doi.org/10.1145/3625549.3658896, section 3.1 (where "resources" ends with a full stop).
LISTING = """\
apiVersion: v1
kind: Pod
metadata:
 name: 'ResNet50-Test'
spec:
  restartPolicy: Never
  containers:
    - name: 'resnet-test'
      image: bigballoon8/mlperf-epcc
      workingDir: '/workspace/ML/ResNet50/Torch'
      command:
        - torchrun
      args:
        - "--nproc_per_node=4"
        - "train.py"
        - "-c /workspace/ML/ResNet50/Torch/config.yaml"
      resources:
        limits:
          cpu: 16
          memory: 32Gi
          nvidia.com/gpu: '4'
      volumeMounts:
        - mountPath: /mnt/ceph_rbd
          name: volume
  nodeSelector:
    nvidia.com/gpu.product: 'NVIDIA-A100-SXM4-40GB'
  volumes:
    - name: volume
      persistentVolumeClaim:
        claimName: 'imagenet-pvc'
"""
# What docs.eidf.ac.uk has against it, by the line of the listing.
DEFECTS = {
    "a bare Pod": r"^line 2: a Pod may run no pods here, Job, .*policy: kinds\)$",
    "no queue": r"^line 3: metadata\.labels\[kueue\.x-k8s\.io/queue-name\] is missing: .*policy: manifest\)$",
    "a fixed name": r"^line 3: metadata\.generateName is missing: .*policy: manifest\)$",
    "no request of CPUs": r"^line 8: container\.resources\.requests\.cpu is missing",
    "no request of memory": r"^line 8: container\.resources\.requests\.memory is missing",
    "a volume of Ceph RBD": r"^line 23: ceph_rbd should not stand here.*csi-cephfs-sc.*policy: avoid\)$",
    "two words in one": r"^line 16: '-c /workspace\S+' reaches the program as one word: write '-c' and",
}


@pytest.fixture(scope="module")
def shipped() -> dict[str, Platform]:
    site = Site(values={"eidf_namespace": "eidf989ns", "eidf_image": "registry/torch:1@sha256:0123"})
    found = load_platforms([ROOT / "platforms"], site, schedulers=FILE_KEYS, environ={}, root=Path("/nonexistent"))
    return {name: platform for name, platform in found.items() if platform.scheduler == "kubernetes"}


def cluster(rules: Mapping[str, object] | None = None, **more: object) -> Platform:
    fixed = {"name": "cluster", "scheduler": "kubernetes", "device": "gpu", "layouts": {"default": ("1x4",)}}
    keys = {"image": "registry/image:1", "cpu": "16", "memory": "64Gi", "shm": "8Gi"}
    place = {"data_dir": "/data", "source": Path("cluster.yaml"), "kubernetes": keys}
    return Platform(**{**fixed, **place, "policy": rules or {}, **more})


def against(text: str, platform: Platform, spec: JobSpec | None = None) -> tuple[str, ...]:
    return policy.lint(render.parse(text), platform, spec, text)


# --- the paper's listing ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("spec", [None, SPEC], ids=["as it is", "as a job"])
def test_each_defect_of_the_published_listing_is_found_once(shipped: dict[str, Platform], spec: JobSpec | None) -> None:
    found = against(LISTING, shipped["eidf_a100"], spec)
    seen = {name: [one for one in found if re.search(pattern, one)] for name, pattern in DEFECTS.items()}
    assert [name for name, each in seen.items() if len(each) != 1] == []
    lines = [int(one.split()[1].rstrip(":")) for one in found]
    assert lines == sorted(lines)
    assert spec is None or len(found) == len(DEFECTS)


def test_the_published_listing_is_not_valid_yaml(shipped: dict[str, Platform]) -> None:
    """Word for word: with that mended come the defects below."""
    with pytest.raises(ConfigError) as raised:
        against(LISTING.replace("resources:", "resources."), shipped["eidf_a100"])
    said = "manifest:17: not YAML: a key ends with a colon, and 'resources.' does not (write `resources:`)"
    assert raised.value.problems == (said,)


def test_the_mended_listing_passes(shipped: dict[str, Platform]) -> None:
    (pod,) = render.parse(LISTING)
    container = pod["spec"]["containers"][0]
    container["args"][2:] = ["-c", "/workspace/ML/ResNet50/Torch/config.yaml"]
    container["resources"]["requests"] = {"cpu": 16, "memory": "32Gi"}
    container["volumeMounts"][0]["mountPath"] = "/data"
    queue = {"kueue.x-k8s.io/queue-name": "eidf989ns-user-queue"}
    metadata = {"generateName": "resnet50-", "labels": queue}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": {"template": {"spec": pod["spec"]}}}
    assert against(documents.write([job]), shipped["eidf_a100"]) == ()


# Of a job that EIDF would take, one thing is another; what is said of it.
CHANGES: dict[str, tuple[str, str, str]] = {
    "too long": ("'4800'", "'99999999'", r"line 7: .*max-exec-time-seconds: 99999999 s are more than .*: max_time\)"),
    "no such product": (
        "40GB", "40G", r"line 13: .*no NVIDIA-A100-SXM4-40G here \(did you mean '.*-40GB'\?\) .*policy: one_of\)"
    ),
    "somebody else's queue": (
        "eidf989ns-user", "eidf123ns-user",
        r"line 6: the queue eidf123ns-user-queue is not this project's, eidf989ns-user-queue .*kubernetes: queue\)",
    ),
}  # fmt: skip
TAKEN = """\
apiVersion: batch/v1
kind: Job
metadata:
  generateName: a-
  labels:
    kueue.x-k8s.io/queue-name: eidf989ns-user-queue
    kueue.x-k8s.io/max-exec-time-seconds: '4800'
spec:
  template:
    spec:
      securityContext: {runAsNonRoot: true}
      nodeSelector:
        nvidia.com/gpu.product: NVIDIA-A100-SXM4-40GB
      volumes: [{name: shm, emptyDir: {medium: Memory, sizeLimit: 32Gi}}]
      containers:
      - name: c
        image: host:5000/a/i@sha256:0
        command: [torchrun, --nproc-per-node=4, train.py]
        env: [{name: OMP_NUM_THREADS, value: '4'}]
        resources:
          limits: {cpu: 16, memory: 64Gi, nvidia.com/gpu: 4}
          requests: {cpu: 16, memory: 64Gi}
        volumeMounts: [{name: shm, mountPath: /dev/shm}]
"""


@pytest.mark.parametrize("name", CHANGES)
def test_each_violation_of_the_eidf_rules_is_found(shipped: dict[str, Platform], name: str) -> None:
    before, after, said = CHANGES[name]
    assert against(TAKEN, shipped["eidf_a100"]) == ()
    assert TAKEN.count(before) == 1
    (found,) = against(TAKEN.replace(before, after), shipped["eidf_a100"])
    assert re.match(said, found), found


def test_our_jobs_may_name_their_own_queue(shipped: dict[str, Platform]) -> None:
    text = TAKEN.replace("eidf989ns-user", "other")
    assert against(text, shipped["eidf_a100"], SPEC) == ()
    nobodys = cluster()
    assert not any("queue" in one for one in against(text, nobodys))


def test_lint_finds_an_archive_that_is_too_large_for_a_config_map(tmp_path: Path) -> None:
    archive = tmp_path / "models-01.pyz"
    archive.write_bytes(bytes(1 << 20))
    spec = replace(SPEC, archive=archive)
    text = render.render(spec, cluster())
    assert against(text, cluster(), spec) == ()
    archive.write_bytes(bytes((1 << 20) + 1))
    (found,) = against(text, cluster(), spec)
    assert re.fullmatch(
        r"line \d+: models-01.pyz: 1048577 bytes are more than a ConfigMap holds .*archive: …\}`", found
    )
    keys = {"image": "registry/image:1", "cpu": "16", "memory": "64Gi", "shm": "8Gi", "archive": "/opt/models.pyz"}
    inside = cluster(kubernetes=keys)
    assert against(render.render(spec, inside), inside, spec) == ()


@pytest.mark.parametrize(
    ("folder", "volumes", "wrong"),
    [
        ("/sets/x-smoke", [{"mount": "/data", "pvc": "sets"}, {"mount": "/t", "scratch": "1Gi"}], True),
        ("/database/x", [{"mount": "/data", "pvc": "sets"}], True),
        ("/data/../sets", [{"mount": "/data", "pvc": "sets"}], True),
        ("/data/sets", [{"mount": "//data/./", "pvc": "sets"}], False),
        ("/data/x-smoke", [{"mount": "/data", "pvc": "sets"}], False),
        ("/t/x", [{"mount": "/data", "pvc": "sets"}, {"mount": "/t", "scratch": "1Gi"}], False),
        ("/sets/x", [{"mount": "/t", "scratch": "1Gi"}], False),  # the image must hold the data
        (None, [{"mount": "/data", "pvc": "sets"}], False),  # a user's own program
    ],
)
def test_a_data_folder_outside_of_every_mount_is_refused(
    tmp_path: Path, folder: str | None, volumes: list[object], wrong: bool
) -> None:
    keys = {"image": "registry/image:1", "cpu": "16", "memory": "64Gi", "shm": "8Gi", "volumes": volumes}
    source = tmp_path / "cluster.yaml"
    source.write_text("device: gpu\ndata_dir: /sets\n")
    platform = cluster(kubernetes=keys, source=source)
    spec = replace(SPEC, benchmark="resnet50", data_dir=folder)
    found = against(render.render(spec, platform), platform, spec)
    assert bool(found) == wrong
    if wrong:
        assert f"{folder} lies in none of the volumes that the pods mount (/data" in found[0]
        assert f": {source}:2: data_dir: write /data, or add `- {{mount: " in found[0]


@pytest.mark.parametrize("kind", ["job", "pod", "indexed_job"])
def test_our_own_manifests_pass_the_general_rules(kind: str) -> None:
    spec = replace(SPEC, layout=Layout(2, 4, "gpu")) if kind == "indexed_job" else SPEC
    platform = cluster()
    platform = platform.model_copy(update={"kubernetes": platform.kubernetes.model_copy(update={"kind": kind})})
    text = render.render(spec, platform)
    assert against(text, platform, spec) == ()


def test_unset_site_values_are_no_mistake(shipped: dict[str, Platform]) -> None:
    found = load_platforms([ROOT / "platforms"], None, schedulers=FILE_KEYS, environ={}, root=Path("/nonexistent"))
    platform = found["eidf_a100"]
    text = render.render(SPEC, platform)
    assert "set in site.yaml" in text
    assert against(text, platform, SPEC) == ()


# --- the site's rules -------------------------------------------------------------------------------------------------

CLEAN = """\
apiVersion: batch/v1
kind: Job
metadata:
  name: a
spec:
  template:
    spec:
      activeDeadlineSeconds: 60
      securityContext: {runAsNonRoot: true}
      initContainers:
      - name: first
        image: i@sha256:0
      containers:
      - name: c
        image: i@sha256:0
        resources:
          limits: {cpu: 1500m}
          requests: {cpu: 1}
"""


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        ({}, ()),
        ({"kinds": {"Job": "why"}}, ()),
        ({"kinds": {"Pod": "of a", "IPUJob": "of b"}},
         ("line 2: a Job may run no pods here, Pod and IPUJob may: of a; of b (cluster.yaml: policy: kinds)",)),
        ({"manifest": {"metadata.labels[a/b]": "why"}},
         ("line 3: metadata.labels[a/b] is missing: why (cluster.yaml: policy: manifest)",)),
        ({"manifest": {"pod.spec.nodeSelector": "why"}},
         ("line 6: pod.spec.nodeSelector is missing: why (cluster.yaml: policy: manifest)",)),
        ({"manifest": {"container.resources.limits.cpu": "why"}},
         ("line 11: container.resources.limits.cpu is missing: why (cluster.yaml: policy: manifest)",)),
        ({"manifest": {"spec.template.spec.containers[0].image": "why", "pod.spec.securityContext": "why"}}, ()),
        ({"most": {"cpu": "1500m", "memory": "1Gi"}}, ()),
        ({"most": {"cpu": "1.4"}}, ("line 13: a pod asks for more cpu than 1.4 (cluster.yaml: policy: most)",)),
        ({"avoid": {"1500m": "why"}}, ("line 17: 1500m should not stand here: why (cluster.yaml: policy: avoid)",)),
        ({"avoid": {"csi-rbd": "why"}}, ()),
    ],
)  # fmt: skip
def test_the_rules_of_a_site_are_applied(rules: dict[str, object], expected: tuple[str, ...]) -> None:
    assert against(CLEAN, cluster(rules)) == expected
    assert against(CLEAN, cluster(rules), SPEC) == expected


@pytest.mark.parametrize(
    ("rules", "changes", "more", "said"),
    [
        ({"max_nodes": 1}, {"layout": Layout(2, 4, "gpu")}, {}, r"line \d+: 2 nodes are more than 1 .*max_nodes\)"),
        ({"max_time": "1h"}, {"time_limit_s": 3601.0}, {}, r"line \d+: 3601 s are more than 3600 s .*max_time\)"),
        ({"max_running": 2}, {}, {"max_running": 3}, r"line \d+: max_running: 3 are more .* than 2 .*max_running\)"),
    ],
)
def test_the_limits_of_a_site_are_applied(
    rules: dict[str, object], changes: dict[str, Any], more: dict[str, object], said: str
) -> None:
    platform, spec = cluster(rules, **more), replace(SPEC, **changes)
    (found,) = against(render.render(spec, platform), platform, spec)
    assert re.fullmatch(said, found)
    fine = cluster(rules, max_running=2)
    assert against(render.render(SPEC, fine), fine, SPEC) == ()


# --- general rules ----------------------------------------------------------------------------------------------------


def job(**changes: Any) -> str:
    """CLEAN with another container."""
    (tree,) = render.parse(CLEAN)
    tree["spec"]["template"]["spec"]["containers"][0].update(changes)
    return documents.write([tree])


@pytest.mark.parametrize(
    ("text", "rule", "said"),
    [
        (CLEAN, None, None),
        (job(args=["-c /path"]), "words", "write '-c' and '/path' as two"),
        (job(command="python train.py"), "words", "command: 'python train.py' is not a list of texts"),
        (job(args=["--batch", 4]), "words", "args: ['--batch', 4] is not a list of texts"),
        (job(command=["run", "--config x y"]), "words", "write '--config' and 'x y' as two"),
        (job(args=["--text=a b", "-c", "a b", "a -b c", "-", "-1 2", "- a"]), None, None),
        (job(env=[{"name": "HF_TOKEN", "value": "hf_x"}]), "secrets", "the value of HF_TOKEN looks like a secret"),
        (job(env=[{"name": "HF_TOKEN", "valueFrom": {}}, {"name": "TOKEN_FILE", "value": "/t"}]), None, None),
    ],
)
def test_each_general_rule_finds_its_violation(text: str, rule: str | None, said: str | None) -> None:
    found = against(text, cluster())
    if rule is None or said is None:
        assert found == ()
        return
    (one,) = found
    assert said in one
    assert one.endswith(f"(general rule: {rule})")
    assert re.match(r"line \d+: ", one)
    assert "hf_x" not in one
    assert against(text, cluster(), SPEC) == found  # no site needs to forbid what cannot work


def test_findings_for_a_dict_have_no_line_numbers() -> None:
    assert policy.lint(render.parse(job(command="a b")), cluster())[0].startswith("command: 'a b' is not a list")


# --- python -m platforms lint -----------------------------------------------------------------------------------------


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HPC_ML_BENCH_SITE", str(tmp_path))
    monkeypatch.setenv("HPC_ML_BENCH_EIDF_NAMESPACE", "eidf989ns")
    return tmp_path


def test_lint_names_file_line_and_rule(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = site / "pod.yaml"
    file.write_text(LISTING)
    assert main(["lint", "eidf_a100", str(file)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(DEFECTS)
    assert lines[0].startswith(f"{file}:2: a Pod may run no pods here")
    assert all(line.startswith(f"{file}:") for line in lines)


def test_lint_reports_a_clean_manifest_and_exits_0(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (site / "job.yaml").write_text(CLEAN)
    assert main(["lint", "kind", str(site / "job.yaml")]) == 0
    assert capsys.readouterr().out == f"{site / 'job.yaml'}: nothing against it on kind\n"


@pytest.mark.parametrize("template", ["pod", "job", "indexed_job", "ipujob"])
def test_lint_reads_a_template_with_unfilled_placeholders(template: str, site: Path) -> None:
    file = ROOT / "k8s_templates" / f"{template}.yaml"
    assert main(["lint", "eidf_a100", str(file)]) == 1


@pytest.mark.parametrize(
    ("name", "file", "said"),
    [
        ("kind", "none.yaml", "none.yaml:1: cannot be read"),
        ("local", "job.yaml", "local has no manifests: its scheduler is local"),
        ("knd", "job.yaml", "there is no platform 'knd'"),
    ],
)
def test_lint_exits_2_for_what_it_cannot_read(
    site: Path, capsys: pytest.CaptureFixture[str], name: str, file: str, said: str
) -> None:
    (site / "job.yaml").write_text(CLEAN)
    assert main(["lint", name, str(site / file)]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("apiVersion: v1\nkind: ConfigMap\ndata: {}\n", 1),
        ("apiVersion: batch/v1\nkind: Job\nspec:\n  template:\n    spec:\n      containers: 5\n", 6),
    ],
)
def test_lint_finds_a_manifest_without_a_pod_template(text: str, line: int) -> None:
    assert f"line {line}: {NO_TEMPLATE}" in against(text, cluster())


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (CLEAN.replace("name: a\n", "name: ${name}\n"), "line 4: these placeholders stay unfilled: ${name} (`--dry"),
        (CLEAN.replace("name: a\n", "name: a-${nome}\n"), "line 4: these placeholders stay unfilled: ${nome} ("),
        (CLEAN.replace("name: a\n", "name: a\n  labels: {'${name}': x, a: '${image'}\n"),
         "unfilled: ${name}, ${image ("),
        (job(args=["--ranks=${ranks}"]), "unfilled: ${ranks} ("),
        (job(args=["for i in 1; do echo ${i} ${x:-1} $${name}; done"]), None),
    ],
)  # fmt: skip
def test_lint_finds_placeholders_in_a_manifest_that_is_submitted_unchanged(text: str, said: str | None) -> None:
    found = [one for one in against(text, cluster()) if "placeholders" in one]
    assert len(found) == (said is not None)
    assert said is None or said in found[0]
    assert not any("stay unfilled" in one for one in against(text, cluster(), SPEC))
