"""What can become of a job on Kubernetes: one list, played on a stand-in and, unchanged, on real clusters."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from platforms.job import Layout, State
from platforms.runner import Job
from tests.clusters.kube.errors import KubeError
from tests.clusters.kube.job_pods import pod_of
from tests.clusters.kube.kueue import Kueue
from tests.clusters.kube.message import Answer, Request
from tests.clusters.kube.replicas import IPU_JOB, JOB_SET, PYTORCH_JOB, Child, Shape
from tests.clusters.stage import Hands, Stage, Tree

TEMPLATES = Path(__file__).parents[2] / "k8s_templates"
SMALL = {"cpu": "50m", "memory": "64Mi"}
QUEUE = "kueue.x-k8s.io/queue-name"
PATIENCE_S = 301.0  # longer than anything is waited for that may pass
FOREVER = "exec sleep 600"

Script = Callable[["Play"], Generator[None, None, None]]
Changes = Mapping[str, Any]  # of a JobSpec


class Clock:
    """Monotonic seconds, of which some may be skipped."""

    def __init__(self) -> None:
        self.skipped_s = 0.0

    def __call__(self) -> float:
        return time.monotonic() + self.skipped_s


@dataclass
class Play:
    """A scenario while it is played. `clock` is that of its scheduler."""

    stage: Stage
    job: Job
    clock: Clock
    notes: dict[str, Any] = field(default_factory=dict)

    @property
    def hands(self) -> Hands:
        return self.stage.hands

    @property
    def name(self) -> str:
        return self.job.spec.name

    @property
    def selector(self) -> str:
        return f"hpc-ml-bench/job={self.name}"

    @property
    def runs(self) -> bool:
        return self.job.status.state is State.RUNNING

    def pods(self) -> list[Tree]:
        return self.hands.list("pods", self.selector)

    def says(self, pattern: str) -> bool:
        """Whether what is told of the job matches, while it waits or runs."""
        return re.search(pattern, self.job.status.reason) is not None

    def log(self) -> bytes:
        path = self.job.folder / "log"
        return path.read_bytes() if path.exists() else b""


@dataclass(frozen=True)
class Scenario:
    """One job and what must come of it.

    `job` makes what is changed of a JobSpec; `before` is done first, with the job's name. `reason` is searched in what is said of the end, `log` is all of the log,
    `told` is searched in the events. `left`: whether its objects stay for people to look at; None: a success's
    do not, and a failure's do or were written down. `needs`: what not every cluster has (Stage.lacks). `patient`: its scheduler's clock may be moved on.
    """

    name: str
    job: Callable[[Stage], Changes]
    state: State = State.SUCCEEDED
    reason: str = ""
    log: bytes | None = None
    told: str = ""
    left: bool | None = None
    before: Callable[[Stage, str], object] | None = None
    needs: tuple[str, ...] = ()
    script: Script | None = None
    check: Callable[[Play], None] | None = None
    patient: bool = False
    code: int | None = None

    @property
    def leaves(self) -> bool:
        return self.state is not State.SUCCEEDED if self.left is None else self.left


# --- what is submitted -----------------------------------------------------------------------------------------------


def command(script: str) -> Callable[[Stage], Changes]:
    """A shell's script in our own template."""
    return lambda _stage: {"arguments": ("sh", "-c", script)}


def box(script: str, name: str = "c", **more: Any) -> Tree:
    """A container, as the restricted Pod Security Standard wants it."""
    security = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    made = {"name": name, "image": "${image}", "command": ["sh", "-c", script], "securityContext": security}
    return {**made, "resources": {"requests": SMALL}, **more}


def pod_spec(*boxes: Tree, **more: Any) -> Tree:
    security = {"runAsNonRoot": True, "runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"}}
    spec = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "securityContext": security}
    return {**spec, "automountServiceAccountToken": False, "containers": list(boxes), **more}


def pod(*boxes: Tree, **more: Any) -> Changes:
    return {"manifest": {"apiVersion": "v1", "kind": "Pod", "spec": pod_spec(*boxes, **more)}}


def job(*boxes: Tree, pods: Mapping[str, Any] | None = None, labels: Mapping[str, str] | None = None, **spec: Any) -> Changes:  # fmt: skip
    template = {"spec": pod_spec(*boxes, **(pods or {}))}
    metadata = {"labels": dict(labels)} if labels else {}
    made = {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata}
    return {"manifest": {**made, "spec": {"backoffLimit": 0, "template": template, **spec}}}


def of(name: str, count: str) -> Tree:
    """Beside the usual resources."""
    return {"resources": {"requests": {**SMALL, name: count}, "limits": {name: count}}}


def python(script: str, **more: Any) -> Tree:
    return box("", command=["python3", "-S", "-c", script], **more)


def pulled(stage: Stage, answers: str, **more: Any) -> Changes:
    """A Job whose image is answered so."""
    found = stage.image_that(answers)
    return job(box("true", image=found["image"]), pods={"nodeSelector": found["nodeSelector"], **more})


# --- what happens meanwhile ------------------------------------------------------------------------------------------


def when(true: Callable[[], object]) -> Generator[None, None, None]:
    while not true():
        yield


def once_running(act: Callable[[Play], object]) -> Script:
    """Once it has said something."""

    def script(play: Play) -> Generator[None, None, None]:
        yield from when(lambda: play.runs and play.log())
        act(play)

    return script


def on(reason: str, act: Callable[[Play], object]) -> Script:
    """Once that is told of it."""

    def script(play: Play) -> Generator[None, None, None]:
        yield from when(lambda: play.says(reason))
        act(play)

    return script


def waited(reason: str) -> Script:
    """It has been so for longer than anybody waits for it to pass."""

    def script(play: Play) -> Generator[None, None, None]:
        yield from when(lambda: play.says(reason))
        assert play.job.status.state.live, play.job.status
        play.clock.skipped_s += PATIENCE_S

    return script


def evict(play: Play) -> None:
    play.hands.evict(play.pods()[0]["metadata"]["name"])


def delete(kind: str) -> Callable[[Play], None]:
    return lambda play: play.hands.delete(kind, play.name, gracePeriodSeconds=1)


def foreign(name: str, *boxes: Tree, image: str, **more: Any) -> Tree:
    """Somebody else's pod."""
    filled = [{**each, "image": image} for each in boxes]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": pod_spec(*filled, **more)}


def preempt(play: Play) -> None:
    """A more important pod wants the same device."""
    wanted = box(FOREVER, **of(device(play.stage, "preempt"), "1"))
    name, importance = f"vip-{play.stage.key}", play.stage.priority_class(1000)
    play.hands.create("pods", foreign(name, wanted, image=play.stage.image, priorityClassName=importance))


def device(stage: Stage, name: str) -> str:
    return f"bench.local/{name}-{stage.key}"


def failed_once(play: Play) -> Generator[None, None, None]:
    """Its first pod fails; then comes what it lacked."""
    yield from when(lambda: any(each["status"].get("phase") == "Failed" for each in play.pods()))
    assert play.job.status.state.live, play.job.status
    data = {"apiVersion": "v1", "kind": "ConfigMap", "data": {"READY": "yes"}}
    play.hands.create("configmaps", {**data, "metadata": {"name": f"second-{play.stage.key}"}})


def second(stage: Stage) -> Changes:
    switch = {"configMapRef": {"name": f"second-{stage.key}", "optional": True}}
    return job(box('echo "try $READY"; [ -n "$READY" ]', envFrom=[switch]), backoffLimit=6)


def heal(play: Play) -> Generator[None, None, None]:
    yield from when(lambda: play.says("500 Internal"))
    assert play.job.status.state is State.STARTING, play.job.status
    play.stage.heal(play.pods()[0])


def grow(play: Play) -> Generator[None, None, None]:
    """The devices come later."""
    yield from when(lambda: play.says("Insufficient bench.local"))
    assert play.job.status.state is State.QUEUED, play.job.status
    play.stage.device(device(play.stage, "late"), 1)


# --- quotas ----------------------------------------------------------------------------------------------------------

STORAGE = "ephemeral-storage"  # a quota of it concerns only those who ask for it


def quota(stage: Stage) -> None:
    """1Mi of it, of which somebody has 600Ki."""
    if stage.hands.get("resourcequotas", "bench") is None:
        limits = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "bench"}}
        stage.hands.create("resourcequotas", {**limits, "spec": {"hard": {f"requests.{STORAGE}": "1Mi"}}})
        stage.hands.create("pods", foreign("hoarder", storage("600Ki", FOREVER), image=stage.image))


def storage(amount: str, script: str = "echo done") -> Tree:
    return box(script, resources={"requests": {**SMALL, STORAGE: amount}})


def limited(make: Callable[[], Changes]) -> Callable[[Stage], Changes]:
    def made(stage: Stage) -> Changes:
        quota(stage)
        return make()

    return made


def make_room(play: Play) -> Generator[None, None, None]:
    yield from when(lambda: play.says("quota bench is used up"))
    assert play.job.status.state is State.QUEUED, play.job.status
    play.hands.delete("pods", "hoarder", gracePeriodSeconds=1)


# --- refusals --------------------------------------------------------------------------------------------------------


def refusing(code: int, message: str) -> Callable[[Stage, str], None]:
    """What creates it is answered so."""

    def prepare(stage: Stage, name: str) -> None:
        stage.surprises[name] = lambda _request: Answer(code, KubeError(code, message.format(name=name)).status())

    return prepare


def losing(stage: Stage, name: str) -> None:
    """It is created, and nobody hears of it."""

    def lose(request: Request) -> None:
        del stage.surprises[name]
        stage.hands.ask("POST", request.path, request.json())
        raise ConnectionResetError

    stage.surprises[name] = lose


def one_of_it(play: Play) -> None:
    """There was one job."""
    assert play.log() == b"once\n"


def taken(stage: Stage, name: str) -> None:
    """Somebody else has a Job of that name."""
    other = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}}
    template = {"spec": pod_spec(box(FOREVER, image=stage.image))}
    stage.hands.create("jobs", {**other, "spec": {"suspend": True, "template": template}})


def still_theirs(play: Play) -> None:
    theirs = play.hands.get("jobs", play.name)
    assert theirs is not None and "hpc-ml-bench/run" not in theirs["metadata"].get("labels", {})


# --- kinds that others have made -------------------------------------------------------------------------------------


def controlled(kind: str, shape: Shape) -> Script:
    """We are the controller of a kind: `racks.bench.local/v1`."""

    def script(play: Play) -> Generator[None, None, None]:
        hands, name = play.hands, play.name
        yield from when(lambda: hands.get(kind, name))
        made: set[str] = set()
        told: Tree = {}
        while (owner := hands.get(kind, name)) is not None and not play.job.done:
            wanted = list(shape.children(owner))
            for child in wanted:
                if child.name not in made:
                    made.add(child.name)
                    hands.ask("POST", hands.path(child.plural), _child(owner, shape, child))
            known = {child.name: found for child in wanted if (found := hands.get(child.plural, child.name))}
            owner.setdefault("status", {})
            shape.tell(owner, wanted, known)
            if owner["status"] != told and len(known) == len(wanted):
                told = owner["status"]
                hands.patch(kind, name, {"status": told}, "status")
            yield

    return script


def _child(owner: Tree, shape: Shape, child: Child) -> Tree:
    made = pod_of(owner, child.template, child.name, shape.labels(owner, child), exact=True)
    kind = {"pods": ("v1", "Pod"), "jobs": ("batch/v1", "Job")}[child.plural]
    return {"apiVersion": kind[0], "kind": kind[1], **made}


def _speechless(rack: Tree, _wanted: list[Child], _known: dict[str, Tree]) -> None:
    """It never says how it is."""


RACK = Shape(
    lambda rack: (
        Child("shelf", at, f"{rack['metadata']['name']}-{at}", rack["spec"]["shelf"]) for at in range(rack["spec"]["count"])
    ),
    _speechless,
)  # fmt: skip


def custom(group: str, version: str, kind: str, spec: Tree) -> Callable[[Stage], Changes]:
    def made(stage: Stage) -> Changes:
        stage.kind(group, version, kind)
        return {"manifest": {"apiVersion": f"{group}/{version}", "kind": kind, "spec": spec}}

    return made


def ipus(script: str, instances: int = 1) -> Callable[[Stage], Changes]:
    spec = {"jobInstances": instances, "workers": {"template": {"metadata": {}, "spec": pod_spec(box(script))}}}
    return custom("graphcore.ai", "v1alpha1", "IPUJob", spec)


def torch(master: str, worker: str) -> Callable[[Stage], Changes]:
    roles = {"Master": master, "Worker": worker}
    replicas = {
        role: {"replicas": 1, "restartPolicy": "Never", "template": {"metadata": {}, "spec": pod_spec(box(script, "pytorch"))}}
        for role, script in roles.items()
    }  # fmt: skip
    return custom("kubeflow.org", "v1", "PyTorchJob", {"pytorchReplicaSpecs": replicas})


def job_set(script: str) -> Callable[[Stage], Changes]:
    template = {"spec": {"backoffLimit": 0, "template": {"metadata": {}, "spec": pod_spec(box(script))}}}
    spec = {"replicatedJobs": [{"name": "workers", "replicas": 2, "template": template}]}
    return custom("jobset.x-k8s.io", "v1alpha2", "JobSet", spec)


def racks(script: str) -> Callable[[Stage], Changes]:
    return custom("bench.local", "v1", "Rack", {"count": 2, "shelf": {"metadata": {}, "spec": pod_spec(box(script))}})


def rack(then: Script | None = None) -> Script:
    """A kind that says nothing: its pods decide, when there have been no more for a while."""
    control = controlled("racks.bench.local/v1", RACK)

    def script(play: Play) -> Generator[None, None, None]:
        beside: Iterator[None] = then(play) if then else iter(())
        for _ in control(play):
            next(beside, None)
            yield

    return script


# --- Kueue -----------------------------------------------------------------------------------------------------------


def kueue(stage: Stage) -> Kueue:
    """One of which 10 CPUs can be had, 8 of them by one who has them."""
    known = stage.notes.get("kueue")
    if known is None:
        assert stage.fake is not None
        known = stage.notes["kueue"] = stage.fake.kueue(queue="bench", quota={"cpu": "10"})
        hoarder = job(box(FOREVER, image=stage.image, resources={"requests": {"cpu": "8"}}))["manifest"]
        stage.hands.create("jobs", {**hoarder, "metadata": {"name": "hoarder", "labels": {QUEUE: "bench"}}})
    return known


def queued(*boxes: Tree, pods: Mapping[str, Any] | None = None, **labels: str) -> Callable[[Stage], Changes]:
    def made(stage: Stage) -> Changes:
        kueue(stage)
        return job(*boxes, pods=pods, labels={QUEUE: "bench", **labels})

    return made


def cpus(count: str, script: str = "echo done") -> Tree:
    return box(script, resources={"requests": {"cpu": count}})


@contextmanager
def held(stage: Stage) -> Iterator[Kueue]:
    """Nothing is admitted meanwhile."""
    queue = kueue(stage)
    stage.notes["held"] = stage.notes.get("held", 0) + 1
    queue.pause()
    try:
        yield queue
    finally:
        stage.notes["held"] -= 1
        queue.pause(on=stage.notes["held"] > 0)


def taken_back(reason: str) -> Script:
    """And not given again before its end."""

    def script(play: Play) -> Generator[None, None, None]:
        yield from when(lambda: play.runs and play.log())
        with held(play.stage) as queue:
            queue.evict(play.name, reason)
            yield from when(lambda: play.job.done)

    return script


def give(play: Play) -> Generator[None, None, None]:
    yield from when(lambda: play.says("insufficient unused quota"))
    assert play.job.status.state is State.QUEUED, play.job.status
    play.hands.delete("jobs", "hoarder")


def sent_back(play: Play) -> Generator[None, None, None]:
    """It is admitted, cannot start, is taken back, admitted again, and starts."""
    yield from when(lambda: play.says("didn't match"))
    with held(play.stage) as queue:
        queue.evict(play.name, "PodsReadyTimeout")
        yield from when(lambda: play.says("evicted: PodsReadyTimeout"))
        assert play.job.status.state is State.QUEUED, play.job.status
        label = {"bench": f"wanted-{play.stage.key}"}
        play.hands.patch("nodes", play.stage.node, {"metadata": {"labels": label}})


# --- as Kubernetes 1.20 was ------------------------------------------------------------------------------------------


def old_job(end: Tree, status: Tree) -> Script:
    """We are its controllers: a pod with the one label of those days, and its end, and the Job's."""

    def script(play: Play) -> Generator[None, None, None]:
        hands, name = play.hands, play.name
        yield from when(lambda: hands.get("jobs", name))
        root = hands.get("jobs", name)
        assert root is not None
        made = pod_of(root, root["spec"]["template"], f"{name}-x", {"job-name": name}, exact=True)
        made["spec"]["schedulingGates"] = [{"name": "bench.local/by-hand"}]
        hands.ask("POST", hands.path("pods"), {"apiVersion": "v1", "kind": "Pod", **made})
        hands.patch("pods", f"{name}-x", {"status": end}, "status")
        yield
        hands.patch("jobs", name, {"status": status}, "status")

    return script


OLD_TIMES = {"startedAt": "2026-11-20T22:11:20Z", "finishedAt": "2026-11-20T22:11:22Z"}
OLD_GOOD = {"terminated": {"exitCode": 0, "reason": "Completed", **OLD_TIMES}}
OLD_RUNS = {"running": {"startedAt": "2026-11-20T22:11:20Z"}}


def old_pod(phase: str, state: Tree, **more: Any) -> Tree:
    return {"phase": phase, "containerStatuses": [{"name": "c", "state": state, "restartCount": 0}], **more}


OVERDUE = {"reason": "DeadlineExceeded", "message": "Pod was active on the node longer than the specified deadline"}


# --- the list --------------------------------------------------------------------------------------------------------

ALLOCATES = "held = b'x' * (300 << 20); import time; time.sleep(30)"
SMALL_MEMORY = {"resources": {"requests": SMALL, "limits": {"memory": "64Mi"}}}
POD, INDEXED = TEMPLATES / "pod.yaml", TEMPLATES / "indexed_job.yaml"
NO_NODE = {"nodeSelector": {"bench.local/nobody": "has-this"}}

ENDINGS = [
    Scenario("job", command("echo one; echo two >&2"), log=b"one\ntwo\n"),
    Scenario("pod", lambda _: {"arguments": ("sh", "-c", "echo one"), "manifest": POD}, log=b"one\n"),
    Scenario("exit-3", command("echo bye; exit 3"), State.EXITED, "exit code 3", b"bye\n", code=3),
    Scenario("pod-exit-3", lambda _: pod(box("echo bye; exit 3")), State.EXITED, "exit code 3", b"bye\n", code=3),
    Scenario("no-command", lambda _: {"arguments": ("/no/such/program",)}, State.NOT_STARTABLE, "exit code 127"),
    Scenario(
        "no-binary",
        lambda _: job(box("", command=["/no/such/binary"])),
        State.NOT_STARTABLE,
        r"/no/such/binary.*no such file or directory",
        b"",
    ),
    Scenario(
        "memory",
        lambda _: job(python(ALLOCATES, **SMALL_MEMORY)),
        State.OUT_OF_MEMORY,
        "OOMKilled",
    ),
    Scenario(
        "memory-of-a-child",
        lambda _: pod(box(f'python3 -S -c "{ALLOCATES}"; exit 0', **SMALL_MEMORY)),
        State.OUT_OF_MEMORY,
        "OOMKilled",
    ),
    Scenario("exit-137", lambda _: job(box("exit 137")), State.SIGNALLED, "not for memory", code=137),
    Scenario(
        "killed",
        lambda _: job(box(f"echo begun; {FOREVER}")),
        State.SIGNALLED,
        "not for memory",
        b"begun\n",
        needs=("kubelet",),
        script=once_running(lambda play: play.stage.node_kills(play.pods()[0]["metadata"]["name"])),
        code=137,
    ),
    Scenario(
        "pod-deadline",
        lambda _: job(box(f"echo begun; {FOREVER}"), pods={"activeDeadlineSeconds": 2}),
        State.TIME_LIMIT,
        "longer than the specified deadline",
        b"begun\n",
    ),
    Scenario(
        "pod-deadline-unstarted",
        lambda stage: pulled(stage, "refused", activeDeadlineSeconds=2),
        State.START_DEADLINE,
        "DeadlineExceeded.*(ErrImagePull|ImagePullBackOff).*connection refused",
        b"",
    ),
    Scenario(
        "job-deadline",
        lambda _: job(box(f"echo begun; {FOREVER}"), activeDeadlineSeconds=3),
        State.TIME_LIMIT,
        "longer than specified deadline",
        b"begun\n",
    ),
    Scenario(
        "volume-full",
        lambda _: pod(
            box(
                f"head -c 8000000 /dev/zero > /full/data; {FOREVER}",
                volumeMounts=[{"name": "full", "mountPath": "/full"}],
            ),
            volumes=[{"name": "full", "emptyDir": {"sizeLimit": "1Mi"}}],
        ),
        State.SIGNALLED,
        'EmptyDir volume "full" exceeds the limit',
    ),
    Scenario(
        "evicted", lambda _: job(box(f"echo begun; {FOREVER}")), State.EVICTED, "Eviction", script=once_running(evict)
    ),
    Scenario(
        "evicted-pod",
        lambda _: pod(box(f"echo begun; {FOREVER}")),
        State.EVICTED,
        "Eviction",
        left=False,
        script=once_running(evict),
    ),
    Scenario(
        "preempted",
        lambda stage: stage.device(device(stage, "preempt"), 1)
        or job(box(f"echo begun; {FOREVER}", **of(device(stage, "preempt"), "1"))),
        State.PREEMPTED,
        "preempting to accommodate a higher priority pod",
        needs=("device", "priority"),
        script=once_running(preempt),
    ),
    Scenario(
        "crash-loop",
        lambda _: pod(box("echo crash; exit 5"), restartPolicy="Always"),
        State.EXITED,
        "exit code 5, restarted",
        told="BackOff",
        code=5,
    ),
    Scenario("deleted", lambda _: job(box(f"echo begun; {FOREVER}")), State.CANCELLED, "somebody else deleted it",
             b"begun\n", left=False, script=once_running(delete("jobs"))),
    Scenario("deleted-pod", lambda _: pod(box(f"echo begun; {FOREVER}")), State.CANCELLED, "somebody else deleted it",
             b"begun\n", left=False, script=once_running(delete("pods"))),
]  # fmt: skip

JOBS = [
    Scenario("backoff-limit", lambda _: job(box("echo try; exit 2"), backoffLimit=1), State.EXITED,
             "exit code 2.*BackoffLimitExceeded", b"try\ntry\n", code=2),
    Scenario("second-succeeds", second, log=b"try \ntry yes\n", script=failed_once),
    Scenario("completions", lambda _: job(box("echo done"), completions=3, parallelism=2), log=b"done\n" * 3,
             check=lambda play: files(play, 3)),
    Scenario("indexed", lambda _: job(box("echo $JOB_COMPLETION_INDEX"), completions=3, parallelism=3,
             completionMode="Indexed"), check=lambda play: indices(play, 3)),
    Scenario("two-nodes", lambda _: {"layout": Layout(2, 1, "cpu"), "launcher": "none",
             "arguments": ("sh", "-c", "echo $JOB_COMPLETION_INDEX")}, check=lambda play: indices(play, 2)),
    Scenario("one-of-two", lambda _: job(box("[ $JOB_COMPLETION_INDEX = 1 ] && exit 4; " + FOREVER), completions=2,
             parallelism=2, completionMode="Indexed"), State.EXITED, "exit code 4", code=4),
    Scenario("failure-policy", lambda _: job(box("exit 42"), backoffLimit=6, podFailurePolicy={"rules": [
             {"action": "FailJob", "onExitCodes": {"containerName": "c", "operator": "In", "values": [42]}}]}),
             State.EXITED, "exit code 42.*PodFailurePolicy", code=42),
    Scenario("on-failure", lambda _: job(box("echo try; exit 2"), pods={"restartPolicy": "OnFailure"}, backoffLimit=1),
             State.EXITED, "exit code 2|BackoffLimitExceeded"),
    Scenario("ttl", lambda _: job(box("echo done"), ttlSecondsAfterFinished=1), log=b"done\n", left=False),
    Scenario("no-newline", command("printf half"), log=b"half"),
    Scenario("not-utf-8", lambda _: pod(box(r"printf '\377\000\351t\351\n'")), log=b"\xff\x00\xe9t\xe9\n"),
    Scenario("two-containers", lambda _: job(box("echo one", "one"), box("sleep 0.3; echo two", "two")),
             log=b"one\ntwo\n", check=lambda play: files(play, 2)),
    Scenario("one-container-fails", lambda _: job(box("echo one", "one"), box("exit 6", "two")), State.EXITED,
             "container two: exit code 6", b"one\n", code=6),
    Scenario("init-fails", lambda _: job(box("echo never"), pods={"initContainers": [box("echo first; exit 7", "before")]}),
             State.EXITED, "init container before: exit code 7", b"first\n", code=7),
    Scenario("init", lambda _: job(box("echo then"), pods={"initContainers": [box("echo first", "before")]}),
             log=b"first\nthen\n"),
]  # fmt: skip

WAITS = [
    Scenario("image-404", lambda stage: pulled(stage, "404"), State.IMAGE, "not found", b"", "Failed to pull image",
             needs=("registry",)),
    Scenario("image-401", lambda stage: pulled(stage, "401"), State.IMAGE, "401 Unauthorized", needs=("registry",)),
    Scenario("image-refused", lambda stage: pulled(stage, "refused"), State.IMAGE, "connection refused",
             script=waited("connection refused"), patient=True),
    Scenario("image-500", lambda stage: pulled(stage, "500"), State.IMAGE, "500 Internal Server Error",
             needs=("registry",), script=waited("500 Internal"), patient=True),
    Scenario("image-500-heals", lambda stage: pulled(stage, "500"), needs=("registry",), script=heal),
    Scenario("image-no-name", lambda _: job(box("true", image="Bad Image:1:2")), State.IMAGE, "couldn't parse image name"),
    Scenario("image-never", lambda _: job(box("true", image="bench.local/none:1", imagePullPolicy="Never")), State.IMAGE,
             "is not present with pull policy of Never"),
    Scenario("pod-image-never", lambda _: pod(box("true", image="bench.local/none:1", imagePullPolicy="Never")),
             State.IMAGE, "is not present with pull policy of Never"),
    Scenario("no-secret", lambda _: job(box("true", env=[{"name": "TOKEN", "valueFrom": {"secretKeyRef": {
             "name": "nope", "key": "token"}}}])), State.SECRET, 'secret "nope" not found'),
    Scenario("no-config-map", lambda _: job(box("true", envFrom=[{"configMapRef": {"name": "nope"}}])), State.SECRET,
             'configmap "nope" not found'),
    Scenario("no-secret-volume", lambda _: job(box("true"), pods={"volumes": [{"name": "s", "secret": {
             "secretName": "nope"}}]}), State.SECRET, 'secret "nope" not found', patient=True,
             script=waited('secret "nope" not found')),
    Scenario("no-claim", lambda _: job(box("true"), pods={"volumes": [{"name": "data", "persistentVolumeClaim": {
             "claimName": "nope"}}]}), State.VOLUME, 'persistentvolumeclaim "nope" not found'),
    Scenario("no-such-node", lambda _: job(box("true"), pods=NO_NODE), State.NEVER_ADMISSIBLE, "didn't match Pod's node",
             told="FailedScheduling", patient=True, script=waited("didn't match")),
    Scenario("late-device", lambda stage: job(box("echo done", **of(device(stage, "late"), "1"))), log=b"done\n",
             needs=("device",), script=grow),
    Scenario("start-deadline", lambda _: {**job(box("true"), pods=NO_NODE), "start_limit_s": 2.0}, State.START_DEADLINE,
             "start limit of 2 s: .*didn't match", left=False),
    Scenario("suspended", lambda _: {**job(box("true"), suspend=True), "start_limit_s": 1.0}, State.START_DEADLINE,
             "start limit of 1 s: suspended", left=False),
    Scenario("gated", lambda _: {**pod(box("true"), schedulingGates=[{"name": "bench.local/gate"}]), "start_limit_s": 1.0},
             State.START_DEADLINE, "start limit of 1 s: suspended", left=False),
    Scenario("quota-job", limited(lambda: job(storage("600Ki"))), log=b"done\n", needs=("quota",), script=make_room),
    Scenario("quota-pod", limited(lambda: pod(storage("600Ki"))), log=b"done\n", needs=("quota",), script=make_room),
    Scenario("quota-never", limited(lambda: job(storage("2Mi"))), State.NEVER_ADMISSIBLE,
             "more than quota bench allows at all", needs=("quota",)),
    Scenario("quota-pod-never", limited(lambda: pod(storage("2Mi"))), State.NEVER_ADMISSIBLE,
             "exceeded quota: bench", left=False, needs=("quota",)),
]  # fmt: skip

REFUSALS = [
    Scenario("forbidden", lambda _: job(box("true")), State.SUBMIT_REFUSED, 'cannot create resource "jobs"', left=False,
             before=refusing(403, 'jobs.batch is forbidden: User "system:serviceaccount:proj:ci" cannot create resource '
             '"jobs" in API group "batch" in the namespace "proj"')),
    Scenario("webhook", lambda _: job(box("true")), State.SUBMIT_REFUSED, "admission webhook .* denied the request",
             left=False, before=refusing(403, 'admission webhook "vjob.kb.io" denied the request: no queue named')),
    Scenario("no-namespace", lambda _: {**job(box("true")), "cluster": {"namespace": "no-such-namespace"}},
             State.SUBMIT_REFUSED, 'namespaces? "?no-such-namespace"?|cannot create', left=False),
    Scenario("invalid", lambda _: job(box("true"), pods={"restartPolicy": "Sometimes"}), State.SUBMIT_REFUSED,
             "restartPolicy: .*Sometimes", left=False),
    Scenario("invalid-amount", lambda _: job(box("true", resources={"requests": {"cpu": "many"}})), State.SUBMIT_REFUSED,
             "quantities must match|unable to parse quantity", left=False),
    Scenario("unknown-kind", lambda _: {"manifest": {"apiVersion": "nobody.example/v1", "kind": "Nothing", "spec": {
             "template": {"spec": pod_spec(box("true"))}}}}, State.SUBMIT_REFUSED, "Nothing", left=False),
    Scenario("taken", lambda _: job(box("true")), State.SUBMIT_REFUSED, "already exists, and it is not ours", left=False,
             before=taken, check=still_theirs),
    Scenario("lost-reply", lambda _: job(box("echo once")), log=b"once\n", before=losing),
    Scenario("other-namespace", lambda stage: {**job(box("echo there")), "cluster": {"namespace": stage.other_namespace}},
             log=b"there\n", needs=("namespace",), check=lambda play: elsewhere(play)),
]  # fmt: skip

KINDS = [
    Scenario("ipu-job", ipus("echo done", 2), log=b"done\n" * 2, needs=("kinds",),
             script=controlled("ipujobs.graphcore.ai/v1alpha1", IPU_JOB)),
    Scenario("ipu-job-fails", ipus("echo bye; exit 3"), State.EXITED, "exit code 3", b"bye\n", needs=("kinds",),
             script=controlled("ipujobs.graphcore.ai/v1alpha1", IPU_JOB)),
    Scenario("pytorch-job", torch("echo master", "echo worker"), needs=("kinds",),
             script=controlled("pytorchjobs.kubeflow.org/v1", PYTORCH_JOB)),
    Scenario("pytorch-job-fails", torch(FOREVER, "sleep 1; exit 3"), State.EXITED, "exit code 3", needs=("kinds",),
             script=controlled("pytorchjobs.kubeflow.org/v1", PYTORCH_JOB)),
    Scenario("job-set", job_set("echo done"), log=b"done\n" * 2, needs=("kinds",),
             script=controlled("jobsets.jobset.x-k8s.io/v1alpha2", JOB_SET)),
    Scenario("job-set-fails", job_set("exit 3"), State.EXITED, "exit code 3", needs=("kinds",),
             script=controlled("jobsets.jobset.x-k8s.io/v1alpha2", JOB_SET)),
    Scenario("own-kind", racks("echo done"), log=b"done\n" * 2, needs=("kinds",), patient=True,
             script=rack(waited("there may be more"))),
    Scenario("own-kind-fails", racks("exit 3"), State.EXITED, "exit code 3", left=False, needs=("kinds",), patient=True,
             script=rack(waited("nothing has replaced it"))),
]  # fmt: skip

QUEUES = [
    Scenario("kueue", queued(box("echo done")), log=b"done\n", needs=("kueue",)),
    Scenario("kueue-later", queued(cpus("8")), log=b"done\n", needs=("kueue",), script=give),
    Scenario("kueue-never", queued(cpus("11")), State.NEVER_ADMISSIBLE, "> maximum capacity", needs=("kueue",)),
    Scenario("kueue-no-queue", lambda stage: [kueue(stage)] and job(box("true"), labels={QUEUE: "nobody"}),
             State.NEVER_ADMISSIBLE, "nobody doesn't exist", needs=("kueue",)),
    Scenario("kueue-again", lambda stage: queued(box("echo done"), pods={"nodeSelector": {
             "bench": f"wanted-{stage.key}"}})(stage), log=b"done\n", needs=("kueue",), script=sent_back),
    Scenario("kueue-preempted", queued(box(f"echo begun; {FOREVER}")), State.PREEMPTED, "due to prioritization",
             b"begun\n", needs=("kueue",), script=taken_back("Preempted")),
    Scenario("kueue-not-ready", queued(box(f"echo begun; {FOREVER}")), State.START_DEADLINE, "PodsReady timeout",
             b"begun\n", needs=("kueue",), script=taken_back("PodsReadyTimeout")),
    Scenario("kueue-deactivated", queued(box(f"echo begun; {FOREVER}")), State.CANCELLED, "deactivated",
             b"begun\n", needs=("kueue",), script=taken_back("Deactivated")),
    Scenario("kueue-overtime", queued(box(f"echo begun; {FOREVER}"), **{"kueue.x-k8s.io/max-exec-time-seconds": "2"}),
             State.TIME_LIMIT, "maximum execution time", b"begun\n", needs=("kueue",)),
]  # fmt: skip

OLD = [
    Scenario("old-success", lambda _: job(box("true"), managedBy="bench.local/old"), needs=("old",), script=old_job(
             old_pod("Succeeded", OLD_GOOD), {"succeeded": 1, "conditions": [{"type": "Complete", "status": "True"}]})),
    Scenario("old-deadline", lambda _: job(box("true"), managedBy="bench.local/old"), State.TIME_LIMIT,
             "active longer than specified deadline", needs=("old",), script=old_job(old_pod("Running", OLD_RUNS), {
             "failed": 1, "conditions": [{"type": "Failed", "status": "True", "reason": "DeadlineExceeded",
             "message": "Job was active longer than specified deadline"}]})),
    Scenario("old-pod-deadline", lambda _: job(box("true"), managedBy="bench.local/old"), State.TIME_LIMIT,
             "longer than the specified deadline", needs=("old",), script=old_job(old_pod("Failed", OLD_RUNS, **OVERDUE), {
             "failed": 1, "conditions": [{"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded",
             "message": "Job has reached the specified backoff limit"}]})),
]  # fmt: skip

TOGETHER = [*ENDINGS, *JOBS, *WAITS, *REFUSALS, *KINDS, *QUEUES, *OLD]


# --- what must be true afterwards ------------------------------------------------------------------------------------


def files(play: Play, count: int) -> None:
    """A log for each container of each pod."""
    assert len([path for path in (play.job.folder / "logs").iterdir() if path.suffix == ".log"]) == count


def indices(play: Play, count: int) -> None:
    files(play, count)
    assert sorted(play.log().split()) == [b"%d" % index for index in range(count)]


def elsewhere(play: Play) -> None:
    assert f":{play.stage.other_namespace}/job.batch/" in str(play.job.job_id)
