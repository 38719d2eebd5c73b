"""What each placeholder of a manifest stands for."""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from platforms.config.cluster_values import quantity_of
from platforms.config.keys import VolumeKeys
from platforms.job import JobSpec, RefusedError, names_a_secret
from platforms.schedulers.kubernetes.manifest import launch
from platforms.schedulers.kubernetes.objects import labels

if TYPE_CHECKING:
    from platforms.config.schema import Platform

JOB_NAME_LENGTH = 36  # the most characters of a job's name (platforms.job.job_name)
WORK_FOLDER = "/hpc-ml-bench/work"
LAST_WORD = "/dev/termination-log"
RESOURCES: Mapping[str, str] = {"gpu": "nvidia.com/gpu", "ipu": "graphcore.ai/ipu"}  # as device plugins call devices
_FIRST_PORT = 20000  # these ports lie below those that Linux gives to outgoing connections
_PORT_COUNT = 10000


def of(spec: JobSpec, platform: Platform) -> Mapping[str, Callable[[], object]]:
    """The values of one job by placeholder, each as a function.

    Only the functions of placeholders that a manifest contains are called; some of them raise RefusedError.
    """
    return {name: partial(value, spec, platform) for name, value in PLACEHOLDERS.items()}


# --- metadata --------------------------------------------------------------------------------------------------------


def labels_of(spec: JobSpec, platform: Platform) -> dict[str, str]:
    """The site's labels, and ours, which the site cannot replace."""
    return {**platform.kubernetes.labels, **labels.of_job(spec)}


def root_labels(spec: JobSpec, platform: Platform) -> dict[str, str]:
    """The labels of the object that makes the pods."""
    return {**labels_of(spec, platform), **queue_labels(spec, platform, platform.kubernetes.queue)}


def queue_labels(spec: JobSpec, platform: Platform, queue: object) -> dict[str, str]:
    """Labels for Kueue: the queue, and the longest time, so that Kueue ends the job if this suite is gone."""
    if not queue:
        return {}
    return {labels.QUEUE: str(queue), labels.MAX_EXEC_TIME: str(deadline_s(spec, platform))}


def generate_name(spec: JobSpec) -> str:
    """A generateName for sites that demand one. The cluster ignores it, because the object has a name too."""
    return f"{spec.name[: JOB_NAME_LENGTH - 1]}-"


def namespace(spec: JobSpec, platform: Platform) -> str | None:
    return spec.cluster.get("namespace") or platform.kubernetes.namespace


# --- where and how long a pod runs -----------------------------------------------------------------------------------


def affinity(spec: JobSpec) -> dict[str, Any] | None:
    """Prefer nodes on which the job has not failed. This is no demand: a small cluster may have no other nodes.

    A job that names its nodes prefers none: render.py writes these into every manifest.
    """
    if not spec.avoid_nodes or spec.nodes:
        return None
    preferences = []
    for node in spec.avoid_nodes:
        other_node = {"key": "metadata.name", "operator": "NotIn", "values": [node]}
        preferences.append({"weight": 100, "preference": {"matchFields": [other_node]}})
    return {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferences}}


def deadline_s(spec: JobSpec, platform: Platform) -> int:
    """The deadline of pods and of Kueue. Both count from before the image is pulled; the time limit counts from when
    the job runs."""
    return math.ceil(spec.time_limit_s + platform.kubernetes.pod_start_limit_s)


def image(platform: Platform) -> str:
    """The platform's image. Raises RefusedError if it names none."""
    if platform.kubernetes.image is None:
        raise RefusedError(
            f"{platform.name}: a pod needs an image: write `kubernetes: {{image: …}}` in {platform.source}, one with "
            "torch, numpy, h5py and Pillow"
        )
    return platform.kubernetes.image


def env(spec: JobSpec, platform: Platform) -> list[dict[str, Any]]:
    """The environment variables of the container.

    A variable whose name looks like a secret refers to the Secret with the job's name; its value is not in a manifest.
    """
    # An arbitrary user has neither a home nor a name in an image, and libraries keep caches under both.
    values = {"PYTHONUNBUFFERED": "1", "HOME": "/tmp", "USER": "bench"}
    threads = threads_per_rank(spec, platform)
    if threads is not None:
        values["OMP_NUM_THREADS"] = str(threads)
    values.update(platform.env)
    values.update(spec.env)
    values["HPC_ML_BENCH_JOB"] = spec.name
    values["HPC_ML_BENCH_LAST_WORD"] = LAST_WORD
    variables: list[dict[str, Any]] = []
    for name, value in values.items():
        if names_a_secret(name):
            variables.append({"name": name, "valueFrom": {"secretKeyRef": {"name": spec.name, "key": name}}})
        else:
            variables.append({"name": name, "value": launch.literal(value)})
    return variables


def threads_per_rank(spec: JobSpec, platform: Platform) -> int | None:
    """The CPU threads of a rank. Libraries in a pod see the cores of the whole node and not the pod's share."""
    if spec.threads_per_rank is not None:
        return spec.threads_per_rank
    cpu = platform.kubernetes.share("cpu", spec.layout.devices_per_node)
    if cpu is None or cpu.startswith("<"):  # the site has not filled in its share yet
        return None
    return max(1, math.floor(quantity_of(cpu) / spec.ranks_per_node))


# --- what a pod gets of a node ---------------------------------------------------------------------------------------


def resource_name(spec: JobSpec, platform: Platform) -> str | None:
    """The resource that the layout's devices are; None for CPUs. Raises RefusedError if it is not known."""
    unit = spec.layout.unit
    if unit == "cpu":
        return None
    name = platform.kubernetes.resource or RESOURCES.get(unit)
    if name is None:
        raise RefusedError(
            f"{platform.name}: Kubernetes has no name for a device `{unit}`: write it as `kubernetes: {{resource: …}}` "
            f"in {platform.source}"
        )
    return name


def resources(spec: JobSpec, platform: Platform) -> dict[str, Any]:
    """The requests and limits of a container, without empty ones."""
    devices = spec.layout.devices_per_node
    requests: dict[str, str] = {}
    for name in ("cpu", "memory"):
        amount = platform.kubernetes.share(name, devices)
        if amount is not None:
            requests[name] = amount
    limits = dict(requests)
    resource = resource_name(spec, platform)
    if resource:
        limits[resource] = str(devices)
    amounts = {"requests": requests, "limits": limits}
    return {kind: amount for kind, amount in amounts.items() if amount}


def ipu_partition(spec: JobSpec, platform: Platform) -> str:
    """The size of an IPU partition, as text, which an IPUJob wants. Raises RefusedError if it is no power of two."""
    count = spec.layout.devices_per_node
    is_power_of_two = count & (count - 1) == 0
    if not is_power_of_two:
        raise RefusedError(
            f"{platform.name}: {spec.layout}: IPUs come in powers of two: write 1x{1 << count.bit_length()} under "
            f"`layouts:` in {platform.source}"
        )
    return str(count)


def volumes(spec: JobSpec, platform: Platform) -> list[dict[str, Any]]:
    """The volumes of a pod."""
    return [{"name": name, **source} for name, source, _mount in _volumes_and_mounts(spec, platform)]


def volume_mounts(spec: JobSpec, platform: Platform) -> list[dict[str, Any]]:
    """The mounts of the pod's volumes in the container."""
    return [{"name": name, **mount} for name, _source, mount in _volumes_and_mounts(spec, platform)]


def _volumes_and_mounts(spec: JobSpec, platform: Platform) -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
    """Name, source and mount of each volume."""
    keys = platform.kubernetes
    yield "work", {"emptyDir": {}}, {"mountPath": WORK_FOLDER}
    if spec.node_facts is not None:
        code = {"configMap": {"name": labels.config_map(spec.node_facts), "optional": True}}
        yield "code", code, {"mountPath": launch.CODE, "readOnly": True}
    elif spec.archive is not None and keys.archive is None:
        code = {"configMap": {"name": labels.config_map(spec.archive)}}
        yield "code", code, {"mountPath": launch.CODE, "readOnly": True}
    shared_memory = keys.share("shm", spec.layout.devices_per_node)
    if shared_memory is not None:
        yield "shm", _in_memory(shared_memory), {"mountPath": "/dev/shm"}
    for number, volume in enumerate(keys.volumes, 1):
        mount: dict[str, Any] = {"mountPath": volume.mount}
        if volume.read_only:
            mount["readOnly"] = True
        yield f"volume-{number}", _source(volume), mount


def _source(volume: VolumeKeys) -> dict[str, Any]:
    if volume.pvc is not None:
        return {"persistentVolumeClaim": {"claimName": volume.pvc}}
    if volume.host_path is not None:
        return {"hostPath": {"path": volume.host_path, "type": "Directory"}}
    if volume.memory is not None:
        return _in_memory(volume.memory)
    return {"emptyDir": {"sizeLimit": volume.scratch}}


def _in_memory(size: str) -> dict[str, Any]:
    return {"emptyDir": {"medium": "Memory", "sizeLimit": size}}


# Every placeholder, as docs/kubernetes.md explains it to people who write manifests, and what gives its value.
PLACEHOLDERS: Mapping[str, Callable[[JobSpec, Platform], object]] = {
    "name": lambda spec, _: spec.name,
    "run": lambda spec, _: spec.run,
    "test": lambda spec, _: labels.label_value(spec.test),
    "platform": lambda spec, _: spec.platform,
    "namespace": namespace,
    "labels": labels_of,
    "root_labels": root_labels,
    "annotations": lambda _, platform: dict(platform.kubernetes.annotations),
    "generate_name": lambda spec, platform: generate_name(spec) if platform.kubernetes.generate_name else None,
    "queue": lambda _, platform: platform.kubernetes.queue,
    "image": lambda _, platform: image(platform),
    "image_pull_policy": lambda _, platform: platform.kubernetes.image_pull_policy,
    "image_pull_secrets": lambda _, platform: [{"name": name} for name in platform.kubernetes.image_pull_secrets],
    "service_account": lambda _, platform: platform.kubernetes.service_account,
    "priority_class": lambda _, platform: platform.kubernetes.priority_class,
    "node_selector": lambda _, platform: dict(platform.kubernetes.node_selector),
    "tolerations": lambda _, platform: [toleration.content() for toleration in platform.kubernetes.tolerations],
    "affinity": lambda spec, _: affinity(spec),
    "user": lambda _, platform: platform.kubernetes.user,
    "non_root": lambda _, platform: platform.kubernetes.user != 0 or None,
    "command": launch.command,
    "python": lambda spec, _: launch.python_of(spec),
    "archive": launch.archive_of,
    "arguments": lambda spec, _: [launch.literal(word) for word in spec.arguments],
    "setup": lambda _, platform: launch.literal("\n".join(platform.setup)),
    "data_dir": lambda spec, _: spec.data_dir,
    "env": env,
    "threads": threads_per_rank,
    "nodes": lambda spec, _: spec.layout.nodes,
    "spread": lambda spec, _: "DoNotSchedule" if spec.nodes else "ScheduleAnyway",
    "devices": lambda spec, _: spec.layout.devices_per_node,
    "ranks": lambda spec, _: spec.ranks,
    "ranks_per_node": lambda spec, _: spec.ranks_per_node,
    "cpu": lambda spec, platform: platform.kubernetes.share("cpu", spec.layout.devices_per_node),
    "memory": lambda spec, platform: platform.kubernetes.share("memory", spec.layout.devices_per_node),
    "resource": resource_name,
    "device_amount": lambda spec, _: str(spec.layout.devices_per_node),
    "ipus": ipu_partition,
    "replicas_of_poprun": lambda spec, _: str(spec.replicas) if spec.launcher == "poprun" else None,
    "resources": resources,
    "volumes": volumes,
    "volume_mounts": volume_mounts,
    "service": lambda spec, _: labels.service(spec.name),
    "port": lambda spec, _: str(_FIRST_PORT + zlib.crc32(spec.name.encode()) % _PORT_COUNT),
    "time_limit_s": lambda spec, _: math.ceil(spec.time_limit_s),
    "deadline_s": deadline_s,
    "pod_start_limit_s": lambda _, platform: launch.start_limit_s(platform),
    "keep_s": lambda _, platform: math.ceil(platform.kubernetes.keep_s),
}
