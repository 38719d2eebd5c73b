"""Writes to a job's folder which object was created for it, and how all its objects looked at the end."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from platforms import atomic_file
from platforms.job import RefusedError
from platforms.schedulers.kubernetes.job_record import CREATED
from platforms.schedulers.kubernetes.status.judge import Observation

OBJECTS = "objects.yaml"
Object = Mapping[str, Any]
# libyaml is ten times as fast, where it exists
_DUMPER: type[Any] = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


def created_job_id(folder: Path) -> str | None:
    """Return the id of the job that was created from this folder, or None where no id was written."""
    try:
        return str(json.loads((folder / CREATED).read_text(encoding="utf-8"))["job_id"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def record_created(folder: Path, job_id: str, root: Object, unowned: Sequence[Object] = ()) -> None:
    """Write down that the job was created, so that submitting it again finds it even when its objects are gone.

    `unowned` are the objects that are not deleted together with the root. Raises OSError.
    """
    record: dict[str, object] = {"job_id": job_id, "uid": root["metadata"].get("uid")}
    if unowned:
        record["unowned"] = [[obj["apiVersion"], obj["kind"], obj["metadata"]["name"]] for obj in unowned]
    atomic_file.write_text(folder / CREATED, json.dumps(record, indent=1) + "\n")


def write_objects(folder: Path, observation: Observation) -> None:
    """Write every object in its last state, with events and nodes, as YAML. Raises RefusedError."""
    root = observation.root or observation.gone_root
    pods = [*observation.pods, *observation.gone_pods]
    node_names = {pod.get("spec", {}).get("nodeName") for pod in (root or {}, *pods)}
    nodes = [node for name, node in observation.nodes.items() if name in node_names]
    by_uid: dict[Any, Mapping[str, Any]] = {}  # a root that is a Pod is among the pods, too
    for obj in (root, observation.workload, *pods, *nodes, *observation.events):
        if obj is not None:
            by_uid[obj.get("metadata", {}).get("uid", id(obj))] = obj
    trees = [_without_managed_fields(obj) for obj in by_uid.values()]
    path = folder / OBJECTS
    try:
        text = yaml.dump_all(trees, Dumper=_DUMPER, sort_keys=False, allow_unicode=True)
        atomic_file.write_text(path, text)
    except OSError as error:
        raise RefusedError(f"{path} cannot be written: {error.strerror}") from None


def _without_managed_fields(obj: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out who set which field: that is half of an object and does not say how the job went."""
    metadata = dict(obj.get("metadata", {}))
    metadata.pop("managedFields", None)
    return {**obj, "metadata": metadata}
