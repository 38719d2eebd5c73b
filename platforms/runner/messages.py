"""What a person reads when a job gave no good run: what, where, why, its last words, and what to type next."""

from __future__ import annotations

import errno
import re
import signal
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from platforms.job import AwayError, BenchError, JobSpec, LoginNeeded, MachineError, NoRoom, Run, State, Status
from platforms.rundir.session_history import Attempt

LINES = 20  # of the log
PROBLEMS = 10

TOO_DEAR = "it is not begun again, since that may cost more than `max_device_hours:` of site.yaml"
ENDED_BY_US, NEVER_SUBMITTED = "this session ended it", "this session never submitted it"

# What usually helps; {source} is the platform's file, {platform} its name, {name} the job's, {size} its option.
ADVICE: Mapping[State, str] = {
    State.OUT_OF_MEMORY: "less memory: fewer loader workers (`workers:` in {source}), a smaller batch; or "
    "more of it: `slurm: {{mem: 16G}}` or `kubernetes: {{memory: 16Gi}}` there",
    State.TIME_LIMIT: "more time: `time_limit:` in {source}",
    State.START_DEADLINE: "`python -m platforms doctor {platform}` compares layouts with what is there; more patience: "
    "`start_limit:` in {source}",
    State.NOT_STARTABLE: "the job's Python is `python:` in {source}: does it exist there, and may it be executed?",
    State.DEVICE_OUT_OF_MEMORY: "a smaller local batch: --local-batch-size under `arguments:` in {source}",
    State.CONTROLLER_AWAY: "it may still run: look there for {name} before you start it again",
    State.IMAGE: "another image, or who may pull it: `kubernetes: {{image: …, image_pull_secrets: […]}}` in {source}",
    State.VOLUME: "`python -m platforms prepare {platform}{size}` makes claims of `volumes:` in {source} that say "
    "their size",
    State.DATA_MISSING: "`python -m platforms prepare {platform}{size}` makes the data sets",
    State.INCOMPLETE: "a program that ends with exit code 0 before its last line is wrong: see the end of its log",
}

COMMAND = (  # of a test's own command
    "the command is `command=[…]` of the test's mark; `modules:`, `setup:` and `env:` in {source} decide what it finds "
    "on {platform}"
)

# What the C library says of a write that finds no room, and what the shells dash and busybox say of any failed write.
FULL_WORDS = re.compile(r"No space left on device|Disk quota exceeded|: I/O error")
FULL_DISK = (
    "its last lines say that a file could not be written: `df -h` on {platform} shows which disk is full, `quota` what "
    "you may still write"
)
FULL = (errno.ENOSPC, errno.EDQUOT)


def ended(
    spec: JobSpec,
    run: Run,
    *,
    source: Path,
    earlier: Sequence[str] = (),
    tail: Iterable[str] = (),
    hints: Sequence[str] = (),
) -> str:
    """The text of a MachineError or WorkloadError. `earlier` are the attempts before this one, `tail` the last lines of
    the log."""
    status, folder, problems = run.status, run.folder or Path(), run.problems
    lines = [f"{_where(spec, status)}: {_what(status)}"]
    if status.reason and status.reason not in problems and status.reason not in _what(status):
        lines.append(f"why: {status.reason}")
    if problems:
        lines += ["problems:", *(f"  - {problem}" for problem in problems[:PROBLEMS])]
        lines += (
            [f"  (and {len(problems) - PROBLEMS} more in {folder / 'run.json'})"] if len(problems) > PROBLEMS else []
        )
    lines += [f"before it: {'; '.join(earlier)}"] if earlier else []
    lines += [f"events at {spec.platform}:", *(f"  - {event}" for event in status.events)] if status.events else []
    last = [line.rstrip() for line in tail if not _repeats(line.rstrip(), problems[:PROBLEMS])][-LINES:]
    lines += [f"last lines of {folder / 'log'}:", *(f"  | {line}" for line in last)] if last else []
    lines.append(f"evidence: {folder}")
    advice = _advice(spec, status, last)
    if advice is not None:
        asked = spec.request.get("size")
        size = f" --size {asked}" if asked else ""
        holes = {"source": source, "name": spec.name, "platform": spec.platform, "size": size}
        lines.append("try: " + advice.format(**holes))
    return "\n".join(lines + _commands(hints))


def not_written(spec: JobSpec, status: Status, folder: Path, error: OSError) -> MachineError:
    """Where the session's own disk does not take what is known of a job."""
    why = f"its evidence cannot be written: {error.strerror or error}: {folder}"
    why += f"; `df -h {folder}` shows its disk" if error.errno in FULL else ""
    return MachineError(f"{_where(spec, status)}: {_what(status)}\n{why}", replace(status, reason=why), folder)


def _advice(spec: JobSpec, status: Status, last: Sequence[str]) -> str | None:
    """What usually helps, with holes; None where that is not known, or the reason says it. `last` ends the log."""
    if status.state in (State.EXITED, State.INCOMPLETE) and any(FULL_WORDS.search(line) for line in last):
        return FULL_DISK
    if status.state is State.NOT_STARTABLE:
        if status.exit_code is None and status.reason:  # before any command
            return None
        if spec.benchmark is None:
            return COMMAND
    return ADVICE.get(status.state)


def in_short(status: Status, problems: Sequence[str]) -> str:
    """The text of `ended` as one line that may be cut off: what happened comes first, then why."""
    reasons = [*problems, status.reason]
    why = reasons[0].partition("\n")[0]
    return f"{status.state.value}: {why}" if why else _what(status)


def pending(
    spec: JobSpec,
    status: Status,
    folder: Path,
    known: str,
    *,
    again: str,
    login: LoginNeeded | None = None,
    hints: Sequence[str] = (),
) -> str:
    """The text of a StillPending: we stopped waiting, or only a person can log in to the platform again. `known` says
    whether there is a job, `again` is the command that goes on with the run."""
    if login is None:
        lines = [f"{_where(spec, status)}: still {status}; we stopped waiting, {known}"]
    else:
        lines = [f"{_where(spec, status)}: out of sight, {known}: {login.command} opens the connection again"]
        lines.append(f"why: {login}")
        hints = (login.command, *hints)
    lines.append(f"evidence: {folder}")
    lines.append(f"to go on waiting: {again}")
    return "\n".join(lines + _commands(hints))


def why(error: Exception) -> str:
    """What an error says, with what there is to type."""
    if isinstance(error, LoginNeeded) and error.command not in str(error):
        return f"{error}; type: {error.command}"
    return str(error) if isinstance(error, BenchError) else f"{type(error).__name__}: {error} (a mistake in the suite)"


def against_policy(findings: Sequence[str]) -> str:
    """Why nothing was submitted, when the site's rules forbid it."""
    return f"the site's rules forbid it: {'; '.join(findings)}"


def begun_again(attempt: Attempt) -> str:
    """Why there is another attempt."""
    elsewhere = f", not on {', '.join(attempt.avoid)}" if attempt.avoid else ""
    why = attempt.earlier[-1] if attempt.earlier else "a session cancelled it that was killed meanwhile"
    return f"begun again{elsewhere}: {why}"


def never_answered(spec: JobSpec, asked: bool, error: AwayError) -> str:
    """Why we gave up submitting."""
    if isinstance(error, NoRoom):
        return f"there was no room for it within its start limit of {spec.start_limit_s:g} s: {why(error)}"
    doubt = "nobody knows if it is submitted" if asked else "it was not submitted"
    return f"no answer within its start limit of {spec.start_limit_s:g} s, {doubt}: {why(error)}"


def _where(spec: JobSpec, status: Status) -> str:
    nodes = f" ({', '.join(status.nodes[:4])}{', …' if len(status.nodes) > 4 else ''})" if status.nodes else ""
    return f"{spec.name} on {spec.platform}{nodes}, {spec.layout}"


def _what(status: Status) -> str:
    details = []
    if status.signal is not None:
        details.append(_signal(status.signal))
    elif status.exit_code is not None:
        details.append(f"exit code {status.exit_code}")
    if status.run_s is not None:
        details.append(f"after {status.run_s:.1f} s")
    return f"{status.state.value} ({', '.join(details)})" if details else status.state.value


def _repeats(line: str, problems: Sequence[str]) -> bool:
    """Whether a line of the log is a problem that was said above: on the wire, or as our jobs say it on stderr."""
    if line.startswith("error: "):
        return any(line.removeprefix("error: ") in problem for problem in problems)
    return line in problems


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _commands(hints: Sequence[str]) -> list[str]:
    return ["next:", *(f"  {hint}" for hint in hints)] if hints else []
