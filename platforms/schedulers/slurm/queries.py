"""What is asked of Slurm on the login node, one command for many jobs each, and its answers as rows."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from platforms.job import AwayError, Submitted
from platforms.schedulers.slurm.environment import QUERY_PREAMBLE
from platforms.schedulers.slurm.error_messages import ANY_ERROR, TELLING_ERROR
from platforms.schedulers.slurm.errors import UNSURE
from platforms.schedulers.slurm.judge import ExitFile
from platforms.schedulers.slurm.states import SACCT_FIELDS, SQUEUE_FORMAT, JobRow, sacct_rows, scontrol_row, squeue_rows
from platforms.transports import Transport

LIMIT_S = 90.0  # a controller that is away keeps squeue for 20 s, an overloaded one longer
TELLING_LINES = 1000  # of a log: srun writes one a node when its tasks have failed
TAIL_BYTES = 4000  # of a log, in which lines of Slurm that tell less are looked for

_UNKNOWN_JOB = "Invalid job id specified"
_NO_ACCOUNTING = "accounting storage is disabled"
_KILL_ERROR = re.compile(r"^scancel: error: .*\bjob id (\d+)")

# One look at all jobs: squeue once, then what their scripts left in their folders.
_LOOK = """\
{asking}squeue --noheader --states=all --jobs={ids} --format={format}
echo "squeue $?"
cd {jobs} || exit 0
for name in {names}; do
    exit= started=
    [ -d "$name/started" ] && started=yes
    [ -f "$name/exit" ] && read -r exit < "$name/exit"
    [ -z "$exit$started" ] || echo "job $name started=$started $exit"
done
stat -c 'log %s %n' {logs} 2>/dev/null
:
"""
_ACCOUNT = """\
{asking}sacct --noheader --parsable2 --duplicates --jobs={ids} --format={format}
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
# scancel knows jobs by their ids, which Slurm gives again: only those go that have our name now. No here-document: see
# environment.py.
_CANCEL = """\
{asking}rows=$(squeue --noheader --states=all --jobs={ids} --format='%i|%j')
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


@dataclass(frozen=True)
class PollResult:
    """One look at all jobs: rows by job id; exit files, `started` and log sizes by name."""

    rows: Mapping[str, JobRow] = field(default_factory=dict)
    exits: Mapping[str, ExitFile] = field(default_factory=dict)
    started: frozenset[str] = frozenset()
    log_bytes: Mapping[str, int] = field(default_factory=dict)
    away: str = ""  # why squeue did not answer


@dataclass(frozen=True)
class AccountingResult:
    """What accounting says of ended jobs: rows by job id (None: it does not answer), and by name the lines of their
    logs that Slurm may have written."""

    rows: Mapping[str, list[JobRow]] | None
    enabled: bool
    lines: Mapping[str, list[str]]

    @property
    def silent(self) -> bool:
        """There is accounting, and it does not answer."""
        return self.enabled and self.rows is None


@dataclass(frozen=True)
class CancelResult:
    """How Slurm took the order to end jobs: what it refused for good, by job id, and what it said where it did not
    answer, so that the order has to be given again; what else was `said`. `for_nobody`: squeue had none of them, and
    nothing was ordered."""

    refused: Mapping[str, str] = field(default_factory=dict)
    away: str = ""
    said: str = ""
    for_nobody: bool = False


def poll(transport: Transport, jobs: Sequence[Submitted], folder: str) -> PollResult:
    """Ask squeue once for all jobs, and read what lies in their folders. Raises AwayError as the transport does."""
    names = [job.name for job in jobs]
    script = _LOOK.format(
        asking=QUERY_PREAMBLE,
        ids=_ids(jobs),
        format=shlex.quote(SQUEUE_FORMAT),
        jobs=shlex.quote(folder),
        names=" ".join(map(shlex.quote, names)),
        logs=" ".join(shlex.quote(f"{name}/log") for name in names),
    )
    done = transport.run(["sh", "-s"], input=script.encode(), timeout_s=LIMIT_S)
    text, errors = done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace").strip()
    squeue, found, rest = text.partition("squeue ") if text.startswith("squeue ") else text.partition("\nsqueue ")
    code, _, files = rest.partition("\n")
    if not found:
        raise AwayError(f"{transport.where}: squeue cannot be asked: {errors or text.strip() or 'no answer'}")
    away = "" if code == "0" or _UNKNOWN_JOB in errors else errors or f"squeue ended with exit code {code}"
    if code == "127":
        away = f"there is no squeue on {transport.where}: {errors}; `login_shell: true` may find it"
    return PollResult(squeue_rows(squeue), *_files(files), away=away)


def ask_accounting(transport: Transport, jobs: Sequence[Submitted], folder: str) -> AccountingResult:
    """Ask accounting once for jobs that have ended, and look in their logs for Slurm's own words."""
    script = _ACCOUNT.format(
        asking=QUERY_PREAMBLE,
        ids=_ids(jobs),
        format=SACCT_FIELDS,
        jobs=shlex.quote(folder),
        names=" ".join(shlex.quote(job.name) for job in jobs),
        lines=TELLING_LINES,
        telling=shlex.quote(TELLING_ERROR),
        bytes=TAIL_BYTES,
        errors=shlex.quote(ANY_ERROR),
    )
    done = transport.run(["sh", "-s"], input=script.encode(), timeout_s=LIMIT_S)
    errors = done.stderr.decode(errors="replace")
    said = re.search(rb"(?:^|\n)sacct (\d+)\n", done.stdout)
    if said is None:
        return AccountingResult(None, True, {})
    text, logs = done.stdout[: said.start()].decode(errors="replace"), done.stdout[said.end() :]
    enabled = _NO_ACCOUNTING not in errors and said[1] != b"127"
    rows = sacct_rows(text) if said[1] == b"0" else None
    return AccountingResult(rows, enabled, _lines(logs.decode(errors="replace")))


def show_job(transport: Transport, job: Submitted) -> JobRow | None:
    """What scontrol says of one job, for a cluster without accounting; None when it has forgotten it."""
    script = f"{QUERY_PREAMBLE}scontrol --oneliner show job {shlex.quote(job.job_id)}\n"
    done = transport.run(["sh", "-s"], input=script.encode(), timeout_s=LIMIT_S)
    row = scontrol_row(done.stdout.decode(errors="replace")) if done.exit_code == 0 else None
    return row if row is not None and row.name == job.name else None


def cancel(transport: Transport, jobs: Sequence[Submitted]) -> CancelResult:
    """Order the jobs' end, of those that squeue knows by id and name. Raises AwayError as the transport does."""
    ours = " | ".join(shlex.quote(f"{job.job_id}|{job.name}") for job in jobs)
    script = _CANCEL.format(asking=QUERY_PREAMBLE, ids=_ids(jobs), ours=ours)
    done = transport.run(["sh", "-s"], input=script.encode(), timeout_s=LIMIT_S)
    errors = done.stderr.decode(errors="replace").strip()
    codes = dict(re.findall(r"^(squeue|scancel|none) (\d+)$", done.stdout.decode(errors="replace"), re.MULTILINE))
    if not codes.keys() & {"scancel", "none"}:
        return CancelResult(away=errors or "no answer")
    if codes["squeue"] != "0" and _UNKNOWN_JOB not in errors:
        return CancelResult(away=errors or f"squeue ended with exit code {codes['squeue']}")
    if "none" in codes:
        return CancelResult(said=errors, for_nobody=True)
    refused = {job_id: line for line in errors.splitlines() for job_id in _KILL_ERROR.findall(line)}
    if UNSURE.search(errors) or (codes["scancel"] != "0" and not refused):
        return CancelResult(away=errors or f"scancel ended with exit code {codes['scancel']}")
    return CancelResult(refused, said=errors)


def _ids(jobs: Sequence[Submitted]) -> str:
    return ",".join(shlex.quote(job.job_id) for job in jobs)


def _lines(text: str) -> dict[str, list[str]]:
    """By name; no line of Slurm's begins as those that name the logs do."""
    found: dict[str, list[str]] = {}
    name = ""
    for line in text.split("\n"):
        if line.startswith("log "):
            name = line.removeprefix("log ")
        elif line:
            found.setdefault(name, []).append(line)
    return found


def _files(text: str) -> tuple[dict[str, ExitFile], frozenset[str], dict[str, int]]:
    exits: dict[str, ExitFile] = {}
    started, sizes = set(), {}
    for line in text.splitlines():
        kind, _, rest = line.partition(" ")
        if kind == "log":
            size, _, path = rest.partition(" ")
            sizes[path.rpartition("/")[0]] = int(size)
        elif kind == "job":
            name, *words = rest.split(" ")
            values = dict(word.split("=", 1) for word in words if "=" in word)
            if values.get("started"):
                started.add(name)
            if {"exit_code", "ended", "log_bytes"} <= values.keys():
                numbers = int(values["exit_code"]), float(values["ended"]), int(values["log_bytes"])
                steps_known, nodes = values.get("steps_known") == "yes", values.get("nodes", "")
                exits[name] = ExitFile(*numbers, values.get("refused", ""), steps_known, nodes)
    return exits, frozenset(started), sizes
