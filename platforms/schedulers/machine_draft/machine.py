"""The nodes, partitions, accounts and QoS of a machine, as its Slurm or the machine itself reports them."""

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
        """The most nodes that a job can have; None where that is not known."""
        counts = [self.keys.get(key, "") for key in ("MaxNodes", "TotalNodes")]
        return min((int(count) for count in counts if count.isdigit()), default=None)

    def allows(self, kind: str, name: str) -> bool:
        """Tell whether AllowAccounts and DenyAccounts (kind `Accounts`), or those of `Qos`, let `name` in."""
        if name in self.keys.get(f"Deny{kind}", "").split(","):
            return False
        allowed = self.keys.get(f"Allow{kind}", "")
        return allowed in ("", "ALL") or name in allowed.split(",")


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
    """Everything that the machine reported. `folders` are (where from, path), the best guess first."""

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
        """List the associations that the user may use in a partition, the default account first."""
        usable = []
        for association in self.associations:
            is_for_it = association.partition in ("", partition.name)
            if is_for_it and partition.allows("Accounts", association.account):
                usable.append(association)
        return sorted(usable, key=lambda association: association.account != self.default_account)

    def usable_qos(self, partition: Partition) -> list[str]:
        """The QoS that the user may name in a partition."""
        names: dict[str, None] = {}
        for association in self.accounts(partition):
            for name in association.qos:
                if partition.allows("Qos", name):
                    names[name] = None
        return list(names)

    def default_qos(self, partition: Partition) -> str | None:
        """The QoS that a job gets which names none; None where that is not known."""
        usable = self.usable_qos(partition)
        for association in self.accounts(partition):
            if association.default_qos in usable:
                return association.default_qos
        return usable[0] if len(usable) == 1 else None

    def effective_qos(self, partition: Partition) -> list[str]:
        """The QoS whose limits hold for a job that names none: the default one, and the partition's own."""
        default = self.default_qos(partition)
        own = partition.keys.get("QoS", "N/A")
        return [own] if default is None else [default, own]


def gres_of(text: str) -> tuple[Gres, ...]:
    """Parse generic resources such as `gpu:v100:4(S:0-1),cs:1`; `(null)` stands for none."""
    resources = []
    for word in re.sub(r"\([^)]*\)", "", text).split(","):
        name, *middle = word.split(":")
        if middle and middle[-1].isdigit():
            kinds = [part for part in middle[:-1] if part != "no_consume"]
            resources.append(Gres(name, kinds[0] if kinds else "", int(middle[-1])))
    return tuple(resources)


def duration(text: str) -> float | None:
    """Convert a limit of Slurm to seconds. Returns None for UNLIMITED and for any other text that is no time."""
    try:
        return seconds_of(text)
    except ValueError:
        return None
