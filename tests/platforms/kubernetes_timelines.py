"""Recorded lives of jobs on a real cluster, replayed: every change of every object in the order in which watches told
it, seen by us in whole or in part.

kubernetes_recorded/timelines/NAME.json: `what` was recorded, on which `server`, `actions` that were done to it and
when, and `sights`, each as [seconds since it was created, kind, ADDED or MODIFIED or DELETED, the object]. Objects are
as the API server gave them, without what says nothing of how a job went (addresses, image ids, most of the specs).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from platforms.schedulers.kubernetes.api.informer import ObjectCache, version_of
from platforms.schedulers.kubernetes.objects.pod_history import PodHistory
from platforms.schedulers.kubernetes.status.judge import JobVerdict, Observation, judge
from tests.platforms.kubernetes_objects import RECORDED, Json

FOLDER = RECORDED / "timelines"
TIMELINES = sorted(path.stem for path in FOLDER.glob("*.json"))


@dataclass(frozen=True)
class Change:
    """One sight: `how` is what a watch calls it."""

    time_s: float
    kind: str
    how: str
    object: Json

    @property
    def name(self) -> str:
        return str(self.object["metadata"]["name"])


@cache
def timeline(name: str) -> tuple[Change, ...]:
    loaded = json.loads((FOLDER / f"{name}.json").read_text())
    return tuple(Change(*sight) for sight in loaded["sights"])


def moments(name: str) -> list[int]:
    """After how many changes something of the job itself has just changed: its pods, or its own object."""
    return [number + 1 for number, change in enumerate(timeline(name)) if change.kind != "Event"]


@cache
def older(name: str) -> tuple[Change, ...]:
    """The same by kubelets that do not write which generation of a pod they have seen."""
    changes = json.loads((FOLDER / f"{name}.json").read_text())["sights"]
    for _time_s, kind, _how, each in changes:
        if kind == "Pod":
            each["status"].pop("observedGeneration", None)
    return tuple(Change(*sight) for sight in changes)


class Observer:
    """Sees a job as the informer does: by LISTs at some moments, and by a watch. `old`: of an older cluster."""

    def __init__(self, name: str, *, old: bool = False) -> None:
        self._changes = older(name) if old else timeline(name)
        self._root = "Job" if any(change.kind == "Job" for change in self._changes) else "Pod"
        self._caches: dict[str, ObjectCache] = {"Pod": ObjectCache(), "Job": ObjectCache()}
        self._at = 0

    def lists(self, at: int) -> Observer:
        """Everything as it was after so many changes; nothing of what was in between."""
        there: dict[str, dict[str, Json]] = {"Pod": {}, "Job": {}}
        version = "0"
        for change in self._changes[:at]:
            if change.kind == "Event":
                continue
            version = max(version, version_of(change.object), key=int)
            if change.how == "DELETED":
                there[change.kind].pop(change.name, None)
            else:
                there[change.kind][change.name] = change.object
        for kind, objects in self._caches.items():
            objects.replace(there[kind].values(), version)
        self._at = at
        return self

    def watches(self, to: int) -> Observer:
        """Everything that happens until then."""
        for change in self._changes[self._at : to]:
            if change.kind != "Event":
                self._caches[change.kind].apply(change.how, change.object)
        self._at = to
        return self

    def judges(self, waited: Callable[[str], float], *, events: bool = True) -> JobVerdict:
        """Where events are not ours to see, without them."""
        pods, jobs = self._caches["Pod"], self._caches["Job"]
        roots = jobs if self._root == "Job" else pods
        root = next(iter(roots.objects.values()), None)
        root_gone = next(iter(roots.gone.values()), None) if root is None else None
        told = self._events() if events else ()
        if self._root == "Pod":
            return judge(Observation(root, gone_root=root_gone, events=told, histories=self._pasts(), waited_s=waited))
        there, gone = tuple(pods.objects.values()), tuple(pods.gone.values())
        saw_deletion = root_gone is not None and root_gone["metadata"]["uid"] in jobs.deleted
        seen = {"events": told, "histories": self._pasts(), "waited_s": waited}
        return judge(Observation(root, there, gone, root_gone, saw_deletion, **seen))

    def _pasts(self) -> dict[str, PodHistory]:
        return self._caches["Pod"].histories

    def _events(self) -> tuple[Json, ...]:
        found: dict[str, Any] = {}
        for change in self._changes[: self._at]:
            if change.kind == "Event":
                found[change.name] = change.object
        return tuple(found.values())


def ways_to_see(name: str, at: int, *, old: bool = False) -> Sequence[tuple[str, Observer]]:
    """What a session may have seen of a job by then: all of it; what a LIST shows at the end, and one at any time
    before; a watch that began at any time. Each with its name."""
    earlier = [moment for moment in moments(name) if moment < at]
    found = [("a watch", Observer(name, old=old).watches(at)), ("a look", Observer(name, old=old).lists(at))]
    for moment in earlier:
        found.append((f"looks at {moment} and", Observer(name, old=old).lists(moment).lists(at)))
        found.append((f"a watch from {moment} on to", Observer(name, old=old).lists(moment).watches(at)))
    return found
