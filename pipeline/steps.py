"""The steps of a pipeline: submit, fetch, measure, cancel, cleanup, check, report. Each returns its CI job's exit code.

0: all is well. 1: a test failed, or a number is slower. 75: results are pending; the templates allow that. 2 and more:
the step could not be done.
"""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

from pipeline import child
from pipeline.artifacts import copy_evidence
from pipeline.child import SessionMark, run_module
from pipeline.variables import BenchJob
from platforms import checkout
from platforms.commands import find_run
from platforms.job import RefusedError
from platforms.printable import printable
from platforms.rundir import session_history
from platforms.schedulers import backend_of

PENDING = 75
FAILED = 1
REFUSED = 2
ENDS_IN_S = 120.0
"""A session that is asked to end cancels its jobs and looks whether they are gone; then it is killed."""
CANCEL_TRIES_S = 90.0
"""A session that was killed on another machine counts as alive until its journal is silent for three beats."""


def submit(job: BenchJob) -> int:
    """Submit this pipeline's run, and leave. First see that what it leaves can be kept: jobs cost budget."""
    _refuse_lost_processes(job)
    _pull(job)
    _try_push(job)
    code = _begin(job, "submit", wait_s=0.0)
    if not _has_record(job, job.run_id):
        return code  # pytest has refused to begin, and its message stays the last one
    _say_pending([job.run_id], [code])
    return _finish(job, code)


def measure(job: BenchJob) -> int:
    """Submit this pipeline's run, wait for it, and write the comment. The history keeps nothing.

    A merge request's numbers are compared with the history, and are no part of it: what is proposed is not what runs.
    So the run is in no folder in which a fetch would find it.
    """
    job = replace(job, runs=job.kept / "measured", carries_runs=False)
    if job.branch is None:
        job = _with_copied_history(job)
    else:
        _pull(job)
    code = _begin(job, "measure", wait_s=job.wait_s)
    written = [_comment(job), _metrics(job)]
    return code or max(written)


def fetch(job: BenchJob) -> int:
    """Read the results of the unfinished runs, the oldest first. They share the time of BENCH_WAIT."""
    deadline = time.monotonic() + job.wait_s
    _refuse_lost_processes(job)
    _pull(job)
    run_ids = _meant(job)[::-1]
    if not run_ids:
        print(f"{job.platform}: no run in {job.runs} is unfinished, so there is nothing to fetch", flush=True)
    codes = []
    for run_id in run_ids:
        wait_s = max(0.0, deadline - time.monotonic())
        words = [f"--resume={run_id}", *_places(job), "--on-interrupt=detach"]
        codes.append(_session(job, "fetch", run_id, [*words, *_wait(wait_s)]))
    _say_pending(run_ids, codes)
    return _finish(job, _worst(codes))


def cancel(job: BenchJob) -> int:
    """Cancel the jobs of the unfinished runs, and end these runs. Finished jobs keep their results."""
    _pull(job)
    run_ids = _meant(job)
    if not run_ids:
        print(f"{job.platform}: no run in {job.runs} is unfinished, so there is nothing to cancel", flush=True)
    codes = []
    for run_id in run_ids:
        codes.append(run_module("platforms", ["cancel", run_id, *_run_places(job)]))
        _keep_evidence(job, run_id)
    return _finish(job, max(codes, default=0))


def cleanup(job: BenchJob, status: str) -> int:
    """End what a killed CI job has left: its session, and the jobs that it was submitting.

    A session that ended by itself removed its mark, and what it left pending goes on. What a killed fetch was waiting
    for goes on, too, unless a person cancelled the pipeline (`status`, GitLab's CI_JOB_STATUS) that had submitted it.
    """
    mark = SessionMark.read(job.kept)
    if mark is None:
        return 0
    if mark.lives():
        print(f"the session of run {mark.run_id} lives on: it is asked to end", flush=True)
        mark.end(ENDS_IN_S)
    job = replace(job, runs=Path(mark.runs))
    _keep_evidence(job, mark.run_id)
    ours = mark.run_id == job.run_id
    if mark.step == "fetch" and not (ours and status == "canceled"):
        print(f"the jobs of run {mark.run_id} go on: the next fetch reads them", flush=True)
        code = 0
    else:
        code = _cancel_killed(job, mark.run_id)
    if code == 0:
        SessionMark.remove(job.kept)
    return code if mark.step == "measure" else _finish(job, code)


def check(job: BenchJob) -> int:
    """Render the jobs of the platform, and submit nothing."""
    history = job.kept / "no-history"
    history.mkdir(parents=True, exist_ok=True)
    words = [*job.tests, *_selection(job), f"--site={job.site}", f"--history={history}", "--dry-run", "-q"]
    return run_module("pytest", words)


def report(job: BenchJob) -> int:
    """Write the page, its data and GitLab's metrics report of the whole site."""
    _pull(job)
    if not _has_lines(job):
        print(f"{job.history} has no line yet, so there is no report", flush=True)
        return 0
    (job.out / "evidence").mkdir(parents=True, exist_ok=True)
    codes = [
        _reporting("html", job, "-o", str(job.out / "report.html"), f"--runs-dir={job.out / 'evidence'}"),
        _reporting("data", job, "-o", str(job.out / "report.json")),
        _metrics(job),
    ]
    return max(codes)


# --- what people read -------------------------------------------------------------------------------------------------


def _metrics(job: BenchJob) -> int:
    """Write GitLab's metrics report of the whole site. Returns the exit code."""
    return _reporting("export", job, "gitlab", "-o", str(job.out / "metrics.txt"))


def _comment(job: BenchJob) -> int:
    """Write the platform's comment into the artifacts. Returns the exit code."""
    return _reporting("comment", job, job.platform, "-o", str(job.out / f"comment-{job.platform}.md"))


# --- a session -------------------------------------------------------------------------------------------------------


def _begin(job: BenchJob, step: str, wait_s: float) -> int:
    if not job.pipeline:
        raise RefusedError("CI_PIPELINE_ID is not set: it names the run, so that a job that is started again goes on")
    words = [*job.tests, *_selection(job), f"--run-id={job.run_id}", f"--gate={job.gate}", *_places(job)]
    return _session(job, step, job.run_id, [*words, *_wait(wait_s)])


def _session(job: BenchJob, step: str, run_id: str, words: Sequence[str]) -> int:
    """Run pytest for one run, and copy its evidence. Returns pytest's exit code."""
    job.out.mkdir(parents=True, exist_ok=True)
    junit = f"--junitxml={job.out / f'junit-{run_id}.xml'}"
    code = child.run_session(step, run_id, job.runs, job.kept, [*words, junit])
    _keep_evidence(job, run_id)
    return code


def _keep_evidence(job: BenchJob, run_id: str) -> None:
    """Copy what a run has left into the artifacts. Where that fails, its results are pushed all the same."""
    if not (job.runs / run_id).is_dir():
        return
    try:
        copy_evidence(job.runs / run_id, job.out / "evidence" / run_id)
    except OSError as error:
        print(f"warning: the artifacts have not all evidence of run {run_id}: {error}", file=sys.stderr, flush=True)


def _selection(job: BenchJob) -> list[str]:
    words = ["--platform", job.platform]
    if job.marks:
        words += ["-m", job.marks]
    if job.size:
        words += ["--size", job.size]
    return words


def _run_places(job: BenchJob) -> list[str]:
    return [f"--site={job.site}", f"--runs-dir={job.runs}"]


def _places(job: BenchJob) -> list[str]:
    return [*_run_places(job), f"--history={job.history}"]


def _wait(wait_s: float) -> list[str]:
    return ["--wait", f"{wait_s:.0f}s" if wait_s >= 1 else "0"]


def _has_record(job: BenchJob, run_id: str) -> bool:
    return run_id in session_history.runs_with_sessions(job.runs)


def _meant(job: BenchJob) -> list[str]:
    """The ids of the runs to read or to cancel, the last one first.

    Raises RefusedError for one without a record. Its tests would be submitted, and it may be a slip of the pen.
    """
    unfinished = _unfinished(job)
    if job.run is None:
        return unfinished
    if not _has_record(job, job.run):
        others = ", ".join(map(printable, unfinished)) or "none"
        where = job.runs if job.branch is None or not job.carries_runs else f"the branch {job.branch}"
        raise RefusedError(
            f"BENCH_RUN={printable(job.run)}: {where} has no record of an unfinished run with this name. Unfinished "
            f"on {job.platform}: {others}. Nothing was submitted or cancelled. "
            "If the CI job that submits it was killed, start that CI job again: it finds the run's jobs by their names"
        )
    return [job.run]


def _unfinished(job: BenchJob) -> list[str]:
    """The unfinished runs that pipelines have begun on this platform, the last one first."""
    run_ids, unreadable = find_run.unfinished(job.runs)
    for sentence in unreadable:
        print(f"warning: {sentence}", file=sys.stderr, flush=True)
    return [run_id for run_id in run_ids if run_id.endswith(f"-{job.platform}")]


def _worst(codes: Sequence[int]) -> int:
    """One exit code for several sessions: a failure hides a pending one."""
    others = [code for code in codes if code not in (0, PENDING)]
    if others:
        return FAILED if FAILED in others else max(others)
    return max(codes, default=0)


def _say_pending(run_ids: Sequence[str], codes: Sequence[int]) -> None:
    pending = [run_id for run_id, code in zip(run_ids, codes, strict=True) if code == PENDING]
    if pending:
        print(f"PENDING: a later pipeline with BENCH_STEP=fetch reads {', '.join(pending)}", flush=True)


# --- the history and the runs ----------------------------------------------------------------------------------------


def _pull(job: BenchJob) -> None:
    """Bring what the branch has. Raises RefusedError: without it the gate would compare with nothing."""
    if job.branch is None:
        return
    for folder in (job.history, job.runs):
        folder.mkdir(parents=True, exist_ok=True)
    if _reporting("pull", job, *_branch(job)) != 0:
        raise RefusedError(f"the branch {job.branch} could not be read, so nothing was submitted or fetched")


def _refuse_lost_processes(job: BenchJob) -> None:
    """Raise RefusedError where the jobs are processes of this machine, and the next CI job would not find their run."""
    if not job.carries_runs:
        return
    _settings, platforms = checkout.load(job.site)
    platform = platforms.get(job.platform)
    if platform is not None and backend_of(platform).file_keys.this_machine:
        raise RefusedError(
            f"{platform.source}: the jobs of {job.platform} are processes of this machine, and no branch carries them "
            "to the next CI job. Set the input `runs` (the variable BENCH_RUNS) to a folder of this machine outside of "
            "the checkout, as in runs: /var/lib/hpc-ml-bench/runs. Nothing was submitted or fetched"
        )


def _try_push(job: BenchJob) -> None:
    """Raise RefusedError if the branch cannot be pushed: nothing would keep what the jobs measure."""
    if job.branch is not None and _reporting("push", job, "--try", "--branch", job.branch) != 0:
        raise RefusedError(
            f"the branch {job.branch} cannot be pushed, for the reason above, so nothing was submitted "
            "(docs/ci.md: Which tokens are needed?)"
        )


def _push(job: BenchJob) -> bool:
    """Keep the history, and carry the unfinished runs. Returns False where that failed.

    The artifacts have the history then. The unfinished runs are as they were: their CI job is started again.
    """
    if job.branch is None or not (job.carries_runs or _has_lines(job)):
        return True
    if _reporting("push", job, *_branch(job)) == 0:
        return True
    kept = job.out / "not-pushed/history"
    shutil.copytree(job.history, kept, dirs_exist_ok=True, ignore=shutil.ignore_patterns(".*"))
    print(f"What was not pushed is in the artifacts, in {kept.parent.name}: docs/ci.md says how to push it", flush=True)
    return False


def _has_lines(job: BenchJob) -> bool:
    return any(job.history.glob("*/*.jsonl"))


def _branch(job: BenchJob) -> list[str]:
    assert job.branch is not None
    runs = ["--runs", f"--runs-dir={job.runs}"] if job.carries_runs else []
    return ["--branch", job.branch, *runs]


def _finish(job: BenchJob, code: int) -> int:
    """Push what the runs have left. Returns the CI job's exit code; a failed test hides a failed push."""
    if _push(job) or code not in (0, PENDING):
        return code
    return REFUSED


def _with_copied_history(job: BenchJob) -> BenchJob:
    """The same job with a copy of the shared history, without the run.json's, which the gate does not read."""
    copy = job.kept / "history"
    shutil.copytree(job.history, copy, dirs_exist_ok=True, ignore=shutil.ignore_patterns("*.runs.jsonl"))
    return replace(job, history=copy)


def _reporting(command: str, job: BenchJob, *words: str) -> int:
    """Run a command of `python -m reporting` for this site and history. Returns its exit code."""
    return run_module("reporting", [command, *words, f"--site={job.site}", f"--history={job.history}"])


def _cancel_killed(job: BenchJob, run_id: str) -> int:
    """Cancel a run whose session was killed, as soon as that session no longer counts as alive."""
    if not _has_record(job, run_id):
        print(f"run {printable(run_id)} has submitted nothing")
        return 0
    deadline = time.monotonic() + CANCEL_TRIES_S
    while True:
        code = run_module("platforms", ["cancel", run_id, *_run_places(job)])
        if code != REFUSED or time.monotonic() > deadline:
            return code
        time.sleep(5.0)


STEPS: Mapping[str, Callable[[BenchJob], int]] = MappingProxyType(
    {"submit": submit, "fetch": fetch, "measure": measure, "cancel": cancel, "check": check, "report": report}
)
