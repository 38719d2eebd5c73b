"""What is made of a job that has ended: its Run, its error and its run.json, and these again out of that file."""

from __future__ import annotations

from dataclasses import replace

from platforms.job import ERRORS, JobError, MachineError, Outcome, Run, Status
from platforms.runner import evidence, explain
from platforms.runner.contact import Contact
from platforms.runner.live import Job


def write_down(job: Job, status: Status, run: Run, contact: Contact) -> tuple[Run, JobError | None]:
    """The run with what it was a run of, and why it is no good one. A failure keeps what there is to look at."""
    spec = job.spec
    run = replace(run, name=spec.name, test=spec.test, platform=spec.platform, benchmark=spec.benchmark)
    run = replace(run, layout=str(spec.layout), status=status, folder=job.folder)
    run = replace(run, warnings=(*job.attempt.earlier, *run.warnings))
    failure: JobError | None = None
    if status.state.outcome is Outcome.PASSED:
        run = replace(run, warnings=(*run.warnings, *contact.clean(job)))
    else:
        source, hints = job.platform.source, contact.hints(job)
        earlier = job.attempt.earlier
        text = explain.ended(spec, run, source=source, earlier=earlier, tail=job.reader.tail, hints=hints)
        failure = ERRORS.get(status.state.outcome, MachineError)(text, status, job.folder)
    try:
        error = None if failure is None else str(failure)
        evidence.write_json(job.folder / "run.json", evidence.record(run, spec, job.job_id, job.queue_s, error))
    except OSError as problem:
        failure = MachineError(f"{spec.name}: its evidence cannot be written: {problem}", status, job.folder)
    return run, failure


def recall(job: Job) -> bool:
    """Whether an earlier session has written the job's end down; then it is done, as it was there."""
    found = evidence.recorded(job.folder)
    if found is None:
        return False
    job.run, text = found
    job.status = job.run.status
    if text is not None:
        job.failure = ERRORS.get(job.status.state.outcome, MachineError)(text, job.status, job.folder)
    job.claimed = job.done = True
    return True
