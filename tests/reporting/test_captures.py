"""What the pages show of terminals is what the commands print today (tests/reporting/captures.py)."""

from __future__ import annotations

import pytest

from tests.reporting import captures

pytestmark = pytest.mark.timeout(900)  # the fixture runs all commands of the pages
RENEW = "python -m tests.reporting.captures --texts-only renews them"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return captures.texts(tmp_path_factory.mktemp("captures"))


def test_every_capture_is_made_by_the_script(made: dict[str, str]) -> None:
    assert sorted(path.name for path in captures.TEXTS.iterdir()) == sorted(made)
    names = sorted(f"{picture.name}.png" for picture in captures.PICTURES)
    assert [name for name in names if not (captures.IMAGES / name).is_file()] == []


@pytest.mark.parametrize("file", captures.COMMANDS)
def test_what_commands_print_is_what_the_captures_show(made: dict[str, str], file: str) -> None:
    assert made[file] == (captures.TEXTS / file).read_text(encoding="utf-8"), RENEW


def test_the_page_on_reports_shows_lines_of_its_capture() -> None:
    page = (captures.ROOT / "docs" / "report.md").read_text(encoding="utf-8")
    shown = page.partition("## How was the month?")[2].split("```\n")[1].splitlines()
    lines = (captures.TEXTS / "month.txt").read_text(encoding="utf-8").splitlines()
    assert len(shown) > 5
    assert [line for line in shown if line != "…" and line not in lines] == []


def test_a_session_prints_what_its_capture_shows(made: dict[str, str]) -> None:
    shown = (captures.TEXTS / "session.txt").read_text(encoding="utf-8")
    assert captures.stable(made["session.txt"]) == captures.stable(shown), RENEW


def test_pictures_are_small() -> None:
    sizes = {path.name: path.stat().st_size for path in captures.IMAGES.glob("page-*.png")}
    assert {name: size for name, size in sizes.items() if size > captures.LARGEST_BYTES} == {}
