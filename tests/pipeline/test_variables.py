"""The variables of a CI job: what is wrong with one is said before anything is submitted."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline import variables
from pipeline.__main__ import main
from platforms.job import RefusedError

CI = {"CI_PIPELINE_ID": "17", "BENCH_PLATFORM": "a100"}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "site").mkdir()
    return tmp_path


def test_without_any_variable_the_defaults_are_those_of_the_component(project: Path) -> None:
    job = variables.read(CI, project)
    assert (job.run_id, job.site, job.size, job.wait_s, job.gate) == ("17-a100", project / "site", None, 300.0, "on")
    assert (job.branch, job.history, job.carries_runs) == ("bench-history", project / ".bench/history", True)


def test_a_shared_folder_takes_the_place_of_the_branch(project: Path, tmp_path: Path) -> None:
    folders = {"BENCH_HISTORY": "/shared/history", "BENCH_RUNS": str(tmp_path)}
    job = variables.read(CI | folders, project)
    assert (job.branch, job.history, job.runs, job.carries_runs) == (None, Path("/shared/history"), tmp_path, False)


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("BENCH_SIZ", "quick", r"BENCH_SIZ: there is no such variable \(did you mean 'BENCH_SIZE'\?\)"),
        ("BENCH_SIZE", "ful", "BENCH_SIZE: 'ful': it is one of default, smoke, quick, subset, full"),
        ("BENCH_STEP", "fetsch", "BENCH_STEP: 'fetsch': it is one of all, submit, fetch, cancel"),
        ("BENCH_WAIT", "5", "BENCH_WAIT: '5': it is a time: 0, 5m, 1h, 1:30:00"),
        ("BENCH_PLATFORM", "A100", "BENCH_PLATFORM: 'A100': it is the name of a platform"),
        ("BENCH_RUNS", "runs", "BENCH_RUNS: 'runs': it is an absolute folder"),
        ("BENCH_RUNS", "/does/not/exist", "BENCH_RUNS: there is no folder /does/not/exist"),
        ("BENCH_HISTORY", "/shared", "BENCH_RUNS is not set"),
        ("BENCH_SITE", "elsewhere", "BENCH_SITE: there is no folder"),
    ],
)
def test_a_wrong_variable_is_refused(project: Path, name: str, value: str, why: str) -> None:
    with pytest.raises(RefusedError, match=why):
        variables.read(CI | {name: value}, project)


def test_all_wrong_variables_are_named_at_once_and_the_values_of_unknown_ones_are_not(project: Path) -> None:
    with pytest.raises(RefusedError) as refused:
        variables.read(CI | {"BENCH_SIZE": "ful", "BENCH_TOKEN": "glpat-secret"}, project)
    assert "BENCH_SIZE" in str(refused.value)
    assert "BENCH_TOKEN" in str(refused.value)
    assert "secret" not in str(refused.value)


def test_a_job_with_a_wrong_variable_ends_with_2_and_says_so(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in {**CI, "BENCH_GATE": "maybe"}.items():
        monkeypatch.setenv(name, value)
    assert main(["submit", "--project", str(project)]) == 2
    assert "BENCH_GATE: 'maybe': it is one of on, off, require" in capsys.readouterr().err


def test_a_job_without_a_platform_says_which_variable_names_it(project: Path) -> None:
    with pytest.raises(RefusedError, match="BENCH_PLATFORM is not set"):
        variables.read({"CI_PIPELINE_ID": "17"}, project)
