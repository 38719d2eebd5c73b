"""What of a run becomes an artifact: all of it that is small, and the end of what is large."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline import artifacts
from pipeline.artifacts import copy_evidence


@pytest.fixture
def run_folder(tmp_path: Path) -> Path:
    job = tmp_path / "run/test_x"
    (job / "work").mkdir(parents=True)
    (job / "run.json").write_text("{}")
    (job / "work/steps.csv.gz").write_text("large, and in no artifact")
    (job / "link").symlink_to("/etc/passwd")
    return tmp_path / "run"


def names(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def test_records_are_copied_and_work_folders_and_links_are_not(run_folder: Path, tmp_path: Path) -> None:
    copy_evidence(run_folder, tmp_path / "out")
    assert names(tmp_path / "out") == {"test_x/run.json"}


def test_of_a_large_file_the_end_is_copied(run_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(artifacts, "FILE_BYTES", 10)
    (run_folder / "test_x/log").write_text("the beginning, the end")
    copy_evidence(run_folder, tmp_path / "out")
    assert (tmp_path / "out/test_x/log").read_text() == "g, the end"


def test_a_later_copy_takes_the_place_of_an_earlier_one(run_folder: Path, tmp_path: Path) -> None:
    copy_evidence(run_folder, tmp_path / "out")
    (run_folder / "test_x/run.json").rename(run_folder / "test_x/submitted.json")
    copy_evidence(run_folder, tmp_path / "out")
    assert names(tmp_path / "out") == {"test_x/submitted.json"}
