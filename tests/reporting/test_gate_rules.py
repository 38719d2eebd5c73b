"""The gate that benchmarks/gate_simulation.py simulates gives the verdicts of the gate that judges runs."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks import gate_rules
from benchmarks.gate_rules import Gate, Kind, Population
from tests.reporting.gate_nights import replay, run

NIGHTS = 55


def series_of(kind, loss, seed, repaired=None):
    generator = np.random.default_rng(seed)
    values = 100 * Population.of(kind, 4, generator).nights(NIGHTS + (repaired or 0), generator)
    values[:, :20] = np.maximum(values[:, :20], 93.0)  # while the product learns, it knows a coarse step
    values[:, 35:NIGHTS] *= 1 - loss
    return values


CALM, RESTLESS, LOUD = Kind(0.015), Kind(0.015, 0.5, 0.01), Kind(0.03)


@pytest.mark.parametrize(
    ("kind", "loss"), [(CALM, 0.0), (CALM, 0.05), (CALM, -0.05), (RESTLESS, 0.05), (LOUD, 0.05)], ids=str
)
@pytest.mark.slow
def test_the_simulated_gate_gives_the_verdicts_of_the_product(kind, loss):
    values = series_of(kind, loss, seed=3)
    simulated = gate_rules.gate(values)
    for row, red in zip(values, simulated, strict=True):
        verdicts = replay([run(night, float(value)) for night, value in enumerate(row)])
        assert [verdict.red for verdict in verdicts] == red.tolist()
    assert simulated[:, 35:].any() or loss <= 0


@pytest.mark.parametrize(("kind", "loss"), [(CALM, 0.0), (CALM, 0.1), (LOUD, 0.1)], ids=str)
@pytest.mark.slow
def test_the_simulated_confirmation_gives_the_verdicts_of_the_product(kind, loss):
    values = series_of(kind, loss, seed=3)
    again = series_of(kind, loss, seed=4)
    simulated = gate_rules.gate(values, again)
    for row, repeats, red in zip(values, again, simulated, strict=True):
        runs = [run(night, float(value)) for night, value in enumerate(row)]
        by_id = {one.key.run_id: run(night, float(repeats[night])) for night, one in enumerate(runs)}
        assert [verdict.red for verdict in replay(runs, repeats=by_id)] == red.tolist()
    assert simulated[:, 35:].any() or loss <= 0


@pytest.mark.parametrize("loss", [0.025, 0.04, 0.1])
@pytest.mark.slow
def test_the_simulated_end_of_a_loss_is_that_of_the_product(loss):
    values = series_of(CALM, loss, seed=6, repaired=25)
    values[:2, 48:NIGHTS] /= 1 - loss / 2  # half of it has been repaired
    simulated = gate_rules.gate(values)
    for row, red in zip(values, simulated, strict=True):
        verdicts = replay([run(night, float(value)) for night, value in enumerate(row)])
        assert [verdict.red for verdict in verdicts] == red.tolist()
    assert simulated[:, NIGHTS - 1].any()
    assert not simulated[:, -1].all()


def test_a_repeated_series_goes_on_as_the_series_does():
    values = series_of(Kind(0.015), 0.0, seed=5)
    gate = Gate(values[:, :20])
    for night in range(20, 40):
        gate.judge(values[:, night])
    twice = gate.repeated(2)
    for night in range(40, NIGHTS):
        red, step = gate.judge(values[:, night] * 0.97)
        red_twice, step_twice = twice.judge(np.repeat(values[:, night] * 0.97, 2))
        assert red_twice.tolist() == np.repeat(red, 2).tolist()
        assert step_twice.tolist() == np.repeat(step, 2).tolist()
