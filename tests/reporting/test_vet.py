"""`python -m reporting vet`: what nodes are by their last runs, and what is written for a prolog."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from reporting.__main__ import main
from reporting.fleet.limits import limits_of, told
from reporting.history.writer import HistoryWriter
from tests.reporting.fleet_history import visit

Capture = pytest.CaptureFixture[str]
GIB = 2**30


def look(memory_gib: float = 251.5, **parts: Any) -> dict[str, Any]:
    """What one run says of its node."""
    host = {"main_memory_bytes": memory_gib * GIB, "node_cores": 64}
    cards = [{"name": "mlx5_0/1", "rate_gbit_s": 200.0, "state": "ACTIVE"}, {"name": "eth1", "state": "down"}]
    return {"host": host, "network": {"list": cards}, "storage": {"work": "lustre"}, **parts}


def gpus(count: int) -> dict[str, Any]:
    return {"devices": {"list": [{"pci_bus_id": f"0000:0{number}:00.0"} for number in range(count)]}}


def test_the_best_of_the_last_runs_is_the_limit() -> None:
    """A job may see a part of its node: one GPU of four."""
    looks = [look(**gpus(1)), look(125.7, **gpus(4)), look()]
    assert limits_of(looks, "/scratch/runs") == {
        "memory GiB": 251.5,
        "cores": 64,
        "devices": 4,
        "links of 200 Gbit/s": 1,
        "file system of /scratch/runs": "lustre",
    }


def test_a_line_of_before_main_memory_was_recorded_has_the_jobs_own() -> None:
    assert limits_of([{"host": {"memory_bytes": 100 * GIB}}], None) == {"memory GiB": 100}


def test_file_systems_that_differ_are_not_signed() -> None:
    looks = [look(storage={"work": "lustre"}), look(storage={"work": "xfs"})]
    assert "file system of /scratch/runs" not in limits_of(looks, "/scratch/runs")
    looks = [look(storage={"work": "lustre"}), look(storage={"work": "overlay"})]
    assert limits_of(looks, "/scratch/runs")["file system of /scratch/runs"] == "lustre"


def test_nodes_that_are_alike_stand_in_one_line() -> None:
    limits = {f"n{number}": limits_of([look()], None) for number in range(3)}
    assert told(limits) == ["3 nodes: memory GiB 252, cores 64, links of 200 Gbit/s 1 (n0, n1, n2)"]
    limits["n7"] = limits_of([look(125.75)], None)
    _, seven, advice = told(limits)
    assert seven == "1 node: memory GiB 126, cores 64, links of 200 Gbit/s 1 (n7)"
    assert advice.endswith("Repair it before you sign.")


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A site whose history has two visits of each of two nodes."""
    folder = tmp_path / "centre"
    writer = HistoryWriter(folder / "history")
    for night in range(2):
        for hour, node in enumerate(("n01", "n02")):
            writer.write(visit(night, node, 100.0, hour=hour), {"node_facts": {node: look()}})
    return folder


def vet(site: Path, *words: str) -> int:
    return main(["vet", "eidf_a100", f"--site={site}", *words])


def test_without_sign_nothing_is_written(site: Path, capsys: Capture) -> None:
    before = sorted(site.rglob("[!.]*"))
    assert vet(site) == 0
    assert capsys.readouterr().out.startswith("2 nodes: memory GiB 252, cores 64, links of 200 Gbit/s 1")
    assert sorted(site.rglob("[!.]*")) == before


def test_a_history_without_facts_says_how_to_get_them(tmp_path: Path, capsys: Capture) -> None:
    HistoryWriter(tmp_path / "history").write(visit(0, "n01", 100.0), None)
    assert vet(tmp_path) == 2
    assert (
        "no run of eidf_a100 says what its nodes are; `pytest -m eidf_a100 --each-node=stale`"
        in capsys.readouterr().err
    )


def test_facts_that_cannot_be_read_are_told(site: Path, capsys: Capture) -> None:
    for path in (site / "history").rglob("*.runs.jsonl"):
        path.unlink()
    assert vet(site) == 2
    *warnings, error = capsys.readouterr().err.splitlines()
    assert warnings
    assert all(line.startswith("warning: ") for line in warnings), warnings
    assert error.startswith("error: ")


def test_the_facts_of_a_pod_are_its_nodes(tmp_path: Path, capsys: Capture) -> None:
    """In a pod they have the pod's name. Which of two pods was on which node is not known."""
    writer = HistoryWriter(tmp_path / "history")
    writer.write(visit(0, "n01", 100.0), {"node_facts": {"vet-x7c6j": look()}})
    writer.write(visit(1, "n02,n03", 100.0), {"node_facts": {"vet-0": look(), "vet-1": look()}})
    writer.write(visit(2, "n04", 100.0), {"node_facts": {"vet-0": look(), "vet-1": look()}})
    begun_again = visit(3, "n05", 100.0, sane=False)  # and failed before n05 said what it is
    writer.write(begun_again, {"node_facts": {"n06": look()}})
    assert vet(tmp_path) == 0
    assert capsys.readouterr().out.endswith("(n01)\n")


def test_a_value_that_the_site_lacks_is_no_folder(tmp_path: Path, capsys: Capture) -> None:
    """As for the history of another centre: the platform's file has `work_dir: ${site.cirrus_work_dir}`."""
    writer = HistoryWriter(tmp_path / "history")
    writer.write(visit(0, "n01", 100.0, platform="cirrus_ex"), {"node_facts": {"n01": look()}})
    assert main(["vet", "cirrus_ex", f"--site={tmp_path}"]) == 0
    assert "file system" not in capsys.readouterr().out


def test_whole_numbers_are_signed_as_people_write_them(site: Path, tmp_path: Path) -> None:
    assert vet(site, f"--sign={tmp_path / 'limits'}") == 0
    assert '"cores": 64,\n' in (tmp_path / "limits" / "limits.json").read_text()


def test_the_prolog_that_was_signed_runs(site: Path, tmp_path: Path, capsys: Capture) -> None:
    """With the archive, the limits and the script as they are written; n01 has half of the memory that is asked."""
    folder = tmp_path / "limits"
    assert vet(site, f"--sign={folder}") == 0
    assert f"Written: {folder}. " in capsys.readouterr().out
    assert sorted(path.name for path in folder.iterdir()) == ["limits.json", "models.pyz", "prolog.sh"]
    assert os.access(folder / "prolog.sh", os.X_OK)
    content = json.loads((folder / "limits.json").read_text())
    assert content["nodes"].keys() == {"n01", "n02"}
    assert content["signed"].keys() == {"by", "at", "platform"}

    content["nodes"] = {"n01": {"memory GiB": 1e9}, "n02": {"memory GiB": 0.001}}
    (folder / "limits.json").write_text(json.dumps(content))
    for path in (folder, *folder.iterdir()):
        path.chmod(path.stat().st_mode & ~0o022)
    script = (folder / "prolog.sh").read_text().replace("/usr/bin/python3", sys.executable)
    (folder / "prolog.sh").write_text(script)
    codes = {}
    for node in ("n01", "n02", "n03"):
        done = subprocess.run([folder / "prolog.sh"], env={"SLURMD_NODENAME": node}, capture_output=True, check=False)
        codes[node] = done.returncode
    assert codes == {"n01": 1, "n02": 0, "n03": 0}
