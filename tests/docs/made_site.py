"""A site with a history, in which the commands of the pages find what they name."""

from __future__ import annotations

from pathlib import Path

from platforms.job import Metric
from reporting.history.writer import HistoryWriter
from tests.reporting.campaigns import campaign, on_nodes, parts
from tests.reporting.fleet_history import fleet_nights
from tests.reporting.gate_nights import METRIC, PLUS_MINUS_ONE, run

TESTS = {
    "resnet50": "test_resnet50.py::test_resnet50[eidf_a100-1x4gpu-tuned]",
    "deepcam": "test_deepcam.py::test_deepcam[eidf_a100-1x4gpu-tuned]",
    "cosmoflow": "test_cosmoflow.py::test_cosmoflow[eidf_a100-1x4gpu-tuned]",
}
NIGHTS = 52
SLOW_FROM = 44  # the night of 2026-11-15
NODES = [f"n{number:02}" for number in range(1, 21)]


def made_site(folder: Path) -> Path:
    """Write nights of eidf_a100, campaigns `before` and `after` with two drivers, and visits of a cluster's nodes."""
    runs = []
    for hour, (workload, test) in enumerate(TESTS.items(), 19):
        for number in range(NIGHTS):
            is_slow = workload == "resnet50" and number >= SLOW_FROM
            level = (92.0 if is_slow else 100.0) + PLUS_MINUS_ONE[number % 5]
            verdict = {"kind": "slower" if is_slow else "ok", "red": is_slow}
            provenance = {"driver": "580.65" if is_slow else "570.124", "nodes": "n01"}
            runs.append(
                run(
                    number,
                    level,
                    hour=hour,
                    test=test,
                    benchmark=workload,
                    layout="1x4gpu",
                    fields={"benchmark": workload, "layout": "1x4gpu", "devices": 4},
                    provenance=provenance,
                    beside=parts(2, 1, 9600 / level),
                    verdicts={METRIC: verdict},
                )
            )
    runs += campaign("before", [100, 101, 99], 30, provenance={"driver": "570.124"})
    runs += campaign("after", [95, 96, 94], 40, provenance={"driver": "580.65"})
    runs += on_nodes(33, "before", dict.fromkeys(NODES[:12], 100.0), run_id="treated-before")
    runs += on_nodes(43, "after", dict.fromkeys(NODES[:12], 99.0), NODES[:6], run_id="treated-after")
    h100 = "test_deepcam.py::test_deepcam[h100-1x4gpu-tuned]"
    runs += campaign("before", [150, 151, 149], 30, platform="h100", test=h100)
    stream = "site/test_stream.py::test_stream[eidf_a100-1x4gpu]"
    rates = {"triad": Metric(812.0, "GB/s"), "copy": Metric(790.0, "GB/s")}
    runs += [run(number, 1.0, test=stream, metrics=rates, verdicts={}, hour=18.0) for number in range(30, NIGHTS)]
    visited = "site/test_rate.py::test_rate[cluster-1x4gpu]"
    runs += fleet_nights(6, ["cn1", "cn2", "cn3", "cn4"], {"cn2": 0.09}, test=visited, platform="cluster")
    HistoryWriter(folder / "history").write_all(sorted(runs, key=lambda one: one.time_s))
    return folder
