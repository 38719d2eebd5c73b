"""The account of a session's jobs."""

from __future__ import annotations

import pytest

from reporting.account import Spent, account, clock


def test_a_row_a_job_and_the_sum() -> None:
    good = Spent("resnet50-1x4gpu-k3f9a2bc", "tuned", "archer2", "succeeded", 12.2, 631, 33.1, 900, 4)
    lost = Spent("cosmoflow-1x4gpu-k3f9a2bd", "", "a100", "node lost", 700, None, None, None, 4)
    head, rule, first, second, total = account([good, lost])
    assert head.split("  ")[0] == "job"
    assert set(rule) == {"-"}
    assert " ".join(first.split()) == "resnet50-1x4gpu-k3f9a2bc tuned archer2 succeeded 12.2 s 10:31 33.1 s 15:00 1"
    assert " ".join(second.split()) == "cosmoflow-1x4gpu-k3f9a2bd - a100 node lost 11:40 - - - 0"
    assert total == "2 jobs, 1 device-hours"


def test_compilation_has_a_column_where_a_job_compiled() -> None:
    names = ("resnet50-1x1csx-k3f9a2bc", "tuned", "wafer", "succeeded")
    made = Spent(*names, None, None, 2431.0, 3000, 1, compile_s=2400.0, compile_cache="miss")
    found = Spent(*names, None, None, 35.0, 600, 1, compile_s=4.0, compile_cache="hit")
    other = Spent(*names, None, None, 35.0, 600, 1)
    head, _, *rows, _ = account([made, found, other])
    assert "to start     compiled    ran" in head
    assert [" ".join(row.split()[4:]) for row in rows] == [
        "- - 40:31 40:00, miss 50:00 0.833",
        "- - 35.0 s 4.0 s, hit 10:00 0.167",
        "- - 35.0 s - 10:00 0.167",
    ]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "-"),
        (0, "0.0 s"),
        (59.94, "59.9 s"),
        (60, "1:00"),
        (3599.4, "59:59"),
        (3600, "1:00:00"),
        (93784, "26:03:04"),
    ],
)
def test_times(seconds: float | None, text: str) -> None:
    assert clock(seconds) == text
