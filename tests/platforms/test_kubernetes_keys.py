"""`kubernetes:` and `policy:` of a platform's file: what is taken, and what is said of mistakes."""

from __future__ import annotations

from pathlib import Path

import pytest

from platforms.config import Platform, Site, load_platforms
from platforms.job import ConfigError
from platforms.schedulers import SCHEDULERS
from platforms.values import quantity_of

HEAD = "scheduler: kubernetes\ndevice: gpu\nlayouts: {default: [1x4]}\n"


def load(folder: Path, text: str, site: Site | None = None) -> Platform:
    (folder / "cloud.yaml").write_text(text)
    return load_platforms([folder], site, schedulers=SCHEDULERS, environ={}, root=folder)["cloud"]


def test_what_is_written_is_what_is_read(tmp_path: Path) -> None:
    keys = load(
        tmp_path,
        HEAD + "data_dir: /data\nkubernetes:\n  cpu: 2\n  memory: 1.5Gi\n  keep: 1h\n  user: 0\n"
        "  labels: {version: 3.10, on: yes}\n  tolerations: [{key: a, tolerationSeconds: 30}]\n"
        "  volumes: [{mount: /data/, pvc: sets, size: 20Gi}]\npolicy:\n  most: {cpu: 192, nvidia.com/gpu: 8}\n"
        "  sense: {shm: why}\n  avoid: {csi-rbd: why}\n",
    )
    found = keys.kubernetes
    assert (found.cpu, found.memory, found.keep_s, found.pod_start_limit_s, found.user) == ("2", "1.5Gi", 3600, 1200, 0)
    assert found.labels == {"version": "3.10", "on": "yes"}
    assert found.tolerations == ({"key": "a", "tolerationSeconds": 30},)
    assert (found.volumes[0].mount, found.volumes[0].access_mode) == ("/data", "ReadWriteMany")
    assert keys.policy.most == {"cpu": "192", "nvidia.com/gpu": "8"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "data_dir: is not absolute (write the folder of the data sets as the pods see it: /data)"),
        ("data_dir: data", "data_dir: is not absolute"),
        ("data_dir: /d\nwork_dir: /work", "work_dir: means nothing to scheduler kubernetes (remove it;"),
        ("data_dir: /d\nslurm: {}", "slurm: means nothing to scheduler kubernetes (remove it)"),
        ("data_dir: /d\nkubernetes: {imag: x}", "kubernetes.imag: unknown key (did you mean 'image'?)"),
        (
            "data_dir: /d\nkubernetes: {kind: jobs}",
            "kubernetes.kind: 'jobs' is not one of job, pod, indexed_job, ipujob",
        ),
        ("data_dir: /d\nkubernetes: {memory: 64GiB}", "kubernetes.memory: '64GiB' is no quantity"),
        ("data_dir: /d\nkubernetes: {queue: A_b}", "kubernetes.queue: 'A_b' is no name that Kubernetes takes"),
        ("data_dir: /d\nkubernetes: {user: me}", "kubernetes.user: needs a whole number, not 'me'"),
        ("data_dir: /d\nkubernetes: {context: a, contexts: [b]}", "kubernetes: needs context or contexts, not both"),
        (
            "data_dir: /d\nkubernetes: {volumes: [{mount: /d}]}",
            "kubernetes.volumes[0]: needs exactly one of pvc, host_",
        ),
        (
            "data_dir: /d\nkubernetes: {volumes: [{mount: /d, pvc: a, memory: 1Gi}]}",
            "kubernetes.volumes[0]: needs exactly one of pvc, host_path, memory and scratch",
        ),
        (
            "data_dir: /d\nkubernetes: {volumes: [{mount: /d, memory: 1Gi, size: 1Gi}]}",
            "kubernetes.volumes[0]: size belongs to pvc",
        ),
        (
            "data_dir: /d\nkubernetes: {volumes: [{mount: /d, pvcc: a}]}",
            "kubernetes.volumes[0].pvcc: unknown key (did you mean 'pvc'?)",
        ),
        ("data_dir: /d\nkubernetes: {volumes: [{mount: d, pvc: a}]}", "volumes[0].mount: 'd' is no absolute path"),
        ("data_dir: /d\npolicy: {sense: {smh: why}}", "policy.sense.smh: 'smh' is not one of shm, threads,"),
        ("data_dir: /d\npolicy: {most: {cpu: many}}", "policy.most.cpu: 'many' is no quantity"),
        ("data_dir: /d\npolicy: {manifest: {'a b': why}}", "'a b' is no path in a manifest"),
        ("data_dir: /d\npolicy: {kinds: {Job: ''}}", "policy.kinds.Job: is empty"),
        ("data_dir: /d\nlayouts: {default: [auto]}", "layouts"),
    ],
)
def test_each_mistake_is_named_with_its_line_and_key(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ConfigError) as raised:
        load(tmp_path, HEAD + text + "\n")
    problems = str(raised.value)
    assert said in problems
    assert problems.startswith(f"{tmp_path / 'cloud.yaml'}:")


def test_of_another_scheduler_it_means_nothing(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="kubernetes: means nothing to scheduler ssh"):
        load(tmp_path, "scheduler: ssh\nwork_dir: /w\ndevice: cpu\nlayouts: {default: [1x1]}\nkubernetes: {cpu: 1}\n")


def test_values_of_the_site_may_be_missing(tmp_path: Path) -> None:
    text = (
        HEAD
        + "data_dir: ${site.data}\nkubernetes: {namespace: '${site.space}', cpu: '${site.cpu}', queue: '${site.q}'}\n"
    )
    assert load(tmp_path, text).missing == ("data", "space", "cpu", "q")
    filled = load(tmp_path, text, Site(values={"data": "/data", "space": "mine", "cpu": "4", "q": "queue"}))
    assert (filled.missing, filled.kubernetes.cpu) == ((), "4")
    with pytest.raises(ConfigError, match=r"the value of \$\{site\.…\} does not fit here"):
        load(tmp_path, text, Site(values={"data": "/data", "space": "mine", "cpu": "many", "q": "queue"}))


@pytest.mark.parametrize(
    ("text", "number"),
    [("8", 8), ("500m", 0.5), ("64Gi", 64 * 2**30), ("1k", 1000), ("1e3", 1000), ("1.5Gi", 1.5 * 2**30), ("2M", 2e6)],
)
def test_quantities(text: str, number: float) -> None:
    assert quantity_of(text) == pytest.approx(number)


@pytest.mark.parametrize("text", ["", "Gi", "1 Gi", "64GB", "-1", "0x1", "1_000", "ten"])
def test_what_is_no_quantity(text: str) -> None:
    with pytest.raises(ValueError, match="is no quantity"):
        quantity_of(text)
