"""How tests scale over the layouts of a session: weak, strong, neither, where it is lost, the table, the picture."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from xml.etree import ElementTree

import pytest

from platforms.job import Outcome, Role, Trial
from reporting.compare.scaling import Kind, Scaling, lost_in, scalings
from reporting.history.envelope import Envelope
from reporting.history.run_facts import EXCHANGE, envelope_of
from reporting.report.charts.scaling_chart import scaling_chart
from reporting.report.page import render
from reporting.tables.scaling import scaling_table
from reporting.tables.text import text
from tests.reporting import report_samples
from tests.reporting.run_json import gpu_run

STEPS = 50


def run(
    layout: str,
    batch: int,
    *,
    wait: float = 10.0,
    computing: float = 90.0,
    exchange: float | None = None,
    run_id: str = "r1",
    began: float = 0.0,
    test: str = "test_resnet50.py::test_resnet50[a100-{}gpu-tuned]",
    **changes: Any,
) -> Envelope:
    """A job whose step takes so many ms in each part, and trains one global batch."""
    wall = wait + computing + (exchange or 0.0)
    window = {"samples": STEPS * batch, "steps": STEPS, "wall_s": STEPS * wall / 1000}
    window |= {"stall_s": STEPS * wait / 1000, "compute_s": STEPS * (wall - wait) / 1000, "stall_h2d_s": 0.0}
    content = gpu_run(
        test=test.format(layout),
        layout=f"{layout}gpu",
        start__request__global_batch_size=batch,
        summary__exchange_share=None if exchange is None else exchange / wall,
        started_s=began,
        **{"windows": [window], **changes},
    )
    return envelope_of(
        content, site="site", run_id=run_id, attempt=1, outcome=Outcome.PASSED, sane=True, revision=3, written_s=1.0
    )


def one(envelopes: Sequence[Envelope]) -> Scaling:
    (found,) = scalings(envelopes)
    return found


def test_each_device_with_the_same_batch_is_weak_scaling_and_a_step_should_take_as_long() -> None:
    """A step of 100 ms takes 120: 12 + 88 + 20."""
    base, four = one([run("1x4", 128, wait=12, computing=88, exchange=20), run("1x1", 32)]).layouts
    assert (base.kind, base.layout, base.speedup) == (Kind.BASE, "1x1gpu", 1.0)
    assert (four.kind, four.devices, four.batch) == (Kind.WEAK, 4, 128)
    assert (four.speedup, four.efficiency) == (pytest.approx(4 / 1.2), pytest.approx(1 / 1.2))
    assert four.of_device == pytest.approx(four.throughput / 4)
    assert four.lost == "exchange of gradients 91 % (20 ms)"


def test_all_devices_that_share_a_batch_are_strong_scaling_and_each_part_should_shrink() -> None:
    """A quarter of 10 ms of waiting and 90 ms of computing are 2.5 and 22.5 ms."""
    _base, four = one([run("1x1", 32), run("1x4", 32, wait=10, computing=30, exchange=10)]).layouts
    assert (four.kind, four.speedup, four.efficiency) == (Kind.STRONG, pytest.approx(2.0), pytest.approx(0.5))
    assert four.lost == "exchange of gradients 40 % (10 ms), waiting for data 30 % (7.5 ms), computing 30 % (7.5 ms)"


@pytest.mark.parametrize(
    ("batch", "said"),
    [(48, "not known: the global batch and that of each device differ"), (None, "not known: the batch is not known")],
)
def test_runs_that_share_no_batch_have_no_efficiency(batch: int | None, said: str) -> None:
    two = run("1x2", batch or 64, **({} if batch else {"start__request": {}}))
    row = one([run("1x1", 32), two]).layouts[1]
    assert (row.kind, row.efficiency, row.lost) == (Kind.NEITHER, None, said)
    assert row.of_device == pytest.approx(row.throughput / 2)


def test_each_layout_is_weak_or_strong_for_itself() -> None:
    found = one([run("1x1", 32), run("1x2", 64), run("1x4", 32, computing=20), run("2x4", 100)])
    assert [row.kind for row in found.layouts] == [Kind.BASE, Kind.WEAK, Kind.STRONG, Kind.NEITHER]


BASE = {"wait_ms": 10.0, "step_ms": 90.0}


def test_a_loss_below_two_per_cent_is_none() -> None:
    assert lost_in({"wait_ms": 10.0, "step_ms": 91.5}, BASE, 100 / 101.5, 1.0) == "nothing"
    assert lost_in({"wait_ms": 10.0, "step_ms": 93.0}, BASE, 100 / 103, 1.0) == "the device step 100 % (3 ms)"


def test_where_it_is_lost_is_not_known_without_the_same_parts_or_if_they_do_not_add_up() -> None:
    assert lost_in({}, {}, 0.5, 1.0) == "not known"
    assert lost_in({"stall_ms": 10.0, "step_ms": 190.0}, BASE, 0.5, 1.0) == "not known"
    contradicts = lost_in({"wait_ms": 10.0, "step_ms": 110.0}, BASE, 0.5, 1.0)
    assert contradicts == "not known: the parts of the step do not add up to the loss"
    assert lost_in({"wait_ms": math.nan, "step_ms": 1.0}, BASE, 0.5, 1.0) == "not known"


def test_a_device_that_does_not_tell_the_parts_says_why() -> None:
    runs = [run("1x1", 32), run("1x2", 64, computing=190)]
    whole = [replace(each, beside={}, no_split="whole steps only") for each in runs]
    assert one(whole).layouts[1].lost == "not known (whole steps only)"


def test_a_program_that_does_not_say_when_it_exchanges_loses_in_the_device_step() -> None:
    _base, two = one([run("1x1", 32), run("1x2", 64, computing=190)]).layouts
    assert two.lost == "the device step 100 % (100 ms)"
    assert EXCHANGE not in run("1x2", 64).beside


def test_repeats_of_a_layout_count_by_their_median() -> None:
    repeats = [run("1x2", 64, computing=ms) for ms in (90, 110, 400)]
    assert one([run("1x1", 32), *repeats]).layouts[1].throughput == pytest.approx(64 / 0.12)


def test_only_the_last_session_with_several_layouts_counts_and_only_runs_with_numbers() -> None:
    first = [run("1x1", 32, began=1.0), run("1x2", 64, began=1.0)]
    last = [run("1x1", 32, began=9.0, run_id="r2"), run("1x2", 64, computing=91, began=9.0, run_id="r2")]
    alone = run("1x4", 128, began=99.0, run_id="r3")
    assert one([*last, *first, alone]).run_id == "r2"
    others = [replace(run("1x2", 64), sane=False), replace(run("1x2", 64), trial=Trial(Role.CONFIRM))]
    no_number = run("1x2", 64, windows=[], effective_throughput=math.nan)
    assert scalings([run("1x1", 32), *others, no_number]) == []


def test_other_settings_and_other_tests_are_no_layouts_of_a_test() -> None:
    others = run("1x2", 64, test="test_resnet50.py::test_resnet50[a100-{}gpu-gbs32]")
    assert scalings([run("1x1", 32), others]) == []


def test_the_table_says_against_what_and_marks_doubts_and_what_else_differs() -> None:
    doubtful = run("1x4", 128, exchange=25, warnings=["crowded: 8 threads"], summary__data_from="memory")
    lines = text([scaling_table(one([run("1x1", 32), doubtful]))])
    assert [" ".join(line.split()) for line in lines if set(line) != {"-"}] == [
        "resnet50 tuned on a100: scaling against 1x1gpu, session r1, throughput in samples/s",
        "layout devices batch throughput per device speedup scaling efficiency lost in warnings",
        "1x1gpu 1 32 320.0 320.0 1.00 base - - none",
        "1x4gpu 4 128 1024 256.0 3.20 weak 80.0% exchange of gradients 100 % (25 ms) [1]",
        "weak: each device has the same batch as in 1x1gpu, so a step should take as long",
        "1x4gpu: data came from storage, is memory",
        "[1] in doubt: crowded",
    ]


def test_the_picture_has_the_ideal_the_points_and_their_efficiencies_and_stands_on_the_page() -> None:
    runs = [run("1x1", 32), run("1x2", 64), run("1x4", 128, exchange=25, warnings=["crowded: 8 threads"])]
    scaling = one(runs)
    svg = scaling_chart(scaling)
    root = ElementTree.fromstring(svg)
    assert [line.get("class") for line in root.iter("line")].count("scaled") == 2
    assert [circle.get("class") for circle in root.iter("circle")] == ["fill", "fill", "hollow"]
    said = [element.text for element in root.iter("text")]
    assert {"ideal", "100.0 %", "80.0 %", "4 devices"} <= set(said)
    assert "1x4gpu: 1024, efficiency 80.0 %, weak scaling, in doubt: crowded." in svg
    assert 'id="scaling"' not in render(report_samples.single_run(), evidence=None)
    page = render(replace(report_samples.single_run(), scalings=(scaling,)), evidence=None)
    assert svg in page
    assert "exchange of gradients 100\u202f% (25 ms)" in page


def test_layouts_of_equally_many_devices_have_a_picture() -> None:
    assert "nan" not in scaling_chart(one([run("1x4", 32), run("2x2", 32)]))
