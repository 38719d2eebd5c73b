"""What a real cluster did to a job, played through the store: each change of each object, in order.

A recording stands in tests/platforms/kubernetes_recorded/scenarios/NAME.json. `sights` are what watches saw, each as
[seconds, kind, ADDED or MODIFIED or DELETED, the object]. `acts` are the places where the cluster waited for somebody:
["stop"] for what we do to a pod that cannot start (a deadline that has passed, a deletion), ["cue"] for what somebody
else does, which a test says with go_on(). `name` and `uid` are those that the job had, `log` is what each start of its
container wrote.

Controllers, scheduler and kubelets leave a played job alone. When the job is deleted, the play ends and its pods are
removed at once.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

from tests.fake_kubernetes.controllers.event_loop import EventLoop
from tests.fake_kubernetes.controllers.job_pods import job_pod, owner_of
from tests.fake_kubernetes.node.logs import LogFile, LogSource
from tests.fake_kubernetes.store.store import Store
from tests.fake_kubernetes.store.trees import Tree

FOLDER = Path(__file__).parents[1] / "platforms" / "kubernetes_recorded" / "scenarios"
PLURALS = {"Job": "jobs", "Pod": "pods", "Event": "events", "Workload": "workloads"}
PLAYER = "bench.local/recorded"  # what controls and schedules a played job
PACE_S = 0.01  # from one change to the next
OF_SPEC = {"Job": ("suspend",), "Pod": ("nodeName",), "Workload": ("active", "queueName")}
OF_EVENT = ("count", "firstTimestamp", "lastTimestamp", "eventTime", "series")


@dataclass
class _Play:
    """One job, and how far it has been played."""

    recording: Tree
    root: Tree = field(default_factory=dict)
    at: int = 0
    waiting: bool = False  # for an act to begin
    stopped: bool = False
    cues: int = 0
    over: bool = False
    names: dict[str, str] = field(default_factory=dict)  # what was recorded -> what it is here
    logs: dict[tuple[str, int], LogFile] = field(default_factory=dict)

    def here(self, obj: Tree) -> Tree:
        text = json.dumps(obj)
        for old, new in self.names.items():
            text = text.replace(old, new)
        renamed: Tree = json.loads(text)
        return renamed

    def goes_on(self) -> bool:
        """Whether the next change may be played: no act begins with it, or what the act waits for has happened.

        A cue serves for one act.
        """
        act = dict(self.recording["acts"]).get(self.at)
        if act == "cue" and self.cues:
            self.cues -= 1
            return True
        return act is None or (act == "stop" and self.stopped)


class Player:
    """Plays the recordings of all jobs, in one thread."""

    def __init__(self, store: Store, logs: LogSource, failures: list[BaseException]) -> None:
        self._store, self._logs = store, logs
        self._wanted: dict[str, _Play] = {}  # by the name of a job
        self._plays: dict[str, _Play] = {}  # by the uid of a job or of a pod
        store.admission.append(self._admit)
        self._loop = EventLoop("recordings", store.subscribe("jobs", "pods"), self._handle, failures)

    def start(self) -> None:
        self._loop.start()

    def close(self) -> None:
        self._loop.close()

    def play(self, job: str, recording: str) -> None:
        """Play a recording to the job of that name, which is not yet there."""
        self._wanted[job] = _Play(json.loads((FOLDER / f"{recording}.json").read_text()))

    def go_on(self, job: str) -> None:
        """Somebody has done what the recording waits for, or will wait for."""
        play = self._wanted[job]

        def cue() -> None:
            play.cues += 1
            self._resume(play)

        self._loop.after(0.0, cue)

    def _admit(self, plural: str, obj: Tree) -> None:
        """Nobody else acts on what is played; Kueue's webhook has suspended what names a queue."""
        play = self._wanted.get(obj["metadata"].get("name", ""))
        if play is None or plural not in ("jobs", "pods"):
            return
        first = next(seen for _s, kind, _how, seen in play.recording["sights"] if PLURALS[kind] == plural)
        obj["spec"] |= _chosen(first["spec"], "suspend")
        obj["spec"]["managedBy" if plural == "jobs" else "schedulerName"] = PLAYER

    def _handle(self, event: str, _plural: str, obj: Tree) -> None:
        meta = obj["metadata"]
        play = self._plays.get(meta["uid"])
        if play is None:
            if event == "ADDED" and meta["name"] in self._wanted:
                self._begin(self._wanted[meta["name"]], obj)
            return
        if "deletionTimestamp" in meta or event == "DELETED":
            play.stopped = True
            if meta["uid"] == play.root["metadata"]["uid"]:
                play.over = True
                self._remove_pods(play)
        if obj["spec"].get("activeDeadlineSeconds") in (1, 2):  # it has passed, whenever it began
            play.stopped = True
        self._resume(play)

    def _begin(self, play: _Play, root: Tree) -> None:
        play.root = root
        play.names = {play.recording["name"]: root["metadata"]["name"], play.recording["uid"]: root["metadata"]["uid"]}
        self._plays[root["metadata"]["uid"]] = play
        self._step(play)

    def _resume(self, play: _Play) -> None:
        if play.waiting:
            play.waiting = False
            self._step(play)

    def _step(self, play: _Play) -> None:
        if play.at == len(play.recording["sights"]):  # nobody watched any more what was still going
            play.over = True
            self._remove_pods(play, going=True)
        if play.over:
            return
        if not play.goes_on():
            play.waiting = True
            return
        _s, kind, how, recorded = play.recording["sights"][play.at]
        play.at += 1
        self._loop.after(PACE_S, lambda: self._step(play))
        self._show(play, kind, how, recorded)

    def _show(self, play: _Play, kind: str, how: str, recorded: Tree) -> None:
        """Write one change of one object."""
        plural, home, uid = PLURALS[kind], play.root["metadata"]["namespace"], recorded["metadata"]["uid"]
        if uid not in play.names and how != "DELETED":
            made = self._store.create(plural, home, self._whole(play, kind, play.here(recorded)))
            play.names[uid] = made["metadata"]["uid"]
            self._plays[made["metadata"]["uid"]] = play
        seen = play.here(recorded)
        name = seen["metadata"]["name"]
        if how == "DELETED":
            self._store.delete(plural, home, name, grace_s=0)
            return
        self._store.change(plural, home, name, lambda obj: _become(obj, kind, seen))
        if kind == "Pod":
            self._write_logs(play, seen)
            if "deletionTimestamp" in seen["metadata"]:
                self._store.delete(plural, home, name)

    def _remove_pods(self, play: _Play, *, going: bool = False) -> None:
        """Remove the play's pods; with `going` only those that are being deleted."""
        for pod in self._store.list("pods", play.root["metadata"]["namespace"])[0]:
            meta = pod["metadata"]
            if self._plays.get(meta["uid"]) is play and (not going or "deletionTimestamp" in meta):
                for (uid, _start), log in play.logs.items():  # whose containers nobody has seen to end
                    if uid == meta["uid"]:
                        log.close()
                self._store.delete("pods", meta["namespace"], meta["name"], grace_s=0)

    def _whole(self, play: _Play, kind: str, seen: Tree) -> Tree:
        """The object as it is created: a recorded one, with the fields that recordings leave out."""
        if kind != "Pod":
            owned = {"ownerReferences": [owner_of(play.root)]} if kind == "Workload" else {}
            return {**seen, "metadata": {**seen["metadata"], **owned}}
        pod = job_pod(play.root, None)
        pod["metadata"]["name"] = seen["metadata"]["name"]
        pod["spec"]["schedulerName"] = PLAYER
        return pod

    def _write_logs(self, play: _Play, pod: Tree) -> None:
        for status in pod["status"].get("containerStatuses", ()):
            start = (pod["metadata"]["uid"], status["restartCount"])
            if start not in play.logs and not status["state"].keys() & {"waiting"}:
                play.logs[start] = self._logs.open(start[0], status["name"], start[1])
                play.logs[start].write("stdout", play.recording["log"].encode())
            if start in play.logs and "terminated" in status["state"]:
                play.logs[start].close()


def _become(obj: Tree, kind: str, seen: Tree) -> None:
    if kind == "Event":
        obj |= _chosen(seen, *OF_EVENT)
        return
    obj["status"] = seen.get("status", {})
    obj.setdefault("spec", {}).update(_chosen(seen["spec"], *OF_SPEC[kind]))


def _chosen(tree: Tree, *names: str) -> Tree:
    return {name: tree[name] for name in names if name in tree}
