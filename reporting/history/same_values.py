"""Follows a test's values where their id is a position: the runs of `case0` whose value is `case1` now are of `case1`.

pytest numbers values without a name. A line says those of its run in the field `values`; older lines do not, and go
on with the values whose command they ran, or else with the nearest ones of their id.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from reporting.history.comparability import VALUES, comparability
from reporting.history.envelope import Envelope

_Case = tuple[str, str, object]
_BRACES = str.maketrans("{}", "()")  # as the values have them


def joined(envelopes: Sequence[Envelope]) -> list[Envelope]:
    """The same envelopes in the same order; those with the same values have the id that the last of them has."""
    if not any(VALUES in run.fields for run in envelopes):
        return list(envelopes)
    in_order = sorted(range(len(envelopes)), key=lambda index: envelopes[index].time_s)
    near: dict[tuple[str, str], Envelope] = {}  # by id, with values: the last one so far, else the first one
    of_command: dict[tuple[str, ...], dict[_Case, Envelope]] = {}
    for index in reversed(in_order):
        run = envelopes[index]
        if VALUES in run.fields:
            near[run.key.site, run.key.test] = of_command.setdefault(_command(run), {})[_case(run)] = run
    runs = list(envelopes)
    tests: dict[_Case, str] = {}
    for index in in_order:
        run = envelopes[index]
        if VALUES in run.fields:
            near[run.key.site, run.key.test] = run
        else:
            same = of_command.get(_command(run), {}) if run.provenance.get("command") else {}
            like = next(iter(same.values())) if len(same) == 1 else near.get((run.key.site, run.key.test))
            if like is not None and not _has_other_values(run, like):
                fields = {**run.fields, VALUES: like.fields[VALUES]}
                run = replace(run, fields=fields, comparability=f"{run.comparability}{comparability(fields)[12:]}")
        tests[_case(run)] = run.key.test
        runs[index] = run
    return [_moved(run, tests[_case(run)]) for run in runs]


def _moved(run: Envelope, test: str) -> Envelope:
    return run if run.key.test == test else replace(run, key=run.key._replace(test=test))


def _case(run: Envelope) -> _Case:
    return run.key.site, function(run.key.test), run.fields.get(VALUES, run.key.test)


def function(test: str) -> str:
    """The test's id up to the bracket, which all its cases have in common."""
    return test.partition("[")[0] + "["


def _command(run: Envelope) -> tuple[str, ...]:
    return run.key.site, function(run.key.test), run.platform, run.layout, str(run.provenance.get("command"))


def _has_other_values(run: Envelope, near: Envelope) -> bool:
    """Whether the command of a run lacks a value that stands in the command of the run whose id it has."""
    was, now = (str(one.provenance.get("command", "")).translate(_BRACES) for one in (run, near))
    values = [part.partition("=")[2] for part in str(near.fields[VALUES]).partition(" ")[2].split("; ")]
    return bool(was and now) and any(value in now and value not in was for value in values)
