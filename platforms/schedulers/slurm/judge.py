"""What became of one job: squeue, sacct and the exit file that its own script wrote, weighed against each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from platforms.job import State, Status, signal_of_exit, state_of_exit
from platforms.schedulers import log_file
from platforms.schedulers.slurm import error_messages
from platforms.schedulers.slurm.error_messages import LogErrors
from platforms.schedulers.slurm.states import STATES, JobRow, can_never_start, expand_nodes

NEVER_S = 20.0  # a job that can never start is believed so after that long: reasons come and go at first
ACCOUNT_S = 60.0  # how long accounting may lag behind the controller, or be away
LAG_S = 60.0  # how long a shared file system may show less of a log than was written
LOST_S = 90.0  # how long a job may be known to nobody
RUNAWAY_S = 300.0  # how long accounting may take a job for alive that the controller does not know


@dataclass(frozen=True)
class ExitFile:
    """What the job's own script wrote last (slurm_templates/job.sh). `steps_known`: its exit code tells how every step
    of the job ended, since no command of others starts one."""

    exit_code: int
    ended_s: float
    log_bytes: int
    refused: str = ""
    steps_known: bool = False
    nodes: str = ""  # as Slurm writes them


@dataclass(frozen=True)
class PolledJob:
    """All that is known of a job at one look. `account` is None while accounting does not answer, and empty where it
    knows no such job; `accounting` says whether there is any; `detail` is scontrol's word, asked for where there is no
    other; `log_bytes` is the size of the file `log`, None where there is none; `waiting_s` is how long the job has been
    ended, unknown to Slurm, or pending for the same reason."""

    row: JobRow | None = None
    account: Sequence[JobRow] | None = ()
    accounting: bool = True
    detail: JobRow | None = None
    exit: ExitFile | None = None
    log_bytes: int | None = 0
    started: bool = False
    job_id: str = ""
    log: str = "its log"
    lines: Sequence[str] = ()  # of its log, that Slurm may have written
    waiting_s: float = 0.0


def judge(seen: PolledJob) -> Status:
    """The job's status now; live while its end cannot be told for certain yet."""
    row, account = seen.row, list(seen.account or ())
    if row is not None and row.live:
        return _live(row, seen)
    over = bool(account) and not account[0].live
    settled = over and not any(step.live for step in account)
    if row is None and not over and seen.exit is None:
        return _missing(account, seen)
    if not settled and seen.accounting and seen.waiting_s < ACCOUNT_S:
        return _ending("ended; its steps are not accounted for yet", row, account)
    best = account[0] if over else row
    ran = seen.exit is not None or (best is not None and best.state == "COMPLETED")
    if ran and _lacking(seen) and seen.waiting_s < LAG_S:
        return _ending("ended; its log and its script's last word are still on their way", row, account)
    return _ended(row, account if over else [], seen)


def _lacking(seen: PolledJob) -> tuple[str, ...]:
    """What a job leaves that has run, and what the login node does not see."""
    lacking = []
    if seen.log_bytes is None:
        lacking.append(log_file.gone(seen.log))
    if seen.exit is None:
        lacking.append("its script left no file `exit`, which says how long the log is")
    elif seen.log_bytes is not None and seen.exit.log_bytes > seen.log_bytes:
        lacking.append(f"{seen.log} has {seen.log_bytes} bytes, and its script counted {seen.exit.log_bytes}")
    return tuple(lacking)


def _missing(account: Sequence[JobRow], seen: PolledJob) -> Status:
    """The controller knows of no such job, and nothing says how it ended. It forgets a job soon after its end, and what
    it tells accounting may come later; after a crash it may have forgotten one that accounting never hears of again."""
    no_word = "its script left no word of its end"
    if account:
        reason = f"squeue does not know it, sacct says {account[0].state}"
        if seen.waiting_s < RUNAWAY_S:
            return _status(State.UNKNOWN, reason, None, account)
        return _status(State.LOST, f"{reason} for {RUNAWAY_S:g} s now, and {no_word}", None, account)
    if seen.accounting and seen.account is None:
        return Status(State.UNKNOWN, f"squeue does not know it, sacct does not answer, and {no_word}")
    if seen.waiting_s < LOST_S:
        return Status(State.UNKNOWN, "Slurm does not know it (yet)")
    return Status(State.LOST, f"neither squeue nor sacct knows it, and {no_word}")


def _ending(reason: str, row: JobRow | None, account: Sequence[JobRow]) -> Status:
    """Not all is known of its end yet. One that never had a node was cancelled in the queue, and never ran."""
    status = _status(State.RUNNING, reason, row, account)
    return status if status.nodes else replace(status, state=State.STARTING)


def _live(row: JobRow, seen: PolledJob) -> Status:
    state = STATES.get(row.state) or State.UNKNOWN
    if state is State.QUEUED and seen.started:
        if seen.exit and seen.exit.exit_code == 0 and seen.waiting_s < LOST_S:
            return _status(State.UNKNOWN, "Slurm takes it for queued, and its script has ended", row)
        return _status(State.PREEMPTED, f"Slurm queued it again after it had started ({row.reason})", row)
    if state is State.QUEUED and can_never_start(row.reason) and seen.waiting_s >= NEVER_S:
        return _status(State.NEVER_ADMISSIBLE, f"it pends for {row.reason}, which waiting does not change", row)
    error_messages = [row.state.lower()] if row.state not in ("PENDING", "RUNNING") else []
    error_messages += [row.reason] if row.reason and state is not State.RUNNING else []
    return _status(state, ": ".join(error_messages), row)


def _ended(row: JobRow | None, account: Sequence[JobRow], seen: PolledJob) -> Status:
    best = account[0] if account else seen.detail
    job = best or row
    why = _why(job, row) if job else "Slurm has forgotten it; its own script says how it ended"
    status = _status(State.UNKNOWN, why, row, [best] if best else [])
    if seen.exit and not status.nodes:
        status = replace(status, nodes=expand_nodes(seen.exit.nodes))
    said = error_messages.find_errors(seen.lines, seen.job_id, status.nodes)
    if seen.exit:
        status = replace(status, ended_s=status.ended_s or seen.exit.ended_s)
        if seen.exit.refused:
            return _refused(seen.exit, status, said)
    code, number = _exit(best, seen.exit)
    state = STATES.get(job.state, State.LOST) if job else None
    if state is State.CANCELLED and seen.exit and seen.exit.ended_s < (status.started_s or 0.0):
        # a controller that crashed before it had saved that the job runs started it again, and its node refused
        state, status = None, replace(status, reason="", started_s=None, ended_s=seen.exit.ended_s)
    if state is None:  # COMPLETED or FAILED: the code says which
        status = replace(status, exit_code=code, signal=number, ended_s=_script_ended_s(status, seen.exit))
        state, status = _by_steps(_by_code(code, number, job), account[1:], said, status)
        if state is State.SIGNALLED:
            status = replace(status, signal=status.signal or signal_of_exit(status.exit_code))
        if state is State.SUCCEEDED:
            status = replace(status, problems=_lacking(seen), warnings=_doubts(seen, steps=account[1:]))
    if state is State.START_DEADLINE and seen.started:
        state = State.TIME_LIMIT
    if state is not State.SUCCEEDED and not status.reason:
        unseen = "Slurm could not begin: does the compute node see work_dir?" if best and best.signal == 53 else ""
        status = replace(status, reason=said.telling or unseen)
    return replace(status, state=state)


def _script_ended_s(status: Status, exit_file: ExitFile | None) -> float | None:
    """When the job ended by its script's word: a controller that was away hears of it later. The clocks of two machines
    differ, and an end before the start would be none."""
    if exit_file is None or status.ended_s is None or exit_file.ended_s < (status.started_s or 0.0):
        return status.ended_s
    return min(status.ended_s, exit_file.ended_s)


def _doubts(seen: PolledJob, steps: Sequence[JobRow]) -> tuple[str, ...]:
    """What is not known of a success for which there are no rows of steps."""
    if steps or (seen.exit and seen.exit.steps_known):
        return ()
    why = "Slurm keeps no account of steps here"
    has_its_end = bool(seen.account and not seen.account[0].live)
    if seen.accounting and not has_its_end:
        why = f"accounting said nothing about them for {ACCOUNT_S:g} s"
    evidence = "its script's exit code and the lines of srun and slurmstepd in its log show no failure"
    return (f"how the steps of the job ended is not known, since {why}; {evidence}",)


def _refused(exit_file: ExitFile, status: Status, said: LogErrors) -> Status:
    """The script itself would not start the ranks."""
    states = {"late": State.START_DEADLINE, "again": State.PREEMPTED}
    state = states.get(exit_file.refused, State.REQUEST_REFUSED)
    reasons = {"late": "its start limit had passed when Slurm started it", "again": "Slurm started it a second time"}
    reason = reasons.get(exit_file.refused, said.telling)
    return replace(status, state=state, reason=reason, exit_code=exit_file.exit_code)


def _by_code(code: int | None, number: int | None, job: JobRow | None) -> State:
    if number:
        return State.SIGNALLED
    if code is None or (code == 0 and job is not None and job.state == "FAILED"):
        # 0:53 and the like: Slurm could not even begin, as with an --output that cannot be opened
        return State.NOT_STARTABLE if job is not None and job.state == "FAILED" else State.SUCCEEDED
    return state_of_exit(code, speaks_wire=False)


def _by_steps(state: State, steps: Sequence[JobRow], said: LogErrors, status: Status) -> tuple[State, Status]:
    """A job is as good as the worst of its steps, and a step knows more than the code that srun made of it: with
    --kill-on-bad-exit that is the one of the tasks that srun itself ended, 143. Where accounting has no steps, what
    Slurm wrote into the log tells of them."""
    succeeded = state is State.SUCCEEDED
    launched = [step for step in steps if step.id.rpartition(".")[2].isdigit()]  # by srun; not `batch`, `extern`
    wrong = [step for step in launched if step.state != "COMPLETED" and not step.live]
    full = next((step for step in steps if step.state == "OUT_OF_MEMORY"), None)
    if full or (said.memory and (wrong or not steps or not succeeded)):
        reason = said.telling or f"Slurm says so of step {full.id if full else ''}"
        return State.OUT_OF_MEMORY, replace(status, reason=reason)
    if said.command and not succeeded:
        return State.NOT_STARTABLE, replace(status, reason=said.command)
    if said.not_begun and succeeded:  # accounting has no row of a step that was refused
        return State.NOT_STARTABLE, replace(status, reason=said.not_begun)
    if (said.task or said.stopped) and succeeded and not steps:
        code = said.exit_code
        failed = State.EXITED if code is None else state_of_exit(code, speaks_wire=False)
        return failed, replace(status, exit_code=code, reason=said.telling)
    bad = next((step for step in wrong if step.exit_code), wrong[0] if wrong and succeeded else None)
    if bad is None or (not succeeded and status.exit_code not in (137, 143)):
        return state, status
    reason = f"step {bad.id} ended {bad.state} with exit code {bad.exit_code}, the job with {status.exit_code}"
    code = bad.exit_code or 128 + (bad.signal or 0)
    if said.task and said.exit_code is not None:
        code = said.exit_code  # of the task that began it; the step's may be of those that srun then ended
    reason = said.telling or reason
    return state_of_exit(code, speaks_wire=False), replace(status, exit_code=code, signal=None, reason=reason)


def _exit(job: JobRow | None, exit_file: ExitFile | None) -> tuple[int | None, int | None]:
    """Exit code and signal. Slurm knows of a signal that ended the script, and gives 53 where it could not begin; of
    codes above 128 it keeps only the rest, so the script's own word goes before."""
    if job is not None and job.signal:
        return (0, None) if job.signal == 53 else (128 + job.signal, job.signal)
    if exit_file is not None:
        return exit_file.exit_code, None
    return (job.exit_code if job is not None else None), None


def _why(job: JobRow, row: JobRow | None) -> str:
    """Slurm's own words for an end that is no exit code of the job's."""
    if STATES.get(job.state) is None:
        return ""
    said = job.reason or (row.reason if row else "")
    return f"Slurm says {job.state}" + (f": {said}" if said and said != job.state else "")


def _status(state: State, reason: str, row: JobRow | None, account: Sequence[JobRow] = ()) -> Status:
    """With nodes and times from whoever knows them."""
    known = [job for job in (account[0] if account else None, row) if job is not None]
    return Status(
        state,
        reason,
        nodes=next((expand_nodes(job.nodes) for job in known if job.nodes), ()),
        submitted_s=next((job.submitted_s for job in known if job.submitted_s), None),
        started_s=next((job.started_s for job in known if job.started_s), None),
        ended_s=next((job.ended_s for job in known if job.ended_s), None),
        expected_s=row.expected_s if row is not None and state is State.QUEUED else None,
    )
