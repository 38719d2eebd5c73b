"""What may explain a change, in the sentence of the gate and of `reporting compare`."""

from __future__ import annotations

import datetime

import pytest

from platforms.job import Metric
from reporting.compare.causes import causes_of
from reporting.history.envelope import Envelope
from reporting.references.answers import Note
from tests.reporting.campaigns import parts
from tests.reporting.gate_nights import AUTHOR, run

COMMIT = "4f2c958" + 33 * "0"


def slowed(step_ms: float, **provenance: str) -> Envelope:
    return run(0, 100.0, beside=parts(0.3, 1.0, step_ms, 0.1), provenance=provenance)


def test_where_it_is_and_what_changed() -> None:
    before = [slowed(step, driver="570.124", torch="2.13.0") for step in (52.0, 52.1, 52.2)]
    after = [slowed(step, driver="580.65", torch="2.13.0") for step in (54.3, 54.4, 54.5)]
    causes = causes_of(before, after)
    assert causes.sentence() == "all of it in the device step; input unchanged; changed: driver 570.124 -> 580.65"
    assert causes.same == ("torch",)


def exchanging(wait_ms: float, step_ms: float, exchange_ms: float) -> Envelope:
    beside = {**parts(wait_ms, 1.0, step_ms, 0.1), "exchange_ms": Metric(exchange_ms, "ms", "lower")}
    return run(0, 100.0, beside=beside, provenance={})


def test_the_exchange_of_gradients_is_told_only_where_the_device_step_has_changed() -> None:
    before = exchanging(0.3, 52.0, 12.0)
    slower = causes_of([before], [exchanging(0.3, 64.0, 24.0)])
    told = "of the device step 100 % in the exchange of gradients (12.0 -> 24.0 ms per step)"
    assert slower.in_step == f"all of it in the device step; input unchanged; {told}"
    waits = causes_of([before], [exchanging(30.3, 53.5, 14.0)])  # the step varies by less than is told
    assert waits.in_step == "all of it in waiting for data; device step unchanged"


def test_a_device_that_does_not_say_where_it_is_says_why() -> None:
    before, after = run(0, 100.0, no_split="its own nodes feed it"), run(1, 90.0, no_split="its own nodes feed it")
    said = "where in a step is not known (its own nodes feed it); no provenance is recorded"
    assert causes_of([before], [after]).sentence() == said
    assert causes_of([slowed(52.1)], [after]).sentence() == said
    assert causes_of([before], [after], metric="triad").in_step == ""
    assert causes_of([slowed(52.1), before], [slowed(60.0), after]).in_step.startswith("all of it in the device step")


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ({"nodes": "n01,n02"}, {"nodes": "n03"}, "changed: nodes n01, n02 -> n03"),
        ({"nodes": "n01,n02"}, {"nodes": "n02,n03"}, "nothing that is recorded has changed (recorded: nodes)"),
        (
            {"nodes": "n01", "commit": COMMIT, "command": "app"},
            {"nodes": "n01", "commit": COMMIT, "command": "app"},
            "nothing that is recorded has changed (recorded: command, commit, nodes)",
        ),
        (dict.fromkeys("abcdefg", "1"), dict.fromkeys("abcdefg", "1"), "nothing that is recorded has changed"),
        ({"driver": "1"}, {}, "changed: driver 1 -> not recorded"),
        ({}, {}, "no provenance is recorded"),
        ({"commit": COMMIT}, {"commit": f"{COMMIT}-dirty"}, "changed: commit 4f2c9580 -> 4f2c9580-dirty"),
        (
            {"a": "1", "b": "1", "c": "1", "driver": "1", "torch": "1"},
            {"a": "2", "b": "2", "c": "2", "driver": "2", "torch": "2"},
            "changed: driver 1 -> 2, torch 1 -> 2, a 1 -> 2, b 1 -> 2 and 1 more",
        ),
    ],
)
def test_what_differs_in_provenance(before: dict[str, str], after: dict[str, str], said: str) -> None:
    causes = causes_of([slowed(52.1, **before)], [slowed(52.1, **after)], metric="triad")
    assert causes.sentence() == said


def test_notes_end_the_sentence() -> None:
    note = Note("eidf_a100", datetime.date(2026, 10, 31), "the cooling has new pumps", AUTHOR)
    causes = causes_of([slowed(52.1)], [slowed(60.0)], [note])
    assert causes.sentence() == (
        "all of it in the device step; input unchanged; no provenance is recorded; "
        "noted on 2026-10-31: the cooling has new pumps"
    )
