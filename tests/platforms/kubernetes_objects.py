"""Objects of a cluster for tests: as they were recorded on a real one (Kubernetes 1.36.2), and made by hand."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from platforms.job import State
from platforms.schedulers.kubernetes.status.judge import JobVerdict, Observation, judge

Json = dict[str, Any]
RECORDED = Path(__file__).parent / "kubernetes_recorded"
NAMES = sorted(path.stem for path in RECORDED.glob("*.json"))
LONG = 1e6  # seconds: longer than any patience
BORN = "2026-11-20T22:10:00Z"


def recorded(name: str) -> Json:
    loaded: Json = json.loads((RECORDED / f"{name}.json").read_text())
    return loaded


def told(name: str) -> tuple[Json, ...]:
    """The recorded events, as the API gives them, and in no order."""
    events = []
    for second, (kind, reason, message, *count) in enumerate(recorded(name).get("events", ())):
        about = {"kind": "Pod", "uid": name, "fieldPath": "spec.containers{c}" if reason == "Started" else ""}
        when = {"lastTimestamp": f"2026-11-20T22:20:{second:02d}Z", "count": count[0] if count else None}
        events.append({"type": kind, "reason": reason, "message": message, "involvedObject": about, **when})
    return tuple(reversed(events))


def pod(
    status: Json | None = None, name: str = "p", /, *, node: str = "n1", spec: Json | None = None, **meta: Any
) -> Json:
    whole = {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i:1"}], "nodeName": node, **(spec or {})}
    metadata = {"name": name, "uid": meta.pop("uid", name), "creationTimestamp": BORN, **meta}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": whole, "status": status or {}}


def was(name: str) -> Json:
    """A recorded pod, with the parts that the recording left out."""
    status = recorded(name)["status"]
    first = (status.get("containerStatuses") or [{"image": "i:1"}])[0]
    spec = {"containers": [{"name": "c", "image": first["image"]}]}
    if name == "crashloop":
        spec["restartPolicy"] = "Always"
    return pod(status, name, node="127.0.0.1" if "hostIP" in status else "", spec=spec)


def ended(code: int, reason: str = "", phase: str = "", at: int = 30, **more: Any) -> Json:
    """A status: its only container has ended."""
    reason = reason or ("Completed" if code == 0 else "Error")
    end = {"exitCode": code, "reason": reason, "startedAt": "2026-11-20T22:11:00Z",
           "finishedAt": f"2026-11-20T22:11:{at:02d}Z", "message": more.pop("message_of_end", "")}  # fmt: skip
    phase = phase or ("Failed" if code else "Succeeded")
    return {"phase": phase, "containerStatuses": [{"name": "c", "state": {"terminated": end}}], **more}


def running(**more: Any) -> Json:
    state = {"running": {"startedAt": "2026-11-20T22:11:00Z"}}
    return {"phase": "Running", "containerStatuses": [{"name": "c", "state": state, "ready": True}], **more}


def waiting(reason: str, message: str = "", **more: Any) -> Json:
    state = {"waiting": {"reason": reason, "message": message}}
    return {"phase": "Pending", "containerStatuses": [{"name": "c", "state": state, **more}]}


def conditions(*said: tuple[str, str, str, str]) -> Json:
    return {"conditions": [dict(zip(("type", "status", "reason", "message"), each, strict=True)) for each in said]}


def unscheduled(message: str, reason: str = "Unschedulable") -> Json:
    return {"phase": "Pending", **conditions(("PodScheduled", "False", reason, message))}


def disrupted(reason: str, message: str = "", type_: str = "DisruptionTarget") -> Json:
    return conditions((type_, "True", reason, message))


def job(status: Json | None = None, /, **spec: Any) -> Json:
    metadata = {"name": "j", "uid": "j", "creationTimestamp": BORN}
    whole = {"backoffLimit": 0, "completions": 1, "parallelism": 1, **spec}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": whole, "status": status or {}}


def failed(reason: str, message: str = "", **status: Any) -> Json:
    said = [("FailureTarget", "True", reason, message), ("Failed", "True", reason, message)]
    return job({**conditions(*said), **status})


COMPLETE = conditions(("SuccessCriteriaMet", "True", "CompletionsReached", ""), ("Complete", "True", "", ""))


def other(kind: str, status: Json | None = None, group: str = "graphcore.ai/v1alpha1", **spec: Any) -> Json:
    meta = {"name": "o", "uid": "o"}
    return {"apiVersion": group, "kind": kind, "metadata": meta, "spec": spec, "status": status or {}}


def event(reason: str, message: str, about: str = "j", *, at: int = 0, **more: Any) -> Json:
    when = f"2026-11-20T22:12:{at:02d}Z"
    return {"reason": reason, "message": message, "involvedObject": {"uid": about}, "lastTimestamp": when, **more}


def look(root: Json | None, *pods: Json, waited: float | Callable[[str], float] = 0.0, **more: Any) -> JobVerdict:
    clock = waited if callable(waited) else (lambda name: waited)
    lists = {key: tuple(more.pop(key, ())) for key in ("gone_pods", "events")}
    return judge(Observation(root, tuple(pods), waited_s=clock, **lists, **more))


def patience(root: Json | None, *pods: Json, **more: Any) -> tuple[State, State, JobVerdict]:
    """The state at the first look, the one after a long time, and the verdict then."""
    later = look(root, *pods, waited=LONG, **more)
    return look(root, *pods, **more).status.state, later.status.state, later


def pods_of(name: str, status: Callable[[Json], Json]) -> list[Json]:
    return [
        pod(status(each), each["name"], labels=each["labels"], annotations=each["annotations"] or {})
        for each in recorded(name)["pods"]
    ]


DELETED = {"deletionTimestamp": "2026-11-20T22:12:00Z", "deletionGracePeriodSeconds": 30}
PYTORCH = "kubeflow.org/v1"
LESS = (
    "couldn't assign flavors to pod set main: insufficient unused quota for nvidia.com/gpu in flavor a, 1 more needed"
)
MORE = (
    "couldn't assign flavors to pod set main: insufficient quota for nvidia.com/gpu in flavor a, "
    "request > maximum capacity (9 > 8)"
)
QUEUE = {"kueue.x-k8s.io/queue-name": "q"}


def queued(status: Json | None = None, **spec: Any) -> Json:
    found = job(status, **{"suspend": True, **spec})
    found["metadata"]["labels"] = QUEUE
    return found


def workload(*said: tuple[str, str, str, str], **more: Any) -> Json:
    spec = {"queueName": "q", **more.pop("spec", {})}
    owner = {"kind": "Job", "name": "j", "uid": "j"}
    metadata = {"name": "job-j", "uid": "w", "ownerReferences": [owner], "creationTimestamp": BORN}
    return {"metadata": metadata, "spec": spec, "status": {**conditions(*said), **more}}
