"""A run of three tests, whose session is killed, interrupted or left, for tests of how it is gone on with."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from platforms.rundir import session_history
from tests.harness.nursery import Session

if TYPE_CHECKING:
    from tests.harness.conftest import Project

KILL = "import os, signal\n\ndef kill(*_):\n    os.kill(os.getpid(), signal.SIGKILL)\n\n"


class Night:
    """Three tests on a platform that takes two jobs at a time: one ends at once, one when it may, one comes later."""

    def __init__(self, project: Project) -> None:
        self.project, self.path = project, project.path
        self.marks = project.path / "marks"
        for name in "abc":
            (self.marks / name).mkdir(parents=True)
        project.platform("cluster", "max_running: 2\npoll_s: 0.1\n")
        for name, words in {"a": [], "b": [f"gate={self.marks}/gate"], "c": []}.items():
            project.job_test(f"marks={self.marks}/{name}", *words, name=f"test_{name}.py")

    def plugin(self, program: str) -> tuple[str, str]:
        """The words by which a session loads this plugin."""
        self.project.write("in_its_way.py", program)
        return ("-p", "in_its_way")

    def imports(self, program: str, *args: str) -> Session:
        """A session with something in its way: the text of a plugin."""
        return self.project.begin(*args, *self.plugin(program))

    def killed(self, *args: str, taken: int = 0) -> None:
        """Once the first test has its result and the second runs, and so many sessions were gone on with. The third
        test waits for its place, or has had it already."""

        def may_be_killed() -> bool:
            return self.is_under_way() and len(list(self.path.glob("runs/*/sessions/*.taken"))) >= taken

        self.project.killed(may_be_killed, *args)

    def is_under_way(self) -> bool:
        return bool(self.ran("b") and list(self.path.glob("runs/*/test_a*/run.json")))

    def waits_for_the_gate(self, name: str, gate: str = "gate") -> None:
        """That test's job, too: it cannot have ended when a session leaves it that waits for nothing."""
        self.project.job_test(f"marks={self.marks}/{name}", f"gate={self.marks}/{gate}", name=f"test_{name}.py")

    def open_gate(self) -> None:
        (self.marks / "gate").touch()

    def ran(self, name: str) -> int:
        """How often."""
        path = self.marks / name / "started"
        return len(path.read_text()) if path.exists() else 0

    def saved(self) -> list[str]:
        """The tests of the last file of pytest-benchmark."""
        return sorted(one["name"] for one in self.project.saved()[-1]["benchmarks"])

    def run_id(self) -> str:
        return (self.path / "runs/latest").resolve().name

    def is_left(self) -> None:
        """The one session of the one run has left its jobs to whoever goes on."""
        (path,) = self.path.glob("runs/2*/sessions/*.jsonl")
        past = session_history.read_session(path)
        assert past.end == session_history.PENDING

    def all_once(self) -> None:
        assert [self.ran(name) for name in "abc"] == [1, 1, 1]

    def goes_on(self, *args: str) -> pytest.RunResult:
        """A session that opens the gate and goes on with the run passes, and no job has run twice."""
        self.open_gate()
        result = self.project.pytest(*(args or ("--resume",)))
        result.assert_outcomes(passed=3)
        self.all_once()
        return result
