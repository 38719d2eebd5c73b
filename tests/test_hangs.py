"""A test that hangs, or that ends the process of its worker, fails by its name, and every other test runs."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

import pytest

from tests.programs import require

ROOT = Path(__file__).resolve().parents[1]

BAD = """
import os, time, pytest

@pytest.fixture
def slow():
    time.sleep(60)

def test_first(): pass
def test_that_kills_its_worker(): os.kill(os.getpid(), 9)
def test_second(): pass
def test_that_hangs(): time.sleep(60)
def test_whose_fixture_hangs(slow): pass
@pytest.mark.timeout(30)
def test_that_takes_long(): time.sleep(1.5)
def test_that_kills_another(): os.kill(os.getpid(), 9)
def test_last(): pass
"""


@pytest.mark.slow
def test_tests_that_hang_or_end_their_worker_are_named_and_all_others_run(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    require("make", install="apt-get install make")
    for variable in ("PYTEST_XDIST_WORKER", "PYTEST_ADDOPTS", "MAKEFLAGS", "MAKELEVEL", "ARGS"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    pytester.makepyfile(test_bad=BAD, test_good="def test_1(): pass\ndef test_2(): pass")
    shown = subprocess.run(["make", "-n", "test", "WORKERS=2"], cwd=ROOT, capture_output=True, text=True, check=True)
    words = shlex.split(shown.stdout.replace("\\\n", "").splitlines()[-1])
    words = [re.sub(r"^--timeout=\d+$", "--timeout=1", word) for word in words[words.index("tests") + 1 :]]
    result = pytester.runpytest_subprocess("-p", "tests.crashed_workers", *words, timeout=120)
    assert result.parseoutcomes() == {"passed": 6, "failed": 3, "errors": 1}
    result.stdout.fnmatch_lines_random(
        [
            "*crashed while running 'test_bad.py::test_that_kills_its_worker'",
            "*crashed while running 'test_bad.py::test_that_kills_another'",
            "FAILED test_bad.py::test_that_hangs*Timeout*",
            "ERROR test_bad.py::test_whose_fixture_hangs*Timeout*",
        ]
    )
    (cases,) = re.findall(r'<testsuite [^>]*tests="(\d+)"', (pytester.path / "build/test.xml").read_text())
    assert cases == "10"
