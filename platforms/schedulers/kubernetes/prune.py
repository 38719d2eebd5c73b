"""`prune` for a platform of Kubernetes: removes what runs have left in its namespace."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

from platforms.config.durations import seconds_of
from platforms.config.schema import Platform
from platforms.job import RefusedError, run_label
from platforms.output import confirm_removal, print_errors, print_indented
from platforms.schedulers import PruneOptions
from platforms.schedulers.kubernetes import leftovers
from platforms.schedulers.kubernetes.api.client import Client
from platforms.schedulers.kubernetes.api.kubeconfig import ClusterTarget

GONE_S = 60.0  # how long pods may take to end gracefully
FRESH_S = 600.0  # a session creates its code archive once, and may be about to create the first job that mounts it


def prune_cluster(platform: Platform, options: PruneOptions) -> int:
    """Show what runs have left in the namespace and remove what goes. Returns the exit code. Raises BenchError."""
    given = options.given
    target_keys: dict[str, Any] = {
        name: str(given[name]) for name in ("kubeconfig", "context", "namespace") if name in given
    }
    client = Client(replace(ClusterTarget.of(platform), **target_keys))
    min_age_s = _seconds(str(given.get("older_than", "0")))
    run = str(given.get("run", ""))

    found, not_listed = leftovers.find_leftovers(client, platform.name)
    chosen = []
    running = set()
    for leftover in found:
        is_of_run = not run or leftover.run in (run, run_label(run))
        if leftover.live and "live" not in given:
            running.add(leftover.job)
        elif is_of_run and leftover.age_s >= min_age_s:
            chosen.append(leftover)
        elif leftover.live:
            running.add(leftover.job)
    archives: list[str] = []
    code_unknown: list[str] = []
    if not run:
        archives, code_unknown = leftovers.unused_code_archives(client, max(min_age_s, FRESH_S))

    if running:
        print(f"still waiting or running, and left alone (--live): {', '.join(sorted(running))}")
    for reason in not_listed:
        print(f"not looked for: {reason}")
    if code_unknown:
        print(
            "code archives are left alone, since it is not known whether a job needs them: " + "; ".join(code_unknown)
        )
    if not chosen and not archives:
        limit = " that we may see" if not_listed else ""
        print(f"{client.where}: nothing of {platform.name} is left there{limit}")
        return 0
    print(f"{client.where}:")
    print_indented(str(leftover) for leftover in chosen)
    print_indented(f"configmap/{name}  code that no pod uses" for name in archives)
    if not confirm_removal(yes=options.yes, dry_run=options.dry_run):
        return 0 if options.dry_run else 1
    problems = leftovers.remove(client, chosen, archives)
    uids = {leftover.uid for leftover in chosen}
    remaining = _wait_until_gone(client, platform.name, uids)
    print(f"gone: {len(chosen) - remaining} of {len(chosen)} objects, {len(archives)} code archives")
    return print_errors(problems) or int(remaining > 0)


def _wait_until_gone(client: Client, platform: str, uids: set[str]) -> int:
    """Wait while pods end gracefully. Returns how many of the objects still exist."""
    deadline = time.monotonic() + GONE_S
    while True:
        found, _not_listed = leftovers.find_leftovers(client, platform)
        remaining = len(uids & {leftover.uid for leftover in found})
        if not remaining or time.monotonic() >= deadline:
            return remaining
        time.sleep(1.0)


def _seconds(text: str) -> float:
    if text == "0":
        return 0.0
    try:
        return seconds_of(text)
    except ValueError as error:
        raise RefusedError(f"--older-than: {error}") from None
