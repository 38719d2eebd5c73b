"""What `make bench` says beforehand of its time."""

from __future__ import annotations

import re

import pytest

from models import benchmarks
from models.accelerators.cpu import Cpu
from models.estimate import estimate


def minutes(monkeypatch: pytest.MonkeyPatch, flops: float, has_bf16: bool, size: str = "quick") -> int:
    monkeypatch.setattr(Cpu, "product_flops", lambda self, dtype: flops if dtype == "fp32" else 4 * flops)
    monkeypatch.setattr(Cpu, "has_bf16", lambda self: has_bf16)
    told = estimate(benchmarks.names(), size, Cpu())
    assert told is not None
    assert ("in bf16" in told) is has_bf16
    found = re.match(r"8 trainings will take about (\d+) min", told)
    assert found is not None
    return int(found[1])


def test_a_slower_machine_is_told_more_minutes(monkeypatch: pytest.MonkeyPatch) -> None:
    slow, fast = (minutes(monkeypatch, flops, True) for flops in (50e9, 200e9))
    assert slow > fast
    assert minutes(monkeypatch, 50e9, False) > slow
    assert minutes(monkeypatch, 50e9, True, "smoke") < slow


def test_where_nothing_is_known_nothing_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Cpu, "product_flops", lambda self, dtype: None)
    assert estimate(["gpt"], "quick", Cpu()) is None
    monkeypatch.setattr(Cpu, "product_flops", lambda self, dtype: 1e12)
    assert estimate(["gpt"], "full", Cpu()) is None
