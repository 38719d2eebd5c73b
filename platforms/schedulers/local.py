"""LocalScheduler: jobs on this machine, each under its own supervisor, which keeps its state in the job's folder."""

from __future__ import annotations

import contextlib
import math
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from platforms import environ
from platforms.config.scheduler_keys import SchedulerKeys
from platforms.job import (
    AwayError,
    JobSpec,
    MachineError,
    RefusedError,
    State,
    Status,
    Submitted,
    signal_of_exit,
    state_of_exit,
    unseen,
)
from platforms.schedulers import Backend, NodeState, Scheduler, log_file, script, supervisor, supervisor_client
from platforms.schedulers.process_ends import ProcessEnds

if TYPE_CHECKING:
    from platforms.config.schema import Platform
    from platforms.schedulers.doctor_steps import Step, Visit

SUBMIT_LIMIT_S = 60.0  # to start a Python interpreter
READ_AGAIN_S = 30.0  # a job that runs, in case that its end is not told after all

EXIT_STATES: Mapping[str, State] = {
    "cancelled": State.CANCELLED,
    "time_limit": State.TIME_LIMIT,
    "not_after": State.START_DEADLINE,
    "not_startable": State.NOT_STARTABLE,
    "oom": State.OUT_OF_MEMORY,
    "supervisor": State.LOST,
    "lost": State.LOST,
}


class LocalBackend(Backend):
    """This machine, without a scheduler."""

    only_jobs_see_their_machine = False
    is_one_machine = True
    file_keys: ClassVar[SchedulerKeys] = SchedulerKeys(
        defaults={"max_running": 1, "poll_s": 0.5},
        refused=dict.fromkeys(
            ("transport", "host", "work_dir", "modules", "slurm", "container", "kubernetes"),
            "is not for this machine (remove it, or name another scheduler)",
        ),
        this_machine=True,
    )

    def connect(self, platform: Platform) -> Scheduler:
        return LocalScheduler(platform)

    def nodes(self, platform: Platform) -> Sequence[NodeState]:
        return (NodeState(os.uname().nodename, "idle"),)

    def nodes_of_job(self, platform: Platform, job_id: str) -> tuple[str, ...]:
        return (os.uname().nodename,)

    def job_python(self, platform: Platform) -> str:
        return sys.executable if platform.python == "auto" else platform.python

    def doctor_steps(self, visit: Visit) -> Sequence[Step]:
        return ()


class LocalScheduler(Scheduler):
    """The Protocol `Scheduler` on this machine. A job's id is the absolute path of its folder."""

    text_name = "job.sh"
    log_in_folder = True
    ends_failed = True
    clean_deletes = False
    first_look_s = 0.02
    glance_s = math.inf  # a poll reads two small files, and has_news would read as much

    def __init__(self, platform: Platform) -> None:
        self._platform = platform
        self._ends = ProcessEnds()
        self._watched: set[str] = set()  # jobs whose end will be told
        self._running: dict[str, tuple[float, Status]] = {}  # which these have until then, and when that was read

    def render(self, spec: JobSpec) -> str:
        """Return a POSIX shell script, with the supervisor's settings at its head."""
        script.check_machine(spec, os.uname().nodename)
        return script.render(spec, self._platform.with_stack(spec.stack))

    def lint(self, spec: JobSpec, text: str) -> Sequence[str]:
        """Check max_time and max_running; a site's other rules mean nothing without a scheduler."""
        return script.lint(spec, text, self._platform)

    def submit(self, spec: JobSpec, text: str, folder: Path) -> str:
        """Start the folder's supervisor. Its claim of the folder decides that there is only one."""
        job_id = str(folder.absolute())
        if (folder / "pid").exists():
            return job_id
        try:
            self._launch(job_id, script.unwritten_variables(spec))
        except OSError as error:
            raise refused(job_id, str(error), folder) from None
        return job_id

    def status(self, jobs: Sequence[Submitted]) -> dict[str, Status]:
        """Read two small files of each job, and /proc; more rarely of one that runs and whose end will be told."""
        statuses = {}
        now = time.monotonic()
        for job in jobs:
            read_at, running = self._running.get(job.job_id, (-math.inf, None))
            if running is not None and job.job_id in self._watched and now < read_at + READ_AGAIN_S:
                statuses[job.job_id] = running
                continue
            try:
                folder = _folder(job)
                status = statuses[job.job_id] = status_of(folder, supervisor_client.inspect_job(folder))
                if status.state is State.RUNNING:
                    self._running[job.job_id] = now, status
            except Exception as error:  # of this job alone
                statuses[job.job_id] = unseen(error)
        return statuses

    def watch(self, job: Submitted, told: Callable[[], None]) -> None:
        """Watch its supervisor, which ends once the exit file is written."""

        def tell() -> None:
            self._watched.discard(job.job_id)
            told()

        record = supervisor.read_json(f"{job.job_id}/pid", strict=True)
        if record is None:  # it was deleted meanwhile
            return
        self._watched.add(job.job_id)
        try:
            self._ends.watch(record["pid"], tell)
        except Exception:
            self._watched.discard(job.job_id)
            raise
        if not supervisor.alive(record):  # another process may have its number
            tell()

    def read(self, job: Submitted, offset: int, known: bytes = b"") -> bytes:
        path = Path(_folder(job), "log")
        try:
            with path.open("rb") as file:
                file.seek(offset - len(known))
                content = file.read(len(known) + log_file.CHUNK)
        except FileNotFoundError:
            return b""
        except PermissionError as error:
            raise RefusedError(f"the log cannot be read: {error}") from None
        return log_file.new_bytes(content, known, str(path))

    def cancel(self, jobs: Sequence[Submitted]) -> dict[str, str]:
        """Send SIGTERM to the supervisors, which end their jobs; end the jobs of a supervisor that fails to."""
        ids = {_folder(job): job.job_id for job in jobs}
        return {ids[folder]: why for folder, why in supervisor_client.cancel(list(ids)).items()}

    def clean(self, job: Submitted) -> None:
        """Remove an empty work folder: nothing else of a job outlives its supervisor."""
        with contextlib.suppress(OSError):  # one with files stays: the per-step times are evidence
            Path(_folder(job), "work").rmdir()

    def hints(self, job: Submitted) -> tuple[str, ...]:
        folder = _folder(job)
        return commands_for(folder, supervisor_client.inspect_job(folder))

    def _launch(self, job_id: str, variables: Mapping[str, str]) -> None:
        """Start a supervisor, with these variables beside our own."""
        if sys.platform != "linux":
            raise RefusedError("the scheduler local needs Linux (its /proc and signals): run the suite in a container")
        command = [sys.executable, "-I", "-S", supervisor.__file__, job_id]
        if self._platform.max_running > 1:
            command.append(f"share={os.path.realpath(Path(job_id).parent)}")
        why = f"took longer than {SUBMIT_LIMIT_S:g} s"
        try:
            done = subprocess.run(  # in a session of its own, so that Ctrl-C does not interrupt it half-way
                command,
                env={**environ.copied(), **variables},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=SUBMIT_LIMIT_S,
                start_new_session=True,
            )
        except subprocess.TimeoutExpired:
            Path(job_id, "cancel").touch()  # a supervisor may still come up, and must not start the job then
        else:
            if done.returncode == 0:
                return
            if done.returncode < 0:  # it may have got far enough nevertheless
                raise AwayError(f"its supervisor was ended by signal {-done.returncode} while it was started")
            why = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        raise refused(job_id, why, Path(job_id))


def _folder(job: Submitted) -> str:
    """Where a job's files lie: its id says where they were made, and a person may have moved the runs since."""
    moved = not Path(job.job_id, "pid").exists() and (job.folder / "pid").exists()
    return str(job.folder) if moved else job.job_id


# --- shared with ssh.py, whose supervisor is the same -----------------------------------------------------------------


def refused(job_id: str, why: str, folder: Path) -> MachineError:
    reason = f"its supervisor did not start: {why}"
    return MachineError(f"{job_id}: {reason}", Status(State.SUBMIT_REFUSED, reason), folder)


def status_of(job_id: str, record: Mapping[str, Any]) -> Status:
    """Translate what `supervisor_client.inspect_job` found into a Status."""
    if record["seen"] == "unreadable":
        return Status(State.UNKNOWN, record["reason"], away=True)
    if record["seen"] == "nothing":
        return Status(State.LOST, f"{job_id}/pid is missing: nothing was submitted there, or it was deleted")
    if record["seen"] == "elsewhere":
        return Status(State.UNKNOWN, record["reason"], submitted_s=record["submitted"])
    state = _ended_state(record) if record["seen"] == "ended" else _live_state(record)
    signal_number = record.get("signal")
    if signal_number is None and state is State.SIGNALLED:
        signal_number = signal_of_exit(record["exit_code"])  # a shell in between reports a signal as 128 + n
    return Status(
        state,
        record["reason"],
        exit_code=record.get("exit_code"),
        signal=signal_number,
        nodes=(record["host"],),
        submitted_s=record["submitted"],
        started_s=record["started"],
        ended_s=record.get("ended"),
        problems=_problems(job_id, record),
    )


def _problems(job_id: str, record: Mapping[str, Any]) -> tuple[str, ...]:
    has_run = record["seen"] == "ended" and record["started"] is not None
    if has_run and record["log_bytes"] is None:
        return (log_file.gone(f"{job_id}/log"),)
    return ()


def commands_for(job_id: str, record: Mapping[str, Any]) -> tuple[str, ...]:
    """Return shell commands to inspect a job, and to end it or to delete what is left."""
    folder = shlex.quote(job_id)
    if record["seen"] == "live":
        return (f"tail -n 50 -f {folder}/log", f"kill {record['pid']}  # ends the whole job")
    return (f"less {folder}/log", f"cat {folder}/job.sh", f"rm -r {folder}")


def _live_state(record: Mapping[str, Any]) -> State:
    return State.RUNNING if record["state"] == "running" else State.QUEUED


def _ended_state(record: Mapping[str, Any]) -> State:
    if record["state"] is not None:
        return EXIT_STATES[record["state"]]
    if record["signal"] is not None:
        return State.SIGNALLED
    return state_of_exit(record["exit_code"], speaks_wire=False)
