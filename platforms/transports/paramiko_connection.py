"""One SSH connection of paramiko: its sessions and its end. Time limits of commands show that its peer is silent."""

from __future__ import annotations

import contextlib
import selectors
import shlex
import socket
import subprocess

import paramiko

from platforms import environ
from platforms.transports import ssh
from platforms.transports.framing import FramedCommand

CHUNK = 1 << 18
TICK_S = 1.0  # between two checks of the clock
WINDOW_S = 0.005  # between two checks whether the peer takes more input: paramiko does not report it
END_S = 0.5  # for the peer to close the session, which counts against its limit until then
ERRORS = (paramiko.SSHException, EOFError, OSError)


class NotSentError(Exception):
    """No session was opened. The command was not sent, and can be sent again."""


class Connection:
    """An authenticated connection, with the connections that carry it: jump hosts, a ProxyCommand."""

    def __init__(
        self,
        transport: paramiko.Transport,
        below: Connection | None = None,
        proxy: subprocess.Popen[bytes] | None = None,
    ) -> None:
        self.transport = transport
        self._below = below
        self._proxy = proxy

    @property
    def alive(self) -> bool:
        return bool(self.transport.is_active())

    def run(self, framed: FramedCommand, content: bytes) -> str:
        """Run a command until it is finished or late, or the connection is lost. Returns the connection's error.

        Raises NotSentError when no session could be opened.
        """
        channel = self._session()
        try:
            channel.exec_command(shlex.join(framed.argv))
            self._exchange(channel, framed, memoryview(content))
            if framed.finished:
                channel.status_event.wait(END_S)
            return ""
        except ERRORS as error:
            return str(error) or type(error).__name__
        finally:
            with contextlib.suppress(*ERRORS):  # a lost connection cannot be closed again
                channel.close()

    def close(self) -> None:
        self.transport.close()
        if self._proxy:
            self._proxy.kill()
            self._proxy.wait()
        if self._below:
            self._below.close()

    def _session(self) -> paramiko.Channel:
        try:
            return self.transport.open_session(timeout=ssh.CONNECT_S)
        except ERRORS as error:
            if not isinstance(error, paramiko.ChannelException) and "timeout" in str(error).lower():
                self.transport.close()
            raise NotSentError(str(error) or type(error).__name__) from error

    def _exchange(self, channel: paramiko.Channel, framed: FramedCommand, content: memoryview) -> None:
        channel.setblocking(0)
        feeding = True
        with selectors.DefaultSelector() as selector:
            selector.register(channel.fileno(), selectors.EVENT_READ)
            while not framed.finished and not framed.late:
                over = channel.closed or channel.eof_received
                if self._drain(channel, framed):
                    continue
                if over:
                    return
                sent = self._sent(channel, content)
                content = content[sent:]
                if feeding and not content:
                    channel.shutdown_write()
                    feeding = False
                selector.select(0 if sent else WINDOW_S if feeding else TICK_S)

    def _drain(self, channel: paramiko.Channel, framed: FramedCommand) -> bool:
        """Read both streams: if only one is read, the peer blocks on the other.

        Returns whether anything came.
        """
        received = False
        while channel.recv_ready():
            framed.stdout.feed(channel.recv(CHUNK))
            received = True
        while channel.recv_stderr_ready():
            framed.stderr.feed(channel.recv_stderr(CHUNK))
            received = True
        return received

    def _sent(self, channel: paramiko.Channel, content: memoryview) -> int:
        if not content:
            return 0
        try:
            return int(channel.send(content[:CHUNK]))
        except TimeoutError:
            return 0


def pair_with(command: str) -> tuple[socket.socket, subprocess.Popen[bytes]]:
    """Start a ProxyCommand, a line of shell.

    Returns a socket to its standard streams, and its process.
    """
    ours, theirs = socket.socketpair()
    with theirs:
        process = subprocess.Popen(
            ["sh", "-c", f"exec {command}"],
            env=environ.copied(),
            stdin=theirs.fileno(),
            stdout=theirs.fileno(),
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    return ours, process
