"""docs/kubernetes.md is true: its manifests render, keep a site's rules and are valid, and its lists are complete."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from platforms.config.schema import Platform, Site, load_platforms
from platforms.job import JobSpec, Layout
from platforms.schedulers import FILE_KEYS
from platforms.schedulers.kubernetes.api.client import Client
from platforms.schedulers.kubernetes.api.kubeconfig import ClusterTarget
from platforms.schedulers.kubernetes.manifest import placeholders, policy, render
from platforms.schedulers.kubernetes.objects.pod_templates import templates
from tests.fake_kubernetes import Kube

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "kubernetes.md").read_text(encoding="utf-8")
KINDS = {"PyTorchJob": "kubeflow.org/v1", "JobSet": "jobset.x-k8s.io/v1alpha2"}
SITE = {"eidf_namespace": "eidf989ns", "eidf_image": "ghcr.io/eidf989/torch:2.9"}


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


def written(kind: str) -> str:
    (found,) = (block for block in blocks("yaml") if f"kind: {kind}\n" in block)
    return found


@pytest.fixture(scope="module")
def clusters() -> dict[str, Platform]:
    """The platforms that come with the suite and run on Kubernetes, on a site that has set its values."""
    site = Site.model_validate({"values": SITE})
    found = load_platforms([ROOT / "platforms"], site, schedulers=FILE_KEYS, environ={}, root=ROOT)
    return {name: platform for name, platform in found.items() if platform.scheduler == "kubernetes"}


def spec_of(path: Path, nodes: int, code: bool) -> JobSpec:
    ours = ("train", "resnet50") if code else ("python3", "/workspace/train.py")
    archive = Path("models-0123456789ab.pyz") if code else None
    return JobSpec(
        "mine-4gpu-k2345abc", "test_mine.py::test_mine[x]", "eidf_a100", Layout(nodes, 4, "gpu"), ours,
        launcher="torchrun", python="auto", archive=archive, run="r2345abc", manifest=path,
    )  # fmt: skip


@pytest.mark.parametrize("nodes", [1, 2])
@pytest.mark.parametrize("kind", KINDS)
def test_its_manifests_render_keep_a_sites_rules_and_hold_valid_pods(
    kind: str, nodes: int, clusters: dict[str, Platform], tmp_path: Path
) -> None:
    path = tmp_path / "own.yaml"
    path.write_text(written(kind), encoding="utf-8")
    platform, spec = clusters["eidf_a100"], spec_of(path, nodes, code=kind == "PyTorchJob")
    text = render.render(spec, platform)
    (root,) = objects = render.parse(text)
    assert (root["apiVersion"], root["kind"]) == (KINDS[kind], kind)
    assert policy.lint(objects, platform, spec, text) == ()
    ((_path, template),) = templates(root)
    (container,) = template["spec"]["containers"]
    assert f"--nnodes={nodes}" in container["command"]
    assert (nodes == 1) is ("--standalone" in container["command"])
    with Kube(tmp_path / "kube", nodes=False) as kube:
        client = Client(ClusterTarget(kubeconfig=str(kube.kubeconfig)))
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "it"}, "spec": template["spec"]}
        client.create(client.resource("v1", "Pod"), pod, dry_run=True, strict=True)
        for job in root["spec"].get("replicatedJobs", ()):
            job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "it"}, **job["template"]}
            client.create(client.resource("batch/v1", "Job"), job, dry_run=True, strict=True)


@pytest.mark.slow
def test_its_tests_run(project) -> None:
    project.write("site/platforms/mine.yaml", (ROOT / "platforms" / "kind.yaml").read_text(encoding="utf-8"))
    project.write("tests/jobset.yaml", written("JobSet"))
    (tests,) = blocks("python")
    project.write("tests/test_page.py", tests)
    result = project.pytest("tests", "-m", "mine", "--dry-run", "--layouts", "pods")
    assert result.ret == 0, result.stderr.str() + result.stdout.str()
    shown = result.stdout.str()
    assert (shown.count("kind: JobSet"), shown.count("kind: Job\n")) == (1, 2)
    assert "- /workspace/train.py\n" in shown
    assert "- count=64\n" in shown


def test_the_job_that_it_shows_is_what_a_dry_run_shows(
    pytester: pytest.Pytester, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (command,) = re.findall(r"^    pytest (.* --dry-run .*)$", PAGE, re.MULTILINE)
    for name, value in SITE.items():
        assert f"HPC_ML_BENCH_{name.upper()}={value}" in PAGE
        monkeypatch.setenv(f"HPC_ML_BENCH_{name.upper()}", value)
    here = [f"--rootdir={ROOT}", f"--config-file={ROOT / 'pytest.ini'}", "-p", "no:cacheprovider", f"--site={tmp_path}"]
    words = command.replace("test_resnet50.py", str(ROOT / "test_resnet50.py")).split()
    result = pytester.runpytest_inprocess(*here, f"--runs-dir={tmp_path / 'runs'}", *words)
    assert result.ret == 0
    rest = iter(result.outlines)
    excerpt = PAGE.partition("It prints, shortened here:\n")[2].partition("\nThe manifest keeps to")[0]
    for line in (line[4:] for line in excerpt.splitlines() if line.strip() and "…" not in line):
        assert line in rest, line


def test_every_hole_stands_there() -> None:
    table = PAGE.partition("| placeholder | value |")[2].partition("\n\n")[0]
    named = re.findall(r"`(\w+)`", "".join(row.split("|")[1] for row in table.splitlines() if row.startswith("| `")))
    assert sorted(named) == sorted(placeholders.PLACEHOLDERS)


def test_each_cluster_and_its_values_stand_among_the_profiles(clusters: dict[str, Platform]) -> None:
    text = (ROOT / "docs" / "profiles.md").read_text(encoding="utf-8")
    assert not [word for word in (*clusters, *SITE) if f"`{word}`" not in text]
