"""The questions to Slurm on the login node, each one command for many jobs, and their answers as rows."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from platforms.job import AwayError, RefusedError, Submitted
from platforms.schedulers import LiveJobs
from platforms.schedulers.slurm.environment import QUERY_PREAMBLE, UNSET_SLURM_VARIABLES
from platforms.schedulers.slurm.error_messages import ANY_ERROR, TELLING_ERROR, UNSURE
from platforms.schedulers.slurm.rows import (
    SACCT_FIELDS,
    SINFO_FORMAT,
    SQUEUE_FORMAT,
    ExitFile,
    JobRow,
    NodeRow,
    expand_nodes,
    in_folder,
    sacct_rows,
    scontrol_row,
    sinfo_rows,
    squeue_rows,
    unix_time,
)
from platforms.transports import Transport

LIMIT_S = 90.0  # a controller that is away keeps squeue for 20 s, an overloaded one longer
TELLING_LINES = 1000  # of a log: srun writes one for each node whose tasks failed
TAIL_BYTES = 4000  # at the end of a log, in which every error of Slurm counts

_UNKNOWN_JOB = "Invalid job id specified"
_NO_ACCOUNTING = "accounting storage is disabled"
_KILL_ERROR = re.compile(r"^scancel: error: .*\bjob id (\d+)")

# For `prune`: our jobs in the queue, also in hidden partitions, which squeue shows only with --all or --jobs.
LIVE_JOBS = LiveJobs(
    f"""\
{UNSET_SLURM_VARIABLES}squeue --noheader --all --me --states=all --format='%i|%T|%Z|%o|%j'
echo "asked $?"
""",
    lives=lambda state: JobRow("", "", state).live,
)
# One squeue for all jobs, then what their scripts left in their folders.
_POLL_SCRIPT = """\
{preamble}squeue --noheader --states=all --jobs={ids} --format={format}
echo "squeue $?"
cd {jobs} || {{ echo "no folder"; exit 0; }}
for name in {names}; do
    exit= started=
    [ -d "$name/started" ] && started=yes
    [ -f "$name/exit" ] && read -r exit < "$name/exit"
    [ -z "$exit$started" ] || echo "job $name started=$started $exit"
done
stat -c 'log %s %n' {logs} 2>/dev/null
:
"""
_ACCOUNTING_SCRIPT = """\
{preamble}sacct --noheader --parsable2 --duplicates --jobs={ids} --format={format}
echo "sacct $?"
cd {jobs} || exit 0
for name in {names}; do
    [ -s "$name/log" ] || continue
    echo "log $name"
    {{ grep -a -o -m {lines} -E {telling} "$name/log"; tail -c {bytes} "$name/log" | grep -a -o -E {errors}; }} |
        cut -b 1-500 | tr -d '\\000'
done
:
"""
# scancel takes ids, which Slurm gives to other jobs one day: only jobs that lie in our folders are cancelled. The rows
# are words of the script and no here-document: see environment.py.
_CANCEL_SCRIPT = """\
{preamble}rows=$(squeue --noheader --states=all --jobs={ids} --format='%i|%Z|%o')
echo "squeue $?"
set --
set -f
IFS='
'
for row in $rows; do
    case $row in {ours}) set -- "$@" "${{row%%|*}}" ;; esac
done
[ $# -gt 0 ] || {{ echo "none 0"; exit 0; }}
scancel "$@" < /dev/null
echo "scancel $?"
"""


# A job that has no nodes yet prints an empty list.
JOB_ID = re.compile(r"\d+([_+]\d+)?")
_ONE_JOB_SCRIPT = """\
{preamble}squeue --all --noheader --states=all --jobs={id} --format='found {squeue}' | grep . && exit
sacct --allusers --allocations --noheader --parsable2 --jobs={id} --format={sacct} | sed 's/^/found /'
"""


@dataclass(frozen=True)
class PollResult:
    """What one poll of all jobs found.

    Attributes:
        rows: squeue's, by job id.
        exit_files: by job name.
        started: names of jobs whose script has started.
        log_bytes: sizes of logs, by job name.
        away: why squeue did not answer; "" when it did.
    """

    rows: Mapping[str, JobRow] = field(default_factory=dict)
    exit_files: Mapping[str, ExitFile] = field(default_factory=dict)
    started: frozenset[str] = frozenset()
    log_bytes: Mapping[str, int] = field(default_factory=dict)
    away: str = ""


@dataclass(frozen=True)
class AccountingResult:
    """What accounting says about jobs that have ended.

    Attributes:
        rows: sacct's, by job id; None when accounting does not answer.
        enabled: whether the cluster keeps accounts at all.
        log_lines: lines of the jobs' logs that Slurm may have written, by job name.
    """

    rows: Mapping[str, list[JobRow]] | None
    enabled: bool
    log_lines: Mapping[str, list[str]]

    @property
    def silent(self) -> bool:
        """Whether the cluster keeps accounts, and they cannot be read now."""
        return self.enabled and self.rows is None


@dataclass(frozen=True)
class CancelResult:
    """How Slurm took the order to cancel jobs.

    Attributes:
        refused: what Slurm refuses for good, by job id, with its message.
        away: why Slurm did not answer, so that the order must be repeated.
        message: what else Slurm said.
        no_jobs: squeue showed none of the jobs, and nothing was cancelled.
    """

    refused: Mapping[str, str] = field(default_factory=dict)
    away: str = ""
    message: str = ""
    no_jobs: bool = False


def poll(transport: Transport, jobs: Sequence[Submitted], folder: str) -> PollResult:
    """Ask squeue once for all jobs, and read what lies in their folders below `folder`.

    Raises:
        AwayError: squeue could not be run, or `folder` is not there, so that no job's end can be known.
    """
    names = [job.name for job in jobs]
    logs = [f"{name}/log" for name in names]
    script = _POLL_SCRIPT.format(
        preamble=QUERY_PREAMBLE,
        ids=_ids(jobs),
        format=shlex.quote(SQUEUE_FORMAT),
        jobs=shlex.quote(folder),
        names=" ".join(map(shlex.quote, names)),
        logs=" ".join(map(shlex.quote, logs)),
    )
    output, errors = _run(transport, script)

    answered = re.search(r"(?:^|\n)squeue (.*)\n?", output)
    if answered is None:
        cause = errors or output.strip() or "no answer"
        raise AwayError(f"{transport.where}: squeue cannot be asked: {cause}")
    exit_code = answered[1]
    away = ""
    if exit_code == "127":
        away = f"there is no squeue on {transport.where}: {errors}; `login_shell: true` may find it"
    elif exit_code != "0" and _UNKNOWN_JOB not in errors:
        away = errors or f"squeue ended with exit code {exit_code}"

    folders = output[answered.end() :]
    if folders == "no folder\n" and not away:
        raise AwayError(f"{transport.where}: {folder} is not there: is the file system of `work_dir:` mounted?")
    exit_files, started, log_bytes = _parse_folders(folders)
    return PollResult(squeue_rows(output[: answered.start()]), exit_files, started, log_bytes, away)


def ask_accounting(transport: Transport, jobs: Sequence[Submitted], folder: str) -> AccountingResult:
    """Ask sacct once for jobs that have ended, and find Slurm's own lines in their logs below `folder`."""
    script = _ACCOUNTING_SCRIPT.format(
        preamble=QUERY_PREAMBLE,
        ids=_ids(jobs),
        format=SACCT_FIELDS,
        jobs=shlex.quote(folder),
        names=" ".join(shlex.quote(job.name) for job in jobs),
        lines=TELLING_LINES,
        telling=shlex.quote(TELLING_ERROR),
        bytes=TAIL_BYTES,
        errors=shlex.quote(ANY_ERROR),
    )
    output, errors = _run(transport, script)
    answered = re.search(r"(?:^|\n)sacct (\d+)\n", output)
    if answered is None:
        return AccountingResult(rows=None, enabled=True, log_lines={})
    exit_code = answered[1]
    rows = sacct_rows(output[: answered.start()]) if exit_code == "0" else None
    enabled = _NO_ACCOUNTING not in errors and exit_code != "127"
    return AccountingResult(rows, enabled, _lines_by_job(output[answered.end() :]))


def show_job(transport: Transport, job: Submitted) -> JobRow | None:
    """Ask scontrol for one job, on a cluster without accounting; None when the controller has forgotten it."""
    script = f"{QUERY_PREAMBLE}scontrol --oneliner show job {shlex.quote(job.job_id)}\n"
    result = transport.run(["sh", "-s"], input=script.encode(), timeout_s=LIMIT_S)
    if result.exit_code != 0:
        return None
    row = scontrol_row(result.stdout.decode(errors="replace"))
    return row if row is not None and row.lies_in(job.name) else None


def ask_nodes(transport: Transport) -> dict[str, NodeRow]:
    """Ask sinfo once for all nodes, by name, also those of hidden partitions.

    Raises:
        AwayError: sinfo has no answer.
    """
    script = f"{QUERY_PREAMBLE}sinfo --all --noheader --Node --format={shlex.quote(SINFO_FORMAT)}\n"
    result = transport.run(["sh", "-s"], input=script.encode(), timeout_s=LIMIT_S)
    if result.exit_code != 0:
        errors = result.error_text
        raise AwayError(f"{transport.where}: sinfo cannot be asked for the nodes: {errors}")
    return sinfo_rows(result.stdout.decode(errors="replace"))


def nodes_of_job(transport: Transport, job_id: str) -> tuple[str, ...]:
    """Ask squeue, then sacct, for the nodes of a job of any user; () while it has none.

    Args:
        transport: to the login node.
        job_id: as squeue prints it: `123`, `123_4` of an array, `123+1` of a heterogeneous job.

    Raises:
        AwayError: Slurm does not answer.
        RefusedError: it is no id, or neither of the two shows such a job.
    """
    if not JOB_ID.fullmatch(job_id):
        raise RefusedError(f"{job_id!r} is no id of a job at Slurm: write it as squeue prints it, such as 123 or 123_4")
    lists, errors = _ask_one_job(transport, job_id, squeue="%N", sacct="NodeList")
    names = dict.fromkeys(name for nodes in lists for name in expand_nodes(nodes.replace("None assigned", "")))
    if not lists and UNSURE.search(errors):
        raise AwayError(f"{transport.where}: Slurm cannot be asked for job {job_id}: {errors}")
    if not lists:
        why = f": {errors}" if errors else ""
        raise RefusedError(f"{transport.where}: neither squeue nor sacct shows a job {job_id}{why}")
    return tuple(names)


def start_of_job(transport: Transport, job_id: str) -> float | None:
    """Ask squeue, then sacct, when a job of any user started, in Unix seconds. None if neither of the two says so.

    Args:
        transport: to the login node.
        job_id: as `nodes_of_job` takes it, which refuses other words.

    Raises:
        AwayError: as the transport does.
    """
    if not JOB_ID.fullmatch(job_id):
        return None
    starts, _errors = _ask_one_job(transport, job_id, squeue="%S", sacct="Start")
    known = [start for start in map(unix_time, starts) if start is not None]
    return min(known, default=None)


def _ask_one_job(transport: Transport, job_id: str, *, squeue: str, sacct: str) -> tuple[list[str], str]:
    """Ask squeue, then sacct, for one field of a job. Returns its values, and what Slurm complains of."""
    script = _ONE_JOB_SCRIPT.format(preamble=QUERY_PREAMBLE, id=job_id, squeue=squeue, sacct=sacct)
    output, errors = _run(transport, script)
    values = [line.removeprefix("found ") for line in output.splitlines() if line.startswith("found ")]
    return values, " ".join(errors.split())


def cancel(transport: Transport, jobs: Sequence[Submitted]) -> CancelResult:
    """Cancel those of the jobs that squeue shows with their id and folder. Raises AwayError as the transport does."""
    ours = " | ".join(f"{shlex.quote(f'{job.job_id}|')}*{shlex.quote(in_folder(job.name))}*" for job in jobs)
    script = _CANCEL_SCRIPT.format(preamble=QUERY_PREAMBLE, ids=_ids(jobs), ours=ours)
    output, errors = _run(transport, script)
    exit_codes = dict(re.findall(r"^(squeue|scancel|none) (\d+)$", output, re.MULTILINE))

    if "scancel" not in exit_codes and "none" not in exit_codes:
        return CancelResult(away=errors or "no answer")
    if exit_codes["squeue"] != "0" and _UNKNOWN_JOB not in errors:
        return CancelResult(away=errors or f"squeue ended with exit code {exit_codes['squeue']}")
    if "none" in exit_codes:
        return CancelResult(message=errors, no_jobs=True)
    refused = {}
    for line in errors.splitlines():
        for job_id in _KILL_ERROR.findall(line):
            refused[job_id] = line
    if UNSURE.search(errors) or (exit_codes["scancel"] != "0" and not refused):
        return CancelResult(away=errors or f"scancel ended with exit code {exit_codes['scancel']}")
    return CancelResult(refused, message=errors)


def _run(transport: Transport, script: str) -> tuple[str, str]:
    result = transport.run(["sh", "-s"], input=script.encode(), timeout_s=LIMIT_S)
    return result.stdout.decode(errors="replace"), result.stderr.decode(errors="replace").strip()


def _ids(jobs: Sequence[Submitted]) -> str:
    return ",".join(shlex.quote(job.job_id) for job in jobs)


def _lines_by_job(output: str) -> dict[str, list[str]]:
    """Read _ACCOUNTING_SCRIPT's lines by job name. A line `log NAME` is the script's; no line of Slurm's begins so."""
    lines: dict[str, list[str]] = {}
    name = ""
    for line in output.split("\n"):
        if line.startswith("log "):
            name = line.removeprefix("log ")
        elif line:
            lines.setdefault(name, []).append(line)
    return lines


def _parse_folders(output: str) -> tuple[dict[str, ExitFile], frozenset[str], dict[str, int]]:
    """Read _POLL_SCRIPT's lines about folders: exit files, names of started jobs, sizes of logs."""
    exit_files: dict[str, ExitFile] = {}
    started: set[str] = set()
    log_bytes: dict[str, int] = {}
    for line in output.splitlines():
        kind, _, rest = line.partition(" ")
        if kind == "log":
            size, _, path = rest.partition(" ")
            if size.isdecimal():
                log_bytes[path.rpartition("/")[0]] = int(size)
        elif kind == "job":
            name, *words = rest.split(" ")
            values = dict(word.split("=", 1) for word in words if "=" in word)
            if values.get("started"):
                started.add(name)
            exit_file = _exit_file(values)
            if exit_file is not None:
                exit_files[name] = exit_file
    return exit_files, frozenset(started), log_bytes


def _exit_file(values: Mapping[str, str]) -> ExitFile | None:
    """The exit file with these values; None if it is not whole, as after a write to a full disk."""
    try:
        return ExitFile(
            exit_code=int(values["exit_code"]),
            ended_s=float(values["ended"]),
            log_bytes=int(values["log_bytes"]),
            refused=values.get("refused", ""),
            steps_known=values.get("steps_known") == "yes",
            nodes=values.get("nodes", ""),
        )
    except (KeyError, ValueError):
        return None
