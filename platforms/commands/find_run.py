"""Finds the run that a person typed: in which folder of runs, by its id, its folder or `latest`."""

from __future__ import annotations

import argparse
import shlex
from dataclasses import dataclass
from pathlib import Path

from platforms import checkout
from platforms.job import BenchError, RefusedError
from platforms.printable import printable
from platforms.rundir import run_archive, session_history

LATEST = "latest"
RUNS_PER_MESSAGE = 5


@dataclass(frozen=True)
class TypedOptions:
    """--site and --runs-dir as they were typed, for commands that a person should type next."""

    site: str = ""
    runs_dir: str = ""

    @classmethod
    def of(cls, options: argparse.Namespace) -> TypedOptions:
        return cls(options.site or "", options.runs_dir or "")

    @classmethod
    def of_runs(cls, runs: Path) -> TypedOptions:
        """The options that name this folder of runs; its site is not known."""
        return cls(runs_dir="" if checkout.is_same(runs, checkout.ROOT / "runs") else str(runs))

    def command(self, words: str) -> str:
        """A command of this program, as in `python -m platforms jobs RUN`."""
        return f"python -m platforms {words}{self._where}"

    def resume(self, run_id: str) -> str:
        return f"pytest --resume={shlex.quote(run_id)}{self._where}"

    @property
    def _where(self) -> str:
        named = {"--site": self.site, "--runs-dir": self.runs_dir}
        return "".join(f" {option}={shlex.quote(value)}" for option, value in named.items() if value)


def add_runs_dir(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--runs-dir",
        metavar="DIR",
        help="the folder of runs (default: runs/ of the suite, or of the folder that --site names)",
    )


def runs_folder(options: argparse.Namespace) -> Path:
    """The folder of runs. The suite's own need not exist yet.

    Raises RefusedError for a --runs-dir that does not exist, and for a broken link: a file system that is not mounted
    may hold runs.
    """
    runs = checkout.home(options.site) / "runs" if options.runs_dir is None else Path(options.runs_dir)
    if runs.is_symlink() and not runs.exists():
        raise RefusedError(f"{runs} is a link to {runs.readlink()}, which is not there: is its file system mounted?")
    if options.runs_dir is not None and not runs.is_dir():
        raise RefusedError(f"--runs-dir: there is no folder {runs}; it is the one in which each run has a folder")
    return runs


def named(runs: Path, word: str) -> str:
    """The id of the run that is meant: the newest one's for `latest`. Raises RefusedError where there is none."""
    word = plain(runs, word)
    if word == LATEST:
        return latest(runs)
    if word not in session_history.runs_with_sessions(runs):
        raise RefusedError(missing(runs, word))
    return word


def plain(runs: Path, word: str) -> str:
    """A run's id, which may be typed as its folder, as a shell completes it: RUN/, runs/RUN/. Raises RefusedError."""
    if not word:
        raise RefusedError("RUN is empty: type a run's id, or latest; was it a variable that is not set?")
    if any(checkout.is_same(Path(word).parent, folder) for folder in (runs, Path("runs"))):
        return Path(word).name
    return word.rstrip("/") or word


def latest(runs: Path) -> str:
    """The newest run. Raises RefusedError where there is none."""
    link = runs / LATEST
    if link.is_symlink() and link.exists():
        return link.resolve().name
    began_s, unread = _began(runs, open_only=False)
    if not began_s:
        raise RefusedError("; ".join(unread) or none_yet(runs))
    return max(began_s, key=began_s.__getitem__)


def unfinished(runs: Path) -> tuple[list[str], list[str]]:
    """The ids of runs that a session left unfinished, the last one first, and why other runs cannot be read."""
    began_s, unread = _began(runs, open_only=True)
    return sorted(began_s, key=began_s.__getitem__, reverse=True), unread


def _began(runs: Path, *, open_only: bool) -> tuple[dict[str, float], list[str]]:
    """When the last session of each run began, in Unix seconds, and why other runs cannot be read."""
    began_s: dict[str, float] = {}
    unread: list[str] = []
    for name in session_history.runs_with_sessions(runs):
        try:
            sessions = session_history.read_sessions(runs / name)
        except BenchError as error:
            unread.append(f"run {printable(name)}: {error}")
            continue
        times = [session.began_s for session in sessions if session.open or not open_only]
        if times:
            began_s[name] = max(times)
    return began_s, unread


def missing(runs: Path, word: str) -> str:
    """Why there is no run of that name, and what can be typed."""
    archives = run_archive.archives(runs, word)
    if archives:
        back = f"tar -xf {shlex.quote(str(archives[-1]))} -C {shlex.quote(str(runs))}"
        return f"run {word} is archived in {', '.join(map(str, archives))}; this brings it back: {back}"
    if "/" not in word and (runs / word).is_dir():
        return f"{runs / printable(word)} holds no record of a session, so its jobs are not known; its logs lie there"
    run_ids = sorted(session_history.runs_with_sessions(runs), reverse=True)
    if not run_ids:
        return none_yet(runs)
    names = ", ".join(printable(run_id) for run_id in run_ids[:RUNS_PER_MESSAGE])
    if len(run_ids) > RUNS_PER_MESSAGE:
        names += f" and {len(run_ids) - RUNS_PER_MESSAGE} more"
    return f"there is no run {printable(word)} in {runs}, but {names} (--runs-dir names another folder)"


def none_yet(runs: Path) -> str:
    return f"no runs yet in {runs} (--runs-dir names another folder)"
