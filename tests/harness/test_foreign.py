"""A training script of somebody's own, started as docs/foreign-loops.md says, in layouts of one node and of several."""

from __future__ import annotations

import json
import re
import shutil
import sys

import pytest

from tests.clusters.slurm import Cluster
from tests.harness.conftest import ROOT, Project

PAGE = (ROOT / "docs" / "foreign-loops.md").read_text()
(DOCUMENTED,) = re.findall(
    r"^```python\n# site/test_mine.py, beside site/train.py\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE
)
# A script of torch as others write it: it takes what the launcher says, and says nothing of nodes.
TRAINING = """
import os, time
import torch
import torch.distributed as dist
import meter

dist.init_process_group("gloo")
data = torch.utils.data.TensorDataset(torch.randn(40, 4), torch.randn(40, 1))
model = torch.nn.Linear(4, 1)
for x, y in meter.steps(torch.utils.data.DataLoader(data, batch_size=4)):
    loss = (model(x) - y).square().mean()
    loss.backward()
    for parameter in model.parameters():  # to import DistributedDataParallel takes as long as to import torch
        dist.all_reduce(parameter.grad)
    meter.loss(loss)
    time.sleep(0.04)  # what other work on the machine takes is little beside it
meter.finish()
line = "rank {RANK} of {WORLD_SIZE} on {SLURMD_NODENAME}".format_map({"SLURMD_NODENAME": None, **os.environ})
os.write(1, (line + os.linesep).encode())  # one write: print makes several, and other ranks print at the same time
dist.barrier()
dist.destroy_process_group()
"""
ALL_ON_ONE_NODE = 'command=["{python}", "-m", "torch.distributed.run", "--nproc-per-node={devices}", "{root}/train.py"]'
LAYOUTS = ("1x1", "1x2", "2x2")


@pytest.fixture
def training(project: Project) -> Project:
    project.write("train.py", TRAINING)
    shutil.copy(ROOT / "models" / "meter.py", project.path)
    project.write("test_mine.py", DOCUMENTED)
    return project


def on(project: Project, scheduler: str, layouts: tuple[str, ...], more: str = "") -> None:
    text = (
        f"scheduler: {scheduler}\ndevice: cpu\nlayouts: {{default: [{', '.join(layouts)}]}}\nnode_facts: true\n{more}"
    )
    project.write("site/platforms/mine.yaml", text + "env: {OMP_NUM_THREADS: '1', CUDA_VISIBLE_DEVICES: ''}\n")
    project.write("site/site.yaml", "enabled: [mine]\n")


@pytest.fixture
def through_slurm(training: Project, slurm: Cluster, tmp_path_factory: pytest.TempPathFactory) -> str:
    """What the file of a platform on the test's Slurm says beside its layouts."""
    work = tmp_path_factory.mktemp("work")
    return f"work_dir: {work}\npython: {sys.executable}\npoll_s: 0.5\nslurm: {{account: z19}}\n"


def run_of(project: Project, layout: str) -> dict:
    (path,) = project.path.glob(f"runs/2*/*{layout}cpu*/run.json")
    return json.loads(path.read_text())


def ranks_of(project: Project, layout: str) -> list[tuple[str, str, str]]:
    """(rank, world size, node), as the ranks said it themselves."""
    (path,) = project.path.glob(f"runs/2*/*{layout}cpu*/log")
    return sorted(re.findall(r"^rank (\d+) of (\d+) on (\w+)$", path.read_text(), re.MULTILINE))


def all_compute(project: Project, *layouts: str) -> None:
    """A session passes, in which each rank of each layout says where it is."""
    project.pytest("--platform", "mine").assert_outcomes(passed=len(layouts))
    for layout in layouts:
        nodes, devices = map(int, layout.split("x"))
        run, ranks = run_of(project, layout), ranks_of(project, layout)
        assert [int(rank) for rank, _, _ in ranks] == list(range(nodes * devices))
        assert {size for _, size, _ in ranks} == {str(nodes * devices)}
        world = run["start"]["world"]
        assert (world["size"], world["hosts"], world["ranks_per_host"]) == (nodes * devices, nodes, [devices, devices])


def all_nodes_compute(project: Project, *layouts: str) -> None:
    """On Slurm: the ranks are on all nodes of the job, and these are as many as the layout says."""
    all_compute(project, *layouts)
    for layout in layouts:
        nodes = run_of(project, layout)["nodes"]
        assert {node for _, _, node in ranks_of(project, layout)} == set(nodes)
        assert len(nodes) == int(layout.partition("x")[0])
        facts = run_of(project, layout)["node_facts"]
        assert set(facts) == set(nodes)
        assert all(parts.keys() >= {"host", "program", "after"} for parts in facts.values())


@pytest.mark.slow
def test_as_documented_on_this_machine(training: Project) -> None:
    on(training, "local", ("1x2",))
    all_compute(training, "1x2")


@pytest.mark.real_slurm
def test_as_documented_on_slurm_all_nodes_of_the_layout_compute(training: Project, through_slurm: str) -> None:
    on(training, "slurm", ("2x2",), through_slurm)
    all_nodes_compute(training, "2x2")


AT_NIGHT = pytest.mark.nightly(
    "harness/spec.py", "platforms/schedulers", "platforms/results/gates.py", "models/meter.py"
)


@AT_NIGHT
@pytest.mark.real_slurm
@pytest.mark.parametrize("launcher", ["srun", "platform"])
def test_with_other_launchers_all_nodes_compute_too(training: Project, through_slurm: str, launcher: str) -> None:
    on(training, "slurm", LAYOUTS, through_slurm)
    training.write("test_mine.py", DOCUMENTED.replace('launcher="torchrun"', f'launcher="{launcher}"'))
    all_nodes_compute(training, *LAYOUTS)


@AT_NIGHT
@pytest.mark.real_slurm
def test_a_command_that_uses_one_node_of_two_is_no_result_of_two(training: Project, through_slurm: str) -> None:
    on(training, "slurm", LAYOUTS, through_slurm)
    mark = 'command=["{python}", "{root}/train.py"], launcher="torchrun"'
    training.write("test_mine.py", DOCUMENTED.replace(mark, f'{ALL_ON_ONE_NODE}, launcher="none"'))
    training.pytest("--platform", "mine").assert_outcomes(passed=2, failed=1)
    (problem,) = run_of(training, "2x2")["problems"]
    assert re.fullmatch(r"hosts: layout 2x2cpu asks for 2, and its ranks ran on 1 \(.+\); let launcher=.*", problem)
    assert len({node for _, _, node in ranks_of(training, "2x2")}) == 1
    assert run_of(training, "1x2")["problems"] == []


@pytest.mark.slow
def test_without_a_launcher_several_nodes_are_refused_and_other_jobs_are_shown(training: Project) -> None:
    on(training, "slurm", LAYOUTS, "work_dir: /work/me\nslurm: {account: z19}\n")
    mark = 'command=["{python}", "{root}/train.py"], launcher="torchrun"'
    training.write("test_mine.py", DOCUMENTED.replace(mark, ALL_ON_ONE_NODE))
    said = "*2x2cpu* has 2 nodes, and nothing starts the command on all of them. Write launch*"
    result = training.refuses("--platform", "mine", "--dry-run", says=said)
    result.stdout.fnmatch_lines(["*2 jobs rendered, none submitted*"])


@pytest.mark.parametrize(
    ("mark", "said"),
    [
        ("command=['true'], launcher='mpirun'", "'mpirun' is not one of ours (on Slurm write srun*"),
        ("command=['true'], launcher='auto'", "'auto' is not one of platform, torchrun, srun, poprun, none"),
        ("benchmark='resnet50', launcher='srun'", "launcher is for command=*the platform's file*"),
    ],
)
@pytest.mark.slow
def test_a_launcher_that_cannot_be(project: Project, mark: str, said: str) -> None:
    project.write("test_it.py", f"import pytest\n@pytest.mark.workload({mark})\ndef test_it(run): pass\n")
    project.pytest().stdout.fnmatch_lines([f"*workload: *{said}"])


def test_the_words_of_a_command_are_filled_in(project: Project) -> None:
    on(project, "slurm", ("2x4",), "work_dir: /work/me\nranks_per_device: 2\nslurm: {account: z19}\n")
    words = "{nodes} {devices} {ranks} {devices_per_node} {ranks_per_node} {data_dir} {other}"
    project.write("test_it.py", f"import pytest\n@pytest.mark.workload(command=['echo', '{words}'], launcher='none')\n"
                  "def test_it(run): pass\n")  # fmt: skip
    project.pytest("--platform", "mine", "--dry-run").stdout.fnmatch_lines(["*echo '2 8 16 4 8 /work/me/data {other}'"])
