"""A fault at each call of a scheduler and of the disk: no job is cancelled, lost or begun twice; each has its result.

A session runs three jobs on a simulated machine by a simulated clock, with one fault. Then a second session goes on
with the run, as `--resume` does. At night each fault strikes at each call, otherwise one of 29 does.
"""

from __future__ import annotations

import builtins
import errno
import io
import json
import math
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice, product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness import session_start
from platforms.config.schema import Platform
from platforms.job import (
    AwayError,
    JobSpec,
    Layout,
    NoRoom,
    RefusedError,
    State,
    Status,
    StillPending,
    Submitted,
    job_name,
)
from platforms.rundir import session_history
from platforms.runner import Job, Runner
from platforms.runner.workers import InlinePool
from tests.simulated import Clock

LAYOUT = Layout(1, 1, "cpu")
FAR = Platform(name="far", source=Path("far.yaml"), scheduler="scripted", max_running=2, poll_s=10)
WAIT_S = 400.0  # a session waits so long
KILLED_S = 25.0  # and is killed after so long
OUTAGE_S = 60.0
ENDS = {"a": (0, State.SUCCEEDED), "b": (3, State.EXITED), "c": (0, State.SUCCEEDED)}  # exit code and state


# --- the machine -----------------------------------------------------------------------------------------------------


@dataclass
class Machine:
    """What really happens: which jobs began, how often, and which were cancelled. It outlives sessions."""

    clock: Clock
    began: dict[str, float] = field(default_factory=dict)
    submissions: Counter[str] = field(default_factory=Counter)
    cancelled: list[str] = field(default_factory=list)
    cleaned: set[str] = field(default_factory=set)

    def log(self, name: str) -> bytes:
        lines = int(min(self.age(name), 35.0))
        return b"".join(b"%s says line %d\n" % (name.encode(), line) for line in range(lines))

    def age(self, name: str) -> float:
        return self.clock() - self.began[name]


@dataclass
class Backend:
    """A scheduler as a session sees it. The flags are those in which backends differ."""

    machine: Machine
    log_in_folder: bool = False
    clean_deletes: bool = False
    glance_s: float = math.inf
    text_name = "job.sh"
    ends_failed = True
    first_look_s = 1.0

    def render(self, spec: JobSpec) -> str:
        return f"run {spec.name}\n"

    def lint(self, spec: JobSpec, text: str) -> Sequence[str]:
        return ()

    def check(self, spec: JobSpec, text: str) -> Sequence[str]:
        return ()

    def submit(self, spec: JobSpec, text: str, folder: Path) -> str:
        assert (folder / self.text_name).read_text() == text
        if spec.name not in self.machine.began:
            self.machine.began[spec.name] = self.machine.clock()
            self.machine.submissions[spec.name] += 1
        return f"id-{spec.name}"

    def status(self, jobs: Sequence[Submitted]) -> Mapping[str, Status]:
        return {job.job_id: self._status(job) for job in jobs}

    def _status(self, job: Submitted) -> Status:
        if job.name not in self.machine.began or job.name in self.machine.cleaned:
            return Status(State.LOST, "there is no such job")
        began, age = self.machine.began[job.name], self.machine.age(job.name)
        if age < 5:
            return Status(State.QUEUED, "Priority", submitted_s=1e9 + began)
        nodes, times = ("n1",), {"submitted_s": 1e9 + began, "started_s": 1e9 + began + 5}
        if age < 35:
            return Status(State.RUNNING, nodes=nodes, **times)
        code, state = ENDS[job.name[0]]
        return Status(state, exit_code=code, nodes=nodes, ended_s=1e9 + began + 35, **times)

    def has_news(self, jobs: Sequence[Submitted]) -> bool:
        return any(35 <= self.machine.age(job.name) < 37 for job in jobs)

    def read(self, job: Submitted, offset: int, known: bytes = b"") -> bytes:
        log = self.machine.log(job.name)
        if self.log_in_folder:
            (job.folder / "log").write_bytes(log)
        return log[offset : offset + 200]

    def gaps(self, job: Submitted) -> Sequence[str]:
        return ()

    def log_doubts(self, job: Submitted) -> Sequence[str]:
        return ()

    def cancel(self, jobs: Sequence[Submitted]) -> Mapping[str, str]:
        self.machine.cancelled += [job.name for job in jobs]
        return {}

    def clean(self, job: Submitted) -> None:
        if self.clean_deletes:
            self.machine.cleaned.add(job.name)

    def hints(self, job: Submitted) -> tuple[str, ...]:
        return (f"look at {job.job_id}",)


KINDS: Mapping[str, Mapping[str, Any]] = {
    "copies the log, glances": {"glance_s": 2.0},  # Slurm
    "copies the log": {},  # ssh
    "log in the folder": {"log_in_folder": True},  # local
    "log in the folder, deletes": {"log_in_folder": True, "clean_deletes": True},  # Kubernetes
}

FIRST_KIND, *OTHER_KINDS = KINDS


# --- faults ----------------------------------------------------------------------------------------------------------


@dataclass
class Fault:
    """One fault: from its n-th call on, for so many seconds; 0: once."""

    at: int
    strike: Callable[[Callable[[], Any]], Any]
    lasts_s: float
    clock: Clock
    calls: int = 0
    struck_at: float | None = None
    active: bool = False  # while the first session lives

    def call(self, method: Callable[[], Any]) -> Any:
        if not self.active:
            return method()
        self.calls += 1
        if self.calls <= self.at:
            return method()
        if self.struck_at is None:
            self.struck_at = self.clock()
        elif self.clock() - self.struck_at >= self.lasts_s:
            return method()
        return self.strike(method)


class Faulty:
    """A scheduler of which one method fails."""

    def __init__(self, backend: Backend, method: str, fault: Fault) -> None:
        self._backend, self._method, self._fault = backend, method, fault

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._backend, name)
        if name != self._method:
            return value
        return lambda *args, **kwargs: self._fault.call(lambda: value(*args, **kwargs))


def raises(error: BaseException, after: bool = False) -> Callable[[Callable[[], Any]], Any]:
    """With `after` the scheduler has done what it was asked, and the answer is lost."""

    def strike(method: Callable[[], Any]) -> Any:
        if after:
            method()
        raise copy(error)  # an error that is raised again keeps its old traceback

    return strike


FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/runs/x")
BROKEN = OSError(errno.EIO, os.strerror(errno.EIO), "/runs/x")
ERRORS: Mapping[str, BaseException] = {
    "away": AwayError("far: no answer within 60 s"),
    "disk full": FULL,
    "disk broken": BROKEN,
    "ValueError": ValueError("invalid literal for int() with base 10: ''"),
    "KeyError": KeyError("oops"),
}
METHODS = ("submit", "status", "has_news", "read", "gaps", "clean", "hints")


def strikes(method: str, clock: Clock) -> Iterator[tuple[str, Callable[[Callable[[], Any]], Any]]]:
    """The faults of a method, with their names."""
    for name, error in ERRORS.items():
        yield name, raises(error)
        if method in ("submit", "clean"):
            yield f"{name}, after it was done", raises(error, after=True)

    def late(ask: Callable[[], Any]) -> Any:
        clock.forward(90.0)
        return ask()

    yield "late", late
    if method != "submit":  # a BenchError of submit says for sure that there is no job
        yield "refused", raises(RefusedError("far: not allowed"))
    else:
        yield "no room", raises(NoRoom("a quota is used up"))
    if method == "status":
        yield "no mapping", lambda ask: None
        yield "rows are no statuses", lambda ask: dict.fromkeys(ask(), "RUNNING")
        yield "unknown ids", lambda ask: {"id-x": Status(State.RUNNING)}
    if method == "submit":
        yield "an empty id", lambda ask: (ask(), "")[1]
    if method == "read":
        yield "text", lambda ask: "text"


OF_OS = ("open", "write", "pwrite", "fsync", "replace", "mkdir")
OPERATIONS = ("read", "open to write", "write", *(f"os.{name}" for name in OF_OS))


@pytest.fixture(autouse=True)
def no_power_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is written need not reach the disk, which is slow."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


@contextmanager
def faulty_disk(
    monkeypatch: pytest.MonkeyPatch, runs: Path, operation: str, fault_of: Callable[[], Fault]
) -> Iterator[None]:
    """Let an operation on files below `runs` fail."""
    real = SimpleNamespace(
        io=io.open, open=os.open, write=os.write, pwrite=os.pwrite, fsync=os.fsync, replace=os.replace, mkdir=os.mkdir
    )

    def ours(target: object) -> bool:
        if isinstance(target, int):
            try:
                target = Path(f"/proc/self/fd/{target}").readlink()
            except OSError:
                return False
        return str(target).startswith(str(runs))

    class File:
        """A file whose content cannot be written."""

        def __init__(self, file: Any) -> None:
            self._file = file

        def __enter__(self) -> File:
            return self

        def __exit__(self, *error: object) -> None:
            self._file.close()

        def __getattr__(self, name: str) -> Any:
            value = getattr(self._file, name)
            if name not in ("write", "writelines", "flush"):
                return value
            return lambda *args: fault_of().call(lambda: value(*args))

    def io_open(file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
        if not ours(file):
            return real.io(file, mode, *args, **kwargs)
        writes = any(letter in mode for letter in "wax+")
        if operation == ("open to write" if writes else "read"):
            return fault_of().call(lambda: real.io(file, mode, *args, **kwargs))
        opened = real.io(file, mode, *args, **kwargs)
        return File(opened) if writes and operation == "write" else opened

    def wrapped(name: str) -> Callable[..., Any]:
        function = getattr(real, name)

        def call(target: Any, *args: Any, **kwargs: Any) -> Any:
            if ours(target) and operation == f"os.{name}":
                return fault_of().call(lambda: function(target, *args, **kwargs))
            return function(target, *args, **kwargs)

        return call

    with monkeypatch.context() as patch:
        patch.setattr(io, "open", io_open)
        patch.setattr(builtins, "open", io_open)
        for name in ("open", "write", "pwrite", "fsync", "replace", "mkdir"):
            patch.setattr(os, name, wrapped(name))
        yield


# --- sessions --------------------------------------------------------------------------------------------------------


def spec(name: str) -> JobSpec:
    test = f"test_x.py::test_x[{name}]"
    named = JobSpec(job_name(name, LAYOUT, "r1", test), test, "far", LAYOUT, ("true",))
    return replace(named, time_limit_s=600, start_limit_s=600)


@dataclass
class Site:
    runs: Path
    machine: Machine
    said: list[str] = field(default_factory=list)

    def session(
        self, scheduler: object, fault: Fault | None = None, *, resume: bool = False, killed: bool = False
    ) -> list[Job]:
        """Run the jobs, or go on with them. Returns the last attempt of each.

        With `killed` the session ends in their middle, without a word.
        """
        jobs = {spec(name).test: spec(name) for name in ENDS}
        options: Any = SimpleNamespace(
            runs=self.runs, resume=resume, run_id="r1", again=lambda run: "", typed_places=""
        )
        plan = {"tests": list(jobs), "options": {}, "code": [], "history": ""}
        started = session_start.start(options, "r1", plan, jobs, {FAR.name: FAR}, 5.0, self.said.append)
        clock = self.machine.clock
        runner = Runner(
            self.runs,
            "r1",
            journal=started.journal,
            clock=clock,
            wall=clock.wall,
            workers=InlinePool(clock.forward),
            connect=lambda platform: scheduler,  # type: ignore[arg-type,return-value]
            on_trouble=self.said.append,
        )
        if fault is not None:  # before this a session refuses to start
            fault.active = True
        begun = [runner.add(each, FAR, started.attempt_of(each.key)) for each in jobs.values()]
        deadline = clock() + (KILLED_S if killed else WAIT_S)
        ended = [runner.wait(job, deadline=deadline) for job in begun]
        pending = any(not job.done for job in ended)
        started.journal.end(session_history.PENDING if pending else session_history.DONE)
        if fault is not None:
            fault.active = False
        if pending:
            self._forget_end(started.journal.path)
        return ended

    def _forget_end(self, path: Path) -> None:
        """Let the record of a session look as after kill -9: without its end, and of a process that is gone."""
        lines = [line for line in path.read_text().splitlines(keepends=True) if '"end"' not in line]
        path.write_text("".join(lines).replace(f'"pid": {os.getpid()}', '"pid": 4194305'))

    def check(self, jobs: Sequence[Job]) -> None:
        """Each job began once, nothing was cancelled, and each result is the true one."""
        assert self.machine.cancelled == []
        assert dict(self.machine.submissions) == {spec(name).name: 1 for name in ENDS}
        for job, (name, (code, state)) in zip(jobs, ENDS.items(), strict=True):
            assert job.done, (name, str(job.error))
            record = json.loads((job.folder / "run.json").read_text())
            assert (record["state"], record["exit_code"], record["problems"]) == (state, code, []), name
            log = b"".join(b"%s says line %d\n" % (spec(name).name.encode(), line) for line in range(35))
            assert (job.folder / "log").read_bytes() == log, name
            assert job.folder.name == f"test_x-{name}", job.folder


def play(site: Site, first: object, then: object, fault: Fault) -> None:
    """A session with a fault, and the one that goes on with it if it was left, or killed at every other point."""
    killed = fault.at % 2 == 1
    jobs = site.session(first, fault, killed=killed)
    fault.active = False
    for job in jobs:
        assert job.done or isinstance(job.error, StillPending)
    if not all(job.done for job in jobs):
        jobs = site.session(then, resume=True)
    site.check(jobs)


def calls_of(tmp_path: Path, kind: str, method: str) -> int:
    """How often a session without a fault calls a method."""
    clock = Clock()
    fault = Fault(10**9, raises(FULL), 0.0, clock)
    site = Site(tmp_path / "counted", Machine(clock))
    site.session(Faulty(Backend(site.machine, **KINDS[kind]), method, fault), fault)
    return fault.calls


def plays(tmp_path: Path, fault: Callable[[Clock], Fault], wrap: Callable[[Backend, Fault], object], kind: str) -> str:
    """Play with a fault. Returns what went wrong, or ""."""
    clock = Clock()
    site = Site(tmp_path, Machine(clock))
    backend = Backend(site.machine, **KINDS[kind])
    one = fault(clock)
    try:
        play(site, wrap(backend, one), backend, one)
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:300]}"
    return ""


@pytest.fixture(
    params=[
        pytest.param(29, id="some"),
        pytest.param(1, id="every", marks=pytest.mark.nightly("platforms/runner", "platforms/rundir")),
    ]
)
def step(request: pytest.FixtureRequest) -> int:
    """Of each so many faults one strikes."""
    number: int = request.param
    return number


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("kind", [FIRST_KIND, *(pytest.param(kind, marks=pytest.mark.slow) for kind in OTHER_KINDS)])
@pytest.mark.slow
def test_a_fault_of_the_scheduler(tmp_path: Path, kind: str, method: str, step: int) -> None:
    calls = calls_of(tmp_path, kind, method)
    names = [name for name, _ in strikes(method, Clock())]
    points = 0
    wrong: list[str] = []
    for at, name, lasts_s in chosen(step, range(calls), names, (0.0, OUTAGE_S, math.inf)):
        if lasts_s == math.inf and (name == "late" or (method, name) == ("read", "refused")):
            continue  # a log that its scheduler refuses for two minutes is lost, and its job's result says so
        points += 1
        strike = partial(lambda name, clock: dict(strikes(method, clock))[name], name)
        fault = partial(
            lambda at, strike, lasts_s, clock: Fault(at, strike(clock), lasts_s, clock), at, strike, lasts_s
        )
        what = plays(tmp_path / f"{points}", fault, lambda backend, one: Faulty(backend, method, one), kind)
        if what:
            wrong.append(f"{name} at call {at} for {lasts_s} s: {what}")
    print(f"{kind}: {method}: {points} faults at {calls} calls, {len(wrong)} wrong")
    assert not wrong, "\n".join(wrong[:8])


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.slow
def test_a_fault_of_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, operation: str, step: int) -> None:
    kind = "copies the log, glances"

    def run(number: int, at: int, error: OSError, lasts_s: float) -> tuple[str, int]:
        faults: list[Fault] = []
        runs = tmp_path / f"{number}"

        def fault(clock: Clock) -> Fault:
            faults.append(Fault(at, raises(error), lasts_s, clock))
            return faults[0]

        with faulty_disk(monkeypatch, runs, operation, lambda: faults[0]):
            what = plays(runs, fault, lambda backend, one: backend, kind)
        return what, faults[0].calls

    _, calls = run(0, 10**9, FULL, 0.0)
    points = 0
    wrong: list[str] = []
    for at, error, lasts_s in chosen(step, range(calls), (FULL, BROKEN), (0.0, OUTAGE_S, math.inf)):
        points += 1
        what, _ = run(points, at, error, lasts_s)
        if what:
            wrong.append(f"{error.strerror} at call {at} for {lasts_s} s: {what}")
    print(f"{operation}: {points} faults at {calls} calls, {len(wrong)} wrong")
    assert not wrong, "\n".join(wrong[:8])


def chosen(step: int, *choices: Sequence[Any]) -> Iterator[tuple[Any, ...]]:
    """Each combination, or each so many."""
    return islice(product(*choices), 0, None, step)
