"""`python -m platforms prune [NAME]`: what old runs have left, here or on a platform, shown, and then taken away."""

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
    """Returns 0 when nothing is left of what was shown, 1 when something is, or nobody said yes. Raises BenchError."""
    site, runs = checkout.site_folder(options.site), find_run.runs_folder(options)
    if options.run is not None:
        options.run = find_run.plain(runs, options.run)
    if options.run == find_run.LATEST:
        options.run = find_run.latest(runs)
    if options.name is None:
        _refuse(options, OF_CLUSTERS, "is for a platform of Kubernetes: python -m platforms prune NAME")
        return of_runs(runs, _keep(options, schema.load_site(site)), options)
    settings, platforms = checkout.load(site)
    platform = checkout.find(options.name, platforms)
    backend = backend_of(platform)
    if backend.file_keys.this_machine:
        raise RefusedError("this machine keeps what runs leave in runs/: python -m platforms prune, without a name")
    checkout.refuse_unready(platform, site, settings)
    given = {name: getattr(options, name) for name in OF_PLATFORMS if getattr(options, name)}
    for name in given:
        if name not in backend.prune_options:
            takes = ", ".join(_typed(option) for option in backend.prune_options)
            raise RefusedError(f"{_typed(name)} means nothing to scheduler {platform.scheduler}, which takes {takes}")
    prune_options = PruneOptions(
        retention=_keep(options, settings),
        runs=runs,
        needed_jobs=partial(old_runs.needed_jobs, runs),
        given=given,
        yes=options.yes,
        dry_run=options.dry_run,
    )
    return backend.prune(platform, prune_options)


# --- runs/ -----------------------------------------------------------------------------------------------------------


def of_runs(runs: Path, keep: Retention, options: argparse.Namespace) -> int:
    """As main, for the folders of runs here."""
    if not runs.is_dir():
        raise RefusedError(find_run.none_yet(runs))
    found = old_runs.look(runs, keep, options.run)
    code, untold = old_code.look(runs, keep, found.stay) if options.run is None else ([], "")
    going = [each for each in found.runs if each.goes]
    print(f"{runs}: {keep}; `touch {runs}/RUN/{old_runs.PINNED}` keeps one for ever")
    print_indented(leftover_table(found.runs, f"goes into {run_archive.OLD}/"))
    print_indented(leftover_table(code, "goes: code that no run here needs"))
    print_indented(
        f"{printable(name)}  an earlier prune was ended while it removed this: goes on" for name in found.broken
    )
    if found.foreign:
        print(f"left alone, since they are no runs': {', '.join(map(printable, found.foreign))}")
    if untold:
        print(f"code archives are left alone: {untold}")
    if not (going or code or found.broken):
        print("nothing is old enough to go")
        return 0
    if not _agreed(options):
        return int(not options.dry_run)
    with run_archive.alone(runs, tell=print):
        here = [path for path in runs.iterdir() if old_runs.may_be_run(path)]
        free, _untold = old_code.look(runs, keep, here) if code else ([], "")
        steps = [partial(_finish, runs, name) for name in found.broken]
        steps += [partial(old_code.take, runs, left.name) for left in free]  # on a full disk archives need the room
        steps += [partial(_put_away, runs, left, keep) for left in going]
        rest = {left.name for left in code} - {left.name for left in free}
        steps += [partial(old_code.take, runs, name) for name in sorted(rest)]
        wrong = _each(steps)
        _unlink_latest(runs)
    done = len(going) + len(code) + len(found.broken) - len(wrong)
    print(f"{done} gone; what was a run is in {runs / run_archive.OLD}: tar -xf FILE -C {runs} brings one back")
    return print_errors(wrong)


def _put_away(runs: Path, left: Leftover, keep: Retention) -> None:
    """Unless somebody has begun to need it since it was shown. Raises BenchError."""
    if not old_runs.run(runs / left.name, keep, time.time()).goes:
        raise RefusedError(f"{printable(left.name)} stays: it was changed, or is needed, since it was shown")
    archive = run_archive.put_away(runs, left.name, old_runs.needed)
    print(
        f"{printable(left.name)}: {format_size(left.size_bytes)} -> {archive} ({format_size(archive.stat().st_size)})",
        flush=True,
    )


def _finish(runs: Path, name: str) -> None:
    archive = run_archive.finish(runs, name)
    print(
        f"{printable(name)}: "
        + (f"removed, {archive} has it" if archive else "back in its place: no archive has it all")
    )


def _unlink_latest(runs: Path) -> None:
    """Where what it leads to is gone."""
    latest = runs / "latest"
    if latest.is_symlink() and not latest.exists():
        latest.unlink(missing_ok=True)


# --- all of them -----------------------------------------------------------------------------------------------------


def _agreed(options: argparse.Namespace) -> bool:
    return confirm_removal(yes=options.yes, dry_run=options.dry_run)


def _each(steps: Sequence[Callable[[], None]]) -> list[str]:
    """Take every step. Returns why some could not be taken."""
    wrong = []
    for step in steps:
        try:
            step()
        except BenchError as error:
            wrong.append(str(error))
    return wrong


def _keep(options: argparse.Namespace, settings: Site) -> Retention:
    """The command line's, else the site's. Raises RefusedError."""
    return Retention(*(_days(options, name, getattr(settings, name)) for name in OF_FOLDERS))


def _days(options: argparse.Namespace, name: str, default: float) -> float:
    text = getattr(options, name)
    if text is None:
        return default
    try:
        days = float(text)
    except ValueError:
        days = math.nan
    if not days >= 0:
        raise RefusedError(f"--{name.replace('_', '-')}: {text!r} is no number of days (as in 30; 0 keeps nothing)")
    return days


def _typed(option: str) -> str:
    return f"--{option.replace('_', '-')}"


def _refuse(options: argparse.Namespace, names: Sequence[str], why: str) -> None:
    """Raises RefusedError for an option that means nothing here."""
    for name in names:
        if getattr(options, name):
            raise RefusedError(f"--{name.replace('_', '-')} {why}")
