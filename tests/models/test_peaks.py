"""The peaks of devices: what the figures of one data sheet must have in common."""

from __future__ import annotations

import pytest

from models.accelerators.peaks import GPUS


@pytest.mark.parametrize(("pattern", "peaks"), GPUS, ids=[pattern for pattern, _ in GPUS])
def test_half_as_many_bits_are_computed_twice_as_fast(pattern: str, peaks: dict[str, float]) -> None:
    if "tf32" in peaks:
        assert peaks["bf16"] == peaks["fp16"] == pytest.approx(2 * peaks["tf32"], rel=0.02)
    assert peaks["fp32"] <= min(peaks.values())
