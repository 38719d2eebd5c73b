"""What each hole of a manifest stands for."""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from platforms.job import JobSpec, RefusedError
from platforms.schedulers.kubernetes.manifest import launch, pod
from platforms.schedulers.kubernetes.objects import labels

if TYPE_CHECKING:
    from platforms.config.schema import Platform

JOB_NAME = 36  # characters of a job's name at most (platforms.job.job_name)
_FIRST_PORT, _PORTS = 20000, 10000  # below those that Linux gives to outgoing connections

# Every hole, as a person who writes a manifest reads of it (docs/manifests.md).
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
    "arguments": "what follows it, or the command of somebody's own program: a list",
    "setup": "`setup:` of the platform, shell lines",
    "data_dir": "the folder of the data set",
    "env": "a list, as a container has it; secrets come from a Secret",
    "threads": "CPU threads of a rank",
    "nodes": "of the layout, a number",
    "devices": "of a node, a number",
    "ranks": "of all nodes, a number",
    "ranks_per_node": "a number",
    "cpu": "of a pod",
    "memory": "of a pod",
    "resource": "what devices are called there: nvidia.com/gpu",
    "device_amount": "the devices of a node as an amount of that resource, a text",
    "ipus": "the devices of a node as the size of an IPU partition, a text",
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
    """The values of one job, by hole. Only those that a manifest has are asked for, and some may then refuse."""
    keys = platform.kubernetes
    plain: dict[str, object] = {
        "name": spec.name,
        "run": spec.run,
        "test": labels.label_value(spec.test),
        "platform": spec.platform,
        "namespace": namespace(spec, platform),
        "labels": labels_of(spec, platform),
        "root_labels": {**labels_of(spec, platform), **queue_labels(spec, platform, keys.queue)},
        "annotations": dict(keys.annotations),
        "generate_name": generate_name(spec) if keys.generate_name else None,
        "queue": keys.queue,
        "image_pull_policy": keys.image_pull_policy,
        "image_pull_secrets": [{"name": name} for name in keys.image_pull_secrets],
        "service_account": keys.service_account,
        "priority_class": keys.priority_class,
        "node_selector": dict(keys.node_selector),
        "tolerations": list(keys.tolerations),
        "affinity": affinity(spec),
        "user": keys.user,
        "non_root": keys.user != 0 or None,
        "python": launch.python_of(spec),
        "archive": launch.archive_of(spec, platform),
        "arguments": [launch.literal(word) for word in spec.arguments],
        "setup": launch.literal("\n".join(platform.setup)),
        "data_dir": spec.data_dir,
        "threads": pod.threads_of(spec, platform),
        "nodes": spec.layout.nodes,
        "devices": spec.layout.devices_per_node,
        "ranks": spec.ranks,
        "ranks_per_node": spec.ranks_per_node,
        "cpu": keys.share("cpu", spec.layout.devices_per_node),
        "memory": keys.share("memory", spec.layout.devices_per_node),
        "device_amount": str(spec.layout.devices_per_node),
        "service": labels.service(spec.name),
        "port": str(_FIRST_PORT + zlib.crc32(spec.name.encode()) % _PORTS),
        "time_limit_s": math.ceil(spec.time_limit_s),
        "deadline_s": deadline_s(spec, platform),
        "pod_start_limit_s": launch.start_limit_s(platform),
        "keep_s": math.ceil(keys.keep_s),
    }
    asked: dict[str, Callable[[], object]] = {
        "image": lambda: _image(platform),
        "command": lambda: launch.command(spec, platform),
        "env": lambda: pod.env(spec, platform),
        "resource": lambda: pod.resource(spec, platform),
        "ipus": lambda: pod.ipus(spec, platform),
        "resources": lambda: _resources(spec, platform),
        "volumes": lambda: pod.volumes(spec, platform),
        "volume_mounts": lambda: pod.mounts(spec, platform),
    }
    return {**{name: _always(value) for name, value in plain.items()}, **asked}


def labels_of(spec: JobSpec, platform: Platform) -> dict[str, str]:
    """The site's labels and ours, which nothing takes the place of."""
    return {**platform.kubernetes.labels, **labels.of_job(spec)}


def queue_labels(spec: JobSpec, platform: Platform, queue: object) -> dict[str, str]:
    """What Kueue is told: which queue, and when to end what nobody may be there to end."""
    if not queue:
        return {}
    return {labels.QUEUE: str(queue), labels.MAX_EXEC_TIME: str(deadline_s(spec, platform))}


def generate_name(spec: JobSpec) -> str:
    """Where a site demands one; the name beside it counts. Not longer than that may be."""
    return f"{spec.name[: JOB_NAME - 1]}-"


def namespace(spec: JobSpec, platform: Platform) -> str | None:
    return spec.cluster.get("namespace") or platform.kubernetes.namespace


def affinity(spec: JobSpec) -> dict[str, Any] | None:
    """A wish and no demand: on a small cluster there may be no other nodes."""
    if not spec.avoid_nodes:
        return None
    names = [{"key": "metadata.name", "operator": "NotIn", "values": [name]} for name in spec.avoid_nodes]
    wishes = [{"weight": 100, "preference": {"matchFields": [name]}} for name in names]
    return {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": wishes}}


def deadline_s(spec: JobSpec, platform: Platform) -> int:
    """Of pods and of Kueue. Both count from before the image is pulled, and the time limit from when the job runs."""
    return math.ceil(spec.time_limit_s + platform.kubernetes.pod_start_limit_s)


def _always(value: object) -> Callable[[], object]:
    return lambda: value


def _image(platform: Platform) -> str:
    if platform.kubernetes.image is None:
        raise RefusedError(
            f"{platform.name}: a pod needs an image: write `kubernetes: {{image: …}}` in {platform.source}, one with "
            "torch, numpy, h5py and Pillow"
        )
    return platform.kubernetes.image


def _resources(spec: JobSpec, platform: Platform) -> dict[str, Any]:
    keys, name, devices = platform.kubernetes, pod.resource(spec, platform), spec.layout.devices_per_node
    amounts = {"cpu": keys.share("cpu", devices), "memory": keys.share("memory", devices)}
    share = {key: amount for key, amount in amounts.items() if amount is not None}
    limits = {**share, **({name: str(devices)} if name else {})}
    return {key: amounts for key, amounts in (("requests", share), ("limits", limits)) if amounts}
