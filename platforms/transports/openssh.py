"""Commands through the user's own ssh and the connection (ControlMaster) that a person has opened, or one of ours."""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import os
import secrets
import shlex
import stat
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from platforms.job import AwayError, BenchError, LoginNeeded, RefusedError
from platforms.transports import CommandResult, file_transfer, process, ssh
from platforms.transports.framing import FramedCommand
from platforms.transports.openssh_words import NO_LOGIN, explain, was_not_sent

if TYPE_CHECKING:
    from platforms.config.schema import Platform

FRESH_S = 5.0  # a connection that was seen alive less than this ago is not asked again
OPEN_S = 60.0  # jumps included
IDLE_S = 600  # after which a connection of ours ends that was not closed, because this process was killed
CLOSE_S = 2.0  # how long the end of this process waits for a thread that is just opening one
RETRIES_S = (0.2, 0.5, 1.0, 2.0, 4.0, 8.0, 8.0)  # waits for a free session

LONGEST_FOLDER = 50  # characters: the path of a socket has about a hundred, and ssh makes its draft longer

_ENV = {"SSH_ASKPASS_REQUIRE": "never"}  # nobody is asked in a window either
_QUIET = ("-o", "BatchMode=yes", "-o", "LogLevel=ERROR", "-o", "RemoteCommand=none", "-o", "RequestTTY=no", "-x", "-a")
_THROUGH = (*_QUIET, "-o", "ControlMaster=no", "-o", NO_LOGIN)


class OpensshTransport:
    """The Protocol `Transport` by ssh; the only way where a login takes a password or a one-time code."""

    def __init__(
        self,
        platform: Platform,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._login = ssh.Login.of(platform)
        self.where = self._login.host
        self._login_shell = platform.login_shell
        self._clock = clock
        self._sleep = sleep
        self._slots = threading.BoundedSemaphore(ssh.SESSIONS)
        self._lock = threading.Lock()
        self._settings: ssh.Settings | None = None
        self._socket: str | None = None
        self._own: str | None = None
        self._seen_s = 0.0
        self._ended = False
        self._refusal: tuple[float, LoginNeeded] | None = None

    def run(self, argv: Sequence[str], *, input: bytes = b"", timeout_s: float = 60.0) -> CommandResult:  # noqa: A002
        with self._slots:
            for wait_s in RETRIES_S:
                socket = self._connected()
                through = self._login.argv(*_THROUGH, "-S", _escaped(socket))
                framed = FramedCommand(argv, timeout_s, self._clock, login_shell=self._login_shell)
                process.run_framed(framed, [*through, shlex.join(framed.argv)], input, {**os.environ, **_ENV})
                if framed.finished:
                    return framed.done(self.where)
                self._forget()
                if framed.stdout.started or not was_not_sent(framed.noise):
                    return framed.done(self.where, framed.noise.strip() or self._advice(socket))
                self._sleep(wait_s)
        said = ssh.one_line(framed.noise)
        raise AwayError(f"{self.where}: gives no session, the command was not sent: {said}")

    def put(self, content: bytes, path: str) -> None:
        file_transfer.put(self, content, path)

    def get(self, path: str, offset: int = 0, limit: int | None = None) -> bytes:
        return file_transfer.get(self, path, offset, limit)

    def existing(self, paths: Sequence[str]) -> list[str]:
        return file_transfer.existing(self, paths)

    def typed(self, command: str) -> str:
        return self._login.typed(command=command)

    def close(self) -> None:
        if not self._lock.acquire(timeout=CLOSE_S):
            return
        try:
            if self._own:
                self._ask(self._own, "exit")
            self._own = self._socket = None
            atexit.unregister(self._end)
        finally:
            self._lock.release()

    def _end(self) -> None:
        """At the end of this process, in which a thread may still be asking: it must not open another connection."""
        self._ended = True
        self.close()

    def _connected(self) -> str:
        """The socket of a connection that is alive: the person's, else ours, opened now where there is none."""
        with self._lock:
            if self._ended:
                raise AwayError(f"{self.where}: this process is at its end")
            if self._socket is None or self._clock() - self._seen_s > FRESH_S:
                self._socket = self._find() or self._open()
                self._seen_s = self._clock()
            return self._socket

    def _advice(self, socket: str) -> str:
        """A connection of ours notices by itself that nobody answers, a person's need not."""
        if socket == self._own:
            return ""
        return f"to close a dead connection: {self._login.typed('-S', _escaped(socket), '-O', 'exit')}"

    def _forget(self) -> None:
        with self._lock:
            self._seen_s = -FRESH_S
            self._socket = None

    def _find(self) -> str | None:
        if self._settings is None:
            self._settings = self._read()
        sockets = (self._own, self._settings.control_path, self._default_socket())
        return next((path for path in sockets if path and Path(path).exists() and self._ask(path, "check")), None)

    def _read(self) -> ssh.Settings:
        try:
            return ssh.settings(self._login.host, self._login.config)
        except FileNotFoundError:
            raise RefusedError(f"{self.where}: no ssh here: install it, or write transport: paramiko") from None

    def _ask(self, socket: str, question: str) -> bool:
        argv = self._login.argv("-S", _escaped(socket), "-O", question)
        with contextlib.suppress(subprocess.TimeoutExpired):
            asked = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=ssh.ASK_S)
            return asked.returncode == 0
        return False

    def _open(self) -> str:
        """A connection of ours, for sites where a key is enough. Raises what a person can do something about."""
        if self._refusal and self._clock() - self._refusal[0] < ssh.PERSON_S:
            raise self._refusal[1]
        own = f"{self._default_socket()}-{secrets.token_hex(3)}"
        background = ("-M", "-N", "-f", "-o", f"ControlPersist={IDLE_S}", "-S", _escaped(own))
        opened, words = _said(self._login.argv(*_opening(), *background))
        if not opened and "kex_exchange_identification" in words:
            # what a jump host has against us, ssh keeps to itself with ControlPersist
            words = _said([*self._login.argv(*_opening(), "-S", "none"), "true"])[1] or words
        if not opened:
            raise self._explained(words)
        self._own, self._refusal = own, None
        atexit.register(self._end)  # ssh holds it in the background, and would for IDLE_S
        return own

    def _default_socket(self) -> str:
        """Where a person's connection is looked for that ssh's configuration gives no ControlPath."""
        key = hashlib.sha256(f"{self._login.config}\n{self._login.host}".encode()).hexdigest()[:10]
        return str(_private_folder() / key)

    def _explained(self, text: str) -> BenchError:
        error = explain(self._login, self._settings, text, _escaped(self._default_socket()))
        if isinstance(error, LoginNeeded):
            self._refusal = (self._clock(), error)
        return error


def _opening() -> list[str]:
    """Options of a connection of ours: strict about host keys, silent, and watched."""
    options = ["StrictHostKeyChecking=yes", f"ConnectTimeout={ssh.CONNECT_S:.0f}"]
    options += [f"ServerAliveInterval={ssh.PULSE_S:.0f}", "ServerAliveCountMax=2"]
    options += ["ClearAllForwardings=yes", "PermitLocalCommand=no"]
    return [*_QUIET, *(word for option in options for word in ("-o", option))]


def _said(argv: Sequence[str]) -> tuple[bool, str]:
    """Whether it succeeded, and its words."""
    devnull, env = subprocess.DEVNULL, {**os.environ, **_ENV}
    with tempfile.TemporaryFile() as words:  # no pipe: a connection goes on in the background and would hold it
        try:
            ended = subprocess.run(
                argv, stdin=devnull, stdout=devnull, stderr=words, env=env, timeout=OPEN_S, start_new_session=True
            )
        except subprocess.TimeoutExpired:
            return False, f"no answer within {OPEN_S:.0f} s"
        words.seek(0)
        return ended.returncode == 0, words.read().decode(errors="replace")


def _private_folder() -> Path:
    """A folder that is ours alone, with a short path: that of a socket has about a hundred bytes at most.

    Raises RefusedError where another user owns it: whoever can write there can stand in for the login node.
    """
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    base = Path(runtime) if runtime and len(runtime) < LONGEST_FOLDER and Path(runtime).is_dir() else Path("/tmp")
    folder = base / f"hpc-ml-bench-{os.getuid()}"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
    except OSError as error:
        raise RefusedError(f"{folder}: no folder for ssh's sockets: {error.strerror}; set XDG_RUNTIME_DIR") from error
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or stat.S_IMODE(found.st_mode) & 0o077:
        raise RefusedError(f"{folder}: must be yours alone (mode 0700); remove it, or set XDG_RUNTIME_DIR")
    return folder


def _escaped(path: str) -> str:
    return path.replace("%", "%%")
