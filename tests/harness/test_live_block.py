"""The live block, as a terminal shows it: drawn in one place, cut to the screen, gone before anything else is said."""

from __future__ import annotations

import os
import random
import re
from pathlib import Path

import pytest

from harness.console import block_lines
from harness.live_block import LiveBlock
from platforms.config.schema import Platform
from platforms.job import JobSpec, Layout
from platforms.runner import Job


class Screen:
    """What a terminal of some size shows of what is written to it; lines that wrapped would be seen."""

    def __init__(self, columns: int = 40, rows: int = 10) -> None:
        self.columns, self.rows = columns, rows
        self.lines, self.row, self.column = [""], 0, 0

    def size(self) -> os.terminal_size:
        return os.terminal_size((self.columns, self.rows))

    def write(self, text: str) -> None:
        for part in re.findall(r"\x1b\[\d+[A-Z]|\r|\n|[^\x1b\r\n]+|.", text):
            if part == "\r":
                self.column = 0
            elif part == "\n":
                self.row, self.column = self.row + 1, 0
                self.lines += [""] * (self.row + 1 - len(self.lines))
            elif part == "\x1b[2K":
                self.lines[self.row] = ""
            elif part == "\x1b[1A":
                assert len(self.lines) - self.row < self.rows, "above the screen nothing can be changed"
                self.row -= 1
            else:
                assert "\x1b" not in part
                line = self.lines[self.row].ljust(self.column)
                self.lines[self.row] = line[: self.column] + part + line[self.column + len(part) :]
                self.column += len(part)
                assert self.column < self.columns, "it wraps"

    @property
    def shown(self) -> list[str]:
        return [*"\n".join(self.lines).rstrip("\n").split("\n")]


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


@pytest.mark.parametrize(("most", "shown"), [(1, 0), (2, 0), (5, 3), (20, 18), (21, 20), (50, 20)])
def test_of_many_jobs_those_that_there_is_room_for(tmp_path: Path, most: int, shown: int) -> None:
    layout = Layout(1, 1, "cpu")
    jobs = [
        Job(JobSpec(f"job-{number}", f"test_{number}", "far", layout, ()), Platform(name="far"), tmp_path)
        for number in range(20)
    ]
    head, *lines = block_lines(jobs[7], jobs, most)
    assert head.endswith("0 of 20 jobs done, 20 to be submitted")
    assert [line.partition(" ")[0] for line in lines[: min(1, shown)]] == ["job-7"][:shown]
    assert len([line for line in lines if line.startswith("job-")]) == shown
    assert lines[shown:] == ([f"(and {20 - shown} more)"] if shown < 20 else [])


def test_a_jobs_words_move_no_cursor(screen: Screen) -> None:
    block = LiveBlock(screen.write, screen.size)
    block.draw(["why: \x1b[2Jgone\r\nand\x07 \x9b31m more", "next"])
    assert screen.shown == ["above", "why:  [2Jgone and   31m more", "next"]


@pytest.mark.parametrize("seed", range(20))
def test_whatever_is_drawn_nothing_is_left_of_it(seed: int) -> None:
    """Also when the window is made smaller and larger meanwhile, as far as lines do not wrap by that."""
    dice, screen = random.Random(seed), Screen(60, 12)
    block, said = LiveBlock(screen.write, screen.size), []
    for number in range(100):
        if dice.random() < 0.2:
            block.erase()
            said.append(f"line {number}")
            screen.write(f"line {number}\n")
        else:
            screen.rows = 12 if dice.random() < 0.8 else dice.randint(8, 20)
            block.draw(["x" * dice.randint(0, 80) for _ in range(dice.randint(1, 6))])
    block.erase()
    assert screen.shown == (said or [""])
