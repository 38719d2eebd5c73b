"""What must lie on another machine before a job starts there: our code, put once per content, and the data set."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from platforms.job import JobSpec, MachineError, State, Status
from platforms.transports import Transport

if TYPE_CHECKING:
    from platforms.config.schema import Platform


def put_archive(transport: Transport, archive: Path, path: str) -> None:
    """Its name says its content, so whoever finds it there need not write it. Raises RefusedError: disk full, …"""
    transport.put(archive.read_bytes(), path)


def missing_data(platform: Platform, spec: JobSpec, folder: Path) -> MachineError:
    """The error of a job that is not submitted, since its data set is not there."""
    reason = f"there is no data set in {spec.data_dir}; make it once: {prepare_command(platform, spec)}"
    return MachineError(f"{spec.name}: {reason}", Status(State.DATA_MISSING, reason), folder)


def prepare_command(platform: Platform, spec: JobSpec) -> str:
    """What a person types to get the data set of a job."""
    size = spec.request.get("size", platform.size)
    return f"python -m platforms prepare {platform.name} --size {size} --benchmark {spec.benchmark}"
