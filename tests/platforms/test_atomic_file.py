"""Files that are written as a whole or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from platforms import atomic_file


@pytest.mark.parametrize("name", ["no/such/table.csv", "folder"])
def test_a_failure_names_the_file_that_was_asked_for_and_leaves_no_draft(tmp_path, name):
    (tmp_path / "folder").mkdir()
    path = tmp_path / name
    with pytest.raises(OSError) as failure:
        atomic_file.write_text(path, "a,b\n")
    assert str(failure.value).endswith(f": '{path}'")
    assert [found.name for found in tmp_path.iterdir()] == ["folder"]


def test_a_full_disk_is_told_with_the_file(tmp_path):
    """The system names no file then."""
    path = tmp_path / "table.csv"
    with pytest.raises(OSError) as failure, Path("/dev/full").open("wb", buffering=0) as full:
        atomic_file.write_bytes(path, (bytes(full.write(b"a")) for _ in range(1)))
    assert str(failure.value) == f"[Errno 28] No space left on device: '{path}'"


def test_a_failure_of_the_content_keeps_its_own_name_and_the_old_file(tmp_path):
    path = tmp_path / "bundle.zip"
    path.write_bytes(b"old")
    with pytest.raises(FileNotFoundError, match="missing"):
        atomic_file.write_bytes(path, (Path(part).read_bytes() for part in ["missing"]))
    assert path.read_bytes() == b"old"
    assert [found.name for found in tmp_path.iterdir()] == ["bundle.zip"]
