"""The test cluster's API server: that it answers as a real one was seen to answer."""

from __future__ import annotations

import http.client
import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from tests.clusters.ports import reserved_port
from tests.fake_kubernetes import Kube
from tests.fake_kubernetes.node.logs import LogFile

PATIENCE_S = 60.0
ROOT = Path(__file__).resolve().parents[3]
PODS = "/api/v1/namespaces/default/pods"
JOBS = "/apis/batch/v1/namespaces/default/jobs"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
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


def test_discovery_lists_groups_versions_and_resources(kube: Kube) -> None:
    assert ask(kube, "GET", "/version").json["gitVersion"].startswith("v1.36")
    assert ask(kube, "GET", "/api").json["versions"] == ["v1"]
    core = {row["name"]: row for row in ask(kube, "GET", "/api/v1").json["resources"]}
    assert core["pods"]["shortNames"] == ["po"]
    assert core["pods/log"]["verbs"] == ["get"]
    assert not core["nodes"]["namespaced"]
    groups = {group["name"]: group for group in ask(kube, "GET", "/apis").json["groups"]}
    assert groups["batch"]["preferredVersion"]["groupVersion"] == "batch/v1"
    assert {"storage.k8s.io", "authorization.k8s.io", "apiextensions.k8s.io"} <= set(groups)


@pytest.mark.parametrize("path", ["/apis/nope.io/v1", "/apis/graphcore.ai/v1alpha1/namespaces/default/ipujobs", "/x"])
def test_an_unknown_path_answers_404_without_a_status_object(kube: Kube, path: str) -> None:
    reply = ask(kube, "GET", path)
    assert (reply.status, reply.text) == (404, "404 page not found\n")
    assert reply.headers["Content-Type"].startswith("text/plain")


@pytest.mark.parametrize(
    ("method", "path", "body", "refusal"),
    [
        ("GET", f"{PODS}/y", None, (404, "NotFound", 'pods "y" not found')),
        ("GET", f"{JOBS}/y", None, (404, "NotFound", 'jobs.batch "y" not found')),
        ("POST", PODS, pod("dup"), (409, "AlreadyExists", 'pods "dup" already exists')),
        ("POST", PODS.replace("default", "nons"), pod(), (404, "NotFound", 'namespaces "nons" not found')),
        (
            "POST",
            f"{PODS}?fieldValidation=Strict",
            pod(container={"resorces": {}}),
            (
                400,
                "BadRequest",
                'Pod in version "v1" cannot be handled as a Pod: strict decoding error: unknown field '
                '"spec.containers[0].resorces"',
            ),
        ),
        (
            "POST",
            f"{JOBS}?fieldValidation=Strict&dryRun=All",
            job(backofLimit=0, paralelism=1),
            (
                400,
                "BadRequest",
                'Job in version "v1" cannot be handled as a Job: strict decoding error: unknown field '
                '"spec.backofLimit", unknown field "spec.paralelism"',
            ),
        ),
        (
            "POST",
            PODS,
            pod(container={"resources": {"limits": {"memory": "lots"}}}),
            (
                400,
                "BadRequest",
                'Pod in version "v1" cannot be handled as a Pod: quantities must match the regular expression '
                "'^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
            ),
        ),
        (
            "POST",
            PODS,
            pod(container={"env": [{"name": "OMP_NUM_THREADS", "value": 4}]}),
            (
                400,
                "BadRequest",
                'Pod in version "v1" cannot be handled as a Pod: json: cannot unmarshal number into Go struct field '
                "EnvVar.spec.containers.env.value of type string",
            ),
        ),
        ("POST", PODS, job(), (400, "BadRequest", None)),
        ("PUT", f"{PODS}/dup", pod("other"), (400, "BadRequest", None)),
        (
            "GET",
            f"{PODS}?fieldSelector=spec.image%3Dx",
            None,
            (400, "BadRequest", "field label not supported: spec.image"),
        ),
        ("GET", f"{PODS}?labelSelector=a+in+b", None, (400, "BadRequest", None)),
        ("POST", f"{PODS}/dup", pod("dup"), (405, "MethodNotAllowed", None)),
    ],
)
def test_bad_requests_are_refused_with_the_real_message(
    kube: Kube, method: str, path: str, body: Any, refusal: tuple[int, str, str | None]
) -> None:
    made(ask(kube, "POST", PODS, pod("dup")))
    code, reason, message = ask(kube, method, path, body).refusal
    assert (code, reason, message if refusal[2] is not None else None) == refusal
    assert ask(kube, "GET", PODS).json["items"][1:] == []


@pytest.mark.parametrize(
    ("path", "body", "message"),
    [
        (
            PODS,
            pod("Bad_Name"),
            r'Pod "Bad_Name" is invalid: metadata\.name: Invalid value: "Bad_Name": a lowercase RFC 1123',
        ),
        (PODS, pod("a" * 254), r"metadata\.name: Invalid value: .*must be no more than 253 bytes"),
        (PODS, pod(containers=[]), r'^Pod "x" is invalid: spec\.containers: Required value$'),
        (
            PODS,
            pod(containers=[{}]),
            r"^Pod \"x\" is invalid: \[spec\.containers\[0\]\.name: Required value, spec.*image: R",
        ),
        (
            PODS,
            pod(metadata={"labels": {"a": "b c"}}),
            r"metadata\.labels: Invalid value: \"b c\": a valid label must be an",
        ),
        (
            PODS,
            pod(container={"volumeMounts": [{"name": "d", "mountPath": "/d"}]}),
            r'volumeMounts\[0\]\.name: Not found: "d"',
        ),
        (
            PODS,
            pod(container={"resources": {"limits": {"cpu": "1"}, "requests": {"cpu": "2"}}}),
            r'requests: Invalid value: "2": must be less than or equal to cpu limit of 1',
        ),
        (
            PODS,
            pod(container={"resources": {"requests": {"nvidia.com/gpu": 1}}}),
            r"resources\.limits: Required value: Limit must be set for non overcommitable resources",
        ),
        (
            JOBS,
            {**job(), "spec": {"template": {"spec": pod()["spec"]}}},
            r'^Job\.batch "j" is invalid: spec\.template\.spec\.restartPolicy: Required value: valid values: '
            r'"OnFailure", "Never"$',
        ),
        (JOBS, job("j" * 64), r"spec\.template\.labels: Invalid value: \"j+\": must be no more than 63 bytes"),
        (JOBS, job(backoffLimit=-1), r"spec\.backoffLimit: Invalid value: -1: must be greater than or equal to 0"),
        (JOBS, job(completionMode="Indexed"), r"spec\.completions: Required value: when completion mode is Indexed"),
        (
            "/api/v1/namespaces/default/services",
            {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "1x"}, "spec": {}},
            r'^Service "1x" is invalid: metadata\.name: Invalid value: "1x": a DNS-1035 label must',
        ),
        (
            "/api/v1/namespaces/default/configmaps",
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "big"}, "binaryData": {"a": "A" * 1500000}},
            r"Too long: may not be more than 1048576 bytes",
        ),
        (
            PODS,
            pod(
                container={"volumeMounts": [{"name": name, "mountPath": "/d"} for name in "ab"]},
                volumes=[{"name": name, "emptyDir": {}} for name in "ab"],
            ),
            r'spec\.containers\[0\]\.volumeMounts\[1\]\.mountPath: Invalid value: "/d": must be unique$',
        ),
        (
            PODS,
            pod(container={"securityContext": {"runAsUser": 1 << 31}}),
            r"securityContext\.runAsUser: Invalid value: 2147483648: must be between 0 and 2147483647, inclusive$",
        ),
        (
            PODS,
            pod(securityContext={"fsGroup": -1}),
            r"spec\.securityContext\.fsGroup: Invalid value: -1: must be between 0 and 2147483647, inclusive$",
        ),
        (
            PODS,
            pod(tolerations=[{"key": "a", "operator": "Exist"}]),
            r'tolerations\[0\]\.operator: Unsupported value: "Exist": supported values: "Equal", "Exists"$',
        ),
        (
            PODS,
            pod(tolerations=[{"key": "a", "effect": "No"}]),
            r'effect: Unsupported value: "No": supported values: "NoSchedule", "PreferNoSchedule", "NoExecute"$',
        ),
        (
            PODS,
            pod(tolerations=[{"key": "a", "tolerationSeconds": 30}]),
            r"effect: Invalid value: \"\": effect must be 'NoExecute' when `tolerationSeconds` is set$",
        ),
        (PODS, pod(tolerations=[{}]), r"operator: Invalid value: \"\": operator must be Exists when `key` is empty"),
        (PODS, pod(tolerations=[{"key": "a b"}]), r'tolerations\[0\]\.key: Invalid value: "a b": name part must'),
        (PODS, pod(tolerations=[{"key": "a", "value": "b c"}]), r'operator: Invalid value: "b c": a valid label must'),
        (PODS, pod(nodeSelector={"a b": "c"}), r'spec\.nodeSelector: Invalid value: "a b": name part must consist'),
        (
            PODS,
            pod(volumes=[{"name": "a", "persistentVolumeClaim": {"claimName": ""}}]),
            r"volumes\[0\]\.persistentVolumeClaim\.claimName: Required value$",
        ),
    ],
)
def test_an_invalid_object_is_refused_with_its_causes(kube: Kube, path: str, body: Any, message: str) -> None:
    reply = ask(kube, "POST", path, body)
    assert reply.refusal[:2] == (422, "Invalid")
    assert re.search(message, reply.refusal[2]), reply.refusal[2]
    assert all(cause["field"] and cause["reason"].startswith("FieldValue") for cause in reply.json["details"]["causes"])


# what is written


def test_a_new_pod_gets_the_servers_defaults(kube: Kube) -> None:
    new = made(ask(kube, "POST", PODS, pod(restarPolicy="Never", container={"resources": {"limits": {"cpu": 1.5}}})))
    meta, spec = new["metadata"], new["spec"]
    assert meta["uid"]
    assert int(meta["resourceVersion"]) > 0
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", meta["creationTimestamp"])
    assert (spec["restartPolicy"], spec["terminationGracePeriodSeconds"]) == ("Always", 30)
    assert "restarPolicy" not in spec
    container = spec["containers"][0]
    assert container["terminationMessagePath"] == "/dev/termination-log"
    assert container["resources"] == {"limits": {"cpu": "1500m"}, "requests": {"cpu": "1500m"}}
    assert new["status"] == {"phase": "Pending", "qosClass": "Burstable"}


def test_unknown_fields_are_dropped_with_a_warning(kube: Kube) -> None:
    reply = ask(kube, "POST", JOBS, job(backofLimit=0))
    assert made(reply)["spec"]["backoffLimit"] == 6
    assert reply.headers["Warning"] == '299 - "unknown field \\"spec.backofLimit\\""'


def test_a_job_gets_its_selector_and_labels(kube: Kube) -> None:
    new = made(ask(kube, "POST", JOBS, job()))
    uid, spec = new["metadata"]["uid"], new["spec"]
    assert (spec["completions"], spec["parallelism"]) == (1, 1)
    assert spec["selector"] == {"matchLabels": {"batch.kubernetes.io/controller-uid": uid}}
    labels = spec["template"]["metadata"]["labels"]
    assert labels["batch.kubernetes.io/job-name"] == labels["job-name"] == "j"


def test_a_dry_run_stores_nothing(kube: Kube) -> None:
    made(ask(kube, "POST", PODS, pod(), dryRun="All"))
    assert ask(kube, "GET", f"{PODS}/x").status == 404


def test_put_with_an_old_resource_version_is_a_conflict(kube: Kube) -> None:
    old = made(ask(kube, "POST", PODS, pod()))
    new = {**old, "metadata": {**old["metadata"], "labels": {"a": "b"}}}
    assert ask(kube, "PUT", f"{PODS}/x", new).json["metadata"]["labels"] == {"a": "b"}
    assert ask(kube, "PUT", f"{PODS}/x", new).refusal == (
        409,
        "Conflict",
        'Operation cannot be fulfilled on pods "x": the object has been modified; please apply your changes to the '
        "latest "
        "version and try again",
    )


def test_status_and_spec_are_written_separately(kube: Kube) -> None:
    made(ask(kube, "POST", PODS, pod()))
    both = {"metadata": {"labels": {"a": "b"}}, "status": {"phase": "Running"}}
    assert ask(kube, "PATCH", f"{PODS}/x", both, kind=MERGE).json["status"]["phase"] == "Pending"
    after = ask(
        kube, "PATCH", f"{PODS}/x/status", {"spec": {"nodeName": "n"}, "status": {"phase": "Failed"}}, kind=MERGE
    )
    assert (after.json["status"]["phase"], after.json["spec"].get("nodeName")) == ("Failed", None)


# what is deleted


def test_deleting_a_pod_on_a_node_waits_for_its_grace_period(kube: Kube) -> None:
    made(ask(kube, "POST", PODS, pod()))
    kube.store.change("pods", "default", "x", lambda obj: obj["spec"].update(nodeName="node-1"))
    meta = ask(kube, "DELETE", f"{PODS}/x", {"gracePeriodSeconds": 7}).json["metadata"]
    assert (meta["deletionGracePeriodSeconds"], "deletionTimestamp" in meta) == (7, True)
    assert ask(kube, "GET", f"{PODS}/x").status == 200
    kube.store.remove("pods", "default", "x")
    assert ask(kube, "GET", f"{PODS}/x").status == 404


def test_an_eviction_says_why_and_deletes(kube: Kube) -> None:
    wait_until_running(kube)
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "x"}}
    made(ask(kube, "POST", f"{PODS}/x/eviction", body))
    now = kube.store.get("pods", "default", "x")
    assert now["metadata"]["deletionGracePeriodSeconds"] == 30
    (condition,) = now["status"]["conditions"]
    assert (condition["type"], condition["reason"]) == ("DisruptionTarget", "EvictionByEvictionAPI")


@pytest.mark.parametrize(
    ("options", "left", "owned"),
    [
        ({}, False, False),
        ({"propagationPolicy": "Orphan"}, False, False),
        ({"propagationPolicy": "Background"}, False, True),
        ({"propagationPolicy": "Foreground"}, True, True),
    ],
)
def test_a_job_deleted_without_a_policy_leaves_its_pods(
    kube: Kube, options: dict[str, str], left: bool, owned: bool
) -> None:
    owner = made(ask(kube, "POST", JOBS, job()))["metadata"]
    reference = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": owner["uid"], "controller": True}
    made(ask(kube, "POST", PODS, pod(metadata={"ownerReferences": [reference]})))
    assert ask(kube, "DELETE", f"{JOBS}/j", None, **options).status == 200
    after = ask(kube, "GET", f"{JOBS}/j")
    assert (after.status == 200) == left
    if left:
        assert after.json["metadata"]["finalizers"] == ["foregroundDeletion"]
    assert ("ownerReferences" in ask(kube, "GET", f"{PODS}/x").json["metadata"]) == owned


def test_delete_checks_the_preconditions(kube: Kube) -> None:
    made(ask(kube, "POST", PODS, pod()))
    code, reason, message = ask(kube, "DELETE", f"{PODS}/x", {"preconditions": {"uid": "other"}}).refusal
    assert (code, reason) == (409, "Conflict")
    assert "the UID in the precondition (other) does not match the UID in record" in message


# what is listed and watched


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ({"labelSelector": "run=1"}, "ab"),
        ({"labelSelector": "run!=1"}, "cd"),
        ({"labelSelector": "run in (1, 2),kind"}, "a"),
        ({"labelSelector": "run notin (1)"}, "cd"),
        ({"labelSelector": "!run"}, "d"),
        ({"fieldSelector": "metadata.name!=a", "labelSelector": "run"}, "bc"),
        ({"fieldSelector": "status.phase=Running"}, "c"),
    ],
)
def test_label_and_field_selectors_choose_objects(kube: Kube, query: dict[str, str], names: str) -> None:
    rows = {"a": {"run": "1", "kind": "x"}, "b": {"run": "1"}, "c": {"run": "2"}, "d": {}}
    for name, labels in rows.items():
        made(ask(kube, "POST", PODS, pod(name, metadata={"labels": labels})))
    kube.store.patch_status("pods", "default", "c", {"phase": "Running"})
    items = ask(kube, "GET", PODS, **query).json["items"]
    assert [row["metadata"]["name"] for row in items] == list(names)
    assert not any("kind" in row for row in items)


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


def test_a_watch_that_is_up_to_date_expires_only_when_asked_for(kube: Kube) -> None:
    with send(kube, "GET", PODS, watch="1", resourceVersion=str(kube.store.version)) as stream:
        kube.compact()
        made(ask(kube, "POST", PODS, pod()))
        assert json.loads(stream.readline())["type"] == "ADDED"
        kube.compact(running=True)
        assert json.loads(stream.readline())["object"]["reason"] == "Expired"
        assert stream.readline() == b""


# logs


def wait_until_running(kube: Kube, name: str = "x", **state: Any) -> Any:
    """A pod whose container is in that state, and its log."""
    made(ask(kube, "POST", PODS, pod(name)))
    kube.store.change("pods", "default", name, lambda obj: obj["spec"].update(nodeName="node-1"))
    row = {"name": "c", "restartCount": 0, "lastState": {}, "state": {"running": {}}, **state}
    now = kube.store.patch_status("pods", "default", name, {"containerStatuses": [row]})
    return kube.logs.open(now["metadata"]["uid"], "c", row["restartCount"])


@pytest.mark.parametrize(
    ("reason", "query", "message"),
    [
        ("ContainerCreating", {}, 'container "c" in pod "x" is waiting to start: ContainerCreating'),
        ("ErrImagePull", {}, 'container "c" in pod "x" is waiting to start: image can\'t be pulled'),
        ("ImagePullBackOff", {}, 'container "c" in pod "x" is waiting to start: trying and failing to pull image'),
        ("", {"container": "zz"}, "container zz is not valid for pod x"),
        ("", {"previous": "true"}, 'previous terminated container "c" in pod "x" not found'),
        ("", {"sinceTime": "yesterday"}, None),
    ],
)
def test_reading_the_log_of_a_waiting_container_answers_400(
    kube: Kube, reason: str, query: dict[str, str], message: str | None
) -> None:
    wait_until_running(kube, state={"waiting": {"reason": reason}} if reason else {"running": {}})
    code, kind, said = ask(kube, "GET", f"{PODS}/x/log", **query).refusal
    assert (code, kind) == (400, "BadRequest")
    assert message is None or said == message


def test_a_log_without_a_node_is_204_without_a_pod_404_without_a_kubelet_500(kube: Kube) -> None:
    assert ask(kube, "GET", f"{PODS}/x/log").refusal == (404, "NotFound", 'pods "x" not found')
    made(ask(kube, "POST", PODS, pod("early")))
    reply = ask(kube, "GET", f"{PODS}/early/log")
    assert (reply.status, reply.text) == (204, "")
    wait_until_running(kube)
    kube.logs.disconnect("node-1")
    code, reason, message = ask(kube, "GET", f"{PODS}/x/log", follow="true").refusal
    assert (code, reason) == (500, "InternalError")
    assert re.fullmatch(
        r'Get "https://[^"]*/containerLogs/default/x/c\?follow=true": dial tcp .*: connect: .* refused', message
    )


def test_a_log_is_returned_byte_for_byte(kube: Kube) -> None:
    log, long = wait_until_running(kube), b"x" * 40_000
    for piece in (b"one\ntw", b"o\n", b"\xff\n", long + b"\n", b"no newline"):
        log.write("stdout", piece)
    log.close()
    with send(kube, "GET", f"{PODS}/x/log") as answer:
        assert answer.read() == b"one\ntwo\n\xff\n" + long + b"\nno newline"
    with send(kube, "GET", f"{PODS}/x/log", timestamps="true") as answer:
        lines = answer.read().split(b"\n")
    assert [line.partition(b" ")[2] for line in lines] == [b"one", b"two", b"\xff", long, b"no newline"]
    assert all(re.match(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z ", line) for line in lines)


def test_log_options_select_parts_of_a_log(kube: Kube) -> None:
    log = wait_until_running(kube)
    log.write("stdout", b"a\nb\nc\n")
    assert ask(kube, "GET", f"{PODS}/x/log", tailLines="2").text == "b\nc\n"
    assert ask(kube, "GET", f"{PODS}/x/log", limitBytes="3").text == "a\nb"


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


def test_a_follow_ends_silently_when_its_kubelet_dies(kube: Kube) -> None:
    log = wait_until_running(kube)
    log.write("stdout", b"a\n")
    with send(kube, "GET", f"{PODS}/x/log", follow="true") as stream:
        assert stream.readline() == b"a\n"
        kube.logs.disconnect("node-1")
        assert stream.read() == b""
    kube.logs.connect("node-1")
    assert ask(kube, "GET", f"{PODS}/x/log").text == "a\n"


# who may what


def test_a_revoked_token_is_401_until_the_new_one_is_used(kube: Kube) -> None:
    old = kube.access.token
    kube.revoke_token()
    assert ask(kube, "GET", PODS, token=old).refusal == (401, "Unauthorized", "Unauthorized")
    assert old in kube.kubeconfig.read_text()
    kube.renew_token()
    token = json.loads(kube.kubeconfig.read_text())["users"][0]["user"]["token"]
    assert ask(kube, "GET", PODS, token=token).status == 200


@pytest.mark.parametrize(
    ("rule", "method", "path", "message"),
    [
        (
            "pods",
            "POST",
            PODS,
            'pods is forbidden: User "system:serviceaccount:default:ci" cannot create resource "pods" in API group "" '
            'in the namespace "default"',
        ),
        (
            "list nodes",
            "GET",
            "/api/v1/nodes",
            'nodes is forbidden: User "system:serviceaccount:default:ci" cannot list resource "nodes" in API group "" '
            "at the "
            "cluster scope",
        ),
        (
            "jobs",
            "GET",
            f"{JOBS}/j",
            'jobs.batch "j" is forbidden: User "system:serviceaccount:default:ci" cannot get resource "jobs" in API '
            'group "batch" in the namespace "default"',
        ),
        (
            "pods/log",
            "GET",
            f"{PODS}/x/log",
            'pods "x" is forbidden: User "system:serviceaccount:default:ci" cannot get resource "pods/log" in API '
            'group "" in the namespace "default"',
        ),
        (
            "events",
            "GET",
            "/api/v1/namespaces/default/events?watch=1",
            'events is forbidden: User "system:serviceaccount:default:ci" cannot watch resource "events" in API group '
            '"" in the namespace "default"',
        ),
    ],
)
def test_forbidden_verbs_answer_403(kube: Kube, rule: str, method: str, path: str, message: str) -> None:
    kube.forbid(rule)
    assert ask(kube, method, path, pod() if method == "POST" else None).refusal == (403, "Forbidden", message)
    kube.allow()
    assert ask(kube, method, f"{path}{'&' if '?' in path else '?'}timeoutSeconds=1").status != 403


def test_an_access_review_reports_forbidden_verbs(kube: Kube) -> None:
    kube.forbid("get pods/log")

    def may(**what: str) -> bool:
        review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview"}
        path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
        return made(ask(kube, "POST", path, {**review, "spec": {"resourceAttributes": what}}))["status"]["allowed"]  # type: ignore[no-any-return]

    assert may(verb="get", resource="pods")
    assert not may(verb="get", resource="pods", subresource="log")


# kinds that are made


def test_a_custom_kind_is_served_a_moment_after_its_definition(kube: Kube) -> None:
    spec = {"type": "object", "properties": {"jobInstances": {"type": "integer", "minimum": 1}}}
    schema = {"type": "object", "properties": {"spec": spec, "status": {"type": "object"}}}
    version = {"name": "v1alpha1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    names = {"kind": "IPUJob", "plural": "ipujobs"}
    definition = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "ipujobs.graphcore.ai"},
        "spec": {"group": "graphcore.ai", "scope": "Namespaced", "names": names, "versions": [version]},
    }
    path = "/apis/graphcore.ai/v1alpha1/namespaces/default/ipujobs"
    kube.custom_kinds.established_s = 600.0
    made(ask(kube, "POST", CRDS, definition))
    assert ask(kube, "GET", path).text == "404 page not found\n"
    assert ask(kube, "DELETE", f"{CRDS}/ipujobs.graphcore.ai").status == 200
    kube.custom_kinds.established_s = 0.1
    made(ask(kube, "POST", CRDS, definition))
    kube.until(lambda: kube.store.get("customresourcedefinitions", "", "ipujobs.graphcore.ai")["status"]["conditions"])

    def ipujob(name: str, **spec: Any) -> dict[str, Any]:
        return {"apiVersion": "graphcore.ai/v1alpha1", "kind": "IPUJob", "metadata": {"name": name}, "spec": spec}

    made(ask(kube, "POST", path, ipujob("i1", jobInstances=1, typo=2)))
    assert ask(kube, "GET", path).json["items"][0]["spec"] == {"jobInstances": 1}
    assert ask(kube, "POST", path, ipujob("i2", jobInstances=0)).refusal == (
        422,
        "Invalid",
        'IPUJob.graphcore.ai "i2" is invalid: spec.jobInstances: Invalid value: 0: spec.jobInstances in body should be '
        "greater than or equal to 1",
    )
    strict = ask(kube, "POST", path, ipujob("i3", typo=2), fieldValidation="Strict").refusal
    assert strict[2].endswith('strict decoding error: unknown field "spec.typo"')


# what goes wrong


def test_an_injected_fault_answers_with_its_code(kube: Kube) -> None:
    kube.fault("GET", r"/pods/x$", 2, code=503, retry_after=3)
    kube.fault("POST", "pods", code=500, message="etcdserver: leader changed")
    assert ask(kube, "GET", f"{PODS}/x").headers["Retry-After"] == "3"
    assert ask(kube, "GET", f"{PODS}/x").refusal[:2] == (503, "ServiceUnavailable")
    assert ask(kube, "GET", f"{PODS}/x").status == 404
    assert ask(kube, "POST", PODS, pod()).refusal == (500, "InternalError", "etcdserver: leader changed")
    seen = [(request.method, request.status) for request in kube.requests]
    assert seen == [("GET", 503), ("GET", 503), ("GET", 404), ("POST", 500)]


@pytest.mark.parametrize(("what", "done"), [({"reset": True}, False), ({"lost": True}, True)])
def test_an_injected_reset_comes_before_or_after_the_write(kube: Kube, what: dict[str, bool], done: bool) -> None:
    kube.fault("POST", "pods", **what)
    with pytest.raises(ConnectionError):
        ask(kube, "POST", PODS, pod())
    assert (ask(kube, "GET", f"{PODS}/x").status == 200) == done


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


def test_an_injected_fault_freezes_a_stream(kube: Kube) -> None:
    log = wait_until_running(kube)
    log.write("stdout", b"one\ntwo\n")
    kube.fault("GET", "/log", cut_after=4, freeze=True)
    connection = connect(kube)
    headers = {"Authorization": f"Bearer {kube.access.token}"}
    connection.request("GET", f"{PODS}/x/log?follow=true", headers=headers)
    stream = connection.getresponse()
    assert stream.readline() == b"one\n"
    log.close()
    connection.sock.settimeout(0.3)
    with pytest.raises(TimeoutError):
        stream.readline()
    stream.close()
    connection.close()


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
    def run(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "tests.fake_kubernetes", *words]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)

    folder = tmp_path / "by hand"
    with reserved_port() as ours:
        by_hand(run, folder, ours.getsockname()[1])


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
