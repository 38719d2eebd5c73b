"""Where a job's manifest comes from: the test, the platform, or k8s_templates/. Placeholders are not filled yet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from platforms.config import yaml_lines
from platforms.config.yaml_lines import YamlMistake
from platforms.job import ConfigError, JobSpec, RefusedError
from platforms.schedulers.kubernetes.manifest import documents, templating
from platforms.schedulers.kubernetes.manifest.documents import YamlDocument
from platforms.schedulers.kubernetes.manifest.templating import Where
from platforms.schedulers.kubernetes.objects.pod_templates import TreePath

if TYPE_CHECKING:
    from platforms.config.schema import Platform

TEMPLATES = Path(__file__).resolve().parents[4] / "k8s_templates"
_EXAMPLES = {"apiVersion": "apiVersion: batch/v1", "kind": "kind: Job"}


@dataclass(frozen=True)
class ManifestObject:
    """One object as it was written, and a function that says for people where a path of it is."""

    tree: Mapping[str, Any]
    where: Where


def of(spec: JobSpec, platform: Platform) -> list[ManifestObject]:
    """The objects of the test's own manifest, else of the platform's, else of the template of the job's kind.

    Raises ConfigError for an invalid manifest and RefusedError for a kind that cannot hold the layout.
    """
    if isinstance(spec.manifest, Path):
        return from_file(spec.manifest)
    if spec.manifest is not None:
        return from_test(spec.manifest, "manifest")
    if platform.kubernetes.manifest is not None:
        return from_file(platform.source.parent / Path(platform.kubernetes.manifest).expanduser())
    return _from_template(kind_of(spec, platform))


def kind_of(spec: JobSpec, platform: Platform) -> str:
    """The template of a job. Raises RefusedError if it is for one node and the layout has several."""
    has_several_nodes = spec.layout.nodes > 1
    default = "indexed_job" if has_several_nodes else "job"
    kind = platform.kubernetes.kind or default
    if has_several_nodes and kind != "indexed_job":
        raise RefusedError(
            f"{platform.name}: {spec.layout} has {spec.layout.nodes} nodes and kind {kind} is one pod: write `kind: "
            f"indexed_job`, or another layout, in {platform.source}"
        )
    return kind


def from_file(path: Path) -> list[ManifestObject]:
    """The objects of a file with one or more YAML documents. Raises ConfigError, `file:line: message`."""
    found = []
    for document in documents.read(_read_text(path), str(path)):
        found += _objects_in(document.value, _where_in_file(path, document))
    if not found:
        raise ConfigError([f"{path}:1: there is no object in it (write apiVersion, kind, metadata and spec)"])
    return found


def from_test(manifest: object, name: str) -> list[ManifestObject]:
    """The objects that a test returns: one mapping or several. Raises ConfigError, `<name>: spec.x: message`."""
    trees = [manifest]
    if isinstance(manifest, Sequence) and not isinstance(manifest, str):
        trees = list(manifest)
    found = []
    for number, tree in enumerate(trees):
        where = name if len(trees) == 1 else f"{name}[{number}]"
        found += _objects_in(documents.plain(tree, where), templating.where_in_tree(where))
    if not found:
        raise ConfigError([f"{name}: there is no object in it"])
    return found


@cache
def _from_template(kind: str) -> list[ManifestObject]:
    return from_file(TEMPLATES / f"{kind}.yaml")


def _where_in_file(path: Path, document: YamlDocument) -> Where:
    return lambda place: f"{path}:{document.lines.at(place)}"


def _objects_in(tree: Any, where: Where, path: TreePath = ()) -> list[ManifestObject]:
    """One object, or the objects of a List. Raises ConfigError for anything else."""
    if not isinstance(tree, Mapping):
        raise ConfigError([f"{where(path)}: this is not an object (write apiVersion, kind, metadata and spec)"])
    for key in ("apiVersion", "kind"):
        if not isinstance(tree.get(key), str) or not tree[key]:
            raise ConfigError([f"{where(path)}: `{key}:` is missing, as in `{_EXAMPLES[key]}`"])
    _check_metadata(tree, where, path)
    if tree["kind"] == "List" and isinstance(tree.get("items"), list):
        found = []
        for number, item in enumerate(tree["items"]):
            found += _objects_in(item, where, (*path, "items", number))
        return found
    return [ManifestObject(tree, lambda inside: where((*path, *inside)))]


def _check_metadata(tree: Mapping[str, Any], where: Where, path: TreePath) -> None:
    metadata = tree.get("metadata", {})
    wrong: list[TreePath] = []
    if not isinstance(metadata, Mapping):
        wrong.append((*path, "metadata"))
    else:
        for key in ("labels", "annotations"):
            is_placeholder = isinstance(metadata.get(key), str)
            if not is_placeholder and not isinstance(metadata.get(key) or {}, Mapping):
                wrong.append((*path, "metadata", key))
    if wrong:
        raise ConfigError([f"{where(place)}: needs lines of `key: value`" for place in wrong])


def _read_text(path: Path) -> str:
    try:
        return yaml_lines.text_of(path).replace("\r\n", "\n")
    except YamlMistake as mistake:
        raise ConfigError([f"{path}:{mistake.line}: {mistake.what}"]) from None
