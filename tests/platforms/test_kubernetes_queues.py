"""A job's place in Kueue's queue: told while it waits, asked for once for all jobs, and nobody's trouble if missing."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from platforms.config.schema import Platform
from platforms.job import JobSpec, Layout, LoginNeeded, State, Status, Submitted
from platforms.schedulers.kubernetes.api import session
from platforms.schedulers.kubernetes.scheduler import KubernetesScheduler
from platforms.schedulers.kubernetes.snapshot import NO_QUEUE_S, QUEUE_AGE_S
from platforms.schedulers.kubernetes.status import kueue
from tests.fake_kubernetes import Kube
from tests.fake_kubernetes.api.messages import Answer
from tests.fake_kubernetes.kueue.kueue import Kueue

QUEUE = "kueue.x-k8s.io/queue-name"


class Waiting:
    """Jobs of ours in LocalQueue `ours`, and others' in `theirs`, of one ClusterQueue. Its clock passes when that says
    so."""

    def __init__(self, folder: Path, kube: Kube, queue: Kueue) -> None:
        self.kube, self.queue, self.now_s, self._folder = kube, queue, time.monotonic(), folder
        cluster = {"kubeconfig": str(kube.kubeconfig), "image": "i:1", "cpu": "1", "memory": "1Gi", "queue": "ours"}
        known = {"name": "k", "source": kube.folder / "k.yaml", "scheduler": "kubernetes", "device": "cpu"}
        platform = Platform.model_validate(known | {"layouts": {"default": ("1x1",)}, "kubernetes": cluster})
        self.scheduler = KubernetesScheduler(platform, clock=lambda: self.now_s)
        self.jobs: dict[str, Submitted] = {}

    def ours(self, *names: str) -> None:
        for name in names:
            spec = JobSpec(f"{name}-k2345abc", f"test_it.py::test_it[{name}]", "k", Layout(1, 1, "cpu"), ("x",),
                           run="rabcdefg")  # fmt: skip
            folder = self._folder / name
            folder.mkdir()
            text = self.scheduler.render(spec)
            (folder / self.scheduler.text_name).write_text(text)
            self.jobs[name] = Submitted(self.scheduler.submit(spec, text, folder), spec.name, time.time(), folder)
            self.kube.until(partial(self.known, spec.name))

    def theirs(self, *names: str) -> None:
        template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}
        for name in names:
            about = {"name": name, "labels": {QUEUE: "theirs"}}
            self.kube.store.create("jobs", "default", {"metadata": about, "spec": {"template": template}})
            self.kube.until(partial(self.known, name))

    def known(self, name: str) -> dict[str, Any] | None:
        """The Workload of a job."""
        try:
            return self.queue.workload(name)
        except KeyError:
            return None

    def gone(self, name: str) -> None:
        self.kube.store.delete("jobs", "default", name)
        self.kube.until(lambda: self.known(name) is None)

    def look(self, after_s: float = QUEUE_AGE_S) -> dict[str, Status]:
        """At all jobs, by name."""
        self.now_s += after_s
        statuses = self.scheduler.status(list(self.jobs.values()))
        return {name: statuses[job.job_id] for name, job in self.jobs.items()}

    def places(self, after_s: float = QUEUE_AGE_S) -> dict[str, int | None]:
        return {name: status.position for name, status in self.look(after_s).items()}

    @property
    def asked(self) -> list[str]:
        """What the visibility API was asked, discovery included."""
        return [each.path for each in self.kube.requests if kueue.VISIBILITY in each.path]


@pytest.fixture(params=[("v1beta2", "v1beta1"), ("v1beta1",)], ids=lambda versions: versions[0])
def waiting(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Waiting]:
    monkeypatch.setattr(session, "GLANCE_S", 60.0)  # by this machine's clock
    yield from made(tmp_path, versions=request.param)


@pytest.fixture
def silent(tmp_path: Path) -> Iterator[Waiting]:
    """With a Kueue that does not tell."""
    yield from made(tmp_path, visible=False)


def made(folder: Path, **how: Any) -> Iterator[Waiting]:
    with Kube(folder / "kube") as kube:
        queue = kube.kueue(queue="ours", quota={"cpu": "100"}, **how)
        queue.pause()
        queue.add_queue("theirs", "default", {})
        yield Waiting(folder, kube, queue)


def test_positions_change_as_other_workloads_leave_and_overtake(waiting: Waiting) -> None:
    waiting.theirs("first", "second")
    waiting.ours("a")
    waiting.theirs("third")
    waiting.ours("b")
    assert waiting.places() == {"a": 3, "b": 5}
    waiting.gone("second")
    assert waiting.places() == {"a": 2, "b": 4}
    name = waiting.queue.workload("third")["metadata"]["name"]
    waiting.kube.store.change("workloads", "default", name, lambda one: one["spec"].update(priority=9))
    wait_until(lambda: waiting.places() == {"a": 3, "b": 4})


def wait_until(true: Any) -> None:
    end = time.monotonic() + 60
    while not true():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_a_changed_position_changes_neither_state_nor_reason(waiting: Waiting) -> None:
    """By which a session knows that there is something to say."""
    waiting.theirs("first")
    waiting.ours("a")
    before = waiting.look()["a"]
    waiting.gone("first")
    after = waiting.look()["a"]
    assert (before.position, after.position) == (2, 1)
    assert (before.state, before.reason) == (after.state, after.reason)
    assert before.state is State.QUEUED


def test_an_admitted_job_has_no_position_and_causes_no_request(waiting: Waiting) -> None:
    waiting.ours("a")
    assert waiting.places() == {"a": 1}
    waiting.queue.pause(on=False)
    wait_until(lambda: kueue.admitted(waiting.queue.workload("a-k2345abc")))
    count = len(waiting.asked)
    for _again in range(3):
        seen = waiting.look()["a"]
        assert (seen.position, seen.state.live) == (None, True)
    assert len(waiting.asked) == count


def test_positions_of_many_jobs_take_one_request(waiting: Waiting) -> None:
    """Once in a few seconds, and once for the version."""
    version = waiting.kube.store.kinds["workloads"].versions[0]
    path = f"/apis/{kueue.VISIBILITY}/{version}/namespaces/default/localqueues/ours/pendingworkloads"
    waiting.ours("a")
    assert waiting.places(0.0) == {"a": 1}
    waiting.ours(*"bcdefghij")
    for _poll in range(10):
        waiting.look(QUEUE_AGE_S / 5)
    assert waiting.asked == [f"/apis/{kueue.VISIBILITY}", path, path, path]
    assert waiting.places(0.0) == {name: number for number, name in enumerate("abcdefghij", 1)}


@pytest.mark.parametrize(
    "what", [{"code": 403}, {"code": 404}, {"code": 401}, {"code": 410}, {"code": 429}, {"code": 503}, {"reset": True}]
)
def test_a_failing_visibility_api_leaves_the_position_empty(waiting: Waiting, what: dict[str, Any]) -> None:
    """It is one request, not repeated, then none for minutes; nor does its 401 mean that we must log in again."""
    fault = waiting.kube.fault("GET", "pendingworkloads", None, **what)
    waiting.ours("a", "b")
    for after_s in (0.0, 1.0, NO_QUEUE_S - 2):
        seen = waiting.look(after_s)
        assert [(each.state, each.position) for each in seen.values()] == [(State.QUEUED, None)] * 2
        assert "Kueue (queue ours)" in seen["a"].reason
    assert len(fault.hits) == 1
    waiting.kube.clear_faults()
    assert waiting.places() == {"a": 1, "b": 2}


def test_positions_stay_empty_without_the_right_and_return_with_it(waiting: Waiting) -> None:
    waiting.kube.forbid("get localqueues/pendingworkloads")
    waiting.ours("a")
    assert [waiting.places(), waiting.places()] == [{"a": None}] * 2
    assert len(waiting.asked) == 2
    waiting.kube.allow()
    assert waiting.places(NO_QUEUE_S) == {"a": 1}


def test_a_silent_visibility_api_is_not_waited_for(waiting: Waiting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "GLANCE_S", 0.5)
    fault = waiting.kube.fault("GET", "pendingworkloads", None, freeze=True)
    waiting.ours("a")
    assert waiting.look()["a"].state is State.QUEUED
    assert waiting.places() == {"a": None}
    assert len(fault.hits) == 1


def test_an_old_kueue_without_the_visibility_api_is_asked_once(silent: Waiting) -> None:
    silent.ours("a", "b")
    for _again in range(3):
        assert silent.places() == {"a": None, "b": None}
    assert silent.asked == [f"/apis/{kueue.VISIBILITY}"]


def test_positions_return_after_kueue_changed_its_version(waiting: Waiting) -> None:
    """By one that serves another version only."""
    waiting.ours("a")
    assert waiting.places() == {"a": 1}
    kind = waiting.kube.store.kinds[f"localqueues.{kueue.VISIBILITY}"]
    object.__setattr__(kind, "versions", ("v1beta3",))
    assert waiting.places() == {"a": None}
    assert waiting.places(NO_QUEUE_S) == {"a": 1}


def test_malformed_positions_are_ignored(waiting: Waiting) -> None:
    body = {"items": [None, {"metadata": {"name": 3}}, {"metadata": {}, "positionInClusterQueue": "x"}]}
    waiting.kube.fault("GET", "pendingworkloads", None, do=lambda request: Answer(200, body))
    waiting.ours("a")
    assert waiting.places() == {"a": None}


def test_an_expired_login_is_reported_while_positions_are_read(waiting: Waiting) -> None:
    waiting.ours("a")
    waiting.kube.revoke_token()
    with pytest.raises(LoginNeeded):
        waiting.look(100.0)


@pytest.mark.parametrize(
    ("said", "spec", "waits"),
    [
        ((), {}, True),
        ((("QuotaReserved", "False"),), {}, True),
        ((("QuotaReserved", "True"),), {}, False),
        ((("Evicted", "True"), ("QuotaReserved", "False")), {}, True),
        ((("Evicted", "True"), ("QuotaReserved", "False")), {"active": False}, False),
        ((("Finished", "True"),), {}, False),
        ((), {"queueName": ""}, False),
    ],
)
def test_pending_knows_which_workloads_wait(
    said: tuple[tuple[str, str], ...], spec: dict[str, Any], waits: bool
) -> None:
    rows = [{"type": name, "status": status} for name, status in said]
    workload = {"spec": {"queueName": "q", "active": True, **spec}, "status": {"conditions": rows}}
    assert kueue.pending(workload) is waits
