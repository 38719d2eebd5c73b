"""The stage on which a real cluster is played on: what it takes for missing, and that it leaves nothing there."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.fake_kubernetes import Kube
from tests.fake_kubernetes.api.kubeconfig import kubeconfig_text
from tests.kubernetes_scenarios.scenarios import TOGETHER
from tests.kubernetes_scenarios.show import Show
from tests.kubernetes_scenarios.stage import IMAGE, real_stage

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def kube(tmp_path: Path) -> Iterator[Kube]:
    with Kube(tmp_path / "kube") as kube:
        yield kube


def namespaces(kube: Kube) -> list[str]:
    return sorted(each["metadata"]["name"] for each in kube.store.list("namespaces")[0])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--kubeconfig={folder}/good"], "name an image with sh and python3"),
        (["--kubeconfig={folder}/bad", "--live-image=i"], "there is no current-context"),
    ],
)
def test_wrong_options_end_pytest_before_any_test(tmp_path: Path, words: list[str], says: str) -> None:
    (tmp_path / "good").write_text(kubeconfig_text("http://127.0.0.1:1", "there", "token"))
    (tmp_path / "bad").write_text("contexts: []\n")
    options = [word.format(folder=tmp_path) for word in words]
    command = [sys.executable, "-m", "pytest", str(Path(__file__)), "-p", "no:cacheprovider", *options]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == pytest.ExitCode.USAGE_ERROR, done.stdout + done.stderr
    assert says in done.stderr


@pytest.mark.slow
def test_scenarios_run_with_the_rights_of_our_own_role(kube: Kube, tmp_path: Path) -> None:
    """In a namespace that others use, too."""
    kube.forbid("namespaces", "nodes", "events", "pods/eviction", "persistentvolumes")
    kube.forbid("list configmaps", "list secrets", "list services")
    config = f"{tmp_path}/none:{kube.kubeconfig}"  # a list, as $KUBECONFIG is one
    with real_stage(tmp_path / "stage", config, IMAGE, None) as stage:
        assert stage.namespace == "default"
        assert stage.shown == ("pods", "jobs")
        assert "needs the right to create pods/eviction" in stage.lacks("evict")
        show = Show(stage, tmp_path / "runs", "little")
        chosen = [each for each in TOGETHER if each.name in ("job", "exit-3", "second-succeeds")]
        for scenario, play in [(each, show.play(each)) for each in chosen]:
            show.wait_for_end(play)
            show.check(scenario, play)
        assert show.runner.cancel() == []
    assert not any(kube.store.list(kind)[0] for kind in ("pods", "jobs"))
    assert [each["metadata"]["name"] for each in kube.store.list("configmaps", "default")[0]] == ["kube-root-ca.crt"]
    assert namespaces(kube) == ["default", "kube-system"]


@pytest.mark.slow
def test_sweep_deletes_the_rest_if_one_deletion_fails(kube: Kube, tmp_path: Path) -> None:
    ends = ExitStack()
    stage = ends.enter_context(real_stage(tmp_path / "stage", str(kube.kubeconfig), IMAGE, None))
    stage.admin.create("configmaps", {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one"}})
    stuck = kube.fault("DELETE", "configmaps/one", reset=True)
    with pytest.raises(ConnectionError):
        ends.close()
    assert stuck.hits
    assert namespaces(kube) == ["default", "kube-system"]
