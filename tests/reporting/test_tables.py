"""The tables of runs: one for each benchmark, mode and configuration, with what bounds it and its warnings below."""

from __future__ import annotations

from dataclasses import replace

import pytest

from platforms.job import Metric, Run, Window
from reporting.gate.verdict import Kind, Verdict
from reporting.tables.grouped import bounds, shares_of_peak, tables_of
from reporting.tables.markdown import markdown
from reporting.tables.row import Row, of_run
from reporting.tables.text import text


def tables(runs: list[Run]) -> list[str]:
    return text(tables_of([Row(run) for run in runs]))


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
        summary={"data_from": data_from, "contention": {"neighbours_cores": 0.0}},
        warnings=warnings,
    )


def test_a_table_a_benchmark() -> None:
    lines = tables(
        [run("cosmoflow", 0.25, "slow path", "a busy node"), run("deepcam", 0), run("cosmoflow", 0.75, "slow path")]
    )
    assert [line for line in lines if "samples/s" in line] == [
        f"{name}, mlperf, quick, overlap, tuned: throughputs in samples/s over all devices, spread within the job"
        for name in ("cosmoflow", "deepcam")
    ]
    rows = [line.split() for line in lines if line.startswith("A CPU")]
    assert " ".join(rows[0]) == "A CPU 1x1cpu, 2 cores fp32 batch 4 storage 2.67 75.0% 2.00 0.0% [1] [2]"
    assert " ".join(rows[1]) == "A CPU 1x1cpu, 2 cores fp32 batch 4 storage 8.00 25.0% 2.00 0.0% [1]"
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
    ("world", "said"),
    [
        ({"size": 1, "replicas": 8, "devices_per_replica": 1}, "  1x8ipu   fp32"),
        ({"size": 2, "replicas": 4, "devices_per_replica": 2}, "1x8ipu, 2 ranks, 4 replicas of 2  fp32"),
    ],
    ids=["one device each", "two devices each"],  # with a layout in its id it would look like a job's test
)
def test_copies_of_the_model_that_have_several_devices_are_named(world: dict[str, int], said: str) -> None:
    one = run("resnet50", 0.25)
    start = {**one.start, "device": {"type": "ipu", "name": "MK2"}, "world": world}
    assert said in tables([replace(one, layout="1x8ipu", start=start)])[3]


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


def test_what_was_found_to_bound_a_run_stands_below_with_what_to_try() -> None:
    one = run("cosmoflow", 0.5)
    found = {"text": "bound by storage: a step takes 90 ms", "next": "pytest -m PLATFORM"}
    one = replace(one, summary={**one.summary, "decomposition": found})
    said = "bound by storage: a step takes 90 ms. Try: pytest -m " + one.platform
    assert said in tables([one])
    assert bounds([one]) == []
    assert f"{of_run(one)}: {said}" in tables([one, run("cosmoflow", 0.1)])


def test_the_switches_of_a_run_stand_below_where_all_its_nodes_say_theirs() -> None:
    one = run("cosmoflow", 0.1)
    leaves = {"n01": "leaf3", "n02": "leaf7", "n03": "leaf3"}
    placed = replace(one, nodes={node: {"place": {"switch": leaf}} for node, leaf in leaves.items()})
    assert "3 nodes under 2 switches leaf3, leaf7" in tables([placed])
    assert f"{of_run(placed)}: 3 nodes under 2 switches leaf3, leaf7" in tables([placed, one])
    silent = replace(placed, nodes={**placed.nodes, "n03": {}})
    assert not any("switches" in line for line in tables([silent]))


def test_how_near_computing_comes_to_matrix_products() -> None:
    one = run("cosmoflow", 0.0)  # 2 samples/s while computing
    near, far = (replace(one, summary={"flop_per_sample": 30.0, "product_flops": most}) for most in (48.0, 240.0))
    end = "of what matrix products reach on the same cores"
    assert shares_of_peak([near, far, one]) == [f"computing at 25% to 125% {end}"]  # no bound, so no limit of 100 %
    assert shares_of_peak([one]) == []
    assert shares_of_peak([near])[0] in tables([near])
    slow = replace(one, summary={"flop_per_sample": 30.0, "product_flops": 1e6})
    assert shares_of_peak([slow]) == [f"computing at less than 1% {end}"]
    assert shares_of_peak([replace(near, warnings=("not alone: others used 1.0 of the 2 core(s) of this job",))]) == []


def test_how_near_computing_comes_to_the_data_sheets_peak() -> None:
    one = run("cosmoflow", 0.0)  # 2 samples/s while computing
    gpu = {"device": {"type": "cuda", "peak_flops": 50.0, "peak_is": "data sheet, dense"}, "world": {"size": 2}}
    summary = {"flop_per_sample": 30.0, "health": {"before": {"power_limit_w": 400.0}}}
    of_two = replace(one, start={**one.start, **gpu}, summary=summary)
    assert shares_of_peak([of_two]) == ["computing at 60% of the peak in the data sheet (power limit 400 W)"]
    bound = {**gpu, "device": {**gpu["device"], "peak_is": "bound of the node"}}
    assert shares_of_peak([replace(of_two, start={**one.start, **bound})]) == []


def test_numbers_that_cannot_be_had_are_empty_cells_with_their_reason_below() -> None:
    known, window = run("resnet50", 0.25), Window(samples=8, steps=2, wall_s=4.0, stall_s=None, compute_s=None)
    reason = "its <own> nodes feed it"
    one = replace(known, windows=(window, window), summary={"no_split": reason}, warnings=("slow path",))
    lines = tables([known, one])
    rows = [line.split()[-6:] for line in lines if line.startswith("A CPU")]
    assert rows == [["storage", "2.67", "75.0%", "2.00", "0.0%", "none"], ["-", "-", "2.00", "0.0%", "[1]", "[2]"]]
    assert lines[-2:] == ["[1] slow path", f"[2] no compute throughput and no compute fraction: {reason}"]
    assert bounds([one]) == shares_of_peak([one]) == []
    shown = "\n".join(markdown(tables_of([Row(one)])))
    assert "| - | - | 2.00 |" in shown
    assert r"its \<own> nodes feed it" in shown


def test_a_run_that_measured_nothing() -> None:
    empty = Run(platform="a100", layout="1x4gpu", test="test_mine.py::test_mine[a100-1x4gpu]")
    title, _, rule, row, remark = tables([empty])
    assert remark.startswith("load not looked at")
    assert title.startswith("test_mine: ")
    assert set(rule) == {"-"}
    assert row.split() == ["a100", "unknown", "1x4gpu", "-", "unknown", "-", "-", "-", "-", "none"]


def test_platforms_are_named_where_there_are_others_than_this_machine() -> None:
    here, there = run("deepcam", 0), replace(run("deepcam", 0), platform="campus")
    assert tables([here])[1].startswith("hardware ")
    lines = tables([here, there])
    assert lines[1].startswith("platform  hardware ")
    assert [line.split()[0] for line in lines[3:5]] == ["local", "campus"]


def said(**short: str) -> dict[str, Verdict]:
    """What the gate says in short of some metrics."""
    return {metric: Verdict("", metric, Kind.OK, False, words, "") for metric, words in short.items()}


def a100(number: int, *warnings: str) -> Row:
    """A run of a platform with long names."""
    one = run("deepcam", 0.25, *warnings)
    start = {**one.start, "device": {"name": "NVIDIA A100-SXM4-40GB", "type": "cuda"}}
    there = replace(one, platform=f"eidf_a100_{number}", layout="4x8gpu", start=start)
    return Row(there, said(effective_throughput="-10.8 %, slower since 2026-11-17"))


def test_what_the_gate_says_is_a_column() -> None:
    (table,) = tables_of([a100(1), Row(run("deepcam", 0))])
    assert [row[table.headings.index("against pin")] for row in table.rows] == [
        "-10.8 %, slower since 2026-11-17",
        "-",
    ]
    (without,) = tables_of([Row(run("deepcam", 0))])
    assert "against pin" not in without.headings


def test_configurations_and_modes_have_tables_of_their_own() -> None:
    tuned, gbs32 = run("deepcam", 0), run("deepcam", 0, configuration="gbs32")
    blocking = replace(tuned, start={**tuned.start, "request": {"configuration": "tuned", "mode": "blocking"}})
    titles = [table.title.partition(":")[0] for table in tables_of([Row(one) for one in (tuned, gbs32, blocking)])]
    assert titles == [
        "deepcam, mlperf, quick, overlap, tuned",
        "deepcam, mlperf, quick, overlap, gbs32",
        "deepcam, blocking, tuned",
    ]


def test_the_runs_of_a_session_are_one_table_with_a_row_for_each() -> None:
    tuned, gbs32, other = run("deepcam", 0), run("deepcam", 0, configuration="gbs32"), run("cosmoflow", 0)
    (one,) = tables_of([Row(each) for each in (tuned, gbs32, tuned, other)], join=True)
    assert one.title.startswith("mlperf, quick, overlap: throughputs in samples/s")
    assert one.headings[:2] == ("benchmark", "hardware")
    assert [row[0] for row in one.rows] == ["deepcam, tuned", "deepcam, tuned", "deepcam, gbs32", "cosmoflow, tuned"]
    alone = tables_of([Row(tuned)], join=True)
    assert alone == tables_of([Row(tuned)])
    blocking = replace(other, start={**other.start, "request": {"size": "quick", "mode": "blocking"}})
    assert len(tables_of([Row(tuned), Row(blocking)], join=True)) == 2


def test_other_metrics_have_tables_of_their_own_with_their_units() -> None:
    stream = Run(
        test="site/test_stream.py::test_stream[local-1x1cpu-double]",
        platform="local",
        layout="1x1cpu",
        metrics={"triad": Metric(812.34, "GB/s"), "barrier": Metric(1.234, "us", "lower")},
    )
    row = Row(stream, said(triad="ok"))
    assert text(tables_of([row, Row(run("deepcam", 0))]))[-6:] == [
        "test_stream: what the test read from the log",
        "devices  setting  metric   value  unit  against pin  warnings",
        "-------------------------------------------------------------",
        "1x1cpu   double   triad    812.3  GB/s  ok           none",
        "1x1cpu   double   barrier   1.23  us    -            none",
        "load not looked at: no warning would say that others used the same cores",
    ]
    both = Row(replace(run("deepcam", 0), metrics=stream.metrics), said(triad="blind", effective_throughput="ok"))
    ours, foreign = tables_of([both])
    assert ours.rows[0][ours.headings.index("against pin")] == "ok"
    assert [row[foreign.headings.index("against pin")] for row in foreign.rows] == ["blind", "-"]


@pytest.mark.parametrize("width", [80, 120, 200])
def test_no_line_is_longer_than_the_terminal(width: int) -> None:
    rows = [a100(number, *["a long warning that one line cannot hold" * 3] * (number % 2)) for number in range(30)]
    lines = text(tables_of(rows), width)
    assert max(map(len, lines)) <= width
    assert sum("eidf_a100_" in line for line in lines) == 30
    assert sum("slower since 2026-11-17" in line for line in lines) == 30


def test_runs_whose_load_nobody_looked_at_are_counted() -> None:
    known = run("deepcam", 0)
    blind = replace(known, summary={"contention": {"neighbours_cores": None}})  # as where there is no /proc
    said = "load not looked at in 1 of 2 rows: no warning would say that others used the same cores"
    assert said in tables([known, blind])
    assert not any("load" in line for line in tables([known]))


def test_in_a_narrow_terminal_a_row_takes_two_lines() -> None:
    assert text(tables_of([a100(1), a100(2, "slow path")]), 80) == [
        "deepcam, mlperf, quick, overlap, tuned: throughputs in samples/s over all",
        "devices, spread within the job",
        "all rows: hardware NVIDIA A100-SXM4-40GB, devices 4x8gpu, setting fp32 batch 4,",
        "data from storage",
        "platform",
        "compute  compute  effective",
        "   thr.      fr.       thr.  spread  against pin",
        "-" * 80,
        "eidf_a100_1",
        "   2.67    75.0%       2.00    0.0%  -10.8 %, slower since 2026-11-17",
        "eidf_a100_2 [1]",
        "   2.67    75.0%       2.00    0.0%  -10.8 %, slower since 2026-11-17",
        "bound by compute: 75% of the time was computing, 25% waiting for data",
        "[1] slow path",
    ]


def test_what_the_gate_says_is_wrapped_where_it_must() -> None:
    lines = text(tables_of([a100(1)]), 60)
    first = next(number for number, line in enumerate(lines) if "2.67" in line)
    assert lines[first : first + 2] == [
        "   2.67    75.0%       2.00    0.0%  -10.8 %, slower since",
        "                                     2026-11-17",
    ]
