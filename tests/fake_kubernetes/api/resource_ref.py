"""What the path of a request refers to: a collection, an object or a subresource."""

from __future__ import annotations

from dataclasses import dataclass

from tests.fake_kubernetes.store.kinds import Kind
from tests.fake_kubernetes.store.store import Store
from tests.fake_kubernetes.store.trees import Tree


@dataclass(frozen=True)
class ResourceRef:
    """A collection (name ""), an object, or a subresource of an object."""

    kind: Kind
    key: str  # the key of the kind in the store
    version: str  # the requested API version
    namespace: str | None  # None: all namespaces, or a kind without namespaces
    name: str = ""
    subresource: str = ""

    @property
    def home(self) -> str:
        """The namespace as the store expects it."""
        return self.namespace or ""

    @property
    def resource(self) -> str:
        """The resource with its subresource, as access rules name it: `pods/log`."""
        return self.kind.plural + (f"/{self.subresource}" if self.subresource else "")


def parse_path(store: Store, path: str) -> ResourceRef | None:
    """Return what a path refers to; None if the server does not serve it."""
    parts = [part for part in path.split("/") if part]
    if parts[:2] == ["api", "v1"]:
        group, version, rest = "", "v1", parts[2:]
    elif parts[:1] == ["apis"] and len(parts) >= 4:
        group, version, rest = parts[1], parts[2], parts[3:]
    else:
        return None
    namespace = None
    if rest[:1] == ["namespaces"] and len(rest) >= 3 and rest[2] not in {"status", "finalize"}:
        namespace, rest = rest[1], rest[2:]
    if not 1 <= len(rest) <= 3:
        return None
    plural, name, subresource = [*rest, "", ""][:3]
    for key, kind in list(store.kinds.items()):
        if (kind.group, kind.plural) == (group, plural) and version in kind.versions:
            return _checked(ResourceRef(kind, key, version, namespace, name, subresource))
    return None


def _checked(ref: ResourceRef) -> ResourceRef | None:
    if ref.kind.namespaced != (ref.namespace is not None) and (ref.name or not ref.kind.namespaced):
        return None
    if ref.subresource and ref.subresource not in ref.kind.subresources:
        return None
    return ref


def with_kind(ref: ResourceRef, obj: Tree) -> Tree:
    return {"kind": ref.kind.kind, "apiVersion": ref.kind.served_as(ref.version)} | {
        key: value for key, value in obj.items() if key not in {"kind", "apiVersion"}
    }


def list_item(ref: ResourceRef, obj: Tree) -> Tree:
    """Return an object as a list shows it: objects of built-in kinds lack kind and apiVersion there."""
    if ref.kind.custom:
        return with_kind(ref, obj)
    return {key: value for key, value in obj.items() if key not in {"kind", "apiVersion"}}
