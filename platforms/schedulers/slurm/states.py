"""What Slurm says of a job, in rows of squeue and sacct, and what each of its states and reasons means to us."""

from __future__ import annotations

import calendar
import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from platforms.job import State

# Every state of Slurm's manuals (job_state_string in its source has the same words). None: its exit code decides.
STATES: Mapping[str, State | None] = MappingProxyType(
    {
        "PENDING": State.QUEUED,
        "EXPEDITING": State.QUEUED,
        "CONFIGURING": State.STARTING,
        "POWER_UP_NODE": State.STARTING,
        "RUNNING": State.RUNNING,
        "COMPLETING": State.RUNNING,
        "RESIZING": State.RUNNING,
        "SIGNALING": State.RUNNING,
        "STAGE_OUT": State.RUNNING,
        "STOPPED": State.RUNNING,
        "SUSPENDED": State.RUNNING,
        "UPDATE_DB": State.RUNNING,
        "COMPLETED": None,
        "FAILED": None,
        "BOOT_FAIL": State.NODE_LOST,
        "CANCELLED": State.CANCELLED,
        "DEADLINE": State.START_DEADLINE,
        "LAUNCH_FAILED": State.NOT_STARTABLE,
        "NODE_FAIL": State.NODE_LOST,
        "OUT_OF_MEMORY": State.OUT_OF_MEMORY,
        "PREEMPTED": State.PREEMPTED,
        "RECONFIG_FAIL": State.NODE_LOST,
        "REVOKED": State.LOST,
        "SPECIAL_EXIT": State.EXITED,
        "TIMEOUT": State.TIME_LIMIT,
        # it would start again, and a second start of ours refuses
        "REQUEUED": State.PREEMPTED,
        "REQUEUE_FED": State.PREEMPTED,
        "REQUEUE_HOLD": State.PREEMPTED,
        "RESV_DEL_HOLD": State.NEVER_ADMISSIBLE,
    }
)

# Reasons for which a pending job starts only if somebody changes something. squeue writes them with or without spaces.
_NEVER = re.compile(
    r"Partition(NodeLimit|TimeLimit|Config)|(QOS|Assoc|AssocGrp|QOSGrp)\w*PerJob\w*|QOSMaxWallDurationPerJobLimit|"
    r"DependencyNeverSatisfied|JobHeld(User|Admin)|BadConstraints|InvalidAccount|InvalidQOS|AccountNotAllowed|"
    r"QOSNotAllowed|ReservationDeleted|InactiveLimit|launch\W?failed\W?requeued\W?held|JobLaunchFailure",
    re.IGNORECASE,
)


def can_never_start(reason: str) -> bool:
    """Whether a pending job's reason will not go away by waiting."""
    return bool(_NEVER.match(reason.strip().lstrip("(")))


@dataclass(frozen=True)
class JobRow:
    """One job or step as squeue or sacct shows it. Times are Unix seconds; `expected_s` is the backfill scheduler's
    guess when a job that waits may start."""

    id: str
    name: str
    state: str  # its first word, as in STATES
    reason: str = ""
    nodes: str = ""
    exit_code: int | None = None
    signal: int | None = None
    submitted_s: float | None = None
    started_s: float | None = None
    ended_s: float | None = None
    expected_s: float | None = None

    @property
    def live(self) -> bool:
        """Whether it may still change; a word that we do not know may."""
        state = STATES.get(self.state, State.UNKNOWN)
        return state is not None and state.live


SQUEUE_FORMAT = "%i|%T|%j|%V|%S|%N|%r"  # the reason last: it may contain anything
SACCT_FIELDS = "JobIDRaw,State,JobName,Submit,Start,End,ExitCode,NodeList"


def squeue_rows(text: str) -> dict[str, JobRow]:
    """What `squeue -h -o SQUEUE` printed, by job id."""
    rows = {}
    for line in text.splitlines():
        fields = line.split("|", 6)
        if len(fields) == 7:
            job_id, state, name, submitted, started, nodes, reason = (field.strip() for field in fields)
            when, waits = unix_time(started), STATES.get(state) is State.QUEUED
            rows[job_id] = JobRow(
                job_id,
                name,
                state,
                _reason(reason),
                nodes,
                submitted_s=unix_time(submitted),
                started_s=when if nodes else None,  # without, it is a forecast, or the end of what never had a node
                expected_s=when if waits and not nodes else None,
            )
    return rows


def sacct_rows(text: str) -> dict[str, list[JobRow]]:
    """What `sacct -n -P -o SACCT` printed: of each job id its own row first, then its steps'."""
    rows: dict[str, list[JobRow]] = {}
    for line in text.splitlines():
        fields = line.split("|")
        if len(fields) != 8:
            continue
        row_id, said, name, submitted, started, ended, code, nodes = fields
        state, _, by = said.partition(" ")  # CANCELLED by 1000
        exit_code, _, number = code.partition(":")
        had_nodes = nodes not in ("", "None assigned")
        row = JobRow(
            row_id,
            name,
            state.rstrip("+"),
            f"{state} {by}" if by else "",
            nodes if had_nodes else "",
            int(exit_code) if exit_code.isdigit() else None,
            int(number) if number.isdigit() else None,
            unix_time(submitted),
            unix_time(started) if had_nodes else None,
            unix_time(ended),
        )
        rows.setdefault(row_id.partition(".")[0], []).append(row)
    return rows


def scontrol_row(text: str) -> JobRow | None:
    """What `scontrol -o show job` printed of one job; for clusters without accounting."""
    values = dict(re.findall(r"(\w+)=(\S*)", text))
    if "JobId" not in values or "JobState" not in values:
        return None
    code, _, number = values.get("ExitCode", "").partition(":")
    return JobRow(
        values["JobId"],
        values.get("JobName", ""),
        values["JobState"],
        _reason(values.get("Reason", "")),
        _reason(values.get("NodeList", "")),
        int(code) if code.isdigit() else None,
        int(number) if number.isdigit() else None,
        *(unix_time(values.get(name, "")) for name in ("SubmitTime", "StartTime", "EndTime")),
    )


def unix_time(text: str) -> float | None:
    """A time of Slurm's, which we ask for in UTC, as Unix seconds; None for `Unknown`, `N/A`, `None`."""
    try:
        return float(calendar.timegm(time.strptime(text.strip(), "%Y-%m-%dT%H:%M:%S")))
    except ValueError:
        return None


def expand_nodes(text: str) -> tuple[str, ...]:
    """`cn[1-3,07],gpu1` -> each node's name. What is not understood stays as it is."""
    names: list[str] = []
    for part in re.findall(r"(?:[^,\[]|\[[^\]]*\])+", text):
        names += _expanded(part)
    return tuple(names)


def _expanded(part: str) -> Iterable[str]:
    head, bracket, rest = part.partition("[")
    if not bracket:
        return [part]
    inside, _, tail = rest.partition("]")
    names: list[str] = []
    for piece in inside.split(","):
        low, dash, high = piece.partition("-")
        if dash and not (low.isdigit() and high.isdigit()):
            return [part]
        numbers = range(int(low), int(high) + 1) if dash else [piece]
        names += [f"{head}{str(number).zfill(len(low))}{end}" for number in numbers for end in _expanded(tail or "")]
    return names


def _reason(text: str) -> str:
    return "" if text in ("None", "(null)", "N/A") else text
