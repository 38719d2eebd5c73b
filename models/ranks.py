"""The ranks of a job: how they meet, what the meter needs of them, and how an error on one rank ends all.

When one rank dies, most launchers leave the others waiting in a collective, and NCCL waits for minutes. So the ranks
share a small key-value store from the start. A rank that fails writes the reason there and waits a moment; a thread on
each other rank sees it within a second, reports it and ends its process.
"""

from __future__ import annotations

import contextlib
import datetime
import fcntl
import inspect
import json
import multiprocessing
import os
import socket
import struct
import sys
import threading
import time
from typing import Any, Callable, Dict, List, NamedTuple, NoReturn, Optional

import torch
import torch.distributed as dist

from models.errors import CommandError, ImpossibleRequest
from models.world import World

TIMEOUT = datetime.timedelta(minutes=10)  # the slowest start of a large job, and a first batch from a cold file system
POLL_S = 1.0  # how often a rank looks for a failure of the others
LINGER_S = 5.0  # how long a rank that fails waits until the others have read why
AGREE_LINGER_S = 60.0  # the same at the start, when all ranks have just reported
_SIOCGIFADDR = 0x8915  # Linux: get an interface's IPv4 address


class Failure(NamedTuple):
    """Why a rank gave up, as the store holds it."""

    rank: int
    exit_code: int
    gate: str
    text: str

    @classmethod
    def of(cls, rank: int, error: CommandError) -> Failure:
        return cls(rank, error.exit_code, error.gate, str(error))


class Ranks:
    """All ranks of the job, as one of them sees them; the group that the meter is given.

    One rank alone needs no network.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.rank = world.rank
        self.size = world.size
        self.backend: Optional[str] = None
        self._store: Any = None
        self._leaving = threading.Event()
        self._watcher: Optional[threading.Thread] = None
        if self.size > 1:
            self._store = self._connect_store(wait=True)

    def agree(self, error: Optional[CommandError]) -> Optional[Failure]:
        """Report whether this rank can go on, and wait for all others. Return the first failure, the same on all."""
        if self.size == 1:
            return None if error is None else Failure.of(0, error)
        if error is not None:
            self._write_failure(error)
        if self._store.add("ready", 1) == self.size:
            self._store.set("all", "ready")
        self._store.wait(["all"], TIMEOUT)
        failure = self._read_failure(self._store)
        if failure:
            self._store.add("acknowledged", 1)
            if self.rank == 0:  # it hosts the store, which must live until the others have read it
                self._await_acknowledged(self.size, AGREE_LINGER_S)
        return failure

    def connect(self, backend: str, device: Any, on_failure: Callable[[Failure], None]) -> None:
        """Open torch's process group, and start to watch for a rank that fails.

        `on_failure` is then called once, in a thread, to report the failure; after it this process ends.
        """
        if self.size == 1:
            return
        self.backend = backend
        own_store = self._connect_store(wait=False)  # a second connection, as the main thread may wait on the first
        self._watcher = threading.Thread(target=self._watch, args=(own_store, on_failure), name="ranks", daemon=True)
        self._watcher.start()

        if backend == "gloo" and self.world.nodes > 1:
            interface = interface_towards(self.world.master_addr, self.world.master_port)
            if interface is not None:
                os.environ.setdefault("GLOO_SOCKET_IFNAME", interface)
        if backend == "mpi":
            dist.init_process_group("mpi")
            return
        options: Dict[str, Any] = {"store": dist.PrefixStore("torch", self._store), "timeout": TIMEOUT}
        if backend == "nccl" and "device_id" in inspect.signature(dist.init_process_group).parameters:
            options["device_id"] = device  # since torch 2.3; without it NCCL's barrier guesses the device, and warns
        dist.init_process_group(backend, rank=self.rank, world_size=self.size, **options)

    def fail(self, error: CommandError) -> Failure:
        """Tell the others that this rank ends. Return the cause: this error, or that of the first rank that failed."""
        failure = Failure.of(self.rank, error)
        if self._watcher is not None:
            self._leaving.set()
            with contextlib.suppress(RuntimeError):
                self._write_failure(error)
                failure = self._read_failure(self._store) or failure
        return failure

    def abandon(self, failure: Failure) -> None:
        """End this process, after a moment in which the others can read the failure. Returns only for one rank."""
        if self.size == 1:
            return
        if self._watcher is not None:
            with contextlib.suppress(RuntimeError):
                if failure.rank == self.rank:
                    self._await_acknowledged(self.size - 1, LINGER_S)
                else:
                    self._store.add("acknowledged", 1)
        exit_now(failure.exit_code)

    def part(self) -> None:
        """Close the process group in good order, once every rank has called this."""
        if self.size == 1:
            return
        dist.barrier()
        self._leaving.set()
        if self._watcher is not None:
            self._watcher.join()
        dist.barrier()  # rank 0 hosts the store, which goes only when no rank watches it any more
        dist.destroy_process_group()

    # --- what the meter's group must have

    def barrier(self) -> None:
        if self.size > 1:
            dist.barrier()

    def gather(self, thing: Any) -> List[Any]:
        """Return every rank's `thing`, in order of rank, on every rank."""
        if self.size == 1:
            return [thing]
        things: List[Any] = [None] * self.size
        dist.all_gather_object(things, thing)
        return things

    # --- the store

    def _connect_store(self, wait: bool) -> Any:
        """Connect to the store, which rank 0 hosts, or torchrun's agent where the environment says so.

        wait: for all other ranks; with it rank 0 starts the store.
        """
        if not dist.is_available():
            raise ImpossibleRequest(
                f"this torch ({torch.__version__}) is built without torch.distributed; install a stock torch"
            )
        world = self.world
        is_by_agent = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
        is_host = self.rank == 0 and wait and not is_by_agent
        if not is_host:
            _resolve(world)
        try:
            store = dist.TCPStore(
                world.master_addr,
                world.master_port,
                world.size,
                is_host,
                TIMEOUT,
                wait_for_workers=wait and not is_by_agent,
            )
        except (RuntimeError, ValueError) as error:
            attempted = "listen at" if is_host else "reach rank 0 at"
            raise CommandError(
                f"rank {self.rank} could not {attempted} {world.master_addr}:{world.master_port} "
                f"({str(error).splitlines()[0]}); set MASTER_PORT to a free port and MASTER_ADDR to the host of rank 0"
            ) from None
        return dist.PrefixStore(f"hpcml/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", store)

    def _watch(self, store: Any, on_failure: Callable[[Failure], None]) -> None:
        while not self._leaving.wait(POLL_S):
            is_store_gone = False
            try:
                failure = self._read_failure(store)
            except RuntimeError:  # rank 0 ended, and the store with it
                is_store_gone = True
                failure = Failure(0, CommandError.exit_code, CommandError.gate, "rank 0 ended without saying why")
            if failure and failure.rank != self.rank and not self._leaving.is_set():
                on_failure(failure)
                if not is_store_gone:
                    store.add("acknowledged", 1)
                exit_now(failure.exit_code)

    def _write_failure(self, error: CommandError) -> None:
        """Write the failure, unless another rank failed first: the first is the cause, and others follow from it."""
        if self._store.add("failed", 1) == 1:
            self._store.set("failure", json.dumps(Failure.of(self.rank, error)))

    def _read_failure(self, store: Any) -> Optional[Failure]:
        if not store.add("failed", 0):
            return None
        return Failure(*json.loads(store.get("failure")))

    def _await_acknowledged(self, count: int, limit_s: float) -> None:
        deadline = time.monotonic() + limit_s
        while time.monotonic() < deadline and self._store.add("acknowledged", 0) < count:
            time.sleep(0.1)


def interface_towards(address: str, port: int) -> Optional[str]:
    """Return the network interface by which this node reaches a host; None if that is the loopback, or unknown.

    gloo by itself takes the interface of the node's own name. Many sites resolve that name to the loopback, where no
    other node can be reached. Unknown without Linux or with IPv6.
    """
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as route:
            route.connect((address, port))  # sends nothing, because it is a datagram socket
            own_address = socket.inet_aton(route.getsockname()[0])
            for _, name in socket.if_nameindex():
                with contextlib.suppress(OSError):  # an interface without an address
                    request = struct.pack("256s", name.encode()[:15])
                    if fcntl.ioctl(route.fileno(), _SIOCGIFADDR, request)[20:24] == own_address:
                        return None if name == "lo" else name
    except OSError:
        pass
    return None


def _resolve(world: World, attempts: int = 3) -> None:
    """Raise CommandError if rank 0's host has no address here; torch itself would try until its time-out."""
    for attempt in range(attempts):
        try:
            socket.getaddrinfo(world.master_addr, world.master_port)
            return
        except OSError as error:
            if attempt + 1 == attempts:
                raise CommandError(
                    f"rank {world.rank} cannot find the host of rank 0, {world.master_addr} ({error}); set MASTER_ADDR "
                    "to an address that every node can reach"
                ) from None
            time.sleep(1.0)  # a thousand ranks ask the name server at once


def exit_now(exit_code: int) -> NoReturn:
    """End this process at once. An orderly exit would wait in the process group for ranks that are gone."""
    for worker in multiprocessing.active_children():
        worker.terminate()
    sys.stdout.flush()
    os._exit(exit_code)
