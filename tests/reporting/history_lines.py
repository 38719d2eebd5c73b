"""Envelopes for tests of what reads and writes the history."""

from __future__ import annotations

from typing import Any

from platforms.job import ONLY, Metric, Outcome
from reporting.history.envelope import Envelope, Key, Revision

TEST = "test_resnet50.py::test_resnet50[a100-1x4gpu-tuned]"
BEGAN_S = 1_795_390_000.0  # 2026-11-22, 22:06 UTC


def envelope(test: str = TEST, **changes: Any) -> Envelope:
    """An envelope of a test that has passed. `run_id`, `attempt` and `job_id` go into the key."""
    key = Key(
        site="site",
        run_id=changes.pop("run_id", "nightly-1"),
        test=test,
        attempt=changes.pop("attempt", 1),
        job_id=changes.pop("job_id", "17"),
        submitted_s=changes.pop("submitted_s", BEGAN_S),
        trial=changes.get("trial", ONLY).key,
    )
    values: dict[str, Any] = {
        "revision": Revision.TEST_ENDED,
        "written_s": BEGAN_S + 100.0,
        "outcome": Outcome.PASSED,
        "sane": True,
        "platform": "a100",
        "benchmark": "resnet50",
        "layout": "1x4gpu",
        "started_s": BEGAN_S + 10.0,
        "ended_s": BEGAN_S + 90.0,
        "metrics": {"effective throughput": Metric(123.456, "samples/s")},
        "fields": {"benchmark": "resnet50", "device": "NVIDIA A100-SXM4-80GB", "devices": 4, "mig": False},
        "comparability": "0123456789abcdef",
        "provenance": {"driver": "570.86.15", "nodes": ["gpu17"]},
        **changes,
    }
    return Envelope(key=key, **values)
