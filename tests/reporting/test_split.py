"""Where a change is: in waiting for data, copies, the device step or the rest, by the parts of a step of many runs."""

from __future__ import annotations

import random

import pytest

from platforms.job import Metric
from reporting.compare.split import Split, in_exchange, split_of

PLAIN = {"wait_ms": 0.3, "h2d_ms": 1.0, "step_ms": 52.1, "other_ms": 0.1}


def beside(**parts: float) -> dict[str, Metric]:
    numbers = {name: Metric(value, "ms", "lower") for name, value in parts.items()}
    return {"compute_fraction": Metric(0.97, ""), **numbers}


def runs(count: int, seed: int, scatter: float = 0.01, **changes: float) -> list[dict[str, Metric]]:
    """Runs whose parts each vary by a share of themselves. `step_ms=2.3` adds so much to a part."""
    chance = random.Random(seed)
    return [
        beside(**{name: value * chance.gauss(1, scatter) + changes.get(name, 0.0) for name, value in PLAIN.items()})
        for _ in range(count)
    ]


def sentence(**changes: float) -> str:
    return Split(PLAIN, {name: value + changes.get(name, 0.0) for name, value in PLAIN.items()}).sentence()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"step_ms": 2.3}, "all of it in the device step; input unchanged"),
        ({"step_ms": -2.3}, "all of it in the device step; input unchanged"),
        ({"wait_ms": 2.3}, "all of it in waiting for data; device step unchanged"),
        (
            {"h2d_ms": 3.8},
            "all of it in copies to the device (h2d 1.0 -> 4.8 ms per step); device step unchanged",
        ),
        ({"other_ms": 2.3}, "all of it in the rest of the loop; input and device step unchanged"),
        ({"wait_ms": 4.0, "step_ms": 2.0}, "67 % in waiting for data, 33 % in the device step"),
        ({"step_ms": 9.0, "wait_ms": 1.0}, "90 % in the device step, 10 % in waiting for data"),
        (
            {"wait_ms": 2.0, "other_ms": 2.1},
            "51 % in the rest of the loop, 49 % in waiting for data; device step unchanged",
        ),
        (
            {"wait_ms": 5.0, "step_ms": 3.0, "h2d_ms": 2.0},
            "50 % in waiting for data, 30 % in the device step, "
            "20 % in copies to the device (h2d 1.0 -> 3.0 ms per step)",
        ),
        (
            {"wait_ms": 7.0, "step_ms": -2.0},
            "7.0 ms per step more in waiting for data, 2.0 ms per step less in the device step",
        ),
        ({"step_ms": 0.1}, "no part of a step has moved by more than it varies from run to run"),
    ],
)  # fmt: skip
def test_the_sentence_names_the_parts_that_moved(changes: dict[str, float], said: str) -> None:
    assert sentence(**changes) == said


@pytest.mark.parametrize(("share", "moved"), [(0.0029, []), (0.0031, ["step_ms"])])
def test_a_part_that_moved_by_three_thousandths_of_a_step_is_named(share: float, moved: list[str]) -> None:
    added = share * sum(PLAIN.values())
    assert list(Split(PLAIN, {**PLAIN, "step_ms": PLAIN["step_ms"] + added}).moved) == moved


def test_a_part_that_moved_by_less_than_chance_is_unchanged() -> None:
    after = {**PLAIN, "step_ms": 54.4, "wait_ms": 0.8}
    loud = Split(PLAIN, after, {"wait_ms": 0.6, "step_ms": 0.5})
    assert loud.sentence() == "all of it in the device step; input unchanged"
    assert loud.shares == {"step_ms": 1.0}
    calm = Split(PLAIN, after, {"wait_ms": 0.4, "step_ms": 0.5})
    assert calm.shares == pytest.approx({"step_ms": 2.3 / 2.8, "wait_ms": 0.5 / 2.8})


def test_not_all_is_in_a_part_if_another_varies_by_more() -> None:
    """Beside other work the device step of these runs took between 40 and 70 ms."""
    split = Split(PLAIN, {**PLAIN, "step_ms": 60.0, "wait_ms": 3.3}, {"wait_ms": 0.5, "step_ms": 30.0})
    assert split.sentence() == (
        "3.0 ms per step more in waiting for data; "
        "the scatter from run to run is too large to say more of the device step"
    )
    calm = Split(PLAIN, {**PLAIN, "step_ms": 53.0, "wait_ms": 3.3}, {"wait_ms": 0.5, "step_ms": 1.0})
    assert calm.sentence() == "all of it in waiting for data; device step unchanged"


def test_a_part_that_moved_by_little_beside_another_is_not_named() -> None:
    after = {"wait_ms": 0.29, "h2d_ms": 1.0, "step_ms": 72.1, "other_ms": 0.1}
    assert Split(PLAIN, after).sentence() == "all of it in the device step; input unchanged"
    after = {**after, "wait_ms": 0.6}
    assert Split(PLAIN, after).sentence() == "all of it in the device step"


def with_exchange(before: float, after: float, added: float = 0.0) -> str:
    """The exchange of gradients, which is a part of the device step, beside so much more of its rest."""
    plain = [{**run, **beside(exchange_ms=before)} for run in runs(5, seed=1, scatter=0.001)]
    changed = runs(5, seed=2, scatter=0.001, step_ms=after - before + added)
    return in_exchange(plain, [{**run, **beside(exchange_ms=after)} for run in changed])


def test_a_change_of_the_device_step_that_is_the_exchange_of_gradients_is_told() -> None:
    assert (
        with_exchange(12.0, 24.0) == "of the device step 100 % in the exchange of gradients (12.0 -> 24.0 ms per step)"
    )
    assert with_exchange(12.0, 24.0, added=4.0).startswith("of the device step 75 % in the exchange")
    assert with_exchange(12.0, 14.0, added=9.0) == ""  # mostly in computing
    assert with_exchange(12.0, 12.0, added=9.0) == ""
    assert in_exchange(runs(5, 1), runs(5, 2)) == ""  # it is not known


def test_the_numbers_add_up_to_the_whole() -> None:
    split = Split(PLAIN, {**PLAIN, "step_ms": 54.4})
    assert split.numbers() == (
        "ms per step: wait 0.3 -> 0.3, h2d 1.0 -> 1.0, device step 52.1 -> 54.4, other 0.1 -> 0.1 = 53.5 -> 55.8"
    )
    assert split.change == pytest.approx({"wait_ms": 0.0, "h2d_ms": 0.0, "step_ms": 2.3, "other_ms": 0.0})


@pytest.mark.parametrize(
    ("added", "shown"),
    [
        (0.123, "device step 52.10 -> 52.22"),
        (0.0001, "device step 52.100 -> 52.100"),
        (33.0, "device step 52.1 -> 85.1"),
        (0.0, "device step 52.1 -> 52.1"),
    ],
)
def test_the_numbers_have_as_many_decimals_as_the_change_needs(added: float, shown: str) -> None:
    assert shown in Split(PLAIN, {**PLAIN, "step_ms": 52.1 + added}).numbers()


def test_a_rest_below_zero_has_no_sign_once_it_is_rounded_to_zero() -> None:
    before = {**PLAIN, "other_ms": -0.01}
    assert "other 0.0 -> 0.0 = 53.4 -> 55.7" in Split(before, {**before, "step_ms": 54.4}).numbers()


@pytest.mark.parametrize(
    ("part", "added", "said"),
    [
        ("wait_ms", 1.6, "all of it in waiting for data; device step unchanged"),
        ("h2d_ms", 1.6, "all of it in copies to the device (h2d 1.0 -> 2.6 ms per step); device step unchanged"),
        ("step_ms", 2.7, "all of it in the device step; input unchanged"),
    ],
)
def test_the_part_that_was_slowed_is_named_among_runs_that_vary(part: str, added: float, said: str) -> None:
    """Each part varies by 1 %, and the device step, which is nearly all, by as much as the smallest finding."""
    wrong = 0
    for seed in range(200):
        split = split_of(runs(7, seed=2 * seed), runs(5, seed=2 * seed + 1, **{part: added}))
        if split.sentence().split(" (")[0] != said.split(" (")[0]:
            wrong += 1
    assert wrong <= 10


def test_a_part_is_rarely_named_by_chance() -> None:
    named = 0
    for seed in range(300):
        split = split_of(runs(7, seed=2 * seed), runs(7, seed=2 * seed + 1))
        named += bool(split.moved)
    assert named <= 15


def test_one_run_far_away_changes_nothing() -> None:
    calm = [beside(**PLAIN), beside(**{**PLAIN, "wait_ms": 0.32}), beside(**{**PLAIN, "wait_ms": 0.28})]
    split = split_of([*calm, beside(**{**PLAIN, "wait_ms": 40.0})], calm)
    assert not split.moved


def test_two_single_runs_must_differ_by_much() -> None:
    """One run a side does not say how much it varies."""
    for added, moved in [(1.5, False), (2.0, True)]:
        split = split_of([beside(**PLAIN)], [beside(**{**PLAIN, "step_ms": 52.1 + added})])
        assert bool(split.moved) is moved


def test_runs_that_do_not_say_which_part_of_the_stall_was_the_copy() -> None:
    """They count only if a side has no others. Then the two are one part, and nothing is invented."""
    old = beside(stall_ms=1.3, step_ms=52.1, other_ms=0.1)
    new = beside(**{**PLAIN, "wait_ms": 6.3})
    mixed = split_of([old, beside(**PLAIN)], [new])
    assert set(mixed.before) == set(PLAIN)
    split = split_of([old, old], [new, new, old])
    assert split.after == pytest.approx({"stall_ms": 7.3, "step_ms": 52.1, "other_ms": 0.1})
    assert split.sentence() == "all of it in waiting for data and copies; device step unchanged"
    assert "wait and h2d 1.3 -> 7.3" in split.numbers()


@pytest.mark.parametrize("side", [[], [{}], [{"compute_fraction": Metric(0.9, "")}], [beside(step_ms=1.0)]])
def test_runs_without_parts_have_no_split(side: list[dict[str, Metric]]) -> None:
    assert split_of(side, [beside(**PLAIN)]) is None
    assert split_of([beside(**PLAIN)], side) is None
