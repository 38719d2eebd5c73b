"""A log that is truncated, replaced or removed while its job writes it: lines are missing, and the run says so.

Every scheduler whose logs are files: this machine's, ssh's (whose other machine is this one), and a real Slurm's.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from platforms.config.schema import Platform
from platforms.job import JobSpec, Layout, State, job_name
from platforms.runner import Job, Runner, finalizer
from platforms.schedulers import connect
from platforms.schedulers.slurm import judge
from tests.waiting import until

KINDS = ["local", "ssh", pytest.param("slurm", marks=pytest.mark.real_slurm)]


@pytest.fixture(autouse=True)
def little_patience(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HPC_ML_BENCH_LOCK", str(tmp_path / "lock"))
    monkeypatch.setattr(finalizer, "LOG_S", 1.0)
    monkeypatch.setattr(judge, "LAG_S", 3.0)


@pytest.fixture(params=KINDS)
def platform(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Platform:
    kind = request.param
    keys: dict[str, object] = {"scheduler": kind, "poll_s": 0.2, "source": Path("here.yaml")}
    if kind != "local":
        keys["work_dir"] = str(tmp_path / "work")
    if kind == "slurm":
        cluster = request.getfixturevalue("slurm")
        monkeypatch.setenv("SLURM_CONF", cluster.environ["SLURM_CONF"])
        keys["slurm"] = {"account": "z19"}
    return Platform(name="here", device="cpu", layouts={"default": ("1x1",)}, **keys)


@pytest.fixture
def runner(tmp_path: Path) -> Iterator[Runner]:
    runner = Runner(tmp_path / "runs", "r1")
    yield runner
    assert runner.cancel() == []


def lines(first: int, last: int) -> str:
    return f"for n in $(seq {first} {last}); do echo line $n of many; done"


def begun(runner: Runner, platform: Platform, gate: Path, after: str, setup: tuple[str, ...] = ()) -> tuple[Job, Path]:
    """A job that has written forty lines, all of which were read, and waits to do what comes after; and its log."""
    script = f"{lines(1, 40)}; until [ -e {gate} ]; do sleep 0.1; done; {after}"
    layout, test = Layout(1, 1, "cpu"), "test_x.py::test_x[here]"
    name = job_name("log", layout, "r1", test)
    spec = JobSpec(name, test, platform.name, layout, ("sh", "-c", script), time_limit_s=600, start_limit_s=600)
    job = runner.add(spec, platform.model_copy(update={"setup": setup}))

    def was_read() -> bool:
        runner.pump()
        return job.offset == len("line 1 of many\n") * 9 + len("line 10 of many\n") * 31

    until(was_read, "its lines are not read")
    folder = job.folder if platform.scheduler == "local" else Path(str(platform.work_dir)) / "jobs" / name
    return job, folder / "log"


def truncated(log: Path) -> None:
    os.truncate(log, 0)


def cut(log: Path) -> None:
    os.truncate(log, 100)


def replaced(log: Path) -> None:
    log.unlink()
    log.write_text("something else\n" * 1000)


def removed(log: Path) -> None:
    log.unlink()


@pytest.mark.parametrize(
    ("change", "after", "problem"),
    [
        (truncated, lines(41, 45), "was truncated or replaced while its job wrote"),
        (truncated, lines(41, 400), "was truncated or replaced while its job wrote"),
        (cut, "true", "was truncated or replaced while its job wrote"),
        (replaced, lines(41, 45), "was truncated or replaced while its job wrote"),
        (removed, lines(41, 45), "log is gone"),
    ],
)
def test_what_was_lost_of_a_log_is_a_problem(
    platform: Platform, runner: Runner, tmp_path: Path, change: Callable[[Path], None], after: str, problem: str
) -> None:
    job, log = begun(runner, platform, tmp_path / "gate", after)
    change(log)
    (tmp_path / "gate").touch()
    runner.wait(job)
    assert job.run is not None
    assert job.status.state is State.SUCCEEDED
    assert re.search(problem, job.run.problems[0])
    assert all(str(log) in each for each in job.run.problems)  # what a Slurm job's script counted is another one


@pytest.mark.parametrize("platform", KINDS[1:], indirect=True)
def test_a_log_that_grew_since_it_was_looked_at_is_read_on(platform: Platform, runner: Runner, tmp_path: Path) -> None:
    job, log = begun(runner, platform, tmp_path / "gate", "true")
    scheduler = connect(platform)
    assert job.submission is not None
    scheduler.status([job.submission])
    with log.open("ab") as file:
        file.write(b"more\n")
    before = log.read_bytes()[:100]
    assert scheduler.read(job.submission, 100, before).endswith(b"more\n")
    whole = log.read_bytes()
    assert scheduler.read(job.submission, len(whole), whole[-10:]) == b""
    (tmp_path / "gate").touch()
    runner.wait(job)
    assert job.result().problems == ()


def test_a_log_that_only_grows_is_no_problem(platform: Platform, runner: Runner, tmp_path: Path) -> None:
    job, _log = begun(runner, platform, tmp_path / "gate", lines(41, 400))
    (tmp_path / "gate").touch()
    runner.wait(job)
    assert job.result().problems == ()
    assert (job.folder / "log").read_text().count("\n") == 400


@pytest.mark.parametrize("platform", KINDS[2:], indirect=True)
def test_a_folder_that_was_removed_under_a_slurm_job_is_a_problem(
    platform: Platform, runner: Runner, tmp_path: Path
) -> None:
    job, log = begun(runner, platform, tmp_path / "gate", "exit 0")
    shutil.rmtree(log.parent)
    (tmp_path / "gate").touch()
    runner.wait(job)
    assert job.run is not None
    assert job.run.problems == (
        f"{log} is gone: what its job printed last is lost",
        "its script left no file `exit`, which says how long the log is",
    )
    assert (job.folder / "log").read_text().startswith("line 1 of many\n")


@pytest.mark.parametrize("platform", KINDS[2:], indirect=True)
def test_a_slurm_script_without_its_exit_file_is_a_problem(platform: Platform, runner: Runner, tmp_path: Path) -> None:
    job, _log = begun(runner, platform, tmp_path / "gate", "true", setup=("trap - EXIT",))
    (tmp_path / "gate").touch()
    runner.wait(job)
    assert job.run is not None
    assert job.run.problems == ("its script left no file `exit`, which says how long the log is",)


@pytest.mark.parametrize("platform", KINDS[1:], indirect=True)
def test_a_success_that_printed_nothing_has_an_empty_log(platform: Platform, runner: Runner) -> None:
    layout, test = Layout(1, 1, "cpu"), "test_x.py::test_x[here]"
    name = job_name("log", layout, "r1", test)
    arguments = (sys.executable, "-S", "-c", "pass")
    job = runner.add(JobSpec(name, test, platform.name, layout, arguments, time_limit_s=600), platform)
    runner.wait(job)
    assert job.result().problems == ()
    assert (job.folder / "log").read_bytes() == b""
