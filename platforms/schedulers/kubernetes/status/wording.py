"""What is said of containers, so that a person understands it: whose words they are, each said once."""

from __future__ import annotations

import re
from collections.abc import Sequence

from platforms.schedulers.kubernetes.status.events import ClusterEvent
from platforms.schedulers.kubernetes.status.pods import Container, Pod

# Kubelet and container runtime say the same thing once in each of their layers.
_NOISE = re.compile(
    r'Back-off pulling image "[^"]*"(: )?|ErrImagePull: |rpc error: code = \w+ desc = |Error response from daemon: |'
    r'failed to (pull and unpack image|resolve reference|pull image) "[^"]*": |Failed to pull image "[^"]*": |'
    r"failed to create containerd task: |failed to create shim task: |OCI runtime create failed: |"
    r"runc create failed: |unable to start container process: |: unknown$",
)


def plain(message: str) -> str:
    """The message without the layers that it came through."""
    return _NOISE.sub("", message).strip()


def cause(container: Container, events: Sequence[ClusterEvent]) -> str:
    """The message, and of a kubelet that only says that it backs off, the event that says why."""
    if container.waiting != "ImagePullBackOff" or "ErrImagePull" in container.message:
        return container.message
    told = (event.message for event in reversed(events) if "Failed to pull image" in event.message)
    return next((message for message in told if container.image in message), container.message)


def words(container: Container, events: Sequence[ClusterEvent]) -> str:
    said = cause(container, events)
    told = plain(said) or said or container.waiting
    quoted = re.search(r'image "([^"]+)"', said)
    image = quoted[1] if quoted else container.image
    about_image = "Image" in container.waiting and container.waiting != "InvalidImageName"
    return told if not about_image or image in told else f"{image}: {told}"


def waited_for(pod: Pod) -> str:
    """What a pod that never ran was waiting for when it was seen last."""
    waiting = next((each for each in pod.containers if each.waiting), None)
    if waiting is not None:
        return f"{waiting.waiting}: {words(waiting, ())}" if waiting.message else waiting.waiting
    said = pod.conditions.get("PodScheduled")
    return said.message if said is not None and not said.true else ""


def called(pod: Pod, container: Container) -> str:
    """Which container, where it is not the only one."""
    return f"{container.called}: " if container.role or len(pod.main) > 1 else ""
