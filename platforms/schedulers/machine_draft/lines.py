"""The lines of a platform's file for a machine. What only a person knows is commented out and marked with TODO."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from platforms.config.draft import DraftLine, same_time, written
from platforms.config.loading import nearest
from platforms.config.schema import Unit
from platforms.config.values import RESERVED_MARKS, clock, seconds_of
from platforms.job import ConfigError
from platforms.schedulers.machine_draft.machine import UNITS, Gres, Hardware, Machine, Partition

HOUR_S = 3600.0
MOST_RUNNING = 8  # the default of max_running
AMD = re.compile(r"mi\d+[a-z]*", re.IGNORECASE)
NVIDIA = re.compile(r"(gtx|rtx|[pvtahlb]\d+|gh\d+|gb\d+|nvidia|tesla)\w*", re.IGNORECASE)


@dataclass(frozen=True)
class MachineChoices:
    """The choices of the command line: how the machine is reached, and which partition."""

    scheduler: str
    transport: str = "local"
    host: str | None = None
    ssh_config: str | None = None
    login_shell: bool = False
    partition: str | None = None
    replaces: bool = False


def lines(machine: Machine, choices: MachineChoices, taken_marks: Collection[str]) -> list[DraftLine]:
    """Every line of the file, in its order. Raises ConfigError when the chosen partition does not exist.

    Args:
        taken_marks: the names of other platforms, which no mark may be.
    """
    if choices.scheduler != "slurm":
        return [*_access(machine, choices), *_single_machine(machine)]
    partition = choose(machine, choices.partition)
    hardware = partition.hardware[0]
    device = _device(hardware)
    return [
        *_access(machine, choices),
        *_hardware(hardware, device, f"partition {partition.name}", partition.nodes),
        *_marks(machine, device, taken_marks),
        _time_limit(machine, partition),
        *_max_running(machine, partition),
        DraftLine(("poll_s",), "10", "seconds between two looks at the jobs; some sites ask for 60"),
        *_python(machine),
        *_slurm(machine, partition, hardware, device),
        *_policy(partition),
    ]


def choose(machine: Machine, name: str | None) -> Partition:
    """The partition of that name, else the default one, else the largest. Raises ConfigError."""
    partitions = list(machine.partitions.values())
    if name is not None:
        if name not in machine.partitions:
            hint = nearest(name, machine.partitions)
            raise ConfigError([f"{machine.where}: there is no partition {name!r} {hint}"])
        return machine.partitions[name]
    for partition in partitions:
        if partition.is_default:
            return partition
    return max(partitions, key=lambda partition: partition.nodes or 0)


# --- the lines -------------------------------------------------------------------------------------------------------


def _access(machine: Machine, choices: MachineChoices) -> Iterator[DraftLine]:
    if choices.replaces:
        yield DraftLine(("replaces",), "true", "the suite ships a file of this name")
    origin = f"Slurm {machine.version}, cluster {machine.cluster}" if machine.version else ""
    yield DraftLine(("scheduler",), choices.scheduler, origin)
    if choices.transport != "local":
        yield DraftLine(("transport",), choices.transport)
    if choices.host:
        yield DraftLine(("host",), written(choices.host))
    if choices.ssh_config:
        yield DraftLine(("ssh_config",), written(choices.ssh_config))
    if choices.login_shell:
        yield DraftLine(("login_shell",), "true", "only a login shell finds sinfo there")
    origin, folder = "TODO no folder is writable", "/tmp"
    if machine.folders:
        origin, folder = machine.folders[0]
    need = "login and compute nodes must see it" if choices.scheduler == "slurm" else "room for code, logs and data"
    path = folder.rstrip("/") + "/hpc-ml-bench-work"  # people clone the suite to …/hpc-ml-bench
    yield DraftLine(("work_dir",), written(path), f"{origin}; {need}")


def _single_machine(machine: Machine) -> Iterator[DraftLine]:
    hardware = machine.hardware or Hardware(1, 1, 1)
    for line in _hardware(hardware, _device(hardware), machine.where, 1, "what /dev and lscpu show"):
        if line.path != "threads_per_rank":  # the job finds out
            yield line
    yield DraftLine(("time_limit",), clock(HOUR_S))
    yield DraftLine(("max_running",), "1", "jobs one after the other, so that none spoils another's numbers")
    yield from _python(machine)


def _device(hardware: Hardware) -> Gres | None:
    """The devices that a job asks for; of several kinds the one with the most in a node."""
    return max(hardware.devices, key=lambda gres: gres.count, default=None)


def _hardware(
    hardware: Hardware, device: Gres | None, where: str, nodes: int | None, source: str = "sinfo"
) -> Iterator[DraftLine]:
    unit: Unit = "cpu"
    count = hardware.sockets
    origin = f"{source}: no devices, {count} sockets a node of {where}"
    if device:
        unit = UNITS[device.name]
        count = device.count
        origin = f"{source}: {device} a node of {where}"
        origin += f"; for its processors another file: `device: cpu`, layouts 1x{hardware.sockets}"
    yield DraftLine(("device",), unit, origin, fits=lambda value: value == unit)

    def layout_fits(value: str) -> bool:
        for layout_nodes, per_node in re.findall(r"(\d+)x(\d+)", value):
            if int(per_node) > count or (nodes is not None and int(layout_nodes) > nodes):
                return False
        return True

    origin = f"nodes x {'devices' if device else 'sockets'} a node"
    if nodes and nodes > 1:
        origin += f"; up to {nodes} nodes: 2x{count}, …"
    yield DraftLine(("layouts", "default"), f"[1x{count}]", origin, fits=layout_fits)
    cores = max(1, hardware.sockets * hardware.cores_per_socket // count)
    origin = f"{source}: {hardware.sockets} x {hardware.cores_per_socket} cores a node, among {count}"
    yield DraftLine(("threads_per_rank",), str(cores), origin)


def _marks(machine: Machine, device: Gres | None, taken: Collection[str]) -> Iterator[DraftLine]:
    """Words that -m can name: the device, the cluster, the device's vendor, Slurm."""
    kind = device.kind if device else "cpu"
    words = [re.sub(r"[^a-z0-9]+", "_", word.lower()).strip("_") for word in (kind, machine.cluster)]
    if AMD.fullmatch(kind):
        words.append("amd")
    elif NVIDIA.fullmatch(kind):
        words.append("nvidia")
    words.append("slurm")
    unusable = {*RESERVED_MARKS, *taken}
    marks = [word for word in dict.fromkeys(words) if re.match("[a-z]", word) and word not in unusable]
    yield DraftLine(("marks",), f"[{', '.join(marks)}]", "for -m, beside the platform's own name")


def _time_limit(machine: Machine, partition: Partition) -> DraftLine:
    limits = []
    if partition.max_time_s is not None:
        limits.append((partition.max_time_s, f"scontrol: MaxTime of {partition.name}"))
    for name in machine.effective_qos(partition):
        qos = machine.qos.get(name)
        if qos is not None and qos.max_time_s is not None:
            limits.append((qos.max_time_s, f"sacctmgr: MaxWall of QoS {name}"))
    if not limits:
        return DraftLine(("time_limit",), clock(HOUR_S), fits=lambda value: _seconds(value) is not None)
    limit_s, source = min(limits)

    def fits(value: str) -> bool:
        seconds = _seconds(value)
        return seconds is not None and seconds <= limit_s

    return DraftLine(("time_limit",), clock(min(HOUR_S, limit_s)), f"at most {clock(limit_s)} ({source})", fits=fits)


def _seconds(value: str) -> float | None:
    try:
        return seconds_of(value)
    except ValueError:
        return None


def _max_running(machine: Machine, partition: Partition) -> Iterator[DraftLine]:
    limits = []
    for name in machine.effective_qos(partition):
        if name in machine.qos and machine.qos[name].max_submitted:
            limits.append((machine.qos[name].max_submitted or 0, name))
    if not limits:
        return
    limit, name = min(limits)
    if limit < MOST_RUNNING:
        origin = f"sacctmgr: MaxSubmitJobsPerUser of QoS {name}"
        yield DraftLine(
            ("max_running",), str(limit), origin, fits=lambda value: value.isdigit() and int(value) <= limit
        )


def _python(machine: Machine) -> Iterator[DraftLine]:
    found = f"python3 there is {machine.python}" if machine.python else "there is no python3"
    version = tuple(int(part) for part in re.findall(r"\d+", machine.python)[:2])
    if version < (3, 8):
        found += " and jobs need 3.8"
    module, hint = "pytorch", "a module with torch"
    if machine.modules:
        module, hint = machine.modules[-1], f"one of {', '.join(machine.modules[:6])}"
    yield DraftLine(("modules",), f"[{written(module)}]", f"TODO {hint}, or `python:`; {found}", todo=True)


def _slurm(machine: Machine, partition: Partition, hardware: Hardware, device: Gres | None) -> Iterator[DraftLine]:
    name = partition.name
    origin = "sinfo: the default" if partition.is_default else "sinfo"
    others = [_described(other) for other in machine.partitions.values() if other.name != name]
    if others:
        origin += f"; others: {', '.join(others[:12])}"
    yield DraftLine(("slurm", "partition"), written(name), origin, fits=lambda value: value == name)
    yield _account(machine, partition)
    yield from _qos(machine, partition)
    if partition.keys.get("OverSubscribe") == "EXCLUSIVE":
        yield DraftLine(
            ("slurm", "exclusive"), "true", "scontrol: OverSubscribe=EXCLUSIVE", fits=lambda value: value == "true"
        )
    kinds = {str(gres.kind) for kind in partition.hardware for gres in kind.devices}
    if device and len(kinds) > 1 and device.kind:
        gres = f"{device.name}:{device.kind}"
        origin = f"sinfo: {', '.join(sorted(kinds))} in one partition"
        yield DraftLine(("slurm", "gres"), gres, origin, fits=lambda value: value == gres)
    if hardware.cpus > hardware.sockets * hardware.cores_per_socket:
        ranks = device.count if device else hardware.sockets
        cpus = max(1, hardware.cpus // ranks)
        yield DraftLine(("slurm", "cpus_per_rank"), str(cpus), f"sinfo: {hardware.cpus} hardware threads a node")


def _described(partition: Partition) -> str:
    devices = partition.hardware[0].devices
    if not devices:
        return partition.name
    return f"{partition.name} ({', '.join(str(gres) for gres in devices)})"


def _account(machine: Machine, partition: Partition) -> DraftLine:
    key = ("slurm", "account")
    names = list(dict.fromkeys(association.account for association in machine.accounts(partition)))
    if not names:
        reason = machine.no_accounting or "no account of yours may use this partition"
        return DraftLine(key, '"${site.project}"', f"TODO if jobs need one (sacctmgr: {reason})", todo=True)

    def fits(value: str) -> bool:
        return value in names

    if len(names) == 1:
        return DraftLine(key, written(names[0]), "sacctmgr: your only account there", fits=fits)
    origin = f"TODO one of {', '.join(names)}"
    if machine.default_account:
        origin += f"; without it Slurm takes {machine.default_account}"
    return DraftLine(key, written(names[0]), origin, todo=True, fits=fits)


def _qos(machine: Machine, partition: Partition) -> Iterator[DraftLine]:
    key = ("slurm", "qos")
    names = machine.usable_qos(partition)
    if not names:
        return

    def fits(value: str) -> bool:
        return value in names

    choices = [_with_limit(name, machine) for name in names]
    if len(names) == 1:
        yield DraftLine(key, written(names[0]), f"sacctmgr: your only one there, {choices[0]}", fits=fits)
        return
    origin = f"TODO one of {', '.join(choices)}"
    default = machine.default_qos(partition)
    if default:
        origin += f"; without it Slurm takes {default}"
    yield DraftLine(key, written(names[0]), origin, todo=True, fits=fits)


def _with_limit(name: str, machine: Machine) -> str:
    qos = machine.qos.get(name)
    if qos is None or qos.max_time_s is None:
        return name
    return f"{name} (at most {clock(qos.max_time_s)})"


def _policy(partition: Partition) -> Iterator[DraftLine]:
    if partition.nodes:
        count = str(partition.nodes)
        origin = "scontrol: MaxNodes, TotalNodes"
        yield DraftLine(("policy", "max_nodes"), count, origin, fits=lambda value: value == count)
    if partition.max_time_s:
        longest = clock(partition.max_time_s)
        yield DraftLine(
            ("policy", "max_time"), longest, "scontrol: MaxTime", fits=lambda value: same_time(value, longest)
        )
