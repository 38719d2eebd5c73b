"""Decides which job folders and code archives below a work_dir are old enough to be removed.

Nothing is planned for removal that has no name of ours, belongs to another user or is a link.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from platforms.job import Layout, job_name
from platforms.rundir.retention import DAY_S, Leftover, Retention
from platforms.schedulers.work_dir.listing import REMOVING, RemoteJobFolder, WorkDirListing

# A job that no scheduler knows may still run this long after its last possible start: clusters may share a work_dir.
SILENT_S = 7 * DAY_S
ATTEMPTS = 50  # of one test in one run, whose names are tried if the run's record cannot be read


@dataclass(frozen=True)
class RemovalPlan:
    """What goes and what stays.

    Attributes:
        jobs: all folders of jobs.
        code: the code archives that go.
        changed_s: when each was last changed, Unix seconds, by name.
        unreadable_runs: runs whose record cannot be read, so that jobs of theirs stay, and why it cannot.
        why_no_code: why no code archive goes; "" when they may.
    """

    jobs: Sequence[Leftover]
    code: Sequence[Leftover]
    changed_s: Mapping[str, float]
    unreadable_runs: Mapping[str, str] = field(default_factory=dict)
    why_no_code: str = ""

    @property
    def going(self) -> set[str]:
        """The names of everything that goes."""
        return {leftover.name for leftover in (*self.jobs, *self.code) if leftover.goes}


def plan_removal(
    listing: WorkDirListing, retention: Retention, needed: Mapping[str, str], unreadable_runs: Mapping[str, str]
) -> RemovalPlan:
    """Plan the removal of what is old enough.

    Args:
        listing: what lies there.
        retention: how long leftovers are kept.
        needed: names of jobs that unfinished or pinned runs need, and why.
        unreadable_runs: runs whose record cannot be read, and why.
    """
    jobs = [
        _judge_folder(name, folder, listing, retention, needed, unreadable_runs)
        for name, folder in listing.job_folders.items()
    ]
    going = {job.name for job in jobs if job.goes}
    code_in_use: set[str] = set()
    for name, folder in listing.job_folders.items():
        if name not in going:
            code_in_use.update(folder.code)
    archives = [
        replace(archive, young=retention.young(archive.age_s))
        for name, archive in listing.archives.items()
        if name not in code_in_use
    ]
    changed_s = {name: folder.changed_s for name, folder in listing.job_folders.items()}
    for archive in archives:
        changed_s[archive.name] = listing.now_s - archive.age_s

    code = [archive for archive in archives if archive.goes]
    why_no_code = ""
    unreadable = sorted(path for path in listing.unreadable if _job_of(path) not in going)
    if code and unreadable:
        more = f" and {len(unreadable) - 1} more" if len(unreadable) > 1 else ""
        why_no_code = f"{unreadable[0]}{more} cannot be read, and may need any of it"
        code = []
    return RemovalPlan(jobs, code, changed_s, unreadable_runs, why_no_code)


def restrict(plan: RemovalPlan, names: Collection[str]) -> RemovalPlan:
    """Return the plan with only the leftovers of these names."""
    return replace(
        plan,
        jobs=[job for job in plan.jobs if job.name in names],
        code=[archive for archive in plan.code if archive.name in names],
    )


def _job_of(path: str) -> str:
    """`jobs/NAME/job.sh` -> NAME."""
    return path.partition("/")[2].partition("/")[0]


def _judge_folder(
    name: str,
    folder: RemoteJobFolder,
    listing: WorkDirListing,
    retention: Retention,
    needed: Mapping[str, str],
    unreadable_runs: Mapping[str, str],
) -> Leftover:
    leftover = Leftover(name, listing.now_s - folder.changed_s, folder.size_bytes)
    if folder.uid != listing.uid:
        return replace(leftover, stays=f"it belongs to user {folder.uid}")
    if name.startswith(REMOVING):
        return leftover
    if f"jobs/{name}" in listing.unreadable:
        return replace(leftover, stays="it cannot be read")
    if not folder.entries & {"claim", "pid", "job.sh"}:
        return replace(leftover, stays="nothing in it is a job's")
    if name in listing.live_states:
        return replace(leftover, stays=f"the job is {listing.live_states[name]}")
    if retention.young(leftover.age_s):
        return replace(leftover, young=True)
    if name in needed:
        return replace(leftover, stays=needed[name])
    for run, why in unreadable_runs.items():
        if _may_belong_to(run, name, folder):
            return replace(leftover, stays=f"it may belong to run {run}, which cannot be read: {why}")

    last_sign_s = max(folder.changed_s, folder.may_start_s)
    if "exit" not in folder.entries and listing.now_s - last_sign_s < SILENT_S:
        return replace(leftover, stays=f"no exit file: {SILENT_S / DAY_S:g} days beyond its last possible start")
    failure = ""
    if folder.exit_code is None:
        failure = "no exit code"
    elif folder.exit_code != 0:
        failure = f"exit code {folder.exit_code}"
    return replace(leftover, stays=retention.failed(leftover.age_s, failure))


def _may_belong_to(run: str, name: str, folder: RemoteJobFolder) -> bool:
    """Return whether a job may be one of this run.

    A job's name follows from run, test and attempt, and its script says which test it is.
    """
    if not folder.test or not folder.test.isprintable() or "?" in folder.test:  # `?` stands for what is not printable
        return True
    key = name.rpartition("-")[2]
    for attempt in range(1, ATTEMPTS + 1):
        candidate = job_name("", Layout(1, 1, ""), run, folder.test, attempt)
        if candidate.rpartition("-")[2] == key:
            return True
    return False
