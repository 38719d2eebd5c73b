"""What a machine says of itself as lines of a platform's file; what only a person knows is commented out, as TODO."""

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
class Wish:
    """What the command line decides: how the machine is reached, and which partition."""

    scheduler: str
    transport: str = "local"
    host: str | None = None
    ssh_config: str | None = None
    login_shell: bool = False
    partition: str | None = None
    replaces: bool = False


def lines(machine: Machine, wish: Wish, taken_marks: Collection[str]) -> list[DraftLine]:
    """Every line of the file, in its order. Raises ConfigError when there is no such partition.

    `taken_marks` are names of other platforms, which no mark may be.
    """
    if wish.scheduler != "slurm":
        return [*_reach(machine, wish), *_alone(machine)]
    partition = choose(machine, wish.partition)
    hardware, device = partition.hardware[0], _device(partition.hardware[0])
    limit_s, why_limit = _time_limit(machine, partition)
    rest = [_time(limit_s, why_limit), *_running(machine, partition)]
    return [
        *_reach(machine, wish),
        *_hardware(hardware, device, f"partition {partition.name}", partition.nodes),
        *_marks(machine, device, taken_marks),
        *rest,
        DraftLine(("poll_s",), "10", "seconds between two looks at the jobs; some sites ask for 60"),
        *_python(machine),
        *_slurm(machine, partition, hardware, device),
        *_policy(partition),
    ]


def choose(machine: Machine, asked: str | None) -> Partition:
    """The partition that was asked for, else the default one, else the largest."""
    if asked is not None:
        if asked not in machine.partitions:
            raise ConfigError(
                [f"{machine.where}: there is no partition {asked!r} {nearest(asked, machine.partitions)}"]
            )
        return machine.partitions[asked]
    found = list(machine.partitions.values())
    return next((one for one in found if one.is_default), max(found, key=lambda one: one.nodes or 0))


def _reach(machine: Machine, wish: Wish) -> Iterator[DraftLine]:
    if wish.replaces:
        yield DraftLine(("replaces",), "true", "the suite ships a file of this name")
    of = f"Slurm {machine.version}, cluster {machine.cluster}" if machine.version else ""
    yield DraftLine(("scheduler",), wish.scheduler, of)
    if wish.transport != "local":
        yield DraftLine(("transport",), wish.transport)
    for key, value in (("host", wish.host), ("ssh_config", wish.ssh_config)):
        if value:
            yield DraftLine((key,), written(value))
    if wish.login_shell:
        yield DraftLine(("login_shell",), "true", "only a login shell finds sinfo there")
    origin, folder = machine.folders[0] if machine.folders else ("", "/tmp")
    check = "login and compute nodes must see it" if wish.scheduler == "slurm" else "room for code, logs and data"
    path = folder.rstrip("/") + "/hpc-ml-bench-work"  # people clone the suite to …/hpc-ml-bench
    yield DraftLine(("work_dir",), written(path), f"{origin or 'TODO no folder is writable'}; {check}")


def _alone(machine: Machine) -> Iterator[DraftLine]:
    hardware = machine.hardware or Hardware(1, 1, 1)
    device = _device(hardware)
    found = list(_hardware(hardware, device, machine.where, 1, "what /dev and lscpu show"))
    yield from (line for line in found if line.path != "threads_per_rank")  # the job finds out
    yield DraftLine(("time_limit",), clock(HOUR_S))
    yield DraftLine(("max_running",), "1", "jobs one after the other, so that none spoils another's numbers")
    yield from _python(machine)


def _device(hardware: Hardware) -> Gres | None:
    """The devices that a job asks for; of several kinds the one with the most in a node."""
    return max(hardware.devices, key=lambda gres: gres.count, default=None)


def _unit(device: Gres | None) -> Unit:
    return UNITS[device.name] if device else "cpu"


def _hardware(
    hardware: Hardware, device: Gres | None, where: str, nodes: int | None, by: str = "sinfo"
) -> Iterator[DraftLine]:
    unit = _unit(device)
    count = device.count if device else hardware.sockets
    what = str(device) if device else f"no devices, {count} sockets"
    origin = f"{by}: {what} a node of {where}"
    if device:
        origin += f"; for its processors another file: `device: cpu`, layouts 1x{hardware.sockets}"
    yield DraftLine(("device",), unit, origin, fits=lambda said: said == unit)

    def fits(said: str) -> bool:
        found = re.findall(r"(\d+)x(\d+)", said)
        return all(int(each) <= count and (nodes is None or int(many) <= nodes) for many, each in found)

    more = f"; up to {nodes} nodes: 2x{count}, …" if nodes and nodes > 1 else ""
    yield DraftLine(
        ("layouts", "default"), f"[1x{count}]", f"nodes x {'devices' if device else 'sockets'} a node{more}", fits=fits
    )
    cores = max(1, hardware.sockets * hardware.cores_per_socket // count)
    origin = f"{by}: {hardware.sockets} x {hardware.cores_per_socket} cores a node, among {count}"
    yield DraftLine(("threads_per_rank",), str(cores), origin)


def _marks(machine: Machine, device: Gres | None, taken: Collection[str]) -> Iterator[DraftLine]:
    """Words that -m can name: what is known of the device, the cluster, Slurm."""
    kind = device.kind if device else "cpu"
    vendor = ["amd"] if AMD.fullmatch(kind) else ["nvidia"] if NVIDIA.fullmatch(kind) else []
    words = [re.sub(r"[^a-z0-9]+", "_", word.lower()).strip("_") for word in (kind, machine.cluster)]
    words = [word for word in (*words, *vendor, "slurm") if re.match("[a-z]", word)]
    found = [word for word in dict.fromkeys(words) if word not in RESERVED_MARKS and word not in taken]
    yield DraftLine(("marks",), f"[{', '.join(found)}]", "for -m, beside the platform's own name")


def _time(limit_s: float, why: str) -> DraftLine:
    def fits(said: str) -> bool:
        try:
            return seconds_of(said) <= limit_s or not why
        except ValueError:
            return False

    return DraftLine(("time_limit",), clock(min(HOUR_S, limit_s)), why, fits=fits)


def _time_limit(machine: Machine, partition: Partition) -> tuple[float, str]:
    """The longest that a job may ask for, and who says so."""
    limits = {f"scontrol: MaxTime of {partition.name}": partition.max_time_s}
    for name in machine.qos_names(partition)[1]:
        if name in machine.qos:
            limits[f"sacctmgr: MaxWall of QoS {name}"] = machine.qos[name].max_time_s
    known = [(seconds, why) for why, seconds in limits.items() if seconds is not None]
    if not known:
        return float("inf"), ""
    seconds, why = min(known)
    return seconds, f"at most {clock(seconds)} ({why})"


def _running(machine: Machine, partition: Partition) -> Iterator[DraftLine]:
    names = machine.qos_names(partition)[1]
    limits = [(limit, name) for name in names if name in machine.qos and (limit := machine.qos[name].max_submitted)]
    if limits and min(limits)[0] < MOST_RUNNING:
        limit, name = min(limits)
        origin = f"sacctmgr: MaxSubmitJobsPerUser of QoS {name}"
        yield DraftLine(("max_running",), str(limit), origin, fits=lambda said: said.isdigit() and int(said) <= limit)


def _python(machine: Machine) -> Iterator[DraftLine]:
    known = f"python3 there is {machine.python}" if machine.python else "there is no python3"
    version = tuple(int(part) for part in re.findall(r"\d+", machine.python)[:2])
    need = "" if version >= (3, 8) else " and jobs need 3.8"
    choice = ", ".join(machine.modules[:6])
    first = machine.modules[-1] if machine.modules else "pytorch"
    hint = f"one of {choice}" if choice else "a module with torch"
    yield DraftLine(("modules",), f"[{written(first)}]", f"TODO {hint}, or `python:`; {known}{need}", todo=True)


def _slurm(machine: Machine, partition: Partition, hardware: Hardware, device: Gres | None) -> Iterator[DraftLine]:
    name = partition.name
    others = [_shown(other) for other in machine.partitions.values() if other.name != name]
    origin = "sinfo: the default" if partition.is_default else "sinfo"
    if others:
        origin += f"; others: {', '.join(others[:12])}"
    yield DraftLine(("slurm", "partition"), written(name), origin, fits=lambda said: said == name)
    yield from _account(machine, partition)
    yield from _qos(machine, partition)
    if partition.keys.get("OverSubscribe") == "EXCLUSIVE":
        yield DraftLine(
            ("slurm", "exclusive"), "true", "scontrol: OverSubscribe=EXCLUSIVE", fits=lambda said: said == "true"
        )
    kinds = {str(gres.kind) for kind in partition.hardware for gres in kind.devices}
    if device and len(kinds) > 1 and device.kind:
        wanted = f"{device.name}:{device.kind}"
        yield DraftLine(
            ("slurm", "gres"),
            wanted,
            f"sinfo: {', '.join(sorted(kinds))} in one partition",
            fits=lambda said: said == wanted,
        )
    ranks = device.count if device else hardware.sockets
    if hardware.cpus > hardware.sockets * hardware.cores_per_socket:
        each = max(1, hardware.cpus // ranks)
        yield DraftLine(("slurm", "cpus_per_rank"), str(each), f"sinfo: {hardware.cpus} hardware threads a node")


def _shown(partition: Partition) -> str:
    devices = partition.hardware[0].devices
    return f"{partition.name} ({', '.join(map(str, devices))})" if devices else partition.name


def _account(machine: Machine, partition: Partition) -> Iterator[DraftLine]:
    names = list(dict.fromkeys(one.account for one in machine.accounts(partition)))
    key = ("slurm", "account")
    if len(names) == 1:
        yield DraftLine(key, written(names[0]), "sacctmgr: your only account there", fits=lambda said: said in names)
    elif names:
        default = f"; without it Slurm takes {machine.default_account}" if machine.default_account else ""
        origin = f"TODO one of {', '.join(names)}{default}"
        yield DraftLine(key, written(names[0]), origin, todo=True, fits=lambda said: said in names)
    else:
        why = machine.no_accounting or "no account of yours may use this partition"
        yield DraftLine(key, '"${site.project}"', f"TODO if jobs need one (sacctmgr: {why})", todo=True)


def _qos(machine: Machine, partition: Partition) -> Iterator[DraftLine]:
    usable, counting = machine.qos_names(partition)
    key = ("slurm", "qos")
    shown = [_with_limit(name, machine) for name in usable]
    if len(usable) == 1:
        yield DraftLine(
            key, written(usable[0]), f"sacctmgr: your only one there, {shown[0]}", fits=lambda said: said in usable
        )
    elif usable:
        default = f"; without it Slurm takes {counting[0]}" if len(counting) > 1 else ""
        yield DraftLine(
            key,
            written(usable[0]),
            f"TODO one of {', '.join(shown)}{default}",
            todo=True,
            fits=lambda said: said in usable,
        )


def _with_limit(name: str, machine: Machine) -> str:
    limit_s = machine.qos[name].max_time_s if name in machine.qos else None
    return name if limit_s is None else f"{name} (at most {clock(limit_s)})"


def _policy(partition: Partition) -> Iterator[DraftLine]:
    if partition.nodes:
        count = str(partition.nodes)
        yield DraftLine(
            ("policy", "max_nodes"), count, "scontrol: MaxNodes, TotalNodes", fits=lambda said: said == count
        )
    if partition.max_time_s:
        longest = clock(partition.max_time_s)
        yield DraftLine(
            ("policy", "max_time"), longest, "scontrol: MaxTime", fits=lambda said: same_time(said, longest)
        )
