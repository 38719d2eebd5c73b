"""CosmoFlow on dark-matter volumes: SGD, a 3D CNN that predicts four cosmological parameters (the paper's Table 3)."""

from __future__ import annotations

import pytest


@pytest.mark.workload(benchmark="cosmoflow")
def test_cosmoflow(run, record):
    assert not run.problems
    assert run.summary["optimizer_steps"] >= sum(window.steps for window in run.windows)
    record(run)
