"""The interval of a difference, and the quantiles of t that it needs, beside those of scipy."""

from __future__ import annotations

import math

import pytest
from scipy import special, stats

from reporting.compare import interval, student


@pytest.mark.parametrize("freedom", [0.5, 1, 1.3, 2, 2.7, 4, 9.5, 30, 1000])
@pytest.mark.parametrize("probability", [0.6, 0.95, 0.975, 0.995, 0.9999])
def test_a_quantile_is_that_of_scipy(probability: float, freedom: float) -> None:
    assert student.quantile(probability, freedom) == pytest.approx(stats.t.ppf(probability, freedom), rel=1e-9)


@pytest.mark.parametrize(("x", "a", "b"), [(0.0, 1, 0.5), (0.01, 0.5, 0.5), (0.3, 2, 3), (0.999, 5, 0.5), (1.0, 2, 2)])
def test_the_incomplete_beta_function_is_that_of_scipy(x: float, a: float, b: float) -> None:
    assert student.incomplete_beta(x, a, b) == pytest.approx(special.betainc(a, b, x), rel=1e-10)


@pytest.mark.parametrize(("probability", "freedom"), [(0.5, 3), (1.0, 3), (0.975, 0), (0.975, math.nan)])
def test_what_has_no_quantile_is_refused(probability: float, freedom: float) -> None:
    with pytest.raises(ValueError, match="no quantile"):
        student.quantile(probability, freedom)


def test_two_groups_of_one_size_are_compared_as_welch_does() -> None:
    before, after = [0.10, 0.12, 0.09, 0.14], [0.05, 0.06, 0.02, 0.11]
    found = interval.of_two_groups(before, after)
    welch = stats.ttest_ind(after, before, equal_var=False).confidence_interval(0.95)
    assert found.low == pytest.approx(math.expm1(welch.low))
    assert found.high == pytest.approx(math.expm1(welch.high))
    assert found.change == pytest.approx(math.expm1(0.06 - 0.1125))
    assert found.verdict == "unclear"


def test_many_numbers_beside_two_do_not_make_the_two_more_certain() -> None:
    two = [0.0, 0.0005]
    many = [0.001 * (number % 7) for number in range(40)]
    assert stats.ttest_ind(many, two, equal_var=False).df > 5
    assert interval.of_two_groups(two, many).freedom == pytest.approx((1 / 2 + 1 / 40) ** 2 / (1 / 4 + 1 / 40**2 / 39))


def test_pairs_are_compared_as_the_t_test_of_one_group_does() -> None:
    differences = [-0.041, -0.035, -0.052, -0.040]
    found = interval.of_pairs(differences)
    expected = stats.ttest_1samp(differences, 0).confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((math.expm1(expected.low), math.expm1(expected.high)))
    assert found.verdict != "unclear"


def test_numbers_without_any_variation_have_an_interval_without_width() -> None:
    found = interval.of_two_groups([0.5, 0.5], [0.4, 0.4, 0.4])
    assert found.low == found.high == found.change


@pytest.mark.slow
def test_equal_numbers_do_not_differ_by_how_their_sum_is_rounded() -> None:
    for value in (812.0, 1234567.0, 7.0, 33.3):
        for before in range(2, 30):
            for after in range(2, 30):
                same = interval.of_two_groups([math.log(value)] * before, [math.log(value)] * after)
                assert same.verdict == "unclear"


def test_one_number_alone_is_refused() -> None:
    with pytest.raises(ValueError, match="does not say how much it varies"):
        interval.of_two_groups([0.1], [0.2, 0.3])
    with pytest.raises(ValueError, match="do not say how much they vary"):
        interval.of_pairs([0.1])
