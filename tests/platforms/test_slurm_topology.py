"""A job on a real Slurm with two leaf switches: the history knows over how many of them it lay."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from platforms.job import Outcome
from platforms.results.log_reader import LogReader
from reporting.compare.causes import provenance_values
from reporting.history.envelope import Revision
from reporting.history.run_facts import envelope_of
from tests.clusters.slurm import Cluster
from tests.clusters.slurm_slots import slot
from tests.reporting.run_json import gpu_run

pytestmark = [pytest.mark.real_slurm, pytest.mark.nightly("models", "tests/clusters")]
ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(("nodes", "switches"), [("cn[1-2]", "1"), ("cn[2-3]", "2")])
def test_a_job_of_two_nodes_says_over_how_many_switches_it_lay(nodes: str, switches: str) -> None:
    with slot() as (folder, port):
        there = Cluster(folder, port, accounting=False, settings={"TopologyPlugin": "topology/tree"})
        try:
            there.up()
            path = f"PYTHONPATH={ROOT}"
            log = there.ask(
                "srun", "-N2", f"--nodelist={nodes}", "env", path, sys.executable, "-m", "models", "node", "true"
            )
        finally:
            there.down()
    reader = LogReader()
    reader.feed(log.encode() + b"\n")
    facts = reader.finish().nodes
    run = gpu_run(node_facts=facts, nodes=list(facts))
    job = envelope_of(
        run, site="centre", run_id="r1", attempt=1, outcome=Outcome.PASSED, sane=True, revision=Revision.TEST_ENDED,
        written_s=run["started_s"] + 60,
    )  # fmt: skip
    assert provenance_values([job])["switches"] == {switches}
