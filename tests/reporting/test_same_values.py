"""Runs of values without a name are of one series whatever number pytest gave them; older runs and answers go on."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from reporting.gate.judge import judge
from reporting.gate.verdict import Kind
from reporting.history.comparability import comparability, fields_of
from reporting.history.envelope import Envelope
from reporting.history.envelope_json import from_line, to_line
from reporting.history.nights import NOON
from reporting.history.same_values import joined
from reporting.references.answers import Acceptance, References
from tests.reporting.gate_nights import METRIC, accepted, night, nights, run

OWN = {"layout": "1x1cpu", "device": "CPU"}


def case(number: int) -> str:
    return f"test_l.py::test_l[local-1x1cpu-case{number}]"


def of(n: int | None, number: int, command: str = "", **changes: Any) -> dict[str, Any]:
    """What an envelope of the value `n` at an id has; None: of an older suite."""
    fields = OWN if n is None else {**OWN, "values": f"local-1x1cpu case=('n': {n})"}
    said = {"command": command} if command else {}
    return {"test": case(number), "fields": fields, "benchmark": None, "provenance": said, **changes}


def verdict(past: list[Envelope], current: Envelope, references: References | None = None) -> tuple[Kind, bool]:
    said = judge(current, past, references or References(), NOON)[METRIC]
    return said.kind, said.red


def answer(level: float, fields: dict[str, Any]) -> Acceptance:
    """Of a series at `case0` whose first pin was 100."""
    return replace(accepted(night(25), level, comparability=comparability(fields)), test=case(0))


def test_values_have_a_hash_of_their_own_behind_that_of_the_other_fields() -> None:
    fields = {**OWN, "values": "local-1x1cpu case=('n': 1)"}
    assert comparability(fields).startswith(f"{comparability(OWN)}-")
    assert fields_of({"asked": {"values": "x"}})["values"] == "x"


def test_a_moved_value_keeps_its_pin_and_its_loss_is_red() -> None:
    past = [*nights(25, 100.0, **of(100, 0)), *nights(25, 50.0, **of(50, 1))]
    assert verdict(past, run(25, 20.0, **of(20, 0))) == (Kind.LEARNING, False)
    assert verdict(past, run(25, 100.0, **of(100, 1))) == (Kind.OK, False)
    assert verdict(past, run(25, 50.0, **of(100, 1))) == (Kind.SLOWER, True)
    assert verdict(past, run(25, 25.0, **of(50, 2))) == (Kind.SLOWER, True)


def test_a_value_that_was_removed_leaves_its_id_to_the_next_one() -> None:
    past = [*nights(25, 100.0, **of(100, 0)), *nights(25, 50.0, **of(50, 1))]
    assert verdict(past, run(25, 50.0, **of(50, 0))) == (Kind.OK, False)


def test_older_runs_without_a_command_go_on_under_their_id() -> None:
    """Nothing tells their values, and a suite that is updated must not end each series."""
    assert verdict(nights(25, 100.0, **of(None, 0)), run(25, 100.0, **of(100, 0))) == (Kind.OK, False)


def test_older_runs_go_on_although_another_word_of_their_command_has_changed() -> None:
    past = nights(25, 100.0, **of(None, 0, "old {'n': 100}"))
    assert verdict(past, run(25, 50.0, **of(100, 0, "new {'n': 100}"))) == (Kind.SLOWER, True)


def test_older_runs_are_found_by_their_command_when_the_first_new_night_has_another_order() -> None:
    past = [
        *nights(25, 100.0, **of(None, 0, "run {'n': 100}")),
        *nights(25, 50.0, **of(None, 1, "run {'n': 50}")),
        run(25, 20.0, **of(20, 0, "run {'n': 20}"), hour=21),
    ]
    assert verdict(past, run(25, 50.0, **of(100, 1, "run {'n': 100}"))) == (Kind.SLOWER, True)
    assert verdict(past, run(26, 20.0, **of(20, 0, "run {'n': 20}"))) == (Kind.LEARNING, False)


def test_runs_go_on_whose_id_another_pytest_made_otherwise() -> None:
    """pytest 9.1 has a text of 300 characters in the id, 9.2 calls it `x0`."""
    longer = {"test": f"test_l.py::test_l[local-1x1cpu-{'x' * 300}]"}
    past = nights(25, 100.0, **of(None, 0, "run xxx") | longer)
    assert verdict(past, run(25, 50.0, **of(100, 0, "run xxx"))) == (Kind.SLOWER, True)


def test_joined_twice_is_joined_once() -> None:
    runs = [*nights(3, **of(None, 0, "run {'n': 100}")), run(3, 100.0, **of(100, 1, "run {'n': 100}"))]
    once = joined(runs)
    assert {one.key.test for one in once} == {case(1)}
    assert len({one.comparability for one in once}) == 1
    assert joined(once) == once
    assert joined(runs[:3]) == runs[:3]


def test_an_acceptance_follows_its_values_and_no_other_takes_it() -> None:
    fields = {**OWN, "values": "local-1x1cpu case=('n': 100)"}
    answers = References((answer(10.0, fields),))
    past = [*nights(30, 100.0, **of(100, 0)), *nights(30, 50.0, **of(50, 1))]
    assert verdict(past, run(30, 10.0, **of(100, 1)), answers)[1] is False
    assert verdict(past, run(30, 25.0, **of(50, 0)), answers) == (Kind.SLOWER, True)


def test_an_acceptance_from_before_the_values_counts_unless_the_id_had_other_ones() -> None:
    old = answer(50.0, OWN)
    past = nights(30, 100.0, **of(None, 0))
    assert verdict(past, run(30, 50.0, **of(100, 0)), References((old,)))[1] is False
    moved = nights(30, 200.0, **of(200, 1))
    assert verdict(moved, run(30, 50.0, **of(200, 0)), References((old,))) == (Kind.SLOWER, True)


def test_a_line_keeps_the_values() -> None:
    written = run(0, 1.0, **of(100, 0))
    assert from_line(to_line(written)).fields == written.fields
