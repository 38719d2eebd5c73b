"""`python -m reporting accept`, `ack`, `carry`, `note`, `pause`, `answers`, as people type them."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import io
import os
import random
import re
import shlex
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from platforms.job import Metric
from reporting.__main__ import main
from reporting.gate.judge import judge
from reporting.gate.verdict import Kind, Verdict
from reporting.history import reader
from reporting.history.comparability import comparability
from reporting.history.envelope import Envelope
from reporting.history.writer import HistoryWriter
from reporting.phrases import size
from reporting.references import store
from reporting.references.answers import Acceptance
from tests.reporting.history_lines import envelope

ROOT = Path(__file__).resolve().parents[2]
TEST = "test_resnet50.py::test_resnet50[eidf_a100-1x4gpu-tuned]"
METRIC = "effective_throughput"
NOON = datetime.time(12)
TODAY = datetime.datetime.now().astimezone().date()
DAY = datetime.timedelta(days=1)
FIELDS = {"benchmark": "resnet50", "layout": "1x4gpu", "device": "A100", "data_from": "storage", "workload_version": 1}


@pytest.fixture(autouse=True)
def _today(monkeypatch: pytest.MonkeyPatch) -> None:
    """Midnight may have passed since this file was imported."""
    monkeypatch.setitem(globals(), "TODAY", datetime.datetime.now().astimezone().date())


def last_night() -> datetime.date:
    """The night of a run that started some hours ago."""
    return TODAY - 2 * DAY


def run(night: datetime.date, value: float, **changes: Any) -> Envelope:
    """A run of a night, begun at ten in the evening."""
    started = datetime.datetime.combine(night, datetime.time(22)).timestamp()
    fields = changes.pop("fields", FIELDS)
    values: dict[str, Any] = {
        "run_id": f"{night:%Y%m%d}-220000-{changes.pop('which', 'a')}",
        "submitted_s": started - 60,
        "started_s": started,
        "platform": "eidf_a100",
        "metrics": {METRIC: Metric(value, "samples/s")},
        "fields": fields,
        "comparability": comparability(fields),
        "beside": {},
    }
    return envelope(changes.pop("test", TEST), **{**values, **changes})


def nights(
    number: int, level: float, last: datetime.date | None = None, seed: int = 1, **changes: Any
) -> list[Envelope]:
    """A run in each of some nights up to the last one, around a level."""
    noise = random.Random(seed)
    last = last or last_night()
    first = last - (number - 1) * DAY
    return [run(first + index * DAY, level * (1 + noise.gauss(0, 0.01)), **changes) for index in range(number)]


def slid(after: int = 6) -> list[Envelope]:
    """Twenty-six nights at 100, then some at 90."""
    return [*nights(26, 100.0, last_night() - after * DAY), *nights(after, 90.0, seed=2)]


@pytest.fixture
def site(tmp_path: Path) -> Path:
    (tmp_path / "centre").mkdir()
    return tmp_path / "centre"


def filled(site: Path, envelopes: list[Envelope]) -> Path:
    HistoryWriter(site / "history").write_all(envelopes)
    return site


@dataclasses.dataclass(frozen=True)
class Printed:
    stdout: str
    stderr: str


def typed(site: Path, *words: str, environ: Mapping[str, str] | None = None, code: int = 0) -> Printed:
    """What a person gets who types a command for this site. `code` is the exit code that is expected."""
    plain = {name: value for name, value in os.environ.items() if name not in ("GITLAB_USER_LOGIN", "GITHUB_ACTOR")}
    out = io.StringIO()
    err = io.StringIO()
    with (
        mock.patch.dict(os.environ, {**plain, "HPC_ML_BENCH_SITE": str(site), **(environ or {})}, clear=True),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        returned = main(words)
    assert returned == code, (out.getvalue(), err.getvalue())
    return Printed(out.getvalue(), err.getvalue())


def verdict(site: Path) -> Verdict:
    """The gate's verdict on the last run."""
    envelopes = reader.read(site / "history")
    return judge(envelopes[-1], envelopes, store.load(site), NOON)[METRIC]


def accepted(site: Path) -> Acceptance:
    return store.load(site).acceptances[-1]


def accept(site: Path, since: datetime.date, *words: str, code: int = 0) -> Printed:
    return typed(site, "accept", "resnet50", f"--since={since}", "--reason", "driver 570", *words, code=code)


def test_accept_puts_the_level_of_six_runs_in_place_of_the_pin(site: Path) -> None:
    filled(site, slid())
    assert verdict(site).red
    since = last_night() - 5 * DAY
    done = accept(site, since, "--by", "ada")
    answer = accepted(site)
    assert (answer.test, answer.metric, answer.unit, answer.since) == (TEST, METRIC, "samples/s", since)
    assert answer.level == pytest.approx(90, rel=0.02)
    assert answer.anchor == pytest.approx(100, rel=0.01)
    assert len(answer.runs) == 6
    assert (answer.reason, answer.author.by) == ("driver 570", "ada")
    (spread,) = re.findall(r"= 1.2533 x scale x sqrt\((\S+) / 6\)", done.stdout)
    assert answer.error == pytest.approx(1.2533 * answer.scale * (float(spread) / 6) ** 0.5, rel=0.01)
    for text in (
        f"{answer.level:g} samples/s, from 6 runs",
        f"{size(answer.error)} of the level",
        f"{size(answer.scale)} of",
    ):
        assert text in done.stdout
    now = verdict(site)
    assert not now.red
    assert re.search(r"\(-(9|10)\.\d % of the first pin\)$", now.short)


def test_runs_that_a_node_or_chance_made_slow_are_no_part_of_a_level(site: Path) -> None:
    kinds = ["node", "node", "transient"]
    exceptional = [
        run(night, 80.0, verdicts={METRIC: {"kind": kind, "red": kind == "node"}})
        for night, kind in zip([last_night() - (7 - index) * DAY for index in range(3)], kinds, strict=True)
    ]
    runs = [*nights(26, 100.0, last_night() - 8 * DAY), *exceptional, *nights(4, 90.0, last_night() - DAY, seed=2)]
    filled(site, runs)
    ids = ", ".join(each.key.run_id for each in exceptional)
    said = f"3 runs do not count, since repeats named a node or were normal: {ids}"
    first = last_night() - 7 * DAY
    refused = accept(site, first, code=2)
    assert f"there are 4 of the 5 runs that a level needs since the night of {first} ({said})" in refused.stderr
    filled(site, nights(1, 90.0, seed=3))
    out = accept(site, first).stdout
    assert f", from 5 runs\n  {said}\n" in out
    assert "much more than the scale" not in out
    assert not set(accepted(site).runs) & {each.key.run_id for each in exceptional}


def test_a_pin_of_zero_can_be_replaced(site: Path) -> None:
    first = last_night() - 31 * DAY
    zeros = [run(first + number * DAY, 0.0) for number in range(26)]
    filled(site, [*zeros, *[run(first + number * DAY, 3.0) for number in range(26, 32)]])
    assert verdict(site).kind is Kind.BLIND
    assert "the pin was 0" in accept(site, last_night() - 5 * DAY).stdout
    assert (accepted(site).level, accepted(site).anchor) == (3.0, 3.0)
    assert verdict(site).kind is Kind.OK


def test_runs_in_doubt_do_not_count(site: Path) -> None:
    filled(site, [*nights(26, 100.0, last_night() - 6 * DAY), *nights(6, 90.0, doubts=("crowded",))])
    done = accept(site, last_night() - 5 * DAY, code=2)
    assert "there are 0 of the 5 runs" in done.stderr
    assert "(6 more are in doubt, and do not count)" in done.stderr


def test_an_acceptance_in_another_unit_does_not_count(site: Path) -> None:
    filled(site, slid())
    accept(site, last_night() - 5 * DAY)
    in_thousands = [
        run(last_night() + DAY, 0.09, which=which, metrics={METRIC: Metric(0.09, "ksamples/s")}) for which in "bcdef"
    ]
    filled(site, in_thousands)
    now = verdict(site)
    assert (now.kind, now.runs, now.red) == (Kind.LEFT, 6, True)


def test_a_run_that_has_left_its_series_is_accepted_with_the_new_one(site: Path) -> None:
    mixed = {**FIELDS, "data_from": "mixed"}
    since = last_night() - 4 * DAY
    filled(site, [*nights(26, 100.0, since - DAY), *nights(5, 95.0, fields=mixed)])
    assert verdict(site).kind is Kind.LEFT
    accept(site, since)
    answer = accepted(site)
    assert answer.comparability == comparability(mixed)
    assert answer.anchor == pytest.approx(100, rel=0.01)
    assert answer.level == pytest.approx(95, rel=0.02)
    assert not verdict(site).red


def test_a_level_is_accepted_while_the_series_learns(site: Path) -> None:
    since = last_night() - 4 * DAY
    filled(site, [*nights(8, 100.0, since - DAY), *nights(5, 80.0)])
    accept(site, since)
    assert accepted(site).anchor == pytest.approx(100, rel=0.02)
    assert accepted(site).scale < 0.05


def test_all_runs_of_a_series_that_learns_are_its_level(site: Path) -> None:
    filled(site, nights(8, 100.0))
    out = accept(site, last_night() - 7 * DAY).stdout
    assert "samples/s, the median of these runs; the new level is +0.0 % from it" in out
    assert "first pin" not in out
    assert "as before" not in out


def test_a_start_so_early_that_it_changes_nothing_is_refused_with_a_better_one(site: Path) -> None:
    filled(site, slid())
    since = last_night() - 5 * DAY
    too_early = since - 12 * DAY
    said = accept(site, too_early, code=2).stderr
    assert f"error: {TEST}: nothing is written, since this would change nothing: the last run would still be -" in said
    assert f"  a better start is the night of {since}:\n" in said
    assert not (site / "references").exists()
    assert verdict(site).red
    (command,) = re.findall(r"python -m reporting accept (.*)", said)
    assert f"--since {since} --reason 'driver 570'" in command
    done = typed(site, "accept", *shlex.split(command))
    assert "WARNING" not in done.stdout
    assert not verdict(site).red


def test_a_better_start_without_five_runs_says_so(site: Path) -> None:
    filled(site, slid(3))
    said = accept(site, last_night() - 9 * DAY, code=2).stderr
    assert f"a better start is the night of {last_night() - 2 * DAY}, once it has 5 runs (there are 3):" in said


def test_a_start_shortly_before_the_change_is_warned_of_with_a_better_one(site: Path) -> None:
    filled(site, slid(12))
    since = last_night() - 11 * DAY
    out = accept(site, since - 2 * DAY).stdout
    assert f"WARNING: the gate sees the change since the night of {since}, so this level has runs from before it" in out
    assert f"  a better start is the night of {since}:\n" in out
    assert not verdict(site).red, "it has changed something"


def test_the_loss_of_a_node_is_no_new_level(site: Path) -> None:
    """The node has been named by repeats, and the runs on other nodes are as they were."""
    there = {"nodes": "n07"}
    named = {"verdicts": {METRIC: {"kind": "node", "red": True}}}
    before = nights(30, 100.0, last_night() - 8 * DAY, provenance={"nodes": "n01"})
    since = last_night() - 7 * DAY
    first = run(since, 89.0, provenance=there, **named)
    between = nights(6, 100.0, last_night() - DAY, seed=3, provenance={"nodes": "n02"})
    filled(site, [*before, first, *between, run(last_night(), 89.0, provenance=there)])
    assert verdict(site).kind is Kind.NODE
    said = accept(site, since, code=2).stderr
    assert "nothing is written, since this would change nothing: the last run would still be node n07: -" in said
    assert f"    python -m reporting nodes eidf_a100 --site={site}\n" in said
    assert not (site / "references").exists()
    (command,) = re.findall(r"python -m reporting (ack .*)", said)
    typed(site, *shlex.split(command.replace("URL", "https://tickets.example/7")))


def test_an_acceptance_is_taken_back_by_accepting_the_level_before_it(site: Path) -> None:
    filled(site, slid())
    accept(site, last_night() - 5 * DAY)
    assert not verdict(site).red
    accept(site, last_night() - 31 * DAY)
    assert accepted(site).level == pytest.approx(100, rel=0.02)
    assert verdict(site).red
    assert "replaced" in typed(site, "answers").stdout


def test_a_start_before_the_first_run_is_refused(site: Path) -> None:
    filled(site, slid())
    first = last_night() - 31 * DAY
    done = accept(site, datetime.date(2016, 1, 1), code=2)
    assert "--since: 2016-01-01 is before the first comparable run of" in done.stderr
    assert f"which is of the night of {first} (if all of its runs are one level, type --since {first})" in done.stderr
    assert not (site / "references").exists()


def test_a_change_between_two_runs_of_a_night_begins_with_a_run(site: Path) -> None:
    """Ten runs in the last night, of which the first four are as before."""
    last = [
        run(last_night(), 100.0 if number < 4 else 90.0 + number / 10, which=str(number), started_s=started)
        for number, started in enumerate(evening(last_night(), 10))
    ]
    filled(site, [*nights(26, 100.0, last_night() - DAY), *last])
    (command,) = re.findall(r"python -m reporting accept (.*)", verdict(site).text)
    assert f"--since {last[4].key.run_id} " in command
    done = typed(site, "accept", *shlex.split(command))
    assert f"is accepted as it is since the run {last[4].key.run_id}" in done.stdout
    assert "from 6 runs" in done.stdout
    assert "WARNING" not in done.stdout
    answer = accepted(site)
    assert (answer.since, answer.runs) == (last_night(), tuple(each.key.run_id for each in last[4:]))
    assert not verdict(site).red


def evening(night: datetime.date, runs: int) -> list[float]:
    """The starts of runs, ten minutes apart."""
    first = datetime.datetime.combine(night, datetime.time(22)).timestamp()
    return [first + 600 * number for number in range(runs)]


def test_runs_of_two_levels_are_remarked_upon(site: Path) -> None:
    filled(
        site, [*nights(26, 100.0, last_night() - 6 * DAY), *nights(3, 90.0, last_night() - 3 * DAY), *nights(3, 70.0)]
    )
    assert "is it one level since then?" in accept(site, last_night() - 5 * DAY).stdout


def test_the_commands_that_a_red_verdict_prints_can_be_typed(site: Path) -> None:
    filled(site, slid())
    printed = [line.strip() for line in verdict(site).text.splitlines() if "python -m reporting" in line]
    assert len(printed) == 2
    for line in reversed(printed):  # once the level is accepted, there is nothing to acknowledge
        words = shlex.split(line.replace("URL", "https://tickets.example/7").replace("WHY", "new driver"))
        assert words[:3] == ["python", "-m", "reporting"]
        typed(site, *words[3:])
    assert len(store.load(site).acceptances) == len(store.load(site).acknowledgements) == 1


def test_an_acknowledged_regression_is_amber(site: Path) -> None:
    filled(site, slid())
    until = TODAY + 10 * DAY
    done = typed(site, "ack", TEST, "--ticket", "https://tickets.example/7", f"--until={until}")
    assert f"amber until the night of {until}" in done.stdout
    (answer,) = store.load(site).acknowledgements
    assert answer.change == pytest.approx(-0.1, abs=0.02)
    assert verdict(site).kind is Kind.ACKNOWLEDGED


def test_an_acknowledgement_is_ended(site: Path) -> None:
    filled(site, slid())
    typed(site, "ack", TEST, "--ticket", "https://tickets.example/7", f"--until={TODAY + 10 * DAY}")
    typed(site, "ack", TEST, "--end")
    assert store.load(site).acknowledgement(TEST, METRIC, TODAY) is None
    assert "no acknowledgement of effective throughput is in force" in typed(site, "ack", TEST, "--end", code=2).stderr


def test_what_is_not_red_cannot_be_acknowledged(site: Path) -> None:
    filled(site, nights(26, 100.0))
    done = typed(site, "ack", TEST, "--ticket", "https://x", f"--until={TODAY + DAY}", code=2)
    assert "there is nothing to acknowledge: the last run is ok" in done.stderr


def test_a_pin_is_carried_over_to_a_new_workload_version_by_their_ratio(site: Path) -> None:
    new = {**FIELDS, "workload_version": 2}
    old_nights = nights(26, 100.0, last_night() - 5 * DAY)
    both = [*nights(5, 100.0, seed=3), *nights(5, 120.0, seed=4, fields=new, which="b")]
    filled(site, [*old_nights, *both])
    done = typed(site, "carry", "resnet50", "--reason", "channels last", "--by", "ada")
    answer = accepted(site)
    assert answer.comparability == comparability(new)
    assert answer.level == pytest.approx(120, rel=0.02)
    assert answer.anchor == pytest.approx(answer.level, rel=1e-4)
    assert answer.reason.startswith("channels last: carried over from workload version 1, pin ")
    assert "the median of 5 nights" in done.stdout
    assert len(answer.runs) == 10
    assert 0.002 < answer.error < 0.02
    filled(site, nights(1, 100.0, last_night() + DAY, fields=new, which="b"))
    assert verdict(site).kind is Kind.SLOWER


def test_the_anchor_of_an_accepted_series_is_carried_over_too(site: Path) -> None:
    new = {**FIELDS, "workload_version": 2}
    filled(site, slid())
    accept(site, last_night() - 5 * DAY)
    filled(site, nights(6, 108.0, seed=4, fields=new, which="b"))
    typed(site, "carry", "resnet50")
    assert accepted(site).level / accepted(site).anchor == pytest.approx(0.9, abs=0.02)


def test_carry_wants_five_nights_of_both_versions(site: Path) -> None:
    new = {**FIELDS, "workload_version": 2}
    filled(site, [*nights(26, 100.0), *nights(4, 120.0, fields=new, which="b")])
    done = typed(site, "carry", TEST, code=2)
    assert "4 of the 5 nights are there in which both workload versions, 1 and 2, have runs" in done.stderr


def test_carry_without_another_version_says_so(site: Path) -> None:
    filled(site, nights(26, 100.0))
    assert "there is no pin to carry over" in typed(site, "carry", TEST, code=2).stderr


def test_a_test_is_named_by_a_part_that_no_other_one_has(site: Path) -> None:
    other = TEST.replace("1x4gpu", "2x4gpu")
    filled(site, [*slid(), *nights(3, 50.0, test=other)])
    done = typed(site, "accept", "resnet50", "--since=2026-11-01", "--reason=x", code=2)
    named = f"name one of them:\n  '{TEST}'\n  '{other}'\n"
    assert done.stderr == f"error: 2 tests have 'resnet50' in their ids; {named}"
    missing = typed(site, "accept", TEST.replace("tuned", "tunde"), "--since=2026-11-01", "--reason=x", code=2)
    assert f"(did you mean '{TEST}'?)" in missing.stderr
    typed(site, "accept", "1x4gpu-tuned", f"--since={last_night() - 5 * DAY}", "--reason=x")
    assert accepted(site).test == TEST


def test_one_of_several_metrics_is_named(site: Path) -> None:
    both = {"triad": Metric(812.0, "GB/s"), "copy_rate": Metric(700.0, "GB/s")}
    filled(site, nights(26, 100.0, metrics=both))
    words = ["accept", TEST, f"--since={last_night() - 5 * DAY}", "--reason=x"]
    done = typed(site, *words, code=2)
    assert "has several metrics; name one: --metric copy_rate, --metric triad" in done.stderr
    typed(site, *words, "--metric", "copy rate")
    assert (accepted(site).metric, accepted(site).level) == ("copy_rate", 700.0)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["accept", TEST, "--since=soon", "--reason=x"], "--since: 'soon' is no day .write YYYY-MM-DD, as in 2026"),
        (["accept", TEST, f"--since={TODAY + 10 * DAY}", "--reason=x"], "is still to come"),
        (["accept", TEST, "--since=2026-11-17", "--reason= "], "--reason: say it in words"),
        (["accept", TEST, "--since=2026-11-17", "--reason=\x1b[31mred"], "has a character that cannot be printed"),
        (["accept", TEST, "--since=2026-11-17", "--reason=x", "--metric=triad"], "--metric: .* has no 'triad'"),
        (["ack", TEST, "--ticket=x", f"--until={TODAY - 2 * DAY}"], "--until: the night of .* has passed, now it is"),
        (["ack", TEST, "--ticket=x"], "ack needs --ticket URL and --until DATE"),
        (["ack", TEST, "--end", "--ticket=x"], "it goes without --ticket and --until"),
        (["pause", "eidf_a100"], "pause needs --until DATE and --reason TEXT"),
        (["pause", "eidf_a100", "--end"], "no pause of 'eidf_a100' is in force"),
        (
            ["pause", "eidf_a10", f"--until={TODAY + 10 * DAY}", "--reason=x"],
            r"no platform or test 'eidf_a10' \(did you mean",
        ),
        (["note", "--platform=eidf_a100", f"--at={TODAY + 10 * DAY}", "x"], "is still to come"),
        (["note", "--platform=eidf_a10", f"--at={TODAY}", "x"], r"no platform 'eidf_a10' \(did you mean 'eidf_a100'"),
    ],
)
def test_each_mistake_gets_one_clear_message(
    site: Path, words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    filled(site, slid())
    assert main([*words, f"--site={site}"]) == 2
    printed = capsys.readouterr().err
    assert re.search(f"^error: .*{said}", printed), printed
    assert printed.count("\n") == 1
    assert not (site / "references").exists()


def test_a_folder_that_cannot_be_written_is_one_message(site: Path) -> None:
    (site / "references").write_text("")
    done = typed(site, "pause", "eidf_a100", f"--until={TODAY}", "--reason=x", code=2)
    assert f"error: {site}/references: the answer cannot be written" in done.stderr


def test_a_platform_is_noted_paused_and_goes_on(site: Path) -> None:
    typed(site, "note", "--platform", "eidf_a100", "--at", "2026-11-16", "BIOS 2.1 -> 2.2", "--by=ada")
    typed(site, "pause", "eidf_a100", f"--until={TODAY}", "--reason", "cooling")
    references = store.load(site)
    assert references.notes[0].text == "BIOS 2.1 -> 2.2"
    assert references.pause(TEST, "eidf_a100", TODAY) is not None
    typed(site, "pause", "eidf_a100", "--end")
    assert store.load(site).pause(TEST, "eidf_a100", TODAY) is None


def test_a_test_is_paused_by_a_part_of_its_id(site: Path) -> None:
    filled(site, nights(2, 100.0))
    typed(site, "pause", "resnet50", f"--until={TODAY}", "--reason", "rewritten")
    assert store.load(site).pause(TEST, "elsewhere", TODAY) is not None
    typed(site, "pause", "resnet50", "--end")
    assert store.load(site).pause(TEST, "elsewhere", TODAY) is None


@pytest.mark.parametrize(
    ("environ", "who"),
    [
        ({"GITLAB_USER_LOGIN": "grace", "GITHUB_ACTOR": "alan"}, "grace"),
        ({"GITHUB_ACTOR": "alan"}, "alan"),
        ({"LOGNAME": "login"}, "login"),
    ],
)
def test_who_answers(site: Path, environ: Mapping[str, str], who: str) -> None:
    typed(site, "note", "--platform=eidf_a100", f"--at={TODAY}", "x", environ=environ)
    assert store.load(site).notes[0].author.by == who


def test_answers_lists_what_is_in_force_and_what_is_over(site: Path) -> None:
    assert "there is no answer in" in typed(site, "answers").stdout
    filled(site, slid())
    typed(site, "ack", TEST, "--ticket=https://x/1", f"--until={TODAY}", "--by=ada")
    accept(site, last_night() - 5 * DAY, "--by=ada")
    accept(site, last_night() - 4 * DAY, "--by=grace")
    typed(site, "pause", "eidf_a100", f"--until={TODAY}", "--reason=cooling", "--by=ada")
    typed(site, "pause", "eidf_a100", "--end", "--by=ada")
    first, second = store.load(site).acceptances
    assert (first.anchor, first.scale) == (second.anchor, second.scale), "those of the first pin"
    in_force, over = typed(site, "answers").stdout.split("over:\n")
    assert in_force.startswith("in force:\n")
    assert set(re.findall(r"    (\w+): .*\((\w+),", in_force)) == {("ack", "ada"), ("accept", "grace")}
    ended = set(re.findall(r"    (\w+): .*\) (\w+)$", over, re.MULTILINE))
    assert ended == {("accept", "replaced"), ("pause", "replaced"), ("pause", "ended")}
    assert "pause" not in typed(site, "answers", "resnet50").stdout


def test_answers_returns_1_for_an_answer_that_cannot_be_read(site: Path) -> None:
    typed(site, "pause", "eidf_a100", f"--until={TODAY}", "--reason=cooling")
    (path,) = (site / "references").rglob("*.yaml")
    path.write_text(path.read_text().replace(f"{TODAY}\n", "tomorrow\n", 1))
    assert f"error: {path}:4: until: 'tomorrow' is no date" in typed(site, "answers", code=1).stderr
    assert "warning: " in typed(site, "pause", "eidf_a100", "--end", code=2).stderr


def test_a_site_is_kept_in_git_by_the_lines_of_the_page(tmp_path: Path) -> None:
    """The checkout ignores `site/`, so that it is a repository of its own."""
    names = ("GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL")
    environ = {**os.environ, **dict.fromkeys(names, "ada@b")}

    def shell(line: str) -> str:
        words = ["bash", "-c", line]
        return subprocess.run(words, cwd=tmp_path, env=environ, capture_output=True, text=True, check=True).stdout

    shell("git init . && echo /site/ > .gitignore && mkdir site")
    site = tmp_path / "site"
    filled(site, slid())
    said = accept(site, last_night() - 5 * DAY).stdout
    assert "git does not keep this folder yet (docs/answers.md says how)" in said
    page = (ROOT / "docs/answers.md").read_text()
    section = page.partition("## How do I keep the answers in git?")[2].partition("\n## ")[0]
    lines = re.findall(r"^    (git .*)$", section, re.MULTILINE)
    assert len(lines) == 3
    for line in lines:
        shell(line)
    (answer,) = (site / "references").rglob("*.yaml")
    kept = shell("git -C site ls-files").splitlines()
    assert kept == [".gitignore", str(answer.relative_to(site))]
    assert "; commit this file, so that" in accept(site, last_night() - 5 * DAY).stdout


def test_a_metric_with_another_unit_is_red_until_its_new_level_is_accepted(site: Path) -> None:
    since = last_night() - 4 * DAY
    in_k = [
        dataclasses.replace(one, metrics={METRIC: Metric(one.metrics[METRIC].value / 1000, "k/s")})
        for one in nights(5, 80.0)
    ]
    filled(site, [*nights(26, 100.0, since - DAY), *in_k])
    assert verdict(site).kind is Kind.LEFT
    said = accept(site, since).stdout
    assert (accepted(site).unit, accepted(site).anchor) == ("k/s", pytest.approx(0.08, rel=0.02))
    assert not verdict(site).red, said
