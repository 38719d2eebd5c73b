"""What prune finds of earlier runs, and that it takes nothing of which nobody can tell whether it is needed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from platforms.config.schema import Platform
from platforms.job import RefusedError
from platforms.schedulers.kubernetes.leftovers import NamespaceLeftovers
from platforms.schedulers.kubernetes.objects import labels
from tests.fake_kubernetes import Kube

OURS = {labels.MANAGED_BY: labels.OUR_NAME, labels.PLATFORM: "k", labels.RUN: "rabcdefg"}
OURS |= {labels.JOB: "it-1x1cpu-abcdefgh"}
TRAINER = ("trainer.kubeflow.org", "v1alpha1", "TrainJob", "trainjobs")


@pytest.fixture
def kube(tmp_path: Path) -> Iterator[Kube]:
    with Kube(tmp_path / "kube", nodes=False) as kube:
        kube.add_crd(*TRAINER)
        yield kube


def leftovers(kube: Kube) -> NamespaceLeftovers:
    keys = {"scheduler": "kubernetes", "device": "cpu", "layouts": {"default": ("1x1",)}, "source": Path("x")}
    where = {"kubeconfig": str(kube.kubeconfig), "image": "i"}
    return NamespaceLeftovers(Platform(name="k", kubernetes=where, **keys))


def make(kube: Kube, plural: str, spec: dict[str, Any], **status: Any) -> None:
    made = {"metadata": {"name": "it-1x1cpu-abcdefgh", "labels": OURS}, "spec": spec}
    key = next(key for key, kind in kube.store.kinds.items() if kind.plural == plural)
    kube.store.create(key, "default", made)
    kube.store.patch_status(key, "default", "it-1x1cpu-abcdefgh", status)


@pytest.mark.parametrize(
    ("status", "stays"),
    [
        ({}, "its job waits or runs"),  # suspended, it has no pods yet
        ({"conditions": [{"type": "Complete", "status": "True"}]}, ""),
    ],
)
def test_a_job_without_pods_stays_unless_it_says_that_it_has_ended(
    kube: Kube, status: dict[str, Any], stays: str
) -> None:
    make(kube, "trainjobs", {"suspend": True}, **status)
    (found,) = leftovers(kube).find()
    assert found.name.startswith("trainjob")
    assert found.owner == OURS[labels.JOB]
    assert found.stays == stays


def test_what_a_broken_submission_left_stays_until_no_job_can_follow(
    kube: Kube, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(kube, "services", {"clusterIP": "None"})
    place = leftovers(kube)
    (found,) = place.find()
    assert found.stays == "its job may be about to begin"
    monkeypatch.setattr("platforms.schedulers.kubernetes.leftovers.FRESH_S", 0.0)
    (found,) = place.find()
    assert not found.stays
    assert place.remove([found]) == []
    assert place.find() == []


def test_an_object_that_has_another_uid_by_now_stays(kube: Kube) -> None:
    make(kube, "services", {"clusterIP": "None"})
    place = leftovers(kube)
    found = place.find()
    kube.store.delete("services", "default", "it-1x1cpu-abcdefgh")
    make(kube, "services", {"clusterIP": "None"})
    place.remove(found)
    assert len(place.find()) == 1


@pytest.mark.parametrize(
    ("forbidden", "said"),
    [
        (["list trainjobs"], "trainjobs.trainer.kubeflow.org is forbidden"),
        (["list secrets"], "secrets is forbidden"),
        (["trainjobs"], ""),  # who may not make them either has none
    ],
)
def test_a_kind_that_may_not_be_listed_is_said(kube: Kube, forbidden: list[str], said: str) -> None:
    kube.forbid(*forbidden)
    place = leftovers(kube)
    assert place.find() == []
    assert said in place.where
    assert ("not looked for" in place.where) == bool(said)


def test_nothing_is_removed_if_pods_may_not_be_listed(kube: Kube) -> None:
    kube.forbid("list pods")
    with pytest.raises(RefusedError, match="pods is forbidden"):
        leftovers(kube).find()
