"""The test cluster's API server: that it answers as a real one was seen to answer."""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fake_kubernetes import Kube
from tests.fake_kubernetes.node.logs import LogFile

PATIENCE_S = 60.0
ROOT = Path(__file__).resolve().parents[3]
PODS = "/api/v1/namespaces/default/pods"
JOBS = "/apis/batch/v1/namespaces/default/jobs"


@pytest.fixture
def kube(tmp_path: Path) -> Iterator[Kube]:
    """Without nodes: pods stay what a test makes of them."""
    with Kube(tmp_path / "kube", nodes=False) as cluster:
        yield cluster


def ask(kube: Kube, method: str, path: str, body: Any = None) -> Any:
    """The body of the answer."""
    connection = http.client.HTTPConnection("127.0.0.1", kube.server.port, timeout=PATIENCE_S)
    headers = {"Authorization": f"Bearer {kube.access.token}", "Content-Type": "application/json"}
    connection.request(method, path, None if body is None else json.dumps(body), headers | {"Connection": "close"})
    with connection.getresponse() as answer:
        return json.load(answer)


def pod(name: str = "x", **spec: Any) -> dict[str, Any]:
    container = {"name": "c", "image": "bench.local/busybox:1.35", **spec.pop("container", {})}
    meta = {"name": name, **spec.pop("metadata", {})}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {"containers": [container], **spec}}


def job(name: str = "j", **spec: Any) -> dict[str, Any]:
    template = {"spec": {**pod()["spec"], "restartPolicy": "Never"}}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": {"template": template, **spec}}


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
    kube: Kube, method: str, path: str, body: Any, refusal: tuple[int, str, str]
) -> None:
    ask(kube, "POST", PODS, pod("dup"))
    status = ask(kube, method, path, body)
    assert (status["kind"], status["status"], status["code"], status["reason"]) == ("Status", "Failure", *refusal[:2])
    assert refusal[2] in status["message"]
    assert [each["metadata"]["name"] for each in ask(kube, "GET", PODS)["items"]] == ["dup"]


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


@pytest.mark.slow
def test_the_command_starts_and_ends_a_cluster(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.fake_kubernetes", str(tmp_path)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == f"export KUBECONFIG={tmp_path}/kubeconfig\n"
        process.terminate()
        assert process.wait(PATIENCE_S) == 0
    assert (tmp_path / "requests").read_text() == ""
