"""Several jobs in one namespace of which one has trouble of its own: the others are followed as if it had none."""

from __future__ import annotations

import contextlib
import re
import shutil
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from platforms.config.schema import Platform
from platforms.job import JobSpec, Layout, RefusedError, State, Status, Submitted
from platforms.schedulers.kubernetes.api import session
from platforms.schedulers.kubernetes.cluster import STOP_S, UNSTOPPED_S
from platforms.schedulers.kubernetes.scheduler import KubernetesScheduler
from platforms.schedulers.kubernetes.snapshot import EXPLANATION_AGE_S, REFUSED_S
from tests.fake_kubernetes import Kube

RUNS = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}],
        "containerStatuses": [{"name": "c", "state": {"running": {"startedAt": "2026-11-20T22:11:00Z"}}}]}  # fmt: skip
NO_IMAGE = {"reason": "ErrImagePull", "message": "none:1: not found"}
CANNOT_START = {"phase": "Pending", "containerStatuses": [{"name": "c", "state": {"waiting": NO_IMAGE}}]}
END = {"exitCode": 3, "reason": "Error", "startedAt": "2026-11-20T22:11:00Z", "finishedAt": "2026-11-20T22:12:00Z"}
EXITED = {"phase": "Failed", "containerStatuses": [{"name": "c", "state": {"terminated": END}}]}
DONE = {"phase": "Succeeded", "containerStatuses": [
    {"name": "c", "state": {"terminated": {**END, "exitCode": 0, "reason": "Completed"}}}]}  # fmt: skip
STOPPED = {**CANNOT_START, "phase": "Failed", "reason": "DeadlineExceeded"}


class Namespace:
    """One session's jobs, each a pod that is as a test wants it. Its clock passes when that says so."""

    def __init__(self, folder: Path, kube: Kube) -> None:
        self.kube, self.now_s, self._folder = kube, time.monotonic(), folder
        cluster = {"kubeconfig": str(kube.kubeconfig), "image": "i:1", "cpu": "1", "memory": "1Gi", "kind": "pod"}
        known = {"name": "k", "source": kube.folder / "k.yaml", "scheduler": "kubernetes", "device": "cpu"}
        platform = Platform.model_validate(known | {"layouts": {"default": ("1x1",)}, "kubernetes": cluster})
        self.scheduler = KubernetesScheduler(platform, clock=lambda: self.now_s, sleep=self.sleep)
        self.jobs: dict[str, Submitted] = {}

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds

    def folder(self, name: str) -> Path:
        return self._folder / name

    def add(self, name: str, status: dict[str, Any]) -> None:
        """A job that is a pod."""
        self.submit(name)
        self.kube.store.change("pods", "default", self.jobs[name].name, lambda pod: pod["spec"].update(nodeName="n1"))
        self.becomes(name, status)

    def submit(self, name: str, manifest: dict[str, Any] | None = None) -> None:
        spec = JobSpec(
            f"{name}-1x1cpu-abcdefgh", "test_it.py::test_it", "k", Layout(1, 1, "cpu"), ("x",), run="rabcdefg"
        )
        spec = replace(spec, manifest=manifest)
        self.folder(name).mkdir()
        text = self.scheduler.render(spec)
        (self.folder(name) / self.scheduler.text_name).write_text(text)
        job_id = self.scheduler.submit(spec, text, self.folder(name))
        self.jobs[name] = Submitted(job_id, spec.name, time.time(), self.folder(name))

    def becomes(self, name: str, status: dict[str, Any]) -> None:
        named = [{**each, "name": "benchmark"} for each in status["containerStatuses"]]
        status = {**status, "containerStatuses": named}
        self.kube.store.patch_status("pods", "default", self.jobs[name].name, status)

    def event(self, name: str, message: str) -> None:
        pod = self.kube.store.get("pods", "default", self.jobs[name].name)
        about = {"kind": "Pod", "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]}
        event = {"metadata": {"generateName": "e-"}, "involvedObject": about, "reason": "Failed", "message": message}
        self.kube.store.create("events", "default", {**event, "lastTimestamp": "2026-11-20T22:11:00Z"})

    def close(self) -> None:
        """Follow no log any more."""
        for cluster in self.scheduler._clusters.values():
            for log in cluster._logs.values():
                with contextlib.suppress(RefusedError):  # its folder was taken away
                    log.close()

    def look(self, after_s: float = 0.0) -> dict[str, Status]:
        """At all jobs, by name."""
        self.now_s += after_s
        statuses = self.scheduler.status(list(self.jobs.values()))
        return {name: statuses[job.job_id] for name, job in self.jobs.items()}

    def until(self, name: str, state: State) -> dict[str, Status]:
        """As soon as a watch has told it."""
        end = time.monotonic() + 60
        while (seen := self.look())[name].state is not state:
            assert time.monotonic() < end, seen[name]
            time.sleep(0.01)
        return seen


@pytest.fixture
def space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Namespace]:
    monkeypatch.setattr(session, "PAUSES_S", (0.0, 0.0))
    with Kube(tmp_path / "kube", nodes=False) as kube:
        namespace = Namespace(tmp_path, kube)
        yield namespace
        namespace.close()


def test_polling_without_stopping_leaves_a_hopeless_job(space: Namespace) -> None:
    space.add("stuck", CANNOT_START)
    space.scheduler.ends_failed = False
    for after_s in (0.0, STOP_S + 1, STOP_S + 1):
        seen = space.look(after_s)["stuck"]
        assert seen.state is State.STARTING
        assert "what is left of it goes on until a session, or `cancel`, stops it: image cannot be" in seen.reason
        pod = space.kube.store.get("pods", "default", space.jobs["stuck"].name)
        assert pod["spec"]["activeDeadlineSeconds"] > 1
    space.scheduler.ends_failed = True
    assert "is being stopped: image cannot be pulled" in space.look()["stuck"].reason
    pod = space.kube.store.get("pods", "default", space.jobs["stuck"].name)
    assert pod["spec"]["activeDeadlineSeconds"] == 1


def test_a_job_that_may_not_be_stopped_ends_with_its_cause_and_what_to_type(space: Namespace) -> None:
    """It ends with its own cause, and says that it may hold a device, and what to type."""
    space.add("healthy", RUNS)
    space.add("stuck", CANNOT_START)
    space.kube.forbid("patch pods", "delete pods")
    for after_s in (0.0, STOP_S - 1):
        seen = space.look(after_s)
        assert seen["healthy"].state is State.RUNNING
        assert seen["stuck"].state is State.STARTING
        assert "is being stopped: image cannot be pulled" in seen["stuck"].reason
        assert "cannot patch resource" in seen["stuck"].reason
    for _again in range(2):
        seen = space.look(2.0)
        assert seen["healthy"].state is State.RUNNING
        assert seen["stuck"].state is State.IMAGE
        assert "none:1: not found; it could not be stopped: " in seen["stuck"].reason
        assert "it may still hold a device: kubectl " in seen["stuck"].reason
        assert seen["stuck"].reason.endswith(f" delete pod/{space.jobs['stuck'].name}")


@pytest.mark.parametrize("code", [429, 500, 503])
def test_stopping_a_job_is_retried_while_it_may_still_work(space: Namespace, code: int) -> None:
    """It is tried again, for as long as it may pass."""
    space.add("healthy", RUNS)
    space.add("stuck", CANNOT_START)
    space.kube.fault("(PATCH|DELETE)", "/pods/", None, code=code, retry_after=0)
    for after_s in (0.0, STOP_S + 1, UNSTOPPED_S / 2):
        seen = space.look(after_s)
        assert [each.state for each in seen.values()] == [State.RUNNING, State.STARTING]
    space.kube.clear_faults()
    seen = space.look(1.0)
    assert seen["healthy"].state is State.RUNNING
    assert seen["stuck"].state is State.IMAGE
    assert "could not be stopped" not in seen["stuck"].reason


def test_a_job_that_cannot_be_stopped_ends_with_the_reason(space: Namespace) -> None:
    space.add("stuck", CANNOT_START)
    space.kube.fault("(PATCH|DELETE)", "/pods/", None, code=500, message="failed calling webhook")
    space.look()
    (seen,) = space.look(UNSTOPPED_S + 1).values()
    assert seen.state is State.IMAGE
    assert "could not be stopped: cluster fake, namespace default: failed calling webhook: it may" in seen.reason


def test_a_missing_secret_ends_with_the_command_that_lists_those_that_exist(space: Namespace) -> None:
    missing = {"reason": "CreateContainerConfigError", "message": 'secret "token" not found'}
    space.add("stuck", {"phase": "Pending", "containerStatuses": [{"name": "c", "state": {"waiting": missing}}]})
    space.look()
    space.becomes("stuck", STOPPED)
    space.until("stuck", State.SECRET)
    (command,) = [line for line in space.scheduler.hints(space.jobs["stuck"]) if "secrets" in line]
    assert re.fullmatch(r"kubectl .*--namespace default get secrets,configmaps", command)


def test_a_job_that_has_ended_is_not_stopped(space: Namespace) -> None:
    space.add("stuck", CANNOT_START)
    space.kube.forbid("patch pods", "delete pods")
    space.look()
    space.becomes("stuck", STOPPED)
    assert "could not be stopped" not in space.until("stuck", State.IMAGE)["stuck"].reason


@pytest.mark.parametrize(("status", "state"), [(EXITED, State.EXITED), (DONE, State.SUCCEEDED)])
@pytest.mark.parametrize("gone", [True, False])
def test_an_unwritable_job_folder_is_reported_and_hides_no_result(
    space: Namespace, status: dict[str, Any], state: State, gone: bool
) -> None:
    """That is said, and hides no result."""
    space.add("healthy", RUNS)
    space.add("other", RUNS)
    if not gone:
        (space.folder("other") / "objects.yaml").mkdir()
    assert [each.state for each in space.look().values()] == [State.RUNNING, State.RUNNING]
    if gone:
        shutil.rmtree(space.folder("other"))
    space.becomes("other", status)
    for _again in range(2):
        seen = space.until("other", state)
        assert seen["healthy"].state is State.RUNNING
        assert seen["other"].reason.count("objects.yaml cannot be written") == 1
    assert space.scheduler.gaps(space.jobs["other"]) == ()


def test_an_unwritable_log_is_reported(space: Namespace) -> None:
    """Who reads it is told."""
    space.add("other", EXITED)
    (space.folder("other") / "logs").write_text("a file")
    (seen,) = space.look().values()
    assert seen.state is State.EXITED
    with pytest.raises(RefusedError, match="cannot be written"):
        space.scheduler.read(space.jobs["other"], 0)
    assert space.scheduler.gaps(space.jobs["other"]) == ()


@pytest.mark.parametrize("what", [{"code": 403}, {"code": 500}])
def test_a_kind_that_cannot_be_listed_affects_only_its_own_jobs(space: Namespace, what: dict[str, Any]) -> None:
    space.add("healthy", RUNS)
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}
    space.submit("other", {"apiVersion": "batch/v1", "kind": "Job", "spec": {"backoffLimit": 0, "template": template}})
    space.kube.fault("GET", "/jobs", None, message="no conversion", **what)
    seen = space.look()
    assert seen["healthy"].state is State.RUNNING
    assert seen["other"].state is State.UNKNOWN
    assert "no conversion" in seen["other"].reason
    space.kube.clear_faults()
    assert space.look()["other"].state is State.QUEUED


# --- what only explains ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", [{"code": 403}, {"code": 404}, {"code": 500}, {"reset": True}])
def test_unavailable_events_only_shorten_the_explanation(space: Namespace, what: dict[str, Any]) -> None:
    """They are poorer then, nobody is out of sight, and it is looked again: after a no, a minute later."""
    space.add("healthy", RUNS)
    space.add("waits", {"phase": "Pending", "containerStatuses": []})
    space.event("waits", "first")
    assert any("first" in told for told in space.look()["waits"].events)
    space.kube.fault("GET", "/(events|nodes|workloads)", None, **what)
    space.event("waits", "second")
    seen = space.look(EXPLANATION_AGE_S + 1)
    assert seen["healthy"].state is State.RUNNING
    assert [told for told in seen["waits"].events if "first" in told]  # what was known a moment ago
    asked = len(space.kube.requests)
    seen = space.look(REFUSED_S - 1)
    again = [each for each in space.kube.requests[asked:] if "/events" in each.path]
    assert bool(again) == (what.get("code") not in (403, 404))
    assert seen["waits"].state.live
    assert seen["waits"].events == ()  # which may not be true any more
    space.kube.clear_faults()
    assert any("second" in told for told in space.look(EXPLANATION_AGE_S)["waits"].events)


def test_an_outdated_eviction_does_not_end_a_running_job(space: Namespace) -> None:
    """Kueue had sent it back and has let it run since: what we know of that is some seconds older than its pod."""
    space.kube.add_crd("kueue.x-k8s.io", "v1beta2", "Workload", "workloads")
    labels = {"kueue.x-k8s.io/queue-name": "q"}
    pod = {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}
    space.submit("again", {"apiVersion": "v1", "kind": "Pod", "metadata": {"labels": labels}, "spec": pod})
    space.add("waits", {"phase": "Pending", "containerStatuses": []})  # for whose sake explanations are looked at
    store, name = space.kube.store, space.jobs["again"].name
    owners = [{"kind": "Pod", "name": name, "uid": store.get("pods", "default", name)["metadata"]["uid"]}]
    evicted = {"type": "Evicted", "status": "True", "reason": "PodsReadyTimeout", "message": "too slow"}
    meta, spec = {"name": "w", "ownerReferences": owners}, {"queueName": "q", "active": True}
    store.create("workloads", "default", {"metadata": meta, "spec": spec, "status": {"conditions": [evicted]}})
    seen = space.look()["again"]
    assert (seen.state, "evicted: PodsReadyTimeout" in seen.reason) == (State.QUEUED, True)
    admitted = [{**evicted, "status": "False"}, {"type": "Admitted", "status": "True", "reason": "Admitted"}]
    store.patch_status("workloads", "default", "w", {"conditions": admitted})
    store.change("pods", "default", name, lambda one: one["spec"].update(nodeName="n1"))
    store.patch_status("pods", "default", name, RUNS)
    seen = space.until("again", State.RUNNING)["again"]
    assert "is being stopped" not in seen.reason


def test_a_stopped_jobs_objects_are_kept_with_their_events(space: Namespace) -> None:
    space.add("stuck", CANNOT_START)
    space.event("stuck", "not found")
    assert space.look()["stuck"].state is State.STARTING
    space.becomes("stuck", STOPPED)
    space.until("stuck", State.IMAGE)
    kept = list(yaml.safe_load_all((space.folder("stuck") / "objects.yaml").read_text()))
    assert [each["kind"] for each in kept] == ["Pod", "Event"]


def lists(kube: Kube, plural: str) -> int:
    asked = [each for each in kube.requests if each.method == "GET" and each.path.endswith(f"/{plural}")]
    return sum(not each.watches for each in asked)


@pytest.mark.slow
def test_forty_successes_do_not_list_the_events_again(space: Namespace) -> None:
    names = [f"j{number}" for number in range(40)]
    for name in names:
        space.add(name, RUNS)
    space.look()
    for number, name in enumerate(names):
        space.becomes(name, DONE)
        space.until(name, State.SUCCEEDED)
        space.now_s = space.now_s + 0.5 if number % 2 else space.now_s
    assert lists(space.kube, "events") <= 1 + 10 / EXPLANATION_AGE_S


@pytest.mark.slow
def test_a_poll_lists_the_events_once_however_many_jobs_have_failed(space: Namespace) -> None:
    space.add("waits", {"phase": "Pending", "containerStatuses": []})
    for number in range(40):
        space.add(f"j{number}", RUNS)
    space.look()
    before = lists(space.kube, "events")
    for number in range(40):
        space.becomes(f"j{number}", EXITED)
    polls = 0
    while any(status.state is State.RUNNING for status in space.look(EXPLANATION_AGE_S).values()):
        polls += 1
    assert lists(space.kube, "events") - before <= polls + 1


def test_of_a_cancelled_job_only_its_files_are_left_to_look_at(space: Namespace) -> None:
    space.submit("early")
    job = space.jobs["early"]
    assert any(line.startswith("kubectl ") for line in space.scheduler.hints(job))
    assert space.scheduler.cancel([job]) == {}
    assert not any(line.startswith("kubectl ") for line in space.scheduler.hints(job))
