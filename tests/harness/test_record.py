"""pytest-benchmark's own options behave on the job's seconds."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from platforms.rundir import job_json


def test_rounds_are_windows_in_seconds_per_sample(project):
    project.job_test("seconds=0.3,0.1,41.123456789012345")
    project.pytest("--benchmark-json=out.json", "--benchmark-autosave").assert_outcomes(passed=1)
    (bench,) = json.loads((project.path / "out.json").read_text())["benchmarks"]
    assert bench["fullname"] == "test_mine.py::test_it[local-1x1cpu]"
    assert bench["params"] == {"platform": "local-1x1cpu"}
    assert bench["stats"]["data"] == [0.3 / 100, 0.1 / 100, 41.123456789012345 / 100]  # to the last bit
    assert bench["stats"]["ops"] == pytest.approx(300 / (0.3 + 0.1 + 41.123456789012345))
    assert bench["options"]["timer"] == "job_clock"
    extra = bench["extra_info"]
    assert extra["effective_throughput"] == pytest.approx(bench["stats"]["ops"])
    assert extra["compute_fraction"] == pytest.approx(0.75)
    assert extra["compute_throughput"] == pytest.approx(bench["stats"]["ops"] / 0.75)
    assert extra["start"]["device"]["name"] == "A CPU"
    assert len(project.saved()) == 1


def compare(project, *args: str) -> pytest.RunResult:
    return project.pytest_process(
        "--benchmark-autosave", "--benchmark-compare", "--benchmark-compare-fail=mean:5%", *args
    )


def test_compare_fail_fires_on_a_job_slowed_by_ten_percent(project, monkeypatch):
    project.job_test("seconds=2,2.01,1.99")
    project.pytest("--benchmark-autosave").assert_outcomes(passed=1)
    monkeypatch.setenv("SLOWER", "1.1")
    result = compare(project)
    assert result.ret == 1
    result.stderr.fnmatch_lines(["*Performance has regressed*", "*mean*10.0*"])
    result.stdout.fnmatch_lines(["*have regressed*exit code is 1", "*results*"])  # our table is shown all the same
    assert "Traceback" not in result.stdout.str() + result.stderr.str()


def test_compare_fail_is_silent_on_an_equal_job(project, monkeypatch):
    project.job_test("seconds=2,2.01,1.99")
    project.pytest("--benchmark-autosave").assert_outcomes(passed=1)
    monkeypatch.setenv("SLOWER", "1.02")
    result = compare(project)
    assert result.ret == 0
    assert "machine_info is different" not in result.stderr.str() + result.stdout.str()


def test_a_histogram_without_pygal_is_refused_before_anything_is_submitted(project, monkeypatch):
    """At the end pytest-benchmark would raise an ImportError: no table, and nothing saved."""
    monkeypatch.setitem(sys.modules, "pygal", None)  # as if it were not installed
    project.job_test()
    result = project.pytest("--benchmark-histogram=drawn")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*--benchmark-histogram draws with pygal, which is not installed*pip install*"])
    assert not project.jobs()


def test_the_command_line_compares_too(project):
    project.job_test("seconds=2,2.01,1.99")
    for _ in range(2):
        project.pytest("--benchmark-autosave").assert_outcomes(passed=1)
    done = subprocess.run(
        [sys.executable, "-m", "pytest_benchmark", "compare"],
        cwd=project.path,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])},  # a clone has it in its own folder
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("test_it[local-1x1cpu]") == 2


def test_skip_costs_no_job_and_disable_records_nothing(project):
    project.job_test()
    project.pytest("--benchmark-skip").assert_outcomes(skipped=1)
    assert not project.jobs()
    result = project.pytest("--benchmark-disable", "--benchmark-autosave")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["*results*"])
    assert project.saved() == []


def test_only_and_cprofile(project):
    project.job_test()
    project.pytest("--benchmark-only", "--benchmark-cprofile=tottime").assert_outcomes(passed=1)


@pytest.mark.parametrize("values", ["[]", "[float('nan')]", "[0.0]", "[1.0, -1.0]", "[float('inf')]"])
def test_numbers_that_are_none_fail_the_test_and_lose_nothing_else(project, values):
    project.job_test(name="test_good.py")
    project.job_test(name="test_bad.py")
    path = project.path / "test_bad.py"
    path.write_text(path.read_text().replace("record(run)", f"record(run, seconds_per_sample={values})"))
    result = project.pytest("--benchmark-autosave")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*are no seconds per sample*"])
    (file,) = project.saved()
    assert [bench["name"] for bench in file["benchmarks"]] == ["test_it[local-1x1cpu]"]


def test_a_run_with_problems_is_refused_even_if_the_test_forgets_to_look(project):
    project.job_test("seconds=2")
    program = project.path / "program.py"
    program.write_text(
        program.read_text().replace('"compute_fraction": 0.75', '"wall_s": 1.0, "compute_fraction": 0.75')
    )
    path = project.path / "test_mine.py"
    path.write_text(path.read_text().replace("    assert not run.problems\n", ""))
    result = project.pytest("--benchmark-autosave")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*a run whose sanity failed is never recorded*"])
    assert project.saved() == []


METER = Path(__file__).resolve().parents[2] / "models" / "meter.py"
UNSPLIT = f"""
import sys, time
sys.path.insert(0, {str(METER.parent)!r})
import meter

for _ in meter.steps(range(12), samples=4, no_split="its <own> nodes feed it"):
    time.sleep(0.001)
meter.finish(compile_s=2400.0, compile_cache="miss")
"""


def test_what_a_device_does_not_tell_is_empty_with_its_reason(project):
    project.job_test("seconds=2")
    project.write("program.py", UNSPLIT)
    result = project.pytest("--benchmark-json=out.json")
    result.assert_outcomes(passed=1)
    shown = result.stdout.str()
    assert re.search(r" - +- +\d[\d.]+ +\d[\d.]*% +learning \d of 20 +\[1\]", shown)
    assert "] no compute throughput and no compute fraction: its <own> nodes feed it" in shown
    assert "bound by" not in shown
    assert "40:00, miss" in shown
    (bench,) = json.loads((project.path / "out.json").read_text())["benchmarks"]
    extra = bench["extra_info"]
    assert extra["effective_throughput"] == pytest.approx(bench["stats"]["ops"])
    assert [extra[name] for name in ("compute_fraction", "compute_throughput", "identity_gap")] == [None] * 3
    assert extra["summary"]["no_split"] == "its <own> nodes feed it"
    (path,) = project.path.glob("runs/2*/*/run.json")
    content = json.loads(path.read_text())
    assert {(window["stall_s"], window["compute_s"]) for window in content["windows"]} == {(None, None)}
    assert job_json.run_from(content).no_split == "its <own> nodes feed it"


def test_a_program_without_the_wire_is_recorded_from_its_log(project):
    project.write("plain.py", "print('images/sec: 50.0')\nprint('images/sec: 40.0')\n")
    project.write(
        "test_plain.py",
        """
import pytest
from platforms.results.log_reader import numbers

@pytest.mark.workload(command=["{python}", "{root}/plain.py"])
def test_plain(run, record):
    rates = numbers(run.log, r"images/sec: ([0-9.]+)")
    record(run, seconds_per_sample=[1 / rate for rate in rates])
""",
    )
    result = project.pytest("--benchmark-autosave")
    result.assert_outcomes(passed=1)
    assert re.search(
        r"^on \S+ +1x1cpu +- +unknown +- +- +44\.4 +15\.7% +learning 1 of 20 +none$", result.stdout.str(), re.MULTILINE
    )
    (path,) = project.path.glob("runs/2*/*/run.json")
    run = json.loads(path.read_text())
    assert (run["read_by_test"], run["windows"]) == ([0.02, 0.025], [])
    assert run["effective_throughput"] == pytest.approx(1 / 0.0225)
    (file,) = project.saved()
    assert file["benchmarks"][0]["extra_info"]["effective_throughput"] == pytest.approx(1 / 0.0225)
    assert file["benchmarks"][0]["stats"][
        "data" if "data" in file["benchmarks"][0]["stats"] else "mean"
    ] == pytest.approx(0.0225)
    assert file["benchmarks"][0]["extra_info"]["compute_fraction"] is None  # what it does not report is empty


STREAM = """
import pytest
from platforms.results import numbers

@pytest.mark.workload(command=["{python}", "-c", "print('Triad: 812.5')\\nprint('Latency: 1.25')"])
def test_stream(run, record):
    triad, = numbers(run.log, r"Triad: ([0-9.]+)")
    latency, = numbers(run.log, r"Latency: ([0-9.]+)")
    record(run, metrics=%s)
"""


@pytest.mark.parametrize(
    ("metrics", "heading", "stat"),
    [
        ('{"triad": (triad, "GB/s", "higher"), "lat": (latency, "us", "lower")}', "OPS: triad in GB/s", "ops"),
        ('{"lat": (latency, "us", "lower"), "triad": (triad, "GB/s", "higher")}', "seconds: lat in us", "mean"),
    ],
)
def test_metrics_of_a_tests_own_need_no_seconds_per_sample(project, metrics, heading, stat):
    project.write("test_stream.py", STREAM % metrics)
    result = project.pytest("--benchmark-autosave")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines([f"*benchmark 'test_stream, {heading}'*"])
    (path,) = project.path.glob("runs/2*/*/run.json")
    run = json.loads(path.read_text())
    assert run["metrics"]["triad"] == {"value": 812.5, "unit": "GB/s", "better": "higher"}
    assert run["effective_throughput"] is None
    (file,) = project.saved()
    (bench,) = file["benchmarks"]
    assert bench["extra_info"]["metrics"] == run["metrics"]
    assert bench["stats"][stat] == pytest.approx(812.5 if stat == "ops" else 1.25)


def test_metrics_stand_beside_seconds_per_sample(project):
    project.job_test("seconds=2,2")
    path = project.path / "test_mine.py"
    path.write_text(path.read_text().replace("record(run)", 'record(run, metrics={"loss": (0.5, "nats", "lower")})'))
    project.pytest("--benchmark-autosave").assert_outcomes(passed=1)
    (bench,) = project.saved()[0]["benchmarks"]
    assert bench["stats"]["ops"] == pytest.approx(50)
    assert bench["extra_info"]["metrics"] == {"loss": {"value": 0.5, "unit": "nats", "better": "lower"}}


TWICE = """
import pytest

@pytest.mark.workload(command=["{python}", "-c", "print('any')"])
def test_stream(run, record):
    record(run, %s)
    record(run, %s)
"""
COPY, TRIAD = '"copy": (700.0, "GB/s", "higher")', '"triad": (812.5, "GB/s", "higher")'


@pytest.mark.parametrize(
    ("first", "second", "stat", "metrics"),
    [
        (f"metrics={{{COPY}}}, cores=4", f"metrics={{{TRIAD}}}", 700.0, {"copy", "triad"}),
        ("seconds_per_sample=[0.5], cores=4", f"metrics={{{TRIAD}}}", 2.0, {"triad"}),
        (f"metrics={{{COPY}}}, cores=4", "seconds_per_sample=[0.5]", 2.0, {"copy"}),
    ],
)
def test_a_second_record_adds_to_the_first(project, first, second, stat, metrics):
    project.write("test_stream.py", TWICE % (first, second))
    project.pytest("--benchmark-autosave").assert_outcomes(passed=1)
    (path,) = project.path.glob("runs/2*/*/run.json")
    run = json.loads(path.read_text())
    assert run["metrics"].keys() == metrics
    assert run["read_by_test"] == ([0.5] if stat == 2.0 else [])
    (bench,) = project.saved()[0]["benchmarks"]
    assert bench["stats"]["ops"] == pytest.approx(stat)
    assert (bench["extra_info"]["metrics"], bench["extra_info"]["cores"]) == (run["metrics"], 4)
    lines = [line for path in project.path.glob("site/history/**/*.jsonl") for line in path.read_text().splitlines()]
    (judged,) = [json.loads(line)["metrics"].keys() for line in lines if json.loads(line).get("sane")]
    assert judged == (metrics | {"effective_throughput"} if stat == 2.0 else metrics)


@pytest.mark.parametrize(
    ("first", "second", "said"),
    [
        (f"metrics={{{COPY}}}", f"metrics={{{COPY}, {TRIAD}}}", "record(run): this test has recorded copy before: "),
        (
            "seconds_per_sample=[1]",
            "seconds_per_sample=[2]",
            "record(run): this test has recorded seconds_per_sample before: ",
        ),
        (
            "seconds_per_sample=[1], cores=4",
            f"metrics={{{TRIAD}}}, cores=5",
            "record(run): this test has recorded cores before: ",
        ),
    ],
)
def test_what_is_recorded_twice_is_refused_in_one_message(project, first, second, said):
    project.write("test_stream.py", TWICE % (first, second))
    result = project.pytest("--benchmark-autosave")
    result.assert_outcomes(failed=1)
    failures = result.stdout.str().partition("= FAILURES =")[2].partition("short test summary")[0]
    assert failures.count(said) == 1
    assert project.saved() == []


@pytest.mark.parametrize(
    ("metrics", "said"),
    [
        ('{"triad": 812}', "triad: write (value, unit, direction)*and not 812"),
        ('{"triad": (812, "GB/s")}', "triad: write (value, unit, direction)*"),
        ('{"triad": (float("nan"), "GB/s", "higher")}', "triad: nan cannot be judged*"),
        ('{"triad": (0, "GB/s", "higher")}', "triad: 0 cannot be judged*"),
        ('{"triad": ("fast", "GB/s", "higher")}', "triad: 'fast' cannot be judged*"),
        ('{"triad": (True, "GB/s", "higher")}', "triad: True cannot be judged*"),
        ('{"triad": (812, "", "higher")}', "triad: '' is no unit*"),
        ('{"triad": (812, "GB/s", "up")}', "triad: 'up' is no direction*"),
        ('{"my triad": (812, "GB/s", "higher")}', "'my triad' can be no name of a metric*"),
        ('{"effective_throughput": (812, "GB/s", "higher")}', "effective_throughput is a number of the suite*"),
        ("{}", "[[][]] are no seconds per sample*metrics={…}*"),
    ],
)
def test_a_metric_that_cannot_be_judged_fails_its_test(project, metrics, said):
    project.write("test_stream.py", STREAM % metrics)
    result = project.pytest("--benchmark-autosave")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines([f"*record(run*): {said}"])
    assert project.saved() == []
