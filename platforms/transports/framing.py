"""Wraps a command so that its exit code and both streams come back exactly, whatever a shell, profile or ssh adds.

The wrapper prints a random mark before and after the command on both streams, and the exit code behind the last one.
Output outside of the marks is noise of a profile or of ssh. A stream without its last mark means a lost connection.
"""

from __future__ import annotations

import secrets
import shlex
from collections.abc import Callable, Sequence

from platforms.job import AwayError, RefusedError
from platforms.transports import CommandResult, CommandTimeout

START_LIMIT_S = 30.0  # for the first mark to come back; a slow profile takes less, a frozen peer more
KILL_S = 5  # between SIGTERM and SIGKILL on the other side
GRACE_S = 5.0  # for the last mark to come back after that
MOST_SHOWN = 200  # characters of a command in a message
COMMAND_LIMIT = 120_000  # bytes; the kernel takes 128 KiB in one argument

# The marks are printed in two halves, so that a command that shows processes (ps) does not show a mark. After the first
# mark the shell's own stderr is /dev/null, because the shell would add "Killed" to the command's. A shell of its own
# opens the command's stderr, because some shells open it before they report an error. A profile may leave `set -e` on.
_SCRIPT = (
    'set +eux; a=$1; b=$2; n=$3; shift 3; printf "%s%s\\n" "$a" "$b"; printf "%s%s\\n" "$a" "$b" >&2; '
    'exec 3>&2 2>/dev/null; export LC_ALL=C; (exec timeout -k $KILL "$n" "$@" 2>&3 3>&-); n=$?; '
    'printf "%s%s>" "$a" "$b"; printf "%s%s>%d." "$a" "$b" "$n" >&3'
).replace("$KILL", str(KILL_S))

# A profile reads from /dev/null, so that it can neither wait for an answer nor read the command's input.
_LOGIN = 'exec 3<&0 </dev/null; exec bash -lc "$@"'
_AFTER_PROFILE = "exec <&3 3<&-; "


class FramedStream:
    """One stream of a wrapped command while it arrives: noise, mark, the command's bytes, mark."""

    def __init__(self, mark: bytes) -> None:
        self._start = mark + b"\n"
        self._end = mark + b">"
        self._bytes = bytearray()
        self.started = False
        self._end_at = -1

    def feed(self, data: bytes) -> None:
        search_from = max(0, len(self._bytes) - len(self._start))  # a mark may arrive in two pieces
        self._bytes += data
        if not self.started:
            start_at = self._bytes.find(self._start, search_from)
            if start_at < 0:
                return
            del self._bytes[: start_at + len(self._start)]
            self.started = True
            search_from = 0
        if self._end_at < 0:
            self._end_at = self._bytes.find(self._end, search_from)

    @property
    def content(self) -> bytes:
        """What the command wrote; before the first mark, the noise."""
        if self._end_at < 0:
            return bytes(self._bytes)
        return bytes(self._bytes[: self._end_at])

    @property
    def ended(self) -> bool:
        return self._end_at >= 0

    @property
    def code(self) -> int | None:
        """The exit code behind the last mark; None until it has arrived completely."""
        if not self.ended:
            return None
        tail = bytes(self._bytes[self._end_at + len(self._end) :])
        digits, dot, _ = tail.partition(b".")
        return int(digits) if dot else None


class FramedCommand:
    """A command under way: what to execute, what has come back, whether it is late."""

    def __init__(
        self, argv: Sequence[str], timeout_s: float, clock: Callable[[], float], *, login_shell: bool = False
    ) -> None:
        first_half = secrets.token_hex(8)
        second_half = secrets.token_hex(8)
        words = ["sh", first_half, second_half, f"{timeout_s:.3f}", *argv]
        if login_shell:
            self.argv = ["sh", "-c", _LOGIN, "sh", _AFTER_PROFILE + _SCRIPT, *words]
        else:
            self.argv = ["sh", "-c", _SCRIPT, *words]
        mark = (first_half + second_half).encode()
        self.stdout = FramedStream(mark)
        self.stderr = FramedStream(mark)
        self._printable = " ".join(shlex.join(argv)[:MOST_SHOWN].split())  # in one line, whatever the command has
        self._timeout_s = timeout_s
        self._clock = clock
        self._sent_s = clock()
        self._started_s: float | None = None
        if len(shlex.join(self.argv)) > COMMAND_LIMIT:
            raise RefusedError(f"{self._printable} …: a command of more than {COMMAND_LIMIT} bytes cannot be sent")

    @property
    def finished(self) -> bool:
        """Whether everything that the command wrote has come back, with its exit code."""
        return self.stdout.ended and self.stderr.code is not None

    @property
    def late(self) -> bool:
        """Whether the peer does not answer: not at all, or not after the latest end of the command."""
        now = self._clock()
        if self._started_s is None and self.stdout.started:
            self._started_s = now
        if self._started_s is None:
            return now - self._sent_s > START_LIMIT_S
        return now - self._started_s > self._timeout_s + KILL_S + GRACE_S

    def result(self, where: str, connection_error: str = "") -> CommandResult:
        """Return how the command ended.

        Args:
            where: the machine's name for messages.
            connection_error: the connection's own message, when it ended before the command did.

        Raises:
            AwayError: the answer is incomplete.
            CommandTimeout: the command was ended at its time limit.
        """
        code = self.stderr.code
        if not self.stdout.ended or code is None:
            raise AwayError(f"{where}: {self._unanswered(connection_error)}")
        # 124 is timeout's own code and 137 what is left of it after SIGKILL; a command may also end with these
        if code in (124, 128 + 9) and self._clock() - self._sent_s >= self._timeout_s:
            raise CommandTimeout(
                f"{where}: {self._printable}: ended at its limit of {self._timeout_s:g} s; "
                "it is not known how much was done"
            )
        return CommandResult(code, self.stdout.content, self.stderr.content)

    @property
    def noise(self) -> str:
        """What arrived without an answer: a shell's output before the command, ssh's message about the end."""
        noise = self.stderr.content
        if not self.stdout.started:
            noise += b"\n" + self.stdout.content
        return noise.decode(errors="replace")

    def _unanswered(self, connection_error: str) -> str:
        what = "lost while this was running" if self.stdout.started else "no answer to this"
        detail = _in_parentheses(connection_error or self.noise)
        return f"{what}, and it is not known whether it was done: {self._printable}{detail}"


def _in_parentheses(message: str) -> str:
    text = " / ".join(line.strip() for line in message.splitlines() if line.strip())
    return f" ({text[-500:]})" if text else ""
