"""Runs jobs on this machine, each under its own supervisor (supervisor.py), known by the files in its folder alone."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from platforms.job import JobSpec, MachineError, RefusedError, State, Status, names_a_secret, state_of_exit
from platforms.schedulers import script, supervisor

if TYPE_CHECKING:
    from platforms.config import Platform

CHUNK = 1 << 20
SUBMIT_LIMIT_S = 60.0  # to start a Python interpreter
CANCEL_LIMIT_S = 60.0  # longer than a supervisor takes from SIGTERM to its last word

EXIT_STATES: Mapping[str, State] = {
    "cancelled": State.CANCELLED,
    "time_limit": State.TIME_LIMIT,
    "not_after": State.START_DEADLINE,
    "not_startable": State.NOT_STARTABLE,
    "oom": State.OUT_OF_MEMORY,
    "supervisor": State.LOST,
    "lost": State.LOST,
}


class LocalScheduler:
    """The Protocol `Scheduler` on this machine. A job's id is the absolute path of its folder."""

    text_name = "job.sh"
    log_in_folder = True

    def __init__(self, platform: Platform) -> None:
        self._platform = platform

    def render(self, spec: JobSpec) -> str:
        """A POSIX shell script; its head holds what the supervisor must know."""
        return script.render(spec, self._platform)

    def submit(self, spec: JobSpec, text: str, folder: Path) -> str:
        """Start the folder's one supervisor; whether there is one yet is decided by its claim, not here."""
        job_id = str(folder.absolute())
        if not (folder / "pid").exists():
            draft = folder / f"job.sh.{os.getpid()}"
            draft.write_text(text, encoding="utf-8", errors="surrogateescape")
            draft.replace(folder / "job.sh")
            secrets = {name: value for name, value in spec.env.items() if names_a_secret(name)}
            self._launch(job_id, {**os.environ, **secrets})
        return job_id

    def status(self, job_ids: Sequence[str]) -> dict[str, Status]:
        """Reads two small files per job and /proc."""
        return {job_id: _status(job_id) for job_id in job_ids}

    def read(self, job_id: str, offset: int) -> bytes:
        try:
            with Path(job_id, "log").open("rb") as file:
                file.seek(offset)
                return file.read(CHUNK)
        except FileNotFoundError:
            return b""

    def cancel(self, job_id: str) -> None:
        """SIGTERM to the supervisor, which ends everything; should it fail to, we do."""
        if supervisor.read_json(f"{job_id}/exit") is None:
            if Path(job_id).is_dir():
                Path(job_id, "cancel").touch()  # a supervisor that is about to start finds this
            self._wait_for_end(job_id)
        if left := _end_all(_folder(job_id)):
            pids = ",".join(map(str, left))
            message = f"{job_id}: not even SIGKILL ends its processes; look at them: ps -o pid,stat,wchan,cmd -p {pids}"
            raise MachineError(message, _status(job_id), Path(job_id))

    def clean(self, job_id: str) -> None:
        """Nothing of a job outlives its supervisor; only an empty work folder is of no use to anybody."""
        with contextlib.suppress(OSError):  # it holds the per-step times, which are evidence
            Path(job_id, "work").rmdir()

    def hints(self, job_id: str) -> tuple[str, ...]:
        folder = shlex.quote(job_id)
        record = supervisor.read_json(f"{job_id}/pid")
        if record is not None and supervisor.alive(record) and not Path(job_id, "exit").exists():
            return (f"tail -n 50 -f {folder}/log", f"kill {record['pid']}  # ends the whole job")
        return (f"less {folder}/log", f"cat {folder}/job.sh", f"rm -r {folder}")

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
            why = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        reason = f"its supervisor did not start: {why}"
        raise MachineError(f"{job_id}: {reason}", Status(State.SUBMIT_REFUSED, reason), Path(job_id))

    def _wait_for_end(self, job_id: str) -> None:
        """Until the supervisor is gone, by SIGKILL if it does not hear. Raises MachineError when it stays."""
        record = supervisor.read_json(f"{job_id}/pid")
        if record is None:
            return
        pid = int(record["pid"])
        if supervisor.alive(record) is None:
            raise MachineError(_out_of_sight(record), _status(job_id), Path(job_id))
        for number, patience_s in ((signal.SIGTERM, CANCEL_LIMIT_S), (signal.SIGKILL, supervisor.KILL_S)):
            deadline = time.monotonic() + patience_s
            if supervisor.alive(record):
                supervisor.send([pid], number)
            while supervisor.alive(record) and time.monotonic() < deadline:
                time.sleep(0.01)
        if supervisor.alive(record):
            raise MachineError(
                f"{job_id}: its supervisor does not go away: kill -9 {pid}", _status(job_id), Path(job_id)
            )
        _status(job_id)  # writes the exit file that a killed supervisor did not


# --- what the files say ----------------------------------------------------------------------------------------------


def _status(job_id: str) -> Status:
    ended = supervisor.read_json(f"{job_id}/exit")
    record = supervisor.read_json(f"{job_id}/pid")
    if ended is None and record is None:
        return Status(State.LOST, f"{job_id}/pid is missing: nothing was submitted there, or it was deleted")
    if ended is None and record is not None:
        seen = supervisor.alive(record)
        if seen is None:
            return Status(State.UNKNOWN, _out_of_sight(record), submitted_s=record["submitted"])
        if seen:
            return _live(record)
        ended = supervisor.read_json(f"{job_id}/exit") or _lost(job_id, record)  # it may have ended meanwhile
    assert ended is not None
    return _ended(ended)


def _live(record: Mapping[str, Any]) -> Status:
    state = State.RUNNING if record["state"] == "running" else State.QUEUED
    return Status(
        state,
        record["reason"],
        nodes=(record["host"],),
        submitted_s=record["submitted"],
        started_s=record["started"],
    )


def _ended(record: Mapping[str, Any]) -> Status:
    code, hint = record["exit_code"], record["state"]
    if hint is not None:
        state = EXIT_STATES[hint]
    else:
        state = state_of_exit(code, speaks_wire=False) if record["signal"] is None else State.SIGNALLED
    number = record["signal"]
    if number is None and state is State.SIGNALLED:
        number = code - 128  # a shell in between reports it so
    return Status(
        state,
        record["reason"],
        exit_code=code,
        signal=number,
        nodes=(record["host"],),
        submitted_s=record["submitted"],
        started_s=record["started"],
        ended_s=record["ended"],
    )


def _lost(job_id: str, record: Mapping[str, Any]) -> dict[str, Any]:
    """The supervisor was killed or the machine booted: end what is left and write the exit file in its place."""
    found = supervisor.members(_folder(job_id))
    left = _end_all(_folder(job_id))
    reason = f"its supervisor (pid {record['pid']}) is gone without a word, by kill -9 or a reboot"
    if found:
        reason += f"; {len(found)} processes of the job still ran and " + (f"{left} still do" if left else "were ended")
    ended = {"exit_code": None, "signal": None, "state": "lost", "reason": reason, "ended": time.time()}
    ended.update({key: record[key] for key in ("name", "host", "submitted", "started")})
    supervisor.write_json(f"{job_id}/exit", ended, sync=True)
    return ended


def _end_all(folder: str) -> list[int]:
    """SIGKILL to whatever carries the folder's mark. Returns what is still there."""
    deadline = time.monotonic() + supervisor.KILL_S
    while left := supervisor.members(folder):
        supervisor.send(left, signal.SIGKILL)
        if time.monotonic() > deadline:
            break
        time.sleep(0.01)
    return left


def _folder(job_id: str) -> str:
    """The folder's path as its processes carry it: ours may go through another link."""
    record = supervisor.read_json(f"{job_id}/pid")
    return str(record["folder"]) if record else job_id


def _out_of_sight(record: Mapping[str, Any]) -> str:
    where = f"pid {record['pid']} of {record['host']}, which is another machine or container"
    return f"it belongs to {where}: look from there; it ends by itself at its time limit"
