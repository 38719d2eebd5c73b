"""The loop: with real jobs on this machine, and with a scripted scheduler and a clock of our own for the deadlines."""

from __future__ import annotations

import errno
import json
import math
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from threading import Barrier, Event, Lock, Timer, get_ident
from threading import enumerate as threads

import pytest

from platforms.config.schema import Platform
from platforms.job import (
    RETRIED,
    AwayError,
    BenchError,
    JobSpec,
    Layout,
    LoginNeeded,
    MachineError,
    Metric,
    NoRoom,
    Outcome,
    RefusedError,
    Run,
    State,
    Status,
    StillPending,
    Submitted,
    WorkloadError,
    job_name,
)
from platforms.rundir import job_folder, job_json, session_history, session_journal
from platforms.rundir.session_history import Attempt
from platforms.rundir.session_journal import Journal, TakenOver
from platforms.runner import Job, Runner, messages
from platforms.runner.deadlines import AWAY_S, GRACE_S
from platforms.runner.finalizer import LOG_S
from platforms.runner.runner import ANSWER_S
from platforms.runner.workers import InlinePool, ThreadPool
from tests.waiting import PATIENCE_S, until

LAYOUT = Layout(1, 1, "cpu")


@pytest.fixture(autouse=True)
def lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HPC_ML_BENCH_LOCK", str(tmp_path / "lock"))


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    return tmp_path / "runs"


def spec(name: str, *command: str, **changes: object) -> JobSpec:
    test = f"test_x.py::test_x[{name}]"
    return replace(
        JobSpec(job_name("x", LAYOUT, "r1", test), test, "local", LAYOUT, command or ("true",), time_limit_s=60),
        **changes,
    )


def local(**changes: object) -> Platform:
    return Platform(name="local", source=Path("local.yaml"), poll_s=0.02, **changes)


def finish(runner: Runner) -> list[Job]:
    for job in runner.jobs:
        runner.wait(job)
    return runner.jobs


def pumped(runner: Runner, true: Callable[[], object]) -> None:
    until(lambda: (runner.pump(), true())[1])


# --- a log as a job writes it ----------------------------------------------------------------------------------------

WINDOW = {"steps": 5, "samples": 160, "wall_s": 2.0, "stall_s": 0.5, "compute_s": 1.5, "stall_h2d_s": 0.25}
WINDOW |= {name: [0.1, 0.2, 0.3] for name in ("wait_s", "h2d_s", "busy_s")} | {"loss": 1.0}
SUMS = {"windows": 2, "steps": 10, "samples": 320, "wall_s": 4.0, "stall_s": 1.0, "compute_s": 3.0}
SUMS |= {"effective_throughput": 80.0, "compute_fraction": 0.75, "compute_throughput": 320 / 3, "identity_gap": 0.0}


def lines(*events: tuple[str, Mapping[str, object]]) -> bytes:
    log = b""
    for seq, (key, value) in enumerate(events):
        metadata = {"file": "meter.py", "lineno": 0, "rank": 0, "seq": seq}
        event = {"namespace": "hpcml", "time_ms": 1, "event_type": "POINT_IN_TIME", "key": key, "value": value}
        log += b":::MLLOG " + json.dumps({**event, "metadata": metadata}).encode() + b"\n"
    return log


SEEN = {"phase": "window", "step": 7, "steps": 10, "samples_per_s": 81.0, "loss": 1.5, "left_s": 3}
PROGRESS = ("hpcml_progress", SEEN)
GOOD = lines(
    ("hpcml_start", {"schema": 1, "benchmark": None, "request": {}, "world": {"size": 1}}),
    PROGRESS,
    *(("hpcml_window", {"index": index, **WINDOW}) for index in (0, 1)),
    ("hpcml_summary", SUMS),
    ("hpcml_end", {"exit_code": 0, "lines": 5}),
)


# --- real jobs -------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_job_that_succeeds_has_a_run_with_its_numbers(runs: Path) -> None:
    seen = []
    runner = Runner(runs, "r1", workers=InlinePool(), on_change=lambda job: seen.append(job.status.state))
    ticks = []
    says_good = f"import os; os.write(1, {GOOD!r})"
    job = runner.add(spec("good", sys.executable, "-S", "-c", says_good), local())
    assert (job.done, job.job_id, job.status.state) == (False, None, State.QUEUED)
    assert (job.folder / "job.sh").read_text() == job.text

    runner.wait(job, tick=lambda _: ticks.append(job.time_in_state_s))

    run = job.result()
    assert (job.done, job.error, run.status.state) == (True, None, State.SUCCEEDED)
    assert run.effective_throughput == 80
    assert (run.problems, run.folder) == ((), job.folder)
    assert job.progress is not None
    assert (job.progress.step, job.progress.throughput) == (7, Metric(81, "samples/s"))
    assert job.queue_s is not None
    assert job.run_s is not None
    assert job.run_s > 0
    assert ticks
    assert (seen[0], seen[-1]) == (State.SUBMITTED, State.SUCCEEDED)
    assert (runs / "latest").readlink() == Path("r1")
    assert sorted(path.name for path in (runs / "latest" / "test_x-good").iterdir()) == [
        *("exit", "job.sh", "log", "pid", "run.json", "submitted.json")
    ]


def test_the_end_of_each_attempt_is_announced_once_its_run_json_is_written(session: Sessions, far: Scripted) -> None:
    ends = []
    far.status_of["bad"] = then((0, Status(State.EXITED, exit_code=3)))
    runner = session(
        on_end=lambda job: ends.append((job.spec.test, job_json.read_run(job.folder) is not None, job.done))
    )
    add(runner, "good", "bad")
    finish(runner)
    assert sorted(ends) == [("test_x.py::test_x[bad]", True, False), ("test_x.py::test_x[good]", True, False)]
    again = session(on_end=lambda job: ends.append(job))
    again.add(spec("good", platform="far"), REMOTE, Attempt(1))
    finish(again)
    assert len(ends) == 2  # an earlier session has announced it


def test_run_json_holds_the_run_and_what_was_asked(runner: Runner, far: Scripted) -> None:
    far.log_of["good"] = lambda age: GOOD
    far.status_of = {"good": then((0, RUNNING), (20, replace(ENDED, nodes=("node7",))))}
    far.status_of["bad"] = then((0, Status(State.EXITED, exit_code=3)))
    add(runner, "good", env={"A": "1", "API_TOKEN": "hush"})
    add(runner, "bad")
    good, bad = finish(runner)

    record = json.loads((good.folder / "run.json").read_text())

    run = good.result()
    assert record["schema"] == 1
    assert record["outcome"] == "passed"
    assert record["state"] == "succeeded"
    assert (record["name"], record["test"], record["platform"]) == (run.name, run.test, "far")
    assert (record["exit_code"], record["error"], record["nodes"]) == (0, None, ["node7"])
    window = {key: WINDOW[key] for key in ("samples", "steps", "wall_s", "stall_s", "compute_s", "stall_h2d_s")}
    assert record["windows"] == [window] * 2
    assert record["effective_throughput"] == run.effective_throughput == 80
    assert record["summary"] == SUMS
    assert record["job_id"] == "good"
    assert (record["run_s"], record["queue_s"]) == (good.run_s, good.queue_s)
    assert record["asked"]["env"] == {"A": "1", "API_TOKEN": "(hidden)"}
    assert record["asked"]["layout"] == "1x1cpu"
    assert set(record["suite"]) == {"commit", "host", "python"}
    record = json.loads((bad.folder / "run.json").read_text())
    assert (record["outcome"], record["state"], record["exit_code"]) == ("failed", "exited with an error", 3)
    assert record["error"] == str(bad.error)
    assert (record["windows"], record["effective_throughput"]) == ([], None)


def exits(code: int) -> bytes:
    return GOOD.replace(b'"exit_code": 0', b'"exit_code": %d' % code)


@pytest.mark.parametrize(
    ("log", "code", "state"),
    [
        (b"", 0, State.SUCCEEDED),
        (GOOD[: GOOD.rindex(b":::MLLOG")], 0, State.INCOMPLETE),  # no hpcml_end
        (exits(3), 3, State.GATE),
        (exits(66), 1, State.DATA_MISSING),  # as under torchrun
        (exits(3), 0, State.GATE),
        (exits(1), 0, State.INCOMPLETE),
        (b"", 3, State.EXITED),  # somebody's own program: 3 is no gate of ours
    ],
)
def test_exit_code_and_log_decide_the_state(runner: Runner, far: Scripted, log: bytes, code: int, state: State) -> None:
    far.log_of["x"] = lambda age: log
    far.status_of["x"] = then((0, Status(State.EXITED, exit_code=code) if code else ENDED))
    (job,) = add(runner, "x")

    finish(runner)

    assert job.status.state is state
    if state.outcome is Outcome.PASSED:
        assert job.result() is job.run
    else:
        error = {Outcome.FAILED: WorkloadError, Outcome.ERROR: MachineError}[state.outcome]
        with pytest.raises(error) as raised:
            job.result()
        assert raised.value.status == job.status
        assert raised.value.folder == job.folder
        assert job.run is not None


def benchmarked(runner: Runner, far: Scripted, log: bytes, code: int) -> Job:
    """A job of a benchmark of ours, which has ended."""
    far.log_of["x"] = lambda age: b"loading\n" + log
    status = Status(State.EXITED, exit_code=code) if code else ENDED
    far.status_of["x"] = then((0, RUNNING), (20, replace(status, nodes=("node7",))))
    archive = Path("models-0123456789ab.pyz")
    (job,) = add(runner, "x", benchmark="resnet50", archive=archive, python="auto")
    runner.wait(job)
    return job


def test_a_benchmark_without_a_complete_log_is_incomplete(runner: Runner, far: Scripted) -> None:
    job = benchmarked(runner, far, b"all good\n", 0)

    assert job.status.state is State.INCOMPLETE
    assert "no line of the wire" in str(job.error)
    assert "  | all good" in str(job.error)


def test_an_error_says_what_where_why_and_what_to_type(runner: Runner, far: Scripted) -> None:
    text = "no data in /d: write it with `python -m models data resnet50 --data-dir /d`"
    log = lines(("hpcml_problem", {"gate": "data", "text": text}), ("hpcml_end", {"exit_code": 66, "lines": 1}))

    job = benchmarked(runner, far, log, 66)

    assert job.status.state is State.DATA_MISSING
    with pytest.raises(MachineError) as error:
        job.result()
    said = str(error.value).splitlines()
    assert said[0].startswith(f"{job.spec.name} on far (node7), 1x1cpu: data missing (exit code 66, after ")
    assert any(text in line for line in said)
    assert f"last lines of {job.folder / 'log'}:" in said
    assert "  | loading" in said
    assert f"evidence: {job.folder}" in said
    assert said[-2:] == ["next:", "  look at x"]


def test_a_problem_that_the_log_repeats_is_printed_once(runner: Runner, far: Scripted) -> None:
    """A job of ours says it on stderr and on the wire, which share a log."""
    problem = ("hpcml_problem", {"gate": "data", "text": "x.JPEG is cut off"})
    wire = lines(problem, ("hpcml_end", {"exit_code": 65, "lines": 1}))

    job = benchmarked(runner, far, b"error: x.JPEG is cut off\n" + wire, 65)

    assert str(job.error).count("x.JPEG is cut off") == 1
    assert "  | loading" in str(job.error)


@pytest.mark.slow
def test_a_supervisor_that_was_killed_while_it_started_is_started_again(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python, once = tmp_path / "python", tmp_path / "once"
    python.write_text(f'#!/bin/sh\n[ -e {once} ] || {{ touch {once}; kill -KILL $$; }}\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    seen: list[str] = []
    runner = Runner(runs, "r1", workers=InlinePool(), on_change=lambda job: seen.append(str(job.status)))
    job = runner.add(spec("x"), local())

    finish(runner)

    assert job.result().status.state is State.SUCCEEDED
    assert "unknown: its supervisor was ended by signal 9 while it was started" in seen


def test_a_test_that_has_ended_gets_a_new_attempt(session: Sessions) -> None:
    folders, names = [], []
    for _ in range(3):
        runner = session()
        (job,) = add(runner, "x")
        assert add(runner, "x") == [job]
        finish(runner)
        folders.append(job.folder.name)
        names.append(job.result().name)

    assert folders == ["test_x-x", "test_x-x.2", "test_x-x.3"]
    assert len(set(names)) == 3
    assert all(name.startswith("x-1x1cpu-k") and len(name) <= 36 for name in names)
    (again,) = add(runner, "x")  # by the same session
    assert again.folder.name == "test_x-x.4"


def test_a_live_job_whose_script_cannot_be_read_is_found_again(session: Sessions, far: Scripted) -> None:
    """Nobody submits it again, so nobody needs to know what it runs."""
    far.status_of["x"] = then((0, RUNNING), (50, ENDED))
    (before,) = add(first := session(), "x")
    first.pump()
    (before.folder / far.text_name).unlink()

    (job,) = add(second := session(), "x")
    finish(second)

    assert (job.job_id, job.result().status.state) == (before.job_id, State.SUCCEEDED)
    assert far.did == ["submit x", "clean x"]


def test_a_folder_is_named_after_its_test() -> None:
    quick = "test_resnet50.py::test_resnet50[local-1x1cpu-gbs32]"
    assert job_folder.folder_name(quick) == "test_resnet50-local-1x1cpu-gbs32"
    assert job_folder.folder_name("test_app.py::test_gromacs[a100-4x2gpu]") == "test_app-test_gromacs-a100-4x2gpu"
    odd = ["sub/test_a.py::test_b[x]", "test_a.py::test_b[x y]", "test_a.py::test_b[x/y]", "../../etc", "é" * 300, ""]
    slugs = {job_folder.folder_name(test) for test in odd}
    assert len(slugs) == len(odd)
    assert all("/" not in name and not name.startswith(".") and 0 < len(name) < 120 for name in slugs)


# --- a scripted scheduler and our own clock --------------------------------------------------------------------------


OPEN = Event()
OPEN.set()


class Clock:
    """Stands still but while somebody sleeps."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@dataclass
class Scripted:
    """A scheduler that says what it is told: for each test's name, its status and log as functions of the job's age."""

    clock: Clock
    status_of: dict[str, Callable[[float], Status]] = field(default_factory=dict)
    log_of: dict[str, Callable[[float], bytes]] = field(default_factory=dict)
    gaps_of: dict[str, tuple[str, ...]] = field(default_factory=dict)
    log_doubts_of: dict[str, tuple[str, ...]] = field(default_factory=dict)
    refuse: dict[str, Exception] = field(default_factory=dict)
    findings: dict[str, tuple[str, ...]] = field(default_factory=dict)
    away: Exception | None = None
    uncancellable: bool = False
    unclean: bool = False
    blocked: dict[str, Event] = field(default_factory=dict)  # by method: it hangs until the event
    alone: Lock = field(default_factory=Lock)
    did: list[str] = field(default_factory=list)
    queries: int = 0
    since: dict[str, float] = field(default_factory=dict)
    first_look_s: float = math.inf
    glance_s: float = math.inf
    news_of: dict[str, float] = field(default_factory=dict)  # by job: at what age it gives a sign, once
    glances: int = 0
    text_name = "job.txt"
    log_in_folder = False
    clean_deletes = True

    def render(self, spec: JobSpec) -> str:
        if isinstance(error := self.refuse.get(f"render {key(spec)}"), Exception):
            raise error
        return f"run {' '.join(spec.arguments)}\n"

    @contextmanager
    def asked(self, method: str) -> Iterator[None]:
        """One thread at a time is in here."""
        assert self.alone.acquire(blocking=False), f"{method} beside another call"
        try:
            assert self.blocked.get(method, OPEN).wait(PATIENCE_S)
            yield
        finally:
            self.alone.release()

    def submit(self, spec: JobSpec, text: str, folder: Path) -> str:
        with self.asked("submit"):
            return self._submit(spec, text, folder)

    def _submit(self, spec: JobSpec, text: str, folder: Path) -> str:
        assert (folder / "job.txt").read_text() == text
        name = key(spec) + folder.suffix  # a.2 is the second attempt
        if isinstance(error := self.refuse.get(name), Exception):
            raise error
        if name not in self.since:
            self.did.append(f"submit {name}")
            self.since[name] = self.clock()
        return name

    def lint(self, spec: JobSpec, text: str) -> tuple[str, ...]:
        return self.findings.get(key(spec), ())

    def status(self, jobs: Sequence[Submitted]) -> dict[str, Status]:
        with self.asked("status"):
            self.queries += 1
            if self.away:
                raise self.away
            return {job.job_id: self._status(job.job_id) for job in jobs}

    def has_news(self, jobs: Sequence[Submitted]) -> bool:
        with self.asked("has_news"):
            self.glances += 1
            if self.away:
                raise self.away
            known = [job.job_id for job in jobs if self._age(job.job_id) >= self.news_of.get(job.job_id, math.inf)]
            for job_id in known:
                del self.news_of[job_id]
            return bool(known)

    def read(self, job: Submitted, offset: int, known: bytes = b"") -> bytes:
        with self.asked("read"):
            return self.log_of.get(job.job_id, lambda age: b"")(self._age(job.job_id))[offset : offset + 100]

    def cancel(self, jobs: Sequence[Submitted]) -> dict[str, str]:
        with self.asked("cancel"):
            return self._cancel(jobs)

    def _cancel(self, jobs: Sequence[Submitted]) -> dict[str, str]:
        self.did.append(" ".join(["cancel", *(job.job_id for job in jobs)]))
        if isinstance(self.away, AwayError):
            raise self.away
        for job in jobs:
            if not self.uncancellable and self._status(job.job_id).state.live:
                self.status_of[job.job_id] = lambda age: Status(State.CANCELLED)
        return {job.job_id: "it does not hear" for job in jobs} if self.uncancellable else {}

    def gaps(self, job: Submitted) -> tuple[str, ...]:
        return self.gaps_of.get(job.job_id, ())

    def log_doubts(self, job: Submitted) -> tuple[str, ...]:
        return self.log_doubts_of.get(job.job_id, ())

    def clean(self, job: Submitted) -> None:
        with self.asked("clean"):
            self.did.append(f"clean {job.job_id}")
        if self.unclean:
            raise BenchError("no rights")

    def hints(self, job: Submitted) -> tuple[str, ...]:
        return (f"look at {job.job_id}",)

    def _age(self, job_id: str) -> float:
        return self.clock() - self.since[job_id]

    def _status(self, job_id: str) -> Status:
        return self.status_of.get(job_id, lambda age: Status(State.SUCCEEDED, exit_code=0))(self._age(job_id))


def key(spec: JobSpec) -> str:
    return spec.test.partition("[")[2].rstrip("]")


def then(*steps: tuple[float, Status]) -> Callable[[float], Status]:
    """The status that holds from each age on."""
    return lambda age: [status for since, status in steps if age >= since][-1]


QUEUED, RUNNING = Status(State.QUEUED, "Priority"), Status(State.RUNNING, nodes=("node7",))
ENDED = Status(State.SUCCEEDED, exit_code=0)
REMOTE = Platform(name="far", source=Path("far.yaml"), scheduler="scripted", max_running=8, poll_s=10)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def far(clock: Clock) -> Scripted:
    return Scripted(clock)


Sessions = Callable[..., Runner]


@pytest.fixture
def session(runs: Path, clock: Clock, far: Scripted) -> Sessions:
    """Sessions of the run r1, one after the other."""
    times = {"clock": clock, "wall": lambda: 1e9 + clock(), "workers": InlinePool(clock.sleep)}

    def begin(**settings: object) -> Runner:
        return Runner(runs, "r1", **{**times, "connect": lambda platform: far, **settings})  # type: ignore[arg-type]

    return begin


@pytest.fixture
def runner(session: Sessions) -> Runner:
    return session()


def add(runner: Runner, *names: str, **changes: object) -> list[Job]:
    return [runner.add(spec(name, platform="far", **changes), REMOTE) for name in names]


def test_jobs_are_submitted_in_order_and_up_to_max_running(runner: Runner, far: Scripted, clock: Clock) -> None:
    for number in range(5):
        far.status_of[str(number)] = then((0, QUEUED), (15 + number, ENDED))
        runner.add(spec(str(number), platform="far"), REMOTE.model_copy(update={"max_running": 2}))

    live = []
    while not runner.jobs[-1].done:
        runner.pump()
        live.append(sum(job.job_id is not None and not job.done for job in runner.jobs))
        clock.sleep(1)

    assert [word for word in far.did if word.startswith("submit")] == [f"submit {number}" for number in range(5)]
    assert max(live) == 2
    assert all(job.result() for job in runner.jobs)


def test_jobs_are_submitted_up_to_max_queued(runner: Runner, far: Scripted, clock: Clock) -> None:
    """A place is free once a job starts, or ends without."""
    far.status_of = {name: then((0, QUEUED), (50, RUNNING), (300, ENDED)) for name in "ab"}
    for name in "abcde":
        runner.add(spec(name, platform="far"), REMOTE.model_copy(update={"max_queued": 2, "max_running": 3}))

    finish(runner)

    assert [(name, since - 1000) for name, since in far.since.items()] == [
        ("a", 0), ("b", 0), ("c", 50), ("d", 60), ("e", 70)
    ]  # fmt: skip


def test_one_query_asks_for_all_jobs(runner: Runner, far: Scripted, clock: Clock) -> None:
    jobs = add(runner, *"abcd")
    far.status_of = {name: then((0, QUEUED), (95, ENDED)) for name in "abcd"}

    runner.wait(jobs[0])

    assert all(job.done for job in jobs)
    assert far.queries == 10
    assert clock() == 1000 + 100


def test_the_state_and_the_log_of_a_running_job_are_followed(runner: Runner, far: Scripted, clock: Clock) -> None:
    seen: list[str] = []
    runner._on_change = lambda job: seen.append(str(job.status))
    far.status_of["a"] = then((0, QUEUED), (20, Status(State.QUEUED, "Resources")), (30, RUNNING), (60, ENDED))
    far.log_of["a"] = lambda age: GOOD[: GOOD.index(b"hpcml_window")] if age < 60 else GOOD
    (job,) = add(runner, "a")
    progress = []

    runner.wait(job, tick=lambda _: progress.append(job.progress and job.progress.step))

    assert seen == ["submitted", "queued: Priority", "queued: Resources", "running", "succeeded"]
    assert {*progress} == {None, 7}
    assert (job.folder / "log").read_bytes() == GOOD
    assert job.result().effective_throughput == 80
    assert (job.queue_s, job.run_s) == (pytest.approx(30), pytest.approx(30))
    assert far.did == ["submit a", "clean a"]


def test_slow_submissions_do_not_delay_polls(runner: Runner, far: Scripted, clock: Clock) -> None:
    """A result comes within one poll interval and one submission, and polls keep their pace."""
    asked: list[float] = []
    submit, status = far._submit, far.status

    def slow(spec: JobSpec, text: str, folder: Path) -> str:
        clock.sleep(3)
        return submit(spec, text, folder)

    def counted(jobs: Sequence[Submitted]) -> dict[str, Status]:
        asked.append(clock())
        return status(jobs)

    far._submit, far.status = slow, counted  # type: ignore[method-assign]
    add(runner, *map(str, range(20)))
    seen = [job.result().status.ended_s for job in finish(runner)]  # when we saw it: the scheduler does not say

    assert all(at - 1e9 - since <= REMOTE.poll_s + 3 for at, since in zip(seen, far.since.values(), strict=True))
    assert all(later - before >= REMOTE.poll_s for before, later in pairwise(asked))


def looks(far: Scripted) -> list[float]:
    """When the scheduler is asked for states, from the first submission on."""
    asked: list[float] = []
    status = far.status

    def noted(jobs: Sequence[Submitted]) -> dict[str, Status]:
        asked.append(far.clock() - 1000)
        return status(jobs)

    far.status = noted  # type: ignore[method-assign]
    return asked


def test_the_first_polls_come_soon_and_later_ones_every_poll_s(runner: Runner, far: Scripted) -> None:
    far.first_look_s = 1.0
    far.status_of["a"] = then((0, QUEUED), (5, RUNNING), (40, ENDED))
    asked = looks(far)

    runner.wait(*add(runner, "a"))

    assert asked == pytest.approx([1, 3, 7, 15, 25, 35, 45], abs=0.5)


def test_news_of_an_end_brings_polls_until_the_scheduler_agrees(runner: Runner, far: Scripted, clock: Clock) -> None:
    far.first_look_s, far.glance_s = 1.0, 0.5
    far.status_of["a"] = then((0, RUNNING), (62.5, ENDED))
    far.news_of["a"] = 61.0
    asked = looks(far)

    runner.wait(*add(runner, "a"))

    assert [at for at in asked if at > 56] == pytest.approx([61, 62, 64], abs=0.7)
    assert far.glances > 50


@pytest.mark.parametrize(("first_look_s", "poll_takes_s", "apart_s"), [(2.0, 0.0, 2.0), (1.0, 4.0, 8.0)])
def test_news_of_many_ends_brings_no_poll_too_soon(
    runner: Runner, far: Scripted, clock: Clock, first_look_s: float, poll_takes_s: float, apart_s: float
) -> None:
    """At most one in `first_look_s`; after a slow one, news waits as long as that took."""
    far.first_look_s, far.glance_s = first_look_s, 0.5
    for number in range(8):
        far.status_of[str(number)] = then((0, RUNNING), (20 + 2 * number, ENDED))
        far.news_of[str(number)] = 20 + 2 * number
    asked = looks(far)
    answer = far.status

    def slow(jobs: Sequence[Submitted]) -> dict[str, Status]:
        found = answer(jobs)
        clock.sleep(poll_takes_s)
        return found

    far.status = slow  # type: ignore[method-assign]
    add(runner, *map(str, range(8)))

    finish(runner)

    assert all(later - before >= apart_s for before, later in pairwise(asked))
    assert asked[-1] < 34 + 2 * apart_s


def test_an_end_that_is_told_brings_one_poll(runner: Runner, far: Scripted, clock: Clock) -> None:
    """As it is by another thread while the main thread rests. Polls go on as they were."""
    far.first_look_s = 1.0
    for number in range(2):
        far.status_of[str(number)] = then((0, RUNNING), (61 + 8 * number, ENDED))
    asked = looks(far)
    told = []
    far.watch = lambda job, tell: told.append(tell)  # type: ignore[attr-defined]
    add(runner, "0", "1")
    while clock() < 1061:
        runner.pump()
        clock.sleep(0.5)

    told[0]()
    finish(runner)

    assert [at for at in asked if at > 56] == pytest.approx([61, 71], abs=0.7)


# --- attempts --------------------------------------------------------------------------------------------------------

GONE = "the machine's fault"


def gone(state: State, **more: tuple[str, ...]) -> Callable[[float], Status]:
    return then((0, RUNNING), (20, Status(state, GONE, nodes=("node7",), **more)))


@pytest.mark.parametrize(
    ("state", "failed", "avoided"),
    [
        (State.NODE_LOST, (), ("node7",)),
        (State.NODE_LOST, ("node8",), ("node8",)),  # of several it is known which
        (State.EVICTED, (), ("node7",)),
        (State.PREEMPTED, (), ()),
    ],
)
def test_a_job_that_the_machine_failed_is_retried_on_other_nodes(
    runner: Runner, far: Scripted, state: State, failed: tuple[str, ...], avoided: tuple[str, ...]
) -> None:
    seen: list[str] = []
    runner._on_change = lambda job: seen.append(str(job.status))
    far.status_of["a"] = gone(state, failed_nodes=failed)
    (job,) = add(runner, "a")
    (node,) = failed or ("node7",)

    last = runner.wait(job)

    told = f"attempt 1 ended as {state.value} on {node}"
    assert job.successor is last
    assert last.result().warnings == (told,)
    assert (last.spec.avoid_nodes, last.folder.name) == (avoided, "test_x-a.2")
    assert last.spec.name != job.spec.name
    assert far.did == ["submit a", "submit a.2", "clean a.2"]
    elsewhere = f", not on {node}" if avoided else ""
    assert f"queued: begun again{elsewhere}: {told}" in seen
    first, second = (json.loads((each.folder / "run.json").read_text()) for each in (job, last))
    assert (first["state"], second["state"]) == (state, "succeeded")
    assert (second["warnings"], second["asked"]["avoid_nodes"]) == ([told], list(avoided))


def test_a_job_is_retried_at_most_retries_times(runner: Runner, far: Scripted) -> None:
    far.status_of = dict.fromkeys(["a", "a.2", "a.3", "a.4"], gone(State.NODE_LOST))
    job = runner.add(spec("a", platform="far"), REMOTE.model_copy(update={"retries": 2}))

    last = runner.wait(job)

    assert far.did == ["submit a", "submit a.2", "submit a.3"]
    assert isinstance(last.error, MachineError)
    assert "before it: attempt 1 ended as node lost on node7; attempt 2 ended as node lost on node7" in str(last.error)


@pytest.mark.parametrize("state", [state for state in State if not state.live and state not in RETRIED])
def test_a_job_that_ends_in_any_other_state_is_not_retried(runner: Runner, far: Scripted, state: State) -> None:
    far.status_of["a"] = then((0, RUNNING), (20, Status(state, GONE)))
    (job,) = add(runner, "a")
    assert runner.wait(job) is job
    assert [word for word in far.did if word.startswith("submit")] == ["submit a"]


@pytest.mark.parametrize("state", [State.SUBMIT_REFUSED, State.NEVER_ADMISSIBLE])
def test_a_retry_that_is_refused_for_its_avoided_nodes_may_take_any_node(
    runner: Runner, far: Scripted, state: State
) -> None:
    far.status_of["a"] = gone(State.NODE_LOST)
    far.refuse["a.2"] = MachineError("it asks too much", Status(state, "Requested node configuration is not available"))
    (job,) = add(runner, "a")

    last = runner.wait(job)

    assert last.result().warnings == ("attempt 1 ended as node lost on node7",)
    assert (last.spec.avoid_nodes, last.job_id) == ((), "a.3")


def test_retries_are_taken_from_the_budget(session: Sessions, far: Scripted) -> None:
    far.status_of = dict.fromkeys("ab", gone(State.NODE_LOST))
    runner = session(max_device_hours=3 * spec("a").device_hours)

    last = [runner.wait(job) for job in add(runner, "a", "b")]

    assert [job.job_id for job in last] == ["a.2", "b"]
    assert f"{GONE}; it is not begun again, since that may cost more than `max_device_hours:`" in str(last[1].error)


@pytest.mark.parametrize("allowed", [4, 5])
def test_attempts_of_earlier_sessions_are_taken_from_the_budget(session: Sessions, far: Scripted, allowed: int) -> None:
    """Of the job that is begun again, and of those that come later in the order."""
    far.status_of = {name: gone(State.NODE_LOST) for name in ("a", "b")}
    far.status_of |= {f"{name}.{number}": gone(State.NODE_LOST) for name in "ab" for number in range(2, 9)}
    tries: dict[str, Attempt] = {}
    platform = REMOTE.model_copy(update={"retries": 9})
    for _ in range(3):
        runner = session(max_device_hours=allowed * spec("a").device_hours)
        jobs = [runner.add(spec(name, platform="far"), platform, tries.get(name)) for name in "ab"]
        tries = {name: runner.wait(job).attempt for name, job in zip("ab", jobs, strict=True)}

    assert len([word for word in far.did if word.startswith("submit")]) == allowed
    assert all(
        "may cost more than `max_device_hours:`" in str(job.error) for job in runner.jobs if job.successor is None
    )


@pytest.mark.parametrize("killed", ["before the next attempt", "while it runs"])
def test_the_next_session_goes_on_with_the_retries_of_a_killed_one(
    session: Sessions, runs: Path, clock: Clock, far: Scripted, killed: str
) -> None:
    far.status_of = {"a": gone(State.NODE_LOST), "a.2": then((0, RUNNING), (30, ENDED))}
    first = session(journal=Journal(runs / "r1", {"tests": ["a"]}))
    (job,) = add(first, "a")
    while not job.done or (killed == "while it runs" and "a.2" not in far.since):
        first.pump()
        clock.sleep(5)
    (record,) = session_history.read_sessions(runs / "r1")
    attempt = record.attempts[job.spec.test]
    assert attempt.number == (2 if killed == "while it runs" else 1)

    second = session(journal=Journal(runs / "r1", {"tests": ["a"]}))
    last = second.wait(second.add(spec("a", platform="far"), REMOTE, attempt))

    assert last.result().warnings == ("attempt 1 ended as node lost on node7",)
    assert last.spec.avoid_nodes == ("node7",)
    assert far.did == ["submit a", "submit a.2", "clean a.2"]


def test_a_job_that_a_killed_session_cancelled_is_retried(session: Sessions, runs: Path, far: Scripted) -> None:
    """Nobody else has cancelled it, and what is left of the run is gone on with."""
    far.status_of = {"a": then((0, RUNNING))}
    first = session(journal=Journal(runs / "r1", {"tests": ["a"]}))
    (job,) = add(first, "a")
    first.pump()
    cancel = far._cancel

    def killed(jobs: Sequence[Submitted]) -> dict[str, str]:
        cancel(jobs)
        raise SystemExit

    far._cancel = killed  # type: ignore[method-assign]
    with pytest.raises(SystemExit):
        first.cancel()
    far._cancel = cancel  # type: ignore[method-assign]
    assert not (job.folder / "run.json").exists()
    (record,) = session_history.read_sessions(runs / "r1")

    second = session(journal=Journal(runs / "r1", {"tests": ["a"]}))
    last = second.wait(second.add(spec("a", platform="far"), REMOTE, record.attempts[job.spec.test]))

    assert last.result().warnings == ()
    assert [word for word in far.did if word.startswith("submit")] == ["submit a", "submit a.2"]


@pytest.mark.parametrize("ended", [True, False])
def test_handing_over_reads_the_results_of_jobs_that_have_ended(
    session: Sessions, clock: Clock, far: Scripted, ended: bool
) -> None:
    far.status_of["a"] = then((0, RUNNING), (100 if ended else 9999, ENDED))
    add(first := session(), "a")
    first.pump()
    clock.sleep(200)

    second = session()
    (job,) = add(second, "a")
    second.pump()
    second.hand_over(300)

    assert job.done == ended
    assert clock() < 1250


def test_a_cancelled_job_is_not_retried(runner: Runner, far: Scripted) -> None:
    far.status_of["a"] = then((0, RUNNING))
    (job,) = add(runner, "a")
    runner.pump()
    far.status_of["a"] = then((0, Status(State.PREEMPTED, GONE)))

    runner.cancel()
    runner.pump()

    assert far.did[:1] == ["submit a"]
    assert not [word for word in far.did if word == "submit a.2"]
    assert job.successor is None


def test_a_job_that_does_not_start_within_its_start_limit_is_cancelled(
    runner: Runner, far: Scripted, clock: Clock
) -> None:
    far.status_of["a"] = then((0, QUEUED))
    (job,) = add(runner, "a", start_limit_s=100)

    runner.wait(job)

    assert job.status.state is State.START_DEADLINE
    assert far.did == ["submit a", "cancel a"]
    assert 1100 < clock() <= 1111
    assert "start limit of 100 s: Priority" in str(job.error)
    assert "more patience: `start_limit:` in far.yaml" in str(job.error)
    assert "  look at a" in str(job.error)


def test_the_start_limit_counts_from_the_submission(runner: Runner, far: Scripted) -> None:
    """Not from when a job got into our own line."""
    far.status_of = {name: then((0, RUNNING), (80, ENDED)) for name in "ab"}
    for name in "ab":
        runner.add(spec(name, platform="far", start_limit_s=50), REMOTE.model_copy(update={"max_running": 1}))

    assert [job.result().status.state for job in finish(runner)] == [State.SUCCEEDED, State.SUCCEEDED]


def test_a_job_that_runs_longer_than_its_time_limit_is_cancelled(runner: Runner, far: Scripted, clock: Clock) -> None:
    far.status_of["a"] = then((0, QUEUED), (500, RUNNING))
    (job,) = add(runner, "a", time_limit_s=100)

    runner.wait(job)

    assert job.status.state is State.TIME_LIMIT
    assert isinstance(job.error, WorkloadError)
    assert 1600 + GRACE_S < clock() <= 1620 + GRACE_S
    assert far.did == ["submit a", "cancel a"]
    assert "node7" in str(job.error)


def test_a_job_that_ends_as_its_deadline_passes_keeps_its_own_end(runner: Runner, far: Scripted, clock: Clock) -> None:
    far.status_of["a"] = then((0, QUEUED))
    (job,) = add(runner, "a", start_limit_s=100)
    cancel = far.cancel

    def too_late(jobs: Sequence[Submitted]) -> dict[str, str]:
        far.status_of["a"] = then((0, Status(State.EXITED, exit_code=9, ended_s=1e9 + clock() - 2)))
        return cancel(jobs)

    far.cancel = too_late  # type: ignore[method-assign]
    runner.wait(job)

    assert (job.status.state, job.status.exit_code) == (State.EXITED, 9)


@pytest.mark.parametrize("how", ["says so", "raises", "forgets it"])
def test_a_job_of_which_nothing_is_heard_for_long_ends_as_scheduler_did_not_answer(
    runner: Runner, far: Scripted, clock: Clock, how: str
) -> None:
    silent = then((0, RUNNING), (50, Status(State.UNKNOWN, "Connection refused")))
    far.status_of = {"a": silent, "b": then((0, RUNNING), (50, Status(State.UNKNOWN)), (300, ENDED))}
    a, b = add(runner, "a", "b")
    runner.pump()
    while clock() < 1290:
        if how == "raises":
            far.away = BenchError("Connection refused") if clock() >= 1050 else None
        elif how == "forgets it" and clock() >= 1050:
            far.status = lambda job_ids: {}  # type: ignore[method-assign]
        clock.sleep(10)
        runner.pump()
    assert (a.status.state, b.status.state) == (State.UNKNOWN, State.UNKNOWN)
    far.__dict__.pop("status", None)
    far.away = None

    runner.wait(a)

    assert a.status.state is State.CONTROLLER_AWAY
    silent_from = 1290 if how == "raises" else 1050  # an error is no answer, so it says nothing of the job
    assert silent_from + AWAY_S < clock() <= silent_from + 30 + AWAY_S
    assert b.result().status.started_s == 1e9 + 1010


def test_a_job_that_may_still_run_outlives_hours_without_its_login_node(
    runner: Runner, far: Scripted, clock: Clock
) -> None:
    """A job cannot last longer than its limits; until then it may be there, and its result."""
    far.status_of = {"a": then((0, QUEUED), (9000, ENDED)), "b": then((0, RUNNING), (99999, ENDED))}
    a, b = add(runner, "a", start_limit_s=9000), add(runner, "b", time_limit_s=5000)
    runner.pump()
    clock.sleep(10)
    runner.pump()
    far.away = AwayError("Connection refused")
    while clock() < 1000 + 8000:
        clock.sleep(10)
        runner.pump()
    assert (str(a[0].status), a[0].done) == ("unknown: Connection refused", False)
    assert b[0].status.state is State.CONTROLLER_AWAY
    assert "no answer for" in str(b[0].error)
    far.away = None

    runner.wait(a[0])

    assert a[0].result().status.state is State.SUCCEEDED


def test_an_outage_does_not_count_towards_the_deadlines_of_a_job(runner: Runner, far: Scripted, clock: Clock) -> None:
    """A controller that is back knows of it by and by."""
    unknown = Status(State.UNKNOWN, "Slurm does not know it (yet)")
    far.status_of["a"] = then((0, RUNNING), (3000, unknown), (3060, RUNNING), (4000, ENDED))
    (job,) = add(runner, "a", time_limit_s=9000)
    runner.pump()
    clock.sleep(10)
    runner.pump()
    far.away = AwayError("Connection refused")
    while clock() < 1000 + 3010:
        clock.sleep(10)
        runner.pump()
    far.away = None

    runner.wait(job)

    assert job.result().status.state is State.SUCCEEDED
    assert far.did == ["submit a", "clean a"]


def test_a_job_that_cannot_be_cancelled_is_returned_with_the_reason(runner: Runner, far: Scripted) -> None:
    far.status_of = {name: then((0, QUEUED)) for name in "ab"}
    far.uncancellable = True
    a, b = add(runner, "a", start_limit_s=100) + add(runner, "b")
    runner.wait(a)

    assert a.status.state is State.START_DEADLINE
    assert "could not be cancelled either: it does not hear" in str(a.error)
    assert runner.cancel() == [b]
    assert not b.done
    assert b.status.reason == "could not be cancelled: it does not hear"
    far.uncancellable = False
    assert runner.cancel([b]) == []
    assert b.done


def test_cancel_finds_a_job_whose_submission_was_interrupted(runner: Runner, far: Scripted) -> None:
    far.status_of = {name: then((0, RUNNING)) for name in "ab"}
    submit = far.submit

    def interrupted(spec: JobSpec, text: str, folder: Path) -> str:
        submit(spec, text, folder)
        raise KeyboardInterrupt

    far.submit = interrupted  # type: ignore[method-assign]
    a, b = add(runner, "a", "b")
    with pytest.raises(KeyboardInterrupt):
        runner.pump()
    far.submit = submit  # type: ignore[method-assign]

    assert runner.cancel() == []

    assert far.did == ["submit a", "cancel a"]
    assert [job.status.state for job in (a, b)] == [State.CANCELLED, State.CANCELLED]


def test_a_job_that_ended_before_it_was_cancelled_keeps_its_own_end(
    runner: Runner, far: Scripted, clock: Clock
) -> None:
    far.status_of["a"] = then((0, RUNNING), (15, replace(ENDED, ended_s=1e9 + clock() + 15)))
    (job,) = add(runner, "a")
    runner.pump()
    clock.sleep(20)

    assert runner.cancel() == []

    assert job.result().status.state is State.SUCCEEDED


@pytest.mark.parametrize("ended", [ENDED, Status(State.EXITED, exit_code=3), Status(State.SIGNALLED, exit_code=143)])
@pytest.mark.parametrize("why", ["cancelled", "late"])
def test_how_a_program_reacts_to_our_signal_is_no_result(
    runner: Runner, far: Scripted, clock: Clock, ended: Status, why: str
) -> None:
    """`trap 'exit 0' TERM` is in many scripts."""
    far.status_of["a"] = then((0, RUNNING))
    (job,) = add(runner, "a", time_limit_s=100)
    cancel = far.cancel

    def handles_it(jobs: Sequence[Submitted]) -> dict[str, str]:
        far.status_of["a"] = then((0, replace(ended, ended_s=float(int(1e9 + clock())))))
        return cancel(jobs)

    far.cancel = handles_it  # type: ignore[method-assign]
    if why == "late":
        finish(runner)
    else:
        runner.pump()
        assert runner.cancel() == []
    assert job.status.state is (State.TIME_LIMIT if why == "late" else State.CANCELLED)
    assert job.status.exit_code == ended.exit_code
    assert job.failure is not None


def test_a_job_that_is_left_at_its_deadline_is_pending(runner: Runner, far: Scripted, clock: Clock) -> None:
    far.status_of["a"] = then((0, QUEUED), (1000, ENDED))
    (job,) = add(runner, "a")

    runner.wait(job, deadline=clock() + 100)

    with pytest.raises(StillPending, match="still queued: Priority; we stopped waiting, as job a") as error:
        job.result()
    assert "--resume=r1" in str(error.value)
    assert not job.done
    assert far.did == ["submit a"]
    assert not (job.folder / "run.json").exists()
    runner.wait(job)
    assert job.result().status.state is State.SUCCEEDED


def test_the_result_of_a_job_that_is_not_done_is_pending(runner: Runner) -> None:
    (job,) = add(runner, "a")

    with pytest.raises(StillPending, match="not submitted yet"):
        job.result()


def test_a_refused_submission_stops_no_other_job(runner: Runner, far: Scripted) -> None:
    far.refuse = {
        "render b": RefusedError("two nodes"),
        "c": BenchError("sbatch: error: Invalid account"),
        "d": MachineError("no such image", Status(State.IMAGE, "ErrImagePull")),
    }
    a, b, c, d, e = add(runner, *"abcde")

    finish(runner)

    assert [job.status.state for job in (a, e)] == [State.SUCCEEDED, State.SUCCEEDED]
    assert [job.status.state for job in (b, c, d)] == [State.SUBMIT_REFUSED, State.SUBMIT_REFUSED, State.IMAGE]
    assert "why: two nodes" in str(b.error)
    assert "why: sbatch: error: Invalid account" in str(c.error)
    assert all(isinstance(job.error, MachineError) and (job.folder / "run.json").exists() for job in (b, c, d))
    assert far.did[:2] == ["submit a", "submit e"]


def test_an_unknown_scheduler_is_the_error_of_its_job(runs: Path) -> None:
    runner = Runner(runs, "r1")
    job = runner.add(spec("a", platform="far"), REMOTE)

    assert job.done
    assert "there is no 'scripted'" in str(job.error)


def test_a_bug_before_a_submission_ends_its_job_with_a_traceback(runner: Runner, far: Scripted) -> None:
    far.refuse = {"render b": KeyError("oops")}
    a, b = add(runner, "a", "b")

    finish(runner)

    assert isinstance(b.error, MachineError)
    assert "KeyError: 'oops' (a mistake in the suite)" in str(b.error)
    assert "Traceback" in (b.folder / "traceback.txt").read_text()
    assert str(b.folder / "traceback.txt") in str(b.error)
    assert a.status.state is State.SUCCEEDED


@pytest.mark.parametrize("where", ["b", "status", "read"])
def test_a_bug_cancels_no_job_and_is_said_once(runner: Runner, far: Scripted, clock: Clock, where: str) -> None:
    said: list[str] = []
    runner._on_trouble = said.append
    far.status_of["b"] = then((0, RUNNING), (50, ENDED))
    far.refuse = {where: KeyError("oops")}
    if where == "status":
        far.away = KeyError("oops")
    if where == "read":
        far.log_of["b"] = lambda age: {}["oops"]  # type: ignore[index]
    a, b = add(runner, "a", "b")
    if where != "status":
        assert runner.wait(a).result()

    runner.wait(b, deadline=clock() + 200)

    assert isinstance(b.error, StillPending)
    assert "why: KeyError: 'oops' (a mistake in the suite)" in str(b.error)
    assert "Traceback" in (b.folder / "traceback.txt").read_text()
    (told,) = said
    assert "KeyError: 'oops' (a mistake in the suite)" in told
    assert ("no job is cancelled, and " in told) == (where != "b")
    assert not any(word.startswith("cancel") for word in far.did)
    far.refuse, far.log_of, far.away = {}, {}, None
    assert all(job.result() for job in finish(runner))


def test_a_job_out_of_reach_is_left_when_it_must_be_over_by_its_own_limits(
    runner: Runner, far: Scripted, clock: Clock
) -> None:
    far.away = ValueError("garbage")
    (job,) = add(runner, "a", time_limit_s=1000, start_limit_s=2000)

    runner.wait(job)

    assert isinstance(job.error, StillPending)
    assert 1000 + 3000 + GRACE_S < clock() <= 1000 + 3020 + GRACE_S
    assert far.did == ["submit a"]


def test_a_full_disk_suspends_no_deadline(runner: Runner, far: Scripted, clock: Clock) -> None:
    far.status_of["a"] = then((0, RUNNING))
    (job,) = add(runner, "a", time_limit_s=100)
    runner.pump()
    (job.folder / "log").mkdir()

    runner.wait(job, deadline=clock() + 300)

    assert far.did == ["submit a", "cancel a"]
    (job.folder / "log").rmdir()
    runner.wait(job)
    assert job.status.state is State.TIME_LIMIT


def test_only_a_successful_job_is_cleaned_up(runner: Runner, far: Scripted) -> None:
    far.status_of["b"] = then((0, Status(State.OUT_OF_MEMORY, "OOMKilled", exit_code=0)))
    far.unclean = True
    a, b = add(runner, "a", "b")

    finish(runner)

    assert [word for word in far.did if word.startswith("clean")] == ["clean a"]
    assert a.result().warnings == ("not cleaned up: no rights",)
    assert b.status.state is State.OUT_OF_MEMORY


@pytest.mark.parametrize("back_s", [30.0, float("inf")])
def test_a_log_that_cannot_be_read_is_tried_for_log_s(
    runner: Runner, far: Scripted, clock: Clock, back_s: float
) -> None:
    def log(age: float) -> bytes:
        if age < back_s:
            raise BenchError("kubelet: connection refused")
        return GOOD

    far.log_of["a"] = log
    (job,) = add(runner, "a")

    runner.wait(job)

    if back_s == 30:
        assert job.result().effective_throughput == 80
    else:
        assert clock() >= 1000 + LOG_S
        assert any("kubelet: connection refused" in problem for problem in job.run.problems)  # type: ignore[union-attr]


def test_a_long_log_is_read_in_pieces(runner: Runner, far: Scripted) -> None:
    far.status_of["a"] = then((0, RUNNING), (20, ENDED))
    far.log_of["a"] = lambda age: b"x" * 99_999 + b"\n" + GOOD
    (job,) = add(runner, "a")
    runner.pump()
    runner.wait(job, deadline=runner._clock() + 10)
    assert (job.folder / "log").stat().st_size == 1600

    runner.wait(job)

    assert (job.folder / "log").stat().st_size == 100_000 + len(GOOD)
    assert job.result().effective_throughput == 80


def test_a_job_that_is_found_again_keeps_the_log_that_was_read(
    runner: Runner, session: Sessions, far: Scripted, clock: Clock
) -> None:
    far.status_of["a"] = then((0, RUNNING), (50, ENDED))
    far.log_of["a"] = lambda age: GOOD[: 300 if age < 50 else None]
    (first,) = add(runner, "a")
    runner.wait(first, deadline=clock() + 20)
    assert (first.folder / "log").stat().st_size == 300

    later = session()
    (job,) = add(later, "a", start_limit_s=5, arguments=("something", "else"))
    later.wait(job)

    assert far.did == ["submit a", "clean a"]
    assert job.result().effective_throughput == 80
    assert (job.folder / "log").read_bytes() == GOOD
    assert (job.folder / far.text_name).read_text() == first.text  # as it runs, not what would be submitted now
    assert (job.folder.name, job.status.submitted_s) == ("test_x-a", 1e9 + 1000)


def test_without_a_place_for_evidence_nothing_is_submitted(runner: Runner, runs: Path) -> None:
    runs.mkdir()
    (runs / "r1").write_text("a file")

    (job,) = add(runner, "a")

    runner.wait(job, deadline=runner._clock() + 100)
    assert isinstance(job.error, StillPending)
    assert "cannot be read or written" in str(job.error)
    (runs / "r1").unlink()
    runner.wait(job)
    assert job.result()


def test_a_latest_that_cannot_be_linked_is_no_error(runner: Runner, runs: Path) -> None:
    (runs / "latest").mkdir(parents=True)
    (runs / "latest" / "precious").touch()

    (job,) = add(runner, "a")
    runner.wait(job)

    assert job.result()
    assert sorted(path.name for path in runs.iterdir()) == ["latest", "r1"]


def test_a_result_that_cannot_be_written_is_written_later(runner: Runner, far: Scripted, clock: Clock) -> None:
    (job,) = add(runner, "a")
    (job.folder / "run.json").mkdir()

    runner.wait(job, deadline=clock() + 100)

    assert isinstance(job.error, StillPending)
    assert f"cannot be read or written: Is a directory: {job.folder}" in str(job.error)
    (job.folder / "run.json").rmdir()
    runner.wait(job)
    assert job.result().status.state is State.SUCCEEDED
    assert far.did == ["submit a", "clean a"]


def test_a_full_disk_names_the_command_that_shows_it(tmp_path: Path) -> None:
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(tmp_path / "log"))
    said = messages.held(spec("a"), "17", tmp_path, full)
    assert f"cannot be read or written: No space left on device: {tmp_path}/log" in said
    assert "this is tried again; no job is cancelled, and 17 goes on" in said
    assert f"`df -h {tmp_path}` shows which disk is full" in said


def test_a_job_that_the_sites_rules_forbid_is_not_submitted(runner: Runner, far: Scripted) -> None:
    far.findings = {"b": ("far.yaml:7: max_nodes: 4", "far.yaml:9: --mem: is forbidden")}
    a, b = add(runner, "a", "b")

    finish(runner)

    assert (a.status.state, b.status.state) == (State.SUCCEEDED, State.SUBMIT_REFUSED)
    assert "forbid it: far.yaml:7: max_nodes: 4; far.yaml:9: --mem: is forbidden" in str(b.error)
    assert far.did == ["submit a", "clean a"]


# --- nobody answers --------------------------------------------------------------------------------------------------

LOGIN = LoginNeeded("far: the connection is closed and asks for a code", "ssh -MNf far")


@pytest.mark.parametrize("there", [True, False])
def test_a_submission_without_an_answer_is_tried_again(
    runner: Runner, far: Scripted, clock: Clock, there: bool
) -> None:
    """Whether the job is there, submitting again finds out; what is behind it in line waits."""
    far.status_of = {name: then((0, RUNNING), (5, ENDED)) for name in "ab"}
    submit, tries = far._submit, []

    def away(spec: JobSpec, text: str, folder: Path) -> str:
        tries.append((round(clock()), key(spec)))
        if there:
            submit(spec, text, folder)
        if clock() < 1025:
            raise AwayError("Socket timed out on send/recv operation")
        return submit(spec, text, folder)

    far._submit = away  # type: ignore[method-assign]
    a, b = add(runner, "a", "b")
    runner.wait(a, deadline=clock() + 21)
    assert str(a.status) == "unknown: Socket timed out on send/recv operation"
    assert "it is not known whether it was submitted" in str(a.error)
    assert "--resume=r1" in str(a.error)

    finish(runner)

    assert tries == [(1000, "a"), (1010, "a"), (1020, "a"), (1030, "a"), (1030, "b")]
    assert [word for word in far.did if word.startswith("submit")] == ["submit a", "submit b"]
    assert all(job.result() for job in (a, b))
    assert job_json.read_json(a.folder / "submitted.json")["submitted_s"] == 1e9 + 1000


def test_cancel_looks_for_a_job_that_an_earlier_session_asked_for(runner: Runner, far: Scripted) -> None:
    """Ctrl-C before the turn of a job whose submission nobody had answered when its session was killed."""
    far.since["a"] = 0.0
    far.status_of["a"] = then((0, RUNNING))
    asked = runner.add(spec("a", platform="far"), REMOTE, Attempt(asked_s=1e9))
    (never,) = add(runner, "b")

    assert runner.cancel() == []

    assert far.did == ["cancel a"]
    assert (asked.job_id, never.job_id) == ("a", None)
    assert "never submitted it" in str(never.error)
    assert "this session ended it" in str(asked.error)


def test_a_job_that_is_left_while_others_are_submitted_is_not_submitted(runner: Runner, far: Scripted) -> None:
    a, b = add(runner, "a", "b")
    submit = far._submit

    def slow(spec: JobSpec, text: str, folder: Path) -> str:
        b.leave(StillPending("we stopped waiting", b.status))
        return submit(spec, text, folder)

    far._submit = slow  # type: ignore[method-assign]
    runner.wait(a)

    assert [word for word in far.did if word.startswith("submit")] == ["submit a"]


def test_a_session_that_was_frozen_and_taken_over_submits_nothing(session: Sessions, runs: Path, far: Scripted) -> None:
    record = Journal(runs / "r1", {"tests": ["a"]})
    runner = session(journal=record)
    (job,) = add(runner, "a")
    (past,) = session_history.read_sessions(runs / "r1")
    session_journal.take_over(past, "another one")

    with pytest.raises(TakenOver):
        runner.wait(job)

    assert far.did == []
    assert not (job.folder / "run.json").exists()
    record.end(session_history.PENDING)


def test_run_json_is_on_the_disk_before_the_scheduler_deletes_anything(runner: Runner, far: Scripted) -> None:
    (job,) = add(runner, "a")
    seen = []
    far.clean = lambda submitted: seen.append((job.folder / "run.json").exists())  # type: ignore[method-assign]
    runner.wait(job)
    assert seen == [True]


def test_a_submission_that_is_never_answered_ends_after_the_start_limit(
    runner: Runner, far: Scripted, clock: Clock
) -> None:
    """All of a line give up at the same time, and not one start limit after the other."""
    far.refuse = dict.fromkeys("ab", AwayError("Unable to contact slurm controller"))
    a, b = add(runner, "a", "b", start_limit_s=100)

    finish(runner)

    assert [job.status.state for job in (a, b)] == [State.CONTROLLER_AWAY] * 2
    assert 1100 < clock() <= 1111
    assert "it is not known whether it was submitted: Unable to contact" in str(a.error)
    assert f"look there for {a.spec.name}" in str(a.error)
    assert "it was not submitted: Unable to contact" in str(b.error)
    assert far.did == []


def test_a_job_waits_for_a_quota_that_is_used_up(runner: Runner, far: Scripted, clock: Clock) -> None:
    """And no answer at all is something else: there, nobody knows whether there is a job."""
    far.refuse["a"] = NoRoom("requests.nvidia.com/gpu: 4 of 4 are in use")
    (a,) = add(runner, "a", start_limit_s=100)

    runner.wait(a, deadline=clock() + 30)

    assert (a.status.state, a.status.reason) == (State.QUEUED, "requests.nvidia.com/gpu: 4 of 4 are in use")
    finish(runner)
    assert a.status.state is State.START_DEADLINE
    assert "no room for it within its start limit of 100 s: requests.nvidia.com/gpu" in str(a.error)
    assert far.did == []


def test_a_gap_in_a_log_is_a_problem(runner: Runner, far: Scripted) -> None:
    """Also where it is found only while the log is read, after the end was known."""
    far.status_of["a"] = then((0, RUNNING), (15, ENDED))

    def reads(age: float) -> bytes:
        far.gaps_of["a"] = ("rotated away",) if age > 15 else ()
        return b""

    far.log_of["a"] = reads
    (a,) = add(runner, "a")
    runner.wait(a)
    assert a.run is not None
    assert a.run.problems == ("rotated away",)


def test_problems_and_warnings_of_a_scheduler_become_those_of_the_run(runner: Runner, far: Scripted) -> None:
    far.status_of["a"] = then((0, RUNNING), (15, replace(ENDED, problems=("no exit file",), warnings=("no steps",))))
    far.log_doubts_of["a"] = ("it was long",)
    (a,) = add(runner, "a")
    runner.wait(a)
    assert a.run is not None
    assert (a.run.problems, {*a.run.warnings}) == (("no exit file",), {"no steps", "log may lack lines: it was long"})
    recorded = json.loads((a.folder / "run.json").read_text())
    assert (recorded["problems"], recorded["warnings"]) == (["no exit file"], list(a.run.warnings))


def test_cancel_does_not_submit_a_job_that_waits_for_room(runner: Runner, far: Scripted) -> None:
    far.refuse["a"] = NoRoom("requests.nvidia.com/gpu: 4 of 4 are in use")
    (a,) = add(runner, "a")
    runner.pump()
    assert runner.cancel() == []
    assert (a.status.state, a.status.reason) == (State.CANCELLED, "this session never submitted it")


def test_cancelling_twice_gives_the_reason_once(runner: Runner, far: Scripted) -> None:
    far.refuse["a"] = AwayError("no answer")
    (a,) = add(runner, "a")
    runner.pump()
    for _ in range(2):
        assert runner.cancel() == [a]
        assert a.status.reason == "could not be cancelled: no answer"


@pytest.mark.parametrize("where", ["status", "submit", "read"])
def test_a_job_is_pending_when_a_person_must_log_in(
    runner: Runner, session: Sessions, far: Scripted, clock: Clock, where: str
) -> None:
    far.status_of = {name: then((0, RUNNING), (45, ENDED)) for name in "abc"}
    (a,) = add(runner, "a")
    if where == "submit":
        far.refuse["a"] = LOGIN
    elif where == "read":
        far.log_of["a"] = lambda age: (_ for _ in ()).throw(LOGIN)
    else:
        far.away = LOGIN
    (b, c), began = add(runner, "b", "c"), clock()

    runner.wait(a)

    assert clock() - began <= 10.2
    assert isinstance(a.error, StillPending)
    said = str(a.error).splitlines()
    assert "ssh -MNf far opens the connection again" in said[0]
    assert f"why: {LOGIN}" in said
    assert "to go on waiting: pytest --resume=r1" in said
    assert said[said.index("next:") + 1] == "  ssh -MNf far"
    assert ("submit b" in far.did) == (where != "submit")
    runner.wait(b)
    assert isinstance(b.error, StillPending)
    assert clock() - began <= 10.2  # at once

    far.away, far.refuse, far.log_of = None, {}, {}
    clock.sleep(100)
    runner.pump()
    runner.wait(c)

    assert c.result().status.state is State.SUCCEEDED
    assert not (a.folder / "run.json").exists()  # left for the session that goes on
    later = session()
    (again,) = add(later, "a")
    later.wait(again)
    assert again.result().folder == a.folder
    assert far.did.count("submit a") == 1


def test_a_platform_that_needs_a_login_is_asked_once_in_poll_s(runner: Runner, far: Scripted, clock: Clock) -> None:
    """No deadline passes meanwhile: a person may take their time."""
    far.status_of["a"] = then((0, QUEUED), (4000, ENDED))
    add(runner, "a", start_limit_s=100)
    runner.pump()
    far.away = LOGIN
    for _ in range(3600):
        clock.sleep(1)
        runner.pump()

    assert far.queries == 360
    assert (runner.jobs[0].done, runner.jobs[0].status.state) == (False, State.UNKNOWN)
    far.away = None
    clock.sleep(500)
    assert [job.result().status.state for job in finish(runner)] == [State.SUCCEEDED]


@pytest.mark.parametrize("error", [LOGIN, AwayError("far: no answer within 60 s")])
def test_jobs_of_a_platform_that_is_away_cannot_be_cancelled(runner: Runner, far: Scripted, error: AwayError) -> None:
    far.status_of = {name: then((0, RUNNING)) for name in "ab"}
    jobs = add(runner, "a", "b")
    runner.pump()
    far.away = error

    assert runner.cancel() == jobs

    assert all(str(job.status).startswith(f"submitted: could not be cancelled: {error}") for job in jobs)
    assert (error is LOGIN) == ("ssh -MNf far" in jobs[0].status.reason)
    assert jobs[0].hints == ("look at a",)
    runner.wait(jobs[0], deadline=runner._clock())
    said = str(jobs[0].error)
    assert runner.cancel() == jobs
    assert str(jobs[0].error) == said
    assert far.did[2:] == ["cancel a b", "cancel a b"]
    assert not any((job.folder / "run.json").exists() for job in jobs)


def test_one_request_cancels_many_jobs(runner: Runner, far: Scripted) -> None:
    far.status_of = {name: then((0, QUEUED)) for name in "abcd"}
    add(runner, *"abc", start_limit_s=100) + add(runner, "d")

    finish(runner)

    assert [word for word in far.did if word.startswith("cancel")] == ["cancel a b c", "cancel d"]


# --- several platforms, in threads -----------------------------------------------------------------------------------


@pytest.fixture
def both() -> dict[str, Scripted]:
    """Two platforms on a real clock."""
    return {name: Scripted(time.monotonic) for name in ("slow", "fast")}  # type: ignore[arg-type]


@pytest.fixture
def threaded(runs: Path, both: dict[str, Scripted]) -> Iterator[Runner]:
    runner = Runner(runs, "r1", connect=lambda platform: both[platform.name])
    yield runner
    for scripted in both.values():
        for event in scripted.blocked.values():
            event.set()
    runner.cancel()
    pumped(runner, lambda: not any(thread.name in both for thread in threads()))  # a turn may end after its last job


def put(runner: Runner, platform: str, *names: str) -> list[Job]:
    where = REMOTE.model_copy(update={"name": platform, "poll_s": 0.05})
    return [runner.add(spec(name, platform=platform), where) for name in names]


@pytest.mark.parametrize("method", ["submit", "status", "read", "clean"])
@pytest.mark.slow
def test_a_slow_platform_does_not_hold_up_another(threaded: Runner, both: dict[str, Scripted], method: str) -> None:
    both["slow"].blocked[method] = Event()
    both["fast"].status_of = {name: then((0, RUNNING), (0.2, ENDED)) for name in "bc"}
    (a,), (b, c) = put(threaded, "slow", "a"), put(threaded, "fast", "b", "c")

    for job in (b, c):
        threaded.wait(job, deadline=time.monotonic() + PATIENCE_S)

    assert [job.result().status.state for job in (b, c)] == [State.SUCCEEDED] * 2
    assert not a.done
    both["slow"].blocked[method].set()
    threaded.wait(a, deadline=time.monotonic() + PATIENCE_S)
    assert a.result().status.state is State.SUCCEEDED


@pytest.mark.slow
def test_waiting_ends_in_time_although_a_platform_hangs(
    threaded: Runner, both: dict[str, Scripted], clock: Clock
) -> None:
    both["slow"].blocked["submit"] = Event()
    threaded._clock = clock
    (job,) = put(threaded, "slow", "a")

    threaded.wait(job, tick=lambda _: clock.sleep(0.2), deadline=clock() + 0.5)

    assert isinstance(job.error, StillPending)
    assert clock() == pytest.approx(1000.6 + ANSWER_S)
    assert both["slow"].did == []


@pytest.mark.slow
def test_a_job_that_is_being_submitted_is_left_when_the_scheduler_has_answered(
    threaded: Runner, both: dict[str, Scripted]
) -> None:
    """Left before, it may or may not exist, and `cancel` cannot end the run."""
    blocked = both["slow"].blocked["submit"] = Event()
    both["slow"].status_of["a"] = then((0, RUNNING))
    (job,) = put(threaded, "slow", "a")
    pumped(threaded, lambda: job.submitting)
    Timer(0.3, blocked.set).start()

    threaded.wait(job, deadline=time.monotonic())

    assert isinstance(job.error, StillPending)
    assert job.job_id is not None


@pytest.mark.slow
def test_a_job_whose_result_is_being_written_is_not_left(threaded: Runner, both: dict[str, Scripted]) -> None:
    """Else its number would be in run.json, and nobody would ever read it."""
    blocked = both["slow"].blocked["clean"] = Event()
    (job,) = put(threaded, "slow", "a")
    pumped(threaded, lambda: job.end_claimed)
    Timer(0.3, blocked.set).start()

    threaded.wait(job, deadline=time.monotonic())

    assert job.result().status.state is State.SUCCEEDED
    assert (job.folder / "run.json").exists()


def test_the_main_thread_reports_changes(threaded: Runner) -> None:
    told = []
    threaded._on_change = lambda job: told.append((get_ident(), job.spec.platform, job.status.state))
    put(threaded, "slow", "a")
    put(threaded, "fast", "b")

    finish(threaded)

    assert {ident for ident, _, _ in told} == {get_ident()}
    assert {platform for _, platform, state in told if state is State.SUCCEEDED} == {"slow", "fast"}


def test_the_crash_of_a_worker_is_raised_by_the_main_thread(threaded: Runner, both: dict[str, Scripted]) -> None:
    both["fast"].status_of["b"] = then((0, RUNNING))
    both["slow"].away = SystemExit("a mistake of ours")  # type: ignore[assignment]
    (a,), (b,) = put(threaded, "slow", "a"), put(threaded, "fast", "b")

    with pytest.raises(SystemExit, match="a mistake of ours"):
        threaded.wait(b, deadline=time.monotonic() + PATIENCE_S)

    both["slow"].away = None
    assert threaded.cancel() == []
    assert (a.done, b.status.state) == (True, State.CANCELLED)


def test_platforms_are_cancelled_at_the_same_time(threaded: Runner, both: dict[str, Scripted]) -> None:
    meet = Barrier(2, timeout=PATIENCE_S)
    for scripted in both.values():
        scripted.status_of = {name: then((0, RUNNING)) for name in "ab"}
        scripted._cancel = lambda jobs, cancel=scripted._cancel: (meet.wait(), cancel(jobs))[1]  # type: ignore
    jobs = put(threaded, "slow", "a") + put(threaded, "fast", "b")
    pumped(threaded, lambda: all(job.job_id for job in jobs))

    assert threaded.cancel() == []

    assert [job.status.state for job in jobs] == [State.CANCELLED] * 2


@pytest.mark.slow
def test_cancel_waits_for_a_submission_that_hangs(threaded: Runner, both: dict[str, Scripted]) -> None:
    """What is half-way is waited for and cancelled; what is behind it is never submitted."""
    slow = both["slow"]
    blocked = slow.blocked["submit"] = Event()
    slow.status_of = {name: then((0, RUNNING)) for name in "ab"}
    a, b = put(threaded, "slow", "a", "b")

    def interrupt(job: Job) -> None:
        if job.asked_s is not None:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        threaded.wait(a, tick=interrupt)
    Timer(0.3, blocked.set).start()

    assert threaded.cancel() == []
    assert slow.did == ["submit a", "cancel a"]
    assert [job.status.state for job in (a, b)] == [State.CANCELLED] * 2


def test_a_task_whose_start_was_interrupted_runs_after_a_nudge(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C may strike between the two."""
    turns, taken = ThreadPool(), Event()
    worker = turns.worker("w")

    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(worker, "nudge", interrupted)
    with pytest.raises(KeyboardInterrupt):
        worker.start(taken.set)
    monkeypatch.undo()
    assert worker.busy
    assert not taken.wait(0.05)

    for _ in range(3):
        worker.nudge()

    assert taken.wait(PATIENCE_S)
    turns.rest(PATIENCE_S)
    assert not worker.busy
    worker.stop()


def test_the_error_of_a_job_on_a_full_disk_advises_how_to_see_it(runner: Runner, far: Scripted) -> None:
    far.log_of["x"] = lambda age: b"words\nsh: 1: write error: No space left on device\n"
    far.status_of["x"] = then((0, Status(State.EXITED, exit_code=1)))
    (job,) = add(runner, "x")

    runner.wait(job)

    assert "try: its last lines say that a file could not be written: `df -h` on far" in str(job.error)


@pytest.mark.parametrize("state", [State.SUBMIT_REFUSED, State.NEVER_ADMISSIBLE, State.SECRET])
def test_a_job_that_the_machine_would_not_start_ends_with_what_to_type(runs: Path, state: State) -> None:
    of_size = replace(spec("x"), request={"size": "smoke"})
    text = messages.job_failed(
        of_size, Run(status=Status(state, "why")), source=runs / "local.yaml", hints=["kubectl get x"]
    )

    (advice,) = [line for line in text.splitlines() if line.startswith("try: ")]

    if state is State.SECRET:
        assert "or correct its name" in advice
    else:
        assert "`python -m platforms doctor local --size smoke`" in advice
