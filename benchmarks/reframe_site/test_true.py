"""One small job, without a number."""

import pytest


@pytest.mark.workload(command=["true"], launcher="none")
def test_true(run):
    pass
