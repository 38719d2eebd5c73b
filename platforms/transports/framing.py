"""One command wrapped so that its exit code and both streams come back exact, whatever a shell, profile or ssh adds.

The wrapper prints a random mark before and after the command on both streams, and the exit code behind the last one.
What lies outside of the marks is noise of a profile or of ssh; a stream without its last mark is a lost connection.
"""

from __future__ import annotations

import secrets
import shlex
from collections.abc import Callable, Sequence

from platforms.job import AwayError, RefusedError
from platforms.transports import CommandResult, CommandTimeout

START_LIMIT_S = 30.0  # for the first mark to come back: longer than a slow profile, and how a frozen peer is noticed
KILL_S = 5  # between SIGTERM and SIGKILL on the other side
GRACE_S = 5.0  # for the last mark to come back after that
MOST_SHOWN = 200  # characters of a command in a message
COMMAND_LIMIT = 120_000  # bytes; the kernel takes 128 KiB in one argument

# The marks are printed in two halves, so that a command that shows processes (ps) does not show a mark. From the first
# on the shell's own stderr is /dev/null, for it would add "Killed" to the command's, and the command's is opened in a
# shell of its own, for some open it before they say so. A profile may have left `set -e` on.
_SCRIPT = (
    'set +eux; a=$1; b=$2; n=$3; shift 3; printf "%s%s\\n" "$a" "$b"; printf "%s%s\\n" "$a" "$b" >&2; '
    'exec 3>&2 2>/dev/null; export LC_ALL=C; (exec timeout -k $KILL "$n" "$@" 2>&3 3>&-); n=$?; '
    'printf "%s%s>" "$a" "$b"; printf "%s%s>%d." "$a" "$b" "$n" >&3'
).replace("$KILL", str(KILL_S))

# A profile finds /dev/null as its input, so that it can neither wait for an answer nor swallow what is the command's.
_LOGIN = 'exec 3<&0 </dev/null; exec bash -lc "$@"'
_AFTER_PROFILE = "exec <&3 3<&-; "


class FramedStream:
    """One stream of a wrapped command, as it comes: noise, mark, the command's bytes, mark."""

    def __init__(self, mark: bytes) -> None:
        self._start = mark + b"\n"
        self._end = mark + b">"
        self._bytes = bytearray()
        self.started = False
        self._end_at = -1

    def feed(self, data: bytes) -> None:
        seen = max(0, len(self._bytes) - len(self._start))
        self._bytes += data
        if not self.started and (at := self._bytes.find(self._start, seen)) >= 0:
            del self._bytes[: at + len(self._start)]
            self.started, seen = True, 0
        if self.started and self._end_at < 0:
            self._end_at = self._bytes.find(self._end, seen)

    @property
    def content(self) -> bytes:
        """What the command wrote; before the first mark, the noise."""
        return bytes(self._bytes if self._end_at < 0 else self._bytes[: self._end_at])

    @property
    def ended(self) -> bool:
        return self._end_at >= 0

    @property
    def code(self) -> int | None:
        """What stands behind the last mark, once it is there completely."""
        tail = bytes(self._bytes[self._end_at + len(self._end) :]) if self.ended else b""
        digits, dot, _ = tail.partition(b".")
        return int(digits) if dot else None


class FramedCommand:
    """One command on its way: what to execute, what has come back, whether it is late."""

    def __init__(
        self, argv: Sequence[str], timeout_s: float, clock: Callable[[], float], *, login_shell: bool = False
    ) -> None:
        first, second = secrets.token_hex(8), secrets.token_hex(8)
        mark = (first + second).encode()
        script = ["-c", (_AFTER_PROFILE if login_shell else "") + _SCRIPT, "sh", first, second, f"{timeout_s:.3f}"]
        self.argv = ["sh", *(["-c", _LOGIN, "sh", *script[1:]] if login_shell else script), *argv]
        self.stdout, self.stderr = FramedStream(mark), FramedStream(mark)
        self._shown = " ".join(shlex.join(argv)[:MOST_SHOWN].split())  # in one line, whatever the command has
        self._timeout_s = timeout_s
        self._clock = clock
        self._sent_s = clock()
        self._started_s: float | None = None
        if len(shlex.join(self.argv)) > COMMAND_LIMIT:
            raise RefusedError(f"{self._shown} …: a command of more than {COMMAND_LIMIT} bytes cannot be sent")

    @property
    def finished(self) -> bool:
        """Everything that the command wrote has come back, with its exit code."""
        return self.stdout.ended and self.stderr.code is not None

    @property
    def late(self) -> bool:
        """Nobody answers any more: not at all, or not after the command should have been ended at the latest."""
        now = self._clock()
        if self._started_s is None and self.stdout.started:
            self._started_s = now
        if self._started_s is None:
            return now - self._sent_s > START_LIMIT_S
        return now - self._started_s > self._timeout_s + KILL_S + GRACE_S

    def done(self, where: str, words: str = "") -> CommandResult:
        """How it ended. `words` are the connection's own about its end, when it ended before the command did.

        Raises AwayError for an answer that never came and CommandTimeout for a command that was ended.
        """
        code = self.stderr.code
        if not self.stdout.ended or code is None:
            raise AwayError(f"{where}: {self._unanswered(words)}")
        # 124 is timeout's own code and 137 what is left of it after SIGKILL; a command may also end with these
        if code in (124, 128 + 9) and self._clock() - self._sent_s >= self._timeout_s:
            raise CommandTimeout(
                f"{where}: {self._shown}: ended at its limit of {self._timeout_s:g} s; nobody knows how much was done"
            )
        return CommandResult(code, self.stdout.content, self.stderr.content)

    @property
    def noise(self) -> str:
        """What came without an answer: of a shell before the command, of ssh about its end."""
        before = b"" if self.stdout.started else b"\n" + self.stdout.content
        return (self.stderr.content + before).decode(errors="replace")

    def _unanswered(self, words: str) -> str:
        when = "lost while this was running" if self.stdout.started else "no answer to this"
        return f"{when}, and nobody knows whether it was done: {self._shown}{_tail(words or self.noise)}"


def _tail(words: str) -> str:
    text = " / ".join(line.strip() for line in words.splitlines() if line.strip())
    return f" ({text[-500:]})" if text else ""
