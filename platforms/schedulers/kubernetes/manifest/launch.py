"""The words that a pod runs: launcher, program, arguments, each as Kubernetes hands it on."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

from platforms.job import JobSpec, RefusedError

if TYPE_CHECKING:
    from platforms.config.schema import Platform

CODE = "/hpc-ml-bench/code"
CONFIG_MAP_BYTES = 1 << 20
# Kubernetes fills these in from the pod's own environment (k8s_templates/indexed_job.yaml).
_MEETING = ["--node-rank=$(JOB_COMPLETION_INDEX)", "--master-addr=$(MASTER_ADDR)", "--master-port=$(MASTER_PORT)"]
_LATER_S = 60


def command(spec: JobSpec, platform: Platform) -> list[str]:
    """The whole command line of one node; [] where a test names none. Raises RefusedError for a launcher that cannot
    start it."""
    program = [literal(word) for word in _program(spec, platform)]
    launcher = launcher_of(spec)
    if not program or launcher == "none":
        if program and spec.archive is not None and spec.ranks > 1:
            raise RefusedError(
                f"{platform.name}: launcher none starts one rank, and {spec.layout} has {spec.ranks}: write `launcher: "
                f"torchrun` in {platform.source}"
            )
        return program
    if launcher == "torchrun":
        return _torchrun(spec, platform, program)
    if launcher == "poprun":
        return _poprun(spec, platform, program)
    raise RefusedError(
        f"{platform.name}: launcher {launcher} belongs to another scheduler; in pods there are torchrun, poprun (IPUs) "
        f"and none: write one of them as `launcher:` in {platform.source}"
    )


def launcher_of(spec: JobSpec) -> str:
    """`auto` is torchrun where there are ranks to start."""
    if spec.launcher == "auto":
        return "torchrun" if spec.ranks > 1 else "none"
    return spec.launcher


def python_of(spec: JobSpec) -> str:
    return "python3" if spec.python == "auto" else spec.python


def archive_of(spec: JobSpec, platform: Platform) -> str | None:
    """Where the code archive lies in the pod."""
    if spec.archive is None:
        return None
    return platform.kubernetes.archive or f"{CODE}/{spec.archive.name}"


def too_large(spec: JobSpec) -> str:
    """Why the code cannot travel in a ConfigMap; "" where it can, or where there is none yet."""
    if spec.archive is None or not spec.archive.is_file():
        return ""
    size = spec.archive.stat().st_size
    if size <= CONFIG_MAP_BYTES:
        return ""
    return (
        f"{spec.archive.name}: {size} bytes are more than a ConfigMap holds ({CONFIG_MAP_BYTES}): put it into the "
        "image and write its path there as `kubernetes: {archive: …}`"
    )


def literal(text: str) -> str:
    """A text as it must stand in a command line or a variable: Kubernetes makes `$$` one dollar and fills `$(NAME)`."""
    return re.sub(r"\$(?=[$(])", "$$", text)


def _program(spec: JobSpec, platform: Platform) -> list[str]:
    archive = archive_of(spec, platform)
    return list(spec.arguments) if archive is None else [python_of(spec), *spec.rank_command(archive)]


def start_limit_s(platform: Platform) -> int:
    """How long a pod may take from its node to its first line, in whole seconds."""
    return math.ceil(platform.kubernetes.pod_start_limit_s)


def _torchrun(spec: JobSpec, platform: Platform, program: list[str]) -> list[str]:
    # --local-addr: a pod's own name need not resolve; --no-python: somebody's command is complete
    rank = program[1:] if spec.archive else ["--no-python", *program]
    nodes = spec.layout.nodes
    # 15 min without it; a little later than we end a pod that does not start, so that this is what is said
    patience = f"--rdzv-conf=timeout={start_limit_s(platform) + _LATER_S}"
    where = ["--standalone", "--local-addr=127.0.0.1"] if nodes == 1 else [*_MEETING, patience]
    run = [literal(python_of(spec)), "-m", "torch.distributed.run", f"--nnodes={nodes}"]
    return [*run, f"--nproc-per-node={spec.ranks_per_node}", *where, *rank]


def _poprun(spec: JobSpec, platform: Platform, program: list[str]) -> list[str]:
    """A process and a replica an IPU. https://docs.graphcore.ai/projects/poprun-user-guide, its options."""
    if spec.layout.unit != "ipu" or spec.ranks_per_device != 1:
        raise RefusedError(
            f"{platform.name}: poprun starts one rank an IPU, and {spec.layout} has {spec.ranks} ranks: write another "
            f"`launcher:` in {platform.source}"
        )
    ranks = [f"--num-instances={spec.ranks}", f"--num-replicas={spec.ranks}", "--ipus-per-replica=1"]
    root = ["--allow-run-as-root=1"] if platform.kubernetes.user == 0 else []
    return ["poprun", *ranks, *root, *program]
