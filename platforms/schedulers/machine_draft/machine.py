"""What a machine is made of, as its Slurm or the machine itself says: nodes, partitions, accounts, QoS."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from platforms.config.schema import Unit
from platforms.config.values import seconds_of

# Generic resources that are devices of ours, as most sites call them.
UNITS: Mapping[str, Unit] = {"gpu": "gpu", "ipu": "ipu", "cs": "csx"}


@dataclass(frozen=True)
class Gres:
    """Generic resources of one node: `gpu:v100:4`. `kind` is "" where Slurm names none."""

    name: str
    kind: str
    count: int

    def __str__(self) -> str:
        return ":".join(filter(None, [self.name, self.kind, str(self.count)]))


@dataclass(frozen=True)
class Hardware:
    """Nodes of one kind in a partition. `cpus` are Slurm's: hardware threads where it counts those."""

    cpus: int
    sockets: int
    cores_per_socket: int
    gres: tuple[Gres, ...] = ()
    nodes: int = 0

    @property
    def devices(self) -> tuple[Gres, ...]:
        return tuple(gres for gres in self.gres if gres.name in UNITS)


@dataclass(frozen=True)
class Partition:
    """One partition: what scontrol says of it, and its hardware, the most common first."""

    name: str
    keys: Mapping[str, str]
    hardware: tuple[Hardware, ...] = ()

    @property
    def is_default(self) -> bool:
        return self.keys.get("Default") == "YES"

    @property
    def max_time_s(self) -> float | None:
        return duration(self.keys.get("MaxTime", ""))

    @property
    def nodes(self) -> int | None:
        """How many nodes a job can have."""
        counts = [int(text) for key in ("MaxNodes", "TotalNodes") if (text := self.keys.get(key, "")).isdigit()]
        return min(counts, default=None)

    def allows(self, what: str, name: str) -> bool:
        """Whether AllowAccounts, DenyAccounts, AllowQos, DenyQos let `name` in."""
        allowed, denied = (self.keys.get(f"{word}{what}", "") for word in ("Allow", "Deny"))
        return (allowed in ("", "ALL") or name in allowed.split(",")) and name not in denied.split(",")


@dataclass(frozen=True)
class Association:
    """One account that lets the user run jobs."""

    account: str
    partition: str
    default_qos: str
    qos: tuple[str, ...]


@dataclass(frozen=True)
class Qos:
    """The limits of a QoS, None where it has none."""

    max_time_s: float | None
    max_submitted: int | None


@dataclass(frozen=True)
class Machine:
    """Everything that was asked. `folders` are (where from, path), the best guess first."""

    where: str
    version: str = ""
    cluster: str = ""
    partitions: Mapping[str, Partition] = field(default_factory=dict)
    associations: tuple[Association, ...] = ()
    default_account: str = ""
    qos: Mapping[str, Qos] = field(default_factory=dict)
    no_accounting: str = ""
    python: str = ""
    folders: tuple[tuple[str, str], ...] = ()
    modules: tuple[str, ...] = ()
    hardware: Hardware | None = None

    def accounts(self, partition: Partition) -> list[Association]:
        """What the user may run under in a partition, the default account first."""
        found = [
            one
            for one in self.associations
            if one.partition in ("", partition.name) and partition.allows("Accounts", one.account)
        ]
        return sorted(found, key=lambda one: one.account != self.default_account)

    def qos_names(self, partition: Partition) -> tuple[list[str], list[str]]:
        """The QoS that the user may name there, and those that count when none is named: a default, the partition's."""
        accounts = self.accounts(partition)
        usable = list(dict.fromkeys(name for one in accounts for name in one.qos if partition.allows("Qos", name)))
        default = [one.default_qos for one in accounts if one.default_qos in usable][:1]
        return usable, [*(default or (usable if len(usable) == 1 else [])), partition.keys.get("QoS", "N/A")]


def gres_of(text: str) -> tuple[Gres, ...]:
    """`gpu:v100:4(S:0-1),cs:1`; `(null)` is none."""
    found = []
    for word in re.sub(r"\([^)]*\)", "", text).split(","):
        name, *middle = word.split(":")
        if middle and middle[-1].isdigit():
            kinds = [part for part in middle[:-1] if part != "no_consume"]
            found.append(Gres(name, kinds[0] if kinds else "", int(middle[-1])))
    return tuple(found)


def duration(text: str) -> float | None:
    """A limit of Slurm's in seconds; None for UNLIMITED and whatever else is no time."""
    try:
        return seconds_of(text)
    except ValueError:
        return None
