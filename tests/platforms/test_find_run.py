"""Which run a command means by what was typed."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest

from platforms.commands import find_run
from platforms.job import RefusedError


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """A folder with two runs; `latest` leads to the first of them."""
    folder = tmp_path / "runs"
    for began_s, run_id in enumerate(("evening", "night")):
        sessions = folder / run_id / "sessions"
        sessions.mkdir(parents=True)
        head = {"schema": 1, "began_s": began_s, "host": "login1", "process": {"pid": 1}, "beat_s": 5.0, "plan": {}}
        (sessions / "20261120T220000Z-1a2b3c.jsonl").write_text(json.dumps(head) + "\n")
    (folder / find_run.LATEST).symlink_to("evening")
    return folder


def test_a_run_is_named_by_its_id_or_its_folder(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(runs.parent)
    (runs.parent / "link").symlink_to(runs)
    words = ["night", "night/", "runs/night/", str(runs / "night"), "runs/evening/../night", "../%s/.//link/night"]
    for word in words:
        assert find_run.named(runs, word.replace("%s", runs.parent.name)) == "night"
        assert find_run.named(Path("link/../runs"), word.replace("%s", runs.parent.name)) == "night"
    for word in ("nigh", ""):
        with pytest.raises(RefusedError):
            find_run.named(runs, word)


def test_the_link_says_which_run_is_the_latest(runs: Path) -> None:
    assert find_run.named(runs, "latest") == "evening"


def test_a_folder_of_runs_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RefusedError, match="--runs-dir: there is no folder"):
        find_run.runs_folder(argparse.Namespace(runs_dir=str(tmp_path / "nowhere"), site=None))
    (tmp_path / "link").symlink_to(tmp_path / "unmounted")
    with pytest.raises(RefusedError, match="is its file system mounted"):
        find_run.runs_folder(argparse.Namespace(runs_dir=str(tmp_path / "link"), site=None))
