"""A pod's volumes as folders and files of this machine."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.fake_kubernetes.node.environment import Get, contents, missing
from tests.fake_kubernetes.store.trees import Tree


class NotMounted(Exception):
    """A volume cannot be set up now. The kubelet writes an event and tries again."""


class Volumes:
    """The volumes of one pod. `claims` has a folder for each claim of the cluster."""

    def __init__(self, folder: Path, claims: Path) -> None:
        self._folder = folder
        self._claims = claims
        self.places: dict[str, Path] = {}  # volume -> path on this machine

    def set_up(self, pod: Tree, get: Get) -> None:
        """Create the volumes that a container mounts and that do not exist yet. Raises NotMounted."""
        wanted = _mounted(pod)
        for volume in pod["spec"].get("volumes", []):
            if volume["name"] in wanted and volume["name"] not in self.places:
                self.places[volume["name"]] = self._place(pod, volume, get)

    def _place(self, pod: Tree, volume: Tree, get: Get) -> Path:
        path = self._folder / volume["name"]
        if "hostPath" in volume:
            path = Path(volume["hostPath"]["path"])
        elif "persistentVolumeClaim" in volume:
            path = self._claims / pod["metadata"]["namespace"] / volume["persistentVolumeClaim"]["claimName"]
        path.mkdir(parents=True, exist_ok=True)
        for field, plural, key in (("secret", "secrets", "secretName"), ("configMap", "configmaps", "name")):
            if field in volume:
                name = volume[field][key]
                found = get(plural, name)
                if found is None:
                    why = missing(plural, name)
                    raise NotMounted(f'MountVolume.SetUp failed for volume "{volume["name"]}" : {why}')
                for file, data in contents(found).items():
                    (path / file).write_bytes(data)
        return path

    def tear_down(self) -> None:
        """Delete the volumes, but no claims and no folders of the machine."""
        shutil.rmtree(self._folder, ignore_errors=True)


def _mounted(pod: Tree) -> set[str]:
    """Return the names of the volumes that a container mounts."""
    containers = [*pod["spec"].get("initContainers", []), *pod["spec"]["containers"]]
    return {str(mount["name"]) for container in containers for mount in container.get("volumeMounts", [])}
