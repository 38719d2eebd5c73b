"""`python -m reporting import` and `judge`, as a centre types them after a run of ReFrame."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from reporting.__main__ import main
from reporting.history.reader import read
from tests.reporting.test_import_reframe import utc as utc

Capture = pytest.CaptureFixture[str]

RECORDINGS = Path(__file__).parent / "recordings"
DATABASE = RECORDINGS / "reframe" / "results.db"
PERFLOGS = RECORDINGS / "reframe" / "perflogs"
SOLVER = "solver@generic:default+builtin"
STREAM = "stream %size=small@generic:default+builtin"
REPEAT = "To repeat in ReFrame, with the -c and -C of your other runs:"


@pytest.fixture
def site(tmp_path: Path) -> Path:
    folder = tmp_path / "centre"
    folder.mkdir()
    (folder / "site.yaml").write_text("name: centre\n")
    return folder


def test_a_year_of_reframe_is_gated_on_day_one(site: Path, capsys: Capture) -> None:
    """From the 27th night on `stream` and `solver` were 6 % slower. ReFrame's references did not see it."""
    assert main(["import", "reframe", str(PERFLOGS / "generic"), f"--site={site}"]) == 0
    printed = capsys.readouterr().out
    assert "lines: 138 new, 0 changed, 0 there already; tests: 4; nights: 34, 2025-12-31 to" in printed
    assert f"{STREAM}, 2026-02-02\n" in printed
    assert printed.count("slower since 2026-01-26") == 7
    assert "How each red number was computed, and how it can be answered: python -m reporting judge --site=" in printed

    assert main(["judge", STREAM, f"--site={site}"]) == 1
    printed = capsys.readouterr().out
    together = "of 8 nights together,"
    assert f"triad {together} 752.4 GB/s, is 6.0 % below its pin of 800.4 (20 runs since 2025-12-31)" in printed
    assert f"latency {together} 1.994 us, is 6.4 % above its pin of 1.874" in printed
    assert SOLVER not in printed
    assert f"\n{REPEAT}\n  reframe -n '^stream%size=small$' --system=generic:default -p '^builtin$' -r\n" in printed


def test_a_suspect_is_repeated_by_reframe(site: Path, capsys: Capture) -> None:
    """With one false red a month, 26 runs do not show that a single one of -6 % is suspect."""
    (site / "site.yaml").write_text("name: centre\nfalse_reds_a_month: 20\n")
    assert main(["import", "reframe", str(PERFLOGS / "generic"), f"--site={site}"]) == 0
    capsys.readouterr()
    assert main(["judge", SOLVER, f"--site={site}", "--tonight=2026-01-25"]) == 0
    assert REPEAT not in capsys.readouterr().out
    assert main(["judge", SOLVER, f"--site={site}", "--tonight=2026-01-26"]) == 0
    printed = capsys.readouterr().out
    assert "\n1 suspect" in printed
    assert f"\n{REPEAT}\n  reframe -n '^solver$' --system=generic:default -p '^builtin$' -r\n" in printed


def test_the_next_night_adds_only_what_is_new(site: Path, capsys: Capture) -> None:
    assert main(["import", "reframe", str(DATABASE), f"--site={site}"]) == 0
    assert "lines: 50 new" in capsys.readouterr().out
    before = read(site / "history")
    assert main(["import", "reframe", str(DATABASE), str(PERFLOGS), f"--site={site}"]) == 0
    printed = capsys.readouterr().out
    assert "as imported before" in printed
    assert len(read(site / "history")) > len(before)
    assert main(["import", "reframe", str(DATABASE), str(PERFLOGS), f"--site={site}"]) == 0
    assert "\nlines: 0 new, 0 changed, " in capsys.readouterr().out


def test_a_metric_without_a_direction_waits_until_it_is_said(site: Path, capsys: Capture) -> None:
    assert main(["import", "reframe", str(DATABASE), f"--site={site}"]) == 0
    printed = capsys.readouterr().out
    assert "NOT IMPORTED" in printed
    assert "--better=solver:iterations=higher (or lower)" in printed
    assert not any("iterations" in each.metrics for each in read(site / "history"))
    again = ["import", "reframe", str(DATABASE), f"--site={site}"]
    assert main([*again, "--better=solver:iterations=lower"]) == 0
    assert "lines: 0 new, 13 changed, 37 there already" in capsys.readouterr().out
    assert main(again) == 0, "the direction stays"
    assert "lines: 0 new, 0 changed, 50 there already" in capsys.readouterr().out
    metrics = [each.metrics for each in read(site / "history") if each.key.test == SOLVER]
    assert all("iterations" in each for each in metrics)


def test_older_runs_do_not_move_a_pin(site: Path, capsys: Capture) -> None:
    again = ["import", "reframe", str(PERFLOGS / "generic"), f"--site={site}"]
    assert main([*again, "--since=2026-01-05"]) == 0
    printed = capsys.readouterr().out
    assert "lines: 116 new" in printed
    assert "left out, since they are older than 2026-01-05: 22" in printed
    assert main(again) == 0
    printed = capsys.readouterr().out
    assert "lines: 0 new, 0 changed, 116 there already" in printed
    assert "first night of their test there, and would move its pin: 22 (to take them" in printed
    assert main([*again, "--since=2020-01-01"]) == 0
    assert "lines: 22 new, 0 changed, 116 there already" in capsys.readouterr().out


def test_a_direction_of_no_metric_is_a_mistake(site: Path, capsys: Capture) -> None:
    assert main(["import", "reframe", str(DATABASE), f"--site={site}", "--better=triat=higher"]) == 1
    assert "--better=triat=…: the files have no metric of this name" in capsys.readouterr().err


def test_a_file_that_is_not_there_writes_nothing(site: Path, capsys: Capture) -> None:
    assert main(["import", "reframe", str(DATABASE), "no.db", f"--site={site}"]) == 2
    assert "no.db" in capsys.readouterr().err
    assert read(site / "history") == []


def test_a_folder_without_files_gives_no_empty_table(site: Path, tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "empty").mkdir()
    assert main(["import", "reframe", str(tmp_path / "empty"), f"--site={site}"]) == 1
    printed = capsys.readouterr()
    assert "this folder has no perflog" in printed.err
    assert "against pin" not in printed.out


@pytest.mark.parametrize(("days", "taken"), [(0.5, 1), (1.5, 0)])
def test_a_run_in_the_future_is_left_out(site: Path, tmp_path: Path, capsys: Capture, days: float, taken: int) -> None:
    ended_s = time.time() + days * 86400
    log = tmp_path / "stream.log"
    header = "job_completion_time_unix|name|system|partition|environ|result|jobid|triad_value|triad_unit"
    log.write_text(f"{header}\n{ended_s}|stream|daint|gpu|gnu|pass|17|800.0|GB/s\n")
    assert main(["import", "reframe", str(log), f"--site={site}"]) == 0
    printed = capsys.readouterr().out
    assert ("dated more than a day in the future: 1 (was" in printed) == (not taken)
    assert ("lines: 1 new, 0 changed, 0 there already; tests: 1; nights: 1, " in printed) == bool(taken)
    assert len(read(site / "history")) == taken


def test_a_table_tells_imported_tests_apart(site: Path, capsys: Capture) -> None:
    main(["import", "reframe", str(PERFLOGS), f"--site={site}"])
    capsys.readouterr()
    assert main(["table", f"--site={site}"]) == 0
    lines = [line.split()[:6] for line in capsys.readouterr().out.splitlines()]
    for words in (
        ["generic:default", "2026-02-03", "01:00", "%size=small", "builtin", "triad"],
        ["generic:default", "2026-02-03", "01:00", "%size=large", "builtin", "triad"],
        ["twopart:cpu", "2026-01-06", "01:00", "%size=large", "cray", "triad"],
    ):
        assert words in lines


def test_tests_without_numbers_are_named(site: Path, capsys: Capture) -> None:
    main(["import", "reframe", str(DATABASE), f"--site={site}"])
    assert "insane@generic:default+builtin: no run has numbers" in capsys.readouterr().out


def test_an_import_into_a_folder_that_does_not_exist_is_refused(site: Path, tmp_path: Path, capsys: Capture) -> None:
    missing = tmp_path / "not-mounted"
    assert main(["import", "reframe", str(DATABASE), f"--site={site}", f"--history={missing}"]) == 2
    assert f"--history: there is no folder {missing}" in capsys.readouterr().err
    assert not missing.exists()
