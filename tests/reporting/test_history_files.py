"""What sessions write into the history is what readers find, whatever happens in between."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields, replace
from pathlib import Path

import pytest

from platforms.job import Metric, Outcome, RefusedError, Role, Trial
from reporting.history.envelope import ALL_WINDOWS, Envelope, Revision
from reporting.history.envelope_json import to_line
from reporting.history.reader import read, run_of
from reporting.history.writer import HistoryWriter
from tests.reporting.history_lines import BEGAN_S, TEST, envelope

RUN = {"schema": 1, "test": TEST, "log": "x" * 1000}
OTHER = "test_deepcam.py::test_deepcam[a100-1x4gpu-tuned]"


def writer(folder: Path) -> HistoryWriter:
    return HistoryWriter(folder, clock=lambda: BEGAN_S)


def visited(node: int, **changes: object) -> Envelope:
    """A visit to a node."""
    return envelope(job_id=str(node), trial=Trial(Role.VISIT, node=f"n{node}"), **changes)


def files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def envelope_file(folder: Path) -> Path:
    (path,) = (path for path in files(folder) if not path.name.endswith(".runs.jsonl"))
    return path


# --- written and read ------------------------------------------------------------------------------------------------


def test_an_envelope_is_read_as_it_was_written(tmp_path: Path) -> None:
    full = envelope(
        trial=Trial(Role.CONFIRM, "before", "a", 3, "n07", 2),
        beside={"compute fraction": Metric(0.98, "")},
        no_split="its own nodes feed it",
        doubts=("crowded",),
        explanations=("throttled",),
        statistic=ALL_WINDOWS,
        verdicts={"triad": {"kind": "ok", "red": False}},
        network={"elapsed_s": 60.0, "nodes": 1, "most": {"link_downed": ["n07", "mlx5_0/1", 1, 0]}},
        source="reframe",
    )
    written = writer(tmp_path).write(full, RUN)
    assert not [each.name for each in fields(written) if getattr(written, each.name) in (each.default, {})]
    assert read(tmp_path) == [written]
    assert written == replace(full, run=written.run)
    assert run_of(tmp_path, written) == RUN


def test_what_once_was_a_doubt_explains_a_number_now(tmp_path: Path) -> None:
    writer(tmp_path).write(envelope(doubts=("unsteady", "not alone", "throttled")), None)
    (found,) = read(tmp_path)
    assert (found.doubts, found.explanations) == (("not alone",), ("unsteady", "throttled"))


def test_the_throughput_of_an_older_line_is_computed_again_from_all_windows(tmp_path: Path) -> None:
    windows = [{"samples": 100, "steps": 10, "wall_s": wall_s, "stall_s": 0.5, "compute_s": 4.0} for wall_s in (5, 7.5)]
    fastest = {"effective_throughput": Metric(20.0, "samples/s")}
    writer(tmp_path).write(envelope(metrics=fastest), {**RUN, "windows": windows})
    (found,) = read(tmp_path)
    assert found.metrics["effective_throughput"].value == 16.0
    assert (found.beside["fastest_stretch"].value, found.statistic) == (20.0, ALL_WINDOWS)


def test_an_older_line_whose_run_json_is_lost_is_in_doubt(tmp_path: Path) -> None:
    fastest = {"effective_throughput": Metric(20.0, "samples/s")}
    written = writer(tmp_path).write(envelope(metrics=fastest), RUN)
    (tmp_path / written.run.file).unlink()
    (found,) = read(tmp_path)
    assert found.doubts == ("only its fastest stretch is known",)


def test_an_envelope_with_nothing_optional_is_read_as_it_was_written(tmp_path: Path) -> None:
    bare = replace(envelope(job_id=None, submitted_s=None), started_s=None, ended_s=None, metrics={}, fields={})
    written = writer(tmp_path).write(bare, None)
    assert read(tmp_path) == [written] == [bare]
    assert run_of(tmp_path, written) == {}


def test_a_session_has_two_files_in_the_folder_of_its_month(tmp_path: Path) -> None:
    one = writer(tmp_path)
    for attempt in (1, 2, 3):
        one.write(envelope(attempt=attempt), {**RUN, "attempt": attempt})
    assert [path.parent.name for path in files(tmp_path)] == ["2026-11", "2026-11"]
    assert [len(path.read_bytes().splitlines()) for path in files(tmp_path)] == [3, 3]
    assert [run_of(tmp_path, each)["attempt"] for each in read(tmp_path)] == [1, 2, 3]


def test_a_session_without_jobs_leaves_no_file(tmp_path: Path) -> None:
    writer(tmp_path / "history")
    assert files(tmp_path) == []


def test_a_typical_line_is_small() -> None:
    assert len(to_line(envelope())) < 1000


def test_threads_may_write_at_the_same_time(tmp_path: Path) -> None:
    one = writer(tmp_path)
    with ThreadPoolExecutor(8) as pool:
        written = list(pool.map(lambda n: one.write(envelope(attempt=n), {**RUN, "attempt": n}), range(50)))
    assert sorted(read(tmp_path), key=lambda each: each.key) == written
    assert [run_of(tmp_path, each)["attempt"] for each in written] == list(range(50))


# --- a key that is written again -------------------------------------------------------------------------------------


def test_the_highest_revision_of_a_key_counts_in_any_order(tmp_path: Path) -> None:
    pending = envelope(revision=Revision.PENDING, outcome=Outcome.PENDING, sane=False, written_s=BEGAN_S + 5000)
    writer(tmp_path).write(envelope(), None)
    writer(tmp_path).write(pending, None)
    assert read(tmp_path) == [envelope()]


def test_of_equal_revisions_the_later_one_counts_in_any_order(tmp_path: Path) -> None:
    later = envelope(written_s=BEGAN_S + 5000, outcome=Outcome.FAILED)
    writer(tmp_path).write(later, None)
    writer(tmp_path).write(envelope(), None)
    assert read(tmp_path) == [later]


@pytest.mark.parametrize("changed", [{"attempt": 2}, {"job_id": "18"}, {"run_id": "other"}, {"submitted_s": 1.5}])
def test_another_key_is_another_job(tmp_path: Path, changed: dict[str, object]) -> None:
    one = writer(tmp_path)
    one.write(envelope(), None)
    one.write(envelope(**changed), None)
    assert len(read(tmp_path)) == 2


def test_the_run_json_of_a_key_is_written_once(tmp_path: Path) -> None:
    one = writer(tmp_path)
    first = one.write(envelope(revision=Revision.JOB_ENDED), RUN)
    same = one.write(envelope(), dict(RUN))
    without = one.write(envelope(written_s=BEGAN_S + 200), None)
    assert first.run == same.run == without.run
    changed = one.write(envelope(written_s=BEGAN_S + 300), {**RUN, "error": "AssertionError"})
    assert changed.run != first.run
    (found,) = read(tmp_path)
    assert run_of(tmp_path, found)["error"] == "AssertionError"


def test_two_histories_are_merged_by_copying_their_files(tmp_path: Path) -> None:
    a = writer(tmp_path / "a").write(envelope(attempt=1), RUN)
    b = writer(tmp_path / "b").write(envelope(attempt=2, started_s=BEGAN_S + 5000), RUN)
    subprocess.run(["cp", "-r", f"{tmp_path}/a/.", f"{tmp_path}/b"], check=True)
    subprocess.run(["cp", envelope_file(tmp_path / "a"), f"{tmp_path}/b/2026-11/copy.jsonl"], check=True)
    assert read(tmp_path / "b") == [a, b]
    assert run_of(tmp_path / "b", a) == RUN


# --- what is asked ---------------------------------------------------------------------------------------------------


def test_only_the_tests_that_are_asked_for_are_read(tmp_path: Path) -> None:
    one = writer(tmp_path)
    for test in (TEST, OTHER, TEST + "x", 'test_x.py::test_x["quoted"-é]'):
        one.write(envelope(test), None)
        assert [each.key.test for each in read(tmp_path, [test])] == [test]
    assert [each.key.test for each in read(tmp_path, [])] == []
    assert len(read(tmp_path)) == 4


def test_visits_are_left_out_where_only_the_gate_reads(tmp_path: Path) -> None:
    one = writer(tmp_path)
    one.write(envelope(), None)
    for node in range(3):
        one.write(visited(node), None)
    assert read(tmp_path, visits=False) == [envelope()]
    assert len(read(tmp_path)) == 4


@pytest.mark.parametrize(
    "later", [to_line(envelope()).replace(b'"ended_s"', b"ended_s"), to_line(envelope(revision=Revision.PENDING))]
)
def test_the_end_of_a_job_counts_if_that_of_its_test_cannot_be_read_or_is_not_there(
    tmp_path: Path, later: bytes
) -> None:
    ended = envelope(revision=Revision.JOB_ENDED)
    month = tmp_path / "2026-11"
    month.mkdir()
    (month / "a.jsonl").write_bytes(to_line(ended) + later)
    assert read(tmp_path) == [ended]


def test_lines_that_another_program_has_formatted_are_read(tmp_path: Path) -> None:
    content = json.loads(to_line(envelope()))
    backwards = dict(reversed(content.items()))
    month = tmp_path / "2026-11"
    month.mkdir()
    (month / "a.jsonl").write_text(json.dumps(backwards) + "\n")
    assert read(tmp_path, [TEST]) == read(tmp_path) == [envelope()]
    assert read(tmp_path, [OTHER]) == []


def test_envelopes_are_ordered_by_their_jobs_start(tmp_path: Path) -> None:
    """A job whose start is not recorded stands where it was submitted, or has ended."""
    one = writer(tmp_path)
    one.write(envelope(attempt=3, started_s=BEGAN_S + 30), None)
    one.write(envelope(attempt=2, started_s=None, submitted_s=BEGAN_S + 20), None)
    one.write(envelope(attempt=1, started_s=BEGAN_S + 10, submitted_s=BEGAN_S - 100), None)
    one.write(envelope(attempt=4, started_s=None, submitted_s=None, ended_s=None, written_s=BEGAN_S + 40), None)
    one.write(envelope(attempt=5, started_s=None, submitted_s=None, ended_s=BEGAN_S + 50), None)
    assert [each.key.attempt for each in read(tmp_path)] == [1, 2, 3, 4, 5]


# --- damage ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kept", [0, 1, 9, 40, 400, -2])
def test_a_torn_last_line_loses_nothing_else(tmp_path: Path, kept: int) -> None:
    one = writer(tmp_path)
    one.write(envelope(attempt=1), RUN)
    complete = envelope_file(tmp_path).read_bytes()
    one.write(envelope(attempt=2), RUN)
    torn = envelope_file(tmp_path).read_bytes()[len(complete) :][:kept]
    envelope_file(tmp_path).write_bytes(complete + torn)
    problems: list[str] = []
    assert [each.key.attempt for each in read(tmp_path, [TEST], problems)] == [1]
    assert problems == []


DAMAGED = [
    b"{",
    b"[]",
    b"\0" * 50,
    b"\xff\xfe",
    b"[" * 100_000,
    to_line(envelope()).replace(b'"sane":true,', b""),
    to_line(envelope()).replace(b'"passed"', b'"excellent"'),
    to_line(envelope()).replace(b'"attempt":1', b'"attempt":1e999'),
    to_line(envelope()).replace(b'"attempt":1', b'"attempt":[1]'),
    to_line(envelope()).replace(b"123.456", b"NaN"),
    to_line(envelope()).replace(b"123.456", b'"fast"'),
    to_line(envelope()).replace(b'"started_s":1', b'"started_s":1e999, "x":1'),
    to_line(envelope()).replace(b'"schema":1', b'"schema":2'),
    to_line(envelope()).replace(b'"schema":1', b'"schema":"1"'),
    to_line(envelope(started_s=BEGAN_S * 1000)),
    to_line(envelope(started_s=-1.0)),
    to_line(envelope(started_s=True)),
    to_line(envelope(started_s=time.time() + 3 * 86400)),
    to_line(envelope(verdicts={"m": "slower"})),
    to_line(envelope(doubts=[1])),
    to_line(envelope(benchmark=7)),
    to_line(envelope(metrics={"m": Metric(True, "s", "lower")})),
    to_line(envelope(metrics={"m": Metric(1.0, "s", "sideways")})),
]


@pytest.mark.parametrize("damaged", DAMAGED, ids=range(len(DAMAGED)))
def test_a_damaged_line_is_skipped_and_reported(tmp_path: Path, damaged: bytes) -> None:
    one = writer(tmp_path)
    one.write(envelope(attempt=1), None)
    path = envelope_file(tmp_path)
    path.write_bytes(path.read_bytes() + damaged.rstrip(b"\n") + b"\n")
    one.write(envelope(attempt=2), None)
    problems: list[str] = []
    assert [each.key.attempt for each in read(tmp_path, problems=problems)] == [1, 2]
    (problem,) = problems
    assert problem.startswith(f"{path}:2: this line of the history is skipped: ")
    assert problem.isprintable()


def test_many_damaged_lines_of_a_file_are_one_problem(tmp_path: Path) -> None:
    writer(tmp_path).write(envelope(), None)
    path = envelope_file(tmp_path)
    path.write_bytes(b"{\n" * 9 + path.read_bytes())
    problems: list[str] = []
    assert read(tmp_path, problems=problems) == [envelope()]
    (problem,) = problems
    assert problem.startswith(f"{path}:1: ")
    assert problem.endswith("(and 8 more of this file)")


def test_what_a_later_version_adds_is_ignored(tmp_path: Path) -> None:
    writer(tmp_path).write(envelope(), None)
    path = envelope_file(tmp_path)
    content = json.loads(path.read_bytes())
    content["colour"] = "red"
    content["metrics"]["effective throughput"]["colour"] = "red"
    path.write_text(json.dumps(content) + "\n")
    assert read(tmp_path) == [envelope()]


def test_numbers_that_are_not_finite_never_get_in(tmp_path: Path) -> None:
    nan = float("nan")
    metrics = {"good": Metric(1.5, "GB/s"), "bad": Metric(nan, "GB/s")}
    metrics |= {"worse": Metric(float("inf"), "GB/s"), "huge": Metric(1e308, "GB/s")}
    written = writer(tmp_path).write(envelope(metrics=metrics, provenance={"load": nan}), {"windows": [nan, 1]})
    assert not any(word in path.read_bytes() for path in files(tmp_path) for word in (b"NaN", b"Infinity"))
    (found,) = read(tmp_path)
    assert found.metrics == {"good": Metric(1.5, "GB/s")}
    assert found.provenance == {"load": None}
    assert run_of(tmp_path, written) == {"windows": [None, 1]}


def test_a_file_that_cannot_be_read_is_reported(tmp_path: Path) -> None:
    writer(tmp_path).write(envelope(), None)
    (tmp_path / "2026-11/folder.jsonl").mkdir()
    problems: list[str] = []
    assert read(tmp_path, problems=problems) == [envelope()]
    assert problems == [f"{tmp_path}/2026-11/folder.jsonl: this file of the history cannot be read: Is a directory"]


def test_a_history_that_is_a_file_is_reported(tmp_path: Path) -> None:
    (tmp_path / "history").write_text("")
    problems: list[str] = []
    assert read(tmp_path / "history", problems=problems) == []
    assert problems == [f"{tmp_path}/history: this part of the history cannot be read: Not a directory"]


def test_a_run_json_that_is_gone_or_damaged_is_an_error(tmp_path: Path) -> None:
    written = writer(tmp_path).write(envelope(), RUN)
    path = tmp_path / written.run.file
    path.write_bytes(b"x" * 2000)
    with pytest.raises(RefusedError, match=r"there is no run.json of test_resnet50\.py.* at byte 0: the file was"):
        run_of(tmp_path, written)
    path.unlink()
    with pytest.raises(RefusedError, match=r"\.runs\.jsonl: the run\.json of .* cannot be read: No such file"):
        run_of(tmp_path, written)


# --- a history that cannot be written --------------------------------------------------------------------------------


def test_a_history_that_cannot_be_written_is_refused_before_the_first_line(tmp_path: Path) -> None:
    (tmp_path / "history").write_text("a file")
    with pytest.raises(RefusedError, match=r"history/2026-11: the history cannot be written: .*--history=DIR or with"):
        writer(tmp_path / "history")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_history_without_permission_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(RefusedError, match=r"the history cannot be written: Permission denied"):
        writer(tmp_path / "history")


def test_after_a_full_disk_only_the_lines_without_room_are_missing(tmp_path: Path) -> None:
    one = writer(tmp_path)
    one.write(envelope(attempt=1), RUN)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (envelope_file(tmp_path).stat().st_size + 20, limits[1]))
    try:
        for run_json in (RUN, None):
            with pytest.raises(RefusedError, match="the history cannot be written: File too large"):
                one.write(envelope(attempt=2), run_json)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, before)
    problems: list[str] = []
    assert [each.key.attempt for each in read(tmp_path, problems=problems)] == [1]
    third = one.write(envelope(attempt=3), {**RUN, "attempt": 3})
    assert [each.key.attempt for each in read(tmp_path, problems=problems)] == [1, 3]
    assert run_of(tmp_path, third)["attempt"] == 3
    assert problems == []


def test_a_month_that_is_moved_away_meanwhile_loses_no_line(tmp_path: Path) -> None:
    one = writer(tmp_path / "history")
    first = one.write(envelope(attempt=1), RUN)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "history/2026-11").rename(tmp_path / "elsewhere/2026-11")
    second = one.write(envelope(attempt=2), {**RUN, "attempt": 2})
    assert read(tmp_path / "history") == [second]
    assert run_of(tmp_path / "history", second)["attempt"] == 2
    assert read(tmp_path / "elsewhere") == [first]
    assert run_of(tmp_path / "elsewhere", first) == RUN


@pytest.mark.parametrize(("mode", "of_files"), [(0o700, 0o600), (0o2770, 0o640), (0o775, 0o644)])
def test_a_history_that_is_shared_stays_so_with_any_umask(tmp_path: Path, mode: int, of_files: int) -> None:
    (tmp_path / "history").mkdir()
    (tmp_path / "history").chmod(mode)
    before = os.umask(0o077)
    try:
        writer(tmp_path / "history").write(envelope(), RUN)
    finally:
        os.umask(before)
    assert (tmp_path / "history/2026-11").stat().st_mode & 0o7777 == mode
    assert {path.stat().st_mode & 0o7777 for path in files(tmp_path)} == {of_files}
