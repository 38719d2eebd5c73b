"""The process that training jobs are forked from, one for all tests."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
import torch

from tests.models.jobs import PATIENCE_S, Nursery

if "PYTEST_XDIST_WORKER" in os.environ:
    torch.set_num_threads(1)  # the other cores have workers of their own


@pytest.fixture(scope="session")
def nursery(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nursery]:
    nursery = Nursery(tmp_path_factory.mktemp("jobs"))
    yield nursery
    nursery.process.communicate(timeout=PATIENCE_S)
