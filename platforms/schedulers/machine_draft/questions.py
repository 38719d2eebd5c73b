"""Asks a machine in one command for its Slurm's partitions, nodes, accounts and QoS, its Python and its folders."""

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
NOT_CONFIGURED = (
    "Could not establish a configuration source"  # Slurm's commands are installed, and belong to no cluster
)
NODES = "%R|%c|%X|%Y|%Z|%D|%G"
ASSOCIATIONS = "cluster,account,partition,defaultqos,qos"
QOS = "name,maxwall,maxsubmitjobsperuser"

# Each answer follows a line of its own: the mark, the question's name, its exit code.
_ASK = """\
ask() {{ name=$1; shift; output=$("$@" 2>&1 </dev/null); code=$?; printf '%s\\n' "{mark} $name $code" "$output"; }}
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
[ $code -eq 0 ] || exit 0  # each question to a controller that is away runs into its time-out
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
    """The machine has no sinfo, or its sinfo belongs to no cluster."""


@dataclass(frozen=True)
class QuestionOutput:
    """One question's exit code and what it printed on both streams."""

    code: int = 127
    text: str = ""

    @property
    def lines(self) -> list[str]:
        return self.text.splitlines() if self.code == 0 else []


def ask_slurm(transport: Transport) -> Machine:
    """Ask a login node. Raises NoSlurm, RefusedError where no partition is visible, AwayError without an answer."""
    answers = _answers(transport, _SLURM)
    if answers["version"].code == 127 or NOT_CONFIGURED in answers["version"].text + answers["nodes"].text:
        hint = "is it a login node? Name one by --ssh HOST; a machine without a scheduler: --ssh HOST --scheduler ssh"
        output = "; ".join(answers["version"].text.splitlines())
        raise NoSlurm(f"{transport.where}: there is no Slurm for sinfo ({output}); {hint}")
    for name in ("version", "nodes", "partitions"):
        if answers[name].code:
            output = "; ".join(answers[name].text.splitlines())
            raise AwayError(f"{transport.where}: Slurm does not answer: {output}")
    machine = read_slurm(transport.where, answers)
    if not machine.partitions:
        raise RefusedError(f"{transport.where}: Slurm shows no partition to this user (`sinfo` says what it does show)")
    return machine


def ask_alone(transport: Transport) -> Machine:
    """Ask a machine without a scheduler."""
    answers = _answers(transport, _ALONE)
    gpu_count = len(answers["gpus"].lines) or len(answers["rocm"].lines)
    gres = (Gres("gpu", "", gpu_count),) if gpu_count else ()
    cores = [line.split(",") for line in answers["sockets"].lines if "," in line]
    sockets = max(1, len({socket for socket, _ in cores}))
    cores_per_socket = max(1, len(cores) // sockets)
    hardware = Hardware(max(1, len(cores)), sockets, cores_per_socket, gres, 1)
    return replace(_common(transport.where, answers), hardware=hardware)


def read_slurm(where: str, answers: Mapping[str, QuestionOutput]) -> Machine:
    """Make a Machine of the outputs of a login node's commands."""
    config = dict(re.findall(r"^(\w+)\s*=\s*(.*?)\s*$", answers["config"].text, re.MULTILINE))
    cluster = config.get("ClusterName", "")
    accounting = answers["associations"]
    associations = []
    for row_cluster, account, partition, default_qos, qos_names in _rows(accounting.lines, 5):
        if row_cluster == cluster or not cluster:
            names = tuple(name for name in qos_names.split(",") if name)
            associations.append(Association(account, partition, default_qos, names))
    qos = {}
    for name, max_time, max_submitted in _rows(answers["qos"].lines, 3):
        count = int(max_submitted) if max_submitted.isdigit() else None
        qos[name] = Qos(duration(max_time), count)
    default_accounts = [line for line in answers["account"].lines if line and " " not in line]
    no_accounting = ""
    if accounting.code:
        no_accounting = accounting.text.partition("\n")[0] or "no answer"
    return replace(
        _common(where, answers),
        version=answers["version"].text.split()[-1],
        cluster=cluster,
        partitions=_partitions(answers["partitions"].lines, answers["nodes"].lines),
        associations=tuple(associations),
        default_account=default_accounts[0] if default_accounts else "",
        qos=qos,
        no_accounting=no_accounting,
    )


def _partitions(lines: Iterable[str], nodes: Iterable[str]) -> dict[str, Partition]:
    counts: dict[str, dict[Hardware, int]] = {}
    for name, *numbers, gres in _rows(nodes, 7):
        digits = [number.rstrip("+") for number in numbers]
        if not all(number.isdigit() for number in digits):
            continue
        cpus, sockets, cores, _threads, node_count = map(int, digits)
        hardware = Hardware(cpus, sockets, cores, gres_of(gres))
        nodes_of = counts.setdefault(name, {})
        nodes_of[hardware] = nodes_of.get(hardware, 0) + node_count
    partitions = {}
    for line in lines:
        keys = dict(re.findall(r"(\w+)=(\S*)", line))
        name = keys.get("PartitionName", "")
        if name in counts:
            kinds = [replace(hardware, nodes=node_count) for hardware, node_count in counts[name].items()]
            kinds.sort(key=lambda hardware: -hardware.nodes)
            partitions[name] = Partition(name, keys, tuple(kinds))
    return partitions


def _common(where: str, answers: Mapping[str, QuestionOutput]) -> Machine:
    """Make a Machine of the outputs that every machine gives."""
    modules = [line.strip().removesuffix("(default)") for line in answers["modules"].text.splitlines()]
    folders = [(origin, path) for origin, path in _rows(answers["folders"].lines, 2) if path.startswith("/")]
    pytorch = re.compile(r"[\w.+-]*pytorch[\w.+/-]*", re.IGNORECASE)
    python = answers["python"]
    return Machine(
        where,
        python=python.text.strip() if python.code == 0 else "",
        folders=tuple(folders),
        modules=tuple(name for name in modules if pytorch.fullmatch(name)),
    )


def _rows(lines: Iterable[str], count: int) -> list[list[str]]:
    """Split the lines that have `count` fields; other lines come from a site's wrappers."""
    rows = [[field.strip() for field in line.split("|")] for line in lines]
    return [row for row in rows if len(row) == count]


def _answers(transport: Transport, questions: str) -> dict[str, QuestionOutput]:
    mark = f":::{secrets.token_hex(6)}"
    script = (_ASK + questions).format(mark=mark, nodes=NODES, associations=ASSOCIATIONS, qos=QOS)
    done = transport.run(["sh", "-s"], input=(UNSET_SLURM_VARIABLES + script).encode(), timeout_s=LIMIT_S)
    return _split(done.stdout.decode(errors="replace"), mark, _names(script))


def _names(script: str) -> Sequence[str]:
    return re.findall(r"^ask (\w+)", script, re.MULTILINE)


def _split(text: str, mark: str, names: Sequence[str]) -> dict[str, QuestionOutput]:
    sections = re.findall(rf"^{mark} (\w+) (\d+)\n(.*?)(?=^{mark} |\Z)", text, re.DOTALL | re.MULTILINE)
    answers = {name: QuestionOutput() for name in names}
    for name, code, output in sections:
        if name in answers:
            answers[name] = QuestionOutput(int(code), output.strip("\n"))
    return answers
