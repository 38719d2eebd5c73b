"""The texts about jobs that people read: what happened, where, why, the last lines of the log, what to type next.

Pure functions; the runner and the pytest plugin call them.
"""

from __future__ import annotations

import errno
import re
import shlex
import signal
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from platforms.job import (
    DEVICE_UNITS,
    AwayError,
    BenchError,
    JobSpec,
    LoginNeeded,
    NoRoom,
    Run,
    State,
    Status,
    describe_error,
)
from platforms.rundir.session_history import Attempt

LOG_LINES = 20  # the most that are shown
PROBLEMS = 10  # the most that are shown
NODES = 4  # the most that are named

TOO_EXPENSIVE = "it is not begun again, since that may cost more than `max_device_hours:` of site.yaml"
ENDED_BY_US, NEVER_SUBMITTED = "this session ended it", "this session never submitted it"

SMALLER_BATCH = "a smaller local batch: --local-batch-size under `arguments:` in {source}"
OR_SPREAD = f"{SMALLER_BATCH}, or more devices for each copy of the model: `devices_per_replica:` there"

# What usually helps. {source} is the platform's file, {platform} its name, {name} the job's name, {size} its --size.
ADVICE: Mapping[State, str] = {
    State.OUT_OF_MEMORY: "less memory: fewer loader workers (`workers:` in {source}), a smaller batch; or "
    "more of it: `slurm: {{mem: 16G}}` or `kubernetes: {{memory: 16Gi}}` there",
    State.TIME_LIMIT: "more time: `time_limit:` in {source}",
    State.SUBMIT_REFUSED: "`python -m platforms doctor {platform}{size}` checks it step by step, and names the key "
    "or right that is wrong",
    State.NEVER_ADMISSIBLE: "`python -m platforms doctor {platform}{size}` compares what a job requests with what is "
    "there; the keys are in {source}",
    State.SECRET: "create the Secret or ConfigMap that the reason names, or correct its name in {source} or in the "
    "test's manifest; `kubectl get secrets,configmaps` below lists those that exist",
    State.START_DEADLINE: "`python -m platforms doctor {platform}` compares layouts with what is there; more patience: "
    "`start_limit:` in {source}",
    State.NOT_STARTABLE: "the job's Python is `python:` in {source}: does it exist there, and may it be executed?",
    State.COMPILE_FAILED: "what cannot be compiled there belongs into {source}, as `unsupported: {{{benchmark}: "
    "{{reason: …, source: …}}}}`: its tests are skipped, and --try-unsupported tries them again",
    State.DEVICE_OUT_OF_MEMORY: SMALLER_BATCH,
    State.UNSUPPORTED: "nothing now: {source} says that it cannot run there, and that still holds. Try again with "
    "newer software",
    State.CONTROLLER_AWAY: "it may still run: look there for {name} before you start it again",
    State.IMAGE: "another image, or who may pull it: `kubernetes: {{image: …, image_pull_secrets: […]}}` in {source}",
    State.VOLUME: "`python -m platforms prepare {platform}{size}` makes claims of `volumes:` in {source} that say "
    "their size",
    State.DATA_MISSING: "`python -m platforms prepare {platform}{size}` makes the data sets",
    State.INCOMPLETE: "a program that ends with exit code 0 before its last line is wrong: see the end of its log",
}

COMMAND_ADVICE = (  # for a test's own command that cannot be started
    "the command is `command=[…]` of the test's mark; `modules:`, `setup:` and `env:` in {source} decide what it finds "
    "on {platform}"
)

# What the C library says when a disk is full, and what the shells dash and busybox say of any failed write.
FULL_DISK_ERROR = re.compile(r"No space left on device|Disk quota exceeded|: I/O error")
FULL_DISK_ADVICE = (
    "its last lines say that a file could not be written: `df -h` on {platform} shows which disk is full, `quota` what "
    "you may still write"
)
FULL_DISK_ERRNOS = (errno.ENOSPC, errno.EDQUOT)
TRACEBACK = "traceback.txt"  # in the folder of a job that met a mistake in the suite


def job_failed(
    spec: JobSpec,
    run: Run,
    *,
    source: Path,
    earlier: Sequence[str] = (),
    tail: Iterable[str] = (),
    hints: Sequence[str] = (),
) -> str:
    """The text of a MachineError or a WorkloadError.

    Args:
        source: the platform's file.
        earlier: how the attempts before this one ended.
        tail: the last lines of the log.
        hints: commands that show the job.
    """
    status = run.status
    folder = run.folder or Path()
    problems = run.problems[:PROBLEMS]
    end = _describe_end(status)
    lines = [f"{_describe_job(spec, status)}: {end}"]
    if status.reason and status.reason not in run.problems and status.reason not in end:
        lines.append(f"why: {status.reason}")
    if spec.unsupported is not None:
        lines.append(f"tried: its platform's file says that it cannot run there: {spec.unsupported}")
    if problems:
        lines.append("problems:")
        lines += [f"  - {problem}" for problem in problems]
        omitted = len(run.problems) - len(problems)
        if omitted:
            lines.append(f"  (and {omitted} more in {folder / 'run.json'})")
    if earlier:
        lines.append(f"before it: {'; '.join(earlier)}")
    if status.events:
        lines.append(f"events at {spec.platform}:")
        lines += [f"  - {event}" for event in status.events]
    if run.said:
        shows_all = f"less +/^error: {shlex.quote(str(folder / 'log'))}"
        lines.append(f"the compiler or the device said (first lines; all of it: {shows_all}):")
        lines += [f"  | {line}" for line in run.said]
    log_lines = [line.rstrip() for line in tail]
    log_lines = [line for line in log_lines if not _repeats_a_problem(line, problems)][-LOG_LINES:]
    if log_lines and not run.said:  # else the tail is mostly more of the same message
        lines.append(f"last lines of {folder / 'log'}:")
        lines += [f"  | {line}" for line in log_lines]
    lines.append(f"evidence: {folder}")
    advice = _advice(spec, status, log_lines)
    if advice is not None:
        size = spec.request.get("size")
        words = {
            "source": source,
            "name": spec.name,
            "platform": spec.platform,
            "size": f" --size {size}" if size else "",
            "benchmark": spec.benchmark,
        }
        lines.append("try: " + advice.format(**words))
    return "\n".join([*lines, *_next_commands(hints)])


def _advice(spec: JobSpec, status: Status, log_lines: Sequence[str]) -> str | None:
    """What usually helps, as a format string; None when no advice is known, or when the reason contains it."""
    if status.state in (State.EXITED, State.INCOMPLETE) and any(FULL_DISK_ERROR.search(line) for line in log_lines):
        return FULL_DISK_ADVICE
    if status.state is State.NOT_STARTABLE:
        if status.exit_code is None and status.reason:  # it ended before any command was started
            return None
        if spec.benchmark is None:
            return COMMAND_ADVICE
    if status.state in (State.COMPILE_FAILED, State.DEVICE_OUT_OF_MEMORY) and spec.benchmark is None:
        return None
    if status.state is State.TIME_LIMIT and status.run_s is not None and status.run_s < spec.time_limit_s - 1:
        return "ask who has lowered its time limit since it was submitted: `time_limit:` in {source} is longer"
    if status.state is State.DEVICE_OUT_OF_MEMORY and DEVICE_UNITS[spec.layout.unit].spreads:
        return OR_SPREAD
    return ADVICE.get(status.state)


def held(spec: JobSpec, job_id: str | None, folder: Path, error: Exception) -> str:
    """What a person is told of an error that is not the job's: what failed, that the job goes on, and what to do."""
    goes_on = "it is not submitted yet" if job_id is None else f"no job is cancelled, and {job_id} goes on"
    lines = [f"{spec.name} on {spec.platform}: {describe_error(error)}", f"this is tried again; {goes_on}"]
    if isinstance(error, OSError):
        if error.errno in FULL_DISK_ERRNOS:
            lines.append(f"`df -h {folder}` shows which disk is full: make room there")
    elif not isinstance(error, BenchError):
        lines.append(f"{folder / TRACEBACK} says where: please report it")
    return "\n  ".join(lines)


def one_line_summary(status: Status, problems: Sequence[str]) -> str:
    """The text of `job_failed` in one line, for places that may cut it off: what happened comes first, then why."""
    first_reason = [*problems, status.reason][0].partition("\n")[0]
    return f"{status.state.value}: {first_reason}" if first_reason else _describe_end(status)


def still_pending(
    spec: JobSpec,
    status: Status,
    folder: Path,
    existence: str,
    *,
    resume_command: str,
    login: LoginNeeded | None = None,
    trouble: str = "",
    hints: Sequence[str] = (),
) -> str:
    """The text of a StillPending: we stopped waiting, or only a person can log in to the platform again.

    Args:
        existence: whether the scheduler has such a job (Job.existence).
        resume_command: the command that goes on with the run.
        trouble: what of the job could not be read or written.
    """
    where = _describe_job(spec, status)
    if login is None:
        lines = [f"{where}: still {status}; we stopped waiting, {existence}"]
    else:
        lines = [f"{where}: out of sight, {existence}: {login.command} opens the connection again"]
        lines.append(f"why: {login}")
        hints = (login.command, *hints)
    if trouble:
        lines.append(f"why: {trouble}")
    lines.append(f"evidence: {folder}")
    lines.append(f"to go on waiting: {resume_command}")
    return "\n".join([*lines, *_next_commands(hints)])


def unwritten(status: Status, trouble: str) -> str:
    """The reason of a job that has ended, and whose result is not written yet."""
    return f"it has ended ({status.state.value}), and its result is not written yet: {trouble}"


def against_policy(violations: Sequence[str]) -> str:
    """Why a job was not submitted: the site's rules forbid it."""
    return f"the site's rules forbid it: {'; '.join(violations)}"


def retried(attempt: Attempt) -> str:
    """Why there is another attempt."""
    why = attempt.earlier[-1] if attempt.earlier else "a session that was killed meanwhile had cancelled it"
    elsewhere = f", not on {', '.join(attempt.avoid)}" if attempt.avoid else ""
    return f"begun again{elsewhere}: {why}"


def never_answered(spec: JobSpec, asked: bool, error: AwayError) -> str:
    """Why we gave up submitting a job.

    Args:
        asked: the scheduler was asked to submit it, and may have done so.
    """
    limit = f"within its start limit of {spec.start_limit_s:g} s"
    if isinstance(error, NoRoom):
        return f"there was no room for it {limit}: {describe_error(error)}"
    existence = "it is not known whether it was submitted" if asked else "it was not submitted"
    return f"no answer {limit}, {existence}: {describe_error(error)}"


def _describe_job(spec: JobSpec, status: Status) -> str:
    """`resnet50-1x4gpu-k3f9a2bc on archer2 (nid0001), 1x4gpu`."""
    nodes = ""
    if status.nodes:
        more = ", …" if len(status.nodes) > NODES else ""
        nodes = f" ({', '.join(status.nodes[:NODES])}{more})"
    return f"{spec.name} on {spec.platform}{nodes}, {spec.layout}"


def _describe_end(status: Status) -> str:
    """`out of memory (SIGKILL, after 12.0 s)`."""
    details = []
    if status.signal is not None:
        details.append(_signal_name(status.signal))
    elif status.exit_code or (status.exit_code == 0 and status.state in (State.SUCCEEDED, State.INCOMPLETE)):
        details.append(f"exit code {status.exit_code}")  # 0 beside "out of memory" is another process's
    if status.run_s is not None:
        details.append(f"after {status.run_s:.1f} s")
    return f"{status.state.value} ({', '.join(details)})" if details else status.state.value


def _repeats_a_problem(line: str, problems: Sequence[str]) -> bool:
    """Whether a line of the log repeats a problem: as it stands on the wire, or as our jobs print it to stderr."""
    if line.startswith("error: "):
        return any(line.removeprefix("error: ") in problem for problem in problems)
    return line in problems


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _next_commands(hints: Sequence[str]) -> list[str]:
    if not hints:
        return []
    return ["next:", *(f"  {hint}" for hint in hints)]
