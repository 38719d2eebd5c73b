"""The four outcomes, as a person and as a CI system see them."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest

from harness.console import Console
from platforms.job import State
from platforms.runner import Job, Runner
from tests.harness.conftest import ROOT
from tests.waiting import until

pytestmark = pytest.mark.slow


def test_passed(project):
    project.job_test("seconds=2,2.1", "words=hello")
    result = project.pytest("--junitxml=junit.xml")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["*results*", "*samples/s over all devices*", "A CPU *1x1cpu *65.0 *75.0% *48.8*"])
    case = ElementTree.parse(project.path / "junit.xml").find(".//testcase")
    properties = {p.get("name"): p.get("value") for p in case.iter("property")}
    assert properties["platform"] == "local"
    assert Path(properties["folder"]).samefile(next(project.path.glob("runs/2*/*/")))


def test_workload_failures_are_failed_with_the_last_lines(project):
    project.job_test("exit=1", "words=it went wrong here")
    result = project.pytest()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*exit*1*", "*it went wrong here*"])
    assert "Traceback" not in result.stdout.str()
    assert project.saved() == []


COMPILES_NOT = """
import sys
sys.path.insert(0, {root!r})
from models.meter import Meter, Solo, Wire

message = [f"loc(call{{n}}): illegal" for n in range(90)]
text = "\\n".join(["the model does not compile for csx (RuntimeError)", *message])
print("lowering", *("word" for _ in range(20)), sep="\\n", flush=True)
print(f"error: {{text}}", "loc(call0): illegal, said later", sep="\\n", flush=True)
Meter(samples=1, wire=Wire(), group=Solo(), folder=None).abort({code}, {gate!r}, text)
sys.exit({code})
"""


@pytest.mark.parametrize(
    ("code", "gate", "state"), [(4, "compile", "compile failed"), (5, "device_memory", "device out of memory")]
)
def test_the_first_lines_of_a_compilers_message_are_shown_and_where_the_rest_is(project, code, gate, state):
    project.job_test()
    project.write("program.py", COMPILES_NOT.format(root=str(ROOT), code=code, gate=gate))
    result = project.pytest("--junitxml=junit.xml")
    result.assert_outcomes(failed=1)
    (log,) = project.path.glob("runs/2*/*/log")
    result.stdout.fnmatch_lines(
        [
            f"it-1x1cpu-*: {state} (exit code {code}, *",
            "problems:",
            f"  - {gate}: the model does not compile for csx (RuntimeError) (rank 0)",
            f"the compiler or the device said (first lines; all of it: less +/^error: {log}):",
            "  | loc(call0): illegal",
            "  | loc(call11): illegal",
            "evidence: *",
            f"FAILED *{state}: *",
        ]
    )
    result.stdout.no_fnmatch_line("*loc(call12): illegal*")
    result.stdout.no_fnmatch_line("last lines of *")  # they are more of the same
    assert log.read_text().count("loc(call") == 90 + 1 + 12
    assert "loc(call11)" in (project.path / "junit.xml").read_text()
    (path,) = project.path.glob("runs/2*/*/run.json")
    assert json.loads(path.read_text())["said"][0] == "loc(call0): illegal"


def test_a_command_that_cannot_be_started_is_an_error(project):
    project.job_test()
    path = project.path / "test_mine.py"
    path.write_text(path.read_text().replace("{python}", "/no/such/python"))
    result = project.pytest()
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(
        ["*command cannot be started*", "*/no/such/python*", "try: *`command=[[]…]` of the test's*"]
    )
    result.stdout.no_fnmatch_line("*job's Python*")


def test_a_lock_in_no_folder_is_an_error_that_says_so(project, monkeypatch):
    monkeypatch.setenv("HPC_ML_BENCH_LOCK", str(project.path / "nowhere" / "lock"))
    project.job_test()

    result = project.pytest()

    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines([f"why: its lock *there is no folder {project.path}/nowhere: mkdir -p *"])
    result.stdout.no_fnmatch_line("try:*")


@pytest.mark.parametrize("broken", ["assert False", "raise RuntimeError('no')"])
def test_a_body_that_fails_is_failed_and_its_number_is_not_saved(project, broken):
    project.job_test()
    path = project.path / "test_mine.py"
    path.write_text(path.read_text() + f"    {broken}\n")
    result = project.pytest("--benchmark-autosave")
    result.assert_outcomes(failed=1)
    assert project.saved() == []


def test_a_fixture_that_fails_afterwards_keeps_the_number_out(project):
    project.job_test()
    path = project.path / "test_mine.py"
    path.write_text(
        path.read_text().replace("def test_it(run,", "def test_it(late, run,")
        + "\n@pytest.fixture\ndef late():\n    yield\n    raise RuntimeError('late')\n"
    )
    result = project.pytest("--benchmark-autosave")
    result.assert_outcomes(passed=1, errors=1)
    assert [b for file in project.saved() for b in file["benchmarks"]] == []
    assert "results" not in result.stdout.str()


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody stops waiting for a job before it is seen to run, however slow the machine is."""
    wait = Runner.wait

    def wait_longer(runner: Runner, job: Job, **more: Any) -> Job:
        def runs() -> bool:
            runner.pump()
            return job.status.state is State.RUNNING or job.done

        until(runs)
        return wait(runner, job, **more)

    monkeypatch.setattr(Runner, "wait", wait_longer)


def test_pending_is_skipped_with_the_job_and_exit_code_75(project, seen):
    project.job_test(f"gate={project.path}/gate")
    result = project.pytest("--wait", "1s", "-rs", "--run-id", "tonight")
    result.assert_outcomes(skipped=1)
    assert result.ret == 75
    result.stdout.fnmatch_lines(["*PENDING it-1x1cpu-* on local*still running; we stopped waiting*"])
    result.stdout.fnmatch_lines(["1 job is PENDING: pytest --resume=tonight goes on waiting*"])
    (pid_file,) = project.path.glob("runs/tonight/*/pid")
    assert pid_file.exists()  # left alone, to be found again
    cancel(pid_file)


def test_pending_does_not_hide_a_failure(project):
    project.job_test("exit=1", name="test_a.py")
    project.job_test(f"gate={project.path}/gate", name="test_b.py")
    project.pytest("--wait", "0", "--run-id", "tonight")
    until(lambda: list(project.path.glob("runs/tonight/test_a*/exit")))
    result = project.pytest("--wait", "0", "--run-id", "tonight")  # what has ended is read all the same
    result.assert_outcomes(failed=1, skipped=1)
    assert result.ret == 1
    for pid_file in project.path.glob("runs/tonight/test_b*/pid"):
        cancel(pid_file)


def test_exit_first_cancels_the_others(project):
    marks = project.path / "marks"
    marks.mkdir()
    project.platform("wide", "max_running: 4")
    project.job_test("exit=1", name="test_a.py")
    project.job_test("sleep=600", f"marks={marks}", name="test_b.py")
    result = project.pytest("-x", "-m", "wide")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*cancelling 1 unfinished job*"])
    assert _running(project) == []
    assert not (marks / "ended").exists()


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_interrupting_cancels_what_runs(project, how):
    marks = project.path / "marks"
    marks.mkdir()
    project.job_test("sleep=600", f"marks={marks}")
    session = project.begin()
    session.until((marks / "started").exists)
    session.send(how)
    assert session.ends() == pytest.ExitCode.INTERRUPTED
    assert "cancelling 1 unfinished job" in session.out
    assert _running(project) == []


def test_quiet_says_nothing_about_jobs_that_go_well(project):
    project.job_test()
    out = project.pytest("-q").stdout.str()
    assert "running" not in out
    assert "evidence in" not in out


def test_the_summary_has_the_reason_first(project):
    project.job_test()
    path = project.path / "test_mine.py"
    path.write_text(path.read_text().replace("{python}", "/no/such/python"))
    path.write_text(
        path.read_text()
        + """
@pytest.mark.workload(command=["{python}", "{root}/program.py", "cut=1"])
def test_cut(run, record):
    record(run)
"""
    )
    result = project.pytest()

    summary = [line for line in result.outlines if line.startswith(("FAILED ", "ERROR "))]
    assert len(summary) == 2
    said = {line.partition(" - ")[0].split("::")[1].partition("[")[0]: line.partition(" - ")[2] for line in summary}
    assert said["test_it"].startswith("command cannot be")
    assert said["test_cut"].startswith("no complete summary")


def test_a_log_has_a_line_a_change(project, monkeypatch):
    gate = project.path / "gate"
    project.job_test(f"gate={gate}")
    change = Console.change

    def opens(show: Console, job: Job) -> None:
        change(show, job)
        if job.status.state is State.RUNNING:
            gate.touch()

    monkeypatch.setattr(Console, "change", opens)
    logged = project.pytest().stdout.str()
    told = re.findall(r"^\d\d:\d\d:\d\d it-1x1cpu-k\w{7} on local: (\w+)", logged, re.MULTILINE)
    assert told[-2:] == ["running", "succeeded"]
    assert told[:-2] in ([], ["queued"])  # it may be looked at before it has begun
    assert "\r" not in logged
    assert "\x1b" not in logged


def cancel(pid_file: Path) -> None:
    """End the job that a session left, as the command it printed does."""
    os.kill(json.loads(pid_file.read_text())["pid"], signal.SIGTERM)


def _running(project) -> list[str]:
    listed = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    return [line for line in listed.splitlines() if str(project.path / "program.py") in line and "ps -eo" not in line]


def test_the_warnings_of_a_test_that_records_nothing_are_shown(project):
    project.job_test("warning=not alone: others used 2 cores")
    path = project.path / "test_mine.py"
    path.write_text(path.read_text().replace("    record(run)\n", ""))
    result = project.pytest("-q")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["test_mine.py::test_it[[]local-1x1cpu[]]: not alone: others used 2 cores"])
