"""A real sshd on loopback, from the system's package: no systemd, no root needed, and it stops only what it started."""

from __future__ import annotations

import getpass
import os
import signal
import socket
import subprocess
import time
import weakref
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tests.clusters.ports import LOOPBACK, reserved_port
from tests.programs import find, require

PATIENCE_S = 150.0
PASSPHRASE = "correct horse"
INSTALL = "apt-get install openssh-server openssh-client"


class Sshd:
    """One server, started at once, for the user that runs the tests.

    Its configuration for clients, `config`, knows it as `login`; with another server as `gate`, also that one as `gate`
    and, behind it, ours as `inner`. `setenv` is what every session finds in its environment (SLURM_CONF, PATH, HOME).
    """

    def __init__(
        self,
        folder: Path,
        port: int | None = None,
        *,
        setenv: Mapping[str, str] | None = None,
        gate: Sshd | None = None,
        options: Sequence[str] = (),
    ) -> None:
        require("sshd", "ssh", "ssh-keygen", install=INSTALL)
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        reserved = reserved_port(port or 0)  # nobody else gets it while we do not listen
        self.port = int(reserved.getsockname()[1])
        weakref.finalize(self, os.close, reserved.detach())
        self.user = getpass.getuser()
        self.gate = gate
        self.key = gate.key if gate else make_key(folder / "key")
        self.host_key = make_key(folder / "host_key")
        self.known_hosts = self.knows("known_hosts", self.host_key)
        self._pid: int | None = None
        # jobs there wait for none of this machine's benchmarks
        self._write_server_config({"HPC_ML_BENCH_LOCK": str(folder / "lock"), **(setenv or {})}, options)
        self.config = self.client_config("config")
        self.start()

    def knows(self, name: str, *host_keys: Path) -> Path:
        """A known_hosts file that has these keys for this server, and the gate's own for the gate."""
        lines = [f"[{LOOPBACK}]:{self.port} {key.with_suffix('.pub').read_text()}" for key in host_keys]
        path = self.folder / name
        path.write_text("".join(lines) + (self.gate.known_hosts.read_text() if self.gate else ""))
        return path

    def client_config(
        self, name: str, *, key: Path | None = None, known_hosts: Path | None = None, more: str = ""
    ) -> Path:
        """An ssh_config for another key, another known_hosts, more lines for every host."""
        hosts = [_host("login", self.port)]
        if self.gate:
            hosts += [_host("gate", self.gate.port), _host("inner", self.port) + "    ProxyJump gate\n"]
        common = (
            f"Host *\n    User {self.user}\n    IdentityFile {key or self.key}\n    IdentitiesOnly yes\n"
            f"    UserKnownHostsFile {known_hosts or self.known_hosts}\n    GlobalKnownHostsFile /dev/null\n"
        )
        path = self.folder / name
        path.write_text(more + "".join(hosts) + common)
        return path

    def start(self) -> None:
        """Start the listener and wait until it answers; nothing to do while it runs."""
        if self._pid is not None:
            return
        if os.getuid() == 0:
            Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # where sshd as root locks itself in
        argv = [str(find("sshd")), "-D", "-e", "-f", str(self.folder / "sshd_config")]
        with (self.folder / "sshd.log").open("ab") as log:
            # not awaited here: subprocess would complain about a process that outlives the object
            self._pid = os.posix_spawn(
                argv[0],
                argv,
                os.environ,
                file_actions=[(os.POSIX_SPAWN_DUP2, log.fileno(), descriptor) for descriptor in (1, 2)],
                setsid=True,
            )
        deadline = time.monotonic() + PATIENCE_S
        while not self._answers():
            assert time.monotonic() < deadline, (self.folder / "sshd.log").read_text()
            time.sleep(0.02)

    def stop(self, *, sessions: bool = True) -> None:
        """Stop listening and end the sessions, or let these live on."""
        if self._pid is None:
            return
        victims = self.sessions() if sessions else []
        pid, self._pid = self._pid, None
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        _signal(victims, signal.SIGKILL)

    def drop(self) -> None:
        """Kill the connections as a reboot or a cut cable would; the server goes on listening."""
        _signal(self.sessions(), signal.SIGKILL)

    def pause(self) -> None:
        """Freeze server and connections: they take bytes and never answer."""
        _signal(self._listener(), signal.SIGSTOP)
        _signal(self.sessions(), signal.SIGSTOP)

    def resume(self) -> None:
        _signal([*self._listener(), *self.sessions()], signal.SIGCONT)

    def sessions(self) -> list[int]:
        """The processes of its connections, of which each may have several, what they run excluded."""
        found: list[int] = []
        parents = self._listener()
        while parents:
            children = list(_sshd_children(parents.pop()))
            found += children
            parents += children
        return found

    def _listener(self) -> list[int]:
        return [] if self._pid is None else [self._pid]

    def _answers(self) -> bool:
        try:
            with socket.create_connection((LOOPBACK, self.port), timeout=5) as connection:
                return connection.recv(4) == b"SSH-"
        except OSError:
            return False

    def _write_server_config(self, setenv: Mapping[str, str], options: Sequence[str]) -> None:
        allowed = self.folder / "authorized_keys"
        allowed.write_text(self.key.with_suffix(".pub").read_text())
        lines = [
            *options,  # the first value counts
            f"Port {self.port}",
            f"ListenAddress {LOOPBACK}",
            f"HostKey {self.host_key}",
            f"AuthorizedKeysFile {allowed}",
            f"PidFile {self.folder / 'sshd.pid'}",
            "StrictModes no",
            "UsePAM no",
            "PermitRootLogin yes",
            "PasswordAuthentication no",
            "KbdInteractiveAuthentication no",
            "MaxSessions 10",
            "MaxStartups 100",
            "UseDNS no",
        ]
        quoted = " ".join(f'"{name}={value}"' for name, value in setenv.items())
        lines.append(f"SetEnv {quoted}")  # one line: only the first counts
        (self.folder / "sshd_config").write_text("\n".join(lines) + "\n")


def make_key(path: Path, passphrase: str = "") -> Path:
    """An Ed25519 key, PATH and PATH.pub; the one that is there if there is one."""
    require("ssh-keygen", install=INSTALL)
    if not path.exists():
        command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", passphrase, "-C", path.name, "-f", str(path)]
        subprocess.run(command, check=True, stdin=subprocess.DEVNULL)
    return path


def _host(name: str, port: int) -> str:
    return f"Host {name}\n    HostName {LOOPBACK}\n    Port {port}\n"


def _sshd_children(parent: int) -> Iterator[int]:
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            head, _, tail = entry.read_text().rpartition(")")
        except OSError:
            continue
        state, ppid = tail.split()[:2]
        if int(ppid) == parent and state != "Z" and head.partition("(")[2].startswith("sshd"):
            yield int(entry.parent.name)


def _signal(pids: Sequence[int], number: int) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue
