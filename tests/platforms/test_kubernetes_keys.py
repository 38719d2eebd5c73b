"""`kubernetes:` and `policy:` of a platform's file: what is taken, and what is said of mistakes."""

from __future__ import annotations

from pathlib import Path

import pytest

from platforms.config.cluster_values import quantity_of, times
from platforms.config.schema import Platform, Site, load_platforms
from platforms.job import ConfigError
from platforms.schedulers import FILE_KEYS

HEAD = "scheduler: kubernetes\ndevice: gpu\nlayouts: {default: [1x4]}\n"


def load(folder: Path, text: str, site: Site | None = None) -> Platform:
    (folder / "cloud.yaml").write_text(text)
    return load_platforms([folder], site, schedulers=FILE_KEYS, environ={}, root=folder)["cloud"]


def test_kubernetes_keys_are_read_as_written(tmp_path: Path) -> None:
    keys = load(
        tmp_path,
        HEAD + "data_dir: /data\nkubernetes:\n  cpu: 2\n  memory: 1.5Gi\n  keep: 1h\n  user: 0\n"
        "  labels: {version: 3.10, on: yes}\n  tolerations: [{key: a, effect: NoExecute, tolerationSeconds: 30}]\n"
        "  volumes: [{mount: /data/, pvc: sets, size: 20Gi}]\npolicy:\n  most: {cpu: 192, nvidia.com/gpu: 8}\n"
        "  avoid: {csi-rbd: why}\n",
    )
    found = keys.kubernetes
    assert (found.cpu, found.memory, found.keep_s, found.pod_start_limit_s, found.user) == ("2", "1.5Gi", 3600, 1200, 0)
    assert found.labels == {"version": "3.10", "on": "yes"}
    assert found.tolerations[0].content() == {"key": "a", "effect": "NoExecute", "tolerationSeconds": 30}
    assert (found.volumes[0].mount, found.volumes[0].access_mode) == ("/data", "ReadWriteMany")
    assert keys.policy.most == {"cpu": "192", "nvidia.com/gpu": "8"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "data_dir: is missing (write the folder of the data sets as the pods see it: /data)"),
        ("data_dir: data", "data_dir: is not absolute"),
        ("data_dir: /d\nwork_dir: /work", "work_dir: means nothing to scheduler kubernetes (remove it;"),
        ("data_dir: /d\nslurm: {}", "slurm: means nothing to scheduler kubernetes (remove it)"),
        ("data_dir: /d\nkubernetes: {imag: x}", "kubernetes.imag: unknown key (did you mean 'image'?)"),
        ("data_dir: /d\nkubernetes: {kind: jobs}", "kubernetes.kind: 'jobs' is not one of job, pod, indexed_job,"),
        ("data_dir: /d\nkubernetes: {memory: 64GiB}", "kubernetes.memory: '64GiB' is no quantity"),
        ("data_dir: /d\nkubernetes: {queue: A_b}", "kubernetes.queue: 'A_b' is no name that Kubernetes takes"),
        ("data_dir: /d\nkubernetes: {user: me}", "kubernetes.user: needs a whole number, not 'me'"),
        ("data_dir: /d\nkubernetes: {context: a, contexts: [b]}", "kubernetes: needs context or contexts, not both"),
        ("data_dir: /d\nkubernetes: {volumes: [{mount: /d}]}", "kubernetes.volumes[0]: needs exactly one of pvc,"),
        (
            "data_dir: /d\nkubernetes: {volumes: [{mount: /d, pvc: a, memory: 1Gi}]}",
            "kubernetes.volumes[0]: needs exactly one of pvc, host_path, memory and scratch",
        ),
        (
            "data_dir: /d\nkubernetes: {volumes: [{mount: /d, memory: 1Gi, size: 1Gi}]}",
            "kubernetes.volumes[0]: size belongs to pvc",
        ),
        ("data_dir: /d\nkubernetes: {volumes: [{mount: /d, pvcc: a}]}", "kubernetes.volumes[0].pvcc: unknown key"),
        ("data_dir: /d\nkubernetes: {volumes: [{mount: d, pvc: a}]}", "volumes[0].mount: 'd' is no absolute path"),
        ("data_dir: /d\npolicy: {sense: {shm: why}}", "policy: `sense:` is gone (remove it; under `manifest:` write"),
        ("data_dir: /d\npolicy: {most: {cpu: many}}", "policy.most.cpu: 'many' is no quantity"),
        ("data_dir: /d\npolicy: {manifest: {'a b': why}}", "'a b' is no path in a manifest"),
        ("data_dir: /d\npolicy: {kinds: {Job: ''}}", "policy.kinds.Job: is empty"),
        ("data_dir: /d\npolicy: {one_of: {a.b: []}}", "policy.one_of.a.b: is empty (write at least one)"),
        ("data_dir: /d\nkubernetes: {cpu: 4, cpu_per_device: 1}", "needs cpu or cpu_per_device, not both"),
        ("data_dir: /d\nkubernetes: {shm_per_device: 1Gi, shm: 1Gi}", "needs shm or shm_per_device, not both"),
        ("data_dir: /d\nkubernetes: {memory_per_device: 64GiB}", "memory_per_device: '64GiB' is no quantity"),
        ("data_dir: /d\nlayouts: {default: [auto]}", "layouts"),
    ],
)
def test_each_mistake_is_named_with_its_line_and_key(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ConfigError) as raised:
        load(tmp_path, HEAD + text + "\n")
    problems = str(raised.value)
    assert said in problems
    assert problems.startswith(f"{tmp_path / 'cloud.yaml'}:")


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ("labels: {app: 'not ok!'}", "kubernetes.labels.app: 'not ok!' is no value of a label"),
        ("labels: {a/b/c: x}", "'a/b/c' is no key of a label"),
        ("labels: {hpc-ml-bench/run: x}", "kubernetes.labels: hpc-ml-bench/run is a label of the suite, which finds"),
        ("labels: {app.kubernetes.io/managed-by: me}", "app.kubernetes.io/managed-by is a label of the suite"),
        ("annotations: {a b: c}", "'a b' is no key of a label"),
        ("node_selector: {a b: c}", "'a b' is no key of a label"),
        ("node_selector: {a: b c}", "kubernetes.node_selector.a: 'b c' is no value of a label"),
        ("user: -1", "kubernetes.user: -1 is no user id (0 to 2147483647)"),
        ("user: 2147483648", "kubernetes.user: 2147483648 is no user id"),
        ("cpu: 0", "kubernetes.cpu: '0' is nothing (write how much, or remove the line)"),
        ("memory_per_device: 0Gi", "kubernetes.memory_per_device: '0Gi' is nothing"),
        ("resource: a b", "kubernetes.resource: 'a b' is no key of a label"),
        ("archive: models.pyz", "archive: 'models.pyz' is no absolute path (write it as the pods see it"),
        ("volumes: [{mount: data, pvc: a}]", "'data' is no absolute path (write it as the pods see it: /data)"),
        ("volumes: [{mount: '/a:b', pvc: a}]", "'/a:b' is no path that a pod can mount"),
        ("volumes: [{mount: /a, host_path: b}]", "host_path: 'b' is no absolute path (write it as the node sees it"),
        ("volumes: [{mount: /a, host_path: /b/../c}]", "host_path: '/b/../c': `..` may not stand in it"),
        ("volumes: [{mount: /a, pvc: X_y}]", "volumes[0].pvc: 'X_y' is no name that Kubernetes takes"),
        ("tolerations: [{key: a, operator: Exist}]", "tolerations[0].operator: 'Exist' is not one of Exists, Equal"),
        ("tolerations: [{key: a, effect: No}]", "effect: 'No' is not one of NoSchedule, PreferNoSchedule, NoExecute"),
        ("tolerations: [{key: a, tolerationSeconds: 1m}]", "needs a whole number, not '1m'"),
        ("tolerations: [{key: a b}]", "'a b' is no key of a label"),
        ("tolerations: [{key: a, value: b c}]", "'b c' is no value of a label"),
        ("tolerations: [{key: a, opertor: Exists}]", "opertor: unknown key (did you mean 'operator'?)"),
    ],
)
def test_invalid_values_are_refused_when_the_file_is_read(tmp_path: Path, keys: str, said: str) -> None:
    written = keys if keys.startswith("{") else f"{{{keys}}}"
    with pytest.raises(ConfigError) as raised:
        load(tmp_path, f"{HEAD}data_dir: /d\nkubernetes: {written}\n")
    assert said in str(raised.value)
    assert len(raised.value.problems) == 1


def test_unusual_but_valid_values_are_accepted(tmp_path: Path) -> None:
    keys = (
        "{labels: {a.b/C_d: '', '1': x_1.Y}, node_selector: {nvidia.com/gpu.product: NVIDIA-H200}, shm: 4Gi,"
        " memory: 4Gi, user: 2147483647,"
        " tolerations: [{operator: Exists}, {key: a, value: 1}, {key: '${site.k}', value: 'x-${site.v}'}],"
        " volumes: [{mount: /dev/shm/x, memory: 1Gi}, {mount: '/a/${site.b}', pvc: 'sets.${site.c}'}]}"
    )
    found = load(tmp_path, f"{HEAD}data_dir: /d\nkubernetes: {keys}\n").kubernetes
    written = [toleration.content() for toleration in found.tolerations]
    assert written[:2] == [{"operator": "Exists"}, {"key": "a", "value": "1"}]


def test_kubernetes_keys_are_refused_for_other_schedulers(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="kubernetes: means nothing to scheduler ssh"):
        load(tmp_path, "scheduler: ssh\nwork_dir: /w\ndevice: cpu\nlayouts: {default: [1x1]}\nkubernetes: {cpu: 1}\n")


def test_site_values_may_be_missing(tmp_path: Path) -> None:
    text = (
        HEAD
        + "data_dir: ${site.data}\nkubernetes: {namespace: '${site.space}', cpu: '${site.cpu}', queue: '${site.q}'}\n"
    )
    assert load(tmp_path, text).missing == ("data", "space", "cpu", "q")
    filled = load(tmp_path, text, Site(values={"data": "/data", "space": "mine", "cpu": "4", "q": "queue"}))
    assert (filled.missing, filled.kubernetes.cpu) == ((), "4")
    with pytest.raises(ConfigError, match=r"the value of \$\{site\.…\} does not fit here"):
        load(tmp_path, text, Site(values={"data": "/data", "space": "mine", "cpu": "many", "q": "queue"}))


def test_site_values_may_have_a_default(tmp_path: Path) -> None:
    keys = "{context: '${site.context:-prod}', cpu: '${site.cpu:-4}', queue: '${site.space}-${site.q:-a-b}'}"
    text = HEAD + f"data_dir: /data\nkubernetes: {keys}\nenv: {{A: '${{site.a:-}}', B: '${{B:-c}}'}}\n"
    platform = load(tmp_path, text, Site(values={"space": "mine"}))
    found = platform.kubernetes
    assert (platform.missing, found.context, found.cpu, found.queue) == ((), "prod", "4", "mine-a-b")
    assert platform.env == {"A": "", "B": "${B:-c}"}
    found = load(tmp_path, text, Site(values={"context": "other", "cpu": "8", "q": "c"})).kubernetes
    assert (found.context, found.cpu, found.queue) == ("other", "8", "<space: set in site.yaml>-c")
    with pytest.raises(ConfigError, match=r"the value of \$\{site\.…\} does not fit here"):
        load(tmp_path, text.replace("-4}", "-many}"))


def test_a_secret_with_a_default_is_refused(tmp_path: Path) -> None:
    text = HEAD + "data_dir: /data\nenv: {HF_TOKEN: '${site.token:-hunter2}'}\n"
    with pytest.raises(ConfigError, match="looks like a secret") as raised:
        load(tmp_path, text)
    assert "hunter2" not in str(raised.value)


@pytest.mark.parametrize(
    ("quantity", "count", "product"),
    [
        ("4", 8, "32"),
        ("500m", 3, "1500m"),
        ("1.5Gi", 4, "6Gi"),
        ("0.1", 3, "0.3"),
        ("1e1", 10, "100"),
        ("<cpu: set", 2, "<cpu: set"),
    ],
)
def test_a_quantity_is_multiplied_in_its_own_unit(quantity: str, count: int, product: str) -> None:
    assert times(quantity, count) == product


@pytest.mark.parametrize(
    ("text", "number"),
    [("8", 8), ("500m", 0.5), ("64Gi", 64 * 2**30), ("1k", 1000), ("1e3", 1000), ("1.5Gi", 1.5 * 2**30), ("2M", 2e6)],
)
def test_quantities_are_read_as_numbers(text: str, number: float) -> None:
    assert quantity_of(text) == pytest.approx(number)


@pytest.mark.parametrize("text", ["", "Gi", "1 Gi", "64GB", "-1", "0x1", "1_000", "ten"])
def test_malformed_quantities_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no quantity"):
        quantity_of(text)
