"""ParamikoTransport: commands by paramiko, in this process, where a key is enough and no ssh is installed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from platforms.job import AwayError
from platforms.transports import CommandResult, ssh
from platforms.transports.framing import FramedCommand

if TYPE_CHECKING:
    from platforms.transports.paramiko_connection import Connection

RETRIES_S = (0.0, 0.2, 0.5, 1.0, 2.0, 4.0, 8.0)  # waits for a free session; the first is for a connection just lost


class ParamikoTransport(ssh.LoginTransport):
    """The Protocol `Transport` by paramiko, which is loaded with the first command."""

    _connection: Connection | None = None

    def run(self, argv: Sequence[str], *, input: bytes = b"", timeout_s: float = 60.0) -> CommandResult:  # noqa: A002
        from platforms.transports.paramiko_connection import NotSentError

        message = ""
        with self._slots:
            for wait_s in RETRIES_S:
                connection = self._connected()
                framed = FramedCommand(argv, timeout_s, self._clock, login_shell=self._login_shell)
                try:
                    return framed.result(self.where, connection.run(framed, input))
                except NotSentError as error:
                    message = str(error)
                    self._sleep(wait_s)
        raise AwayError(f"{self.where}: gives no session, the command was not sent: {message}")

    def close(self) -> None:
        with self._lock:
            if self._connection:
                self._connection.close()
            self._connection = None

    def _connected(self) -> Connection:
        """Return the connection; opens it again if it was lost.

        Raises as paramiko_login.connect.
        """
        from platforms.transports import paramiko_login

        with self._lock:
            if self._connection and self._connection.alive:
                return self._connection
            if self._connection:
                self._connection.close()
                self._connection = None
            with self._asking_seldom():
                self._connection = paramiko_login.connect(self._login)
            return self._connection
