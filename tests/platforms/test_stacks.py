"""Jobs with a stack: every scheduler renders what the stack names, and nothing else changes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from platforms.config.schema import Platform
from platforms.job import Layout
from platforms.rundir import job_json
from platforms.schedulers import SCHEDULERS, backend_of
from platforms.schedulers.job_spec import new_spec

PLACES: dict[str, dict[str, Any]] = {
    "local": {},
    "ssh": {"work_dir": "/work/me", "modules": ["cuda/12"]},
    "slurm": {"work_dir": "/work/me", "modules": ["cuda/12"]},
    "kubernetes": {"data_dir": "/data", "kubernetes": {"image": "a/b:1"}},
}
DIFFERENCES: dict[str, dict[str, Any]] = {
    "local": {"python": "/opt/new"},
    "ssh": {"modules": ["cuda/new"]},
    "slurm": {"modules": ["cuda/new"]},
    "kubernetes": {"image": "a/b:new"},
}


@pytest.mark.parametrize("name", SCHEDULERS)
def test_a_job_with_a_stack_is_rendered_with_it(name: str) -> None:
    stack = {"env": {"LEVEL": "new"}, **DIFFERENCES[name]}
    keys = {"scheduler": name, "device": "cpu", "layouts": {"default": ("1x1",)}, "env": {"LEVEL": "own"}}
    platform = Platform(name="it", source=Path("it.yaml"), **keys, **PLACES[name], stacks={"today": {}, "new": stack})
    scheduler = backend_of(platform).connect(platform)

    def text(of_platform: Platform) -> str:
        spec = new_spec(
            of_platform, label="x", test="test_x.py::test_x", layout=Layout(1, 1, "cpu"), run_id="r", arguments=["true"]
        )
        return scheduler.render(replace(spec, archive=Path("models-1.pyz"), stack=of_platform.stack))

    own, today, new = text(platform), text(platform.with_stack("today")), text(platform.with_stack("new"))
    assert own == today
    changed = [after for before, after in zip(own.splitlines(), new.splitlines(), strict=True) if before != after]
    assert len(changed) >= 2
    assert all("new" in line for line in changed)


def test_what_was_submitted_names_the_stack() -> None:
    platform = Platform(name="it", stacks={"new": {}})
    spec = new_spec(platform, label="x", test="test_x.py::test_x", layout=Layout(1, 1, "cpu"), run_id="r")
    content = job_json.submitted_content(replace(spec, stack="new"), "1", 0.0)
    assert job_json.spec_from_submitted(spec.name, spec.test, "it", content).stack == "new"
