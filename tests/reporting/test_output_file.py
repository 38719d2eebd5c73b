"""`-o FILE` of every command that has it: a place where no file can be is refused in one sentence."""

from __future__ import annotations

from pathlib import Path

import pytest

from platforms.job import RefusedError
from reporting.__main__ import main
from reporting.commands.output_file import refuse_place

COMMANDS = (
    ("data", "report.json"),
    ("html", "report.html"),
    ("table", "table.txt"),
    ("export openmetrics", "history.om"),
    ("export grafana", "dashboard.json"),
    ("export bundle", "runs.tar.gz"),
)


@pytest.mark.parametrize(("command", "example"), COMMANDS)
def test_a_folder_is_refused_with_a_file_in_it(
    command: str, example: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / f"folder{Path(example).suffix}"
    folder.mkdir()
    assert main([*command.split(), "-o", str(folder)]) == 2
    said = f"error: {folder}: this is a folder, and FILE is a file (-o {folder / example})\n"
    assert capsys.readouterr().err == said


@pytest.mark.parametrize("command", ["data", "table", "export grafana", "export bundle"])
def test_a_device_is_refused(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*command.split(), "-o", "/dev/full"]) == 2
    assert "error: /dev/full: this is no file, and cannot be replaced by one (-o " in capsys.readouterr().err


def test_a_missing_folder_is_made_by_the_command_that_is_printed() -> None:
    with pytest.raises(RefusedError, match=r"its folder does not exist \(mkdir -p 'no such'\)"):
        refuse_place(Path("no such/x.json"), "report.json")


def test_a_failure_to_write_names_the_file_that_was_typed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", "grafana", "-o", "/proc/x.json"]) == 2
    assert capsys.readouterr().err == "error: /proc/x.json: No such file or directory\n"
