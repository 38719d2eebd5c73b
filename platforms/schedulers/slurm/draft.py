"""Asks a login node for its Slurm's partitions and accounts, and drafts the lines of a platform's file."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace

from platforms.config.draft import DraftLine, DraftRequest, written
from platforms.config.durations import clock, seconds_of
from platforms.config.loading import nearest
from platforms.job import AwayError, ConfigError, RefusedError
from platforms.schedulers import machine_draft
from platforms.schedulers.machine_draft import AMD, HOUR_S, NVIDIA, UNITS, Answer, Devices, Hardware, Reach
from platforms.schedulers.slurm.environment import UNSET_SLURM_VARIABLES
from platforms.transports import Transport

NOT_CONFIGURED = (
    "Could not establish a configuration source"  # Slurm's commands are installed, and belong to no cluster
)
_QUESTIONS = """\
ask version sinfo --version
ask nodes sinfo --noheader --format='%R|%c|%X|%Y|%D|%G'
[ $code -eq 0 ] || exit 0  # each question to a controller that is away runs into its time-out
ask partitions scontrol --oneliner show partition
ask config scontrol show config
ask associations sacctmgr --noheader --parsable2 show associations user="$(id -un)" format=cluster,account,qos
"""


class NoSlurm(RefusedError):
    """The machine has no sinfo, or its sinfo belongs to no cluster."""


@dataclass(frozen=True)
class Partition:
    """One partition: what scontrol says of it, and the kinds of its nodes, the most common first."""

    name: str
    keys: Mapping[str, str]
    kinds: tuple[Hardware, ...]

    def __str__(self) -> str:
        devices = ", ".join(map(str, self.kinds[0].devices))
        return f"{self.name} ({devices})" if devices else self.name


@dataclass(frozen=True)
class Cluster:
    """What Slurm reports. The user's accounts and QoS are those on this cluster."""

    where: str
    version: str
    name: str
    partitions: tuple[Partition, ...]
    accounts: tuple[str, ...] = ()
    qos: tuple[str, ...] = ()
    no_accounting: str = ""


def draft(request: DraftRequest) -> list[DraftLine]:
    """Ask the login node that the command line names. Raises BenchError."""
    reach = Reach.of(request, "slurm")
    try:
        cluster, answers = _ask(request.name, reach)
    except NoSlurm as error:
        reach = replace(reach, login_shell=True)
        try:
            cluster, answers = _ask(request.name, reach)
        except NoSlurm:
            raise error from None
    return lines(cluster, answers, reach, request)


def _ask(name: str, reach: Reach) -> tuple[Cluster, Mapping[str, Answer]]:
    transport = reach.connect(name)
    try:
        answers = machine_draft.ask(transport, _QUESTIONS, UNSET_SLURM_VARIABLES)
    finally:
        transport.close()
    _refuse_no_answer(transport, answers)
    cluster = read(transport.where, answers)
    if not cluster.partitions:
        raise RefusedError(f"{transport.where}: Slurm shows no partition to this user (`sinfo` says what it does show)")
    return cluster, answers


def _refuse_no_answer(transport: Transport, answers: Mapping[str, Answer]) -> None:
    version = answers["version"]
    if version.code == 127 or NOT_CONFIGURED in version.text + answers["nodes"].text:
        hint = "is it a login node? Name one by --ssh HOST; a machine without a scheduler: --ssh HOST --scheduler ssh"
        output = "; ".join(version.text.splitlines())
        raise NoSlurm(f"{transport.where}: there is no Slurm for sinfo ({output}); {hint}")
    for name in ("version", "nodes", "partitions"):
        if answers[name].code:
            output = "; ".join(answers[name].text.splitlines())
            raise AwayError(f"{transport.where}: Slurm does not answer: {output}")


def read(where: str, answers: Mapping[str, Answer]) -> Cluster:
    """Read the outputs of a login node's commands."""
    config = dict(re.findall(r"^(\w+)\s*=\s*(.*?)\s*$", answers["config"].text, re.MULTILINE))
    name = config.get("ClusterName", "")
    accounts: dict[str, None] = {}
    qos: dict[str, None] = {}
    for row in answers["associations"].rows:
        if len(row) == 3 and row[0] == name:
            accounts[row[1]] = None
            qos.update(dict.fromkeys(filter(None, row[2].split(","))))
    no_accounting = ""
    if answers["associations"].code:
        no_accounting = answers["associations"].text.partition("\n")[0]
    version = answers["version"].text.split()[-1]
    partitions = tuple(_partitions(answers))
    return Cluster(where, version, name, partitions, tuple(accounts), tuple(qos), no_accounting)


def _partitions(answers: Mapping[str, Answer]) -> Iterator[Partition]:
    nodes: dict[str, Counter[Hardware]] = {}
    for row in answers["nodes"].rows:
        digits = [number.rstrip("+") for number in row[1:5]]
        if len(row) != 6 or not all(number.isdigit() for number in digits):
            continue
        cpus, sockets, cores, count = map(int, digits)
        nodes.setdefault(row[0], Counter())[Hardware(cpus, sockets, cores, devices_of(row[5]))] += count
    for line in answers["partitions"].lines:
        keys = dict(re.findall(r"(\w+)=(\S*)", line))
        name = keys.get("PartitionName", "")
        if name in nodes:
            yield Partition(name, keys, tuple(hardware for hardware, _count in nodes[name].most_common()))


def devices_of(gres: str) -> tuple[Devices, ...]:
    """Parse generic resources such as `gpu:v100:4(S:0-1),cs:1`; `(null)` stands for none."""
    devices = []
    for word in re.sub(r"\([^)]*\)", "", gres).split(","):
        name, *middle = word.split(":")
        if name in UNITS and middle and middle[-1].isdigit():
            kinds = [part for part in middle[:-1] if part != "no_consume"]
            devices.append(Devices(name, kinds[0] if kinds else "", int(middle[-1])))
    return tuple(devices)


def choose(cluster: Cluster, name: str | None) -> Partition:
    """The partition of that name, else the default one, else the first. Raises ConfigError."""
    by_name = {partition.name: partition for partition in cluster.partitions}
    if name is not None:
        if name not in by_name:
            raise ConfigError([f"{cluster.where}: there is no partition {name!r} {nearest(name, by_name)}"])
        return by_name[name]
    for partition in cluster.partitions:
        if partition.keys.get("Default") == "YES":
            return partition
    return cluster.partitions[0]


# --- the lines -------------------------------------------------------------------------------------------------------


def lines(cluster: Cluster, answers: Mapping[str, Answer], reach: Reach, request: DraftRequest) -> list[DraftLine]:
    """Every line of the file, in its order. Raises ConfigError when the chosen partition does not exist."""
    partition = choose(cluster, request.options.get("partition"))
    origin = f"Slurm {cluster.version}, cluster {cluster.name}"
    return [
        *machine_draft.access(reach, answers, request.replaces, origin),
        *_hardware(partition),
        _marks(cluster, partition, request.taken_marks),
        _time_limit(partition),
        DraftLine(("poll_s",), "10", "seconds between two looks at the jobs; some sites ask for 60"),
        machine_draft.python(answers),
        *_slurm(cluster, partition),
    ]


def _hardware(partition: Partition) -> Iterator[DraftLine]:
    hardware = partition.kinds[0]
    yield from machine_draft.devices(hardware, f"sinfo, partition {partition.name}")
    ranks = _ranks(hardware)
    cores = max(1, hardware.sockets * hardware.cores_per_socket // ranks)
    origin = f"sinfo: {hardware.sockets} x {hardware.cores_per_socket} cores a node, among {ranks}"
    yield DraftLine(("threads_per_rank",), str(cores), origin)


def _marks(cluster: Cluster, partition: Partition, taken: Collection[str]) -> DraftLine:
    """The device, the cluster, the device's vendor, Slurm."""
    device = partition.kinds[0].device
    kind = device.kind if device else "cpu"
    words = [kind, cluster.name]
    if AMD.fullmatch(kind):
        words.append("amd")
    elif NVIDIA.fullmatch(kind):
        words.append("nvidia")
    return machine_draft.marks([*words, "slurm"], taken)


def _ranks(hardware: Hardware) -> int:
    """The ranks of a node: one for each device, else for each socket."""
    device = hardware.device
    return device.count if device else hardware.sockets


def _time_limit(partition: Partition) -> DraftLine:
    key = ("time_limit",)
    try:
        longest_s = seconds_of(partition.keys.get("MaxTime", ""))
    except ValueError:  # UNLIMITED
        return DraftLine(key, clock(HOUR_S))
    origin = f"at most {clock(longest_s)} (scontrol: MaxTime of {partition.name})"
    return DraftLine(key, clock(min(HOUR_S, longest_s)), origin)


def _slurm(cluster: Cluster, partition: Partition) -> Iterator[DraftLine]:
    origin = "sinfo"
    others = [str(other) for other in cluster.partitions if other is not partition]
    if others:
        origin += f"; others: {', '.join(others[:12])} (--partition names one)"
    yield DraftLine(("slurm", "partition"), written(partition.name), origin)
    yield _account(cluster)
    if len(cluster.qos) > 1:
        origin = f"TODO one of {', '.join(cluster.qos)}, if the partition wants one"
        yield DraftLine(("slurm", "qos"), written(cluster.qos[0]), origin, todo=True)
    if partition.keys.get("OverSubscribe") == "EXCLUSIVE":
        yield DraftLine(("slurm", "exclusive"), "true", "scontrol: OverSubscribe=EXCLUSIVE")
    hardware = partition.kinds[0]
    device = hardware.device
    kinds = {devices.kind for hardware in partition.kinds for devices in hardware.devices}
    if device and device.kind and len(kinds) > 1:
        origin = f"sinfo: {', '.join(sorted(kinds))} in one partition"
        yield DraftLine(("slurm", "gres"), f"{device.name}:{device.kind}", origin)
    if hardware.cpus > hardware.sockets * hardware.cores_per_socket:
        cpus = max(1, hardware.cpus // _ranks(hardware))
        yield DraftLine(("slurm", "cpus_per_rank"), str(cpus), f"sinfo: {hardware.cpus} hardware threads a node")


def _account(cluster: Cluster) -> DraftLine:
    key = ("slurm", "account")
    if len(cluster.accounts) == 1:
        return DraftLine(key, written(cluster.accounts[0]), "sacctmgr: your only account")
    if cluster.accounts:
        origin = f"TODO one of {', '.join(cluster.accounts)}"
        return DraftLine(key, written(cluster.accounts[0]), origin, todo=True)
    reason = cluster.no_accounting or "it knows no account of yours"
    return DraftLine(key, '"${site.project}"', f"TODO if jobs need one (sacctmgr: {reason})", todo=True)
