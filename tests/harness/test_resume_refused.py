"""Runs that cannot be gone on with: what --resume refuses, and where it points to."""

from __future__ import annotations

import pytest

from platforms.rundir import session_history
from platforms.rundir.session_journal import Journal
from tests.harness.night import Night


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
