"""What the thread that follows a log is told by others: how its pod is now, that it must end, that it is late."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from platforms.schedulers.kubernetes.log.starts import ContainerStart


class FollowerSignals:
    """One writer, who looks at pods, and one reader, who has at most one stream open."""

    def __init__(self, seen: ContainerStart, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._changed = threading.Condition()
        self._told_s = self._altered_s = clock()
        self._stream: object = None
        self.seen = seen
        self.stopped = False
        self.over = False  # nobody listens any more
        self.heard_s = clock()  # when the stream said something

    def tell(self, seen: ContainerStart) -> bool:
        """How the pod is now. False: too late."""
        with self._changed:
            self._told_s = self._clock()
            if _facts(seen) != _facts(self.seen):
                self._altered_s = self._told_s
            self.seen = seen
            self._changed.notify_all()
            return not self.over

    def stop(self) -> None:
        with self._changed:
            self.stopped = True
            self._cut()
            self._changed.notify_all()

    def hurry(self, run: str, late_s: float) -> None:
        """End a stream that has said nothing for so long though its container, then in its start `run`, has ended."""
        with self._changed:
            quiet_s = self._clock() - max(self.heard_s, self._altered_s)
            if (self.seen.ended or self.seen.run != run) and quiet_s > late_s:
                self._cut()

    def _cut(self) -> None:
        if (stop := getattr(self._stream, "stop", None)) is not None:  # else its own time limit ends it
            stop()

    # --- the one who listens -----------------------------------------------------------------------------------------

    def hold(self, stream: object) -> None:
        """The stream that is read now, or None."""
        with self._changed:
            self._stream, self.heard_s = stream, self._clock()
            if self.stopped:
                self._cut()

    def end(self, when: Callable[[ContainerStart], bool]) -> bool:
        """Listen no more if the last news allow it, or when told to stop. False: go on."""
        with self._changed:
            self.over = self.stopped or when(self.seen)
            return self.over

    def wait(self, pause_s: float) -> None:
        """Until the container has ended, started anew or its pod has ended, but no longer than that."""
        with self._changed:
            before = _facts(self.seen)
            self._changed.wait_for(lambda: self.stopped or _facts(self.seen) != before, pause_s)

    def confirmed(self, holds: Callable[[ContainerStart], bool], after_s: float, limit_s: float) -> bool:
        """Wait for a look later than `after_s` by the clock, or for the last one that matters. Whether that one, or the
        last one within the limit, has it so."""

        def told() -> bool:
            last = self.seen.fixed and self.seen.ended
            return self.stopped or last or self._told_s >= after_s or not holds(self.seen)

        with self._changed:
            self._changed.wait_for(told, limit_s)
            return not self.stopped and holds(self.seen)


def _facts(seen: ContainerStart) -> tuple[str, bool, bool]:
    return seen.run, seen.ended, seen.over
