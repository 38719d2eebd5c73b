"""DeepCAM on climate images: LAMB, DeepLabv3+ that segments extreme weather (the paper's Table 4)."""

from __future__ import annotations

import pytest


@pytest.mark.workload(benchmark="deepcam")
def test_deepcam(run, record):
    assert not run.problems
    assert run.summary["optimizer_steps"] >= sum(window.steps for window in run.windows)
    record(run)
