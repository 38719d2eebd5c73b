"""Where a job's manifest comes from: the test, the platform, or k8s_templates/; read, and not yet filled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from platforms.job import ConfigError, JobSpec, RefusedError
from platforms.schedulers.kubernetes.manifest import documents, templating
from platforms.schedulers.kubernetes.manifest.templating import Where
from platforms.schedulers.kubernetes.objects.pod_templates import TreePath

if TYPE_CHECKING:
    from platforms.config.schema import Platform

TEMPLATES = Path(__file__).resolve().parents[4] / "k8s_templates"
_MOST_BYTES = 1 << 20


@dataclass(frozen=True)
class ManifestObject:
    """One object as it was written; `where` says the place of a path in it for people."""

    tree: Mapping[str, Any]
    where: Where
    ours: bool = False


def of(spec: JobSpec, platform: Platform) -> list[ManifestObject]:
    """The test's own manifest, else the platform's, else the template of its kind.

    Raises ConfigError for one that is no manifest, RefusedError for a kind that cannot hold the layout.
    """
    if isinstance(spec.manifest, Path):
        return from_file(spec.manifest)
    if spec.manifest is not None:
        return from_test(spec.manifest, "manifest")
    if platform.kubernetes.manifest is not None:
        return from_file(platform.source.parent / Path(platform.kubernetes.manifest).expanduser())
    return [ManifestObject(each.tree, each.where, ours=True) for each in _template(kind_of(spec, platform))]


def kind_of(spec: JobSpec, platform: Platform) -> str:
    """Which template. Raises RefusedError when it is for one node and the layout has several."""
    several = spec.layout.nodes > 1
    kind = platform.kubernetes.kind or ("indexed_job" if several else "job")
    if several and kind != "indexed_job":
        raise RefusedError(
            f"{platform.name}: {spec.layout} has {spec.layout.nodes} nodes and kind {kind} is one pod: write `kind: "
            f"indexed_job`, or another layout, in {platform.source}"
        )
    return kind


def from_file(path: Path) -> list[ManifestObject]:
    """The objects of a file of one or more documents. Raises ConfigError, `file:line: what`."""
    text = _read(path)
    found = []
    for document in documents.read(text, str(path)):
        line = document.line

        def where(place: TreePath, line: Any = line) -> str:
            return f"{path}:{line(place)}"

        found += _objects(document.value, where)
    if not found:
        raise ConfigError([f"{path}:1: there is no object in it (write apiVersion, kind, metadata and spec)"])
    return found


def from_test(manifest: object, where: str) -> list[ManifestObject]:
    """What a test hands over, parsed: one object or several. Raises ConfigError, `<where>: spec.x: what`."""
    several = manifest if isinstance(manifest, Sequence) and not isinstance(manifest, str) else [manifest]
    found = []
    for number, each in enumerate(several):
        place = where if len(several) == 1 else f"{where}[{number}]"
        found += _objects(documents.plain(each, place), templating.paths(place))
    if not found:
        raise ConfigError([f"{where}: there is no object in it"])
    return found


def _objects(tree: Any, where: Where, path: TreePath = ()) -> list[ManifestObject]:
    """One object, or those of a List. Raises ConfigError for what is none."""
    if not isinstance(tree, Mapping):
        raise ConfigError([f"{where(path)}: this is no object (write apiVersion, kind, metadata and spec)"])
    for key in ("apiVersion", "kind"):
        if not isinstance(tree.get(key), str) or not tree[key]:
            raise ConfigError([f"{where(path)}: `{key}:` is missing, as in `{_EXAMPLES[key]}`"])
    metadata = tree.get("metadata", {})
    wrong = [(*path, "metadata")] if not isinstance(metadata, Mapping) else []
    wrong += [
        (*path, "metadata", key)
        for key in ("labels", "annotations")
        if not wrong and not isinstance(metadata.get(key) or {}, Mapping | str)
    ]
    if wrong:
        raise ConfigError([f"{where(place)}: needs lines of `key: value`" for place in wrong])
    if tree["kind"] == "List" and isinstance(tree.get("items"), list):
        items = (_objects(item, where, (*path, "items", number)) for number, item in enumerate(tree["items"]))
        return [one for item in items for one in item]
    return [ManifestObject(tree, lambda inside: where((*path, *inside)))]


_EXAMPLES = {"apiVersion": "apiVersion: batch/v1", "kind": "kind: Job"}


def _read(path: Path) -> str:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ConfigError([f"{path}:1: cannot be read: {error.strerror or error}"]) from None
    if len(data) > _MOST_BYTES:
        raise ConfigError([f"{path}:1: {len(data):,} bytes are too many for a manifest"])
    try:
        return data.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError([f"{path}:{line}: byte 0x{data[error.start]:02x} is not UTF-8"]) from None


@cache
def _template(kind: str) -> list[ManifestObject]:
    return from_file(TEMPLATES / f"{kind}.yaml")
