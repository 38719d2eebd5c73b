"""How the kinds of objects that make pods differ: how they report their end, what they need and what they retry."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

from platforms.schedulers.kubernetes.objects.fields import Object, conditions, dig, items, mapping, number, text


class Completion(NamedTuple):
    """An object reports its own end."""

    end: Literal["succeeded", "failed"]
    reason: str
    message: str


# Conditions with which an object reports its end. FailureTarget and SuccessCriteriaMet of a Job are not among them: its
# pods still run then.
END_CONDITIONS: Mapping[str, Literal["succeeded", "failed"]] = {
    "Failed": "failed",  # Job, JobSet, TrainJob, PyTorchJob and the other kinds of Kubeflow
    "Complete": "succeeded",  # Job, TrainJob
    "Completed": "succeeded",  # JobSet
    "Succeeded": "succeeded",  # PyTorchJob and the other kinds of Kubeflow
}

# API groups whose kinds always report their end with such a condition, so that an object without one has not ended.
REPORTING_GROUPS = ("batch", "jobset.x-k8s.io", "kubeflow.org", "trainer.kubeflow.org")

# Other kinds, such as IPUJob, report their end with one word: the paths under `status` where it may stand, and what it
# means.
WORD_PATHS = (("phase",), ("state",), ("status",), ("state", "phase"), ("jobStatus",), ("jobDeploymentStatus",))
WORDS: Mapping[str, Literal["succeeded", "failed", "running"]] = {
    **dict.fromkeys(("succeeded", "success", "complete", "completed", "done", "finished"), "succeeded"),
    **dict.fromkeys(("failed", "failure", "error", "aborted", "terminated", "stopped"), "failed"),
    **dict.fromkeys(
        ("pending", "queued", "created", "creating", "starting", "initializing", "initialising", "waiting", "suspended",
         "running", "restarting", "aborting", "completing", "terminating"),
        "running",
    ),
}  # fmt: skip
_REPLICA_SPECS = ("pytorchReplicaSpecs", "tfReplicaSpecs", "mpiReplicaSpecs", "xgbReplicaSpecs", "paddleReplicaSpecs",
                  "jaxReplicaSpecs")  # fmt: skip


def completion(root: Object) -> Completion | Literal["running"] | None:
    """Read from an object's status how far it is. None if the status does not say it, as for a Pod: its pods decide."""
    if text(root, "kind") == "Pod":
        return None
    found = conditions(root)
    for name, end in END_CONDITIONS.items():
        if name in found and found[name].true:
            return Completion(end, found[name].reason, found[name].message)
    if _is_job(root) or _group(root) in REPORTING_GROUPS or END_CONDITIONS.keys() & found.keys():
        return "running"
    return _completion_by_word(root)


def _completion_by_word(root: Object) -> Completion | Literal["running"] | None:
    for path in WORD_PATHS:
        word = text(root, "status", *path)
        meaning = WORDS.get(word.lower())
        if meaning == "running":
            return "running"
        if meaning is not None:
            return Completion(meaning, word, text(root, "status", "message") or text(root, "status", "reason"))
    return None


def failing(root: Object) -> Completion | None:
    """The failure that a Job will report once its pods are gone."""
    target = conditions(root).get("FailureTarget")
    if target is None or not target.true:
        return None
    return Completion("failed", target.reason, target.message)


def expected_pods(root: Object) -> int | None:
    """The number of pods that must succeed. None if only the object's controller knows."""
    kind = text(root, "kind")
    if kind == "Pod":
        return 1
    if _is_job(root):
        return _completions(mapping(root, "spec"))
    replica_specs = _replica_specs(root)
    if replica_specs:
        return sum(_first_number(number(spec, "replicas")) for spec in replica_specs)
    if kind == "JobSet":
        total = 0
        for job in items(root, "spec", "replicatedJobs"):
            total += _first_number(number(job, "replicas")) * _completions(mapping(job, "template", "spec"))
        return total or None
    if kind == "IPUJob" and not mapping(root, "spec", "launcher"):
        return number(root, "spec", "jobInstances")
    return None


def suspended(root: Object) -> bool:
    """True if it may not make pods until Kueue, or another controller or user, resumes it."""
    if dig(root, "spec", "suspend") is True or dig(root, "spec", "runPolicy", "suspend") is True:
        return True
    return bool(items(root, "spec", "schedulingGates"))


def retries(root: Object) -> bool:
    """True if its controller replaces or restarts pods that fail, so that a failed pod is not the end."""
    if text(root, "kind") == "Pod":
        return False
    if _is_job(root):
        return number(root, "spec", "backoffLimit") != 0
    if text(root, "kind") == "JobSet":
        limits = [number(job, "template", "spec", "backoffLimit") for job in items(root, "spec", "replicatedJobs")]
        return any(limit != 0 for limit in limits) or bool(number(root, "spec", "failurePolicy", "maxRestarts"))
    policies = [text(spec, "restartPolicy") or "OnFailure" for spec in _replica_specs(root)]
    return any(policy != "Never" for policy in policies)


def restartable(root: Object) -> bool:
    """True if it may make pods again after those that exist were stopped, and for a kind that we do not know."""
    if text(root, "kind") == "Pod":
        return suspended(root)
    if isinstance(completion(root), Completion):
        return False
    if suspended(root) or retries(root) or not _is_job(root):
        return True
    created = sum(number(root, "status", count) or 0 for count in ("active", "succeeded", "failed"))
    return created < _completions(mapping(root, "spec"))


def keeps_its_pods(root: Object) -> bool:
    """True if it is a Job that never deletes pods that have failed, as a Job does that restarts them in place."""
    return _is_job(root) and text(root, "spec", "template", "spec", "restartPolicy") == "Never"


def ends_early(root: Object) -> bool:
    """True if it may succeed, and delete its other pods, before each of its pods has succeeded."""
    return not _is_job(root) or bool(mapping(root, "spec", "successPolicy"))


def _group(root: Object) -> str:
    return text(root, "apiVersion").rpartition("/")[0]


def _is_job(root: Object) -> bool:
    return text(root, "kind") == "Job" and _group(root) in ("batch", "")


def _replica_specs(root: Object) -> list[object]:
    """The replicas of a kind of Kubeflow, each with its own number and restart policy."""
    specs: list[object] = []
    for name in _REPLICA_SPECS:
        specs += mapping(root, "spec", name).values()
    return specs


def _completions(spec: Object) -> int:
    # A Job with `parallelism` and without `completions` is a work queue, which that many pods end.
    return _first_number(number(spec, "completions"), number(spec, "parallelism"))


def _first_number(*counts: int | None) -> int:
    """The first count that is given; 1 if none is."""
    return next((count for count in counts if count is not None), 1)
