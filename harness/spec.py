"""Makes a test's JobSpec from its case, its workload mark and its parameters; nothing runs here."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from harness import cases, manifests
from harness.cases import Case
from harness.plans import TrialRequest
from platforms.config.durations import seconds_of
from platforms.config.schema import Platform
from platforms.job import DEVICE_UNITS, JobSpec
from platforms.schedulers import backend_of
from platforms.schedulers.job_spec import choose_launcher, new_spec

# Parameters of a test that are options of the job, as in @pytest.mark.parametrize("global_batch_size", [256, 512])
JOB_OPTIONS = (
    "global_batch_size", "local_batch_size", "accumulation_steps", "workers", "seed", "shape", "channels_last",
    "warmup_steps", "windows", "steps_per_window",
)  # fmt: skip
# The same, of which hpcml_start does not repeat the value that was asked for
UNCONFIRMED = ("shard", "recompute", "checkpoint")
INJECTIONS = ("inject_stall_s", "inject_copy_s", "inject_rank", "inject_slow")


@dataclass(frozen=True)
class JobRequest:
    """A test's request for a job: its mark, its case, its parameters, and the job as the platform's file has it."""

    mark: Mapping[str, object]
    case: Case
    parameters: Mapping[str, Any]  # the test's own, and `platform`
    folder: Path  # of the test's file
    root: Path  # of the checkout
    spec: JobSpec  # the job as the platform's file has it, without its command


def spec_of(item: pytest.Item, case: Case, run_id: str, archive: Path, root: Path, asked: TrialRequest) -> JobSpec:
    """Make one job of a test.

    Args:
        case: with the platform as the request's stack has it.
        asked: which of the test's jobs it is, and on which nodes.
        root: the folder of the checkout, where relative data folders start. In a command, `{root}` is another folder:
            that of the test's file.
    """
    mark = cases.workload(item) or {}
    platform = case.platform
    benchmark = str(mark["benchmark"]) if "benchmark" in mark else None
    label = benchmark or getattr(item, "originalname", item.name).removeprefix("test_")
    spec = new_spec(platform, label=label, test=item.nodeid, layout=case.layout, run_id=run_id, trial=asked.trial)
    spec = replace(spec, nodes=asked.nodes, avoid_nodes=asked.avoid_nodes, stack=asked.stack, group=asked.group)
    if case.is_tried:
        spec = replace(spec, unsupported=case.obstacle)
    if "time_limit" in mark:
        spec = replace(spec, time_limit_s=seconds_of(str(mark["time_limit"])))
    job_request = JobRequest(mark, case, getattr(item, "callspec").params, item.path.parent, root, spec)  # noqa: B009
    request: dict[str, object] = {}
    data_dir: str | None = None
    if benchmark is None:
        arguments = own_program(job_request)
        launcher = own_launcher(job_request, f"{item.nodeid}: @pytest.mark.workload")
    else:
        arguments, request, data_dir = our_benchmark(job_request, benchmark)
        if item.config.getoption("decompose"):
            arguments.append("--decompose")
        launcher = choose_launcher(platform.launcher, spec.ranks)
    manifest: dict[str, Any] = {}
    if backend_of(platform).takes_manifests:
        manifest = manifests.of(item, mark, manifest_parameters(job_request))
    return replace(
        spec,
        arguments=(*arguments, *_words(mark, "arguments")),
        benchmark=benchmark,
        launcher=launcher,
        archive=archive if benchmark else None,
        node_facts=archive if _has_facts(benchmark, arguments, platform, manifest) else None,
        data_dir=data_dir,
        request={name: value for name, value in request.items() if value != "auto"},
        **manifest,
    )


def _has_facts(
    benchmark: str | None, arguments: Sequence[str], platform: Platform, manifest: Mapping[str, object]
) -> bool:
    """Whether a job is run with a look at its nodes: a test's own command, in pods of ours."""
    return benchmark is None and bool(arguments) and platform.node_facts and not manifest.get("manifest")


def manifest_parameters(job_request: JobRequest) -> dict[str, object]:
    """List the arguments that a test's manifest function may take, by name."""
    layout = job_request.case.layout
    numbers = {"nodes": layout.nodes, "devices": layout.devices_per_node, "ranks": job_request.spec.ranks}
    return {**numbers, **job_request.parameters, "platform": job_request.case.platform.name}


def own_program(job_request: JobRequest) -> list[str]:
    """Write the test's own command. Placeholders: python, root, platform, data_dir, layout's numbers, parameters."""
    layout = job_request.case.layout
    spec = job_request.spec
    values: dict[str, object] = {
        "root": job_request.folder,
        "python": "python3" if spec.python == "auto" else spec.python,
        "platform": job_request.case.platform.name,
        "data_dir": job_request.case.platform.data_root(job_request.root),
        "nodes": layout.nodes,
        "devices": layout.devices,
        "ranks": spec.ranks,
        "devices_per_node": layout.devices_per_node,
        "ranks_per_node": spec.ranks // layout.nodes,
        **job_request.parameters,
    }
    return [_fill(word, values) for word in _words(job_request.mark, "command")]


def own_launcher(job_request: JobRequest, where: str) -> str:
    """Choose the launcher of the test's own command: the one of its mark, else none, and the command runs once.

    Raises UsageError where the layout has several nodes and the command would run on one of them only.
    """
    if "command" not in job_request.mark:
        return "none"
    platform = job_request.case.platform
    layout = job_request.case.layout
    named = job_request.mark.get("launcher")
    launcher = named
    if named == "platform":
        launcher = "torchrun" if platform.launcher == "auto" else platform.launcher
    runs_once = launcher in (None, "none") and named != "none"
    if runs_once and layout.nodes > 1 and "manifest" not in job_request.mark:
        raise pytest.UsageError(
            f"{where}: the layout {layout} has {layout.nodes} nodes, and nothing starts the command on all of them. "
            'Write launcher="torchrun" for a script of torch (its command is then the script alone), launcher="srun" '
            'for an MPI program on Slurm, or launcher="none" where the command itself starts its ranks on every node '
            "(docs/foreign-loops.md)"
        )
    return "none" if runs_once else str(launcher)


def our_benchmark(job_request: JobRequest, benchmark: str) -> tuple[list[str], dict[str, object], str]:
    """Write the job of a benchmark of the suite.

    Returns:
        The command line of `models train`, the values that the job must confirm in `hpcml_start`, and its data folder.
    """
    platform = job_request.case.platform
    parameters = job_request.parameters
    settings = dict(job_request.case.settings)
    for name in cases.SETTINGS:
        if name in parameters:
            settings[name] = str(parameters[name])
    request: dict[str, object] = {**settings}
    for name in JOB_OPTIONS:
        if name in parameters:
            request[name] = parameters[name]
    if settings.get("configuration") == "tuned" and "dtype" not in request and platform.dtype != "auto":
        request["dtype"] = platform.dtype
    unit = DEVICE_UNITS[job_request.case.layout.unit]
    request["device"] = unit.family
    if platform.workers is not None:
        request.setdefault("workers", platform.workers)
    data_dir = platform.data_folder(benchmark, settings["size"], job_request.root)
    rest: dict[str, object] = {name: parameters[name] for name in (*INJECTIONS, *UNCONFIRMED) if name in parameters}
    rest["data_dir"] = data_dir
    rest["expect_world_size"] = job_request.spec.ranks
    confirmed: dict[str, object] = {"world_size": job_request.spec.ranks}
    if unit.driven_together:
        replicas: dict[str, object] = {
            "replicas": job_request.spec.replicas,
            "devices_per_replica": job_request.spec.devices_per_replica,
        }
        rest.update(replicas)
        confirmed.update(replicas)
    rest["time_limit_s"] = f"{job_request.spec.time_limit_s:g}"
    arguments = ["train", benchmark, *_flags({**request, **rest}), *platform.arguments]
    return arguments, {**request, **confirmed}, data_dir


def _flags(values: Mapping[str, object]) -> list[str]:
    flags = []
    for name, value in values.items():
        flags += [f"--{name.replace('_', '-')}", str(value)]
    return flags


def _words(mark: Mapping[str, object], name: str) -> Sequence[str]:
    words = mark.get(name, ())
    assert isinstance(words, Sequence)
    return [str(word) for word in words]


def _fill(word: str, values: Mapping[str, object]) -> str:
    """Replace each `{name}` that has a value; any other brace belongs to the command."""
    return re.sub(r"\{(\w+)\}", lambda match: str(values.get(match[1], match[0])), word)
