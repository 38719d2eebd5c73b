"""Where the pod templates of an object are, and which of several objects is the root: the one that makes the pods."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

Object = dict[str, Any]
TreePath = tuple[str | int, ...]

NO_TEMPLATE = "there is no pod template (a `spec` with a list of `containers`) in it, so nothing would run"


def templates(tree: object, path: TreePath = ()) -> Iterator[tuple[TreePath, Object]]:
    """Every pod template of a tree with its path: any dict whose `spec` has a list of `containers`.

    A Pod is its own template.
    """
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


def makes_pods(tree: Object) -> bool:
    return next(templates(tree), None) is not None


def containers(template: Mapping[str, Any], path: TreePath) -> Iterator[tuple[TreePath, Object]]:
    """The init containers and containers of a pod template at `path`, with their paths."""
    for kind in ("initContainers", "containers"):
        for index, container in enumerate(template["spec"].get(kind) or ()):
            if isinstance(container, dict):
                yield (*path, "spec", kind, index), container


def missing_template(objects: Sequence[Object]) -> tuple[int, TreePath] | None:
    """Find the place to report if no object has a pod template: an object's number and a path. None if one has.

    The place is where `containers` stand that are no list or not in a `spec`, else the last object.
    """
    if any(makes_pods(tree) for tree in objects):
        return None
    for number, tree in enumerate(objects):
        for path in _paths_of_containers(tree, ()):
            return number, path
    return len(objects) - 1, ()


def _paths_of_containers(tree: object, path: TreePath) -> Iterator[TreePath]:
    if isinstance(tree, list):
        for index, child in enumerate(tree):
            yield from _paths_of_containers(child, (*path, index))
    elif isinstance(tree, dict):
        for key, child in tree.items():
            if key == "containers":
                yield (*path, key)
            else:
                yield from _paths_of_containers(child, (*path, key))


def root_of(objects: Sequence[Object]) -> Object:
    """The object that is the job: the last one that makes pods, else the last one."""
    candidates = [tree for tree in objects if makes_pods(tree)] or list(objects)
    return candidates[-1]


def root_last(objects: Sequence[Object]) -> tuple[Object, ...]:
    """The objects in the order in which they are created."""
    root = root_of(objects)
    others = [tree for tree in objects if tree is not root]
    return (*others, root)
