"""The example of docs/gate.md is what the gate prints."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from platforms.job import Metric
from reporting.references.answers import Note, References
from tests.reporting.campaigns import parts
from tests.reporting.gate_nights import AUTHOR, METRIC, night, nights, verdict_on

PAGE = Path(__file__).resolve().parents[2] / "docs/gate.md"


BATCH = 32


def dressed(runs, driver, fraction):
    provenance = {"driver": driver, "image": "25.10", "commit": "4f2a91c"}
    return [
        dataclasses.replace(run, provenance=provenance, beside=beside(run.metrics[METRIC].value, fraction))
        for run in runs
    ]


def beside(throughput, fraction):
    """What stands beside a run of 32 samples a step, of which the copy takes 1.2 ms."""
    step_ms = 1000 * BATCH / throughput
    return {
        "compute_throughput": Metric(throughput / fraction, "samples/s"),
        "compute_fraction": Metric(fraction, ""),
        **parts(step_ms * (1 - fraction) - 1.2, 1.2, step_ms * fraction, 0.0),
    }


def test_the_example_is_what_the_gate_prints():
    before = dressed(nights(30), "580.82", 0.83)
    since = dressed(nights(7, level=98.0, first=30), "590.11", 0.81)
    note = Note("eidf_a100", night(29), "the cooling has new pumps", AUTHOR)
    verdict = verdict_on(since[-1], [*before, *since[:-1]], References(notes=[note]))
    example = PAGE.read_text().partition("```\n")[2].partition("\n```")[0]
    assert verdict.text == example
