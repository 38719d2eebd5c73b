"""How commands and files reach a login node: what a transport must have, and where each transport lies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Protocol, cast

from platforms.job import AwayError, ConfigError, RefusedError

if TYPE_CHECKING:
    from platforms.config.schema import Platform

TRANSPORTS: dict[str, str] = {
    "local": "platforms.transports.local:LocalTransport",
    "openssh": "platforms.transports.openssh:OpensshTransport",
    "paramiko": "platforms.transports.paramiko:ParamikoTransport",
}


class CommandTimeout(AwayError):
    """A command was ended at its time limit; it is not known how much of it was done."""


class MissingFile(RefusedError):
    """A file does not exist (yet)."""


@dataclass(frozen=True)
class CommandResult:
    """How a command ended.

    `exit_code` is as a shell gives it: 127 not found, 128 + n ended by signal n.
    """

    exit_code: int
    stdout: bytes
    stderr: bytes

    @property
    def error_text(self) -> str:
        """What the command wrote to standard error, in one line."""
        message = self.stderr.decode(errors="replace").strip()
        return message.replace("\n", "; ") or f"exit code {self.exit_code}"


class Transport(Protocol):
    """One way to reach one machine. Add a module with such a class, and one line to TRANSPORTS.

    Files go over any transport by its `run`: file_transfer.py.

    It is made as `Class(platform)` and connects to nothing until it must. Several threads may use it at once. A
    connection that was lost is opened again by the next call, once per call.

    Every method but `typed` and `close` raises AwayError when the machine does not answer now, and it is not known
    whether the command ran; LoginNeeded when only a person can open the connection; RefusedError when waiting does not
    help (host key, key, host name). Nothing waits for ever.
    """

    where: str
    """What messages call the machine: `this machine`, or the platform's `host:`."""

    def run(self, argv: Sequence[str], *, input: bytes = b"", timeout_s: float = 60.0) -> CommandResult:  # noqa: A002 (as subprocess.run calls it)
        """Run one command, found by PATH, with LC_ALL=C. A failure is in `exit_code` and raises nothing.

        Processes that it leaves in the background go on, and this does not wait for them.

        Raises:
            CommandTimeout: after `timeout_s` seconds it was ended (SIGTERM, five seconds later SIGKILL), with its
                process group, also on the machine where it ran.
        """
        ...

    def typed(self, command: str) -> str:
        """Return the shell command with which a person runs `command` there: `ssh archer2 'squeue -j 4'`."""
        ...

    def close(self) -> None:
        """Close the connection that this transport opened itself. It can be used again."""
        ...


def connect(platform: Platform) -> Transport:
    """Return the transport of a platform. Raises ConfigError when there is no such transport."""
    place = TRANSPORTS.get(platform.transport)
    if place is None:
        known = ", ".join(sorted(TRANSPORTS))
        raise ConfigError([f"{platform.source}: transport: there is no {platform.transport!r}; there are: {known}"])
    module, _, name = place.partition(":")
    return cast("Transport", getattr(import_module(module), name)(platform))
