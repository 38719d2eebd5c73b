"""SshScheduler: jobs on a machine without a scheduler, under the supervisor of the local scheduler.

supervisor.py and supervisor_client.py are copied there in one file, which that machine's Python runs. Every method is
one command for many jobs.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import os
import shlex
import time
import zipfile
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from platforms import transports
from platforms.config.scheduler_keys import SchedulerKeys
from platforms.job import AwayError, BenchError, JobSpec, RefusedError, Status, Submitted, unseen
from platforms.schedulers import (
    Backend,
    LiveJobs,
    NodeState,
    Scheduler,
    log_file,
    script,
    staging,
    supervisor,
    supervisor_client,
)
from platforms.schedulers.doctor_steps import Step, StepResult, Visit
from platforms.schedulers.local import SUBMIT_LIMIT_S, commands_for, status_of
from platforms.transports import file_transfer

if TYPE_CHECKING:
    from platforms.config.draft import DraftLine, DraftRequest
    from platforms.config.schema import Platform

STATUS_LIMIT_S = 90.0  # longer than supervisor_client.inspect_job takes to end what a killed supervisor left
CANCEL_LIMIT_S = supervisor_client.CANCEL_LIMIT_S + 2 * supervisor.KILL_S + 30.0

TOO_OLD = 45  # exit code: this Python is too old, try another one
NOT_THERE = (2, 127)  # exit codes of a shell that cannot open its script
MAIN = f"""\
import sys

if sys.version_info < (3, 8):
    sys.exit({TOO_OLD})
from platforms.schedulers import supervisor_client

sys.exit(supervisor_client.main(sys.argv))
"""
# The file is a shell script with a zip archive behind it: `sh FILE start|status|cancel PYTHON...` runs the archive with
# the first Python that is new enough. One that is too old exits before it reads the request from standard input, and a
# Python 2 does not know -I and exits with 2.
HEAD = f"""\
#!/bin/sh
what=$1; shift
for python; do
    command -v "$python" >/dev/null || continue
    "$python" -I -S "$0" "$what"
    code=$?
    case $code in 2 | {TOO_OLD}) ;; *) exit $code ;; esac
done
echo "there is no Python 3.8 or newer (tried: $*)" >&2
exit 1
"""


class SshBackend(Backend):
    """A machine without a scheduler, which a transport reaches."""

    only_jobs_see_their_machine = False
    is_one_machine = True
    file_keys: ClassVar[SchedulerKeys] = SchedulerKeys(
        defaults={"max_running": 1, "poll_s": 5.0},
        needed={"work_dir": "write an absolute path that login and compute nodes see"},
    )

    def connect(self, platform: Platform) -> Scheduler:
        return SshScheduler(platform)

    def nodes(self, platform: Platform) -> Sequence[NodeState]:
        transport = transports.connect(platform)
        try:
            return (NodeState(host_name(transport), "idle"),)
        finally:
            transport.close()

    def nodes_of_job(self, platform: Platform, job_id: str) -> tuple[str, ...]:
        return tuple(node.name for node in self.nodes(platform))

    def draft(self, request: DraftRequest) -> Sequence[DraftLine]:
        from platforms.schedulers import machine_draft

        if "ssh" not in request.options:
            raise RefusedError("--scheduler ssh needs --ssh HOST; this machine is the platform `local` already")
        return machine_draft.draft_alone(request)

    def live_jobs(self) -> LiveJobs:
        from platforms.schedulers import work_dir

        return work_dir.SUPERVISORS

    def doctor_steps(self, visit: Visit) -> Sequence[Step]:
        return (*super().doctor_steps(visit), ("supervisor", supervisor_runs))


def host_name(transport: transports.Transport) -> str:
    """The name that the machine gives itself, which its jobs report as their node. Raises as Transport.run does."""
    result = transport.run(["uname", "-n"], timeout_s=STATUS_LIMIT_S)
    name = result.stdout.decode(errors="replace").strip()
    if result.exit_code or not name:
        errors = result.error_text
        raise RefusedError(f"{transport.where}: it does not say its name: {transport.typed('uname -n')}: {errors}")
    return name


def supervisor_runs(visit: Visit) -> StepResult:
    """Doctor's step: our file can be put there, and a Python that can run it is there."""
    job = Submitted(f"{visit.platform.work_dir}/jobs/doctor", "doctor", time.time())
    visit.scheduler.status([job])
    return StepResult(f"runs on {visit.transport.where}")


class SshScheduler(Scheduler):
    """The Protocol `Scheduler` for a machine without a scheduler. A job's id is its folder, <work_dir>/jobs/<name>."""

    text_name = "job.sh"
    log_in_folder = False
    ends_failed = True
    clean_deletes = False
    first_look_s = 0.5
    glance_s = math.inf  # a poll is one command, and has_news would be one, too

    def __init__(
        self, platform: Platform, *, connect: Callable[[Platform], transports.Transport] = transports.connect
    ) -> None:
        self._platform = platform
        self._transport = connect(platform)
        self._home = str(platform.work_dir)
        self._records: dict[str, Mapping[str, Any]] = {}  # by job id: what the last poll found

    def render(self, spec: JobSpec) -> str:
        """Return a POSIX shell script. It finds out what only that machine knows: its cores, its Python."""
        script.check_machine(spec, None)
        return script.render(spec, self._platform.with_stack(spec.stack), self._home)

    def lint(self, spec: JobSpec, text: str) -> Sequence[str]:
        """Check max_time and max_running; a site's other rules mean nothing without a scheduler."""
        return script.lint(spec, text, self._platform)

    def submit(self, spec: JobSpec, text: str, folder: Path) -> str:
        """Start the supervisor of the job's folder. Its claim of the folder decides that there is only one."""
        if spec.nodes:
            script.check_machine(spec, host_name(self._transport))
        job_id = f"{self._home}/jobs/{spec.name}"
        archive = None if spec.code is None else script.archive_there(self._home, spec.code)
        request: dict[str, object] = {
            "folder": job_id,
            "text": text,
            "settings": self._share(folder),
            "environ": script.unwritten_variables(spec),
            "archive": archive,
            "data_dir": spec.data_dir,
        }
        missing = self._run_client("start", request, SUBMIT_LIMIT_S).get(job_id)
        if missing == "archive" and spec.code is not None:
            staging.put_archive(self._transport, spec.code, str(archive))
            missing = self._run_client("start", request, SUBMIT_LIMIT_S).get(job_id)
        if missing == "data":
            raise staging.missing_data(self._platform, spec, folder)
        if missing != "":
            raise AwayError(f"{self._transport.where}: not known yet whether {spec.name} has started")
        return job_id

    def status(self, jobs: Sequence[Submitted]) -> dict[str, Status]:
        """Read two small files of each job, and /proc, with one command."""
        if not jobs:
            return {}
        records = self._run_client("status", {"folders": [job.job_id for job in jobs]}, STATUS_LIMIT_S)
        self._records.update(records)
        statuses = {}
        for job_id, record in records.items():
            try:
                statuses[job_id] = status_of(job_id, record)
            except Exception as error:  # of this job alone
                statuses[job_id] = unseen(error)
        return statuses

    def read(self, job: Submitted, offset: int, known: bytes = b"") -> bytes:
        """Read the log. Asks nothing while the last poll saw no more than `offset` bytes of it."""
        path = f"{job.job_id}/log"
        record = self._records.get(job.job_id)
        if record is not None and record["log_bytes"] in (None, offset):
            return b""
        chunk = staging.read_log(self._transport, path, offset, known)
        if record is not None and len(chunk) < log_file.CHUNK:
            self._records[job.job_id] = {**record, "log_bytes": offset + len(chunk)}
        return chunk

    def cancel(self, jobs: Sequence[Submitted]) -> dict[str, str]:
        """End all jobs with one command, which also checks that they are gone."""
        if not jobs:
            return {}
        try:
            left = self._run_client("cancel", {"folders": [job.job_id for job in jobs]}, CANCEL_LIMIT_S)
        except BenchError as error:
            left = {job.job_id: str(error) for job in jobs}
        where = self._transport.where
        return {
            job_id: f"{job_id} on {where} may still run: {why}: {self._kill_command(job_id)}"
            for job_id, why in left.items()
        }

    def clean(self, job: Submitted) -> None:
        """Nothing of a job outlives its supervisor; its folder is evidence; `prune` removes it one day."""
        self._records.pop(job.job_id, None)

    def hints(self, job: Submitted) -> tuple[str, ...]:
        record = self._records.get(job.job_id)
        if record is None:
            return (
                self._transport.typed(f"tail -n 50 -f {shlex.quote(job.job_id)}/log"),
                self._kill_command(job.job_id),
            )
        return tuple(self._transport.typed(command) for command in commands_for(job.job_id, record))

    def _kill_command(self, job_id: str) -> str:
        """Return the command that ends a job if only its folder is known."""
        record = f"{shlex.quote(job_id)}/pid"
        return self._transport.typed(f"""kill $(grep -o '"pid": [0-9]*' {record} | tr -dc 0-9)""")

    def _share(self, folder: Path) -> list[str]:
        """Return the setting with which jobs of one run may run beside each other."""
        if self._platform.max_running <= 1:
            return []
        return [f"share={os.uname().nodename}:{os.path.realpath(folder.parent)}"]

    def _run_client(self, action: str, request: Mapping[str, object], limit_s: float) -> dict[str, Any]:
        """Run supervisor_client there with the job's Python, and return its answers by job id.

        Raises:
            AwayError: it was interrupted.
            RefusedError: it failed, in its own words.
        """
        name, content = program()
        path = f"{self._home}/archives/{name}"
        python = self._platform.python
        if python == "auto":
            python = f"{self._home}/env-{self._platform.name}/bin/python"
        argv = ["sh", path, action, python, "python3"]
        stdin = json.dumps(request).encode()
        result = self._transport.run(argv, input=stdin, timeout_s=limit_s)
        if result.exit_code in NOT_THERE:
            file_transfer.put(self._transport, content, path)
            result = self._transport.run(argv, input=stdin, timeout_s=limit_s)
        if result.exit_code != 0:
            raise self._client_error(action, result)
        return dict(json.loads(line) for line in result.stdout.splitlines())

    def _client_error(self, action: str, result: transports.CommandResult) -> BenchError:
        last_line = result.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        cause = last_line or f"exit code {result.exit_code}"
        message = f"{self._transport.where}: {action} of the supervisor failed: {cause}"
        if result.exit_code != 1:
            return AwayError(message)
        look = self._transport.typed(f"df -h {shlex.quote(self._home)}; ls -ld {shlex.quote(self._home)}")
        advice = f"work_dir: and python: of {self._platform.source} say where and by what it runs; look with: {look}"
        return RefusedError(f"{message} ({advice})")


@cache
def program() -> tuple[str, bytes]:
    """Return the name and the bytes of the file that runs there. The name contains a hash of the bytes."""
    members = {"__main__.py": MAIN.encode(), "platforms/__init__.py": b"", "platforms/schedulers/__init__.py": b""}
    for path in (Path(supervisor.__file__), Path(supervisor_client.__file__)):
        members[f"platforms/schedulers/{path.name}"] = path.read_bytes()
    buffer = io.BytesIO(HEAD.encode())
    with zipfile.ZipFile(buffer, "a") as file:
        for name, content in members.items():
            file.writestr(zipfile.ZipInfo(name), content)  # always with the time 1980-01-01
    return f"supervisor-{hashlib.sha256(buffer.getvalue()).hexdigest()[:12]}.pyz", buffer.getvalue()
