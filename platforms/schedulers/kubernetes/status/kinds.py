"""What the kinds of objects that make pods have in common, and the little in which they differ."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple

from platforms.schedulers.kubernetes.objects.fields import (
    Object,
    conditions,
    dig,
    items,
    mapping,
    number,
    text,
)
from platforms.schedulers.kubernetes.objects.pod_templates import templates


class Completion(NamedTuple):
    """A kind's own word for its end."""

    end: Literal["succeeded", "failed"]
    reason: str
    message: str


# Conditions that are a kind's last word. A Job's FailureTarget and SuccessCriteriaMet are not: its pods still go.
LAST_WORDS: Mapping[str, Literal["succeeded", "failed"]] = {
    "Failed": "failed",  # Job, JobSet, TrainJob, PyTorchJob and the others of Kubeflow
    "Complete": "succeeded",  # Job, TrainJob
    "Completed": "succeeded",  # JobSet
    "Succeeded": "succeeded",  # PyTorchJob and the others of Kubeflow
}

# Groups whose kinds always have the last word, even while they have said nothing yet
SPEAKING = ("batch", "jobset.x-k8s.io", "kubeflow.org", "trainer.kubeflow.org")

# Kinds without such conditions say it in one word: where it may stand, and what it may be. An IPUJob is one of them.
WORDS_AT = (("phase",), ("state",), ("status",), ("state", "phase"), ("jobStatus",), ("jobDeploymentStatus",))
WORDS: Mapping[str, Literal["succeeded", "failed", "running"]] = {
    **dict.fromkeys(("succeeded", "success", "complete", "completed", "done", "finished"), "succeeded"),
    **dict.fromkeys(("failed", "failure", "error", "aborted", "terminated", "stopped"), "failed"),
    **dict.fromkeys(
        ("pending", "queued", "created", "creating", "starting", "initializing", "initialising", "waiting", "suspended",
         "running", "restarting", "aborting", "completing", "terminating"),
        "running",
    ),
}  # fmt: skip
_REPLICAS = ("pytorchReplicaSpecs", "tfReplicaSpecs", "mpiReplicaSpecs", "xgbReplicaSpecs", "paddleReplicaSpecs",
             "jaxReplicaSpecs")  # fmt: skip


def completion(root: Object) -> Completion | Literal["running"] | None:
    """How far an object is by its own status. None: it does not say, and its pods decide; so does a Pod itself."""
    if text(root, "kind") == "Pod":
        return None
    found = conditions(root)
    for name, end in LAST_WORDS.items():
        if name in found and found[name].true:
            return Completion(end, found[name].reason, found[name].message)
    speaks = _group(root) in SPEAKING or set(found) & LAST_WORDS.keys()
    return "running" if _is_job(root) or speaks else _by_word(root)


def failing(root: Object) -> Completion | None:
    """What a Job says that will have failed once its pods are gone."""
    target = conditions(root).get("FailureTarget")
    return Completion("failed", target.reason, target.message) if target is not None and target.true else None


def _by_word(root: Object) -> Completion | Literal["running"] | None:
    for path in WORDS_AT:
        word = text(root, "status", *path)
        meaning = WORDS.get(word.lower())
        if meaning == "running":
            return "running"
        if meaning is not None:
            return Completion(meaning, word, text(root, "status", "message") or text(root, "status", "reason"))
    return None


def expected_pods(root: Object) -> int | None:
    """How many pods must succeed. None: only its controller knows."""
    if text(root, "kind") == "Pod":
        return 1
    if _is_job(root):
        return _completions(mapping(root, "spec"))
    replicas = [mapping(root, "spec", name) for name in _REPLICAS if mapping(root, "spec", name)]
    if replicas:
        return sum(_or_one(number(spec, "replicas")) for each in replicas for spec in each.values())
    if text(root, "kind") == "JobSet":
        jobs = items(root, "spec", "replicatedJobs")
        each = (_or_one(number(job, "replicas")) * _completions(mapping(job, "template", "spec")) for job in jobs)
        return sum(each) or None
    if text(root, "kind") == "IPUJob" and not mapping(root, "spec", "launcher"):
        return number(root, "spec", "jobInstances")
    return None


def suspended(root: Object) -> bool:
    """It waits for somebody, Kueue above all, to let it make pods."""
    switches = (dig(root, "spec", "suspend"), dig(root, "spec", "runPolicy", "suspend"))
    return any(switch is True for switch in switches) or bool(items(root, "spec", "schedulingGates"))


def retries(root: Object) -> bool:
    """Whether it replaces or restarts pods that fail, so that one that does is not the end."""
    if text(root, "kind") == "Pod":
        return False
    if _is_job(root):
        return number(root, "spec", "backoffLimit") != 0
    if text(root, "kind") == "JobSet":
        limits = [number(job, "template", "spec", "backoffLimit") for job in items(root, "spec", "replicatedJobs")]
        return any(limit != 0 for limit in limits) or bool(number(root, "spec", "failurePolicy", "maxRestarts"))
    policies = (
        text(spec, "restartPolicy") or "OnFailure"
        for name in _REPLICAS
        for spec in mapping(root, "spec", name).values()
    )
    return any(policy != "Never" for policy in policies)


def restartable(root: Object) -> bool:
    """Whether it may make pods again once those that there are have been stopped; a kind that we do not know may."""
    if text(root, "kind") == "Pod":
        return suspended(root)
    own = completion(root)
    if isinstance(own, Completion):
        return False
    if suspended(root) or retries(root) or not _is_job(root):
        return True
    had = sum(number(root, "status", count) or 0 for count in ("active", "succeeded", "failed"))
    return had < _completions(mapping(root, "spec"))


def keeps_its_pods(root: Object) -> bool:
    """Whether it is a Job that leaves pods which have failed where they are: it deletes those that it restarts in
    place."""
    return _is_job(root) and text(root, "spec", "template", "spec", "restartPolicy") == "Never"


def ends_early(root: Object) -> bool:
    """Whether it may have succeeded, and take the rest away, before each of its pods has."""
    return not _is_job(root) or bool(mapping(root, "spec", "successPolicy"))


def pod_templates(tree: Any) -> Iterator[dict[str, Any]]:
    """Every dict in an object whose `spec` holds `containers`: its pod templates, wherever the kind puts them; a Pod is
    its own."""
    return (template for _path, template in templates(tree))


def _group(root: Object) -> str:
    return text(root, "apiVersion").rpartition("/")[0]


def _is_job(root: Object) -> bool:
    return text(root, "kind") == "Job" and _group(root) in ("batch", "")


def _completions(spec: Object) -> int:
    """Of a Job: `parallelism` without `completions` is a queue of work, which that many pods end."""
    return _or_one(number(spec, "completions"), number(spec, "parallelism"))


def _or_one(*counts: int | None) -> int:
    return next((count for count in counts if count is not None), 1)
