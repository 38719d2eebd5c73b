"""What a container is started with: command, environment, folder. Pure, but for the files that it may write."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from tests.fake_kubernetes.node.container_runtime import Container
from tests.fake_kubernetes.node.environment import Misconfigured, expand
from tests.fake_kubernetes.store.trees import Tree

DEFAULT_MESSAGE_PATH = "/dev/termination-log"


def specification(
    pod: Tree, container: Tree, folder: Path, places: Mapping[str, Path], values: Mapping[str, str]
) -> Container:
    """Create `folder` for this start of the container. `places` are those of the volumes. Raises Misconfigured.

    A container has no file system and no network of its own: in its command and its values each mount point becomes
    the place of the volume, and each name of a pod of the same service this machine's address. It has a host name of
    its own if the pod names one.
    """
    (folder / "tmp").mkdir(parents=True)
    message = folder / "termination-log"
    message.touch()
    meta, spec = pod["metadata"], pod["spec"]
    env = {"HOSTNAME": str(spec.get("hostname") or meta["name"])[:63].rstrip("-."), "HOME": "/root", **values}
    words = [expand(word, env) for word in (*container.get("command", []), *container.get("args", []))]
    mounts = {"/tmp": folder / "tmp", **mounted(container, places)}
    mounts[container.get("terminationMessagePath", DEFAULT_MESSAGE_PATH)] = message
    longest_first = sorted(mounts, key=len, reverse=True)
    mount = re.compile(rf"(?<![\w./-])({'|'.join(map(re.escape, longest_first))})(?=$|[/\W])")
    service, home = spec.get("subdomain") or "a service", meta["namespace"]
    peer = re.compile(
        rf"(?<![\w.$-])[a-z0-9-]+\.{re.escape(service)}(\.{re.escape(home)}(\.svc(\.cluster\.local)?)?)?(?![\w-])"
    )

    def here(text: str) -> str:
        return peer.sub("127.0.0.1", mount.sub(lambda match: str(mounts[match[1]]), text))

    place = container.get("workingDir") or "/"
    cwd = here(place)
    if cwd == place and not Path(place).is_dir():  # it would be one of the image
        cwd = str(folder / "tmp")
    env = {name: value if name == "PATH" else here(value) for name, value in env.items()}
    return Container([here(word) for word in words or ["sleep", "infinity"]], env, cwd, spec.get("hostname", ""))


def mounted(container: Tree, places: Mapping[str, Path]) -> dict[str, Path]:
    """Mount points and what is there. Creates missing subPaths."""
    mounts = {}
    for entry in container.get("volumeMounts", []):
        if entry["name"] not in places:
            raise Misconfigured(f'volume "{entry["name"]}" not found')
        source = places[entry["name"]] / entry.get("subPath", "")
        if not source.exists():
            source.mkdir(parents=True)
        mounts[entry["mountPath"].rstrip("/") or "/"] = source
    return mounts
