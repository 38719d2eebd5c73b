"""/version, /api, /apis and resource lists: how a client learns which kinds exist."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tests.fake_kubernetes.api.messages import PAGE_NOT_FOUND, Answer
from tests.fake_kubernetes.store.kinds import Kind
from tests.fake_kubernetes.store.store import Store
from tests.fake_kubernetes.store.trees import Tree

VERSION = {
    "major": "1",
    "minor": "36",
    "gitVersion": "v1.36.2",
    "gitCommit": "0" * 40,
    "gitTreeState": "clean",
    "buildDate": "2026-08-12T12:00:00Z",
    "goVersion": "go1.26.1",
    "compiler": "gc",
    "platform": "linux/amd64",
}


def answer(store: Store, path: str, version: Mapping[str, str]) -> Answer | None:
    """Answer a discovery request; None if the path is not one."""
    parts = [part for part in path.split("/") if part]
    match parts:
        case ["version"]:
            return Answer(200, dict(version))
        case ["healthz" | "livez" | "readyz"]:
            return Answer(200, "ok")
        case ["api"]:
            return Answer(200, {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []})
        case ["api", "v1"]:
            return _resources(store, "", "v1")
        case ["apis"]:
            groups = [_group(store, group) for group in dict.fromkeys(kind.group for kind in _kinds(store)) if group]
            return Answer(200, {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
        case ["apis", group]:
            if not any(kind.group == group for kind in _kinds(store)):
                return PAGE_NOT_FOUND
            return Answer(200, {"kind": "APIGroup", "apiVersion": "v1"} | _group(store, group))
        case ["apis", group, served]:
            return _resources(store, group, served)
    return None


def _kinds(store: Store) -> list[Kind]:
    return list(store.kinds.values())


def _group(store: Store, group: str) -> Tree:
    served = dict.fromkeys(version for kind in _kinds(store) if kind.group == group for version in kind.versions)
    versions = [{"groupVersion": f"{group}/{version}", "version": version} for version in served]
    return {"name": group, "versions": versions, "preferredVersion": versions[0]}


def _resources(store: Store, group: str, version: str) -> Answer:
    kinds = [kind for kind in _kinds(store) if kind.group == group and version in kind.versions]
    if not kinds:
        return PAGE_NOT_FOUND
    rows = [row for kind in kinds for row in _rows(kind)]
    served = f"{group}/{version}" if group else version
    return Answer(200, {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": served, "resources": rows})


def _rows(kind: Kind) -> Iterable[Tree]:
    row: Tree = {"name": kind.plural, "singularName": kind.kind.lower(), "namespaced": kind.namespaced}
    row |= {"kind": kind.kind, "verbs": kind.verbs}
    yield row | ({"shortNames": list(kind.short_names)} if kind.short_names else {})
    for name in kind.subresources:
        row = {"name": f"{kind.plural}/{name}", "singularName": "", "namespaced": kind.namespaced, "kind": kind.kind}
        if name == "eviction":
            row |= {"group": "policy", "version": "v1", "kind": "Eviction", "verbs": ["create"]}
        yield {"verbs": ["get"] if name == "log" else ["get", "patch", "update"]} | row
