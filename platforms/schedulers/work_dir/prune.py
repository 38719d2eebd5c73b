"""`prune` for a work_dir: lists what jobs have left there, shows it, and removes it once a person agrees."""

from __future__ import annotations

from platforms import transports
from platforms.config.schema import Platform
from platforms.job import RefusedError
from platforms.output import confirm_removal, leftover_table, print_errors, print_indented
from platforms.printable import printable
from platforms.schedulers import PruneOptions
from platforms.schedulers.work_dir import listing, removal, removal_plan
from platforms.schedulers.work_dir.listing import LiveJobs
from platforms.transports import Transport


def prune_work_dir(platform: Platform, live_jobs: LiveJobs | None, options: PruneOptions) -> int:
    """Remove old folders of jobs on a platform, and code that no job there needs. Returns the exit code.

    Raises:
        RefusedError: the scheduler cannot say which of its jobs live; a job that lives must not be taken for dead.
    """
    if live_jobs is None or platform.work_dir is None:
        raise RefusedError(
            f"{platform.source}: prune cannot ask scheduler {platform.scheduler} which of its jobs live, so it removes "
            f"nothing there; remove what is old in {platform.work_dir or 'its folder'} by hand"
        )
    folder = str(platform.work_dir)
    transport = transports.connect(platform)
    try:
        plan = _plan(transport, folder, live_jobs, options)
        if plan is None:
            print(f"{transport.where}: {folder} is not there, so nothing was brought there yet, or it is not mounted")
            return 0
        print(f"{transport.where}, {folder}: {options.retention}; what runs in {options.runs} still need stays")
        print_indented(
            f"run {printable(run)} cannot be read, so what may belong to it stays: {reason}"
            for run, reason in plan.unreadable_runs.items()
        )
        print_indented(leftover_table(plan.jobs, "goes"))
        print_indented(leftover_table(plan.code, "goes: code that no job there needs"))
        if plan.why_no_code:
            print(f"code archives are left alone: {plan.why_no_code}")
        if not plan.going:
            print("nothing is old enough to go")
            return 0
        if not confirm_removal(yes=options.yes, dry_run=options.dry_run):
            return 0 if options.dry_run else 1
        # Jobs may have begun while the person decided, so only what a second plan agrees with is removed.
        removed = 0
        problems: list[str] = []
        current = _plan(transport, folder, live_jobs, options)
        if current is not None:
            names, problems = removal.remove(transport, folder, removal_plan.restrict(current, plan.going))
            removed = len(names)
        print(f"{removed} of {len(plan.going)} gone")
        return print_errors(problems) or int(removed < len(plan.going))
    finally:
        transport.close()


def _plan(
    transport: Transport, folder: str, live_jobs: LiveJobs, options: PruneOptions
) -> removal_plan.RemovalPlan | None:
    """What may go now; None where there is no such folder."""
    listed = listing.list_work_dir(transport, folder, live_jobs)
    if listed.missing:
        return None
    needed = options.needed_jobs()
    return removal_plan.plan_removal(listed, options.retention, needed.jobs, needed.unread)
