"""Jobs under a supervisor, as the tests of both schedulers that have one start them and wait for them."""

from __future__ import annotations

import fcntl
import os
import sys
from dataclasses import replace
from pathlib import Path

from platforms.config.schema import Platform
from platforms.job import JobSpec, Layout, Status, Submitted
from platforms.schedulers import Scheduler, connect, supervisor
from platforms.schedulers.local import LocalScheduler
from tests.waiting import until

SPEC = JobSpec(
    "true-1x1cpu-k2345abc", "test_a.py::test_a[x]", "local", Layout(1, 1, "cpu"), ("true",), time_limit_s=900
)


def at(kind: str, work_dir: Path, **keys: object) -> Scheduler:
    """A scheduler whose jobs lie in work_dir/jobs."""
    changes = {"scheduler": kind, "work_dir": None if kind == "local" else str(work_dir), **keys}
    return connect(Platform(name="local").model_copy(update=changes))


def shell(text: str, **changes: object) -> JobSpec:
    return replace(SPEC, arguments=("sh", "-c", text), **changes)


def python(text: str, **changes: object) -> JobSpec:
    return replace(SPEC, arguments=(sys.executable, "-c", text), **changes)


def start(scheduler: Scheduler, spec: JobSpec, folder: Path, **settings: object) -> str:
    """The id of a job whose files lie in `folder`, whichever scheduler it is."""
    folder.mkdir(parents=True, exist_ok=True)
    spec = replace(spec, name=folder.name)
    head = "".join(f"#JOB {key}={value}\n" for key, value in settings.items())
    text = scheduler.render(spec).replace("#JOB ", head + "#JOB ", 1)
    if isinstance(scheduler, LocalScheduler):  # its folder is the one that the runner has written the text to
        (folder / scheduler.text_name).write_text(text)
    job_id = scheduler.submit(spec, text, folder)
    assert job_id == str(folder)
    return job_id


def job(job_id: str | Path) -> Submitted:
    return Submitted(str(job_id), SPEC.name, 0.0)


def status_of(scheduler: Scheduler, job_id: str | Path) -> Status:
    return scheduler.status([job(job_id)])[str(job_id)]


def wait(scheduler: Scheduler, job_id: str) -> Status:
    until(lambda: not status_of(scheduler, job_id).state.live, f"{job_id} does not end")
    return status_of(scheduler, job_id)


def ran(scheduler: Scheduler, spec: JobSpec, folder: Path, **settings: object) -> Status:
    return wait(scheduler, start(scheduler, spec, folder, **settings))


def gone(pid: int) -> bool:
    fields = supervisor.stat_fields(pid)
    return fields is None or fields[0] == "Z"


def pids(path: Path, count: int) -> list[int]:
    """The process ids that a job writes into a file, one a line, once all are there."""
    until(lambda: path.exists() and path.read_text().count("\n") >= count, f"no {count} pids in {path}")
    return [int(line) for line in path.read_text().split()]


class held:
    """The lock, held by somebody who is no job."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __enter__(self) -> None:
        self.fd = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o666)
        fcntl.flock(self.fd, fcntl.LOCK_EX)

    def __exit__(self, *_: object) -> None:
        os.close(self.fd)
