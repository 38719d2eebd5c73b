"""Asks a machine over a transport what it has, and drafts the lines of a platform's file that any machine needs."""

from __future__ import annotations

import re
import secrets
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from platforms import transports
from platforms.config.draft import DraftLine, DraftRequest, written
from platforms.config.durations import clock
from platforms.config.schema import Platform, Unit
from platforms.config.values import RESERVED_MARKS
from platforms.transports import Transport

LIMIT_S = 120.0
HOUR_S = 3600.0
# Generic resources that are devices of ours, as most sites call them.
UNITS: Mapping[str, Unit] = {"gpu": "gpu", "ipu": "ipu", "cs": "csx"}
AMD = re.compile(r"mi\d+[a-z]*", re.IGNORECASE)
NVIDIA = re.compile(r"(gtx|rtx|[pvtahlb]\d+|gh\d+|gb\d+|nvidia|tesla)\w*", re.IGNORECASE)

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
_ALONE = """\
ask gpus sh -c 'ls -d /dev/nvidia[0-9]*'
ask rocm sh -c 'grep -l "simd_count [1-9]" /sys/class/kfd/kfd/topology/nodes/*/properties'
ask sockets sh -c 'LC_ALL=C lscpu -p=socket,core | grep -v "^#" | sort -u'
"""


@dataclass(frozen=True)
class Answer:
    """One question's exit code and what it printed on both streams."""

    code: int = 127
    text: str = ""

    @property
    def lines(self) -> list[str]:
        return self.text.splitlines() if self.code == 0 else []

    @property
    def rows(self) -> list[list[str]]:
        """The fields of each line. Lines with another number of fields may come from a site's wrappers."""
        return [[field.strip() for field in line.split("|")] for line in self.lines]


@dataclass(frozen=True)
class Devices:
    """The devices of one node, as in `gpu:v100:4`. `kind` is "" where nothing names one."""

    name: str
    kind: str
    count: int

    @property
    def unit(self) -> Unit:
        return UNITS[self.name]

    def __str__(self) -> str:
        return ":".join(filter(None, [self.name, self.kind, str(self.count)]))


@dataclass(frozen=True)
class Hardware:
    """Nodes of one kind. `cpus` are Slurm's: hardware threads where it counts those."""

    cpus: int
    sockets: int
    cores_per_socket: int
    devices: tuple[Devices, ...] = ()

    @property
    def device(self) -> Devices | None:
        """The devices that a job asks for; of several kinds the one with the most in a node."""
        return max(self.devices, key=lambda devices: devices.count, default=None)


@dataclass(frozen=True)
class Reach:
    """How commands reach the machine, as the file says it."""

    scheduler: str
    transport: str = "local"
    host: str | None = None
    ssh_config: str | None = None
    login_shell: bool = False

    @classmethod
    def of(cls, request: DraftRequest, scheduler: str) -> Reach:
        """Read it from the options of the command line."""
        host = request.options.get("ssh")
        if host is None:
            return cls(scheduler, ssh_config=request.path_of("ssh_config"))
        return cls(scheduler, request.options.get("transport", "openssh"), host, request.path_of("ssh_config"))

    def connect(self, name: str) -> Transport:
        """Connect as a platform of that name. Raises BenchError."""
        keys = {
            "name": name,
            "source": Path("--ssh"),
            "scheduler": self.scheduler,
            "device": "cpu",
            "work_dir": "/",
            "transport": self.transport,
            "host": self.host,
            "ssh_config": self.ssh_config,
            "login_shell": self.login_shell,
            "layouts": {"default": ("1x1",)},
        }
        return transports.connect(Platform.model_validate(keys))


def ask(transport: Transport, questions: str, preamble: str = "") -> dict[str, Answer]:
    """Ask the questions that every machine is asked, and others, with one command. Raises AwayError.

    Args:
        questions: a line `ask NAME COMMAND …` for each.
        preamble: lines of shell that come first.
    """
    mark = f":::{secrets.token_hex(6)}"
    script = _ASK.format(mark=mark) + questions
    done = transport.run(["sh", "-s"], input=(preamble + script).encode(), timeout_s=LIMIT_S)
    text = done.stdout.decode(errors="replace")
    answers = {name: Answer() for name in re.findall(r"^ask (\w+)", script, re.MULTILINE)}
    sections = re.findall(rf"^{mark} (\w+) (\d+)\n(.*?)(?=^{mark} |\Z)", text, re.DOTALL | re.MULTILINE)
    for name, code, output in sections:
        if name in answers:
            answers[name] = Answer(int(code), output.strip("\n"))
    return answers


def draft_alone(request: DraftRequest) -> list[DraftLine]:
    """Draft the file of a machine without a scheduler. Raises BenchError."""
    reach = Reach.of(request, "ssh")
    transport = reach.connect(request.name)
    try:
        answers = ask(transport, _ALONE)
    finally:
        transport.close()
    return lines_alone(transport.where, answers, reach, request.replaces)


def lines_alone(where: str, answers: Mapping[str, Answer], reach: Reach, replaces: bool = False) -> list[DraftLine]:
    """Every line of the file of a machine without a scheduler, in its order."""
    hardware = hardware_alone(answers)
    return [
        *access(reach, answers, replaces),
        *devices(hardware, f"what /dev and lscpu show of {where}"),
        DraftLine(("time_limit",), clock(HOUR_S)),
        DraftLine(("max_running",), "1", "jobs one after the other, so that none spoils another's numbers"),
        python(answers),
    ]


def hardware_alone(answers: Mapping[str, Answer]) -> Hardware:
    """Read what /dev and lscpu show."""
    gpus = len(answers["gpus"].lines) or len(answers["rocm"].lines)
    cores = [line.split(",") for line in answers["sockets"].lines if "," in line]
    sockets = max(1, len({socket for socket, _core in cores}))
    hardware = Hardware(max(1, len(cores)), sockets, max(1, len(cores) // sockets))
    if gpus:
        hardware = replace(hardware, devices=(Devices("gpu", "", gpus),))
    return hardware


# --- the lines -------------------------------------------------------------------------------------------------------


def access(reach: Reach, answers: Mapping[str, Answer], replaces: bool, origin: str = "") -> Iterator[DraftLine]:
    """How the machine is reached, and the folder there. `origin` is that of the scheduler."""
    if replaces:
        yield DraftLine(("replaces",), "true", "the suite ships a file of this name")
    yield DraftLine(("scheduler",), reach.scheduler, origin)
    if reach.transport != "local":
        yield DraftLine(("transport",), reach.transport)
    if reach.host:
        yield DraftLine(("host",), written(reach.host))
    if reach.ssh_config:
        yield DraftLine(("ssh_config",), written(reach.ssh_config))
    if reach.login_shell:
        yield DraftLine(("login_shell",), "true", "only a login shell finds sinfo there")
    folders = [row for row in answers["folders"].rows if len(row) == 2 and row[1].startswith("/")]
    source, folder = folders[0] if folders else ("TODO no folder is writable", "/tmp")
    need = "login and compute nodes must see it"
    if reach.scheduler == "ssh":
        need = "room for code, logs and data"
    path = folder.rstrip("/") + "/hpc-ml-bench-work"  # people clone the suite to …/hpc-ml-bench
    yield DraftLine(("work_dir",), written(path), f"{source}; {need}")


def devices(hardware: Hardware, source: str) -> Iterator[DraftLine]:
    """The devices of a node, else its sockets."""
    device = hardware.device
    if device is None:
        yield DraftLine(("device",), "cpu", f"{source}: no devices, {hardware.sockets} sockets a node")
        yield DraftLine(("layouts", "default"), f"[1x{hardware.sockets}]", "nodes x sockets a node")
        return
    origin = f"{source}: {device} a node"
    origin += f"; for its processors another file: `device: cpu`, layouts 1x{hardware.sockets}"
    yield DraftLine(("device",), device.unit, origin)
    yield DraftLine(("layouts", "default"), f"[1x{device.count}]", "nodes x devices a node")


def marks(words: Iterable[str], taken: Collection[str]) -> DraftLine:
    """Words that -m can name. A mark can have no name of another platform."""
    spelt = [re.sub(r"[^a-z0-9]+", "_", word.lower()).strip("_") for word in words]
    unusable = {*RESERVED_MARKS, *taken}
    usable = [word for word in dict.fromkeys(spelt) if re.match("[a-z]", word) and word not in unusable]
    return DraftLine(("marks",), f"[{', '.join(usable)}]", "for -m, beside the platform's own name")


def python(answers: Mapping[str, Answer]) -> DraftLine:
    """Where the jobs' Python is; only a person knows it."""
    found = "there is no python3"
    version = answers["python"].text.strip()
    if answers["python"].code == 0:
        found = f"python3 there is {version}"
        if tuple(map(int, re.findall(r"\d+", version)[:2])) < (3, 8):
            found += " and jobs need 3.8"
    names = [line.strip().removesuffix("(default)") for line in answers["modules"].text.splitlines()]
    modules = [name for name in names if re.fullmatch(r"[\w.+-]*pytorch[\w.+/-]*", name, re.IGNORECASE)]
    module, hint = "pytorch", "a module with torch"
    if modules:
        module, hint = modules[-1], f"one of {', '.join(modules[:6])}"
    return DraftLine(("modules",), f"[{written(module)}]", f"TODO {hint}, or `python:`; {found}", todo=True)
