"""The logs of all containers of one job, followed live into FOLDER/log and FOLDER/logs/."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from platforms.job import RefusedError
from platforms.schedulers.kubernetes.log.files import LogFiles
from platforms.schedulers.kubernetes.log.follower import DEFAULT_TIMEOUTS, Follower, LogSource, Timeouts
from platforms.schedulers.kubernetes.log.starts import ContainerStart, container_starts
from platforms.schedulers.kubernetes.objects.fields import Object

CHUNK = 1 << 20
CLOSE_S = 5.0


class JobLog:
    """Writes every line of every container once and whole; `lost` and `to_come` say what is not there.

    FOLDER/log holds the whole lines of all containers in the order of their arrival. Init containers are among them,
    because their messages explain why others did not start. FOLDER/logs/<pod>.log, or <pod>.<container>.log, holds the
    lines of one container, all its starts in a row. A later JobLog of the same folder goes on where the files end.
    """

    def __init__(self, source: LogSource, folder: Path, *, timeouts: Timeouts = DEFAULT_TIMEOUTS) -> None:
        """Raises RefusedError when the folder cannot be written."""
        self._source = source
        self._timeouts = timeouts
        self._files = LogFiles(folder)
        self._followers: dict[str, Follower] = {}
        self._starts: dict[str, ContainerStart] = {}
        self._closed = False

    def follow(self, pods: Sequence[Object]) -> None:
        """Follow the containers of the job's pods as they are now.

        Pods that have vanished come first, in their last state. This sends no request and raises nothing. Without
        further calls, the containers that had ended by then are read to their end.
        """
        if self._closed:
            return
        for pod in pods:
            for start in container_starts(pod):
                known = start if start.found else self._last_known(start)
                if known is not None:
                    self._starts[known.key] = known
                    self._update_follower(known)
        self._flush_if_due()

    def _last_known(self, start: ContainerStart) -> ContainerStart | None:
        """Return the last known start of a container that its node has lost, or None where none is known."""
        progress = self._files.containers.get(start.key)
        if progress is None:
            return None
        return replace(start, run=progress.run, before="", count=progress.count)

    def _update_follower(self, start: ContainerStart) -> None:
        follower = self._followers.get(start.key)
        if follower is not None and follower.signals.update(start):
            return
        progress = self._files.progress(start)
        if progress.complete and progress.run == start.run:
            return
        follower = Follower(self._source, self._files, start, timeouts=self._timeouts)
        try:
            follower.thread.start()
        except RuntimeError:  # this process may have no more threads; the next call of follow() tries again
            return
        self._followers[start.key] = follower

    def _flush_if_due(self) -> None:
        """The followers' threads may have ended or be waiting, and then do not write."""
        if self._files.due:
            with contextlib.suppress(RefusedError):
                self._files.flush()

    def read(self, offset: int, limit: int = CHUNK) -> bytes:
        """Return the next bytes of FOLDER/log. Raises RefusedError when it cannot be written or read."""
        self._flush_if_due()
        return self._files.read(offset, limit)

    @property
    def lost(self) -> tuple[str, ...]:
        """Sentences about what will never come, and why."""
        sentences: list[str] = []
        with self._files.lock:
            for progress in self._files.containers.values():
                sentences += progress.lost
        return tuple(sentences)

    def doubts(self, rotated_from: float) -> tuple[str, ...]:
        """Sentences on logs of which a node that rotates at `rotated_from` bytes may have dropped lines unseen.

        The API shows only the newest of a log's files, and a follower may leave out a whole file without a word.
        """
        sentences = []
        with self._files.lock:
            for progress in self._files.containers.values():
                if progress.node_bytes > rotated_from:
                    written = f"{progress.name} wrote about {progress.node_bytes / (1 << 20):.1f} MiB"
                    limit = f"{rotated_from / (1 << 20):.3g} MiB (kubernetes: log_rotates_at)"
                    sentences.append(f"{written}, and nodes may rotate a log from {limit} on, so lines may be missing")
        return tuple(sentences)

    @property
    def to_come(self) -> tuple[str, ...]:
        """Sentences about what is still to come, and what prevents it. Empty: reading from now on reads everything."""
        self._flush_if_due()
        with self._files.lock:
            return self._all_to_come()

    def _all_to_come(self) -> tuple[str, ...]:
        sentences = [self._to_come(key) for key in self._files.containers]
        sentences.append(self._files.trouble)
        return tuple(sentence for sentence in sentences if sentence)

    def _to_come(self, key: str) -> str:
        """Say what is still to come of one container; "" if nothing is."""
        progress = self._files.containers[key]
        start = self._starts.get(key)
        follower = self._followers.get(key)
        if progress.complete and (start is None or start.run == progress.run):
            return ""
        if follower is not None and follower.trouble:
            return f"{progress.name}: its log is not read to its end yet: {follower.trouble}"
        if start is not None and not start.ended and not start.over:
            return f"{progress.name}: it still runs"
        return f"{progress.name}: its log is not read to its end yet"

    def close(self) -> None:
        """Stop following and write what has come to the files. Raises RefusedError when they cannot be written."""
        self._closed = True
        for follower in self._followers.values():
            follower.signals.stop()
        deadline_s = time.monotonic() + CLOSE_S
        for follower in self._followers.values():
            follower.thread.join(max(0.0, deadline_s - time.monotonic()))
        self._files.flush(save=True)
