"""What `power` states, beside what the gate finds when the loss is put into simulated series."""

from __future__ import annotations

import random
import re
import statistics

import pytest

from reporting.__main__ import main
from reporting.commands.power import SHUFFLES
from reporting.gate import replay as gate_replay
from reporting.gate.power import LEAST_LOSS, Sight, sight_of
from reporting.gate.quiet import quiet_runs
from reporting.gate.series import pin_of, series_of
from reporting.history.nights import NOON
from reporting.history.writer import HistoryWriter
from tests.reporting.gate_nights import METRIC, TEST, nights, replay, run

IMPORTED = [
    *(99.4, 100.9, 100.2, 98.8, 101.3, 100.1, 99.0, 100.6, 99.7, 100.4, 101.0, 99.9, 98.9, 100.3, 99.5, 100.8),
    *(99.2, 100.0, 101.2, 99.6, 93.5, 100.7, 99.1, 100.5),  # one bad night
    *(95.1, 94.2, 95.9, 95.0),  # a loss that lasts
]


def noisy(count, deviation, seed, *, better="higher", hours=(22.0,), outliers=0.0, memory=0.0, test=TEST):
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
            runs.append(run(night, value, better=better, hour=hour, test=test))
    return runs


def series_and_pin(runs):
    series = series_of(METRIC, runs[-1], runs, NOON)
    return series, pin_of(series, None)


def sight(runs, trials=1000):
    return sight_of(*series_and_pin(runs), trials)


def is_red_after(runs, repeats, left):
    """Whether six nights after 60, of which a loss has left so much, are red."""
    nights_since = range(60, 66)
    lost = [run(night, runs[night].metrics[METRIC].value * left) for night in nights_since]
    second = {
        first.key.run_id: run(night, repeats[night].metrics[METRIC].value * left)
        for night, first in zip(nights_since, lost, strict=True)
    }
    second |= {one.key.run_id: again for one, again in zip(runs[:60], repeats[:60], strict=True)}
    return any(verdict.red for verdict in replay([*runs[:60], *lost], repeats=second)[60:])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("series", "error"), [(12, 0.2), pytest.param(60, 0.1, marks=pytest.mark.nightly("reporting/gate"))]
)
def test_a_loss_is_found_as_often_as_is_stated(series, error):
    found = 0
    stated = []
    for seed in range(series):
        runs = noisy(66, 1.5, seed)
        repeats = noisy(66, 1.5, 1000 + seed)
        stated.append(sight(runs[:60], trials=200).chance(0.03))
        found += is_red_after(runs, repeats, 0.97) and not is_red_after(runs, repeats, 1.0)
    assert statistics.fmean(stated) == pytest.approx(found / series, abs=error)
    assert 0.35 < found / series < 0.75


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


@pytest.mark.slow
def test_more_noise_and_memory_hide_a_loss():
    quiet = sight(noisy(100, 1.0, 2)).loss()
    loud = sight(noisy(100, 2.0, 2)).loss()
    slow = sight(noisy(100, 1.0, 2, memory=0.6)).loss()
    assert loud == pytest.approx(2 * quiet, rel=0.1)
    assert slow > 1.1 * quiet


@pytest.mark.slow
def test_two_runs_a_night_are_seen():
    runs = noisy(60, 1.5, 3, hours=(20.0, 23.0))
    assert sight(runs).runs_per_night == 2
    assert sight(noisy(60, 1.5, 3)).loss() > sight(runs).loss()


@pytest.mark.slow
def test_outliers_are_no_part_of_the_deviation():
    clean = sight(noisy(100, 1.0, 4))
    spoiled = sight(noisy(100, 1.0, 4, outliers=0.05))
    assert spoiled.loss() == pytest.approx(clean.loss(), rel=0.15)


def test_what_is_red_without_a_loss_is_not_counted_as_found():
    loud = Sight(1, (0.0, 0.0, 0.02, 0.03, 0.04, 0.04, 0.05, 0.05, 0.06, 0.07))
    assert loud.red_without_loss == pytest.approx(0.2)
    assert loud.chance(0.0) == loud.chance(0.01) == 0
    assert loud.chance(0.035) == pytest.approx(0.2)
    assert loud.loss(0.5) == 0.05
    assert loud.loss() == 0.07
    assert loud.loss(0.81) is None
    assert Sight(1, (0.0, 0.0001)).loss(0.5) == LEAST_LOSS


def test_a_series_that_is_red_for_nothing_is_too_loud():
    found = sight(noisy(60, 1.0, 4, outliers=0.45), 300)
    assert found.loss() is None
    assert found.red_without_loss > 0.2


def test_imported_nights_of_a_loss_that_still_lasts_are_no_noise():
    imported = [run(night, one, verdicts={}) for night, one in enumerate(IMPORTED)]
    assert len(quiet_runs(*series_and_pin(imported))) == 24
    assert 0.01 < sight(imported, 300).loss() < 0.04


def test_confirmed_runs_are_no_noise_and_cleared_ones_are():
    runs = nights(60)
    assert len(quiet_runs(*series_and_pin(runs))) == 60
    for kind, red in (("slower", True), ("node", True), ("transient", False)):
        stored = {METRIC: {"kind": kind, "red": red, "confirmation": {"short": "", "text": ""}}}
        changed = [*runs]
        for night in (30, 41, 59):
            changed[night] = run(night, 90.0, verdicts=stored)
        assert len(quiet_runs(*series_and_pin(changed))) == (57 if red else 60)


@pytest.mark.slow
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


@pytest.mark.slow
def test_power_has_a_line_for_each_series_and_a_sum(site, capsys):
    assert main(["power", f"--site={site}"]) == 0
    printed = capsys.readouterr().out
    expected = sight(noisy(40, 1.5, 6, outliers=0.05))
    (line,) = [line for line in printed.splitlines() if line.startswith(TEST)]
    assert f" {100 * expected.chance(0.04):.0f} %" in line
    assert f" -{100 * expected.loss():.1f} %" in line
    assert printed.endswith(
        f"Fewer than 20 runs lie at the level of the pin of:\n  site/test_new.py::test_new {METRIC}\n"
    )


def test_power_of_an_earlier_night(site, capsys):
    assert main(["power", f"--site={site}", "--tonight=2026-10-12"]) == 0
    assert TEST in capsys.readouterr().out.partition("Fewer than 20 runs")[2]


def test_a_series_that_is_too_loud_has_no_loss_in_the_table(site, capsys):
    HistoryWriter(site / "history").write_all(noisy(60, 1.0, 4, outliers=0.45, test="site/test_loud.py::test_loud"))
    assert main(["power", "site/test_loud.py::test_loud", f"--site={site}"]) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("site/test_loud")]
    assert re.search(r"  too loud: red \d\d of 100$", line)


@pytest.mark.slow
def test_power_replays_the_series_own_nights_too(site, capsys):
    HistoryWriter(site / "history").write_all(nights(20, test="site/test_short.py::test_short"))
    assert main(["power", TEST, "site/test_short.py::test_short", f"--site={site}"]) == 0
    printed = capsys.readouterr().out
    said = gate_replay.replay(*series_and_pin(noisy(40, 1.5, 6, outliers=0.05)), SHUFFLES)
    alarms = 30 * said.alarms / said.nights
    assert f"\n{alarms:.1f} false alarms in 30 nights: the gate on the series' own nights, in" in printed
    assert f"   {alarms:.2f}   " in printed
    assert " (1 of 2 series; the others have fewer than 10 quiet nights, or no run behind those of the pin)" in printed
    assert main(["power", "site/test_short.py::test_short", f"--site={site}"]) == 0
    assert "False alarms are not known: all series have fewer than 10 quiet nights" in capsys.readouterr().out


def test_a_test_that_is_not_in_the_history_and_an_empty_history_are_errors(site, capsys, tmp_path):
    assert main(["power", "resnte50", f"--site={site}"]) == 2
    assert f"no test has 'resnte50' in its id (known: site/test_new.py::test_new, {TEST}" in capsys.readouterr().err
    assert main(["power", f"--site={site}", f"--history={tmp_path / 'empty'}"]) == 2
    assert "the history is empty" in capsys.readouterr().err
