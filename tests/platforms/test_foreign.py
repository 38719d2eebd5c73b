"""Values that others' tools have written: read, or refused with one sentence."""

from __future__ import annotations

from pathlib import Path

import pytest

from platforms.results import field, one_number

OF = {"jobs": [{"read": {"bw_bytes": 7, "name": "a", "runtime": None}}], "fio version": "fio-3.42"}


def test_a_value_is_read() -> None:
    assert field(OF, "jobs", 0, "read", "bw_bytes", where="log", tool="fio 3", kind=float) == 7
    assert field(OF, "jobs", -1, "read", where="log", tool="fio 3") == OF["jobs"][0]["read"]  # type: ignore[index]


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        (("jobs", 0, "read", "bw"), r"jobs\[0\]\.read\.bw is missing: jobs\[0\]\.read has bw_bytes, name, runtime\."),
        (("jobs", 1), r"jobs\[1\] is missing: jobs is a list of 1\."),
        (("jobs", "read"), r"jobs\.read is missing: jobs is a list of 1\."),
        (("error",), r"error is missing: the whole has jobs, fio version\."),
        (("fio version", 0), r"fio version\[0\] is missing: fio version is \"fio-3\.42\"\."),
        (("jobs", 0, "read", "runtime"), r"jobs\[0\]\.read\.runtime is null, and no float\."),
        (("jobs", 0, "read", "name"), r"jobs\[0\]\.read\.name is \"a\", and no float\."),
    ],
)
def test_what_is_missing_is_said_in_one_sentence(keys: tuple[str | int, ...], said: str) -> None:
    with pytest.raises(ValueError, match=rf"^/runs/log: {said} Read is fio 3\.1 to 3\.42$"):
        field(OF, *keys, where=Path("/runs/log"), tool="fio 3.1 to 3.42", kind=float)


def test_no_boolean_is_a_number() -> None:
    with pytest.raises(ValueError, match="a is true, and no float"):
        field({"a": True}, "a", where="log", tool="x", kind=float)


def test_one_number_is_wanted() -> None:
    assert one_number("Copy: 3\n", r"^Copy: (\d)") == 3
    with pytest.raises(ValueError, match=r"matches 2 times in the log, and one is wanted: 'Copy: 3'; 'Copy: 4'$"):
        one_number("Copy: 3\nCopy: 4\n", r"^Copy: (\d)")
    with pytest.raises(ValueError, match="matches nothing in the log, whose last line is 'Copy: 3'"):
        one_number("Copy: 3\n", r"^Add: (\d)")
