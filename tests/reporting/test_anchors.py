"""Published numbers are complete, agree with themselves, and stand only beside runs that are like them."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from platforms.checkout import benchmarks
from platforms.job import Run, Window
from reporting.tables.anchors import Anchor, anchors, beside, neighbours
from reporting.tables.row import Row

SHAPES = {"resnet50": "224x224", "cosmoflow": "128x128x128", "deepcam": "768x1152", "gpt": "8192"}


def ident(anchor: Anchor) -> str:
    return f"{anchor.source.split(',')[0]}-{anchor.place}-{anchor.benchmark}-{anchor.system}-{anchor.device}"


@pytest.mark.parametrize("anchor", anchors(), ids=ident)
def test_each_is_complete(anchor: Anchor) -> None:
    assert anchor.benchmark in benchmarks()
    assert anchor.shape == SHAPES[anchor.benchmark]
    assert anchor.variant in ("v1.5", "epcc", "mlperf", "llama-8b")
    assert anchor.url.startswith("https://")
    assert re.search(r"20\d\d", str(anchor.published))
    assert anchor.likeness in ("same", "model")
    assert anchor.per in ("all", "device")
    assert anchor.place
    assert anchor.system
    assert anchor.device
    assert anchor.matches
    assert anchor.devices >= 1
    assert anchor.effective_throughput > 0
    assert anchor.precision in (None, "fp32", "tf32", "bf16", "fp16", "fp8")
    assert anchor.data in (None, "real", "synthetic")
    assert set(anchor.doubted) <= {"compute_throughput"}


@pytest.mark.parametrize("anchor", [each for each in anchors() if each.compute_fraction], ids=ident)
def test_effective_is_compute_times_fraction_except_where_it_is_marked(anchor: Anchor) -> None:
    assert 0 < anchor.compute_fraction <= 1
    gap = abs(anchor.compute_throughput * anchor.compute_fraction / anchor.effective_throughput - 1)
    if gap > 0.015:  # of rounding, in 6.1 samples/s
        assert "compute_throughput" in anchor.doubted
    else:
        assert "impossible" not in anchor.doubted.get("compute_throughput", "")


def test_the_two_cells_that_cannot_be_right_are_marked() -> None:
    marked = [(anchor.place, anchor.device, list(anchor.doubted)) for anchor in anchors() if anchor.doubted]
    assert marked == [
        ("Table 3", "AMD MI210", ["compute_throughput"]),
        ("Table 4", "NVIDIA V100", ["compute_throughput"]),
    ]


def test_the_papers_tables_are_whole() -> None:
    rows = [anchor.place for anchor in anchors() if anchor.url.endswith("3625549.3658896")]
    assert [rows.count(f"Table {number}") for number in (2, 3, 4)] == [6, 5, 4]


def test_what_is_published_is_of_one_device_or_of_all() -> None:
    eos = [each for each in anchors() if each.system == "Eos, weak"]
    assert {each.benchmark: each.effective_per_device for each in eos} == {"cosmoflow": 6624 / 32, "deepcam": 73}


# --- beside ours -----------------------------------------------------------------------------------------------------


def as_in_table_3(**changes: object) -> Run:
    """A run of CosmoFlow with the paper's setting on four A100."""
    request = {
        "variant": "mlperf",
        "shape": "128x128x128",
        "dtype": "fp32",
        "global_batch_size": 32,
        "mode": "blocking",
        **changes,
    }
    start = {"request": request, "device": {"name": "NVIDIA A100-SXM4-40GB"}, "data": {"kind": "real"}}
    window = Window(samples=800, steps=25, wall_s=10.0, stall_s=1.0, compute_s=9.0)
    test = "test_cosmoflow.py::test_cosmoflow[eidf_a100-1x4gpu-gbs32]"
    return Run(test=test, platform="eidf_a100", benchmark="cosmoflow", layout="1x4gpu", start=start, windows=(window,))


def test_a_run_with_the_papers_setting_is_like_the_papers() -> None:
    first, *others = neighbours(as_in_table_3())
    assert first.anchor.place == "Table 3"
    assert first.likeness == "same"
    assert first.differences == ()
    assert others
    assert {each.likeness for each in others} == {"model"}
    assert all("A100" in each.anchor.device for each in others)


def test_a_run_with_another_setting_says_what_differs() -> None:
    run = as_in_table_3(dtype="bf16", global_batch_size=512, mode="overlap")
    (paper,) = [each for each in neighbours(run) if each.anchor.place == "Table 3"]
    assert paper.likeness == "model"
    assert paper.differences == ("precision fp32, ours bf16", "global batch 32, ours 512", "blocking, ours overlap")
    synthetic = replace(run, start={**run.start, "data": {"kind": "synthetic"}}, layout="2x4gpu")
    (paper,) = [each for each in neighbours(synthetic) if each.anchor.place == "Table 3"]
    assert paper.differences[2:4] == ("devices 4, ours 8", "data real, ours synthetic")


@pytest.mark.parametrize(
    "other",
    [
        as_in_table_3(shape="32x32x32"),
        as_in_table_3(variant="other"),
        replace(as_in_table_3(), benchmark="resnet50"),
        replace(as_in_table_3(), start={**as_in_table_3().start, "device": {"name": "NVIDIA B200"}}),
        replace(as_in_table_3(), start={}),
        Run(),
    ],
    ids=["shape", "variant", "benchmark", "device", "nothing known", "nothing"],
)
def test_nothing_stands_beside_other_work_or_another_device(other: Run) -> None:
    assert neighbours(other) == []
    assert beside([Row(other)]) == []


def test_the_table_beside_ours_is_of_one_device() -> None:
    (table,) = beside([Row(as_in_table_3())])
    first = dict(zip(table.headings, table.rows[0], strict=True))
    assert (first["ours"], first["published"]) == ("20.0", "14.5")  # 80 and 58.1 samples/s on four
    assert (first["likeness"], first["what differs"]) == ("same", "nothing")
    assert "Table 3: https://doi.org/10.1145/3625549.3658896" in table.notes[0]
