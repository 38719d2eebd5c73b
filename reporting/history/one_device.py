"""Joins the runs of a user's own program that do not say their device with those that do.

Before the facts of nodes were recorded no such run said it, and later the tool that knows may have failed for a night.
Where all runs that say their device had the same one, they are one series, which goes on under its oldest name. Where
they had several, each is a series, and the first run of another device says what it has left.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from reporting.history.comparability import asked, comparability, measured
from reporting.history.envelope import Envelope

_Test = tuple[str, str, str]


def joined(envelopes: Sequence[Envelope]) -> list[Envelope]:
    """The same envelopes in the same order; those of one series have one comparability."""
    first: dict[_Test, Envelope] = {}  # of each test, of those with numbers
    devices: dict[_Test, dict[str, Mapping[str, Any]]] = {}  # their fields, by what was measured
    tests = [None if run.benchmark is not None else _test(run) for run in envelopes]
    for run, test in zip(envelopes, tests, strict=True):
        if test is not None:
            found = measured(run.fields)
            if "device" in found:
                devices.setdefault(test, {})[comparability(found)] = run.fields
            if run.has_numbers and (test not in first or _order(run) < _order(first[test])):
                first[test] = run
    if not devices:
        return list(envelopes)
    names: dict[_Test, str] = {}
    for test, of_test in devices.items():
        if len(of_test) == 1:
            (fields,) = of_test.values()
            is_older = test in first and not measured(first[test].fields)  # than the facts of nodes
            names[test] = comparability(asked(fields) if is_older else fields)
    return [_named(run, test, names) for run, test in zip(envelopes, tests, strict=True)]


def _test(run: Envelope) -> _Test:
    return run.key.site, run.key.test, comparability(asked(run.fields))


def _order(run: Envelope) -> tuple[float, str, str]:
    return run.time_s, run.key.run_id, str(run.key.job_id)


def _named(run: Envelope, test: _Test | None, names: Mapping[_Test, str]) -> Envelope:
    if test is None or not run.fields:
        return run
    name = names.get(test) or comparability(run.fields)
    return run if name == run.comparability else dataclasses.replace(run, comparability=name)
