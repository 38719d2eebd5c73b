"""Kinds that make pods of templates: IPUJob, PyTorchJob, JobSet, and any other that is described in the same way."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from tests.fake_kubernetes.api.errors import KubeError
from tests.fake_kubernetes.controllers.event_loop import Agenda
from tests.fake_kubernetes.controllers.event_recorder import Recorder
from tests.fake_kubernetes.controllers.job_pods import OVER, owner_of, phase_of, pod_of
from tests.fake_kubernetes.node.pod_status import set_condition
from tests.fake_kubernetes.store.store import Store
from tests.fake_kubernetes.store.trees import Tree, copied, older, timestamp


@dataclass(frozen=True)
class Child:
    """A pod, or a Job, that an object is to have."""

    role: str
    index: int
    name: str
    template: Tree
    plural: str = "pods"


@dataclass(frozen=True)
class Shape:
    """How a kind makes children and what it says of them."""

    children: Callable[[Tree], Iterator[Child]]
    tell: Callable[[Tree, list[Child], dict[str, Tree]], None]  # (object, wanted, by name): writes its status
    labels: Callable[[Tree, Child], dict[str, str]] = lambda _obj, _child: {}
    suspended: Callable[[Tree], bool] = lambda _obj: False


class Replicas:
    """One thread for all of these kinds."""

    def __init__(self, store: Store, failures: list[BaseException]) -> None:
        self._store = store
        self._recorder = Recorder(store, "replicas-controller")
        self._shapes: dict[str, Shape] = {}
        self._owners: dict[str, tuple[str, Tree]] = {}
        self._children: dict[str, dict[str, Tree]] = {}  # owner's uid -> name -> child, gone ones included
        self._agenda = Agenda("replicas", store.subscribe("pods", "jobs"), self._react, failures)

    def start(self) -> None:
        self._agenda.start()

    def close(self) -> None:
        self._agenda.close()

    def after(self, seconds: float, action: Callable[[], None]) -> None:
        self._agenda.after(seconds, action)

    def follow(self, plural: str, shape: Shape) -> None:
        self._shapes[plural] = shape
        with self._store.lock:
            self._agenda.subscription.plurals |= {plural}
            for obj in self._store.list(plural)[0]:
                self._agenda.subscription.put("ADDED", plural, obj)

    def _react(self, event: str, plural: str, obj: Tree) -> None:
        uid = obj["metadata"]["uid"]
        if plural not in self._shapes:
            uid = next((o["uid"] for o in obj["metadata"].get("ownerReferences", []) if o.get("controller")), "")
            if uid not in self._owners:
                return
            if older(obj, self._children[uid].get(obj["metadata"]["name"])):
                return
            self._children[uid][obj["metadata"]["name"]] = obj
        elif event == "DELETED":
            self._owners.pop(uid, None)
        elif uid in self._owners and older(obj, self._owners[uid][1]):
            return
        else:
            self._owners[uid] = (plural, obj)
            self._children.setdefault(uid, {})
        if uid in self._owners:
            self._sync(uid)

    def _sync(self, uid: str) -> None:
        plural, owner = self._owners[uid]
        if "deletionTimestamp" in owner["metadata"]:
            return
        shape, meta, known = self._shapes[plural], owner["metadata"], self._children[uid]
        wanted = [] if shape.suspended(owner) else list(shape.children(owner))
        for child in wanted:
            if child.name not in known:
                self._create(owner, shape, child)
        told = copied(owner)
        told.setdefault("status", {})
        shape.tell(told, wanted, known)
        if told["status"] != owner.get("status"):
            self._owners[uid] = (
                plural,
                self._store.change(
                    plural, meta["namespace"], meta["name"], lambda one: one.update(status=told["status"])
                ),
            )

    def _create(self, owner: Tree, shape: Shape, child: Child) -> None:
        if child.plural == "pods":
            new = pod_of(owner, child.template, child.name, shape.labels(owner, child), exact=True)
            new["spec"].setdefault("hostname", child.name)
        else:
            meta = {**(child.template.get("metadata") or {}), "name": child.name, "ownerReferences": [owner_of(owner)]}
            meta["labels"] = {**meta.get("labels", {}), **shape.labels(owner, child)}
            new = {"metadata": meta, "spec": copied(child.template["spec"])}
        try:
            made = self._store.create(child.plural, owner["metadata"]["namespace"], new)
        except KubeError as error:
            if error.reason != "AlreadyExists":
                self._recorder.tell(owner, "Warning", "FailedCreate", f"Error creating: {error.message}")
            return
        self._children[owner["metadata"]["uid"]][child.name] = made
        self._recorder.tell(owner, "Normal", "SuccessfulCreatePod", f"Created pod: {child.name}")


def _phases(wanted: list[Child], known: dict[str, Tree]) -> list[str]:
    return [phase_of(known[child.name]) if child.name in known else "Pending" for child in wanted]


def _ipu_children(job: Tree) -> Iterator[Child]:
    for index in range(job["spec"].get("jobInstances", 1)):
        yield Child("worker", index, f"{job['metadata']['name']}-worker-{index}", job["spec"]["workers"]["template"])


def _ipu_tell(job: Tree, wanted: list[Child], known: dict[str, Tree]) -> None:
    phases = _phases(wanted, known)
    if "Failed" in phases:
        phase, message = "Failed", "Worker pod failed"
    elif all(phase == "Succeeded" for phase in phases):
        phase, message = "Completed", "All instances done"
    else:
        phase = "Running" if "Running" in phases else "Pending"
        message = "All instances are running" if phase == "Running" else "Waiting for IPUs"
    current = sum(phase not in OVER for phase in phases)
    job["status"] |= {"phase": phase, "message": message, "current": current, "desired": len(wanted)}


IPU_JOB = Shape(
    _ipu_children,
    _ipu_tell,
    lambda job, child: {"graphcore.ai/ipujob-name": job["metadata"]["name"], "graphcore.ai/role": child.role},
)


def _torch_children(job: Tree) -> Iterator[Child]:
    for role, replica in job["spec"]["pytorchReplicaSpecs"].items():
        for index in range(replica.get("replicas", 1)):
            template = copied(replica["template"])
            template["spec"]["restartPolicy"] = replica.get("restartPolicy", "OnFailure")
            yield Child(role.lower(), index, f"{job['metadata']['name']}-{role.lower()}-{index}", template)


def _torch_tell(job: Tree, wanted: list[Child], known: dict[str, Tree]) -> None:
    name, status, phases = job["metadata"]["name"], job["status"], _phases(wanted, known)
    status.setdefault("startTime", timestamp())
    statuses: dict[str, dict[str, Any]] = {}
    for child, phase in zip(wanted, phases, strict=True):
        count = {"Succeeded": "succeeded", "Failed": "failed"}.get(phase, "active")
        of_role = statuses.setdefault(child.role.capitalize(), {})
        of_role[count] = of_role.get(count, 0) + 1
    status["replicaStatuses"] = statuses
    set_condition(status, "Created", "True", "PyTorchJobCreated", f"PyTorchJob {name} is created.")
    over = any(c["type"] in ("Succeeded", "Failed") for c in status["conditions"])
    masters = [phase for child, phase in zip(wanted, phases, strict=True) if child.role == "master"] or phases
    if over:
        return
    if "Failed" in phases:
        _torch_end(status, "Failed", f"PyTorchJob {name} is failed because {phases.count('Failed')} replica(s) failed.")
    elif masters and all(phase == "Succeeded" for phase in masters):
        _torch_end(status, "Succeeded", f"PyTorchJob {name} is successfully completed.")
    elif "Running" in phases:
        set_condition(status, "Running", "True", "PyTorchJobRunning", f"PyTorchJob {name} is running.")


def _torch_end(status: Tree, end: str, message: str) -> None:
    if any(condition["type"] == "Running" for condition in status["conditions"]):
        set_condition(status, "Running", "False", f"PyTorchJob{end}", message)
    set_condition(status, end, "True", f"PyTorchJob{end}", message)
    status["completionTime"] = timestamp()


def _torch_labels(job: Tree, child: Child) -> dict[str, str]:
    labels = {"job-name": job["metadata"]["name"], "replica-type": child.role, "replica-index": str(child.index)}
    return {f"training.kubeflow.org/{key}": value for key, value in labels.items()}


PYTORCH_JOB = Shape(
    _torch_children, _torch_tell, _torch_labels, lambda job: bool((job["spec"].get("runPolicy") or {}).get("suspend"))
)


def _set_children(jobset: Tree) -> Iterator[Child]:
    for group in jobset["spec"]["replicatedJobs"]:
        for index in range(group.get("replicas", 1)):
            name = f"{jobset['metadata']['name']}-{group['name']}-{index}"
            yield Child(group["name"], index, name, group["template"], "jobs")


def _set_tell(jobset: Tree, wanted: list[Child], known: dict[str, Tree]) -> None:
    jobs = [known[child.name] for child in wanted if child.name in known]
    ended = [_job_end(job) for job in jobs]
    groups: dict[str, Tree] = {}
    for child, end in zip(wanted, ended, strict=False):
        count = {"Complete": "succeeded", "Failed": "failed"}.get(end, "active")
        row = groups.setdefault(child.role, {"name": child.role, "active": 0, "failed": 0, "ready": 0, "succeeded": 0})
        row[count] += 1
    status = jobset["status"]
    status["replicatedJobsStatus"] = list(groups.values())
    if "Failed" in ended:
        status["terminalState"] = "Failed"
        set_condition(status, "Failed", "True", "FailedJobs", "jobset failed due to one or more job failures")
    elif wanted and len(ended) == len(wanted) and all(end == "Complete" for end in ended):
        status["terminalState"] = "Completed"
        set_condition(status, "Completed", "True", "AllJobsCompleted", "jobset completed successfully")


def _job_end(job: Tree) -> str:
    conditions = job.get("status", {}).get("conditions", [])
    return next((c["type"] for c in conditions if c["type"] in ("Complete", "Failed") and c["status"] == "True"), "")


JOB_SET = Shape(
    _set_children,
    _set_tell,
    lambda jobset, child: {"jobset.sigs.k8s.io/jobset-name": jobset["metadata"]["name"]},
    lambda jobset: bool(jobset["spec"].get("suspend")),
)
SHAPES = {"ipujobs": IPU_JOB, "pytorchjobs": PYTORCH_JOB, "jobsets": JOB_SET}
