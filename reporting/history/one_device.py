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
    older: set[_Test] = set()  # tests with runs from before facts were recorded
    devices: dict[_Test, dict[str, Mapping[str, Any]]] = {}  # their fields, by what was measured
    for run in envelopes:
        if run.benchmark is None:
            found = measured(run.fields)
            if not found:
                older.add(_test(run))
            elif "device" in found:
                devices.setdefault(_test(run), {})[comparability(found)] = run.fields
    if not devices:
        return list(envelopes)
    names: dict[_Test, str] = {}
    for test, of_test in devices.items():
        if len(of_test) == 1:
            (fields,) = of_test.values()
            names[test] = comparability(asked(fields) if test in older else fields)
    return [_named(run, names) for run in envelopes]


def _test(run: Envelope) -> _Test:
    return run.key.site, run.key.test, comparability(asked(run.fields))


def _named(run: Envelope, names: Mapping[_Test, str]) -> Envelope:
    if run.benchmark is not None or not run.fields:
        return run
    name = names.get(_test(run)) or comparability(run.fields)
    return run if name == run.comparability else dataclasses.replace(run, comparability=name)
