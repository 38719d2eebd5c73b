"""What becomes of a job, by its kind: Jobs, those of Kubeflow and others, and Kueue before them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from platforms.job import State
from platforms.schedulers.kubernetes.objects.pod_templates import templates
from platforms.schedulers.kubernetes.status import failures, kinds, kueue
from platforms.schedulers.kubernetes.status.judge import JobVerdict
from tests.platforms.kubernetes_objects import (
    BORN,
    COMPLETE,
    DELETED,
    LESS,
    LONG,
    MORE,
    PYTORCH,
    QUEUE,
    RECORDED,
    Json,
    conditions,
    disrupted,
    ended,
    event,
    failed,
    job,
    look,
    other,
    patience,
    pod,
    queued,
    running,
    unscheduled,
    waiting,
    workload,
)

# --- jobs ------------------------------------------------------------------------------------------------------------


def test_the_first_failure_is_the_cause() -> None:
    """Of a gang the others die of it: by SIGTERM, by deletion, or with an error of the collective a second later."""
    root = failed("BackoffLimitExceeded")
    root["spec"] |= {"completions": 3, "parallelism": 3}
    pods = [
        pod(ended(143, at=29), "rank0", **DELETED),
        pod(ended(9, at=30), "rank1"),
        pod(ended(1, at=31), "rank2"),
    ]
    verdict = look(root, *pods)
    assert (verdict.status.state, verdict.status.exit_code) == (State.EXITED, 9)
    assert verdict.status.reason == "rank1: exit code 9"
    oom = [pod(ended(1, at=31), "a"), pod(ended(137, "OOMKilled", at=30), "b"), pod(running(), "c")]
    verdict = look(root, *oom)
    assert (verdict.status.state, verdict.stop) == (State.OUT_OF_MEMORY, True)  # c still holds its device


def test_a_failed_pod_does_not_end_a_job_that_still_runs() -> None:
    root = job({"active": 1, "failed": 1}, completions=2, parallelism=2, completionMode="Indexed")
    verdict = look(root, pod(ended(1), "a"), pod(running(), "b"), waited=LONG)
    assert (verdict.status.state, verdict.stop) == (State.RUNNING, False)


def test_a_failed_job_ends_even_if_its_pods_give_no_reason() -> None:
    root = failed("BackoffLimitExceeded", "Job has reached the specified backoff limit")
    first, later, verdict = patience(root, pod(running()))
    assert (first, later, verdict.stop) == (State.RUNNING, State.EXITED, True)
    assert "backoff limit" in verdict.status.reason


def test_pod_failure_policy() -> None:
    words = "Container c for pod default/x failed with exit code 42 matching FailJob rule at index 0"
    root = failed("PodFailurePolicy", words)
    for pods in ((pod(ended(42)),), ()):
        verdict = look(root, *pods)
        assert (verdict.status.state, verdict.status.exit_code) == (State.EXITED, 42)
        assert words in verdict.status.reason


def test_jobs_of_kubernetes_1_20_need_no_reasons() -> None:
    done = job(conditions(("Complete", "True", "", "")))
    assert look(done, pod(ended(0))).status.state is State.SUCCEEDED
    late = failed("DeadlineExceeded", "Job was active longer than specified deadline")
    verdict = look(late, pod(running()))  # its pods are still there
    assert (verdict.status.state, verdict.stop) == (State.TIME_LIMIT, True)


def test_a_job_without_conditions_is_judged_by_its_pods() -> None:
    first, later, verdict = patience(job({"active": 1}), pod(ended(5)))
    assert (first, later, verdict.status.exit_code) == (State.RUNNING, State.EXITED, 5)
    assert patience(job({"active": 1}), pod(ended(0)))[:2] == (State.RUNNING, State.SUCCEEDED)
    assert patience(job({"active": 1}, completions=2), pod(ended(0)))[:2] == (State.RUNNING, State.RUNNING)
    assert patience(job({"failed": 1}, backoffLimit=3), pod(ended(5)))[:2] == (State.STARTING, State.STARTING)


def test_a_complete_job_succeeds_without_its_pods() -> None:
    verdict = look(job(COMPLETE))
    assert (verdict.status.state, verdict.status.exit_code) == (State.SUCCEEDED, 0)  # the log still must be complete


REFUSALS: list[Any] = [
    ('pods "j-x" is forbidden: exceeded quota: q, requested: requests.nvidia.com/gpu=4, used: '
     "requests.nvidia.com/gpu=0, limited: requests.nvidia.com/gpu=2", 1, State.NEVER_ADMISSIBLE, "4 of 2"),
    ('pods "j-x" is forbidden: exceeded quota: q, requested: requests.nvidia.com/gpu=2, used: '
     "requests.nvidia.com/gpu=1, limited: requests.nvidia.com/gpu=2", 9, State.QUEUED, "quota q is used up"),
    ("exceeded quota: q, requested: limits.memory=32Gi,pods=1, used: limits.memory=1Gi,pods=10, limited: "
     "limits.memory=64Gi,pods=10", 9, State.QUEUED, "pods=10"),
    ("exceeded quota: q, requested: limits.memory=65Gi,pods=1, used: limits.memory=0,pods=0, limited: "
     "limits.memory=64Gi,pods=10", 1, State.NEVER_ADMISSIBLE, "limits.memory: 65Gi of 64Gi"),
    ("exceeded quota: q, requested: cpu=500m, used: cpu=4, limited: cpu=4", 9, State.QUEUED, "cpu=500m"),
    ("exceeded quota: q, requested: memory=512Mi, used: memory=64Gi, limited: memory=64Gi", 9, State.QUEUED, "512Mi"),
    ("exceeded quota: q, requested: cpu=1e99x, used: cpu=0, limited: cpu=what", 9, State.QUEUED, "1e99x"),
    ('pods "j-x" is forbidden: violates PodSecurity "restricted:latest": hostIPC=true', 1, State.QUEUED, "hostIPC"),
    ('pods "j-x" is forbidden: violates PodSecurity "restricted:latest": hostIPC=true', 3, State.SUBMIT_REFUSED,
     "hostIPC"),
    ('admission webhook "x.y" denied the request: no queue', 3, State.SUBMIT_REFUSED, "no queue"),
    ('pods "j-x" is forbidden: error looking up service account ns/me: serviceaccount "me" not found', 3,
     State.SUBMIT_REFUSED, 'serviceaccount "me" not found'),
    ('pods "j-x" is forbidden: failed quota: q: must specify limits.cpu for: c', 3, State.SUBMIT_REFUSED, "specify"),
    ('pods "j-x" is forbidden: [maximum cpu usage per Container is 2, but limit is 4]', 3, State.SUBMIT_REFUSED, "4"),
    ('pods "j-x" is forbidden: no PriorityClass with name p was found', 3, State.SUBMIT_REFUSED, "PriorityClass"),
    ('Internal error occurred: failed calling webhook "w": connection refused', 9, State.QUEUED, "webhook"),
    ("etcdserver: request timed out", 9, State.QUEUED, "etcdserver"),
    ("something new", 9, State.QUEUED, "something new"),
]  # fmt: skip


@pytest.mark.parametrize(("message", "tries", "state", "words"), REFUSALS)
def test_events_explain_pods_that_cannot_be_created(message: str, tries: int, state: State, words: str) -> None:
    said = [event("FailedCreate", f"Error creating: {message}", count=tries)]
    verdict = look(job({}), events=said)
    assert (verdict.status.state, verdict.stop) == (state, not state.live)
    assert words in verdict.status.reason
    assert not verdict.status.reason.startswith("Error creating")
    # of a gang it is one too many
    gang = look(job({"active": 1}, completions=2, parallelism=2), pod(running()), events=said)
    assert gang.status.state is (State.RUNNING if state.live else state)
    assert words in gang.status.reason
    # it went well in the end
    after = [*said, event("SuccessfulCreate", "Created pod: j-y", at=9)]
    assert look(job({"active": 1}), events=after).status.state is State.QUEUED
    assert look(job({"active": 1}), pod(running()), events=said).status.state is State.RUNNING


def test_a_job_without_pods_and_events_is_queued() -> None:
    verdict = look(job({"startTime": BORN}), waited=LONG)
    assert (verdict.status.state, verdict.status.reason) == (State.QUEUED, "it has no pod yet")
    by_hand = look(job({}, suspend=True), waited=LONG)
    assert by_hand.status.state is State.QUEUED
    assert by_hand.status.reason == "suspended: it waits until a user or a controller resumes it"


def test_a_controller_that_does_not_run_is_named_after_a_while() -> None:
    ipu = other("IPUJob", jobInstances=1)
    first, later, verdict = patience(ipu)
    assert (first, later) == (State.QUEUED, State.QUEUED)
    assert look(ipu).status.reason == "it has no pod yet"
    dead = "it has no pod, no status and no event after 120 s"
    assert verdict.status.reason == f"{dead}: the controller of IPUJob (graphcore.ai/v1alpha1) does not seem to run"
    assert look(job(), waited=LONG).status.reason == f"{dead}: the controller of Job (batch/v1) does not seem to run"
    told = [event("Waiting", "for other jobs", "o")]
    for alive in (look(ipu, waited=LONG, events=told), look(other("IPUJob", {"phase": "Pending"}), waited=LONG)):
        assert alive.status.reason == "it has no pod yet"


ONCE = {"template": {"spec": {"restartPolicy": "Never"}}}


def test_a_job_whose_pod_was_deleted_is_cancelled_and_not_failed_or_evicted() -> None:
    """It says BackoffLimitExceeded, as it does when its pod fails."""
    root = failed("BackoffLimitExceeded", "Job has reached the specified backoff limit")
    root["spec"] |= ONCE
    killed = event("Killing", "Stopping container c", "p", involvedObject={"name": "j-x", "uid": "p"})
    for verdict in (
        look(root, pod(ended(0, at=40), **DELETED)),
        look(root, pod(ended(143, at=40), **DELETED)),
        look(root, gone_pods=[pod(running(), **DELETED)]),
        look(root, pod(running(), **DELETED), waited=LONG),  # Jobs of older clusters do not wait for its end
    ):
        assert (verdict.status.state, verdict.status.reason) == (State.CANCELLED, failures.TAKEN)
    for verdict in (
        look(root, gone_pods=[pod(running())], events=[killed]),
        look(root, events=[killed]),  # nobody had looked
    ):
        assert (verdict.status.state, verdict.status.reason) == (State.LOST, failures.TAKEN_UNSEEN)
    quick = look(job(COMPLETE, **ONCE), pod(ended(0, at=30), **DELETED))  # to its controller that was a success
    assert (quick.status.state, quick.status.exit_code, quick.status.reason) == (State.CANCELLED, 0, failures.TAKEN)
    assert look(job(COMPLETE, **ONCE), events=[killed]).status.state is State.LOST
    assert look(job(COMPLETE, **ONCE)).status.state is State.LOST
    both = job(COMPLETE, **ONCE, completions=2, parallelism=2)
    assert look(both, pod(ended(0), "a"), pod(ended(0), "b")).status.state is State.SUCCEEDED
    assert look(both, pod(ended(0), "a"), gone_pods=[pod(running(), "b")]).status.state is State.LOST
    by_policy = job(COMPLETE, **both["spec"], successPolicy={"rules": [{"succeededIndexes": "0"}]})
    assert (
        look(by_policy, pod(ended(0), "a"), gone_pods=[pod(running(), "b", **DELETED)]).status.state is State.SUCCEEDED
    )
    assert look(both, pod(ended(0), "a"), gone_pods=[pod(running(), "b", **DELETED)]).status.state is State.CANCELLED
    assert look(None, gone_root=job(COMPLETE, **ONCE)).status.state is State.SUCCEEDED  # by its ttlSecondsAfterFinished
    unseen = look(root)
    assert (unseen.status.state, unseen.status.exit_code) == (State.LOST, None)
    assert unseen.status.reason == "its pods are gone, and nothing shows how they ended"
    own = look(root, pod(ended(3), "a"), pod(ended(143, at=40), "b", **DELETED))
    assert (own.status.state, own.status.exit_code) == (State.EXITED, 3)
    leaving = {**root, "metadata": {**root["metadata"], **DELETED}}  # its pods go first, as with --cascade=foreground
    assert look(leaving, pod(ended(143, at=40), **DELETED)).status.state is State.CANCELLED


def test_rank_0_sets_the_state_of_a_job_with_several_pods() -> None:
    root = job({"active": 2}, completions=2, parallelism=2)

    def at(index: int, status: Json, node: str) -> Json:
        return pod(status, f"p{index}", node=node, labels={"batch.kubernetes.io/job-completion-index": str(index)})

    queued = unscheduled("0/2 nodes are available: 2 Insufficient cpu.")
    verdict = look(root, at(1, queued, ""), at(0, running(), "n0"))
    assert verdict.status.state is State.RUNNING
    assert verdict.status.reason == "p1: 0/2 nodes are available: 2 Insufficient cpu."
    assert look(root, at(1, running(), "n1"), at(0, queued, "")).status.state is State.QUEUED
    assert look(root, at(0, running(), "b"), at(1, running(), "a")).status.nodes == ("b", "a")
    bad = look(root, at(0, running(), "n0"), at(1, waiting("InvalidImageName", "Bad"), "n1"))
    assert (bad.status.state, bad.stop, bad.status.reason) == (State.IMAGE, True, "p1: Bad")


# --- other kinds -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("root", "end"),
    [
        (job(), "running"),
        (job(conditions(("SuccessCriteriaMet", "True", "", ""))), "running"),
        (job(conditions(("FailureTarget", "True", "", ""))), "running"),
        (job(conditions(("Suspended", "True", "", ""))), "running"),
        (job(conditions(("Failed", "False", "", ""))), "running"),
        (job(COMPLETE), "succeeded"),
        (failed("X"), "failed"),
        (pod(ended(0)), None),
        (other("PyTorchJob", None, PYTORCH), "running"),
        (other("PyTorchJob", conditions(("Created", "True", "", ""), ("Running", "True", "", "")), PYTORCH), "running"),
        (other("PyTorchJob", conditions(("Restarting", "True", "", "")), PYTORCH), "running"),
        (other("PyTorchJob", conditions(("Suspended", "True", "", "")), PYTORCH), "running"),
        (other("PyTorchJob", conditions(("Succeeded", "True", "", "")), PYTORCH), "succeeded"),
        (other("MPIJob", conditions(("Running", "False", "", ""), ("Failed", "True", "", "")), PYTORCH), "failed"),
        (other("JobSet", None, "jobset.x-k8s.io/v1alpha2"), "running"),
        (
            other("JobSet", conditions(("Completed", "True", "AllJobsCompleted", "")), "jobset.x-k8s.io/v1alpha2"),
            "succeeded",
        ),
        (other("JobSet", conditions(("Failed", "True", "FailedJobs", "")), "jobset.x-k8s.io/v1alpha2"), "failed"),
        (other("TrainJob", conditions(("Complete", "True", "", "")), "trainer.kubeflow.org/v1alpha1"), "succeeded"),
        (other("TrainJob", conditions(("Failed", "True", "", "")), "trainer.kubeflow.org/v1alpha1"), "failed"),
        (other("IPUJob"), None),
        (other("IPUJob", {"phase": "Running"}), "running"),
        (other("IPUJob", {"status": "Completed"}), "succeeded"),
        (other("IPUJob", conditions(("Failed", "True", "", ""))), "failed"),
        (other("VolcanoJob", {"state": {"phase": "Aborted"}}), "failed"),
        (other("RayJob", {"jobStatus": "SUCCEEDED"}), "succeeded"),
        (other("Workflow", {"phase": "Error", "message": "exit code 3"}), "failed"),
        (other("Thing", {"phase": "Mystifying"}), None),
        (other("Thing", conditions(("Ready", "True", "", ""))), None),
    ],
)
def test_the_status_of_each_kind_is_read(root: Json, end: str | None) -> None:
    found = kinds.completion(root)
    assert (found.end if isinstance(found, kinds.Completion) else found) == end


def test_a_kubeflow_job_ends_with_its_own_condition() -> None:
    specs = {"Master": {"replicas": 1, "restartPolicy": "Never"}, "Worker": {"replicas": 1, "restartPolicy": "Never"}}
    said = conditions(
        ("Failed", "True", "PyTorchJobFailed", "PyTorchJob o is failed because 1 Worker replica(s) failed.")
    )
    verdict = look(
        other("PyTorchJob", said, PYTORCH, pytorchReplicaSpecs=specs), pod(ended(1, at=20), "w"), pod(running(), "m")
    )
    assert (verdict.status.state, verdict.status.exit_code, verdict.stop) == (State.EXITED, 1, True)
    assert verdict.status.reason.startswith("w: exit code 1")
    good = conditions(("Succeeded", "True", "", ""))
    root = other("PyTorchJob", good, PYTORCH, pytorchReplicaSpecs=specs)
    # its master decides, and its workers are taken away
    assert look(root, pod(ended(0), "m"), gone_pods=[pod(running(), "w", **DELETED)]).status.state is State.SUCCEEDED
    never = other("PyTorchJob", conditions(("Running", "True", "", "")), PYTORCH, pytorchReplicaSpecs=specs)
    assert look(never, pod(waiting("InvalidImageName", "Bad"), "w"), pod(running(), "m")).stop


LATE = "PyTorchJob o has failed because it was active longer than specified deadline"


def test_a_kubeflow_job_past_its_deadline_is_a_time_limit() -> None:
    root = other("PyTorchJob", conditions(("Failed", "True", "PyTorchJobFailed", LATE)), PYTORCH)
    assert look(root, gone_pods=[pod(running())]).status.state is State.TIME_LIMIT


def test_kinds_without_a_status_are_judged_by_their_pods() -> None:
    root = other("Thing")
    assert patience(root, pod(ended(0)))[:2] == (State.RUNNING, State.SUCCEEDED)  # there might be more
    assert look(root, pod(ended(0), "a"), pod(running(), "b"), waited=LONG).status.state is State.RUNNING
    first, later, verdict = patience(root, pod(ended(3), "a"), pod(running(), "b"))
    assert (first, later, verdict.stop, verdict.status.exit_code) == (State.RUNNING, State.EXITED, True, 3)
    again = pod(running(), "b", creationTimestamp="2026-11-20T22:11:40Z")
    assert look(root, pod(ended(3), "a"), again, waited=LONG).status.state is State.RUNNING
    replaced = pod(ended(0, at=59), "b", creationTimestamp="2026-11-20T22:11:40Z")
    assert look(root, pod(ended(3), "a"), replaced, waited=LONG).status.state is State.SUCCEEDED
    ipu = other("IPUJob", None, jobInstances="2")
    assert look(ipu, pod(ended(0), "a"), waited=LONG).status.state is State.RUNNING
    assert look(ipu, pod(ended(0), "a"), pod(ended(0), "b")).status.state is State.SUCCEEDED
    assert look(ipu).status.state is State.QUEUED
    # in a container beside it a child was killed for memory
    assert (
        look(ipu, pod(ended(0), "a"), pod(ended(0, "OOMKilled"), "b"), waited=LONG).status.state is State.OUT_OF_MEMORY
    )


@pytest.mark.parametrize(
    ("root", "count"),
    [
        (pod(), 1),
        (job(completions=4, parallelism=2), 4),
        (job(completions=None, parallelism=3), 3),
        (job(completions=None, parallelism=None), 1),
        (other("IPUJob", jobInstances=2), 2),
        (other("IPUJob", jobInstances="1"), 1),
        (other("IPUJob", jobInstances=1, launcher={"template": {}}), None),
        (other("PyTorchJob", pytorchReplicaSpecs={"Master": {}, "Worker": {"replicas": 3}}), 4),
        (other("JobSet", replicatedJobs=[{"replicas": 2, "template": {"spec": {"parallelism": 4}}}]), 8),
        (other("JobSet"), None),
        (other("Thing"), None),
    ],
)
def test_expected_pods_are_counted_for_each_kind(root: Json, count: int | None) -> None:
    assert kinds.expected_pods(root) == count


def test_suspension_is_read_for_each_kind() -> None:
    gated = pod(spec={"schedulingGates": [{"name": "g"}]})
    held = (job(suspend=True), other("PyTorchJob", runPolicy={"suspend": True}), gated)
    assert [kinds.suspended(root) for root in held] == [True] * 3
    assert [kinds.suspended(root) for root in (job(), job(suspend=False), pod(), other("Thing"))] == [False] * 4


@pytest.mark.parametrize(
    ("root", "could"),
    [
        (pod(running()), False),
        (pod(spec={"schedulingGates": [{"name": "g"}]}), True),
        (job({"active": 1}), False),
        (job({"failed": 1}), False),
        (job({}), True),  # it has made no pod yet
        (job({"active": 1}, completions=2, parallelism=2), True),
        (job({"active": 1}, backoffLimit=3), True),
        (job({"active": 1}, backoffLimit=None), True),  # six times, when nothing is written
        (job({"active": 0}, suspend=True), True),
        (job(COMPLETE, backoffLimit=3), False),
        (failed("X"), False),
        (other("Thing"), True),
        (other("Thing", {"phase": "Failed"}), False),
    ],
)
def test_restartable_kinds_are_known(root: Json, could: bool) -> None:
    assert kinds.restartable(root) is could


def test_kinds_that_retry_are_known() -> None:
    once = {"pytorchReplicaSpecs": {"Master": {"restartPolicy": "Never"}}}
    jobs = [{"template": {"spec": {"backoffLimit": 0}}}]
    tried_once = (job(), pod(), other("Thing"), other("PyTorchJob", **once), other("JobSet", replicatedJobs=jobs))
    assert not any(map(kinds.retries, tried_once))
    often = other("JobSet", replicatedJobs=jobs, failurePolicy={"maxRestarts": 2})
    default = other("PyTorchJob", pytorchReplicaSpecs={"Master": {}})
    assert all(map(kinds.retries, (job(backoffLimit=1), job(backoffLimit=None), often, default)))


def test_pod_templates_are_found_wherever_they_sit() -> None:
    template = {"metadata": {}, "spec": {"containers": [{"name": "c"}]}}
    ipu = other("IPUJob", workers={"template": template})
    jobs = [{"template": {"spec": {"template": template}}}]
    assert list(templates(ipu)) == [(("spec", "workers", "template"), template)]
    assert [found for _path, found in templates({"spec": {"replicatedJobs": jobs}})] == [template]
    assert [found["metadata"]["name"] for _path, found in templates(pod())] == ["p"]
    assert list(templates(other("Thing"))) == []


# --- Kueue -----------------------------------------------------------------------------------------------------------


def test_a_job_is_queued_until_kueue_admits_it() -> None:
    assert look(queued(), waited=LONG).status.reason == "Kueue (queue q) has not let it start yet"
    fresh = look(queued(), workload=workload())
    assert (fresh.status.state, fresh.status.reason) == (State.QUEUED, "Kueue (queue q): has not looked at it yet")
    reserved = workload(("QuotaReserved", "True", "QuotaReserved", "reserved in cq"))
    assert look(queued(), workload=reserved).status.state is State.QUEUED
    admitted = workload(("QuotaReserved", "True", "", ""), ("Admitted", "True", "Admitted", "The workload is admitted"))
    assert look(queued(), workload=admitted).status.state is State.STARTING
    assert look(queued(suspend=False), workload=admitted).status.state is State.STARTING
    assert look(queued(suspend=False), pod(running()), workload=admitted).status.state is State.RUNNING


def kueue_recorded(name: str) -> Json:
    loaded: Json = json.loads((RECORDED / "kueue" / f"{name}.json").read_text())
    return loaded


@pytest.mark.parametrize("name", ["no-quota", "no-queue"])
def test_a_recorded_queue_that_can_never_admit_ends_the_job(name: str) -> None:
    seen = kueue_recorded(name)
    assert look(seen["job"], workload=seen["workload"]).status.state is State.NEVER_ADMISSIBLE


LACKS = "couldn't assign flavors to pod set main: resource nvidia.com/gpu unavailable in ClusterQueue"
ADMISSIONS: list[Any] = [
    ("WaitingForQuota", LESS, State.QUEUED, State.QUEUED),
    ("ExceedsMaxQuota", MORE, State.NEVER_ADMISSIBLE, State.NEVER_ADMISSIBLE),
    ("Misconfigured", "LocalQueue q doesn't exist", State.NEVER_ADMISSIBLE, State.NEVER_ADMISSIBLE),
    ("Misconfigured", "ClusterQueue cq doesn't exist", State.NEVER_ADMISSIBLE, State.NEVER_ADMISSIBLE),
    ("NoMatchingFlavor", LACKS, State.QUEUED, State.NEVER_ADMISSIBLE),
    ("NoMatchingFlavor", "flavor a doesn't match node affinity", State.QUEUED, State.NEVER_ADMISSIBLE),
    ("Suspended", "ClusterQueue cq is inactive", State.QUEUED, State.QUEUED),
    ("PendingEvaluation", "The workload is pending evaluation", State.QUEUED, State.QUEUED),
    ("WaitingForPodsReady", "waiting", State.QUEUED, State.QUEUED),
    ("TopologyPlacementFailed", "topology doesn't allow to fit", State.QUEUED, State.QUEUED),
    ("WaitingForPreemptedWorkloads", f"{LESS}. Pending the preemption of 1 workload(s)", State.QUEUED, State.QUEUED),
    ("Deactivated", "The workload is deactivated", State.CANCELLED, State.CANCELLED),
    # before 0.19
    ("Pending", LESS, State.QUEUED, State.QUEUED),
    ("Pending", MORE, State.NEVER_ADMISSIBLE, State.NEVER_ADMISSIBLE),
    ("Pending", f"{MORE}; {LESS}", State.QUEUED, State.QUEUED),  # another flavour may do
    ("Inadmissible", "LocalQueue q doesn't exist", State.NEVER_ADMISSIBLE, State.NEVER_ADMISSIBLE),
    ("Inadmissible", "ClusterQueue cq doesn't exist", State.NEVER_ADMISSIBLE, State.NEVER_ADMISSIBLE),
    ("Pending", LACKS, State.QUEUED, State.NEVER_ADMISSIBLE),
    ("Inadmissible", "LocalQueue q is inactive", State.QUEUED, State.QUEUED),
    ("SomethingNew", "words", State.QUEUED, State.QUEUED),
]  # fmt: skip


@pytest.mark.parametrize(("reason", "message", "first", "later"), ADMISSIONS)
def test_the_reason_of_a_pending_workload_is_kueues_message(
    reason: str, message: str, first: State, later: State
) -> None:
    mine = workload(("QuotaReserved", "False", reason, message))
    gated = pod(
        {"phase": "Pending"}, node="", spec={"schedulingGates": [{"name": "kueue.x-k8s.io/admission"}]}, labels=QUEUE
    )
    for root in (queued(), gated):
        now, then, verdict = patience(root, workload=mine)
        assert (now, then) == (first, later)
        assert verdict.status.reason == f"Kueue (queue q): {message}"
        assert verdict.stop == verdict.final == (not later.live)


def test_admission_checks_decide_about_a_workload() -> None:
    reserved = ("QuotaReserved", "True", "QuotaReserved", "")

    def checked(state: str) -> JobVerdict:
        checks = [{"name": "prov", "state": state, "message": "wait"}, {"name": "ok", "state": "Ready"}]
        return look(queued(), workload=workload(reserved, admissionChecks=checks), waited=LONG)

    pending = checked("Pending").status
    assert pending.state is State.QUEUED
    assert pending.reason == "Kueue (queue q): admission checks pending: prov (Pending) wait"
    assert checked("Retry").status.state is State.QUEUED
    assert checked("Rejected").status.state is State.NEVER_ADMISSIBLE


EVICTIONS: list[Any] = [
    ("Preempted", "Preempted to accommodate a workload", State.QUEUED, State.PREEMPTED),
    ("PodsReadyTimeout", "Exceeded the PodsReady timeout ns/job-j", State.QUEUED, State.START_DEADLINE),
    ("ClusterQueueStopped", "The ClusterQueue is stopped", State.QUEUED, State.CANCELLED),
    ("LocalQueueStopped", "The LocalQueue is stopped", State.QUEUED, State.CANCELLED),
    ("NodeFailures", "Workload was evicted due to node failures", State.QUEUED, State.NODE_LOST),
    ("AdmissionCheck", "At least one admission check is false", State.QUEUED, State.PREEMPTED),
    ("MaximumExecutionTimeExceeded", "exceeding the maximum execution time", State.START_DEADLINE, State.TIME_LIMIT),
    ("DeactivatedDueToMaximumExecutionTimeExceeded", "deactivated", State.START_DEADLINE, State.TIME_LIMIT),
    ("Deactivated", "The workload is deactivated due to exceeding the maximum execution time",
     State.START_DEADLINE, State.TIME_LIMIT),
    ("DeactivatedDueToRequeuingLimitExceeded", "exceeding the limit", State.START_DEADLINE, State.START_DEADLINE),
    ("Deactivated", "exceeding the maximum number of re-queuing retries: requeuing limit exceeded",
     State.START_DEADLINE, State.START_DEADLINE),
    ("DeactivatedDueToAdmissionCheck", "rejected", State.NEVER_ADMISSIBLE, State.NEVER_ADMISSIBLE),
    ("Deactivated", "The workload is deactivated", State.CANCELLED, State.CANCELLED),
    ("SomethingNew", "words", State.QUEUED, State.PREEMPTED),
]  # fmt: skip


@pytest.mark.parametrize(("reason", "message", "unstarted", "ran"), EVICTIONS)
def test_each_kueue_eviction_has_its_state(reason: str, message: str, unstarted: State, ran: State) -> None:
    mine = workload(("Evicted", "True", reason, message), ("QuotaReserved", "False", "Pending", LESS))
    before = look(queued(), gone_pods=[pod(waiting("ContainerCreating"))], workload=mine)
    assert before.status.state is unstarted
    assert message in before.status.reason
    if unstarted is State.QUEUED:
        assert before.status.reason.startswith(f"evicted: {reason}: {message}, queued again")
        idle = {**mine, "spec": {"queueName": "q", "active": False}}
        assert look(queued(), workload=idle).status.state is State.CANCELLED
    polite = pod(ended(0, at=50), **DELETED)
    for gone in (pod(running()), pod(running(), **DELETED), pod(ended(143, at=50), **DELETED), polite):
        after = look(queued(), gone_pods=[gone], workload=mine)
        assert (after.status.state, after.stop) == (ran, True)  # it would start again
        assert message in after.status.reason
    assert look(queued(COMPLETE), polite, workload=mine).status.state is ran  # to a Job its exit code is good
    events = [event("Started", "Container started", "p")]
    events[0]["involvedObject"]["fieldPath"] = "spec.containers{c}"
    assert look(queued(), workload=mine, events=events).status.state is ran
    # a plain pod is deleted, not queued again
    lone = pod(running(), **DELETED)
    assert look(None, gone_root=lone, workload=mine).status.state is ran


def test_an_evicted_job_that_ran_is_preempted_even_without_rights_to_kueue() -> None:
    for gone in (pod(running()), pod(ended(143, at=50), **DELETED), pod(ended(0, at=50), **DELETED)):
        verdict = look(queued(), gone_pods=[gone])
        assert (verdict.status.state, verdict.stop) == (State.PREEMPTED, True)
    admitted = workload(("Evicted", "False", "QuotaReserved", "Previously: Preempted"), ("Admitted", "True", "", ""))
    again = pod(running(), "b", creationTimestamp="2026-11-20T22:30:00Z")
    torn = look(queued(suspend=False), again, gone_pods=[pod(running())], workload=admitted)
    assert (torn.status.state, torn.stop) == (State.PREEMPTED, True)
    assert torn.status.reason.endswith("queued again: Previously: Preempted")
    unstarted = look(queued(suspend=False), again, gone_pods=[pod(waiting("ContainerCreating"))], workload=admitted)
    assert unstarted.status.state is State.RUNNING


KUEUE_STOPS = [
    ("StoppedByKueue", "exceeding the maximum execution time"),
    ("StoppedByKueue", "Exceeded the PodsReady timeout ns/w"),
    ("StoppedByKueue", "Preempted to accommodate a higher priority Workload"),
]
STOPPED = [State.TIME_LIMIT, State.START_DEADLINE, State.PREEMPTED]


@pytest.mark.parametrize(("said", "state"), [*zip(KUEUE_STOPS, STOPPED, strict=True)])
def test_a_plain_pod_that_kueue_stopped_is_judged_by_its_condition(said: tuple[str, str], state: State) -> None:
    """Its Workload goes with the pod; the pod's own condition tells."""
    last = pod(running(**disrupted(*said, "TerminationTarget")), **DELETED)
    assert look(None, gone_root=last).status.state is state


def test_an_evicted_job_may_become_never_admissible() -> None:
    mine = workload(("Evicted", "True", "Preempted", "words"), ("QuotaReserved", "False", "ExceedsMaxQuota", MORE))
    verdict = look(queued(), workload=mine)
    assert (verdict.status.state, verdict.stop) == (State.NEVER_ADMISSIBLE, True)
    assert "queued again: Kueue (queue q)" in verdict.status.reason


def test_the_workload_of_a_job_is_found_in_any_version() -> None:
    assert kueue.version(("v1beta1", "v1beta2")) == "v1beta2"
    assert kueue.version(("v1beta1",)) == "v1beta1"
    assert kueue.version(("v1",)) == "v1"
    assert kueue.version(()) is None
    assert kueue.queue_of(queued()) == "q"
    assert kueue.queue_of(job()) == ""
    mine, root = workload(), job()
    labelled = {"metadata": {"labels": {"kueue.x-k8s.io/job-uid": "j"}, "creationTimestamp": "2027-01-01T00:00:00Z"}}
    strange = {"metadata": {"ownerReferences": [{"kind": "Job", "name": "j", "uid": "another"}]}}
    assert kueue.by_owner([strange, mine])[kueue.owner_key(root)] is mine
    assert kueue.by_owner([labelled, mine])[kueue.owner_key(root)] is labelled
    assert kueue.owner_key(root) not in kueue.by_owner([strange])
    manifest = {"kind": "Job", "metadata": {"name": "j"}}
    assert kueue.by_owner([mine])[kueue.owner_key(manifest)] is mine
