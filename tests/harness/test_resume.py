"""Going on with a run: after kill -9, detached, stopped waiting; what is refused; what Ctrl-C does, once and twice."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest

from platforms.__main__ import main
from platforms.commands import find_run
from platforms.rundir import job_json, session_history
from platforms.rundir.session_journal import Journal
from tests.harness.conftest import Project
from tests.waiting import until

PATIENCE_S = 60.0


@pytest.fixture
def night(project: Project) -> Night:
    return Night(project)


class Night:
    """Three tests on a platform that takes two jobs at a time: one ends at once, one when it may, one comes later."""

    def __init__(self, project: Project) -> None:
        self.project, self.path = project, project.path
        self.marks = project.path / "marks"
        for name in "abc":
            (self.marks / name).mkdir(parents=True)
        project.platform("cluster", "max_running: 2\n")
        for name, words in {"a": [], "b": [f"gate={self.marks}/gate"], "c": []}.items():
            project.job_test(f"marks={self.marks}/{name}", *words, name=f"test_{name}.py")

    def start(self, *args: str, **more: Any) -> subprocess.Popen[str]:
        """A session in a process of its own."""
        command = [sys.executable, "-m", "pytest", *args]
        pipe = subprocess.PIPE
        return subprocess.Popen(command, cwd=self.path, stdout=pipe, stderr=subprocess.STDOUT, text=True, **more)

    def imports(self, name: str, program: str, *args: str) -> subprocess.Popen[str]:
        """A session with something in its way."""
        self.project.write(f"{name}.py", program)
        return self.start(*args, "-p", name, env={**os.environ, "PYTHONPATH": str(self.path)})

    def killed(self, *args: str, taken: int = 0) -> None:
        """Once the first test has its result and the second runs, and so many sessions were gone on with. The third
        test waits for its place, or has had it already."""
        with self.start(*args) as session:
            try:
                self.under_way()
                until(lambda: len(list(self.path.glob("runs/*/sessions/*.taken"))) >= taken)
            finally:
                session.kill()

    def under_way(self) -> None:
        until(self.is_under_way)

    def is_under_way(self) -> bool:
        return bool(self.ran("b") and list(self.path.glob("runs/*/test_a*/run.json")))

    def waits_for_the_gate(self, name: str, gate: str = "gate") -> None:
        """That test's job, too: it cannot have ended when a session leaves it that waits for nothing."""
        self.project.job_test(f"marks={self.marks}/{name}", f"gate={self.marks}/{gate}", name=f"test_{name}.py")

    def open_gate(self) -> None:
        (self.marks / "gate").touch()

    def ran(self, name: str) -> int:
        """How often."""
        path = self.marks / name / "started"
        return len(path.read_text()) if path.exists() else 0

    def saved(self) -> list[str]:
        """The tests of the last file of pytest-benchmark."""
        return sorted(one["name"] for one in self.project.saved()[-1]["benchmarks"])

    def run_id(self) -> str:
        return (self.path / "runs/latest").resolve().name

    def all_once(self) -> None:
        assert [self.ran(name) for name in "abc"] == [1, 1, 1]


THREE = ["test_it[cluster-1x2gpu]"] * 3


def test_killed_and_resumed_without_naming_anything(night: Night) -> None:
    night.killed("-m", "cluster", "--mode", "overlap")
    run_id = night.run_id()
    night.open_gate()
    result = night.project.pytest_process("--resume", "--benchmark-autosave")
    result.assert_outcomes(passed=3)
    result.stdout.fnmatch_lines([f"*going on with run {run_id}: the jobs of 3 of 3 tests were begun before*"])
    night.all_once()
    assert night.saved() == THREE  # also the one that was read before the kill
    assert night.run_id() == run_id
    assert len(list(night.path.glob("runs/2*"))) == 1


def test_a_mistake_in_the_suite_leaves_the_jobs_to_resume(night: Night) -> None:
    """It ends the session, on the main thread, while a job runs."""
    program = "import harness.trials\nask = harness.trials.Trials.ask\n"
    program += "def broken(self, test):\n    raise KeyError('oops')\nharness.trials.Trials.ask = broken\n"
    with night.imports("broken", program, "-m", "cluster") as session:
        said, _ = session.communicate(timeout=PATIENCE_S)
    assert session.returncode == 3
    assert "KeyError: 'oops'" in said
    assert "without a session from now on: pytest --resume" in said
    assert "cancelling" not in said
    night.open_gate()
    night.project.pytest_process("--resume").assert_outcomes(passed=3)
    night.all_once()


def test_killed_before_anything_was_submitted(night: Night) -> None:
    (night.path / "site/platforms/cluster.yaml").write_text(
        "scheduler: local\ndevice: gpu\nlayouts: {default: [1x2]}\n"
    )
    program = "import os, signal\nimport platforms.runner.platform_queue as platform_queue\n"
    program += "platform_queue.PlatformQueue.poll_and_submit = lambda self: os.kill(os.getpid(), signal.SIGKILL)\n"
    with night.imports("deadly", program, "-m", "cluster") as session:
        session.wait(PATIENCE_S)
    assert [night.ran(name) for name in "abc"] == [0, 0, 0]
    night.open_gate()
    night.project.pytest_process("--resume").assert_outcomes(passed=3)
    night.all_once()


@pytest.mark.parametrize("left", [(), ("job.sh",)])
def test_a_folder_in_which_nothing_began_is_used(night: Night, left: tuple[str, ...]) -> None:
    """A session was killed after it made the folder, and before its journal names the job."""
    folder = night.path / "runs/17/test_a-test_it-cluster-1x2gpu"
    folder.mkdir(parents=True)
    for name in left:
        (folder / name).write_text("of the session that was killed\n")
    night.open_gate()
    night.project.pytest_process("-m", "cluster", "--run-id=17").assert_outcomes(passed=3)
    assert (folder / "run.json").exists()
    assert not folder.with_name(f"{folder.name}.2").exists()


def test_the_same_run_id_goes_on_as_well(night: Night) -> None:
    night.killed("-m", "cluster", "--run-id=17")
    night.open_gate()
    night.project.pytest_process("-m", "cluster", "--run-id=17", "--benchmark-autosave").assert_outcomes(passed=3)
    night.all_once()
    assert night.saved() == THREE
    again = night.project.pytest_process(
        "-m", "cluster", "--run-id=17"
    )  # that run has ended: this is a new measurement
    again.assert_outcomes(passed=3)
    assert [night.ran(name) for name in "abc"] == [2, 2, 2]


def test_a_pipelines_number_is_a_run_id(night: Night, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI_PIPELINE_ID", "4711")
    night.killed("-m", "cluster")
    night.open_gate()
    night.project.pytest_process("-m", "cluster").assert_outcomes(passed=3)
    night.all_once()
    assert night.run_id() == "4711"


def test_the_newest_run_is_named_by_a_word(night: Night) -> None:
    night.killed("-m", "cluster", "--run-id=17")
    night.open_gate()
    night.project.pytest_process("--resume=latest").assert_outcomes(passed=3)
    night.all_once()
    result = night.project.pytest_process("--resume=latest")
    result.stderr.fnmatch_lines(["*--resume: run 17 has ended; its results are in *runs/17"])


def test_killed_twice(night: Night) -> None:
    night.killed("-m", "cluster")
    night.killed("--resume", taken=1)
    night.open_gate()
    night.project.pytest_process("--resume", "--benchmark-autosave").assert_outcomes(passed=3)
    night.all_once()
    assert night.saved() == THREE


def test_killed_as_it_began_to_go_on(night: Night) -> None:
    """It has claimed what the first had, and has not said a word of it."""
    night.killed("-m", "cluster")
    deadly = "import os, signal\nimport platforms.rundir.session_journal as journal\ntake = journal.take_over\n"
    deadly += "journal.take_over = lambda *words: (take(*words), os.kill(os.getpid(), signal.SIGKILL))\n"
    with night.imports("deadly", deadly, "--resume") as session:
        session.communicate(timeout=PATIENCE_S)
    assert session.returncode == -signal.SIGKILL
    night.open_gate()
    result = night.project.pytest_process("--resume", "--benchmark-autosave")
    result.assert_outcomes(passed=3)
    result.stdout.fnmatch_lines(["*3 of 3 tests were begun before*"])
    night.all_once()
    assert night.saved() == THREE


def test_interrupted_while_it_looked_for_a_job(night: Night) -> None:
    night.killed("-m", "cluster", "--run-id=17")
    program = "from platforms.runner import platform_queue\nadd, seen = platform_queue.PlatformQueue.add, []\n\n"
    program += (
        "def interrupted(self, job):\n    seen.append(job)\n    if len(seen) == 2:\n        raise KeyboardInterrupt\n"
    )
    program += "    return add(self, job)\n\nplatform_queue.PlatformQueue.add = interrupted\n"
    with night.imports("interrupted", program, "--resume") as session:
        out, _ = session.communicate(timeout=PATIENCE_S)
    assert "2 jobs were not looked for yet: pytest --resume=17 finds them" in out
    night.open_gate()
    night.project.pytest_process("--resume=17").assert_outcomes(passed=3)
    night.all_once()


def test_an_interrupt_submits_nothing_of_a_run_without_a_record(night: Night) -> None:
    program = "from platforms.runner import Runner\n\n"
    program += "def interrupted(self):\n    raise KeyboardInterrupt\n\nRunner.pump = interrupted\n"
    with night.imports("interrupted", program, "--resume=17", "-m", "cluster") as session:
        out, _ = session.communicate(timeout=PATIENCE_S)
    assert session.returncode == pytest.ExitCode.INTERRUPTED
    assert "3 jobs were not looked for yet: pytest --resume=17 finds them" in out
    assert [night.ran(name) for name in "abc"] == [0, 0, 0]
    night.open_gate()
    night.project.pytest_process("--resume=17").assert_outcomes(passed=3)
    night.all_once()


def test_what_was_cancelled_by_hand_is_measured_anew(night: Night) -> None:
    """Under the same run id, as a pipeline that was cancelled and is started again."""
    result = night.project.pytest_process("-m", "cluster", "--run-id=17", "--wait=0")
    assert result.ret == 75
    until(lambda: (night.marks / "a/ended").exists() and night.ran("b"))
    assert main(["cancel", "17", f"--site={night.path / 'site'}", f"--runs-dir={night.path / 'runs'}"]) in (0, 1)
    night.open_gate()
    result = night.project.pytest_process("-m", "cluster", "--run-id=17")
    result.assert_outcomes(passed=3)
    assert [night.ran(name) for name in "ab"] == [2, 2]
    assert (night.path / "runs/17/test_a-test_it-cluster-1x2gpu.2/run.json").exists()


def test_who_never_waits_reads_what_has_ended(night: Night) -> None:
    """As cron does it."""
    night.project.pytest_process("-m", "cluster", "--wait=0")
    until(lambda: list(night.path.glob("runs/2*/test_a*/exit")))
    assert night.project.pytest_process("--resume", "--wait=0").ret == 75
    assert len(list(night.path.glob("runs/2*/test_a*/run.json"))) == 1
    night.open_gate()
    until(lambda: night.project.pytest_process("--resume", "--wait=0").ret == 0)
    night.all_once()


def test_tests_that_overlap_and_have_other_options(night: Night) -> None:
    """Each is resumed with the options it was selected with, and the run ends."""
    night.project.platform("other")
    night.project.write("site/site.yaml", "enabled: [cluster, other]\n")
    night.project.pytest_process(
        "--platform=cluster", "--platform=other", "--run-id=17", "test_a.py", "test_b.py", "--wait=0"
    )
    night.project.pytest_process("--platform=cluster", "--run-id=17", "test_b.py", "test_c.py", "--wait=0")
    night.open_gate()
    results = [night.project.pytest_process("--resume=17") for _ in range(2)]
    passed = [result.parseoutcomes()["passed"] for result in results]
    assert sum(passed) >= 5
    assert {result.ret for result in results} == {0}
    assert find_run.unfinished(night.path / "runs") == ([], [])
    assert [night.ran(name) for name in "abc"] == [2, 2, 1]


def test_a_test_that_is_not_in_this_checkout_keeps_no_other_from_its_result(night: Night) -> None:
    night.killed("-m", "cluster", "--run-id=17")
    (night.path / "test_b.py").unlink()
    result = night.project.pytest_process("--resume=17")
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(
        ["*not in this checkout, with this site: 1 of run 17's tests: test_b.py::*`python -m platforms cancel 17`*"]
    )
    assert find_run.unfinished(night.path / "runs") == (["17"], [])
    for name in "ac":
        (night.path / f"test_{name}.py").rename(night.path / f"test_new_{name}.py")
    result = night.project.pytest_process("--resume=17")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*not in this checkout, with this site: 3 of run 17's tests*"])
    night.open_gate()


def test_the_site_is_remembered(night: Night) -> None:
    (night.path / "site").rename(night.path / "elsewhere")
    night.killed("-m", "cluster", "--site=elsewhere", "--runs-dir=runs")
    night.open_gate()
    night.project.pytest_process("--resume", "--runs-dir=runs").assert_outcomes(passed=3)
    night.all_once()


def test_what_stands_in_addopts_was_not_typed_now(night: Night, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_ADDOPTS", "-m cluster --mode=overlap")
    night.killed()
    night.open_gate()
    night.project.pytest_process("--resume").assert_outcomes(passed=3)
    night.all_once()


def test_of_several_runs_one_is_resumed_whose_session_is_dead(night: Night) -> None:
    night.waits_for_the_gate("a", "gate-a")
    night.project.pytest_process("-m", "cluster", "--run-id=dead", "test_a.py", "--wait=0")
    (night.marks / "gate-a").touch()
    until(lambda: list(night.path.glob("runs/dead/test_a*/exit")))  # two runs take turns on this machine
    with night.start("-m", "cluster", "--run-id=live", "test_b.py") as session:
        until(lambda: night.ran("b"))
        night.project.pytest_process("--resume").assert_outcomes(passed=1)
        night.open_gate()
        session.communicate(timeout=PATIENCE_S)
    assert night.ran("a") == 1


def test_killed_while_it_cancelled(night: Night) -> None:
    """What it ended begins again, as an attempt that nobody has begun to end."""
    program = "import os, signal\nfrom platforms.runner import messages\n"
    program += "from platforms.runner.finalizer import Finalizer\n"
    program += "finish = Finalizer.finish\n\ndef last(self, job, *words):\n    finish(self, job, *words)\n"
    program += "    if job.status.reason == messages.ENDED_BY_US:\n        os.kill(os.getpid(), signal.SIGKILL)\n\n"
    program += "Finalizer.finish = last\n"
    with night.imports("deadly", program, "-m", "cluster", "--run-id=17") as session:
        night.under_way()
        session.send_signal(signal.SIGINT)
        session.communicate(timeout=PATIENCE_S)
    assert session.returncode == -signal.SIGKILL
    night.open_gate()
    night.project.pytest_process("--resume").assert_outcomes(passed=3)
    last = session_history.read_sessions(night.path / "runs/17")[-1]
    attempts = [attempt for test, attempt in last.attempts.items() if test.startswith("test_b.py")]
    assert [(attempt.number, attempt.ending) for attempt in attempts] == [(2, False)]


def test_one_that_was_not_quick_enough_leaves_nothing_open(night: Night) -> None:
    night.killed("-m", "cluster", "--run-id=17")
    slow = "import platforms.rundir.session_journal as journal\njournal.take_over = lambda *words: False\n"
    with night.imports("slow", slow, "--resume") as session:
        out, _ = session.communicate(timeout=PATIENCE_S)
    assert session.returncode == pytest.ExitCode.USAGE_ERROR
    assert "run 17: another session has just gone on with it; nothing was submitted" in out
    assert sorted(str(past.end) for past in session_history.read_sessions(night.path / "runs/17")) == [
        "None",
        session_history.DONE,
    ]
    night.open_gate()
    night.project.pytest_process("--resume").assert_outcomes(passed=3)
    night.all_once()


def test_interrupted_before_it_had_looked_at_all_jobs(night: Night) -> None:
    night.killed("-m", "cluster", "--run-id=17")
    program = "from platforms.runner import Runner\nadd = Runner.add\n\n"
    program += "def interrupted(self, *words):\n    if self.jobs:\n        raise KeyboardInterrupt\n"
    program += "    return add(self, *words)\n\nRunner.add = interrupted\n"
    with night.imports("interrupted", program, "--resume") as session:
        out, _ = session.communicate(timeout=PATIENCE_S)
    assert session.returncode == pytest.ExitCode.INTERRUPTED
    assert "2 jobs were not looked for yet: pytest --resume=17 finds them" in out
    night.open_gate()
    night.project.pytest_process("--resume=17").assert_outcomes(passed=3)
    night.all_once()


def test_sessions_with_other_options_are_gone_on_with_one_after_the_other(night: Night) -> None:
    night.waits_for_the_gate("c")
    night.project.pytest_process("-m", "cluster", "--run-id=17", "--mode=blocking", "test_b.py", "--wait=0")
    night.project.pytest_process("-m", "cluster", "--run-id=17", "--mode=overlap", "test_c.py", "--wait=0")
    until(lambda: night.ran("b") and night.ran("c"))
    night.open_gate()
    result = night.project.pytest_process("--resume=17")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["*then pytest --resume=17 once more: session * has left jobs that are not among*"])
    assert (night.ran("b"), night.ran("c")) == (1, 1)
    night.project.pytest_process("--resume=17").assert_outcomes(passed=1)
    assert (night.ran("b"), night.ran("c")) == (1, 1)
    assert find_run.unfinished(night.path / "runs") == ([], [])


def test_killed_after_the_last_result_before_it_was_saved(night: Night) -> None:
    """All jobs are done, and nothing has been told of them."""
    night.open_gate()
    program = "import os, signal\nimport pytest\n\n@pytest.hookimpl(trylast=True)\ndef pytest_sessionfinish():\n"
    program += "    os.kill(os.getpid(), signal.SIGKILL)\n"
    with night.imports("deadly", program, "-m", "cluster", "--run-id=17") as session:
        session.communicate(timeout=PATIENCE_S)
    night.all_once()
    night.project.pytest_process("-m", "cluster", "--run-id=17", "--benchmark-autosave").assert_outcomes(passed=3)
    night.all_once()
    assert night.saved() == THREE


def test_results_that_cannot_be_written_leave_the_run_open(night: Night) -> None:
    full = night.path / "full"
    words = ("--benchmark-autosave", f"--benchmark-storage=file://{full}")
    with night.start("-m", "cluster", "--run-id=17", *words) as session:
        until(lambda: night.ran("b"))
        shutil.rmtree(full, ignore_errors=True)
        full.write_text("a file where there was a folder, or could be made, when the session began")
        night.open_gate()
        out, _ = session.communicate(timeout=PATIENCE_S)
    assert session.returncode == pytest.ExitCode.INTERNAL_ERROR
    assert re.search("results cannot be written: .*full.*; pytest --resume=17 reads and writes them again", out)
    assert "Traceback" not in out
    night.project.pytest_process("--resume=17", "--benchmark-autosave").assert_outcomes(passed=3)
    night.all_once()
    assert night.saved() == THREE


def test_failures_are_read_again_too(night: Night) -> None:
    night.project.job_test(f"marks={night.marks}/a", "exit=3", "words=it went wrong", name="test_a.py")
    night.killed("-m", "cluster")
    night.open_gate()
    result = night.project.pytest_process("--resume")
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(["*a gate failed*", "*it went wrong*"])
    night.all_once()


def test_submitted_and_left_then_resumed(night: Night) -> None:
    night.waits_for_the_gate("a")
    result = night.project.pytest_process("-m", "cluster", "--wait", "0")
    assert result.ret == 75
    result.stdout.fnmatch_lines(["3 jobs are PENDING, 1 not submitted yet: pytest --resume=*"])
    night.open_gate()
    night.project.pytest_process("--resume").assert_outcomes(passed=3)
    night.all_once()


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_that_detaches(night: Night, how: signal.Signals) -> None:
    with night.start("-m", "cluster", "--on-interrupt=detach") as session:
        night.under_way()
        session.send_signal(how)
        out, _ = session.communicate(timeout=PATIENCE_S)
    assert session.returncode == pytest.ExitCode.INTERRUPTED
    assert re.search(r"[123] unfinished jobs? without a session from now on: pytest --resume=\S+ goes on with", out)
    night.open_gate()
    night.project.pytest_process("--resume").assert_outcomes(passed=3)
    night.all_once()


def test_left_while_jobs_are_submitted(night: Night) -> None:
    """One that comes after the last word of the session is not submitted: nobody would know of it."""
    # The gate is imported first: an interrupt in the middle of its import leaves a file open, which is an error here.
    program = """
import os, signal, threading, time
import harness.confirmations, harness.judging
from platforms.rundir.session_journal import Journal
from platforms.schedulers.local import LocalScheduler

end, submit, over = Journal.end, LocalScheduler.submit, threading.Event()

def ended(self, how):
    end(self, how)
    over.set()
    time.sleep(2)

def slow(self, *words):
    if not over.is_set():
        os.kill(os.getpid(), signal.SIGINT)
    over.wait()
    return submit(self, *words)

Journal.end, LocalScheduler.submit = ended, slow
"""
    night.project.platform("cluster", "max_running: 2\npoll_s: 600\n")  # all in one turn
    with night.imports("slow", program, "-m", "cluster", "--run-id=17", "--on-interrupt=detach") as session:
        out, _ = session.communicate(timeout=PATIENCE_S)
    assert session.returncode == pytest.ExitCode.INTERRUPTED, out
    assert not list(night.path.glob("runs/17/test_b*/pid"))
    night.project.platform("cluster", "max_running: 2\n")
    night.open_gate()
    night.project.pytest_process("--resume=17").assert_outcomes(passed=3)
    night.all_once()


def test_an_interrupt_that_cancels_ends_the_run(night: Night) -> None:
    with night.start("-m", "cluster") as session:
        night.under_way()
        session.send_signal(signal.SIGINT)
        session.communicate(timeout=PATIENCE_S)
    result = night.project.pytest_process("--resume")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*--resume: no run in *runs is unfinished*"])


def test_a_session_that_lives_is_not_gone_on_with(night: Night) -> None:
    with night.start("-m", "cluster", "--run-id=17") as session:
        try:
            night.under_way()
            for words in (["--resume"], ["-m", "cluster", "--run-id=17"]):
                result = night.project.pytest_process(*words)
                assert result.ret == pytest.ExitCode.USAGE_ERROR
                result.stderr.fnmatch_lines(
                    [f"*run 17 is under way in session * (process {session.pid} on *); nothing was submitted*"]
                )
            other = night.project.pytest_process("-m", "cluster", "--run-id=17", "test_c.py", "--wait=0")
            assert other.ret == pytest.ExitCode.USAGE_ERROR
        finally:
            night.open_gate()
        session.communicate(timeout=PATIENCE_S)
    assert session.returncode == 0
    night.all_once()
    assert find_run.unfinished(night.path / "runs") == ([], [])  # those that were refused have left nothing open


def test_two_sessions_of_a_run_with_tests_of_their_own(night: Night) -> None:
    """As the jobs of a pipeline are: they have one run id, and know nothing of each other."""
    with night.start("-m", "cluster", "--run-id=17", "test_b.py") as session:
        until(lambda: night.ran("b"))
        night.project.pytest_process("-m", "cluster", "--run-id=17", "test_a.py", "test_c.py").assert_outcomes(passed=2)
        night.open_gate()
        session.communicate(timeout=PATIENCE_S)
    assert session.returncode == 0
    night.all_once()


@pytest.mark.parametrize("words", [("--resume",), ("-m", "cluster", "--run-id=17")], ids=["resumed", "new"])
def test_two_that_begin_at_once(night: Night, words: tuple[str, ...]) -> None:
    if "--resume" in words:
        night.killed("-m", "cluster")
    sessions = [night.start(*words) for _ in range(2)]
    try:
        until(lambda: any(session.poll() is not None for session in sessions))  # nothing can end but the one refused
    finally:
        night.open_gate()
    texts = [session.communicate(timeout=PATIENCE_S)[0] for session in sessions]
    assert find_run.unfinished(night.path / "runs") == ([], [])  # the one that was refused has left nothing open
    assert sorted(session.returncode for session in sessions) == [0, pytest.ExitCode.USAGE_ERROR], texts
    night.all_once()


def test_one_that_comes_when_another_has_done_it_all(night: Night) -> None:
    """Between naming its tests and going on with them."""
    night.killed("-m", "cluster")
    other = "import subprocess, sys, pytest\n\n@pytest.hookimpl(trylast=True)\ndef pytest_collection_finish():\n"
    other += (
        "    assert subprocess.run([sys.executable, '-m', 'pytest', '--resume', '-p', 'no:other']).returncode == 0\n"
    )
    night.open_gate()
    with night.imports("other", other, "--resume") as session:
        out, _ = session.communicate(timeout=PATIENCE_S)
    assert session.returncode == pytest.ExitCode.USAGE_ERROR
    assert "another session has just gone on with it; nothing was submitted" in out
    night.all_once()


def test_some_of_a_runs_tests(night: Night) -> None:
    """The others stay open."""
    night.killed("-m", "cluster", "--run-id=17")
    night.open_gate()
    result = night.project.pytest_process("-m", "cluster", "--run-id=17", "test_c.py")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(
        ["*1 unfinished jobs of it are not among these tests (test_b.py*): pytest --resume=17 goes on with them*"]
    )
    night.project.pytest_process("--resume=17", "--benchmark-autosave").assert_outcomes(passed=3)
    night.all_once()
    assert night.saved() == THREE


def test_what_was_left_on_another_day_is_not_tonights(night: Night) -> None:
    night.killed("-m", "cluster", "--run-id=nightly")
    night.open_gate()
    until(lambda: (night.marks / "b/ended").exists())
    (old,) = night.path.glob("runs/nightly/sessions/*.jsonl")
    os.utime(old, (time.time() - 86400,) * 2)
    result = night.project.pytest_process("-m", "cluster", "--run-id=nightly")
    result.assert_outcomes(passed=3)
    result.stdout.fnmatch_lines(["*is of another day: pytest --resume=nightly reads it*"])
    assert [night.ran(name) for name in "ab"] == [2, 2]
    assert night.project.pytest_process("--resume=nightly").ret == 0
    assert [night.ran(name) for name in "ab"] == [2, 2]


def test_code_that_has_changed_meanwhile_is_told(night: Night) -> None:
    night.killed("-m", "cluster")
    (path,) = night.path.glob("runs/2*/sessions/*.jsonl")
    path.write_text(path.read_text().replace('"code": []', '"code": ["models-0123456789ab.pyz"]'))
    text = path.read_text().splitlines(keepends=True)
    path.write_text("".join(line for line in text if "test_c.py::" not in line or '"plan"' in line))
    night.open_gate()
    result = night.project.pytest_process("--resume")
    result.assert_outcomes(passed=3)
    result.stdout.fnmatch_lines(["*2 of 3 tests were begun before*", "*the code has changed since*"])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--resume"], "--resume: no run in *runs is unfinished; --runs-dir names another folder"),
        (["--resume=nothing"], "*runs knows no run nothing. Name its tests as they were named then*"),
        (["--resume=../x"], "--resume: '../x' can be no name of a run*"),
        (["--resume=17", "--run-id=17"], "--resume and --run-id both name a run*"),
        (["--resume=17", "-m", "cluster"], "--resume=17 takes the tests and options of that run*"),
        (["--resume=17", "--size=smoke"], "--resume=17 takes the tests and options of that run*"),
        (["--resume=17", "--each-node=cn1"], "--resume=17 takes the tests and options of that run*"),
        (["--resume=17", "test_a.py"], "--resume=17 takes the tests and options of that run*"),
        (["--resume=done"], "--resume: run done has ended; its results are in *runs/done"),
        (["--resume=packed"], "run packed has ended and lies in *runs/old/packed.tar.gz: choose another --run-id*"),
        (["-m", "cluster", "--run-id=packed"], "run packed has ended and lies in *runs/old/packed.tar.gz*"),
        (["-m", "cluster", "--run-id=old"], "--run-id: 'old' can be no name of a run*"),
    ],
)
def test_what_cannot_be_resumed(night: Night, words: list[str], said: str) -> None:
    if words != ["--resume"]:
        test = "test_a.py::test_it[cluster-1x2gpu]"
        Journal(night.path / "runs/17", {"tests": [test], "options": {}}).end(session_history.PENDING)
        Journal(night.path / "runs/done", {"tests": [test], "options": {}}).end(session_history.DONE)
        night.project.write("runs/old/packed.tar.gz", "")
    result = night.project.pytest(*words)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"*{said}*"])
    assert night.ran("a") == 0


def test_with_no_record_its_tests_are_named_again(night: Night) -> None:
    """The journal is gone, and the folders of the jobs are there."""
    night.killed("-m", "cluster", "--run-id=17")
    for path in night.path.glob("runs/17/sessions/*"):
        path.unlink()
    night.open_gate()
    night.project.pytest_process("--resume=17", "-m", "cluster", "test_b.py", "test_c.py").assert_outcomes(passed=2)
    night.all_once()


# --- what is read ----------------------------------------------------------------------------------------------------


def test_a_result_is_read_as_it_was_written(night: Night) -> None:
    night.open_gate()
    night.project.pytest_process("-m", "cluster")
    for folder in night.path.glob("runs/2*/test_*"):
        found = job_json.read_run(folder)
        assert found is not None
        written, (run, text) = json.loads((folder / "run.json").read_text()), found
        names = ("name", "test", "platform", "benchmark", "layout", "effective_throughput", "compute_fraction")
        assert {name: getattr(run, name) for name in names} == {name: written[name] for name in names}
        assert (run.status.state, run.status.run_s, text) == (written["state"], written["run_s"], written["error"])
        assert [vars(window) for window in run.windows] == written["windows"]


# --- a terminal ------------------------------------------------------------------------------------------------------


class Terminal:
    """A session in a real one."""

    def __init__(self, night: Night, *args: str) -> None:
        self.pid, self.file = pty.fork()
        if self.pid == 0:
            os.chdir(night.path)
            os.execv(sys.executable, [sys.executable, "-m", "pytest", *args])
        self.said = b""

    def types(self, key: bytes) -> None:
        os.write(self.file, key)

    def until(self, true: Callable[[], object]) -> None:
        """Reading meanwhile: a terminal takes a few screens, and who writes more stands still until somebody reads."""
        end = time.monotonic() + PATIENCE_S
        while not true():
            assert time.monotonic() < end, self.said.decode()
            if select.select([self.file], [], [], 0.02)[0]:
                self.read()

    def read(self) -> bool:
        try:
            chunk = os.read(self.file, 65536)
        except OSError:
            return False
        self.said += chunk
        return bool(chunk)

    def ends(self) -> int:
        while self.read():
            pass
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def test_ctrl_c_at_a_terminal(night: Night) -> None:
    terminal = Terminal(night, "-m", "cluster")
    terminal.until(night.is_under_way)
    terminal.types(b"\x03")
    assert terminal.ends() == pytest.ExitCode.INTERRUPTED
    assert re.search(rb"cancelling [123] unfinished job", terminal.said)  # of one that has ended all is written first
    assert not (night.marks / "b/ended").exists()
    assert night.project.pytest_process("--resume").ret == pytest.ExitCode.USAGE_ERROR


def test_ctrl_c_twice_says_what_may_be_left(night: Night) -> None:
    """A scheduler that takes its time to cancel, as one far away does."""
    night.project.write(
        "slow.py", "import pathlib, time\nimport platforms.schedulers.local as local\n"
        "local.LocalScheduler.cancel = lambda self, jobs: (pathlib.Path('begun').touch(), time.sleep(600))\n"
    )  # fmt: skip
    os.environ["PYTHONPATH"] = str(night.path)
    try:
        terminal = Terminal(night, "-m", "cluster", "-p", "slow", "--run-id=17")
    finally:
        del os.environ["PYTHONPATH"]
    terminal.until(night.is_under_way)
    terminal.types(b"\x03")
    terminal.until(lambda: b"cancelling" in terminal.said and (night.path / "begun").exists())
    terminal.types(b"\x03")
    assert terminal.ends() == pytest.ExitCode.INTERRUPTED
    said = terminal.said.decode()
    assert "interrupted while its jobs were cancelled; these may still run" in said
    assert re.search(r"it-1x2gpu-k\w{7} on cluster: (submitted|queued|running)", said), said  # as it was last seen
    assert re.search(r"kill \d+  # ends the whole job", said), said
    night.open_gate()
    night.project.pytest_process("--resume=17").assert_outcomes(passed=3)  # they were not gone, and nothing is lost
    night.all_once()


def test_a_terminal_that_is_closed_leaves_the_jobs_alone(night: Night) -> None:
    terminal = Terminal(night, "-m", "cluster")
    terminal.until(night.is_under_way)
    os.close(terminal.file)
    os.waitpid(terminal.pid, 0)
    (path,) = night.path.glob("runs/2*/sessions/*.jsonl")
    past = session_history.read_session(path)
    assert past is not None
    assert past.end == session_history.PENDING
    night.open_gate()
    night.project.pytest_process("--resume").assert_outcomes(passed=3)
    night.all_once()


def test_a_hangup_before_the_terminal_refuses_a_line(night: Night) -> None:
    """Then pytest itself meets a terminal that has gone, when it reports the end. A dumb one has no live block, which
    would be erased, and so refused, before that."""
    master, slave = pty.openpty()
    command = [sys.executable, "-m", "pytest", "-m", "cluster"]
    environment = {**os.environ, "TERM": "dumb"}
    with subprocess.Popen(
        command, cwd=night.path, env=environment, stdout=slave, stderr=slave, start_new_session=True
    ) as session:
        os.close(slave)
        until(night.is_under_way)
        session.send_signal(signal.SIGSTOP)
        os.close(master)
        session.send_signal(signal.SIGHUP)
        session.send_signal(signal.SIGCONT)
    (path,) = night.path.glob("runs/2*/sessions/*.jsonl")
    past = session_history.read_session(path)
    assert past is not None
    assert past.end == session_history.PENDING
    night.open_gate()
    night.project.pytest_process("--resume").assert_outcomes(passed=3)
    night.all_once()


def test_a_hangup_after_the_terminal_refused_a_line(night: Night) -> None:
    """The kernel refuses writes (EIO) a moment before it sends SIGHUP, so the signal can meet a session that is ending.

    In its own session the process gets no SIGHUP from the kernel: the plugin sends it at the latest moment.
    """
    night.project.write(
        "late.py", "import os, signal, pytest\n"
        "@pytest.hookimpl(tryfirst=True)\n"
        "def pytest_sessionfinish(): os.kill(os.getpid(), signal.SIGHUP)\n"
    )  # fmt: skip
    master, slave = pty.openpty()
    command = [sys.executable, "-m", "pytest", "-m", "cluster", "-p", "late"]
    environment = {**os.environ, "PYTHONPATH": str(night.path)}
    with subprocess.Popen(command, cwd=night.path, env=environment, stdout=slave, stderr=slave, start_new_session=True):
        os.close(slave)
        until(night.is_under_way)
        os.close(master)
    (path,) = night.path.glob("runs/2*/sessions/*.jsonl")
    past = session_history.read_session(path)
    assert past is not None
    assert past.end == session_history.PENDING
    night.open_gate()
    night.project.pytest_process("--resume").assert_outcomes(passed=3)
    night.all_once()
