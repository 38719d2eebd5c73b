"""A small scheduler for OpenPBS, as a model of how to write one: jobs of one node, by the commands of a login node.

A job's id is PBS's own. Its folder is <work_dir>/jobs/<name>: the script, its log, its exit code, and what the
submission left there. Register it with one line in `platforms.schedulers.SCHEDULERS`.
"""

from __future__ import annotations

import math
import re
import shlex
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar, cast

from pydantic import BaseModel, ConfigDict

from platforms import transports
from platforms.config.draft import DraftLine, DraftRequest
from platforms.config.scheduler_keys import SchedulerKeys
from platforms.config.schema import Platform
from platforms.job import AwayError, JobSpec, MachineError, State, Status, Submitted, state_of_exit
from platforms.schedulers import Backend, LiveJobs, Scheduler, log_file, script, staging
from platforms.schedulers.doctor_steps import Step, StepResult, Visit
from platforms.schedulers.job_spec import check_nodes
from platforms.transports import file_transfer

LIMIT_S = 60.0  # of one command on the login node
CANCEL_LIMIT_S = 60.0
START_DEADLINE_PASSED = 113  # the exit code of a script that starts too late

# One claim for each job: the lock lets one submission in at a time, and a job that an interrupted submission has left
# in the queue is found there by its name.
SUBMIT = """\
mkdir -p {folder} && cd {folder} || exit
exec 9> lock && flock 9
[ ! -s id ] || {{ cat id; exit; }}
cat > job.sh <<'END-OF-JOB'
{text}END-OF-JOB
[ -s not_after ] || echo $(( $(date +%s) + {start_limit_s} )) > not_after
id=$(qstat -xf | awk '/^Job Id:/ {{ id = $3 }} $1 == "Job_Name" && $3 == "{name}" {{ print id; exit }}')
[ -n "$id" ] || id=$(qsub job.sh) || exit
echo "$id" > id
cat id
"""
# qstat fails if PBS has forgotten one of the jobs; only if the server does not answer either is PBS away.
STATUS = """\
qstat -xf {ids} 2> /dev/null || qstat -B > /dev/null || exit 75
:
"""
LIVE_JOBS = LiveJobs("""\
jobs=$(qstat -f)
code=$?
printf '%s\\n' "$jobs" | awk '$1 == "Job_Name" { name = $3 } $1 == "job_state" { print "0|" $3 "|" name }'
echo "asked $code"
""")


class PbsKeys(BaseModel):
    """What stands under `pbs:` in a platform's file."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    queue: str | None = None


class PbsBackend(Backend):
    """OpenPBS on a cluster, through the commands of its login node."""

    file_keys: ClassVar[SchedulerKeys] = SchedulerKeys(
        needed={"work_dir": "write an absolute path that login and compute nodes see"}, own=PbsKeys
    )

    def connect(self, platform: Platform) -> Scheduler:
        return PbsScheduler(platform)

    def live_jobs(self) -> LiveJobs:
        return LIVE_JOBS

    def doctor_steps(self, visit: Visit) -> Sequence[Step]:
        return (*super().doctor_steps(visit), ("server", server_answers))

    def draft(self, request: DraftRequest) -> Sequence[DraftLine]:
        """The default queue; a person must say what a node of it has."""
        host = request.options.get("ssh")
        reach = {"transport": "openssh", "host": host} if host else {}
        keys = {"name": request.name, "scheduler": "pbs", "device": "cpu", "layouts": {"default": ("1x1",)}, **reach}
        transport = transports.connect(Platform.model_validate(keys))
        result = transport.run(["sh", "-c", "echo $HOME; qstat -Q | awk 'NR > 2 { print $1 }'"], timeout_s=LIMIT_S)
        home, *queues = result.stdout.decode().split()
        lines = [DraftLine(("scheduler",), "pbs", "qstat")]
        lines += [DraftLine((key,), str(value)) for key, value in reach.items()]
        lines += [
            DraftLine(("work_dir",), f"{home}/hpc-ml-bench-work", "$HOME; login and compute nodes must see it"),
            DraftLine(("device",), "cpu", "TODO cpu, gpu, ipu or csx"),
            DraftLine(("layouts", "default"), "[1x1]", "TODO nodes x devices of a node"),
        ]
        if queues:
            lines.append(DraftLine(("pbs", "queue"), queues[0], f"qstat -Q: {', '.join(queues)}"))
        return lines


def server_answers(visit: Visit) -> StepResult:
    """Doctor's step: the commands are there, and the server answers."""
    result = visit.sh("qstat -B")
    if result.exit_code:
        raise AwayError(f"{visit.transport.where}: PBS does not answer: {result.stderr.decode(errors='replace')}")
    return StepResult("PBS answers")


class PbsScheduler(Scheduler):
    """The Protocol `Scheduler` for PBS."""

    text_name = "job.sh"
    log_in_folder = False
    ends_failed = True
    clean_deletes = False
    first_look_s = 0.2
    glance_s = math.inf

    def __init__(self, platform: Platform) -> None:
        self._platform = platform
        self._work_dir = str(platform.work_dir)
        self._transport = transports.connect(platform)

    def render(self, spec: JobSpec) -> str:
        """A qsub script: the shell script of a job on one machine, under #PBS lines."""
        head, _, body = script.render(spec, self._platform.with_stack(spec.stack), self._work_dir).partition("\n")
        keys = cast("PbsKeys", getattr(self._platform, "pbs", PbsKeys()))
        folder = self._folder(spec.name)
        seconds = max(1, round(spec.time_limit_s))
        check_nodes(spec, reservations="this scheduler cannot ask for one")
        host = "".join(f":host={node}" for node in spec.nodes)
        lines = [head, f"#PBS -N {spec.name}", f"#PBS -l select=1:ncpus={spec.threads_per_rank or 1}{host}"]
        lines += [f"#PBS -l walltime={seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}"]
        lines += ["#PBS -j oe", f"#PBS -o {folder}/log", "#PBS -r n"]
        lines += [f"#PBS -q {keys.queue}"] if keys.queue else []
        guard = [
            f"cd {shlex.quote(folder)} && mkdir -p work || exit",
            f'[ "$(date +%s)" -le "$(cat not_after)" ] || exit {START_DEADLINE_PASSED}',
            "trap 'echo exit_code=$? > ../exit' EXIT",
            "cd work",
        ]
        return "\n".join([*lines, *guard, body.replace("\nexec ", "\n")])

    def lint(self, spec: JobSpec, text: str) -> Sequence[str]:
        return script.lint(spec, text, self._platform)

    def submit(self, spec: JobSpec, text: str, folder: Path) -> str:
        if spec.code is not None:
            staging.put_archive(self._transport, spec.code, script.archive_there(self._work_dir, spec.code))
        if spec.data_dir is not None and self._run(["test", "-d", spec.data_dir]).exit_code:
            raise staging.missing_data(self._platform, spec, folder)
        command = SUBMIT.format(
            folder=shlex.quote(self._folder(spec.name)),
            name=spec.name,
            text=text,
            start_limit_s=math.ceil(spec.start_limit_s),
        )
        result = self._run(["sh", "-s"], command)
        message = result.stderr.decode(errors="replace").strip()
        if result.exit_code:
            status = Status(State.SUBMIT_REFUSED, f"qsub refused it: {message}")
            raise MachineError(f"{spec.name}: {status.reason}", status, folder)
        return result.stdout.decode().strip()

    def status(self, jobs: Sequence[Submitted]) -> Mapping[str, Status]:
        result = self._run(["sh", "-s"], STATUS.format(ids=shlex.join(job.job_id for job in jobs)))
        if result.exit_code:
            away = Status(State.UNKNOWN, result.stderr.decode(errors="replace").strip(), away=True)
            return {job.job_id: away for job in jobs}
        records = _records(result.stdout.decode(errors="replace"))
        return {job.job_id: _judge(records.get(job.job_id)) for job in jobs}

    def read(self, job: Submitted, offset: int, known: bytes = b"") -> bytes:
        path = f"{self._folder(job.name)}/log"
        try:
            found = file_transfer.get(self._transport, path, offset - len(known), len(known) + log_file.CHUNK)
        except transports.MissingFile:
            return b""
        return log_file.new_bytes(found, known, path)

    def cancel(self, jobs: Sequence[Submitted]) -> Mapping[str, str]:
        """qdel, and then ask until no job is left."""
        left = [job.job_id for job in jobs]
        deadline = time.monotonic() + CANCEL_LIMIT_S
        while left and time.monotonic() < deadline:
            self._run(["sh", "-c", f"qdel {shlex.join(left)} 2> /dev/null; :"])
            statuses = self.status([job for job in jobs if job.job_id in left])
            left = [job_id for job_id, status in statuses.items() if status.state.live]
            if left:
                time.sleep(0.2)
        return {job_id: f"{job_id} may still run: {self._transport.typed(f'qdel {job_id}')}" for job_id in left}

    def clean(self, job: Submitted) -> None:
        """PBS holds nothing of a job that has ended."""

    def hints(self, job: Submitted) -> tuple[str, ...]:
        log = f"less {shlex.quote(self._folder(job.name))}/log"
        return tuple(map(self._transport.typed, (f"qstat -xf {job.job_id}", log, f"qdel {job.job_id}")))

    def _folder(self, name: str) -> str:
        return f"{self._work_dir}/jobs/{name}"

    def _run(self, argv: Sequence[str], text: str = "") -> transports.CommandResult:
        return self._transport.run(list(argv), input=text.encode(errors="surrogateescape"), timeout_s=LIMIT_S)


def _records(output: str) -> dict[str, dict[str, str]]:
    """The records of `qstat -f`, by job id."""
    found = {}
    for record in re.split(r"^Job Id: ", output, flags=re.MULTILINE)[1:]:
        job_id, _, lines = record.partition("\n")
        found[job_id.strip()] = dict(re.findall(r"^    (\S+) = (.*)$", lines, re.MULTILINE))
    return found


def _judge(record: Mapping[str, str] | None) -> Status:
    if record is None:
        return Status(State.LOST, "PBS does not know it")
    if record["job_state"] != "F":
        return Status(State.RUNNING if record["job_state"] in "RE" else State.QUEUED)
    code = int(record["Exit_status"])
    ended = Status(State.EXITED, started_s=float(record["stime"]), ended_s=float(record["mtime"]))
    if code == START_DEADLINE_PASSED:
        return replace(ended, state=State.START_DEADLINE, reason="it came too late to start", exit_code=code)
    if code > 256:  # PBS adds 256 to the number of the signal that ended the job
        return replace(ended, state=State.CANCELLED, reason="qdel ended it", signal=code - 256)
    state = state_of_exit(code, speaks_wire=False)
    return replace(ended, state=state, reason=f"exit code {code}", exit_code=code)
