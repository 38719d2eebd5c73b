"""Does vetting name a bad node, and no good one? Faults that are real, on the eight nodes of a real Slurm.

    sudo .venv/bin/python benchmarks/vet_trials.py job --folder FOLDER [--repeat 3] [--only hog link]
    sudo .venv/bin/python benchmarks/vet_trials.py prolog --folder FOLDER

Needs root, Slurm's programs, iproute2 and control groups of version 1 (cpu). Each node is a slurmd with a network of
its own (a bridge joins them, 2 Gbit/s each), its own mounts, and a fifth of a core, so that eight nodes on two cores do
not measure each other. `job` runs `vet job` on all eight as a job's first step. `prolog` has prolog.sh as Slurm's
Prolog, and counts the nodes that Slurm drains when a job starts on each. Prints Markdown.
"""

from __future__ import annotations

import argparse
import contextlib
import getpass
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from models import host
from platforms.rundir import code_archive
from tests.clusters.slurm import Cluster
from tests.clusters.slurm_conf import NODE_NAMES, own_name
from tests.clusters.slurm_daemons import Daemon, wait_for

ROOT = Path(__file__).resolve().parents[1]
BRIDGE = "vetbr"
HOST = "10.77.0.254"
CPU = Path("/sys/fs/cgroup/cpu/vet-trials")
PERIOD_US = 20_000
SHARE = 0.2  # of a core, for each node
BAD = "cn3"
PEER = "v100n2"
USUAL = "tbf rate 2gbit burst 512kb latency 50ms"  # of every link, so that it is slower than the processors
LIMIT = "tbf rate 200mbit burst 64kb latency 50ms"  # of a slow one
START = 'echo $$ > "$0"; exec nsenter --net="$1" unshare -m --propagation private sh -c "$2" sh "$@"'
MOUNTS = 'shift 2; mount -t tmpfs -o size=64m none /dev/shm; exec "$@"'


def sh(*words: str, check: bool = True) -> str:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if check and done.returncode:
        raise SystemExit(f"{' '.join(words)}: {done.stderr}")
    return done.stdout


def address(node: str) -> str:
    return f"10.77.0.{NODE_NAMES.index(node) + 1}"


def group(node: str) -> Path:
    return CPU / node


@contextlib.contextmanager
def machine() -> Iterator[None]:
    """The networks and control groups of the nodes."""
    sh("ip", "link", "add", BRIDGE, "type", "bridge")
    try:
        sh("ip", "addr", "add", f"{HOST}/24", "dev", BRIDGE)
        sh("ip", "link", "set", BRIDGE, "up")
        for node in NODE_NAMES:
            sh("ip", "netns", "add", f"vet-{node}")
            sh("ip", "link", "add", f"v-{node}", "type", "veth", "peer", "name", "eth0", "netns", f"vet-{node}")
            sh("ip", "link", "set", f"v-{node}", "master", BRIDGE, "up")
            sh("ip", "-n", f"vet-{node}", "addr", "add", f"{address(node)}/24", "dev", "eth0")
            sh("tc", "qdisc", "add", "dev", f"v-{node}", "root", *USUAL.split())
            for device in ("lo", "eth0"):
                sh("ip", "-n", f"vet-{node}", "link", "set", device, "up")
            group(node).mkdir(parents=True, exist_ok=True)
            (group(node) / "cpu.cfs_period_us").write_text(str(PERIOD_US))
            (group(node) / "cpu.cfs_quota_us").write_text(str(int(PERIOD_US * SHARE)))
        yield
    finally:
        for node in NODE_NAMES:
            sh("ip", "link", "del", f"v-{node}", check=False)
            sh("ip", "netns", "del", f"vet-{node}", check=False)
            with contextlib.suppress(OSError):
                group(node).rmdir()
                CPU.rmdir()  # which the last one leaves empty
        sh("ip", "link", "del", BRIDGE, check=False)


class Nodes(Cluster):
    """The test cluster, with nodes that are apart."""

    @cached_property
    def daemons(self) -> dict[str, Daemon]:
        found = dict(super().daemons)
        for node in NODE_NAMES:
            daemon = found[f"slurmd@{node}"]
            before = ("sh", "-c", START, f"{group(node)}/tasks", f"/run/netns/vet-{node}", MOUNTS)
            listens = self.folder / "munge.socket"  # its own port is in another network
            found[daemon.name] = replace(daemon, argv=(*before, *daemon.argv), listens=listens)
        return found

    def _files(self) -> dict[Path, str]:
        texts = super()._files()
        path = self.folder / "slurm.conf"
        kept = [line for line in texts[path].splitlines() if not line.startswith(("NodeName=", "PartitionName="))]
        for number, node in enumerate(NODE_NAMES):
            place = f"NodeHostname={own_name()} NodeAddr={address(node)} Port={self.port + 2 + number}"
            kept.append(f"NodeName={node} {place} CPUs=4 RealMemory=16000 State=UNKNOWN")
        kept.append("PartitionName=standard Nodes=ALL Default=YES MaxTime=60 State=UP")
        texts[path] = "\n".join(kept) + "\n"
        texts[self.folder / "gres.conf"] = ""
        return texts

    def _reserve(self) -> None:
        """Jobs may have all nodes."""

    def inside(self, node: str, command: str) -> str:
        """Run a shell command in a node's networks and mounts."""
        process = self.daemons[f"slurmd@{node}"].process()
        assert process is not None
        return sh("nsenter", "-t", str(process[0]), "-m", "-n", "sh", "-c", command)


# --- faults: each yields while it is there ----------------------------------------------------------------------------

Fault = Callable[[Nodes, Path], "contextlib.AbstractContextManager[object]"]


@contextlib.contextmanager
def over(nodes: Nodes, node: str, place: str, source: Path) -> Iterator[None]:
    """A file or folder of a node shows another one's content."""
    nodes.inside(node, f"mount --bind {source} {place}")
    try:
        yield
    finally:
        nodes.inside(node, f"umount {place}")


@contextlib.contextmanager
def nothing(nodes: Nodes, folder: Path) -> Iterator[None]:
    yield


@contextlib.contextmanager
def half_memory(nodes: Nodes, folder: Path) -> Iterator[None]:
    text = Path("/proc/meminfo").read_text()
    total = int(re.search(r"MemTotal:\s+(\d+)", text)[1])  # type: ignore[index]
    (folder / "meminfo").write_text(text.replace(str(total), str(total // 2)))
    with over(nodes, BAD, "/proc/meminfo", folder / "meminfo"):
        yield


def clocks(folder: Path, mhz: int) -> Path:
    """A copy of what the first core says of itself, with a cap of the clock, which virtual machines do not have."""
    core = folder / f"cpu0-{mhz}"
    if not core.exists():
        shutil.copytree("/sys/devices/system/cpu/cpu0/topology", core / "topology")
        (core / "cpufreq").mkdir()
        (core / "cpufreq" / "scaling_max_freq").write_text(f"{mhz * 1000}\n")
    return core


@contextlib.contextmanager
def clock(nodes: Nodes, folder: Path) -> Iterator[None]:
    """All nodes have a cap of the clock; the bad one's is lower, and it has as much less of its core."""
    with contextlib.ExitStack() as stack:
        for node in NODE_NAMES:
            there = "/sys/devices/system/cpu/cpu0"
            stack.enter_context(over(nodes, node, there, clocks(folder, 1200 if node == BAD else 2500)))
        quota = group(BAD) / "cpu.cfs_quota_us"
        quota.write_text(str(int(PERIOD_US * SHARE * 1200 / 2500)))
        stack.callback(lambda: quota.write_text(str(int(PERIOD_US * SHARE))))
        yield


@contextlib.contextmanager
def hog(nodes: Nodes, folder: Path) -> Iterator[None]:
    command = f"echo $$ > {group(BAD)}/tasks; while :; do :; done"
    process = subprocess.Popen(["sh", "-c", command])
    try:
        yield
    finally:
        process.kill()
        process.wait()


@contextlib.contextmanager
def link(nodes: Nodes, folder: Path) -> Iterator[None]:
    """What comes to and from the bad node is limited."""
    sh("tc", "qdisc", "replace", "dev", f"v-{BAD}", "root", *LIMIT.split())
    nodes.inside(BAD, f"tc qdisc add dev eth0 root {LIMIT}")
    try:
        yield
    finally:
        sh("tc", "qdisc", "replace", "dev", f"v-{BAD}", "root", *USUAL.split())
        nodes.inside(BAD, "tc qdisc del dev eth0 root")


@contextlib.contextmanager
def pair(nodes: Nodes, folder: Path) -> Iterator[None]:
    """A cable of their own joins two nodes, and what one of them sends through it is limited."""
    nodes.inside(BAD, f"ip link add pair0 type veth peer name pair0 netns /run/netns/vet-{PEER}")
    try:
        for node, other in ((BAD, PEER), (PEER, BAD)):
            nodes.inside(node, f"ip link set pair0 up && ip route add {address(other)} dev pair0 src {address(node)}")
        nodes.inside(BAD, f"tc qdisc add dev pair0 root {LIMIT}")
        yield
    finally:
        nodes.inside(BAD, "ip link del pair0")


@contextlib.contextmanager
def full_shm(nodes: Nodes, folder: Path) -> Iterator[None]:
    nodes.inside(BAD, "head -c 63m /dev/zero > /dev/shm/left-behind")
    try:
        yield
    finally:
        nodes.inside(BAD, "rm /dev/shm/left-behind")


# --- `vet job` --------------------------------------------------------------------------------------------------------

# fault -> what plants it, and the words by which a report must name it
JOB: Mapping[str, tuple[Fault, str]] = {
    "none": (nothing, ""),
    "half the memory": (half_memory, f"{BAD} is unfit: memory"),
    "a lowered clock": (clock, f"{BAD} is unfit: .*cap of the clock 1200 MHz"),
    "a hog": (hog, f"{BAD} is unfit: (matrix products|copies in memory)"),
    "a slow link": (link, f"{BAD} is unfit: its fastest exchange"),
    "a slow pair": (pair, f"slow link: {BAD} and {PEER}"),
    "full /dev/shm": (full_shm, f"{BAD} is unfit: room in /dev/shm"),
}


def vet_jobs(nodes: Nodes, folder: Path, archive: Path, repeat: int, only: list[str]) -> None:
    script = folder / "job.sh"
    environ = 'export MASTER_ADDR=$SLURM_LAUNCH_NODE_IPADDR; exec timeout -k 5 55 "$@"'
    script.write_text(f"#!/bin/sh\nsrun sh -c '{environ}' sh {sys.executable} {archive} vet job\n")
    print("| fault | named | of | another node accused | seconds |\n|---|---|---|---|---|", flush=True)
    for name, (fault, words) in JOB.items():
        if only and not any(word in name for word in only):
            continue
        named, wrong, times = 0, 0, []
        for _ in range(repeat):
            with fault(nodes, folder):
                began_s = time.monotonic()
                output = folder / "out"
                output.unlink(missing_ok=True)
                nodes.ask("sbatch", "-N8", "--ntasks-per-node=1", f"-o{output}", str(script))
                wait_for("the job has ended", lambda: not nodes.ask("squeue", "-h"), step_s=0.2)
                times.append(time.monotonic() - began_s)
            text = output.read_text() if output.exists() else "no output"
            lines = [line for line in text.splitlines() if not line.startswith(":::MLLOG")]
            print("\n".join(f"    {line}" for line in lines), file=sys.stderr, flush=True)
            said = re.search(words, text)
            named += bool(said and "nodes fit" in text)
            wrong += any("is unfit" in line and not line.startswith(f"vet: {BAD} ") for line in lines)
        print(f"| {name} | {named} | {repeat} | {wrong} | {min(times):.1f} to {max(times):.1f} |", flush=True)


# --- the prolog -------------------------------------------------------------------------------------------------------


def drained(nodes: Cluster, names: Sequence[str] = NODE_NAMES) -> list[str]:
    """Start a job on each node, wait until all have run or cannot, and return the nodes that Slurm has drained."""
    before = nodes.ask("sinfo", "-h", "-N", "-o", "%N %T")
    assert "drain" not in before, before
    for node in names:
        nodes.ask("sbatch", "-w", node, "-o/dev/null", "--wrap=true")

    def over_now() -> bool:
        """A job whose node was drained is in the queue again."""
        rows = nodes.ask("squeue", "-h", "-o", "%T").split()
        return all(row == "PENDING" for row in rows) and not nodes.ask("sinfo", "-h", "-t", "completing", "-o", "%N")

    time.sleep(3)  # until Slurm has begun with the first
    wait_for("the jobs have ended", over_now, step_s=0.3)
    rows = [line.split() for line in nodes.ask("sinfo", "-h", "-N", "-o", "%N %T").splitlines()]
    found = sorted({name for name, state in rows if state.startswith(("drain", "drng", "down"))})
    nodes.run("scancel", "-u", getpass.getuser())
    if found:
        nodes.ask("scontrol", "update", f"NodeName={','.join(found)}", "State=RESUME")
    nodes.wait_idle()
    return found


class Etc:
    """What an administrator installs on each node: prolog.sh, limits.json and models.pyz."""

    def __init__(self, folder: Path, archive: Path) -> None:
        self.folder = folder
        folder.mkdir(mode=0o755)
        shutil.copy(archive, folder / "models.pyz")
        self.script((ROOT / "slurm_templates" / "prolog.sh").read_text())

    def script(self, text: str) -> None:
        (self.folder / "prolog.sh").write_text(text)
        (self.folder / "prolog.sh").chmod(0o755)

    def sign(self, **more: object) -> None:
        memory = host.main_memory_bytes()
        assert memory is not None
        limits = {"memory GiB": round(memory / 2**30, 3), "cores": host.node_cores(), **more}
        limits = {name: value for name, value in limits.items() if value is not None}
        path = self.folder / "limits.json"
        path.unlink(missing_ok=True)
        path.write_text(json.dumps({"nodes": dict.fromkeys(NODE_NAMES, limits)}))
        path.chmod(0o644)


def prologs(nodes: Nodes, folder: Path, etc: Etc) -> None:
    empty, nothing_in_it = folder / "empty", folder / "nothing"
    empty.touch()
    nothing_in_it.mkdir()
    print("| with the prolog | drained | seconds |\n|---|---|---|", flush=True)

    def row(what: str) -> None:
        began_s = time.monotonic()
        found = drained(nodes)
        seconds = time.monotonic() - began_s
        print(f"| {what} | {len(found)} {' '.join(found)} | {seconds:.1f} |", flush=True)

    etc.sign()
    row("all as signed")
    with half_memory(nodes, folder):
        row("half the memory of one hidden, memory signed")
        etc.sign(**{"memory GiB": None})
        row("the same, memory not signed")
    etc.sign(**{"clock cap MHz": 2500})
    with clock(nodes, folder):
        row("a lowered clock of one, clock signed")
        etc.sign()
        row("the same, clock not signed")
    with hog(nodes, folder):
        row("a hog on one")
    (etc.folder / "limits.json").unlink()
    row("no limits")
    for text, what in (("", "limits empty"), ('{"nodes": 4}', "limits of nothing"), ("\0" * 4096, "limits of zeros")):
        (etc.folder / "limits.json").write_text(text)
        row(what)
    etc.sign()
    (etc.folder / "limits.json").chmod(0o666)
    row("limits that anybody can write")
    etc.sign()
    with contextlib.ExitStack() as stack:
        for node in NODE_NAMES:
            for place in ("/proc/meminfo", "/proc/cpuinfo", "/sys/devices/system/cpu/cpu0"):
                source = empty if place.startswith("/proc") else nothing_in_it
                stack.enter_context(over(nodes, node, place, source))
        row("facts cannot be read")
    with contextlib.ExitStack() as stack:
        for node in NODE_NAMES:
            for place in ("/tmp", "/var/tmp", "/dev/shm", "/var/log"):
                fill = f"mount -t tmpfs -o size=4k none {place}; head -c 8k /dev/zero > {place}/full || true"
                nodes.inside(node, fill)
                stack.callback(nodes.inside, node, f"umount {place}")
        row("disks full")
    (etc.folder / "limits.json").unlink()
    os.mkfifo(etc.folder / "limits.json", 0o644)
    row("vet hangs")
    with killer():
        row("vet killed with SIGKILL")
    etc.sign()
    (etc.folder / "models.pyz").write_bytes(b"damaged")
    row("the archive is damaged")
    etc.script((ROOT / "slurm_templates" / "prolog.sh").read_text().replace("/usr/bin/python3", "/nowhere/python3"))
    row("no Python")


@contextlib.contextmanager
def killer() -> Iterator[None]:
    """Kill each `vet limits` that is there, as the kernel does where memory ends."""
    command = "while :; do pkill -KILL -f '[m]odels.pyz vet limits'; sleep 0.2; done"  # [m]: not this command itself
    process = subprocess.Popen(["sh", "-c", command], stdout=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("form", choices=["job", "prolog"])
    parser.add_argument("--folder", required=True, type=Path, help="new, with a short path, not below /tmp or /var")
    parser.add_argument("--port", type=int, default=21000)
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--only", nargs="*", default=[])
    options = parser.parse_args()
    options.folder.mkdir(parents=True, mode=0o755)
    archive = code_archive.build(ROOT / "models", options.folder).path
    etc = Etc(options.folder / "etc", archive)
    settings = {"SlurmctldHost": f"{own_name()}({HOST})", "CommunicationParameters": ""}
    if options.form == "prolog":
        settings["Prolog"] = str(etc.folder / "prolog.sh")
    with machine(), tempfile.TemporaryDirectory(prefix="vet-", dir="/tmp") as scratch:
        nodes = Nodes(options.folder / "slurm", options.port, accounting=False, settings=settings)
        try:
            nodes.up()
            if options.form == "job":
                vet_jobs(nodes, Path(scratch), archive, options.repeat, options.only)
            else:
                prologs(nodes, Path(scratch), etc)
        finally:
            nodes.down()


if __name__ == "__main__":
    main()
