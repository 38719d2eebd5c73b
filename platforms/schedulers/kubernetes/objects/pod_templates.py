"""Objects of Kubernetes as trees: where their pod templates are, and which one makes the pods."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

Object = dict[str, Any]
TreePath = tuple[str | int, ...]

NO_TEMPLATE = "there is no pod template (a `spec` with a list of `containers`) in it, so nothing would run"


def templates(tree: object, path: TreePath = ()) -> Iterator[tuple[TreePath, Object]]:
    """Every pod template, wherever it sits, with its path: any dict whose `spec` has a list of `containers`. A Pod is
    its own."""
    if isinstance(tree, dict):
        spec = tree.get("spec")
        if isinstance(spec, dict) and isinstance(spec.get("containers"), list):
            yield path, tree
            return
        for key, child in tree.items():
            yield from templates(child, (*path, key))
    elif isinstance(tree, list):
        for index, child in enumerate(tree):
            yield from templates(child, (*path, index))


def containers(template: Mapping[str, Any], path: TreePath) -> Iterator[tuple[TreePath, Object]]:
    """Those of a pod template, also those that run before the others, with their paths."""
    for kind in ("initContainers", "containers"):
        for index, container in enumerate(template["spec"].get(kind) or ()):
            if isinstance(container, dict):
                yield (*path, "spec", kind, index), container


def missing_template(objects: Sequence[Object]) -> tuple[int, TreePath] | None:
    """Of objects without any pod template, the number and the path of what was meant as one, else of the last object;
    None where there is one."""
    if any(next(templates(each), None) for each in objects):
        return None
    meant = [(number, path) for number, each in enumerate(objects) for path in _meant(each, ())]
    return meant[0] if meant else (len(objects) - 1, ())


def _meant(tree: object, path: TreePath) -> Iterator[TreePath]:
    """Where containers stand that are no list, or not in a `spec`."""
    pairs = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, child in pairs:
        if key == "containers":
            yield (*path, key)
        else:
            yield from _meant(child, (*path, key))


def root_of(objects: Sequence[Object]) -> Object:
    """The object that is the job: the last one with a pod template, else the last."""
    runs_pods = [each for each in objects if next(templates(each), None)]
    return (runs_pods or list(objects))[-1]


def root_last(objects: Sequence[Object]) -> tuple[Object, ...]:
    """In the order in which they are created."""
    root = root_of(objects)
    return (*(each for each in objects if each is not root), root)
