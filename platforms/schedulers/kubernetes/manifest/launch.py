"""The command line of a pod: launcher, program and arguments, escaped for Kubernetes."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

from platforms.job import JobSpec, RefusedError
from platforms.schedulers import node_facts
from platforms.schedulers.job_spec import check_launcher, choose_launcher, launcher_place

if TYPE_CHECKING:
    from platforms.config.schema import Platform

CODE = "/hpc-ml-bench/code"  # the folder of the code archive in a pod
CONFIG_MAP_BYTES = 1 << 20  # the most that a ConfigMap holds
# Kubernetes fills these variables in from the pod's environment (k8s_templates/indexed_job.yaml).
_RENDEZVOUS = ["--node-rank=$(JOB_COMPLETION_INDEX)", "--master-addr=$(MASTER_ADDR)", "--master-port=$(MASTER_PORT)"]
# torchrun gives up later than this suite stops a pod that does not start, so that the job's reason is that pod's.
_AFTER_START_LIMIT_S = 60
# poprun starts an mpirun, which refuses root without both (eidf-docs, services/graphcore/training/L2_multiple_IPU).
_MPIRUN_AS_ROOT = ["OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"]


def command(spec: JobSpec, platform: Platform) -> list[str]:
    """The whole command line of one node; [] if a test names no program.

    Raises RefusedError for a launcher that cannot start the job.
    """
    program = [literal(word) for word in _program(spec, platform)]
    launcher = choose_launcher(spec.launcher, spec.ranks)
    if not program:
        return []
    check_launcher(spec, platform)
    facts: list[str] = []
    if spec.node_facts is not None:
        facts = node_facts.words(f"{CODE}/{spec.node_facts.name}", literal(python_of(spec)))
    if launcher == "none":
        return [*facts, *program]
    if launcher == "torchrun":
        return [*facts, *_torchrun(spec, platform, program)]
    if launcher == "poprun":
        return [*facts, *_poprun(spec, platform, program)]
    raise RefusedError(
        f"{platform.name}: launcher {launcher} belongs to another scheduler; in pods there are torchrun, poprun (IPUs) "
        f"and none: write one of them as {launcher_place(spec, platform)}"
    )


def python_of(spec: JobSpec) -> str:
    return "python3" if spec.python == "auto" else spec.python


def archive_of(spec: JobSpec, platform: Platform) -> str | None:
    """The path of the code archive in the pod; None for a user's own program."""
    if spec.archive is None:
        return None
    return platform.kubernetes.archive or f"{CODE}/{spec.archive.name}"


def too_large(spec: JobSpec) -> str:
    """Explain why the code does not fit into a ConfigMap; empty if it fits, or if there is no code yet."""
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
    """Escape a text for a command line or a variable, in which Kubernetes fills `$(NAME)` and reads `$$` as `$`."""
    return re.sub(r"\$(?=[$(])", "$$", text)


def _program(spec: JobSpec, platform: Platform) -> list[str]:
    archive = archive_of(spec, platform)
    if archive is None:
        return list(spec.arguments)
    return [python_of(spec), *spec.rank_command(archive)]


def start_limit_s(platform: Platform) -> int:
    """The time that a pod may take from when it has a node to its first line of output, in whole seconds."""
    return math.ceil(platform.kubernetes.pod_start_limit_s)


def _torchrun(spec: JobSpec, platform: Platform, program: list[str]) -> list[str]:
    nodes = spec.layout.nodes
    if nodes == 1:
        rendezvous = ["--standalone", "--local-addr=127.0.0.1"]  # a pod's own name need not resolve
    else:
        # Without this, torchrun waits 15 minutes for the other nodes.
        timeout_s = start_limit_s(platform) + _AFTER_START_LIMIT_S
        rendezvous = [*_RENDEZVOUS, f"--rdzv-conf=timeout={timeout_s}"]
    if spec.archive:
        rank = program[1:]  # torchrun starts Python itself
    else:
        rank = ["--no-python", *program]
    torchrun = [literal(python_of(spec)), "-m", "torch.distributed.run"]
    return [*torchrun, f"--nnodes={nodes}", f"--nproc-per-node={spec.ranks_per_node}", *rendezvous, *rank]


def _poprun(spec: JobSpec, platform: Platform, program: list[str]) -> list[str]:
    """One process for each of the platform's ranks (options: https://docs.graphcore.ai/projects/poprun-user-guide)."""
    if spec.layout.unit != "ipu":
        raise RefusedError(
            f"{platform.name}: poprun starts ranks that drive IPUs, and layout {spec.layout} has none: write another "
            f"{launcher_place(spec, platform)}"
        )
    options = [
        f"--num-instances={spec.ranks}",
        f"--num-replicas={spec.replicas}",
        f"--ipus-per-replica={spec.devices_per_replica}",
    ]
    if platform.kubernetes.user == 0:
        options.append("--allow-run-as-root=1")
        return ["env", *_MPIRUN_AS_ROOT, "poprun", *options, *program]
    return ["poprun", *options, *program]
