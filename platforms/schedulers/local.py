"""Runs jobs on this machine, each under its own supervisor (supervisor.py), known by the files in its folder alone."""

from __future__ import annotations

import contextlib
import math
import os
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from platforms import atomic_file
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
)
from platforms.schedulers import Backend, Scheduler, log_file, script, supervisor, supervisor_client

if TYPE_CHECKING:
    from platforms.config.schema import Platform

SUBMIT_LIMIT_S = 60.0  # to start a Python interpreter

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


class LocalScheduler:
    """The Protocol `Scheduler` on this machine. A job's id is the absolute path of its folder."""

    text_name = "job.sh"
    log_in_folder = True
    ends_failed = True
    clean_deletes = False
    first_look_s = 0.02
    glance_s = math.inf  # a look reads two small files, and has_news could do with no less

    def __init__(self, platform: Platform) -> None:
        self._platform = platform

    def render(self, spec: JobSpec) -> str:
        """A POSIX shell script; its head holds what the supervisor must know."""
        return script.render(spec, self._platform)

    def lint(self, spec: JobSpec, text: str) -> Sequence[str]:
        """Of a site's rules those that mean something without a scheduler: max_time and max_running."""
        return script.lint(spec, text, self._platform)

    def check(self, spec: JobSpec, text: str) -> Sequence[str]:
        """There is no scheduler whom one could ask."""
        return ()

    def submit(self, spec: JobSpec, text: str, folder: Path) -> str:
        """Start the folder's one supervisor; whether there is one yet is decided by its claim, not here."""
        job_id = str(folder.absolute())
        if (folder / "pid").exists():
            return job_id
        try:
            atomic_file.write_text(folder / "job.sh", text)
            self._launch(job_id, {**os.environ, **script.handed_on(spec)})
        except OSError as error:
            raise refused(job_id, str(error), folder) from None
        return job_id

    def status(self, jobs: Sequence[Submitted]) -> dict[str, Status]:
        """Reads two small files per job and /proc."""
        return {job.job_id: status_of(job.job_id, supervisor_client.look(job.job_id)) for job in jobs}

    def has_news(self, jobs: Sequence[Submitted]) -> bool:
        """A look costs as little."""
        return False

    def read(self, job: Submitted, offset: int, known: bytes = b"") -> bytes:
        path = Path(job.job_id, "log")
        try:
            with path.open("rb") as file:
                file.seek(offset - len(known))
                found = file.read(len(known) + log_file.CHUNK)
        except FileNotFoundError:
            return b""
        except OSError as error:
            raise RefusedError(f"the log cannot be read: {error}") from None
        return log_file.new_bytes(found, known, str(path))

    def gaps(self, job: Submitted) -> Sequence[str]:
        """A file has none."""
        return ()

    def cancel(self, jobs: Sequence[Submitted]) -> dict[str, str]:
        """SIGTERM to the supervisors, which end everything; should one fail to, we do."""
        return supervisor_client.cancel([job.job_id for job in jobs])

    def clean(self, job: Submitted) -> None:
        """Nothing of a job outlives its supervisor; only an empty work folder is of no use to anybody."""
        with contextlib.suppress(OSError):  # it holds the per-step times, which are evidence
            Path(job.job_id, "work").rmdir()

    def hints(self, job: Submitted) -> tuple[str, ...]:
        return commands(job.job_id, supervisor_client.look(job.job_id))

    def _launch(self, job_id: str, environ: Mapping[str, str]) -> None:
        if sys.platform != "linux":
            raise RefusedError("the scheduler local needs Linux (its /proc and signals): run the suite in a container")
        share = [f"share={Path(job_id).parent}"] if self._platform.max_running > 1 else []
        command = [sys.executable, "-I", "-S", supervisor.__file__, job_id, *share]
        why = f"took longer than {SUBMIT_LIMIT_S:g} s"
        try:
            done = subprocess.run(  # in a session of its own, so that Ctrl-C does not reach it half-way
                command,
                env=environ,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=SUBMIT_LIMIT_S,
                start_new_session=True,
            )
        except subprocess.TimeoutExpired:
            Path(job_id, "cancel").touch()  # it may still come, and must not start then
        else:
            if done.returncode == 0:
                return
            if done.returncode < 0:  # it may have come far enough all the same
                raise AwayError(f"its supervisor was ended by signal {-done.returncode} while it was started")
            why = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        raise refused(job_id, why, Path(job_id))


# --- also for machines far away (ssh.py), whose supervisor is the same ------------------------------------------------


def refused(job_id: str, why: str, folder: Path) -> MachineError:
    reason = f"its supervisor did not start: {why}"
    return MachineError(f"{job_id}: {reason}", Status(State.SUBMIT_REFUSED, reason), folder)


def status_of(job_id: str, found: Mapping[str, Any]) -> Status:
    """What `supervisor_client.look` found, in the words of job.py."""
    if found["seen"] == "nothing":
        return Status(State.LOST, f"{job_id}/pid is missing: nothing was submitted there, or it was deleted")
    if found["seen"] == "elsewhere":
        return Status(State.UNKNOWN, found["reason"], submitted_s=found["submitted"])
    state = _ended(found) if found["seen"] == "ended" else _live(found)
    number = found.get("signal")
    if number is None and state is State.SIGNALLED:
        number = signal_of_exit(found["exit_code"])  # a shell in between reports it so
    return Status(
        state,
        found["reason"],
        exit_code=found.get("exit_code"),
        signal=number,
        nodes=(found["host"],),
        submitted_s=found["submitted"],
        started_s=found["started"],
        ended_s=found.get("ended"),
        problems=_problems(job_id, found),
    )


def _problems(job_id: str, found: Mapping[str, Any]) -> tuple[str, ...]:
    has_run = found["seen"] == "ended" and found["started"] is not None
    return (log_file.gone(f"{job_id}/log"),) if has_run and found["log_bytes"] is None else ()


def commands(job_id: str, found: Mapping[str, Any]) -> tuple[str, ...]:
    """What a person types to look at a job and to end it or delete what is left."""
    folder = shlex.quote(job_id)
    if found["seen"] == "live":
        return (f"tail -n 50 -f {folder}/log", f"kill {found['pid']}  # ends the whole job")
    return (f"less {folder}/log", f"cat {folder}/job.sh", f"rm -r {folder}")


def _live(found: Mapping[str, Any]) -> State:
    return State.RUNNING if found["state"] == "running" else State.QUEUED


def _ended(found: Mapping[str, Any]) -> State:
    if found["state"] is not None:
        return EXIT_STATES[found["state"]]
    return state_of_exit(found["exit_code"], speaks_wire=False) if found["signal"] is None else State.SIGNALLED
