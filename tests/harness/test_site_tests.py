"""The site's own tests: collected beside the suite's, with ids that do not say where their folder lies."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.harness.conftest import PROGRAM, TEST, Project
from tests.harness.test_selection import ids

MINE = "site/test_mine.py::test_it[local-1x1cpu]"


@pytest.fixture
def site(project: Project) -> Path:
    """A site's folder outside of the checkout, with a test and its program; the checkout has a test, too."""
    project.job_test(name="test_ours.py")
    folder = project.path.parent / "a site of mine"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    (folder / "program.py").write_text(PROGRAM)
    (folder / "test_mine.py").write_text(TEST % ([],))
    return folder


def submitted(site: Path) -> list[str]:
    return sorted(path.parent.name for path in site.glob("runs/2*/*/job.sh"))


@pytest.fixture(params=["--site", "HPC_ML_BENCH_SITE", "site/"])
def named(request: pytest.FixtureRequest, project: Project, site: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The words that name the site's folder, in each of the three ways that there are."""
    if request.param == "HPC_ML_BENCH_SITE":
        monkeypatch.setenv(request.param, str(site))
    if request.param == "site/":
        site.rename(project.path / "site")
    return [f"--site={site}"] if request.param == "--site" else []


def test_a_sites_tests_have_the_same_ids_wherever_its_folder_lies(project: Project, named: list[str]) -> None:
    result = project.pytest("--collect-only", "-q", *named)
    assert ids(result) == ["test_ours.py::test_it[local-1x1cpu]", MINE]


@pytest.mark.slow
def test_a_sites_test_runs_from_its_own_folder_and_is_recorded(project: Project, named: list[str]) -> None:
    result = project.pytest(*named, "--benchmark-autosave")
    result.assert_outcomes(passed=2)
    home = (
        project.path
        if not named and not os.environ.get("HPC_ML_BENCH_SITE")
        else project.path.parent / "a site of mine"
    )
    assert submitted(home) == ["site-test_mine-test_it-local-1x1cpu", "test_ours-test_it-local-1x1cpu"]
    saved = list(home.glob(".benchmarks/*/*.json"))
    assert len(saved) == 1
    assert f'"fullname": "{MINE}"' in saved[0].read_text()


@pytest.mark.parametrize(
    "which", ["site/test_mine.py", "site/test_mine.py::test_it", MINE], ids=["file", "function", "test"]
)
@pytest.mark.parametrize("folder", [".", "docs"])
def test_an_id_names_the_test_in_any_folder(
    project: Project, named: list[str], which: str, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project.path / "docs").mkdir()
    monkeypatch.chdir(project.path / folder)
    assert ids(project.pytest("--collect-only", "-q", *named, "-m", "local", which)) == [MINE]


@pytest.mark.parametrize(
    "words",
    [["-k", "mine"], ["test_mine.py"], ["."], ["test_mine.py::test_it[local-1x1cpu]"]],
    ids=["keyword", "file", "folder", "test"],
)
def test_in_the_sites_folder_the_suite_is_named_by_its_configuration(
    project: Project, site: Path, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    monkeypatch.chdir(site)
    suite = ["-c", str(project.path / "pytest.ini")]
    assert ids(project.pytest(*suite, "--collect-only", "-q", "-m", "local", "--site", str(site), *words)) == [MINE]


@pytest.mark.parametrize("variable", [False, True], ids=["--site", "HPC_ML_BENCH_SITE"])
@pytest.mark.parametrize(
    "spelled", ["../a site of mine", ".././/a site of mine//", "deep/../a site of mine", "site/../site"]
)
def test_a_sites_folder_is_one_however_it_is_written(
    project: Project, site: Path, monkeypatch: pytest.MonkeyPatch, spelled: str, variable: bool
) -> None:
    """`deep` is a link to a folder beside the site's, `site` one to the site's: `..` means what it means to ls."""
    here = project.path.parent / "here"
    shutil.rmtree(here, ignore_errors=True)
    here.mkdir()
    (site.parent / "beside").mkdir(exist_ok=True)
    (here / "deep").symlink_to(site.parent / "beside")
    (site / "site").unlink(missing_ok=True)
    (here / "site").symlink_to(site)
    (site.parent / "site").unlink(missing_ok=True)
    (site.parent / "site").symlink_to(site)
    monkeypatch.chdir(here)
    if variable:
        monkeypatch.setenv("HPC_ML_BENCH_SITE", spelled)
    words = ["-c", "../" + project.path.name + "/pytest.ini", *([] if variable else [f"--site={spelled}"])]
    result = project.pytest(*words, "--collect-only", "-q", "-m", "local", f"{spelled}/test_mine.py")
    assert ids(result) == [MINE], result.stderr.str()
    dry = project.pytest(*words, "--dry-run", "-m", "local", str(site / "test_mine.py"))
    assert dry.ret == 0, dry.stderr.str()


@pytest.mark.slow
def test_outside_of_the_checkout_a_bare_pytest_is_all_of_it(
    project: Project, site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTEST_ADDOPTS", f"-c '{project.path / 'pytest.ini'}'")
    assert ids(project.pytest("--collect-only", "-q", "--site", str(site))) == [
        "test_ours.py::test_it[local-1x1cpu]",
        MINE,
    ]
    project.pytest("--site", str(site)).assert_outcomes(passed=2)
    assert not list(tmp_path.iterdir())
    assert not list(project.path.glob("runs"))


def test_the_suites_folder_is_all_of_it_too(project: Project, site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(site)
    result = project.pytest("--collect-only", "-q", str(project.path), f"--site={site}")
    assert ids(result) == ["test_ours.py::test_it[local-1x1cpu]", MINE]


def test_a_file_that_lies_in_neither_folder_is_refused(project: Project, site: Path, tmp_path: Path) -> None:
    (tmp_path / "test_lost.py").write_text(TEST % ([],))
    said = f"*{tmp_path}/test_lost.py lies neither in * nor in the site's folder*--site=DIR*"
    project.refuses("-c", str(project.path / "pytest.ini"), f"--site={site}", str(tmp_path / "test_lost.py"), says=said)


@pytest.mark.slow
def test_last_failed_finds_a_sites_test_beside_ours(project: Project, site: Path) -> None:
    project.job_test("exit=1", name="test_ours.py")
    project.job_test(name="test_good.py")
    (site / "test_mine.py").write_text(TEST % (["exit=1"],))
    where = [f"--site={site}"]
    project.pytest(*where).assert_outcomes(passed=1, failed=2)
    again = project.pytest(*where, "--lf")
    again.assert_outcomes(failed=2)
    assert not (project.path / ".pytest_cache").exists()
    project.pytest(*where, "--lf", "-p", "no:cacheprovider")  # --lf is unknown then; nothing else is
    project.pytest(*where, "-p", "no:cacheprovider").assert_outcomes(passed=1, failed=2)


@pytest.mark.slow
def test_resume_goes_on_with_a_sites_test(project: Project, site: Path) -> None:
    gate = site / "gate"
    (site / "test_mine.py").write_text(TEST % ([f"gate={gate}"],))
    where = [f"--site={site}"]
    first = project.pytest(*where, "--wait", "1s", "-k", "mine")
    assert first.ret == 75
    (line,) = [line for line in first.outlines if "goes on waiting" in line]
    assert f"pytest --resume={next(site.glob('runs/2*')).name} --site='{site}' goes on" in line
    gate.write_text("")
    again = project.pytest("--resume", *where)
    again.assert_outcomes(passed=1)
    assert len(submitted(site)) == 1


@pytest.mark.slow
def test_a_sites_conftest_serves_its_tests(project: Project, site: Path) -> None:
    (site / "conftest.py").write_text("import pytest\n@pytest.fixture\ndef limit():\n    return 3\n")
    text = (TEST % ([],)).replace("(run, record)", "(run, record, limit)").replace("not run.problems", "limit == 3")
    (site / "test_mine.py").write_text(text)
    project.pytest(f"--site={site}", "-k", "mine", "-m", "local").assert_outcomes(passed=1)


@pytest.mark.slow
def test_a_mark_that_a_test_carries_can_be_named(project: Project, site: Path) -> None:
    text = (TEST % ([],)).replace("@pytest", "@pytest.mark.nightly\n@pytest", 1)
    (site / "test_mine.py").write_text(text)
    result = project.pytest(f"--site={site}", "-W", "default", "-m", "nightly and local", "--dry-run")
    result.stdout.fnmatch_lines(
        [f"*{MINE.replace('[', '[[]').replace('1cpu]', '1cpu[]]')}*", "*1 job* rendered, none submitted*"]
    )
    result = project.pytest(f"--site={site}", "-W", "default", "-m", "nightley")
    result.stderr.fnmatch_lines(["*there is no mark 'nightley'; did you mean nightly?*"])


def test_folders_on_the_way_to_the_site_are_not_read(project: Project, site: Path) -> None:
    (site.parent / "test_of_another.py").write_text("raise SystemExit('imported')")
    shut = site.parent / "shut"
    shut.mkdir(exist_ok=True)
    result = project.pytest("--collect-only", "-q", f"--site={site}")
    assert ids(result) == ["test_ours.py::test_it[local-1x1cpu]", MINE]
