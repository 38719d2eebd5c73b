"""What a session writes into the history: who writes which line, also with kill -9 in between."""

from __future__ import annotations

import json
import shutil
import signal
from pathlib import Path

import pytest

from platforms.__main__ import main
from platforms.job import Outcome
from platforms.schedulers import SCHEDULERS
from reporting.history import reader
from reporting.history.envelope import Envelope, Revision
from tests.harness.conftest import Project
from tests.harness.night import KILL

TEST = "test_mine.py::test_it[local-1x1cpu]"
ENDED = (Revision.TEST_ENDED, Outcome.PASSED, True)


def entries(project: Project, folder: str = "site/history") -> list[Envelope]:
    problems: list[str] = []
    found = reader.read(project.path / folder, problems=problems)
    assert problems == []
    return found


def states(project: Project) -> list[tuple[int, Outcome, bool]]:
    return [(one.revision, one.outcome, one.sane) for one in entries(project)]


def lines(project: Project) -> int:
    """How many lines all files of envelopes have."""
    files = [path for path in project.path.glob("site/history/*/*.jsonl") if not path.name.endswith(".runs.jsonl")]
    return sum(path.read_text().count("\n") for path in files)


def killed_in(project: Project, method: str, *words: str) -> None:
    """A session that is killed when it calls a method of HistoryEntries."""
    program = f"{KILL}from harness.history_entries import HistoryEntries\nHistoryEntries.{method} = kill\n"
    project.write("deadly.py", program)
    session = project.begin("-p", "deadly", *words)
    assert session.ends() == -signal.SIGKILL, session.said


# --- a session that ends ---------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_test_that_passes_has_one_entry_and_its_run_json(project: Project) -> None:
    project.job_test()
    project.pytest("--run-id=17").assert_outcomes(passed=1)
    (entry,) = entries(project)
    assert (entry.revision, entry.outcome, entry.sane) == ENDED
    assert (entry.key.run_id, entry.key.test, entry.key.attempt) == ("17", TEST, 1)
    assert entry.metrics["effective_throughput"].value == pytest.approx(50)
    assert entry.platform == "local"
    folder = project.path / "runs/17/test_mine-test_it-local-1x1cpu"
    submitted = json.loads((folder / "submitted.json").read_text())
    assert (entry.key.job_id, entry.key.submitted_s) == (submitted["job_id"], submitted["submitted_s"])
    assert reader.run_of(project.path / "site/history", entry) == json.loads((folder / "run.json").read_text())
    assert (folder / "in_history").read_text() == f"{project.path}/site/history\n"


BODIES = {
    "assert False": (Outcome.FAILED, False),
    "record(run); assert False": (Outcome.FAILED, False),
    "record(run); pytest.skip('not today')": (Outcome.SKIPPED, False),
    "record(run); pytest.xfail('known')": (Outcome.FAILED, False),
    "pass": (Outcome.PASSED, False),
    "record(run); request.addfinalizer(lambda: 1 / 0)": (Outcome.ERROR, False),
    "record(run)": (Outcome.PASSED, True),
}


@pytest.mark.slow
def test_the_entries_have_the_outcomes_of_their_tests(project: Project) -> None:
    project.job_test()
    path = project.path / "test_mine.py"
    text = path.read_text().replace("run, record", "run, record, request")
    head, _, test = text.partition("@pytest")
    tests = [
        f"@pytest{test}".replace("record(run)", body).replace("test_it", f"test_{n}") for n, body in enumerate(BODIES)
    ]
    path.write_text(head + "\n".join(tests))
    project.pytest()
    found = {
        entry.key.test.partition("[")[0][-1]: (entry.revision, entry.outcome, entry.sane) for entry in entries(project)
    }
    assert found == {str(n): (Revision.TEST_ENDED, *ended) for n, ended in enumerate(BODIES.values())}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "python", "outcome"),
    [(("exit=1",), "{python}", Outcome.FAILED), ((), "/no/such/python", Outcome.ERROR)],
)
def test_the_entry_of_a_job_that_failed_is_not_sane(
    project: Project, words: tuple[str, ...], python: str, outcome: Outcome
) -> None:
    project.job_test(*words)
    path = project.path / "test_mine.py"
    path.write_text(path.read_text().replace("{python}", python))
    project.pytest()
    assert states(project) == [(Revision.TEST_ENDED, outcome, False)]


LOSING = """
from dataclasses import replace

from platforms.job import State
from platforms.schedulers import Backend
from platforms.schedulers.local import LocalScheduler

class LosingBackend(Backend):
    def connect(self, platform):
        return Losing(platform)

class Losing(LocalScheduler):
    lost = None

    def status(self, jobs):
        found = dict(super().status(jobs))
        for job in jobs:
            Losing.lost = Losing.lost or job.job_id
            if job.job_id == Losing.lost and not found[job.job_id].state.live:
                found[job.job_id] = replace(found[job.job_id], state=State.NODE_LOST)
        return found
"""


@pytest.mark.slow
def test_every_attempt_of_a_job_has_an_entry_and_a_line(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SCHEDULERS, "losing", "losing:LosingBackend")
    project.write("losing.py", LOSING)
    project.pytester.syspathinsert()
    project.job_test()
    project.write("site/platforms/it.yaml", "scheduler: losing\ndevice: cpu\nlayouts: {default: [1x1]}\npoll_s: 0.1\n")
    project.write("site/site.yaml", "enabled: [it]\n")
    result = project.pytest("-q", "--platform", "it")
    result.assert_outcomes(passed=1)
    (said,) = [line for line in result.outlines if "begun again" in line and " on it: queued" in line]
    assert "ended as node lost" in said, "also under -q"
    assert [(one.key.attempt, one.revision, one.outcome) for one in entries(project)] == [
        (1, Revision.JOB_ENDED, Outcome.ERROR),
        (2, Revision.TEST_ENDED, Outcome.PASSED),
    ]


@pytest.mark.slow
def test_the_folder_is_named_by_the_option_else_by_the_site(project: Project) -> None:
    project.job_test()
    project.write("site/site.yaml", "history: ../records\nname: epcc\n")
    (project.path / "records").mkdir()
    (project.path / "elsewhere").mkdir()
    project.pytest().assert_outcomes(passed=1)
    project.pytest("--history=elsewhere").assert_outcomes(passed=1)
    assert not (project.path / "site/history").exists()
    assert [entry.key.site for entry in entries(project, "records")] == ["epcc"]
    assert len(entries(project, "elsewhere")) == 1


@pytest.mark.parametrize("typed", [True, False], ids=["option", "site.yaml"])
def test_a_named_history_that_is_gone_is_refused_before_the_jobs(project: Project, typed: bool) -> None:
    project.job_test()
    gone = project.path / "not mounted" / "history"
    if typed:
        result = project.pytest(f"--history={gone}")
        where = "--history"
    else:
        project.write("site/site.yaml", f"name: epcc\nhistory: {gone}\n")
        result = project.pytest()
        where = f"{project.path}/site/site.yaml:2: history"
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(
        [f"ERROR: {where}: there is no folder {gone}: is *mounted*: mkdir -p '{gone}'. Nothing was submitted"]
    )
    assert not gone.parent.exists()
    assert not project.jobs()


@pytest.mark.slow
def test_a_session_says_that_it_begins_a_history(project: Project) -> None:
    project.job_test()
    line = f"history: {project.path}/site/history has no run yet: this session begins a new history"
    project.pytest("-q").stdout.fnmatch_lines([line])
    project.pytest().stdout.no_fnmatch_line(line)
    shutil.rmtree(project.path / "site/history")
    project.pytest().stdout.fnmatch_lines([line])


def test_a_history_that_cannot_be_written_is_refused_before_the_jobs(project: Project) -> None:
    project.job_test()
    project.write("taken", "a file\n")
    said = "ERROR: *taken*: the history cannot be written*--history=DIR*Nothing was submitted"
    project.refuses("--history=taken", says=said)


# --- jobs that outlive their session ---------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_job_that_is_left_is_pending_until_a_later_session_reads_it(project: Project) -> None:
    project.job_test(f"gate={project.path}/gate")
    (project.path / "mine").mkdir()
    assert project.pytest("--wait=0", "--history=mine").ret == 75
    (entry,) = entries(project, "mine")
    assert (entry.revision, entry.outcome, entry.sane) == (Revision.PENDING, Outcome.PENDING, False)
    (project.path / "gate").touch()
    project.pytest("--resume").assert_outcomes(passed=1)  # in the same history, without naming it
    (final,) = entries(project, "mine")
    assert final.key == entry.key
    assert (final.revision, final.outcome, final.sane) == ENDED
    assert not (project.path / "site/history").exists()


@pytest.mark.slow
def test_killed_before_the_end_of_a_job_is_written(project: Project) -> None:
    project.job_test()
    project.job_test("exit=1", name="test_other.py")
    killed_in(project, "job_ended", "test_other.py", "--run-id=17")
    assert lines(project) == 0
    (project.path / "docs").mkdir()
    result = project.pytest("test_mine.py", "--history=docs/../site/history")  # of another run, in the same history
    result.stdout.fnmatch_lines(["history: 1 entries that earlier sessions owed are written"])
    owed, mine = entries(project)
    assert (owed.key.run_id, owed.revision, owed.outcome, owed.sane) == (
        "17",
        Revision.JOB_ENDED,
        Outcome.FAILED,
        False,
    )
    assert (mine.revision, mine.outcome, mine.sane) == ENDED
    project.pytest("test_mine.py").stdout.no_fnmatch_line("history: *")  # it is owed no more
    assert len(entries(project)) == 3


@pytest.mark.slow
def test_a_run_whose_session_was_killed_is_named_until_it_is_resumed(project: Project) -> None:
    project.job_test()
    project.job_test(f"gate={project.path}/gate", name="test_other.py")
    killed_in(project, "write_owed", "test_other.py", "--run-id=17")
    line = f"run 17 was not finished: pytest --resume=17 --runs-dir={project.path}/runs reads its jobs"
    runs = f"--runs-dir={project.path}/runs"
    project.pytest("test_mine.py", "--run-id=18", "--wait=0", runs).stdout.fnmatch_lines([line])
    assert "17" not in {entry.key.run_id for entry in entries(project)}
    (project.path / "gate").touch()  # this machine runs one job at a time
    result = project.pytest("--resume=17")
    result.assert_outcomes(passed=1)
    result.stdout.no_fnmatch_line("*was not finished*")
    project.pytest("test_mine.py", runs).stdout.no_fnmatch_line("*was not finished*")


@pytest.mark.slow
def test_of_many_killed_sessions_the_last_ones_are_named(project: Project) -> None:
    project.job_test()
    for run_id in range(17, 21):
        killed_in(project, "write_owed", f"--run-id={run_id}")
    project.pytest("-q", "--run-id=21").stdout.fnmatch_lines(
        ["run 18 was *", "run 19 was *", "run 20 was *", "and 1 earlier ones: python -m platforms jobs"]
    )


@pytest.mark.slow
def test_killed_before_the_test_has_spoken(project: Project) -> None:
    project.job_test()
    killed_in(project, "test_ended", "--run-id=17")
    assert states(project) == [(Revision.JOB_ENDED, Outcome.PENDING, False)]
    project.pytest("--resume=17").assert_outcomes(passed=1)
    assert states(project) == [ENDED]


@pytest.mark.slow
def test_killed_after_everything_is_written_and_resumed_counts_once(project: Project) -> None:
    project.job_test()
    project.job_test(f"gate={project.path}/gate", name="test_other.py")
    project.killed(lambda: ENDED in states(project), "--run-id=17")
    (project.path / "gate").touch()
    project.pytest("--resume=17").assert_outcomes(passed=2)
    assert states(project) == [ENDED, ENDED]
    assert lines(project) > 3  # a test that is read again is written again, with the same key


@pytest.mark.slow
def test_what_cancel_has_ended_is_written_by_the_next_session(project: Project) -> None:
    project.job_test(f"gate={project.path}/gate", name="test_other.py")
    project.job_test()
    assert project.pytest("test_other.py", "--wait=0", "--run-id=17").ret == 75
    assert (
        main(["cancel", "17", f"--site={project.write('site/x', '').parent}", f"--runs-dir={project.path}/runs"]) == 0
    )
    assert states(project) == [(Revision.PENDING, Outcome.PENDING, False)]
    project.pytest("test_mine.py").assert_outcomes(passed=1)
    assert states(project) == [(Revision.JOB_ENDED, Outcome.ERROR, False), ENDED]


@pytest.mark.slow
def test_runs_from_before_the_history_owe_nothing(project: Project) -> None:
    project.job_test()
    killed_in(project, "job_ended", "--run-id=17")
    (journal,) = project.path.glob("runs/17/sessions/*.jsonl")
    first, *others = journal.read_text().splitlines(keepends=True)
    head = json.loads(first)
    del head["plan"]["history"]
    journal.write_text("".join([json.dumps(head) + "\n", *others]))
    project.pytest("--run-id=18").assert_outcomes(passed=1)
    assert [entry.key.run_id for entry in entries(project)] == ["18"]


@pytest.mark.slow
def test_a_job_that_an_ended_session_never_submitted_has_not_failed(project: Project) -> None:
    project.job_test(f"gate={project.path}/gate", f"marks={project.path}/marks")
    project.job_test(name="test_second.py")  # it waits until the first one ends
    (project.path / "marks").mkdir()
    session = project.begin()
    session.until((project.path / "marks/started").exists)
    session.send(signal.SIGTERM)
    session.ends()
    outcomes = {entry.key.test: entry.outcome for entry in entries(project)}
    assert outcomes == {TEST: Outcome.ERROR, TEST.replace("test_mine", "test_second"): Outcome.SKIPPED}


@pytest.mark.slow
def test_a_history_that_cannot_be_written_any_more_leaves_the_run_open(project: Project) -> None:
    project.job_test()
    path = project.path / "test_mine.py"
    path.write_text(path.read_text().replace("record(run)", "record(run); spoil()") + SPOIL)
    result = project.pytest("--run-id=17")
    assert result.ret == pytest.ExitCode.INTERNAL_ERROR
    text = result.stdout.str() + result.stderr.str()
    assert "results cannot be written: " in text
    assert "pytest --resume=17 reads and writes them again" in text
    (project.path / "site/history").unlink()
    shutil.move(project.path / "site/aside", project.path / "site/history")
    project.write("spoiled", "")
    project.pytest("--resume=17").assert_outcomes(passed=1)
    assert states(project) == [ENDED]


SPOIL = """
import pathlib

def spoil():
    history = pathlib.Path(__file__).parent / "site/history"
    if not history.parent.parent.joinpath("spoiled").exists():
        history.rename(history.with_name("aside"))
        history.write_text("in the way")
"""


@pytest.mark.slow
def test_a_retry_of_the_same_run_id_is_another_entry(project: Project) -> None:
    project.job_test()
    for _ in range(2):
        project.pytest("--run-id=17").assert_outcomes(passed=1)
    assert [(entry.key.run_id, entry.key.attempt) for entry in entries(project)] == [("17", 1), ("17", 2)]


@pytest.mark.slow
def test_a_run_of_another_folder_of_runs_is_left_alone(project: Project, tmp_path: Path) -> None:
    project.job_test()
    killed_in(project, "job_ended", "--run-id=17", f"--runs-dir={tmp_path}/others")
    project.pytest("--run-id=18").assert_outcomes(passed=1)
    assert [entry.key.run_id for entry in entries(project)] == ["18"]
