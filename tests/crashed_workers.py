"""A test that ends the process of its worker of xdist fails by its name, and all other tests run.

xdist's own scheduler begins such a test again, on one worker after the other, until none may be replaced any more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from xdist.scheduler import LoadFileScheduling

if TYPE_CHECKING:
    from xdist.remote import Producer
    from xdist.workermanage import WorkerController


class FileScheduler(LoadFileScheduling):
    """Gives each worker a file at a time, as `--dist loadfile` does, and no test twice."""

    def remove_node(self, node: WorkerController) -> str | None:
        """Take a worker out that has ended; what it had left is run by others. Returns the test that ended it."""
        ended_by = None
        for file, tests in self.assigned_work.pop(node).items():
            for test, is_finished in tests.items():
                if not is_finished and ended_by is None:
                    ended_by = test
                    tests[test] = True
            if not all(tests.values()):
                self.workqueue[file] = tests
        if ended_by is not None:
            self.schedule()
        return ended_by

    def schedule(self) -> None:
        super().schedule()
        for node in self.nodes:  # a worker begins its last test when it knows that no other one follows
            self._reschedule(node)

    def _reschedule(self, node: WorkerController) -> None:
        if node in self.registered_collections:  # else it replaces another worker, and still collects
            super()._reschedule(node)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadFileScheduling | None:
    return FileScheduler(config, log) if config.getvalue("dist") == "loadfile" else None
