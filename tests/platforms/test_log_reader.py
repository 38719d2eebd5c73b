"""Reading a log: samples written by hand from docs/wire.md, then cut, mixed, torn, doubled and falsified."""

from __future__ import annotations

import copy
import json
import random
from dataclasses import replace
from fnmatch import fnmatch
from pathlib import Path

import pytest

from platforms.job import JobSpec, Layout, Metric, Run, Window
from platforms.results import numbers
from platforms.results.log_reader import LogReader, Progress, parse

START = {
    "schema": 1,
    "benchmark": "resnet50",
    "workload_version": 1,
    "code": "0123456789ab",
    "request": {
        "configuration": "gbs32", "size": "quick", "mode": "overlap", "variant": "v1.5", "dtype": "fp32",
        "channels_last": False, "compile": False, "seed": 1, "workers": 2, "global_batch_size": 8,
        "local_batch_size": 4, "accumulation_steps": 1, "world_size": 2, "device": "cuda", "warmup_steps": 3,
        "windows": 3, "steps_per_window": 2,
    },
    "device": {"type": "cuda", "name": "A100", "count": 2, "memory_bytes": 1, "driver": "550", "peak_flops": 1000.0},
    "world": {"size": 2, "local_size": 2, "nodes": 1, "backend": "nccl", "launcher": "torchrun"},
    "versions": {"python": "3.11", "torch": "2.13.0"},
    "host": {"name": "n1", "cpu": "EPYC", "cores": 64, "memory_bytes": 1, "threads": 8},
    "data": {"folder": "/d", "kind": "synthetic", "samples": 512, "decoder": "pillow", "transforms": "crop"},
}  # fmt: skip
WINDOW = {
    "index": 0, "steps": 2, "samples": 16, "wall_s": 2.0, "stall_s": 0.5, "compute_s": 1.5,
    "wait_s": [0.4, 0.4, 0.5], "h2d_s": [0.0, 0.0, 0.0], "busy_s": [1.4, 1.5, 1.5], "loss": 6.9,
}  # fmt: skip
SUMMARY = {
    "windows": 3, "steps": 6, "samples": 48, "wall_s": 6.0, "stall_s": 1.5, "compute_s": 4.5,
    "effective_throughput": 8.0, "compute_fraction": 0.75, "compute_throughput": 48 / 4.5, "identity_gap": 0.0,
    "warmup_steps": 3, "startup_s": 1.0, "first_batch_s": 0.5, "compile_s": None, "optimizer_steps": 9,
    "loss_first": 7.0, "loss_last": 6.9, "parameters_identical": True, "data_from": "unknown", "flop_per_sample": 10.0,
    "peak_memory_bytes": 5, "meter_s": 1e-6, "step_s": [0.9, 1.0, 1.1, 1.2], "health": None, "warnings": ["a warning"],
}  # fmt: skip
SPEC = JobSpec(
    name="resnet50-1x2gpu-kabcdefg",
    test="test_resnet50.py::test_resnet50[a100-1x2gpu-gbs32]",
    platform="a100",
    layout=Layout(1, 2, "gpu"),
    arguments=("train", "resnet50"),
    benchmark="resnet50",
    archive=Path("/somewhere/models-0123456789ab.pyz"),
    request={"dtype": "fp32", "global_batch_size": 8.0, "channels_last": False, "seed": 1},
)

Lines = list[tuple[str, object]]


def good() -> Lines:
    """What rank 0 writes in a run without fault, as (key, value)."""
    progress = {"phase": "warmup", "epoch": 0, "step": 2, "steps": 9, "samples_per_s": 7.5, "loss": 7, "left_s": 3.5}
    windows = [("hpcml_window", {**WINDOW, "index": index}) for index in range(3)]
    lines = [("seed", 1), ("hpcml_start", START), ("hpcml_progress", progress), *windows, ("hpcml_summary", SUMMARY)]
    return copy.deepcopy(lines)


def change(lines: Lines, key: str, nth: int = 0, /, **changes: object) -> Lines:
    """The same lines, with other values in the `nth` line of this key."""
    at = [i for i, line in enumerate(lines) if line[0] == key][nth]
    lines[at] = (key, {**lines[at][1], **changes})  # type: ignore[dict-item]
    return lines


def without(lines: Lines, key: str) -> Lines:
    return [line for line in lines if line[0] != key]


def line(key: str, value: object, seq: int, rank: int = 0, **more: object) -> str:
    metadata = {"file": "meter.py", "lineno": 0, "rank": rank, "seq": seq}
    body = {"namespace": "hpcml", "time_ms": 1795217674000, "event_type": "POINT_IN_TIME", "key": key, "value": value}
    return f":::MLLOG {json.dumps({**body, 'metadata': metadata, **more})}\n"


def log(lines: Lines, *, exit_code: int | None = 0, rank: int = 0) -> str:
    """Numbered lines of one rank; hpcml_end after them unless `exit_code` is None."""
    if exit_code is not None:
        lines = [*lines, ("hpcml_end", {"exit_code": exit_code, "lines": len(lines)})]
    return "".join(line(key, value, seq, rank) for seq, (key, value) in enumerate(lines))


def problems_of(text: str | bytes, spec: JobSpec | None = SPEC) -> str:
    return "\n".join(parse(text, spec).problems)


# --- a good log ---


def test_a_good_log_gives_everything() -> None:
    run = parse(log(good()), SPEC)
    assert run.problems == ()
    assert run.warnings == ("a warning",)
    assert (run.name, run.test, run.platform) == (SPEC.name, SPEC.test, "a100")
    assert (run.benchmark, run.layout) == ("resnet50", "1x2gpu")
    assert run.windows == (Window(samples=16, steps=2, wall_s=2.0, stall_s=0.5, compute_s=1.5),) * 3
    assert run.start == START
    assert run.summary == SUMMARY
    assert run.effective_throughput == pytest.approx(8)


def test_what_bounds_a_run_stands_in_its_summary() -> None:
    found = {"bound": "storage", "parts_ms": {"storage": 80.0}}
    lines = good()
    lines.insert(-1, ("hpcml_decomposition", found))
    run = parse(log(lines), SPEC)
    assert run.problems == ()
    assert run.summary == {**SUMMARY, "decomposition": found}


def test_a_line_as_written_in_the_documentation() -> None:
    text = (
        'foreign text :::MLLOG {"namespace": "hpcml", "time_ms": 1795217674000, "event_type": "POINT_IN_TIME", '
        '"key": "hpcml_progress", "value": {"phase": "window", "epoch": 1, "step": 7, "steps": 30, '
        '"samples_per_s": 8.5, "loss": null, "left_s": 12}, '
        '"metadata": {"file": "meter.py", "lineno": 0, "rank": 0, "seq": 0}}\n'
    )
    reader = LogReader()
    reader.feed(text.encode())
    assert reader.progress == Progress("window", 1, 7, 30, Metric(8.5, "samples/s"), None, 12.0)
    assert reader.speaks_wire
    assert not reader.ended


def test_without_a_spec_the_log_is_checked_against_itself_only() -> None:
    run = parse(log(good()))
    assert (run.problems, run.benchmark, run.layout) == ((), "resnet50", "")


@pytest.mark.parametrize("form", [str.encode, str, lambda text: text.splitlines(), lambda text: [text.encode()]])
def test_parse_takes_bytes_text_and_lines(form: object) -> None:
    assert parse(form(log(good())), SPEC) == parse(log(good()), SPEC)  # type: ignore[operator]


@pytest.mark.parametrize(
    "prefix", ["[rank0]: ", "3: ", "2026-11-20T23:59:59.123456789Z ", "\x1b[32mINFO\x1b[0m ", " 45%|████  | 3/9\r"]
)
def test_what_stands_before_the_marker_is_ignored(prefix: str) -> None:
    text = "".join(f"{prefix}{text}\r\n" for text in log(good()).splitlines())
    assert parse(text, SPEC) == parse(log(good()), SPEC)


# --- however it is cut and mixed ---


def mixed(seed: int) -> bytes:
    """A log with four ranks, foreign lines, doubled lines and rubbish, in an order in which each rank's lines stay."""
    chance = random.Random(seed)
    ranks = [log(good())] + [
        log([("hpcml_problem", {"gate": "x", "text": f"é {r}"})] * 3, exit_code=None, rank=r) for r in (1, 2, 3)
    ]
    queues = [text.encode().splitlines(keepends=True) for text in ranks]
    queues.append(
        [b"foreign \xff\xfe line\r\n", b"\n", b"grep ':::MLLOG ' file\n", "\x1b[1mGrüße\x1b[0m\n".encode()] * 9
    )
    lines: list[bytes] = []
    while any(queues):
        queue = chance.choice([queue for queue in queues if queue])
        lines.append(queue.pop(0))
        if chance.random() < 0.2 and b"hpcml" in lines[-1]:
            lines.append(lines[-1])
    return b"".join(lines)


@pytest.mark.parametrize("seed", range(8))
def test_any_cut_gives_the_same_run(seed: int) -> None:
    data, chance = mixed(seed), random.Random(-seed)
    whole = LogReader()
    whole.feed(data)
    cut = LogReader()
    at = 0
    while at < len(data):
        size = chance.choice([0, 1, 2, 7, 50, 500, 5000])
        cut.feed(data[at : at + size])
        at += size
    assert cut.tail == whole.tail
    assert cut.finish(SPEC) == whole.finish(SPEC)
    assert cut.progress == whole.progress
    (problem,) = whole.finish(SPEC).problems
    assert problem.startswith("x: é ")
    assert problem.endswith(" and 2 more)")


def test_a_line_is_not_read_before_its_end_and_the_last_one_needs_none() -> None:
    text = log(good()).rstrip("\n").encode()
    reader = LogReader()
    reader.feed(text)
    assert not reader.ended
    assert reader.finish(SPEC).problems == ()
    assert reader.ended


def test_an_endless_line_takes_no_memory_and_hides_nothing() -> None:
    reader = LogReader()
    for _ in range(200):  # 10 MB
        reader.feed(b"x" * 50_000)
    assert len(reader._wire._pending) < 200_000
    reader.feed(log(good()).encode())
    assert reader.finish(SPEC).problems == ()


@pytest.mark.parametrize("size", [10_000, 300_000])
def test_a_long_line_reads_the_same_in_one_piece_and_in_many(size: int) -> None:
    first, rest = log(good()).split("\n", 1)
    data = ("y" * size + first + "z" * size + "END\n" + rest).encode()
    cut = LogReader()
    for at in range(0, len(data), 4096):
        cut.feed(data[at : at + 4096])
    whole = LogReader()
    whole.feed(data)
    assert cut.tail == whole.tail
    assert whole.tail[0].endswith("yyy")
    assert whole.tail[1].endswith("zEND")
    assert cut.finish(SPEC) == whole.finish(SPEC) == parse(log(good()), SPEC)


@pytest.mark.parametrize("blank", ["", " "])
def test_lines_that_mpirun_has_tagged_in_their_middle_are_whole(blank: str) -> None:
    tag, other = f"[1,0]<stdout>:{blank}", f"[1,1]<stdout>:{blank}"
    rows = ["Epoch 1\n", *(f"{line[:90]}{tag}{line[90:]}\n" for line in log(good()).splitlines())]
    rows[2] = rows[2].replace(tag, f"{other}hello\n{tag}")
    text = "".join(f"{tag}{row}" for row in rows)
    run = parse(text, SPEC)
    assert run.problems == ()
    assert run == parse(log(good()), SPEC)


def test_a_line_that_the_program_has_left_open_ends_where_the_suites_begins() -> None:
    reader = LogReader()
    first, rest = log(good()).split("\n", 1)
    reader.feed(f"0: {first}\ncannot open the file{rest}".encode())
    assert reader.finish(SPEC).problems == ()
    assert list(reader.tail) == ["cannot open the file"]


# --- lines that are not what they should be ---


def test_two_different_lines_of_the_same_number_are_a_problem() -> None:
    text = log(good()) + line("hpcml_progress", {"phase": "data"}, 2)
    assert "wire lines that differ from another of the same rank and number, as when two runs" in problems_of(text)


def test_lost_lines_are_a_problem() -> None:
    lines = log(good()).splitlines(keepends=True)
    assert "rank 0: 2)" in problems_of("".join(lines[:2] + lines[3:]))
    other = [line("hpcml_problem", {"gate": "a", "text": "b"}, seq, rank=7) for seq in (0, 3, 5)]
    assert "rank 7: 1-2, 4" in problems_of("".join(lines + other))


@pytest.mark.parametrize("lost", range(len(log(good()).splitlines())))
def test_whichever_line_is_lost_it_is_a_problem(lost: int) -> None:
    lines = log(good()).splitlines(keepends=True)
    del lines[lost]
    assert problems_of("".join(lines))


def test_lost_lines_of_many_ranks_are_one_problem() -> None:
    text = log(good()) + "".join(line("hpcml_progress", None, 1, rank=rank) for rank in range(1, 100))
    assert "and 96 more ranks" in problems_of(text)


@pytest.mark.parametrize("text", [':::MLLOG {"namespace": "hpcml", "ti\n', ":::MLLOG {\n", ':::MLLOG {"a": 1'])
def test_torn_lines_are_counted(text: str) -> None:
    assert "wire lines that are torn or cut off: 1" in problems_of(log(good()) + text)
    assert "wire lines that are torn or cut off: 1" in problems_of(log(good()).rstrip("\n") + text)


def test_a_whole_line_inside_a_torn_one_is_read() -> None:
    first, second, rest = log(good()).split("\n", 2)
    problems = problems_of(f"{first[:40]}{second}\n{first[40:]}\n{rest}")
    assert "wire lines that are torn or cut off: 1" in problems
    assert "rank 0: 0)" in problems
    assert "hpcml_start" not in problems


def test_two_wire_lines_in_one_line_with_other_text_are_both_read() -> None:
    reader = LogReader()
    reader.feed(log(good()).replace("}\n:::", "}:::", 2).replace("}\n", "}Traceback!\n", 1).encode())
    assert reader.finish(SPEC).problems == ()
    assert list(reader.tail) == ["Traceback!"]


@pytest.mark.parametrize(
    "text",
    [
        "echo ':::MLLOG is the prefix'\n",
        ":::MLLOG \n",
        ':::MLLOG {"namespace": "", "key": "run_start", "value": NaN, "metadata": {}}\n',
        ':::MLLOG {"namespace": "worker1", "key": "hpcml_end"}\n',
    ],
)
def test_a_foreign_line_with_the_marker_is_no_wire_line(text: str) -> None:
    assert problems_of(log(good()) + text) == ""
    reader = LogReader()
    reader.feed(text.encode())
    assert not reader.speaks_wire
    assert list(reader.tail) == [text.strip()]


@pytest.mark.parametrize(
    "metadata", [None, {}, {"rank": 0}, {"rank": True, "seq": 0}, {"rank": -1, "seq": 0}, {"rank": 0, "seq": "1"}, [1]]
)
def test_wire_lines_without_rank_or_number_are_a_problem(metadata: object) -> None:
    assert "wire lines without key, rank or seq: 1" in problems_of(log(good()) + line("seed", 1, 0, metadata=metadata))


def test_invalid_utf8_stays_readable() -> None:
    report = (
        line("hpcml_problem", {"gate": "data", "text": "caf@ is corrupt"}, 9, rank=0).encode().replace(b"@", b"\xe9")
    )
    text = log(good()[:2], exit_code=None).encode() + b"\xff\xfe foreign\n" + report
    reader = LogReader()
    reader.feed(text)
    assert any("data: caf� is corrupt (rank 0)" in problem for problem in reader.finish(SPEC).problems)
    assert list(reader.tail) == ["�� foreign", "data: caf� is corrupt (rank 0)"]


@pytest.mark.parametrize("token", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_a_number_that_is_not_finite_is_a_problem(token: str) -> None:
    text = log(good()).replace('"wall_s": 2.0', f'"wall_s": {token}')
    problems = problems_of(text)
    assert "wire lines with NaN or Infinity: 3" in problems
    assert "window 1 cannot be used: wall_s is missing" in problems
    assert parse(text, SPEC).windows == ()


def test_deep_nesting_and_long_numbers_do_no_harm() -> None:
    text = ":::MLLOG " + '{"a":' * 5000 + "\n:::MLLOG {" + '"n": ' + "9" * 5000 + "}\n"
    assert "wire lines that are torn or cut off: 2" in problems_of(log(good()) + text)


# --- what stands in them ---


def test_a_log_that_was_cut_off_has_no_hpcml_end() -> None:
    problems = problems_of(log(good()[:3], exit_code=None))
    assert problems == "the log has no hpcml_window, no hpcml_summary, no hpcml_end"


def test_of_a_job_that_gave_up_only_its_own_problem_is_reported() -> None:
    missing = ("hpcml_problem", {"gate": "data", "text": "no data in /d: make it with …"})
    run = parse(log([("seed", 1), missing], exit_code=66), SPEC)
    assert run.problems == ("data: no data in /d: make it with … (rank 0)", "the job ended with exit code 66")


def test_a_gate_is_one_problem_for_all_ranks() -> None:
    text = log(good()) + "".join(
        line("hpcml_problem", {"gate": "loss_finite", "text": f"loss of rank {rank} is nan"}, 0, rank)
        for rank in range(1, 9)
    )
    assert problems_of(text) == "loss_finite: loss of rank 1 is nan (rank 1 and 7 more)"


def test_hpcml_end_counts_the_lines() -> None:
    text = log(good(), exit_code=None) + line("hpcml_end", {"exit_code": 0, "lines": 9}, len(good()))
    assert "hpcml_end counts 9 wire lines" in problems_of(text)


def test_a_line_after_hpcml_end_is_a_problem() -> None:
    text = log(good()) + line("hpcml_progress", {"phase": "window"}, len(good()) + 1)
    assert "rank 0 wrote on after hpcml_end" in problems_of(text)


@pytest.mark.parametrize("schema", [2, None, True, "1"])
def test_another_schema_is_a_problem(schema: object) -> None:
    assert "reads schema 1" in problems_of(log(change(good(), "hpcml_start", schema=schema)))


def test_two_runs_in_one_log_are_a_problem() -> None:
    first = log(good()[:5], exit_code=None)
    again = log(good()).replace("1795217674000", "1795217675000")
    run = parse(first + again, SPEC)
    assert run.problems == ("2 runs wrote to this log: hpcml_start stands there 2 times",)
    assert len(run.windows) == 3


def test_a_measurement_of_another_rank_than_0_is_a_problem() -> None:
    text = log(good()) + line("hpcml_window", WINDOW, 0, rank=1) + line("hpcml_summary", SUMMARY, 1, rank=1)
    assert "wire lines by a rank that should not write them, or without a value: 2" in problems_of(text)


@pytest.mark.parametrize(("written", "known"), [({}, None), ({"stall_h2d_s": None}, None), ({"stall_h2d_s": 0.5}, 0.5)])
def test_the_copys_part_of_the_stall_is_known_or_not(written: dict[str, object], known: float | None) -> None:
    run = parse(log(change(good(), "hpcml_window", 1, **written)), SPEC)
    assert run.windows[1].stall_h2d_s == known
    assert not run.problems


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"wall_s": 0.0}, "wall_s is 0.0"),
        ({"stall_s": -0.1}, "stall_s is -0.1"),
        ({"stall_h2d_s": -0.1}, "stall_h2d_s is -0.1 of stall_s 0.5"),
        ({"stall_h2d_s": 0.51}, "stall_h2d_s is 0.51 of stall_s 0.5"),
        ({"stall_h2d_s": "0.1"}, "stall_h2d_s is '0.1' of stall_s 0.5"),
        ({"compute_s": 0}, "compute_s is 0"),
        ({"samples": 0}, "samples is 0"),
        ({"samples": 15.5}, "samples is 15.5"),
        ({"steps": True}, "steps is True"),
        ({"wall_s": "2.0"}, "wall_s is '2.0'"),
        ({"samples": 10**400}, f"samples is 1{'0' * 58}…"),
    ],
)
def test_a_window_with_impossible_values_is_a_problem(changes: dict[str, object], text: str) -> None:
    run = parse(log(change(good(), "hpcml_window", 1, **changes)), SPEC)
    assert f"window 1 cannot be used: {text}" in run.problems
    assert len(run.windows) == 2
    assert run.effective_throughput == pytest.approx(8)


def test_windows_with_different_samples_are_a_problem() -> None:
    lines = change(good(), "hpcml_window", 1, samples=24, steps=3)
    said = "the windows have different numbers of samples: 16, 24, 16 (drop_last=True leaves out a smaller batch)"
    assert said in problems_of(log(lines))


@pytest.mark.parametrize(
    ("index", "text"),
    [
        (5, "windows are missing from the log: 2, 3, 4"),
        (1, "windows that stand in the log twice: 1"),
        (None, "windows without an index: 1"),
    ],
)
def test_a_missing_doubled_or_odd_index_of_a_window_is_a_problem(index: object, text: str) -> None:
    assert text in problems_of(log(change(good(), "hpcml_window", 2, index=index)))


@pytest.mark.parametrize(
    ("key", "value"),
    [("windows", 4), ("samples", 47), ("steps", 5), ("wall_s", 6.0001), ("stall_s", 1.4), ("compute_s", None),
     ("effective_throughput", 8.001), ("compute_fraction", 0.7), ("compute_throughput", 10.0), ("identity_gap", 0.01)],
)  # fmt: skip
def test_a_summary_that_is_not_the_sum_of_the_windows_is_a_problem(key: str, value: object) -> None:
    assert f"{key} is " in problems_of(log(change(good(), "hpcml_summary", **{key: value})))


def test_a_summary_may_be_rounded_to_seven_digits() -> None:
    lines = change(good(), "hpcml_summary", compute_throughput=10.66667, wall_s=6.0000001)
    assert problems_of(log(lines)) == ""


# --- against what was asked ---


def asked(**request: object) -> JobSpec:
    return JobSpec(**{**SPEC.__dict__, "request": request})


@pytest.mark.parametrize(
    ("request_", "text"),
    [
        ({"dtype": "bf16"}, "dtype: asked for 'bf16', and the job ran with 'fp32'"),
        ({"global_batch_size": 16}, "global_batch_size: asked for 16, and the job ran with 8"),
        ({"compile": 0}, "compile: asked for 0, and the job ran with False"),
        ({"seed": True}, "seed: asked for True, and the job ran with 1"),
        ({"nothing": 1}, "nothing: asked for 1, and the job does not say what it did"),
        ({"workers": None}, "workers: asked for None, and the job ran with 2"),
    ],
)
def test_a_request_that_was_not_met_is_a_problem(request_: dict[str, object], text: str) -> None:
    assert text in problems_of(log(good()), asked(**request_))


def test_numbers_and_lists_are_compared_by_value() -> None:
    lines = change(good(), "hpcml_start", request={**START["request"], "shape": [64, 64.0]})  # type: ignore[dict-item]
    assert problems_of(log(lines), asked(global_batch_size=8.0, shape=(64.0, 64))) == ""
    assert problems_of(log(lines), asked(compile="off")) == ""
    assert "compile: asked for 'on'" in problems_of(log(lines), asked(compile="on"))
    assert "shape: asked for (64,)" in problems_of(log(lines), asked(shape=(64,)))


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"code": "ba9876543210"}, "code: sent was 0123456789ab, and the job ran 'ba9876543210'"),
        ({"code": None}, "the job ran missing"),
        ({"world": {"size": 1}}, "2 ranks were started, and the job says 1"),
        ({"world": None}, "2 ranks were started, and the job says missing"),
        ({"device": {"type": "cpu"}}, "asked for gpu, and the job ran on 'cpu'"),
        ({"benchmark": "deepcam"}, "asked for 'resnet50', and the job ran 'deepcam'"),
        ({"request": None}, "dtype: asked for 'fp32', and the job does not say"),
    ],
)
def test_a_start_that_is_not_what_was_asked_is_a_problem(changes: dict[str, object], text: str) -> None:
    assert text in problems_of(log(change(good(), "hpcml_start", **changes)))


def test_a_rocm_device_is_a_gpu() -> None:
    device = {**START["device"], "type": "rocm"}  # type: ignore[dict-item]
    assert problems_of(log(change(good(), "hpcml_start", device=device))) == ""


def test_steps_and_samples_that_are_not_those_of_the_request_are_a_problem() -> None:
    request = {**START["request"], "steps_per_window": 4, "windows": 2, "global_batch_size": 32}  # type: ignore[dict-item]
    problems = problems_of(log(change(good(), "hpcml_start", request=request)), None)
    assert "windows: asked for 2, and there are 3" in problems
    assert "window 2 has 2 steps, and asked for were 4" in problems
    assert "window 0 has 16 samples, which are not 2 steps of the global batch size 32" in problems


def test_windows_that_go_by_time_have_at_least_the_steps_of_the_request() -> None:
    request = {**START["request"], "steps_per_window": 1, "window_s": 5.0}  # type: ignore[dict-item]
    assert problems_of(log(change(good(), "hpcml_start", request=request))) == ""
    request["steps_per_window"] = 4
    problems = problems_of(log(change(good(), "hpcml_start", request=request)), None)
    assert "window 2 has 2 steps, and asked for were 4" in problems


# --- against physics ---


def measured(mode: str = "overlap", **window: float) -> Lines:
    """A run whose windows are all like this, with a summary that agrees."""
    lines = change(good(), "hpcml_start", request={**START["request"], "mode": mode})  # type: ignore[dict-item]
    for index in range(3):
        lines = change(lines, "hpcml_window", index, **window)
    run = Run(windows=parse(log(lines)).windows)
    keys = ("effective_throughput", "compute_fraction", "compute_throughput", "identity_gap")
    sums = {key: 3 * value for key, value in window.items()}
    return change(lines, "hpcml_summary", **{**sums, **{key: getattr(run, key) for key in keys}})


def test_the_identity_gap_fails_a_blocking_run_and_is_printed_in_overlap() -> None:
    assert problems_of(log(measured("blocking", compute_s=1.46))) == ""
    assert "disagree by 7.1% (limit 3%)" in problems_of(log(measured("blocking", compute_s=1.4)))
    run = parse(log(measured("overlap", compute_s=1.4)), SPEC)
    assert run.problems == ()
    assert run.warnings[1:] == ("the three numbers disagree by 7.1% (overlap mode: no gate)",)


def test_a_gate_that_the_job_reported_is_not_reported_twice() -> None:
    lines = [*measured("blocking", compute_s=1.4), ("hpcml_problem", {"gate": "identity", "text": "gap"})]
    assert parse(log(lines, exit_code=3), SPEC).problems == ("identity: gap (rank 0)", "the job ended with exit code 3")


def test_more_stall_than_time_is_a_problem() -> None:
    assert "compute fraction is -0.5" in problems_of(log(measured(stall_s=3.0)))


def test_more_output_than_was_computed_is_a_problem() -> None:
    assert "more came out (8 samples/s) than was computed (5.33333 samples/s)" in problems_of(
        log(measured(compute_s=3.0))
    )


def test_more_flop_per_second_than_the_devices_have_is_a_problem() -> None:
    lines = change(good(), "hpcml_summary", flop_per_sample=187.0)
    assert problems_of(log(lines)) == ""  # 10.67 samples/s of 187 FLOP on two devices of 1,000 FLOP/s
    lines = change(lines, "hpcml_summary", flop_per_sample=188.0)
    assert "2005 FLOP/s are more than 2 devices can do (1000 each)" in problems_of(log(lines))


def test_the_peak_of_processors_is_that_of_a_node() -> None:
    """Two ranks, each on a socket of one node, share it; on two nodes there are two."""
    lines = change(good(), "hpcml_start", device={"type": "cpu", "peak_flops": 1000.0})
    lines = change(lines, "hpcml_summary", flop_per_sample=150.0)
    assert "1600 FLOP/s are more than 1 node(s) can do (1000 each)" in problems_of(log(lines), None)
    on_two = change(lines, "hpcml_start", world={"size": 2, "hosts": 2})
    assert not [text for text in problems_of(log(on_two), None) if "can do" in text]


def test_an_unknown_peak_is_one_warning() -> None:
    lines = change(good(), "hpcml_start", device={"type": "cuda", "peak_flops": None})
    assert parse(log(lines), SPEC).warnings[1].startswith("peak unknown")
    lines = change(lines, "hpcml_summary", warnings=["peak unknown: said by the job"])
    assert parse(log(lines), SPEC).warnings == ("peak unknown: said by the job",)


# --- where waiting and computing cannot be told apart ---

REASON = "the wafer's own nodes feed it"
IN_WINDOW = ("stall_s", "compute_s", "stall_h2d_s", "wait_s", "h2d_s", "busy_s")
IN_SUMMARY = ("stall_s", "compute_s", "compute_fraction", "compute_throughput", "identity_gap")


def without_split(reason: object = REASON) -> Lines:
    lines = good()
    for index in range(3):
        lines = change(lines, "hpcml_window", index, **dict.fromkeys(IN_WINDOW))
    return change(lines, "hpcml_summary", **dict.fromkeys(IN_SUMMARY), no_split=reason)


def test_a_run_without_a_split_has_its_reason_and_its_effective_throughput() -> None:
    run = parse(log(without_split()), SPEC)
    assert (run.problems, run.no_split) == ((), REASON)
    assert (run.effective_throughput, run.spread) == (8.0, 0.0)
    assert (run.compute_fraction, run.compute_throughput, run.identity_gap) == (None, None, None)
    assert run.windows[0] == Window(samples=16, steps=2, wall_s=2.0, stall_s=None, compute_s=None)
    reader = LogReader()
    reader.feed(log(without_split()).encode())
    assert reader.complete


@pytest.mark.parametrize("reason", [None, "", "  ", True, 1])
def test_nulls_without_a_reason_are_a_problem(reason: object) -> None:
    run = parse(log(without_split(reason)), SPEC)
    assert run.windows == ()
    assert run.problems[0] == "window 0 cannot be used: stall_s is missing, compute_s is missing"


@pytest.mark.parametrize("key", IN_WINDOW)
def test_half_a_split_is_a_problem(key: str) -> None:
    lines = change(without_split(), "hpcml_window", 1, **{key: 0.5})
    said = f"window 1 cannot be used: {key} is 0.5, and the summary says that there is no split ({REASON})"
    assert said in parse(log(lines), SPEC).problems


@pytest.mark.parametrize("key", ["stall_s", "compute_s"])
def test_a_window_that_lacks_one_of_the_two_times_is_a_problem(key: str) -> None:
    run = parse(log(change(good(), "hpcml_window", 1, **{key: None})), SPEC)
    assert f"window 1 cannot be used: {key} is missing" in run.problems


@pytest.mark.parametrize("key", IN_SUMMARY)
def test_a_summary_that_knows_what_its_windows_do_not_is_a_problem(key: str) -> None:
    problems = problems_of(log(change(without_split(), "hpcml_summary", **{key: 0.75})))
    assert f"{key} is 0.75 in the summary, and the windows do not know it" in problems


def test_without_a_split_no_more_comes_out_than_the_devices_can_do() -> None:
    lines = change(
        without_split(), "hpcml_summary", flop_per_sample=250.0
    )  # 8 samples/s on two devices of 1,000 FLOP/s
    assert problems_of(log(lines)) == ""
    lines = change(lines, "hpcml_summary", flop_per_sample=251.0)
    assert "2008 FLOP/s are more than 2 devices can do (1000 each)" in problems_of(log(lines))


# --- devices of which a rank drives several ---


def driven(unit: str, devices: int, **world: object) -> tuple[Lines, JobSpec]:
    """One rank that drives all devices of a node, and what was asked."""
    asked_for = {"replicas": devices, "devices_per_replica": 1}
    start = {
        "request": {**START["request"], **asked_for},  # type: ignore[dict-item]
        "device": {"type": unit, "name": unit, "peak_flops": 1000.0},
        "world": {"size": 1, **world},
    }
    spec = replace(SPEC, layout=Layout(1, devices, unit), replicas_per_rank=devices, request=asked_for)
    return change(good(), "hpcml_start", **start), spec


@pytest.mark.parametrize(
    ("unit", "devices", "world", "text"),
    [
        ("ipu", 8, (16, 1), "on 1 ipu each (layout 1x8ipu), and the job had 16 on 1 each"),
        ("ipu", 8, (4, 2), "for 8 copies of the model on 1 ipu each (layout 1x8ipu), and the job had 4 on 2 each"),
        ("csx", 2, (None, None), "(layout 1x2csx), and the job does not say how many it had"),
    ],
)
def test_another_number_of_devices_is_a_problem(
    unit: str, devices: int, world: tuple[object, object], text: str
) -> None:
    lines, spec = driven(unit, devices, replicas=world[0], devices_per_replica=world[1])
    assert text in problems_of(log(lines), spec)


@pytest.mark.parametrize("spec", [True, False])
def test_the_peak_is_that_of_all_devices_that_a_rank_drives(spec: bool) -> None:
    lines, asked_for = driven("ipu", 8, replicas=8, devices_per_replica=1)
    lines = change(lines, "hpcml_summary", flop_per_sample=749.0)  # 10.67 samples/s on eight devices of 1,000 FLOP/s
    assert problems_of(log(lines), asked_for if spec else None) == ""
    lines = change(lines, "hpcml_summary", flop_per_sample=751.0)
    assert "are more than 8 devices can do" in problems_of(log(lines), asked_for if spec else None)


# --- programs of other people ---


def test_a_program_that_does_not_write_the_wire_has_no_problems() -> None:
    spec = JobSpec(**{**SPEC.__dict__, "benchmark": None, "request": {}})
    run = parse("epoch 1\nspeed 17.5 img/s\n:::MLLOG {torn\n", spec)
    assert (run.windows, run.problems, run.start, run.summary) == ((), (), {}, {})
    assert not LogReader().speaks_wire


def test_a_foreign_loop_that_writes_the_wire_is_checked() -> None:
    spec = JobSpec(**{**SPEC.__dict__, "benchmark": None, "request": {}})
    lines = change(good(), "hpcml_start", benchmark=None, code=None, world={"size": 1}, device={"type": "cpu"})
    run = parse(log(lines), spec)
    assert run.problems == ()
    assert "world size: the program has 1 ranks on 2 devices" in run.warnings
    assert "device: asked for gpu, and meter.py saw 'cpu' only (docs/foreign-loops.md)" in run.warnings
    assert run.benchmark is None
    on_gpu = change(good(), "hpcml_start", benchmark=None, code=None)
    assert not any("meter.py saw" in warning for warning in parse(log(on_gpu), spec).warnings)


NODES = replace(SPEC, layout=Layout(2, 1, "gpu"))
OTHERS = {"benchmark": None, "archive": None, "request": {}}


@pytest.mark.parametrize(
    ("placed", "changes", "problem"),
    [
        ({}, {}, None),  # not known: written by an older copy of meter.py
        ({"hosts": None, "ranks_per_host": None}, {}, None),
        ({"hosts": 2, "ranks_per_host": [1, 1]}, {}, None),
        ({"hosts": 1, "ranks_per_host": [2, 2]}, {}, "hosts: layout 2x1gpu asks for 2, and its ranks ran on 1 (n1)"),
        ({"hosts": 3, "ranks_per_host": [1, 1]}, {}, "hosts: layout 2x1gpu asks for 2, and its ranks ran on 3"),
        ({"hosts": 2, "ranks_per_host": [1, 3]}, {}, "hosts: 1 ranks were started on each, and * [1, 3]"),
        ({"hosts": 2, "ranks_per_host": [1, 3]}, OTHERS, None),  # how many it starts is its own affair
        ({"hosts": 1, "ranks_per_host": [2, 2]}, OTHERS, "hosts: layout 2x1gpu asks for 2, *(n1); let launcher=*"),
        ({"hosts": 2, "ranks_per_host": [1, 3]}, {**OTHERS, "launcher": "torchrun"}, "hosts: 1 ranks were started*"),
        ({"size": 1, "hosts": None}, {**OTHERS, "launcher": "srun"}, "world size: 2 ranks were started, and *says 1"),
    ],
)
def test_hosts_and_ranks_are_compared_with_the_layout(
    placed: dict[str, object], changes: dict[str, object], problem: str | None
) -> None:
    spec = replace(NODES, **changes)
    named = {"benchmark": spec.benchmark, **({"code": None} if spec.archive is None else {})}
    run = parse(log(change(good(), "hpcml_start", **named, world={**START["world"], **placed})), spec)
    if problem is None:
        assert run.problems == ()
    else:
        assert len(run.problems) == 1
        assert fnmatch(run.problems[0], problem.replace("[", "[[]"))


def test_numbers_are_read_from_a_text_and_from_a_file(tmp_path: Path) -> None:
    text = "step 1: 10.5 img/s\nstep 2: 1e1 img/s\n"
    assert numbers(text, r"([\d.e]+) img/s$") == [10.5, 10.0]
    assert numbers(text, r"\d+\.\d+") == [10.5]
    path = tmp_path / "log"
    path.write_bytes(b"\xff loss 3\n")
    assert numbers(path, r"loss (\S+)") == [3.0]


@pytest.mark.parametrize("word", ["nan", "inf", "fast", "1,5"])
def test_a_match_that_is_no_finite_number_is_an_error(word: str) -> None:
    with pytest.raises(ValueError, match="is no finite number"):
        numbers(f"loss {word}", r"loss (\S+)")


def test_a_pattern_that_matches_nothing_is_an_error_that_names_the_log_and_its_end(tmp_path: Path) -> None:
    path = tmp_path / "job.log"
    path.write_text("Triad  101.5\nSegmentation fault\n\n")
    with pytest.raises(ValueError, match=r"'Copy: .*' matches nothing .*job\.log.*'Segmentation fault'"):
        numbers(path, r"Copy: (\d+)")
    with pytest.raises(ValueError, match="matches nothing in the log, whose last line is ''"):
        numbers("", r"Copy: (\d+)")


# --- while it runs ---


def test_an_incomplete_log_says_why() -> None:
    def reader(text: str) -> LogReader:
        reader = LogReader()
        reader.feed(text.encode())
        return reader

    assert reader(log(good())).complete
    for text, why in [
        ("hello\n", "no line of the wire"),
        (log(good(), exit_code=None), "no hpcml_end"),
        (log(good(), exit_code=3), "exit code 3"),
        (log(without(good(), "hpcml_summary")), "no hpcml_summary"),
        (log(without(good(), "hpcml_window")), "no hpcml_window"),
        (log(change(good(), "hpcml_window", wall_s=0)), "window 0 cannot be used"),
        (log(change(good(), "hpcml_summary", effective_throughput=None)), "hpcml_summary has no effective_throughput"),
    ]:
        assert not reader(text).complete
        assert why in reader(text).why_incomplete
    assert reader(log(good(), exit_code=3)).exit_code == 3


def test_the_tail_holds_the_last_lines_for_people() -> None:
    reader = LogReader()
    report = line("hpcml_problem", {"gate": "data", "text": "two\nlines \x1b[31mred"}, len(good()))
    text = "old\n" * 50 + "\x1b[31mred\x1b[0m \x1b]0;title\x07text\x08\n\n  \n 1%\r 2%\r99%\n"
    text += log(good(), exit_code=None)
    reader.feed((text + report + "z" * 1000 + "\n").encode())
    tail = list(reader.tail)
    assert tail[-4:-1] == ["red text", "99%", "data: two lines red (rank 0)"]
    assert tail[-1] == "…" + "z" * 399
    assert len(tail) == 30


def test_the_progress_is_the_last_that_was_reported() -> None:
    reader = LogReader()
    assert reader.progress is None
    reader.feed(log(good()).encode())
    assert reader.progress == Progress("warmup", 0, 2, 9, Metric(7.5, "samples/s"), 7.0, 3.5)
    reader.feed(line("hpcml_progress", {"phase": 5, "step": "many", "loss": True}, 99).encode())
    assert reader.progress == Progress()


def test_the_progress_of_a_language_model_is_in_tokens() -> None:
    reader = LogReader()
    reader.feed(log(change(good(), "hpcml_start", data={"tokens_per_sample": 8192})).encode())
    assert reader.progress is not None
    assert reader.progress.throughput == Metric(61440.0, "tokens/s")


def test_windows_with_a_wide_spread_are_a_warning() -> None:
    assert not [text for text in parse(log(good()), SPEC).warnings if text.startswith("unsteady")]
    lines = change(good(), "hpcml_window", 2, wall_s=1.5 * WINDOW["wall_s"])
    (text,) = [text for text in parse(log(lines), SPEC).warnings if text.startswith("unsteady")]
    assert text.startswith("unsteady: its windows spread by 25%")  # 1, 1, 1.5: deviation 0.289 of mean 1.167


def test_a_number_of_another_programs_line_is_not_ours() -> None:
    """Both write MLPerf's lines, and the other one has left its row open."""
    other = ':::MLLOG {"namespace": "", "key": "loss", "value": NaN, "metadata": {}}'
    ours = ':::MLLOG {"namespace": "hpcml", "key": "hpcml_progress", "value": {}, "metadata": {"rank": 0, "seq": 0}}\n'
    assert not [text for text in parse(other + ours).problems if "NaN" in text]
