"""Going on with a run: after kill -9, after an interrupt, or when a session stopped waiting."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import time

import pytest

from platforms.__main__ import main
from platforms.commands import find_run
from platforms.rundir import job_json
from tests.harness.conftest import Project
from tests.harness.night import KILL, Night
from tests.waiting import until

pytestmark = pytest.mark.slow

THREE = ["test_it[cluster-1x2gpu]"] * 3


def test_killed_and_resumed_without_naming_anything(night: Night) -> None:
    night.killed("-m", "cluster", "--mode", "overlap")
    run_id = night.run_id()
    result = night.goes_on("--resume", "--benchmark-autosave")
    result.stdout.fnmatch_lines([f"*going on with run {run_id}: the jobs of 3 of 3 tests were begun before*"])
    assert night.saved() == THREE  # also the one that was read before the kill
    assert night.run_id() == run_id
    assert len(list(night.path.glob("runs/2*"))) == 1


def test_a_mistake_in_the_suite_leaves_the_jobs_to_resume(night: Night) -> None:
    """It ends the session, on the main thread, while a job runs."""
    program = "import harness.trials\nask = harness.trials.Trials.ask\n"
    program += "def broken(self, test):\n    raise KeyError('oops')\nharness.trials.Trials.ask = broken\n"
    session = night.imports(program, "-m", "cluster")
    assert session.ends() == 3
    assert "KeyError: 'oops'" in session.said
    assert "without a session from now on: pytest --resume" in session.said
    assert "cancelling" not in session.said
    night.goes_on()


def test_killed_before_anything_was_submitted(night: Night) -> None:
    program = f"{KILL}from platforms.runner.platform_queue import PlatformQueue\nPlatformQueue.poll_and_submit = kill\n"
    assert night.imports(program, "-m", "cluster").ends() == -signal.SIGKILL
    assert [night.ran(name) for name in "abc"] == [0, 0, 0]
    night.goes_on()


def test_a_folder_in_which_nothing_began_is_used(night: Night) -> None:
    """A session was killed after it made the folder, and before its journal names the job."""
    folder = night.path / "runs/17/test_a-test_it-cluster-1x2gpu"
    folder.mkdir(parents=True)
    (folder / "job.sh").write_text("of the session that was killed\n")
    night.goes_on("-m", "cluster", "--run-id=17")
    assert (folder / "run.json").exists()
    assert not folder.with_name(f"{folder.name}.2").exists()


def test_the_same_run_id_goes_on_as_well(night: Night) -> None:
    night.killed("-m", "cluster", "--run-id=17")
    night.goes_on("-m", "cluster", "--run-id=17", "--benchmark-autosave")
    assert night.saved() == THREE
    again = night.project.pytest("-m", "cluster", "--run-id=17")  # that run has ended: this is a new measurement
    again.assert_outcomes(passed=3)
    assert [night.ran(name) for name in "abc"] == [2, 2, 2]


def test_a_pipelines_number_is_a_run_id(night: Night, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI_PIPELINE_ID", "4711")
    assert night.project.pytest("-m", "cluster", "--wait=0").ret == 75
    night.goes_on("-m", "cluster")
    assert night.run_id() == "4711"


def test_killed_twice_and_named_by_a_word(night: Night) -> None:
    night.killed("-m", "cluster", "--run-id=17")
    night.killed("--resume", taken=1)
    night.goes_on("--resume=latest", "--benchmark-autosave")
    assert night.saved() == THREE
    result = night.project.pytest("--resume=latest")
    result.stderr.fnmatch_lines(["*--resume: run 17 has ended; its results are in *runs/17"])


def test_killed_as_it_began_to_go_on(night: Night) -> None:
    """It has claimed what the first had, and has not said a word of it."""
    night.killed("-m", "cluster")
    program = f"{KILL}from platforms.rundir import session_journal\ntake = session_journal.take_over\n"
    program += "session_journal.take_over = lambda *words: (take(*words), kill())\n"
    assert night.imports(program, "--resume").ends() == -signal.SIGKILL
    result = night.goes_on("--resume", "--benchmark-autosave")
    result.stdout.fnmatch_lines(["*3 of 3 tests were begun before*"])
    assert night.saved() == THREE


@pytest.mark.parametrize("place", ["runner.Runner", "platform_queue.PlatformQueue"])
def test_interrupted_while_it_looked_for_its_jobs(night: Night, place: str) -> None:
    night.killed("-m", "cluster", "--run-id=17")
    program = f"from platforms.runner import runner, platform_queue\nadd, seen = {place}.add, []\n\n"
    program += "def interrupted(self, *words):\n    seen.append(words)\n    if len(seen) == 2:\n"
    program += f"        raise KeyboardInterrupt\n    return add(self, *words)\n\n{place}.add = interrupted\n"
    session = night.imports(program, "--resume")
    assert session.ends() == pytest.ExitCode.INTERRUPTED
    assert "2 jobs were not looked for yet: pytest --resume=17 finds them" in session.said
    night.goes_on("--resume=17")


def test_an_interrupt_submits_nothing_of_a_run_without_a_record(night: Night) -> None:
    program = "from platforms.runner import Runner\n\n"
    program += "def interrupted(self):\n    raise KeyboardInterrupt\n\nRunner.pump = interrupted\n"
    session = night.imports(program, "--resume=17", "-m", "cluster")
    assert session.ends() == pytest.ExitCode.INTERRUPTED
    assert "3 jobs were not looked for yet: pytest --resume=17 finds them" in session.said
    assert [night.ran(name) for name in "abc"] == [0, 0, 0]
    night.goes_on("--resume=17")


def test_what_was_cancelled_by_hand_is_measured_anew(night: Night) -> None:
    """Under the same run id, as a pipeline that was cancelled and is started again."""
    assert night.project.pytest("-m", "cluster", "--run-id=17", "--wait=0").ret == 75
    until(lambda: (night.marks / "a/ended").exists() and night.ran("b"))
    assert main(["cancel", "17", f"--site={night.path / 'site'}", f"--runs-dir={night.path / 'runs'}"]) in (0, 1)
    night.open_gate()
    night.project.pytest("-m", "cluster", "--run-id=17").assert_outcomes(passed=3)
    assert [night.ran(name) for name in "ab"] == [2, 2]
    assert (night.path / "runs/17/test_a-test_it-cluster-1x2gpu.2/run.json").exists()


def test_who_never_waits_reads_what_has_ended(night: Night) -> None:
    """As cron does it."""
    night.project.pytest("-m", "cluster", "--wait=0")
    until(lambda: list(night.path.glob("runs/2*/test_a*/exit")))
    assert night.project.pytest("--resume", "--wait=0").ret == 75
    assert len(list(night.path.glob("runs/2*/test_a*/run.json"))) == 1
    night.open_gate()
    until(lambda: night.project.pytest("--resume", "--wait=0").ret == 0)
    night.all_once()


def test_sessions_with_other_options_are_gone_on_with_one_after_the_other(night: Night) -> None:
    night.waits_for_the_gate("c")
    night.project.pytest("-m", "cluster", "--run-id=17", "--mode=blocking", "test_b.py", "--wait=0")
    night.project.pytest("-m", "cluster", "--run-id=17", "--mode=overlap", "test_c.py", "--wait=0")
    until(lambda: night.ran("b") and night.ran("c"))
    night.open_gate()
    result = night.project.pytest("--resume=17")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["*then pytest --resume=17 once more: session * has left jobs that are not among*"])
    assert (night.ran("b"), night.ran("c")) == (1, 1)
    night.project.pytest("--resume=17").assert_outcomes(passed=1)
    assert (night.ran("b"), night.ran("c")) == (1, 1)
    assert find_run.unfinished(night.path / "runs") == ([], [])


def test_a_test_that_is_not_in_this_checkout_keeps_no_other_from_its_result(night: Night) -> None:
    assert night.project.pytest("-m", "cluster", "--run-id=17", "--wait=0").ret == 75
    (night.path / "test_b.py").unlink()
    result = night.project.pytest("--resume=17")
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(
        ["*not in this checkout, with this site: 1 of run 17's tests: test_b.py::*`python -m platforms cancel 17`*"]
    )
    assert find_run.unfinished(night.path / "runs") == (["17"], [])
    for name in "ac":
        (night.path / f"test_{name}.py").rename(night.path / f"test_new_{name}.py")
    result = night.project.pytest("--resume=17")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*not in this checkout, with this site: 3 of run 17's tests*"])
    night.open_gate()


def test_the_site_is_remembered(night: Night) -> None:
    (night.path / "site").rename(night.path / "elsewhere")
    assert night.project.pytest("-m", "cluster", "--site=elsewhere", "--runs-dir=runs", "--wait=0").ret == 75
    night.goes_on("--resume", "--runs-dir=runs")


def test_what_stands_in_addopts_was_not_typed_now(night: Night, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_ADDOPTS", "-m cluster --mode=overlap")
    assert night.project.pytest("--wait=0").ret == 75
    night.goes_on()


def test_of_several_runs_one_is_resumed_whose_session_is_dead(night: Night) -> None:
    night.waits_for_the_gate("a", "gate-a")
    night.project.pytest("-m", "cluster", "--run-id=dead", "test_a.py", "--wait=0")
    (night.marks / "gate-a").touch()
    until(lambda: list(night.path.glob("runs/dead/test_a*/exit")))  # two runs take turns on this machine
    session = night.project.begin("-m", "cluster", "--run-id=live", "test_b.py")
    session.until(lambda: night.ran("b"))
    night.project.pytest("--resume").assert_outcomes(passed=1)
    night.open_gate()
    assert session.ends() == 0
    assert night.ran("a") == 1


def test_killed_after_the_last_result_before_it_was_saved(night: Night) -> None:
    """All jobs are done, and nothing has been told of them."""
    night.open_gate()
    program = f"{KILL}import pytest\n\n@pytest.hookimpl(trylast=True)\ndef pytest_sessionfinish():\n    kill()\n"
    assert night.imports(program, "-m", "cluster", "--run-id=17").ends() == -signal.SIGKILL
    night.all_once()
    night.goes_on("-m", "cluster", "--run-id=17", "--benchmark-autosave")
    assert night.saved() == THREE


def test_results_that_cannot_be_written_leave_the_run_open(night: Night) -> None:
    full = night.path / "full"
    words = ("--benchmark-autosave", f"--benchmark-storage=file://{full}")
    session = night.project.begin("-m", "cluster", "--run-id=17", *words)
    session.until(lambda: night.ran("b"))
    shutil.rmtree(full, ignore_errors=True)
    full.write_text("a file where there was a folder, or could be made, when the session began")
    night.open_gate()
    assert session.ends() == pytest.ExitCode.INTERNAL_ERROR
    said = session.said
    assert re.search("results cannot be written: .*full.*; pytest --resume=17 reads and writes them again", said)
    assert "Traceback" not in said
    night.goes_on("--resume=17", "--benchmark-autosave")
    assert night.saved() == THREE


def test_failures_are_read_again_too(night: Night) -> None:
    night.project.job_test(f"marks={night.marks}/a", "exit=3", "words=it went wrong", name="test_a.py")
    night.killed("-m", "cluster")
    night.open_gate()
    result = night.project.pytest("--resume")
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(["*a gate failed*", "*it went wrong*"])
    night.all_once()


def test_submitted_and_left_then_resumed(night: Night) -> None:
    night.waits_for_the_gate("a")
    result = night.project.pytest("-m", "cluster", "--wait", "0")
    assert result.ret == 75
    result.stdout.fnmatch_lines(["3 jobs are PENDING, 1 not submitted yet: pytest --resume=*"])
    night.goes_on()


def test_a_session_that_lives_is_not_gone_on_with(night: Night) -> None:
    session = night.project.begin("-m", "cluster", "--run-id=17")
    session.until(night.is_under_way)
    for words in (["--resume"], ["-m", "cluster", "--run-id=17"]):
        result = night.project.pytest(*words)
        assert result.ret == pytest.ExitCode.USAGE_ERROR
        result.stderr.fnmatch_lines(
            [f"*run 17 is under way in session * (process {session.pid} on *); nothing was submitted*"]
        )
    other = night.project.pytest("-m", "cluster", "--run-id=17", "test_c.py", "--wait=0")
    assert other.ret == pytest.ExitCode.USAGE_ERROR
    night.open_gate()
    assert session.ends() == 0
    night.all_once()
    assert find_run.unfinished(night.path / "runs") == ([], [])  # those that were refused have left nothing open


def test_two_sessions_of_a_run_with_tests_of_their_own(night: Night) -> None:
    """As the jobs of a pipeline are: they have one run id, and know nothing of each other."""
    session = night.project.begin("-m", "cluster", "--run-id=17", "test_b.py")
    session.until(lambda: night.ran("b"))
    night.project.pytest("-m", "cluster", "--run-id=17", "test_a.py", "test_c.py").assert_outcomes(passed=2)
    night.open_gate()
    assert session.ends() == 0
    night.all_once()


@pytest.mark.parametrize("words", [("--resume",), ("-m", "cluster", "--run-id=17")], ids=["resumed", "new"])
def test_two_that_begin_at_once(night: Night, words: tuple[str, ...]) -> None:
    if "--resume" in words:
        night.killed("-m", "cluster")
    sessions = [night.project.begin(*words) for _ in range(2)]
    until(lambda: any(session.status is not None for session in sessions))  # nothing can end but the one refused
    night.open_gate()
    statuses = [session.ends() for session in sessions]
    assert find_run.unfinished(night.path / "runs") == ([], [])  # the one that was refused has left nothing open
    assert sorted(statuses) == [0, pytest.ExitCode.USAGE_ERROR], [session.said for session in sessions]
    night.all_once()


def test_one_that_comes_when_another_has_done_it_all(night: Night) -> None:
    """Between naming its tests and going on with them."""
    night.killed("-m", "cluster")
    program = "import pathlib, time, pytest\n\n@pytest.hookimpl(trylast=True)\ndef pytest_collection_finish():\n"
    program += "    pathlib.Path('collected').touch()\n    while not pathlib.Path('go').exists(): time.sleep(0.02)\n"
    session = night.imports(program, "--resume")
    session.until((night.path / "collected").exists)
    night.goes_on()
    (night.path / "go").touch()
    assert session.ends() == pytest.ExitCode.USAGE_ERROR
    assert "another session has just gone on with it; nothing was submitted" in session.said
    night.all_once()


def test_some_of_a_runs_tests(night: Night) -> None:
    """The others stay open."""
    night.killed("-m", "cluster", "--run-id=17")
    night.open_gate()
    result = night.project.pytest("-m", "cluster", "--run-id=17", "test_c.py")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(
        ["*1 unfinished jobs of it are not among these tests (test_b.py*): pytest --resume=17 goes on with them*"]
    )
    night.goes_on("--resume=17", "--benchmark-autosave")
    assert night.saved() == THREE


def test_what_was_left_on_another_day_is_not_tonights(night: Night) -> None:
    night.killed("-m", "cluster", "--run-id=nightly")
    night.open_gate()
    until(lambda: (night.marks / "b/ended").exists())
    (old,) = night.path.glob("runs/nightly/sessions/*.jsonl")
    os.utime(old, (time.time() - 86400,) * 2)
    result = night.project.pytest("-m", "cluster", "--run-id=nightly")
    result.assert_outcomes(passed=3)
    result.stdout.fnmatch_lines(["*is of another day: pytest --resume=nightly reads it*"])
    assert [night.ran(name) for name in "ab"] == [2, 2]
    assert night.project.pytest("--resume=nightly").ret == 0
    assert [night.ran(name) for name in "ab"] == [2, 2]


def test_code_that_has_changed_meanwhile_is_told(night: Night) -> None:
    night.killed("-m", "cluster")
    (path,) = night.path.glob("runs/2*/sessions/*.jsonl")
    path.write_text(path.read_text().replace('"code": []', '"code": ["models-0123456789ab.pyz"]'))
    text = path.read_text().splitlines(keepends=True)
    path.write_text("".join(line for line in text if "test_c.py::" not in line or '"plan"' in line))
    night.open_gate()
    result = night.project.pytest("--resume")
    result.assert_outcomes(passed=3)
    result.stdout.fnmatch_lines(["*2 of 3 tests were begun before*", "*the code has changed since*"])


def test_with_no_record_its_tests_are_named_again(night: Night) -> None:
    """The journal is gone, and the folders of the jobs are there."""
    night.killed("-m", "cluster", "--run-id=17")
    for path in night.path.glob("runs/17/sessions/*"):
        path.unlink()
    night.open_gate()
    night.project.pytest("--resume=17", "-m", "cluster", "test_b.py", "test_c.py").assert_outcomes(passed=2)
    night.all_once()


# --- what is read ----------------------------------------------------------------------------------------------------


def test_a_result_is_read_as_it_was_written(project: Project) -> None:
    project.job_test()
    project.pytest()
    (folder,) = project.path.glob("runs/2*/test_*")
    found = job_json.read_run(folder)
    written, (run, text) = json.loads((folder / "run.json").read_text()), found
    names = ("name", "test", "platform", "benchmark", "layout", "effective_throughput", "compute_fraction")
    assert {name: getattr(run, name) for name in names} == {name: written[name] for name in names}
    assert (run.status.state, run.status.run_s, text) == (written["state"], written["run_s"], written["error"])
    assert [vars(window) for window in run.windows] == written["windows"]
