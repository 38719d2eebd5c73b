"""`pytest --report FILE`: the page of the history is written however a session ends, and refused before it begins."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.harness.conftest import Project

TEST = "test_mine.py::test_it[local-1x1cpu]"
HEADLINE = "* 1 learning"


def page_of(path: Path) -> str:
    text = path.read_text()
    assert text.startswith("<!doctype html>")
    assert text.rstrip().endswith("</html>")
    return text


@pytest.mark.slow
def test_the_page_has_the_runs_of_this_session_and_of_earlier_ones(project: Project) -> None:
    project.job_test()
    project.pytest("--run-id=first").assert_outcomes(passed=1)
    result = project.pytest("--report=page.html", "--run-id=second")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines([f"report: page.html ({HEADLINE})"])
    page = page_of(project.path / "page.html")
    assert TEST in page
    assert 'href="runs/second/test_mine-test_it-local-1x1cpu/"' in page


@pytest.mark.slow
def test_it_is_the_last_word_also_when_a_test_fails_and_under_q(project: Project) -> None:
    project.job_test("exit=1")
    result = project.pytest("--report=page.html", "-q")
    result.assert_outcomes(failed=1)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["report: page.html (* has failed)"])
    assert TEST in page_of(project.path / "page.html")


@pytest.mark.slow
def test_it_is_written_after_an_interrupt(project: Project, tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    marks.mkdir()
    project.job_test()
    project.job_test(f"marks={marks}", "sleep=600", name="test_slow.py")
    session = project.begin("--report=page.html", "test_mine.py", "test_slow.py")
    session.until((marks / "started").exists)
    history = project.path / "site/history"
    session.until(lambda: any("test_mine" in path.read_text() for path in history.glob("*/*[0-9a-f].jsonl")))
    session.send(signal.SIGINT)
    assert session.ends() == pytest.ExitCode.INTERRUPTED
    assert "report: page.html (" in session.out
    assert TEST in page_of(project.path / "page.html")


@pytest.mark.slow
def test_site_yaml_names_the_file_beside_itself(project: Project) -> None:
    project.job_test()
    project.write("site/site.yaml", "options: {report: public.html}\n")
    project.pytest().stdout.fnmatch_lines([f"report: {project.path}/site/public.html ({HEADLINE})"])
    page_of(project.path / "site/public.html")
    (project.path / "site/public.html").unlink()
    for option in ("--dry-run", "--collect-only", "--setup-plan", "--fixtures"):
        result = project.pytest(option)
        assert "report:" not in result.stdout.str()
    assert not (project.path / "site/public.html").exists()


@pytest.mark.parametrize("option", ["--dry-run", "--dry-run=server", "--collect-only", "--setup-only", "--setup-plan"])
def test_a_session_that_runs_no_test_is_refused(project: Project, option: str) -> None:
    project.job_test()
    said = "ERROR: --report: *runs no test*python -m reporting html -o page.html makes the page*"
    project.refuses("--report=page.html", option, says=said)


@pytest.mark.parametrize(
    ("named", "said"),
    [
        ("no/such folder/page.html", "there is no folder no/such folder, so * (mkdir -p 'no/such folder' *)"),
        ("site", "site is a folder, and the page is one file, so nothing was submitted (--report=site/report.html)"),
        ("page.txt", "page.txt: the name of a page ends with .html, so nothing was submitted (--report=page.html)"),
    ],
)
def test_a_place_for_no_page_is_refused_before_the_jobs(project: Project, named: str, said: str) -> None:
    project.job_test()
    (project.path / "site").mkdir()
    project.refuses(f"--report={named}", says=f"ERROR: --report: {said}")


@pytest.mark.slow
def test_a_page_that_cannot_be_written_changes_no_outcome(project: Project) -> None:
    project.job_test()
    path = project.path / "test_mine.py"
    body = "record(run)\n    import pathlib, shutil; shutil.rmtree('public'); pathlib.Path('public').write_text('')"
    path.write_text(path.read_text().replace("record(run)", body))
    (project.path / "public").mkdir()
    result = project.pytest("--report=public/page.html")
    result.assert_outcomes(passed=1)
    assert result.ret == pytest.ExitCode.OK
    result.stdout.fnmatch_lines(
        [
            "report: public/page.html is not written: Not a directory "
            "(python -m reporting html -o public/page.html --site=* makes it)"
        ]
    )


def test_an_empty_history_is_said(project: Project) -> None:
    project.write("test_none.py", "def test_nothing():\n    pass\n")
    result = project.pytest("--report=page.html")
    assert result.ret == pytest.ExitCode.OK
    result.stdout.fnmatch_lines(["report: page.html is not written: *site/history has no run of the site site yet (*)"])
    assert not (project.path / "page.html").exists()
