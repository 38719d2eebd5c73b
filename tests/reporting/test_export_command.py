"""`python -m reporting export`: the file is written as a whole, and what cannot be done is said with what to type."""

from __future__ import annotations

import json
import re
import stat
from pathlib import Path

import pytest
from prometheus_client import parser as text_format

from reporting.__main__ import main
from reporting.report.exports import dashboard_file
from tests.reporting.table_history import record, record_nights
from tests.reporting.test_exports import NAMES

PAGE = Path(__file__).resolve().parents[2] / "docs/exports.md"
DEEPCAM = {"test": "test_deepcam.py::test_deepcam[a100-1x4gpu-tuned]", "benchmark": "deepcam"}


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A site of two tests whose last night is 2026-10-22."""
    folder = tmp_path / "centre"
    record_nights(folder / "history", 22)
    record(folder / "history", 21, 100.0, **DEEPCAM)
    return folder


def export(site: Path, *words: str | Path) -> int:
    return main(["export", *map(str, words), f"--site={site}", "--tonight=2026-10-22"])


def workloads_in(file: Path) -> set[str]:
    families = text_format.text_string_to_metric_families(file.read_text())
    return {
        sample.labels["workload"] for family in families for sample in family.samples if "workload" in sample.labels
    }


def test_a_prom_file_that_other_users_can_read_takes_the_place_of_the_old_one(site: Path, tmp_path: Path) -> None:
    file = tmp_path / "bench.prom"
    file.write_text("old")
    file.chmod(0o600)
    assert export(site, "prometheus", "-o", file) == 0
    assert workloads_in(file) == {"resnet50", "deepcam"}
    assert stat.S_IMODE(file.stat().st_mode) == 0o644
    assert {path.name for path in tmp_path.iterdir()} == {"centre", "bench.prom"}


def test_a_history_that_holds_nothing_leaves_the_old_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "bench.prom"
    file.write_text("old")
    assert export(tmp_path / "empty", "prometheus", "-o", file) == 2
    assert file.read_text() == "old"
    assert "error: " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["prometheus", "-o", "bench.txt"],
            "node_exporter reads only files whose names end in .prom (-o bench.txt.prom)",
        ),
        (["grafana", "a100"], "the dashboard has a list of tests to choose from"),
    ],
)
def test_what_cannot_be_written_is_refused(
    site: Path, words: list[str], said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(site)
    assert export(site, *words) == 2
    captured = capsys.readouterr()
    assert said in captured.err
    assert captured.out == ""


def test_a_backfill_ends_with_its_mark(site: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert export(site, "openmetrics", "-o", tmp_path / "past.om") == 0
    lines = (tmp_path / "past.om").read_text().splitlines()
    assert lines[-1] == "# EOF"
    assert sum(line.startswith("hpc_ml_bench_value{") for line in lines) == 23
    assert capsys.readouterr().err.endswith(f"written to {tmp_path / 'past.om'}\n")


def test_the_dashboard_needs_no_history(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert export(tmp_path / "none", "grafana") == 0
    assert json.loads(capsys.readouterr().out)["uid"] == "hpc-ml-bench"


def test_gitlab_gets_a_line_for_each_number(site: Path, tmp_path: Path) -> None:
    assert export(site, "gitlab", "-o", tmp_path / "metrics.txt") == 0
    lines = (tmp_path / "metrics.txt").read_text().splitlines()
    assert [line.rpartition(" ")[2] for line in lines if not line.startswith("#")] == ["100", "400", "0"]


# --- the page ---------------------------------------------------------------------------------------------------------


def test_the_page_has_every_metric_and_every_alert() -> None:
    text = PAGE.read_text()
    named = {f"hpc_ml_bench_{name}" for name in re.findall(r"`([a-z_]+)`", text)}
    assert sorted(NAMES - named) == []
    alerts = re.findall(r"alert: (\w+)", dashboard_file().with_name("alerts.yml").read_text())
    assert [alert for alert in alerts if f"`{alert}`" not in text] == []
