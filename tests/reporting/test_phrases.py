"""How reports write numbers, amounts and lists."""

from __future__ import annotations

import pytest

from reporting.phrases import counted, listed, number, percent, plain, size, spaced


def test_a_change_has_a_sign_and_no_negative_zero():
    assert [percent(change) for change in (-0.0004, 0.0004, -0.0006, 0.021)] == ["+0.0 %", "+0.0 %", "-0.1 %", "+2.1 %"]


def test_a_limit_has_no_sign():
    assert (size(0.00623), size(0.0441, 1), size(0.1, 0)) == ("0.62 %", "4.4 %", "10 %")


@pytest.mark.parametrize(
    ("value", "level", "text"),
    [
        (98.0, 100.0, "98.0"),
        (1234.56, 5000.0, "1235"),
        (0.01234, 0.01, "0.01234"),
        (0.0, 0.0, "0.0"),
        (3e-12, 2e-12, "3e-12"),
    ],
)
def test_a_value_has_the_digits_of_its_level(value, level, text):
    assert number(value, level) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.012345, "0.0123"), (999.4, "999"), (999.6, "1000"), (3140000.0, "3140000"), (1.98e15, "1.98e+15")],
)
def test_a_large_value_is_written_out(value, text):
    assert plain(value, 3) == text


def test_what_is_not_known_is_a_dash():
    assert (percent(None), size(None)) == ("-", "-")


def test_an_amount_agrees_with_its_noun():
    assert [counted(count, "test") for count in (0, 1, 2)] == ["0 tests", "1 test", "2 tests"]
    assert [counted(count, "run is", "runs are") for count in (1, 2)] == ["1 run is", "2 runs are"]


def test_a_long_list_says_how_many_more_there_are():
    names = ["n01", "n02", "n03"]
    assert [listed(names, most) for most in (3, 2)] == ["n01, n02, n03", "n01, n02 and 1 more"]
    assert listed([], 3) == ""


def test_a_metric_is_printed_with_spaces():
    assert spaced("effective_throughput") == "effective throughput"
