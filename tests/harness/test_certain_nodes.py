"""Jobs that must run on certain nodes: `--nodes` finds them busy, out of service, or elsewhere."""

from __future__ import annotations

import os
import sys

import pytest

from tests.clusters.slurm import Cluster
from tests.harness.conftest import Project

SLURM = """\
scheduler: slurm
device: cpu
layouts: {{default: [1x1]}}
python: {python}
work_dir: {work}
poll_s: 0.5
slurm: {{account: z19}}
"""


@pytest.mark.real_slurm
def test_a_drained_node_is_an_error_at_once(
    project: Project, slurm: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> None:
    project.job_test()
    work = tmp_path_factory.mktemp("work")
    project.write("site/platforms/cluster.yaml", SLURM.format(python=sys.executable, work=work))
    project.write("site/site.yaml", "enabled: [cluster]\n")
    slurm.ask("scontrol", "update", "nodename=cn2", "state=drain", "reason=bad DIMM")
    result = project.pytest("-m", "cluster", "--nodes=cn2")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*node cn2 is drained: 'bad DIMM', by * since *scontrol update nodename=cn2*resume*"])
    project.pytest("-m", "cluster", "--nodes=cn3").assert_outcomes(passed=1)


def test_another_machine_than_this_one_is_refused_with_its_name(project: Project) -> None:
    project.job_test()
    project.platform("here")
    own = os.uname().nodename
    result = project.pytest("-m", "here", "--nodes=n07")
    assert result.ret != 0
    result.stdout.fnmatch_lines([f"*here is one machine, {own}, and the job asks for n07*"])
    assert project.jobs() == []
    project.pytest("-m", "here", f"--nodes={own}").assert_outcomes(passed=1)
