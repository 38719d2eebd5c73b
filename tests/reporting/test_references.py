"""People's answers in SITE/references: written and read again, edited, merged by git, written at once."""

from __future__ import annotations

import datetime
import multiprocessing
from dataclasses import replace
from pathlib import Path

import pytest

from platforms.job import RefusedError
from reporting.references import answer_file, store
from reporting.references.answers import Acceptance, Acknowledgement, Author, Note, Pause, References

TEST = "test_resnet50.py::test_resnet50[eidf_a100-1x4gpu-tuned]"
AUTHOR = Author("ada", datetime.datetime(2026, 11, 22, 9, 30, tzinfo=datetime.timezone(datetime.timedelta(hours=1))))
ACCEPTANCE = Acceptance(
    test=TEST,
    metric="effective_throughput",
    unit="samples/s",
    better="higher",
    comparability="9d1f0c",
    since=datetime.date(2026, 11, 17),
    level=812.4,
    error=0.0061,
    scale=1 / 3,
    runs=("20261117-011502-k3f9", "20261118-011502-a2bc"),
    anchor=903.1,
    reason="driver 570: slower, and NVIDIA knows (see the mail)",
    author=AUTHOR,
    autocorrelation=0.12,
)
ACKNOWLEDGEMENT = Acknowledgement(
    TEST, "effective_throughput", "https://tickets.example/17", datetime.date(2026, 12, 1), -0.108, AUTHOR
)
NOTE = Note("eidf_a100", datetime.date(2026, 11, 16), "BIOS 2.1 -> 2.2 ✓", AUTHOR)
PAUSE = Pause("eidf_a100", datetime.date(2026, 11, 30), '# cooling: "half"', AUTHOR)
ANSWERS = (ACCEPTANCE, ACKNOWLEDGEMENT, NOTE, PAUSE)


def later(days: int) -> Author:
    return replace(AUTHOR, at=AUTHOR.at + datetime.timedelta(days=days))


def test_every_answer_is_read_as_it_was_written(tmp_path: Path) -> None:
    given = [replace(answer, author=later(day)) for day, answer in enumerate(ANSWERS)]
    for answer in given:
        store.append(tmp_path, answer)
    assert store.load(tmp_path) == References(*([answer] for answer in given), problems=[])


def test_a_site_without_answers_has_none(tmp_path: Path) -> None:
    assert store.load(tmp_path) == store.load(tmp_path / "absent") == References([], [], [], [], [])


@pytest.mark.parametrize(
    "text", ["1234", "12e4567", "true", "null", "~", "a: b", "a #b", "-", "[x]", "{x}", "*x", "'", '"', "\\", "é", "🔥"]
)
def test_a_text_that_yaml_could_take_for_something_else_stays_that_text(tmp_path: Path, text: str) -> None:
    answer = replace(
        ACCEPTANCE, metric=text, reason=text, runs=(text,), comparability=text, author=Author(text, AUTHOR.at)
    )
    store.append(tmp_path, answer)
    assert store.load(tmp_path).acceptances == [answer]


@pytest.mark.parametrize("number", [812, 1e-12, 0.1 + 0.2, 1 / 3, 5e-324, 1.7976931348623157e308, 12345678901234567.0])
def test_a_number_is_read_as_the_same_number(tmp_path: Path, number: float) -> None:
    answer = replace(ACCEPTANCE, level=number, anchor=number, error=min(number, 1.0))
    store.append(tmp_path, answer)
    assert store.load(tmp_path) == References([answer], [], [], [], [])


@pytest.mark.parametrize("text", ["two\nlines", "\x1b[31m", "\udcff", "\u2028"])
def test_a_text_that_cannot_be_printed_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(RefusedError, match=r"reason: .*cannot be printed"):
        store.append(tmp_path, replace(PAUSE, reason=text))
    assert store.load(tmp_path).pauses == []


def test_an_answer_that_a_person_edits_counts_as_it_stands_there(tmp_path: Path) -> None:
    path = store.append(tmp_path, PAUSE)
    path.write_text(path.read_text().replace("11-30", "12-31") + "# agreed with the vendor\n")
    assert store.load(tmp_path) == References([], [], [], [replace(PAUSE, until=datetime.date(2026, 12, 31))], [])


def test_files_with_the_hashes_of_an_earlier_version_all_count_in_the_order_of_their_times(tmp_path: Path) -> None:
    folder = store.append(tmp_path, PAUSE).parent
    for number, until in enumerate(("2026-12-03", "2026-12-02", "2026-12-01")):
        written = "".join(path.read_text() for path in folder.glob("*pause*.yaml") if "11-30" in path.read_text())
        written = written.replace("2026-11-30", until).replace("T09:30:00", f"T09:3{9 - number}:00")
        (folder / f"{until}.yaml").write_text(f"{written}after: []\nhash: {number}e8b0\n")
    references = store.load(tmp_path)
    assert [str(pause.until) for pause in references.pauses] == ["2026-11-30", "2026-12-01", "2026-12-02", "2026-12-03"]
    assert references.problems == []


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("until: 2026-11-30", "until: soon", "4: until: 'soon' is no date, as in 2026-11-17"),
        ("until: 2026-11-30\n", "", "2: until: is missing"),
        ("by: ada", "by: ''", "6: by: is empty"),
        ("by: ada", "by: ada\nhow: so", "7: how: has no meaning here (remove it)"),
        ("written: ", "written: x", "7: written: "),
        ("answer: pause", "answer: pardon", "2: answer: 'pardon' is none of accept, ack, note and pause"),
        ("answer: pause\n", "", "2: answer: '' is none of accept, ack, note and pause"),
        ("name: eidf_a100", "name: [eidf_a100]", "3: name: is no text"),
        ("name: eidf_a100", "name: a\nname: b", "4: name: written twice"),
    ],
)
def test_each_mistake_is_named_with_its_line(tmp_path: Path, old: str, new: str, problem: str) -> None:
    path = store.append(tmp_path, PAUSE)
    path.write_text(path.read_text().replace(old, new))
    references = store.load(tmp_path)
    assert references.pauses == []
    assert any(text.startswith(f"{path}:{problem}") for text in references.problems), references.problems


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("level: 812.4 samples/s", "level: 0 samples/s", "level: '0 samples/s' is no number with its unit"),
        ("level: 812.4 samples/s", "level: 812.4 steps/s", "anchor: its unit is 'samples/s', that of the level is"),
        ("error: 0.61 %", "error: 0.61", "error: '0.61' is no number of percent, as in 0.6 %"),
        ("error: 0.61 %", "error: inf %", "error: 'inf %' is no number of percent"),
        ('runs: ["20261117-011502-k3f9", "20261118-011502-a2bc"]', "runs: all", "runs: is no list of texts, as in ["),
        ("autocorrelation: 0.12", "autocorrelation: high", "autocorrelation: 'high' is no number, as in 0.2"),
        ("better: higher", "better: faster", "better: 'faster' is neither higher nor lower"),
        ("+01:00", "", "written: '2026-11-22T09:30:00' is no time with its zone"),
    ],
)
def test_each_mistake_in_an_acceptance_is_named(tmp_path: Path, old: str, new: str, problem: str) -> None:
    path = store.append(tmp_path, ACCEPTANCE)
    path.write_text(path.read_text().replace(old, new))
    assert any(problem in text for text in answer_file.read(path).problems)


@pytest.mark.parametrize(
    "content", [b"", b"\xff\xfe", b"- a\n", b"a: \x00\n", b"<<<<<<< HEAD\na: 1\n=======\n", b"a: [" * 9999]
)
def test_a_file_that_is_no_answer_is_reported_and_the_others_count(tmp_path: Path, content: bytes) -> None:
    path = store.append(tmp_path, PAUSE).with_name("2026-11-30-pause-00000000.yaml")
    path.write_bytes(content)
    references = store.load(tmp_path)
    assert references.pauses == [PAUSE]
    assert references.problems
    assert all(problem.startswith(f"{path}:") for problem in references.problems)


def test_what_cannot_be_read_is_reported(tmp_path: Path) -> None:
    loop = store.append(tmp_path, PAUSE).with_name("loop.yaml")
    loop.symlink_to(loop.name)
    references = store.load(tmp_path)
    (problem,) = references.problems
    assert problem.startswith(f"{loop}:1: cannot be read: ")
    assert references.pauses == [PAUSE]


def test_two_branches_that_answer_on_one_day_make_two_files(tmp_path: Path) -> None:
    names = {store.append(tmp_path / branch, replace(PAUSE, reason=branch)).name for branch in ("main", "other")}
    assert len(names) == 2


def test_an_answer_comes_after_those_that_are_there_whatever_the_clock_says(tmp_path: Path) -> None:
    store.append(tmp_path, ACCEPTANCE)
    for author in (later(-3), AUTHOR):
        store.append(tmp_path, replace(ACCEPTANCE, level=700.0, author=author))
    first, *others = store.load(tmp_path).acceptances
    assert first == ACCEPTANCE
    assert [(answer.level, answer.author.at - AUTHOR.at) for answer in others] == [
        (700.0, datetime.timedelta(seconds=1)),
        (700.0, datetime.timedelta(seconds=2)),
    ]


def append_ten(site: Path, writer: int) -> None:
    for number in range(10):
        store.append(site, replace(PAUSE, reason=f"{writer} {number}"))


@pytest.mark.slow
def test_sixteen_writers_at_once_lose_nothing(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=append_ten, args=(tmp_path, number)) for number in range(16)]
    for process in writers:
        process.start()
    for process in writers:
        process.join()
    references = store.load(tmp_path)
    assert len({pause.reason for pause in references.pauses}) == len(references.pauses) == 160
    assert references.problems == []


def test_the_last_answer_of_a_name_counts_also_where_it_ends_an_earlier_one(tmp_path: Path) -> None:
    ended = datetime.date(2026, 11, 21)
    day = datetime.date(2026, 11, 25)
    for answer in (PAUSE, ACKNOWLEDGEMENT):
        store.append(tmp_path, answer)
    before = store.load(tmp_path)
    assert before.pause(TEST, "eidf_a100", day) == PAUSE
    assert before.acknowledgement(TEST, "effective_throughput", day) == ACKNOWLEDGEMENT
    store.append(tmp_path, replace(PAUSE, until=ended, author=later(1)))
    store.append(tmp_path, replace(ACKNOWLEDGEMENT, until=ended, author=later(1)))
    after = store.load(tmp_path)
    assert after.pause(TEST, "eidf_a100", day) is None
    assert after.acknowledgement(TEST, "effective_throughput", day) is None


def test_a_test_and_its_platform_are_paused_each_by_itself() -> None:
    of_test = Pause(TEST, datetime.date(2026, 11, 30), "too hot", AUTHOR)
    ended = replace(PAUSE, until=datetime.date(2026, 11, 1))
    references = References(pauses=[of_test, ended])
    assert references.pause(TEST, "eidf_a100", datetime.date(2026, 11, 30)) == of_test
    assert references.pause(TEST, "eidf_a100", datetime.date(2026, 12, 1)) is None
    assert references.pause("test_other.py::test_other", "eidf_a100", datetime.date(2026, 11, 30)) is None


def test_a_pause_says_nothing_of_the_nights_before_it_was_given() -> None:
    earlier = replace(PAUSE, until=datetime.date(2026, 11, 10), author=later(-20))
    references = References(pauses=[earlier, PAUSE])
    given = PAUSE.author.at.date()
    assert references.pause(TEST, "eidf_a100", given) == PAUSE
    assert references.pause(TEST, "eidf_a100", given - datetime.timedelta(days=1)) is None
    assert references.pause(TEST, "eidf_a100", datetime.date(2026, 11, 5)) == earlier
