"""The logs of all containers of one job, followed live into FOLDER/log and FOLDER/logs/, byte for byte."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from platforms.job import RefusedError
from platforms.schedulers.kubernetes.log.files import LogFiles
from platforms.schedulers.kubernetes.log.follower import Follower
from platforms.schedulers.kubernetes.log.reading import DEFAULT_TIMEOUTS, LogSource, Timeouts
from platforms.schedulers.kubernetes.log.starts import ContainerStart, container_starts
from platforms.schedulers.kubernetes.objects.fields import Object

CHUNK = 1 << 20
CLOSE_S = 5.0
POLL_S = 0.02


class JobLog:
    """Every line of every container, once, none torn; what cannot be had is said by `missing`.

    FOLDER/log holds whole lines of all containers in the order of their arrival, init containers among them: their
    words explain why others did not start. FOLDER/logs/<pod>.log, or <pod>.<container>.log, holds what one container
    has said, all its starts in a row. Who makes a JobLog of the same folder later goes on where the files end.
    """

    def __init__(
        self,
        source: LogSource,
        folder: Path,
        *,
        patience: Timeouts = DEFAULT_TIMEOUTS,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        wall: Callable[[], float] = time.time,
    ) -> None:
        """Raises RefusedError when the folder cannot be written."""
        self._source, self._patience, self._clock, self._sleep = source, patience, clock, sleep
        self._wall = wall
        self._files = LogFiles(folder, clock)
        self._followers: dict[str, Follower] = {}
        self._seen: dict[str, ContainerStart] = {}
        self._closed = False

    def follow(self, pods: Sequence[Object]) -> None:
        """How the job's pods are now, those that have vanished as they were seen last, before those that are there.

        Needs no connection and raises nothing; without further looks at the pods, what had ended by then is read on.
        """
        if self._closed:
            return
        for pod in pods:
            for seen in container_starts(pod):
                known = self._known(seen)
                if known is not None:
                    self._seen[seen.key] = known
                    self._tell(known)
        self._hurry()

    def _known(self, seen: ContainerStart) -> ContainerStart | None:
        """Of a container that its node has lost, the start that was seen last; None where none ever was."""
        if seen.found:
            return seen
        track = self._files.tracks.get(seen.key)
        return None if track is None else replace(seen, run=track.run, before="", count=track.count)

    def _tell(self, seen: ContainerStart) -> None:
        follower = self._followers.get(seen.key)
        if follower is not None and follower.news.tell(seen):
            return
        track = self._files.track(seen)
        if track.complete and track.run == seen.run:
            return
        follower = Follower(
            self._source, self._files, seen, patience=self._patience, clock=self._clock, wall=self._wall
        )
        try:
            follower.thread.start()
        except RuntimeError:  # no more threads for us: at a later look
            return
        self._followers[seen.key] = follower

    def _hurry(self) -> None:
        for follower in list(self._followers.values()):
            follower.hurry()
        if self._files.due:  # threads that have ended, or say nothing, write nothing
            with contextlib.suppress(RefusedError):
                self._files.flush()

    @property
    def sizes(self) -> dict[str, int]:
        """Bytes by file: `log`, `logs/<pod>.log`."""
        return self._files.sizes

    def read(self, offset: int, limit: int = CHUNK) -> bytes:
        """The next bytes of FOLDER/log. Raises RefusedError when it cannot be written or read."""
        self._hurry()
        return self._files.read(offset, limit)

    @property
    def lost(self) -> tuple[str, ...]:
        """What will never come, and why."""
        with self._files.lock:
            return tuple(why for track in self._files.tracks.values() for why in track.problems)

    @property
    def missing(self) -> tuple[str, ...]:
        """Empty when every container that ever started is read to its end; else what is lost, and what is still to
        come, with what prevents it."""
        self._hurry()
        with self._files.lock:
            return (*self.lost, *self._all_to_come())

    @property
    def to_come(self) -> tuple[str, ...]:
        """What is still to come, with what prevents it. Empty: who begins to read only now reads to the end."""
        self._hurry()
        with self._files.lock:
            return self._all_to_come()

    def _all_to_come(self) -> tuple[str, ...]:
        return tuple(filter(None, (*map(self._to_come, self._files.tracks), self._files.trouble)))

    def _to_come(self, key: str) -> str:
        track, seen, follower = self._files.tracks[key], self._seen.get(key), self._followers.get(key)
        if track.complete and (seen is None or seen.run == track.run):
            return ""
        if follower is not None and follower.trouble:
            return f"{track.name}: its log is not read to its end yet: {follower.trouble}"
        if seen is not None and not seen.ended and not seen.over:
            return f"{track.name}: it still runs"
        return f"{track.name}: its log is not read to its end yet"

    def settled(self, limit_s: float) -> bool:
        """Wait until nothing is to come, but no longer than that."""
        deadline_s = self._clock() + limit_s
        while self.to_come:
            if self._clock() >= deadline_s:
                return False
            self._sleep(POLL_S)
        return True

    def close(self) -> None:
        """Follow nothing any more; what has come is in the files. Raises RefusedError when it cannot be."""
        self._closed = True
        for follower in self._followers.values():
            follower.news.stop()
        deadline_s = self._clock() + CLOSE_S
        for follower in self._followers.values():
            follower.thread.join(max(0.0, deadline_s - self._clock()))
        self._files.flush(save=True)
