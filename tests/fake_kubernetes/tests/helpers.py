"""What tests of the cluster itself type again and again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.fake_kubernetes import Kube
from tests.fake_kubernetes.api.errors import KubeError
from tests.fake_kubernetes.store.trees import Tree

BUSYBOX, PYTHON = "bench.local/busybox:1.35", "bench.local/python:3.11"


def container(command: Sequence[str], *, name: str = "c", image: str = BUSYBOX, **more: Any) -> Tree:
    return {"name": name, "image": image, "command": list(command), **more}


def template(command: Sequence[str], **spec: Any) -> Tree:
    """Of a pod with one container, that is not restarted."""
    rest = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 1, **spec}
    return {"spec": {"containers": [container(command)], **rest}}


# Ends by SIGTERM, as `sleep` alone does not when it is PID 1
def shell(script: str) -> list[str]:
    return ["sh", "-c", script]


def create_pod(
    kube: Kube, name: str, command: Sequence[str] = (), *, labels: dict[str, str] | None = None, **spec: Any
) -> Tree:
    """Creates a pod. `containers` in place of a command for another than one plain container."""
    return kube.store.create(
        "pods", "default", {"metadata": {"name": name, "labels": labels or {}}, **template(command, **spec)}
    )


def get_pod(kube: Kube, name: str) -> Tree | None:
    """As it is now; None when it is gone."""
    try:
        return kube.store.get("pods", "default", name)
    except KubeError:
        return None


def wait_until_running(kube: Kube, name: str) -> Tree:
    def look() -> Tree | None:
        found = get_pod(kube, name)
        return found if found and any("running" in state(found, at) for at in range(_count(found))) else None

    return kube.until(look)


def _count(found: Tree) -> int:
    return len(found["status"].get("containerStatuses", []))


def state(found: Tree, at: int = 0) -> Tree:
    return found["status"].get("containerStatuses", [{"state": {}}])[at]["state"]


def events(kube: Kube, name: str) -> list[tuple[str, str, str]]:
    """(type, reason, message) of an object's events."""
    found = kube.store.list("events", "default", fields=f"involvedObject.name={name}")[0]
    return [(event["type"], event["reason"], event["message"]) for event in found]
