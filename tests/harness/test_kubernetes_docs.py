"""docs/kubernetes.md is true: its tests render, a dry run shows what it shows, and its lists are complete."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from platforms.config.schema import Platform, Site, load_platforms
from platforms.schedulers import FILE_KEYS
from platforms.schedulers.kubernetes.manifest import placeholders

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
