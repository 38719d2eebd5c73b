"""What a pod is given beside its words: variables, volumes, its share of the node."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from platforms.config.keys import VolumeKeys
from platforms.config.values import quantity_of
from platforms.job import JobSpec, RefusedError, names_a_secret
from platforms.schedulers.kubernetes.manifest.launch import CODE, literal
from platforms.schedulers.kubernetes.objects import labels

if TYPE_CHECKING:
    from platforms.config.schema import Platform

WORK = "/hpc-ml-bench/work"
LAST_WORD = "/dev/termination-log"
# What a device is called by the plugins of their makers.
RESOURCES: Mapping[str, str] = {"gpu": "nvidia.com/gpu", "ipu": "graphcore.ai/ipu"}


def env(spec: JobSpec, platform: Platform) -> list[dict[str, Any]]:
    """The variables. What is called like a secret comes from the Secret that has the job's name, and stands nowhere."""
    # Nobody has a home or a name in somebody else's image, and libraries keep caches under both.
    values = {"PYTHONUNBUFFERED": "1", "HOME": "/tmp", "USER": "bench"}
    if (threads := threads_of(spec, platform)) is not None:
        values["OMP_NUM_THREADS"] = str(threads)
    values |= {**platform.env, **spec.env, "HPC_ML_BENCH_JOB": spec.name, "HPC_ML_BENCH_LAST_WORD": LAST_WORD}
    return [_variable(name, value, spec) for name, value in values.items()]


def threads_of(spec: JobSpec, platform: Platform) -> int | None:
    """Threads of a rank: in a pod, libraries see the cores of the whole node and not the pod's."""
    if spec.threads_per_rank is not None:
        return spec.threads_per_rank
    cpu = platform.kubernetes.share("cpu", spec.layout.devices_per_node)
    return None if cpu is None or cpu.startswith("<") else max(1, math.floor(quantity_of(cpu) / spec.ranks_per_node))


def resource(spec: JobSpec, platform: Platform) -> str | None:
    """The name of the layout's devices as a resource; CPUs are no devices. Raises RefusedError when there is none."""
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


def ipus(spec: JobSpec, platform: Platform) -> str:
    """The size of an IPU partition, which is a power of two, as an IPUJob wants it written."""
    count = spec.layout.devices_per_node
    if count & (count - 1):
        raise RefusedError(
            f"{platform.name}: {spec.layout}: IPUs come in powers of two: write 1x{1 << count.bit_length()} under "
            f"`layouts:` in {platform.source}"
        )
    return str(count)


def volumes(spec: JobSpec, platform: Platform) -> list[dict[str, Any]]:
    return [{"name": name, **source} for name, source, _mount in _all(spec, platform)]


def mounts(spec: JobSpec, platform: Platform) -> list[dict[str, Any]]:
    return [{"name": name, **mount} for name, _source, mount in _all(spec, platform)]


def _variable(name: str, value: str, spec: JobSpec) -> dict[str, Any]:
    if names_a_secret(name):
        return {"name": name, "valueFrom": {"secretKeyRef": {"name": spec.name, "key": name}}}
    return {"name": name, "value": literal(value)}


def _all(spec: JobSpec, platform: Platform) -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
    """Name, source and mount of each volume."""
    keys = platform.kubernetes
    yield "work", {"emptyDir": {}}, {"mountPath": WORK}
    if spec.archive is not None and keys.archive is None:
        code = {"configMap": {"name": labels.config_map(spec.archive)}}
        yield "code", code, {"mountPath": CODE, "readOnly": True}
    if (shm := keys.share("shm", spec.layout.devices_per_node)) is not None:
        yield "shm", _memory(shm), {"mountPath": "/dev/shm"}
    for number, volume in enumerate(keys.volumes, 1):
        mount = {"mountPath": volume.mount, **({"readOnly": True} if volume.read_only else {})}
        yield f"volume-{number}", _source(volume), mount


def _source(volume: VolumeKeys) -> dict[str, Any]:
    if volume.pvc is not None:
        return {"persistentVolumeClaim": {"claimName": volume.pvc}}
    if volume.host_path is not None:
        return {"hostPath": {"path": volume.host_path, "type": "Directory"}}
    if volume.memory is not None:
        return _memory(volume.memory)
    return {"emptyDir": {"sizeLimit": volume.scratch}}


def _memory(size: str) -> dict[str, Any]:
    return {"emptyDir": {"medium": "Memory", "sizeLimit": size}}
