"""What the server answers, by what is asked for: paths here, each kind of request in a module of its own."""

from __future__ import annotations

from dataclasses import dataclass

from tests.fake_kubernetes.store.kinds import Kind
from tests.fake_kubernetes.store.store import Store
from tests.fake_kubernetes.store.trees import Tree


@dataclass(frozen=True)
class Place:
    """What a path names: a collection (name ""), an object, or a subresource of one."""

    kind: Kind
    key: str  # the kind in the store
    version: str  # as which it is asked for
    namespace: str | None  # None: of all namespaces, or a kind that has none
    name: str = ""
    subresource: str = ""

    @property
    def home(self) -> str:
        """The namespace as the store wants it."""
        return self.namespace or ""

    @property
    def resource(self) -> str:
        """With its subresource, as it is authorized: `pods/log`."""
        return self.kind.plural + (f"/{self.subresource}" if self.subresource else "")


def place_of(store: Store, path: str) -> Place | None:
    """None: nothing there."""
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
            return _checked(Place(kind, key, version, namespace, name, subresource))
    return None


def _checked(place: Place) -> Place | None:
    if place.kind.namespaced != (place.namespace is not None) and (place.name or not place.kind.namespaced):
        return None
    if place.subresource and place.subresource not in place.kind.subresources:
        return None
    return place


def shown(place: Place, obj: Tree) -> Tree:
    return {"kind": place.kind.kind, "apiVersion": place.kind.served_as(place.version)} | {
        key: value for key, value in obj.items() if key not in {"kind", "apiVersion"}
    }


def item(place: Place, obj: Tree) -> Tree:
    """Those of built-in kinds do not say what they are."""
    if place.kind.custom:
        return shown(place, obj)
    return {key: value for key, value in obj.items() if key not in {"kind", "apiVersion"}}
