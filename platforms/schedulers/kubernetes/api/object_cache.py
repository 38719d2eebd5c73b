"""Objects of one kind, put together from LISTs and the events of a watch, in whatever order they come."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from platforms.schedulers.kubernetes.objects.pod_history import NO_HISTORY, PodHistory, with_observation


@dataclass
class ObjectCache:
    """By name: what there is, and the last sight of what has vanished. `listed` is the version of the last LIST;
    `pasts` is what all sights of each pod have shown, by uid."""

    objects: dict[str, dict[str, Any]] = field(default_factory=dict)
    gone: dict[str, dict[str, Any]] = field(default_factory=dict)
    listed: str = ""
    pasts: dict[str, PodHistory] = field(default_factory=dict)

    def told(self, what: str, each: dict[str, Any]) -> None:
        """An event of a watch. What a LIST knew already is no news, but how something looked when it was deleted."""
        self._remember(each)  # an older sight than we have is no news, and as true as it was
        name, news = each["metadata"]["name"], newer(version_of(each), self.listed)
        known = self.objects.get(name)
        if what == "DELETED":
            if known is None or (news and _uid(known) == _uid(each)):
                self._drop(each)
        elif news and (known is None or newer(version_of(each), version_of(known))):
            self._put(each)

    def replace(self, listed: Iterable[dict[str, Any]], version: str, *, anew: bool = False) -> None:
        """What there was at a version: what is not among it has vanished, unless it is younger. `anew`: versions that
        are known mean nothing any more."""
        if anew:
            self.gone |= self.objects
            self.objects = {}
        names = set()
        for each in listed:
            self._remember(each)
            name = each["metadata"]["name"]
            names.add(name)
            known, gone = self.objects.get(name), self.gone.get(name)
            if known is not None:
                stale = later(version_of(known), version_of(each))
            else:
                stale = not anew and gone is not None and later(version_of(gone), version)
            if not stale:
                self._put(each)
        for name in self.objects.keys() - names:
            if not later(version_of(self.objects[name]), version):
                self._drop(self.objects[name])
        self.listed = version

    def _remember(self, each: dict[str, Any]) -> None:
        if each.get("kind") == "Pod":
            self.pasts[_uid(each)] = with_observation(self.pasts.get(_uid(each), NO_HISTORY), each)

    def _put(self, each: dict[str, Any]) -> None:
        self.objects[each["metadata"]["name"]] = each
        self.gone.pop(each["metadata"]["name"], None)

    def _drop(self, each: dict[str, Any]) -> None:
        self.objects.pop(each["metadata"]["name"], None)
        self.gone[each["metadata"]["name"]] = each


def version_of(each: Mapping[str, Any]) -> str:
    return str(each["metadata"].get("resourceVersion") or "")


def later(version: str, other: str) -> bool:
    """Whether a resourceVersion is surely the later one. Those of one kind are numbers that grow."""
    return version.isdecimal() and other.isdecimal() and int(version) > int(other)


def newer(version: str, other: str) -> bool:
    """Whether a resourceVersion that has come after another is news: also when they are no numbers."""
    return version != other and not later(other, version)


def _uid(each: Mapping[str, Any]) -> str:
    return str(each["metadata"].get("uid") or "")
