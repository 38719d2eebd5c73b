"""docs/outcomes.md says what the code does: every state with its outcome, and every key of run.json."""

from __future__ import annotations

import re
from pathlib import Path

from platforms.job import JobSpec, Layout, Run, State
from platforms.rundir import job_json

TEXT = (Path(__file__).resolve().parents[2] / "docs" / "outcomes.md").read_text(encoding="utf-8")


def test_every_state_stands_there_with_its_outcome() -> None:
    rows = re.findall(r"^\| ([^|]+) \| [^|]+ \| ([A-Z]+) \|$", TEXT, re.MULTILINE)

    assert rows == [(state.value, state.outcome.name) for state in State]


def test_every_key_of_run_json_stands_there() -> None:
    table = TEXT.partition("### run.json")[2].partition("\n## ")[0]
    named = re.findall(r"`(\w+)`", "".join(row.split("|")[1] for row in table.splitlines() if row.startswith("| `")))
    spec = JobSpec("n", "t", "local", Layout(1, 1, "cpu"), ())

    assert sorted(named) == sorted(job_json.run_content(Run(), spec, None, None, None))
