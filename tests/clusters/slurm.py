"""A real Slurm of eight nodes on this machine: its own daemons, MariaDB and munge, without systemd, in one folder."""

from __future__ import annotations

import contextlib
import fcntl
import getpass
import os
import shlex
import signal
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from tests.clusters.slurm_conf import NODE_NAMES, RESERVATION, RESERVED_NODE, files
from tests.clusters.slurm_daemons import (
    PATH,
    PATIENCE_S,
    ClusterError,
    Daemon,
    listening_ports,
    slurm_daemons,
    wait_for,
)
from tests.clusters.slurm_folder import fill_database, filled, make_database, prepare
from tests.clusters.slurm_jobs import kill_all

# base ports of two clusters are at least this far apart
PORTS = 20
PROGRAMS = ("slurmctld", "slurmd", "slurmdbd", "sbatch", "munged", "mariadbd", "mariadb-install-db")
INSTALL = "apt-get install slurmctld slurmd slurmdbd slurm-client munge mariadb-server"
# of sinfo %T: a node that takes jobs or will after the ones it has
WELL = {"idle", "allocated", "mixed", "completing", "reserved", "planned"}


@dataclass(frozen=True)
class Row:
    """What the accounting says of one job."""

    job_id: str
    name: str
    state: str
    exit_code: str


class Cluster:
    """One cluster in one folder from one base port on; everything runs as the caller.

    Args:
        folder: its state; made by `up`, kept by `down`.
        port: the first of the twenty ports it may use, all on this machine's own address.
        accounting: with slurmdbd and MariaDB; without, there is no sacct, no account and no QOS.
        settings: keys of slurm.conf that win over ours.
    """

    def __init__(
        self, folder: Path, port: int, *, accounting: bool = True, settings: Mapping[str, str] | None = None
    ) -> None:
        self.folder = folder.resolve()
        self.port = port
        self.accounting = accounting
        self.settings = dict(settings or {})

    # What a client needs.

    @property
    def environ(self) -> dict[str, str]:
        """What a client's environment needs to reach this cluster and no other; the caller's own PATH comes first."""
        return {"SLURM_CONF": str(self.folder / "slurm.conf"), "PATH": f"{os.environ['PATH']}:{PATH}"}

    def run(self, *argv: str, timeout_s: float = 120.0, text: str = "") -> subprocess.CompletedProcess[str]:
        """A client's command, with `text` on its input. Its failure is the caller's to look at."""
        environ = {"HOME": os.environ.get("HOME", "/"), "LC_ALL": "C"} | self.environ
        return subprocess.run(argv, env=environ, cwd="/", input=text, capture_output=True, text=True, timeout=timeout_s)

    def ask(self, *argv: str) -> str:
        """A command that must succeed: its output. Raises ClusterError with its words."""
        done = self.run(*argv)
        if done.returncode:
            raise ClusterError(f"{shlex.join(argv)}: {done.stdout}{done.stderr}")
        return done.stdout.strip()

    def jobs(self) -> list[Row]:
        """Every life of every job in the accounting, oldest first; a requeued job has several."""
        columns = "JobIDRaw,JobName,State,ExitCode"
        text = self.ask("sacct", "-a", "-X", "-D", "-n", "-P", "-S", "2000-01-01", "-o", columns)
        return [Row(*line.split("|")) for line in text.splitlines()]

    # The daemons.

    @cached_property
    def daemons(self) -> dict[str, Daemon]:
        """By name, in the order in which they start."""
        return slurm_daemons(self.folder, self.port, self.accounting)

    def start(self, name: str) -> None:
        """Start a daemon that is gone, and return once it listens."""
        self.daemons[name].start()
        self.daemons[name].wait_ready()

    def stop(self, name: str) -> None:
        """SIGTERM, and return once it is gone."""
        self.daemons[name].end()

    def kill(self, name: str) -> None:
        """SIGKILL, and return once it is gone."""
        self.daemons[name].end(signal.SIGKILL)

    def pause(self, name: str) -> None:
        """SIGSTOP, and return once it has stopped: it is there and says nothing."""
        self.daemons[name].send(signal.SIGSTOP)
        wait_for(f"{name} stopped", lambda: (self.daemons[name].process() or ("", "T"))[1] == "T")

    def resume(self, name: str) -> None:
        """SIGCONT."""
        self.daemons[name].send(signal.SIGCONT)

    # Up and down.

    def up(self) -> None:
        """Start what is not running and heal what is broken; returns at once when all is well.

        A cluster that another process left in this folder is taken over; one of another configuration is ended first.

        Raises:
            ClusterError: with the last words of the daemon that would not start.
        """
        with self._locked():
            if self._written() and self.healthy():
                return
            try:
                self._prepare()
                self._start_all()
                self._nodes_up()
                self._reserve()
            except ClusterError as error:
                raise ClusterError(f"{error}\nslurmctld says:\n{self.daemons['slurmctld'].words()}") from None

    def healthy(self) -> bool:
        """Whether every daemon runs, every node takes jobs and every partition is open."""
        ports = listening_ports()
        if not all(daemon.works(ports) for daemon in self.daemons.values()):
            return False
        states = set(self._nodes().values())
        return bool(states) and states <= WELL and not self._closed()

    def heal(self) -> None:
        """Every daemon, node and partition works again and no job is left; limits and accounts stay as they are."""
        self.up()
        if self.ask("squeue", "-h"):
            self.ask("scancel", "-u", getpass.getuser())
            self.wait_idle()
        kill_all(self.folder)

    def wait_idle(self, timeout_s: float = PATIENCE_S) -> None:
        """Returns once no job waits, runs or ends, and every node is free."""

        def idle() -> bool:
            return not self.ask("squeue", "-h") and set(self._nodes().values()) <= {"idle", "reserved"}

        wait_for("no job is left", idle, timeout_s, step_s=0.1)

    def down(self) -> None:
        """End the cluster and every job on it, and nothing else. The folder stays."""
        if self.folder.is_dir():
            with self._locked():
                self._end_all()

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """One `up` or `down` in a folder at a time."""
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with (self.folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _files(self) -> dict[Path, str]:
        return files(self.folder, self.port, self.accounting, self.settings)

    def _written(self) -> bool:
        """Whether the folder holds this very configuration."""
        return all(path.is_file() and path.read_text() == text for path, text in self._files().items())

    def _prepare(self) -> None:
        """Make the folder; what runs there by another configuration is ended first."""
        if not self._written():
            self._end_all()
        prepare(self.folder, self._files())

    def _start_all(self) -> None:
        for name in self.daemons:
            self.resume(name)
        fresh = self.accounting and not filled(self.folder).exists()
        if fresh:
            self._end_all()
            make_database(self)
        self.start("munged")
        if self.accounting:
            self.start("mariadbd")
            self.start("slurmdbd")
        if fresh:
            fill_database(self)
        controller = self.daemons["slurmctld"]
        nodes = [self.daemons[f"slurmd@{node}"] for node in NODE_NAMES]
        waiting = [] if controller.process() else [node for node in nodes if node.process()]
        for daemon in (controller, *nodes):
            daemon.start()
        for daemon in (controller, *nodes):
            daemon.wait_ready()
        for node in waiting:  # a hangup makes them report at once to a controller that is new
            node.send(signal.SIGHUP)

    def _nodes(self) -> dict[str, str]:
        """Node name -> state, as sinfo says it, with its flags; empty when the controller does not answer."""
        try:
            done = self.run("sinfo", "-a", "-h", "-N", "-o", "%N %T", timeout_s=PATIENCE_S)
        except subprocess.TimeoutExpired:
            return {}
        return dict(line.split() for line in done.stdout.splitlines())

    def _closed(self) -> list[str]:
        """Partitions that take no jobs."""
        rows = (line.split() for line in self.run("sinfo", "-a", "-h", "-o", "%R %a").stdout.splitlines())
        return sorted({name for name, state in rows if state != "up"})

    def _nodes_up(self) -> None:
        """Wait until every node takes jobs; nodes and partitions that somebody took out are put back."""

        def up() -> bool:
            dead = [daemon for daemon in self.daemons.values() if not daemon.process()]
            if dead:
                raise ClusterError(f"{dead[0].name} died:\n{dead[0].words()}")
            states = self._nodes()
            out = ",".join(name for name, state in states.items() if state.startswith(("down", "drain", "fail")))
            if out:
                self.run("scontrol", "update", f"NodeName={out}", "State=RESUME")
            return bool(states) and set(states.values()) <= WELL

        wait_for("all nodes are up", up, step_s=0.1)
        for name in self._closed():
            self.ask("scontrol", "update", f"PartitionName={name}", "State=UP")

    def _reserve(self) -> None:
        if f"ReservationName={RESERVATION} " in self.run("scontrol", "show", "reservation", RESERVATION).stdout:
            return
        words = [f"ReservationName={RESERVATION}", f"Users={getpass.getuser()}", f"Nodes={RESERVED_NODE}"]
        self.ask("scontrol", "create", "reservation", *words, "StartTime=now", "Duration=UNLIMITED")

    def _end_jobs(self) -> None:
        """Also at the controller, so that the next `up` in this folder does not begin with them."""
        ports = listening_ports()
        if self.daemons["slurmctld"].works(ports) and self.daemons["munged"].works(ports):
            with contextlib.suppress(subprocess.TimeoutExpired, ClusterError):
                self.run("scancel", "-u", getpass.getuser(), timeout_s=10)
                kill_all(self.folder)
                wait_for("no job is left", lambda: not self.ask("squeue", "-h"), timeout_s=2, step_s=0.1)
        kill_all(self.folder)

    def _end_all(self) -> None:
        """Daemons by their records, jobs by what shows that they are of this cluster."""
        daemons = slurm_daemons(self.folder, self.port)  # also of a cluster with accounting that was here before
        self._end_jobs()
        groups = (["slurmctld", *(f"slurmd@{node}" for node in NODE_NAMES)], ["slurmdbd"], ["mariadbd"], ["munged"])
        for group in groups:
            for name in group:
                daemons[name].ask_to_end()
            for name in group:
                daemons[name].end()
        kill_all(self.folder)  # what a node was starting when it was asked to end
