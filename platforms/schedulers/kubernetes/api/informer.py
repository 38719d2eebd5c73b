"""An informer: a local copy of our runs' objects in one namespace, kept up to date by LIST and WATCH.

A LIST returns all objects of a kind and a resourceVersion. A WATCH from that version streams every later change. So one
LIST and one WATCH per kind serve any number of jobs, and reading the copy costs no request. The server ends a WATCH
after some minutes; the next one resumes at the last version that was received. When that version is too old
(410 Gone), the copy is filled by a new LIST: a re-list.

An informer is lazy. It sends nothing before the first snapshot is taken, and its WATCHes end when no snapshot has been
taken for a minute. Only the caller of snapshot() sends LISTs, so their errors reach the caller; the threads only watch.
"""

from __future__ import annotations

import contextlib
import random
import threading
import time
import weakref
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from platforms.job import AwayError, BenchError
from platforms.schedulers.kubernetes.api.client import ApiError, Client, Expired
from platforms.schedulers.kubernetes.api.resources import Resource
from platforms.schedulers.kubernetes.objects import labels
from platforms.schedulers.kubernetes.objects.pod_history import NO_HISTORY, PodHistory, with_observation

WATCH_S = 240.0  # after this time the server ends a WATCH
SILENCE_S = 90.0  # a bookmark comes every minute: a WATCH that is silent for longer is taken for dead
IDLE_S = 60.0  # a WATCH ends when no snapshot has been taken for so long
FIRST_PAUSE_S = 0.5  # before a WATCH that broke soon is reopened; doubled each time
LAST_PAUSE_S = 15.0
STEADY_S = 10.0  # a WATCH that lasted so long is reopened at once
NO_WATCH_S = 60.0  # after a refused WATCH none is tried for so long; every snapshot sends a LIST instead

Object = dict[str, Any]


@dataclass(frozen=True)
class NamespaceObjects:
    """Objects by (kind, name), as they were last seen.

    `gone` holds the last state of objects that have vanished, unless another object has the name now. `deleted` holds
    the uids of those whose last state is surely the one in which they were deleted. `histories` holds what earlier
    states of each pod have shown, by uid.
    """

    objects: Mapping[tuple[str, str], Object]
    gone: Mapping[tuple[str, str], Object]
    histories: Mapping[str, PodHistory] = field(default_factory=dict)
    deleted: frozenset[str] = frozenset()


class Informer:
    """The objects of one namespace, one LIST and one WATCH per kind. Thread-safe."""

    def __init__(
        self,
        client: Client,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._client = client
        self._clock = clock
        self._sleep = sleep
        self._lock = threading.Lock()
        self._informers: dict[Resource, _ResourceInformer] = {}

    def snapshot(self, resources: Collection[Resource], runs: Collection[str], *, max_age_s: float) -> NamespaceObjects:
        """Return the objects of some runs.

        A LIST is sent when the last one is older than `max_age_s` seconds, or while no WATCH is open. Raises AwayError,
        LoginNeeded; ApiError when the objects may not be listed.
        """
        objects: dict[tuple[str, str], Object] = {}
        gone: dict[tuple[str, str], Object] = {}
        histories: dict[str, PodHistory] = {}
        deleted: set[str] = set()
        if not runs:
            return NamespaceObjects(objects, gone, histories)
        for resource in resources:
            cache = self._informer(resource).snapshot(frozenset(runs), max_age_s)
            for name, obj in cache.objects.items():
                if _run_of(obj) in runs:
                    objects[resource.kind, name] = obj
            for name, obj in cache.gone.items():
                if _run_of(obj) in runs:
                    gone[resource.kind, name] = obj
            histories.update(cache.histories)
            deleted |= cache.deleted
        return NamespaceObjects(objects, gone, histories, frozenset(deleted))

    def close(self) -> None:
        """End all WATCHes, each with its next event. A later snapshot opens them again."""
        with self._lock:
            for informer in self._informers.values():
                informer.stop()

    def _informer(self, resource: Resource) -> _ResourceInformer:
        with self._lock:
            if resource not in self._informers:
                self._informers[resource] = _ResourceInformer(self._client, resource, self._clock, self._sleep)
            return self._informers[resource]


_INFORMERS: weakref.WeakValueDictionary[tuple[str, ...], Informer] = weakref.WeakValueDictionary()
_INFORMERS_LOCK = threading.Lock()


def shared_informer(client: Client) -> Informer:
    """Return the one informer of the client's namespace: several platforms may use the same one.

    Raises what `Client.where` raises.
    """
    with _INFORMERS_LOCK:
        informer = _INFORMERS.get(client.key)
        if informer is None:
            informer = Informer(client)
            _INFORMERS[client.key] = informer
        return informer


class _ResourceInformer:
    """Objects of one kind: the cache, the LIST that fills it, and the thread that watches."""

    def __init__(
        self, client: Client, resource: Resource, clock: Callable[[], float], sleep: Callable[[float], None]
    ) -> None:
        self._client = client
        self._resource = resource
        self._clock = clock
        self._sleep = sleep
        self._list_lock = threading.Lock()  # held during a LIST: callers who wait for it share its result
        self._lock = threading.Lock()  # guards everything below; never held during a request
        self._cache = ObjectCache()
        self._runs: frozenset[str] = frozenset()  # the LIST and the WATCH select these runs by label
        self._version = ""  # resourceVersion up to which the cache is complete: the next WATCH begins here
        self._lists_sent = 0
        self._last_answered = 0  # the number of the last LIST that was answered
        self._listed_s = float("-inf")  # when that LIST was sent
        self._asked_s = float("-inf")  # when the last snapshot was asked for
        self._refused_s = float("-inf")  # when the server last refused a WATCH
        self._generation = 0  # the number of the current watch thread; a thread of an earlier one ends
        self._has_thread = False
        self._watch_is_open = False

    def snapshot(self, runs: frozenset[str], max_age_s: float) -> ObjectCache:
        with self._lock:
            self._asked_s = self._clock()
            sent_before = self._lists_sent
        with self._list_lock:
            if self._needs_list(runs, sent_before, max_age_s):
                self._list(runs)
        with self._lock:
            watch_is_allowed = self._clock() - self._refused_s >= NO_WATCH_S
            if not self._has_thread and watch_is_allowed:
                self._start_thread()
            return self._cache.copy()

    def stop(self) -> None:
        with self._lock:
            self._abandon_thread()

    # --- LIST --------------------------------------------------------------------------------------------------------

    def _needs_list(self, runs: frozenset[str], sent_before: int, max_age_s: float) -> bool:
        with self._lock:
            if not runs <= self._runs:
                return True
            if self._last_answered > sent_before:
                return False  # another caller has sent one since this one asked
            if not self._watch_is_open:
                return True
            return self._clock() - self._listed_s >= max_age_s

    def _list(self, runs: frozenset[str]) -> None:
        with self._lock:
            self._lists_sent += 1
            sent_s = self._clock()
            all_runs = self._runs | runs
        objects, version = self._client.list(self._resource, labels=labels.selector(all_runs))
        with self._lock:
            self._cache.replace(objects, version)
            if all_runs != self._runs:  # the selector of the open WATCH lacks a run
                self._abandon_thread()
            if is_news(version, self._version):
                self._version = version
            self._runs = all_runs
            self._listed_s = sent_s
            self._last_answered = self._lists_sent

    # --- WATCH -------------------------------------------------------------------------------------------------------

    def _start_thread(self) -> None:
        self._generation += 1
        self._has_thread = True
        name = f"watch-{self._resource.plural}"
        threading.Thread(target=self._infinite_watch, args=(self._generation,), name=name, daemon=True).start()

    def _abandon_thread(self) -> None:
        """Let the watch thread end by itself: it may be waiting for bytes, and what it still receives is dropped."""
        self._generation += 1
        self._has_thread = False
        self._watch_is_open = False

    def _infinite_watch(self, generation: int) -> None:
        """Keep a WATCH open and apply its events to the cache, until no snapshot is asked for any more.

        When this thread ends, for whatever reason, the next snapshot sends a LIST and starts another thread.
        """
        pause_s = 0.0
        try:
            while self._is_wanted(generation):
                opened_s = self._clock()
                # The connection may break or be silent for too long. Nothing is lost then: the next WATCH resumes at
                # the last version that was received.
                with contextlib.suppress(AwayError):
                    self._watch_once(generation)
                # Until the next WATCH is open, the cache may be out of date, so snapshots send LISTs.
                self._set_open(generation, False)
                if self._clock() - opened_s >= STEADY_S:
                    pause_s = 0.0  # an ordinary end: the server ends every WATCH after some minutes
                else:
                    pause_s = min(max(FIRST_PAUSE_S, 2 * pause_s), LAST_PAUSE_S)
                self._sleep(pause_s * random.uniform(0.5, 1.0))  # not all clients of a restarted server at once
        except Expired:
            # "410 Gone": the server has dropped the history since our version. Only a re-list helps.
            pass
        except (ApiError, BenchError):
            # The server refuses, as where the right `watch` is missing. Snapshots send LISTs, and try again later.
            with self._lock:
                self._refused_s = self._clock()
        finally:
            with self._lock:
                if generation == self._generation:
                    self._has_thread = False
                    self._watch_is_open = False

    def _watch_once(self, generation: int) -> None:
        """Open one WATCH at the last known version and apply its events until the server ends it."""
        with self._lock:
            if generation != self._generation:
                return
            selector = labels.selector(self._runs)
            version = self._version
        with self._client.watch(
            self._resource, labels=selector, version=version, timeout_s=WATCH_S, silence_s=SILENCE_S
        ) as events:
            self._set_open(generation, True)
            for event in events:
                if not self._is_wanted(generation):
                    return
                self._apply(generation, event["type"], event["object"])

    def _apply(self, generation: int, event_type: str, obj: Object) -> None:
        with self._lock:
            if generation != self._generation:
                return
            # A BOOKMARK carries no object, only a newer version. It keeps the version of a quiet kind from expiring.
            if event_type != "BOOKMARK":
                self._cache.apply(event_type, obj)
            version = version_of(obj)
            if is_news(version, self._version):
                self._version = version

    def _is_wanted(self, generation: int) -> bool:
        with self._lock:
            return generation == self._generation and self._clock() - self._asked_s < IDLE_S

    def _set_open(self, generation: int, is_open: bool) -> None:
        with self._lock:
            if generation == self._generation:
                self._watch_is_open = is_open


# --- the cache -------------------------------------------------------------------------------------------------------


@dataclass
class ObjectCache:
    """Objects of one kind by name, merged from LISTs and WATCH events in whatever order they arrive.

    A LIST is sent while a WATCH is open, so either may bring an older state than the cache has: versions decide.
    `gone` holds the last state of objects that have vanished, `deleted` the uids of those whose deletion a WATCH has
    shown, and `histories` what all states of each pod have shown, by uid.
    """

    objects: dict[str, Object] = field(default_factory=dict)
    gone: dict[str, Object] = field(default_factory=dict)
    histories: dict[str, PodHistory] = field(default_factory=dict)
    deleted: set[str] = field(default_factory=set)
    list_version: str = ""  # of the last LIST

    def copy(self) -> ObjectCache:
        return ObjectCache(
            dict(self.objects), dict(self.gone), dict(self.histories), set(self.deleted), self.list_version
        )

    def apply(self, event_type: str, obj: Object) -> None:
        """Apply an event of a WATCH: ADDED, MODIFIED or DELETED."""
        self._remember(obj)  # also of an old state: what it shows of a pod was true
        cached = self.objects.get(_name_of(obj))
        after_list = is_news(version_of(obj), self.list_version)
        if event_type == "DELETED":
            self.deleted.add(_uid(obj))
            # A LIST may have shown already that it is gone; only the event has its last state.
            is_the_cached_one = cached is not None and _uid(cached) == _uid(obj)
            if cached is None or (after_list and is_the_cached_one):
                self._drop(obj)
        elif after_list and (cached is None or is_news(version_of(obj), version_of(cached))):
            self._put(obj)

    def replace(self, listed: Iterable[Object], version: str) -> None:
        """Apply a LIST: what it lacks has vanished, unless it is younger than the LIST."""
        listed_names = set()
        for obj in listed:
            self._remember(obj)
            name = _name_of(obj)
            listed_names.add(name)
            cached = self.objects.get(name)
            gone = self.gone.get(name)
            if cached is not None:
                stale = is_later(version_of(cached), version_of(obj))
            elif gone is not None:
                stale = is_later(version_of(gone), version)  # a WATCH saw its deletion after this LIST was made
            else:
                stale = False
            if not stale:
                self._put(obj)
        for name in self.objects.keys() - listed_names:
            cached = self.objects[name]
            if not is_later(version_of(cached), version):
                self._drop(cached)
        self.list_version = version

    def _remember(self, obj: Object) -> None:
        if obj.get("kind") == "Pod":
            history = self.histories.get(_uid(obj), NO_HISTORY)
            self.histories[_uid(obj)] = with_observation(history, obj)

    def _put(self, obj: Object) -> None:
        self.objects[_name_of(obj)] = obj
        self.gone.pop(_name_of(obj), None)

    def _drop(self, obj: Object) -> None:
        self.objects.pop(_name_of(obj), None)
        self.gone[_name_of(obj)] = obj


def version_of(obj: Mapping[str, Any]) -> str:
    """Return the object's resourceVersion."""
    return str(obj["metadata"].get("resourceVersion") or "")


def is_later(version: str, other: str) -> bool:
    """Say whether a resourceVersion is surely the later one.

    Versions of one kind are numbers that grow.
    """
    return version.isdecimal() and other.isdecimal() and int(version) > int(other)


def is_news(version: str, other: str) -> bool:
    """Say whether a version that arrives after another may be later.

    The API does not promise that they are numbers.
    """
    return version != other and not is_later(other, version)


def _name_of(obj: Object) -> str:
    return str(obj["metadata"]["name"])


def _uid(obj: Object) -> str:
    return str(obj["metadata"].get("uid") or "")


def _run_of(obj: Object) -> str:
    return str((obj["metadata"].get("labels") or {}).get(labels.RUN, ""))
