"""What Slurm's error messages mean: those of its commands, and those that it writes into a job's log.

The sentences of the commands are those of slurm_errno.c and auth/munge, Slurm 20.11 to 24.11. The lines in a log are
those of srun and slurmstepd, 22.05 to 24.11 (src/srun, src/plugins/launch/slurm, src/slurmd/slurmstepd).
"""

from __future__ import annotations

import re
import signal
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from platforms.job import State
from platforms.schedulers.slurm.rows import expand_nodes

# --- messages of sbatch, squeue, scancel -----------------------------------------------------------------------------

# The controller may or may not have done what it was asked to do.
UNSURE = re.compile(
    r"Unable to contact slurm controller|Socket timed out|Zero Bytes were transmitted|Unexpected message received|"
    r"Transport endpoint is not connected|Connection (refused|reset|timed out)|Communication connection failure|"
    r"Message (send|receive) failure|Munge (encode|decode) failed|Protocol authentication error|"
    r"Slurm temporarily unable to accept job|Resource temporarily unavailable",
    re.IGNORECASE,
)

# The command failed before it sent anything: it had no credential, or no connection.
_NOT_SENT = re.compile(r"Munge encode failed|Unable to contact slurm controller \(connect failure\)")
_PERHAPS_SENT = re.compile(
    r"Munge decode failed|Socket timed out|Zero Bytes were transmitted|Unexpected message received|"
    r"\((send|receive|shutdown) failure\)|Message (send|receive) failure|Connection (reset|timed out)|"
    r"Transport endpoint is not connected",
    re.IGNORECASE,
)

# A user, account or QOS has as many jobs in the queue as its limit allows; a job that ends makes room.
_NO_ROOM = re.compile(r"\b(QOS|Assoc)\w*Submit\w*Limit")

# No node has what the job asks for, or too few nodes have it.
_TOO_MUCH = re.compile(
    r"Requested node configuration is not available|Node count specification invalid|More processors requested than|"
    r"Memory specification can not be satisfied|Requested time limit is invalid",
)


def was_not_sent(message: str) -> bool:
    """Return whether sbatch failed before it could hand a job over."""
    return bool(_NOT_SENT.search(message)) and not _PERHAPS_SENT.search(message)


def is_no_room(message: str) -> bool:
    """Return whether sbatch refuses the job only until another job ends."""
    return bool(_NO_ROOM.search(message))


# What a person can type about a refusal.
_CURES = {
    "Invalid node name specified": "the names of the nodes: sinfo --Node",
    "Requested nodes not in this partition": "the nodes of each partition: sinfo --Node",
    "reservation": "the reservations, with their nodes and users: scontrol show reservation",
    "time limit is invalid": "the longest limits: sinfo --format='%P %l'. Or the login node's clock is far behind the "
    "controller's, so that the job's --deadline has passed there: compare `date` with `scontrol show config`",
}


def cure(message: str) -> str:
    """Return what to type about a refusal of sbatch, in a few words; "" where we know nothing."""
    return next((cure for words, cure in _CURES.items() if words in message), "")


def refusal_state(message: str) -> State:
    """Return the state that a refusal of sbatch means."""
    if _TOO_MUCH.search(message):
        return State.NEVER_ADMISSIBLE
    return State.SUBMIT_REFUSED


# --- lines of srun and slurmstepd in a job's log ---------------------------------------------------------------------

# grep -E on the login node reads these two patterns as well as Python. They match anywhere in a line, because the
# program's line may be unfinished when Slurm writes. slurmstepd 24 writes its time in place of its name.
_PREFIX = r"((srun|sbatch|slurmstepd[^ :]*): |\[[-0-9T:.]+\] )error: "
ANY_ERROR = f"{_PREFIX}.*"
TELLING_ERROR = (
    f"{_PREFIX}([^ ]+: tasks? [-0-9,]+: |.*[Ee]xceeded .*memory|.*oom.kill|.*OOM Killed|.*Out Of Memory|"
    r".*execve\(\): |.*Unable to create step|Only allocated |.*[Ll]aunch failed|.*Task launch for|"
    r"\*\*\* (STEP|JOB) ).*"
)

_OUT_OF_MEMORY = re.compile(r"oom.kill|OOM Killed|exceeded .*memory|Out Of Memory", re.IGNORECASE)
_NO_COMMAND = re.compile(r"execve\(\): ")
_STEP_REFUSED = re.compile(r"Unable to create step|error: Only allocated|launch failed|Task launch for", re.IGNORECASE)
_TASK_ENDED = re.compile(r"error: (?P<nodes>\S+): tasks? [\d,-]+: (?P<end>.*)")
_STEP_CANCELLED = re.compile(r"\*\*\* STEP .* CANCELLED")
_LAUNCH_FAILED = re.compile(r"error: Task launch for .* failed on node (?P<node>[^ :]+): ")
_JOB_ENDED = re.compile(r"\*\*\* JOB \d+ ON \S+ CANCELLED AT \S+(?: DUE TO (?P<cause>[^*]+))? \*\*\*")
_JOB_ID = re.compile(r"StepId=(\d+)|STEP (\d+)\.|JOB (\d+) ON|for job (\d+)")
_EXIT_CODE = re.compile(r"Exited with exit code (\d+)")
# Why slurmstepd ended a job; the cause goes on after some of these words. Without a cause somebody cancelled it.
_CAUSES = {
    "TIME LIMIT": State.TIME_LIMIT,
    "PREEMPTION": State.PREEMPTED,
    "JOB REQUEUE": State.PREEMPTED,
    "NODE FAILURE": State.NODE_LOST,
}
_SIGNALS = {signal.strsignal(number): number for number in signal.Signals}


@dataclass(frozen=True)
class LogErrors:
    """Slurm's own lines about one job, each the whole line; "" when there is none.

    Attributes:
        out_of_memory: the kernel or Slurm ended a process for memory.
        no_command: the command is not there.
        step_refused: Slurm did not start a step.
        launch_failed: a node did not start its tasks.
        task_failed: the first task that ended badly by itself.
        stopped: a task or step that was ended from outside.
        job_ended: slurmstepd's last words about the whole job, which it ended.
        last: the last error of another kind.
    """

    out_of_memory: str = ""
    no_command: str = ""
    step_refused: str = ""
    launch_failed: str = ""
    task_failed: str = ""
    stopped: str = ""
    job_ended: str = ""
    last: str = ""

    @property
    def most_telling(self) -> str:
        """The line that says most about a bad end."""
        return (
            self.out_of_memory or self.no_command or self.step_refused or self.task_failed or self.stopped or self.last
        )

    @property
    def exit_code(self) -> int | None:
        """Exit code of `task_failed`, else of `stopped`, as a shell gives it (128 + n after signal n)."""
        if not self.task_failed:
            return 128 + signal.SIGTERM if self.stopped else None
        exited = _EXIT_CODE.search(self.task_failed)
        if exited:
            return int(exited[1])
        ended = _TASK_ENDED.search(self.task_failed)
        if ended is None:
            return None
        signal_name = ended["end"].partition(" (core dumped)")[0]
        number = _SIGNALS.get(signal_name)
        return None if number is None else 128 + number

    @property
    def failed_node(self) -> str | None:
        """The node of `launch_failed`."""
        found = _LAUNCH_FAILED.search(self.launch_failed)
        return None if found is None else found["node"]

    @property
    def end_of_job(self) -> State | None:
        """The state that `job_ended` means."""
        ended = _JOB_ENDED.search(self.job_ended)
        if ended is None:
            return None
        cause = ended["cause"] or ""
        return next((state for words, state in _CAUSES.items() if cause.startswith(words)), State.CANCELLED)


def find_errors(lines: Sequence[str], job_id: str, nodes: Collection[str]) -> LogErrors:
    """Sort lines of a log that match ANY_ERROR by what they say about a job.

    A line that names another job or nodes that the job did not have is left out.

    Args:
        lines: the lines.
        job_id: Slurm's id of the job, "" when it is not known.
        nodes: the job's nodes, empty when they are not known.
    """
    own_lines = [line.strip() for line in lines if _is_about(line, job_id, nodes)]
    failed: list[str] = []
    stopped: list[str] = []
    others: list[str] = []
    step_cancelled = False
    for line in own_lines:
        if line.endswith(": Terminated") or _STEP_CANCELLED.search(line):
            stopped.append(line)
        exited_when_cancelled = step_cancelled and _EXIT_CODE.search(line)
        if _TASK_ENDED.search(line) and not line.endswith(": Terminated") and not exited_when_cancelled:
            failed.append(line)
        step_cancelled = step_cancelled or bool(_STEP_CANCELLED.search(line))
        if not UNSURE.search(line):  # trouble with the controller ends no step
            others.append(line)
    return LogErrors(
        out_of_memory=_first_match(own_lines, _OUT_OF_MEMORY),
        no_command=_first_match(own_lines, _NO_COMMAND),
        step_refused=_first_match(own_lines, _STEP_REFUSED),
        launch_failed=_first_match(own_lines, _LAUNCH_FAILED),
        task_failed=failed[0] if failed else "",
        stopped=stopped[0] if stopped else "",
        job_ended=_first_match(own_lines, _JOB_ENDED),
        last=others[-1] if others else "",
    )


def _first_match(lines: Sequence[str], pattern: re.Pattern[str]) -> str:
    for line in lines:
        if pattern.search(line):
            return line
    return ""


def _is_about(line: str, job_id: str, nodes: Collection[str]) -> bool:
    named_job = _JOB_ID.search(line)
    if named_job:
        return not job_id or job_id in named_job.groups()
    task = _TASK_ENDED.search(line)
    if task is None or not nodes:
        return True
    return set(expand_nodes(task["nodes"])) <= set(nodes)
