"""`python -m platforms prune NAME` for a platform of Kubernetes: what runs have left in its namespace."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import replace

from platforms.commands.output import confirm_removal, print_errors, print_indented
from platforms.config.schema import Platform
from platforms.config.values import seconds_of
from platforms.job import RefusedError, run_label
from platforms.schedulers.kubernetes import leftovers
from platforms.schedulers.kubernetes.api.client import Client
from platforms.schedulers.kubernetes.api.kubeconfig import ClusterTarget

GONE_S = 60.0  # graceful ends take their time
FRESH_S = 600.0  # a session brings its code once, and may be about to make the first job that mounts it


def of_cluster(platform: Platform, options: argparse.Namespace) -> int:
    """As prune.main, for a cluster."""
    own = {"kubeconfig": options.kubeconfig, "context": options.context, "namespace": options.namespace}
    client = Client(replace(ClusterTarget.of(platform), **{name: value for name, value in own.items() if value}))
    least_s = _seconds(options.older_than or "0")
    found, unseen = leftovers.find_leftovers(client, platform.name)
    chosen = [each for each in found if each.age_s >= least_s and (options.live or not each.live)]
    if options.run:
        chosen = [each for each in chosen if each.run in (options.run, run_label(options.run))]
    archives, untold = ([], []) if options.run else leftovers.unused_code_archives(client, max(least_s, FRESH_S))
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
