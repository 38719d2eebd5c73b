"""Many jobs at once on Kubernetes: what grows with them."""

from __future__ import annotations

import re
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from platforms.config.schema import Platform
from platforms.job import JobSpec, Layout, job_name, run_label
from platforms.runner import Job, Runner
from tests.fake_kubernetes import Kube, Request

IMAGE = "bench.local/python:3.11"
PATIENCE_S = 120.0
ONE = Layout(1, 1, "cpu")
# Objects of a kind, one of them, or its log; what is asked for all namespaces is of none.
PATH = re.compile(r"/apis?/(?:v1|[^/]+/[^/]+)(?:/namespaces/default)?/(?P<kind>[a-z]+)(?P<one>/[^/]+)?(?P<log>/log)?")


@pytest.fixture
def kube(tmp_path: Path) -> Iterator[Kube]:
    with Kube(tmp_path / "kube") as kube:
        yield kube


def platform_of(kube: Kube, kind: str, **keys: object) -> Platform:
    cluster = {"kubeconfig": str(kube.kubeconfig), "image": IMAGE, "kind": kind, "cpu": "10m", "memory": "64Mi"}
    known = {"name": "k", "source": kube.folder / "k.yaml", "scheduler": "kubernetes", "device": "cpu"}
    return Platform.model_validate(
        known
        | {"layouts": {"default": ("1x1",)}, "data_dir": "/data", "max_running": 100, "kubernetes": cluster | keys}
    )


class Session:
    """Jobs of one run, submitted and waited for."""

    def __init__(self, kube: Kube, runs: Path, run_id: str) -> None:
        self.kube, self.run_id = kube, run_id
        self.runner = Runner(runs, run_id)
        self._before = len(kube.requests)
        self._began_s = time.monotonic()
        self.seconds = 0.0

    def add(self, platform: Platform, number: int, *words: str, code: Path | None = None) -> Job:
        test = f"test_it.py::test_it[{number}]"
        name = job_name(f"it{number}", ONE, self.run_id, test)
        more = {"archive": code, "python": "sh", "run": run_label(self.run_id)}
        spec = JobSpec(name, test, platform.name, ONE, words, **more)
        return self.runner.add(spec, platform)

    def wait(self) -> None:
        for job in self.runner.jobs:
            self.runner.wait(job, deadline=time.monotonic() + PATIENCE_S)
        assert self.runner.cancel() == []
        self.seconds = time.monotonic() - self._began_s

    def requests(self) -> Counter[str]:
        return Counter(map(what, self.kube.requests[self._before :]))


def what(request: Request) -> str:
    """`list pods`, `get jobs`, `POST jobs`, `log`."""
    found = PATH.fullmatch(request.path)
    assert found, request.path
    if found["log"]:
        return "log"
    verb = request.method
    if verb == "GET":
        verb = "get" if found["one"] else "watch" if request.watches else "list"
    return f"{verb} {found['kind']}"


@contextmanager
def no_thread_left() -> Iterator[None]:
    """Of those that follow logs; watches end when nobody has looked for a minute."""
    others = set(threading.enumerate())  # of tests before
    yield
    end = time.monotonic() + PATIENCE_S
    while left := [thread.name for thread in set(threading.enumerate()) - others if thread.name.startswith("log of ")]:
        assert time.monotonic() < end, left
        time.sleep(0.05)


@pytest.mark.slow
def test_only_create_delete_and_log_requests_grow_with_the_jobs(kube: Kube, tmp_path: Path) -> None:
    code = tmp_path / "models-1.pyz"
    code.write_text("echo $2\nsleep 0.2\n")
    for count in (1, 5, 25):
        session = Session(kube, tmp_path / "runs", f"r{count}")
        platform = platform_of(kube, "job")
        with no_thread_left():
            jobs = [session.add(platform, number, "say", f"{number}", code=code) for number in range(count)]
            session.wait()
        for number, job in enumerate(jobs):
            assert job.error is None, job.error
            assert (job.folder / "log").read_text() == f"{number}\n"
        asked = session.requests()
        assert asked.pop("POST jobs") == count
        assert asked.pop("DELETE jobs") == count
        assert count <= asked.pop("log") <= 5 * count
        assert asked.pop("POST configmaps") == 1  # the code; from the second run on it is there already
        assert asked.pop("get configmaps", 0) == (count > 1)
        watches = asked.pop("watch pods") + asked.pop("watch jobs")
        assert watches <= 4
        # of a round, which is a second: two kinds before an end is believed, and when all are gone; every five: causes
        assert set(asked) <= {"list pods", "list jobs", "list events", "list nodes"}
        rounds = 1 + session.seconds  # a session of less than a second has a round, too
        assert asked.total() <= 8 + 5 * rounds, (asked, session.seconds)
        assert not kube.store.list("jobs")[0]
        gone = time.monotonic() + PATIENCE_S  # the cluster removes a Job's pods some time after the Job
        while kube.store.list("pods")[0]:
            assert time.monotonic() < gone
            time.sleep(0.1)


# Some lines, then nothing until somebody opens the gate, more lines, and a last one without its end.
