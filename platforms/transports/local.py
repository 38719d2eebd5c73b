"""LocalTransport: commands on this machine, where it is the login node itself."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from platforms.transports import CommandResult, process
from platforms.transports.framing import FramedCommand

if TYPE_CHECKING:
    from platforms.config.schema import Platform


class LocalTransport:
    """The Protocol `Transport` by child processes."""

    where = "this machine"

    def __init__(self, platform: Platform) -> None:
        self._login_shell = platform.login_shell

    def run(self, argv: Sequence[str], *, input: bytes = b"", timeout_s: float = 60.0) -> CommandResult:  # noqa: A002
        framed = FramedCommand(argv, timeout_s, time.monotonic, login_shell=self._login_shell)
        process.run_framed(framed, framed.argv, input)
        return framed.result(self.where)

    def typed(self, command: str) -> str:
        return command

    def close(self) -> None:
        """There is nothing to close."""
