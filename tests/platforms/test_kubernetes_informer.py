"""What a namespace holds of our runs: never lost, never doubled, and hardly ever asked for, whatever breaks."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from platforms.schedulers.kubernetes.api import informer
from platforms.schedulers.kubernetes.api.client import Client
from platforms.schedulers.kubernetes.api.informer import Informer, NamespaceObjects, ObjectCache, shared_informer
from platforms.schedulers.kubernetes.api.kubeconfig import ClusterTarget
from platforms.schedulers.kubernetes.api.resources import JOBS, PODS
from platforms.schedulers.kubernetes.objects import labels
from tests.fake_kubernetes import Kube

LIMIT_S = 60.0
EVER_S = 3600.0
RUN, OTHER = "rabc2345", "rxyz6789"


class Clock:
    """Stands still until it is set."""

    now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def kube(tmp_path: Path) -> Iterator[Kube]:
    with Kube(tmp_path, nodes=False) as kube:
        yield kube


def shortly(seconds: float) -> None:
    time.sleep(seconds / 4)


@pytest.fixture
def client(kube: Kube) -> Client:
    return Client(ClusterTarget(str(kube.kubeconfig)), sleep=shortly)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def seen(kube: Kube, client: Client, clock: Clock) -> Iterator[Seen]:
    one = Informer(client, clock=clock, sleep=shortly)
    yield Seen(kube, one)
    one.close()


class Seen:
    """An informer, and the requests that it has sent."""

    def __init__(self, kube: Kube, informer: Informer) -> None:
        self.kube = kube
        self.informer = informer

    def look(self, *runs: str, max_age_s: float = EVER_S) -> NamespaceObjects:
        return self.informer.snapshot([PODS], runs or (RUN,), max_age_s=max_age_s)

    def asked(self) -> list[str]:
        pods = [request for request in self.kube.requests if request.path.endswith("/pods") and request.method == "GET"]
        return ["watch" if request.watches else "list" for request in pods]

    def until(self, right: Callable[[NamespaceObjects], object], *runs: str) -> NamespaceObjects:
        """Look until what is seen is right."""
        end = time.monotonic() + LIMIT_S
        while not right(view := self.look(*runs)):
            assert time.monotonic() < end, view
            time.sleep(0.02)
        return view

    def follow(self, *runs: str) -> None:
        """Until a watch is heard: looking costs no request then."""
        self.look(*runs)
        end = time.monotonic() + LIMIT_S
        pods = self.informer._informers[PODS]
        while not pods._watch_is_open:
            assert time.monotonic() < end
            time.sleep(0.01)
            if not pods._has_thread:
                self.look(*runs)


def pod(kube: Kube, name: str, run: str = RUN) -> dict[str, Any]:
    metadata = {"name": name, "labels": {labels.MANAGED_BY: labels.OUR_NAME, labels.RUN: run}}
    spec = {"containers": [{"name": "c", "image": "i"}]}
    made: dict[str, Any] = kube.store.create("pods", "default", {"metadata": metadata, "spec": spec})
    return made


def phases(found: NamespaceObjects | ObjectCache) -> dict[str, str]:
    return {each["metadata"]["name"]: (each.get("status") or {}).get("phase", "") for each in found.objects.values()}


# --- what is seen ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 100])
def test_changes_arrive_by_watch_and_not_by_list(seen: Seen, count: int) -> None:
    for number in range(count):
        pod(seen.kube, f"p{number}")
    pod(seen.kube, "foreign", OTHER)
    assert len(seen.look().objects) == count
    seen.follow()
    before = seen.asked()
    for number in range(count):
        seen.kube.store.patch_status("pods", "default", f"p{number}", {"phase": "Running"})
    pod(seen.kube, "late")
    view = seen.until(lambda view: ("Pod", "late") in view.objects)
    assert phases(view) == {f"p{number}": "Running" for number in range(count)} | {"late": "Pending"}
    assert view.objects["Pod", "late"]["apiVersion"] == "v1"
    assert view.gone == {}
    assert seen.asked() == before
    assert before.count("watch") == 1
    assert before.count("list") <= 3


def test_a_vanished_object_is_reported_with_its_last_status(seen: Seen) -> None:
    old = pod(seen.kube, "p")["metadata"]["uid"]
    seen.look()
    seen.follow()
    seen.kube.store.patch_status("pods", "default", "p", {"phase": "Failed", "reason": "Preempted"})
    seen.kube.store.delete("pods", "default", "p", grace_s=0)
    view = seen.until(lambda view: view.gone)
    assert view.objects == {}
    assert view.gone["Pod", "p"]["status"]["reason"] == "Preempted"
    assert view.gone["Pod", "p"]["metadata"]["uid"] == old
    pod(seen.kube, "p")
    again = seen.until(lambda view: view.objects)
    assert again.gone == {}
    assert again.objects["Pod", "p"]["metadata"]["uid"] != old


def test_lists_suffice_if_the_role_has_no_watch(seen: Seen) -> None:
    seen.kube.forbid("watch pods")
    pod(seen.kube, "a")
    pod(seen.kube, "b")
    assert phases(seen.look()) == {"a": "Pending", "b": "Pending"}
    seen.kube.store.delete("pods", "default", "a", grace_s=0)
    view = seen.until(lambda view: view.gone)
    assert (set(view.gone), set(view.objects)) == ({("Pod", "a")}, {("Pod", "b")})
    seen.until(lambda _view: "watch" in seen.asked())
    seen.look()
    assert seen.asked().count("watch") == 1  # and not at every look


def test_each_run_sees_only_its_own_objects(seen: Seen) -> None:
    pod(seen.kube, "mine")
    pod(seen.kube, "theirs", OTHER)
    assert set(seen.look(RUN).objects) == {("Pod", "mine")}
    seen.follow(RUN)
    assert set(seen.look(OTHER).objects) == {("Pod", "theirs")}  # which begins another watch, for both
    seen.follow(RUN, OTHER)
    before = seen.asked()
    seen.kube.store.delete("pods", "default", "mine", grace_s=0)
    seen.kube.store.delete("pods", "default", "theirs", grace_s=0)
    seen.until(lambda view: len(view.gone) == 2, RUN, OTHER)
    assert set(seen.look(RUN).gone) == {("Pod", "mine")}
    assert set(seen.look(OTHER).gone) == {("Pod", "theirs")}
    assert seen.asked() == before
    watches = [request.query["labelSelector"] for request in seen.kube.requests if request.watches]
    assert watches == [labels.selector([RUN]), labels.selector([RUN, OTHER])]
    assert seen.informer.snapshot([PODS], [], max_age_s=0) == NamespaceObjects({}, {})
    assert seen.asked() == before


def test_one_look_returns_several_kinds(seen: Seen) -> None:
    metadata = pod(seen.kube, "p")["metadata"]
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}
    job = {"metadata": {"name": "p", "labels": metadata["labels"]}, "spec": {"template": template}}
    seen.kube.store.create("jobs", "default", job)
    view = seen.informer.snapshot([PODS, JOBS], [RUN], max_age_s=0)
    assert set(view.objects) == {("Pod", "p"), ("Job", "p")}


# --- what breaks -----------------------------------------------------------------------------------------------------


def nothing(kube: Kube) -> None:
    """For comparison."""


def cut(kube: Kube) -> None:
    """Every watch ends at once with a broken connection, the running one too."""
    kube.fault("GET", "watch=true", 2, cut_after=0)
    kube.restart()


def unanswered(kube: Kube) -> None:
    kube.fault("GET", "watch=true", 2, code=500)
    kube.fault("GET", "/pods[?](?!.*watch)", 2, code=503, retry_after=0.1)
    kube.restart()


def restarted(kube: Kube) -> None:
    kube.restart(0.4)


def shut_down(kube: Kube) -> None:
    kube.restart(0.3, graceful=True)


def compacted(kube: Kube) -> None:
    kube.compact(running=True)


def renewed(kube: Kube) -> None:
    kube.revoke_token()
    kube.renew_token()
    kube.restart()


def frozen(kube: Kube) -> None:
    kube.fault("GET", "watch=true", freeze=True)
    kube.restart()


@pytest.mark.parametrize("fault", [nothing, cut, unanswered, restarted, shut_down, compacted, renewed, frozen])
@pytest.mark.slow
def test_no_change_is_lost_whatever_breaks(
    seen: Seen, fault: Callable[[Kube], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(informer, "SILENCE_S", 0.5)
    for name in ("stays", "changes", "vanishes"):
        pod(seen.kube, name)
    seen.look()
    seen.follow()
    fault(seen.kube)
    seen.kube.store.patch_status("pods", "default", "changes", {"phase": "Running"})
    seen.kube.store.delete("pods", "default", "vanishes", grace_s=0)
    pod(seen.kube, "new")
    view = seen.until(lambda view: ("Pod", "new") in view.objects and view.gone)
    assert phases(view) == {"stays": "Pending", "changes": "Running", "new": "Pending"}
    assert set(view.gone) == {("Pod", "vanishes")}
    end = time.monotonic() + LIMIT_S
    while True:  # the watch heals by itself: what happens next is told
        seen.follow()
        before = seen.asked()
        pod(seen.kube, name := f"p{len(before)}-{time.monotonic_ns()}")
        seen.until(lambda view, name=name: ("Pod", name) in view.objects)
        if seen.asked() == before:
            break
        assert time.monotonic() < end


# --- how often is asked ----------------------------------------------------------------------------------------------


def test_a_list_is_reused_until_its_maximum_age(seen: Seen, clock: Clock) -> None:
    pod(seen.kube, "p")
    seen.look()
    seen.follow()
    seen.look(max_age_s=0)
    before = seen.asked()
    clock.now_s += 59
    seen.look(max_age_s=60)
    assert seen.asked() == before
    clock.now_s += 1
    seen.look(max_age_s=60)
    assert seen.asked() == [*before, "list"]
    seen.look(max_age_s=0)
    seen.look(max_age_s=0)
    assert seen.asked() == [*before, "list", "list", "list"]


def watching() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "watch-pods" and thread.is_alive()]


def test_an_idle_watch_ends(seen: Seen, clock: Clock) -> None:
    others = set(watching())
    pod(seen.kube, "p")
    seen.look()
    seen.follow()
    (thread,) = set(watching()) - others
    clock.now_s += 61
    pod(seen.kube, "q")  # as a bookmark would
    thread.join(LIMIT_S)
    assert not thread.is_alive()
    assert phases(seen.look()) == {"p": "Pending", "q": "Pending"}
    seen.follow()
    assert seen.asked().count("watch") == 2


@pytest.mark.slow
def test_simultaneous_looks_share_a_list(seen: Seen) -> None:
    pod(seen.kube, "p")
    seen.look()
    seen.follow()
    before = seen.asked().count("list")
    came = threading.Semaphore(0)

    def look(_: int) -> NamespaceObjects:
        came.release()
        return seen.look(max_age_s=0)

    def answer_late(_: object) -> None:
        assert all(came.acquire(timeout=LIMIT_S) for _look in range(8))
        time.sleep(0.3)

    seen.kube.fault("GET", "/pods[?](?!.*watch)", 1, do=answer_late)
    with ThreadPoolExecutor(8) as threads:
        views = list(threads.map(look, range(8)))
    assert all(set(view.objects) == {("Pod", "p")} for view in views)
    assert 1 <= seen.asked().count("list") - before <= 3


def test_all_platforms_of_a_namespace_share_one_informer(kube: Kube, client: Client) -> None:
    kube.namespace("mine")
    same = Client(ClusterTarget(str(kube.kubeconfig), kube.context))
    other = Client(ClusterTarget(str(kube.kubeconfig), namespace="mine"))
    one = shared_informer(client)
    assert shared_informer(same) is one
    assert shared_informer(other) is not one


# --- LISTs and events in any order -----------------------------------------------------------------------------------


def thing(name: str, version: int | str, uid: str = "u", phase: str = "") -> dict[str, Any]:
    return {"metadata": {"name": name, "uid": uid, "resourceVersion": str(version)}, "status": {"phase": phase}}


Step = Callable[[ObjectCache], None]


def listed(version: int | str, *things: dict[str, Any]) -> Step:
    return lambda cache: cache.replace(things, str(version))


def event(event_type: str, obj: dict[str, Any]) -> Step:
    return lambda cache: cache.apply(event_type, obj)


@pytest.mark.parametrize(
    ("steps", "objects", "gone"),
    [
        pytest.param([listed(9, thing("a", 8)), event("MODIFIED", thing("a", 7))], {"a": "8"}, {}, id="late-news"),
        pytest.param([listed(5), event("ADDED", thing("a", 7)), listed(6)], {"a": "7"}, {}, id="slow-list"),
        pytest.param([listed(5, thing("a", 4)), event("MODIFIED", thing("a", 8)), listed(6, thing("a", 4))],
                     {"a": "8"}, {}, id="slow-list-of-a-changed-one"),
        pytest.param([listed(5, thing("a", 4)), event("DELETED", thing("a", 8)), listed(6, thing("a", 4))],
                     {}, {"a": "8"}, id="slow-list-of-a-deleted-one"),
        pytest.param([listed(5, thing("a", 4)), listed(9), event("MODIFIED", thing("a", 7))], {}, {"a": "4"},
                     id="late-news-of-a-vanished-one"),
        pytest.param([listed(5, thing("a", 4)), listed(9), event("MODIFIED", thing("a", 7)),
                      event("DELETED", thing("a", 8))], {}, {"a": "8"}, id="late-news-of-its-end"),
        pytest.param([listed(5, thing("a", 4)), listed(9, thing("a", 8, "v")), event("DELETED", thing("a", 7))],
                     {"a": "8"}, {}, id="another-by-that-name"),
        pytest.param([listed(5, thing("a", 4)), event("DELETED", thing("a", 7)), event("ADDED", thing("a", 8, "v"))],
                     {"a": "8"}, {}, id="another-comes"),
        pytest.param([listed(5, thing("a", 4)), listed(9), listed(10, thing("a", 4))], {"a": "4"}, {}, id="back-again"),
        pytest.param([listed("x", thing("a", "p")), event("MODIFIED", thing("a", "q")), listed("y")], {}, {"a": "q"},
                     id="no-numbers-vanished"),
        pytest.param([listed("x"), event("ADDED", thing("a", "p")), event("MODIFIED", thing("a", "q"))], {"a": "q"}, {},
                     id="no-numbers"),
    ],
)  # fmt: skip
def test_the_newest_version_wins_in_any_order(steps: list[Step], objects: dict[str, str], gone: dict[str, str]) -> None:
    cache = ObjectCache()
    for step in steps:
        step(cache)
    for seen, right in ((cache.objects, objects), (cache.gone, gone)):
        assert {name: each["metadata"]["resourceVersion"] for name, each in seen.items()} == right


def test_a_pod_keeps_the_time_of_its_first_deletion_request() -> None:
    """Also where the first sight of that comes late, after a LIST of what came later."""
    cache = ObjectCache()
    grace = {"deletionTimestamp": "2026-11-20T22:12:00Z", "deletionGracePeriodSeconds": 30}
    last = {"deletionTimestamp": "2026-11-20T22:11:45Z", "deletionGracePeriodSeconds": 0}
    asked, over = (each | {"kind": "Pod"} for each in (thing("a", 7), thing("a", 9)))
    asked["metadata"] |= grace
    over["metadata"] |= last
    for step in (listed(9, over), event("MODIFIED", asked), listed(10)):
        step(cache)
    assert cache.gone == {"a": over}
    first_s = datetime.fromisoformat("2026-11-20T22:11:30+00:00").timestamp()
    assert cache.histories["u"].asked_s == first_s
