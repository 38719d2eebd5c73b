"""An upgrade of some nodes of a real Slurm, from `--label before` to the verdict of `reporting compare`."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from reporting.__main__ import main
from tests.clusters.slurm import Cluster
from tests.harness.conftest import Project

RATE_OF_NODE = """
import pytest
from platforms.results import numbers

PROGRAM = '''
import os, pathlib, sys
node = os.environ["SLURMD_NODENAME"]
folder = pathlib.Path(sys.argv[1])
rate = {"cn1": 100.0, "cn2": 101.0, "cn3": 99.0, "v100n1": 100.5}[node]
rate *= float((folder / "day").read_text())
if (folder / node).exists():
    rate *= 0.95 if node == "cn1" else 0.955
print("rate:", rate)
'''

@pytest.mark.workload(command=["{python}", "-c", PROGRAM, "{root}/state"])
def test_rate(run, record):
    rate, = numbers(run.log, r"rate: (.+)")
    record(run, metrics={"rate": (rate, "GB/s", "higher")})
"""
GROUPS = ("--treated=cn1,cn2", "--control=cn3,v100n1")


@pytest.fixture
def partition(slurm: Cluster) -> Iterator[str]:
    """A partition of four nodes."""
    slurm.ask("scontrol", "create", "PartitionName=upgrade", "Nodes=cn[1-3],v100n1", "MaxTime=60", "DefaultTime=10")
    yield "upgrade"
    slurm.ask("scontrol", "delete", "PartitionName=upgrade")


@pytest.mark.real_slurm
def test_an_upgrade_of_two_nodes_has_a_verdict_after_one_session_before_and_one_after(
    project: Project,
    partition: str,
    tmp_path_factory: pytest.TempPathFactory,
    capsys: pytest.CaptureFixture[str],
) -> None:
    work = tmp_path_factory.mktemp("work")
    slurm_keys = f"slurm: {{account: z19, partition: {partition}}}"
    keys = f"work_dir: {work}\npython: {sys.executable}\npoll_s: 0.5\n{slurm_keys}\n"
    project.write("site/platforms/mine.yaml", f"scheduler: slurm\ndevice: cpu\nlayouts: {{default: [1x1]}}\n{keys}")
    project.write("site/site.yaml", "enabled: [mine]\n")
    project.write("test_rate.py", RATE_OF_NODE)
    project.write("state/day", "1.0")
    project.pytest("--platform=mine", "--label=before", *GROUPS).assert_outcomes(passed=1)

    project.write("state/cn1", "")  # upgraded
    project.write("state/cn2", "")
    project.write("state/day", "1.03")
    project.pytest("--platform=mine", "--label=after", *GROUPS).assert_outcomes(passed=1)

    capsys.readouterr()
    site = f"--site={project.path / 'site'}"
    assert main(["compare", "before", "after", site, *GROUPS]) == 1
    out = capsys.readouterr().out
    assert out.startswith("rate, mine-1x1cpu: -4.8 % [")
    assert "cn1  97.85 / 100.00: -2.15 %" in out
    assert "control       +3.00 %, the geometric mean of 2 nodes" in out
    assert main(["compare", "before", "after", site]) == 0
    assert "no verdict: one session a side" in capsys.readouterr().out
