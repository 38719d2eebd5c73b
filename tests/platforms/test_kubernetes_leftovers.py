"""What prune finds of earlier runs, and that it takes nothing of which nobody can tell whether it is needed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from platforms.schedulers.kubernetes import leftovers
from platforms.schedulers.kubernetes.api.client import Client
from platforms.schedulers.kubernetes.api.kubeconfig import ClusterTarget
from platforms.schedulers.kubernetes.objects import labels
from tests.fake_kubernetes import Kube

CODE = "hpc-ml-bench-models-0123"
OURS = {
    labels.MANAGED_BY: labels.OUR_NAME,
    labels.PLATFORM: "k",
    labels.RUN: "rabcdefg",
    labels.JOB: "it-1x1cpu-abcdefgh",
}
POD = {"containers": [{"name": "c", "image": "i"}], "volumes": [{"name": "code", "configMap": {"name": CODE}}]}
TRAINER, KUEUE = ("trainer.kubeflow.org", "v1alpha1", "TrainJob", "trainjobs"), "kueue.x-k8s.io"


@pytest.fixture
def kube(tmp_path: Path) -> Iterator[Kube]:
    with Kube(tmp_path / "kube", nodes=False) as kube:
        kube.add_crd(*TRAINER)
        kube.add_crd(KUEUE, "v1beta2", "Workload", "workloads")
        archive = {"metadata": {"name": CODE, "labels": {labels.MANAGED_BY: labels.OUR_NAME}}, "binaryData": {"x": ""}}
        kube.store.create("configmaps", "default", archive)
        yield kube


def client_of(kube: Kube) -> Client:
    return Client(ClusterTarget(str(kube.kubeconfig)))


def make(kube: Kube, plural: str, spec: dict[str, Any], status: dict[str, Any] | None = None) -> None:
    made = {"metadata": {"name": "it-1x1cpu-abcdefgh", "labels": OURS}, "spec": spec}
    key = next(key for key, kind in kube.store.kinds.items() if kind.plural == plural)
    kube.store.create(key, "default", made)
    kube.store.patch_status(key, "default", "it-1x1cpu-abcdefgh", status or {})


FINISHED = {"conditions": [{"type": "Finished", "status": "True"}]}


@pytest.mark.parametrize(
    ("plural", "spec", "status", "free"),
    [
        (None, {}, {}, True),
        ("trainjobs", {"suspend": True, "podTemplate": {"spec": POD}}, {}, False),
        ("trainjobs", {"podTemplate": {"spec": POD}}, {"conditions": [{"type": "Complete", "status": "True"}]}, True),
        # of a job of whatever kind, which may have no pods yet
        ("workloads", {"podSets": [{"name": "main", "template": {"spec": POD}}]}, {}, False),
        ("workloads", {"podSets": [{"name": "main", "template": {"spec": POD}}]}, FINISHED, True),
    ],
)
def test_prune_keeps_code_that_a_suspended_job_needs(
    kube: Kube, plural: str | None, spec: dict[str, Any], status: dict[str, Any], free: bool
) -> None:
    if plural:
        make(kube, plural, spec, status)
    assert leftovers.unused_code_archives(client_of(kube)) == ([CODE] if free else [], [])
    assert leftovers.unused_code_archives(client_of(kube), least_s=600.0) == (
        [],
        [],
    )  # a session may be about to make its first job


@pytest.mark.parametrize(
    ("forbidden", "said"),
    [
        (["list trainjobs"], "trainjobs.trainer.kubeflow.org is forbidden"),
        (["list workloads"], "workloads.kueue.x-k8s.io is forbidden"),
        (["list configmaps"], "configmaps is forbidden"),
        (["trainjobs"], None),  # who may not make them either has none
    ],
)
def test_prune_keeps_code_if_its_users_are_unknown(kube: Kube, forbidden: list[str], said: str | None) -> None:
    kube.forbid(*forbidden)
    archives, unseen = leftovers.unused_code_archives(client_of(kube))
    assert [each.partition(":")[0] for each in unseen] == ([said] if said else [])
    assert archives == ([] if said else [CODE])


def test_prune_reports_kinds_that_it_may_not_list(kube: Kube) -> None:
    make(kube, "services", {"clusterIP": "None"})
    kube.store.create("secrets", "default", {"metadata": {"name": "it-1x1cpu-abcdefgh", "labels": OURS}})
    client = client_of(kube)
    kube.forbid("list secrets")
    found, unseen = leftovers.find_leftovers(client, "k")
    assert [str(each).split()[0] for each in found] == ["service/it-1x1cpu-abcdefgh"]
    assert [each.partition(":")[0] for each in unseen] == ["secrets is forbidden"]
    kube.allow()
    found, unseen = leftovers.find_leftovers(client, "k")
    assert not unseen
    assert leftovers.remove(client, found, []) == []
    assert leftovers.find_leftovers(client, "k") == ([], [])
