"""Asks a machine by one command what it is: partitions, nodes, accounts and QoS of its Slurm, Python, folders."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from platforms.job import AwayError, RefusedError
from platforms.schedulers.machine_draft.machine import (
    Association,
    Gres,
    Hardware,
    Machine,
    Partition,
    Qos,
    duration,
    gres_of,
)
from platforms.schedulers.slurm.environment import UNSET_SLURM_VARIABLES
from platforms.transports import Transport

LIMIT_S = 120.0
NOT_CONFIGURED = "Could not establish a configuration source"  # its commands are there, and belong to no cluster
NODES = "%R|%c|%X|%Y|%Z|%D|%G"
ASSOCIATIONS = "cluster,account,partition,defaultqos,qos"
QOS = "name,maxwall,maxsubmitjobsperuser"

# Each answer follows a line of its own: the mark, the question's name, its exit code.
_ASK = """\
ask() {{ name=$1; shift; said=$("$@" 2>&1 </dev/null); code=$?; printf '%s\\n' "{mark} $name $code" "$said"; }}
folders() {{
    for name in SCRATCH SCRATCHDIR WORK WORKDIR PROJECTDIR; do
        eval "path=\\${{$name:-}}"
        [ ! -d "$path" ] || [ ! -w "$path" ] || echo "\\$$name|$path"
    done
    path=$(printf %s "$HOME" | sed s,/home/,/work/,)
    [ "$path" = "$HOME" ] || [ ! -w "$path" ] || echo "\\$HOME with work in place of home|$path"
    echo "\\$HOME|$HOME"
}}
ask python python3 -c 'import sys; print("%d.%d.%d" % sys.version_info[:3])'
ask folders folders
ask modules timeout 20 bash -lc 'module -t avail pytorch'
"""
_SLURM = """\
ask version sinfo --version
ask nodes sinfo --noheader --format='{nodes}'
[ $code -eq 0 ] || exit 0  # a controller that is away takes its time with every question
ask partitions scontrol --oneliner show partition
ask config scontrol show config
ask associations sacctmgr --noheader --parsable2 show associations user="$(id -un)" format={associations}
ask account sacctmgr --noheader --parsable2 show user "$(id -un)" format=defaultaccount
ask qos sacctmgr --noheader --parsable2 show qos format={qos}
"""
_ALONE = """\
ask gpus sh -c 'ls -d /dev/nvidia[0-9]*'
ask rocm sh -c 'grep -l "simd_count [1-9]" /sys/class/kfd/kfd/topology/nodes/*/properties'
ask sockets sh -c 'LC_ALL=C lscpu -p=socket,core | grep -v "^#" | sort -u'
"""


class NoSlurm(RefusedError):
    """There is no sinfo where commands run, or it knows of no cluster."""


@dataclass(frozen=True)
class Answer:
    """One question's exit code and what it printed on both streams."""

    code: int = 127
    text: str = ""

    @property
    def lines(self) -> list[str]:
        return self.text.splitlines() if self.code == 0 else []


def ask_slurm(transport: Transport) -> Machine:
    """Ask a login node. Raises NoSlurm, RefusedError when no partition is for us, AwayError when it does not answer."""
    answers = _answers(transport, _SLURM)
    if answers["version"].code == 127 or NOT_CONFIGURED in answers["version"].text + answers["nodes"].text:
        what = "is it a login node? Name one by --ssh HOST; a machine without a scheduler: --ssh HOST --scheduler ssh"
        said = "; ".join(answers["version"].text.splitlines())
        raise NoSlurm(f"{transport.where}: there is no Slurm for sinfo ({said}); {what}")
    for name in ("version", "nodes", "partitions"):
        if answers[name].code:
            raise AwayError(f"{transport.where}: Slurm does not answer: {'; '.join(answers[name].text.splitlines())}")
    machine = read_slurm(transport.where, answers)
    if not machine.partitions:
        raise RefusedError(f"{transport.where}: Slurm shows no partition to this user (`sinfo` says what it does show)")
    return machine


def ask_alone(transport: Transport) -> Machine:
    """Ask a machine without a scheduler."""
    answers = _answers(transport, _ALONE)
    gpus, rocm = len(answers["gpus"].lines), len(answers["rocm"].lines)
    cores = [line.split(",") for line in answers["sockets"].lines if "," in line]
    sockets = max(1, len({socket for socket, _ in cores}))
    gres = (Gres("gpu", "", gpus or rocm),) if gpus or rocm else ()
    each = max(1, len(cores) // sockets)
    hardware = Hardware(max(1, len(cores)), sockets, each, gres, 1)
    return replace(_common(transport.where, answers), hardware=hardware)


def read_slurm(where: str, answers: Mapping[str, Answer]) -> Machine:
    """The answers of a login node, understood."""
    config = dict(re.findall(r"^(\w+)\s*=\s*(.*?)\s*$", answers["config"].text, re.MULTILINE))
    cluster = config.get("ClusterName", "")
    said = answers["associations"]
    rows = _rows(said.lines, 5)
    associations = tuple(
        Association(account, partition, default, tuple(filter(None, qos.split(","))))
        for of, account, partition, default, qos in rows
        if of == cluster or not cluster
    )
    qos = {
        name: Qos(duration(wall), int(count) if count.isdigit() else None)
        for name, wall, count in _rows(answers["qos"].lines, 3)
    }
    return replace(
        _common(where, answers),
        version=answers["version"].text.split()[-1],
        cluster=cluster,
        partitions=_partitions(answers["partitions"].lines, answers["nodes"].lines),
        associations=associations,
        default_account=next((line for line in answers["account"].lines if line and " " not in line), ""),
        qos=qos,
        no_accounting=(said.text.partition("\n")[0] or "no answer") if said.code else "",
    )


def _partitions(lines: Iterable[str], nodes: Iterable[str]) -> dict[str, Partition]:
    counts: dict[str, dict[Hardware, int]] = {}
    for name, *numbers, gres in _rows(nodes, 7):
        plain = [number.rstrip("+") for number in numbers]
        if all(number.isdigit() for number in plain):
            cpus, sockets, cores, _, count = map(int, plain)
            kind, of = Hardware(cpus, sockets, cores, gres_of(gres)), counts.setdefault(name, {})
            of[kind] = of.get(kind, 0) + count
    found = {}
    for line in lines:
        keys = dict(re.findall(r"(\w+)=(\S*)", line))
        name = keys.get("PartitionName", "")
        if name in counts:
            hardware = [replace(kind, nodes=count) for kind, count in counts[name].items()]
            found[name] = Partition(name, keys, tuple(sorted(hardware, key=lambda kind: -kind.nodes)))
    return found


def _common(where: str, answers: Mapping[str, Answer]) -> Machine:
    """What every machine was asked."""
    modules = [line.strip().removesuffix("(default)") for line in answers["modules"].text.splitlines()]
    folders = [(of, path) for of, path in _rows(answers["folders"].lines, 2) if path.startswith("/")]
    return Machine(
        where,
        python=answers["python"].text.strip() if answers["python"].code == 0 else "",
        folders=tuple(folders),
        modules=tuple(name for name in modules if re.fullmatch(r"[\w.+-]*pytorch[\w.+/-]*", name, re.IGNORECASE)),
    )


def _rows(lines: Iterable[str], count: int) -> list[list[str]]:
    """The lines that have so many fields; what a site's wrapper prints beside has not."""
    rows = [[field.strip() for field in line.split("|")] for line in lines]
    return [row for row in rows if len(row) == count]


def _answers(transport: Transport, questions: str) -> dict[str, Answer]:
    mark = f":::{secrets.token_hex(6)}"
    script = (_ASK + questions).format(mark=mark, nodes=NODES, associations=ASSOCIATIONS, qos=QOS)
    done = transport.run(["sh", "-s"], input=(UNSET_SLURM_VARIABLES + script).encode(), timeout_s=LIMIT_S)
    return _split(done.stdout.decode(errors="replace"), mark, _names(script))


def _names(script: str) -> Sequence[str]:
    return re.findall(r"^ask (\w+)", script, re.MULTILINE)


def _split(text: str, mark: str, names: Sequence[str]) -> dict[str, Answer]:
    found = re.findall(rf"^{mark} (\w+) (\d+)\n(.*?)(?=^{mark} |\Z)", text, re.DOTALL | re.MULTILINE)
    answers = {name: Answer(int(code), said.strip("\n")) for name, code, said in found}
    return {name: answers.get(name, Answer()) for name in names}
