"""Manifests: what is rendered, what Kubernetes' own models say to it, and that no value can break the YAML."""

from __future__ import annotations

import copy
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from platforms.config.keys import KubernetesKeys
from platforms.config.schema import Platform
from platforms.job import ConfigError, JobSpec, Layout, RefusedError
from platforms.schedulers.kubernetes.manifest import documents, launch, placeholders, render
from platforms.schedulers.kubernetes.manifest.templating import fill, where_in_tree
from platforms.schedulers.kubernetes.objects import labels, pod_templates
from platforms.schedulers.kubernetes.objects.pod_templates import NO_TEMPLATE as NO_TEMPLATE_MESSAGE
from platforms.schedulers.kubernetes.objects.pod_templates import templates

NOTHING_RUNS = re.escape(NO_TEMPLATE_MESSAGE)
ROOT = Path(__file__).resolve().parents[2]
NAME = "resnet50-1x4gpu-k2345abc"
SPEC = JobSpec(
    NAME, "test_resnet50.py::test_resnet50[cluster-1x4gpu-tuned]", "cluster", Layout(1, 4, "gpu"),
    ("train", "resnet50", "--size", "smoke"), benchmark="resnet50", launcher="torchrun", python="auto",
    archive=Path("models-0123456789ab.pyz"), run="r2345abc", time_limit_s=3600.0,
)  # fmt: skip
OURS = {
    "app.kubernetes.io/managed-by": "hpc-ml-bench",
    "hpc-ml-bench/run": "r2345abc",
    "hpc-ml-bench/job": NAME,
    "hpc-ml-bench/platform": "cluster",
    "hpc-ml-bench/test": "test_resnet50.py-test_resnet50-cluster-1x4gpu-tuned",
}


def cluster(*, keys: Mapping[str, object] | None = None, **more: object) -> Platform:
    """A platform with an image, and these keys under `kubernetes:`."""
    fixed = {"name": "cluster", "scheduler": "kubernetes", "device": "gpu", "layouts": {"default": ("1x4",)}}
    place = {"data_dir": "/data", "source": Path("cluster.yaml")}
    return Platform(**{**fixed, **place, "kubernetes": {"image": "registry/image:1", **(keys or {})}, **more})


EVERYTHING = cluster(
    keys={
        "namespace": "project", "queue": "project-user-queue", "generate_name": True, "image_pull_policy": "Always",
        "image_pull_secrets": ["hub"], "service_account": "bench", "priority_class": "low", "cpu": "16",
        "memory": "64Gi", "shm": "8Gi", "node_selector": {"nvidia.com/gpu.product": "NVIDIA-H200"},
        "tolerations": [{"key": "gpu", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 30}],
        "labels": {"site/user": "me"},
        "annotations": {"site/note": "a: b"}, "keep": "1h", "pod_start_limit": "10m", "user": 1234,
        "volumes": [
            {"mount": "/data", "pvc": "sets", "read_only": True}, {"mount": "/node", "host_path": "/nvme"},
            {"mount": "/fast", "memory": "1Gi"}, {"mount": "/scratch", "scratch": "9Gi"},
        ],
    },
    setup=("ulimit -n 4096",), env={"NCCL_DEBUG": "WARN"},
)  # fmt: skip


def rendered(spec: JobSpec = SPEC, platform: Platform | None = None) -> tuple[dict[str, Any], ...]:
    return render.parse(render.render(spec, platform or cluster()))


def pod_of(objects: tuple[dict[str, Any], ...]) -> dict[str, Any]:
    """The spec of the root's pods."""
    ((_path, template),) = templates(objects[-1])
    return template["spec"]


def container_of(objects: tuple[dict[str, Any], ...]) -> dict[str, Any]:
    return pod_of(objects)["containers"][0]


def env_of(objects: tuple[dict[str, Any], ...]) -> dict[str, Any]:
    return {one["name"]: one.get("value", one.get("valueFrom")) for one in container_of(objects)["env"]}


def layout(kind: str) -> JobSpec:
    """A job for each template."""
    if kind == "indexed_job":
        return replace(SPEC, layout=Layout(2, 4, "gpu"))
    if kind == "ipujob":
        return replace(SPEC, layout=Layout(1, 8, "ipu"), launcher="poprun")
    return SPEC


def of_kind(kind: str, platform: Platform = EVERYTHING) -> tuple[dict[str, Any], ...]:
    keys = platform.kubernetes.model_copy(update={"kind": kind})
    return rendered(layout(kind), platform.model_copy(update={"kubernetes": keys}))


KINDS = ["indexed_job", "ipujob", "job", "pod"]


# --- what the models of the official client say -----------------------------------------------------------------------


def models(each: dict[str, Any]) -> Iterator[tuple[Any, dict[str, Any]]]:
    """The model of an object, or, of a kind that the client does not know, of its pod template."""
    from kubernetes import client

    if (known := getattr(client, f"V1{each['kind']}", None)) is not None:
        yield known, each
        return
    for _path, template in templates(each):
        yield client.V1PodTemplateSpec, template


@pytest.mark.parametrize("platform", [EVERYTHING, cluster()], ids=["everything", "nothing"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.slow
def test_every_template_fits_the_models_of_the_kubernetes_package(kind: str, platform: Platform) -> None:
    checked = 0
    for each in of_kind(kind, platform):
        for model, tree in models(each):
            if not hasattr(model, "model_validate"):
                pytest.skip("a client older than 37 has no models that refuse what they do not know")
            model.model_validate(tree)
            checked += 1
    assert checked == len(of_kind(kind, platform))


# --- every template ---------------------------------------------------------------------------------------------------


def test_a_platform_may_name_each_template() -> None:
    known = KubernetesKeys.model_json_schema()["properties"]["kind"]["anyOf"][0]["enum"]
    assert sorted(known) == KINDS
    assert all((ROOT / "k8s_templates" / f"{kind}.yaml").exists() for kind in KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_every_template_is_valid_yaml_with_known_placeholders(kind: str) -> None:
    text = (ROOT / "k8s_templates" / f"{kind}.yaml").read_text(encoding="utf-8")
    assert set(re.findall(r"(?<!\$)\$\{([^}]*)\}", text)) <= placeholders.PLACEHOLDERS.keys()
    assert all({"apiVersion", "kind"} <= one.value.keys() for one in documents.read(text, kind))
    assert max(map(len, text.splitlines())) <= 120


@pytest.mark.parametrize("kind", KINDS)
def test_our_labels_are_on_every_object_and_pod_template(kind: str) -> None:
    objects = of_kind(kind)
    for each in objects:
        assert OURS.items() <= each["metadata"]["labels"].items()
        assert each["metadata"]["labels"]["site/user"] == "me"
        assert each["metadata"]["annotations"] == {"site/note": "a: b"}
        assert each["metadata"]["namespace"] == "project"
        for _path, template in templates(each):
            assert OURS.items() <= template["metadata"]["labels"].items()


@pytest.mark.parametrize("kind", KINDS)
def test_the_root_object_comes_last_with_its_names_queue_and_limit(kind: str) -> None:
    objects = of_kind(kind)
    *beside, root = objects
    assert root is pod_templates.root_of(objects)
    assert root["metadata"]["name"] == NAME
    assert root["metadata"]["generateName"] == f"{NAME}-"
    queue = {"kueue.x-k8s.io/queue-name": "project-user-queue", "kueue.x-k8s.io/max-exec-time-seconds": "4200"}
    assert queue.items() <= root["metadata"]["labels"].items()
    for each in beside:
        assert not queue.keys() & each["metadata"]["labels"].keys()
    assert [each["kind"] for each in beside] == (["Service"] if kind == "indexed_job" else [])


@pytest.mark.parametrize("kind", KINDS)
def test_pods_have_a_deadline_and_no_access_to_the_cluster(kind: str) -> None:
    pod = pod_of(of_kind(kind))
    assert pod["activeDeadlineSeconds"] == 3600 + 600
    assert pod["restartPolicy"] == "Never"
    assert pod["terminationGracePeriodSeconds"] == 10
    assert (pod["automountServiceAccountToken"], pod["enableServiceLinks"]) == (False, False)
    assert (pod["serviceAccountName"], pod["priorityClassName"]) == ("bench", "low")
    assert pod["imagePullSecrets"] == [{"name": "hub"}]
    assert pod["nodeSelector"] == {"nvidia.com/gpu.product": "NVIDIA-H200"}
    toleration = {"key": "gpu", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 30}
    assert pod["tolerations"] == [toleration]


@pytest.mark.parametrize("kind", KINDS)
def test_pods_meet_the_restricted_standard_except_for_device_needs(kind: str) -> None:
    pod = pod_of(of_kind(kind))
    assert pod["securityContext"] == {
        "runAsNonRoot": True, "runAsUser": 1234, "runAsGroup": 1234, "fsGroup": 1234,
        "fsGroupChangePolicy": "OnRootMismatch", "seccompProfile": {"type": "RuntimeDefault"},
    }  # fmt: skip
    more = {"add": ["IPC_LOCK"]} if kind == "ipujob" else {}
    own = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"], **more}}
    assert pod["containers"][0]["securityContext"] == own
    assert pod.get("hostIPC", False) is (kind == "ipujob")
    assert not {"hostNetwork", "hostPID"} & pod.keys()


@pytest.mark.parametrize("kind", KINDS)
def test_a_manifest_that_runs_as_root_says_so(kind: str) -> None:
    text = render.render(layout(kind), cluster(keys={"user": 0, "kind": kind}))
    pod = pod_of(render.parse(text))
    assert "runAsNonRoot" not in pod["securityContext"]
    assert pod["securityContext"]["runAsUser"] == 0
    assert re.search(r"^# `user: 0`: as root", text, re.MULTILINE)
    assert "as root" not in render.render(layout(kind), cluster(keys={"kind": kind}))


@pytest.mark.parametrize("length", [20, 35, 36])
def test_a_generated_name_stays_within_the_length_limit(length: int) -> None:
    spec = replace(SPEC, name=f"{'a' * (length - 9)}-k2345abc")
    assert len(spec.name) == length
    keys = {"generate_name": True}
    pod = {"apiVersion": "v1", "kind": "Pod", "spec": {"containers": [{"name": "c"}]}}
    for each in (spec, replace(spec, manifest=pod)):
        metadata = rendered(each, cluster(keys=keys))[-1]["metadata"]
        assert metadata["name"] == spec.name
        assert metadata["generateName"] == f"{spec.name[:35]}-"


@pytest.mark.parametrize(
    ("devices", "cpu", "memory", "shm", "threads"),
    [(1, "1500m", "16Gi", "8Gi", "1"), (8, "12000m", "128Gi", "64Gi", "1")],
)
def test_each_device_requests_its_amounts(devices: int, cpu: str, memory: str, shm: str, threads: str) -> None:
    keys = {"cpu_per_device": "1500m", "memory_per_device": "16Gi", "shm_per_device": "8Gi"}
    objects = rendered(replace(SPEC, layout=Layout(1, devices, "gpu")), cluster(keys=keys))
    assert container_of(objects)["resources"]["requests"] == {"cpu": cpu, "memory": memory}
    assert pod_of(objects)["volumes"][-1]["emptyDir"]["sizeLimit"] == shm
    assert env_of(objects)["OMP_NUM_THREADS"] == threads
    pod = {"apiVersion": "v1", "kind": "Pod", "spec": {"containers": [{"name": "c", "resources": "${resources}"}]}}
    own = rendered(replace(SPEC, layout=Layout(1, devices, "gpu"), manifest=pod), cluster(keys=keys))
    assert container_of(own)["resources"]["limits"] == {"cpu": cpu, "memory": memory, "nvidia.com/gpu": str(devices)}


def test_a_job_runs_once_and_has_a_ttl() -> None:
    spec = of_kind("job")[-1]["spec"]
    assert (spec["backoffLimit"], spec["ttlSecondsAfterFinished"]) == (0, 3600)


def test_jobs_on_several_nodes_are_indexed_pods_that_know_rank_0() -> None:
    service, root = of_kind("indexed_job")
    assert (service["spec"]["clusterIP"], service["spec"]["publishNotReadyAddresses"]) == ("None", False)
    assert service["spec"]["selector"].items() <= root["spec"]["template"]["metadata"]["labels"].items()
    spec, name = root["spec"], service["metadata"]["name"]
    assert (spec["completions"], spec["parallelism"], spec["completionMode"]) == (2, 2, "Indexed")
    assert spec["template"]["spec"]["subdomain"] == name
    env = env_of((root,))
    assert env["MASTER_ADDR"] == f"{NAME}-0.{name}"
    assert 20000 <= int(env["MASTER_PORT"]) <= 29999
    words = spec["template"]["spec"]["containers"][0]["args"]
    expected = [
        "python3", "-m", "torch.distributed.run", "--nnodes=2", "--nproc-per-node=4",
        "--node-rank=$(JOB_COMPLETION_INDEX)", "--master-addr=$(MASTER_ADDR)", "--master-port=$(MASTER_PORT)",
        "--rdzv-conf=timeout=660",
        "/hpc-ml-bench/code/models-0123456789ab.pyz", "train", "resnet50",
    ]  # fmt: skip
    assert words[: len(expected)] == expected


def test_the_name_of_a_service_begins_with_a_letter() -> None:
    service, root = rendered(replace(SPEC, name="3d-2x4gpu-k2345abc", layout=Layout(2, 4, "gpu")))
    assert service["metadata"]["name"] == root["spec"]["template"]["spec"]["subdomain"] == "job-3d-2x4gpu-k2345abc"
    assert env_of((root,))["MASTER_ADDR"] == "3d-2x4gpu-k2345abc-0.job-3d-2x4gpu-k2345abc"


def test_each_job_has_its_own_rendezvous_port() -> None:
    ports = {placeholders.of(replace(SPEC, name=f"job-{n}"), EVERYTHING)["port"]() for n in range(50)}
    assert len(ports) > 45


def test_an_ipujob_asks_for_a_partition() -> None:
    (root,) = of_kind("ipujob")
    assert (root["apiVersion"], root["spec"]["jobInstances"]) == ("graphcore.ai/v1alpha1", 1)
    assert root["spec"]["ipusPerJobInstance"] == "8"
    assert root["spec"]["modelReplicasPerWorker"] == "8"
    assert container_of((root,))["resources"]["limits"] == {"cpu": "16", "memory": "64Gi"}
    assert container_of((root,))["args"][:4] == [
        "poprun", "--num-instances=8", "--num-replicas=8", "--ipus-per-replica=1"
    ]  # fmt: skip


def test_root_starts_poprun_with_what_its_mpirun_asks_for() -> None:
    spec = replace(SPEC, layout=Layout(1, 2, "ipu"), launcher="poprun")
    words = container_of(rendered(spec, cluster(keys={"kind": "ipujob", "user": 0})))["args"]
    assert words[:4] == ["env", "OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1", "poprun"]
    assert "--allow-run-as-root=1" in words


def test_one_process_for_all_ipus_needs_no_poprun() -> None:
    alone = replace(SPEC, layout=Layout(1, 8, "ipu"), launcher="none", devices_per_replica=2, replicas_per_rank=4)
    (root,) = rendered(alone, cluster(keys={"kind": "ipujob"}))
    assert container_of((root,))["args"][:2] == ["python3", "/hpc-ml-bench/code/models-0123456789ab.pyz"]
    assert "modelReplicasPerWorker" not in root["spec"]


# --- what the pods get ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("unit", "keys", "limits"),
    [
        ("gpu", {}, {"nvidia.com/gpu": "4"}),
        ("gpu", {"resource": "amd.com/gpu"}, {"amd.com/gpu": "4"}),
        ("ipu", {}, {"graphcore.ai/ipu": "4"}),
        ("cpu", {}, None),
        ("cpu", {"cpu": "500m"}, {"cpu": "500m"}),
    ],
)
def test_each_device_has_its_resource_name(unit: str, keys: dict[str, object], limits: dict[str, str] | None) -> None:
    spec = replace(SPEC, layout=Layout(1, 4, unit), replicas_per_rank=4 if unit == "ipu" else 1)
    container = container_of(rendered(spec, cluster(keys=keys)))
    assert container.get("resources", {}).get("limits") == limits


def test_each_kind_of_volume_is_mounted() -> None:
    pod = pod_of(of_kind("job"))
    sources = {one.pop("name"): one for one in copy.deepcopy(pod["volumes"])}
    mounts = {one.pop("name"): one for one in copy.deepcopy(pod["containers"][0]["volumeMounts"])}
    assert sources == {
        "work": {"emptyDir": {}},
        "code": {"configMap": {"name": "hpc-ml-bench-models-0123456789ab"}},
        "shm": {"emptyDir": {"medium": "Memory", "sizeLimit": "8Gi"}},
        "volume-1": {"persistentVolumeClaim": {"claimName": "sets"}},
        "volume-2": {"hostPath": {"path": "/nvme", "type": "Directory"}},
        "volume-3": {"emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}},
        "volume-4": {"emptyDir": {"sizeLimit": "9Gi"}},
    }
    assert mounts == {
        "work": {"mountPath": "/hpc-ml-bench/work"},
        "code": {"mountPath": "/hpc-ml-bench/code", "readOnly": True},
        "shm": {"mountPath": "/dev/shm"},
        "volume-1": {"mountPath": "/data", "readOnly": True},
        "volume-2": {"mountPath": "/node"},
        "volume-3": {"mountPath": "/fast"},
        "volume-4": {"mountPath": "/scratch"},
    }
    assert pod["containers"][0]["workingDir"] == "/hpc-ml-bench/work"


def test_code_in_the_image_needs_no_volume() -> None:
    objects = rendered(platform=cluster(keys={"archive": "/opt/models.pyz"}))
    assert "/opt/models.pyz" in container_of(objects)["args"]
    assert [one["name"] for one in pod_of(objects)["volumes"]] == ["work"]


def test_the_container_gets_the_environment_of_job_and_platform() -> None:
    objects = of_kind("job")
    env = env_of(objects)
    assert env["OMP_NUM_THREADS"] == "4"
    assert env["HOME"] == "/tmp"
    assert env["NCCL_DEBUG"] == "WARN"
    assert (env["HPC_ML_BENCH_JOB"], env["HPC_ML_BENCH_LAST_WORD"]) == (NAME, "/dev/termination-log")
    assert "HPC_ML_BENCH_NOT_AFTER" not in env


@pytest.mark.parametrize(
    ("threads", "cpu", "expected"),
    [(7, "16", "7"), (None, "16", "4"), (None, "15", "3"), (None, "500m", "1"), (None, None, None)],
)
def test_omp_num_threads_is_set_for_each_rank(threads: int | None, cpu: str | None, expected: str | None) -> None:
    platform = cluster(keys={} if cpu is None else {"cpu": cpu})
    assert env_of(rendered(replace(SPEC, threads_per_rank=threads), platform)).get("OMP_NUM_THREADS") == expected


def test_secret_values_are_not_in_the_manifest() -> None:
    spec = replace(SPEC, env={"HF_TOKEN": "hf_very-secret", "DB_PASSWORD": "hunter2", "TOKEN_FILE": "/run/token"})
    text = render.render(spec, cluster())
    assert "hf_very-secret" not in text
    assert "hunter2" not in text
    env = env_of(render.parse(text))
    assert env["HF_TOKEN"] == {"secretKeyRef": {"name": NAME, "key": "HF_TOKEN"}}
    assert env["TOKEN_FILE"] == "/run/token"


# --- command lines ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"launcher": "none", "layout": Layout(1, 1, "gpu")},
            ["python3", "/hpc-ml-bench/code/models-0123456789ab.pyz", "train"],
        ),
        ({"launcher": "auto"}, ["python3", "-m", "torch.distributed.run", "--nnodes=1", "--nproc-per-node=4"]),
        ({"python": "/opt/py"}, ["/opt/py", "-m", "torch.distributed.run"]),
        ({"archive": None, "arguments": ("my", "own"), "launcher": "none"}, ["my", "own"]),
        (
            {"archive": None, "arguments": ("my", "own")},
            ["python3", "-m", "torch.distributed.run", "--nnodes=1", "--nproc-per-node=4", "--standalone"],
        ),
    ],
)
def test_each_launcher_starts_the_job_with_its_command(changes: dict[str, object], words: list[str]) -> None:
    assert container_of(rendered(replace(SPEC, **changes)))["args"][: len(words)] == words  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "keys", "said"),
    [
        ({"launcher": "srun"}, {}, "launcher srun belongs to another scheduler.*`launcher:` in cluster.yaml"),
        ({"launcher": "none"}, {}, "launcher none starts one rank, and 1x4gpu has 4: write `launcher: torchrun`"),
        ({"launcher": "poprun"}, {}, "poprun starts ranks that drive IPUs"),
        ({"layout": Layout(2, 4, "gpu")}, {"kind": "job"}, "has 2 nodes and kind job is one pod"),
        ({"layout": Layout(2, 4, "gpu")}, {"kind": "pod"}, "kind: indexed_job"),
        ({"layout": Layout(1, 6, "ipu"), "launcher": "poprun"}, {"kind": "ipujob"}, "powers of two: write 1x8"),
        ({"layout": Layout(1, 1, "csx")}, {}, "no name for a device `csx`"),
        ({}, {"image": None}, r"a pod needs an image: write `kubernetes: \{image: …\}` in cluster.yaml"),
    ],
)
def test_layouts_that_kubernetes_cannot_run_are_refused(
    changes: dict[str, object], keys: dict[str, object], said: str
) -> None:
    with pytest.raises(RefusedError, match=said):
        render.render(replace(SPEC, **changes), cluster(keys=keys))  # type: ignore[arg-type]


@pytest.mark.skipif(shutil.which("sh") is None, reason="needs a shell")
@pytest.mark.parametrize(
    ("not_after", "code", "printed", "last_word"),
    [("1", 75, b"", b"hpc-ml-bench: not after\n"), ("9999999999", 0, b"ran\n", b""), ("", 0, b"ran\n", b"")],
)
@pytest.mark.parametrize("kind", ["pod", "job", "ipujob"])
def test_the_start_script_refuses_to_start_after_its_deadline(
    tmp_path: Path, kind: str, not_after: str, code: int, printed: bytes, last_word: bytes
) -> None:
    command = container_of(of_kind(kind))["command"]
    word = tmp_path / "word"
    word.touch()
    environ = {"PATH": "/usr/bin:/bin", "HPC_ML_BENCH_NOT_AFTER": not_after, "HPC_ML_BENCH_LAST_WORD": str(word)}
    done = subprocess.run([*command, "echo", "ran"], env=environ, capture_output=True, timeout=120)
    assert (done.returncode, done.stdout, word.read_bytes()) == (code, printed, last_word)


@pytest.mark.skipif(shutil.which("sh") is None, reason="needs a shell")
@pytest.mark.parametrize(
    ("there_after", "words", "code", "asked"),
    [
        (0, ["--master-addr=x"], 0, ["0", "1"]),
        (3, ["--master-addr=x"], 0, ["0", "0", "0", "0", "1"]),
        (None, ["--master-addr=x"], 75, ["0"]),
        (None, ["x"], 0, []),
    ],
    ids=["there", "later", "never", "meets nobody"],
)
def test_pods_wait_until_the_names_of_all_pods_resolve(
    tmp_path: Path, there_after: int | None, words: list[str], code: int, asked: list[str]
) -> None:
    """getent says which names there are; a second of the script is none of ours."""
    command, word, tried = container_of(of_kind("indexed_job"))["command"], tmp_path / "word", tmp_path / "tried"
    tried.touch()
    scripts = {
        "getent": f'echo "$2" >> {tried}; [ $(wc -l < {tried}) -gt {999 if there_after is None else there_after} ]',
        "sleep": f"echo 1 >> {tmp_path / 'slept'}",
        "date": f"echo $(($(wc -l < {tmp_path / 'slept'}) * 100))",
    }
    (tmp_path / "slept").touch()
    for name, text in scripts.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    environ = {"PATH": f"{tmp_path}:/usr/bin:/bin", "HPC_ML_BENCH_LAST_WORD": str(word)}
    done = subprocess.run([*command, "echo", *words], env=environ, capture_output=True, timeout=120)
    assert done.returncode == code
    assert done.stdout == (b"" if code else f"{' '.join(words)}\n".encode())
    names = [line.removeprefix(f"{NAME}-").removesuffix(f".{NAME}") for line in tried.read_text().splitlines()]
    if not code:
        assert names == asked
        return
    assert set(names) == set(asked)
    assert len(names) == 7  # 600 s, of which each look takes 100
    assert word.read_text() == f"hpc-ml-bench: not after: {done.stderr.decode()}"
    assert done.stderr == b"pod 0 of 2 does not run after 600 s, or its name is not known\n"


@pytest.mark.nightly("platforms/schedulers/kubernetes/manifest")
def test_torchrun_keeps_the_timeout_of_its_static_rendezvous() -> None:
    pytest.importorskip("torch")
    words = ["--nnodes=2", "--node-rank=1", "--master-addr=127.0.0.1", "--master-port=1", "--no-python", "true"]
    run = [sys.executable, "-m", "torch.distributed.run", "--rdzv-conf=timeout=1", *words]
    done = subprocess.run(run, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1
    assert re.search(r"timed out after (1s|1000ms)", done.stderr), done.stderr


# --- text -------------------------------------------------------------------------------------------------------------

NASTY = [
    "a\nb", "a\n\nb\n", "\na", " a ", "a: b", "- x", "-c /path", "${name}", "$${name}", "$(HOME)", "$$", "$$(A)$",
    "'", '"', "a'b\"c", "\\", "é", "😀", "\x85", "a\u2028b", "\ufeff", "yes", "n", "null", "~", "1", "007", "1e3",
    "0x1f", "1:30", "2024-01-01", "#x", "a #b", "&a", "*a", "!a", "|", ">", "%", "@", "`", "{}", "[]", "? a", "\t",
    "a\tb\nc", "\x07", "a\rb", "<<", "", "\n", " \n ", "---", "...", "a\n---\nb", "<user: set in site.yaml>",
]  # fmt: skip


def as_a_program_gets_it(word: str) -> str:
    """What a kubelet makes of a word, where no variable is of that name: `$$` is one dollar."""
    return re.sub(r"\$\$|\$\(([^)]*)\)", lambda match: "$" if match[0] == "$$" else match[0], word)


@pytest.mark.parametrize("text", NASTY)
def test_no_value_can_break_the_yaml(text: str) -> None:
    spec = replace(SPEC, arguments=(text, "end"), env={"VALUE": text}, test=f"t::{text}")
    platform = cluster(keys={"annotations": {"note": text}})
    keys = platform.kubernetes.model_copy(update={"node_selector": {"key": text}})  # which a file may not say
    platform = platform.model_copy(update={"kubernetes": keys})
    whole = render.render(spec, platform)
    objects = render.parse(whole)
    assert as_a_program_gets_it(container_of(objects)["args"][-2]) == text
    assert as_a_program_gets_it(env_of(objects)["VALUE"]) == text
    assert objects[-1]["metadata"]["annotations"] == {"note": text}
    assert pod_of(objects)["nodeSelector"] == {"key": text}
    assert len(objects) == 1
    assert whole == render.render(spec, platform)


@pytest.mark.parametrize("text", ["a\0b", "\udc80"])
def test_characters_that_no_cluster_accepts_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="is not text that a cluster accepts"):
        render.render(replace(SPEC, env={"VALUE": text}), cluster())


def test_scripts_are_written_as_block_text() -> None:
    text = render.render(SPEC, EVERYTHING)
    assert re.search(r"^ +- \|\n(.*\n)+? +ulimit -n 4096\n +exec \"\$@\"$", text, re.MULTILINE)
    assert "&id001" not in text


def test_the_header_names_context_and_kubeconfig() -> None:
    first = "# test_resnet50.py::test_resnet50[cluster-1x4gpu-tuned] on cluster, 1x4gpu\n"
    assert render.render(SPEC, cluster()).startswith(f"{first}apiVersion: ")
    named = render.render(SPEC, cluster(keys={"context": "prod", "kubeconfig": "/k"}))
    assert named.startswith(f"{first}# context: prod\n# kubeconfig: /k\napiVersion: ")
    assert render.cluster_of(named) == ("prod", "/k")
    own = replace(SPEC, cluster={"context": "test", "kubeconfig": "/mine", "namespace": "other"})
    text = render.render(own, cluster(keys={"context": "prod", "kubeconfig": "/k", "namespace": "project"}))
    assert render.cluster_of(text) == ("test", "/mine")
    assert [each["metadata"]["namespace"] for each in render.parse(text)] == ["other"]
    assert render.cluster_of(render.render(SPEC, cluster())) == (None, None)


def test_a_line_break_in_a_value_cannot_start_an_object() -> None:
    text = render.render(replace(SPEC, test="a\nkind: Pod"), cluster(keys={"context": "x\n# kubeconfig: /evil"}))
    assert render.cluster_of(text) == ("x?# kubeconfig: /evil", None)
    assert text.startswith("# a?kind: Pod on cluster")


@pytest.mark.parametrize(
    ("test", "label"),
    [
        ("test_x.py::test_x[a-1x1cpu]", "test_x.py-test_x-a-1x1cpu"),
        ("_ü_", ""),
        ("x" * 63, "x" * 63),
        ("test_x.py::test_x[" + "y" * 80 + "]", None),
    ],
    ids=["short", "nothing", "full", "long"],  # an id in an id looks like a job's
)
def test_test_ids_become_unique_label_values(test: str, label: str | None) -> None:
    made = labels.label_value(test)
    assert label is None or made == label
    assert len(made) <= 63
    assert not made or re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?", made)
    assert len({labels.label_value(test + end) for end in ("1", "2")}) == (2 if made else 1 if label is None else 2)


# --- somebody's own manifest ------------------------------------------------------------------------------------------

OWN = """\
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata:
  name: theirs
  labels: {team: ours, hpc-ml-bench/run: forged}
spec:
  pytorchReplicaSpecs:
    Master:
      replicas: 1
      template:
        spec: &pod
          containers:
            - name: pytorch
              image: ${image}
              command: [torchrun, "--nproc-per-node=${ranks_per_node}", "${archive}", "${arguments}"]
              args: ["echo ${HOME} $${name}"]
              env:
                - ${env}
                - {name: MINE, value: "on ${name}"}
              resources: ${resources}
              volumeMounts: ${volume_mounts}
          volumes: ["${volumes}", {name: mine, emptyDir: {}}]
    Worker:
      replicas: ${nodes}
      template:
        metadata: {annotations: {a: b}}
        spec:
          activeDeadlineSeconds: 5
          containers: [{name: pytorch, image: "${image}"}]
---
apiVersion: v1
kind: ConfigMap
metadata: {name: "settings-${name}", labels: {a: b}}
data: {when: 2024-01-01, mode: "0644", "${platform}": x}
---
"""


@pytest.fixture
def own(tmp_path: Path) -> Path:
    path = tmp_path / "own.yaml"
    path.write_text(OWN)
    return path


def test_a_users_manifest_is_filled_only_at_its_placeholders(own: Path) -> None:
    config_map, root = rendered(replace(SPEC, manifest=own), EVERYTHING)
    assert (config_map["kind"], root["kind"]) == ("ConfigMap", "PyTorchJob")
    assert config_map["data"] == {"when": "2024-01-01", "mode": "0644", "cluster": "x"}
    assert config_map["metadata"]["name"] == f"settings-{NAME}"
    assert root["metadata"]["name"] == NAME
    assert root["metadata"]["generateName"] == f"{NAME}-"
    replicas = root["spec"]["pytorchReplicaSpecs"]
    assert replicas["Worker"]["replicas"] == 1
    pod = replicas["Master"]["template"]["spec"]
    (container,) = pod["containers"]
    archive = "/hpc-ml-bench/code/models-0123456789ab.pyz"
    assert container["command"] == ["torchrun", "--nproc-per-node=4", archive, "train", "resnet50", "--size", "smoke"]
    assert container["args"] == ["echo ${HOME} ${name}"]
    assert container["env"][-1] == {"name": "MINE", "value": f"on {NAME}"}
    assert container["resources"]["limits"]["nvidia.com/gpu"] == "4"
    assert [one["name"] for one in pod["volumes"]][-2:] == ["volume-4", "mine"]


def test_a_users_manifest_gets_our_labels_queue_and_limit_and_nothing_else(own: Path) -> None:
    config_map, root = rendered(replace(SPEC, manifest=own), EVERYTHING)
    replicas = root["spec"]["pytorchReplicaSpecs"]
    for labelled in (config_map, root, *(one["template"] for one in replicas.values())):
        assert OURS.items() <= labelled["metadata"]["labels"].items()
    assert root["metadata"]["labels"]["team"] == "ours"
    assert root["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "project-user-queue"
    assert "kueue.x-k8s.io/queue-name" not in config_map["metadata"]["labels"]
    deadlines = {name: one["template"]["spec"]["activeDeadlineSeconds"] for name, one in replicas.items()}
    assert deadlines == {"Master": 4200, "Worker": 5}
    assert replicas["Worker"]["template"]["metadata"]["annotations"] == {"a": "b"}
    assert "securityContext" not in replicas["Master"]["template"]["spec"]


def test_a_manifest_may_be_a_dict_and_the_dict_is_not_changed(own: Path) -> None:
    parsed = [document.value for document in documents.read(OWN, "own")]
    before = copy.deepcopy(parsed)
    by_file = render.render(replace(SPEC, manifest=own), EVERYTHING)
    assert render.render(replace(SPEC, manifest=parsed), EVERYTHING) == by_file
    assert render.render(replace(SPEC, manifest=tuple(parsed)), EVERYTHING) == by_file
    assert parsed == before


def test_a_platforms_manifest_path_is_relative_to_its_file(own: Path) -> None:
    platform = cluster(keys={"manifest": "own.yaml"}, source=own.with_name("cluster.yaml"))
    assert rendered(SPEC, platform)[-1]["kind"] == "PyTorchJob"
    (pod,) = rendered(replace(SPEC, manifest={"apiVersion": "v1", "kind": "Pod", "spec": {"containers": []}}), platform)
    assert (pod["kind"], pod["metadata"]["name"], pod["spec"]["activeDeadlineSeconds"]) == ("Pod", NAME, 4800)


def test_unnamed_objects_beside_the_root_get_a_name() -> None:
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "X"}, "spec": {"containers": [{"name": "c"}]}}
    beside = [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "a-"}}] * 2
    objects = rendered(replace(SPEC, manifest=[*beside, {"apiVersion": "v1", "kind": "Service"}, pod]))
    assert [each["metadata"]["name"] for each in objects] == [NAME, f"{NAME}-2", NAME, NAME]


def test_a_list_object_stands_for_its_items() -> None:
    pod = {"apiVersion": "v1", "kind": "Pod", "spec": {"containers": [{"name": "c"}]}}
    items = {"apiVersion": "v1", "kind": "List", "items": [pod, {"apiVersion": "v1", "kind": "Service"}]}
    assert [each["kind"] for each in rendered(replace(SPEC, manifest=items))] == ["Service", "Pod"]


def test_the_manifests_namespace_applies_to_all_its_objects() -> None:
    pod = {"apiVersion": "v1", "kind": "Pod", "spec": {"containers": [{"name": "c"}]}}
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s", "namespace": "theirs"}}
    spaces = [each["metadata"]["namespace"] for each in rendered(replace(SPEC, manifest=[service, pod]))]
    assert spaces == ["theirs", "theirs"]
    asked = replace(SPEC, manifest=[service, pod], cluster={"namespace": "mine"})
    assert {each["metadata"]["namespace"] for each in rendered(asked)} == {"mine"}
    two = replace(SPEC, manifest=[service, {**pod, "metadata": {"namespace": "other"}}])
    with pytest.raises(ConfigError, match="several namespaces: theirs, other"):
        render.render(two, cluster())


def test_a_users_own_queue_and_limit_are_kept() -> None:
    mine = {labels.QUEUE: "other", labels.MAX_EXEC_TIME: "60"}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"labels": mine}, "spec": {"containers": [{"name": "c"}]}}
    (root,) = rendered(replace(SPEC, manifest=pod), EVERYTHING)
    assert mine.items() <= root["metadata"]["labels"].items()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, r"own\.yaml:1: cannot be read: No such file"),
        ("", r"own\.yaml:1: there is no object in it"),
        ("a: b\n c: d\n", r"own\.yaml:2: not YAML: mapping values are not allowed here"),
        ("kind: Pod\nargs: [a, ${name}]\n", r"own\.yaml:2: not YAML: .*a text with braces needs quotes: "),
        ("kind: Pod\nspec:\n\ta: b\n", r"own\.yaml:3: a tab where YAML wants spaces"),
        ("kind: Pod\napiVersion: v1\nkind: Job\n", r"own\.yaml:3: not YAML: kind is given twice"),
        ("- a\n", r"own\.yaml:1: this is not an object"),
        ("apiVersion: v1\nspec: {}\n", r"own\.yaml:1: `kind:` is missing, as in `kind: Job`"),
        ("kind: Pod\n", r"own\.yaml:1: `apiVersion:` is missing"),
        ("kind: Pod\napiVersion: v1\nmetadata: x\n", r"own\.yaml:3: needs lines of `key: value`"),
        ("kind: Pod\napiVersion: v1\nmetadata:\n  labels: [a]\n", r"own\.yaml:4: needs lines"),
        ("kind: Pod\napiVersion: v1\nx: &a [*a]\n", r"own\.yaml:1: nested too deeply"),
        ("kind: Pod\napiVersion: v1\n1: x\n", r"own\.yaml:1: not YAML: the key 1 is not text"),
        ("kind: Pod\napiVersion: v1\nx: [1, 2\n", r"own\.yaml:3: not YAML: opened here and not closed: .*flow seq"),
        ("kind: Pod\nx: {a: b\ny: c\n", r"own\.yaml:2: not YAML: opened here and not closed: .*flow mapping"),
        ("kind: Pod\nx: 'a\ny: c\n", r"own\.yaml:2: not YAML: opened here and not closed: .*quoted scalar"),
        ("kind: ConfigMap\napiVersion: v1\ndata: {}\n", rf"own\.yaml:1: {NOTHING_RUNS}"),
        ("kind: Job\napiVersion: v1\nspec:\n  containers: 5\n", rf"own\.yaml:4: {NOTHING_RUNS}"),
        ("kind: Pod\napiVersion: v1\nspec:\n  image: '${image'\n", r"own\.yaml:4: \$\{image is not a placeholder"),
        ("kind: Pod\napiVersion: v1\nspec:\n  image: ${ image }\n", r"own\.yaml:4: \$\{ image \} is not a placeholder"),
        ("\x07", r"own\.yaml:1: a control character"),
        (
            "kind: Pod\napiVersion: v1\nspec:\n  image: ${imag}\n",
            r"own\.yaml:4: there is no placeholder \$\{imag\} \(did you mean 'image'\?\)",
        ),
        ("kind: Pod\napiVersion: v1\nspec:\n  a: x${env}\n", r"\$\{env\} is not text"),
    ],
)
def test_each_mistake_is_one_sentence_with_file_and_line(tmp_path: Path, text: str | None, said: str) -> None:
    path = tmp_path / "own.yaml"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ConfigError, match=said) as raised:
        render.render(replace(SPEC, manifest=path), cluster())
    assert len(raised.value.problems) == 1


def test_every_unknown_hole_is_named(tmp_path: Path) -> None:
    path = tmp_path / "own.yaml"
    path.write_text("kind: Pod\napiVersion: v1\nspec:\n  a: ${nome}\n  b: ['${x_y}']\n")
    with pytest.raises(ConfigError) as raised:
        render.render(replace(SPEC, manifest=path), cluster())
    assert [problem.split(": there")[0] for problem in raised.value.problems] == [f"{path}:4", f"{path}:5"]


@pytest.mark.parametrize(
    ("tree", "said"),
    [
        ({}, r"^manifest: the object: `apiVersion:` is missing"),
        ([], "^manifest: there is no object in it"),
        ([{"apiVersion": "v1", "kind": "Pod"}, 3], r"manifest\[1\]: the object: this is not an object"),
        (
            {"apiVersion": "v1", "kind": "Pod", "spec": {"a-b": [Path("x")]}},
            r"manifest: spec\[a-b\]\[0\]: a manifest cannot hold \w*Path\('x'\)",
        ),
        ({"apiVersion": "v1", "kind": "ConfigMap", "data": {}}, rf"^manifest: the object: {NOTHING_RUNS}"),
        (
            {"apiVersion": "v1", "kind": "Job", "spec": {"template": {"spec": {"containers": {"image": "x"}}}}},
            rf"^manifest: spec\.template\.spec\.containers: {NOTHING_RUNS}",
        ),
        ({"apiVersion": "v1", "kind": "Pod", 1: 2}, "the key 1 is not text"),
        ({"apiVersion": "v1", "kind": "Pod", "a": float("nan")}, "a: a manifest cannot hold nan"),
        ({"apiVersion": "v1", "kind": "Pod", "spec": "${nome}"}, r"manifest: spec: there is no placeholder \$\{nome\}"),
    ],
)
def test_mistakes_in_a_dict_are_named_by_their_path(tree: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        render.render(replace(SPEC, test="t::x", manifest=tree), cluster())


# --- placeholders -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tree", "filled"),
    [
        ("${number}", 3),
        ("a ${number} b ${text}", "a 3 b it's"),
        ("${list}", ["a b", "c"]),
        ("run ${list}", "run 'a b' c"),
        (["x", "${list}", "${nothing}", "y"], ["x", "a b", "c", "y"]),
        ({"a": "${nothing}", "b": "${text}"}, {"b": "it's"}),
        ({"a": {"b": "${nothing}"}, "c": 1}, {"c": 1}),
        ({"a": {}, "b": [], "c": None, "d": "", "e": 0}, {"a": {}, "b": [], "c": None, "d": "", "e": 0}),
        ({"${text}": 1, "${nothing}": 2}, {"it's": 1}),
        ({"a": "x${nothing}"}, {"a": "x"}),
        ({"a": "${no}", "b": "is ${no}"}, {"a": False, "b": "is false"}),
        ("$${number ${x:-1} ${#a} ${a%/*}", "${number ${x:-1} ${#a} ${a%/*}"),
        ("$${number} ${NUMBER} ${a:-b} $number", "${number} ${NUMBER} ${a:-b} $number"),
        ("${hole}", "${number}"),
        ({"a": ("${number}",), "b": 1.5}, {"a": [3], "b": 1.5}),
    ],
)
def test_each_hole_is_filled_with_its_value(tree: object, filled: object) -> None:
    known = {"number": 3, "text": "it's", "list": ["a b", "c"], "nothing": None, "no": False, "hole": "${number}"}
    assert fill(tree, {name: lambda value=value: value for name, value in known.items()}, where_in_tree("it")) == filled


def test_filled_values_are_copies() -> None:
    value = [{"a": 1}]
    filled = fill({"x": "${list}", "y": "${list}"}, {"list": lambda: value}, where_in_tree("it"))
    filled["x"][0]["a"] = 2
    assert (value, filled["y"]) == ([{"a": 1}], [{"a": 1}])


def test_kubernetes_variable_references_are_escaped() -> None:
    assert launch.literal("$(A) $$ $B ${C} $") == "$$(A) $$$ $B ${C} $"


# --- stacks ---


def test_a_manifest_that_does_not_use_the_image_of_a_stack_is_refused() -> None:
    platform = cluster(stacks={"new": {"image": "registry/image:2"}}).with_stack("new")
    assert "image: registry/image:2" in render.render(SPEC, platform)
    pod = {"containers": [{"name": "main", "image": "other/image:1", "command": ["true"]}]}
    manifest = {"apiVersion": "v1", "kind": "Pod", "metadata": {}, "spec": pod}
    with pytest.raises(ConfigError, match=r"does not use the image of the stack, registry/image:2 \(write `image: "):
        render.render(replace(SPEC, manifest=manifest), platform)
