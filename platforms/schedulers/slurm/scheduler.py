"""Jobs through Slurm, from its login node or from afar: one squeue a look, and nothing that cannot be found again."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from platforms import transports
from platforms.job import AwayError, JobSpec, MachineError, NoRoom, RefusedError, State, Status, Submitted
from platforms.schedulers import log_file, staging
from platforms.schedulers.slurm import errors, judge, policy, queries, submission, trial
from platforms.schedulers.slurm import render as rendering
from platforms.schedulers.slurm.states import JobRow

if TYPE_CHECKING:
    from platforms.config.schema import Platform

CANCEL_LIMIT_S = 120.0  # KillWait is 30 s at most sites, then comes the epilog
CANCEL_POLL_S = 1.0
SOON_S = 1.0  # from one squeue to the next at the least
CALM_S = 10.0  # a `poll_s:` above it is a site's wish, and nothing is asked sooner
GLANCE_S = {"local": 0.5}  # by transport: on this machine a glance starts no process
FAR_GLANCE_S = 2.0


class SlurmScheduler:
    """The Protocol `Scheduler` for Slurm. A job's id is Slurm's; its folder follows from its name."""

    text_name = "job.sh"
    log_in_folder = False
    ends_failed = True
    clean_deletes = False

    def __init__(
        self,
        platform: Platform,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._platform = platform
        self._transport = transports.connect(platform)
        self._clock, self._sleep = clock, sleep
        self._jobs = f"{platform.work_dir}/jobs"
        self.first_look_s = SOON_S if platform.poll_s <= CALM_S else platform.poll_s
        self.glance_s = GLANCE_S.get(platform.transport, FAR_GLANCE_S)
        self._with_exit_file: set[str] = set()  # names of jobs whose exit file has been seen
        self._sizes: dict[str, int] = {}  # of logs, by job name, as last seen
        self._ended: set[str] = set()  # ids of jobs
        self._since: dict[str, tuple[str, float]] = {}  # in which unsettled condition a job is, and since when

    def render(self, spec: JobSpec) -> str:
        """An sbatch script."""
        return rendering.render(spec, self._platform)

    def lint(self, spec: JobSpec, text: str) -> Sequence[str]:
        return policy.lint(spec, text, self._platform)

    def check(self, spec: JobSpec, text: str) -> Sequence[str]:
        """What sbatch says to the script with --test-only."""
        taken, words = trial.sbatch_test_only(self._transport, text)
        return () if taken else (f"sbatch: {words}",)

    # --- submitting --------------------------------------------------------------------------------------------------

    def submit(self, spec: JobSpec, text: str, folder: Path) -> str:
        """One command on the login node, which claims the job's folder there: see submission.py."""
        archive = rendering.archive_of(self._platform, spec) if spec.archive else None
        there = rendering.folder_of(self._platform, spec.name)
        needs = submission.requirements(archive, spec.data_dir, str(self._platform.work_dir))
        command = submission.submission_script(spec, text, there, needs)
        answer = self._submit(command)
        if (answer.word, answer.rest) == ("missing", "archive"):
            assert spec.archive is not None
            staging.put_archive(self._transport, spec.archive, str(archive))
            answer = self._submit(command)
        if answer.word == "id":
            return answer.rest
        raise self._refused(answer, spec, there, folder)

    def _submit(self, command: bytes) -> submission.SubmissionResult:
        done = self._transport.run(["sh", "-s"], input=command, timeout_s=submission.LIMIT_S)
        return submission.parse_result(done.stdout, done.stderr)

    def _refused(self, answer: submission.SubmissionResult, spec: JobSpec, there: str, folder: Path) -> Exception:
        """The error that says why there is no job, or that nobody knows; nothing is left behind by a refusal."""
        where, said = self._transport.where, answer.errors or "no word of why"
        if answer.word == "refused" and errors.was_not_sent(said):
            self._forget(there)  # else the next one waits until the claim of this one is old
            return AwayError(f"{where}: Slurm was not reached, and {spec.name} is not submitted: {said}")
        if answer.unsure:
            return AwayError(f"{where}: not known yet whether Slurm took {spec.name}: {said}")
        if answer.word == "missing":
            return staging.missing_data(self._platform, spec, folder)
        self._forget(there)
        if answer.word == "unwritable":
            return RefusedError(f"{where}: {there} cannot be written: {said}; `work_dir:` in {self._platform.source}")
        if answer.word == "refused" and answer.rest == "127":
            hint = f"is this a login node? `login_shell: true` in {self._platform.source} may find it"
            return RefusedError(f"{where}: there is no sbatch: {said}; {hint}")
        if errors.is_no_room(said):
            return NoRoom(f"{where}: sbatch takes no more jobs for now: {said}")
        reason = f"sbatch refused it: {said}; script: {folder / self.text_name}"
        return MachineError(f"{spec.name}: {reason}", Status(errors.refusal_state(said), reason), folder)

    def _forget(self, there: str) -> None:
        """Remove the folder of a job that never was, so that a better one may take the name. A full disk lets us."""
        self._transport.run(["rm", "-rf", "--", there])

    # --- following ---------------------------------------------------------------------------------------------------

    def status(self, jobs: Sequence[Submitted]) -> dict[str, Status]:
        """One squeue for all; for those that have ended one sacct for all. What can never start is cancelled where we
        may end it: it must not start one day."""
        look = queries.poll(self._transport, jobs, self._jobs)
        self._sizes.update(look.log_bytes)
        if look.away:
            for job in jobs:  # time in which nobody answers says nothing about a job
                self._since.pop(job.job_id, None)
            return {job.job_id: Status(State.UNKNOWN, look.away, away=True) for job in jobs}
        rows = {job.job_id: self._own(job, look.rows.get(job.job_id)) for job in jobs}
        over = [job for job in jobs if (row := rows[job.job_id]) is None or not row.live]
        account = (
            queries.ask_accounting(self._transport, over, self._jobs)
            if over
            else queries.AccountingResult({}, True, {})
        )
        found = {}
        for job in jobs:
            row = rows[job.job_id]
            seen = judge.PolledJob(
                row=row,
                account=self._steps(job, account),
                accounting=account.enabled,
                detail=None if account.rows is not None or row is None else self._detail(job, row),
                exit=look.exits.get(job.name),
                log_bytes=look.log_bytes.get(job.name),
                started=job.name in look.started,
                job_id=job.job_id,
                log=f"{self._jobs}/{job.name}/log",
                lines=account.lines.get(job.name, ()),
                waiting_s=self._waiting(job, row, deaf=account.silent and job.name not in look.exits),
            )
            found[job.job_id] = judge.judge(seen)
        ended = [job for job in jobs if not found[job.job_id].state.live]
        self._ended.update(job.job_id for job in ended)
        for job in ended:  # Slurm may write after the script's last word
            self._sizes.pop(job.name, None)
            self._with_exit_file.discard(job.name)
        held = [job for job in ended if (row := rows[job.job_id]) and row.live] if self.ends_failed else []
        for job_id, why in (self.cancel(held) if held else {}).items():
            found[job_id] = replace(found[job_id], reason=f"{found[job_id].reason}; it could not be stopped: {why}")
        return found

    def has_news(self, jobs: Sequence[Submitted]) -> bool:
        """Whether the script of one more job has written its exit file."""
        exit_files = {f"{self._jobs}/{job.name}/exit": job.name for job in jobs if job.name not in self._with_exit_file}
        found = {exit_files[path] for path in self._transport.existing(list(exit_files))}
        self._with_exit_file |= found
        return bool(found)

    def _own(self, job: Submitted, row: JobRow | None) -> JobRow | None:
        """Slurm gives an id again after a crash: a row of another name is another job's."""
        return row if row is not None and row.name == job.name else None

    def _detail(self, job: Submitted, row: JobRow) -> JobRow | None:
        """Of an ended job whose exit code nobody else tells."""
        return None if row.live or row.state == "COMPLETED" else queries.show_job(self._transport, job)

    def _steps(self, job: Submitted, account: queries.AccountingResult) -> Sequence[JobRow] | None:
        """The job's own row and its steps'; of an id that was given twice, those of the job that has our name."""
        if account.rows is None:
            return None
        rows = account.rows.get(job.job_id, [])
        starts = [index for index, row in enumerate(rows) if row.id == job.job_id]
        for begin, end in zip(starts, [*starts[1:], len(rows)], strict=False):
            if rows[begin].name == job.name:
                return rows[begin:end]
        return ()

    def _waiting(self, job: Submitted, row: JobRow | None, deaf: bool) -> float:
        """How long it has been ended, unknown to Slurm, or pending for the same reason. `deaf`: nobody but accounting
        can tell how it ended, and that does not answer."""
        gone = "gone, and nobody tells" if deaf else "gone"
        condition = gone if row is None else f"pending {row.reason}" if row.live else "ended"
        if self._since.get(job.job_id, ("", 0.0))[0] != condition:
            self._since[job.job_id] = (condition, self._clock())
        return self._clock() - self._since[job.job_id][1]

    def read(self, job: Submitted, offset: int, known: bytes = b"") -> bytes:
        """Nothing is asked while the last look at all logs saw no more of this one."""
        path = f"{self._jobs}/{job.name}/log"
        if self._sizes.get(job.name) == offset:
            return b""
        try:
            found = self._transport.get(path, offset - len(known), len(known) + log_file.CHUNK)
        except transports.MissingFile:
            return b""
        chunk = log_file.new_bytes(found, known, path)
        if len(chunk) < log_file.CHUNK:
            self._sizes[job.name] = offset + len(chunk)
        return chunk

    # --- ending ------------------------------------------------------------------------------------------------------

    def gaps(self, job: Submitted) -> Sequence[str]:
        """A file has none."""
        return ()

    def cancel(self, jobs: Sequence[Submitted]) -> dict[str, str]:
        """Order their end until Slurm takes the order, then see that they are gone. An order that Slurm refuses (access
        denied) is not given again; one that was for nobody is, should squeue still show one."""
        left = {job.job_id: job for job in jobs}
        deadline, said, order = self._clock() + CANCEL_LIMIT_S, "", queries.CancelResult(away="not asked yet")
        try:
            while left.keys() - order.refused.keys() and self._clock() < deadline:
                if order.away or order.for_nobody:
                    order = queries.cancel(self._transport, list(left.values()))
                if not order.away:
                    look = queries.poll(self._transport, list(left.values()), self._jobs)
                    said, order = self._take_out_gone(left, look), replace(order, away=look.away)
                if left:
                    self._sleep(CANCEL_POLL_S)
            said = order.away or said
        except AwayError as error:
            said = str(error)
        hint = self._transport.typed("scancel " + " ".join(sorted(left)))
        told = {job_id: order.refused.get(job_id, "" if order.away else order.said) for job_id in left}
        why = {job_id: "; ".join(filter(None, [said, told[job_id]])) for job_id in left}
        return {job_id: f"job {job_id} may still run ({why[job_id]}): {hint}" for job_id in left}

    def _take_out_gone(self, left: dict[str, Submitted], look: queries.PollResult) -> str:
        """Returns what Slurm says of those that are left."""
        self._sizes.update(look.log_bytes)
        if look.away:  # the controller may have forgotten the order, too
            return look.away
        rows = {job_id: self._own(job, look.rows.get(job_id)) for job_id, job in left.items()}
        live = {job_id: row for job_id, row in rows.items() if row is not None and row.live}
        for job_id in rows.keys() - live.keys():
            del left[job_id]
        return f"Slurm says {', '.join(sorted({row.state for row in live.values()}))}"

    def clean(self, job: Submitted) -> None:
        """Slurm holds nothing of a job that has ended; its folder is evidence, and `prune` takes it away one day."""

    def hints(self, job: Submitted) -> tuple[str, ...]:
        fields = "JobID,JobName,State,ExitCode,Start,End,NodeList"
        record, log = f"sacct --jobs={job.job_id} --format={fields}", f"less {self._jobs}/{job.name}/log"
        commands = [f"squeue --jobs={job.job_id}", record, log, f"scancel {job.job_id}"]
        if job.job_id in self._ended:
            commands = [record, log]
        return tuple(self._transport.typed(command) for command in commands)
