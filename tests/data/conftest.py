"""What all tests of data sets share."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator

import pytest
import torch

if "PYTEST_XDIST_WORKER" in os.environ:
    torch.set_num_threads(1)  # the other cores have workers of their own


@pytest.fixture
def small_files() -> Iterator[None]:
    """The kernel refuses files above 20 kB, as a full disk would refuse any."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, hard))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
