"""How commands and files reach the machine that starts jobs: the Protocol of a transport, and where each one lies."""

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
    """A command that was ended at its time limit; nobody knows how much of it was done."""


class MissingFile(RefusedError):
    """There is no such file (yet)."""


@dataclass(frozen=True)
class CommandResult:
    """A command that has ended. `exit_code` is as a shell gives it: 127 not found, 128 + n ended by signal n."""

    exit_code: int
    stdout: bytes
    stderr: bytes


class Transport(Protocol):
    """One way to reach one machine. Add a module with such a class, and one line to TRANSPORTS.

    It is made as `Class(platform)` and connects to nothing until it must. Several threads may use it at once. A
    connection that was lost is opened again by the next call, once per call.

    Errors, of every method but `typed` and `close`: AwayError when nobody answers for now and nobody knows whether the
    command ran, LoginNeeded when only a person can open the connection, RefusedError when it will not get better by
    waiting (host key, key, host name). Nothing waits for ever.
    """

    where: str
    """What messages call the machine: `this machine`, or the platform's `host:`."""

    def run(self, argv: Sequence[str], *, input: bytes = b"", timeout_s: float = 60.0) -> CommandResult:  # noqa: A002 (as subprocess.run calls it)
        """Run one command, found by PATH, with LC_ALL=C; how it ends is in `exit_code` and no error here.

        What it leaves in the background goes on and is not waited for.

        Raises:
            CommandTimeout: after `timeout_s` seconds it was ended (SIGTERM, five seconds later SIGKILL), with its
                process group and there, too, where it ran.
        """
        ...

    def put(self, content: bytes, path: str) -> None:
        """Write a file, mode 0644, whole or not at all, and the folders above it; one that is there is replaced.

        Raises:
            RefusedError: it cannot be written (disk full, not writable), in the system's own words.
        """
        ...

    def get(self, path: str, offset: int = 0, limit: int | None = None) -> bytes:
        """The bytes of a file from `offset` on, at most `limit`; b"" at its end.

        Raises:
            MissingFile: there is no such file.
            RefusedError: it cannot be read, in the system's own words.
        """
        ...

    def existing(self, paths: Sequence[str]) -> list[str]:
        """Those of the paths at which there is something."""
        ...

    def typed(self, command: str) -> str:
        """The shell command that a person types to have `command` run there: `ssh archer2 'squeue -j 4'`."""
        ...

    def close(self) -> None:
        """Close what this transport opened itself; it can be used again."""
        ...


def connect(platform: Platform) -> Transport:
    """The transport of a platform. Raises ConfigError when there is no such transport."""
    place = TRANSPORTS.get(platform.transport)
    if place is None:
        known = ", ".join(sorted(TRANSPORTS))
        raise ConfigError([f"{platform.source}: transport: there is no {platform.transport!r}; there are: {known}"])
    module, _, name = place.partition(":")
    return cast("Transport", getattr(import_module(module), name)(platform))
