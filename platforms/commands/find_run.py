"""Which run a person means who types its name: in which folder of runs, `latest`, and what is said of one that is not
there."""

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
SHOWN = 5  # names of runs in a message


@dataclass(frozen=True)
class Typed:
    """What was typed to say where runs and the site are, for commands to be typed next."""

    site: str = ""
    runs_dir: str = ""

    @classmethod
    def of(cls, options: argparse.Namespace) -> Typed:
        return cls(options.site or "", options.runs_dir or "")

    @classmethod
    def of_runs(cls, runs: Path) -> Typed:
        """For those who know the folder of runs, and no more."""
        return cls(runs_dir="" if runs == checkout.ROOT / "runs" else str(runs))

    def command(self, words: str) -> str:
        """Of this program: `python -m platforms jobs RUN`."""
        return f"python -m platforms {words}{self._where}"

    def resume(self, run_id: str) -> str:
        return f"pytest --resume={shlex.quote(run_id)}{self._where}"

    @property
    def _where(self) -> str:
        named = {"--site": self.site, "--runs-dir": self.runs_dir}
        return "".join(f" {option}={shlex.quote(value)}" for option, value in named.items() if value)


def add_folder(parser: argparse.ArgumentParser) -> None:
    """--runs-dir."""
    parser.add_argument(
        "--runs-dir",
        metavar="DIR",
        help="the folder of runs (default: runs/ of the suite, or of the folder that --site names)",
    )


def folder(options: argparse.Namespace) -> Path:
    """The folder of runs; the suite's own need not be there yet. Raises RefusedError for a named one that is not, and
    where a link leads to nothing: a file system that is not mounted may hold runs."""
    named = checkout.home(options.site) / "runs" if options.runs_dir is None else Path(options.runs_dir)
    if named.is_symlink() and not named.exists():
        raise RefusedError(f"{named} is a link to {named.readlink()}, which is not there: is its file system mounted?")
    if options.runs_dir is not None and not named.is_dir():
        raise RefusedError(f"--runs-dir: there is no folder {named}; it is the one in which each run has a folder")
    return named


def named(runs: Path, word: str) -> str:
    """The id of the run that is meant: the newest one's for `latest`. Raises RefusedError where there is none."""
    word = plain(runs, word)
    if word == LATEST:
        return latest(runs)
    if word not in session_history.recorded(runs):
        raise RefusedError(missing(runs, word))
    return word


def plain(runs: Path, word: str) -> str:
    """A run's id, which may be typed as its folder, as a shell completes it: RUN/, runs/RUN/. Raises RefusedError."""
    if not word:
        raise RefusedError("RUN is empty: type a run's id, or latest; was it a variable that is not set?")
    if Path(word).absolute().parent in (runs.absolute(), Path("runs").absolute()):
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
    """The ids of runs that a session has left open, the last one first; and why those are not known that cannot be
    read."""
    began_s, unread = _began(runs, open_only=True)
    return sorted(began_s, key=began_s.__getitem__, reverse=True), unread


def _began(runs: Path, *, open_only: bool) -> tuple[dict[str, float], list[str]]:
    """When the last session of each run began, and what cannot be read."""
    found: dict[str, float] = {}
    unread: list[str] = []
    for name in session_history.recorded(runs):
        try:
            sessions = session_history.sessions(runs / name)
        except BenchError as error:
            unread.append(f"run {printable(name)}: {error}")
            continue
        began_s = [past.began_s for past in sessions if past.open or not open_only]
        found |= {name: max(began_s)} if began_s else {}
    return found, unread


def missing(runs: Path, word: str) -> str:
    """Why there is no run of that name, and what can be typed."""
    if archives := run_archive.archives(runs, word):
        back = f"tar -xf {shlex.quote(str(archives[-1]))} -C {shlex.quote(str(runs))}"
        return f"run {word} is archived in {', '.join(map(str, archives))}; this brings it back: {back}"
    if "/" not in word and (runs / word).is_dir():
        return f"{runs / printable(word)} holds no record of a session, so nobody knows its jobs; its logs lie there"
    there = session_history.recorded(runs)
    if not there:
        return none_yet(runs)
    more = f" and {len(there) - SHOWN} more" if len(there) > SHOWN else ""
    last = ", ".join(map(printable, sorted(there, reverse=True)[:SHOWN]))
    return f"there is no run {printable(word)} in {runs}, but {last}{more} (--runs-dir names another folder)"


def none_yet(runs: Path) -> str:
    """For who asks for runs where there are none."""
    return f"no runs yet in {runs} (--runs-dir names another folder)"
