"""Maintenance reservations: when none of the nodes of a platform takes a job."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from platforms.config.schema import Platform
from platforms.job import AwayError
from platforms.schedulers import Maintenance
from platforms.schedulers.slurm.environment import QUERY_PREAMBLE
from platforms.schedulers.slurm.rows import expand_nodes, unix_time
from platforms.transports import Transport

LIMIT_S = 30.0  # a session asks before it submits: it rather submits than waits long for this answer
# Both print one line for each object, as `Key=value …`, in every version of Slurm. sinfo would not print hidden
# partitions, and --json is too new.
_SCRIPT = f"""\
{QUERY_PREAMBLE}scontrol --oneliner show reservation || exit
scontrol --all --oneliner show partition
"""


@dataclass(frozen=True)
class _Reservation:
    name: str
    nodes: frozenset[str]
    flags: frozenset[str]
    begins_s: float
    ends_s: float


def ask(transport: Transport, platform: Platform, reservation: str | None = None) -> Maintenance | None:
    """Ask Slurm, with one command, for the maintenance of all nodes that the platform's partition has.

    Args:
        transport: to the login node.
        platform: whose partition it is.
        reservation: which the jobs use in place of the platform's own `reservation:`.

    Returns:
        The first one that has not ended. None if there is none, and if it is the reservation that the jobs use.

    Raises:
        AwayError: Slurm does not answer.
    """
    done = transport.run(["sh", "-s"], input=_SCRIPT.encode(), timeout_s=LIMIT_S)
    if done.exit_code:
        errors = done.stderr.decode(errors="replace").strip()
        raise AwayError(f"{transport.where}: Slurm's reservations cannot be asked for: {errors}")
    lines = done.stdout.decode(errors="replace").splitlines()
    keys = platform.slurm
    nodes = partition_nodes(lines, keys.partition if keys else None)
    used = reservation or (keys.reservation if keys else None)
    found = [
        Maintenance(known.name, known.begins_s, known.ends_s)
        for known in _reservations(lines)
        if nodes and "MAINT" in known.flags and nodes <= known.nodes and known.name != used
    ]
    return min(found, key=lambda maintenance: maintenance.begins_s, default=None)


def partition_nodes(lines: Iterable[str], names: str | None) -> frozenset[str]:
    """The nodes of partitions, by the lines of `scontrol show partition`.

    Args:
        names: as `--partition` takes them, with commas; None for the default partition.
    """
    nodes: set[str] = set()
    for line in lines:
        values = _values(line)
        name = values.get("PartitionName")
        is_asked = values.get("Default") == "YES" if names is None else name in names.split(",")
        if "Default" in values and is_asked:  # a reservation names a partition, too, and is no default
            nodes.update(_nodes(values))
    return frozenset(nodes)


def _reservations(lines: Iterable[str]) -> Iterator[_Reservation]:
    for line in lines:
        values = _values(line)
        begins_s = unix_time(values.get("StartTime", ""))
        ends_s = unix_time(values.get("EndTime", ""))
        if "ReservationName" in values and begins_s is not None and ends_s is not None:
            flags = frozenset(values.get("Flags", "").split(","))
            yield _Reservation(values["ReservationName"], _nodes(values), flags, begins_s, ends_s)


def _nodes(values: dict[str, str]) -> frozenset[str]:
    text = values.get("Nodes", "")
    return frozenset() if text == "(null)" else frozenset(expand_nodes(text))


def _values(line: str) -> dict[str, str]:
    return dict(re.findall(r"(\w+)=(\S*)", line))
