"""A log that is truncated, replaced or removed while its job writes it: lines are missing, and the run says so.

Every scheduler whose logs are files: this machine's, ssh's (whose other machine is this one), and a real Slurm's.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from platforms.config.schema import Platform
from platforms.job import State
from platforms.runner import Job, Runner, finalizer
from platforms.schedulers import connect
from platforms.schedulers.slurm import judge
from tests.platforms.slurm_jobs import gated, pumped, shell

KINDS = [
    pytest.param("local", marks=pytest.mark.slow),
    pytest.param("ssh", marks=pytest.mark.slow),
    pytest.param("slurm", marks=pytest.mark.real_slurm),
]

NIGHTLY = pytest.mark.nightly("platforms/schedulers", "platforms/runner")


@pytest.fixture(autouse=True)
def little_patience(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HPC_ML_BENCH_LOCK", str(tmp_path / "lock"))
    monkeypatch.setattr(finalizer, "LOG_S", 1.0)
    monkeypatch.setattr(judge, "LAG_S", 3.0)


@pytest.fixture(params=KINDS)
def platform(request: pytest.FixtureRequest, tmp_path: Path) -> Platform:
    kind = request.param
    keys: dict[str, object] = {"scheduler": kind, "poll_s": 0.2, "source": Path("here.yaml")}
    if kind != "local":
        keys["work_dir"] = str(tmp_path / "work")
    if kind == "slurm":
        request.getfixturevalue("slurm")
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
    spec = replace(shell("here", f"{lines(1, 40)}; {gated(gate, after)}"), platform=platform.name)
    job = runner.add(spec, platform.model_copy(update={"setup": setup}))
    bytes_of_lines = len("line 1 of many\n") * 9 + len("line 10 of many\n") * 31
    pumped(runner, lambda: job.offset == bytes_of_lines, "its lines are read")
    folder = job.folder if platform.scheduler == "local" else Path(str(platform.work_dir)) / "jobs" / spec.name
    return job, folder / "log"


def cut(log: Path, size: int) -> None:
    os.truncate(log, size)


def replaced(log: Path) -> None:
    log.unlink()
    log.write_text("something else\n" * 1000)


@pytest.mark.parametrize(
    ("change", "after", "problem"),
    [
        (partial(cut, size=0), lines(41, 400), "was truncated or replaced while its job wrote"),
        pytest.param(partial(cut, size=100), "true", "was truncated or replaced", marks=NIGHTLY),
        pytest.param(replaced, lines(41, 45), "was truncated or replaced", marks=NIGHTLY),
        (Path.unlink, lines(41, 45), "log is gone"),
    ],
    ids=["emptied", "cut", "replaced", "removed"],
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
    assert runner.wait(job).run.problems == ("its script left no file `exit`, which says how long the log is",)


@pytest.mark.parametrize("platform", KINDS[1:], indirect=True)
def test_a_success_that_printed_nothing_has_an_empty_log(platform: Platform, runner: Runner) -> None:
    job = runner.add(replace(shell("here"), platform=platform.name), platform)
    runner.wait(job)
    assert job.result().problems == ()
    assert (job.folder / "log").read_bytes() == b""
