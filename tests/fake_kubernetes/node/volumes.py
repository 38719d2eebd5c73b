"""A pod's volumes as folders and files of this machine."""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path

from tests.fake_kubernetes.node.container_runtime import ContainerRuntime
from tests.fake_kubernetes.node.environment import Get, contents, field_of, missing
from tests.fake_kubernetes.store.quantities import quantity
from tests.fake_kubernetes.store.trees import Tree

STORAGE = "ephemeral-storage"


class NotMounted(Exception):
    """A volume cannot be set up now. The kubelet writes an event and tries again."""


class Volumes:
    """The volumes of one pod. `claims` has a folder for each claim of the cluster."""

    def __init__(self, folder: Path, claims: Path, containers: ContainerRuntime) -> None:
        self._folder = folder
        self._claims = claims
        self._containers = containers
        self._in_memory: list[Path] = []
        self.places: dict[str, Path] = {}  # volume -> path on this machine

    def set_up(self, pod: Tree, get: Get) -> None:
        """Create the volumes that a container mounts and that do not exist yet. Raises NotMounted."""
        wanted = _mounted(pod)
        for volume in pod["spec"].get("volumes", []):
            if volume["name"] in wanted and volume["name"] not in self.places:
                self.places[volume["name"]] = self._place(pod, volume, get)
        group = (pod["spec"].get("securityContext") or {}).get("fsGroup")
        if group is not None and os.geteuid() == 0:
            self._give_to(group, pod)

    def _place(self, pod: Tree, volume: Tree, get: Get) -> Path:
        path: Path = self._folder / volume["name"]
        if "persistentVolumeClaim" in volume:
            return self._claim(pod, volume["persistentVolumeClaim"]["claimName"], get)
        if "hostPath" in volume:
            return _host_path(volume)
        if "emptyDir" in volume:
            self._empty(path, volume["emptyDir"] or {})
        elif "projected" in volume:
            for source in volume["projected"].get("sources", []):
                self._write(pod, volume["name"], path, source, get)
        else:
            self._write(pod, volume["name"], path, volume, get)
        path.mkdir(parents=True, exist_ok=True)
        return path

    def _claim(self, pod: Tree, name: str, get: Get) -> Path:
        claim = get("persistentvolumeclaims", name)
        if claim is None:
            raise NotMounted(missing("persistentvolumeclaims", name))
        volume = get("persistentvolumes", claim["spec"].get("volumeName", ""))
        if volume and "hostPath" in volume["spec"]:
            return Path(volume["spec"]["hostPath"]["path"])
        path: Path = self._claims / pod["metadata"]["namespace"] / name
        path.mkdir(parents=True, exist_ok=True)
        return path

    def _empty(self, path: Path, how: Tree) -> None:
        path.mkdir(parents=True, exist_ok=True)
        path.chmod(0o1777)
        if how.get("medium") == "Memory":
            self._containers.tmpfs(path, int(quantity(how.get("sizeLimit", 0))))
            self._in_memory.append(path)

    def _write(self, pod: Tree, name: str, path: Path, source: Tree, get: Get) -> None:
        """Write a Secret, a ConfigMap or fields of the pod as files."""
        for field, plural, key in (("secret", "secrets", "secretName"), ("configMap", "configmaps", "name")):
            if field in source:
                how = source[field]
                found = get(plural, how.get(key) or how["name"])
                if found is None and not how.get("optional"):
                    raise NotMounted(f'MountVolume.SetUp failed for volume "{name}" : {missing(plural, how[key])}')
                self._files(name, path, contents(found) if found else {}, how)
        for item in (source.get("downwardAPI") or {}).get("items", []):
            _file(path / item["path"], field_of(pod, item["fieldRef"]["fieldPath"]).encode(), 0o644)

    def _files(self, name: str, path: Path, data: dict[str, bytes], how: Tree) -> None:
        mode = how.get("defaultMode", 0o644)
        for item in how.get("items") or [{"key": key, "path": key} for key in data]:
            if item["key"] not in data:
                why = f"references non-existent config key: {item['key']}"
                raise NotMounted(f'MountVolume.SetUp failed for volume "{name}" : {why}')
            _file(path / item["path"], data[item["key"]], item.get("mode", mode))

    def _give_to(self, group: int, pod: Tree) -> None:
        for volume in pod["spec"].get("volumes", []):
            if volume["name"] in self.places and ("emptyDir" in volume or "persistentVolumeClaim" in volume):
                place = self.places[volume["name"]]
                os.chown(place, -1, group)
                place.chmod(place.stat().st_mode | 0o2770)

    def beyond_limit(self, pod: Tree) -> tuple[str, str] | None:
        """Return (name, limit) of an emptyDir on disk that is beyond its limit, None if there is none."""
        for volume in pod["spec"].get("volumes", []):
            how = volume.get("emptyDir") or {}
            watched = how.get("sizeLimit") and how.get("medium") != "Memory" and volume["name"] in self.places
            if watched and held_bytes(self.places[volume["name"]]) > quantity(how["sizeLimit"]):
                return volume["name"], how["sizeLimit"]
        return None

    def used(self) -> int:
        """Return the bytes in its volumes that count as storage of the node."""
        kept = [path for path in self.places.values() if path.parent == self._folder and path not in self._in_memory]
        return sum(map(held_bytes, kept))

    def tear_down(self) -> None:
        """Delete the volumes, but no claims and no folders of the machine."""
        for path in self._in_memory:
            self._containers.unmount(path)
        shutil.rmtree(self._folder, ignore_errors=True)


def limited(pod: Tree) -> bool:
    """Return whether a pod has a storage limit that must be checked."""
    volumes = pod["spec"].get("volumes", [])
    sized = any((volume.get("emptyDir") or {}).get("sizeLimit") for volume in volumes)
    return sized or storage_limit(pod) < float("inf")


def storage_limit(pod: Tree) -> float:
    """Return how many bytes a pod may write to its node; infinite if a container has no limit."""
    limits = [
        ((container.get("resources") or {}).get("limits") or {}).get(STORAGE) for container in pod["spec"]["containers"]
    ]
    return float("inf") if None in limits else float(sum(map(quantity, limits)))


def _mounted(pod: Tree) -> set[str]:
    """Return the names of the volumes that a container mounts."""
    containers = [*pod["spec"].get("initContainers", []), *pod["spec"]["containers"]]
    return {str(mount["name"]) for container in containers for mount in container.get("volumeMounts", [])}


def _host_path(volume: Tree) -> Path:
    path, kind = Path(volume["hostPath"]["path"]), volume["hostPath"].get("type") or ""
    if kind in ("", "DirectoryOrCreate") and not path.exists():
        path.mkdir(parents=True)
    wrong = {"Directory": not path.is_dir(), "File": not path.is_file()}.get(kind, False)
    if wrong:
        why = f"hostPath type check failed: {path} is not a {kind.lower()}"
        raise NotMounted(f'MountVolume.SetUp failed for volume "{volume["name"]}" : {why}')
    return path


def _file(path: Path, data: bytes, mode: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    path.chmod(mode)


def held_bytes(folder: Path) -> int:
    """Return the disk space of the files in a folder."""
    total = 0
    for path in folder.rglob("*"):
        with contextlib.suppress(OSError):  # removed meanwhile
            total += path.lstat().st_blocks * 512
    return total
