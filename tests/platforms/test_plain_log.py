"""What a program printed, behind the prefixes of launchers, colours and the suite's own lines."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from platforms.results import numbers, one_number, plain_text

WIRE = ':::MLLOG {"namespace": "hpcml", "key": "hpcml_node", "value": {"text": "rate: 7"}, "metadata": {}}'
ROWS = "# size  time\n#\n   8   1.25\n  16   2.5\n"


def labelled(text: str, *labels: str) -> str:
    """The text as each of the launcher's ranks prints it, line by line in turn."""
    return "".join(f"{label}{line}" for line in text.splitlines(keepends=True) for label in labels)


@pytest.mark.parametrize(
    "tag",
    [
        "[1,0]<stdout>:",
        "[1,0]<stdout>: ",
        "[prterun-host-123@1,0]<stdout>: ",
        "[prterun-host-123@1,0][node-1:77]<stdout>: ",
        "[0]<stdout>: ",
        "Fri Jul 19 10:11:12 2024[1,0]<stdout>:",
        "Fri Jul 19 10:11:12 2024<stdout>:",
        "\x1b[32m[1,0]<stdout>:\x1b[0m",
        "0: ",
        " 0: ",
        "[0] ",
        "[rank0]:",
        "[default0]:",
        "[trainer0]: ",
    ],
)
def test_a_prefix_on_each_line_of_a_program_is_taken_off_between_lines_of_a_script(tag: str) -> None:
    log = f"nodes: 2\n{labelled(ROWS, tag)}nodes were left\n{WIRE}\n"
    assert plain_text(log) == f"nodes: 2\n{ROWS}nodes were left\n"


def test_a_row_that_came_in_pieces_is_one_row() -> None:
    pieces = "[1,0]<stdout>:   8[1,0]<stdout>:   1.25\n[1,0]<stdout>:  16[1,1]<stdout>:hello[1,0]<stdout>:   2.5\n"
    assert plain_text(pieces).splitlines() == ["   8   1.25", "  16   2.5", "hello"]


def test_ranks_that_print_one_after_the_other_have_labels() -> None:
    assert plain_text("0: rate: 1\n0: \n1: rate: 2\n1: \n") == "rate: 1\n\nrate: 2\n\n"


def test_what_two_writers_put_on_one_line_are_two_lines() -> None:
    log = "slurmstepd: error[1,0]<stdout>:rate: 1[1,1]<stdout>:rate: 2[1,0]<stderr>:warning\n"
    assert sorted(plain_text(log).split("\n")) == ["", "rate: 1", "rate: 2", "slurmstepd: error", "warning"]


@pytest.mark.parametrize(
    "log",
    [
        f"rate: 100.0{WIRE}\n",
        f"[1,0]<stdout>:rate: 100.0{WIRE}\n",
        f"rate: 100.0[1,0]<stdout>:{WIRE}\n",
        f"[1,0]<stdout>:rate: 100.0[1,0]<stdout>:{WIRE}\n",
        f"rate: 100.0{WIRE}{WIRE}\n{WIRE}",
        f"rate: 100.0{WIRE[:40]}\n",
        f"0: {WIRE}\n0: rate: 100.0\n",
        f"rate: 100.0\r\n{WIRE}\r\n",
        f"\x1b[1mrate:\x1b[0m 100.0{WIRE}\n",
        f"[1,0]<stdout>:rate: 100.0[1,0]<stdout>:{WIRE[:50]}[1,0]<stdout>:{WIRE[50:]}\n",
    ],
)
def test_a_line_ends_where_the_suites_begins(log: str) -> None:
    assert numbers(log, r"^rate: (\S+)$") == [100.0]
    assert plain_text(log).strip() == "rate: 100.0"


@pytest.mark.parametrize(
    "of_slurm",
    [
        "slurmstepd: error: *** STEP 12.0 ON node-1 CANCELLED AT 2026-01-01T00:00:00 ***",
        "srun: error: node-1: task 0: Exited with exit code 1",
        "srun: Step created for job 5",
        "srun: Job step aborted: Waiting up to 32 seconds for job step to finish.",
    ],
)
def test_a_line_ends_where_one_of_slurm_begins(of_slurm: str) -> None:
    log = f"0: # srun: a program\n0: 12.5{of_slurm}\n"
    assert plain_text(log) == f"# srun: a program\n12.5\n{of_slurm}\n"


def test_the_lines_of_mlperfs_own_logger_stay() -> None:
    log = f":::MLLOG {json.dumps({'namespace': '', 'key': 'eval_accuracy', 'value': 0.75})}\n"
    assert plain_text(log) == log


def test_a_label_of_the_suites_own_lines_is_one_everywhere() -> None:
    log = f"0: {WIRE}\n0: 0: 12.5\n1: {WIRE}\n1: 0: 13.5\n"
    assert plain_text(log) == "0: 12.5\n0: 13.5\n"


def test_a_row_left_open_is_no_label() -> None:
    log = f"{WIRE}\n0: {WIRE}\nloss 0.5\n{WIRE}\n1: loss 0.25\n"
    assert plain_text(log) == "loss 0.5\n1: loss 0.25\n"


@pytest.mark.parametrize(
    "log",
    [
        "0: 12.5\n1: 13.5\n2: 14.5\n",
        "0: loss 2.5\n1: loss 2.4\n0: loss 2.3\n1: loss 2.2\n",
        "of each GPU\n0: NVIDIA H100 80GB\n1: NVIDIA H100\nof each link\n0: up\n1: down since 3 s\n",
        "0: start\n0: 10 files read\n2: step 1\n7: step 2, loss 3\n",
        "[1] 3.25\n[1] 2.5 2.75\n",
        "[0]\n[0, 1]\n[1, 2, 3]\n[0] is the first\n",
        "12:00:01 begin\n12:00:01 step 1: 3 s\n",
        "1700000000: begin\n1700000000: step 1 of 2\n",
        "[loss0]: 1.5\n[loss1]: 2.5\n",
        "<stdout>: 3\n[note]<stdout>: 4\n",
    ],
)
def test_rows_that_look_like_prefixes_stay_whole(log: str, tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text(log)
    assert plain_text(path) == log
    assert path.read_text() == log


def test_a_pattern_is_tried_behind_a_label_and_before_it() -> None:
    log = "0: rate: 100\n1: rate: 101\n[1,0]<stdout>:share: 3\n"
    assert numbers(log, r"^rate: (\d+)$") == [100, 101]
    assert numbers(log, r"^1: rate: (\d+)$") == [101]
    assert one_number(log, r"^\[1,0\]<stdout>:share: (\d+)") == 3


def test_a_failure_quotes_the_programs_last_line() -> None:
    with pytest.raises(ValueError, match="whose last line is 'bandwidth 3'"):
        numbers(f"bandwidth 3\n{WIRE}\n", "rate")
