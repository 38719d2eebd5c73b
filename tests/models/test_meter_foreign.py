"""Somebody else's training script with a copy of meter.py beside it: three lines, and its log says it all."""

import json
import os
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

METER = Path(__file__).resolve().parents[2] / "models" / "meter.py"
RANK_VARIABLES = ("RANK", "WORLD_SIZE", "SLURM_", "OMPI_", "PMI_")


class Program:
    """A script in a folder of its own."""

    def __init__(self, folder, monkeypatch, capfd):
        self.folder, self.monkeypatch, self.capfd = folder, monkeypatch, capfd
        shutil.copy(METER, folder / "meter.py")

    def run(self, text, **env):
        """Run it in this process, which has imported torch; its lines as (rank, key, value)."""
        (self.folder / "train.py").write_text(text)
        self.capfd.readouterr()
        with self.monkeypatch.context() as here:
            for name in [name for name in os.environ if name.startswith(RANK_VARIABLES)]:
                here.delenv(name)
            for name, value in env.items():
                here.setenv(name, value)
            here.chdir(self.folder)
            here.syspath_prepend(self.folder)
            here.delitem(sys.modules, "meter", raising=False)
            try:
                runpy.run_path("train.py")
            finally:
                sys.modules.pop("meter", None)
        return self.lines(self.capfd.readouterr().out)

    def start(self, text):
        """Run it in a process of its own."""
        (self.folder / "train.py").write_text(text)
        inherited = {key: value for key, value in os.environ.items() if not key.startswith(RANK_VARIABLES)}
        environ = {**inherited, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
        done = subprocess.run(
            [sys.executable, "train.py"], cwd=self.folder, env=environ, capture_output=True, text=True, timeout=300
        )
        assert done.returncode == 0, done.stderr
        return self.lines(done.stdout)

    def lines(self, text):
        found = [line.partition(":::MLLOG ")[2] for line in text.splitlines() if ":::MLLOG " in line]
        return [(line["metadata"]["rank"], line["key"], line["value"]) for line in map(json.loads, found)]


@pytest.fixture
def program(tmp_path, monkeypatch, capfd):
    return Program(tmp_path, monkeypatch, capfd)


def of(lines, key):
    return [value for _, found, value in lines if found == key]


PLAIN = """
import time, meter

for epoch in range({epochs}):
    for batch in meter.steps({loader}, samples=32):
        time.sleep(0.001)
        meter.loss(1.0 / (batch + 1))
print(meter.finish())
"""


@pytest.mark.slow
def test_one_epoch_of_a_known_length(program):
    lines = program.start(PLAIN.format(epochs=1, loader="range(16)"))
    windows, (summary,) = of(lines, "hpcml_window"), of(lines, "hpcml_summary")
    assert [(window["steps"], window["samples"]) for window in windows] == [(4, 128)] * 3
    assert (summary["warmup_steps"], summary["optimizer_steps"], summary["loss_first"]) == (3, 16, 1.0)
    assert lines[-1] == (0, "hpcml_end", {"exit_code": 0, "lines": len(lines) - 1})
    (start,) = of(lines, "hpcml_start")
    assert (start["benchmark"], start["device"]["type"], start["world"]["size"]) == (None, "cpu", 1)
    assert start["request"] == {"mode": "overlap", "warmup_steps": 3, "windows": 3, "steps_per_window": None}
    assert "torch" not in start["versions"]
    assert (program.folder / "steps-rank0.csv.gz").exists()


@pytest.mark.parametrize(
    ("loader", "windows"),
    [
        ("iter(range(15))", [(12, 384)]),  # nobody knows where it ends
        ("range(17)", [(4, 128)] * 3),  # an incomplete last window is dropped
    ],
)
def test_windows_of_one_epoch(program, loader, windows):
    lines = program.run(PLAIN.format(epochs=1, loader=loader))
    assert [(window["steps"], window["samples"]) for window in of(lines, "hpcml_window")] == windows


def test_a_last_batch_that_is_smaller_is_in_no_window(program):
    """torch's DataLoader makes one unless it is told to drop it, and windows of unequal size are refused."""
    loop = PLAIN.replace("{loader}, samples=32", "[32] * 11 + [5], samples=lambda batch: batch")
    lines = program.run(loop.format(epochs=1))
    assert [(window["steps"], window["samples"]) for window in of(lines, "hpcml_window")] == [(2, 64)] * 3


def test_several_epochs_are_a_window_each_and_the_first_is_warm_up(program):
    lines = program.run(PLAIN.format(epochs=3, loader="range(20)"))
    assert [(window["steps"], window["samples"]) for window in of(lines, "hpcml_window")] == [(20, 640)] * 2
    (summary,) = of(lines, "hpcml_summary")
    assert (summary["warmup_steps"], summary["optimizer_steps"]) == (20, 60)
    assert of(lines, "hpcml_progress")[0]["epoch"] == 1


def test_windows_of_a_given_length_end_the_loop(program):
    loader = "range(10), warmup_steps=2, steps_per_window=6, windows=2"
    lines = program.run(PLAIN.format(epochs=5, loader=loader))
    assert [window["steps"] for window in of(lines, "hpcml_window")] == [6, 6]
    assert of(lines, "hpcml_summary")[0]["optimizer_steps"] == 16  # one window in each of two epochs


def test_a_copy_is_told_apart_in_blocking_mode(program):
    loop = PLAIN.replace("time.sleep(0.001)", "\n        with meter.h2d(): time.sleep(0.002)")
    lines = program.run(loop.format(epochs=2, loader="range(5), mode='blocking'"))
    assert of(lines, "hpcml_window")[0]["h2d_s"][0] > 0.01


@pytest.mark.slow
def test_a_device_says_for_how_long_it_worked(program):
    loop = "for _ in meter.steps(range(10)):\n    time.sleep(0.01)\n    meter.worked(0.002)\n"
    (summary,) = of(program.run(f"import time, meter\n{loop}meter.finish()\n"), "hpcml_summary")
    assert summary["compute_s"] == pytest.approx(6 * 0.002)
    assert summary["stall_s"] >= 6 * 0.008 - 1e-6


def test_an_epoch_that_is_left_early_is_no_window(program):
    lines = program.run(PLAIN.format(epochs=2, loader="range(20)").replace("time.sleep(0.001)", "if batch == 9: break"))
    assert not of(lines, "hpcml_window")
    (problem,) = of(lines, "hpcml_problem")
    assert problem["gate"] == "steps"
    assert "2 of 2 passes over the loader were left before its end, as by `break`" in problem["text"]
    assert of(lines, "hpcml_end")[0]["exit_code"] == 3


def test_a_program_that_never_finishes_leaves_no_last_line(program):
    lines = program.run(PLAIN.format(epochs=2, loader="range(20)").replace("print(meter.finish())", ""))
    assert of(lines, "hpcml_start")
    assert not of(lines, "hpcml_end")


def test_finish_without_a_loop_is_no_pass(program):
    lines = program.run("import meter; assert meter.finish() == 3")
    assert of(lines, "hpcml_problem")[0]["text"].startswith("0 of 3 windows were measured")


def test_ranks_that_do_not_know_of_each_other_are_told_so(program):
    lines = program.run(PLAIN.format(epochs=1, loader="range(9)"), SLURM_PROCID="0", SLURM_STEP_NUM_TASKS="2")
    assert any(warning.startswith("one rank of several") for warning in of(lines, "hpcml_summary")[0]["warnings"])
    world = {"size": 1, "backend": None, "hosts": None, "ranks_per_host": None}
    assert of(lines, "hpcml_start")[0]["world"] == world
    assert not program.run(PLAIN.format(epochs=1, loader="range(9)"), SLURM_PROCID="1", SLURM_STEP_NUM_TASKS="2")


GROUP = """
import os, time, types, meter

ranks = [dict(zip(("SLURMD_NODENAME", "KUBERNETES_SERVICE_HOST"), pair)) for pair in {nodes}]
group = types.SimpleNamespace(
    rank=0, size=len(ranks), barrier=lambda: None,
    gather=lambda thing: [meter.this_node(rank) for rank in ranks] if isinstance(thing, str) else [thing] * len(ranks),
)
for batch in meter.steps(range(9), samples=1, group=group):
    time.sleep(0.001)
meter.finish()
"""


@pytest.mark.parametrize(
    ("nodes", "hosts", "ranks_per_host"),
    [
        ([(), ()], 1, [2, 2]),
        ([("cn1",), ("cn1",), ("cn2",)], 2, [1, 2]),  # of several nodes of Slurm on one machine
        ([("cn1", "10.0.0.1"), ("cn2", "10.0.0.1")], 1, [2, 2]),  # a pod's name, and both are in this one
    ],
)
def test_ranks_say_which_node_they_are_on(program, nodes, hosts, ranks_per_host):
    (start,) = of(program.run(GROUP.format(nodes=nodes)), "hpcml_start")
    assert (start["world"]["hosts"], start["world"]["ranks_per_host"]) == (hosts, ranks_per_host)


def test_containers_of_one_machine_are_one_host_and_other_machines_are_others(tmp_path, monkeypatch):
    import platform

    from models.meter import this_node

    one, other = tmp_path / "one", tmp_path / "other"
    one.write_text("0f1e\n")
    other.write_text("2d3c\n")
    seen = this_node({}, str(one)), this_node({"SLURMD_NODENAME": "cn1"}, str(one))
    monkeypatch.setattr(platform, "node", lambda: "a-container")
    assert seen == (this_node({}, str(one)), this_node({"SLURMD_NODENAME": "cn1"}, str(one)))
    assert this_node({"SLURMD_NODENAME": "cn1"}, str(other)) not in seen  # the variable of the first node, handed on
    assert "a-container" in this_node({}, str(tmp_path / "missing"))
    assert this_node({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, str(one)) == "a-container"


TORCH = """
import torch, meter
{group}
data = torch.utils.data.TensorDataset(torch.randn(40, 4), torch.randn(40, 1))
loader = torch.utils.data.DataLoader(data, batch_size=4)
model = torch.nn.Linear(4, 1)
for epoch in range(2):
    for x, y in meter.steps(loader):
        loss = (model(x) - y).square().mean()
        loss.backward()
        meter.loss(loss)
meter.finish()
{end}
"""


def test_torch_on_one_rank(program):
    lines = program.run(TORCH.format(group="", end=""))
    (window,), (summary,) = of(lines, "hpcml_window"), of(lines, "hpcml_summary")
    assert (window["steps"], window["samples"]) == (10, 40)  # counted in the batches
    assert summary["loss_last"] == window["loss"] > 0
    assert {"python", "torch"} <= of(lines, "hpcml_start")[0]["versions"].keys()


@pytest.mark.slow
def test_torch_on_two_ranks(program):
    group = """
import os, torch.distributed as dist
rank = int(os.fork() == 0)
dist.init_process_group("gloo", init_method="file://{}", rank=rank, world_size=2)
"""
    end = "dist.destroy_process_group()\nif rank == 0: os.wait()"
    lines = program.start(TORCH.format(group=group.format(program.folder / "store"), end=end))
    assert {rank for rank, _, _ in lines} == {0}
    (window,), (summary,) = of(lines, "hpcml_window"), of(lines, "hpcml_summary")
    assert (window["steps"], window["samples"]) == (10, 80)
    assert of(lines, "hpcml_start")[0]["world"] == {
        "size": 2, "backend": "gloo", "hosts": 1, "ranks_per_host": [2, 2]
    }  # fmt: skip
    assert not any(warning.startswith("one rank") for warning in summary["warnings"])
    assert {path.name for path in program.folder.glob("*.gz")} == {"steps-rank0.csv.gz", "steps-rank1.csv.gz"}


READING_AHEAD = """
import sys, time, torch

class Slow(torch.utils.data.Dataset):
    def __init__(self, sample_s):
        self.sample_s = sample_s
    def __len__(self):
        return 150
    def __getitem__(self, index):
        time.sleep(self.sample_s)
        return torch.zeros(1)

several = {"windows": 3, "steps_per_window": 25}
for sample_s, options in (0.15, several), (0.001, several), (0.001, {}):
    sys.modules.pop("meter", None)
    import meter
    loader = torch.utils.data.DataLoader(Slow(sample_s), batch_size=1, num_workers=4, prefetch_factor=8)
    for step, batch in enumerate(meter.steps(loader, **options)):
        time.sleep(0.01 if step else 1.5)
    meter.finish()
"""


@pytest.mark.slow
def test_windows_that_use_what_torchs_loader_has_read_ahead_are_a_warning(program):
    """Four workers read a batch in .04 s or at once, and a step takes .01 s; or windows last until nothing is left."""
    summaries = of(program.start(READING_AHEAD), "hpcml_summary")
    warned = [any(text.startswith("read ahead: about ") for text in summary["warnings"]) for summary in summaries]
    assert warned == [True, False, False], summaries
