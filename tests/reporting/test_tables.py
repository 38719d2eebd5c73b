"""The tables at a session's end: one a benchmark, with what bounds it and what is to be doubted below."""

from __future__ import annotations

from dataclasses import replace

import pytest

from platforms.job import Run, Window
from reporting.tables import bounds, shares_of_attainable, tables


def run(benchmark: str, stalls: float, *warnings: str, configuration: str = "tuned", data_from: str = "storage") -> Run:
    """A run of two windows of 8 samples in 4 s each, of which this share was stall."""
    window = Window(samples=8, steps=2, wall_s=4.0, stall_s=4.0 * stalls, compute_s=4.0 * (1 - stalls))
    request = {"configuration": configuration, "size": "quick", "mode": "overlap", "variant": "mlperf", "dtype": "fp32"}
    return Run(
        benchmark=benchmark,
        platform="local",
        layout="1x1cpu",
        windows=(window, window),
        start={
            "request": {**request, "global_batch_size": 4},
            "device": {"name": "A CPU", "type": "cpu"},
            "host": {"cores": 2},
            "world": {"size": 1},
        },
        summary={"data_from": data_from},
        warnings=warnings,
    )


def test_a_table_a_benchmark() -> None:
    lines = tables(
        [run("cosmoflow", 0.25, "slow path", "a busy node"), run("deepcam", 0), run("cosmoflow", 0.75, "slow path")]
    )
    assert [line for line in lines if "samples/s" in line] == [
        f"{name}, mlperf, quick, overlap: throughputs in samples/s over all devices, spread within the job"
        for name in ("cosmoflow", "deepcam")
    ]
    rows = [line.split() for line in lines if line.startswith("A CPU")]
    assert " ".join(rows[0]) == "A CPU 1x1cpu, 2 cores tuned fp32 batch 4 storage 2.67 75.0% 2.00 0.0% [1] [2]"
    assert " ".join(rows[1]) == "A CPU 1x1cpu, 2 cores tuned fp32 batch 4 storage 8.00 25.0% 2.00 0.0% [1]"
    assert rows[2][-1] == "none"
    assert [line for line in lines if line.startswith("[")] == ["[1] slow path", "[2] a busy node"]
    assert len({line.index("storage") for line in lines if "storage" in line}) == 1


@pytest.mark.parametrize(
    ("quota", "said"),
    [(0.9, "0.9 of 2 cores"), (1.25, "1.2 of 2 cores"), (2.0, ", 2 cores"), ("max", ", 2 cores"), (None, ", 2 cores")],
)
def test_a_cpu_quota_stands_beside_the_cores(quota: float | str | None, said: str) -> None:
    one = run("cosmoflow", 0.25)
    lines = tables([replace(one, start={**one.start, "host": {"cores": 2, "cpu_quota": quota}})])
    (row,) = [line for line in lines if line.startswith("A CPU")]
    assert said in row


@pytest.mark.parametrize(
    ("stalls", "said"),
    [
        ([0.01], "bound by compute: 99% of the time was computing, 1% waiting for data"),
        ([0.0, 0.2], "bound by compute: 80% to 100% of the time was computing, 0% to 20% waiting for data"),
        ([0.6, 0.9], "bound by data: 10% to 40% of the time was computing, 60% to 90% waiting for data"),
        ([0.49], "bound by compute: 51% of the time was computing, 49% waiting for data"),
        (
            [0.1, 0.9],
            "bound by compute, 1 of 2 rows by data: 10% to 90% of the time was computing, 10% to 90% waiting for data",
        ),
    ],
)
def test_what_bounds_it(stalls: list[float], said: str) -> None:
    assert bounds([run("cosmoflow", stall) for stall in stalls]) == [said]


def test_how_near_computing_comes_to_plain_kernels() -> None:
    one = run("cosmoflow", 0.0)  # 2 samples/s while computing
    near, far = (replace(one, summary={"flop_per_sample": 30.0, "attainable_flops": most}) for most in (80.0, 240.0))
    assert shares_of_attainable([near, far, one]) == [
        "computing at 25% to 75% of what plain products and convolutions reach on the same cores"
    ]
    assert shares_of_attainable([one]) == []
    assert shares_of_attainable([near])[0] in tables([near])


def test_a_run_that_measured_nothing() -> None:
    empty = Run(platform="a100", layout="1x4gpu", test="test_mine.py::test_mine[a100-1x4gpu]")
    title, _, rule, row = tables([empty])
    assert title.startswith("test_mine: ")
    assert set(rule) == {"-"}
    assert row.split() == ["a100", "unknown", "1x4gpu", "-", "unknown", "-", "-", "-", "-", "none"]


def test_platforms_are_named_where_there_are_others_than_this_machine() -> None:
    here, there = run("deepcam", 0), replace(run("deepcam", 0), platform="campus")
    assert tables([here])[1].startswith("hardware ")
    lines = tables([here, there])
    assert lines[1].startswith("platform  hardware ")
    assert [line.split()[0] for line in lines[3:5]] == ["local", "campus"]
