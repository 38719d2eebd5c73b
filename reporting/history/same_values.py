"""Follows a test's values where their id is a position: the runs of `case0` whose value is `case1` now are of `case1`.

pytest numbers values without a name. A line says those of its run in the field `values`; older lines do not, and go
on with the values whose command they ran, or else with the next ones of their id.
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
    in_order = sorted(envelopes, key=lambda run: run.time_s)
    valued = [run for run in in_order if VALUES in run.fields]
    of_id: dict[tuple[str, str], list[Envelope]] = {}
    of_command: dict[tuple[str, ...], dict[_Case, Envelope]] = {}
    for run in valued:
        of_id.setdefault((run.key.site, run.key.test), []).append(run)
        of_command.setdefault(_command(run), {}).setdefault(_case(run), run)
    like: dict[int, Envelope] = {}
    tests: dict[_Case, str] = {}
    for run in in_order:
        if VALUES in run.fields:
            like[id(run)] = run
        else:
            same = of_command.get(_command(run), {}) if run.provenance.get("command") else {}
            known = list(same.values()) if len(same) == 1 else of_id.get((run.key.site, run.key.test), [])
            before = [one for one in known if one.time_s < run.time_s]
            near = (before or known)[-1 if before else 0] if known else None
            if near is None or _has_other_values(run, near):
                continue
            like[id(run)] = near
        tests[_case(like[id(run)])] = run.key.test
    return [_with_values(run, like[id(run)], tests) if id(run) in like else run for run in envelopes]


def _case(run: Envelope) -> _Case:
    return run.key.site, function(run.key.test), run.fields[VALUES]


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


def _with_values(run: Envelope, like: Envelope, tests: dict[_Case, str]) -> Envelope:
    test = tests[_case(like)]
    if VALUES in run.fields:
        return run if test == run.key.test else replace(run, key=run.key._replace(test=test))
    fields = {**run.fields, VALUES: like.fields[VALUES]}
    name = f"{run.comparability}{comparability(fields)[12:]}"
    return replace(run, key=run.key._replace(test=test), fields=fields, comparability=name)
