"""The fixtures that a benchmark test uses: `platform`, `run`, `record`."""

from __future__ import annotations

import pytest

from harness.record import Recorder
from harness.suite import suite_of
from platforms.config.schema import Platform
from platforms.job import Run


@pytest.fixture
def platform(request: pytest.FixtureRequest) -> Platform:
    """The platform that this test runs on: platforms/<name>.yaml, with what its benchmark needs otherwise."""
    return suite_of(request.config).selection.platform(request.node)


@pytest.fixture
def run(request: pytest.FixtureRequest, platform: Platform) -> Run | None:
    """What the test's job measured. The job was submitted and waited for before this test began."""
    running = suite_of(request.config).running
    return None if running is None else running.run(request.node)  # --setup-only: fixtures run, jobs do not


@pytest.fixture
def record(request: pytest.FixtureRequest, benchmark: object) -> Recorder:
    """`record(run)` hands the run's seconds to pytest-benchmark, once the test has passed."""
    return Recorder(request.node, benchmark)
