"""Control groups for tests: a real one of this machine where it lets us make one, or files as a kernel shows them."""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path

MOUNTS = {
    1: "42 32 0:36 {mounted} /sys/fs/cgroup/{controller} rw,relatime - cgroup cgroup rw,{controller}\n",
    2: "30 23 0:26 {mounted} /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n",
}
PERIOD_US = 100_000


def show(root: Path, path: str, files: Mapping[str, str], version: int = 2, mounted: str = "/") -> str:
    """Let /proc/self say that this process is in the group `path`; `files`: by their paths below the mount point."""
    (root / "proc/self").mkdir(parents=True, exist_ok=True)
    lines = [f"4:memory:{path}\n", f"3:cpu,cpuacct:{path}\n"] if version == 1 else []
    mounts = [MOUNTS[version].format(mounted=mounted, controller=name) for name in ("memory", "cpu,cpuacct")]
    (root / "proc/self/cgroup").write_text("".join([*lines, f"0::{path if version == 2 else '/'}\n"]))
    (root / "proc/self/mountinfo").write_text("22 1 8:1 / / rw - ext4 /dev/vda1 rw\n" + "".join(mounts))
    for name, text in files.items():
        file = root / "sys/fs/cgroup" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return str(root)


@contextlib.contextmanager
def real_quota(cores: float) -> Iterator[Path | None]:
    """The `cgroup.procs` of a new group below one with that quota; None where this machine lets us make none."""
    name = f"hpcml-test-{uuid.uuid4().hex[:8]}"
    made: list[Path] = []
    try:
        made = _make(name, cores)
        yield made[-1] / "cgroup.procs" if made else None
    finally:
        for folder in reversed(made):
            folder.rmdir()


def _make(name: str, cores: float) -> list[Path]:
    quota_us = int(cores * PERIOD_US)
    for top, file, text in (
        (Path("/sys/fs/cgroup/cpu"), "cpu.cfs_quota_us", str(quota_us)),
        (Path("/sys/fs/cgroup"), "cpu.max", f"{quota_us} {PERIOD_US}"),
    ):
        outer = top / name
        if not (top / "cgroup.procs").exists() or not os.access(top, os.W_OK):
            continue
        with contextlib.suppress(OSError):
            outer.mkdir()
            if (outer / file).exists():
                (outer / file).write_text(text)
                (outer / "inner").mkdir()
                return [outer, outer / "inner"]
            outer.rmdir()
    return []
