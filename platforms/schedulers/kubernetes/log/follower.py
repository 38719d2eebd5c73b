"""Follows the log of one container in a thread of its own, over broken streams and restarts, to its last line.

The end of a stream does not say that the container has ended: a stream may be cut anywhere on its way to us, and then
it ends as cleanly as one that was read to the end. So a log counts as complete when it was read after its container had
ended and two streams in a row came to the same end.

Some kinds delete their pods at once, so that no second stream can be read. The log then is complete when its last
stream ended by itself: if that one had been cut, it would have been opened again at once.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from platforms.job import AwayError, BenchError
from platforms.schedulers.kubernetes.api.errors import ApiError, Expired
from platforms.schedulers.kubernetes.log.files import LogFiles
from platforms.schedulers.kubernetes.log.lines import UNSTAMPED, LineSplitter, LogLine, OverlapSearch, line_of, rfc3339
from platforms.schedulers.kubernetes.log.signals import FollowerSignals
from platforms.schedulers.kubernetes.log.starts import ContainerStart
from platforms.schedulers.kubernetes.objects.fields import one_line

TRIES = 3  # so often a refusal, or a log that contradicts what is known, must come before it is believed
AT_ONCE = 1  # so many streams in a row that bring nothing new are followed by another one at once


class LogSource(Protocol):
    """A source of logs, as a Client is. If its streams have a stop(), another thread can end them while they wait."""

    def log(
        self, pod: str, container: str, *, follow: bool, since: str | None, previous: bool = False
    ) -> AbstractContextManager[Iterator[bytes]]: ...


@dataclass(frozen=True)
class Timeouts:
    """Limits and pauses of a follower, in seconds.

    `ended_s`: after a stream has ended cleanly, for the pod to say that its container has ended. `again_s`: before the
    second attempt after a failure; doubled each time up to `longest_s`. `sure_s`: a state of the pod must be so much
    younger than a stream's beginning to say of which start of the container the stream is; the follower waits three
    times as long for one.
    """

    ended_s: float = 1.0
    again_s: float = 0.5
    longest_s: float = 15.0
    sure_s: float = 5.0


DEFAULT_TIMEOUTS = Timeouts()


@dataclass(frozen=True)
class StreamResult:
    """The result of one stream, from its beginning to wherever it ended.

    `size`: its bytes, of which `rest` came after the last newline. `new`: the number of new lines. `known`: the stream
    continues what is known of the log, or is taken for that, because it brings the same each time. `strange`: a message
    that is the kubelet's. `broken`: why the stream ended, unless it ended by itself.
    """

    size: int
    rest: bytes
    new: int
    known: bool
    strange: bytes
    broken: str
    lived_s: float

    def has_same_end(self, other: StreamResult | None) -> bool:
        """Say whether both came to the end of the log, or were cut at the same byte."""
        return other is not None and not self.broken and not other.broken and self.rest == other.rest


class Follower:
    """Follows one container. Its thread ends when nothing more can be read, or after signals.stop()."""

    def __init__(
        self, source: LogSource, files: LogFiles, start: ContainerStart, *, timeouts: Timeouts = DEFAULT_TIMEOUTS
    ) -> None:
        self._source = source
        self._files = files
        self._timeouts = timeouts
        self.progress = files.progress(start)
        self.signals = FollowerSignals(start)
        self.trouble = ""  # why nothing comes at present
        self._forget_streams()
        self.thread = threading.Thread(target=self._run, name=f"log of {start.name}", daemon=True)

    def _run(self) -> None:
        while not self.signals.finish_if(self._is_read_to_its_end):
            try:
                if self._files.due:
                    self._files.flush()
                self._step()
            except BenchError as error:  # also when the disk is full: then nothing more is read for a while
                self._note_failure(str(error))
            except Exception as error:
                self.trouble = f"{type(error).__name__}: {error} (a mistake in the suite)"
                raise

    def _is_read_to_its_end(self, start: ContainerStart) -> bool:
        return self.progress.complete and self.progress.run == start.run

    # --- which start of the container --------------------------------------------------------------------------------

    def _step(self) -> None:
        progress = self.progress
        start = self.signals.start
        if progress.run == start.run:
            self._read_on(start, previous=False)
        elif progress.run and not progress.complete and progress.run == start.before:
            self._read_on(start, previous=True)
        else:
            self._begin_next_start(start)

    def _begin_next_start(self, start: ContainerStart) -> None:
        """Go on to the earliest start of the container whose log can still be read and was not."""
        progress = self.progress
        if start.before in ("", progress.run):
            run = start.run
            count = start.count
            began_s = start.began_s
        else:
            run = start.before
            count = start.count - 1
            began_s = start.before_began_s
        with self._files.lock:
            if progress.run and not progress.complete:
                self._note_loss("the container restarted before the end of its log was read")
            skipped = count - progress.count - 1
            if skipped > 0:
                self._note_loss(f"{skipped} of its starts began and ended between two looks at the pod")
            progress.begin(run, count, began_s)
            self._files.mark_changed()
        self._forget_streams()

    def _forget_streams(self) -> None:
        self._last: StreamResult | None = None
        self._last_clean: StreamResult | None = None  # the last stream of the log itself, if it ended by itself
        self._failures = 0
        self._refusals = 0
        self._misses = 0  # streams in a row that brought the same and did not continue what is known
        self._drained = False  # a stream came to the end of the log though the container is said to run

    # --- what a stream's result means --------------------------------------------------------------------------------

    def _read_on(self, start: ContainerStart, *, previous: bool) -> None:
        ended = previous or start.ended or (start.over and self._drained)
        try:
            result = self._read_stream(start, follow=not ended, previous=previous)
        except (ApiError, Expired) as error:
            gone = getattr(error, "status", 0) == 404 or not start.found
            self._handle_refusal(str(error), final=ended, gone=gone)
            return
        if result is None or self.signals.stopped:
            return
        has_same_end = result.has_same_end(self._last)
        self._remember(result, has_same_end=has_same_end)
        if ended:
            self._finish(result, confirmed=has_same_end and not result.new)
        else:
            self._drained = not result.broken and (has_same_end or not result.rest)
            self._pause_between_streams(result)
        if result.size or not result.broken:
            self._last = result

    def _remember(self, result: StreamResult, *, has_same_end: bool) -> None:
        if result.known and not result.strange:  # a kubelet's message in place of the log says nothing about the log
            self._last_clean = None if result.broken else result
        if result.known:
            self._misses = 0
        elif has_same_end and self._last is not None and self._last.size == result.size:
            self._misses += 1
        else:
            self._misses = 1
        if result.new or result.lived_s > self._timeouts.longest_s:
            self._failures = 0

    def _finish(self, result: StreamResult, *, confirmed: bool) -> None:
        """Complete the log of a container that has ended, or try again. `confirmed`: the last two streams agree."""
        if confirmed and result.strange:
            self._handle_refusal(result.strange.decode(errors="replace"), final=True)
        elif confirmed and result.known:
            self._complete(result.rest)
        elif result.broken:
            self._note_failure(result.broken)
        elif self._last is not None and not result.new:
            self._note_failure("its log ends differently each time that it is read")

    def _complete(self, rest: bytes) -> None:
        """Take the rest for the last line, which has no newline, and write everything to the files."""
        last = line_of(rest)
        with self._files.lock:
            if last.second != UNSTAMPED and last.content:
                self._files.add(self.progress, last.content)
            self.progress.complete = True
            self._files.mark_changed()
        self._files.flush()

    def _handle_refusal(self, why: str, *, final: bool, gone: bool = False) -> None:
        """Give the log up after several refusals. `final`: the container has ended. `gone`: so has the pod."""
        self._refusals += 1
        if (not final and not gone) or self._refusals < TRIES:
            self._note_failure(why)
        elif not final and not self._ended_unseen():
            return
        elif final and gone and self._last_clean is not None:
            self._complete(self._last_clean.rest)
        else:
            with self._files.lock:
                self._note_loss(f"the end of its log is lost: {one_line(why)}")
                self.progress.complete = True
            self._files.flush()

    def _ended_unseen(self) -> bool:
        """Say whether the pod went without having been seen to end. A look at the pod from now on must confirm it."""
        sure_s = self._timeouts.sure_s
        return self.signals.confirm(lambda start: not start.ended, time.monotonic() + sure_s, 3 * sure_s)

    def _note_loss(self, why: str) -> None:
        sentence = f"{self.progress.name}: {why}"
        with self._files.lock:
            if sentence not in self.progress.lost:  # a log may be rotated a hundred times
                self.progress.lost.append(sentence)
            self._files.mark_changed()

    def _note_failure(self, why: str) -> None:
        self.trouble = one_line(why)
        self._failures += 1
        self.signals.wait(self._pause_s(self._timeouts.again_s))

    def _pause_between_streams(self, result: StreamResult) -> None:
        """Wait before the log of a running container is opened again: for the pod to say that it has ended."""
        self.trouble = one_line(result.broken or result.strange.decode(errors="replace"))
        if self._drained:
            self.signals.wait(self._pause_s(self._timeouts.ended_s))
        elif self._failures > AT_ONCE:
            self.signals.wait(self._pause_s(self._timeouts.again_s))
        if not result.new:
            self._failures += 1

    def _pause_s(self, first_s: float) -> float:
        """Return a pause that doubles with each failure. It varies, because many streams break at the same moment."""
        doubled_s = first_s * 2.0 ** min(10, self._failures)
        return min(self._timeouts.longest_s, doubled_s) * random.uniform(0.5, 1.0)

    # --- one stream --------------------------------------------------------------------------------------------------

    def _read_stream(self, start: ContainerStart, *, follow: bool, previous: bool) -> StreamResult | None:
        """Read one stream into the files.

        Returns None when the stream is of another start of the container. Raises ApiError, Expired, BenchError when it
        cannot be opened or written.
        """
        overlap = self.progress.overlap
        since = self._since_second(start, follow=follow)
        patient = self._misses < TRIES
        search = overlap.search(since, patient=patient)
        splitter = LineSplitter()
        opened_s = time.monotonic()
        is_this_start = False
        new = 0
        broken = ""
        since_time = None if since is None else rfc3339(since)
        self.trouble = ""
        try:
            with self._source.log(
                start.pod, start.container, follow=follow, since=since_time, previous=previous
            ) as chunks:
                self.signals.hold(chunks)
                for chunk in chunks:
                    lines = search.new_lines(splitter.feed(chunk))
                    if lines and not is_this_start:
                        is_this_start = self._is_of_this_start(search, opened_s, previous=previous)
                        if not is_this_start:
                            return None
                        lines = self._join(search, lines)
                    new += self._add(lines)
                    if self.signals.stopped:
                        break
        except AwayError as error:  # lines that were held until now come again with the next stream
            broken = str(error)
        finally:
            self.signals.hold(None)
        strange = search.strange
        if splitter.rest and search.over and line_of(splitter.rest).nanos == UNSTAMPED:
            strange = splitter.rest
        if not strange:
            self._refusals = 0
        return StreamResult(
            size=splitter.size,
            rest=splitter.rest,
            new=new,
            known=search.over or not patient,
            strange=strange,
            broken=broken,
            lived_s=time.monotonic() - opened_s,
        )

    def _since_second(self, start: ContainerStart, *, follow: bool) -> int | None:
        """Return the second from which the log is asked for; None: from its beginning."""
        overlap = self.progress.overlap
        if not follow and start.ended_s is not None and overlap.is_ahead_of(start.ended_s):
            return None  # the node's clock was set back
        if self._last is None:
            return overlap.since()
        return overlap.since(self._last.rest)

    def _is_of_this_start(self, search: OverlapSearch, opened_s: float, *, previous: bool) -> bool:
        """Say whether a stream is of the start of the container that is being read.

        A stream that begins with known lines is. Otherwise the pod must say so in a state that is some time younger
        than the stream, because its state reaches us with a delay.
        """
        run = self.progress.run
        start = self.signals.start
        knows_nothing = search.knows_nothing and not start.fixed
        misses_lines = search.gap and not (start.fixed and start.ended)
        if not knows_nothing and not misses_lines:
            return True
        sure_s = self._timeouts.sure_s
        return self.signals.confirm(
            lambda start: run == (start.before if previous else start.run), opened_s + sure_s, 3 * sure_s
        )

    def _join(self, search: OverlapSearch, lines: Sequence[LogLine]) -> Sequence[LogLine]:
        """Note that lines may be missing where a stream does not begin with what is known.

        Its first line is left out then: it may be the end of a long one, of which the node stamps each piece.
        """
        if not search.gap:
            return lines
        self._note_loss("lines may be missing: its node had rotated them away before they could be read")
        return lines[1:]

    def _add(self, lines: Sequence[LogLine]) -> int:
        if lines:
            with self._files.lock:
                self._files.add(self.progress, b"".join(line.content for line in lines))
                self.progress.extend(lines)
        if self._files.due:
            self._files.flush()
        return len(lines)
