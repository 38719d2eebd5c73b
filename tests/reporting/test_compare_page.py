"""The examples of docs/compare.md, made again."""

from __future__ import annotations

import math
import random
from pathlib import Path

import pytest

from reporting.__main__ import main
from reporting.history.envelope import Envelope
from tests.reporting.campaigns import campaign, on_nodes, parts, site_with

PAGE = (Path(__file__).resolve().parents[2] / "docs/compare.md").read_text()
SESSIONS = (  # night, run id, label, what the day does to all nodes, what the upgrade costs
    (45, "20261116-220312-a4c1", "before", 0.0, 0.0),
    (47, "20261118-220240-71be", "after", 0.02, 0.04),
)
UPGRADED = [f"n{number:02}" for number in range(1, 7)]
OTHERS = [f"n{number:02}" for number in range(7, 13)]


def upgrade() -> list[Envelope]:
    """Twelve nodes on Monday and on Wednesday. Six got a driver that costs 4 %; on Wednesday all are 2 % faster."""
    chance = random.Random(7)
    levels = {node: 410 * math.exp(chance.gauss(0, 0.01)) for node in (*UPGRADED, *OTHERS)}
    runs = []
    for night, run_id, label, day, loss in SESSIONS:
        values = {}
        for node, level in levels.items():
            change = day + chance.gauss(0, 0.01) + (math.log1p(-loss) if node in UPGRADED else 0.0)
            values[node] = level * math.exp(change)
        upgraded = UPGRADED if label == "after" else []
        runs += on_nodes(night, label, values, upgraded, run_id=run_id)
    return runs


def weeks() -> list[Envelope]:
    """Four nights with the old driver and four with the new one, of four jobs each."""
    chance = random.Random(3)
    runs = []
    for first, driver, level, step in ((30, "570.124", 412.0, 96.0), (40, "580.65", 395.5, 100.1)):
        levels = [level * math.exp(chance.gauss(0, 0.006)) for _night in range(4)]
        runs += campaign("nightly", levels, first, provenance={"driver": driver}, beside=parts(2, 1, step))
    return runs


@pytest.mark.parametrize(
    ("runs", "words"),
    [
        (upgrade, ["before", "after", "--treated", "n01..n06", "--control", "n07..n12"]),
        (weeks, ["driver=570.124", "driver=580.65", "deepcam"]),
    ],
)
def test_the_output_of_the_page_is_that_of_the_command(
    runs, words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["compare", f"--site={site_with(tmp_path, runs())}", *words])
    sentence, *table = capsys.readouterr().out.partition("\nHow each row")[0].splitlines()
    assert f"$ python -m reporting compare {' '.join(words)}\n{sentence}\n" in PAGE
    if "--treated" in words:
        assert "\n".join(table) in PAGE
