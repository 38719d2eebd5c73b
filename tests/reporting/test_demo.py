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
def out(folder: Path) -> str:
    return run("tests.reporting.demo", str(folder), folder=demo.ROOT, COLUMNS="80")


@pytest.fixture(scope="module")
def said(out: str) -> dict[str, str]:
    """What each command of the demo has printed, by the line that was typed, in their order."""
    found = re.split(r"^\$ (.+)\n", out.replace(" \\\n   ", ""), flags=re.MULTILINE)[1:]
    pairs = zip(found[::2], found[1::2], strict=True)
    return {f"{number}: {typed}": text for number, (typed, text) in enumerate(pairs)}


def test_it_types_the_commands_of_a_morning_in_their_order(said: dict[str, str]) -> None:
    commands = [shlex.split(typed)[4] for typed in said]
    assert commands == ["trend", "nodes", "judge", "ack", "judge", "html"]


def test_each_command_says_what_its_heading_promises(said: dict[str, str], folder: Path) -> None:
    trend, nodes, red, ack, known, html = said.values()
    assert "8 of 18 tests are slower, on" in trend
    assert "scontrol update nodename=nid005207 state=drain" in nodes
    assert "waiting for data" in red
    assert "new Lustre file system" in red
    assert "1 red" in red
    assert "(exit code 1, for cron and CI)" in red
    assert "amber until the night of" in ack
    assert "1 acknowledged" in known
    assert "exit code" not in known
    assert "7 of 18 tests are slower" in html
    assert (folder / "report.html").stat().st_size > 10_000


def test_it_warns_of_nothing_and_fits_into_a_narrow_terminal(out: str, folder: Path) -> None:
    assert "warning" not in out
    wide = [line for line in out.splitlines() if len(line) > 80 and "python -m" not in line and str(folder) not in line]
    assert wide == []


def test_a_command_can_be_typed_again_from_any_folder(said: dict[str, str], folder: Path, tmp_path: Path) -> None:
    path = str(demo.ROOT)  # as `pip install -e .` makes it
    for typed in said:
        code = 1 if "nodes" in typed else 0
        run(*shlex.split(typed)[3:], folder=tmp_path, code=code, HPC_ML_BENCH_SITE=str(folder), PYTHONPATH=path)


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
    assert "Traceback" not in refused


def test_a_folder_that_cannot_be_made_is_said_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    refused = run("tests.reporting.demo", str(tmp_path / "file" / "new"), folder=demo.ROOT, code=1)
    assert "demo: [Errno" in refused
    assert "Traceback" not in refused


def test_it_needs_nothing_of_the_jobs_and_nothing_of_the_tests() -> None:
    code = "import sys, tests.reporting.demo; print(*{name.partition('.')[0] for name in sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], cwd=demo.ROOT, capture_output=True, text=True, check=True)
    assert not {"torch", "numpy", "PIL", "playwright", "xdist", "models"} & set(done.stdout.split())
