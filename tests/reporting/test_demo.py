"""`make demo`: the suite's commands over a simulated centre, in one folder, with what `pip install -e .` installs."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.reporting import demo

pytestmark = pytest.mark.slow


def run(*words: str, folder: Path, code: int = 0, **environ: str) -> str:
    """What a module prints, as a reader's terminal would show it: both streams, in the order of the writes."""
    done = subprocess.run(
        [sys.executable, "-m", *words],
        cwd=folder,
        env={**os.environ, "COLUMNS": "100", **environ},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == code, done.stdout
    return done.stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("demo") / "centre"


@pytest.fixture(scope="module")
def said(folder: Path) -> dict[str, str]:
    """What each command of the demo has printed, by the line that was typed, in their order."""
    out = run("tests.reporting.demo", str(folder), folder=demo.ROOT)
    found = re.split(r"^\$ (.+)\n", out, flags=re.MULTILINE)[1:]
    pairs = zip(found[::2], found[1::2], strict=True)
    return {f"{number}: {typed}": text for number, (typed, text) in enumerate(pairs)}


def test_it_types_the_commands_of_a_morning_in_their_order(said: dict[str, str]) -> None:
    commands = [shlex.split(typed)[4] for typed in said]
    assert commands == ["trend", "judge", "ack", "judge", "show", "nodes", "html"]


def test_each_command_says_what_its_heading_promises(said: dict[str, str], folder: Path) -> None:
    trend, red, ack, known, show, nodes, html = said.values()
    assert "8 of 18 tests are slower, on" in trend
    assert "waiting for data" in red
    assert "new Lustre file system" in red
    assert "1 red" in red
    assert "(exit code 1, for cron and CI)" in red
    assert "amber until the night of" in ack
    assert "1 acknowledged" in known
    assert "exit code" not in known
    assert "driver 570.124.06 -> 580.65.06" in show
    assert "scontrol update nodename=nid005207 state=drain" in nodes
    assert "7 of 18 tests are slower" in html
    assert (folder / "report.html").stat().st_size > 10_000


def test_a_command_can_be_typed_again_from_any_folder(said: dict[str, str], folder: Path, tmp_path: Path) -> None:
    typed = next(one for one in said if "judge" in one)
    words = shlex.split(typed)[3:]
    path = str(demo.ROOT)  # as `pip install -e .` makes it
    again = run(*words, folder=tmp_path, HPC_ML_BENCH_SITE=str(folder), PYTHONPATH=path)
    assert "1 acknowledged" in again


def test_everything_is_in_the_folder_and_it_is_not_written_over(said: dict[str, str], folder: Path) -> None:
    assert {path.name for path in folder.iterdir()} == {
        "history",
        "platforms",
        "references",
        "report.html",
        "site.yaml",
        "truth.json",
    }
    refused = run("tests.reporting.demo", str(folder), folder=demo.ROOT, code=1)
    assert f"demo: {folder} has a history already" in refused


def test_it_needs_nothing_of_the_jobs_and_nothing_of_the_tests() -> None:
    code = "import sys, tests.reporting.demo; print(*{name.partition('.')[0] for name in sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], cwd=demo.ROOT, capture_output=True, text=True, check=True)
    assert not {"torch", "numpy", "PIL", "playwright", "xdist", "models"} & set(done.stdout.split())
