"""What srun and slurmstepd themselves write into a job's log when a part of the job ends badly.

The lines are those of Slurm 22.05 to 24.11 (src/srun, src/plugins/launch/slurm, src/slurmd/slurmstepd). They are looked
for anywhere in a line, since a program's line may be unfinished when Slurm writes. A line that names another job or
other nodes than the job's own is not about this job.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from platforms.schedulers.slurm.errors import UNSURE
from platforms.schedulers.slurm.states import expand_nodes

# Both are read by grep -E on the login node and by Python here. slurmstepd 24 writes its time in place of its name.
_ANY = r"((srun|sbatch|slurmstepd[^ :]*): |\[[-0-9T:.]+\] )error: "
ANY_ERROR = f"{_ANY}.*"
TELLING_ERROR = (
    f"{_ANY}([^ ]+: tasks? [-0-9,]+: |.*[Ee]xceeded .*memory|.*oom.kill|.*OOM Killed|.*Out Of Memory|"
    r".*execve\(\): |.*Unable to create step|Only allocated |.*[Ll]aunch failed|.*Task launch for|\*\*\* STEP ).*"
)

_MEMORY = re.compile(r"oom.kill|OOM Killed|exceeded .*memory|Out Of Memory", re.IGNORECASE)
_NO_COMMAND = re.compile(r"execve\(\): ")
_NOT_BEGUN = re.compile(r"Unable to create step|error: Only allocated|launch failed|Task launch for", re.IGNORECASE)
_TASK = re.compile(r"error: (?P<nodes>\S+): tasks? [\d,-]+: (?P<end>.*)")
_STEP_ENDED = re.compile(r"\*\*\* STEP .* CANCELLED")
_JOB_ID = re.compile(r"StepId=(\d+)|STEP (\d+)\.|for job (\d+)")
_EXIT_CODE = re.compile(r"Exited with exit code (\d+)")
_SIGNALS = {signal.strsignal(each): each for each in signal.Signals}


@dataclass(frozen=True)
class LogErrors:
    """Slurm's own lines on one job, each "" where there is none.

    `memory`: there was not enough. `command`: it is not there. `not_begun`: a step was refused. `task`: the first one
    that ended badly by itself. `stopped`: a task or step was ended from outside. `last`: the last other error.
    """

    memory: str = ""
    command: str = ""
    not_begun: str = ""
    task: str = ""
    stopped: str = ""
    last: str = ""

    @property
    def telling(self) -> str:
        """The line that says most about a bad end."""
        return self.memory or self.command or self.not_begun or self.task or self.stopped or self.last

    @property
    def exit_code(self) -> int | None:
        """Of `task`, else of what was `stopped`, as a shell gives it (128 + n after signal n); None if unknown."""
        if code := _EXIT_CODE.search(self.task):
            return int(code[1])
        if not self.task:
            return 128 + signal.SIGTERM if self.stopped else None
        end = _TASK.search(self.task)
        number = _SIGNALS.get(end["end"].partition(" (core dumped)")[0]) if end else None
        return None if number is None else 128 + number


def find_errors(lines: Sequence[str], job_id: str, nodes: Collection[str]) -> LogErrors:
    """The words among lines that match ERRORS, as far as they are about this job; `nodes` are empty if not known."""
    own = [line.strip() for line in lines if _is_own(line, job_id, nodes)]
    tasks = [line for line in own if _TASK.search(line)]
    failed = [line for line in tasks if not line.endswith(": Terminated")]
    stopped = [line for line in own if line.endswith(": Terminated") or _STEP_ENDED.search(line)]
    others = [line for line in own if not UNSURE.search(line)]  # trouble with the controller ends no step
    return LogErrors(
        memory=_first(own, _MEMORY),
        command=_first(own, _NO_COMMAND),
        not_begun=_first(own, _NOT_BEGUN),
        task=failed[0] if failed else "",
        stopped=stopped[0] if stopped else "",
        last=others[-1] if others else "",
    )


def _first(lines: Sequence[str], cause: re.Pattern[str]) -> str:
    return next((line for line in lines if cause.search(line)), "")


def _is_own(line: str, job_id: str, nodes: Collection[str]) -> bool:
    if said := _JOB_ID.search(line):
        return not job_id or job_id in said.groups()
    task = _TASK.search(line)
    return task is None or not nodes or set(expand_nodes(task["nodes"])) <= set(nodes)
