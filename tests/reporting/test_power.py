"""What `power` states, beside what the gate finds when the loss is put into simulated series."""

from __future__ import annotations

import random
import statistics

import pytest

from reporting.__main__ import main
from reporting.gate.power import sight_of
from reporting.gate.quiet import quiet_runs
from reporting.gate.series import pin_of, series_of
from reporting.history.nights import NOON
from reporting.history.writer import HistoryWriter
from tests.reporting.gate_nights import METRIC, TEST, nights, replay, run


def noisy(count, deviation, seed, *, better="higher", hours=(22.0,), outliers=0.0, memory=0.0):
    """Nights of noise around 100. With `outliers` so many of the runs lose 8 %."""
    generator = random.Random(seed)
    runs = []
    normal = 0.0
    for night in range(count):
        for hour in hours:
            normal = memory * normal + (1 - memory**2) ** 0.5 * generator.gauss(0, 1)
            loss = 8.0 if generator.random() < outliers else 0.0
            value = 100 + deviation * normal - loss
            if better == "lower":
                value = 10_000 / value
            runs.append(run(night, value, better=better, hour=hour))
    return runs


def series_and_pin(runs):
    series = series_of(METRIC, runs[-1], runs, NOON)
    return series, pin_of(series, None)


def sight(runs, each_night=None, trials=1000):
    found = sight_of(*series_and_pin(runs), each_night, trials)
    assert found is not None
    return found


def test_a_loss_is_found_as_often_as_is_stated():
    found = 0
    stated = []
    for seed in range(60):
        runs = noisy(66, 1.5, seed)
        stated.append(sight(runs[:60], trials=200).chance(0.03))
        lost = [run(60 + night, runs[60 + night].metrics[METRIC].value * 0.97) for night in range(6)]
        found += any(verdict.red for verdict in replay([*runs[:60], *lost])[60:])
    assert statistics.fmean(stated) == pytest.approx(found / 60, abs=0.1)
    assert 0.4 < found / 60 < 0.8


def test_a_larger_loss_is_found_more_often_and_loss_is_the_inverse_of_chance():
    found = sight(noisy(60, 1.5, 1))
    chances = [found.chance(loss) for loss in (0.01, 0.02, 0.03, 0.04, 0.06, 0.1)]
    assert chances == sorted(chances)
    assert chances[-1] > 0.99
    assert found.chance(found.loss(0.8)) == pytest.approx(0.8, abs=0.002)


def test_nights_without_noise_show_every_loss_that_is_larger_than_the_least_limits():
    found = sight([run(night, 100.0) for night in range(30)])
    assert found.chance(0.0099) == 0.0
    assert found.chance(0.0101) == 1.0
    assert (found.drifts, found.steps) == (0.0, 0.0)


def test_more_noise_and_memory_hide_a_loss_and_more_runs_show_it():
    quiet = sight(noisy(100, 1.0, 2)).loss()
    loud = sight(noisy(100, 2.0, 2)).loss()
    slow = sight(noisy(100, 1.0, 2, memory=0.6)).loss()
    assert loud == pytest.approx(2 * quiet, rel=0.1)
    assert slow > 1.2 * quiet
    one, two, three = (sight(noisy(100, 2.0, 2), count).loss() for count in (1, 2, 3))
    assert one > two > three > one / 2


def test_two_runs_a_night_are_seen():
    runs = noisy(60, 1.5, 3, hours=(20.0, 23.0))
    assert sight(runs).runs_per_night == 2
    assert sight(runs, 1).loss() > sight(runs).loss()


def test_outliers_are_steps_for_nothing_and_no_part_of_the_deviation():
    clean = sight(noisy(100, 1.0, 4))
    spoiled = sight(noisy(100, 1.0, 4, outliers=0.05))
    assert clean.steps < 0.1
    assert spoiled.steps == pytest.approx(30 * 0.05, rel=0.6)
    assert spoiled.loss() == pytest.approx(clean.loss(), rel=0.15)


def test_a_metric_where_lower_is_better_has_the_same_sight():
    higher = sight(noisy(60, 1.5, 5))
    lower = sight(noisy(60, 1.5, 5, better="lower"))
    assert lower.loss() == pytest.approx(higher.loss(), rel=0.1)


def test_the_runs_of_a_change_are_no_noise():
    runs = nights(40)
    stored = {METRIC: {"kind": "slower", "red": True}}
    runs[25] = run(25, 90.0, verdicts=stored)
    assert len(quiet_runs(*series_and_pin(runs))) == 40
    for night in (26, 27):
        runs[night] = run(night, 90.0, verdicts=stored)
    assert len(quiet_runs(*series_and_pin(runs))) == 37
    runs[39] = run(39, 90.0, verdicts=stored)
    assert len(quiet_runs(*series_and_pin(runs))) == 36


def test_nothing_is_stated_of_a_pin_of_zero():
    series, pin = series_and_pin([run(night, float(night % 2) - 0.5) for night in range(20)])
    assert pin.level == 0
    assert sight_of(series, pin) is None


# --- the commands ----------------------------------------------------------------------------------------------------


@pytest.fixture
def site(tmp_path):
    """A centre with a series of 40 nights, one of 10, and another metric."""
    folder = tmp_path / "centre"
    folder.mkdir()
    (folder / "site.yaml").write_text("name: site\n")
    writer = HistoryWriter(folder / "history")
    writer.write_all(noisy(40, 1.5, 6, outliers=0.05))
    writer.write_all([run(night, 5.0, test="site/test_new.py::test_new") for night in range(10)])
    return folder


def test_power_has_a_line_for_each_series_and_a_sum(site, capsys):
    assert main(["power", f"--site={site}"]) == 0
    printed = capsys.readouterr().out
    expected = sight(noisy(40, 1.5, 6, outliers=0.05))
    (line,) = [line for line in printed.splitlines() if line.startswith(TEST)]
    assert f" {100 * expected.chance(0.04):.0f} %" in line
    assert f" -{100 * expected.loss():.1f} %" in line
    assert f"All series: {expected.drifts + expected.steps:.1f} false alarms in 30 nights." in printed
    assert printed.endswith(
        f"Fewer than 20 runs lie at the level of the pin of:\n  site/test_new.py::test_new {METRIC}\n"
    )


def test_aa_counts_what_the_gate_says_of_shuffled_nights(site, capsys):
    assert main(["aa", TEST, "--shuffles=3", f"--site={site}"]) == 0
    printed = capsys.readouterr().out
    (line,) = [line for line in printed.splitlines() if line.startswith(TEST)]
    assert "  60  " in line
    assert "test_new" not in printed
    assert "in 3 shuffled orders" in printed


@pytest.mark.parametrize("command", ["power", "aa"])
def test_a_test_that_is_not_in_the_history_and_an_empty_history_are_errors(site, capsys, tmp_path, command):
    assert main([command, TEST[:-2], f"--site={site}"]) == 2
    assert TEST in capsys.readouterr().err
    assert main([command, f"--site={site}", f"--history={tmp_path / 'empty'}"]) == 2
    assert "the history is empty" in capsys.readouterr().err
    assert main(["aa", "--shuffles=0", f"--site={site}"]) == 2
