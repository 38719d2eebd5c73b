"""Which tests `make quick`, `make test` and `make test-nightly` run, and which of the nightly ones a change brings."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

import pytest

from tests import sets
from tests.programs import require

ROOT = Path(__file__).resolve().parents[1]
MINE = """
import pytest, subprocess, sys

def test_plain(): pass
@pytest.mark.slow
def test_slow(): subprocess.run([sys.executable, "-c", ""], check=True)
@pytest.mark.real_ssh
def test_ssh(): pass
@pytest.mark.nightly("models/train.py", "platforms/runner")
def test_night(): pass
"""


@pytest.fixture
def mine(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A file with a test of each sort, in a project whose root is its folder."""
    monkeypatch.setattr(sets, "ROOT", pytester.path)
    pytester.makeini("[pytest]\nmarkers =\n    real_ssh: needs an sshd\n")
    pytester.makepyfile(test_mine=MINE)
    return pytester


def of_target(target: str) -> list[str]:
    """The words with which the Makefile chooses the tests of this target."""
    recipe = re.search(rf"^{target}:.*\n\t\$\(TESTS\) (.*) \$\(ARGS\)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    return shlex.split(recipe[1])


def passed(mine: pytest.Pytester, *words: str) -> list[str]:
    result = mine.runpytest_inprocess("-p", "tests.sets", "-v", *words)
    assert result.ret == 0
    return re.findall(r"::test_(\w+) PASSED", result.stdout.str())


@pytest.mark.parametrize(
    ("target", "tests"), [("quick", ["plain"]), ("test", ["plain", "slow", "ssh"]), ("test-nightly", ["night"])]
)
@pytest.mark.slow
def test_each_set_has_its_tests(mine: pytest.Pytester, target: str, tests: list[str]) -> None:
    assert passed(mine, *of_target(target)) == tests


def git(folder: Path, *words: str) -> None:
    require("git", install="apt-get install git")
    subprocess.run(["git", "-C", folder, "-c", "user.name=a", "-c", "user.email=a@b", *words], check=True)


@pytest.mark.parametrize(
    ("changed", "tests"),
    [
        ("platforms/runner/slots.py", ["night"]),
        ("models/train.py", ["night"]),
        ("test_mine.py", ["night"]),
        ("models/training.py", []),
    ],
)
def test_a_change_brings_the_nightly_tests_that_name_what_it_touches(
    mine: pytest.Pytester, changed: str, tests: list[str]
) -> None:
    git(mine.path, "init", "--quiet")
    git(mine.path, "add", ".")
    git(mine.path, "commit", "--quiet", "--message=before")
    path = mine.path / changed
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(path.read_text() + "\n" if path.exists() else "")
    git(mine.path, "add", ".")
    assert passed(mine, "-m", "nightly", "--changed-since", "HEAD") == tests


def test_an_unknown_commit_is_named(mine: pytest.Pytester) -> None:
    git(mine.path, "init", "--quiet")
    result = mine.runpytest_inprocess("-p", "tests.sets", "--changed-since", "nosuch")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*--changed-since nosuch: *nosuch*"])


def test_an_unmarked_test_that_starts_an_interpreter_fails(mine: pytest.Pytester) -> None:
    mine.makepyfile(test_mine=MINE.replace("@pytest.mark.slow", ""))
    result = mine.runpytest_inprocess("-p", "tests.sets")
    result.assert_outcomes(passed=4, errors=1)
    result.stdout.fnmatch_lines(["*it starts an interpreter, so it needs @pytest.mark.slow: *python*"])
    sets.started.clear()
