"""What the jobs of a platform have left below its work_dir: their folders and the code archives, judged here.

One command on the login node tells everything (sight), and what goes is decided here; another one removes it (removal).
Nothing is touched that is not named like ours, belongs to somebody else or is a link.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from platforms.job import Layout, job_name
from platforms.rundir.retention import DAY_S, Leftover, Retention
from platforms.schedulers.work_dir.listing import REMOVING, RemoteJobFolder, WorkDirListing

# After its last possible start a job that nobody knows may still run: clusters may share a work_dir.
SILENT_S = 7 * DAY_S
ATTEMPTS = 50  # of one test in one run, that are thought of where the run's record cannot be read


@dataclass(frozen=True)
class RemovalPlan:
    """What goes and what stays, and when each was changed as it was looked at. `untold` says why no code goes; `unread`
    which runs could not be asked whether they need a job, and why."""

    jobs: Sequence[Leftover]
    code: Sequence[Leftover]
    changed_s: Mapping[str, float]
    unread: Mapping[str, str] = field(default_factory=dict)
    untold: str = ""

    @property
    def going(self) -> set[str]:
        """The names of all that goes."""
        return {each.name for each in (*self.jobs, *self.code) if each.goes}


def plan_removal(
    seen: WorkDirListing, keep: Retention, needed: Mapping[str, str], unread: Mapping[str, str]
) -> RemovalPlan:
    """What is old enough to go. `needed` are jobs of runs that somebody goes on with, or has pinned, and why; `unread`
    are runs of which nobody can tell, and why."""
    jobs = [_judged(name, folder, seen, keep, needed, unread) for name, folder in seen.jobs.items()]
    going = {each.name for each in jobs if each.goes}
    used = {code for name, folder in seen.jobs.items() if name not in going for code in folder.code}
    archives = [replace(each, young=keep.young(each.age_s)) for name, each in seen.archives.items() if name not in used]
    changed = {name: folder.changed_s for name, folder in seen.jobs.items()}
    changed |= {each.name: seen.now_s - each.age_s for each in archives}
    code = [each for each in archives if each.goes]
    unseen = sorted(path for path in seen.unread if path.partition("/")[2].partition("/")[0] not in going)
    if code and unseen:
        more = f" and {len(unseen) - 1} more" if len(unseen) > 1 else ""
        return RemovalPlan(jobs, [], changed, unread, f"{unseen[0]}{more} cannot be read, and may need any of it")
    return RemovalPlan(jobs, code, changed, unread)


def restrict(judged: RemovalPlan, names: Collection[str]) -> RemovalPlan:
    """Of what goes now, that which somebody has agreed to before."""
    jobs, code = ([each for each in left if each.name in names] for left in (judged.jobs, judged.code))
    return replace(judged, jobs=jobs, code=code)


def _judged(
    name: str,
    folder: RemoteJobFolder,
    seen: WorkDirListing,
    keep: Retention,
    needed: Mapping[str, str],
    unread: Mapping[str, str],
) -> Leftover:
    left = Leftover(name, seen.now_s - folder.changed_s, folder.size_bytes)
    if folder.uid != seen.uid:
        return replace(left, stays=f"it belongs to user {folder.uid}")
    if name.startswith(REMOVING):
        return left
    if f"jobs/{name}" in seen.unread:
        return replace(left, stays="it cannot be read")
    if not folder.inside & {"claim", "pid", "job.sh"}:
        return replace(left, stays="nothing in it is a job's")
    if state := seen.live.get(name):
        return replace(left, stays=f"the job is {state}")
    if keep.young(left.age_s):
        return replace(left, young=True)
    if name in needed:
        return replace(left, stays=needed[name])
    if run := next((run for run in unread if _may_be_of(run, name, folder)), None):
        return replace(left, stays=f"it may be of run {run}, which cannot be read: {unread[run]}")
    if "exit" not in folder.inside and seen.now_s - max(folder.changed_s, folder.may_start_s) < SILENT_S:
        return replace(left, stays=f"no exit file: {SILENT_S / DAY_S:g} days beyond its last possible start")
    wrong = "no exit code" if folder.exit_code is None else f"exit code {folder.exit_code}" if folder.exit_code else ""
    return replace(left, stays=keep.failed(left.age_s, wrong))


def _may_be_of(run: str, name: str, folder: RemoteJobFolder) -> bool:
    """Whether a job may be one of this run: its name follows from run, test and attempt, and its script says which test
    it is."""
    if not folder.test or not folder.test.isprintable() or "?" in folder.test:  # `?` stands for what is not printable
        return True
    key = name.rpartition("-")[2]
    names = (job_name("", Layout(1, 1, ""), run, folder.test, number) for number in range(1, ATTEMPTS + 1))
    return any(each.rpartition("-")[2] == key for each in names)
