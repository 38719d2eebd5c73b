"""One start of one container: its image, its configuration, its run."""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.fake_kubernetes.node import container_spec
from tests.fake_kubernetes.node.environment import Misconfigured, environment
from tests.fake_kubernetes.node.images import always_pulled, invalid
from tests.fake_kubernetes.node.pod_status import NEVER, Box, terminated
from tests.fake_kubernetes.node.volumes import held_bytes
from tests.fake_kubernetes.store.trees import timestamp

if TYPE_CHECKING:
    from tests.fake_kubernetes.node.pod_lifecycle import Life

LONGEST_MESSAGE = 4096  # bytes of a termination message
HURRIED_S = 0.05  # of a container that lasts no longer containerd may date the start after the end
FROM_LOG = (2048, 80)  # bytes and lines of the log that stand for it


class Start:
    """From the look for the image to the running container, with all that can go wrong on the way."""

    def __init__(self, life: Life, box: Box) -> None:
        self._life, self._box, self._shop = life, box, life.node.shop
        self._image = str(box.spec["image"])
        self._policy = box.spec.get("imagePullPolicy")
        self._attempts = 0

    def begin(self) -> None:
        spec = self._life.pod["spec"]
        named = {each["name"]: each["image"] for each in (*spec.get("initContainers", ()), *spec["containers"])}
        self._image = str(named[self._box.name])  # somebody may have corrected it
        if why := invalid(self._image):
            self._refused("InvalidImageName", why, told="InspectFailed")
        elif self._policy == "Never" and not self._shop.images.present(self._image):
            why = f'Container image "{self._image}" is not present with pull policy of Never'
            self._refused("ErrImageNeverPull", why, told="ErrImageNeverPull")
        elif always_pulled(self._image, self._policy) or not self._shop.images.present(self._image):
            self._tell("Normal", "Pulling", f'Pulling image "{self._image}"')
            self._life.node.after(self._shop.pace.pull_s, lambda: self._if_wanted(self._pulled))
        else:
            words = "already present on machine and can be accessed by the pod"
            self._tell("Normal", "Pulled", f'Container image "{self._image}" {words}')
            self._create()

    def _tell(self, kind: str, reason: str, message: str) -> None:
        self._life.tell(kind, reason, message, self._box)

    def _if_wanted(self, action: Any) -> None:
        if not (self._life.stopping or self._life.over):
            action()

    def _refused(self, reason: str, why: str, *, told: str = "") -> None:
        """A waiting state that is tried again and again."""
        if told:
            self._tell("Warning", told, why)
        self._tell("Warning", "Failed", f"Error: {reason if told else why}")
        self._wait(reason, why)
        self._attempts += 1
        self._life.later(self._attempts, self.begin)

    def _wait(self, reason: str, message: str) -> None:
        self._box.wait(reason, message)
        self._life.publish()

    def _pulled(self) -> None:
        if why := self._shop.images.pull(self._image):
            self._tell("Warning", "Failed", f'Failed to pull image "{self._image}": {why}')
            self._tell("Warning", "Failed", "Error: ErrImagePull")
            self._wait("ErrImagePull", why)
            self._attempts += 1
            pause = self._shop.pace.backoff(self._shop.pace.image_backoff_s, self._attempts)
            self._life.node.after(
                self._shop.pace.retry_s / 2, lambda: self._if_wanted(lambda: self._back_off(why, pause))
            )
        else:
            self._shop.images.keep(self._image)
            size = "1ms (1ms including waiting). Image size: 1000 bytes."
            self._tell("Normal", "Pulled", f'Successfully pulled image "{self._image}" in {size}')
            self._create()

    def _back_off(self, why: str, pause_s: float) -> None:
        backing = f'Back-off pulling image "{self._image}"'
        self._tell("Normal", "BackOff", backing)
        self._tell("Warning", "Failed", "Error: ImagePullBackOff")
        self._wait("ImagePullBackOff", f"{backing}: ErrImagePull: {why}")
        self._life.node.after(pause_s, lambda: self._if_wanted(self.begin))

    def _create(self) -> None:
        life, box = self._life, self._box
        folder = life.folder / f"{box.name}-{box.restarts}"
        try:
            spec = self._specification(folder)
        except Misconfigured as error:
            self._refused("CreateContainerConfigError", str(error))
            return
        box.image_id = "sha256:" + hashlib.sha256(self._image.encode()).hexdigest()
        box.run = Run(life, box, folder)
        self._tell("Normal", "Created", "Container created")
        spec["id"] = box.run.id
        if not self._shop.containers.isolated:
            spec = container_spec.rewritten(life.pod, spec)
        log = self._shop.logs.open(life.uid, box.name, box.restarts)
        rotation = {"log_max": self._shop.log_max, "log_every_s": self._shop.log_every_s}
        self._shop.containers.run(spec, log, life.node.teller(life.uid), **rotation)

    def _specification(self, folder: Path) -> dict[str, Any]:
        life, box = self._life, self._box
        user = container_spec.user_of(life.pod, box.spec, self._shop.images.users.get(self._image, 0))
        own = environment(life.pod, box.spec, lambda plural, name: life.node.get(life.pod, plural, name))
        values = {**self._shop.environment, **own}
        image = self._shop.images[self._image]
        names = life.folder / "names"
        return container_spec.specification(life.pod, box.spec, folder, life.volumes.places, image, values, names, user)


class Run:
    """A container that has been given to the runtime and has not ended."""

    def __init__(self, life: Life, box: Box, folder: Path) -> None:
        self._life, self._box, self._folder = life, box, folder
        self.id = secrets.token_hex(32)
        self._started, self._began, self._pid = "", 0.0, 0

    def signal(self, number: int) -> None:
        self._life.node.shop.containers.signal(self.id, number)

    def written(self) -> int:
        """Bytes that it has written beside its volumes, as far as this machine lets us see them."""
        own = 0
        if self._pid and self._life.node.shop.containers.isolated:
            with contextlib.suppress(OSError):  # it ends just now
                system = os.statvfs(f"/proc/{self._pid}/root/var")
                own = (system.f_blocks - system.f_bfree) * system.f_frsize
        return own + held_bytes(self._folder / "tmp")

    def hear(self, message: dict[str, Any]) -> bool:
        """What the runtime says of it. True when that was the end."""
        box, moment = self._box, timestamp(message["t"])
        box.id = f"containerd://{self.id}"
        if message["is"] == "running":
            self._started, self._began, self._pid = moment, message["t"], message["pid"]
            box.state = {"running": {"startedAt": moment}}
            self._life.tell("Normal", "Started", "Container started", box)
            self._life.publish()
            return False
        if message["is"] == "unstartable":
            self._life.tell("Warning", "Failed", f"Error: {message['why']}", box)
            box.state = terminated(128, "StartError", NEVER, moment, box.id, message["why"])
            return True
        if message["t"] - self._began < HURRIED_S:
            self._started = timestamp(message["t"] + 1)
        reason = "OOMKilled" if message["oom"] else "Error" if message["code"] else "Completed"
        last_word = self._message(failed=bool(message["code"]))
        box.state = terminated(message["code"], reason, self._started, moment, box.id, last_word)
        return True

    def _message(self, *, failed: bool) -> str:
        data = (self._folder / "termination-log").read_bytes()[-LONGEST_MESSAGE:]
        if not data and failed and self._box.spec.get("terminationMessagePolicy") == "FallbackToLogsOnError":
            log = self._life.node.shop.logs.find(self._life.uid, self._box.name, self._box.restarts)
            text = b"".join(record.text for record in log.records(follow=False) if record) if log else b""
            data = b"".join(text[-FROM_LOG[0] :].splitlines(keepends=True)[-FROM_LOG[1] :])
        return data.decode(errors="replace")
