"""`python -m platforms prune [NAME]`: what old runs have left, here or on a platform, shown, and then taken away."""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from platforms import checkout, config, old_runs, run_archive, transports
from platforms.config import Platform, Site
from platforms.job import BenchError, RefusedError, run_label
from platforms.keeping import Keep, Left, shown, size, table
from platforms.schedulers import work_dir
from platforms.values import seconds_of

GONE_S = 60.0  # graceful ends take their time
FRESH_S = 600.0  # a session brings its code once, and may be about to make the first job that mounts it
OF_CLUSTERS = ("older_than", "kubeconfig", "context", "namespace", "live")
OF_FOLDERS = ("keep_days", "keep_failed_days")


def add(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.add_argument("--run", metavar="RUN", help="only this run: its id, or on a cluster its label r…")
    parser.add_argument("--yes", action="store_true", help="remove without asking")
    parser.add_argument("--dry-run", action="store_true", help="show it, and remove nothing")
    parser.add_argument("--runs-dir", metavar="DIR", default=str(checkout.ROOT / "runs"), help="default: runs/")
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
    site = checkout.site_folder(options.site)
    if options.name is None:
        _refuse(options, OF_CLUSTERS, "is for a platform of Kubernetes: python -m platforms prune NAME")
        return of_runs(Path(options.runs_dir), _keep(options, config.load_site(site)), options)
    settings, platforms = checkout.load(site)
    platform = checkout.find(options.name, platforms)
    if platform.scheduler == "local":
        raise RefusedError("this machine keeps what runs leave in runs/: python -m platforms prune, without a name")
    checkout.refuse_unready(platform, site, settings)
    if platform.scheduler == "kubernetes":
        _refuse(options, OF_FOLDERS, f"is for folders; {platform.name} is a cluster: --older-than TIME")
        return of_cluster(platform, options)
    _refuse(options, OF_CLUSTERS, f"is for Kubernetes; for {platform.name} there are --keep-days, --keep-failed-days")
    _refuse(options, ("run",), f"is for runs/ and Kubernetes: folders on {platform.name} have the names of jobs")
    return of_work_dir(platform, _keep(options, settings), options)


# --- runs/ -----------------------------------------------------------------------------------------------------------


def of_runs(runs: Path, keep: Keep, options: argparse.Namespace) -> int:
    """As main, for the folders of runs here."""
    if not runs.is_dir():
        raise RefusedError(f"there is no folder {runs} (--runs-dir names another one)")
    found = old_runs.look(runs, keep, options.run)
    going = [each for each in found.runs if each.goes]
    print(f"{runs}: {keep}; `touch {runs}/RUN/{old_runs.PINNED}` keeps one for ever")
    _show(table(found.runs, f"goes into {run_archive.OLD}/"))
    _show(table(found.code, "goes: code that no run here needs"))
    _show(f"{shown(name)}  an earlier prune was ended while it removed this: goes on" for name in found.broken)
    if found.foreign:
        print(f"left alone, since they are no runs': {', '.join(map(shown, found.foreign))}")
    if not (going or found.code or found.broken):
        print("nothing is old enough to go")
        return 0
    if not _agreed(options):
        return int(not options.dry_run)
    with run_archive.alone(runs):
        steps = [partial(_finish, runs, name) for name in found.broken]
        steps += [partial(_put_away, runs, left, keep) for left in going]
        steps += [partial(old_runs.take_code, runs, left.name) for left in found.code]
        wrong = _each(steps)
        _unlink_latest(runs)
    done = len(going) + len(found.code) + len(found.broken) - len(wrong)
    print(f"{done} gone; what was a run is in {runs / run_archive.OLD}: tar -xf FILE -C {runs} brings one back")
    return _told(wrong)


def _put_away(runs: Path, left: Left, keep: Keep) -> None:
    """Unless somebody has begun to need it since it was shown. Raises BenchError."""
    if not old_runs.run(runs / left.name, keep, time.time()).goes:
        raise RefusedError(f"{shown(left.name)} stays: it was changed, or is needed, since it was shown")
    archive = run_archive.put_away(runs, left.name, old_runs.needed)
    print(f"{shown(left.name)}: {size(left.size_bytes)} -> {archive} ({size(archive.stat().st_size)})", flush=True)


def _finish(runs: Path, name: str) -> None:
    archive = run_archive.finish(runs, name)
    print(
        f"{shown(name)}: " + (f"removed, {archive} has it" if archive else "back in its place: no archive has it all")
    )


def _unlink_latest(runs: Path) -> None:
    """Where what it leads to is gone."""
    latest = runs / "latest"
    if latest.is_symlink() and not latest.exists():
        latest.unlink(missing_ok=True)


# --- a work_dir, by Slurm or by supervisors ---------------------------------------------------------------------------


def of_work_dir(platform: Platform, keep: Keep, options: argparse.Namespace) -> int:
    """As main, for the folders of jobs on a platform, and for the code that was brought there."""
    transport = transports.connect(platform)
    folder, live = str(platform.work_dir), work_dir.SQUEUE if platform.scheduler == "slurm" else work_dir.SUPERVISORS
    runs = Path(options.runs_dir)

    def judged() -> work_dir.Judged:
        return work_dir.judge(work_dir.look(transport, folder, live), keep, old_runs.needed_jobs(runs))

    try:
        found = judged()
        print(f"{transport.where}, {folder}: {keep}")
        _show(table(found.jobs, "goes"))
        _show(table(found.code, "goes: code that no job there needs"))
        if not any(each.goes for each in (*found.jobs, *found.code)):
            print("nothing is old enough to go")
            return 0
        if not _agreed(options):
            return int(not options.dry_run)
        agreed = {each.name for each in (*found.jobs, *found.code) if each.goes}
        gone, wrong = work_dir.remove(transport, folder, work_dir.only(judged(), agreed))
        print(f"{len(gone)} of {len(agreed)} gone")
        return _told(wrong) or int(len(gone) < len(agreed))
    finally:
        transport.close()


# --- Kubernetes ------------------------------------------------------------------------------------------------------


def of_cluster(platform: Platform, options: argparse.Namespace) -> int:
    """As main, for a cluster."""
    from platforms.schedulers.kubernetes import sweep
    from platforms.schedulers.kubernetes.api.client import Client
    from platforms.schedulers.kubernetes.api.place import Place

    own = {"kubeconfig": options.kubeconfig, "context": options.context, "namespace": options.namespace}
    client = Client(replace(Place.of(platform), **{name: value for name, value in own.items() if value}))
    least_s = _seconds(options.older_than or "0")
    found, unseen = sweep.left(client, platform.name)
    chosen = [each for each in found if each.age_s >= least_s and (options.live or not each.live)]
    if options.run:
        chosen = [each for each in chosen if each.run in (options.run, run_label(options.run))]
    archives, untold = ([], []) if options.run else sweep.code(client, max(least_s, FRESH_S))
    running = sorted({each.job for each in found if each.live and each not in chosen})
    if running:
        print(f"still waiting or running, and left alone (--live): {', '.join(running)}")
    for why in unseen:
        print(f"not looked for: {why}")
    if untold:
        print(f"code archives are left alone, since nobody can tell whether a job needs them: {'; '.join(untold)}")
    if not chosen and not archives:
        seen = " that we may see" if unseen else ""
        print(f"{client.where}: nothing of {platform.name} is left there{seen}")
        return 0
    print(f"{client.where}:")
    _show((*map(str, chosen), *(f"configmap/{name}  code that no pod uses" for name in archives)))
    if not _agreed(options):
        return int(not options.dry_run)
    wrong = sweep.remove(client, chosen, archives)
    gone = {each.uid for each in chosen}
    left = _wait(lambda: gone & {each.uid for each in sweep.left(client, platform.name)[0]})
    print(f"gone: {len(chosen) - left} of {len(chosen)} objects, {len(archives)} code archives")
    return _told(wrong) or int(left > 0)


def _wait(remaining: Callable[[], set[str]]) -> int:
    """How many are there still, when pods have had their time to end."""
    deadline = time.monotonic() + GONE_S
    while (left := len(remaining())) and time.monotonic() < deadline:
        time.sleep(1.0)
    return left


# --- all of them -----------------------------------------------------------------------------------------------------


def _agreed(options: argparse.Namespace) -> bool:
    """Nobody is asked where nobody sits."""
    if options.dry_run or options.yes:
        return not options.dry_run
    if not sys.stdin.isatty():
        print("nothing was removed (--yes removes what is shown)")
        return False
    try:
        return input("remove all that goes? [y/N] ").strip().lower() in ("y", "yes")
    except EOFError:
        return False


def _each(steps: Sequence[Callable[[], None]]) -> list[str]:
    """Take every step. Returns why some could not be taken."""
    wrong = []
    for step in steps:
        try:
            step()
        except BenchError as error:
            wrong.append(str(error))
    return wrong


def _show(lines: Iterable[str]) -> None:
    for line in lines:
        print(f"  {line}")


def _told(wrong: Sequence[str]) -> int:
    for line in wrong:
        print(f"error: {line}", file=sys.stderr)
    return int(bool(wrong))


def _keep(options: argparse.Namespace, settings: Site) -> Keep:
    """The command line's, else the site's. Raises RefusedError."""
    return Keep(*(_days(options, name, getattr(settings, name)) for name in OF_FOLDERS))


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


def _refuse(options: argparse.Namespace, names: Sequence[str], why: str) -> None:
    """Raises RefusedError for an option that means nothing here."""
    for name in names:
        if getattr(options, name):
            raise RefusedError(f"--{name.replace('_', '-')} {why}")


def _seconds(text: str) -> float:
    try:
        return 0.0 if text == "0" else seconds_of(text)
    except ValueError as error:
        raise RefusedError(f"--older-than: {error}") from None
