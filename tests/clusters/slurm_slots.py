"""A place for one test cluster: a folder and a port range that no other session on this machine is using."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from tests.clusters.slurm import INSTALL, PORTS, PROGRAMS, Cluster
from tests.clusters.slurm_daemons import ClusterError, listening_ports
from tests.programs import require

FIRST_PORT = 17400
SLOTS = 16
USERS = 40  # so many that share a machine have ports of their own


@contextlib.contextmanager
def slot() -> Iterator[tuple[Path, int]]:
    """An empty folder and its base port, ours until the end. A test is skipped where Slurm's programs are missing.

    The folders have fixed names, so that a cluster whose session was killed is found here and ended. The lock goes with
    the process that holds it, however that ends.

    Raises:
        ClusterError: all of them are in use.
    """
    require(*PROGRAMS, install=INSTALL)
    home = Path(tempfile.gettempdir()) / f"hpc-ml-bench-slurm-{os.getuid()}"
    home.mkdir(mode=0o700, exist_ok=True)
    if home.stat().st_uid != os.getuid():
        raise ClusterError(f"{home} belongs to somebody else")
    first_port = FIRST_PORT + os.getuid() % USERS * SLOTS * PORTS
    for number in range(SLOTS):
        folder, port = home / str(number), first_port + number * PORTS
        with (home / f"{number}.lock").open("w") as lock:
            if not _free(lock):
                continue
            Cluster(folder, port).down()
            if listening_ports().isdisjoint(range(port, port + PORTS)):
                shutil.rmtree(folder, ignore_errors=True)
                yield folder, port
                return
    raise ClusterError(f"all {SLOTS} places under {home} are in use")


def _free(lock: IO[str]) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
