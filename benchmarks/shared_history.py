"""What a history in a branch costs: each night of a year is pushed, then the branch is pulled and cloned.

    python -m tests.reporting.report_year YEAR
    python benchmarks/shared_history.py YEAR

The second command reads YEAR/history. It works in a temporary folder, with a bare repository as the server, which git
reaches as it reaches one behind ssh: all bytes go through two pipes, where they are counted.
"""

from __future__ import annotations

import argparse
import datetime
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from platforms.output import format_size
from reporting.shared_branch import history_files
from reporting.shared_branch.branch import SharedBranch
from reporting.shared_branch.remote import Remote

SHOWN = 30  # nights at the beginning and at the end, of which the median is shown
COUNTING = """#!/bin/sh
tee -a {counts}/to-server | {program} "$@" | tee -a {counts}/from-server
"""


@dataclass(frozen=True)
class Cost:
    """Of one command. Bytes are those between git and the server."""

    seconds: float
    sent: int
    received: int


class Server:
    """A bare repository, and what is sent to it and received from it."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "server.git"
        self._counts = folder / "counts"
        self._counts.mkdir()
        subprocess.run(["git", "init", "-q", "--bare", "-b", "main", str(self.path)], check=True)
        config = [("remote.counted.url", f"file://{self.path}")]
        for key in ("uploadpack", "receivepack"):
            program = self._counts / key
            words = {"uploadpack": "git-upload-pack", "receivepack": "git-receive-pack"}
            program.write_text(COUNTING.format(counts=shlex.quote(str(self._counts)), program=words[key]))
            program.chmod(0o755)
            config.append((f"remote.counted.{key}", str(program)))
        self.remote = Remote("counted", tuple(config))

    def counted(self) -> tuple[int, int]:
        """Bytes sent and received so far."""
        sizes = [self._counts / name for name in ("to-server", "from-server")]
        sent, received = (path.stat().st_size if path.exists() else 0 for path in sizes)
        return sent, received

    def size(self) -> str:
        return size_of(self.path / "objects")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("year", metavar="YEAR", type=Path, help="a folder that report_year.py has made")
    options = parser.parse_args()
    nights = sessions_by_night(options.year / "history")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ["XDG_CACHE_HOME"] = str(folder / "cache")
        server = Server(folder)
        history = folder / "history"
        pushes = [push_night(server, history, night, paths) for night, paths in sorted(nights.items())]
        lines = sum(path.read_bytes().count(b"\n") for path in history.rglob("*.jsonl"))
        print(f"{len(nights)} nights, {lines:,} lines, {size_of(history)} in {count_files(history):,} files")
        show("push, of the first nights", pushes[:SHOWN])
        show("push, of the last nights", pushes[-SHOWN:])
        shutil.rmtree(folder / "cache")  # as on a machine that has no clone yet
        show("pull into an empty folder", [pull(server, folder / "empty")])
        print(f"  which then has {count_files(folder / 'empty')} files of {size_of(folder / 'empty')}")
        show("pull again", [pull(server, folder / "empty")])
        print(f"  the clone that is kept has {size_of(folder / 'cache')}")
        for depth in (["--depth=1"], []):
            clone = folder / f"clone{len(depth)}"
            words = ["git", "clone", "-q", *depth, "-b", "bench-history", f"file://{server.path}", str(clone)]
            begin = time.monotonic()
            subprocess.run(words, check=True)
            took = time.monotonic() - begin
            print(f"{' '.join(['git clone', *depth])}: {took:.1f} s, .git has {size_of(clone / '.git')}")
        before = server.size()
        subprocess.run(["git", "-C", str(server.path), "gc", "-q", "--prune=now"], check=True)
        print(f"the server has {before}, and {server.size()} after its garbage collection")
    return 0


def sessions_by_night(history: Path) -> dict[datetime.date, list[Path]]:
    """The files of sessions, by the date in their names."""
    found: dict[datetime.date, list[Path]] = defaultdict(list)
    for path in history.glob("*/*.jsonl"):
        found[datetime.datetime.strptime(path.name[:8], "%Y%m%d").date()].append(path)
    return found


def push_night(server: Server, history: Path, night: datetime.date, paths: list[Path]) -> Cost:
    """Copy the sessions of a night, and push as `python -m reporting push` does."""
    for path in paths:
        month = history / path.parent.name
        month.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, month)
    begin, before = time.monotonic(), server.counted()

    def write(folder: Path) -> None:
        history_files.bring(history, folder / history_files.FOLDER, details=False)

    SharedBranch(server.remote).change(write, f"the night of {night}")
    return cost(server, begin, before)


def pull(server: Server, history: Path) -> Cost:
    """Pull as `python -m reporting pull` does."""
    begin, before = time.monotonic(), server.counted()
    with SharedBranch(server.remote).read() as folder:
        assert folder is not None
        history_files.bring(folder / history_files.FOLDER, history, details=False)
    return cost(server, begin, before)


def cost(server: Server, begin: float, before: tuple[int, int]) -> Cost:
    sent, received = server.counted()
    return Cost(time.monotonic() - begin, sent - before[0], received - before[1])


def show(what: str, costs: list[Cost]) -> None:
    seconds = median(each.seconds for each in costs)
    sent, received = (median(getattr(each, name) for each in costs) for name in ("sent", "received"))
    print(f"{what}: {seconds:.2f} s, {format_size(sent)} sent, {format_size(received)} received")


def size_of(folder: Path) -> str:
    return format_size(sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()))


def count_files(folder: Path) -> int:
    return sum(path.is_file() for path in folder.rglob("*"))


if __name__ == "__main__":
    sys.exit(main())
