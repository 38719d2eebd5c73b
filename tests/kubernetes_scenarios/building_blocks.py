"""What scenarios on Kubernetes are made of: manifests, what happens meanwhile, what must be true afterwards."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from platforms.job import Layout, State
from platforms.runner import Job
from tests.fake_kubernetes.api.errors import KubeError
from tests.fake_kubernetes.api.messages import Answer, Request
from tests.fake_kubernetes.controllers.custom_jobs import IPU_JOB, JOB_SET, PYTORCH_JOB, Child, CustomJobKind
from tests.fake_kubernetes.store.trees import Tree
from tests.kubernetes_scenarios.cluster_admin import ClusterAdmin
from tests.kubernetes_scenarios.real_kueue import RealKueue
from tests.kubernetes_scenarios.stage import Stage

TEMPLATES = Path(__file__).parents[2] / "k8s_templates"
SMALL = {"cpu": "50m", "memory": "64Mi"}
QUEUE = "kueue.x-k8s.io/queue-name"
PATIENCE_S = 301.0  # longer than what may pass is waited for
TAINTED_S = 1801.0  # the same, where nodes have taints that nobody names
FOREVER = "exec sleep 600"
SLOW = "trap 'sleep 3; exit 0' TERM; echo begun; sleep 600 & wait"
PATIENT = {"terminationGracePeriodSeconds": 30}
ALLOCATES = "held = b'x' * (300 << 20); import time; time.sleep(600)"
SMALL_MEMORY = {"requests": SMALL, "limits": {"memory": "64Mi"}}
POD = TEMPLATES / "pod.yaml"
NO_NODE = {"nodeSelector": {"bench.local/nobody": "has-this"}}

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
    """A scenario while it is played. `clock` is that of its scheduler. `recorded`: by a recording, on a stand-in."""

    stage: Stage
    job: Job
    clock: Clock
    recorded: bool = False

    @property
    def admin(self) -> ClusterAdmin:
        return self.stage.admin

    @property
    def name(self) -> str:
        return self.job.spec.name

    @property
    def selector(self) -> str:
        return f"hpc-ml-bench/job={self.name}"

    @property
    def runs(self) -> bool:
        return self.job.status.state is State.RUNNING

    def somebody(self, acts: Callable[[Play], object]) -> None:
        """Does what the cluster waits for; a recording goes on as if it were done."""
        if self.recorded and self.stage.fake is not None:
            self.stage.fake.go_on(self.name)
        else:
            acts(self)

    def pods(self) -> list[Tree]:
        return self.admin.list("pods", self.selector)

    def status_matches(self, pattern: str) -> bool:
        """Whether what is told of the job matches, while it waits or runs."""
        return re.search(pattern, self.job.status.reason) is not None

    def log(self) -> bytes:
        path = self.job.folder / "log"
        return path.read_bytes() if path.exists() else b""


@dataclass(frozen=True)
class Scenario:
    """One job and what must come of it.

    `job` makes what is changed of a JobSpec; `before` is done first, with the job's name. `reason` is searched in what
    is said of the end, `log` is all of the log, `told` is searched in the events. `left`: whether its objects stay for
    people to look at; None: a success's do not, and a failure's do or were written down. `needs`: what not every
    cluster has (Stage.lacks). `patient`: its scheduler's clock may be moved on. `recorded`: on the stand-in the
    recording of this name is played, as a real cluster was seen to go through this scenario.
    """

    name: str
    job: Callable[[Stage], Changes]
    state: State = State.SUCCEEDED
    reason: str = ""
    log: bytes | None = None
    event: str = ""
    left: bool | None = None
    before: Callable[[Stage, str], object] | None = None
    needs: tuple[str, ...] = ()
    script: Script | None = None
    check: Callable[[Play], None] | None = None
    patient: bool = False
    code: int | None = None
    recorded: bool = False

    @property
    def leaves(self) -> bool:
        return self.state is not State.SUCCEEDED if self.left is None else self.left


# --- what is submitted -----------------------------------------------------------------------------------------------


def command(script: str) -> Callable[[Stage], Changes]:
    """A shell's script in our own template."""
    return lambda _stage: {"arguments": ("sh", "-c", script)}


def container(script: str, name: str = "c", **more: Any) -> Tree:
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


def job(
    *boxes: Tree, pods: Mapping[str, Any] | None = None, labels: Mapping[str, str] | None = None, **spec: Any
) -> Changes:
    template = {"spec": pod_spec(*boxes, **(pods or {}))}
    metadata = {"labels": dict(labels)} if labels else {}
    made = {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata}
    return {"manifest": {**made, "spec": {"backoffLimit": 0, "template": template, **spec}}}


def device_resources(name: str, count: str) -> Tree:
    """Beside the usual resources."""
    return {"resources": {"requests": {**SMALL, name: count}, "limits": {name: count}}}


def python(script: str, **more: Any) -> Tree:
    """Without a shell."""
    return container("", command=["python3", "-S", "-c", script], **more)


def job_with_image(stage: Stage, answers: str, **more: Any) -> Changes:
    """A Job whose image is answered so."""
    found = stage.image_that(answers)
    return job(container("true", image=found["image"]), pods={"nodeSelector": found["nodeSelector"], **more})


def job_with_archive(stage: Stage) -> Changes:
    """A program of ours that travels to the cluster."""
    path = stage.front.kubeconfig.with_name(f"models-{stage.key}.pyz")
    path.write_text("import sys\nprint('travelled', *sys.argv[1:])\n")
    return {"archive": path, "arguments": ("and", "arrived")}


# --- what happens meanwhile ------------------------------------------------------------------------------------------


def when(true: Callable[[], object]) -> Generator[None, None, None]:
    while not true():
        yield


def once_running(act: Callable[[Play], object]) -> Script:
    """Once it has said something."""

    def script(play: Play) -> Generator[None, None, None]:
        yield from when(lambda: play.runs and play.log())
        play.somebody(act)

    return script


def once_stuck(reason: str, patience_s: float = PATIENCE_S) -> Script:
    """It has been so for longer than anybody waits for it to pass."""

    def script(play: Play) -> Generator[None, None, None]:
        yield from when(lambda: play.status_matches(reason))
        assert play.job.status.state.live, play.job.status
        play.clock.skipped_s += patience_s

    return script


def check_nothing_lost(play: Play) -> None:
    """Of pods that their kind has deleted."""
    assert "is lost" not in str(play.job.error), play.job.error


def delete_its_pod(play: Play) -> None:
    """With the grace that it has itself."""
    play.admin.delete("pods", play.pods()[0]["metadata"]["name"])


def evict(play: Play) -> None:
    play.admin.evict(play.pods()[0]["metadata"]["name"])


def pass_deadline(kind: str) -> Callable[[Play], None]:
    """Its deadline is one that has passed, whenever it began."""
    return lambda play: play.admin.patch(kind, _its(play, kind), {"spec": {"activeDeadlineSeconds": 2}})


def _its(play: Play, kind: str) -> str:
    return str(play.pods()[0]["metadata"]["name"]) if kind == "pods" else play.name


def delete(kind: str) -> Callable[[Play], None]:
    return lambda play: play.admin.delete(kind, play.name, gracePeriodSeconds=1)


def other_users_pod(name: str, *boxes: Tree, image: str, **more: Any) -> Tree:
    """Somebody else's pod."""
    filled = [{**each, "image": image} for each in boxes]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": pod_spec(*filled, **more)}


def job_with_only_device(stage: Stage) -> Changes:
    """It has the only device of its kind."""
    stage.device(device(stage, "preempt"), 1)
    return job(container(f"echo begun; {FOREVER}", **device_resources(device(stage, "preempt"), "1")))


def preempt(play: Play) -> None:
    """A more important pod wants the same device."""
    wanted = container(FOREVER, **device_resources(device(play.stage, "preempt"), "1"))
    name, importance = f"vip-{play.stage.key}", play.stage.priority_class(1000)
    play.admin.create("pods", other_users_pod(name, wanted, image=play.stage.image, priorityClassName=importance))


def device(stage: Stage, name: str) -> str:
    return f"bench.local/{name}-{stage.key}"


def supply_after_first_failure(play: Play) -> Generator[None, None, None]:
    """Its first pod fails; then comes what it lacked."""
    yield from when(lambda: any(each["status"].get("phase") == "Failed" for each in play.pods()))
    assert play.job.status.state.live, play.job.status
    data = {"apiVersion": "v1", "kind": "ConfigMap", "data": {"READY": "yes"}}
    play.admin.create("configmaps", {**data, "metadata": {"name": f"second-{play.stage.key}"}})


def fails_first(stage: Stage) -> Changes:
    switch = {"configMapRef": {"name": f"second-{stage.key}", "optional": True}}
    return job(container('echo "try $READY"; [ -n "$READY" ]', envFrom=[switch]), backoffLimit=100)


def check_tried_again(play: Play) -> None:
    """Once or more, by how quick we were, and one was good. Lines of two pods come in any order."""
    *before, last = sorted(play.log().splitlines())
    assert (set(before), last) == ({b"try "}, b"try yes"), play.log()


def heal_the_image(play: Play) -> Generator[None, None, None]:
    """Somebody gives the pod another one."""
    yield from when(lambda: play.status_matches("500 Internal"))
    assert play.job.status.state is State.STARTING, play.job.status
    pod = play.pods()[0]
    image = {"spec": {"containers": [{**pod["spec"]["containers"][0], "image": play.stage.image}]}}
    play.somebody(lambda play: play.admin.patch("pods", pod["metadata"]["name"], image))


def add_the_device(play: Play) -> Generator[None, None, None]:
    """The devices come later."""
    yield from when(lambda: play.status_matches("Insufficient bench.local"))
    assert play.job.status.state is State.QUEUED, play.job.status
    play.stage.device(device(play.stage, "late"), 1)


# --- quotas ----------------------------------------------------------------------------------------------------------

STORAGE = "ephemeral-storage"  # a quota of it concerns only those who ask for it


def quota(stage: Stage) -> None:
    """1Mi of it, of which somebody has 600Ki."""
    if stage.fake is None and stage.admin.get("resourcequotas", "bench") is None:
        limits = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "bench"}}
        stage.admin.create("resourcequotas", {**limits, "spec": {"hard": {f"requests.{STORAGE}": "1Mi"}}})
        stage.admin.create("pods", other_users_pod("hoarder", storage("600Ki", FOREVER), image=stage.image))


def storage(amount: str, script: str = "echo done") -> Tree:
    return container(script, resources={"requests": {**SMALL, STORAGE: amount}})


def with_quota(make: Callable[[], Changes]) -> Callable[[Stage], Changes]:
    def made(stage: Stage) -> Changes:
        quota(stage)
        return make()

    return made


def pod_quota(amount: str) -> Callable[[Stage, str], None]:
    """A stand-in has no quotas: what creates the pod is answered as a real cluster answers."""
    amounts = f"requested: requests.{STORAGE}={amount}, used: requests.{STORAGE}=600Ki, limited: requests.{STORAGE}=1Mi"
    refuse = refuse_with(403, f'pods "{{name}}" is forbidden: exceeded quota: bench, {amounts}')
    return lambda stage, name: refuse(stage, name) if stage.fake is not None else None


def make_room(play: Play) -> Generator[None, None, None]:
    yield from when(lambda: play.status_matches("quota bench is used up"))
    assert play.job.status.state is State.QUEUED, play.job.status
    play.stage.interceptors.pop(play.name, None)
    play.somebody(lambda play: play.admin.delete("pods", "hoarder", gracePeriodSeconds=1))


# --- refusals --------------------------------------------------------------------------------------------------------


def refuse_with(code: int, message: str) -> Callable[[Stage, str], None]:
    """What creates it is answered so."""

    def prepare(stage: Stage, name: str) -> None:
        stage.interceptors[name] = lambda _request: Answer(code, KubeError(code, message.format(name=name)).status())

    return prepare


def lose_the_answer(stage: Stage, name: str) -> None:
    """It is created, and nobody hears of it."""

    def lose(request: Request) -> None:
        del stage.interceptors[name]
        stage.admin.ask("POST", request.path, request.json())
        raise ConnectionResetError

    stage.interceptors[name] = lose


def in_other_context(stage: Stage) -> Mapping[str, str]:
    """A test's own kubeconfig and context."""
    path, context = stage.other_context()
    return {"kubeconfig": str(path), "context": context}


def take_the_name(stage: Stage, name: str) -> None:
    """Somebody else has a Job of that name."""
    other = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}}
    template = {"spec": pod_spec(container(FOREVER, image=stage.image))}
    stage.admin.create("jobs", {**other, "spec": {"suspend": True, "template": template}})


def check_other_job_untouched(play: Play) -> None:
    theirs = play.admin.get("jobs", play.name)
    assert theirs is not None
    assert "hpc-ml-bench/run" not in theirs["metadata"].get("labels", {})


# --- kinds that others have made -------------------------------------------------------------------------------------


def _speechless(rack: Tree, _wanted: list[Child], _known: dict[str, Tree]) -> None:
    """It never says how it is."""


def _shelves(rack: Tree) -> Iterator[Child]:
    for at in range(rack["spec"]["count"]):
        yield Child("shelf", at, f"{rack['metadata']['name']}-{at}", rack["spec"]["shelf"])


RACK = CustomJobKind(_shelves, _speechless)


def custom_object(
    group: str, version: str, kind: str, spec: Tree, controller: CustomJobKind | None = None
) -> Callable[[Stage], Changes]:
    def made(stage: Stage) -> Changes:
        assert stage.fake is not None
        stage.fake.add_crd(group, version, kind, f"{kind.lower()}s", controller)
        return {"manifest": {"apiVersion": f"{group}/{version}", "kind": kind, "spec": spec}}

    return made


def ipu_job(script: str, instances: int = 1) -> Callable[[Stage], Changes]:
    spec = {"jobInstances": instances, "workers": {"template": {"metadata": {}, "spec": pod_spec(container(script))}}}
    return custom_object("graphcore.ai", "v1alpha1", "IPUJob", spec, IPU_JOB)


def ipu_job_of_our_template(script: str) -> Callable[[Stage], Changes]:
    """An IPUJob of our own template."""

    def made(stage: Stage) -> Changes:
        ipu_job(script)(stage)
        what = {"manifest": TEMPLATES / "ipujob.yaml", "layout": Layout(1, 2, "ipu"), "launcher": "none"}
        return {**what, "arguments": ("sh", "-c", script)}

    return made


def pytorch_job(master: str, worker: str) -> Callable[[Stage], Changes]:
    replicas = {}
    for role, script in (("Master", master), ("Worker", worker)):
        template = {"metadata": {}, "spec": pod_spec(container(script, "pytorch"))}
        replicas[role] = {"replicas": 1, "restartPolicy": "Never", "template": template}
    return custom_object("kubeflow.org", "v1", "PyTorchJob", {"pytorchReplicaSpecs": replicas}, PYTORCH_JOB)


def job_set(script: str) -> Callable[[Stage], Changes]:
    template = {"spec": {"backoffLimit": 0, "template": {"metadata": {}, "spec": pod_spec(container(script))}}}
    spec = {"replicatedJobs": [{"name": "workers", "replicas": 2, "template": template}]}
    return custom_object("jobset.x-k8s.io", "v1alpha2", "JobSet", spec, JOB_SET)


def rack_job(script: str) -> Callable[[Stage], Changes]:
    """A kind that says nothing: its pods decide, when there have been no more for a while."""
    spec = {"count": 2, "shelf": {"metadata": {}, "spec": pod_spec(container(script))}}
    return custom_object("bench.local", "v1", "Rack", spec, RACK)


# --- Kueue -----------------------------------------------------------------------------------------------------------


def kueue(stage: Stage) -> RealKueue:
    """One of which 10 tenths of a CPU can be had, 8 of them by one who has them."""
    known: RealKueue | None = stage.notes.get("kueue")
    if known is None:
        known = stage.notes["kueue"] = RealKueue(stage.admin, stage.key, "bench", {"cpu": "1", "memory": "64Gi"})
        take_queue_capacity(stage, "hoarder")
    return known


def take_queue_capacity(stage: Stage, name: str) -> None:
    """Somebody else's Job, for ever, with eight tenths of the queue's CPU."""
    theirs = job(cpus(8, FOREVER, image=stage.image))["manifest"]
    stage.admin.create("jobs", {**theirs, "metadata": {"name": name, "labels": {QUEUE: "bench"}}})


def queued(
    *boxes: Tree, pods: Mapping[str, Any] | None = None, queue: str = "bench", limit_s: int | None = None
) -> Callable[[Stage], Changes]:
    limit = {} if limit_s is None else {"kueue.x-k8s.io/max-exec-time-seconds": str(limit_s)}

    def made(stage: Stage) -> Changes:
        if stage.fake is None:
            kueue(stage)
        return job(*boxes, pods=pods, labels={QUEUE: queue, **limit})

    return made


def cpus(tenths: int, script: str = "echo done", **more: Any) -> Tree:
    return container(script, resources={"requests": {"cpu": f"{tenths}00m"}}, **more)


@contextmanager
def held(play: Play, reason: str) -> Iterator[None]:
    """It is evicted, and nothing is admitted meanwhile."""
    stage = play.stage
    if stage.fake is not None:
        stage.fake.go_on(play.name)
        yield
        return
    queue = kueue(stage)
    stage.notes["held"] = stage.notes.get("held", 0) + 1
    queue.pause()
    try:
        queue.evict(play.name, reason)
        yield
    finally:
        stage.notes["held"] -= 1
        queue.pause(on=stage.notes["held"] > 0)


def evict_from_queue(reason: str) -> Script:
    """And not given again before its end."""

    def script(play: Play) -> Generator[None, None, None]:
        yield from when(lambda: play.runs and play.log())
        with held(play, reason):
            yield from when(lambda: play.job.done)

    return script


def free_the_queue(play: Play) -> Generator[None, None, None]:
    yield from when(lambda: play.status_matches("insufficient unused quota"))
    assert play.job.status.state is State.QUEUED, play.job.status
    play.somebody(lambda play: play.admin.delete("jobs", "hoarder"))


def evict_and_admit_again(play: Play) -> Generator[None, None, None]:
    """It is admitted, cannot start, is taken back, admitted again, and starts."""
    yield from when(lambda: play.status_matches("didn't match"))
    with held(play, "PodsReadyTimeout"):
        yield from when(lambda: play.status_matches("evicted: PodsReadyTimeout"))
        assert play.job.status.state is State.QUEUED, play.job.status
        label = {"metadata": {"labels": {"bench": f"wanted-{play.stage.key}"}}}
        play.somebody(lambda play: play.admin.patch("nodes", play.stage.node, label))


# --- what must be true afterwards ------------------------------------------------------------------------------------


def check_log_files(play: Play, count: int) -> None:
    """A log for each container of each pod."""
    assert len([path for path in (play.job.folder / "logs").iterdir() if path.suffix == ".log"]) == count


def check_one_line_each(play: Play, *lines: bytes) -> None:
    """Of each container one line, in whatever order they come."""
    check_log_files(play, len(lines))
    assert sorted(play.log().splitlines()) == sorted(lines), play.log()


def check_log_lines(play: Play, *lines: bytes) -> None:
    """Lines of two streams come in any order."""
    assert sorted(play.log().splitlines()) == sorted(lines), play.log()


def check_indices(play: Play, count: int) -> None:
    check_one_line_each(play, *(b"%d" % index for index in range(count)))


def elsewhere(play: Play) -> None:
    """It was in the other namespace."""
    assert f":{play.stage.other_namespace}/job.batch/" in str(play.job.job_id)
