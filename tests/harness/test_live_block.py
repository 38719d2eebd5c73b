"""The live block, as a terminal shows it: drawn in one place, cut to the screen, gone before anything else is said."""

from __future__ import annotations

import random
import re
import time
from pathlib import Path

import pytest

from harness.live_block import LiveBlock
from harness.progress_lines import block_lines, state_of
from platforms.config.schema import Platform
from platforms.job import JobSpec, Layout, Metric, State, Status
from platforms.results.log_reader import Progress
from platforms.runner import Job
from tests.harness.conftest import Project
from tests.harness.terminal import Screen, Terminal


@pytest.fixture
def screen() -> Screen:
    screen = Screen()
    screen.write("above\n")
    return screen


def test_it_is_drawn_in_one_place_and_taken_away(screen: Screen) -> None:
    block = LiveBlock(screen.write, screen.size)
    for lines in (["a", "b", "c"], ["longer than before", "d"], ["e", "f", "g", "h"], ["i"]):
        block.draw(lines)
        assert screen.shown == ["above", *lines]
    block.erase()
    block.erase()
    screen.write("below\n")
    assert screen.shown == ["above", "below"]


def test_what_there_is_no_room_for_is_cut_off(screen: Screen) -> None:
    block = LiveBlock(screen.write, screen.size)
    block.draw([f"line {number} " + 50 * "x" for number in range(20)])
    assert len(screen.shown) == 1 + screen.rows - 2
    assert screen.shown[-1].startswith(f"line {block.most - 1} ")
    assert max(map(len, screen.shown)) == screen.columns - 1
    block.erase()
    assert screen.shown == ["above"]


def waiting_jobs(folder: Path, count: int) -> list[Job]:
    layout = Layout(1, 1, "cpu")
    return [
        Job(
            JobSpec(f"job-{number}", f"test_a.py::test_a[far-{number}]", "far", layout, ()),
            Platform(name="far"),
            folder,
        )
        for number in range(count)
    ]


@pytest.mark.parametrize(("most", "shown"), [(1, 0), (2, 0), (5, 3), (20, 18), (21, 20), (50, 20)])
def test_of_many_jobs_those_that_there_is_room_for(tmp_path: Path, most: int, shown: int) -> None:
    jobs = waiting_jobs(tmp_path, 20)
    head, *lines = block_lines(jobs[7], jobs, most)
    assert "  0 of 20 jobs done, 20 to be submitted  " in head
    assert [line.split()[0] for line in lines[: min(1, shown)]] == ["test_a[far-7]"][:shown]
    assert len([line for line in lines if "test_a[" in line]) == shown
    assert lines[shown:] == ([f"(and {20 - shown} more)"] if shown < 20 else [])


def test_a_line_begins_with_what_a_narrow_terminal_must_show(tmp_path: Path) -> None:
    job, other = waiting_jobs(tmp_path, 2)
    job.status = Status(State.RUNNING, started_s=time.time() - 240)
    job.progress = Progress(left_s=260.0)
    head, line, waiting = block_lines(job, [job, other], 10)
    assert head.startswith("         0 of 2 jobs done, ")
    assert line.startswith(" ~4 min  test_a[far-0]  running")
    assert waiting.startswith("         test_a[far-1]  queued: not submitted yet")


@pytest.mark.parametrize(
    ("throughput", "shown"),
    [
        (Metric(9.1234, "samples/s"), "9.12 samples/s"),
        (Metric(2500.0, "samples/s"), "2500 samples/s"),
        (Metric(46096.3, "tokens/s"), "46096 tokens/s"),
    ],
)
def test_how_fast_a_job_is_stands_in_its_unit(tmp_path: Path, throughput: Metric, shown: str) -> None:
    (job,) = waiting_jobs(tmp_path, 1)
    job.status = Status(State.RUNNING)
    job.progress = Progress(throughput=throughput)
    assert state_of(job).endswith(shown)


@pytest.mark.parametrize(
    ("left_s", "shown"), [(None, ""), (0.0, "<1 min"), (59.0, "~1 min"), (5000.0, "~83 min"), (9000.0, "~2.5 h")]
)
def test_how_long_a_job_still_takes_has_no_more_digits_than_are_known(
    tmp_path: Path, left_s: float | None, shown: str
) -> None:
    (job,) = waiting_jobs(tmp_path, 1)
    job.status = Status(State.RUNNING)
    job.progress = Progress(left_s=left_s)
    _head, line = block_lines(job, [job], 10)
    assert line.startswith(f"{shown:>7}  test_a[far-0]")


def test_a_jobs_words_move_no_cursor(screen: Screen) -> None:
    block = LiveBlock(screen.write, screen.size)
    block.draw(["why: \x1b[2Jgone\r\nand\x07 \x9b31m more", "next"])
    assert screen.shown == ["above", "why:  [2Jgone and   31m more", "next"]


@pytest.mark.parametrize("seed", range(20))
def test_whatever_is_drawn_nothing_is_left_of_it(seed: int) -> None:
    """Also when the window is made smaller and larger meanwhile, so that lines of the block wrap."""
    dice, screen = random.Random(seed), Screen(60, 40)
    block, said = LiveBlock(screen.write, screen.size), []
    for number in range(100):
        if dice.random() < 0.2:
            block.erase()
            said.append(f"line {number}")
            screen.write(f"line {number}\n")
        else:
            block.draw(["x" * dice.randint(0, 80) for _ in range(dice.randint(1, 6))])
        if dice.random() < 0.2:
            screen.columns, screen.rows = dice.randint(15, 80), dice.randint(35, 45)
    block.erase()
    assert screen.shown == (said or [""])


# --- in a session -----------------------------------------------------------------------------------------------------


@pytest.fixture
def training(project: Project) -> Project:
    """Two tests whose jobs report 8 steps of half a second."""
    project.job_test("steps=8", name="test_first.py")
    project.job_test("steps=8", name="test_second.py")
    return project


@pytest.mark.slow
def test_a_session_shows_ids_and_what_is_left_and_takes_all_of_it_away(training: Project) -> None:
    terminal = Terminal(training, "-m", "local", "--run-id=1", columns=100)
    assert terminal.ends() == 0
    sent = terminal.said
    assert re.search(r"<1 min  test_it\[local-1x1cpu\]  running  0:0\d  window  step \d/8  9 sam", sent)
    assert re.search(r" {9}test_it\[local-1x1cpu\]  queued: not submitted", sent)
    assert len(re.findall(r"of 2 jobs done", sent)) < 15  # in 8 seconds: once a second
    screen = Screen(1000, 41)  # pytest's own lines are longer than its terminal
    screen.write(re.sub(r"\x1b\[[\d;]*m", "", sent))
    shown = "\n".join(screen.shown)
    assert "step" not in shown
    assert "jobs done" not in shown
    assert "2 passed" in screen.shown[-1]
