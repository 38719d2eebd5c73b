"""pytest-benchmark's own options behave on the job's seconds."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from platforms.rundir import job_json
from tests.harness.conftest import Project
from tests.harness.nursery import Session

pytestmark = pytest.mark.slow


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


def test_rounds_of_a_language_model_are_in_seconds_per_token(project):
    project.job_test("seconds=0.5,0.5")
    program = (project.path / "program.py").read_text()
    project.write("program.py", program.replace('"data": {}', '"data": {"tokens_per_sample": 1000}'))
    result = project.pytest("--benchmark-json=out.json")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(
        ["*benchmark 'test_it overlap, seconds per token'*", "test_it, overlap: throughputs in tokens/s over *"]
    )
    (bench,) = json.loads((project.path / "out.json").read_text())["benchmarks"]
    assert bench["stats"]["ops"] == pytest.approx(200_000)
    extra = bench["extra_info"]
    assert (extra["effective_throughput"], extra["throughput_unit"]) == (200_000, "tokens/s")
    assert extra["compute_throughput"] == pytest.approx(200_000 / 0.75)


def test_layouts_of_one_session_stand_in_a_table_of_their_own(project):
    project.job_test("seconds=0.5,0.5")
    project.write("site/platforms/own.yaml", "scheduler: local\ndevice: cpu\nlayouts: {default: [1x1, 1x2]}\n")
    project.write("site/site.yaml", "enabled: [own]\n")
    result = project.pytest("-m", "own")
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(
        [
            "it on own: scaling against 1x1cpu, session *",
            "1x1cpu * base *",
            "1x2cpu * neither * the batch is not known*",
        ]
    )


def compare(project: Project) -> Session:
    """A session in a process of its own, for what pytest itself does at its very end."""
    session = project.begin("--benchmark-autosave", "--benchmark-compare", "--benchmark-compare-fail=mean:5%")
    session.ends()
    return session


def test_compare_fail_fires_on_a_job_slowed_by_ten_percent_and_is_silent_on_an_equal_job(project, monkeypatch):
    project.job_test("seconds=2,2.01,1.99")
    project.pytest("--benchmark-autosave").assert_outcomes(passed=1)
    monkeypatch.setenv("SLOWER", "1.1")
    slowed = compare(project)
    assert slowed.status == 1
    assert re.search(r"Performance has regressed(?s:.*)mean.*10\.0", slowed.errors)
    assert re.search(r"have regressed.*exit code is 1(?s:.*)results", slowed.out)  # our table is shown all the same
    assert "Traceback" not in slowed.said
    monkeypatch.setenv("SLOWER", "1.12")
    equal = compare(project)
    assert equal.status == 0
    assert "machine_info is different" not in equal.said


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


def test_numbers_that_are_none_fail_their_tests_and_lose_nothing_else(project):
    project.job_test(name="test_good.py")
    program = '["echo", "nothing"]'
    text = "import pytest\n\n@pytest.mark.parametrize('values', [(), (NAN,), (0.0,), (1.0, -1.0), (INFINITE,)])\n"
    text += f"@pytest.mark.workload(command={program})\ndef test_bad(run, record, values):\n"
    text += "    record(run, seconds_per_sample=list(values))\n"
    project.write("test_bad.py", f"NAN, INFINITE = float('nan'), float('inf')\n{text}")
    result = project.pytest("--benchmark-autosave")
    result.assert_outcomes(passed=1, failed=5)
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
    assert re.search(r" - +- +\d[\d.]+ +\d[\d.]*% +learning, \d of 20 runs +\[1\]", shown)
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
from platforms.results import numbers

@pytest.mark.workload(command=["{python}", "{root}/plain.py"])
def test_plain(run, record):
    rates = numbers(run.log, r"images/sec: ([0-9.]+)")
    record(run, seconds_per_sample=[1 / rate for rate in rates])
""",
    )
    result = project.pytest("--benchmark-autosave")
    result.assert_outcomes(passed=1)
    assert re.search(
        r"^\S.* 1x1cpu +- +unknown +- +- +44\.4 +15\.7% +learning, 1 of 20 runs +none$",
        result.stdout.str(),
        re.MULTILINE,
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
