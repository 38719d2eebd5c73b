"""The controller of custom jobs: IPUJob, PyTorchJob, JobSet, and any kind that a CustomJobKind describes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tests.fake_kubernetes.api.errors import KubeError
from tests.fake_kubernetes.controllers.event_loop import EventLoop
from tests.fake_kubernetes.controllers.event_recorder import EventRecorder
from tests.fake_kubernetes.controllers.job_pods import owner_of, phase_of, pod_of
from tests.fake_kubernetes.node.pod_status import set_condition
from tests.fake_kubernetes.store.store import Store
from tests.fake_kubernetes.store.trees import Tree, deep_copy, is_older


@dataclass(frozen=True)
class Child:
    """A pod or a Job that an object needs."""

    role: str
    index: int
    name: str
    template: Tree
    plural: str = "pods"


@dataclass(frozen=True)
class CustomJobKind:
    """Which children an object of a kind has, and how its status follows from them."""

    children: Callable[[Tree], Iterator[Child]]
    # set_status(object, wanted children, existing children by name) sets the object's status in place
    set_status: Callable[[Tree, list[Child], dict[str, Tree]], None]
    labels: Callable[[Tree, Child], dict[str, str]] = lambda _obj, _child: {}


class CustomJobs:
    """One thread for all custom jobs."""

    def __init__(self, store: Store, failures: list[BaseException]) -> None:
        self._store = store
        self._recorder = EventRecorder(store, "replicas-controller")
        self._kinds: dict[str, CustomJobKind] = {}
        self._owners: dict[str, tuple[str, Tree]] = {}
        self._children: dict[str, dict[str, Tree]] = {}  # owner's uid -> name -> child, including deleted ones
        self._loop = EventLoop("replicas", store.subscribe("pods", "jobs"), self._handle, failures)

    def start(self) -> None:
        self._loop.start()

    def close(self) -> None:
        self._loop.close()

    def after(self, seconds: float, action: Callable[[], None]) -> None:
        self._loop.after(seconds, action)

    def follow(self, plural: str, job_kind: CustomJobKind) -> None:
        self._kinds[plural] = job_kind
        with self._store.lock:
            self._loop.subscription.plurals |= {plural}
            for obj in self._store.list(plural)[0]:
                self._loop.subscription.put("ADDED", plural, obj)

    def _handle(self, event: str, plural: str, obj: Tree) -> None:
        uid = obj["metadata"]["uid"]
        if plural not in self._kinds:
            uid = next((o["uid"] for o in obj["metadata"].get("ownerReferences", []) if o.get("controller")), "")
            if uid not in self._owners:
                return
            if is_older(obj, self._children[uid].get(obj["metadata"]["name"])):
                return
            self._children[uid][obj["metadata"]["name"]] = obj
        elif event == "DELETED":
            self._owners.pop(uid, None)
        elif uid in self._owners and is_older(obj, self._owners[uid][1]):
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
        job_kind, meta, known = self._kinds[plural], owner["metadata"], self._children[uid]
        wanted = list(job_kind.children(owner))
        for child in wanted:
            if child.name not in known:
                self._create(owner, job_kind, child)
        told = deep_copy(owner)
        told.setdefault("status", {})
        job_kind.set_status(told, wanted, known)
        if told["status"] != owner.get("status"):
            self._owners[uid] = (
                plural,
                self._store.change(
                    plural, meta["namespace"], meta["name"], lambda one: one.update(status=told["status"])
                ),
            )

    def _create(self, owner: Tree, job_kind: CustomJobKind, child: Child) -> None:
        if child.plural == "pods":
            new = pod_of(owner, child.template, child.name, job_kind.labels(owner, child), exact=True)
            new["spec"].setdefault("hostname", child.name)
        else:
            meta = {**(child.template.get("metadata") or {}), "name": child.name, "ownerReferences": [owner_of(owner)]}
            meta["labels"] = {**meta.get("labels", {}), **job_kind.labels(owner, child)}
            new = {"metadata": meta, "spec": deep_copy(child.template["spec"])}
        try:
            made = self._store.create(child.plural, owner["metadata"]["namespace"], new)
        except KubeError as error:
            if error.reason != "AlreadyExists":
                self._recorder.record(owner, "Warning", "FailedCreate", f"Error creating: {error.message}")
            return
        self._children[owner["metadata"]["uid"]][child.name] = made
        self._recorder.record(owner, "Normal", "SuccessfulCreatePod", f"Created pod: {child.name}")


def _phases(wanted: list[Child], known: dict[str, Tree]) -> list[str]:
    return [phase_of(known[child.name]) if child.name in known else "Pending" for child in wanted]


def _ipu_children(job: Tree) -> Iterator[Child]:
    for index in range(job["spec"].get("jobInstances", 1)):
        yield Child("worker", index, f"{job['metadata']['name']}-worker-{index}", job["spec"]["workers"]["template"])


def _set_ipu_status(job: Tree, wanted: list[Child], known: dict[str, Tree]) -> None:
    phases = _phases(wanted, known)
    phase = "Running" if "Running" in phases else "Pending"
    if "Failed" in phases or all(each == "Succeeded" for each in phases):
        phase = "Failed" if "Failed" in phases else "Completed"
    job["status"] |= {"phase": phase, "message": f"All instances: {', '.join(phases)}"}


IPU_JOB = CustomJobKind(_ipu_children, _set_ipu_status)


def _torch_children(job: Tree) -> Iterator[Child]:
    for role, replica in job["spec"]["pytorchReplicaSpecs"].items():
        for index in range(replica.get("replicas", 1)):
            template = deep_copy(replica["template"])
            template["spec"]["restartPolicy"] = replica.get("restartPolicy", "OnFailure")
            yield Child(role.lower(), index, f"{job['metadata']['name']}-{role.lower()}-{index}", template)


def _set_torch_status(job: Tree, wanted: list[Child], known: dict[str, Tree]) -> None:
    name, status, phases = job["metadata"]["name"], job["status"], _phases(wanted, known)
    masters = [phase for child, phase in zip(wanted, phases, strict=True) if child.role == "master"] or phases
    set_condition(status, "Created", "True", "PyTorchJobCreated", f"PyTorchJob {name} is created.")
    if any(each["type"] in ("Succeeded", "Failed") for each in status["conditions"]):
        return
    if "Failed" in phases:
        set_condition(status, "Failed", "True", "PyTorchJobFailed", f"PyTorchJob {name} is failed.")
    elif all(phase == "Succeeded" for phase in masters):
        set_condition(status, "Succeeded", "True", "PyTorchJobSucceeded", f"PyTorchJob {name} is completed.")
    elif "Running" in phases:
        set_condition(status, "Running", "True", "PyTorchJobRunning", f"PyTorchJob {name} is running.")


def _torch_labels(job: Tree, child: Child) -> dict[str, str]:
    labels = {"job-name": job["metadata"]["name"], "replica-type": child.role, "replica-index": str(child.index)}
    return {f"training.kubeflow.org/{key}": value for key, value in labels.items()}


PYTORCH_JOB = CustomJobKind(_torch_children, _set_torch_status, _torch_labels)


def _job_set_children(jobset: Tree) -> Iterator[Child]:
    for group in jobset["spec"]["replicatedJobs"]:
        for index in range(group.get("replicas", 1)):
            name = f"{jobset['metadata']['name']}-{group['name']}-{index}"
            yield Child(group["name"], index, name, group["template"], "jobs")


def _set_job_set_status(jobset: Tree, wanted: list[Child], known: dict[str, Tree]) -> None:
    ended = [_job_end(known[child.name]) for child in wanted if child.name in known]
    if "Failed" in ended:
        set_condition(jobset["status"], "Failed", "True", "FailedJobs", "jobset failed due to one or more job failures")
    elif wanted and ended == ["Complete"] * len(wanted):
        set_condition(jobset["status"], "Completed", "True", "AllJobsCompleted", "jobset completed successfully")


def _job_end(job: Tree) -> str:
    conditions = job.get("status", {}).get("conditions", [])
    return next((c["type"] for c in conditions if c["type"] in ("Complete", "Failed") and c["status"] == "True"), "")


JOB_SET = CustomJobKind(_job_set_children, _set_job_set_status)
