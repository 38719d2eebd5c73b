"""docs/history.md names every key of a line and every field that makes runs comparable."""

from __future__ import annotations

import json
import re
from pathlib import Path

from platforms.job import Metric, Role, Trial
from reporting.history.comparability import ASKED, MEASURED
from reporting.history.envelope import ALL_WINDOWS, RunReference
from reporting.history.envelope_json import from_line, to_line
from tests.reporting.history_lines import envelope

TEXT = (Path(__file__).resolve().parents[2] / "docs" / "history.md").read_text(encoding="utf-8")


def section(title: str) -> str:
    return TEXT.partition(f"## {title}\n")[2].partition("\n## ")[0]


def first_column(text: str) -> set[str]:
    cells = [row.split("|")[1] for row in text.splitlines() if row.startswith("| `")]
    return set(re.findall(r"`(\w+)`", "".join(cells)))


def test_every_key_of_a_line_stands_there() -> None:
    full = envelope(
        trial=Trial(Role.CONFIRM, "before", "a", 3, "n07", 2),
        beside={"compute_fraction": Metric(0.98, "")},
        no_split="it stands there",
        doubts=("crowded",),
        explanations=("unsteady",),
        statistic=ALL_WINDOWS,
        verdicts={"triad": {"kind": "ok"}},
        network={"elapsed_s": 60.0, "nodes": 1, "most": {}},
        source="reframe",
        run=RunReference("a", 0, 1),
    )
    assert first_column(section("What stands in a line?")) == json.loads(to_line(full)).keys()


def test_the_example_of_a_line_can_be_read() -> None:
    example = section("What stands in a line?").partition("```json\n")[2].partition("```")[0]
    assert from_line(example.replace("\n", "").encode()).eligible


def test_every_field_that_makes_runs_comparable_stands_there() -> None:
    assert first_column(section("Which runs are comparable?")) == {*ASKED, *MEASURED}
