"""ResNet-50 v1.5 on ImageNet-like JPEGs: SGD, cross entropy, random crops (the paper's Table 2)."""

from __future__ import annotations

import pytest


@pytest.mark.workload(benchmark="resnet50", presets={"hpdc24": {"variant": "epcc"}})
def test_resnet50(run, record):
    assert not run.problems
    assert run.summary["optimizer_steps"] >= sum(window.steps for window in run.windows)
    record(run)
