"""From a test to its job: a frozen JobSpec out of its case, its workload mark and its parameters, nothing executed."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from harness import manifests, select
from harness.select import Case
from platforms.config.values import seconds_of
from platforms.job import JobSpec
from platforms.schedulers import backend_of
from platforms.schedulers.job_spec import choose_launcher, new_spec

# Parameters of a test that are options of the job, as in @pytest.mark.parametrize("global_batch_size", [256, 512])
JOB_OPTIONS = (
    "global_batch_size", "local_batch_size", "accumulation_steps", "workers", "seed", "shape", "channels_last",
    "warmup_steps", "windows", "steps_per_window",
)  # fmt: skip
INJECTIONS = ("inject_stall_s", "inject_rank", "inject_slow")
# A layout's unit, where the job calls it otherwise; ROCm's torch says cuda too.
DEVICE_NAMES: Mapping[str, str] = {"gpu": "cuda"}


@dataclass(frozen=True)
class JobRequest:
    """What a test asks of its platform, before it is put into words."""

    mark: Mapping[str, object]
    case: Case
    parameters: Mapping[str, Any]  # the test's own, and `platform`
    folder: Path  # of the test's file
    root: Path  # of the checkout
    spec: JobSpec  # the job as the platform's file has it, without its command


def spec_of(item: pytest.Item, case: Case, run_id: str, archive: Path, root: Path) -> JobSpec:
    """The job of one test. `root` is where relative data folders start; `{root}` in a command is the folder of the
    test's own file."""
    mark, platform = select.workload(item) or {}, case.platform
    benchmark = str(mark["benchmark"]) if "benchmark" in mark else None
    label = benchmark or getattr(item, "originalname", item.name).removeprefix("test_")
    spec = new_spec(platform, label=label, test=item.nodeid, layout=case.layout, run_id=run_id)
    if "time_limit" in mark:
        spec = replace(spec, time_limit_s=seconds_of(str(mark["time_limit"])))
    asked = JobRequest(mark, case, getattr(item, "callspec").params, item.path.parent, root, spec)  # noqa: B009
    if benchmark is None:
        arguments, request, data_dir = own_program(asked), dict[str, object](), None
        launcher = own_launcher(asked, f"{item.nodeid}: @pytest.mark.workload")
    else:
        arguments, request, data_dir = our_benchmark(asked, benchmark)
        launcher = choose_launcher(platform.launcher, spec.ranks)
    return replace(
        spec,
        arguments=(*arguments, *_words(mark, "arguments")),
        benchmark=benchmark,
        launcher=launcher,
        archive=archive if benchmark else None,
        data_dir=data_dir,
        request={name: value for name, value in request.items() if value != "auto"},
        **(manifests.of(item, mark, manifest_parameters(asked)) if backend_of(platform).takes_manifests else {}),
    )


def manifest_parameters(asked: JobRequest) -> dict[str, object]:
    """What a test's function that makes its manifest may ask for."""
    layout = asked.case.layout
    known = {"nodes": layout.nodes, "devices": layout.devices_per_node, "ranks": asked.spec.ranks}
    return {**known, **asked.parameters, "platform": asked.case.platform.name}


def own_program(asked: JobRequest) -> list[str]:
    """Somebody's own command, its holes filled: python, root, platform, the numbers of the layout, parameters."""
    platform, layout = asked.case.platform, asked.case.layout
    python = "python3" if asked.spec.python == "auto" else asked.spec.python
    holes: dict[str, object] = {"root": asked.folder, "python": python, "platform": platform.name}
    holes.update(nodes=layout.nodes, devices=layout.devices, ranks=asked.spec.ranks)
    holes.update(devices_per_node=layout.devices_per_node, ranks_per_node=asked.spec.ranks // layout.nodes)
    return [_fill(word, {**holes, **asked.parameters}) for word in _words(asked.mark, "command")]


def own_launcher(asked: JobRequest, where: str) -> str:
    """What starts somebody's own command: what its test says, else nothing, and the command runs once.

    Raises UsageError where the layout has several nodes and the command would run on one of them only.
    """
    if "command" not in asked.mark:
        return "none"
    platform, layout = asked.case.platform, asked.case.layout
    given = launcher = asked.mark.get("launcher")
    if given == "platform":
        launcher = "torchrun" if platform.launcher == "auto" else platform.launcher
    once = launcher in (None, "none") and given != "none"
    if once and layout.nodes > 1 and "manifest" not in asked.mark:
        raise pytest.UsageError(
            f"{where}: the layout {layout} has {layout.nodes} nodes, and nothing starts the command on all of them. "
            'Write launcher="torchrun" for a script of torch (its command is then the script alone), launcher="srun" '
            'for an MPI program on Slurm, or launcher="none" where the command itself starts its ranks on every node '
            "(docs/foreign-loops.md)"
        )
    return "none" if once else str(launcher)


def our_benchmark(asked: JobRequest, benchmark: str) -> tuple[list[str], dict[str, object], str]:
    """The command line of `models train`, the request that it must answer in `hpcml_start`, and its data folder."""
    platform, given = asked.case.platform, asked.parameters
    settings = {**asked.case.settings, **{name: str(given[name]) for name in select.SETTINGS if name in given}}
    request: dict[str, object] = {**settings, **{name: given[name] for name in JOB_OPTIONS if name in given}}
    if settings.get("configuration") == "tuned" and "dtype" not in request and platform.dtype != "auto":
        request["dtype"] = platform.dtype
    request["device"] = DEVICE_NAMES.get(asked.case.layout.unit, asked.case.layout.unit)
    if platform.workers is not None:
        request.setdefault("workers", platform.workers)
    rest: dict[str, object] = {name: given[name] for name in INJECTIONS if name in given}
    rest["data_dir"] = data_dir = platform.data_folder(benchmark, settings["size"], asked.root)
    rest["expect_world_size"] = asked.spec.ranks
    rest["time_limit_s"] = f"{asked.spec.time_limit_s:g}"
    arguments = ["train", benchmark, *_flags({**request, **rest}), *platform.arguments]
    return arguments, {**request, "world_size": asked.spec.ranks}, data_dir


def _flags(values: Mapping[str, object]) -> list[str]:
    return [word for name, value in values.items() for word in (f"--{name.replace('_', '-')}", str(value))]


def _words(mark: Mapping[str, object], name: str) -> Sequence[str]:
    words = mark.get(name, ())
    assert isinstance(words, Sequence)
    return [str(word) for word in words]


def _fill(word: str, holes: Mapping[str, object]) -> str:
    """Fill `{name}` for the names we know; any other brace is the command's own."""
    return re.sub(r"\{(\w+)\}", lambda hole: str(holes.get(hole[1], hole[0])), word)
