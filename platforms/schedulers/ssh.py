"""Runs jobs on a machine without a scheduler, reached by a transport: the supervisor of the local scheduler goes there.

supervisor.py and supervisor_client.py travel there in one file that Python runs.
Every method is one command, for many jobs.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import os
import shlex
import zipfile
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from platforms import transports
from platforms.config.scheduler_keys import SchedulerKeys
from platforms.job import AwayError, BenchError, JobSpec, RefusedError, Status, Submitted
from platforms.schedulers import Backend, Scheduler, log_file, script, staging, supervisor, supervisor_client
from platforms.schedulers.local import SUBMIT_LIMIT_S, commands, status_of

if TYPE_CHECKING:
    from platforms.config.schema import Platform

LOOK_LIMIT_S = 90.0  # longer than supervisor_client.look takes to end what a killed supervisor left
CANCEL_LIMIT_S = supervisor_client.CANCEL_LIMIT_S + 2 * supervisor.KILL_S + 30.0

TOO_OLD = 45  # exit code: another Python must run it
NOT_THERE = (2, 127)  # what a shell says when it cannot open its script
MAIN = f"""\
import sys

if sys.version_info < (3, 8):
    sys.exit({TOO_OLD})
from platforms.schedulers import supervisor_client

sys.exit(supervisor_client.main(sys.argv))
"""
# Our file is a shell script with a zip archive behind it: `sh FILE start|status|cancel PYTHON...` takes the first that
# will do. One that is too old has not read the question yet; a Python 2 does not know -I and says 2.
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

    file_keys: ClassVar[SchedulerKeys] = SchedulerKeys(
        defaults={"max_running": 1, "poll_s": 5.0},
        needed={"work_dir": "write an absolute path that login and compute nodes see"},
    )

    def connect(self, platform: Platform) -> Scheduler:
        return SshScheduler(platform)


class SshScheduler:
    """The Protocol `Scheduler` for such a machine. A job's id is its folder there, <work_dir>/jobs/<name>."""

    text_name = "job.sh"
    log_in_folder = False
    ends_failed = True
    clean_deletes = False
    first_look_s = 0.5
    glance_s = math.inf  # a look is one command, and has_news could do with no less

    def __init__(
        self, platform: Platform, *, connect: Callable[[Platform], transports.Transport] = transports.connect
    ) -> None:
        self._platform = platform
        self._transport = connect(platform)
        self._home = str(platform.work_dir)
        self._found: dict[str, Mapping[str, Any]] = {}  # by job id, at the last look

    def render(self, spec: JobSpec) -> str:
        """A POSIX shell script, which finds out there what only that machine knows: its cores, its Python."""
        return script.render(spec, self._platform, self._home)

    def lint(self, spec: JobSpec, text: str) -> Sequence[str]:
        """Of a site's rules those that mean something without a scheduler: max_time and max_running."""
        return script.lint(spec, text, self._platform)

    def check(self, spec: JobSpec, text: str) -> Sequence[str]:
        """There is no scheduler whom one could ask."""
        return ()

    def submit(self, spec: JobSpec, text: str, folder: Path) -> str:
        """Start the one supervisor of the job's folder there; whether there is one yet is decided by its claim."""
        job_id = f"{self._home}/jobs/{spec.name}"
        archive = None if spec.archive is None else script.archive_there(self._home, spec.archive)
        question: dict[str, object] = {"folder": job_id, "text": text, "settings": self._share(folder)}
        question.update(environ=script.handed_on(spec), archive=archive, data_dir=spec.data_dir)
        lacks = self._ask("start", question, SUBMIT_LIMIT_S).get(job_id)
        if lacks == "archive" and spec.archive is not None:
            staging.put_archive(self._transport, spec.archive, str(archive))
            lacks = self._ask("start", question, SUBMIT_LIMIT_S).get(job_id)
        if lacks == "data":
            raise staging.missing_data(self._platform, spec, folder)
        if lacks != "":
            raise AwayError(f"{self._transport.where}: not known yet whether {spec.name} has started")
        return job_id

    def status(self, jobs: Sequence[Submitted]) -> dict[str, Status]:
        """One command, which reads two small files per job and /proc there."""
        found = self._ask("status", {"folders": [job.job_id for job in jobs]}, LOOK_LIMIT_S) if jobs else {}
        self._found.update(found)
        return {job_id: status_of(job_id, one) for job_id, one in found.items()}

    def has_news(self, jobs: Sequence[Submitted]) -> bool:
        """A look costs as little."""
        return False

    def read(self, job: Submitted, offset: int, known: bytes = b"") -> bytes:
        """Nothing is asked while the last look saw no more of the log."""
        path, seen = f"{job.job_id}/log", self._found.get(job.job_id)
        if seen is not None and seen["log_bytes"] in (None, offset):
            return b""
        try:
            found = self._transport.get(path, offset - len(known), len(known) + log_file.CHUNK)
        except transports.MissingFile:
            return b""
        chunk = log_file.new_bytes(found, known, path)
        if seen is not None and len(chunk) < log_file.CHUNK:
            self._found[job.job_id] = {**seen, "log_bytes": offset + len(chunk)}
        return chunk

    def gaps(self, job: Submitted) -> Sequence[str]:
        """A file has none."""
        return ()

    def cancel(self, jobs: Sequence[Submitted]) -> dict[str, str]:
        """One command that ends all of them and sees that they are gone."""
        try:
            left = self._ask("cancel", {"folders": [job.job_id for job in jobs]}, CANCEL_LIMIT_S) if jobs else {}
        except BenchError as error:
            left = {job.job_id: str(error) for job in jobs}
        where = self._transport.where
        return {
            job_id: f"{job_id} on {where} may still run: {why}: {self._kill(job_id)}" for job_id, why in left.items()
        }

    def clean(self, job: Submitted) -> None:
        """Nothing of a job outlives its supervisor; its folder is evidence, and `prune` takes it away one day."""
        self._found.pop(job.job_id, None)

    def hints(self, job: Submitted) -> tuple[str, ...]:
        found = self._found.get(job.job_id)
        if found is None:
            return (self._transport.typed(f"tail -n 50 -f {shlex.quote(job.job_id)}/log"), self._kill(job.job_id))
        return tuple(self._transport.typed(command) for command in commands(job.job_id, found))

    def _kill(self, job_id: str) -> str:
        """What a person types to end a job of whose supervisor only the folder is known."""
        record = f"{shlex.quote(job_id)}/pid"
        return self._transport.typed(f"""kill $(grep -o '"pid": [0-9]*' {record} | tr -dc 0-9)""")

    def _share(self, folder: Path) -> list[str]:
        """The word by which jobs of one run know each other, where several may run at a time."""
        return [f"share={os.uname().nodename}:{folder.absolute().parent}"] if self._platform.max_running > 1 else []

    def _ask(self, what: str, question: Mapping[str, object], limit_s: float) -> dict[str, Any]:
        """Run our file there, by the job's Python if it can be found, and return its answers by job id.

        Raises AwayError when it was ended half-way, RefusedError with its own words when it cannot do what it should.
        """
        name, content = program()
        path = f"{self._home}/archives/{name}"
        python = f"{self._home}/env-{self._platform.name}/bin/python"
        pythons = [python if self._platform.python == "auto" else self._platform.python, "python3"]
        argv = ["sh", path, what, *pythons]
        asked = json.dumps(question).encode()
        done = self._transport.run(argv, input=asked, timeout_s=limit_s)
        if done.exit_code in NOT_THERE:
            self._transport.put(content, path)
            done = self._transport.run(argv, input=asked, timeout_s=limit_s)
        if done.exit_code != 0:
            raise self._failed(what, done)
        return dict(json.loads(line) for line in done.stdout.splitlines())

    def _failed(self, what: str, done: transports.CommandResult) -> BenchError:
        said = done.stderr.decode(errors="replace").strip().rpartition("\n")[2] or f"exit code {done.exit_code}"
        message = f"{self._transport.where}: {what} of the supervisor failed: {said}"
        if done.exit_code != 1:
            return AwayError(message)
        look = self._transport.typed(f"df -h {shlex.quote(self._home)}; ls -ld {shlex.quote(self._home)}")
        advice = f"work_dir: and python: of {self._platform.source} say where and by what it runs; look with: {look}"
        return RefusedError(f"{message} ({advice})")


@cache
def program() -> tuple[str, bytes]:
    """The name, by its content, and the bytes of the file that runs there; the same on every machine."""
    members = {"__main__.py": MAIN.encode(), "platforms/__init__.py": b"", "platforms/schedulers/__init__.py": b""}
    for path in (Path(supervisor.__file__), Path(supervisor_client.__file__)):
        members[f"platforms/schedulers/{path.name}"] = path.read_bytes()
    buffer = io.BytesIO(HEAD.encode())
    with zipfile.ZipFile(buffer, "a") as file:
        for name, content in members.items():
            file.writestr(zipfile.ZipInfo(name), content)  # whose time is 1980-01-01
    return f"supervisor-{hashlib.sha256(buffer.getvalue()).hexdigest()[:12]}.pyz", buffer.getvalue()
