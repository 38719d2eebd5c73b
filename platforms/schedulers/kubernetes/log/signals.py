"""What the thread that follows a log learns from others: how its pod is, and that it must end."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from platforms.schedulers.kubernetes.log.starts import ContainerStart


class FollowerSignals:
    """Signals to one follower, which has at most one stream open. Thread-safe."""

    def __init__(self, start: ContainerStart) -> None:
        self._changed = threading.Condition()
        self._updated_s = time.monotonic()  # when the pod was last looked at
        self._stream: object = None
        self.start = start
        self.stopped = False
        self.finished = False  # the follower takes no more signals

    # --- for others --------------------------------------------------------------------------------------------------

    def update(self, start: ContainerStart) -> bool:
        """Pass on how the container is now. Returns False when the follower has finished, so that it came too late."""
        with self._changed:
            self._updated_s = time.monotonic()
            self.start = start
            self._changed.notify_all()
            return not self.finished

    def stop(self) -> None:
        with self._changed:
            self.stopped = True
            self._cut_stream()
            self._changed.notify_all()

    def _cut_stream(self) -> None:
        stop = getattr(self._stream, "stop", None)
        if stop is not None:  # a stream without it ends by its own time limit
            stop()

    # --- for the follower --------------------------------------------------------------------------------------------

    def hold(self, stream: object) -> None:
        """Name the stream that is being read, or None."""
        with self._changed:
            self._stream = stream
            if self.stopped:
                self._cut_stream()

    def finish_if(self, is_done: Callable[[ContainerStart], bool]) -> bool:
        """Finish if the container's last state allows it, or after stop(). Returns whether it has finished."""
        with self._changed:
            self.finished = self.stopped or is_done(self.start)
            return self.finished

    def wait(self, pause_s: float) -> None:
        """Wait until the container has ended or restarted, or its pod has ended; at most `pause_s`."""
        with self._changed:
            before = _facts(self.start)
            self._changed.wait_for(lambda: self.stopped or _facts(self.start) != before, pause_s)

    def confirm(self, holds: Callable[[ContainerStart], bool], after_s: float, limit_s: float) -> bool:
        """Say whether a condition holds by a look at the pod that is later than `after_s` by the clock.

        Waits for such a look for at most `limit_s`; then the last look counts. A container that will not change any
        more needs no later one.
        """

        def is_decided() -> bool:
            is_final = self.start.fixed and self.start.ended
            return self.stopped or is_final or self._updated_s >= after_s or not holds(self.start)

        with self._changed:
            self._changed.wait_for(is_decided, limit_s)
            return not self.stopped and holds(self.start)


def _facts(start: ContainerStart) -> tuple[str, bool, bool]:
    return start.run, start.ended, start.over
