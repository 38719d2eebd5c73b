"""`python -m platforms prune NAME` for a platform of Kubernetes: what runs have left in its namespace."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from platforms.config.schema import Platform
from platforms.config.values import seconds_of
from platforms.job import RefusedError, run_label
from platforms.output import confirm_removal, print_errors, print_indented
from platforms.schedulers import PruneOptions
from platforms.schedulers.kubernetes import leftovers
from platforms.schedulers.kubernetes.api.client import Client
from platforms.schedulers.kubernetes.api.kubeconfig import ClusterTarget

GONE_S = 60.0  # graceful ends take their time
FRESH_S = 600.0  # a session brings its code once, and may be about to make the first job that mounts it


def prune_cluster(platform: Platform, options: PruneOptions) -> int:
    """Show what runs have left in the namespace and remove what goes. Returns the exit code. Raises BenchError."""
    own: dict[str, Any] = {
        name: str(options.given[name]) for name in ("kubeconfig", "context", "namespace") if name in options.given
    }
    client = Client(replace(ClusterTarget.of(platform), **own))
    least_s = _seconds(str(options.given.get("older_than", "0")))
    run = str(options.given.get("run", ""))
    found, unseen = leftovers.find_leftovers(client, platform.name)
    chosen = [each for each in found if each.age_s >= least_s and ("live" in options.given or not each.live)]
    if run:
        chosen = [each for each in chosen if each.run in (run, run_label(run))]
    archives, untold = ([], []) if run else leftovers.unused_code_archives(client, max(least_s, FRESH_S))
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
    print_indented((*map(str, chosen), *(f"configmap/{name}  code that no pod uses" for name in archives)))
    if not confirm_removal(yes=options.yes, dry_run=options.dry_run):
        return int(not options.dry_run)
    wrong = leftovers.remove(client, chosen, archives)
    gone = {each.uid for each in chosen}
    left = _wait(lambda: gone & {each.uid for each in leftovers.find_leftovers(client, platform.name)[0]})
    print(f"gone: {len(chosen) - left} of {len(chosen)} objects, {len(archives)} code archives")
    return print_errors(wrong) or int(left > 0)


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
