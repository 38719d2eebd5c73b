"""`python -m platforms prune [NAME]`: shows what old runs have left, here or on a platform, and removes it."""

from __future__ import annotations

import argparse
import math
from functools import partial
from pathlib import Path

from platforms import checkout
from platforms.commands import find_run, old_runs
from platforms.config import schema
from platforms.config.schema import Platform, Site
from platforms.job import BenchError, RefusedError
from platforms.output import confirm_removal, leftover_table, print_errors, print_indented
from platforms.printable import printable
from platforms.rundir import run_archive
from platforms.rundir.retention import Retention
from platforms.schedulers import backend_of


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.add_argument("--yes", action="store_true", help="remove without asking")
    parser.add_argument("--dry-run", action="store_true", help="show it, and remove nothing")
    parser.add_argument(
        "--keep-days", metavar="N", help="what was changed in the last N days stays (default: site.yaml, else 30)"
    )
    parser.add_argument(
        "--keep-failed-days", metavar="N", help="what has failed stays N days (default: site.yaml, else 180)"
    )
    parser.add_argument(
        "--history", metavar="DIR", help="runs that are red in it stay (default: site.yaml, else history/ of the site)"
    )
    find_run.add_runs_dir(parser)


def main(options: argparse.Namespace) -> int:
    """Show leftovers and remove them. Returns 0 when all of them are gone, else 1. Raises BenchError."""
    site = checkout.site_folder(options.site)
    runs = find_run.runs_folder(options)
    if options.name is None:
        settings = schema.load_site(site)
        return _prune_runs(runs, _retention(options, settings), _named_runs(runs, site, settings, options), options)
    settings, platforms = checkout.load(site)
    platform = checkout.find(options.name, platforms)
    if backend_of(platform).file_keys.this_machine:
        raise RefusedError("this machine keeps what runs leave in runs/: python -m platforms prune, without a name")
    checkout.refuse_unready(platform, site, settings)
    named = _named_runs(runs, site, settings, options)
    return _prune_platform(platform, runs, _retention(options, settings), named, options)


def _prune_runs(runs: Path, retention: Retention, named: dict[str, str], options: argparse.Namespace) -> int:
    """Show old run folders of this machine, and archive them."""
    if not runs.is_dir():
        raise RefusedError(find_run.none_yet(runs))
    found = [retention.judge(leftover, named) for leftover in old_runs.find(runs)]
    going = [leftover.name for leftover in found if leftover.goes]
    interrupted = run_archive.interrupted(runs)
    print(f"{runs}: {retention}; `touch {runs}/RUN/{old_runs.PINNED}` keeps one for ever")
    print_indented(leftover_table(found, f"goes into {run_archive.OLD}/"))
    print_indented(
        f"{printable(path.name)}  an earlier prune was ended while it removed this: goes on" for path in interrupted
    )
    if not (going or interrupted):
        print("nothing is old enough to go")
        return 0
    if not confirm_removal(yes=options.yes, dry_run=options.dry_run):
        return 0 if options.dry_run else 1
    problems = []
    with run_archive.exclusive(runs) as why_no_lock:
        if why_no_lock:
            print(f"{why_no_lock}: let no other prune work in {runs} at the same time")
        steps = [partial(_finish, runs, path) for path in interrupted]
        steps += [partial(_archive, runs, name) for name in going]
        for step in steps:
            try:
                step()
            except BenchError as error:
                problems.append(str(error))
    latest = runs / find_run.LATEST
    if latest.is_symlink() and not latest.exists():
        latest.unlink(missing_ok=True)
    print(f"what is gone is in {runs / run_archive.OLD}: tar -xf FILE -C {runs} brings a run back")
    return print_errors(problems)


def _archive(runs: Path, name: str) -> None:
    """Archive a run and remove its folder. Raises BenchError."""
    archive = run_archive.archive_run(runs, name, old_runs.why_needed)
    print(f"{printable(name)} -> {archive}", flush=True)


def _finish(runs: Path, going: Path) -> None:
    """Finish the removal of a run that an earlier prune began. Raises BenchError."""
    archive = run_archive.finish_interrupted(runs, going)
    if archive is None:
        print(f"{printable(going.name)}: back in its place: no archive has it all", flush=True)
    else:
        print(f"{printable(going.name)} -> {archive}", flush=True)


def _prune_platform(
    platform: Platform, runs: Path, retention: Retention, named: dict[str, str], options: argparse.Namespace
) -> int:
    """Show what ended jobs have left on a platform, and remove what is old."""
    with backend_of(platform).leftovers(platform) as place:
        needed = old_runs.needed_jobs(runs, named)
        found = [retention.judge(leftover, needed) for leftover in place.find()]
        going = [leftover for leftover in found if leftover.goes]
        print(f"{place.where}: {retention}; what runs in {runs} still need stays")
        print_indented(leftover_table(found, "goes"))
        if not going:
            print("nothing is old enough to go")
            return 0
        if not confirm_removal(yes=options.yes, dry_run=options.dry_run):
            return 0 if options.dry_run else 1
        # Jobs may have begun while the person decided, so only what would go now as well is removed.
        needed = old_runs.needed_jobs(runs, named)
        still = {leftover.name for leftover in place.find() if retention.judge(leftover, needed).goes}
        confirmed = [leftover for leftover in going if leftover.name in still]
        problems = place.remove(confirmed)
        print(f"{len(confirmed) - len(problems)} of {len(going)} gone")
        return print_errors(problems) or int(len(confirmed) < len(going))


def _named_runs(runs: Path, site: Path, settings: Site, options: argparse.Namespace) -> dict[str, str]:
    """The runs that answers and open reds name. Raises RefusedError where these cannot be read."""
    history = site / Path(settings.history or "history").expanduser()
    if options.history is not None:
        history = Path(options.history).expanduser()
    if not history.is_dir() and not checkout.is_same(history, site / "history"):  # the first session makes that one
        raise RefusedError(f"there is no history {history}, which names the runs that are red: is it mounted?")
    return old_runs.named_runs(runs, site, history)


def _retention(options: argparse.Namespace, settings: Site) -> Retention:
    """How long leftovers are kept: the command line's choice, else the site's. Raises RefusedError."""
    days = _days("--keep-days", options.keep_days, settings.keep_days)
    return Retention(days, _days("--keep-failed-days", options.keep_failed_days, settings.keep_failed_days))


def _days(option: str, typed: str | None, default: float) -> float:
    if typed is None:
        return default
    try:
        days = float(typed)
    except ValueError:
        days = math.nan
    if not days >= 0:
        raise RefusedError(f"{option}: {typed!r} is no number of days (as in 30; 0 keeps nothing)")
    return days
