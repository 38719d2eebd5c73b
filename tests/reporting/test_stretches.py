"""The windows of a run, together and in stretches."""

from __future__ import annotations

import dataclasses

import pytest

from platforms.job import Window
from reporting.history.stretches import all_windows, fastest_stretch, stretches


def windows(*lengths_s: float) -> list[Window]:
    return [Window(samples=100, steps=10, wall_s=length, stall_s=0.1, compute_s=length - 0.1) for length in lengths_s]


@pytest.mark.parametrize(
    ("lengths", "joined"),
    [
        ([6.0, 5.0, 7.0], [6.0, 5.0, 7.0]),
        ([4.9, 4.6, 5.0], [4.9, 4.6, 5.0]),  # made to last five seconds
        ([1.0, 1.0, 1.0], [3.0]),  # a smoke run is one stretch
        ([2.0, 2.0, 3.0, 2.0], [4.0, 5.0]),
        ([6.0, 2.0], [8.0]),  # the rest joins the last stretch
        ([0.6] * 3, [1.8]),
        ([2.0, 6.0, 1.0, 1.0], [10.0]),
    ],
)
def test_short_windows_are_joined(lengths: list[float], joined: list[float]) -> None:
    found = stretches(windows(*lengths))
    assert [round(stretch.wall_s, 9) for stretch in found] == joined
    assert sum(stretch.samples for stretch in found) == 100 * len(lengths)
    assert sum(stretch.steps for stretch in found) == 10 * len(lengths)


def test_the_fastest_stretch_is_the_one_with_the_most_samples_per_second() -> None:
    assert fastest_stretch(windows(6.0, 5.0, 7.0)).wall_s == 5.0


def test_all_windows_are_one_with_their_sums() -> None:
    run = all_windows(windows(6.0, 5.0, 7.0))
    assert (run.samples, run.steps, run.wall_s, run.stall_s) == (300, 30, 18.0, pytest.approx(0.3))


def test_a_short_window_is_never_the_best_by_itself() -> None:
    """One of two seconds, in which the neighbours happened to rest, says little about the machine."""
    run = fastest_stretch(windows(6.0, 5.0, 2.0))
    assert (run.samples, run.wall_s) == (200, 7.0)


def test_a_joined_stretch_has_the_sums_of_its_windows() -> None:
    run = fastest_stretch(windows(1.0, 2.0))
    assert run.stall_s == pytest.approx(0.2)
    assert run.compute_s == pytest.approx(2.8)


def test_the_copy_of_a_joined_stretch_is_known_if_it_is_of_both() -> None:
    first, second = windows(1.0, 2.0)
    known = dataclasses.replace(first, stall_h2d_s=0.04), dataclasses.replace(second, stall_h2d_s=0.06)
    assert fastest_stretch(known).stall_h2d_s == pytest.approx(0.1)
    assert fastest_stretch([known[0], second]).stall_h2d_s is None
