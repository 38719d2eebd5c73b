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
from collections.abc import Callable, Iterator

from platforms.job import AwayError, BenchError
from platforms.schedulers.kubernetes.api.answers import ApiError, Expired
from platforms.schedulers.kubernetes.fields import short
from platforms.schedulers.kubernetes.log.files import LogFiles
from platforms.schedulers.kubernetes.log.lines import UNSTAMPED, Line, Search, Splitter, line_of, rfc3339
from platforms.schedulers.kubernetes.log.news import News
from platforms.schedulers.kubernetes.log.reading import PATIENCE, Patience, Reading, Source
from platforms.schedulers.kubernetes.log.starts import Seen

TRIES = 3  # before a no, or something that contradicts what we know, is believed


class Follower:
    """One container. Its thread ends when there is nothing more to be read, or with news.stop()."""

    def __init__(
        self,
        source: Source,
        files: LogFiles,
        seen: Seen,
        *,
        patience: Patience = PATIENCE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._source, self._files, self._patience, self._clock = source, files, patience, clock
        self.track = files.track(seen)
        self.news = News(seen, clock)
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

    def _next_start(self, seen: Seen) -> None:
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
        self._before: Reading | None = None
        self._failures = self._refusals = 0
        self._misses = 0  # readings in a row that were the same, and did not go on from what is known
        self._whole: Reading | None = None  # the last that was of the log, where that stream has ended by itself
        self._drained = False  # one has come to its end though the container is said to run

    # --- what a reading means ----------------------------------------------------------------------------------------

    def _read_on(self, seen: Seen, *, previous: bool) -> None:
        ended = previous or seen.ended or (seen.over and self._drained)
        try:
            reading = self._read(seen, follow=not ended, previous=previous)
        except (ApiError, Expired) as error:
            gone = getattr(error, "status", 0) == 404 or not seen.found
            self._refused(str(error), final=ended, gone=gone)
            return
        if reading is None or self.news.stopped:
            return
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

    def _towards_the_end(self, reading: Reading, agreed: bool) -> None:
        if agreed and reading.strange:
            self._refused(reading.strange.decode(errors="replace"), final=True)
        elif agreed and reading.known:
            self._complete(reading.rest)
        elif reading.broken:
            self._failed(reading.broken)
        elif self._before is not None and not reading.new:
            self._failed("it ends otherwise each time that it is read")

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
        if final and gone and self._whole is not None:
            self._complete(self._whole.rest)
            return
        with self._files.lock:
            self._lose(f"the end of its log is lost: {short(why)}")
            self.track.complete = True
        self._files.flush()

    def _never_ended(self) -> bool:
        """Whether the pod was not seen to end before it went, also by a look that is later than that."""
        sure_s = self._patience.sure_s
        return self.news.confirmed(lambda seen: not seen.ended, self._clock() + sure_s, 3 * sure_s)

    def _lose(self, why: str) -> None:
        with self._files.lock:
            self.track.lost.append(f"{self.track.name}: {why}")
            self._files.note()

    def _failed(self, why: str) -> None:
        self.trouble = short(why)
        self._failures += 1
        self.news.wait(self._longer(self._patience.again_s))

    def _between(self, reading: Reading, whole: bool) -> None:
        """Streams of a log that is followed. One that was cut is opened again at once, if it has brought something."""
        self.trouble = short(reading.broken or reading.strange.decode(errors="replace"))
        if whole:
            self.news.wait(self._longer(self._patience.ended_s))
        elif self._failures:
            self.news.wait(self._longer(self._patience.again_s))
        self._failures += not reading.new

    def _longer(self, pause_s: float) -> float:
        """The more failures, the longer; and not the same for all, since many break at the same moment."""
        return min(self._patience.longest_s, pause_s * 2.0 ** min(10, self._failures)) * random.uniform(0.5, 1.0)

    # --- one stream --------------------------------------------------------------------------------------------------

    def _read(self, seen: Seen, *, follow: bool, previous: bool) -> Reading | None:
        """None: it is of another start. Raises ApiError, Expired, BenchError when it cannot be opened or written."""
        overlap, splitter, new = self.track.overlap, Splitter(), 0
        set_back = not follow and seen.ended_s is not None and overlap.ahead_of(seen.ended_s)
        second = None if set_back else overlap.since(self._before.rest if self._before is not None else b"")
        since = None if second is None else rfc3339(second)
        patient = self._misses < TRIES
        search = overlap.search(second, patient=patient)
        opened_s, sure, broken = self._clock(), False, ""
        try:
            with self._source.log(seen.pod, seen.container, follow=follow, since=since, previous=previous) as chunks:
                for lines in self._lines(chunks, splitter, search):
                    sure = sure or self._sure(search, opened_s, previous=previous)
                    if not sure:
                        return None
                    new += self._take(lines)
        except AwayError as error:
            broken = str(error)
        finally:
            self.news.hold(None)
        rest, known, strange = splitter.rest, search.over or not patient, search.strange
        if rest and search.over and line_of(rest).second == UNSTAMPED:
            strange = rest
        if not strange:
            self._refusals = 0
        return Reading(splitter.size, rest, new, known, strange, broken, self._clock() - opened_s)

    def _lines(self, chunks: Iterator[bytes], splitter: Splitter, search: Search) -> Iterator[list[Line]]:
        """Those that are new."""
        self.news.hold(chunks)
        self.trouble = ""
        for chunk in chunks:
            self.news.heard_s = self._clock()
            if lines := search.sift(splitter.feed(chunk)):
                yield lines
            if self.news.stopped:
                break

    def _sure(self, search: Search, opened_s: float, *, previous: bool) -> bool:
        """Whether a stream is of the start that we read. One that begins with what we know is; else the pod is looked
        at, some time later, since what is told of it is a little old."""
        run, seen, sure_s = self.track.run, self.news.seen, self._patience.sure_s

        def holds(seen: Seen) -> bool:
            return run == (seen.before if previous else seen.run)

        doubtful = (search.anew and not seen.fixed) or (search.gap and not (seen.fixed and seen.ended))
        if doubtful and not self.news.confirmed(holds, opened_s + sure_s, 3 * sure_s):
            return False
        if search.gap:
            at = self._files.sizes.get(self.track.file, 0)
            self._lose(
                f"lines may be missing before byte {at} of {self.track.file}: it was rotated, and nobody could read"
            )
        return True

    def _take(self, lines: list[Line]) -> int:
        with self._files.lock:
            self._files.add(self.track, b"".join(line.words for line in lines))
            self.track.overlap.extend(lines)
        if self._files.due:
            self._files.flush()
        return len(lines)
