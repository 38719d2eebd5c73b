"""What the jobs of a platform have left below its work_dir is listed, shown, and removed once a person agrees."""

from __future__ import annotations

from platforms import transports
from platforms.config.schema import Platform
from platforms.job import RefusedError
from platforms.output import confirm_removal, leftover_table, print_errors, print_indented
from platforms.printable import printable
from platforms.schedulers import PruneOptions
from platforms.schedulers.work_dir import listing, removal, removal_plan
from platforms.schedulers.work_dir.listing import LiveJobs


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
    transport = transports.connect(platform)
    folder = str(platform.work_dir)

    def judged() -> removal_plan.RemovalPlan | None:
        seen, needed = listing.list_work_dir(transport, folder, live_jobs), options.needed_jobs()
        return None if seen.missing else removal_plan.plan_removal(seen, options.retention, needed.jobs, needed.unread)

    try:
        found = judged()
        if found is None:
            print(f"{transport.where}: {folder} is not there, so nothing was brought there yet, or it is not mounted")
            return 0
        print(f"{transport.where}, {folder}: {options.retention}; what runs in {options.runs} still need stays")
        print_indented(
            f"run {printable(run)} cannot be read, so what may belong to it stays: {why}"
            for run, why in found.unreadable_runs.items()
        )
        print_indented(leftover_table(found.jobs, "goes"))
        print_indented(leftover_table(found.code, "goes: code that no job there needs"))
        if found.why_no_code:
            print(f"code archives are left alone: {found.why_no_code}")
        if not found.going:
            print("nothing is old enough to go")
            return 0
        if not confirm_removal(yes=options.yes, dry_run=options.dry_run):
            return int(not options.dry_run)
        now = judged()
        gone, wrong = (
            ([], []) if now is None else removal.remove(transport, folder, removal_plan.restrict(now, found.going))
        )
        print(f"{len(gone)} of {len(found.going)} gone")
        return print_errors(wrong) or int(len(gone) < len(found.going))
    finally:
        transport.close()
