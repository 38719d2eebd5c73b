"""Puts what a job on another machine needs before it starts, or says that it is missing; and reads its log there."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from platforms.job import JobSpec, MachineError, State, Status
from platforms.schedulers import log_file
from platforms.transports import MissingFile, Transport, file_transfer

if TYPE_CHECKING:
    from platforms.config.schema import Platform


def read_log(transport: Transport, path: str, offset: int, known: bytes) -> bytes:
    """Read the bytes of a job's log from `offset` on, at most log_file.CHUNK; none where there is no log yet.

    Raises LogChanged where `known`, the bytes before, are no longer there; and as Transport.run does.
    """
    try:
        content = file_transfer.get(transport, path, offset - len(known), len(known) + log_file.CHUNK)
    except MissingFile:
        return b""
    return log_file.new_bytes(content, known, path)


def put_archive(transport: Transport, archive: Path, path: str) -> None:
    """Copy the code archive. Its name contains a hash of its content, so it is copied once. Raises RefusedError."""
    file_transfer.put(transport, archive.read_bytes(), path)


def missing_data(platform: Platform, spec: JobSpec, folder: Path) -> MachineError:
    """Return the error of a job that is not submitted because its data set is missing."""
    reason = f"there is no data set in {spec.data_dir}; make it once: {prepare_command(platform, spec)}"
    return MachineError(f"{spec.name}: {reason}", Status(State.DATA_MISSING, reason), folder)


def prepare_command(platform: Platform, spec: JobSpec) -> str:
    """Return the command that makes the data set of a job."""
    size = spec.request.get("size", platform.size)
    return f"python -m platforms prepare {platform.name} --size {size} --benchmark {spec.benchmark}"
