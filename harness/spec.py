"""From a test to its job: a frozen JobSpec out of its case, its workload mark and its parameters, nothing executed."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from harness import manifests, select
from harness.select import Case
from platforms.config.schema import Platform
from platforms.config.values import seconds_of
from platforms.job import JobSpec, job_name, run_label
from platforms.schedulers import backend_of

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
    time_limit_s: float

    @property
    def ranks(self) -> int:
        return self.case.layout.devices * self.case.platform.ranks_per_device

    @property
    def python(self) -> str:
        """The job's Python; "auto" where it is found out on the machine of the job."""
        return backend_of(self.case.platform).job_python(self.case.platform)


def spec_of(item: pytest.Item, case: Case, run_id: str, archive: Path, root: Path) -> JobSpec:
    """The job of one test. `root` is where relative data folders start; `{root}` in a command is the folder of the
    test's own file."""
    mark, platform = select.workload(item) or {}, case.platform
    time_limit_s = seconds_of(str(mark["time_limit"])) if "time_limit" in mark else platform.time_limit_s
    asked = JobRequest(mark, case, getattr(item, "callspec").params, item.path.parent, root, time_limit_s)  # noqa: B009
    benchmark = str(mark["benchmark"]) if "benchmark" in mark else None
    if benchmark is None:
        arguments, request, data_dir = own_program(asked), dict[str, object](), None
        launcher = own_launcher(asked, f"{item.nodeid}: @pytest.mark.workload")
    else:
        arguments, request, data_dir = our_benchmark(asked, benchmark)
        launcher = _launcher(platform, asked.ranks)
    label = benchmark or getattr(item, "originalname", item.name).removeprefix("test_")
    return JobSpec(
        name=job_name(label, case.layout, run_id, item.nodeid),
        test=item.nodeid,
        platform=platform.name,
        layout=case.layout,
        arguments=(*arguments, *_words(mark, "arguments")),
        benchmark=benchmark,
        launcher=launcher,
        ranks_per_device=platform.ranks_per_device,
        threads_per_rank=platform.threads_per_rank,
        python=asked.python,
        archive=archive if benchmark else None,
        data_dir=data_dir,
        env=platform.env,
        time_limit_s=time_limit_s,
        start_limit_s=platform.start_limit_s,
        request={name: value for name, value in request.items() if value != "auto"},
        run=run_label(run_id),
        **(manifests.of(item, mark, manifest_parameters(asked)) if backend_of(platform).takes_manifests else {}),
    )


def manifest_parameters(asked: JobRequest) -> dict[str, object]:
    """What a test's function that makes its manifest may ask for."""
    layout = asked.case.layout
    known = {"nodes": layout.nodes, "devices": layout.devices_per_node, "ranks": asked.ranks}
    return {**known, **asked.parameters, "platform": asked.case.platform.name}


def own_program(asked: JobRequest) -> list[str]:
    """Somebody's own command, its holes filled: python, root, platform, the numbers of the layout, parameters."""
    platform, layout = asked.case.platform, asked.case.layout
    python = "python3" if asked.python == "auto" else asked.python
    holes: dict[str, object] = {"root": asked.folder, "python": python, "platform": platform.name}
    holes.update(nodes=layout.nodes, devices=layout.devices, ranks=asked.ranks)
    holes.update(devices_per_node=layout.devices_per_node, ranks_per_node=asked.ranks // layout.nodes)
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
    rest["expect_world_size"] = asked.ranks
    rest["time_limit_s"] = f"{asked.time_limit_s:g}"
    arguments = ["train", benchmark, *_flags({**request, **rest}), *platform.arguments]
    return arguments, {**request, "world_size": asked.ranks}, data_dir


def _launcher(platform: Platform, ranks: int) -> str:
    if platform.launcher != "auto":
        return platform.launcher
    return "torchrun" if ranks > 1 else "none"


def _flags(values: Mapping[str, object]) -> list[str]:
    return [word for name, value in values.items() for word in (f"--{name.replace('_', '-')}", str(value))]


def _words(mark: Mapping[str, object], name: str) -> Sequence[str]:
    words = mark.get(name, ())
    assert isinstance(words, Sequence)
    return [str(word) for word in words]


def _fill(word: str, holes: Mapping[str, object]) -> str:
    """Fill `{name}` for the names we know; any other brace is the command's own."""
    return re.sub(r"\{(\w+)\}", lambda hole: str(holes.get(hole[1], hole[0])), word)
