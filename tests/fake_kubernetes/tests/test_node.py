"""The nodes of the Kubernetes stand-in: they behave as real ones were seen to, and their containers are contained."""

from __future__ import annotations

import json
import os
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fake_kubernetes import Kube
from tests.fake_kubernetes.store.trees import Tree
from tests.fake_kubernetes.tests.helpers import (
    BUSYBOX,
    OBEDIENT,
    PYTHON,
    conditions,
    container,
    create_pod,
    events,
    get_pod,
    log_bytes,
    log_text,
    shell,
    state,
    wait_for_output,
    wait_until_ended,
    wait_until_running,
)
from tests.fake_kubernetes.timings import Timings

RECORDED = Path(__file__).parents[2] / "platforms" / "kubernetes_recorded"
GROW = "import time\nheld = [b'x' * (1 << 20) for _ in range(200)]\ntime.sleep(600)\n"
LIMIT = {"limits": {"memory": "64Mi"}}


def image(name: str, **more: Any) -> dict[str, Any]:
    return {"containers": [container(["true"], image=name, **more)]}


def python(command: list[str]) -> dict[str, Any]:
    return {"containers": [container(command, image=PYTHON, resources=LIMIT)]}


# As they were on the real cluster
SCENARIOS: dict[str, dict[str, Any]] = {
    "exit3": {"containers": [container(shell("exit 3"))]},
    "badcmd": {"containers": [container(["/no/such/binary"])]},
    "gpu-ok": {"containers": [container(["true"], resources={"limits": {"nvidia.com/gpu": "2"}})]},
    "img-404": image("127.0.0.1:25999/bench/none:1"),
    "img-401": image("127.0.0.1:25999/denied/none:1"),
    "img-500": image("127.0.0.1:25999/boom/none:1"),
    "img-refused": image("127.0.0.1:25998/bench/none:1"),
    "img-invalid": image("Bad Image:1:2"),
    "img-never": image("bench.local/none:1", imagePullPolicy="Never"),
    "crashloop": {"containers": [container(shell("exit 1"))], "restartPolicy": "Always"},
    "deadline": {
        "containers": [container(shell("sleep 600"))],
        "terminationGracePeriodSeconds": 0,
    },
    "deadline-pending": image("127.0.0.1:25999/bench/none:1"),
    "oom": python(["python", "-c", GROW]),
    "oom-child": python(["sh", "-c", f'python -c "{GROW}"; exit 0']),
    "novolume": {
        "containers": [container(["true"])],
        "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "nope"}}],
    },
    "unsched-gpu": {"containers": [container(["true"], resources={"limits": {"nvidia.com/gpu": "99"}})]},
    "unsched-sel": {"containers": [container(["true"])], "nodeSelector": {"no": "where"}},
}


@pytest.fixture(scope="module")
def kube(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kube]:
    """One node, with four GPUs; all recorded scenarios have been created."""
    kube = Kube(tmp_path_factory.mktemp("kube"))
    kube.components.timings = Timings(
        image_backoff_s=600.0, crash_backoff_s=600.0
    )  # they stay as they are to be looked at
    kube.images.refuse(":25998/", "refused")
    kube.images.refuse(":25999/bench/", "NotFound")
    kube.images.refuse("/denied/", "401")
    kube.images.refuse("/boom/", "500")
    with kube:
        kube.node("node-1", capacity={"nvidia.com/gpu": "4"})
        for name, spec in SCENARIOS.items():
            create_pod(kube, name, **spec)
        for name, reached in (("deadline", "running"), ("deadline-pending", "ImagePullBackOff")):
            kube.until(lambda name=name, reached=reached: reached in str(state(get_pod(kube, name) or {"status": {}})))
            kube.store.change("pods", "default", name, lambda one: one["spec"].update(activeDeadlineSeconds=1))
        yield kube


@pytest.fixture
def quick(tmp_path: Path) -> Iterator[Kube]:
    """One in which pauses are short."""
    with Kube(tmp_path / "quick") as kube:
        yield kube


@pytest.fixture
def isolated(kube: Kube) -> None:
    """Where this machine lets us make no namespaces, containers are just processes, and see and do more."""
    if not kube.components.runtime.isolated:
        pytest.skip("this machine lets us make no namespaces: run as root, or allow users to make them")


def told(message: str | None, found: Tree | None = None) -> str | None:
    """Without what is another one each time: uids and the node's name."""
    uid = found["metadata"]["uid"] if found else "2325618a-a86f-46a9-99f5-f91552534599"
    return message and message.replace(uid, "UID").replace(" to 127.0.0.1", " to node-1")


def outline(status: Tree, found: Tree | None = None) -> Tree:
    """All of a status that is the same each time."""
    boxes = []
    for one in status.get("containerStatuses", []):
        states = {}
        for when in ("state", "lastState"):
            for kind, body in one[when].items():
                fields = {key: told(body.get(key), found) for key in ("reason", "message")}
                states[when] = (kind, fields, body.get("exitCode"), body.get("startedAt", "").startswith("1970"))
        rest = {
            key: one.get(key) for key in ("name", "ready", "restartCount", "image", "started", "allocatedResources")
        }
        boxes.append(states | rest | {"id": "containerID" in one, "imageID": bool(one["imageID"])})
    rows = [tuple(one.get(key) for key in ("type", "status", "reason", "message")) for one in status["conditions"]]
    plain = {key: status.get(key) for key in ("phase", "reason", "message", "qosClass", "hostIP")}
    keys = set(status) - {"allocatedResources", "observedGeneration"}
    return plain | {"boxes": boxes, "conditions": sorted(rows, key=str), "keys": keys - {"resources"}}


@pytest.mark.parametrize("name", sorted(SCENARIOS))
def test_a_pod_ends_as_on_the_real_cluster(kube: Kube, name: str) -> None:
    recorded = json.loads((RECORDED / f"{name}.json").read_text())
    expected = outline(recorded["status"])

    def as_recorded() -> bool:
        writes = [event.obj for event in kube.store.events_since(101, "pods")]
        mine = [each for each in writes if each["metadata"]["name"] == name and "conditions" in each["status"]]
        return any(outline(each["status"], each) == expected for each in mine)

    try:
        kube.until(as_recorded)
    except TimeoutError:
        found = get_pod(kube, name)
        assert found
        assert outline(found["status"], found) == expected
    found = get_pod(kube, name)
    wanted = {(kind, reason, told(message)) for kind, reason, message, _ in recorded["events"]}
    kube.until(lambda: wanted <= {(kind, reason, told(words, found)) for kind, reason, words in events(kube, name)})


@pytest.mark.parametrize("name", ["exit3", "gpu-ok", "badcmd", "oom-child", "deadline"])
def test_a_pod_goes_through_the_states_of_a_real_one(kube: Kube, name: str) -> None:
    def told(rows: Any) -> list[Any]:
        seen: list[Any] = []
        for row in rows:
            if not seen or seen[-1] != row:
                seen.append(row)
        return seen

    recorded = json.loads((RECORDED / f"{name}.json").read_text())["transitions"]
    wait_until_ended(kube, name)
    writes = [event.obj for event in kube.store.events_since(101, "pods") if event.obj["metadata"]["name"] == name]
    statuses = [(one["status"]["phase"], one["status"].get("containerStatuses", [])) for one in writes]
    ours = told([phase, [kind for box in boxes for kind in box["state"]]] for phase, boxes in statuses)
    # only what every watch sees: the first sight may come with or without statuses
    assert [row for row in ours if row[1]] == [row for row in told(row[2:4] for row in recorded) if row[1]]


@pytest.mark.usefixtures("isolated")
def test_volumes_appear_only_where_they_are_mounted(kube: Kube) -> None:
    store = kube.store
    store.create(
        "configmaps",
        "default",
        {"metadata": {"name": "code"}, "data": {"a.txt": "text"}, "binaryData": {"b.bin": "/wA="}},
    )
    store.create("secrets", "default", {"metadata": {"name": "key"}, "stringData": {"token": "s3cret"}})
    store.create("persistentvolumeclaims", "default", {"metadata": {"name": "data"}, "spec": {}})
    volumes = [
        {"name": "code", "configMap": {"name": "code"}},
        {"name": "key", "secret": {"secretName": "key", "items": [{"key": "token", "path": "deep/t"}]}},
        {"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
        {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "4Mi"}},
        {"name": "scratch", "emptyDir": {}},
    ]
    mounts = [
        {"name": "code", "mountPath": "/hpc-test/code", "readOnly": True},
        {"name": "code", "mountPath": "/hpc-test/one.txt", "subPath": "a.txt"},
        {"name": "key", "mountPath": "/secrets"},
        {"name": "data", "mountPath": "/data", "subPath": "run/1"},
        {"name": "shm", "mountPath": "/dev/shm"},
        {"name": "scratch", "mountPath": "/scratch"},
    ]
    script = """
        cat /hpc-test/code/a.txt /hpc-test/one.txt /secrets/deep/t; echo; cat /hpc-test/code/b.bin | od -An -tx1
        echo no > /hpc-test/code/a.txt || echo readonly
        head -c 8000000 /dev/zero > /dev/shm/big || echo full
        echo kept > /data/file; echo gone > /usr/hpc-test; echo gone > /scratch/x; pwd
    """
    box = container(shell(script), volumeMounts=mounts, workingDir="/hpc-test/work")
    create_pod(kube, "volumes", containers=[box], volumes=volumes)
    assert wait_until_ended(kube, "volumes")["status"]["phase"] == "Succeeded"
    lines = [line for line in log_text(kube, "volumes").splitlines() if "sh:" not in line and "head:" not in line]
    assert lines == ["texttexts3cret", " ff 00", "readonly", "full", "/hpc-test/work"]
    reader = container(["cat", "/d/run/1/file"], volumeMounts=[{"name": "data", "mountPath": "/d"}])
    create_pod(kube, "reader", containers=[reader], volumes=volumes[2:3])
    wait_until_ended(kube, "reader")
    assert log_text(kube, "reader") == "kept\n"
    assert [path for path in ("/hpc-test", "/usr/hpc-test", "/secrets", "/scratch") if Path(path).exists()] == []


@pytest.mark.usefixtures("isolated")
def test_a_container_does_not_see_the_files_of_this_machine(kube: Kube, tmp_path: Path) -> None:
    (tmp_path / "own").touch()
    script = f"ls {tmp_path}/own {Path(__file__)}; echo $$$$; cat /etc/hostname; ls /tmp; ls -d /proc/[0-9]* | wc -l"
    create_pod(kube, "inside", shell(script))
    wait_until_ended(kube, "inside")
    lines = [line for line in log_text(kube, "inside").splitlines() if "cannot access" not in line]
    assert lines[:2] == ["1", "inside"]
    assert int(lines[-1]) <= 4


def test_a_container_gets_the_environment_of_its_spec(kube: Kube) -> None:
    kube.store.create("configmaps", "default", {"metadata": {"name": "env"}, "data": {"FROM": "map"}})
    env = [
        {"name": "A", "value": "1"},
        {"name": "B", "value": "$(A)$(FROM)$(NONE)$$(A)"},
        {"name": "NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": "LABEL", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['x/y']"}}},
        {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
        {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        {"name": "CPUS", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}},
        {"name": "KEY", "valueFrom": {"configMapKeyRef": {"name": "env", "key": "no", "optional": True}}},
    ]
    box = container(["sh", "-c", 'echo "$B" $NAME $LABEL $NODE $CPUS ${KEY-unset} $IP; env'], env=env)
    box |= {"envFrom": [{"configMapRef": {"name": "env"}}], "resources": {"limits": {"cpu": "1500m"}}}
    create_pod(kube, "environment", containers=[box], labels={"x/y": "z"})
    found = wait_until_ended(kube, "environment")
    first, *rest = log_text(kube, "environment").splitlines()
    assert first == f"1map$(NONE)$(A) environment z node-1 2 unset {found['status']['podIP']}"
    names = {line.partition("=")[0] for line in rest}
    assert names - {"PWD", "OLDPWD", "SHLVL", "_", "KUBE_CONTAINER"} == {
        *("A", "B", "NAME", "LABEL", "NODE", "IP", "CPUS", "FROM", "PATH", "HOME", "HOSTNAME"),
        *("KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"),
    }


def test_pods_reach_each_other_by_the_names_of_a_headless_service(kube: Kube) -> None:
    service = {
        "clusterIP": "None",
        "selector": {"app": "ring"},
        "publishNotReadyAddresses": True,
        "ports": [{"port": 1}],
    }
    kube.store.create("services", "default", {"metadata": {"name": "ring"}, "spec": service})
    serve = """
import socket
server = socket.create_server(("", 29577))
peer = server.accept()[0]
print(peer.recv(99).decode())
"""
    call = """
import os, socket, time
while True:
    try:
        peer = socket.create_connection(("ring-0.ring.default.svc.cluster.local", 29577))
        break
    except OSError:
        time.sleep(0.05)
peer.sendall(os.environ["HOSTNAME"].encode())
"""
    for index, script in enumerate((serve, call)):
        box = container(["python", "-c", script], image=PYTHON)
        name = f"ring-{index}"
        create_pod(kube, name, containers=[box], labels={"app": "ring"}, hostname=name, subdomain="ring")
    assert {wait_until_ended(kube, f"ring-{index}")["status"]["phase"] for index in (0, 1)} == {"Succeeded"}
    assert log_text(kube, "ring-0") == "ring-1\n"


@pytest.mark.parametrize(
    ("context", "expected"),
    [
        ({"runAsUser": 1234, "runAsGroup": 5678, "fsGroup": 99}, "1234 5678 99,5678 rooted"),
        ({"runAsUser": 1234, "runAsNonRoot": True}, "1234 0 0 rooted"),
        ({}, "0 0 0 written"),
    ],
    ids=["user", "not root", "root"],
)
@pytest.mark.usefixtures("isolated")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_a_container_runs_as_its_user_and_group(kube: Kube, context: dict[str, Any], expected: str) -> None:
    name = f"user-{len(context)}"
    groups = "id -G | tr ' ' '\\n' | sort -n | paste -sd,"
    script = f"echo $(id -u) $(id -g) $({groups}) $(touch /usr/x 2>/dev/null && echo written || echo rooted)"
    create_pod(kube, name, shell(script), securityContext=context)
    wait_until_ended(kube, name)
    assert sorted(log_text(kube, name).split()) == sorted(expected.split())


@pytest.mark.parametrize(
    ("name", "box", "message"),
    [
        (
            "no-secret",
            {"env": [{"name": "K", "valueFrom": {"secretKeyRef": {"name": "nope", "key": "k"}}}]},
            'secret "nope" not found',
        ),
        ("no-map", {"envFrom": [{"configMapRef": {"name": "nope"}}]}, 'configmap "nope" not found'),
        (
            "no-key",
            {"env": [{"name": "K", "valueFrom": {"configMapKeyRef": {"name": "kube-root-ca.crt", "key": "k"}}}]},
            "couldn't find key k in ConfigMap default/kube-root-ca.crt",
        ),
        (
            "as-root",
            {"securityContext": {"runAsNonRoot": True}},
            'container has runAsNonRoot and image will run as root (pod: "as-root_default(UID)", container: c)',
        ),
    ],
)
def test_a_container_with_a_missing_reference_stays_waiting(kube: Kube, name: str, box: Tree, message: str) -> None:
    create_pod(kube, name, containers=[container(["true"], **box)])
    kube.until(lambda: "CreateContainerConfigError" in str(get_pod(kube, name)))
    found = get_pod(kube, name)
    assert found
    assert found["status"]["phase"] == "Pending"
    assert told(state(found)["waiting"]["message"], found) == message
    assert ("Warning", "Failed", f"Error: {message}") in [(*row[:2], told(row[2], found)) for row in events(kube, name)]


def test_a_waiting_pod_starts_once_the_missing_object_exists(quick: Kube) -> None:
    kube = quick
    kube.images.refuse("healing/", "500", times=1)
    env = [{"name": "K", "valueFrom": {"secretKeyRef": {"name": "late", "key": "k"}}}]
    create_pod(kube, "healing", containers=[container(shell("echo $K"), image="healing/image:1", env=env)])
    kube.until(lambda: "CreateContainerConfigError" in str(get_pod(kube, "healing")))
    kube.store.create("secrets", "default", {"metadata": {"name": "late"}, "stringData": {"k": "v"}})
    assert wait_until_ended(kube, "healing")["status"]["phase"] == "Succeeded"
    assert log_text(kube, "healing") == "v\n"
    assert [row[1] for row in events(kube, "healing")].count("BackOff") == 1


def test_init_containers_come_first_and_containers_end_together(kube: Kube) -> None:
    first = [container(shell("echo 1 > /w/x"), name="i", volumeMounts=[{"name": "w", "mountPath": "/w"}])]
    boxes = [
        container(shell("cat /w/x"), name="a", volumeMounts=[{"name": "w", "mountPath": "/w"}]),
        container(shell("sleep 0.2; exit 5"), name="b"),
    ]
    create_pod(kube, "several", initContainers=first, containers=boxes, volumes=[{"name": "w", "emptyDir": {}}])
    found = wait_until_ended(kube, "several")
    assert found["status"]["phase"] == "Failed"
    assert [one["state"]["terminated"]["exitCode"] for one in found["status"]["containerStatuses"]] == [0, 5]
    assert found["status"]["initContainerStatuses"][0]["state"]["terminated"]["reason"] == "Completed"
    assert log_text(kube, "several", "a") == "1\n"
    create_pod(kube, "init-fails", initContainers=[container(shell("exit 4"), name="i")], containers=boxes[1:])
    found = wait_until_ended(kube, "init-fails")
    assert found["status"]["phase"] == "Failed"
    assert state(found)["waiting"]["reason"] == "PodInitializing"


def test_on_failure_a_container_is_started_again_until_it_succeeds(quick: Kube) -> None:
    kube = quick
    script = "echo try; [ -e /w/second ] && exit 0; [ -e /w/first ] && touch /w/second; touch /w/first; exit 1"
    box = container(shell(script), volumeMounts=[{"name": "w", "mountPath": "/w"}])
    create_pod(kube, "again", containers=[box], volumes=[{"name": "w", "emptyDir": {}}], restartPolicy="OnFailure")
    found = wait_until_ended(kube, "again")
    status = found["status"]["containerStatuses"][0]
    assert (found["status"]["phase"], status["restartCount"]) == ("Succeeded", 2)
    assert status["lastState"]["terminated"]["exitCode"] == 1
    assert [log_text(kube, "again", restart=number) for number in range(3)] == ["try\n"] * 3


@pytest.mark.parametrize(
    ("name", "script", "policy", "message"),
    [
        ("word", "printf done > /dev/termination-log; echo log", "File", "done"),
        ("long", "{ head -c 5000 /dev/zero | tr '\\0' x; printf end; } > /dev/termination-log", "File",
         "x" * 4093 + "end"),
        ("none", "echo log; exit 1", "File", None),
        ("fallback", "echo one; printf two; exit 1", "FallbackToLogsOnError", "one\ntwo"),
        ("good", "echo one", "FallbackToLogsOnError", None),
    ],
)  # fmt: skip
def test_a_termination_message_is_in_the_containers_status(
    kube: Kube, name: str, script: str, policy: str, message: str | None
) -> None:
    create_pod(kube, f"last-{name}", containers=[container(shell(script), terminationMessagePolicy=policy)])
    assert state(wait_until_ended(kube, f"last-{name}"))["terminated"].get("message") == message


def test_output_is_logged_byte_for_byte(kube: Kube) -> None:
    script = r"printf 'a\377\000b\r\n\n'; echo err >&2; head -c 40000 /dev/zero | tr '\0' y; printf '\nunfinished'"
    create_pod(kube, "bytes", shell(script))
    wait_until_ended(kube, "bytes")
    # the two streams come by two pipes: their order is nobody's; containerd drops a \r before its newline
    assert log_bytes(kube, "bytes").replace(b"err\n", b"", 1) == b"a\xff\x00b\n\n" + b"y" * 40000 + b"\nunfinished"


def test_stdout_and_stderr_may_be_logged_in_another_order_than_written(kube: Kube) -> None:
    # A busy machine may stop the shell between its two lines: then they are not simultaneous, and their order is kept.
    create_pod(kube, "streams", shell("for i in $(seq 20); do echo out; echo err >&2; sleep 0.05; done"))
    wait_until_ended(kube, "streams")
    lines = log_text(kube, "streams").splitlines()
    assert sorted(lines) == ["err"] * 20 + ["out"] * 20
    assert "err" in lines[0::2]


def test_a_very_short_container_may_have_a_start_time_after_its_end(kube: Kube) -> None:
    create_pod(kube, "short", ["true"])
    body = state(wait_until_ended(kube, "short"))["terminated"]
    assert body["finishedAt"] < body["startedAt"]


def test_an_unmounted_volume_may_be_missing(kube: Kube) -> None:
    lacking = [{"name": "s", "secret": {"secretName": "nope"}}]
    create_pod(kube, "unmounted", ["true"], volumes=lacking)
    assert wait_until_ended(kube, "unmounted")["status"]["phase"] == "Succeeded"
    assert "FailedMount" not in [reason for _kind, reason, _words in events(kube, "unmounted")]


def test_a_log_is_rotated_at_its_maximum_size(tmp_path: Path) -> None:
    kube = Kube(tmp_path)
    kube.components.log_max = 5000
    kube.components.log_every_s = 0.0
    with kube:
        create_pod(kube, "chatty", shell("for i in 1 2 3 4; do seq 1000; sleep 0.1; done; echo end"))
        wait_until_ended(kube, "chatty")
        lines = log_text(kube, "chatty").splitlines()
        said = [*(list(map(str, range(1, 1001))) * 4), "end"]
        assert len(lines) < len(said)  # what can be asked for is the last file
        assert lines == said[len(said) - len(lines) :]


@pytest.mark.usefixtures("isolated")
def test_a_deleted_pod_gets_sigterm_and_its_grace_period(kube: Kube) -> None:
    create_pod(kube, "polite", shell("trap 'echo bye; exit 0' TERM; echo ready; sleep 600 & wait"))
    create_pod(kube, "deaf", ["sleep", "600"])
    wait_for_output(kube, "polite", "ready")
    wait_until_running(kube, "deaf")
    kube.store.delete("pods", "default", "polite", grace_s=600)
    kube.until(lambda: get_pod(kube, "polite") is None)
    kube.store.delete("pods", "default", "deaf", grace_s=600)
    began = time.monotonic()
    kube.store.delete("pods", "default", "deaf", grace_s=1)  # in a hurry after all
    kube.until(lambda: get_pod(kube, "deaf") is None)
    assert time.monotonic() - began >= 1.0
    writes = kube.store.events_since(101, "pods")
    last = {event.obj["metadata"]["name"]: event.obj for event in writes}
    codes = [state(last[name])["terminated"]["exitCode"] for name in ("polite", "deaf")]
    assert codes == [0, 137]  # PID 1 does not end by a signal that it does not handle
    assert last["deaf"]["status"]["phase"] == "Failed"
    for name in ("polite", "deaf"):
        assert last_words(kube, name) == last_words_recorded(f"pod-deleted-{ENDS[name]}")


ENDS = {"polite": "sigterm-exit0", "deaf": "sigkill"}


def last_words(kube: Kube, name: str) -> list[Any]:
    """The last three sights of a pod that is deleted."""
    writes = [event for event in kube.store.events_since(101, "pods") if event.obj["metadata"]["name"] == name]
    return [_of_deletion(event.type, event.obj) for event in writes[-3:]]


def last_words_recorded(name: str) -> list[Any]:
    recorded = json.loads((RECORDED / "timelines" / f"{name}.json").read_text())["sights"]
    sights = [(how, each) for _time_s, kind, how, each in recorded if kind == "Pod"]
    return [_of_deletion(how, each) for how, each in sights[-3:]]


def _of_deletion(how: str, each: Tree) -> tuple[Any, ...]:
    meta, status = each["metadata"], each["status"]
    asked = meta["deletionGracePeriodSeconds"] > 0
    return how, status["phase"], asked, meta["generation"], status["observedGeneration"], list(state(each))


def test_a_pod_deadline_marks_a_container_that_never_ran_as_not_located(quick: Kube) -> None:
    create_pod(quick, "never", containers=[container(["true"], image="bench.local/none:1", imagePullPolicy="Never")])
    quick.until(lambda: "ErrImageNeverPull" in str(state(get_pod(quick, "never") or {"status": {}})))
    quick.store.change("pods", "default", "never", lambda one: one["spec"].update(activeDeadlineSeconds=1))
    quick.until(lambda: "terminated" in state(get_pod(quick, "never") or {"status": {}}))
    recorded = json.loads((RECORDED / "timelines" / "deadline-unstarted-never-pull.json").read_text())["sights"]
    sights = [state(each) for _time_s, kind, _how, each in recorded if kind == "Pod"]
    ours = [event.obj for event in quick.store.events_since(101, "pods") if event.obj["metadata"]["name"] == "never"]
    failed = [state(each) for each in ours if each["status"]["phase"] == "Failed"]
    assert failed == sights[-2:]


def test_a_pod_beyond_its_ephemeral_storage_limit_is_evicted(quick: Kube) -> None:
    limits = {"limits": {"ephemeral-storage": "5Mi"}}
    writes = container(shell("head -c 20000000 /dev/zero > /tmp/big; sleep 600"), resources=limits)
    create_pod(quick, "writes", containers=[writes])
    found = wait_until_ended(quick, "writes")
    recorded = json.loads((RECORDED / "timelines" / "ephemeral-limit.json").read_text())["sights"][-1][3]
    for key in ("reason", "message", "phase"):
        assert found["status"][key] == recorded["status"][key]
    assert state(found)["terminated"]["reason"] == state(recorded)["terminated"]["reason"]


@pytest.mark.usefixtures("isolated")
def test_files_outside_of_volumes_count_as_ephemeral_storage(quick: Kube) -> None:
    limits = {"limits": {"ephemeral-storage": "5Mi"}}
    writes = container(shell("head -c 20000000 /dev/zero > /var/big; sleep 600"), resources=limits)
    create_pod(quick, "writes", containers=[writes])
    assert wait_until_ended(quick, "writes")["status"]["reason"] == "Evicted"


def test_a_container_killed_from_outside_is_not_oom_killed(kube: Kube) -> None:
    create_pod(kube, "killed", ["sleep", "600"])
    wait_until_running(kube, "killed")
    kube.components.kill("killed", number=signal.SIGKILL)
    body = state(wait_until_ended(kube, "killed"))["terminated"]
    assert (body["exitCode"], body["reason"]) == (137, "Error")


def test_a_deadline_can_be_set_later(kube: Kube) -> None:
    create_pod(kube, "patched", shell(OBEDIENT))
    wait_for_output(kube, "patched", "ready")
    kube.store.change("pods", "default", "patched", lambda one: one["spec"].update(activeDeadlineSeconds=1))
    assert wait_until_ended(kube, "patched")["status"]["reason"] == "DeadlineExceeded"


def test_a_volume_over_its_limit_evicts_the_pod(kube: Kube) -> None:
    box = container(
        shell("head -c 12000000 /dev/zero > /s/big; sleep 600"), volumeMounts=[{"name": "s", "mountPath": "/s"}]
    )
    create_pod(kube, "greedy", containers=[box], volumes=[{"name": "s", "emptyDir": {"sizeLimit": "10Mi"}}])
    found = wait_until_ended(kube, "greedy")
    assert found["status"]["reason"] == "Evicted"
    assert found["status"]["message"] == 'Usage of EmptyDir volume "s" exceeds the limit "10Mi". '
    kube.until(lambda: "terminated" in state(get_pod(kube, "greedy") or found))
    recorded = json.loads((RECORDED / "timelines" / "emptydir-sizelimit.json").read_text())["sights"]
    sights = [each for _time_s, kind, _how, each in recorded if kind == "Pod"][-2:]
    ours = [event.obj for event in kube.store.events_since(101, "pods") if event.obj["metadata"]["name"] == "greedy"]
    for one, other in zip(ours[-2:], sights, strict=True):
        for key in ("state", "lastState", "restartCount"):
            assert one["status"]["containerStatuses"][0][key] == other["status"]["containerStatuses"][0][key]
    assert ("Warning", "Evicted", found["status"]["message"]) in events(kube, "greedy")


def test_a_node_under_memory_pressure_evicts_a_pod_with_its_reason(kube: Kube) -> None:
    create_pod(kube, "pressed", ["sleep", "600"])
    wait_until_running(kube, "pressed")
    kube.components.pressure("pressed")
    found = wait_until_ended(kube, "pressed")
    assert found["status"]["reason"] == "Evicted"
    assert conditions(found)["DisruptionTarget"] == ("True", "TerminationByKubelet")


def test_containers_run_on_but_nothing_is_reported_while_the_kubelet_is_down(kube: Kube) -> None:
    create_pod(kube, "onward", shell("trap 'echo bye; exit 7' TERM; echo ready; sleep 600 & wait"))
    wait_for_output(kube, "onward", "ready")
    kube.kubelet_down()
    try:
        kube.components.kill("onward", number=signal.SIGTERM)
        kube.until(lambda: "bye" in log_text(kube, "onward"))
        time.sleep(0.3)  # in which its end would be told
        found = get_pod(kube, "onward")
        assert found
        assert "running" in state(found)
    finally:
        kube.kubelet_up()
    assert state(wait_until_ended(kube, "onward"))["terminated"]["exitCode"] == 7


def test_a_lost_node_becomes_unknown_and_its_pods_keep_their_status(kube: Kube) -> None:
    kube.node("node-2", labels={"which": "second"})
    create_pod(kube, "lost", ["sleep", "600"], nodeSelector={"which": "second"})
    wait_until_running(kube, "lost")
    kube.lose_node("node-2")
    kube.until(lambda: conditions(kube.store.get("nodes", "", "node-2"))["Ready"] == ("Unknown", "NodeStatusUnknown"))
    kube.until(lambda: conditions(get_pod(kube, "lost") or {"status": {}})["Ready"][0] == "False")
    found = get_pod(kube, "lost")
    assert found
    assert found["status"]["phase"] == "Running"
    assert "running" in state(found)
    kube.kubelet_up("node-2")
    assert conditions(kube.store.get("nodes", "", "node-2"))["Ready"] == ("True", "KubeletReady")


def test_a_pod_that_does_nothing_takes_no_time(kube: Kube) -> None:
    took = []
    for number in range(5):
        began = time.monotonic()
        create_pod(kube, f"quick-{number}", ["true"])
        wait_until_ended(kube, f"quick-{number}")
        took.append(time.monotonic() - began)
    assert min(took) < 2.0  # a fortieth of that on a machine that has nothing else to do


def test_a_hundred_pods_run_at_once(kube: Kube) -> None:
    kube.node("node-1", capacity={"nvidia.com/gpu": "4", "cpu": "1000"})
    for number in range(100):
        create_pod(kube, f"many-{number}", shell(f"echo {number}; sleep 0.5; echo end"))
    assert {wait_until_ended(kube, f"many-{number}")["status"]["phase"] for number in range(100)} == {"Succeeded"}
    assert [log_text(kube, f"many-{number}") for number in range(100)] == [f"{number}\nend\n" for number in range(100)]


def test_closing_the_cluster_ends_all_its_processes(tmp_path: Path) -> None:
    with Kube(tmp_path) as kube:
        mark = f"mark-{tmp_path.name}-{os.getpid()}"
        script = f"setsid sh -c 'sleep 600; : {mark}' & trap '' TERM; sh -c 'sleep 600; : {mark}'; : {mark}"
        for number in range(3):
            create_pod(kube, f"tough-{number}", shell(script))
            wait_until_running(kube, f"tough-{number}")
        kube.until(lambda: len(_marked(mark)) >= 9)
    assert _marked(mark) == []


def _marked(mark: str) -> list[int]:
    found = []
    for path in Path("/proc").iterdir():
        if path.name.isdigit():
            try:
                words = (path / "cmdline").read_bytes()
            except OSError:
                continue
            if mark.encode() in words:
                found.append(int(path.name))
    return found


def test_without_linux_namespaces_mount_paths_are_rewritten(tmp_path: Path) -> None:
    kube = Kube(tmp_path)
    kube.components.plain = True
    kube.components.timings = Timings(settle_s=0.0)
    with kube:
        assert kube.components.runtime.isolated is False
        mounts = [{"name": "d", "mountPath": "/data"}, {"name": "d", "mountPath": "/data/deep", "subPath": "x"}]
        script = "echo $WHERE > $WHERE/f; cat /data/f; ls /data/deep/; echo word > /dev/termination-log; exit 3"
        box = container(
            shell(script), volumeMounts=mounts, env=[{"name": "WHERE", "value": "/data"}], workingDir="/data"
        )
        create_pod(kube, "plain", containers=[box], volumes=[{"name": "d", "emptyDir": {}}])
        body = state(wait_until_ended(kube, "plain"))["terminated"]
        assert (body["exitCode"], body["message"]) == (3, "word\n")
        assert log_text(kube, "plain").startswith(str(tmp_path))
        create_pod(kube, "plain-long", ["sleep", "600"])
        wait_until_running(kube, "plain-long")
        assert BUSYBOX in str(get_pod(kube, "plain-long"))
    with socket.socket() as free:  # the cluster has left nothing that listens
        free.bind(("127.0.0.1", 0))
