"""What of a run.json goes into its envelope."""

from __future__ import annotations

import json
from typing import Any

import pytest

from platforms.job import Metric, Outcome
from reporting.history.comparability import comparability, fields_of
from reporting.history.envelope import Envelope, Revision
from reporting.history.envelope_json import from_line, to_line
from reporting.history.run_facts import EXCHANGE, STEP_PARTS, THROUGHPUT, envelope_of
from tests.reporting.run_json import WINDOW, gpu_run


def envelope(run: dict[str, Any], **changes: Any) -> Envelope:
    given: dict[str, Any] = {
        "site": "centre",
        "run_id": "20261122-220339-2394",
        "attempt": 1,
        "outcome": Outcome.PASSED,
        "sane": True,
        "revision": Revision.TEST_ENDED,
        "written_s": 1795385700.0,
    }
    return envelope_of(run, **{**given, **changes})


def test_an_envelope_says_which_job_it_was_and_when() -> None:
    run = gpu_run()
    made = envelope(run)
    assert made.key == ("centre", "20261122-220339-2394", run["test"], 1, "4711", 1795385019.8, "")
    assert (made.platform, made.benchmark, made.layout) == ("a100", "resnet50", "1x4gpu")
    assert (made.started_s, made.ended_s) == (1795385573.2, 1795385678.2)
    assert made.metrics == {"effective_throughput": Metric(400.0, "samples/s", "higher")}
    assert made.comparability == comparability(fields_of(run))
    assert made.eligible


def test_all_windows_are_judged_and_their_parts_stand_beside() -> None:
    slow = {**WINDOW, "wall_s": 12.5, "stall_s": 3.0}
    made = envelope(gpu_run(windows=[slow, WINDOW, slow]))
    assert made.metrics["effective_throughput"].value == pytest.approx(12_000 / 35)
    product = made.beside["compute_throughput"].value * made.beside["compute_fraction"].value
    assert product == pytest.approx(12_000 / 35)
    assert sum(made.beside[part].value for part in STEP_PARTS if part in made.beside) == pytest.approx(35_000 / 150)
    assert made.beside["fastest_stretch"].value == 400.0
    assert "compute_fraction" not in made.metrics


@pytest.mark.parametrize("copying_s", [None, 0.125])
def test_the_parts_of_a_step_add_up_to_the_whole(copying_s: float | None) -> None:
    window = {**WINDOW, "compute_s": 9.25, "stall_h2d_s": copying_s}
    beside = envelope(gpu_run(windows=[window])).beside
    parts = {name: metric.value for name, metric in beside.items() if name in STEP_PARTS}
    assert sum(parts.values()) == pytest.approx(1000 * 10.0 / 50)
    assert {(metric.unit, metric.better) for name, metric in beside.items() if name in parts} == {("ms", "lower")}
    if copying_s is None:
        assert parts == pytest.approx({"stall_ms": 10.0, "step_ms": 185.0, "other_ms": 5.0})
    else:
        assert parts == pytest.approx({"wait_ms": 7.5, "h2d_ms": 2.5, "step_ms": 185.0, "other_ms": 5.0})


@pytest.mark.parametrize(("share", "found"), [(0.25, 50.0), (None, None), ("much", None)])
def test_the_exchange_of_gradients_stands_beside_where_it_is_known(share: object, found: float | None) -> None:
    beside = envelope(gpu_run(summary__exchange_share=share)).beside
    assert (beside[EXCHANGE].value if EXCHANGE in beside else None) == found


def test_the_rest_of_a_step_may_be_negative() -> None:
    """In overlap mode the device's clock measures the parts, and the host's clock the whole."""
    beside = envelope(gpu_run(windows=[{**WINDOW, "compute_s": 9.75}])).beside
    assert beside["other_ms"].value == pytest.approx(-5.0)


def test_without_a_split_throughput_is_judged_and_nothing_stands_beside() -> None:
    window = {**WINDOW, "stall_s": None, "compute_s": None}
    short = {**window, "samples": 400, "wall_s": 1.0}  # joined with the one behind it
    reason = "its own nodes feed it"
    made = envelope(gpu_run(windows=[short, window, window], summary__no_split=reason))
    assert made.metrics[THROUGHPUT].value == 400.0
    assert (list(made.beside), made.no_split, made.doubts) == (["fastest_stretch"], reason, ())
    assert from_line(to_line(made)) == made


def test_what_was_compiled_explains_no_change_of_numbers_measured_later() -> None:
    hit, miss = (envelope(gpu_run(summary__compile_cache=said, summary__compile_s=9.0)) for said in ("hit", "miss"))
    assert hit.provenance == miss.provenance
    assert hit.comparability == miss.comparability


def test_without_windows_the_mean_of_what_a_test_read_is_judged() -> None:
    made = envelope(gpu_run(windows=[], read_by_test=[0.01, 0.03], effective_throughput=50.0))
    assert made.metrics["effective_throughput"].value == 50.0
    assert made.beside == {}


def test_what_a_test_recorded_is_judged_beside_our_own_number() -> None:
    triad = {"value": 812.0, "unit": "GB/s", "better": "higher"}
    assert list(envelope(gpu_run(metrics={"triad": triad})).metrics) == ["effective_throughput", "triad"]
    foreign = gpu_run(windows=[], effective_throughput=None, spread_within_job=None, metrics={"triad": triad})
    assert envelope(foreign).metrics == {"triad": Metric(812.0, "GB/s", "higher")}


def test_a_job_that_never_began_has_an_envelope_without_numbers() -> None:
    run = gpu_run(start={}, summary={}, windows=[], effective_throughput=None, spread_within_job=None, nodes=[])
    made = envelope(run, outcome=Outcome.PENDING, sane=False, revision=Revision.PENDING)
    assert made.metrics == {}
    assert not made.eligible


LACKS_LINES = "log may lack lines: container c of pod p wrote about 3.0 MiB, and nodes may rotate a log from 1 MiB on"
BANDWIDTH = {"value": 3.0, "unit": "GB/s", "better": "higher"}


@pytest.mark.parametrize(
    ("change", "doubts"),
    [
        ({}, ()),
        ({"warnings": ["not alone: others used 1.3 of the 2 core(s) of this job"]}, ("not alone",)),
        ({"warnings": ["a virtual machine: 12% of its processor time went to others while it ran"]}, ("not alone",)),
        ({"warnings": ["suspended: rank 0 on n07 was stopped and continued 1 time(s)"]}, ("suspended",)),
        ({"warnings": ["crowded: ranks 0, 1 on n07: 2 thread(s) on 1 core(s) (0)"]}, ("crowded",)),
        ({"warnings": ["steps not known: nothing says how the steps of the job ended"]}, ("steps not known",)),
        ({"warnings": [LACKS_LINES]}, ()),  # the lines of windows are numbered
        ({"warnings": [LACKS_LINES], "windows": []}, ("log may lack lines",)),
        ({"warnings": [LACKS_LINES], "metrics": {"bandwidth": BANDWIDTH}}, ("log may lack lines",)),
        ({"start__request__inject": {"slow": 2.0}}, ("slowed on purpose",)),
        ({"warnings": ["straggler: rank 3 on n07", "a global batch of 2, not the 32 of gbs32"]}, ()),
    ],
)
def test_doubts_say_why_a_run_fills_no_pin(change: dict[str, object], doubts: tuple[str, ...]) -> None:
    made = envelope(gpu_run(**change))
    assert made.doubts == doubts
    assert made.eligible == (not doubts)


@pytest.mark.parametrize(
    ("change", "explanations"),
    [
        ({}, ()),
        ({"spread_within_job": 0.11}, ("unsteady",)),
        ({"warnings": ["throttled: a CPU quota", "the CPU quota changed while …"]}, ("throttled",)),
        ({"summary__health__throttled": {"rank 3": ["power cap", "hardware thermal"]}}, ("throttled",)),
        ({"summary__health__throttled": None}, ()),
    ],
)
def test_heat_and_stalls_explain_a_number_and_the_run_counts(
    change: dict[str, object], explanations: tuple[str, ...]
) -> None:
    made = envelope(gpu_run(**change))
    assert made.explanations == explanations
    assert made.eligible


def test_provenance_is_flat_and_short() -> None:
    provenance = envelope(gpu_run()).provenance
    assert provenance["driver"] == "550.54"
    assert provenance["nodes"] == "n01"
    assert provenance["batch"] == "1024"
    assert provenance["torch"] == "2.13.0"
    assert provenance["power_limit_w"] == "400"
    assert all(isinstance(value, str) for value in provenance.values())
    assert len(json.dumps(dict(provenance))) < 800


def test_the_command_of_a_program_without_the_wire_is_provenance() -> None:
    run = gpu_run(start={}, summary={}, asked__image="registry/stream:1", asked__arguments=["./stream", "-n", "100"])
    provenance = envelope(run).provenance
    assert provenance["command"] == "./stream -n 100"
    assert provenance["image"] == "registry/stream:1"


def test_the_folder_of_a_checkout_is_no_part_of_a_command() -> None:
    run = gpu_run(start={}, summary={}, asked__arguments=["python", "/builds/ci-7/site/tiny.py", "--data=/scratch"])
    assert envelope(run).provenance["command"] == "python tiny.py --data=/scratch"


def test_the_group_of_an_upgrade_is_kept() -> None:
    run = gpu_run()
    assert "group" not in envelope(run).provenance
    run["asked"] = {**run.get("asked", {}), "group": "treated"}
    assert envelope(run).provenance["group"] == "treated"
