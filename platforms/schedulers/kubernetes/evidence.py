"""What stays in a job's folder of the cluster's objects: which one was created, and how all looked at the end."""

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
_FAST: type[Any] = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


def created_job_id(folder: Path) -> str | None:
    """The id of the job that was created from this folder. None: there is none, or nobody lived to write it down."""
    try:
        return str(json.loads((folder / CREATED).read_text(encoding="utf-8"))["job_id"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def record_created(folder: Path, job_id: str, root: Object, unowned: Sequence[Object] = ()) -> None:
    """From now on submitting again finds it here, also when the cluster has forgotten it; and so does who deletes it,
    what does not go by itself then. Raises RefusedError."""
    record: dict[str, object] = {"job_id": job_id, "uid": root["metadata"].get("uid")}
    if unowned:
        record["unowned"] = [[each["apiVersion"], each["kind"], each["metadata"]["name"]] for each in unowned]
    _write(folder / CREATED, json.dumps(record, indent=1) + "\n")


def write_objects(folder: Path, sight: Observation) -> None:
    """Every object as it was seen last, with events and nodes, for `less` and for kubectl's readers. Raises
    RefusedError."""
    root = sight.root or sight.gone_root
    used = {pod.get("spec", {}).get("nodeName") for pod in (root or {}, *sight.pods, *sight.gone_pods)}
    nodes = [node for name, node in sight.nodes.items() if name in used]
    objects = [root, sight.workload, *sight.pods, *sight.gone_pods, *nodes, *sight.events]
    listed: dict[Any, Mapping[str, Any]] = {}
    for each in objects:
        if each is not None:  # a Pod is its own root
            listed[each.get("metadata", {}).get("uid", id(each))] = each
    texts = [_written(_without_fields(each)) for each in listed.values()]
    _write(folder / OBJECTS, "---\n".join(texts))


def _written(each: Mapping[str, Any]) -> str:
    """libyaml is ten times as fast, is not everywhere, and cannot write halves of surrogate pairs."""
    try:
        return str(yaml.dump(each, Dumper=_FAST, sort_keys=False, allow_unicode=True))
    except UnicodeEncodeError:
        return str(yaml.dump(each, Dumper=yaml.SafeDumper, sort_keys=False, allow_unicode=True))


def _without_fields(each: Mapping[str, Any]) -> dict[str, Any]:
    """Who set which field is half of an object, and says nothing of how it went."""
    metadata = {key: value for key, value in each.get("metadata", {}).items() if key != "managedFields"}
    return {**each, "metadata": metadata}


def _write(path: Path, text: str) -> None:
    try:
        atomic_file.write_text(path, text)
    except OSError as error:
        raise RefusedError(f"{path} cannot be written: {error.strerror}") from None
