"""The pods of a Job, made from its template. Pure functions."""

from __future__ import annotations

from collections.abc import Iterable

from tests.fake_kubernetes.store.trees import Tree, deep_copy

INDEX = "batch.kubernetes.io/job-completion-index"
OVER = ("Succeeded", "Failed")


def owner_of(obj: Tree) -> Tree:
    """Return the owner reference of a controlling owner."""
    meta = obj["metadata"]
    reference = {"apiVersion": obj["apiVersion"], "kind": obj["kind"], "name": meta["name"], "uid": meta["uid"]}
    return reference | {"controller": True, "blockOwnerDeletion": True}


def pod_of(owner: Tree, template: Tree, name: str, labels: dict[str, str], *, exact: bool = False) -> Tree:
    """Return a pod of a template. `name` is a prefix unless `exact`."""
    meta = deep_copy(template.get("metadata") or {})
    meta["labels"] = {**(meta.get("labels") or {}), **labels}
    meta |= {"ownerReferences": [owner_of(owner)], "name" if exact else "generateName": name}
    return {"metadata": meta, "spec": deep_copy(template["spec"])}


def job_pod(job: Tree, index: int | None) -> Tree:
    name, uid = job["metadata"]["name"], job["metadata"]["uid"]
    labels = {"batch.kubernetes.io/controller-uid": uid, "batch.kubernetes.io/job-name": name}
    labels |= {"controller-uid": uid, "job-name": name}
    if index is None:
        return pod_of(job, job["spec"]["template"], f"{name}-", labels)
    pod = pod_of(job, job["spec"]["template"], f"{name}-{index}-", {**labels, INDEX: str(index)})
    pod["metadata"]["annotations"] = {**(pod["metadata"].get("annotations") or {}), INDEX: str(index)}
    pod["spec"].setdefault("hostname", f"{name}-{index}")
    source = {"fieldRef": {"apiVersion": "v1", "fieldPath": f"metadata.labels['{INDEX}']"}}
    for container in pod["spec"]["containers"] + pod["spec"].get("initContainers", []):
        container["env"] = [*container.get("env", []), {"name": "JOB_COMPLETION_INDEX", "valueFrom": source}]
    return pod


def index_of(pod: Tree) -> int | None:
    text = (pod["metadata"].get("annotations") or {}).get(INDEX)
    return None if text is None else int(text)


def phase_of(pod: Tree) -> str:
    return str(pod.get("status", {}).get("phase", "Pending"))


def ready(pod: Tree) -> bool:
    conditions = pod.get("status", {}).get("conditions", [])
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


def ranges(indices: Iterable[int]) -> str:
    """{0, 1, 2, 5} -> `0-2,5`; two in a row stay two."""
    runs: list[list[int]] = []
    for index in sorted(indices):
        if runs and index == runs[-1][-1] + 1:
            runs[-1].append(index)
        else:
            runs.append([index])
    parts = (f"{run[0]}-{run[-1]}" if len(run) > 2 else ",".join(map(str, run)) for run in runs)
    return ",".join(parts)
