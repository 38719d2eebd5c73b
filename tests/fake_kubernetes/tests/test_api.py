"""The test cluster's API server: that it answers as a real one was seen to answer."""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from tests.fake_kubernetes import Kube
from tests.fake_kubernetes.node.logs import LogFile

PATIENCE_S = 60.0
ROOT = Path(__file__).resolve().parents[3]
PODS = "/api/v1/namespaces/default/pods"
JOBS = "/apis/batch/v1/namespaces/default/jobs"
MERGE = "application/merge-patch+json"


@pytest.fixture
def kube(tmp_path: Path) -> Iterator[Kube]:
    """Without nodes: pods stay what a test makes of them."""
    with Kube(tmp_path / "kube", nodes=False) as cluster:
        yield cluster


class Reply:
    def __init__(self, answer: http.client.HTTPResponse) -> None:
        self.status, self.headers, self._body = answer.status, answer.headers, answer.read()

    @property
    def text(self) -> str:
        return self._body.decode()

    @property
    def json(self) -> Any:
        return json.loads(self._body)

    @property
    def events(self) -> list[tuple[str, Any]]:
        return [(row["type"], row["object"]) for row in map(json.loads, self.text.splitlines())]

    @property
    def refusal(self) -> tuple[int, str, str]:
        """Of a Status: code, reason, message."""
        status = self.json
        assert (status["kind"], status["status"], status["code"]) == ("Status", "Failure", self.status)
        return status["code"], status["reason"], status["message"]


def connect(kube: Kube) -> http.client.HTTPConnection:
    return http.client.HTTPConnection("127.0.0.1", kube.server.port, timeout=PATIENCE_S)


def send(
    kube: Kube,
    method: str,
    path: str,
    body: Any = None,
    *,
    kind: str = "application/json",
    token: str = "",
    **query: Any,
) -> http.client.HTTPResponse:
    connection = connect(kube)
    headers = {"Authorization": f"Bearer {token or kube.access.token}", "Content-Type": kind, "Connection": "close"}
    target = path + (f"?{urlencode(query)}" if query else "")
    connection.request(method, target, None if body is None else json.dumps(body), headers)
    return connection.getresponse()


def ask(kube: Kube, method: str, path: str, body: Any = None, **more: Any) -> Reply:
    answer = send(kube, method, path, body, **more)
    with answer:
        return Reply(answer)


def pod(name: str = "x", **spec: Any) -> dict[str, Any]:
    container = {"name": "c", "image": "bench.local/busybox:1.35", **spec.pop("container", {})}
    meta = {"name": name, **spec.pop("metadata", {})}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {"containers": [container], **spec}}


def job(name: str = "j", **spec: Any) -> dict[str, Any]:
    template = {"spec": {**pod()["spec"], "restartPolicy": "Never"}}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": {"template": template, **spec}}


def made(reply: Reply) -> Any:
    assert reply.status == 201, reply.text
    return reply.json


# what is there


CANNOT = "cannot be handled as a Pod: "


@pytest.mark.parametrize(
    ("method", "path", "body", "refusal"),
    [
        ("GET", f"{PODS}/y", None, (404, "NotFound", 'pods "y" not found')),
        ("GET", f"{JOBS}/y", None, (404, "NotFound", 'jobs.batch "y" not found')),
        ("POST", PODS, pod("dup"), (409, "AlreadyExists", 'pods "dup" already exists')),
        ("POST", PODS.replace("default", "nons"), pod(), (404, "NotFound", 'namespaces "nons" not found')),
        ("POST", f"{PODS}?fieldValidation=Strict", pod(container={"resorces": {}}),
         (400, "BadRequest", f'{CANNOT}strict decoding error: unknown field "spec.containers[0].resorces"')),
        ("POST", PODS, pod(container={"resources": {"limits": {"memory": "lots"}}}),
         (400, "BadRequest", f"{CANNOT}quantities must match the regular expression ")),
        ("POST", PODS, pod(container={"env": [{"name": "OMP_NUM_THREADS", "value": 4}]}),
         (400, "BadRequest", f"{CANNOT}json: cannot unmarshal number into Go struct field EnvVar.spec")),
        ("POST", PODS, job(), (400, "BadRequest", "cannot be handled as a Pod")),
        ("POST", f"{PODS}/dup", pod("dup"), (405, "MethodNotAllowed", "")),
    ],
)  # fmt: skip
def test_bad_requests_are_refused_with_the_real_message(
    kube: Kube, method: str, path: str, body: Any, refusal: tuple[int, str, str | None]
) -> None:
    made(ask(kube, "POST", PODS, pod("dup")))
    code, reason, message = ask(kube, method, path, body).refusal
    assert (code, reason) == refusal[:2]
    assert refusal[2] in message
    assert ask(kube, "GET", PODS).json["items"][1:] == []


# what is listed and watched


def test_pages_show_one_resource_version_until_it_expires(kube: Kube) -> None:
    for name in "abcde":
        made(ask(kube, "POST", PODS, pod(name)))
    first = ask(kube, "GET", PODS, limit=2).json
    assert first["metadata"]["remainingItemCount"] == 3
    kube.store.delete("pods", "default", "c")
    made(ask(kube, "POST", PODS, pod("cc")))
    second = ask(kube, "GET", PODS, limit=2, **{"continue": first["metadata"]["continue"]}).json
    assert [row["metadata"]["name"] for row in second["items"]] == ["c", "d"]
    assert second["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]
    kube.compact()
    code, reason, message = ask(kube, "GET", PODS, limit=2, **{"continue": first["metadata"]["continue"]}).refusal
    assert (code, reason) == (410, "Expired")
    assert message.startswith("The provided continue parameter is too old")
    old = {"resourceVersion": first["metadata"]["resourceVersion"], "resourceVersionMatch": "Exact"}
    assert ask(kube, "GET", PODS, **old).refusal[:2] == (410, "Expired")


@pytest.mark.slow
def test_a_watch_sends_the_events_since_its_resource_version(kube: Kube) -> None:
    since = ask(kube, "GET", PODS).json["metadata"]["resourceVersion"]
    label = {"metadata": {"labels": {"run": "1"}}}
    made(ask(kube, "POST", PODS, pod()))
    ask(kube, "PATCH", f"{PODS}/x", label, kind=MERGE)
    ask(kube, "PATCH", f"{PODS}/x", {"metadata": {"labels": {"run": None}}}, kind=MERGE)
    ask(kube, "DELETE", f"{PODS}/x")

    def types(**query: str) -> list[str]:
        reply = ask(kube, "GET", PODS, watch="1", timeoutSeconds="1", resourceVersion=since, **query)
        return [event for event, obj in reply.events if obj["kind"] == "Pod"]

    assert types() == ["ADDED", "MODIFIED", "MODIFIED", "MODIFIED", "DELETED"]  # a pod is marked first, then gone
    assert types(labelSelector="run=1") == ["ADDED", "DELETED"]


def test_a_watch_from_an_expired_resource_version_sends_an_error_event(kube: Kube) -> None:
    kube.compact()
    now = kube.store.version
    ((event, status),) = ask(kube, "GET", PODS, watch="1", resourceVersion="1").events
    assert (event, status["code"], status["reason"]) == ("ERROR", 410, "Expired")
    assert status["message"] == f"too old resource version: 1 ({now})"


# logs


def wait_until_running(kube: Kube, name: str = "x", **state: Any) -> Any:
    """A pod whose container is in that state, and its log."""
    made(ask(kube, "POST", PODS, pod(name)))
    kube.store.change("pods", "default", name, lambda obj: obj["spec"].update(nodeName="node-1"))
    row = {"name": "c", "restartCount": 0, "lastState": {}, "state": {"running": {}}, **state}
    now = kube.store.patch_status("pods", "default", name, {"containerStatuses": [row]})
    return kube.logs.open(now["metadata"]["uid"], "c", row["restartCount"])


def test_a_follow_goes_on_over_a_rotation_until_the_container_ends(kube: Kube) -> None:
    log = wait_until_running(kube)
    log.write("stdout", b"before\n")
    with send(kube, "GET", f"{PODS}/x/log", follow="true") as stream:
        assert stream.readline() == b"before\n"
        kube.until(lambda: log.waiting == 1)
        log.write("stdout", b"last of the old\n")
        kube.rotate("x")
        log.write("stderr", b"after\n")
        assert ask(kube, "GET", f"{PODS}/x/log").text == "after\n"
        assert stream.readline() == b"last of the old\n"
        assert stream.readline() == b"after\n"
        log.write("stdout", b"rest")
        log.close()
        assert stream.read() == b"rest"


def test_a_slow_follow_skips_rotated_files_and_reads_the_newest_again(tmp_path: Path) -> None:
    log = LogFile(tmp_path / "0.log")
    log.write("stdout", b"a1\na2\n")
    followed = (record and record.text for record in log.followed())
    assert [next(followed) for _ in range(3)] == [b"a1\n", b"a2\n", None]
    log.write("stdout", b"a3\na4 half ")
    log.rotate()
    log.write("stdout", b"a4 whole\nb1\n")
    log.rotate()
    log.write("stdout", b"c1\n")
    assert [next(followed) for _ in range(5)] == [b"a3\n", b"a4 half ", b"c1\n", b"c1\n", None]
    log.rotate()
    log.write("stdout", b"d1\n")
    log.close()
    assert list(followed) == []  # the container is over: it ends with the file that it has open
    assert [record.text for record in log.records(follow=False) if record is not None] == [b"d1\n"]


def test_a_follow_ignores_rotations_while_it_reads_its_first_file(tmp_path: Path) -> None:
    log = LogFile(tmp_path / "0.log")
    log.write("stdout", b"a1\na2\n")
    followed = (record and record.text for record in log.followed())
    assert next(followed) == b"a1\n"
    log.rotate()
    log.write("stdout", b"b1\n")
    assert [next(followed), next(followed)] == [b"a2\n", None]
    log.rotate()
    log.write("stdout", b"c1\n")
    log.close()
    assert list(followed) == []


# what goes wrong


@pytest.mark.parametrize("clean", [False, True])
def test_an_injected_fault_cuts_a_stream_within_a_line(kube: Kube, clean: bool) -> None:
    log = wait_until_running(kube)
    log.write("stdout", b"one\ntwo\n")
    kube.fault("GET", "/log", cut_after=6, clean=clean)
    with send(kube, "GET", f"{PODS}/x/log", follow="true") as stream:
        if clean:
            assert stream.read() == b"one\ntw"
        else:
            with pytest.raises(http.client.IncompleteRead) as cut:
                stream.read()
            assert cut.value.partial == b"one\ntw"


@pytest.mark.slow
def test_a_killed_server_breaks_streams_and_comes_back_with_all_it_knew(kube: Kube) -> None:
    made(ask(kube, "POST", PODS, pod()))
    stream = send(kube, "GET", PODS, watch="1", resourceVersion=str(kube.store.version))
    kube.down()
    with stream, pytest.raises((http.client.IncompleteRead, ConnectionError)):
        stream.read()
    with pytest.raises(ConnectionRefusedError):
        ask(kube, "GET", PODS)
    kube.restart(0.3)
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        try:
            assert ask(kube, "GET", f"{PODS}/x").status == 200
            return
        except ConnectionRefusedError:
            time.sleep(0.05)
    pytest.fail("it does not come back")


# as its clients see it


@pytest.mark.slow
def test_the_command_starts_and_ends_a_cluster(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.fake_kubernetes", str(tmp_path)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == f"export KUBECONFIG={tmp_path}/kubeconfig\n"
        process.terminate()
        assert process.wait(PATIENCE_S) == 0
    assert (tmp_path / "requests").read_text() == ""


def by_hand(run: Callable[..., subprocess.CompletedProcess[str]], folder: Path, port: int) -> None:
    up = run("up", str(folder), "--port", str(port))
    try:
        assert (up.returncode, up.stdout) == (0, f"export KUBECONFIG={folder / 'kubeconfig'}\n"), up.stderr
        tree = json.loads((folder / "kubeconfig").read_text())
        assert tree["clusters"][0]["cluster"]["server"] == f"http://127.0.0.1:{port}"
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
        connection.request(
            "GET", "/api/v1/nodes", headers={"Authorization": f"Bearer {tree['users'][0]['user']['token']}"}
        )
        with connection.getresponse() as answer:
            assert [node["metadata"]["name"] for node in json.load(answer)["items"]] == ["node-1"]
        connection.close()
        assert run("up", str(folder)).returncode == 1
    finally:
        down = run("down", str(folder))
    assert down.returncode == 0, down.stderr
    assert run("down", str(folder)).returncode == 1
