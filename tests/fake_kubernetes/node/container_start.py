"""One start of a container: its image, its configuration, its process."""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.fake_kubernetes.node import container_spec
from tests.fake_kubernetes.node.environment import Misconfigured, environment
from tests.fake_kubernetes.node.images import invalid, is_always_pulled
from tests.fake_kubernetes.node.pod_status import NEVER, PodContainer, terminated
from tests.fake_kubernetes.node.volumes import held_bytes
from tests.fake_kubernetes.store.trees import timestamp

if TYPE_CHECKING:
    from tests.fake_kubernetes.node.pod_lifecycle import PodLifecycle

LONGEST_MESSAGE = 4096  # bytes of a termination message
HURRIED_S = 0.05  # containerd may date the start of a shorter container after its end
FROM_LOG = (2048, 80)  # bytes and lines of the log that replace it


class ContainerStart:
    """The way from an image to a running container, with everything that can go wrong."""

    def __init__(self, lifecycle: PodLifecycle, container: PodContainer) -> None:
        self._lifecycle, self._container, self._shared = lifecycle, container, lifecycle.node.shared
        self._image = str(container.spec["image"])
        self._policy = container.spec.get("imagePullPolicy")
        self._attempts = 0

    def begin(self) -> None:
        spec = self._lifecycle.pod["spec"]
        named = {each["name"]: each["image"] for each in (*spec.get("initContainers", ()), *spec["containers"])}
        self._image = str(named[self._container.name])  # the image may have been corrected meanwhile
        if why := invalid(self._image):
            self._wait_and_retry("InvalidImageName", why, event="InspectFailed")
        elif self._policy == "Never" and not self._shared.images.present(self._image):
            why = f'Container image "{self._image}" is not present with pull policy of Never'
            self._wait_and_retry("ErrImageNeverPull", why, event="ErrImageNeverPull")
        elif is_always_pulled(self._image, self._policy) or not self._shared.images.present(self._image):
            self._record("Normal", "Pulling", f'Pulling image "{self._image}"')
            self._lifecycle.node.after(self._shared.timings.pull_s, lambda: self._unless_stopped(self._pulled))
        else:
            words = "already present on machine and can be accessed by the pod"
            self._record("Normal", "Pulled", f'Container image "{self._image}" {words}')
            self._create()

    def _record(self, kind: str, reason: str, message: str) -> None:
        self._lifecycle.record_event(kind, reason, message, self._container)

    def _unless_stopped(self, action: Any) -> None:
        if not (self._lifecycle.stopping or self._lifecycle.over):
            action()

    def _wait_and_retry(self, reason: str, why: str, *, event: str = "") -> None:
        """Set a waiting reason and try again later."""
        if event:
            self._record("Warning", event, why)
        self._record("Warning", "Failed", f"Error: {reason if event else why}")
        self._wait(reason, why)
        self._attempts += 1
        self._lifecycle.later(self._attempts, self.begin)

    def _wait(self, reason: str, message: str) -> None:
        self._container.wait(reason, message)
        self._lifecycle.publish()

    def _pulled(self) -> None:
        if why := self._shared.images.pull(self._image):
            self._record("Warning", "Failed", f'Failed to pull image "{self._image}": {why}')
            self._record("Warning", "Failed", "Error: ErrImagePull")
            self._wait("ErrImagePull", why)
            self._attempts += 1
            pause = self._shared.timings.backoff(self._shared.timings.image_backoff_s, self._attempts)
            self._lifecycle.node.after(
                self._shared.timings.retry_s / 2, lambda: self._unless_stopped(lambda: self._back_off(why, pause))
            )
        else:
            self._shared.images.keep(self._image)
            size = "1ms (1ms including waiting). Image size: 1000 bytes."
            self._record("Normal", "Pulled", f'Successfully pulled image "{self._image}" in {size}')
            self._create()

    def _back_off(self, why: str, pause_s: float) -> None:
        backing = f'Back-off pulling image "{self._image}"'
        self._record("Normal", "BackOff", backing)
        self._record("Warning", "Failed", "Error: ImagePullBackOff")
        self._wait("ImagePullBackOff", f"{backing}: ErrImagePull: {why}")
        self._lifecycle.node.after(pause_s, lambda: self._unless_stopped(self.begin))

    def _create(self) -> None:
        lifecycle, container = self._lifecycle, self._container
        folder = lifecycle.folder / f"{container.name}-{container.restarts}"
        try:
            spec = self._specification(folder)
        except Misconfigured as error:
            self._wait_and_retry("CreateContainerConfigError", str(error))
            return
        container.image_id = "sha256:" + hashlib.sha256(self._image.encode()).hexdigest()
        container.process = ContainerProcess(lifecycle, container, folder)
        self._record("Normal", "Created", "Container created")
        spec["id"] = container.process.id
        if not self._shared.runtime.isolated:
            spec = container_spec.without_namespaces(lifecycle.pod, spec)
        log = self._shared.logs.open(lifecycle.uid, container.name, container.restarts)
        rotation = {"log_max": self._shared.log_max, "log_every_s": self._shared.log_every_s}
        self._shared.runtime.run(spec, log, lifecycle.node.runtime_listener(lifecycle.uid), **rotation)

    def _specification(self, folder: Path) -> dict[str, Any]:
        lifecycle, container = self._lifecycle, self._container
        user = container_spec.user_of(lifecycle.pod, container.spec, self._shared.images.users.get(self._image, 0))
        own = environment(
            lifecycle.pod, container.spec, lambda plural, name: lifecycle.node.get(lifecycle.pod, plural, name)
        )
        values = {**self._shared.environment, **own}
        image = self._shared.images[self._image]
        names = lifecycle.folder / "names"
        return container_spec.specification(
            lifecycle.pod, container.spec, folder, lifecycle.volumes.places, image, values, names, user
        )


class ContainerProcess:
    """A container that the runtime runs."""

    def __init__(self, lifecycle: PodLifecycle, container: PodContainer, folder: Path) -> None:
        self._lifecycle, self._container, self._folder = lifecycle, container, folder
        self.id = secrets.token_hex(32)
        self._started, self._began, self._pid = "", 0.0, 0

    def signal(self, number: int) -> None:
        self._lifecycle.node.shared.runtime.signal(self.id, number)

    def written(self) -> int:
        """Return the bytes written outside of volumes, as far as this machine shows them."""
        own = 0
        if self._pid and self._lifecycle.node.shared.runtime.isolated:
            with contextlib.suppress(OSError):  # it ends just now
                system = os.statvfs(f"/proc/{self._pid}/root/var")
                own = (system.f_blocks - system.f_bfree) * system.f_frsize
        return own + held_bytes(self._folder / "tmp")

    def handle_message(self, message: dict[str, Any]) -> bool:
        """Handle a message of the runtime. Returns True if the container has ended."""
        container, moment = self._container, timestamp(message["t"])
        container.id = f"containerd://{self.id}"
        if message["is"] == "running":
            self._started, self._began, self._pid = moment, message["t"], message["pid"]
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
        reason = "OOMKilled" if message["oom"] else "Error" if message["code"] else "Completed"
        last_word = self._message(failed=bool(message["code"]))
        container.state = terminated(message["code"], reason, self._started, moment, container.id, last_word)
        return True

    def _message(self, *, failed: bool) -> str:
        data = (self._folder / "termination-log").read_bytes()[-LONGEST_MESSAGE:]
        if not data and failed and self._container.spec.get("terminationMessagePolicy") == "FallbackToLogsOnError":
            log = self._lifecycle.node.shared.logs.find(
                self._lifecycle.uid, self._container.name, self._container.restarts
            )
            text = b"".join(record.text for record in log.records(follow=False) if record) if log else b""
            data = b"".join(text[-FROM_LOG[0] :].splitlines(keepends=True)[-FROM_LOG[1] :])
        return data.decode(errors="replace")
