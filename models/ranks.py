"""The ranks of a job together: how they meet, what the meter asks of them, and how an error on one ends them all.

A launcher other than torchrun leaves the others waiting in a collective when one rank dies, and NCCL waits for minutes.
So the ranks share a small store from the start: a rank that fails writes down why and waits a moment, and a thread on
each of the others sees it within a second.
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

from models.errors import Impossible, JobError
from models.world import World

TIMEOUT = datetime.timedelta(minutes=10)  # the slowest start of a large job, and a first batch from a cold file system
LOOK_S = 1.0
LINGER_S = 5.0
_SIOCGIFADDR = 0x8915  # Linux: an interface's IPv4 address
TOLD_S = 60.0  # of ranks that have all just said that they are there


class Failure(NamedTuple):
    """Why a rank gave up, as the others are told."""

    rank: int
    exit_code: int
    gate: str
    text: str

    @classmethod
    def of(cls, rank: int, error: JobError) -> Failure:
        return cls(rank, error.exit_code, error.gate, str(error))


class Ranks:
    """All ranks of the job; one rank alone is a special case that needs no network. Is the meter's group."""

    def __init__(self, world: World) -> None:
        self.world, self.rank, self.size = world, world.rank, world.size
        self.backend: Optional[str] = None
        self._store: Any = None
        self._leaving = threading.Event()
        self._watcher: Optional[threading.Thread] = None
        if self.size > 1:
            self._store = self._meet(wait=True)

    def _meet(self, wait: bool) -> Any:
        """A connection to the store, which rank 0 keeps, or torchrun's agent where it says so."""
        if not dist.is_available():
            raise Impossible(
                f"this torch ({torch.__version__}) is built without torch.distributed; install a stock torch"
            )
        world, by_agent = self.world, os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
        keeps = self.rank == 0 and wait and not by_agent
        if not keeps:
            _resolve(world)
        try:
            store = dist.TCPStore(
                world.master_addr, world.master_port, world.size, keeps, TIMEOUT, wait_for_workers=wait and not by_agent
            )
        except (RuntimeError, ValueError) as error:
            raise JobError(
                f"rank {self.rank} could not {'listen at' if keeps else 'reach rank 0 at'} {world.master_addr}:"
                f"{world.master_port} ({str(error).splitlines()[0]}); set MASTER_PORT to a free port and "
                "MASTER_ADDR to the host of rank 0"
            ) from None
        return dist.PrefixStore(f"hpcml/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", store)

    def agree(self, error: Optional[JobError]) -> Optional[Failure]:
        """Every rank says whether it can go on; the same answer on all of them. None: all can."""
        if self.size == 1:
            return None if error is None else Failure.of(0, error)
        if error is not None:
            self._tell(error)
        if self._store.add("ready", 1) == self.size:
            self._store.set("all", "ready")
        self._store.wait(["all"], TIMEOUT)
        failure = self._told(self._store)
        if failure:
            self._store.add("acknowledged", 1)
            if self.rank == 0:  # which keeps the store: the others must have read it before it goes
                self._await_acknowledged(self.size, TOLD_S)
        return failure

    def connect(self, backend: str, device: Any, on_failure: Callable[[Failure], None]) -> None:
        """Open torch's process group, and watch for a rank that fails.

        `on_failure` is then called once, in a thread, to say so; after it this process ends.
        """
        if self.size == 1:
            return
        self.backend = backend
        own = self._meet(wait=False)  # a connection of its own: the main thread may be waiting on the other
        self._watcher = threading.Thread(target=self._watch, args=(own, on_failure), name="ranks", daemon=True)
        self._watcher.start()
        if backend == "gloo" and self.world.nodes > 1:
            name = interface_towards(self.world.master_addr, self.world.master_port)
            if name is not None:
                os.environ.setdefault("GLOO_SOCKET_IFNAME", name)
        if backend == "mpi":
            dist.init_process_group("mpi")
        else:
            options: Dict[str, Any] = {"store": dist.PrefixStore("torch", self._store), "timeout": TIMEOUT}
            if backend == "nccl" and "device_id" in inspect.signature(dist.init_process_group).parameters:
                options["device_id"] = device  # torch 2.3: else its barrier guesses the device, and warns
            dist.init_process_group(backend, rank=self.rank, world_size=self.size, **options)

    def _watch(self, store: Any, on_failure: Callable[[Failure], None]) -> None:
        while not self._leaving.wait(LOOK_S):
            gone = False
            try:
                failure = self._told(store)
            except RuntimeError:  # the store went away with the rank that kept it
                failure, gone = Failure(0, JobError.exit_code, JobError.gate, "rank 0 ended without saying why"), True
            if failure and failure.rank != self.rank and not self._leaving.is_set():
                on_failure(failure)
                if not gone:
                    store.add("acknowledged", 1)
                leave(failure.exit_code)

    def _tell(self, error: JobError) -> None:
        if self._store.add("failed", 1) == 1:  # the first to fail is the cause; what follows are its consequences
            self._store.set("failure", json.dumps(Failure.of(self.rank, error)))

    def _told(self, store: Any) -> Optional[Failure]:
        return Failure(*json.loads(store.get("failure"))) if store.add("failed", 0) else None

    def fail(self, error: JobError) -> Failure:
        """Tell the others that this rank ends. Returns the cause: this error, or that of the rank that failed first."""
        failure = Failure.of(self.rank, error)
        if self._watcher is not None:
            self._leaving.set()
            with contextlib.suppress(RuntimeError):
                self._tell(error)
                failure = self._told(self._store) or failure
        return failure

    def abandon(self, failure: Failure) -> None:
        """End this process, after a moment in which the others can hear why, before its connections break."""
        if self.size == 1:
            return
        if self._watcher is not None:
            with contextlib.suppress(RuntimeError):
                if failure.rank == self.rank:
                    self._await_acknowledged(self.size - 1)
                else:
                    self._store.add("acknowledged", 1)
        leave(failure.exit_code)

    def _await_acknowledged(self, count: int, patience_s: float = LINGER_S) -> None:
        deadline = time.monotonic() + patience_s
        while time.monotonic() < deadline and self._store.add("acknowledged", 0) < count:
            time.sleep(0.1)

    def part(self) -> None:
        """Part in good order, once every rank has come this far."""
        if self.size == 1:
            return
        dist.barrier()
        self._leaving.set()
        if self._watcher is not None:
            self._watcher.join()
        dist.barrier()  # rank 0 keeps the store: it goes only when nobody looks at it any more
        dist.destroy_process_group()

    # the meter's group

    def barrier(self) -> None:
        if self.size > 1:
            dist.barrier()

    def gather(self, thing: Any) -> List[Any]:
        """Every rank's `thing`, in order of rank, on every rank."""
        if self.size == 1:
            return [thing]
        things: List[Any] = [None] * self.size
        dist.all_gather_object(things, thing)
        return things


def interface_towards(address: str, port: int) -> Optional[str]:
    """The network interface by which this node reaches a host, for gloo: by itself it takes the one of the node's own
    name, which many sites let resolve to the loopback, where no other node can be reached.

    None where it is the loopback, or cannot be told (IPv6, no Linux).
    """
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as route:
            route.connect((address, port))  # a datagram socket sends nothing when it is connected
            own = socket.inet_aton(route.getsockname()[0])
            for _, name in socket.if_nameindex():
                with contextlib.suppress(OSError):  # an interface without an address
                    request = struct.pack("256s", name.encode()[:15])
                    if fcntl.ioctl(route.fileno(), _SIOCGIFADDR, request)[20:24] == own:
                        return None if name == "lo" else name
    except OSError:
        pass
    return None


def _resolve(world: World, attempts: int = 3) -> None:
    """Raise JobError when rank 0's host has no address here: torch would ask for it until its timeout."""
    for attempt in range(attempts):
        try:
            socket.getaddrinfo(world.master_addr, world.master_port)
            return
        except OSError as error:
            if attempt + 1 == attempts:
                raise JobError(
                    f"rank {world.rank} cannot find the host of rank 0, {world.master_addr} ({error}); set MASTER_ADDR "
                    "to an address that every node can reach"
                ) from None
            time.sleep(1.0)  # a name server that is asked by a thousand ranks at once


def leave(exit_code: int) -> NoReturn:
    """End this process at once: an orderly end would wait in the process group for ranks that are gone."""
    for worker in multiprocessing.active_children():
        worker.terminate()
    sys.stdout.flush()
    os._exit(exit_code)
