"""Lengths of time, written as they are read."""

from __future__ import annotations

import pytest

from platforms.config.durations import clock, seconds_of, short_clock


@pytest.mark.parametrize(
    ("seconds", "files", "people"),
    [
        (0, "0:00:00", "0:00"),
        (5.9, "0:00:05", "0:05"),
        (725, "0:12:05", "12:05"),
        (3599.9, "0:59:59", "59:59"),
        (3600, "1:00:00", "1:00:00"),
        (180000, "50:00:00", "50:00:00"),
    ],
)
def test_a_length_of_time(seconds: float, files: str, people: str) -> None:
    assert clock(seconds) == files
    assert seconds_of(files) == int(seconds)
    assert short_clock(seconds) == people
