"""What can become of a job on Kubernetes: one list, played on a stand-in and, unchanged, on real clusters."""

from __future__ import annotations

from platforms.job import Layout, State
from tests.kubernetes_scenarios.building_blocks import (
    ALLOCATES,
    FOREVER,
    NO_NODE,
    PATIENT,
    POD,
    SLOW,
    SMALL_MEMORY,
    TAINTED_S,
    Changes,
    Scenario,
    add_the_device,
    check_indices,
    check_log_files,
    check_log_lines,
    check_nothing_lost,
    check_one_line_each,
    check_other_job_untouched,
    check_tried_again,
    command,
    container,
    cpus,
    delete,
    delete_its_pod,
    device,
    device_resources,
    elsewhere,
    evict,
    evict_and_admit_again,
    evict_from_queue,
    fails_first,
    free_the_queue,
    heal_the_image,
    in_other_context,
    ipu_job,
    ipu_job_of_our_template,
    job,
    job_set,
    job_with_archive,
    job_with_image,
    job_with_only_device,
    lose_the_answer,
    make_room,
    once_running,
    once_stuck,
    pass_deadline,
    pod,
    pod_quota,
    preempt,
    python,
    pytorch_job,
    queued,
    rack_job,
    refuse_with,
    storage,
    supply_after_first_failure,
    take_the_name,
    with_quota,
)
from tests.kubernetes_scenarios.stage import Stage

TWO = Layout(2, 1, "cpu")
GATES = [{"name": "bench.local/gate"}]
NOBODYS = {"apiVersion": "nobody.example/v1", "kind": "Nothing"}
NO_SECRET = {"secretKeyRef": {"name": "nope", "key": "token"}}
FAILS_WITH_42 = {
    "rules": [{"action": "FailJob", "onExitCodes": {"containerName": "c", "operator": "In", "values": [42]}}]
}


def indexed(pods: int) -> Changes:
    return {"completions": pods, "parallelism": pods, "completionMode": "Indexed"}


def after(script: str) -> Changes:
    return {"initContainers": [container(script, "before")]}


def mounts_job(volume: Changes) -> Changes:
    mounted = [{"name": "v", "mountPath": "/v"}]
    return job(container("true", volumeMounts=mounted), pods={"volumes": [{"name": "v", **volume}]})


def wanted_node(stage: Stage) -> Changes:
    return {"nodeSelector": {"bench": f"wanted-{stage.key}"}}


ENDINGS = [
    Scenario("job", command("echo one; echo two >&2"), check=lambda play: check_log_lines(play, b"one", b"two")),
    Scenario("pod", lambda _: {"arguments": ("sh", "-c", "echo one"), "manifest": POD}, log=b"one\n"),
    Scenario("exit-3", command("echo bye; exit 3"), State.EXITED, "exit code 3", b"bye\n", code=3),
    Scenario("pod-exit-3", lambda _: pod(container("echo bye; exit 3")), State.EXITED, "exit code 3", b"bye\n",
             code=3),
    Scenario("no-command", lambda _: {"arguments": ("/no/such/program",)}, State.NOT_STARTABLE, "exit code 127"),
    Scenario("no-binary", lambda _: job(container("", command=["/no/such/binary"])), State.NOT_STARTABLE,
             r"/no/such/binary.*no such file or directory", b""),
    Scenario("memory", lambda _: job(python(ALLOCATES, resources=SMALL_MEMORY)), State.OUT_OF_MEMORY, "OOMKilled",
             recorded=True),
    Scenario("memory-of-a-child",
             lambda _: pod(container(f'python3 -S -c "{ALLOCATES}"; exit 0', resources=SMALL_MEMORY)),
             State.OUT_OF_MEMORY, "OOMKilled", recorded=True),
    Scenario("exit-137", lambda _: job(container("exit 137")), State.SIGNALLED, "not for memory", code=137),
    Scenario("killed", lambda _: job(container(f"echo begun; {FOREVER}")), State.SIGNALLED, "not for memory",
             b"begun\n", needs=("kubelet",),
             script=once_running(lambda play: play.stage.node_kills(play.pods()[0]["metadata"]["name"])), code=137),
    Scenario("pod-deadline", lambda _: job(container(f"echo begun; {FOREVER}")), State.TIME_LIMIT,
             "longer than the specified deadline", b"begun\n", script=once_running(pass_deadline("pods"))),
    Scenario("job-deadline", lambda _: job(container(f"echo begun; {FOREVER}")), State.TIME_LIMIT,
             "longer than specified deadline", b"begun\n", script=once_running(pass_deadline("jobs"))),
    Scenario("evicted", lambda _: job(container(f"echo begun; {FOREVER}")), State.EVICTED, "Eviction",
             needs=("evict",), script=once_running(evict)),
    Scenario("evicted-pod", lambda _: pod(container(f"echo begun; {FOREVER}")), State.EVICTED, "Eviction",
             left=False, needs=("evict",), script=once_running(evict)),
    Scenario("preempted", job_with_only_device, State.PREEMPTED, "preempting to accommodate a higher priority pod",
             needs=("device", "priority"), script=once_running(preempt), recorded=True),
    Scenario("crash-loop", lambda _: pod(container("echo crash; exit 5"), restartPolicy="Always"), State.EXITED,
             "exit code 5, restarted", event="BackOff", code=5, recorded=True),
    Scenario("deleted", lambda _: job(container(f"echo begun; {FOREVER}")), State.CANCELLED,
             "another user or program deleted it", b"begun\n", left=False, script=once_running(delete("jobs"))),
    Scenario("pod-of-job-deleted", lambda _: job(container(SLOW), pods=PATIENT), State.CANCELLED,
             "its pod was deleted while it ran, and the job itself was not", b"begun\n",
             script=once_running(delete_its_pod)),
    Scenario("deleted-pod", lambda _: pod(container(f"echo begun; {FOREVER}")), State.CANCELLED,
             "another user or program deleted it", b"begun\n", left=False, script=once_running(delete("pods"))),
]  # fmt: skip

JOBS = [
    Scenario("backoff-limit", lambda _: job(container("echo try; exit 2"), backoffLimit=1), State.EXITED,
             "exit code 2.*BackoffLimitExceeded", b"try\ntry\n", code=2),
    Scenario("second-succeeds", fails_first, script=supply_after_first_failure, check=check_tried_again),
    Scenario("completions", lambda _: job(container("echo done"), completions=3, parallelism=2), log=b"done\n" * 3,
             check=lambda play: check_log_files(play, 3)),
    Scenario("indexed",
             lambda _: job(container("echo $JOB_COMPLETION_INDEX"), **indexed(3)),
             check=lambda play: check_indices(play, 3)),
    Scenario("two-nodes",
             lambda stage: {**command("echo $JOB_COMPLETION_INDEX")(stage), "layout": TWO, "launcher": "none"},
             check=lambda play: check_indices(play, 2)),
    Scenario("one-of-two",
             lambda _: job(container(f"echo begun; [ $JOB_COMPLETION_INDEX = 1 ] && sleep 3 && exit 4; {FOREVER}"),
                           **indexed(2)),
             State.EXITED, "exit code 4", code=4, check=check_nothing_lost),
    Scenario("failure-policy",
             lambda _: job(container("exit 42"), backoffLimit=6, podFailurePolicy=FAILS_WITH_42),
             State.EXITED, "exit code 42.*PodFailurePolicy", code=42, recorded=True),
    Scenario("on-failure",
             lambda _: job(container("echo try; exit 2"), pods={"restartPolicy": "OnFailure"}, backoffLimit=1),
             State.EXITED, "exit code 2|BackoffLimitExceeded", recorded=True),
    Scenario("ttl-of-nothing", lambda _: job(container("echo bye; exit 5"), ttlSecondsAfterFinished=0), State.EXITED,
             "exit code 5", left=False, code=5, recorded=True),
    Scenario("no-newline", command("printf half"), log=b"half"),
    Scenario("not-utf-8", lambda _: pod(container(r"printf '\377\000\351t\351\n'")), log=b"\xff\x00\xe9t\xe9\n"),
    Scenario("code", job_with_archive, log=b"travelled and arrived\n"),
    Scenario("two-containers", lambda _: job(container("echo one", "one"), container("sleep 0.3; echo two", "two")),
             check=lambda play: check_one_line_each(play, b"one", b"two")),
    Scenario("one-container-fails", lambda _: job(container("echo one", "one"), container("exit 6", "two")),
             State.EXITED, "container two: exit code 6", b"one\n", code=6),
    Scenario("init-fails",
             lambda _: job(container("echo never"), pods=after("echo first; exit 7")),
             State.EXITED, "init container before: exit code 7", b"first\n", code=7),
    Scenario("init",
             lambda _: job(container("echo then"), pods=after("echo first")),
             check=lambda play: check_one_line_each(play, b"first", b"then")),
]  # fmt: skip

WAITS = [
    Scenario("image-404", lambda stage: job_with_image(stage, "404"), State.IMAGE, "not found", b"",
             "Failed to pull image", needs=("registry",), recorded=True),
    Scenario("image-refused", lambda stage: job_with_image(stage, "refused"), State.IMAGE, "connection refused",
             script=once_stuck("connection refused"), patient=True, recorded=True),
    Scenario("image-500-heals", lambda stage: job_with_image(stage, "500"), needs=("registry",),
             script=heal_the_image, recorded=True),
    Scenario("image-never", lambda _: job(container("true", image="bench.local/none:1", imagePullPolicy="Never")),
             State.IMAGE, "is not present with pull policy of Never"),
    Scenario("no-secret",
             lambda _: job(container("true", env=[{"name": "TOKEN", "valueFrom": NO_SECRET}])),
             State.SECRET, 'secret "nope" not found', recorded=True),
    Scenario("no-secret-volume",
             lambda _: mounts_job({"secret": {"secretName": "nope"}}),
             State.SECRET, 'secret "nope" not found', patient=True, needs=("events",),
             script=once_stuck('secret "nope" not found'), recorded=True),
    Scenario("no-claim",
             lambda _: mounts_job({"persistentVolumeClaim": {"claimName": "nope"}}),
             State.VOLUME, 'persistentvolumeclaim "nope" not found', recorded=True),
    Scenario("no-such-node", lambda _: job(container("true"), pods=NO_NODE), State.NEVER_ADMISSIBLE,
             "didn't match Pod's node", event="FailedScheduling", patient=True,
             script=once_stuck("didn't match", TAINTED_S)),
    Scenario("too-large", lambda _: job(container("true", resources={"requests": {"cpu": "99999"}})),
             State.NEVER_ADMISSIBLE, "no node is large enough: it requests 99999 cpu", needs=("nodes",),
             patient=True, script=once_stuck("no node is large enough")),
    Scenario("late-device",
             lambda stage: job(container("echo done", **device_resources(device(stage, "late"), "1"))),
             log=b"done\n", needs=("device",), script=add_the_device),
    Scenario("start-deadline",
             lambda stage: {**job(container("true"), pods=NO_NODE), "start_limit_s": stage.limit_s(10)},
             State.START_DEADLINE, r"start limit of \d+ s: .*didn't match", left=False),
    Scenario("suspended", lambda stage: {**job(container("true"), suspend=True), "start_limit_s": stage.limit_s(1)},
             State.START_DEADLINE, r"start limit of \d+ s: suspended", left=False),
    Scenario("gated",
             lambda stage: {**pod(container("true"), schedulingGates=GATES), "start_limit_s": stage.limit_s(1)},
             State.START_DEADLINE, r"start limit of \d+ s: suspended", left=False),
    Scenario("quota-job", with_quota(lambda: job(storage("600Ki"))), log=b"done\n", needs=("quota", "events"),
             script=make_room, recorded=True),
    Scenario("quota-pod", with_quota(lambda: pod(storage("600Ki"))), log=b"done\n", before=pod_quota("600Ki"),
             needs=("quota",), script=make_room),
    Scenario("quota-never", with_quota(lambda: job(storage("2Mi"))), State.NEVER_ADMISSIBLE,
             "more than quota bench allows at all", needs=("quota", "events"), recorded=True),
    Scenario("quota-pod-never", with_quota(lambda: pod(storage("2Mi"))), State.NEVER_ADMISSIBLE,
             "exceeded quota: bench", left=False, before=pod_quota("2Mi"), needs=("quota",)),
]  # fmt: skip

REFUSALS = [
    Scenario("forbidden", lambda _: job(container("true")), State.SUBMIT_REFUSED, 'cannot create resource "jobs"',
             left=False,
             before=refuse_with(403, 'jobs.batch is forbidden: User "system:serviceaccount:proj:ci" cannot create '
                                     'resource "jobs" in API group "batch" in the namespace "proj"')),
    Scenario("no-namespace", lambda _: {**job(container("true")), "cluster": {"namespace": "no-such-namespace"}},
             State.SUBMIT_REFUSED, 'namespaces? "?no-such-namespace"?|cannot create', left=False),
    Scenario("invalid", lambda _: job(container("true", resources={"limits": {"cpu": "lots"}})), State.SUBMIT_REFUSED,
             "quantities must match the regular expression", left=False),
    Scenario("unknown-kind",
             lambda _: {"manifest": {**job(container("true"))["manifest"], **NOBODYS}},
             State.SUBMIT_REFUSED, "Nothing", left=False),
    Scenario("taken", lambda _: job(container("true")), State.SUBMIT_REFUSED, "already exists, and it is not ours",
             left=False, before=take_the_name, check=check_other_job_untouched),
    Scenario("lost-reply", lambda _: job(container("echo once")), log=b"once\n", before=lose_the_answer),
    Scenario("other-namespace",
             lambda stage: {**job(container("echo there")), "cluster": {"namespace": stage.other_namespace}},
             log=b"there\n", needs=("namespace",), check=elsewhere),
    Scenario("other-context", lambda stage: {**job(container("echo there")), "cluster": in_other_context(stage)},
             log=b"there\n", needs=("namespace",), check=elsewhere),
]  # fmt: skip

KINDS = [
    Scenario("ipu-job", ipu_job("echo done", 2), log=b"done\n" * 2, needs=("kinds",)),
    Scenario("ipu-job-fails", ipu_job("echo bye; exit 3"), State.EXITED, "exit code 3", b"bye\n", needs=("kinds",)),
    Scenario("ipu-job-of-ours", ipu_job_of_our_template("echo done"), log=b"done\n", needs=("kinds",)),
    Scenario("pytorch-job", pytorch_job("echo master", "echo worker"), needs=("kinds",)),
    Scenario("job-set", job_set("echo done"), log=b"done\n" * 2, needs=("kinds",)),
    Scenario("own-kind", rack_job("echo done"), log=b"done\n" * 2, needs=("kinds",), patient=True,
             script=once_stuck("there may be more")),
    Scenario("own-kind-fails", rack_job("exit 3"), State.EXITED, "exit code 3", left=False, needs=("kinds",),
             patient=True, script=once_stuck("nothing has replaced it")),
]  # fmt: skip

QUEUES = [
    Scenario("kueue", queued(container("echo done")), log=b"done\n", needs=("kueue",), recorded=True),
    Scenario("kueue-later", queued(cpus(8)), log=b"done\n", needs=("kueue",), script=free_the_queue, recorded=True),
    Scenario("kueue-never", queued(cpus(11)), State.NEVER_ADMISSIBLE, "> maximum capacity", needs=("kueue",),
             recorded=True),
    Scenario("kueue-again",
             lambda stage: queued(container("echo done"), pods=wanted_node(stage))(stage),
             log=b"done\n", needs=("kueue",), script=evict_and_admit_again, recorded=True),
    Scenario("kueue-preempted", queued(container(f"echo begun; {FOREVER}")), State.PREEMPTED,
             "due to prioritization", b"begun\n", needs=("kueue",), script=evict_from_queue("Preempted"),
             recorded=True),
    Scenario("kueue-not-ready", queued(container(f"echo begun; {FOREVER}")), State.START_DEADLINE,
             "PodsReady timeout", b"begun\n", needs=("kueue",), script=evict_from_queue("PodsReadyTimeout"),
             recorded=True),
    Scenario("kueue-deactivated", queued(container(f"echo begun; {FOREVER}")), State.CANCELLED, "deactivated",
             b"begun\n", needs=("kueue",), script=evict_from_queue("Deactivated"), recorded=True),
    Scenario("kueue-overtime", queued(container(f"echo begun; {FOREVER}"), limit_s=3600), State.TIME_LIMIT,
             "maximum execution time", b"begun\n", needs=("kueue",),
             script=evict_from_queue("MaximumExecutionTimeExceeded"), recorded=True),
]  # fmt: skip

TOGETHER = [*ENDINGS, *JOBS, *WAITS, *REFUSALS, *KINDS, *QUEUES]
