"""OpensshTransport: commands through the user's ssh, over a connection (ControlMaster) of the user or one of ours.

Below it: what ssh's messages mean, and what a person must type.
"""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import os
import re
import secrets
import shlex
import stat
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from platforms import environ
from platforms.job import AwayError, BenchError, RefusedError
from platforms.transports import CommandResult, process, ssh
from platforms.transports.framing import FramedCommand

FRESH_S = 5.0  # a connection that was alive less than this ago is not checked again
OPEN_S = 60.0  # jumps included
IDLE_S = 600  # after this a connection of ours ends by itself, if this process was killed before it closed it
CLOSE_S = 2.0  # how long the end of this process waits for a thread that is opening a connection
RETRIES_S = (0.2, 0.5, 1.0, 2.0, 4.0, 8.0, 8.0)  # waits for a free session
LONGEST_FOLDER = 50  # characters: a socket's path may have about a hundred, and ssh's draft of it is longer

NOT_SENT = "hpc-ml-bench: no session"
# If the connection is gone or has no free session, ssh would log in by itself, which a site with one-time codes answers
# by a lockout. With this ProxyCommand it cannot: it only reports that the command was not sent.
NO_LOGIN = f"ProxyCommand=sh -c 'echo {NOT_SENT} >&2'"

_ENV = {"SSH_ASKPASS_REQUIRE": "never"}  # ssh opens no window either
_QUIET = ("-o", "BatchMode=yes", "-o", "LogLevel=ERROR", "-o", "RemoteCommand=none", "-o", "RequestTTY=no", "-x", "-a")
_THROUGH = (*_QUIET, "-o", "ControlMaster=no", "-o", NO_LOGIN)


class OpensshTransport(ssh.LoginTransport):
    """The Protocol `Transport` by ssh.

    Only this one works where a login takes a password or a one-time code.
    """

    _settings: ssh.Settings | None = None
    _socket: str | None = None
    _own_socket: str | None = None
    _alive_s = 0.0
    _ended = False

    def run(self, argv: Sequence[str], *, input: bytes = b"", timeout_s: float = 60.0) -> CommandResult:  # noqa: A002
        with self._slots:
            for wait_s in RETRIES_S:
                socket = self._connected()
                through = self._login.argv(*_THROUGH, "-S", _escaped(socket))
                framed = FramedCommand(argv, timeout_s, self._clock, login_shell=self._login_shell)
                process.run_framed(framed, [*through, shlex.join(framed.argv)], input, {**environ.copied(), **_ENV})
                if framed.finished:
                    return framed.result(self.where)
                self._forget()
                if framed.stdout.started or not was_not_sent(framed.noise):
                    return framed.result(self.where, framed.noise.strip() or self._advice(socket))
                self._sleep(wait_s)
        message = ssh.one_line(framed.noise)
        raise AwayError(f"{self.where}: gives no session, the command was not sent: {message}")

    def close(self) -> None:
        if not self._lock.acquire(timeout=CLOSE_S):
            return
        try:
            if self._own_socket:
                self._control(self._own_socket, "exit")
            self._own_socket = None
            self._socket = None
            atexit.unregister(self._end)
        finally:
            self._lock.release()

    def _end(self) -> None:
        """Close at the end of this process.

        A thread that still runs a command must not open another connection.
        """
        self._ended = True
        self.close()

    def _connected(self) -> str:
        """Return the socket of a live connection: the user's, else ours; opens ours if there is none."""
        with self._lock:
            if self._ended:
                raise AwayError(f"{self.where}: this process is at its end")
            if self._socket is None or self._clock() - self._alive_s > FRESH_S:
                self._socket = self._find()
                if self._socket is None:
                    with self._asking_seldom():
                        self._socket = self._open()
                self._alive_s = self._clock()
            return self._socket

    def _advice(self, socket: str) -> str:
        """Return how to close a dead connection of the user.

        A connection of ours notices a silent peer by itself.
        """
        if socket == self._own_socket:
            return ""
        return f"to close a dead connection: {self._login.typed('-S', _escaped(socket), '-O', 'exit')}"

    def _forget(self) -> None:
        with self._lock:
            self._alive_s = -FRESH_S
            self._socket = None

    def _find(self) -> str | None:
        if self._settings is None:
            self._settings = self._read_settings()
        for path in (self._own_socket, self._settings.control_path, self._default_socket()):
            if path and Path(path).exists() and self._control(path, "check"):
                return path
        return None

    def _read_settings(self) -> ssh.Settings:
        try:
            return ssh.settings(self._login.host, self._login.config)
        except FileNotFoundError:
            raise RefusedError(f"{self.where}: no ssh here: install it, or write transport: paramiko") from None

    def _control(self, socket: str, command: str) -> bool:
        argv = self._login.argv("-S", _escaped(socket), "-O", command)
        with contextlib.suppress(subprocess.TimeoutExpired):
            asked = subprocess.run(
                argv, env=environ.copied(), stdin=subprocess.DEVNULL, capture_output=True, timeout=ssh.ASK_S
            )
            return asked.returncode == 0
        return False

    def _open(self) -> str:
        """Open a connection of ours, for sites where a key is enough.

        Raises an error that says what to type.
        """
        own = f"{self._default_socket()}-{secrets.token_hex(3)}"
        background = ("-M", "-N", "-f", "-o", f"ControlPersist={IDLE_S}", "-S", _escaped(own))
        opened, message = _run_ssh(self._login.argv(*_opening_options(), *background))
        if not opened and "kex_exchange_identification" in message:
            # with ControlPersist ssh does not print why a jump host refuses us
            _, plain_message = _run_ssh([*self._login.argv(*_opening_options(), "-S", "none"), "true"])
            message = plain_message or message
        if not opened:
            raise login_error(self._login, self._settings, message, _escaped(self._default_socket()))
        self._own_socket = own
        atexit.register(self._end)  # otherwise ssh keeps it in the background for IDLE_S
        return own

    def _default_socket(self) -> str:
        """Return the socket of the user's connection where ssh's configuration has no ControlPath."""
        key = hashlib.sha256(f"{self._login.config}\n{self._login.host}".encode()).hexdigest()[:10]
        return str(_private_folder() / key)


def _opening_options() -> list[str]:
    """Return options of a connection of ours: strict about host keys, silent, and watched."""
    options = ["StrictHostKeyChecking=yes", f"ConnectTimeout={ssh.CONNECT_S:.0f}"]
    options += [f"ServerAliveInterval={ssh.PULSE_S:.0f}", "ServerAliveCountMax=2"]
    options += ["ClearAllForwardings=yes", "PermitLocalCommand=no"]
    words = list(_QUIET)
    for option in options:
        words += ["-o", option]
    return words


def _run_ssh(argv: Sequence[str]) -> tuple[bool, str]:
    """Run ssh. Returns whether it succeeded, and what it wrote to standard error."""
    with tempfile.TemporaryFile() as errors:  # no pipe: a connection in the background would keep it open
        try:
            ended = subprocess.run(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                env={**environ.copied(), **_ENV},
                timeout=OPEN_S,
                start_new_session=True,
            )
        except subprocess.TimeoutExpired:
            return False, f"no answer within {OPEN_S:.0f} s"
        errors.seek(0)
        return ended.returncode == 0, errors.read().decode(errors="replace")


def _private_folder() -> Path:
    """Return a folder that only we can write, with a short path: a socket's has about a hundred bytes at most.

    Raises RefusedError if another user owns it: a user who can write there could pose as the login node.
    """
    base = Path("/tmp")
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime and len(runtime) < LONGEST_FOLDER and Path(runtime).is_dir():
        base = Path(runtime)
    folder = base / f"hpc-ml-bench-{os.getuid()}"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        status = folder.lstat()
    except OSError as error:
        raise RefusedError(f"{folder}: no folder for ssh's sockets: {error.strerror}; set XDG_RUNTIME_DIR") from error
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or stat.S_IMODE(status.st_mode) & 0o077:
        raise RefusedError(f"{folder}: must be yours alone (mode 0700); remove it, or set XDG_RUNTIME_DIR")
    return folder


def _escaped(path: str) -> str:
    return path.replace("%", "%%")


# --- what ssh's messages mean ----------------------------------------------------------------------------------------


def was_not_sent(message: str) -> bool:
    """Return whether no session was opened for the command, so that it can be sent again."""
    if "Session open refused by peer" in message:
        return True
    # with "mux_client" the connection ended while ssh asked it, and may have passed the command on
    return NOT_SENT in message and "mux_client" not in message


def login_error(login: ssh.Login, settings: ssh.Settings | None, text: str, socket: str) -> BenchError:
    """Translate what ssh wrote when it could not log in into an error that says what to type.

    `socket` is the ControlPath of the user's connection if ssh's configuration has none.
    """
    detail = ssh.one_line(text)
    if "REVOKED" in text:
        return ssh.revoked_host_key(login.host, detail)
    if "IDENTIFICATION HAS CHANGED" in text:
        known_as = settings.known_as if settings else login.host
        return _changed(login, known_as, text)
    if "Host key verification failed" in text:
        return ssh.unknown_host_key(login, login.host, detail)
    if re.search(r"Could not resolve hostname .*(not known|nodename nor|No address)", text):
        return ssh.no_such_host(login, login.host, detail)
    if "Bad configuration option" in text or "bad configuration options" in text:
        return RefusedError(f"{login.host}: ssh's configuration cannot be used: {detail}")
    if match := re.search(r"Permission denied \(([^)]*)\)|Too many authentication failures", text):
        return _denied(login, settings, match[1] or "", detail, socket)
    return AwayError(f"{login.host}: no connection: {detail or 'ssh says nothing'}. Try `{login.typed()}`")


def _changed(login: ssh.Login, known_as: str, text: str) -> RefusedError:
    """The key that changed may be a jump host's: ssh names file and line, and the name to remove."""
    file = re.search(r"Offending \S+ key in (.+?):\d+", text)
    name = re.search(r"Host key for (\S+) has changed", text)
    sent = re.search(r"SHA256:[\w+/=]+", text)
    return ssh.changed_host_key(
        login,
        login.host,
        name[1] if name else known_as,
        file[1] if file else "~/.ssh/known_hosts",
        f"it sent {sent[0]}" if sent else "host key verification failed",
    )


def _denied(login: ssh.Login, settings: ssh.Settings | None, methods: str, detail: str, socket: str) -> BenchError:
    key_files = settings.identity_files if settings else ()
    locked_keys = [path for path in key_files if ssh.is_locked(path)]
    asked_for = {"keyboard-interactive", "password"} & set(methods.split(","))
    if not asked_for and not locked_keys:
        return ssh.key_refused(login, login.host, settings.user if settings else "", detail)
    options = ["-MNf"]
    if not settings or not settings.control_path:
        options += ["-o", f"ControlPath={socket}"]
    then = "; the connection that it opens is then used, and stays in the background until `ssh -O exit`"
    if asked_for:
        why = f"it asks for {' or '.join(sorted(asked_for))}"
    else:
        why = f"the key {locked_keys[0]} needs its passphrase"
        then += f" (or `ssh-add {shlex.quote(str(locked_keys[0]))}`)"
    return ssh.person_needed(login.host, f"only a person can log in, {why}", login.typed(*options), then)
