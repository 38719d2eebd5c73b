"""Runs a job's command, and writes to its log what the node is and what else used it: `hpcml_node` (docs/wire.md).

The job's script starts this once on each node. A fact that cannot be read is left out: nothing that fails here keeps
the command from running, or changes how it ends.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import time
from types import FrameType
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence

from models import cgroups, contention, host, node_devices, node_network
from models.host import read_text
from models.meter import Wire
from models.world import FIRST_SPECIAL_STEP

Facts = Dict[str, Any]
ITEMS = 8  # of a list that fit a line of the wire
WRITER = "node.py"  # of lines that are numbered apart from those of ranks
SIGNALS = ("SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2")
# Where modules, vendors' images and launchers say which versions they are.
VERSION_VARIABLES: Mapping[str, str] = {
    "modules": "LOADEDMODULES",
    "container": "APPTAINER_CONTAINER",
    "cuda": "CUDA_VERSION",
    "nccl": "NCCL_VERSION",
    "rocm": "ROCM_VERSION",
    "mpi": "MPI_VERSION",
    "cray_mpich": "CRAY_MPICH_VERSION",
    "openmpi": "OMPI_VERSION",
    "intel_mpi": "I_MPI_ROOT",
}
OF_THREADS = ("crowded", "idle cores")  # a program of which nothing is known may have any number of threads
SHELLS = ("sh", "bash")
HASHED_BYTES = 64 << 20  # of a program, of its libraries together, and of all files that it is given
HASH_CHARACTERS = 12
LIBRARIES_S = 2.0  # for the loader to say which libraries a program takes


def main(command: Sequence[str]) -> int:
    """Run a command between two looks at its node. Returns its exit code; ends by its signal if it ended by one."""
    wire = Wire(node_number(os.environ))
    before = facts_before(command)
    for part, facts in before.items():
        _write(wire, part, facts, file=WRITER)
    watch = NodeWatch(of_node=True)
    _tried(watch.begin)
    began = time.monotonic()
    status = _run(command)
    _tried(lambda: os.write(wire.fd, b"\n"))  # it may have left its last row open, and readers take lines for rows
    _tried(watch.end)
    elapsed_s = time.monotonic() - began
    for part, facts in {
        **facts_after(watch, elapsed_s, on_cpu="devices" not in before),
        **_facts(watch.network_parts()),
    }.items():
        _write(wire, part, facts, file=WRITER)
    if status < 0:
        _end_by(-status)
    return status


def node_number(environ: Mapping[str, str]) -> int:
    """Return the number of this node among those of the job, as srun or Kubernetes count them; 0 if nobody does."""
    for variable in ("SLURM_NODEID", "JOB_COMPLETION_INDEX", "GROUP_RANK"):
        if environ.get(variable, "").isdigit():
            return int(environ[variable])
    return 0


def node_name(environ: Mapping[str, str]) -> str:
    """Return the name that Slurm has for this node; elsewhere its host name."""
    return environ.get("SLURMD_NODENAME") or platform.node()


def write_facts(wire: Wire, data_dir: str) -> None:
    """Write what this node is among the lines of a rank that trains; of its devices and work hpcml_start says more."""
    for part, facts in _facts(_parts_of_node(lambda: {"work": os.getcwd(), "data": data_dir})).items():
        _write(wire, part, facts)


class NodeWatch(contention.ContentionWatch):
    """Reads the counters of the network cards, too. of_node: this rank does it, as one rank of each node must."""

    def __init__(self, of_node: bool) -> None:
        super().__init__()
        self._read = node_network.counters if of_node else dict
        self._cards: List[Dict[str, int]] = [{}, {}]  # before and after

    def begin(self) -> None:
        self._cards[0] = _tried(self._read) or {}
        super().begin()

    def end(self) -> None:
        super().end()
        self._cards[1] = _tried(self._read) or {}

    def write_network(self, wire: Wire) -> None:
        """Write what the cards counted around the windows."""
        for part, facts in _facts(self.network_parts()).items():
            _write(wire, part, facts)

    def network_parts(self) -> Dict[str, Callable[[], Any]]:
        before, after = self._cards
        if not before or not after or self._before is None or self._after is None:
            return {}
        look = {"elapsed_s": round(self._after.at_s - self._before.at_s, 3), "counters": len(before.keys() & after)}
        counts = [f"{name} {after[name] - count}" for name, count in before.items() if after.get(name, 0) > count]
        return {"network_counted": lambda: look, "network_after": lambda: counts}


def _write(wire: Wire, part: str, facts: Facts, **metadata: str) -> None:
    items = facts.get("list")
    for place in range(0, len(items or [None]), ITEMS):
        some = facts if items is None else {"list": items[place : place + ITEMS]}
        wire.emit("hpcml_node", {"node": node_name(os.environ), "part": part, "facts": some}, **metadata)


# --- the facts --------------------------------------------------------------------------------------------------------


def facts_before(command: Sequence[str]) -> Dict[str, Facts]:
    """What is known of this node, its software and the program, in parts that fit a line of the wire each."""
    look = _tried(node_devices.look) or node_devices.Look([], [], None)
    return _facts(
        {
            **_parts_of_node(lambda: folders_of(command)),
            "devices": lambda: look.devices,
            "devices_unknown": lambda: _known({"why": look.why}),
            "health": lambda: look.health,
            "program": lambda: program(command),
        }
    )


def _parts_of_node(folders: Callable[[], Mapping[str, str]]) -> Dict[str, Callable[[], Any]]:
    return {
        "host": host_facts,
        "network": node_network.network,
        "place": node_network.place,
        "software": lambda: software(os.environ),
        "storage": lambda: storage(folders()),
    }


def _facts(parts: Mapping[str, Callable[[], Any]]) -> Dict[str, Facts]:
    """Return the facts of each part; those of a part that cannot be read are left out."""
    found = {}
    for part, read in parts.items():
        facts = _tried(read)
        if facts:
            found[part] = facts if isinstance(facts, dict) else {"list": facts}
    return found


def _tried(read: Callable[[], Any]) -> Any:
    """Return what is read; None where that fails: a fact must not cost a job."""
    try:
        return read()
    except Exception:
        return None


def host_facts(root: str = "/") -> Facts:
    """The processor, memory and kernel, and what of them this job may use."""
    health = host.health(root)
    memory = dict(re.findall(r"^(\w+):\s+(\d+)", read_text(root, "proc/meminfo"), re.MULTILINE))
    clock = host.highest_clock_hz(root)
    pages = re.search(r"\[(\w+)\]", read_text(root, "sys/kernel/mm/transparent_hugepage/enabled"))
    return _known(
        {
            "kernel": platform.release(),
            "cpu": host.cpu_name(root),
            "sockets": host.sockets(root),
            "cores": host.own_cores(),
            "node_cores": host.node_cores(root),
            "numa_nodes": _numa_nodes(root),
            "cpu_quota": cgroups.on_wire(cgroups.cpu_quota(root)),
            "memory_bytes": host.memory_bytes(root),
            "main_memory_bytes": host.main_memory_bytes(root),
            "huge_pages": memory.get("HugePages_Total"),
            "transparent_huge_pages": pages[1] if pages else None,
            "governor": health["governor"],
            "clock_cap_mhz": health["clock_cap_mhz"],
            "clock_max_mhz": clock / 1e6 if clock else None,
        }
    )


def _numa_nodes(root: str) -> Optional[int]:
    try:
        names = os.listdir(os.path.join(root, "sys/devices/system/node"))
    except OSError:
        return None
    return sum(name.startswith("node") for name in names) or None


def software(environ: Mapping[str, str]) -> Facts:
    """Modules, image and versions, as far as the environment tells them."""
    found = {name: environ.get(variable) for name, variable in VERSION_VARIABLES.items()}
    return _known({**found, "python": platform.python_version()})


def folders_of(command: Sequence[str]) -> Dict[str, str]:
    """Return the folders that a command may read and write, by name: the first in its command line is the data's."""
    folders = {"work": os.getcwd(), "temporary": os.environ.get("TMPDIR", "/tmp")}
    for word in command[1:]:
        path = word.partition("=")[2] or word
        if os.path.isabs(path) and os.path.isdir(path):
            folders.setdefault("data", path)
    return folders


def storage(folders: Mapping[str, str], root: str = "/") -> Facts:
    """Return the type of the file system of each folder, as the mounts below `root` have it."""
    mounts = [line.split(" ") for line in read_text(root, "proc/self/mounts").splitlines()]
    return _known({name: _file_system(os.path.realpath(folder), mounts) for name, folder in folders.items()})


def _file_system(folder: str, mounts: Sequence[Sequence[str]]) -> Optional[str]:
    """Return the type of the file system that is mounted lowest above a folder, as `lustre`."""
    lowest = ""
    kind = None
    for mount in mounts:
        if len(mount) > 2:
            place = mount[1].replace("\\040", " ")
            if (folder + "/").startswith(place.rstrip("/") + "/") and len(place) >= len(lowest):
                lowest = place
                kind = mount[2]
    return kind


def program(command: Sequence[str]) -> Facts:
    """Hashes of the program, of the libraries that the loader finds for it, and of the files in its command line.

    Of `sh -c SCRIPT PROGRAM …` it is the program that is named behind the script, as its `$0`.
    """
    script, name = command[1:2], command[3:4]
    if command[0] in SHELLS and re.fullmatch("-[a-z]*c", "".join(script)) and shutil.which("".join(name)):
        command = command[3:]
    path = shutil.which(command[0])
    if path is None:
        return {}
    files = {}
    left = HASHED_BYTES
    for word in command[1:]:
        if os.path.isfile(word) and os.path.getsize(word) <= left:
            left -= os.path.getsize(word)
            files[os.path.basename(word)] = _hash_of_files([word])
    return _known(
        {
            "name": os.path.basename(path),
            "sha256": _hash_of_files([path]),
            "libraries": _hash_of_files(_libraries(path)),
            "files": _known(files),
        }
    )


def _libraries(path: str) -> List[str]:
    """Return the files that the loader takes for a program, in its order; [] for a script."""
    with open(path, "rb") as file:
        if file.read(4) != b"\x7fELF":
            return []
    said = subprocess.run(
        ["ldd", path], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=LIBRARIES_S, check=False
    ).stdout
    return re.findall(r"(/\S+) \(0x", said.decode(errors="replace"))


def _hash_of_files(paths: Sequence[str]) -> Optional[str]:
    """Return one hash of the files' contents; None without files, or if they are too large to be read at each start."""
    sizes = [os.path.getsize(path) for path in paths]
    if not paths or sum(sizes) > HASHED_BYTES:
        return None
    digest = hashlib.sha256()
    for path in paths:
        with open(path, "rb") as file:
            for piece in iter(functools.partial(file.read, 1 << 20), b""):
                digest.update(piece)
    return digest.hexdigest()[:HASH_CHARACTERS]


def _known(facts: Mapping[str, Any]) -> Facts:
    return {name: value for name, value in facts.items() if value not in (None, "", {}, [])}


def facts_after(watch: contention.ContentionWatch, elapsed_s: float, on_cpu: bool) -> Dict[str, Facts]:
    """What happened on this node while the command ran, in parts. on_cpu: the processor computes."""

    def others() -> Facts:
        found: Facts = {"elapsed_s": round(elapsed_s, 3)}
        counted = watch.counted(threads=1, of_node=True)
        if counted is not None:
            counted["waited_s"] = None  # of our own threads, which wait for the command
            if not sees_all_of_job(os.environ):
                counted["used_s"] = None
            joined = contention.join([counted], on_cpu=on_cpu)
            found["contention"] = joined.value
            found["warnings"] = [text for text in joined.warnings if not text.startswith(OF_THREADS)]
        return _known(found)

    return _facts({"after": others, "health_after": lambda: [] if on_cpu else node_devices.health()})


def sees_all_of_job(environ: Mapping[str, str]) -> bool:
    """Say whether all that the job runs on this node descends from this process, so that its processor time is known.

    Under Slurm a batch script may start steps by srun, which do not; neither do the other tasks of a step.
    """
    if "SLURM_JOB_ID" not in environ:
        return True
    is_step = environ.get("SLURM_STEP_ID", "").isdigit() and int(environ["SLURM_STEP_ID"]) < FIRST_SPECIAL_STEP
    return is_step and environ.get("SLURM_STEP_TASKS_PER_NODE", "").partition("(")[0] == "1"


# --- the command ------------------------------------------------------------------------------------------------------


def _run(command: Sequence[str]) -> int:
    """Run the command with our input, output and open files. Returns its exit code, or minus its signal.

    A scheduler signals all processes of a job, so the command gets its signals by itself, and we outlive them. Only the
    first process of a container is signalled alone, and hands them on.
    """
    process: Optional[subprocess.Popen[bytes]] = None
    early: List[int] = []  # signals that came while the command was being started

    def on_signal(number: int, _frame: Optional[FrameType] = None) -> None:
        if process is None:
            early.append(number)
        elif os.getpid() == 1:
            with contextlib.suppress(OSError):
                os.kill(process.pid, number)

    for name in SIGNALS:
        number = getattr(signal, name)
        if signal.getsignal(number) is not signal.SIG_IGN:  # as SIGHUP under nohup: the command ignores it, too
            signal.signal(number, on_signal)
    try:
        process = subprocess.Popen(list(command), close_fds=False)
    except OSError as error:
        print(f"{command[0]}: {error.strerror}", file=sys.stderr, flush=True)
        return 127 if isinstance(error, FileNotFoundError) else 126
    for number in early:
        on_signal(number)
    return process.wait()


def _end_by(number: int) -> None:
    """End as the command did, so that the scheduler sees the same."""
    with contextlib.suppress(OSError):  # SIGKILL can have no other action
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
