"""What becomes of a job, seen at its pods: while they wait, run and end, and when something takes them away."""

from __future__ import annotations

import functools
from typing import Any

import pytest

from platforms.job import State
from platforms.schedulers.kubernetes.objects.fields import REASON_LENGTH
from platforms.schedulers.kubernetes.objects.pod_history import NO_HISTORY, with_observation
from platforms.schedulers.kubernetes.status import reasons
from tests.platforms.kubernetes_objects import (
    BORN,
    COMPLETE,
    DELETED,
    LONG,
    NAMES,
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
    pods_of,
    recorded,
    running,
    told,
    unscheduled,
    waiting,
    was,
)

# --- what was recorded: pods -----------------------------------------------------------------------------------------

PODS = {
    "badcmd": (State.NOT_STARTABLE, State.NOT_STARTABLE,
               'exec: "/no/such/binary": stat /no/such/binary: no such file or directory'),
    "crashloop": (State.EXITED, State.EXITED, "exit code 1, restarted 1 time"),
    "deadline": (State.TIME_LIMIT, State.TIME_LIMIT, "Pod was active on the node longer than the specified deadline"),
    "deadline-pending": (State.START_DEADLINE, State.START_DEADLINE,
                         "until then ImagePullBackOff: 127.0.0.1:25999/bench/none:1: not found"),
    "exit3": (State.EXITED, State.EXITED, "exit code 3"),
    "gpu-ok": (State.SUCCEEDED, State.SUCCEEDED, ""),
    "img-401": (State.IMAGE, State.IMAGE, "127.0.0.1:25999/denied/none:1: pulling from host 127.0.0.1:25999 failed "
                "with status code [manifests 1]: 401 Unauthorized"),
    "img-404": (State.IMAGE, State.IMAGE, "127.0.0.1:25999/bench/none:1: not found"),
    "img-500": (State.STARTING, State.IMAGE, "500 Internal Server Error"),
    "img-invalid": (State.IMAGE, State.IMAGE, "couldn't parse image name \"Bad Image:1:2\""),
    "img-never": (State.IMAGE, State.IMAGE, "is not present with pull policy of Never"),
    "img-refused": (State.STARTING, State.IMAGE, "connect: connection refused"),
    "novolume": (State.VOLUME, State.VOLUME, 'persistentvolumeclaim "nope" not found'),
    "oom": (State.OUT_OF_MEMORY, State.OUT_OF_MEMORY, "OOMKilled"),
    "oom-child": (State.OUT_OF_MEMORY, State.OUT_OF_MEMORY, "though it ended with exit code 0"),
    "pvc": (State.SUCCEEDED, State.SUCCEEDED, ""),
    "unsched-gpu": (State.QUEUED, State.QUEUED, "Insufficient nvidia.com/gpu"),
    "unsched-sel": (State.QUEUED, State.NEVER_ADMISSIBLE, "didn't match Pod's node affinity/selector"),
}  # fmt: skip


def test_every_recorded_pod_is_judged() -> None:
    assert sorted([*PODS, "job-backoff", "job-jdeadline", "job-onfailure", "job-par", "job-ttl"]) == NAMES


@pytest.mark.parametrize("name", PODS)
def test_each_recorded_pod_has_its_state_and_reason(name: str) -> None:
    first, later, words = PODS[name]
    one = was(name)
    assert patience(one, one, events=told(name))[:2] == (first, later)
    verdict = look(one, one, waited=LONG, events=told(name))
    assert words in verdict.status.reason
    assert len(verdict.status.reason) <= REASON_LENGTH
    over = one["status"]["phase"] in ("Succeeded", "Failed")
    assert verdict.stop == (verdict.final and not over)  # what waits for ever, or is started again, must be stopped
    assert verdict.final == (not verdict.status.state.live)


@pytest.mark.parametrize("name", PODS)
def test_a_failed_job_has_the_state_and_reason_of_its_recorded_pod(name: str) -> None:
    """A Job that has failed is not known by its own reason, but by its pod's."""
    one = was(name)
    first, later, words = PODS[name]
    over = one["status"]["phase"] in ("Succeeded", "Failed")
    good = one["status"]["phase"] == "Succeeded"
    root = job(COMPLETE) if good else failed("BackoffLimitExceeded") if over else job({"active": 1})
    if name == "crashloop":
        root = job({"active": 1}, backoffLimit=0)
    assert patience(root, one, events=told(name))[:2] == (first, later)
    assert words in look(root, one, events=told(name), waited=LONG).status.reason


def test_run_times_are_the_containers_own_and_1970_counts_as_unknown() -> None:
    status = look(was("deadline")).status
    assert (status.run_s, status.exit_code, status.signal, status.nodes) == (5.0, 137, 9, ("127.0.0.1",))
    assert (status.submitted_s, status.started_s) == (1795212600.0, 1795212686.0)
    bad = look(was("badcmd")).status
    assert (bad.started_s, bad.ended_s, bad.exit_code) == (None, None, 128)
    assert look(was("oom")).status.signal == 9
    assert look(was("gpu-ok")).status.exit_code == 0


def test_events_are_listed_in_order_with_their_count() -> None:
    told_now = look(was("img-404"), events=told("img-404")).status.events
    assert told_now[0] == "Scheduled: Successfully assigned default/img-404 to 127.0.0.1"
    assert 'Pulling: Pulling image "127.0.0.1:25999/bench/none:1" (x2)' in told_now
    assert told_now[-1] == "Failed: Error: ImagePullBackOff"
    many = [event("E", f"number {n}", at=n) for n in range(30)] + [event("E", "number 29", at=40)]
    last = look(was("exit3"), events=many).status.events
    assert (len(last), last[0], last[-1]) == (10, "E: number 20", "E: number 29 (x2)")
    newer = {"reason": "N", "note": "words", "regarding": {"uid": "p"}, "series": {"count": 7}, "eventTime": BORN}
    assert look(was("exit3"), events=[newer]).status.events == ("N: words (x7)",)


def test_events_explain_an_image_back_off_without_a_message() -> None:
    """Kubelets before 1.30 say why only in the event."""
    one = pod(
        waiting("ImagePullBackOff", 'Back-off pulling image "r/x:1"'),
        spec={"containers": [{"name": "c", "image": "r/x:1"}]},
    )
    assert patience(one)[:2] == (State.STARTING, State.IMAGE)
    why = 'rpc error: code = NotFound desc = failed to resolve reference "r/x:1": r/x:1: not found'
    verdict = look(one, events=[event("Failed", f'Failed to pull image "r/x:1": {why}', "p")])
    assert (verdict.status.state, verdict.status.reason) == (State.IMAGE, "r/x:1: not found")


def test_an_image_name_that_reads_like_an_error_is_no_reason() -> None:
    image = "r.org/timeout-500-not-found:1"
    spec = {"containers": [{"name": "c", "image": image}]}
    gone = pod(waiting("ErrImagePull", f"{image}: manifest unknown"), spec=spec)
    away = pod(waiting("ErrImagePull", f"{image}: dial tcp: i/o timeout"), spec=spec)
    assert look(gone).status.state is State.IMAGE
    assert look(away).status.state is State.STARTING


# --- what was recorded: jobs -----------------------------------------------------------------------------------------


def test_recorded_indexed_job_succeeds_with_four_pods() -> None:
    root = job(recorded("job-par")["status"], completions=4, parallelism=2, completionMode="Indexed")
    pods = pods_of("job-par", lambda each: ended(0, message_of_end=f"word of {each['name']}"))
    verdict = look(root, *reversed(pods), events=told("job-par"))
    assert (verdict.status.state, verdict.status.exit_code) == (State.SUCCEEDED, 0)
    assert (verdict.stop, verdict.final) == (False, True)
    assert verdict.status.last_word == "word of par-0-mzzx8"
    # the watch of the pods is behind that of the Job
    late = [*pods[:3], pod(running(), "par-3-5qndd")]
    assert patience(root, *late)[:2] == (State.RUNNING, State.SUCCEEDED)


@pytest.mark.parametrize("step", range(8))
def test_recorded_indexed_job_is_live_until_its_last_condition(step: int) -> None:
    _at, _what, counts, conditions_then = recorded("job-par")["transitions"][step]
    said = [(name, "True", reason, "") for name, reason in conditions_then]
    root = job({**counts, **conditions(*said)}, completions=4, parallelism=2)
    pods = [pod(ended(0), "par-0", labels={"batch.kubernetes.io/job-completion-index": "0"}), pod(running(), "par-1")]
    last = step == 7
    assert look(root, *pods, waited=LONG if last else 0.0).status.state is (State.SUCCEEDED if last else State.RUNNING)


def test_recorded_backoff_has_the_pods_failure_once_the_job_has_ended() -> None:
    pods = pods_of("job-backoff", lambda each: ended(2))
    between = job({"failed": 1}, backoffLimit=1)
    verdict = look(between, pods[1], waited=LONG)
    assert (verdict.status.state, verdict.stop) == (State.STARTING, False)
    assert verdict.status.reason == "tried again after exit code 2"
    again = look(
        between, pods[1], pod(running(), "backoff-jdh8h", creationTimestamp="2026-11-20T22:13:34Z"), waited=LONG
    )
    assert (again.status.state, again.stop) == (State.RUNNING, False)
    over = look(job(recorded("job-backoff")["status"], backoffLimit=1), *pods)
    assert (over.status.state, over.status.exit_code, over.stop) == (State.EXITED, 2, False)
    assert "Job has reached the specified backoff limit" in over.status.reason


def test_recorded_job_deadline_is_a_time_limit_after_its_pods_are_deleted() -> None:
    root = job(recorded("job-jdeadline")["status"])
    assert look(root, events=told("job-jdeadline")).status.state is State.TIME_LIMIT
    assert look(root, gone_pods=[pod(running())]).status.state is State.TIME_LIMIT
    never = look(root, gone_pods=[pod(waiting("ContainerCreating"))])
    assert (never.status.state, never.stop) == (State.START_DEADLINE, False)
    assert never.status.reason == (
        "DeadlineExceeded: Job was active longer than specified deadline; until then ContainerCreating"
    )
    dying = job({**conditions(("FailureTarget", "True", "DeadlineExceeded", "")), "terminating": 1})
    assert look(dying, pod(running())).status.state is State.RUNNING  # not yet its last word


def test_recorded_job_that_restarts_its_container_fails_at_its_backoff_limit() -> None:
    root = job(recorded("job-onfailure")["status"])
    seen = pod(ended(4), "onfailure-zp8ls", spec={"restartPolicy": "OnFailure"})
    assert look(root, gone_pods=[seen]).status.exit_code == 4
    unseen = look(root)
    assert (unseen.status.state, unseen.status.exit_code) == (State.EXITED, None)
    assert "Job has reached the specified backoff limit" in unseen.status.reason


def test_a_job_deleted_by_its_ttl_keeps_its_end_and_names_the_ttl() -> None:
    ttl = {"ttlSecondsAfterFinished": 60}
    last = job(recorded("job-ttl")["status"], **ttl)
    assert look(None, gone_root=last, gone_pods=[pod(ended(0))]).status.state is State.SUCCEEDED
    assert look(None, gone_root=last, gone_pods=[pod(ended(0, "OOMKilled"))]).status.state is State.OUT_OF_MEMORY
    unseen = look(None, gone_root=job({"active": 1}, **ttl), gone_pods=[pod(running())])
    assert (unseen.status.state, unseen.stop) == (State.LOST, False)
    assert "ttlSecondsAfterFinished (60 s)" in unseen.status.reason
    first, later, verdict = patience(None)
    assert (first, later) == (State.UNKNOWN, State.LOST)
    assert "ttlSecondsAfterFinished" in verdict.status.reason


# --- how pods end ----------------------------------------------------------------------------------------------------


ENDS: list[Any] = [
    (ended(0), State.SUCCEEDED, 0, None),
    (ended(1), State.EXITED, 1, None),
    (ended(66), State.EXITED, 66, None),  # what it means in our own jobs the runner knows
    (ended(75), State.EXITED, 75, None),
    (ended(75, message_of_end="hpc-ml-bench: not after"), State.START_DEADLINE, 75, None),
    (ended(126), State.NOT_STARTABLE, 126, None),
    (ended(127), State.NOT_STARTABLE, 127, None),
    (ended(137), State.SIGNALLED, 137, 9),
    (ended(139), State.SIGNALLED, 139, 11),
    (ended(143), State.SIGNALLED, 143, 15),
    (ended(255), State.EXITED, 255, None),
    (ended(137, "OOMKilled"), State.OUT_OF_MEMORY, 137, 9),
    (ended(1, "OOMKilled"), State.OUT_OF_MEMORY, 1, None),
    (ended(0, "OOMKilled"), State.OUT_OF_MEMORY, 0, None),
    (ended(128, "StartError"), State.NOT_STARTABLE, 128, None),
    (ended(127, "ContainerCannotRun"), State.NOT_STARTABLE, 127, None),
    (ended(137, "ContainerStatusUnknown"), State.LOST, 137, 9),
    (ended(137) | {"reason": "Evicted", "message": "The node was low on resource: memory."},
     State.EVICTED, 137, 9),
    (ended(137) | {"reason": "Evicted", "message": "The node had condition: [DiskPressure]. "}, State.EVICTED, 137, 9),
    (ended(137) | {"reason": "Evicted", "message": 'Usage of EmptyDir volume "s" exceeds the limit "10Mi". '},
     State.SIGNALLED, 137, 9),
    (ended(137) | {"reason": "Evicted", "message": 'Container c exceeded its local ephemeral storage limit "1Gi". '},
     State.SIGNALLED, 137, 9),
    (ended(137) | {"reason": "Evicted", "message": "Pod ephemeral local storage usage exceeds the total limit of "
                   "containers 8Gi. "}, State.SIGNALLED, 137, 9),
    (ended(137) | {"reason": "Evicted", "message": 'Usage of EmptyDir volume "shm" exceeds the limit "1Gi". '},
     State.OUT_OF_MEMORY, 137, 9),
    (ended(137) | {"reason": "Preempting", "message": "Preempted in order to admit critical pod"},
     State.PREEMPTED, 137, 9),
    (ended(137) | {"reason": "NodeShutdown"}, State.NODE_LOST, 137, 9),
    (ended(137) | {"reason": "Terminated", "message": "Pod was terminated in response to imminent node shutdown."},
     State.NODE_LOST, 137, 9),
    ({"phase": "Failed", "reason": "NodeLost"}, State.NODE_LOST, None, None),
    ({"phase": "Failed", "reason": "OutOfnvidia.com/gpu"}, State.NOT_STARTABLE, None, None),
    ({"phase": "Failed", "reason": "UnexpectedAdmissionError", "message": "Allocate failed"},
     State.NOT_STARTABLE, None, None),
    ({"phase": "Failed", "reason": "NodeAffinity"}, State.NOT_STARTABLE, None, None),
    ({"phase": "Failed"}, State.LOST, None, None),
    ({"phase": "Failed", "reason": "SomethingNew", "message": "words"}, State.LOST, None, None),
    # 1.20: the pod has failed and its container runs on
    ({**running(), "phase": "Failed", "reason": "DeadlineExceeded"}, State.TIME_LIMIT, None, None),
    ({**waiting("ContainerCreating"), "phase": "Failed", "reason": "DeadlineExceeded"},
     State.START_DEADLINE, None, None),
    (ended(143) | disrupted("PreemptionByScheduler", "preempting"), State.PREEMPTED, 143, 15),
    (ended(137) | disrupted("EvictionByEvictionAPI", "Eviction API: evicting"), State.EVICTED, 137, 9),
    (ended(143) | disrupted("DeletionByTaintManager", "Taint manager: deleting"), State.EVICTED, 143, 15),
    ({**running(), "phase": "Failed"} | disrupted("DeletionByPodGC", "PodGC: node no longer exists"),
     State.NODE_LOST, None, None),
    (ended(137) | disrupted("TerminationByKubelet", "Pod was terminated in response to imminent node shutdown."),
     State.NODE_LOST, 137, 9),
    (ended(137) | disrupted("TerminationByKubelet", "The node was low on resource"), State.EVICTED, 137, 9),
    (ended(143) | disrupted("StoppedByKueue", "Preempted to accommodate", "TerminationTarget"),
     State.PREEMPTED, 143, 15),
    (ended(143) | disrupted("SomethingNew"), State.EVICTED, 143, 15),
    (ended(0) | disrupted("EvictionByEvictionAPI"), State.SUCCEEDED, 0, None),  # it was faster
    (ended(137, "OOMKilled") | disrupted("EvictionByEvictionAPI"), State.OUT_OF_MEMORY, 137, 9),
]  # fmt: skip


@pytest.mark.parametrize(("status", "state", "code", "signal"), ENDS)
def test_each_end_of_a_pod_has_its_state(status: Json, state: State, code: int | None, signal: int | None) -> None:
    shm = {"volumes": [{"name": "shm", "emptyDir": {"medium": "Memory"}}, {"name": "s", "emptyDir": {}}]}
    one = pod(status, spec=shm)
    verdict = look(one)
    assert (verdict.status.state, verdict.status.exit_code, verdict.status.signal) == (state, code, signal)
    assert verdict.final
    assert verdict.stop == ("running" in str(status))  # its container still holds a device
    same = look(job(COMPLETE if status["phase"] == "Succeeded" else failed("BackoffLimitExceeded")["status"]), one)
    assert same.status.state is state
    if state is not State.SUCCEEDED:
        assert status.get("message", "") in verdict.status.reason + " "


def test_an_end_without_an_exit_code_is_lost() -> None:
    one = pod(ended(0))
    del one["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"]
    assert look(one).status.state is State.LOST
    assert look(job(COMPLETE), one).status.state is State.LOST


def test_exit_code_137_without_oom_says_that_memory_was_not_the_cause() -> None:
    assert look(pod(ended(137))).status.reason == "exit code 137: it was killed, and not for memory"


def test_an_ended_container_ends_the_job_once_its_pod_has_ended() -> None:
    """For a second the pod still runs; the reason of an eviction may yet come."""
    for code, state in ((0, State.SUCCEEDED), (3, State.EXITED), (137, State.SIGNALLED)):
        assert patience(pod(ended(code, phase="Running")))[:2] == (State.RUNNING, state)


EVICTION = disrupted("EvictionByEvictionAPI")


def killing(at: int, container: str = "c", about: str = "p", words: str = "") -> Json:
    """The kubelet's event at 22:11:00 and some seconds."""
    told = {"involvedObject": {"uid": about, "fieldPath": f"spec.containers{{{container}}}"}}
    when = f"2026-11-20T22:11:{at:02d}Z"
    return event("Killing", words or f"Stopping container {container}", **told, lastTimestamp=when, firstTimestamp=when)


@pytest.mark.parametrize(
    ("code", "at", "more", "killed_at", "state"),  # DELETED: asked at 22:11:30
    [
        (143, 30, {}, None, State.CANCELLED),
        (143, 26, {}, None, State.CANCELLED),  # the node's clock is behind
        (137, 25, {}, None, State.CANCELLED),
        (143, 24, {}, None, State.SIGNALLED),
        (3, 30, {}, None, State.CANCELLED),
        (3, 29, {}, None, State.EXITED),
        (3, 29, {}, 28, State.CANCELLED),
        (0, 24, {}, None, State.SUCCEEDED),
        (0, 25, {}, None, State.CANCELLED),  # the node's clock is behind, or not: nobody can tell
        (0, 30, {}, None, State.CANCELLED),
        (0, 36, {}, None, State.CANCELLED),
        (0, 24, {}, 24, State.CANCELLED),
        (0, 20, {}, 8, State.CANCELLED),  # the node's clock is far behind
        (0, 24, {}, 29, State.SUCCEEDED),  # the event comes after the end
        (0, 30, EVICTION, None, State.EVICTED),
        (0, 24, EVICTION, None, State.SUCCEEDED),
        (0, 24, EVICTION, 22, State.EVICTED),
        (3, 26, EVICTION, None, State.EVICTED),
        (3, 24, EVICTION, None, State.EXITED),
        (0, 40, disrupted("PreemptionByScheduler"), None, State.PREEMPTED),
    ],
)
def test_deletion_before_the_end_ends_a_pod_and_deletion_afterwards_does_not(
    code: int, at: int, more: Json, killed_at: int | None, state: State
) -> None:
    """Whatever its exit code is: a program may handle SIGTERM well. What nobody can know is no success."""
    one, events = pod(ended(code, at=at) | more, **DELETED), [] if killed_at is None else [killing(killed_at)]
    of_kind = job(COMPLETE) if code == 0 else failed("BackoffLimitExceeded")
    for verdict in (
        look(one, events=events),
        look(None, gone_root=one, gone_pods=[one], events=events),
        look(of_kind, one, events=events),
        look(of_kind, gone_pods=[one], events=events),
        look(None, gone_root=job({"active": 1}), gone_pods=[one], events=events),
    ):
        assert (verdict.status.state, verdict.final, verdict.stop) == (state, True, False)
        if state is State.CANCELLED:
            assert verdict.status.reason.startswith("another user or program deleted it")


def test_kill_events_of_other_containers_do_not_change_the_state() -> None:
    probe = killing(10, words="Container c failed liveness probe, will be restarted")
    others = [probe, killing(10, "d"), killing(10, about="q")]
    for code, state in ((0, State.SUCCEEDED), (3, State.EXITED)):
        assert look(pod(ended(code, at=20), **DELETED), events=others).status.state is state


def test_a_container_that_the_kubelet_stopped_is_no_success() -> None:
    """As a node does that restarts its pods' network, or runs short of something."""
    verdict = look(pod(ended(0, at=20)), events=[killing(10)])
    assert (verdict.status.state, verdict.status.exit_code) == (State.EVICTED, 0)
    assert "kubelet of n1 stopped it" in verdict.status.reason
    again = pod(ended(0, at=20), spec={"restartPolicy": "OnFailure"})
    again["status"]["containerStatuses"][0]["state"]["terminated"]["startedAt"] = "2026-11-20T22:11:15Z"
    assert look(again, events=[killing(10)]).status.state is State.SUCCEEDED  # that was the start before


LAST = {"deletionTimestamp": "2026-11-20T22:11:31Z", "deletionGracePeriodSeconds": 0, "generation": 2}


@pytest.mark.parametrize(
    ("sights", "state"),
    [
        ([pod(running(), **DELETED)], State.CANCELLED),
        ([pod(running()), pod(running(), **DELETED)], State.CANCELLED),
        ([pod(ended(0, phase="Running"))], State.SUCCEEDED),  # it had ended before anybody asked
        ([pod(ended(0, phase="Running")), pod(ended(0), **DELETED)], State.SUCCEEDED),
        ([pod(running())], State.CANCELLED),  # nobody knows which was first
    ],
)
def test_earlier_observations_decide_whether_end_or_deletion_came_first(sights: list[Json], state: State) -> None:
    """Its last sight has the time of the kubelet's own DELETE, whatever was asked when."""
    last = pod(ended(0), **LAST)
    past = functools.reduce(with_observation, [*sights, last], NO_HISTORY)
    for one in (look(last, histories={"p": past}), look(None, gone_root=last, gone_pods=[last], histories={"p": past})):
        assert one.status.state is state


@pytest.mark.parametrize(("reported", "state"), [(1, State.SUCCEEDED), (2, State.CANCELLED)])
def test_an_end_reported_after_the_deletion_was_caused_by_it(reported: int, state: State) -> None:
    assert look(pod(ended(0) | {"observedGeneration": reported}, **LAST)).status.state is state


def test_pods_deleted_after_their_success_keep_it() -> None:
    """Also a TTL, and somebody who tidies up. A job that needs each of its pods has not had this one."""
    master, worker = pod(ended(0, at=29), "m"), pod(ended(0, at=40), "w", **DELETED)
    torch = other("PyTorchJob", conditions(("Succeeded", "True", "", "")), "kubeflow.org/v1")
    assert look(torch, master, worker).status.state is State.SUCCEEDED
    assert look(torch, worker).status.state is State.CANCELLED
    two = {"completions": 2, "parallelism": 2, "completionMode": "Indexed"}
    by_policy = job(COMPLETE, **two, successPolicy={"rules": [{"succeededIndexes": "0"}]})
    assert look(by_policy, master, worker).status.state is State.SUCCEEDED
    assert look(job(COMPLETE, **two), master, worker).status.state is State.CANCELLED
    spoilt = pod(ended(0, at=40) | EVICTION, "w", **DELETED)
    assert look(by_policy, master, spoilt).status.state is State.EVICTED
    later = {"deletionTimestamp": "2026-11-20T22:12:00Z", "deletionGracePeriodSeconds": 0}
    assert look(None, gone_root=job(COMPLETE), gone_pods=[pod(ended(0), **later)]).status.state is State.SUCCEEDED
    assert look(None, gone_root=job({"active": 1}), gone_pods=[pod(ended(0), **later)]).status.state is State.SUCCEEDED


@pytest.mark.parametrize("status", [ended(0, at=40), ended(143, at=40)])
def test_an_evicted_pod_outweighs_a_deleted_one(status: Json) -> None:
    root = failed("BackoffLimitExceeded", completions=2)
    evicted = pod(running(**EVICTION), "b", **DELETED)
    assert look(root, pod(status, "a", **DELETED), gone_pods=[evicted]).status.state is State.EVICTED


def test_each_failed_container_counts_and_is_named() -> None:
    def two(first: Json, second: Json, phase: str = "Running", **more: Any) -> Json:
        spec = {"containers": [{"name": "main", "image": "i"}, {"name": "helper", "image": "i"}], **more}
        states = [{"name": "main", "state": first}, {"name": "helper", "state": second}]
        return pod({"phase": phase, "containerStatuses": states}, spec=spec)

    good, bad = ({"terminated": ended(code)["containerStatuses"][0]["state"]["terminated"]} for code in (0, 7))
    runs = running()["containerStatuses"][0]["state"]
    assert look(two(good, good, "Succeeded")).status.state is State.SUCCEEDED
    verdict = look(two(good, bad, "Failed"))
    assert (verdict.status.state, verdict.status.exit_code) == (State.EXITED, 7)
    assert verdict.status.reason == "container helper: exit code 7"
    assert look(two(good, runs), waited=LONG).status.state is State.RUNNING
    first, later, verdict = patience(two(bad, runs))  # the other one may go on for ever
    assert (first, later, verdict.stop) == (State.RUNNING, State.EXITED, True)


def test_init_containers_are_named_and_sidecars_do_not_count() -> None:
    init = [{"name": "fetch", "image": "i"}, {"name": "proxy", "image": "i", "restartPolicy": "Always"}]
    spec = {"initContainers": init, "containers": [{"name": "c", "image": "i:1"}]}
    bad, code0, killed = (ended(code)["containerStatuses"][0]["state"] for code in (1, 0, 143))
    failed_first = {"phase": "Failed", "initContainerStatuses": [{"name": "fetch", "state": bad}]}
    verdict = look(pod({**waiting("PodInitializing"), **failed_first}, spec=spec))
    assert (verdict.status.state, verdict.status.reason) == (State.EXITED, "init container fetch: exit code 1")
    states = [{"name": "fetch", "state": code0}, {"name": "proxy", "state": killed}]
    assert look(pod({**ended(0), "initContainerStatuses": states}, spec=spec)).status.state is State.SUCCEEDED
    pulling = [{"name": "fetch", "state": {"waiting": {"reason": "InvalidImageName", "message": "Bad"}}}]
    verdict = look(pod({**waiting("PodInitializing"), "initContainerStatuses": pulling}, spec=spec))
    assert (verdict.status.state, verdict.status.reason) == (State.IMAGE, "init container fetch: Bad")
    runs = [{"name": "fetch", "state": {"running": {}}}]
    verdict = look(pod({**waiting("PodInitializing"), "initContainerStatuses": runs}, spec=spec))
    assert (verdict.status.state, verdict.status.reason) == (State.STARTING, "init container fetch runs")


def test_the_last_word_is_that_of_rank_0() -> None:
    index = "batch.kubernetes.io/job-completion-index"
    pods = [pod(ended(0, message_of_end=f"w{n}"), f"p{n}", annotations={index: str(n)}) for n in (10, 2, 0)]
    assert look(job(COMPLETE, completions=3), *pods).status.last_word == "w0"
    assert look(was("badcmd")).status.last_word == ""  # the runtime's, not its own
    assert look(pod(ended(75, message_of_end="hpc-ml-bench: not after"))).status.last_word == ""
    assert look(pod(ended(3, message_of_end='{"exit_code": 3}'))).status.last_word == '{"exit_code": 3}'
    master = {"training.kubeflow.org/replica-type": "master", "training.kubeflow.org/replica-index": "0"}
    worker = {**master, "training.kubeflow.org/replica-type": "worker"}
    both = [pod(ended(0, message_of_end=name), name, labels=each) for name, each in (("a", worker), ("b", master))]
    assert look(other("PyTorchJob", conditions(("Succeeded", "True", "", ""))), *both).status.last_word == "b"


# --- how pods wait ---------------------------------------------------------------------------------------------------

USER = "`user: 1000` under `kubernetes:`"


WAITS: list[Any] = [
    ("ContainerCreating", "", State.STARTING, State.STARTING, "ContainerCreating"),
    ("PodInitializing", "", State.STARTING, State.STARTING, "PodInitializing"),
    ("ErrImagePull", "toomanyrequests: You have reached your pull rate limit", State.STARTING, State.IMAGE, "rate"),
    ("ErrImagePull", "dial tcp: lookup r.org: no such host", State.STARTING, State.IMAGE, "no such host"),
    ("ErrImagePull", "context deadline exceeded", State.STARTING, State.IMAGE, "deadline"),
    ("ErrImagePull", "unexpected status from HEAD request: 503 Service Unavailable", State.STARTING, State.IMAGE, ""),
    ("ErrImagePull", "pull access denied, repository does not exist", State.IMAGE, State.IMAGE, "denied"),
    ("ErrImagePull", "no match for platform in manifest: not found", State.IMAGE, State.IMAGE, "platform"),
    ("ErrImagePull", "x509: certificate signed by unknown authority", State.STARTING, State.IMAGE, "x509"),
    ("CreateContainerConfigError", 'secret "nope" not found', State.SECRET, State.SECRET, 'secret "nope" not found'),
    ("CreateContainerConfigError", 'configmap "nope" not found', State.SECRET, State.SECRET, "configmap"),
    ("CreateContainerConfigError", "couldn't find key k in Secret ns/s", State.SECRET, State.SECRET, "key k"),
    ("CreateContainerConfigError", "failed to sync secret cache: timed out waiting for the condition",
     State.STARTING, State.SECRET, "timed out"),
    ("CreateContainerConfigError", "container has runAsNonRoot and image will run as root (pod: \"p\")",
     State.NOT_STARTABLE, State.NOT_STARTABLE, USER),
    ("CreateContainerConfigError", "container has runAsNonRoot and image has non-numeric user (me), cannot verify",
     State.NOT_STARTABLE, State.NOT_STARTABLE, USER),
    ("CreateContainerConfigError", 'failed to prepare subPath for volumeMount "d" of container "c"',
     State.STARTING, State.VOLUME, "subPath"),
    ("CreateContainerConfigError", "something new", State.NOT_STARTABLE, State.NOT_STARTABLE, "something new"),
    ("CreateContainerError", "no command specified", State.NOT_STARTABLE, State.NOT_STARTABLE, "no command"),
    ("CreateContainerError", "context deadline exceeded", State.STARTING, State.NOT_STARTABLE, "deadline"),
    ("RunContainerError", "exec: not found", State.STARTING, State.NOT_STARTABLE, "exec"),
    ("SomethingNew", "words", State.STARTING, State.STARTING, "SomethingNew: words"),
]  # fmt: skip


@pytest.mark.parametrize(("reason", "message", "first", "later", "words"), WAITS)
def test_each_waiting_reason_has_its_state(reason: str, message: str, first: State, later: State, words: str) -> None:
    for root, one in ((None, pod(waiting(reason, message))), (job({"active": 1}), pod(waiting(reason, message)))):
        now, then, verdict = patience(root or one, one)
        assert (now, then) == (first, later)
        assert words in verdict.status.reason
        assert verdict.stop == verdict.final == (not later.live)


def test_a_waiting_reason_is_final_after_its_time_in_the_table() -> None:
    one = was("img-refused")
    almost = look(one, waited=lambda name: reasons.IMAGE_S - 1 if name == "IMAGE" else 0.0)
    assert (almost.status.state, almost.final, almost.stop) == (State.STARTING, False, False)
    assert "connection refused" in almost.status.reason
    assert look(one, waited=lambda name: reasons.IMAGE_S if name == "IMAGE" else 0.0).status.state is State.IMAGE


def test_pods_that_do_not_start_for_too_long_fail() -> None:
    slow = pod(waiting("ContainerCreating"))
    verdict = look(slow, waited=1200, start_limit_s=1200)
    assert (verdict.status.state, verdict.stop) == (State.START_DEADLINE, True)
    assert "ContainerCreating" in verdict.status.reason
    assert look(slow, waited=1199, start_limit_s=1200).status.state is State.STARTING
    assert look(was("unsched-gpu"), waited=LONG, start_limit_s=1200).status.state is State.QUEUED  # it has no node


SELECTOR = "didn't match Pod's node affinity/selector"


UNSCHEDULABLE: list[Any] = [
    (f"0/3 nodes are available: 3 node(s) {SELECTOR}. preemption: 0/3 nodes are available: 3 Preemption is not "
     "helpful for scheduling.", State.NEVER_ADMISSIBLE),
    (f"0/3 nodes are available: 1 node(s) had untolerated taint {{node-role.kubernetes.io/control-plane: }}, "
     f"2 node(s) {SELECTOR}.", State.NEVER_ADMISSIBLE),
    ("0/2 nodes are available: 1 node(s) had taint {node-role.kubernetes.io/master: }, that the pod didn't tolerate, "
     "1 node(s) didn't match node selector.", State.NEVER_ADMISSIBLE),
    (f"0/3 nodes are available: 1 Insufficient nvidia.com/gpu, 2 node(s) {SELECTOR}.", State.QUEUED),
    (f"0/3 nodes are available: 1 node(s) were unschedulable, 2 node(s) {SELECTOR}.", State.QUEUED),
    (f"0/3 nodes are available: 1 node(s) had untolerated taint {{team: a}}, 2 node(s) {SELECTOR}.", State.QUEUED),
    (f"0/3 nodes are available: 1 node(s) had untolerated taint(s), 2 node(s) {SELECTOR}. no new claims to deallocate, "
     "preemption: 0/3 nodes are available: 3 Preemption is not helpful for scheduling.", State.NEVER_ADMISSIBLE),
    ("0/3 nodes are available: 3 node(s) had untolerated taint(s).", State.QUEUED),
    (f"0/4 nodes are available: 1 Insufficient cpu, 1 node(s) had untolerated taint(s), 2 node(s) {SELECTOR}.",
     State.QUEUED),
    ("0/2 nodes are available: 1 node(s) had untolerated taint(s), 1 node(s) had volume node affinity conflict.",
     State.VOLUME),
    ("0/1 nodes are available: 1 node(s) had untolerated taint {node-role.kubernetes.io/control-plane: }.",
     State.QUEUED),
    ("0/2 nodes are available: 2 node(s) didn't match pod affinity rules.", State.QUEUED),
    ("0/4 nodes are available: 4 Insufficient cpu.", State.QUEUED),
    ("no nodes available to schedule pods", State.QUEUED),
    ("0/3 nodes are available: pod has unbound immediate PersistentVolumeClaims. not found", State.VOLUME),
    ('0/3 nodes are available: persistentvolumeclaim "d" is being deleted.', State.VOLUME),
    ("0/2 nodes are available: 2 node(s) had volume node affinity conflict.", State.VOLUME),
    ("0/2 nodes are available: 1 Insufficient cpu, 1 node(s) had volume node affinity conflict.", State.QUEUED),
]  # fmt: skip


@pytest.mark.parametrize(("message", "later"), UNSCHEDULABLE)
def test_unschedulable_is_transient_unless_no_node_could_ever(message: str, later: State) -> None:
    one = pod(unscheduled(message), node="")
    first, then, verdict = patience(job({"active": 1}), one)
    assert (first, then) == (State.QUEUED, later)
    assert message[:60] in verdict.status.reason


@pytest.mark.parametrize(
    ("taint", "patience_s"),
    [("taint {node-role.kubernetes.io/control-plane: }", reasons.NEVER_S), ("taint(s)", reasons.TAINTED_S)],
)
def test_a_taint_without_a_name_may_be_that_of_a_node_that_comes_back(taint: str, patience_s: float) -> None:
    """Until 2025 Kubernetes named it."""
    words = f"0/3 nodes are available: 1 node(s) had untolerated {taint}, 2 node(s) {SELECTOR}."
    states = [look(pod(unscheduled(words), node=""), waited=patience_s + more).status.state for more in (-1, 0)]
    assert states == [State.QUEUED, State.NEVER_ADMISSIBLE]


def test_a_pod_waits_while_an_autoscaler_adds_nodes() -> None:
    one = pod(unscheduled(f"0/1 nodes are available: 1 node(s) {SELECTOR}."), node="")
    growing = [event("TriggeredScaleUp", "pod triggered scale-up", "p")]
    assert look(one, events=growing, waited=LONG).status.state is State.QUEUED


def test_a_foreign_scheduling_gate_is_named() -> None:
    one = pod({"phase": "Pending"}, node="", spec={"schedulingGates": [{"name": "example.org/wait"}]})
    verdict = look(job({"active": 1}), one, waited=LONG)
    assert (verdict.status.state, verdict.status.reason) == (State.QUEUED, "held back by example.org/wait")


MOUNTS: list[Any] = [
    ("FailedMount", 'MountVolume.SetUp failed for volume "d" : secret "s" not found', State.SECRET),
    ("FailedMount", 'MountVolume.SetUp failed for volume "code" : configmap "c" not found', State.SECRET),
    ("FailedMount", 'MountVolume.SetUp failed for volume "code" : configmap references non-existent config key: k',
     State.SECRET),
    ("FailedMount", "hostPath type check failed: /data is not a directory", State.VOLUME),
    ("FailedMount", "mount failed: exit status 32", State.VOLUME),
    ("FailedAttachVolume", "Multi-Attach error for volume", State.VOLUME),
    ("FailedMapVolume", "no such device", State.VOLUME),
    ("FailedCreatePodSandBox", "RuntimeHandler \"nvidia\" not supported", State.NOT_STARTABLE),
]  # fmt: skip


@pytest.mark.parametrize(("reason", "message", "state"), MOUNTS)
def test_events_explain_a_pod_that_is_being_created(reason: str, message: str, state: State) -> None:
    one = pod(waiting("ContainerCreating"))
    said = event(reason, message, "p", at=5)
    first, later, verdict = patience(one, events=[said])
    assert (first, later, verdict.status.reason) == (State.STARTING, state, f"{reason}: {message}")
    assert look(one, events=[said, event("Pulling", "image", "p", at=6)], waited=LONG).status.state is State.STARTING
    assert look(one, events=[event(reason, message, "another")], waited=LONG).status.state is State.STARTING
    assert look(pod(running()), events=[said], waited=LONG).status.state is State.RUNNING


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"cpu": "9999"}, "no node is large enough: it requests 9999 cpu, and the largest node has 16: 0/2 nodes are"),
        ({"nvidia.com/gpu": "8"}, "no node is large enough: it requests 8 nvidia.com/gpu, and the largest node has 4:"),
        ({"cpu": "16"}, ""),
        ({}, ""),
    ],
)
def test_a_pod_that_is_larger_than_any_node_is_never_admissible(asked: Json, said: str) -> None:
    """And not one that others leave no room for."""
    message = "0/2 nodes are available: 2 Insufficient cpu, 2 Insufficient nvidia.com/gpu."
    box = {"name": "c", "resources": {"requests": asked}}
    one = pod(unscheduled(message), node="", spec={"containers": [box]})
    nodes = {"a": {"status": {"allocatable": {"cpu": "8", "nvidia.com/gpu": "4"}}},
             "b": {"status": {"allocatable": {"cpu": "16"}}}}  # fmt: skip
    first, later, verdict = patience(one, nodes=nodes)
    assert (first, later) == (State.QUEUED, State.NEVER_ADMISSIBLE if said else State.QUEUED)
    assert verdict.status.reason.startswith(said or message)
    assert look(one, waited=LONG).status.state is State.QUEUED  # nodes may not be ours to see


def test_a_pod_passes_through_the_states_from_queued_to_its_end() -> None:
    scheduled = conditions(("PodScheduled", "True", "", ""))
    way = [
        (pod({"phase": "Pending"}, node=""), State.QUEUED),
        (pod({"phase": "Pending"}, node="", spec={"schedulingGates": [{"name": "g"}]}), State.QUEUED),
        (pod(unscheduled("0/1 nodes are available: 1 Insufficient cpu."), node=""), State.QUEUED),
        (pod({"phase": "Pending", **scheduled}), State.STARTING),
        (pod(waiting("ContainerCreating") | scheduled), State.STARTING),
        (pod(running()), State.RUNNING),
        (pod(ended(0, phase="Running")), State.RUNNING),
        (pod(ended(0)), State.SUCCEEDED),
    ]
    assert [look(one).status.state for one, _state in way] == [state for _one, state in way]
    assert look(way[5][0]).status.started_s == 1795212660.0
    assert look(way[5][0]).status.ended_s is None
    assert [look(one).stop for one, _state in way] == [False] * len(way)


def test_crash_loops_carry_the_last_exit_code() -> None:
    def loop(last: Json | None, **spec: Any) -> Json:
        state = {"lastState": {"terminated": last} if last else {}, "restartCount": 3}
        return pod(waiting("CrashLoopBackOff", "back-off 40s", **state), spec={"restartPolicy": "Always", **spec})

    end = ended(9)["containerStatuses"][0]["state"]["terminated"]
    verdict = look(loop(end))
    assert (verdict.status.state, verdict.status.exit_code, verdict.stop) == (State.EXITED, 9, True)
    assert verdict.status.reason == "exit code 9, restarted 3 times"
    assert look(loop({**end, "reason": "OOMKilled", "exitCode": 137})).status.state is State.OUT_OF_MEMORY
    assert look(loop(None)).status.state is State.EXITED
    forever = look(loop({**end, "exitCode": 0}))
    assert (forever.status.state, forever.status.exit_code) == (State.EXITED, None)
    assert "restartPolicy: Never" in forever.status.reason
    retrying = look(job({"active": 1}, backoffLimit=6), loop(end, restartPolicy="OnFailure"), waited=LONG)
    assert (retrying.status.state, retrying.stop) == (State.RUNNING, False)
    assert "exit code 9, restarted 3 times" in retrying.status.reason


# --- what takes pods away --------------------------------------------------------------------------------------------


def test_a_job_on_a_silent_node_is_unknown_and_later_lost() -> None:
    one = pod(running(**conditions(("Ready", "False", "", ""))))
    said = {"n1": conditions(("Ready", "Unknown", "NodeStatusUnknown", "Kubelet stopped posting node status."))}
    nodes = {"n1": {"status": said["n1"]}}
    first, later, verdict = patience(one, nodes=nodes)
    assert (first, later, verdict.stop) == (State.UNKNOWN, State.NODE_LOST, True)
    assert verdict.status.reason == "node n1: NodeStatusUnknown: Kubelet stopped posting node status."
    well = {"n1": {"status": conditions(("Ready", "True", "KubeletReady", ""))}}
    assert look(one, nodes=well, waited=LONG).status.state is State.RUNNING  # only its probe fails
    blind = [event("NodeNotReady", "Node is not ready", "p")]  # nodes may be forbidden to us
    assert patience(one, events=blind)[:2] == (State.UNKNOWN, State.NODE_LOST)
    probed = pod(running(**conditions(("Ready", "True", "", ""))))
    assert look(probed, events=blind, waited=LONG).status.state is State.RUNNING
    assert look(pod(ended(0)), nodes=nodes).status.state is State.SUCCEEDED
    gang = [pod(running(), "a"), pod(running(), "b", node="n2")]
    two = job({"active": 2}, completions=2, parallelism=2)
    assert look(two, *gang, nodes={"n2": nodes["n1"]}).status.state is State.UNKNOWN


@pytest.mark.parametrize(
    ("last", "state"),
    [
        (pod(running()), State.LOST),
        (pod(running(), **DELETED), State.CANCELLED),
        (pod(running(**disrupted("PreemptionByScheduler", "preempting")), **DELETED), State.PREEMPTED),
        (pod(running(**disrupted("EvictionByEvictionAPI")), **DELETED), State.EVICTED),
        (pod(running(**disrupted("DeletionByTaintManager")), **DELETED), State.EVICTED),
        (pod(running(**conditions(("Ready", "False", "", ""),
                                  ("DisruptionTarget", "True", "DeletionByTaintManager", "deleting"))), **DELETED),
         State.NODE_LOST),
        (pod(running(**disrupted("DeletionByPodGC"))), State.NODE_LOST),
        (pod(ended(137) | disrupted("PreemptionByScheduler"), **DELETED), State.PREEMPTED),
        (pod(ended(3)), State.EXITED),
        (pod(ended(0)), State.SUCCEEDED),
    ],
)  # fmt: skip
def test_a_vanished_pod_has_the_state_of_its_last_observation(last: Json, state: State) -> None:
    verdict = look(None, gone_root=last, gone_pods=[last])
    assert (verdict.status.state, verdict.stop, verdict.final) == (state, False, True)
    # the Job has taken note of it, and of no more than that
    said = job(COMPLETE) if state is State.SUCCEEDED else failed("BackoffLimitExceeded", "", failed=1)
    assert look(said, gone_pods=[last], waited=LONG).status.state is state
    # a kind that we do not know has not replaced it
    if state is not State.SUCCEEDED:
        assert patience(other("Thing"), gone_pods=[last])[:2] == (State.RUNNING, state)


VANISHED = [("Preempted", State.PREEMPTED), ("Evicted", State.EVICTED), ("TaintManagerEviction", State.EVICTED)]


@pytest.mark.parametrize(("reason", "state"), VANISHED)
def test_events_explain_a_vanished_pod(reason: str, state: State) -> None:
    last = pod(running())
    assert look(None, gone_root=last, events=[event(reason, "words", "p")]).status.state is state


def test_a_pod_that_is_being_deleted_still_runs() -> None:
    leaving = pod(
        running(**disrupted("PreemptionByScheduler", "preempting to accommodate a higher priority pod")), **DELETED
    )
    first, later, verdict = patience(leaving)
    assert (first, later, verdict.stop) == (State.RUNNING, State.PREEMPTED, True)  # stuck: its kubelet is silent
    assert "higher priority" in look(leaving).status.reason
    assert patience(pod(running(), **DELETED))[:2] == (State.RUNNING, State.CANCELLED)


def test_the_reason_for_a_deletion_shows_while_it_lasts() -> None:
    """And stays the cause if that takes for ever."""
    leaving, broken = pod(running(), "j-0", **DELETED), pod(ended(3), "j-1")
    two = {"completions": 2, "parallelism": 2}
    root = job({"active": 1, "failed": 1}, **two)
    verdict = look(root, leaving, broken)
    assert (verdict.status.state, verdict.status.reason) == (State.RUNNING, "j-1: exit code 3")
    stuck = look(root, leaving, broken, waited=LONG)
    assert (stuck.status.state, stuck.status.reason, stuck.stop) == (State.EXITED, "j-1: exit code 3", True)
    late = job({"active": 1, **conditions(("FailureTarget", "True", "DeadlineExceeded", "too long"))}, **two)
    assert look(late, leaving).status.reason == "DeadlineExceeded: too long"
    assert patience(late, leaving)[:2] == (State.RUNNING, State.TIME_LIMIT)
    by_rule = job({"active": 1, **conditions(("FailureTarget", "True", "PodFailurePolicy", "code 3"))}, **two)
    assert look(by_rule, leaving, broken).status.reason == "j-1: exit code 3 (PodFailurePolicy: code 3)"
    for others in (pod(running(), "j-1"), pod(ended(0), "j-1"), pod(ended(143), "j-1")):
        assert look(root, leaving, others).status.reason == "another user or program is deleting it"
    tries = job({"active": 1, "failed": 1}, backoffLimit=6, **two)
    assert look(tries, leaving, broken).status.reason == "another user or program is deleting it"


def test_a_job_deleted_by_another_user_is_cancelled_unless_it_had_ended() -> None:
    root = job({"active": 1})
    verdict = look(None, pod(running(), **DELETED), gone_root=root)
    assert (verdict.status.state, verdict.stop) == (State.CANCELLED, True)  # its pod still goes
    who = "; only the cluster's audit log says who"
    assert verdict.status.reason == f"another user or program deleted it: the Job{who}"
    short = job({"active": 1}, ttlSecondsAfterFinished=600)
    seen = look(None, pod(running(), **DELETED), gone_root=short, saw_deletion=True).status
    assert (seen.state, seen.reason) == (
        State.CANCELLED, f"another user or program deleted it: the Job, before it had ended{who}"
    )  # fmt: skip
    unseen = look(None, pod(running(), **DELETED), gone_root=short).status
    assert (unseen.state, "ttlSecondsAfterFinished (600 s), or by hand" in unseen.reason) == (State.LOST, True)
    assert look(None, gone_root=root, gone_pods=[pod(ended(143, at=50), **DELETED)]).status.state is State.CANCELLED
    assert look(None, gone_root=root, gone_pods=[pod(ended(3))]).status.state is State.EXITED
    assert look(None, gone_root=root, gone_pods=[pod(ended(0))]).status.state is State.SUCCEEDED
    assert look(None, gone_root=job({}, completions=2), gone_pods=[pod(ended(0))]).status.state is State.CANCELLED
    assert look(None, gone_root=failed("BackoffLimitExceeded"), gone_pods=[pod(ended(3))]).status.state is State.EXITED
