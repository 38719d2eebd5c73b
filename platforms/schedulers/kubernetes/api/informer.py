"""What a namespace holds of our runs, kept up to date by one LIST and one watch per kind, however many objects there
are and whoever asks."""

from __future__ import annotations

import contextlib
import random
import threading
import time
import weakref
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from platforms.job import AwayError, BenchError
from platforms.schedulers.kubernetes.api.client import ApiError, Client, Expired
from platforms.schedulers.kubernetes.api.object_cache import ObjectCache, later, newer, version_of
from platforms.schedulers.kubernetes.api.resources import Resource
from platforms.schedulers.kubernetes.objects import labels
from platforms.schedulers.kubernetes.objects.pod_history import PodHistory

WATCH_S = 240.0  # after which the server ends a watch
SILENCE_S = 90.0  # bookmarks come every minute: a watch that says nothing for longer is not believed
IDLE_S = 60.0  # how long nobody may have looked before watches end
FIRST_PAUSE_S, LAST_PAUSE_S = 0.5, 15.0  # before a watch that broke is begun again
STEADY_S = 10.0  # a watch that lasted so long may be begun again at once
NO_WATCH_S = 60.0  # how long none is asked for that the server refused

Object = Mapping[str, Any]


@dataclass(frozen=True)
class NamespaceObjects:
    """Objects by (kind, name), as last seen. `gone`: those that have vanished, with whose name there is none now.
    `pasts`: what earlier sights of each pod have shown, by uid."""

    objects: Mapping[tuple[str, str], dict[str, Any]]
    gone: Mapping[tuple[str, str], dict[str, Any]]
    pasts: Mapping[str, PodHistory] = field(default_factory=dict)


class Informer:
    """Thread-safe; does nothing before somebody looks, and lets go of its watches when nobody does for a minute."""

    def __init__(
        self,
        client: Client,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._client, self._clock, self._sleep = client, clock, sleep
        self._lock = threading.Lock()
        self._feeds: dict[Resource, _Feed] = {}

    def look(self, resources: Collection[Resource], runs: Collection[str], *, max_age_s: float) -> NamespaceObjects:
        """The objects of some runs. They are listed anew when the last LIST is older than `max_age_s` seconds, or while
        no watch tells what has happened since.

        Raises AwayError, LoginNeeded; ApiError when they may not be listed.
        """
        objects: dict[tuple[str, str], dict[str, Any]] = {}
        gone: dict[tuple[str, str], dict[str, Any]] = {}
        pasts: dict[str, PodHistory] = {}
        for resource in resources if runs else ():
            seen = self._feed(resource).look(frozenset(runs), max_age_s)
            objects |= {(resource.kind, name): each for name, each in seen.objects.items() if _run(each) in runs}
            gone |= {(resource.kind, name): each for name, each in seen.gone.items() if _run(each) in runs}
            pasts |= seen.pasts
        return NamespaceObjects(objects, gone, pasts)

    def close(self) -> None:
        """Let go of all watches, as soon as they say something. Who looks again begins them anew."""
        with self._lock:
            for feed in self._feeds.values():
                feed.stop()

    def _feed(self, resource: Resource) -> _Feed:
        with self._lock:
            if resource not in self._feeds:
                self._feeds[resource] = _Feed(self._client, resource, self._clock, self._sleep)
            return self._feeds[resource]


_MIRRORS: weakref.WeakValueDictionary[tuple[str, ...], Informer] = weakref.WeakValueDictionary()
_MIRRORS_LOCK = threading.Lock()


def shared_informer(client: Client) -> Informer:
    """The one mirror of a namespace, for all platforms that are there. Raises what `Client.where` raises."""
    with _MIRRORS_LOCK:
        mirror = _MIRRORS.get(client.key)
        if mirror is None:
            mirror = _MIRRORS[client.key] = Informer(client)
        return mirror


class _Feed:
    """One kind of objects: its store, the LIST that fills it, and the thread that watches."""

    def __init__(
        self, client: Client, resource: Resource, clock: Callable[[], float], sleep: Callable[[float], None]
    ) -> None:
        self._client, self._resource, self._clock, self._sleep = client, resource, clock, sleep
        self._listing = threading.Lock()  # one LIST at a time, and who waits for it may use it
        self._lock = threading.Lock()  # of everything below, held for moments
        self._store = ObjectCache()
        self._runs: frozenset[str] = frozenset()
        self._at = ""  # the version up to which everything is known
        self._listed_s = self._looked_s = self._refused_s = float("-inf")
        self._begun = self._done = 0  # the number of the last LIST that was begun, and of the last that was answered
        self._watch = 0  # the number of the watch that counts; the thread of another ends
        self._running = False  # whether it has a thread
        self._following = False  # whether that thread hears the server

    def look(self, runs: frozenset[str], max_age_s: float) -> ObjectCache:
        with self._lock:
            self._looked_s, before = self._clock(), self._begun
        with self._listing:
            if self._needs_list(runs, before, max_age_s):
                self._list(runs)
        with self._lock:
            if not self._running and self._clock() - self._refused_s >= NO_WATCH_S:
                self._begin()
            return ObjectCache(dict(self._store.objects), dict(self._store.gone), pasts=dict(self._store.pasts))

    def stop(self) -> None:
        with self._lock:
            self._watch += 1
            self._running = self._following = False

    def _needs_list(self, runs: frozenset[str], before: int, max_age_s: float) -> bool:
        with self._lock:
            if not runs <= self._runs:
                return True
            if self._done > before:  # begun by somebody else since we were asked
                return False
            return not self._following or self._clock() - self._listed_s >= max_age_s

    def _list(self, runs: frozenset[str]) -> None:
        with self._lock:
            self._begun += 1
            known, wanted, begun_s = self._at, self._runs | runs, self._clock()
        listed, version = self._client.list(self._resource, labels=labels.selector(wanted))
        with self._lock:
            # a cluster that was restored from a backup has lost its last hours, and what we know with them
            restored = later(known, version)
            self._store.replace(listed, version, anew=restored)
            if restored or wanted != self._runs:
                self._watch, self._running, self._following = self._watch + 1, False, False
            if restored or newer(version, self._at):
                self._at = version
            self._runs, self._listed_s, self._done = wanted, begun_s, self._begun

    # --- watching ----------------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        self._watch += 1
        self._running = True
        name = f"watch-{self._resource.plural}"
        threading.Thread(target=self._follow, args=(self._watch,), name=name, daemon=True).start()

    def _follow(self, watch: int) -> None:
        """Until nobody looks any more, or the thread is lost: then who looks lists, and begins another watch."""
        pause_s = 0.0
        try:
            while self._wanted(watch):
                begun_s = self._clock()
                with contextlib.suppress(AwayError):
                    self._hear(watch)
                self._set_following(watch, False)
                steady = self._clock() - begun_s >= STEADY_S
                pause_s = 0.0 if steady else min(max(FIRST_PAUSE_S, 2 * pause_s), LAST_PAUSE_S)
                self._sleep(pause_s * random.uniform(0.5, 1.0))
        except Expired:
            pass
        except (ApiError, BenchError):
            with self._lock:
                self._refused_s = self._clock()
        finally:
            self._end(watch)

    def _hear(self, watch: int) -> None:
        """One watch, to its end or to where nobody wants it any more."""
        with self._lock:
            if watch != self._watch:
                return
            selector, at = labels.selector(self._runs), self._at
        with self._client.watch(
            self._resource, labels=selector, version=at, timeout_s=WATCH_S, silence_s=SILENCE_S
        ) as events:
            self._set_following(watch, True)
            for event in events:
                if not self._wanted(watch):
                    return
                self._told(watch, event["type"], event["object"])

    def _told(self, watch: int, what: str, each: dict[str, Any]) -> None:
        with self._lock:
            if watch != self._watch:
                return
            if what != "BOOKMARK":
                self._store.told(what, each)
            if newer(version_of(each), self._at):
                self._at = version_of(each)

    def _wanted(self, watch: int) -> bool:
        with self._lock:
            return watch == self._watch and self._clock() - self._looked_s < IDLE_S

    def _set_following(self, watch: int, following: bool) -> None:
        with self._lock:
            if watch == self._watch:
                self._following = following

    def _end(self, watch: int) -> None:
        with self._lock:
            if watch == self._watch:
                self._running = self._following = False


def _run(each: Object) -> str:
    return str((each["metadata"].get("labels") or {}).get(labels.RUN, ""))
