"""What each placeholder of a manifest stands for."""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Iterator, Mapping
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

# Every placeholder, as docs/manifests.md explains it to people who write manifests.
PLACEHOLDERS: Mapping[str, str] = {
    "name": "the job's name, unique; at most 36 characters",
    "run": "eight characters that all jobs of one run share",
    "test": "the test's id as the value of a label",
    "platform": "the platform's name",
    "namespace": "where a test or its platform names one",
    "labels": "of every object and pod template; they are also added where they are missing",
    "root_labels": "the same, with the queue's labels, of the object that makes the pods",
    "annotations": "`kubernetes: {annotations: …}`",
    "generate_name": "where `kubernetes: {generate_name: true}` asks for it",
    "queue": "`kubernetes: {queue: …}`",
    "image": "`kubernetes: {image: …}`",
    "image_pull_policy": "`kubernetes: {image_pull_policy: …}`",
    "image_pull_secrets": "a list, as a pod has it",
    "service_account": "`kubernetes: {service_account: …}`",
    "priority_class": "`kubernetes: {priority_class: …}`",
    "node_selector": "`kubernetes: {node_selector: …}`",
    "tolerations": "`kubernetes: {tolerations: …}`",
    "affinity": "rather not the nodes that failed an earlier attempt",
    "user": "a number",
    "non_root": "true, unless the user is 0",
    "command": "the whole command line of one node, a list: launcher, Python, code, arguments",
    "python": "the job's Python",
    "archive": "the path of the code in the pod; `volumes` and `volume_mounts` bring it",
    "arguments": "what follows it, or the command of the user's own program: a list",
    "setup": "`setup:` of the platform, shell lines",
    "data_dir": "the folder of the data set",
    "env": "a list, as a container has it; secrets come from a Secret",
    "threads": "CPU threads of a rank",
    "nodes": "of the layout, a number",
    "spread": "whether pods may share a node: DoNotSchedule if the job names its nodes, else ScheduleAnyway",
    "devices": "of a node, a number",
    "ranks": "of all nodes, a number",
    "ranks_per_node": "a number",
    "cpu": "of a pod",
    "memory": "of a pod",
    "resource": "what devices are called there: nvidia.com/gpu",
    "device_amount": "the devices of a node as an amount of that resource, a text",
    "ipus": "the devices of a node as the size of an IPU partition, a text",
    "replicas_of_poprun": "the copies of the model that poprun starts, a text; empty for other launchers",
    "resources": "requests and limits, as a container has them",
    "volumes": "a list, as a pod has it: working folder, code, shared memory, and the platform's own",
    "volume_mounts": "a list, as a container has it",
    "service": "a name for a headless Service, by which pods find each other",
    "port": "of the first pod, for the ranks to meet: a text",
    "time_limit_s": "seconds, a number",
    "deadline_s": "the time limit and what starting may take: seconds, a number",
    "pod_start_limit_s": "how long a pod may take from its node to its first line: seconds, a number",
    "keep_s": "how long the cluster keeps a job that has ended: seconds, a number",
}


def of(spec: JobSpec, platform: Platform) -> Mapping[str, Callable[[], object]]:
    """The values of one job by placeholder, each as a function.

    Only the functions of placeholders that a manifest contains are called; some of them raise RefusedError.
    """
    keys = platform.kubernetes
    devices = spec.layout.devices_per_node
    labels_of_job = labels_of(spec, platform)
    values: dict[str, object] = {
        "name": spec.name,
        "run": spec.run,
        "test": labels.label_value(spec.test),
        "platform": spec.platform,
        "namespace": namespace(spec, platform),
        "labels": labels_of_job,
        "root_labels": {**labels_of_job, **queue_labels(spec, platform, keys.queue)},
        "annotations": dict(keys.annotations),
        "generate_name": generate_name(spec) if keys.generate_name else None,
        "queue": keys.queue,
        "image_pull_policy": keys.image_pull_policy,
        "image_pull_secrets": [{"name": name} for name in keys.image_pull_secrets],
        "service_account": keys.service_account,
        "priority_class": keys.priority_class,
        "node_selector": dict(keys.node_selector),
        "tolerations": [toleration.content() for toleration in keys.tolerations],
        "affinity": affinity(spec),
        "user": keys.user,
        "non_root": keys.user != 0 or None,
        "python": launch.python_of(spec),
        "archive": launch.archive_of(spec, platform),
        "arguments": [launch.literal(word) for word in spec.arguments],
        "setup": launch.literal("\n".join(platform.setup)),
        "data_dir": spec.data_dir,
        "threads": threads_per_rank(spec, platform),
        "nodes": spec.layout.nodes,
        "spread": "DoNotSchedule" if spec.nodes else "ScheduleAnyway",
        "devices": devices,
        "ranks": spec.ranks,
        "ranks_per_node": spec.ranks_per_node,
        "cpu": keys.share("cpu", devices),
        "memory": keys.share("memory", devices),
        "device_amount": str(devices),
        "replicas_of_poprun": str(spec.replicas) if spec.launcher == "poprun" else None,
        "service": labels.service(spec.name),
        "port": str(_FIRST_PORT + zlib.crc32(spec.name.encode()) % _PORT_COUNT),
        "time_limit_s": math.ceil(spec.time_limit_s),
        "deadline_s": deadline_s(spec, platform),
        "pod_start_limit_s": launch.start_limit_s(platform),
        "keep_s": math.ceil(keys.keep_s),
    }
    functions: dict[str, Callable[[], object]] = {
        "image": lambda: image(platform),
        "command": lambda: launch.command(spec, platform),
        "env": lambda: env(spec, platform),
        "resource": lambda: resource_name(spec, platform),
        "ipus": lambda: ipu_partition(spec, platform),
        "resources": lambda: resources(spec, platform),
        "volumes": lambda: volumes(spec, platform),
        "volume_mounts": lambda: volume_mounts(spec, platform),
    }
    for name, value in values.items():
        functions[name] = _constant(value)
    return functions


def _constant(value: object) -> Callable[[], object]:
    return lambda: value


# --- metadata --------------------------------------------------------------------------------------------------------


def labels_of(spec: JobSpec, platform: Platform) -> dict[str, str]:
    """The site's labels, and ours, which the site cannot replace."""
    return {**platform.kubernetes.labels, **labels.of_job(spec)}


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
    if spec.archive is not None and keys.archive is None:
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
