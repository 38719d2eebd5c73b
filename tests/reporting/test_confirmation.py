"""What follows a suspect run, and what its repeats say: hand-made runs beside a level of 100 and a limit of 4 %."""

from __future__ import annotations

import dataclasses
import re

import pytest

from platforms.job import Metric, Role, Trial
from reporting.gate.confirmation import NextSteps, Place, Repeat, confirmed, decide
from reporting.gate.mass_event import TestSoFar, decide_together, platform_so_far, sentence
from reporting.gate.verdict import Confirmation, Kind, Suspect
from reporting.history.comparability import comparability
from reporting.references.answers import References
from tests.reporting.gate_nights import FIELDS, METRIC, accepted, night, nights, run, verdict_on

CLUSTER = Place(drain=lambda node, reason: f"scontrol update nodename={node} state=drain reason='{reason}'")
ONE_NODE = Place(has_one_node=True)
LIMIT = 0.04


def job(value, nodes="", **changes):
    return run(30, value, provenance={"nodes": nodes} if nodes else {}, **changes)


def in_doubt(number, value):
    return run(number, value, doubts=("crowded",))


def suspect(value=95.0, nodes="n07"):
    return Suspect(job(value, nodes), METRIC, 100.0, value / 100 - 1, LIMIT)


def confirm(value=None, nodes="n12", **changes):
    envelope = None if value is None else job(value, nodes)
    return Repeat(Trial(Role.CONFIRM, repeat=1), envelope=envelope, **changes)


def pinned(value, repeat=1, nodes="n07", **changes):
    envelope = None if value is None else job(value, nodes)
    return Repeat(Trial(Role.PINNED, repeat=repeat), tuple(nodes.split(",")), envelope, **changes)


def decision(repeats, one=None, place=CLUSTER) -> NextSteps:
    return decide({METRIC: one or suspect()}, repeats, place)


def answer(repeats, one=None, place=CLUSTER) -> Confirmation:
    found = decision(repeats, one, place)
    assert not found.waits
    assert not found.next
    return found.confirmations[METRIC]


def asked(repeats, one=None, place=CLUSTER):
    found = decision(repeats, one, place)
    assert found.waits
    (following,) = found.next
    return following.trial.key, following.nodes, following.avoid_nodes


# --- what is run next ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("repeats", "expected"),
    [
        ([], ("confirm-1", (), ("n07",))),
        ([confirm(100.0)], ("pinned-1", ("n07",), ())),
        ([confirm(100.0), pinned(95.0)], ("pinned-2", ("n07",), ())),
    ],
)
def test_the_next_repeat(repeats, expected):
    assert asked(repeats) == expected


@pytest.mark.parametrize(
    "repeats",
    [
        [confirm(live=True)],
        [confirm(100.0), pinned(None, live=True)],
        [confirm(100.0), pinned(95.0), pinned(None, 2, live=True)],
    ],
)
def test_nothing_is_asked_while_a_repeat_is_live(repeats):
    assert decision(repeats) == NextSteps(waits=True)


def test_where_there_is_one_node_the_repeat_avoids_nothing():
    assert asked([], place=ONE_NODE) == ("confirm-1", (), ())
    assert asked([], suspect(nodes="")) == ("confirm-1", (), ())


def test_a_repeat_for_which_there_is_no_other_node_runs_anywhere():
    refused = confirm(failure="submission refused", refused=True)
    assert asked([refused]) == ("confirm-2", (), ())
    second = dataclasses.replace(confirm(95.0, "n07"), trial=Trial(Role.CONFIRM, repeat=2))
    assert answer([refused, second]).short == "-5.0 % again"


# --- what the repeats say --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "repeats", "kind", "red", "short"),
    [
        (95.0, [confirm(94.8)], Kind.SLOWER, True, "-5.2 % again on n12"),
        (95.0, [confirm(94.8, "n07")], Kind.SLOWER, True, "-5.2 % again"),
        (95.0, [confirm(99.7, "n07")], Kind.TRANSIENT, False, "transient: -5.0 %, then -0.3 % on n07"),
        (95.0, [confirm(99.7, "")], Kind.TRANSIENT, False, "transient: -5.0 %, then -0.3 %"),
        (95.0, [confirm(100.0), pinned(99.0)], Kind.TRANSIENT, False, "transient: -5.0 %, then -1.0 % on n07"),
        (
            *(95.0, [confirm(100.0), pinned(95.0), pinned(99.0, 2)]),
            *(Kind.TRANSIENT, False, "transient: -5.0 %, then -1.0 % on n07"),
        ),
        (
            *(95.0, [confirm(100.0), pinned(95.0), pinned(95.5, 2)]),
            *(Kind.NODE, True, "node n07: -5.0 % in 3 of 3, n12 normal"),
        ),
        (85.0, [confirm(100.0), pinned(90.0)], Kind.NODE, True, "node n07: -15.0 % in 2 of 2, n12 normal"),
        (
            95.0,
            [confirm(failure="node lost")],
            Kind.SUSPECT,
            False,
            "suspect: -5.0 %; confirm-1 has no numbers: node lost",
        ),
        (
            89.9,
            [confirm(failure="node lost")],
            Kind.SUSPECT,
            True,
            "suspect: -10.1 %; confirm-1 has no numbers: node lost",
        ),
        (
            *(95.0, [confirm(100.0), pinned(None, failure="max_device_hours")]),
            *(Kind.SUSPECT, False, "suspect: -5.0 %; pinned-1 has no numbers: max_device_hours"),
        ),
    ],
)
def test_the_answer(value, repeats, kind, red, short):
    found = answer(repeats, suspect(value))
    assert (found.kind, found.red, found.short) == (kind, red, short)


def test_a_slow_node_is_named_with_its_runs_and_the_command_that_drains_it():
    found = answer([confirm(100.0), pinned(95.0), pinned(95.5, 2)])
    assert found.lines == (
        "It is node n07: -5.0 % in 3 of 3, n12 normal. The platform and the change that was made are not the cause.",
        "Its runs (slow is below -4.0 % of 100.0 samples/s):",
        "  this run   95.0 samples/s, -5.0 %, slow, on n07",
        "  confirm-1  100.0 samples/s, +0.0 %, normal, on n12",
        "  pinned-1   95.0 samples/s, -5.0 %, slow, on n07",
        "  pinned-2   95.5 samples/s, -4.5 %, slow, on n07",
        "To take it out of service until it is repaired:",
        "  scontrol update nodename=n07 state=drain reason='slow: -5.0 %'",
    )


def test_the_repeat_on_the_only_node_says_that_it_stands_alone():
    sentence = "There was no other node for it, so a slow node cannot be told from a slow platform."
    assert sentence in answer([confirm(95.0, "")], suspect(nodes=""), ONE_NODE).lines[0]
    assert sentence in answer([confirm(100.0, "n07")]).lines[0]


def test_a_repeat_on_another_device_cannot_be_compared():
    fields = {**FIELDS, "device": "A100-SXM4-40GB"}
    other = dataclasses.replace(confirm(100.0).envelope, fields=fields, comparability=comparability(fields))
    found = answer([dataclasses.replace(confirm(), envelope=other)])
    assert found.short == "suspect: -5.0 %; confirm-1 cannot be compared: device is A100-SXM4-40GB, was A100-SXM4-80GB"


def test_a_metric_that_is_better_when_lower():
    slow = Suspect(job(105.0, "n07", better="lower"), METRIC, 100.0, -0.05, LIMIT)
    again = dataclasses.replace(confirm(), envelope=job(106.0, "n12", better="lower"))
    assert answer([again], slow).kind is Kind.SLOWER


def test_metrics_of_one_run_share_its_repeats():
    both = job(95.0, "n07", metrics={"triad": Metric(95.0, "GB/s"), "copy": Metric(90.0, "GB/s")})
    suspects = {name: Suspect(both, name, 100.0, both.metrics[name].value / 100 - 1, LIMIT) for name in both.metrics}
    other = job(0, "n12", metrics={"triad": Metric(94.0, "GB/s"), "copy": Metric(100.0, "GB/s")})
    found = decide(suspects, [dataclasses.replace(confirm(), envelope=other)], CLUSTER)
    assert found.confirmations["triad"].kind is Kind.SLOWER
    assert [following.trial.key for following in found.next] == ["pinned-1"]  # for copy


# --- several nodes ---------------------------------------------------------------------------------------------------

SET = "n01,n02,n03,n04"
OTHERS = "n11,n12,n13,n14"
THREE = [confirm(100.0, OTHERS), pinned(95.0, 1, SET), pinned(95.0, 2, SET)]


def test_a_set_of_nodes_is_named_as_a_whole():
    found = answer(THREE, suspect(nodes=SET))
    assert found.short.startswith("one of the nodes n01, n02, n03, n04: -5.0 % in 3 of 3, ")
    assert not any("take it out" in line for line in found.lines)


# --- many suspects ---------------------------------------------------------------------------------------------------


def session(suspects, normal=0, running=0, repeats=None):
    tests = {f"s{number}": TestSoFar(True, {METRIC: suspect()}) for number in range(suspects)}
    tests |= {f"n{number}": TestSoFar(True, {}) for number in range(normal)}
    tests |= {f"r{number}": TestSoFar(False, {}) for number in range(running)}
    for name, of_test in (repeats or {}).items():
        tests[name] = dataclasses.replace(tests[name], repeats=of_test)
    return tests


def ask(name, tests):
    return decide_together(tests[name], platform_so_far(tests.values()), CLUSTER)


@pytest.mark.slow
def test_two_of_sixty_suspects_are_repeated_however_they_become_known():
    begun = set()
    for known in range(1, 61):
        tests = session(known, running=60 - known, repeats={name: [confirm(live=True)] for name in begun})
        begun |= {name for name in tests if name.startswith("s") and ask(name, tests).next}
    assert len(begun) == 2


def test_a_few_suspects_are_each_confirmed_once_no_mass_event_is_possible():
    tests = session(3, normal=40, running=17, repeats={"s0": [confirm(live=True)], "s1": [confirm(live=True)]})
    assert ask("s2", tests) == NextSteps(waits=True)  # 3 and 17 may become a third of 60
    tests = session(3, normal=41, running=16, repeats={"s0": [confirm(live=True)], "s1": [confirm(live=True)]})
    assert [following.trial.key for following in ask("s2", tests).next] == ["confirm-1"]


def test_where_there_is_one_node_many_suspects_are_repeated_on_it():
    refused = [confirm(failure="submission refused", refused=True)]
    tests = session(3, repeats={"s0": refused, "s1": refused})
    assert [following.trial.key for following in ask("s0", tests).next] == ["confirm-2"]
    assert ask("s2", tests) == NextSteps(waits=True)
    second = dataclasses.replace(confirm(95.0, "n07"), trial=Trial(Role.CONFIRM, repeat=2))
    tests = session(3, repeats={"s0": [*refused, second], "s1": [*refused, second]})
    assert ask("s2", tests).confirmations[METRIC].kind is Kind.SLOWER


def test_two_suspects_of_two_tests_are_no_mass_event():
    tests = session(2, repeats={"s0": [confirm(100.0)]})
    assert [following.trial.key for following in ask("s0", tests).next] == ["pinned-1"]


@pytest.mark.parametrize(
    ("first", "second", "kind", "short"),
    [
        (95.0, 94.0, Kind.SLOWER, "the platform, not a node"),
        (99.0, 99.0, Kind.TRANSIENT, "transient: -5.0 %, as many tests of the platform"),
        (
            *(95.0, 99.0, Kind.SUSPECT),
            "suspect: -5.0 %; on this platform 3 of 9 tests are slow, and of 2 repeats 1 is slow: it is not known why",
        ),
    ],
)
def test_two_repeats_speak_for_all_suspects_of_the_platform(first, second, kind, short):
    tests = session(3, normal=6, repeats={"s0": [confirm(first)], "s1": [confirm(second)]})
    for name in ("s0", "s1", "s2"):
        found = ask(name, tests).confirmations[METRIC]
        assert (found.kind, found.short) == (kind, short)
        assert any("confirm-1" in line for line in found.lines) == (name != "s2")


def test_a_session_says_once_what_many_suspects_mean():
    tests = session(3, normal=6, repeats={"s0": [confirm(95.0)], "s1": [confirm(95.0)]})
    assert sentence(platform_so_far(tests.values())) == (
        "3 of 9 tests are slow, and 2 repeats too: it is the platform, not a node"
    )
    assert sentence(platform_so_far(session(3, normal=7).values())) is None
    assert sentence(platform_so_far(session(3, repeats={"s0": [confirm(live=True)]}).values())) is None


KNOWN = Confirmation(Kind.NODE, True, "node n07: -5.0 %, as when repeats named it", ("It is as large as then.",))


def known(nodes="n07"):
    return TestSoFar(True, {METRIC: dataclasses.replace(suspect(nodes=nodes), known=KNOWN)})


def test_a_known_node_is_not_repeated_and_its_command_is_shown():
    found = ask("k", {"k": known(), **session(0, normal=3)})
    assert not found.waits
    assert not found.next
    assert found.confirmations[METRIC].short == KNOWN.short
    assert found.confirmations[METRIC].lines[-1] == "  scontrol update nodename=n07 state=drain reason='slow: -5.0 %'"
    many = {name: known() for name in "klmn"}
    assert sentence(platform_so_far(many.values())) is None
    assert ask("k", many).confirmations[METRIC].kind is Kind.NODE


def test_a_node_that_repeats_of_one_test_have_named_is_not_repeated_by_the_others():
    repeats = [confirm(100.0), pinned(95.0), pinned(95.5, 2)]
    tests = session(2, normal=9, repeats={"s0": repeats})
    found = ask("s1", tests)
    assert not found.next
    assert found.confirmations[METRIC].kind is Kind.NODE
    assert found.confirmations[METRIC].lines[-1].startswith("  scontrol update nodename=n07 state=drain")
    assert ask("s0", tests).confirmations[METRIC].short == "node n07: -5.0 % in 3 of 3, n12 normal"
    worse = {**tests, "s1": TestSoFar(True, {METRIC: suspect(80.0)})}
    assert [following.trial.key for following in ask("s1", worse).next] == ["confirm-1"]
    elsewhere = {**tests, "s1": TestSoFar(True, {METRIC: suspect(nodes="n08")})}
    assert [following.trial.key for following in ask("s1", elsewhere).next] == ["confirm-1"]


def test_a_known_node_is_repeated_if_other_nodes_of_the_session_are_slow_too():
    assert ask("k", {"k": known(), **session(0, running=1)}) == NextSteps(waits=True)
    other = TestSoFar(True, {METRIC: suspect(nodes="n12")})
    assert [following.trial.key for following in ask("k", {"k": known(), "o": other}).next] == ["confirm-1"]
    same = TestSoFar(True, {METRIC: suspect(nodes="n07")})
    assert ask("k", {"k": known(), "o": same}).confirmations[METRIC].kind is Kind.NODE
    fleet = {"k": known(), **dict.fromkeys("op", other)}
    repeats = [confirm(95.0)]
    fleet = {name: dataclasses.replace(one, repeats=repeats if name in "op" else ()) for name, one in fleet.items()}
    assert ask("k", fleet).confirmations[METRIC].short == "the platform, not a node"


# --- the verdict -----------------------------------------------------------------------------------------------------


def test_a_verdict_that_was_confirmed_is_read_again_from_the_history():
    past = nights(26)
    slow = run(26, 89.0)
    verdict = verdict_on(slow, past)
    assert verdict.suspect is not None
    now = confirmed(verdict, Confirmation(Kind.TRANSIENT, False, "transient: -11 %", ("A repeat is normal.",)))
    assert (now.kind, now.red, now.short, now.text.split("\n")[1]) == (
        *(Kind.TRANSIENT, False),
        *("transient: -11 %", "A repeat is normal."),
    )
    stored = {
        "kind": "transient",
        "red": False,
        "confirmation": {"short": "transient: -11 %", "text": "A repeat is normal."},
    }
    assert verdict_on(dataclasses.replace(slow, verdicts={METRIC: stored}), past) == now


def test_what_is_no_new_step_is_no_suspect():
    past = nights(26)
    assert verdict_on(run(26, 100.0), past).suspect is None
    red = run(26, 89.0, verdicts={METRIC: {"kind": "slower", "red": True}})
    assert verdict_on(run(27, 89.0), [*past, red]).suspect is None  # it is known since last night
    assert verdict_on(in_doubt(27, 100.0), [*past, red]).suspect is None  # an earlier red stands
    drift = nights(6, level=97.0, first=26)
    assert verdict_on(run(32, 89.0), [*past, *drift]).suspect is None  # it is red without this run
    for kind in ("transient", "suspect", "acknowledged", "node"):
        other = run(26, 89.0, verdicts={METRIC: {"kind": kind, "red": False}})
        assert verdict_on(run(27, 89.0), [*past, other]).suspect is not None


def test_a_node_that_was_named_is_red_until_a_run_there_is_good():
    there, elsewhere = {"nodes": "n07"}, {"nodes": "n12"}
    named = run(26, 89.0, provenance=there, verdicts={METRIC: {"kind": "node", "red": True}})
    past = [*nights(26), named, run(27, 100.0, provenance=elsewhere)]
    verdict = verdict_on(run(28, 89.0, provenance=there), past)
    assert (verdict.kind, verdict.red, verdict.suspect) == (Kind.NODE, True, None)
    assert verdict.short == f"node n07: -11.0 %, as when repeats named it in the night of {night(26)}"
    sentence = f"-11.0 % on n07 is as large as when repeats named node n07 in the night of {night(26)} (-11.0 %)"
    assert verdict.text.split("\n")[1] == f"{sentence}; nothing was repeated."
    assert verdict_on(run(28, 89.0, provenance=elsewhere), past).suspect is not None
    good = run(28, 100.0, provenance=there)
    assert verdict_on(run(29, 89.0, provenance=there), [*past, good]).suspect is not None


def test_another_loss_on_a_node_that_was_named_is_suspect_again():
    there = {"nodes": "n07"}
    named = run(26, 89.0, provenance=there, verdicts={METRIC: {"kind": "node", "red": True}})
    past = [*nights(26), named]
    for value in (93.0, 80.0):
        verdict = verdict_on(run(28, value, provenance=there), past, repeats_follow=True)
        assert verdict.suspect.known is None
    # a run that was not repeated moves nothing: the loss that repeats have seen is the one that counts
    known = verdict_on(run(27, 87.0, provenance=there), past)
    stored = {"kind": known.kind, "red": True, "confirmation": {"short": known.short, "text": known.text}}
    past.append(run(27, 87.0, provenance=there, verdicts={METRIC: stored}))
    assert verdict_on(run(28, 85.0, provenance=there), past).suspect is not None
    assert verdict_on(run(28, 88.0, provenance=there), past).short.endswith(f"in the night of {night(26)}")


@pytest.mark.parametrize("kind", ["transient", "suspect"])
def test_a_step_that_was_not_confirmed_leaves_no_red_and_no_wider_limit(kind):
    past = nights(30)
    step = run(30, 89.0, verdicts={METRIC: {"kind": kind, "red": False}})
    assert not verdict_on(in_doubt(31, 100.0), [*past, step]).red
    quiet = verdict_on(run(39, 100.0), [*past, *nights(9, first=30)])
    with_step = verdict_on(run(39, 100.0), [*past, step, *nights(8, first=31)])
    assert with_step.text.count("runs, x (1 + 0.7") == quiet.text.count("runs, x (1 + 0.7") == 1
    assert "the scaled MAD of 32 runs" in with_step.text
    assert "the scaled MAD of 33 runs" in quiet.text


def test_a_suspect_that_stays_red_is_cleared_by_the_next_good_run_only():
    past = [*nights(26), run(26, 85.0, verdicts={METRIC: {"kind": "suspect", "red": True}})]
    assert verdict_on(in_doubt(27, 100.0), past).red
    assert verdict_on(run(27, 100.0), past).kind is Kind.OK


def slow_by(kind, number, value=91.0):
    return run(number, value, verdicts={METRIC: {"kind": kind, "red": kind == "node"}})


def test_a_change_begins_after_runs_that_a_node_or_chance_made_slow():
    exceptional = [slow_by(kind, 26 + index) for index, kind in enumerate(("node", "node", "node", "transient"))]
    change = [run(number, 91.0, verdicts={METRIC: {"kind": "slower", "red": True}}) for number in range(30, 35)]
    verdict = verdict_on(run(35, 91.0), [*nights(26), *exceptional, *change])
    assert verdict.red
    assert verdict.since == night(30)
    assert f"--since {night(30)} " in verdict.text
    assert "this needs" not in verdict.text


def test_where_all_other_runs_were_exceptional_the_change_still_has_a_start():
    answer = accepted(night(26), 100.0, error=0.002, scale=0.01)
    past = [*nights(26), *[slow_by("node", number) for number in range(26, 32)]]
    verdict = verdict_on(in_doubt(32, 99.5), past, References(acceptances=(answer,)))
    assert verdict.red
    assert verdict.since == night(26)


@pytest.mark.parametrize(
    ("kind", "answers"), [(Kind.NODE, ["ack"]), (Kind.TRANSIENT, []), (Kind.SLOWER, ["accept", "ack"])]
)
def test_only_what_answers_a_verdict_is_printed(kind, answers):
    verdict = verdict_on(run(26, 89.0), nights(26))
    now = confirmed(verdict, Confirmation(kind, kind is not Kind.TRANSIENT, "short", ("A sentence.",)))
    assert re.findall(r"python -m reporting (\w+)", now.text) == answers
    assert ("If the new level is right" in now.text) == ("accept" in answers)


def test_a_slow_node_is_dated_by_its_own_runs_and_not_by_an_earlier_loss_of_the_series():
    driver = {"driver": "570.124", "nodes": "n12"}
    lost = [run(number, 94.0, provenance=driver) for number in range(30, 50)]
    slow = {"nodes": "n07"}
    named_before = run(60, 94.0, provenance=slow, verdicts={METRIC: {"kind": "node", "red": True}})
    past = [*nights(30), *lost, *nights(15, first=50)[:10], named_before, *nights(5, first=61)]
    verdict = verdict_on(run(66, 93.0, provenance=slow), past, repeats_follow=True)
    assert verdict.suspect is not None
    named = Confirmation(Kind.NODE, True, "node n07: -6.0 % in 3 of 3, n12 normal", ("It is the node.",))
    found = confirmed(verdict, named)
    assert found.since == night(60)
    assert f"slower on n07 since {night(60)}\n" in found.text
    assert str(night(30)) not in found.text
    assert "570.124" not in found.text
