"""The processes of the test cluster's jobs: found by their marks, whatever they did to escape, and ended."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

from tests.clusters.slurm_daemons import stat_of, wait_for


def job_processes(folder: Path) -> set[int]:
    """Processes of the jobs of the cluster in `folder`: slurmstepds, what carries its marks, and their descendants."""
    found, parents = set(), {}
    for path in Path("/proc").iterdir():
        if path.name.isdigit():
            with contextlib.suppress(OSError):  # it may end, or be somebody else's, at any time
                pid = int(path.name)
                parents[pid] = int((path / "stat").read_text().rpartition(")")[2].split()[1])
                if _belongs(path, folder) and stat_of(pid):
                    found.add(pid)
    while more := {pid for pid, parent in parents.items() if parent in found and pid not in found and stat_of(pid)}:
        found |= more
    return found


def _belongs(path: Path, folder: Path) -> bool:
    if (path / "comm").read_text().startswith("slurmstepd"):  # its environment is overwritten by its title
        return (path / "cwd").readlink() == folder
    words = (path / "environ").read_bytes().split(b"\0")
    return f"SLURM_CONF={folder}/slurm.conf".encode() in words and any(w.startswith(b"SLURMD_NODENAME=") for w in words)


def kill_all(folder: Path) -> None:
    """SIGKILL to the jobs of the cluster in `folder`, until they are gone, and what they began meanwhile."""
    while found := {pid: stat_of(pid) for pid in job_processes(folder)}:
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        wait_for("its jobs are killed", lambda found=found: not any(_lives(*each) for each in found.items()))


def _lives(pid: int, before: tuple[str, str] | None) -> bool:
    now = stat_of(pid)
    return now is not None and before is not None and now[1] == before[1]
