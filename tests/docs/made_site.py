"""A site with a history, in which the commands of the pages find what they name."""

from __future__ import annotations

import datetime
import random
from pathlib import Path
from typing import Any

from platforms.job import Metric, Outcome
from reporting.history.writer import HistoryWriter
from reporting.references import store
from reporting.references.answers import Author, Note
from tests.reporting.campaigns import campaign, on_nodes, parts
from tests.reporting.fleet_history import fleet_nights
from tests.reporting.gate_nights import METRIC, run
from tests.reporting.gate_nights import night as night_date

LEVELS = {"resnet50": 9950.0, "deepcam": 411.0, "cosmoflow": 1215.0}
NIGHTS = 52  # the last one is that of 2026-11-22
SLOW_FROM = 44  # the night of 2026-11-15
GAPS = (9, 10, 33)
FAILED = (("resnet50", 27), ("cosmoflow", 51))
THROTTLED = (("resnet50", 21), ("resnet50", 22))
NODES = [f"n{number:02}" for number in range(1, 21)]


def made_site(folder: Path) -> Path:
    """Write nights of eidf_a100, campaigns `before` and `after` with two drivers, and visits of a cluster's nodes."""
    folder.mkdir(parents=True, exist_ok=True)
    chance = random.Random(17)
    runs = []
    for hour, (workload, level) in enumerate(LEVELS.items(), 19):
        for number in range(NIGHTS):
            if workload == "resnet50" and number in GAPS:
                continue
            is_slow = workload == "resnet50" and number >= SLOW_FROM
            value = level * (0.92 if is_slow else 1.0) * (1 + chance.gauss(0, 0.006))
            night: dict[str, Any] = {
                "hour": hour,
                "test": f"test_{workload}.py::test_{workload}[eidf_a100-1x4gpu-tuned]",
                "benchmark": workload,
                "layout": "1x4gpu",
                "fields": {"benchmark": workload, "layout": "1x4gpu", "devices": 4},
                "provenance": {"driver": "580.65" if is_slow else "570.124", "nodes": "n01"},
                "beside": parts(2, 1, 96.0 * level / value),
                "verdicts": {METRIC: {"kind": "slower" if is_slow else "ok", "red": is_slow}},
            }
            if (workload, number) in FAILED:
                night |= {"metrics": {}, "beside": {}, "verdicts": {}, "sane": False, "outcome": Outcome.ERROR}
            if (workload, number) in THROTTLED:
                night["doubts"] = ("throttled",)
            runs.append(run(number, value, **night))
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
    author = Author("ada", datetime.datetime(2026, 11, 14, 9, tzinfo=datetime.UTC))
    store.append(folder, Note("eidf_a100", night_date(SLOW_FROM - 1), "new firmware on all switches", author))
    HistoryWriter(folder / "history").write_all(sorted(runs, key=lambda one: one.time_s))
    return folder
