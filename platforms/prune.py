"""`python -m platforms prune NAME`: what earlier runs have left on a cluster, shown, and then taken away."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from dataclasses import replace

from platforms import checkout
from platforms.config import Platform
from platforms.job import RefusedError, run_label
from platforms.values import seconds_of

GONE_S = 60.0  # graceful ends take their time
FRESH_S = 600.0  # a session brings its code once, and may be about to make the first job that mounts it


def add(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.add_argument("--run", metavar="RUN", help="only what this run has left: its id, or its label r…")
    parser.add_argument(
        "--older-than", metavar="TIME", default="0", help="only what is at least that old: 2h, 3-00:00:00"
    )
    for name in ("kubeconfig", "context", "namespace"):
        parser.add_argument(f"--{name}", help=f"where a test with its own {name}= has left them")
    parser.add_argument("--live", action="store_true", help="also jobs that still wait or run")
    parser.add_argument("--yes", action="store_true", help="remove without asking")


def main(options: argparse.Namespace) -> int:
    """Returns 0 when nothing is left of what was shown, 1 when something is, or nobody said yes. Raises BenchError."""
    site = checkout.site_folder(options.site)
    settings, platforms = checkout.load(site)
    platform = checkout.find(options.name, platforms)
    if platform.scheduler != "kubernetes":
        raise RefusedError(
            f"{platform.source}: scheduler {platform.scheduler} holds nothing of a job that has ended; its folders "
            f"lie in {platform.work_dir or 'runs'}/jobs"
        )
    checkout.refuse_unready(platform, site, settings)
    return prune(platform, options)


def prune(platform: Platform, options: argparse.Namespace) -> int:
    """As main, for a cluster."""
    from platforms.schedulers.kubernetes import sweep
    from platforms.schedulers.kubernetes.api.client import Client
    from platforms.schedulers.kubernetes.api.place import Place

    own = {"kubeconfig": options.kubeconfig, "context": options.context, "namespace": options.namespace}
    client = Client(replace(Place.of(platform), **{name: value for name, value in own.items() if value}))
    least_s = _seconds(options.older_than)
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
    for line in (*map(str, chosen), *(f"configmap/{name}  code that no pod uses" for name in archives)):
        print(f"  {line}")
    if not options.yes and not _agreed():
        return 1
    wrong = sweep.remove(client, chosen, archives)
    gone = {each.uid for each in chosen}
    left = _wait(lambda: gone & {each.uid for each in sweep.left(client, platform.name)[0]})
    print(f"gone: {len(chosen) - left} of {len(chosen)} objects, {len(archives)} code archives")
    for line in wrong:
        print(f"error: {line}", file=sys.stderr)
    return 1 if left or wrong else 0


def _agreed() -> bool:
    """Nobody is asked where nobody sits."""
    if not sys.stdin.isatty():
        print("nothing was removed (--yes removes what is shown)")
        return False
    return input("remove all of this? [y/N] ").strip().lower() in ("y", "yes")


def _wait(remaining: Callable[[], set[str]]) -> int:
    """How many are there still, when pods have had their time to end."""
    deadline = time.monotonic() + GONE_S
    while (left := len(remaining())) and time.monotonic() < deadline:
        time.sleep(1.0)
    return left


def _seconds(text: str) -> float:
    try:
        return 0.0 if text == "0" else seconds_of(text)
    except ValueError as error:
        raise RefusedError(f"--older-than: {error}") from None
