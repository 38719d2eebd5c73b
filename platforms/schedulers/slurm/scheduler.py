"""SlurmScheduler: jobs through Slurm's commands on its login node, on this machine or over ssh.

A poll is one squeue for all jobs, and one sacct for those that have ended. Everything can be found again by a job's
id and folder, so another process sees the same jobs. Names, partitions and accounts may change while a job lives.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from platforms import transports
from platforms.job import AwayError, JobSpec, MachineError, NoRoom, RefusedError, State, Status, Submitted, unseen
from platforms.schedulers import Scheduler, log_file, staging
from platforms.schedulers.slurm import error_messages, judge, policy, queries, submission
from platforms.schedulers.slurm import render as rendering
from platforms.schedulers.slurm.rows import JobRow, NodeRow
from platforms.schedulers.slurm.states import asked_node_is_out
from platforms.transports import file_transfer

if TYPE_CHECKING:
    from platforms.config.schema import Platform

CANCEL_LIMIT_S = 120.0  # KillWait is 30 s at most sites, then comes the epilog
CANCEL_POLL_S = 1.0
SOON_S = 1.0  # the shortest time between two squeue
CALM_S = 10.0  # a site that writes a longer `poll_s:` wants fewer questions, so nothing is asked sooner
GLANCE_S = {"local": 0.5}  # by transport: on this machine a glance starts no process
FAR_GLANCE_S = 2.0


class SlurmScheduler(Scheduler):
    """The Protocol `Scheduler` for Slurm. A job's id is Slurm's; its folder follows from its name."""

    text_name = "job.sh"
    log_in_folder = False
    ends_failed = True
    clean_deletes = False

    def __init__(self, platform: Platform) -> None:
        self._platform = platform
        self._transport = transports.connect(platform)
        self._jobs_folder = f"{platform.work_dir}/jobs"
        self.first_look_s = SOON_S if platform.poll_s <= CALM_S else platform.poll_s
        self.glance_s = GLANCE_S.get(platform.transport, FAR_GLANCE_S)
        self._with_exit_file: set[str] = set()  # names of jobs whose exit file has been seen
        self._log_bytes: dict[str, int] = {}  # sizes of logs at the last poll, by job name
        self._ended: set[str] = set()  # ids of jobs
        self._accounting_enabled = True  # until Slurm says otherwise
        self._conditions: dict[str, tuple[str, float]] = {}  # by job id: a condition that may pass, and since when

    def render(self, spec: JobSpec) -> str:
        """Return the sbatch script."""
        return rendering.render(spec, self._platform.with_stack(spec.stack))

    def lint(self, spec: JobSpec, text: str) -> Sequence[str]:
        return policy.lint(spec, text, self._platform)

    def check(self, spec: JobSpec, text: str) -> Sequence[str]:
        """Return what `sbatch --test-only` has against the script."""
        accepted, message = submission.sbatch_test_only(self._transport, text)
        return () if accepted else (f"sbatch: {message}",)

    # --- submitting --------------------------------------------------------------------------------------------------

    def submit(self, spec: JobSpec, text: str, folder: Path) -> str:
        """Submit with one command on the login node, which claims the job's folder there: see submission.py."""
        archive = rendering.archive_of(self._platform, spec) if spec.code else None
        remote_folder = rendering.folder_of(self._platform, spec.name)
        requirements = submission.requirements(archive, spec.data_dir, str(self._platform.work_dir))
        script = submission.submission_script(spec, text, remote_folder, requirements)
        result = self._run_submission(script)
        if (result.outcome, result.detail) == ("missing", "archive"):
            assert spec.code is not None
            staging.put_archive(self._transport, spec.code, str(archive))
            result = self._run_submission(script)
        if result.outcome == "id":
            return result.detail
        raise self._submission_error(result, spec, remote_folder, folder)

    def _run_submission(self, script: bytes) -> submission.SubmissionResult:
        result = self._transport.run(["sh", "-s"], input=script, timeout_s=submission.LIMIT_S)
        return submission.parse_result(result.stdout, result.stderr)

    def _submission_error(
        self, result: submission.SubmissionResult, spec: JobSpec, remote_folder: str, folder: Path
    ) -> Exception:
        """Return the error that says why there is no job, or that this is not known yet.

        A refusal leaves nothing behind, so that a corrected job can take the name.
        """
        where = self._transport.where
        message = result.errors or "without a message"
        if result.outcome == "refused" and error_messages.was_not_sent(message):
            self._remove(remote_folder)  # otherwise the next submission waits until this claim is old
            return AwayError(f"{where}: Slurm was not reached, and {spec.name} is not submitted: {message}")
        if result.unsure:
            return AwayError(f"{where}: not known yet whether Slurm took {spec.name}: {message}")
        if result.outcome == "missing":
            return staging.missing_data(self._platform, spec, folder)
        self._remove(remote_folder)
        if result.outcome == "unwritable":
            return RefusedError(
                f"{where}: {remote_folder} cannot be written: {message}; `work_dir:` in {self._platform.source}"
            )
        if result.outcome == "refused" and result.detail == "127":
            hint = f"is this a login node? `login_shell: true` in {self._platform.source} may find it"
            return RefusedError(f"{where}: there is no sbatch: {message}; {hint}")
        if error_messages.is_no_room(message):
            return NoRoom(f"{where}: sbatch takes no more jobs for now: {message}")
        hint = error_messages.cure(message)
        reason = f"sbatch refused it: {message}{hint and f' ({hint})'}; script: {folder / self.text_name}"
        return MachineError(f"{spec.name}: {reason}", Status(error_messages.refusal_state(message), reason), folder)

    def _remove(self, remote_folder: str) -> None:
        """Remove the folder of a job that does not exist. This works on a full disk, too."""
        self._transport.run(["rm", "-rf", "--", remote_folder])

    # --- following ---------------------------------------------------------------------------------------------------

    def status(self, jobs: Sequence[Submitted]) -> dict[str, Status]:
        """Ask squeue once for all jobs, and sacct once for those that have ended.

        sinfo is asked, too, as long as a job pends because a node that it asked for is not available, and when a job
        was cancelled before its script began: perhaps the prolog of its node failed.

        Cancels jobs that can never start, if `ends_failed`: otherwise they might start one day.
        """
        poll = queries.poll(self._transport, jobs, self._jobs_folder)
        self._log_bytes.update(poll.log_bytes)
        if poll.away:
            for job in jobs:  # time during which Slurm does not answer says nothing about a job
                self._conditions.pop(job.job_id, None)
            return {job.job_id: Status(State.UNKNOWN, poll.away, away=True) for job in jobs}

        queue_rows = self._queue_rows(jobs, poll)
        not_live = [job for job in jobs if not _is_live(queue_rows[job.job_id])]
        accounting = queries.AccountingResult(rows={}, enabled=True, log_lines={})
        if not_live:
            accounting = queries.ask_accounting(self._transport, not_live, self._jobs_folder)
            self._accounting_enabled = accounting.enabled

        nodes = None
        waits_for_node = any(
            row is not None and asked_node_is_out(row.reason) and row.asked_nodes for row in queue_rows.values()
        )
        never_began = any(
            job.name not in poll.started and _is_cancelled(row, _accounting_rows(job, row, accounting))
            for job, row in ((job, queue_rows[job.job_id]) for job in not_live)
        )
        if waits_for_node or never_began:
            with contextlib.suppress(AwayError):
                nodes = queries.ask_nodes(self._transport)

        statuses = {}
        for job in jobs:
            try:
                polled = self._polled_job(job, queue_rows[job.job_id], poll, accounting, nodes)
                statuses[job.job_id] = judge.judge(polled)
            except AwayError:
                raise
            except Exception as error:  # of this job alone
                statuses[job.job_id] = unseen(error)
        self._handle_ended(jobs, queue_rows, statuses)
        return statuses

    def _queue_rows(self, jobs: Sequence[Submitted], poll: queries.PollResult) -> dict[str, JobRow | None]:
        """Return squeue's row of each job, by job id. Slurm reuses ids after a crash: the folder must be ours, too."""
        rows: dict[str, JobRow | None] = {}
        for job in jobs:
            row = poll.rows.get(job.job_id)
            rows[job.job_id] = row if row is not None and row.lies_in(job.name) else None
        return rows

    def _polled_job(
        self,
        job: Submitted,
        queue_row: JobRow | None,
        poll: queries.PollResult,
        accounting: queries.AccountingResult,
        nodes: Mapping[str, NodeRow] | None,
    ) -> judge.PolledJob:
        scontrol_row = None
        if accounting.rows is None and queue_row is not None and not queue_row.live and queue_row.state != "COMPLETED":
            scontrol_row = queries.show_job(self._transport, job)  # the only one left that knows the exit code
        exit_file = poll.exit_files.get(job.name)
        return judge.PolledJob(
            queue_row=queue_row,
            accounting_rows=_accounting_rows(job, queue_row, accounting),
            accounting_enabled=accounting.enabled,
            scontrol_row=scontrol_row,
            exit_file=exit_file,
            log_bytes=poll.log_bytes.get(job.name),
            started=job.name in poll.started,
            job_id=job.job_id,
            log_path=f"{self._jobs_folder}/{job.name}/log",
            log_lines=accounting.log_lines.get(job.name, ()),
            nodes=nodes,
            unchanged_s=self._unchanged_s(job, queue_row, only_accounting_knows=accounting.silent and not exit_file),
        )

    def _unchanged_s(self, job: Submitted, queue_row: JobRow | None, *, only_accounting_knows: bool) -> float:
        """Return for how long the job has been ended, unknown to Slurm, or pending for the same reason.

        The time starts again when accounting, if only it knows how the job ended, stops or begins to answer.
        """
        if queue_row is None:
            condition = "unknown, accounting does not answer" if only_accounting_knows else "unknown"
        elif queue_row.live:
            condition = f"pending {queue_row.reason}"
        else:
            condition = "ended"
        now = time.monotonic()
        known_condition, since = self._conditions.get(job.job_id, ("", now))
        if condition != known_condition:
            since = now
            self._conditions[job.job_id] = (condition, since)
        return now - since

    def _handle_ended(
        self, jobs: Sequence[Submitted], queue_rows: Mapping[str, JobRow | None], statuses: dict[str, Status]
    ) -> None:
        """Forget what is kept of live jobs, and cancel ended jobs that squeue still shows; notes in `statuses`."""
        ended = [job for job in jobs if not statuses[job.job_id].state.live]
        for job in ended:
            self._ended.add(job.job_id)
            self._log_bytes.pop(job.name, None)  # Slurm may write to the log after the script's end
            self._with_exit_file.discard(job.name)
        still_queued = [job for job in ended if _is_live(queue_rows[job.job_id])]
        if not still_queued or not self.ends_failed:
            return
        for job_id, why in self.cancel(still_queued).items():
            status = statuses[job_id]
            statuses[job_id] = replace(status, reason=f"{status.reason}; it could not be stopped: {why}")

    def has_news(self, jobs: Sequence[Submitted]) -> bool:
        """Return whether the script of one more job has written its exit file."""
        names_by_path = {
            f"{self._jobs_folder}/{job.name}/exit": job.name for job in jobs if job.name not in self._with_exit_file
        }
        existing = file_transfer.existing(self._transport, list(names_by_path))
        self._with_exit_file.update(names_by_path[path] for path in existing)
        return bool(existing)

    def read(self, job: Submitted, offset: int, known: bytes = b"") -> bytes:
        """Read the log. Asks nothing while the last poll saw no more than `offset` bytes of it."""
        path = f"{self._jobs_folder}/{job.name}/log"
        if self._log_bytes.get(job.name) == offset:
            return b""
        chunk = staging.read_log(self._transport, path, offset, known)
        if len(chunk) < log_file.CHUNK:
            self._log_bytes[job.name] = offset + len(chunk)
        return chunk

    # --- ending ------------------------------------------------------------------------------------------------------

    def cancel(self, jobs: Sequence[Submitted]) -> dict[str, str]:
        """Cancel jobs until Slurm takes the order, then poll until they are gone.

        The order is repeated while Slurm does not answer, and when squeue showed none of the jobs but does now. It is
        not repeated for jobs that Slurm refuses to cancel (access denied).
        """
        left = {job.job_id: job for job in jobs}
        deadline = time.monotonic() + CANCEL_LIMIT_S
        last_poll = ""
        order = queries.CancelResult(away="not asked yet")
        try:
            while left.keys() - order.refused.keys() and time.monotonic() < deadline:
                if order.away or order.no_jobs:
                    order = queries.cancel(self._transport, list(left.values()))
                if not order.away:
                    poll = queries.poll(self._transport, list(left.values()), self._jobs_folder)
                    self._log_bytes.update(poll.log_bytes)
                    order = replace(order, away=poll.away)  # a controller that is away may forget the order
                    last_poll = poll.away or self._remove_gone(left, poll)
                if left:
                    time.sleep(CANCEL_POLL_S)
            last_poll = order.away or last_poll
        except AwayError as error:
            last_poll = str(error)

        command = self._transport.typed("scancel " + " ".join(sorted(left)))
        problems = {}
        for job_id in left:
            order_message = order.refused.get(job_id, "" if order.away else order.message)
            why = "; ".join(filter(None, [last_poll, order_message]))
            problems[job_id] = f"job {job_id} may still run ({why}): {command}"
        return problems

    def _remove_gone(self, left: dict[str, Submitted], poll: queries.PollResult) -> str:
        """Remove from `left` the jobs that are gone; return what Slurm says of the others."""
        states = set()
        for job_id, row in self._queue_rows(list(left.values()), poll).items():
            if row is not None and row.live:
                states.add(row.state)
            else:
                del left[job_id]
        return f"Slurm says {', '.join(sorted(states))}"

    def clean(self, job: Submitted) -> None:
        """Slurm holds nothing of a job that has ended. Its folder is evidence; `prune` removes it one day."""

    def hints(self, job: Submitted) -> tuple[str, ...]:
        shows_end = f"scontrol show job {job.job_id}"
        if self._accounting_enabled:
            shows_end = f"sacct --jobs={job.job_id} --format=JobID,JobName,State,ExitCode,Start,End,NodeList"
        commands = [shows_end, f"less {self._jobs_folder}/{job.name}/log"]
        if job.job_id not in self._ended:
            commands = [f"squeue --jobs={job.job_id}", *commands, f"scancel {job.job_id}"]
        return tuple(self._transport.typed(command) for command in commands)


def _is_live(row: JobRow | None) -> bool:
    return row is not None and row.live


def _is_cancelled(queue_row: JobRow | None, accounting_rows: Sequence[JobRow] | None) -> bool:
    rows = [*(accounting_rows or ())[:1], *([queue_row] if queue_row is not None else [])]
    return any(row.state == "CANCELLED" and row.nodes for row in rows)


def _accounting_rows(
    job: Submitted, queue_row: JobRow | None, accounting: queries.AccountingResult
) -> Sequence[JobRow] | None:
    """Return the row of the job and those of its steps; None when accounting does not answer.

    Of an id that Slurm gave twice, accounting has the rows of both jobs: ours are those below the row with our folder
    or, where somebody has changed that, with the time at which by squeue our job was submitted. Of a job that was
    queued again they are those of its first start. A row without any folder is not whole yet: of a short job
    accounting may hear of the end first, and then knows one of its nodes and some of its steps.
    """
    if accounting.rows is None:
        return None
    rows = accounting.rows.get(job.job_id, [])
    own_rows: list[JobRow] = []
    for row in rows:
        is_job = row.id == job.job_id
        if is_job and own_rows:
            break  # the rows of the next job with this id begin
        is_moved = row.has_folder and queue_row is not None and row.submitted_s == queue_row.submitted_s
        if own_rows or (is_job and (row.lies_in(job.name) or is_moved)):
            own_rows.append(row)
    return own_rows
