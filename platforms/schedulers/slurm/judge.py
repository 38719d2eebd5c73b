"""The verdict on one job: its Status from what squeue, sacct, scontrol, its script and its log say. Asks nothing.

The first line that fits counts. "-" stands for anything.

    squeue shows           sacct shows         the script left    verdict
    ---------------------  ------------------  -----------------  -----------------------------------------------------
    PENDING                (is not asked)      a start mark       PREEMPTED: Slurm queued the job again; UNKNOWN until
                                                                  LOST_S if the script ended with exit code 0
    PENDING                (is not asked)      -                  NEVER_ADMISSIBLE if a node that it must have is out
                                                                  of service; QUEUED; after NEVER_S NEVER_ADMISSIBLE
                                                                  if waiting does not change the reason for which it
                                                                  pends
    another live row       (is not asked)      -                  the row's state (STATES in states.py)
    no row                 a live row          no exit file       UNKNOWN, after RUNAWAY_S LOST
    no row                 no answer           no exit file       UNKNOWN
    no row                 no row              no exit file       UNKNOWN, after LOST_S LOST
    an end, or no row      no end of all steps -                  RUNNING until ACCOUNT_S: accounting lags behind
    an end, or no row      -                   no exit file, or   RUNNING until LAG_S: a shared file system lags behind
                                               an incomplete log
    an end, or no row      -                   a refusal          START_DEADLINE, PREEMPTED, REQUEST_REFUSED; NODE_LOST
                                                                  if a vetted node is unfit
    an end, or no row      -                   -                  NODE_LOST if a node did not start the tasks of srun,
                                                                  or if its prolog failed before a CANCELLED script
    TIMEOUT, NODE_FAIL, …  the same            -                  that state
    no row                 no row              -                  what slurmstepd's last words in the log say
    COMPLETED, FAILED      the same            -                  what exit code and signal mean (_end_by_exit_code);
    no row                 no row              an exit file       then a failed step, or an error of Slurm in the log,
                                                                  may say otherwise (_correct_by_steps)

Of several rows with an end, sacct's counts before scontrol's, and scontrol's before squeue's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from platforms.job import UNFIT, State, Status, signal_of_exit, state_of_exit
from platforms.schedulers import log_file
from platforms.schedulers.slurm.error_messages import LogErrors, find_errors
from platforms.schedulers.slurm.node_states import drain_command, why_out_of_service
from platforms.schedulers.slurm.rows import VET_STEP, ExitFile, JobRow, NodeRow, expand_nodes
from platforms.schedulers.slurm.states import STATES, asked_node_is_out, can_never_start

NEVER_S = 20.0  # how long a job must pend for a hopeless reason: reasons come and go at first
ACCOUNT_S = 60.0  # how long accounting may lag behind the controller, or not answer
LAG_S = 60.0  # how long a shared file system may show less of a log than was written
LOST_S = 90.0  # how long neither squeue nor sacct may know a job
RUNAWAY_S = 300.0  # how long accounting may show a job as live that the controller does not know

BEGIN_FAILED_SIGNAL = 53  # Slurm's exit code 0:53: it could not set the job up, as when --output cannot be opened
PROLOG_FAILED = "Prolog error"  # what slurmd writes beside a node that it drains for that
VETTED = "unfit:"  # begins why the script of a job with vetted nodes did not start the ranks
ENDED_FROM_OUTSIDE = (128 + 9, 128 + 15)  # exit codes of a step whose tasks got SIGKILL or SIGTERM, also from srun


@dataclass(frozen=True)
class PolledJob:
    """Everything that one poll found out about a job.

    Attributes:
        queue_row: what squeue shows; None when it does not know the job.
        accounting_rows: what sacct shows, the job first, then its steps; empty when it does not know the job, None
            when it does not answer.
        accounting_enabled: whether the cluster keeps accounts at all.
        scontrol_row: what scontrol shows; asked for only when sacct has no answer.
        exit_file: what the job's script wrote at its end.
        log_bytes: size of the log; None when there is no log.
        started: whether the script left its start mark.
        job_id: Slurm's id.
        log_path: where the log lies, for messages.
        log_lines: lines of the log that Slurm may have written.
        nodes: what sinfo shows of all nodes, by name; None when it was not asked, or does not answer.
        unchanged_s: for how many seconds the job has been ended, unknown to Slurm, or pending for the same reason.
    """

    queue_row: JobRow | None = None
    accounting_rows: Sequence[JobRow] | None = ()
    accounting_enabled: bool = True
    scontrol_row: JobRow | None = None
    exit_file: ExitFile | None = None
    log_bytes: int | None = 0
    started: bool = False
    job_id: str = ""
    log_path: str = "its log"
    log_lines: Sequence[str] = ()
    nodes: Mapping[str, NodeRow] | None = None
    unchanged_s: float = 0.0

    @property
    def ended_in_accounting(self) -> bool:
        """Whether accounting has the job's end, if perhaps not yet those of all steps."""
        rows = self.accounting_rows or ()
        return bool(rows) and not rows[0].live


@dataclass(frozen=True)
class _End:
    """How a job ended. `exit_code` and `signal` stay None when Slurm ended the job for a reason of its own."""

    state: State
    reason: str = ""
    exit_code: int | None = None
    signal: int | None = None
    failed_nodes: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Ended:
    """A job that is over, and what Slurm knows of its end.

    Attributes:
        account_row: the end by accounting, else by scontrol; None if neither has one.
        last_row: `account_row`, else squeue's; None if Slurm has forgotten the job.
        steps: the rows of its steps, if accounting has its end.
        slurm_state: the end by Slurm's word for it; None if the exit code says how the job ended.
        status: its nodes and times.
        errors: Slurm's own lines in its log.
    """

    job: PolledJob
    account_row: JobRow | None
    last_row: JobRow | None
    steps: Sequence[JobRow]
    slurm_state: State | None
    status: Status
    errors: LogErrors


def judge(job: PolledJob) -> Status:
    """Return the job's status now. It stays live until its end is certain."""
    for row in (_pending, _live, _unknown_to_squeue, _steps_missing, _evidence_missing):
        status = row(job)
        if status is not None:
            return status
    return _judge_ended(job)


# --- the rows of the table: jobs that have not ended, or of which nothing says how -----------------------------------


def _pending(job: PolledJob) -> Status | None:
    """squeue shows the job as waiting."""
    row = job.queue_row
    if row is None or not row.live or STATES.get(row.state) is not State.QUEUED:
        return None
    if job.started:
        if job.exit_file and job.exit_file.exit_code == 0 and job.unchanged_s < LOST_S:
            return _status(State.UNKNOWN, "squeue shows it as queued, and its script has ended", row)
        return _status(State.PREEMPTED, f"Slurm queued it again after it had started ({row.reason})", row)
    if asked_node_is_out(row.reason) and job.nodes is not None:
        why = why_out_of_service(expand_nodes(row.asked_nodes), job.nodes)
        if why:
            return _status(State.NEVER_ADMISSIBLE, why, row)
    if can_never_start(row.reason) and job.unchanged_s >= NEVER_S:
        return _status(State.NEVER_ADMISSIBLE, f"it pends for {row.reason}, which waiting does not change", row)
    return None


def _live(job: PolledJob) -> Status | None:
    """squeue shows the job in a state from which others follow."""
    row = job.queue_row
    if row is None or not row.live:
        return None
    state = STATES.get(row.state) or State.UNKNOWN
    reasons = []
    if row.state not in ("PENDING", "RUNNING"):
        reasons.append(row.state.lower())
    if row.reason and state is not State.RUNNING:
        reasons.append(row.reason)
    return _status(state, ": ".join(reasons), row)


def _unknown_to_squeue(job: PolledJob) -> Status | None:
    """squeue does not know the job, and neither accounting nor an exit file says how it ended.

    The controller forgets a job soon after its end, and what it tells accounting may come later. After a crash it may
    have forgotten a job whose end accounting never learns.
    """
    if job.queue_row is not None or job.exit_file is not None or job.ended_in_accounting:
        return None
    no_exit_file = "its script left no exit file"
    if job.accounting_rows:
        row = job.accounting_rows[0]
        reason = f"squeue does not know it, sacct says {row.state}"
        if job.unchanged_s < RUNAWAY_S:
            return _status(State.UNKNOWN, reason, None, row)
        return _status(State.LOST, f"{reason} for {RUNAWAY_S:g} s now, and {no_exit_file}", None, row)
    if job.accounting_enabled and job.accounting_rows is None:
        return Status(State.UNKNOWN, f"squeue does not know it, sacct does not answer, and {no_exit_file}")
    if job.unchanged_s < LOST_S:
        return Status(State.UNKNOWN, "Slurm does not know it (yet)")
    if find_errors(job.log_lines, job.job_id, ()).job_ended:
        return _judge_ended(job)
    return Status(State.LOST, f"neither squeue nor sacct knows it, and {no_exit_file}")


def _steps_missing(job: PolledJob) -> Status | None:
    """Accounting lags behind."""
    has_all_ends = job.ended_in_accounting and not any(row.live for row in job.accounting_rows or ())
    if has_all_ends or not job.accounting_enabled or job.unchanged_s >= ACCOUNT_S:
        return None
    return _still_ending("ended; its steps are not accounted for yet", job)


def _evidence_missing(job: PolledJob) -> Status | None:
    """A shared file system lags behind."""
    last_row = job.queue_row
    if job.accounting_rows and job.ended_in_accounting:
        last_row = job.accounting_rows[0]
    has_run = job.exit_file is not None or (last_row is not None and last_row.state == "COMPLETED")
    if not has_run or job.unchanged_s >= LAG_S or not _missing_evidence(job):
        return None
    return _still_ending("ended; its log and its exit file are still on their way", job)


def _still_ending(reason: str, job: PolledJob) -> Status:
    """The job has ended, but not all is known about its end yet."""
    accounting_row = next(iter(job.accounting_rows or ()), None)
    status = _status(State.RUNNING, reason, job.queue_row, accounting_row)
    if not status.nodes:  # it was cancelled in the queue and never ran
        return replace(status, state=State.STARTING)
    return status


def _missing_evidence(job: PolledJob) -> tuple[str, ...]:
    """Return a sentence for each thing that a job that has run leaves, and that the login node does not see."""
    missing = []
    if job.log_bytes is None:
        missing.append(log_file.gone(job.log_path))
    if job.exit_file is None:
        missing.append("its script left no file `exit`, which says how long the log is")
    elif job.log_bytes is not None and job.exit_file.log_bytes > job.log_bytes:
        missing.append(
            f"{job.log_path} has {job.log_bytes} bytes, and its script counted {job.exit_file.log_bytes}: lines are "
            "lost, as when a job cuts or replaces its log"
        )
    return tuple(missing)


# --- the rows of the table: jobs that have ended ---------------------------------------------------------------------


def _judge_ended(job: PolledJob) -> Status:
    """The job is over: the first row that fits says how."""
    ended = _ended(job)
    rows = (_refusal, _launch_failed, _prolog_failed, _slurms_word, _last_words, _exit_code)
    end = next(end for end in (row(ended) for row in rows) if end is not None)
    status = replace(ended.status, state=end.state, reason=end.reason, exit_code=end.exit_code, signal=end.signal)
    if end.failed_nodes:
        return replace(status, failed_nodes=end.failed_nodes)
    if end.state is State.SUCCEEDED:
        return replace(status, problems=_missing_evidence(job), warnings=_warnings(ended.steps, job))
    if end.reason or ended.errors.most_telling:
        return replace(status, reason=end.reason or ended.errors.most_telling)
    if ended.account_row is not None and ended.account_row.signal == BEGIN_FAILED_SIGNAL:
        return replace(status, reason="Slurm could not begin: does the compute node see work_dir?")
    return status


def _ended(job: PolledJob) -> _Ended:
    rows: Sequence[JobRow] = ()
    if job.accounting_rows and job.ended_in_accounting:
        rows = job.accounting_rows
    account_row = next(iter(rows), job.scontrol_row)
    last_row = account_row or job.queue_row
    slurm_state = None
    if last_row is not None:
        slurm_state = STATES.get(last_row.state, State.LOST)
    status = _status(State.UNKNOWN, "", job.queue_row, account_row)
    # The job's own row adds up those of its steps that end before it, whose times and nodes overlap. The largest row is
    # of one step, and has each node once.
    joules = [row.energy_j for row in rows[1:] if row.energy_j is not None]
    status = replace(status, nodes_energy_j=max(joules, default=None))
    exit_file = job.exit_file
    if exit_file is not None:
        nodes = status.nodes or expand_nodes(exit_file.nodes)
        status = replace(status, nodes=nodes, ended_s=status.ended_s or exit_file.ended_s)
        if slurm_state is State.CANCELLED and exit_file.ended_s < (status.started_s or 0.0):
            # A controller that crashed before it saved that the job runs started the job again, and the node refused
            # the second start. So the cancelled start is not the job's, and its script's end is the true one.
            slurm_state = None
            status = replace(status, started_s=None, ended_s=exit_file.ended_s)
    if slurm_state is None:
        status = replace(status, ended_s=_ended_s_by_script(status, exit_file))
    errors = find_errors(job.log_lines, job.job_id, status.nodes)
    steps = [row for row in rows[1:] if row.name != VET_STEP]
    return _Ended(job, account_row, last_row, steps, slurm_state, status, errors)


def _refusal(ended: _Ended) -> _End | None:
    """The script itself did not start the ranks."""
    exit_file = ended.job.exit_file
    if exit_file is None or not exit_file.refused:
        return None
    if exit_file.refused == "late":
        reason = "its start limit had passed when Slurm started it"
        return _End(State.START_DEADLINE, reason, exit_file.exit_code)
    if exit_file.refused == "again":
        return _End(State.PREEMPTED, "Slurm started it a second time", exit_file.exit_code)
    if exit_file.refused.startswith(VETTED):
        return _unfit(exit_file)
    return _End(State.REQUEST_REFUSED, ended.errors.most_telling, exit_file.exit_code)


def _unfit(exit_file: ExitFile) -> _End:
    """Nodes were vetted before the ranks (models/vet_job.py), and are unfit. The file has them as `n07:why;n09:why`."""
    found = (each.partition(":") for each in exit_file.refused.removeprefix(VETTED).split(";"))
    nodes = {node: why.replace("_", " ") for node, _, why in found}
    said = "; ".join(f"{node}: {why}" for node, why in nodes.items())
    drains = "; ".join(drain_command(node, f"unfit: {why.split(', ')[0]}") for node, why in nodes.items())
    reason = f"{UNFIT}{said}. To take it out of service, an administrator types: {drains}"
    return _End(State.NODE_LOST, reason, exit_file.exit_code, failed_nodes=tuple(nodes))


def _launch_failed(ended: _Ended) -> _End | None:
    """A node did not start the tasks of srun, and Slurm knows no end of its own."""
    node = ended.errors.failed_node
    if node is None or ended.slurm_state not in (None, State.CANCELLED):
        return None
    return _End(State.NODE_LOST, ended.errors.launch_failed, failed_nodes=(node,))


def _prolog_failed(ended: _Ended) -> _End | None:
    """The prolog of a node failed: Slurm cancelled the job before its script began, and drained the node."""
    job = ended.job
    if job.started or job.exit_file is not None or ended.slurm_state is not State.CANCELLED:
        return None
    nodes = job.nodes or {}
    for row in (nodes[name] for name in ended.status.nodes if name in nodes):
        if row.reason.startswith(PROLOG_FAILED):
            return _End(State.NODE_LOST, f"{row.name} is {row.state}: {row.reason}", failed_nodes=(row.name,))
    return None


def _slurms_word(ended: _Ended) -> _End | None:
    """Slurm's state names the end: TIMEOUT, NODE_FAIL, CANCELLED, … The exit code says nothing more."""
    state = ended.slurm_state
    last_row = ended.last_row
    if state is None or last_row is None:
        return None
    if state is State.START_DEADLINE and ended.job.started:
        state = State.TIME_LIMIT
    cause = last_row.reason
    if not cause and ended.job.queue_row is not None:
        cause = ended.job.queue_row.reason
    said = f"Slurm says {last_row.state}"
    if cause and cause != last_row.state:
        said += f": {cause}"
    if state is State.TIME_LIMIT and last_row.limit_s is not None:
        said += f" (its limit was {last_row.limit_s:g} s)"
    return _End(state, said)


def _last_words(ended: _Ended) -> _End | None:
    """Slurm has forgotten the job, and slurmstepd wrote into its log why it ended the job.

    The script's exit code is then only that of being ended.
    """
    errors = ended.errors
    if ended.last_row is not None or errors.end_of_job is None or errors.out_of_memory:
        return None
    return _End(errors.end_of_job, errors.job_ended)


def _exit_code(ended: _Ended) -> _End:
    """Exit code or signal says how the job ended, unless a failed step, or an error of Slurm in the log, knows more."""
    end = _correct_by_steps(_end_by_exit_code(ended), ended.steps, ended.errors)
    if end.state is State.SIGNALLED and not end.signal:
        return replace(end, signal=signal_of_exit(end.exit_code))
    return end


def _end_by_exit_code(ended: _Ended) -> _End:
    """The job COMPLETED or FAILED, or Slurm has forgotten it."""
    last_row = ended.last_row
    reason = ""
    if last_row is None:
        reason = "Slurm has forgotten it; its own script says how it ended"
    exit_code, signal = _exit_code_and_signal(ended.account_row, ended.job.exit_file)
    if signal:
        return _End(State.SIGNALLED, reason, exit_code, signal)
    if last_row is not None and last_row.state == "FAILED" and not exit_code:
        return _End(State.NOT_STARTABLE, reason, exit_code)
    if exit_code is None:
        return _End(State.SUCCEEDED, reason)
    return _End(state_of_exit(exit_code, speaks_wire=False), reason, exit_code)


def _exit_code_and_signal(accounting_row: JobRow | None, exit_file: ExitFile | None) -> tuple[int | None, int | None]:
    """Exit code as a shell gives it, and the signal that ended the script.

    Slurm knows of a signal that ended the script. Of an exit code above 128 it keeps only the rest, so the exit file
    counts before Slurm's code.
    """
    if accounting_row is not None and accounting_row.signal == BEGIN_FAILED_SIGNAL:
        return 0, None
    if accounting_row is not None and accounting_row.signal:
        return 128 + accounting_row.signal, accounting_row.signal
    if exit_file is not None:
        return exit_file.exit_code, None
    if accounting_row is not None:
        return accounting_row.exit_code, None
    return None, None


def _correct_by_steps(end: _End, steps: Sequence[JobRow], errors: LogErrors) -> _End:
    """Return how the job ended once its steps and Slurm's errors in its log are counted.

    A job is as good as the worst of its steps, and a step knows more than the code that srun makes of it: with
    --kill-on-bad-exit that is 143, the code of the tasks that srun itself ended. Where accounting has no steps, the
    lines that Slurm wrote into the log tell about them.
    """
    succeeded = end.state is State.SUCCEEDED
    launched_by_srun = [step for step in steps if step.id.rpartition(".")[2].isdigit()]  # not `batch`, `extern`
    failed_steps = [step for step in launched_by_srun if step.state != "COMPLETED" and not step.live]

    cause = _cause_beside_exit_codes(succeeded, steps, failed_steps, errors)
    if cause is not None:
        return replace(end, state=cause.state, reason=cause.reason)
    if (errors.task_failed or errors.stopped) and succeeded and not steps:
        exit_code = errors.exit_code
        state = State.EXITED if exit_code is None else state_of_exit(exit_code, speaks_wire=False)
        return replace(end, state=state, exit_code=exit_code, reason=errors.most_telling)

    if not succeeded and end.exit_code not in ENDED_FROM_OUTSIDE:
        return end  # the job's own code is the better one
    culprit = _first_culprit(failed_steps, succeeded)
    if errors.task_failed and errors.exit_code is not None and (failed_steps or not steps):
        # the code of the task that failed first: the step's may be of a task that srun then ended
        return _End(state_of_exit(errors.exit_code, speaks_wire=False), errors.most_telling, errors.exit_code)
    if culprit is None:
        return end
    exit_code = culprit.exit_code or 128 + (culprit.signal or 0)
    reason = (
        errors.most_telling
        or f"step {culprit.id} ended {culprit.state} with exit code {culprit.exit_code}, the job with {end.exit_code}"
    )
    return _End(state_of_exit(exit_code, speaks_wire=False), reason, exit_code)


def _cause_beside_exit_codes(
    succeeded: bool, steps: Sequence[JobRow], failed_steps: Sequence[JobRow], errors: LogErrors
) -> _End | None:
    """Memory, a command that is not there, a step that was refused: no exit code says these."""
    for step in steps:
        if step.state == "OUT_OF_MEMORY":
            return _End(State.OUT_OF_MEMORY, errors.most_telling or f"Slurm says so of step {step.id}")
    if errors.out_of_memory and (failed_steps or not steps or not succeeded):
        return _End(State.OUT_OF_MEMORY, errors.most_telling)
    if errors.no_command and not succeeded:
        return _End(State.NOT_STARTABLE, errors.no_command)
    if errors.step_refused and succeeded:  # accounting has no row of a step that was refused
        return _End(State.NOT_STARTABLE, errors.step_refused)
    return None


def _first_culprit(failed_steps: Sequence[JobRow], succeeded: bool) -> JobRow | None:
    """The first step with an exit code; without one, the first failed step of a job that says it succeeded."""
    for step in failed_steps:
        if step.exit_code:
            return step
    return failed_steps[0] if failed_steps and succeeded else None


def _ended_s_by_script(status: Status, exit_file: ExitFile | None) -> float | None:
    """Return when the job ended. The script's time counts if it is earlier: a controller that was away is late.

    The clocks of two machines differ, so an end before the start does not count.
    """
    if exit_file is None or status.ended_s is None or exit_file.ended_s < (status.started_s or 0.0):
        return status.ended_s
    return min(status.ended_s, exit_file.ended_s)


def _warnings(steps: Sequence[JobRow], job: PolledJob) -> tuple[str, ...]:
    """Return a warning for a success without rows of steps."""
    if steps or (job.exit_file and job.exit_file.steps_known):
        return ()
    accounting_has_end = bool(job.accounting_rows and not job.accounting_rows[0].live)
    if job.accounting_enabled and not accounting_has_end:
        cause = f"accounting said nothing about them for {ACCOUNT_S:g} s"
    else:
        cause = "Slurm keeps no account of steps here"
    evidence = "its script's exit code and the lines of srun and slurmstepd in its log show no failure"
    return (f"steps not known: nothing says how the steps of the job ended, since {cause}; {evidence}",)


# --- nodes and times -------------------------------------------------------------------------------------------------


def _status(state: State, reason: str, queue_row: JobRow | None, accounting_row: JobRow | None = None) -> Status:
    """A status with nodes and times: accounting's where it has them, else squeue's."""
    rows = [row for row in (accounting_row, queue_row) if row is not None]
    expected_s = None
    if queue_row is not None and state is State.QUEUED:
        expected_s = queue_row.expected_s
    return Status(
        state,
        reason,
        nodes=expand_nodes(next((row.nodes for row in rows if row.nodes), "")),
        submitted_s=next((row.submitted_s for row in rows if row.submitted_s), None),
        started_s=next((row.started_s for row in rows if row.started_s), None),
        ended_s=next((row.ended_s for row in rows if row.ended_s), None),
        expected_s=expected_s,
    )
