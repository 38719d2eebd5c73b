"""BENCH_ONLY and BENCH_RUN, by which a person chooses what a pipeline does, and which of its CI jobs are idle then."""

from __future__ import annotations

from pipeline.variables import BenchJob
from platforms import checkout
from platforms.job import RefusedError
from platforms.printable import printable

READS_RUNS = ("fetch", "cancel")


def why_idle(job: BenchJob, step: str) -> str:
    """The sentence on a CI job that the choice leaves out; empty for one that has something to do.

    Raises RefusedError if the choice fits no platform of the site: no job would do anything, and all would be green.
    """
    run = job.run if step in READS_RUNS else None
    of_run = run.rpartition("-")[2] if run else None
    if run and of_run and job.only and job.only != of_run:
        raise RefusedError(f"BENCH_RUN={printable(run)} is of another platform than BENCH_ONLY={job.only}")
    if job.only and job.only != job.platform:
        _refuse_unknown(f"BENCH_ONLY={job.only}", job.only, job)
        return f"BENCH_ONLY is {job.only}, and this job is of {job.platform}: it does nothing"
    if run and of_run != job.platform:
        _refuse_unknown(f"BENCH_RUN={printable(run)}: a run of a pipeline is named PIPELINE-PLATFORM", str(of_run), job)
        return f"run {printable(run)} is of {of_run}, and this job is of {job.platform}: it does nothing"
    return ""


def _refuse_unknown(typed: str, platform: str, job: BenchJob) -> None:
    _settings, platforms = checkout.load(job.site)
    if platform not in platforms and platform not in platforms.mistakes:
        raise RefusedError(f"{typed}, but {checkout.unknown(platform, platforms)}. Nothing was submitted or fetched")
