"""Values that pytest numbers by position are followed by what they are, not by their number."""

from __future__ import annotations

import dataclasses
import enum
import fractions
import functools
import json
import re
from pathlib import Path, PurePosixPath

import pytest

from harness.numbered import text_of
from reporting.__main__ import main
from tests.harness.conftest import Project
from tests.harness.test_gate import CALM, RateSeries

CASES = """
import pytest
from platforms.results import numbers

@pytest.mark.parametrize("case", %s)
@pytest.mark.workload(command=["{python}", "-c", "import os; print('rate:', {case}['n'] * float(os.environ['triad']))"])
def test_triad(run, record, case):
    rate, = numbers(run.log, r"rate: (.+)")
    record(run, metrics={"rate": (rate, "GB/s", "higher")})
"""
TWO = '[{"n": 100}, {"n": 50}]'
THREE = '[{"n": 20}, {"n": 100}, {"n": 50}]'


class CaseSeries(RateSeries):
    """Tests whose rate is their case's `n` times what they are told."""

    def cases(self, text: str) -> None:
        self.project.write("test_triad.py", CASES % text)

    def nights(self, *, without_values: bool = False) -> None:
        """Twenty nights of each case at its own level; `without_values` as an older suite wrote them."""
        self.past(CALM)
        for path in self.history.glob("*/*.jsonl"):
            lines = []
            for line in path.read_text().splitlines():
                content = json.loads(line)
                n = 100 if "[local-1x1cpu-case0]" in content["test"] else 50
                content["metrics"]["rate"]["value"] *= n / 100
                if without_values:
                    del content["fields"]["values"]
                    content["comparability"] = content["comparability"].partition("-")[0]
                lines.append(json.dumps(content) + "\n")
            path.write_text("".join(lines))

    def said(self) -> dict[str, tuple[str, bool]]:
        """The gate's word on tonight's cases."""
        return {
            run.key.test[-6:-1]: (run.verdicts["rate"]["kind"], run.verdicts["rate"]["red"])
            for run in self.entries()
            if run.key.run_id[:6] != "night-" and run.trial.in_series and run.trial.key == ""
        }


@pytest.fixture
def series(project: Project, monkeypatch: pytest.MonkeyPatch) -> CaseSeries:
    of_cases = CaseSeries(project, monkeypatch)
    of_cases.cases(TWO)
    return of_cases


@pytest.mark.slow
@pytest.mark.parametrize("without_values", [False, True], ids=["of this suite", "of an older one"])
def test_a_value_in_front_is_no_loss_and_hides_none(series: CaseSeries, without_values: bool) -> None:
    series.nights(without_values=without_values)
    series.cases(THREE)
    result = series.run(triad=1.0)
    result.assert_outcomes(passed=3)
    assert series.said() == {"case0": ("learning", False), "case1": ("ok", False), "case2": ("ok", False)}
    assert result.stdout.str().count("numbers that pytest made") == 1


@pytest.mark.slow
@pytest.mark.parametrize("without_values", [False, True], ids=["of this suite", "of an older one"])
def test_a_loss_of_half_in_a_moved_case_is_red(series: CaseSeries, without_values: bool) -> None:
    series.nights(without_values=without_values)
    series.cases(THREE)
    result = series.run(triad=0.5)
    result.assert_outcomes(passed=1, failed=2)
    assert series.said() == {"case0": ("learning", False), "case1": ("slower", True), "case2": ("slower", True)}
    assert "-50" in result.stdout.str()


@pytest.mark.slow
def test_each_command_follows_the_value(series: CaseSeries, capsys: pytest.CaptureFixture[str]) -> None:
    """case1 has 21 nights at 100, and no word of the 50 that it was."""
    series.nights()
    series.cases(THREE)
    series.run(triad=1.0)
    capsys.readouterr()
    for command in (["trend", "case1"], ["show", "case1"]):
        main([*command, f"--site={series.project.path}/site"])
        shown = capsys.readouterr().out
        assert re.search(r"\b(99|100)\b", shown), shown
        assert not re.search(r" (49|50)\.\d", shown), shown


@pytest.mark.slow
def test_a_value_that_takes_anothers_place_begins_a_series(series: CaseSeries) -> None:
    series.nights(without_values=True)
    series.cases('[{"n": 20}, {"n": 50}]')
    series.run(triad=1.0).assert_outcomes(passed=2)
    assert series.said() == {"case0": ("learning", False), "case1": ("ok", False)}


@pytest.mark.slow
def test_the_present_ids_written_as_names_keep_their_series(series: CaseSeries) -> None:
    series.nights()
    series.cases(TWO + ', ids=["case0", "case1"]')
    result = series.run(triad=0.5)
    result.assert_outcomes(failed=2)
    result.stdout.no_fnmatch_line("*numbers that pytest made*")


@pytest.mark.slow
def test_one_case_alone_is_followed_though_the_others_do_not_run(series: CaseSeries) -> None:
    series.nights()
    series.cases(THREE)
    series.run("-k", "case1", triad=0.5).assert_outcomes(failed=1)
    assert series.said() == {"case1": ("slower", True)}


# --- which values, in which text -------------------------------------------------------------------------------------

KINDS = """
import dataclasses, enum, functools, re
import pytest

class Size(enum.Enum):
    SMALL = 1

class Thing:
    def __init__(self, n):
        self.n = n

@dataclasses.dataclass
class Config:
    n: int

SAID = [1, 2.5, True, None, "text", "u\u0308", "", b"x", Size.SMALL, re.compile("a+"), Thing, len, "/a/b"]
HIDDEN = [{"n": 1}, [1], (1, 2), {1}, Thing(1), Config(1), functools.partial(len, "a"), "x" * 300, object()]
OWN = pytest.mark.workload(command=["true"])

@OWN
@pytest.mark.parametrize("value", SAID)
def test_said(run, value): ...

@OWN
@pytest.mark.parametrize("value", HIDDEN)
def test_hidden(run, value): ...

@OWN
@pytest.mark.parametrize("value", [{"n": 1}, pytest.param({"n": 2}, id="two")], ids=lambda value: None)
def test_some(run, value): ...

@OWN
@pytest.mark.parametrize("value", HIDDEN, ids=[f"value{n}" for n in range(len(HIDDEN))])
def test_named(run, value): ...

@OWN
@pytest.mark.parametrize("value", [{"n": 1}, {"n": 2}], ids=lambda value: f"value{value['n']}")
def test_named_by_a_function(run, value): ...

@OWN
@pytest.mark.parametrize("value", [1, lambda: 1, lambda: 2, "value1"])
def test_alike(run, value): ...

@OWN
@pytest.mark.parametrize("b", [{"n": 1}, {"n": 2}])
@pytest.mark.parametrize("a", ["x", "y"])
class TestStacked:
    def test_it(self, run, a, b): ...

@pytest.fixture(params=[{"n": 1}, {"n": 2}])
def given(request): ...

@OWN
def test_fixture(run, given): ...

@pytest.fixture
def made(request): ...

@OWN
@pytest.mark.parametrize("made", [{"n": 1}], indirect=True)
def test_indirect(run, made): ...
"""
SHOWN = """
def pytest_collection_finish(session):
    from harness.plugin import suite_of
    for item in session.items:
        print("VALUES", item.name, "->", suite_of(session.config).selection.values(item))
"""


@pytest.mark.slow
def test_values_are_kept_exactly_where_pytest_made_a_number(project: Project) -> None:
    project.write("test_kinds.py", KINDS)
    project.write("conftest.py", SHOWN)
    result = project.pytest("--collect-only", "-q", "test_kinds.py")
    found = dict(re.findall(r"VALUES (.*) -> (.*)", result.stdout.str()))
    of: dict[str, list[str]] = {}
    for name, values in found.items():
        of.setdefault(name.partition("[")[0], []).append(values.removeprefix("local-1x1cpu "))
    assert set(of.pop("test_said")) == {"None"}
    assert set(of.pop("test_named")) == set(of.pop("test_named_by_a_function")) == {"None"}
    assert of.pop("test_some") == ["value=('n': 1)", "None"]
    assert of.pop("test_fixture") == ["given=('n': 1)", "given=('n': 2)"]
    assert of.pop("test_indirect") == ["made=('n': 1)"]
    assert of.pop("test_it") == [f"a={a}; b=('n': {n})" for a in "xy" for n in (1, 2)]
    hidden = of.pop("test_hidden")
    assert "0x" not in "".join(hidden)
    assert "None" not in hidden[:7] + hidden[8:]  # pytest before 9.2 has the long text as it is in the id
    assert len(set(hidden)) == len(hidden)
    assert [value.rpartition("; ")[2] for value in of.pop("test_alike")] == ["None", "1 of 2", "2 of 2", "None"]
    assert of == {}


class Colour(enum.Enum):
    RED = 1


class Mute:
    def __repr__(self) -> str:
        raise RuntimeError("not now")


@dataclasses.dataclass
class Config:
    n: int
    colour: Colour
    file: Path


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"b": 1, "a": [1.5, None]}, "('a': (1.5, None), 'b': 1)"),
        ({"y", "x"}, "('x', 'y')"),
        (Config(1, Colour.RED, Path("/scratch/me/data.bin")), "Config(n=1, colour=<Colour.RED: 1>, file='data.bin')"),
        ({"file": PurePosixPath("/a/b")}, "('file': 'b')"),
        (object(), "<object object>"),
        (fractions.Fraction(1, 3), "Fraction(1, 3)"),
        (Mute(), "Mute"),
        (functools.partial(text_of, depth=1), "functools.partial(<function text_of>, depth=1)"),
        (text_of, "text_of"),
    ],
    ids=["mapping", "set", "dataclass", "path", "object", "own repr", "no repr", "partial", "function"],
)
def test_a_text_lasts(value: object, text: str) -> None:
    assert text_of(value) == text


def test_a_value_in_itself_has_an_end() -> None:
    value: dict[str, object] = {}
    value["me"] = value
    assert text_of(value).count("me") < 10
