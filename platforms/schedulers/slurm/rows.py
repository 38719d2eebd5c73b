"""What Slurm and a job's own script report, as objects: rows of squeue, sacct, scontrol and sinfo, the exit file."""

from __future__ import annotations

import calendar
import re
import time
from dataclasses import dataclass

from platforms.job import State
from platforms.nodes import bracket_names
from platforms.schedulers.slurm.states import STATES

# What may contain anything stands last: reasons, paths, and names of jobs, which people change.
SQUEUE_FORMAT = "%i|%T|%V|%S|%N|%n|%r|%Z|%o"
SINFO_FORMAT = "%N|%P|%T|%f|%G|%H|%u|%E"
VET_STEP = "hpc-ml-bench-vet"  # the step that compares a job's nodes; however it ends, the job goes on
SACCT_FIELDS = "JobIDRaw,State,Submit,Start,End,ExitCode,NodeList,ConsumedEnergyRaw,TimelimitRaw,WorkDir,JobName"


@dataclass(frozen=True)
class JobRow:
    """One job, or one step of a job, as squeue, sacct or scontrol shows it.

    Times are Unix seconds. `name` is that of a step; `state` is its first word, as in STATES; `asked_nodes` are those
    that it must have, in Slurm's form; `paths` has the job's work folder and, of squeue and scontrol, its script;
    `expected_s` is when Slurm's backfill scheduler expects a pending job to start; `energy_j` is what its nodes took,
    as far as the cluster's plugin counts it; `limit_s` is its time limit, which others may have changed.
    """

    id: str
    name: str
    state: str
    reason: str = ""
    nodes: str = ""
    asked_nodes: str = ""
    exit_code: int | None = None
    signal: int | None = None
    submitted_s: float | None = None
    started_s: float | None = None
    ended_s: float | None = None
    expected_s: float | None = None
    energy_j: float | None = None
    limit_s: float | None = None
    paths: str = ""

    @property
    def has_folder(self) -> bool:
        """Whether accounting names the job's work folder, which stands before the name."""
        return not self.paths.startswith("|")

    def lies_in(self, name: str) -> bool:
        """Whether the job is the one that we submitted under this name. People and plugins change the name itself."""
        return in_folder(name) in self.paths

    @property
    def live(self) -> bool:
        """Whether the job may still change. A state that we do not know counts as live."""
        state = STATES.get(self.state, State.UNKNOWN)
        return state is not None and state.live


@dataclass(frozen=True)
class NodeRow:
    """One node, as sinfo shows it.

    Attributes:
        state: in sinfo's words, as in `drained` or `idle~`.
        partitions: the names of its partitions; `default` says whether the default partition is one of them.
        features: the words that `--constraint` takes.
        gres: its generic resources, as in `gpu:v100:4`.
        reason: what stands beside a node that is out of service; "" for none.
        reason_by, reason_s: who has written that, and when (Unix seconds).
    """

    name: str
    state: str
    partitions: frozenset[str] = frozenset()
    default: bool = False
    features: frozenset[str] = frozenset()
    gres: tuple[str, ...] = ()
    reason: str = ""
    reason_by: str = ""
    reason_s: float | None = None


@dataclass(frozen=True)
class ExitFile:
    """What the job's own script wrote last (slurm_templates/job.sh).

    Attributes:
        exit_code: of the ranks' launch, or of the script where it ended before.
        ended_s: when the script ended, Unix seconds on the compute node.
        log_bytes: size of the log then.
        refused: why the script did not start the ranks: "late", "again", "module", "python", "unfit:" and the
            nodes with their reasons; "" when it did.
        steps_known: whether `exit_code` tells how every step ended, because nothing else in the script starts steps.
        nodes: the job's nodes, as Slurm writes them.
    """

    exit_code: int
    ended_s: float
    log_bytes: int
    refused: str = ""
    steps_known: bool = False
    nodes: str = ""


def in_folder(name: str) -> str:
    """Return what the paths of a job's script and work folder contain, whatever work_dir is called where Slurm runs."""
    return f"/jobs/{name}/"


def squeue_rows(output: str) -> dict[str, JobRow]:
    """Parse the output of `squeue -h -o SQUEUE_FORMAT` into rows by job id."""
    rows = {}
    for line in output.splitlines():
        fields = line.split("|", 6)
        if len(fields) != 7:
            continue
        job_id, state, submitted, start, nodes, asked_nodes, rest = (field.strip() for field in fields)
        reason, _, paths = rest.partition("|/")
        start_s = unix_time(start)
        started_s = None
        expected_s = None
        if nodes:
            started_s = start_s
        elif STATES.get(state) is State.QUEUED:
            expected_s = start_s
        # else: the job ended without ever having a node, and the time is that of its end
        rows[job_id] = JobRow(
            id=job_id,
            name="",
            state=state,
            reason=_blank_if_none(reason),
            nodes=nodes,
            asked_nodes=_blank_if_none(asked_nodes),
            submitted_s=unix_time(submitted),
            started_s=started_s,
            expected_s=expected_s,
            paths=f"/{paths}",
        )
    return rows


def sacct_rows(output: str) -> dict[str, list[JobRow]]:
    """Parse the output of `sacct -n -P -o SACCT_FIELDS`: by job id, the job's own row first, then its steps' rows."""
    rows: dict[str, list[JobRow]] = {}
    for line in output.splitlines():
        fields = line.split("|", 9)
        if len(fields) != 10:
            continue
        row_id, state_text, submitted, started, ended, exit_text, nodes, joules, minutes, rest = fields
        state, _, cancelled_by = state_text.partition(" ")  # CANCELLED by 1000
        exit_code, signal = _exit_code_and_signal(exit_text)
        had_nodes = nodes not in ("", "None assigned")
        row = JobRow(
            id=row_id,
            name=rest.rpartition("|")[2],
            state=state.rstrip("+"),
            reason=state_text if cancelled_by else "",
            nodes=nodes if had_nodes else "",
            exit_code=exit_code,
            signal=signal,
            submitted_s=unix_time(submitted),
            started_s=unix_time(started) if had_nodes else None,
            ended_s=unix_time(ended),
            # where nothing counts it is 0, empty, or, by some versions, 2^64 - 2
            energy_j=float(joules) if joules.isdecimal() and 0 < int(joules) < 2**63 else None,
            limit_s=60.0 * int(minutes) if minutes.isdecimal() else None,
            paths=rest,
        )
        job_id = row_id.partition(".")[0]
        rows.setdefault(job_id, []).append(row)
    return rows


def scontrol_row(output: str) -> JobRow | None:
    """Parse the output of `scontrol -o show job` for one job; None when it shows none."""
    values = dict(re.findall(r"(\w+)=(\S*)", output))
    if "JobId" not in values or "JobState" not in values:
        return None
    exit_code, signal = _exit_code_and_signal(values.get("ExitCode", ""))
    return JobRow(
        id=values["JobId"],
        name="",
        state=values["JobState"],
        reason=_blank_if_none(values.get("Reason", "")),
        nodes=_blank_if_none(values.get("NodeList", "")),
        exit_code=exit_code,
        signal=signal,
        submitted_s=unix_time(values.get("SubmitTime", "")),
        started_s=unix_time(values.get("StartTime", "")),
        ended_s=unix_time(values.get("EndTime", "")),
        paths=output.partition(" Command=")[2],
    )


def sinfo_rows(output: str) -> dict[str, NodeRow]:
    """Parse the output of `sinfo -h -N -o SINFO_FORMAT`, which has a line for each partition of a node: by name."""
    rows: dict[str, NodeRow] = {}
    for line in output.splitlines():
        fields = line.split("|", 7)
        if len(fields) != 8:
            continue
        name, partition, state, features, gres, since, by, reason = (field.strip() for field in fields)
        earlier = rows.get(name)
        rows[name] = NodeRow(
            name=name,
            state=state,
            partitions=frozenset({partition.rstrip("*")}) | (earlier.partitions if earlier else frozenset()),
            default=partition.endswith("*") or (earlier is not None and earlier.default),
            features=frozenset(_blank_if_none(features).split(",")) - {""},
            gres=tuple(_blank_if_none(gres).split(",")),
            reason="" if reason == "none" else reason,
            reason_by="" if by == "Unknown" else by,
            reason_s=unix_time(since),
        )
    return rows


def unix_time(text: str) -> float | None:
    """Read one of Slurm's times, which we ask for in UTC; None for `Unknown`, `N/A`, `None`."""
    try:
        return float(calendar.timegm(time.strptime(text.strip(), "%Y-%m-%dT%H:%M:%S")))
    except ValueError:
        return None


def expand_nodes(text: str) -> tuple[str, ...]:
    """Expand Slurm's list of nodes: `cn[1-3,07],gpu1` -> each node's name. What cannot be read stays as it is."""
    names: list[str] = []
    for part in re.findall(r"(?:[^,\[]|\[[^\]]*\])+", text):
        try:
            names += bracket_names(part)
        except ValueError:
            names.append(part)
    return tuple(names)


def _exit_code_and_signal(text: str) -> tuple[int | None, int | None]:
    """Read Slurm's `CODE:SIGNAL`."""
    code, _, signal = text.partition(":")
    return int(code) if code.isdigit() else None, int(signal) if signal.isdigit() else None


def _blank_if_none(text: str) -> str:
    return "" if text in ("None", "(null)", "N/A") else text
