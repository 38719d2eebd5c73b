"""The words about one job: states and outcomes, exit codes, names, layouts, and the three numbers reckoned by hand."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest

from platforms import job
from platforms.job import (
    ERRORS,
    BenchError,
    ConfigError,
    JobError,
    JobSpec,
    Layout,
    Outcome,
    Run,
    State,
    Status,
    Window,
    job_name,
    setting_of,
    split_refusal,
    state_of_exit,
)


def test_only_pending_jobs_are_live() -> None:
    live = {State.SUBMITTED, State.QUEUED, State.STARTING, State.RUNNING, State.UNKNOWN}
    assert {state for state in State if state.live} == live


def test_every_bad_outcome_has_its_error() -> None:
    assert set(job.OUTCOMES) == set(State)  # docs/outcomes.md has them, too
    assert set(ERRORS) == set(Outcome) - {Outcome.PASSED}
    assert all(issubclass(error, JobError) for error in ERRORS.values())
    assert issubclass(JobError, BenchError)


@pytest.mark.parametrize(
    ("exit_code", "with_wire", "without"),
    [
        (0, State.SUCCEEDED, State.SUCCEEDED),
        (1, State.EXITED, State.EXITED),
        (2, State.EXITED, State.EXITED),
        (3, State.GATE, State.EXITED),
        (4, State.COMPILE_FAILED, State.EXITED),
        (5, State.DEVICE_OUT_OF_MEMORY, State.EXITED),
        (65, State.DATA_CORRUPT, State.EXITED),
        (66, State.DATA_MISSING, State.EXITED),
        (78, State.REQUEST_REFUSED, State.EXITED),
        (126, State.NOT_STARTABLE, State.NOT_STARTABLE),
        (127, State.NOT_STARTABLE, State.NOT_STARTABLE),
        (128, State.EXITED, State.EXITED),
        (137, State.SIGNALLED, State.SIGNALLED),
        (143, State.SIGNALLED, State.SIGNALLED),
        (192, State.SIGNALLED, State.SIGNALLED),
        (193, State.EXITED, State.EXITED),
        (255, State.EXITED, State.EXITED),  # of a program's own, sys.exit(-1) or ssh
    ],
)
def test_what_an_exit_code_says(exit_code: int, with_wire: State, without: State) -> None:
    assert state_of_exit(exit_code, speaks_wire=True) is with_wire
    assert state_of_exit(exit_code, speaks_wire=False) is without


def test_status_is_readable() -> None:
    status = Status(State.TIME_LIMIT, "after 3600 s", started_s=10.0, ended_s=12.5)
    assert str(status) == "time limit: after 3600 s"
    assert str(Status(State.QUEUED)) == "queued"
    assert status.run_s == 2.5
    assert Status(State.RUNNING, started_s=10.0).run_s is None


NOON_S = time.mktime((2026, 11, 21, 12, 0, 0, 0, 0, -1))


@pytest.mark.parametrize(
    ("status", "told"),
    [
        (Status(State.QUEUED), "queued"),
        (Status(State.QUEUED, "Priority"), "queued: Priority"),
        (Status(State.QUEUED, "Priority", expected_s=NOON_S + 7500), "queued, expected to start 14:05: Priority"),
        (Status(State.QUEUED, "x", expected_s=NOON_S + 60), "queued, expected to start 12:01: x"),
        (Status(State.QUEUED, expected_s=NOON_S + 76500), "queued, expected to start 2026-11-22 09:15"),
        (Status(State.QUEUED, "Priority", expected_s=NOON_S - 1), "queued: Priority"),
        (Status(State.CANCELLED, "by us", expected_s=NOON_S + 60), "cancelled: by us"),
    ],
)
def test_what_is_ahead_of_a_job(status: Status, told: str) -> None:
    assert status.told(NOON_S) == told
    assert str(status) == f"{status.state.value}: {status.reason}".removesuffix(": ")  # what is written down


# --- names and layouts ---


def test_a_job_name_is_always_the_same() -> None:
    name = job_name("resnet50", Layout(1, 4, "gpu"), "20261120-235959-ab12", "test_resnet50.py::test_resnet50[a100]")
    assert name == "resnet50-1x4gpu-k532rjtf"


@pytest.mark.parametrize(
    "label", ["resnet50", "Über_große Namen / mit allem: und noch viel mehr", "", "---", "x" * 100, "9lives", "a.b"]
)
def test_a_job_name_is_legal_for_slurm_and_kubernetes(label: str) -> None:
    for test in map(str, range(50)):
        name = job_name(label, Layout(16, 8, "csx"), "run", test)
        assert len(name) <= 36
        assert re.fullmatch(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?", name)
        assert "--" not in name


def test_job_names_differ_between_runs_tests_and_attempts() -> None:
    layout = Layout(1, 1, "cpu")
    names = {job_name("x", layout, run, test, attempt) for run in "ab" for test in "cd" for attempt in (1, 2)}
    assert len(names) == 8
    assert job_name("x", layout, "a\nb", "c") == job_name("x", layout, "a\nb", "c", 1)


@pytest.mark.parametrize("text", ["1x1", "2x4", "16x8", "100x1"])
def test_layouts(text: str) -> None:
    layout = Layout.parse(text, "gpu")
    assert str(layout) == f"{text}gpu"
    assert layout.devices == layout.nodes * layout.devices_per_node


@pytest.mark.parametrize(
    "text", ["", "4", "0x4", "1x0", "01x4", "1X4", "1 x 4", "1x4gpu", "-1x4", "1x4\n", "axb", "\u0661x4", "1x4x2"]
)
def test_what_is_no_layout(text: str) -> None:
    with pytest.raises(ValueError, match=r"is no layout: write nodes x devices per node, as in 1x4"):
        Layout.parse(text, "gpu")


def test_ranks_and_device_hours_of_a_spec() -> None:
    more = {"ranks_per_device": 3, "time_limit_s": 1800, "archive": Path("models-1.pyz")}
    spec = JobSpec("n", "t", "p", Layout(2, 4, "gpu"), ("train", "deepcam"), "deepcam", **more)
    assert (spec.ranks_per_node, spec.ranks, spec.device_hours) == (12, 24, 4.0)
    assert spec.replicas == 24
    assert spec.rank_command("/tmp/models-1.pyz") == ["/tmp/models-1.pyz", "train", "deepcam"]
    assert JobSpec("n", "t", "p", Layout(1, 1, "cpu"), ("python3", "mine.py")).rank_command() == ["python3", "mine.py"]


@pytest.mark.parametrize(
    ("layout", "devices_per_replica", "replicas_per_rank", "replicas", "ranks"),
    [("1x8ipu", 1, 8, 8, 1), ("2x8ipu", 2, 4, 8, 2), ("1x4ipu", 4, 1, 1, 1), ("1x2csx", 1, 2, 2, 1)],
)
def test_a_rank_may_drive_several_devices(
    layout: str, devices_per_replica: int, replicas_per_rank: int, replicas: int, ranks: int
) -> None:
    shape = Layout.parse(layout[:-3], layout[-3:])
    several = {"devices_per_replica": devices_per_replica, "replicas_per_rank": replicas_per_rank}
    spec = JobSpec("n", "t", "p", shape, (), "resnet50", time_limit_s=1800, **several)
    assert (spec.replicas, spec.ranks, spec.ranks_per_node) == (replicas, ranks, ranks // shape.nodes)
    assert spec.device_hours == shape.devices / 2


def test_a_reason_that_is_cut_says_so() -> None:
    assert split_refusal({"no_split": "word " * 40}) == ("word " * 40).strip()
    assert split_refusal({"no_split": "word " * 41}) == f"{('word ' * 40)[:199]}…"


# --- the three numbers ---


def test_the_three_numbers_by_hand() -> None:
    # 100 samples in 10 s of which 2 s stalled and 8 s computed, then 100 in 15 s with 5 and 10
    run = Run(windows=(Window(100, 5, 10.0, 2.0, 8.0), Window(100, 5, 15.0, 5.0, 10.0)))
    assert (run.samples, run.wall_s) == (200, 25.0)
    assert run.effective_throughput == 8.0  # 200 / 25
    assert run.compute_fraction == pytest.approx(0.72)  # 1 - 7 / 25
    assert run.compute_throughput == pytest.approx(200 / 18)
    assert run.identity_gap == pytest.approx(0.0)  # 11.11 x 0.72 = 8
    assert run.seconds_per_sample == (0.1, 0.15)
    assert run.spread == pytest.approx(0.2828427)  # 0.0353553 / 0.125


def test_the_identity_gap_by_hand() -> None:
    run = Run(windows=(Window(100, 5, 10.0, 2.0, 10.0),))  # computing and stalling add up to 12 s of 10 s
    assert run.identity_gap == pytest.approx(0.2)  # |10 - 10 x 0.8| / 10
    assert run.spread is None


def test_a_run_without_windows_has_no_numbers() -> None:
    run = Run()
    numbers = (run.effective_throughput, run.compute_fraction, run.compute_throughput, run.identity_gap, run.spread)
    assert numbers == (None,) * 5
    assert (run.samples, run.wall_s, run.seconds_per_sample, run.log) == (0, 0.0, (), None)


def test_a_config_error_tells_everything() -> None:
    error = ConfigError(["a.yaml:1: x: wrong", "b.yaml:2: y: wrong"])
    assert str(error) == "a.yaml:1: x: wrong\nb.yaml:2: y: wrong"
    assert error.problems == ("a.yaml:1: x: wrong", "b.yaml:2: y: wrong")


@pytest.mark.parametrize(
    ("test", "setting"),
    [
        ("test_resnet50.py::test_resnet50[eidf_a100-1x4gpu-tuned]", "tuned"),
        ("test_resnet50.py::test_resnet50[local-1x1cpu-gbs32-smoke-a[b]-c]", "gbs32-smoke-a[b]-c"),
        ("test_mine.py::test_it[local-1x1cpu]", ""),
        ("doctor resnet50 1x1cpu", ""),
    ],
    ids=["one word", "several", "none", "no case"],
)
def test_what_tells_jobs_of_one_benchmark_apart(test: str, setting: str) -> None:
    assert setting_of(test) == setting
