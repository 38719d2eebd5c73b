"""A centre's pipelines, run for real: PENDING, green by the next pipeline's resume, red on a slowed job, and cancelled.

The jobs are those of a real Slurm on this machine. Each sleeps five times, and its rate is that of the shortest sleep.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from pipeline.steps import PENDING
from reporting.__main__ import main as reporting
from reporting.history import reader
from reporting.history.writer import HistoryWriter
from tests.clusters.slurm import Cluster
from tests.pipeline.gitlab_ci_local import PATIENCE_S, ROOT, CentreProject, Pipeline
from tests.waiting import until

pytestmark = [pytest.mark.real_slurm, pytest.mark.timeout(900)]
DAY_S = 86_400.0
NOISE = (0.4, -0.7, 0.1, 0.9, -0.3, -0.9, 0.6, 0.2, -0.5, 0.8, -0.1, -0.8, 0.3, 0.7, -0.4, 0.5, -0.2, -0.6, 0.0, 1.0)
PLATFORM = """\
scheduler: slurm
device: cpu
layouts: {{default: [1x1]}}
poll_s: 0.5
work_dir: {work}
slurm: {{account: z19}}
"""
PROGRAM = """
import pathlib, time
shared = pathlib.Path({shared!r})
while not (shared / "open").exists():
    time.sleep(0.1)
seconds = float((shared / "seconds").read_text())
time.sleep(seconds)
print("rate:", 1 / seconds)
"""
TESTS = """
import pytest
from platforms.results import numbers

@pytest.mark.workload(command=["{{python}}", "{program}"])
def test_sleep(run, record):
    (rate,) = numbers(run.log, r"rate: (.+)")
    record(run, metrics={{"rate": (rate, "1/s", "higher")}})
"""
HOLD = """
import pathlib, time, pytest

@pytest.fixture(autouse=True)
def held():
    while pathlib.Path({hold!r}).exists():
        time.sleep(0.1)
"""


class Centre:
    """The project, its shared folders, and its jobs, which wait until they are let run."""

    def __init__(self, folder: Path, slurm: Cluster) -> None:
        self.slurm = slurm
        self.shared = folder / "shared"
        self.history, self.runs = self.shared / "history", self.shared / "runs"
        for name in ("history", "runs", "work"):
            (self.shared / name).mkdir(parents=True)
        self.project = CentreProject(folder / "gitlab", slurm.environ)
        program = self.shared / "program.py"
        program.write_text(PROGRAM.format(shared=str(self.shared)))
        self.sleep(0.2)
        self.project.write("site/site.yaml", "enabled: [campus]\n")
        self.project.write("site/platforms/campus.yaml", PLATFORM.format(work=self.shared / "work"))
        self.project.write("site/test_sleep.py", TESTS.format(program=program))
        self.project.write("site/conftest.py", HOLD.format(hold=str(self.shared / "hold")))
        self.include(history=str(self.history), runs=str(self.runs))

    def include(self, **inputs: object) -> None:
        inputs |= {"platform": ["campus"], "runner_tags": ["login"], "suite": str(ROOT)}
        inputs |= {"tests": "site/test_sleep.py", "wait": "1m"}
        component = "$CI_SERVER_FQDN/hpc/hpc-ml-bench/bench@main"
        content = {"include": [{"component": component, "inputs": inputs}]}
        self.project.write(".gitlab-ci.yml", yaml.safe_dump(content))
        self.project.commit()

    def sleep(self, seconds: float) -> None:
        (self.shared / "seconds").write_text(repr(seconds))

    def let_run(self) -> None:
        (self.shared / "open").touch()

    def past(self) -> None:
        """Twenty nights before the only run in the branch of the history, with its rate and 1 % of noise."""
        self.reporting("pull")
        writer = HistoryWriter(self.history)
        (entry,) = reader.read(self.history)
        for night, noise in enumerate(NOISE, 1):
            seconds = night * DAY_S
            metrics = {
                name: replace(metric, value=metric.value * (1 + noise / 100)) for name, metric in entry.metrics.items()
            }
            key = entry.key._replace(run_id=f"night-{night}", submitted_s=entry.started_s - seconds)
            times = {"started_s": entry.started_s - seconds, "written_s": entry.written_s - seconds}
            writer.write(replace(entry, key=key, metrics=metrics, run=None, verdicts={}, **times), None)
        self.reporting("push")

    def reporting(self, command: str) -> None:
        """What a person types in the checkout of the suite."""
        assert reporting([command, f"--site={self.project.clone / 'site'}", f"--history={self.history}"]) == 0

    def states(self) -> list[str]:
        """How Slurm says that the centre's jobs ended, or where they are; the oldest first."""
        ours = {path.parent.name for path in (self.shared / "work").glob("jobs/*/job.sh")}
        return [row.state.split()[0] for row in self.slurm.jobs() if row.name in ours]

    def is_cancelled(self) -> None:
        """Wait until Slurm has cancelled the one job."""
        states: list[str] = []

        def cancelled() -> bool:
            states[:] = self.states()
            return states == ["CANCELLED"]

        try:
            until(cancelled)
        except AssertionError:
            raise AssertionError(f"Slurm has not cancelled the job; it says {states}") from None

    def step(self, step: str, number: int, **variables: str) -> subprocess.Popen[str]:
        """One step without GitLab, in a checkout that is there already."""
        given = {"BENCH_PLATFORM": "campus", "BENCH_HISTORY": str(self.history), "BENCH_RUNS": str(self.runs)}
        given |= {"BENCH_TESTS": "site/test_sleep.py", "CI_PIPELINE_ID": str(number), **variables}
        return subprocess.Popen(
            [sys.executable, "-m", "pipeline", step, "--project", str(self.project.clone)],
            cwd=ROOT,
            env={**os.environ, **given},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def hold(self) -> None:
        """Sessions that begin from now on submit their jobs, and then do nothing."""
        (self.shared / "hold").touch()

    def go_on(self) -> None:
        """Sessions and jobs go on."""
        (self.shared / "hold").unlink()
        self.let_run()

    def held_session(self, run_id: str) -> int:
        """The process id of a session, once it has submitted its job."""
        kept = self.project.clone / ".bench"
        folders = (self.runs, kept / "measured")
        submitted = f"{run_id}/*/submitted.json"
        until(lambda: any(list(runs.glob(submitted)) for runs in folders), "the job is submitted")
        until(self.states, "Slurm has the job")
        pid: int = json.loads((kept / "session.json").read_text())["pid"]
        return pid


@pytest.fixture
def centre(slurm: Cluster, tmp_path: Path) -> Iterator[Centre]:
    centre = Centre(tmp_path, slurm)
    yield centre
    centre.let_run()


def outcomes(pipeline: Pipeline, job: str) -> dict[str, int]:
    """What JUnit counts in the reports of a job."""
    counts = {"tests": 0, "failures": 0, "errors": 0, "skipped": 0}
    for path in pipeline.artifacts(job).glob("junit-*.xml"):
        for suite in ElementTree.parse(path).getroot().iter("testsuite"):
            for name in counts:
                counts[name] += int(suite.get(name, 0))
    return counts


def ended(step: subprocess.Popen[str], code: int = 0) -> str:
    """What a step has printed, which ends with this exit code."""
    text, _ = step.communicate(timeout=PATIENCE_S)
    assert step.returncode == code, text
    return text


def runs(pid: int) -> bool:
    """Whether a process runs. One that has ended has no command line, also before its parent has asked for it."""
    try:
        return bool(Path(f"/proc/{pid}/cmdline").read_bytes())
    except FileNotFoundError:
        return False


def evidence(pipeline: Pipeline, job: str, run_id: str) -> set[str]:
    return {path.name for path in (pipeline.artifacts(job) / "evidence" / run_id).glob("*/*")}


def test_a_night_is_pending_then_green_by_the_next_pipeline_and_a_slowed_one_is_red(centre: Centre) -> None:
    """History and unfinished runs are in a branch of the project: each pipeline runs in a new clone."""
    centre.include()
    evening = centre.project.pipeline(100, BENCH_STEP="submit")
    assert (evening.code, evening.ended("bench-submit")) == (0, "WARN"), evening.text
    assert "1 job is PENDING" in evening.text
    assert outcomes(evening, "bench-submit") == {"tests": 1, "failures": 0, "errors": 0, "skipped": 1}
    assert {"job.sh", "submitted.json"} <= evidence(evening, "bench-submit", "100-campus")

    centre.let_run()
    morning = centre.project.pipeline(102, BENCH_STEP="fetch")
    assert (morning.code, morning.ended("bench-fetch")) == (0, "PASS"), morning.text
    assert outcomes(morning, "bench-fetch") == {"tests": 1, "failures": 0, "errors": 0, "skipped": 0}
    assert {"log", "run.json"} <= evidence(morning, "bench-fetch", "100-campus")
    until(lambda: centre.states() == ["COMPLETED"], "the next pipeline has submitted no job again")

    centre.past()
    centre.sleep(0.25)
    red = centre.project.pipeline(104, BENCH_STEP="all")
    assert (red.ended("bench-submit"), red.ended("bench-fetch")) == ("WARN", "FAIL"), red.text
    assert outcomes(red, "bench-fetch")["failures"] == 1
    report = next(red.artifacts("bench-fetch").glob("junit-104-campus.xml")).read_text()
    assert "slower since" in report
    assert "python -m reporting accept" in report
    assert "--site=" not in report, "a command names a folder of the runner"
    assert red.ended("bench-report") == "PASS"
    metrics = (red.artifacts("bench-report") / "metrics.txt").read_text()
    assert metrics.endswith("# EOF\n")
    assert "test_sleep" in metrics
    page = (red.artifacts("bench-report") / "report.html").read_text()
    assert "evidence/104-campus/" in page, "the page has no link to tonight's evidence"
    assert json.loads((red.artifacts("bench-report") / "report.json").read_text())
    assert {"log", "run.json"} <= evidence(red, "bench-fetch", "104-campus")


def test_what_a_killed_submission_left_is_cancelled_by_after_script(centre: Centre) -> None:
    centre.hold()
    process = centre.project.begin(200, BENCH_STEP="submit")
    session = centre.held_session("200-campus")
    step = int(Path(f"/proc/{session}/stat").read_text().rpartition(")")[2].split()[1])
    for victim in (step, session):
        os.kill(victim, signal.SIGKILL)
    killed = centre.project.end(process)
    assert killed.ended("bench-submit") == "FAIL", killed.text
    assert "run 200-campus has ended" in killed.text
    centre.is_cancelled()


@pytest.mark.parametrize(
    ("kind", "pipeline"),  # a job's name has the run's id
    [("submit", 210), pytest.param("measure", 211, marks=pytest.mark.nightly("pipeline"))],
)
def test_a_session_that_outlives_its_ci_job_is_ended_by_the_cleanup(centre: Centre, kind: str, pipeline: int) -> None:
    """As under a shell executor, which gives a cancelled job no signal that reaches the session."""
    centre.project.checkout()
    centre.hold()
    step = centre.step(kind, pipeline)
    session = centre.held_session(f"{pipeline}-campus")
    step.kill()
    text = ended(centre.step("cleanup", pipeline, CI_JOB_STATUS="canceled"))
    step.communicate(timeout=PATIENCE_S)
    assert "is asked to end" in text
    assert not runs(session)
    centre.is_cancelled()
    assert ended(centre.step("cleanup", pipeline, CI_JOB_STATUS="canceled")) == ""


@pytest.mark.parametrize(("begun", "pipeline", "end"), [(300, 300, "CANCELLED"), (310, 311, "COMPLETED")])
def test_a_cancelled_fetch_cancels_what_its_own_pipeline_has_submitted(
    centre: Centre, begun: int, pipeline: int, end: str
) -> None:
    centre.project.checkout()
    ended(centre.step("submit", begun), PENDING)
    step = centre.step("fetch", pipeline, BENCH_WAIT="2m")
    until(lambda: len(list(centre.runs.glob(f"{begun}-campus/sessions/*.jsonl"))) == 2, "the session has begun")
    session = centre.held_session(f"{begun}-campus")
    step.kill()
    ended(centre.step("cleanup", pipeline, CI_JOB_STATUS="canceled"))
    step.communicate(timeout=PATIENCE_S)
    assert not runs(session)
    centre.let_run()
    until(lambda: centre.states() == [end], "the job has ended")


def test_a_person_cancels_what_is_unfinished(centre: Centre) -> None:
    centre.project.checkout()
    ended(centre.step("submit", 400), PENDING)
    ended(centre.step("cancel", 401))
    assert list((centre.project.clone / "bench-out/evidence/400-campus").glob("*/job.sh"))
    centre.is_cancelled()


def test_a_merge_request_is_measured_beside_the_history_and_is_no_part_of_it(centre: Centre) -> None:
    centre.project.checkout()
    centre.let_run()
    ended(centre.step("measure", 500, BENCH_WAIT="1m"))
    assert reader.read(centre.history) == []
    assert list(centre.runs.iterdir()) == []
    out = centre.project.clone / "bench-out"
    assert "1 learning" in (out / "comment-campus.md").read_text()
    assert (out / "metrics.txt").read_text().endswith("# EOF\n")
    assert (out / "junit-500-campus.xml").exists()


def test_what_cannot_be_pushed_is_in_the_artifacts_and_the_same_ci_job_finds_its_run_again(centre: Centre) -> None:
    """The right to push is lost after the test of it: the hook lets the first push through."""
    in_branch = {"BENCH_HISTORY": "bench-history", "BENCH_RUNS": ""}
    hook = centre.project.folder / ".git/hooks/pre-receive"
    hook.write_text("#!/bin/sh\n[ -e once ] || exec touch once\necho no right to push; exit 1\n")
    hook.chmod(0o755)
    clone = centre.project.checkout()
    assert "no right to push" in ended(centre.step("submit", 600, **in_branch), 2)
    assert list((clone / "bench-out/not-pushed").glob("history/*/*.jsonl"))

    hook.unlink()
    centre.project.checkout()
    ended(centre.step("submit", 600, **in_branch), PENDING)
    until(centre.states, "Slurm accounts for the job")
    assert len(centre.states()) == 1, "the job of a run without a record was submitted again"
