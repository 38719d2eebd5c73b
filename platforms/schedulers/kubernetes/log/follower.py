"""Follows the log of one container in a thread of its own, over broken streams and restarts, to its last line.

A stream that ends is no container that has ended, and an end that is not confirmed is none either: on its way to us a
stream is cut anywhere, and then ends cleanly. So a log is complete when it was read after its container had ended, and
two readings in a row have come to the same end. Where its pod has gone by then, as those go that their kind deletes, it
is complete when the last stream of it ended by itself: had that been cut, it would have been opened again at once. For
a moment before it goes its kubelet has lost the log already, and says so in place of it.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager

from platforms.job import AwayError, BenchError
from platforms.schedulers.kubernetes.api.errors import ApiError, Expired
from platforms.schedulers.kubernetes.log.files import LogFiles
from platforms.schedulers.kubernetes.log.lines import UNSTAMPED, LineSplitter, LogLine, OverlapSearch, line_of, rfc3339
from platforms.schedulers.kubernetes.log.pump import Arrival, Pump
from platforms.schedulers.kubernetes.log.reading import DEFAULT_TIMEOUTS, LogSource, StreamResult, Timeouts
from platforms.schedulers.kubernetes.log.signals import FollowerSignals
from platforms.schedulers.kubernetes.log.skips import JUMP, SMALL, ArrivalDelay, LostBeginning, Skips, on_node
from platforms.schedulers.kubernetes.log.starts import ContainerStart
from platforms.schedulers.kubernetes.objects.fields import one_line

TRIES = 3  # before a no, or something that contradicts what we know, is believed
AT_ONCE = 1  # streams that were cut before anything new came are followed by another at once
FIRST_BYTES = 100  # of a log, in which the first line's stamp is


class Follower:
    """One container. Its thread ends when there is nothing more to be read, or with news.stop()."""

    def __init__(
        self,
        source: LogSource,
        files: LogFiles,
        seen: ContainerStart,
        *,
        patience: Timeouts = DEFAULT_TIMEOUTS,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._source, self._files, self._patience, self._clock = source, files, patience, clock
        self._lag = ArrivalDelay(wall)
        self.track = files.track(seen)
        self.news = FollowerSignals(seen, clock)
        self.trouble = ""  # why nothing comes for now
        self._from_the_beginning()
        self.thread = threading.Thread(target=self._run, name=f"log of {seen.name}", daemon=True)

    def hurry(self) -> None:
        """Do not wait for a stream that says nothing although its container has ended."""
        self.news.hurry(self.track.run, self._patience.late_s)

    def _run(self) -> None:
        while not self.news.end(lambda seen: self.track.complete and self.track.run == seen.run):
            try:
                if self._files.due:
                    self._files.flush()
                self._step()
            except BenchError as error:  # also of a disk that is full: then nothing more is read for a while
                self._failed(str(error))
            except Exception as error:
                self.trouble = f"{type(error).__name__}: {error} (a mistake in the suite)"
                raise

    # --- which start of the container --------------------------------------------------------------------------------

    def _step(self) -> None:
        track, seen = self.track, self.news.seen
        if track.run == seen.run:
            self._read_on(seen, previous=False)
        elif track.run and not track.complete and track.run == seen.before:
            self._read_on(seen, previous=True)
        else:
            self._next_start(seen)

    def _next_start(self, seen: ContainerStart) -> None:
        """The earliest that can be read."""
        track = self.track
        earlier = seen.before not in ("", track.run)
        run, count = (seen.before, seen.count - 1) if earlier else (seen.run, seen.count)
        with self._files.lock:
            if track.run and not track.complete:
                self._lose("it started anew before the end of its log was read")
            if count > track.count + 1:
                self._lose(f"{count - track.count - 1} of its starts came and went before anybody looked")
            track.begin(run, count)
            self._files.note()
        self._from_the_beginning()

    def _from_the_beginning(self) -> None:
        self._before: StreamResult | None = None
        self._followed: StreamResult | None = None  # the last stream that was followed, if it has ended by itself
        self._failures = self._refusals = 0
        self._misses = 0  # readings in a row that were the same, and did not go on from what is known
        self._whole: StreamResult | None = None  # the last that was of the log, where that stream has ended by itself
        self._drained = False  # one has come to its end though the container is said to run

    # --- what a reading means ----------------------------------------------------------------------------------------

    def _read_on(self, seen: ContainerStart, *, previous: bool) -> None:
        ended = previous or seen.ended or (seen.over and self._drained)
        try:
            reading = self._read(seen, follow=not ended, previous=previous)
        except (ApiError, Expired) as error:
            gone = getattr(error, "status", 0) == 404 or not seen.found
            self._refused(str(error), final=ended, gone=gone)
            return
        if reading is None or self.news.stopped:
            return
        if not ended and (reading.size or reading.broken):  # one that is empty is of a file that has just begun
            self._followed = None if reading.broken or not reading.found else reading
        same = reading.same_end(self._before)
        if reading.known and not reading.strange:  # what a kubelet says in place of a log says nothing of the log
            self._whole = None if reading.broken else reading
        whole = not reading.broken and (same or not reading.rest)
        alike = same and self._before is not None and self._before.size == reading.size
        self._misses = 0 if reading.known else self._misses + 1 if alike else 1
        if reading.new or reading.lived_s > self._patience.longest_s:
            self._failures = 0
        if ended:
            self._towards_the_end(reading, same and not reading.new)
        else:
            self._drained = whole
            self._between(reading, whole)
        if reading.size or not reading.broken:
            self._before = reading

    def _towards_the_end(self, reading: StreamResult, agreed: bool) -> None:
        if agreed and reading.strange:
            self._refused(reading.strange.decode(errors="replace"), final=True)
        elif agreed and reading.known:
            self._complete(self._last_words(reading))
        elif reading.broken:
            self._failed(reading.broken)
        elif self._before is not None and not reading.new:
            self._failed("it ends otherwise each time that it is read")

    def _last_words(self, reading: StreamResult) -> bytes:
        """What came last without an end of line. Where the newest file holds no more than that, nothing is missing
        before it if the stream that was followed had ended by itself, and in time."""
        if reading.found:
            return reading.rest
        followed = self._followed
        before = b"" if followed is None or followed.behind else followed.rest
        if (followed is None or followed.behind) and self.track.size >= SMALL:
            self._lose("the end of its log may be lost: its node had rotated it away before it could be read")
        last = line_of(reading.rest)
        if before and last.nanos != UNSTAMPED:
            return before + last.words
        return reading.rest or before

    def _complete(self, rest: bytes) -> None:
        """Only now what has no newline is a line, the last one."""
        last = line_of(rest)
        with self._files.lock:
            if last.second != UNSTAMPED and last.words:
                self._files.add(self.track, last.words)
            self.track.complete = True
            self._files.note()
        self._files.flush()

    def _refused(self, why: str, *, final: bool, gone: bool = False) -> None:
        """`final`: it would be said again. `gone`: so would it be, since there is no such pod or container any more."""
        self._refusals += 1
        if not (final or gone) or self._refusals < TRIES:
            self._failed(why)
            return
        if not final and not self._never_ended():
            return
        if final and gone and self._whole is not None and self._in_time(self._whole):
            self._complete(self._whole.rest)
            return
        with self._files.lock:
            self._lose(f"the end of its log is lost: {one_line(why)}")
            self.track.complete = True
        self._files.flush()

    def _in_time(self, last: StreamResult) -> bool:
        """Whether a stream that has ended by itself has brought all. A kubelet that is behind leaves files out."""
        return self.track.size < SMALL or not last.behind

    def _never_ended(self) -> bool:
        """Whether the pod was not seen to end before it went, also by a look that is later than that."""
        sure_s = self._patience.sure_s
        return self.news.confirmed(lambda seen: not seen.ended, self._clock() + sure_s, 3 * sure_s)

    def _lose(self, why: str) -> None:
        with self._files.lock:
            self.track.lost.append(f"{self.track.name}: {why}")
            self._files.note()

    def _failed(self, why: str) -> None:
        self.trouble = one_line(why)
        self._failures += 1
        self.news.wait(self._longer(self._patience.again_s))

    def _between(self, reading: StreamResult, whole: bool) -> None:
        """Streams of a log that is followed. One that has ended is opened again at once, if it has brought something
        and the log may have been rotated since; a small one by the word that the container has ended."""
        self.trouble = one_line(reading.broken or reading.strange.decode(errors="replace"))
        if whole and (self.track.size < SMALL or not reading.new):
            self.news.wait(self._longer(self._patience.ended_s))
        elif self._failures > AT_ONCE:
            self.news.wait(self._longer(self._patience.again_s))
        self._failures += not reading.new

    def _longer(self, pause_s: float) -> float:
        """The more failures, the longer; and not the same for all, since many break at the same moment."""
        return min(self._patience.longest_s, pause_s * 2.0 ** min(10, self._failures)) * random.uniform(0.5, 1.0)

    # --- one stream --------------------------------------------------------------------------------------------------

    def _read(self, seen: ContainerStart, *, follow: bool, previous: bool) -> StreamResult | None:
        """None: it is of another start. Raises ApiError, Expired, BenchError when it cannot be opened or written."""
        overlap, splitter, new = self.track.overlap, LineSplitter(), 0
        set_back = not follow and seen.ended_s is not None and overlap.ahead_of(seen.ended_s)
        rest, small = self._before.rest if self._before is not None else b"", self.track.size < SMALL
        second = None if set_back else overlap.since(rest, small=small)
        since = None if second is None else rfc3339(second)
        patient = self._misses < TRIES
        search = overlap.search(second, patient=patient)
        began_s = None if overlap else (seen.before_began_s if previous else seen.began_s)
        beginning = LostBeginning(began_s, self._lag, self._lag.clock())
        skips = Skips(overlap.last, self._lag, lambda: self._newest(seen, previous=previous))
        opened_s, sure, broken = self._clock(), False, ""
        try:
            with self._opened(seen, follow=follow, since=since, previous=previous) as arrivals:
                for arrived_s, chunk in arrivals:
                    if not chunk:
                        new += self._take(skips, beginning, beginning.rest(), arrived_s, quiet=True)
                        if self._frozen(seen, splitter.rest):
                            raise AwayError("it says nothing any more, though the log goes on")
                    elif lines := search.sift(splitter.feed(chunk)):
                        if not sure:
                            sure = self._sure(search, opened_s, previous=previous)
                            if not sure:
                                return None
                            lines = self._joined(search, lines)
                        new += self._take(skips, beginning, beginning.sift(lines), arrived_s)
                    if self.news.stopped:
                        break
            new += self._take(skips, beginning, beginning.rest(), self._lag.clock(), quiet=True)
        except AwayError as error:  # what is held by now comes again
            broken = str(error)
        rest, known, strange = splitter.rest, search.over or not patient, search.strange
        if rest and search.over and line_of(rest).nanos == UNSTAMPED:
            strange = rest
        if not strange:
            self._refusals = 0
        lived_s = self._clock() - opened_s
        return StreamResult(splitter.size, rest, new, known, search.over, strange, broken, skips.behind, lived_s)

    @contextmanager
    def _opened(
        self, seen: ContainerStart, *, follow: bool, since: str | None, previous: bool
    ) -> Iterator[Iterator[Arrival]]:
        """What comes, and when. A log that goes on is read by a thread of its own, whatever we do meanwhile."""

        def ask() -> AbstractContextManager[Iterator[bytes]]:
            return self._source.log(seen.pod, seen.container, follow=follow, since=since, previous=previous)

        self.trouble = ""
        try:
            if not follow:
                with ask() as chunks:
                    self.news.hold(chunks)
                    yield self._heard((self._lag.clock(), chunk) for chunk in chunks)
                return
            pump = Pump(ask, self._lag.clock, f"stream of {seen.name}")
            try:
                self.news.hold(pump)
                yield self._heard(pump.arrivals(self._patience.quiet_s))
            finally:
                pump.close()
        finally:
            self.news.hold(None)

    def _heard(self, arrivals: Iterator[Arrival]) -> Iterator[Arrival]:
        self._looked_s = self._clock()
        self._doubted_s: float | None = None
        for arrival in arrivals:
            if arrival[1]:
                self.news.heard_s, self._doubted_s = self._clock(), None
            yield arrival

    def _frozen(self, seen: ContainerStart, rest: bytes) -> bool:
        """Whether a stream that has said nothing for long says nothing though there is something to say."""
        now_s = self._clock()
        if self._doubted_s is not None:
            return now_s - self._doubted_s >= self._patience.late_s
        if now_s - max(self.news.heard_s, self._looked_s) < self._patience.silent_s:
            return False
        self._looked_s = now_s
        last = self._peek(seen, tail=1)
        if last is not None and last.raw and last.raw != rest and not self.track.overlap.ends_with(last):
            self._doubted_s = now_s
        return False

    def _newest(self, seen: ContainerStart, *, previous: bool) -> int | None:
        """The stamp of the first line in the log's newest file, if that can be had."""
        first = self._peek(seen, previous=previous, limit=FIRST_BYTES)
        return first.nanos if first is not None and first.nanos != UNSTAMPED else None

    def _peek(
        self, seen: ContainerStart, *, previous: bool = False, tail: int | None = None, limit: int | None = None
    ) -> LogLine | None:
        """A line of the log as it is now. None: it cannot be had."""
        pod, container = seen.pod, seen.container
        try:
            with self._source.log(
                pod, container, follow=False, since=None, previous=previous, tail=tail, limit=limit
            ) as chunks:
                return line_of(b"".join(chunks))
        except (AwayError, ApiError, Expired):
            return None

    def _sure(self, search: OverlapSearch, opened_s: float, *, previous: bool) -> bool:
        """Whether a stream is of the start that we read. One that begins with what we know is; else the pod is looked
        at, some time later, since what is told of it is a little old."""
        run, seen, sure_s = self.track.run, self.news.seen, self._patience.sure_s

        def holds(seen: ContainerStart) -> bool:
            return run == (seen.before if previous else seen.run)

        doubtful = (search.anew and not seen.fixed) or (search.gap and not (seen.fixed and seen.ended))
        return not doubtful or self.news.confirmed(holds, opened_s + sure_s, 3 * sure_s)

    def _joined(self, search: OverlapSearch, lines: Sequence[LogLine]) -> Sequence[LogLine]:
        """What a log begins with that was opened again, and that does not begin with what is known.

        A kubelet ends a stream by itself when the container has ended, at the end of the file that it has open. If a
        newer one begins at that moment, it is the next one, and continues a line that had no end. Else something may
        lie between, and the first line may be the end of one.
        """
        if not search.gap:
            return lines
        first, known, followed = lines[0], self.track.overlap.last, self._followed
        rest = line_of(followed.rest if followed is not None else b"")
        last = known if rest.nanos == UNSTAMPED else rest.nanos
        near = last is not None and first.nanos - last < JUMP
        if followed is not None and near and (self.news.seen.ended or self.news.seen.run != self.track.run):
            words = rest.words if rest.nanos != UNSTAMPED else b""
            return [first._replace(words=words + first.words), *lines[1:]]
        self._gap(first.nanos if known is None else known, first.nanos)
        return lines[1:]

    def _gap(self, after: int, until: int) -> None:
        with self._files.lock:
            self.track.gaps.append([after, until, self._files.sizes.get(self.track.file, 0)])
            self._files.note()

    def _take(
        self, skips: Skips, beginning: LostBeginning, lines: Sequence[LogLine], arrived_s: float, *, quiet: bool = False
    ) -> int:
        """Into the files with what is new and certain; what is missing is noted. `quiet`: nothing follows at once."""
        self.track.size += on_node(lines)
        new = skips.sift(lines, arrived_s, small=self.track.size < SMALL)
        if quiet:
            new += skips.rest()
        if beginning.lost is not None:
            self._gap(*beginning.lost)
            beginning.lost = None
        for lost in skips.lost:
            self._gap(*lost)
        skips.lost.clear()
        if new:
            with self._files.lock:
                self._files.add(self.track, b"".join(line.words for line in new))
                self.track.overlap.extend(new)
        if self._files.due:
            self._files.flush()
        return len(new)
