"""Ranks that drive several devices: what is asked of a job, what its files keep of it, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from platforms import schedulers
from platforms.config.schema import Platform
from platforms.job import JobSpec, Layout, RefusedError, Run
from platforms.rundir import job_json
from platforms.schedulers.job_spec import check_launcher, check_replicas, new_spec


def platform_of(layout: Layout, **keys: Any) -> Platform:
    return Platform(name="pod16", source=Path("pod16.yaml"), device=layout.unit, **keys)


def spec_on(layout: Layout, **keys: int) -> JobSpec:
    return new_spec(
        platform_of(layout, **keys), label="resnet50", test="test_resnet50.py::test_resnet50", layout=layout, run_id="r"
    )


def read_back(content: dict[str, Any]) -> JobSpec:
    return job_json.spec_from_submitted("n", "t", "p", content)


def test_a_platform_says_what_a_rank_drives() -> None:
    spec = spec_on(Layout(1, 8, "ipu"), devices_per_replica=2, replicas_per_rank=4)
    assert (spec.replicas, spec.devices_per_replica, spec.ranks) == (4, 2, 1)


def test_the_files_of_a_job_keep_what_was_asked() -> None:
    spec = spec_on(Layout(1, 8, "ipu"), devices_per_replica=2, replicas_per_rank=4)
    submitted = job_json.submitted_content(spec, "1", 0.0)
    asked = job_json.run_content(Run(), spec, "1", None, None)["asked"]
    for kept in (submitted["asked"], asked):
        assert isinstance(kept, dict)
        drives = {"devices_per_replica": 2, "replicas_per_rank": 4, "ranks": 1}
        assert drives.items() <= kept.items()
        again = read_back({"asked": kept})
        assert (again.replicas, again.ranks, again.layout) == (spec.replicas, spec.ranks, spec.layout)


def test_files_from_before_there_were_replicas_have_a_rank_for_each_device() -> None:
    old = {"layout": "2x4gpu", "ranks_per_device": 1, "arguments": ["train", "resnet50"]}
    assert (read_back({"asked": old}).replicas, read_back({"asked": old}).ranks) == (8, 8)


@pytest.mark.parametrize(
    ("layout", "keys", "said"),
    [
        (Layout(1, 4, "gpu"), {"replicas_per_rank": 4}, "replicas_per_rank: is for ipu and csx, and layout 1x4gpu has"),
        (Layout(1, 2, "csx"), {"devices_per_replica": 2}, "devices_per_replica: is for ipu, and each csx holds a"),
        (Layout(1, 6, "ipu"), {"replicas_per_rank": 4}, "layout 1x6ipu has 6 ipu a node, and a rank drives 4 of them"),
        (Layout(1, 4, "ipu"), {"replicas_per_rank": 8}, "layout 1x4ipu has 4 ipu a node, and a rank drives 8 of them"),
        (Layout(1, 1, "ipu"), {"devices_per_replica": 2}, "layout 1x1ipu has 1 ipu a node, and a rank drives 2 of"),
        (Layout(1, 8, "ipu"), {"ranks_per_device": 2}, "no two ranks share one ipu.*remove `ranks_per_device:`"),
    ],
)
def test_what_a_rank_cannot_drive_is_refused(layout: Layout, keys: dict[str, int], said: str) -> None:
    spec, platform = spec_on(layout, **keys), platform_of(layout, **keys)
    with pytest.raises(RefusedError, match=said):
        check_replicas(spec, platform)


@pytest.mark.parametrize("scheduler", ["local", "ssh", "slurm", "kubernetes"])
@pytest.mark.parametrize(
    ("layout", "launcher", "said"),
    [
        (Layout(1, 2, "csx"), "none", "one process drives all CS systems.*write `replicas_per_rank: 2`"),
        (Layout(1, 2, "csx"), "torchrun", "one process drives all CS systems.*write `replicas_per_rank: 2`"),
        (Layout(1, 4, "ipu"), "none", "processes train together under poprun only.*write `replicas_per_rank: 4`"),
        (Layout(1, 4, "ipu"), "torchrun", "processes train together under poprun only.*write `replicas_per_rank: 4`"),
        (Layout(1, 4, "gpu"), "none", "launcher none starts one rank, and 1x4gpu has 4: write `launcher: .*torchrun"),
    ],
)
def test_ranks_that_no_process_would_be_are_refused(scheduler: str, layout: Layout, launcher: str, said: str) -> None:
    cloud = {"image": "i", "kind": "job", "resource": "vendor.com/device"}
    platform = platform_of(layout, scheduler=scheduler, work_dir="/work", kubernetes=cloud)
    spec = replace(spec_on(layout), archive=Path("models.pyz"), benchmark="resnet50", launcher=launcher)
    with pytest.raises(RefusedError, match=said):
        schedulers.connect(platform).render(spec)


def test_poprun_starts_processes_that_train_together() -> None:
    layout = Layout(1, 4, "ipu")
    spec = replace(spec_on(layout), archive=Path("models.pyz"), launcher="poprun")
    check_launcher(spec, platform_of(layout))
