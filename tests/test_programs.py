"""A program that the machine lacks costs the tests that need it, and the end of the session says which and how many."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.clusters import slurm, sshd

TESTS = Path(__file__).resolve().parent
SESSION = """
import pytest
from tests.programs import require

@pytest.mark.parametrize("n", [1, 2])
def test_needs(n):
    require("sh", "nosuchprogram", install="apt-get install nosuch")

def test_needs_nothing():
    require("sh", install="")
"""


@pytest.mark.parametrize(
    ("required", "outcomes", "line"),
    [
        ("0", {"passed": 1, "skipped": 2}, "2 tests were skipped for want of nosuchprogram: apt-get install nosuch"),
        ("1", {"passed": 1, "failed": 2}, "*nosuchprogram is not installed (apt-get install nosuch)*"),
    ],
)
def test_tests_are_skipped_and_counted_or_fail_for_want_of_a_program(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, required: str, outcomes: dict[str, int], line: str
) -> None:
    monkeypatch.setenv("HPC_ML_BENCH_REQUIRE_REAL", required)
    pytester.makepyfile(SESSION)
    result = pytester.runpytest_inprocess("-p", "tests.programs")
    result.assert_outcomes(**outcomes)
    result.stdout.fnmatch_lines([line])


# --- each of them hidden in turn -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Hidden:
    """Programs that are hidden from tests.

    Attributes:
        names: as `tests/without` takes them; the first one is the id.
        text: what the files of the tests that need them contain.
        said: what the last line says is wanting, and how to install it.
        mark: of these tests, if they have one of their own.
    """

    names: str
    text: str
    said: str
    mark: str = ""


HIDDEN = (
    Hidden("slurmctld", "real_slurm", f"slurmctld: {slurm.INSTALL}", "real_slurm"),
    Hidden("mariadbd", "real_slurm", f"mariadbd: {slurm.INSTALL}", "real_slurm"),
    Hidden("munged", "real_slurm", f"munged: {slurm.INSTALL}", "real_slurm"),
    Hidden("sshd", "real_ssh", f"sshd: {sshd.INSTALL}", "real_ssh"),
    Hidden("ssh", "real_ssh", f"ssh: {sshd.INSTALL}", "real_ssh"),
    Hidden("chromium,chromium-browser,google-chrome,chrome", "import browser", "Chromium: apt-get install chromium"),
    Hidden("git", '"git"', "git: apt-get install git"),
    Hidden("rsync", "CentreProject", "rsync: apt-get install git rsync"),
    Hidden("node", "CentreProject", "gitlab-ci-local: .ci/run installs it"),
)


@pytest.mark.nightly("tests/programs.py", "tests/without", "tests/clusters", "tests/browser.py", "tests/pipeline")
@pytest.mark.timeout(900)
@pytest.mark.parametrize("hidden", HIDDEN, ids=lambda hidden: hidden.names.partition(",")[0])
def test_where_a_program_is_missing_no_test_fails_and_the_last_lines_name_it(hidden: Hidden) -> None:
    here = Path(__file__).resolve()
    files = [str(path) for path in sorted(TESTS.rglob("test_*.py")) if hidden.text in path.read_text() and path != here]
    ours = ("PYTEST_", "HPC_ML_BENCH_", "CHROMIUM")
    environ = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    environ["PATH"] = f"{TESTS.parent}/.ci/node/bin:{environ['PATH']}"
    without = [str(TESTS / "without"), hidden.names]
    if subprocess.run([*without, "true"], env=environ, capture_output=True).returncode:
        pytest.skip("no program can be hidden: this machine lets us make no namespaces")
    marks = f"{hidden.mark} and not nightly" if hidden.mark else "not nightly"
    command = [*without, sys.executable, "-m", "pytest", *files, "-m", marks, "-q", "-p", "no:cacheprovider"]
    done = subprocess.run(command, cwd=TESTS.parent, env=environ, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-8000:]
    assert f" skipped for want of {hidden.said}" in done.stdout
