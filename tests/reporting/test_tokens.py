"""A run whose samples are sequences of tokens: every place that shows its throughput says tokens/s."""

from __future__ import annotations

import copy
import csv
import io
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from platforms.job import Run
from platforms.rundir import job_json
from reporting.__main__ import main
from reporting.tables.anchors import beside
from reporting.tables.grouped import tables_of
from reporting.tables.markdown import markdown
from reporting.tables.row import Row
from reporting.tables.text import text
from reporting.tables.token_notes import token_notes
from tests.reporting.run_json import GPU, gpu_run
from tests.reporting.table_history import REST, record, record_nights

Capture = pytest.CaptureFixture[str]

SEQUENCE = 8192  # that of llama-1b
GPT: Mapping[str, Any] = {
    "test": "test_gpt.py::test_gpt[a100-1x4gpu-tuned]",
    "benchmark": "gpt",
    "start__data": {"kind": "real", "tokens_per_sample": SEQUENCE},
    "start__request": {**GPU["start"]["request"], "variant": "llama-1b", "shape": "8192"},
}


def run(rate: float, **changes: object) -> Run:
    """A run of `rate` sequences/s on four devices."""
    window = {"samples": 1000, "steps": 50, "wall_s": 1000 / rate, "stall_s": 0.0, "compute_s": 800 / rate}
    numbers = {"effective_throughput": rate, "compute_throughput": rate, "compute_fraction": 1.0}
    content = gpu_run(**copy.deepcopy({**REST, **GPT, **numbers, "windows": [window, window], **changes}))
    return job_json.run_from(content)


def images(rate: float) -> Run:
    kept = {name: GPU[name] for name in ("test", "benchmark")}
    return run(rate, **kept, start__data={}, start__request=GPU["start"]["request"])


# --- the tables of a session -----------------------------------------------------------------------------------------


def lines_of(*runs: Run) -> list[str]:
    return text(tables_of([Row(one) for one in runs], join=True))


def test_a_table_of_tokens_has_them_in_its_title() -> None:
    title, head, _, row, *_ = lines_of(run(2.0))
    assert title.startswith("gpt, llama-1b, subset, overlap, tuned: throughputs in tokens/s over all devices, ")
    assert " unit " not in head
    assert row.split()[-5:] == ["20480", "100.0%", "16384", "0.0%", "none"]


def test_a_joined_table_says_the_unit_of_each_row() -> None:
    title, head, _, images_row, tokens_row, *_ = lines_of(images(400.0), run(2.0))
    assert title.startswith("subset, overlap, tuned: throughputs in samples/s or tokens/s over all devices, ")
    assert re.search(r"effective thr\. +unit +spread", head)
    assert images_row.split()[-6:] == ["500.0", "100.0%", "400.0", "samples/s", "0.0%", "none"]
    assert tokens_row.split()[-6:] == ["20480", "100.0%", "16384", "tokens/s", "0.0%", "none"]
    (table,) = tables_of([Row(images(400.0)), Row(run(2.0))], join=True)
    assert "| 16384 | tokens/s | 0.0% |" in "\n".join(markdown([table]))


def test_the_run_itself_counts_samples() -> None:
    assert (run(2.0).samples, run(2.0).effective_throughput) == (2000, 2.0)


def test_images_alone_have_no_word_of_tokens() -> None:
    assert "token" not in "\n".join(lines_of(images(400.0), images(300.0)))


@pytest.mark.parametrize(
    ("runs", "said"),
    [
        (
            [run(10.0)],
            ["tokens/s on each device: 20480", "llama-1b: 10,000,000,000 tokens take 33.9 h at this rate"],
        ),
        (
            [run(2.0), run(10.0, layout="2x4gpu")],
            [
                "tokens/s on each device: 4096 to 10240",
                "llama-1b: 10,000,000,000 tokens take 33.9 h to 7.1 days at these rates",
            ],
        ),
        ([run(1000.0, layout="1x1gpu")], ["llama-1b: 10,000,000,000 tokens take 20.3 min at this rate"]),
        ([run(2.0, layout="1x1gpu", start__data__tokens_per_sample=64)], []),  # its sequence is another
        ([run(2.0, layout="", start__request={"variant": "mine"})], []),
        ([images(400.0)], []),
        ([run(2.0, windows=[])], []),
    ],
    ids=["one", "several", "fast", "another sequence", "not defined", "images", "no windows"],
)
def test_the_notes_say_what_a_device_does_and_how_long_a_training_takes(runs: list[Run], said: list[str]) -> None:
    assert token_notes(runs) == said


@pytest.mark.parametrize("tokens", [None, 0, -8, 1.5, "8192", True])
def test_what_is_no_number_of_tokens_leaves_samples(tokens: object) -> None:
    assert run(2.0, start__data={"tokens_per_sample": tokens}).throughput_unit.name == "samples/s"


def test_published_tokens_stand_beside_tokens() -> None:
    h100 = run(1.0, start__device__name="NVIDIA H100 80GB HBM3", start__request__variant="llama-8b")
    resnet50 = replace(images(400.0), start={**images(400.0).start, "request": {"variant": "v1.5", "shape": "224x224"}})
    ours, theirs = beside([Row(resnet50), Row(h100)])
    assert ours.title.endswith("of one device, in samples/s")
    assert theirs.title.endswith("of one device, in tokens/s")
    cells = [dict(zip(theirs.headings, row, strict=True)) for row in theirs.rows]
    assert {cell["ours"] for cell in cells} == {"2048"}
    assert sorted(cell["published"] for cell in cells) == ["5762", "6667", "8532"]


# --- what is made of the history -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A site whose language model has 22 nights of 4 sequences/s, and one of 3.4."""
    folder = tmp_path_factory.mktemp("centre")
    record_nights(folder / "history", 22, 4.0, **GPT)
    record(folder / "history", 22, 3.4, **GPT)
    return folder


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["table"], r"in tokens/s over all.*\n(.*\n)*.* 29319 +95\.0% +27853 "),
        (["judge"], r"effective throughput 27853 tokens/s is 15\.0 % below its pin of 32768"),
        (["judge"], r"compute throughput \d{5} -> \d{5} tokens/s"),
        (["show", "gpt"], "value tokens/s"),
        (["trend"], "tokens/s"),
        (["compare", "date=2026-10-20", "date=2026-10-23"], r"\d{5} tokens/s"),
        (["comment", "--print"], "27853 tokens/s"),
        (["data"], '"unit": ?"tokens/s"'),
        (["export", "prometheus"], 'unit="tokens/s"'),
        (["export", "gitlab"], 'unit="tokens/s"'),
    ],
    ids=lambda value: "-".join(value[:2]) if isinstance(value, list) else "",
)
def test_every_command_says_tokens(site: Path, capsys: Capture, words: list[str], said: str) -> None:
    main([*words, f"--site={site}", *([] if words[0] == "compare" else ["--tonight=2026-10-24"])])
    out = capsys.readouterr().out
    assert re.search(said, out)
    assert "samples/s" not in out


def test_the_page_says_tokens(site: Path, tmp_path: Path) -> None:
    main(["html", f"--site={site}", "--tonight=2026-10-24", f"--output={tmp_path}/page.html"])
    page = (tmp_path / "page.html").read_text()
    assert "tokens/s" in page
    assert "samples/s" not in page


def test_every_throughput_of_the_csv_is_in_tokens(site: Path, capsys: Capture) -> None:
    main(["table", "--format=csv", f"--site={site}", "--tonight=2026-10-24"])
    lines = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    found = {line["metric"]: float(line["value"]) for line in lines if line["unit"] == "tokens/s"}
    names = ("effective_throughput", "compute_throughput", "fastest_stretch", "effective_throughput_of_all_windows")
    assert found == pytest.approx(dict(zip(names, (x * SEQUENCE for x in (3.4, 3.4 / 0.95, 3.4, 3.4)), strict=True)))
    assert "samples/s" not in {line["unit"] for line in lines}
