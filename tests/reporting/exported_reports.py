"""Reports for the tests of the exports: made from a history as the commands make them."""

from __future__ import annotations

import datetime
from dataclasses import replace

from platforms.job import Metric, Outcome
from reporting.history.nights import NOON
from reporting.references.answers import Note, References
from reporting.report.build import build
from reporting.report.data import NodeReport, ReportData
from tests.reporting.campaigns import parts
from tests.reporting.gate_nights import AUTHOR, METRIC, failed, night, nights, run

SLOWER = "test_resnet50.py::test_resnet50[eidf_a100-1x4gpu-tuned]"
FAILED = "test_deepcam.py::test_deepcam[eidf_a100-1x4gpu-tuned]"
LATENCY = 'site/test_net.py::test_net[archer2-2x2cpu-"a b"\\#\n\x1b\udc80]'
NEVER = "test_cosmoflow.py::test_cosmoflow[archer2-1x2cpu-tuned]"


def report() -> ReportData:
    """Forty nights: one test is slower since night 34, one fails since 38, one is calm, and one never had a number."""
    before, since = _provenance("570.124"), _provenance("580.65")
    red = {METRIC: {"kind": "slower", "red": True}}
    jobs = nights(34, 100.0, provenance=before, beside=parts(2, 1, 50, 0.1), layout="1x4gpu")
    jobs += nights(6, 90.0, 34, provenance=since, beside=parts(2, 1, 56, 0.1), verdicts=red, layout="1x4gpu")
    jobs += nights(38, 100.0, test=FAILED, hour=23.0, provenance=before)
    jobs += [failed(number, test=FAILED, hour=23.0) for number in (38, 39)]
    there = {"platform": "archer2", "provenance": {"nodes": "a1"}}
    for number in range(40):
        latency = Metric(2.5 + (number % 5) / 100, "us", "lower")
        ok = {"latency": {"kind": "ok", "red": False}}
        jobs.append(run(number, 1.0, test=LATENCY, metrics={"latency": latency}, verdicts=ok, **there))
    jobs.append(failed(39, test=NEVER, outcome=Outcome.ERROR, platform="archer2"))
    jobs.sort(key=lambda job: job.time_s)
    noted = References(notes=[Note("eidf_a100", night(33), 'driver "580"\nby the vendor', AUTHOR)])
    now = datetime.datetime.fromtimestamp(jobs[-1].time_s + 6 * 3600).astimezone()
    made = build(jobs, noted, "Übersee\\centre", NOON, now, ["nights.jsonl:7: this line is skipped"])
    return replace(
        made, nodes=(_node("n07", "slow", -0.08), _node("n08", "fit", 0.01), _node("n09", "not judged", None))
    )


def _provenance(driver: str) -> dict[str, str]:
    return {"driver": driver, "nodes": "n01", "device": "A100-SXM4-80GB"}


def _node(name: str, standing: str, deviation: float | None) -> NodeReport:
    error = None if deviation is None else 0.01
    return NodeReport("eidf_a100", name, 9, standing, deviation, error, str(night(39)), 0)
