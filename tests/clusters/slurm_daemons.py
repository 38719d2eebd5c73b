"""The test cluster's daemons, without systemd: started, recorded, and found again by whoever reads the record."""

from __future__ import annotations

import contextlib
import getpass
import os
import signal
import subprocess
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.clusters.slurm_conf import NODE_NAMES

# The record is there before the daemon is: the shell writes it and then becomes the daemon.
LAUNCH = 'cat /proc/$$/stat >"$0.new" && mv "$0.new" "$0" && exec "$@"'
PATIENCE_S = 120.0
STEP_S = 0.01
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class ClusterError(Exception):
    """The cluster cannot be brought to where it should be; the text holds the daemon's own last words."""


def wait_for(what: str, true: Callable[[], object], timeout_s: float = PATIENCE_S, step_s: float = STEP_S) -> None:
    """Returns as soon as `true()` is. Raises ClusterError naming `what` after `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    while not true():
        if time.monotonic() > deadline:
            raise ClusterError(f"{what}: not after {timeout_s:g} s")
        time.sleep(step_s)


def stat_of(pid: int) -> tuple[str, str] | None:
    """State letter and start time of a process; None when it is gone.

    A zombie is gone, as nobody may ever reap it; one with threads that still end is not: they hold its ports.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    state, threads, start = fields[0], int(fields[17]), fields[19]
    return None if state == "X" or (state == "Z" and threads <= 1) else (state, start)


def listening_ports() -> set[int]:
    """The ports at which something listens. The kernel needs ten milliseconds for its tables: ask once for many ports.

    Connecting to a port would show as much, and leave a trace in its daemon's log.
    """
    ports = set()
    for table in (Path("/proc/net/tcp"), Path("/proc/net/tcp6")):
        with contextlib.suppress(OSError):  # a machine without IPv6
            for line in table.read_text().splitlines()[1:]:
                address, _, state = line.split(maxsplit=4)[1:4]
                if state == "0A":
                    ports.add(int(address.rpartition(":")[2], 16))
    return ports


def listening(place: int | Path) -> bool:
    """Whether something listens at a port or a socket file."""
    if isinstance(place, int):
        return place in listening_ports()
    # 00010000: the flag of a socket that accepts
    rows = (line.split() for line in Path("/proc/net/unix").read_text().splitlines())
    return any(row[-1] == str(place) and row[3] == "00010000" for row in rows)


@dataclass(frozen=True)
class Daemon:
    """A daemon of the cluster: how it starts, where it listens (a port or a socket file), where its words are."""

    name: str
    argv: tuple[str, ...]
    environ: Mapping[str, str]
    folder: Path
    listens: int | Path

    @property
    def record(self) -> Path:
        return self.folder / "run" / self.name

    def process(self) -> tuple[int, str] | None:
        """Process id and state letter while it lives."""
        try:
            text = self.record.read_text()
        except OSError:
            return None
        pid, start = int(text.split()[0]), text.rpartition(")")[2].split()[19]
        now = stat_of(pid)
        return (pid, now[0]) if now is not None and now[1] == start else None

    def works(self, ports: Collection[int]) -> bool:
        """Whether it lives, is not stopped, and listens; `ports` are all at which something listens."""
        process = self.process()
        if process is None or process[1] in "Tt":
            return False
        return self.listens in ports if isinstance(self.listens, int) else listening(self.listens)

    def start(self) -> None:
        """Nothing when it lives. Raises ClusterError when somebody else has its port."""
        if self.process():
            return
        if isinstance(self.listens, int) and listening(self.listens):
            raise ClusterError(f"{self.name}: port {self.listens} is taken by another process; name another base port")
        self.record.unlink(missing_ok=True)
        with self.output.open("ab") as output:
            subprocess.run(
                ["setsid", "--fork", "sh", "-c", LAUNCH, str(self.record), *self.argv],
                env=dict(self.environ),
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                check=True,
            )
        wait_for(f"{self.name} started", self.record.exists)

    def wait_ready(self) -> None:
        """Returns once it listens. Raises ClusterError with its last words when it died instead."""
        wait_for(f"{self.name} listens", lambda: listening(self.listens) or not self.process())
        if not self.process():
            raise ClusterError(f"{self.name} died:\n{self.words()}")

    @property
    def output(self) -> Path:
        return self.folder / "log" / f"{self.name}.out"

    def words(self, lines: int = 20) -> str:
        """The end of what it printed."""
        if not self.output.exists():
            return "nothing: it was never started"
        return "\n".join(self.output.read_text(errors="replace").splitlines()[-lines:])

    def send(self, number: signal.Signals) -> None:
        """Send it a signal; nothing when it is gone."""
        process = self.process()
        if process:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process[0], number)

    def ask_to_end(self, number: signal.Signals = signal.SIGTERM) -> None:
        """Send the signal and return at once, so that many can be asked before the first is waited for."""
        self.send(number)
        self.send(signal.SIGCONT)  # who is stopped hears no SIGTERM

    def end(self, number: signal.Signals = signal.SIGTERM, timeout_s: float = 10.0) -> None:
        """End it and see it gone; SIGKILL when it does not go."""
        self.ask_to_end(number)
        try:
            wait_for(f"{self.name} ended", lambda: not self.process(), timeout_s)
        except ClusterError:
            self.send(signal.SIGKILL)
            wait_for(f"{self.name} killed", lambda: not self.process())
        self.record.unlink(missing_ok=True)


def slurm_daemons(folder: Path, port: int, accounting: bool = True) -> dict[str, Daemon]:
    """Every daemon of a cluster by name, in the order in which they start."""
    environ = {"SLURM_CONF": str(folder / "slurm.conf"), "MYSQL_UNIX_PORT": str(folder / "mariadb.socket")}
    environ |= {"PATH": PATH, "LC_ALL": "C", "HOME": "/"}
    if "TZ" in os.environ:
        environ["TZ"] = os.environ["TZ"]
    places: dict[str, tuple[tuple[str, ...], int | Path]] = {"munged": (munged(folder), folder / "munge.socket")}
    if accounting:
        places["mariadbd"] = (mariadbd(folder), folder / "mariadb.socket")
        places["slurmdbd"] = (("slurmdbd", "-D"), port + 1)
    places["slurmctld"] = (("slurmctld", "-D"), port)
    for number, node in enumerate(NODE_NAMES):
        places[f"slurmd@{node}"] = (("slurmd", "-D", "-N", node), port + 2 + number)
    return {name: Daemon(name, argv, environ, folder, listens) for name, (argv, listens) in places.items()}


def munged(folder: Path) -> tuple[str, ...]:
    places = {"key-file": "munge.key", "socket": "munge.socket", "pid-file": "munged.pid", "seed-file": "munge.seed"}
    # --force: the folder is closed to others, as it should be
    return "munged", "--foreground", "--force", *(f"--{key}={folder / name}" for key, name in places.items())


def mariadbd(folder: Path) -> tuple[str, ...]:
    """Without a network, without users (the folder is closed to others), and never waiting for the disk."""
    options = ["--no-defaults", f"--datadir={folder / 'mariadb'}", f"--user={getpass.getuser()}"]
    options += [f"--socket={folder / 'mariadb.socket'}", f"--pid-file={folder / 'mariadbd.pid'}", f"--tmpdir={folder}"]
    options += ["--skip-networking", "--skip-grant-tables", "--skip-log-bin", "--performance-schema=0"]
    options += ["--innodb-flush-method=nosync", "--innodb-flush-log-at-trx-commit=2", "--innodb-fast-shutdown=2"]
    options += ["--innodb-buffer-pool-size=32M", "--innodb-log-file-size=8M"]
    return "mariadbd", *options
