"""What the pages show of terminals is what the commands print today (tests/reporting/captures.py)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.reporting import captures

MADE_BY = tuple(f"tests/reporting/{name}.py" for name in ("captures", "demo", "report_year", "planted"))
RENEW = "python -m tests.reporting.captures --texts-only renews them"


def test_every_capture_is_made_by_the_script() -> None:
    assert {path.name for path in captures.TEXTS.iterdir()} == {*captures.COMMANDS, "session.txt", "demo.txt"}
    names = sorted(f"{picture.name}.png" for picture in (*captures.PICTURES, captures.DEMO))
    assert [name for name in names if not (captures.IMAGES / name).is_file()] == []


@pytest.mark.nightly("reporting", "harness", *MADE_BY, "docs/captures")
@pytest.mark.timeout(900)
def test_what_commands_and_a_session_print_is_what_the_captures_show(tmp_path: Path) -> None:
    made = captures.texts(tmp_path)
    shown = {path.name: path.read_text(encoding="utf-8") for path in captures.TEXTS.iterdir()}
    for file in captures.COMMANDS:
        assert made[file] == shown[file], RENEW
    for file in ("session.txt", "demo.txt"):
        assert captures.stable(made[file]) == captures.stable(shown[file]), RENEW


def test_the_page_on_reports_shows_lines_of_its_capture() -> None:
    page = (captures.ROOT / "docs" / "report.md").read_text(encoding="utf-8")
    shown = page.partition("## How was the month?")[2].split("```\n")[1].splitlines()
    lines = (captures.TEXTS / "month.txt").read_text(encoding="utf-8").splitlines()
    assert len(shown) > 5
    assert [line for line in shown if line != "…" and line not in lines] == []


def test_pictures_are_small() -> None:
    sizes = {path.name: path.stat().st_size for path in captures.IMAGES.glob("page-*.png")}
    assert {name: size for name, size in sizes.items() if size > captures.LARGEST_BYTES} == {}
