"""The nodes of the Kubernetes stand-in: they behave as real ones were seen to, and their containers are contained."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fake_kubernetes import Kube
from tests.fake_kubernetes.store.trees import Tree
from tests.fake_kubernetes.tests.helpers import (
    container,
    create_pod,
    events,
    get_pod,
    shell,
    wait_until_running,
)

RECORDED = Path(__file__).parents[2] / "platforms" / "kubernetes_recorded"


# As they were on the real cluster
SCENARIOS: dict[str, dict[str, Any]] = {
    "exit3": {"containers": [container(shell("exit 3"))]},
    "badcmd": {"containers": [container(["/no/such/binary"])]},
    "gpu-ok": {"containers": [container(["true"], resources={"limits": {"nvidia.com/gpu": "2"}})]},
    "img-never": {"containers": [container(["true"], image="bench.local/none:1", imagePullPolicy="Never")]},
    "deadline": {"containers": [container(shell("sleep 600"))], "terminationGracePeriodSeconds": 0},
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
    with kube:
        kube.node("node-1", capacity={"nvidia.com/gpu": "4"})
        for name, spec in SCENARIOS.items():
            create_pod(kube, name, **spec)
        wait_until_running(kube, "deadline")
        kube.store.change("pods", "default", "deadline", lambda one: one["spec"].update(activeDeadlineSeconds=1))
        yield kube


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
        rest = {key: one.get(key) for key in ("name", "ready", "restartCount", "image", "started")}
        boxes.append(states | rest | {"id": "containerID" in one, "imageID": bool(one["imageID"])})
    rows = [tuple(one.get(key) for key in ("type", "status", "reason", "message")) for one in status["conditions"]]
    plain = {key: status.get(key) for key in ("phase", "reason", "message", "hostIP")}
    keys = set(status) - {"allocatedResources", "observedGeneration", "resources", "qosClass"}
    return plain | {"boxes": boxes, "conditions": sorted(rows, key=str), "keys": keys}


@pytest.mark.parametrize("name", sorted(SCENARIOS))
@pytest.mark.slow
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
