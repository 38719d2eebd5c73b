"""Three sets of the suite's own tests: `make quick`, `make test` and `make test-nightly`.

A test marked `slow` starts an interpreter, trains or waits; `make quick` leaves it out. A test marked `nightly` asks
once more, and more thoroughly, what a test of `make test` has asked. It runs at night, and before a change lands that
touches what its mark names.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
MARKS = (
    "slow: starts an interpreter, trains or waits; `make quick` leaves it out",
    "nightly(*paths): runs in `make test-nightly`, and where a change touches its file or one of these paths",
)
ALWAYS_SLOW = ("real_slurm", "real_ssh", "live_k8s", "nightly")

started: list[str] = []
"""The interpreters that the test which runs now has started, with its fixtures."""


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("sets of the suite's own tests")
    group.addoption("--changed-since", metavar="COMMIT", help="of the nightly tests, only those that a change touches")


def pytest_configure(config: pytest.Config) -> None:
    for mark in MARKS:
        config.addinivalue_line("markers", mark)
    sys.addaudithook(_note_interpreters)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Before pytest's own `-m`, which then finds these marks."""
    for item in items:
        if any(item.get_closest_marker(name) for name in ALWAYS_SLOW):
            item.add_marker("slow")
    commit: str | None = config.getoption("--changed-since")
    if commit is None:
        return
    changed = _changed_since(commit)
    untouched = {item for item in items if item.get_closest_marker("nightly") and not _is_touched(item, changed)}
    config.hook.pytest_deselected(items=list(untouched))
    items[:] = [item for item in items if item not in untouched]


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """A change that touches nothing of the nightly tests is no mistake."""
    if exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED and session.config.getoption("--changed-since"):
        session.exitstatus = pytest.ExitCode.OK


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    started.clear()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    """An unmarked test that has started a Python fails: a start takes .2 s, and one with torch 2 s."""
    yield
    if started and not item.get_closest_marker("slow"):
        pytest.fail(f"it starts an interpreter, so it needs @pytest.mark.slow: {started[0]}", pytrace=False)


def _note_interpreters(event: str, arguments: tuple[object, ...]) -> None:
    """Not refused here: a thread of the suite that starts one might take the refusal for a failure of the machine."""
    if event == "subprocess.Popen":
        words = arguments[1]
        program = str(words[0] if isinstance(words, list | tuple) and words else arguments[0])
        if Path(program).name.startswith("python"):
            started.append(program)


def _changed_since(commit: str) -> list[str]:
    """The files that git knows and that differ from this commit, as paths from the root."""
    command = ["git", "-C", str(ROOT), "diff", "--name-only", commit, "--"]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    if answer.returncode != 0:
        raise pytest.UsageError(f"--changed-since {commit}: {answer.stderr.strip()}")
    return answer.stdout.splitlines()


def _is_touched(item: pytest.Item, changed: list[str]) -> bool:
    named = [str(path) for mark in item.iter_markers("nightly") for path in mark.args]
    own = item.path.relative_to(ROOT).as_posix()
    return any(path == own or any(Path(path).is_relative_to(name) for name in named) for path in changed)
