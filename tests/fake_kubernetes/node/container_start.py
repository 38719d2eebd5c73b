"""One start of a container: its image, its configuration, its process."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.fake_kubernetes.node.container_spec import specification
from tests.fake_kubernetes.node.environment import Misconfigured, environment
from tests.fake_kubernetes.node.pod_status import NEVER, PodContainer, terminated
from tests.fake_kubernetes.store.trees import timestamp

if TYPE_CHECKING:
    from tests.fake_kubernetes.node.pod_lifecycle import PodLifecycle

IMAGES = ("bench.local/busybox:1.35", "bench.local/python:3.11")
LONGEST_MESSAGE = 4096  # bytes of a termination message
HURRIED_S = 0.05  # containerd may date the start of a shorter container after its end


class ContainerStart:
    """The way from an image to a running container, with what can go wrong."""

    def __init__(self, lifecycle: PodLifecycle, container: PodContainer) -> None:
        self._lifecycle, self._container, self._shared = lifecycle, container, lifecycle.node.shared
        self._attempts = 0

    def begin(self) -> None:
        image = str(self._container.spec["image"])
        if image in self._shared.images:
            words = "already present on machine and can be accessed by the pod"
            self._record("Normal", "Pulled", f'Container image "{image}" {words}')
            self._create()
        elif self._container.spec.get("imagePullPolicy") == "Never":
            why = f'Container image "{image}" is not present with pull policy of Never'
            self._record("Warning", "ErrImageNeverPull", why)
            self._wait_and_retry("ErrImageNeverPull", why)
        else:
            lead = f'failed to pull and unpack image "{image}": failed to resolve reference'
            why = f'{lead} "{image}": {image}: not found'
            self._record("Warning", "Failed", f'Failed to pull image "{image}": {why}')
            self._wait_and_retry("ImagePullBackOff", f'Back-off pulling image "{image}": ErrImagePull: {why}')

    def _record(self, kind: str, reason: str, message: str) -> None:
        self._lifecycle.record_event(kind, reason, message, self._container)

    def _wait_and_retry(self, reason: str, why: str) -> None:
        """Set a waiting reason and try again later."""
        self._record("Warning", "Failed", f"Error: {why if reason == 'CreateContainerConfigError' else reason}")
        self._container.wait(reason, why)
        self._lifecycle.publish()
        self._attempts += 1
        self._lifecycle.later(self._attempts, self.begin)

    def _create(self) -> None:
        lifecycle, container, shared = self._lifecycle, self._container, self._shared
        folder = lifecycle.folder / f"{container.name}-{container.restarts}"
        image = str(container.spec["image"])

        def get(plural: str, name: str) -> Any:
            return lifecycle.node.get(lifecycle.pod, plural, name)

        try:
            own = environment(lifecycle.pod, container.spec, get)
            values = {**shared.environment, **shared.images[image], **own}
            spec = specification(lifecycle.pod, container.spec, folder, lifecycle.volumes.places, values)
        except Misconfigured as error:
            self._wait_and_retry("CreateContainerConfigError", str(error))
            return
        container.image_id = "sha256:" + hashlib.sha256(image.encode()).hexdigest()
        container.process = ContainerProcess(lifecycle, container, folder, spec.id)
        self._record("Normal", "Created", "Container created")
        log = shared.logs.open(lifecycle.uid, container.name, container.restarts)
        shared.runtime.run(spec, log, lifecycle.node.runtime_listener(lifecycle.uid))


class ContainerProcess:
    """A container that the runtime runs."""

    def __init__(self, lifecycle: PodLifecycle, container: PodContainer, folder: Path, key: str) -> None:
        self._lifecycle, self._container, self._folder, self.id = lifecycle, container, folder, key
        self._started, self._began = "", 0.0

    def signal(self, number: int) -> None:
        self._lifecycle.node.shared.runtime.signal(self.id, number)

    def handle_message(self, message: dict[str, Any]) -> bool:
        """Handle a message of the runtime. Returns True if the container has ended."""
        container, moment = self._container, timestamp(message["t"])
        container.id = f"containerd://{self.id}"
        if message["is"] == "running":
            self._started, self._began = moment, message["t"]
            container.state = {"running": {"startedAt": moment}}
            self._lifecycle.record_event("Normal", "Started", "Container started", container)
            self._lifecycle.publish()
            return False
        if message["is"] == "unstartable":
            self._lifecycle.record_event("Warning", "Failed", f"Error: {message['why']}", container)
            container.state = terminated(128, "StartError", NEVER, moment, container.id, message["why"])
            return True
        if message["t"] - self._began < HURRIED_S:
            self._started = timestamp(message["t"] + 1)
        reason = "Error" if message["code"] else "Completed"
        last_word = self._message()
        container.state = terminated(message["code"], reason, self._started, moment, container.id, last_word)
        return True

    def _message(self) -> str:
        return (self._folder / "termination-log").read_bytes()[-LONGEST_MESSAGE:].decode(errors="replace")
