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
_Said = tuple[str, str, int]


def joined(envelopes: Sequence[Envelope]) -> list[Envelope]:
    """The same envelopes in the same order; those of one series have one comparability."""
    # Runs that say the same may share one object, of which everything is found out once.
    said = [None if run.benchmark is not None else (run.key.site, run.key.test, id(run.fields)) for run in envelopes]
    fields = {key: run.fields for run, key in zip(envelopes, said, strict=True) if key is not None}
    tests = {key: (*key[:2], comparability(asked(fields[key]))) for key in fields}
    devices: dict[_Test, dict[str, Mapping[str, Any]]] = {}  # their fields, by what was measured
    silent = set()  # tests of which a run says nothing that was measured
    for key, test in tests.items():
        found = measured(fields[key])
        if "device" in found:
            devices.setdefault(test, {})[comparability(found)] = fields[key]
        elif not found:
            silent.add(test)
    if not devices:
        return list(envelopes)
    first: dict[_Test, Envelope] = {}  # of each test with such a run, of its runs with numbers
    for run, said_by in zip(envelopes, said, strict=True) if silent else ():
        if said_by is not None and run.has_numbers and (test := tests[said_by]) in silent:
            first[test] = min(first.get(test, run), run, key=_order)
    only: dict[_Test, str] = {}  # the name of a test's runs, if all that say their device had the same one
    for test, of_test in devices.items():
        if len(of_test) == 1:
            (of_device,) = of_test.values()
            is_older = test in first and not measured(first[test].fields)  # than the facts of nodes
            only[test] = comparability(asked(of_device) if is_older else of_device)
    names = {key: only.get(test) or comparability(fields[key]) for key, test in tests.items() if fields[key]}
    return [run if key is None else _named(run, names.get(key)) for run, key in zip(envelopes, said, strict=True)]


def _order(run: Envelope) -> tuple[float, str, str]:
    return run.time_s, run.key.run_id, str(run.key.job_id)


def _named(run: Envelope, name: str | None) -> Envelope:
    return run if name is None or name == run.comparability else dataclasses.replace(run, comparability=name)
