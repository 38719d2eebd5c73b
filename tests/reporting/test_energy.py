"""The energy that a job's devices counted becomes one number for each sample, or a reason why there is none."""

from __future__ import annotations

from typing import Any

import pytest

from platforms.job import Metric, Outcome, Run, State
from platforms.rundir import job_json
from reporting.history.envelope import Revision
from reporting.history.run_facts import beside_of, envelope_of
from reporting.tables.grouped import tables_of
from reporting.tables.row import Row, of_run
from tests.reporting.run_json import gpu_run
from tests.reporting.table_history import REST

# 12,000 samples in 30 s, and the meter's watch begins a little before
GOOD = {"joules": 6302.0, "polled_joules": 6290.0, "devices": 4, "seconds": 30.3}


def run(energy: object = None, **changes: Any) -> Run:
    return job_json.run_from(gpu_run(**{**REST, "summary__energy": energy, **changes}))


def notes(*runs: Run) -> list[str]:
    (table,) = tables_of([Row(one) for one in runs])
    return [note for note in table.notes if note.startswith("energy")]


def test_energy_of_a_sample_is_mean_power_times_its_share_of_the_windows() -> None:
    beside = beside_of(gpu_run(summary__energy=GOOD))
    assert beside["energy_per_sample"] == Metric(pytest.approx(6302.0 / 30.3 * 30 / 12_000), "J/sample", "lower")
    sources = "by 6,302 J that the counters of 4 device(s) tell in 30.3 s; the power adds up to 6,290 J"
    assert notes(run(GOOD)) == [f"energy of the devices: 0.520 J/sample, {sources}"]


def test_energy_of_tokens_is_that_of_a_token() -> None:
    content = gpu_run(summary__energy=GOOD, start__data={"tokens_per_sample": 1000})
    assert beside_of(content)["energy_per_token"] == Metric(pytest.approx(0.00052, rel=1e-3), "J/token", "lower")


def test_energy_is_beside_a_run_and_not_judged() -> None:
    envelope = envelope_of(
        gpu_run(summary__energy=GOOD), site="centre", run_id="r1", attempt=1, outcome=Outcome.PASSED, sane=True,
        revision=Revision.TEST_ENDED, written_s=0.0,
    )  # fmt: skip
    assert list(envelope.metrics) == ["effective_throughput"]
    assert "energy_per_sample" in envelope.beside


@pytest.mark.parametrize(
    ("energy", "said"),
    [
        (None, []),
        ({}, []),
        ({"why": "a MIG slice\nhas no counter"}, ["energy of the devices not known: a MIG slice has no counter"]),
        (
            {**GOOD, "seconds": 40.0},
            ["energy of the devices not known: it was counted for 40.0 s, and the windows took 30.0 s"],
        ),
        ({"joules": "many", "seconds": 30.0}, []),
    ],
)
def test_without_a_number_there_is_a_reason_or_nothing(energy: object, said: list[str]) -> None:
    assert notes(run(energy)) == said
    assert "energy_per_sample" not in beside_of(gpu_run(summary__energy=energy))


def test_several_rows_have_a_line_each_and_one_on_reasons() -> None:
    dear = {**GOOD, "joules": 2 * GOOD["joules"]}
    lost = [run({"why": "2.0 s are too short"}), run({"why": "3.0 s are too short"})]
    cheaper, dearer, unknown = notes(run(GOOD), run(dear), *lost, run())
    named = f"energy of the devices ({of_run(run())}): "
    assert cheaper.startswith(f"{named}0.520 J/sample, by 6,302 J")
    assert dearer.startswith(f"{named}1.04 J/sample, by 12,604 J")
    assert unknown == "energy of the devices not known in 2 of 5 rows: 2.0 s are too short"


def test_the_schedulers_account_is_of_whole_nodes_and_of_a_step() -> None:
    line = "energy of the nodes by the scheduler: {} in a job's largest step, with all else that ran there"
    assert notes(run(nodes_energy_j=812_345.0)) == [line.format("812.3 kJ")]
    less = "; less than their devices took in the windows, so it does not count these"
    assert notes(run(GOOD, nodes_energy_j=5000.0))[1:] == [line.format("5.00 kJ") + less]


def test_an_old_run_json_has_no_account() -> None:
    assert run().status.state is State.SUCCEEDED
    assert run().status.nodes_energy_j is None
