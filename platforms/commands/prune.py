"""`python -m platforms prune [NAME]`: shows what old runs have left, here or on a platform, and removes it."""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from platforms import checkout
from platforms.commands import find_run, old_code, old_runs
from platforms.config import schema
from platforms.config.schema import Site
from platforms.job import BenchError, RefusedError
from platforms.output import confirm_removal, format_size, leftover_table, print_errors, print_indented
from platforms.printable import printable
from platforms.rundir import run_archive
from platforms.rundir.accepted_runs import read_accepted_runs
from platforms.rundir.retention import Leftover, Retention
from platforms.schedulers import PruneOptions, backend_of

# Options that one scheduler takes and another does not; each backend names its own.
OF_PLATFORMS = ("run", "keep_days", "keep_failed_days", "older_than", "kubeconfig", "context", "namespace", "live")
OF_CLUSTERS = ("older_than", "kubeconfig", "context", "namespace", "live")
OF_FOLDERS = ("keep_days", "keep_failed_days")


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.add_argument("--run", metavar="RUN", help="only this run: its id, latest, or on a cluster its label r…")
    parser.add_argument("--yes", action="store_true", help="remove without asking")
    parser.add_argument("--dry-run", action="store_true", help="show it, and remove nothing")
    find_run.add_runs_dir(parser)
    folders = parser.add_argument_group("folders, here and in a platform's work_dir")
    folders.add_argument(
        "--keep-days", metavar="N", help="what was changed in the last N days stays (default: site.yaml, else 30)"
    )
    folders.add_argument(
        "--keep-failed-days", metavar="N", help="what has failed stays N days (default: site.yaml, else 180)"
    )
    cluster = parser.add_argument_group("Kubernetes")
    cluster.add_argument("--older-than", metavar="TIME", help="only what is at least that old: 2h, 3-00:00:00")
    for name in ("kubeconfig", "context", "namespace"):
        cluster.add_argument(f"--{name}", help=f"where a test with its own {name}= has left them")
    cluster.add_argument("--live", action="store_true", help="also jobs that still wait or run")


def main(options: argparse.Namespace) -> int:
    """Show leftovers and remove them. Returns 0 when all of them are gone, else 1. Raises BenchError."""
    site = checkout.site_folder(options.site)
    runs = find_run.runs_folder(options)
    if options.run is not None:
        options.run = find_run.plain(runs, options.run)
    if options.run == find_run.LATEST:
        options.run = find_run.latest(runs)
    if options.name is None:
        _refuse(options, OF_CLUSTERS, "is for a platform of Kubernetes: python -m platforms prune NAME")
        return prune_runs(runs, _retention(options, schema.load_site(site), site), options)
    settings, platforms = checkout.load(site)
    platform = checkout.find(options.name, platforms)
    backend = backend_of(platform)
    if backend.file_keys.this_machine:
        raise RefusedError("this machine keeps what runs leave in runs/: python -m platforms prune, without a name")
    checkout.refuse_unready(platform, site, settings)
    retention = _retention(options, settings, site)
    given = {name: getattr(options, name) for name in OF_PLATFORMS if getattr(options, name)}
    for name in given:
        if name not in backend.prune_options:
            takes = ", ".join(_typed(option) for option in backend.prune_options)
            raise RefusedError(f"{_typed(name)} means nothing to scheduler {platform.scheduler}, which takes {takes}")
    prune_options = PruneOptions(
        retention=retention,
        runs=runs,
        needed_jobs=partial(old_runs.needed_jobs, runs, retention.accepted),
        given=given,
        yes=options.yes,
        dry_run=options.dry_run,
    )
    return backend.prune(platform, prune_options)


def prune_runs(runs: Path, retention: Retention, options: argparse.Namespace) -> int:
    """Show and archive old run folders of this machine. Returns and raises as main."""
    if not runs.is_dir():
        raise RefusedError(find_run.none_yet(runs))
    listing = old_runs.look(runs, retention, options.run)
    going = [leftover for leftover in listing.runs if leftover.goes]
    code: list[Leftover] = []
    code_unknown = ""
    if options.run is None:
        code, code_unknown = old_code.look(runs, retention, listing.staying)

    print(f"{runs}: {retention}; `touch {runs}/RUN/{old_runs.PINNED}` keeps one for ever")
    print_indented(leftover_table(listing.runs, f"goes into {run_archive.OLD}/"))
    print_indented(leftover_table(code, "goes: code that no run here needs"))
    print_indented(
        f"{printable(name)}  an earlier prune was ended while it removed this: goes on" for name in listing.broken
    )
    if listing.foreign:
        print(f"left alone, since they are no runs': {', '.join(printable(name) for name in listing.foreign)}")
    if code_unknown:
        print(f"code archives are left alone: {code_unknown}")
    if not (going or code or listing.broken):
        print("nothing is old enough to go")
        return 0
    if not confirm_removal(yes=options.yes, dry_run=options.dry_run):
        return 0 if options.dry_run else 1
    with run_archive.exclusive(runs, report=print):
        problems = _remove(runs, retention, listing.broken, going, code)
    done = len(going) + len(code) + len(listing.broken) - len(problems)
    print(f"{done} gone; what was a run is in {runs / run_archive.OLD}: tar -xf FILE -C {runs} brings one back")
    return print_errors(problems)


def _remove(
    runs: Path, retention: Retention, broken: Sequence[str], going: Sequence[Leftover], code: Sequence[Leftover]
) -> list[str]:
    """Take every step of a removal. Returns why some could not be taken."""
    all_runs = [path for path in runs.iterdir() if old_runs.may_be_run(path)]
    unneeded = old_code.look(runs, retention, all_runs)[0] if code else []
    first = [leftover.name for leftover in unneeded]
    afterwards = sorted({leftover.name for leftover in code}.difference(first))

    steps: list[Callable[[], None]] = [partial(_finish, runs, name) for name in broken]
    # Code that no run needs goes first: on a full disk the archives of runs need the room.
    steps += [partial(old_code.remove, runs, name) for name in first]
    steps += [partial(_archive, runs, leftover, retention) for leftover in going]
    steps += [partial(old_code.remove, runs, name) for name in afterwards]
    problems = []
    for step in steps:
        try:
            step()
        except BenchError as error:
            problems.append(str(error))
    latest = runs / "latest"
    if latest.is_symlink() and not latest.exists():
        latest.unlink(missing_ok=True)
    return problems


def _archive(runs: Path, leftover: Leftover, retention: Retention) -> None:
    """Archive a run and remove its folder. Raises BenchError, also where the run is needed since it was shown."""
    name = printable(leftover.name)
    if not old_runs.run_leftover(runs / leftover.name, retention, time.time()).goes:
        raise RefusedError(f"{name} stays: it was changed, or is needed, since it was shown")
    archive = run_archive.archive_run(runs, leftover.name, old_runs.why_needed)
    sizes = f"{format_size(leftover.size_bytes)} -> {archive} ({format_size(archive.stat().st_size)})"
    print(f"{name}: {sizes}", flush=True)


def _finish(runs: Path, name: str) -> None:
    """Finish the removal of a run that an earlier prune began."""
    archive = run_archive.finish_interrupted(runs, name)
    if archive:
        print(f"{printable(name)}: removed, {archive} has it")
    else:
        print(f"{printable(name)}: back in its place: no archive has it all")


def _retention(options: argparse.Namespace, settings: Site, site: Path) -> Retention:
    """How long leftovers are kept: the command line's choice, else the site's. Raises RefusedError."""
    days, failed_days = (_days(options, name, getattr(settings, name)) for name in OF_FOLDERS)
    return Retention(days, failed_days, read_accepted_runs(site))


def _days(options: argparse.Namespace, name: str, default: float) -> float:
    text = getattr(options, name)
    if text is None:
        return default
    try:
        days = float(text)
    except ValueError:
        days = math.nan
    if not days >= 0:
        raise RefusedError(f"{_typed(name)}: {text!r} is no number of days (as in 30; 0 keeps nothing)")
    return days


def _typed(option: str) -> str:
    return f"--{option.replace('_', '-')}"


def _refuse(options: argparse.Namespace, names: Sequence[str], why: str) -> None:
    """Raise RefusedError for an option that means nothing here."""
    for name in names:
        if getattr(options, name):
            raise RefusedError(f"{_typed(name)} {why}")
