"""The process that training jobs are forked from, one for all tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.models.jobs import PATIENCE_S, Nursery


@pytest.fixture(scope="session")
def nursery(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nursery]:
    nursery = Nursery(tmp_path_factory.mktemp("jobs"))
    yield nursery
    nursery.process.communicate(timeout=PATIENCE_S)
