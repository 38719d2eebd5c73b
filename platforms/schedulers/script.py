"""A job on one machine as a POSIX shell script, whose head tells the supervisor what it must know."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from platforms.job import ConfigError, JobSpec, RefusedError, names_a_secret

if TYPE_CHECKING:
    from platforms.config import Platform

# Of the launcher that started the session itself, as in a Slurm allocation: the job would take them for its own.
FOREIGN_RANKS = (
    *("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "MASTER_ADDR", "MASTER_PORT"),
    *("SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_NODEID", "SLURM_NNODES", "SLURM_STEP_NUM_TASKS"),
    *("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"),
    *("PMI_RANK", "PMI_SIZE", "PMIX_RANK"),
)


def render(spec: JobSpec, platform: Platform) -> str:
    """The script; the same spec gives the same text. Raises RefusedError and ConfigError as Scheduler.render does."""
    lines = ["#!/bin/sh", f"# {_one_line(spec.test)} on {_one_line(spec.platform)}, {spec.layout}"]
    lines += [f"#JOB name={_one_line(spec.name)}", f"#JOB time_limit_s={spec.time_limit_s:.15g}"]
    lines += [f"#JOB start_limit_s={spec.start_limit_s:.15g}", "", "unset " + _wrap(FOREIGN_RANKS)]
    lines += [_export(name, value) for name, value in _environment(spec, platform).items()]
    lines += ["", "exec " + _wrap([_quote(word, "the command line") for word in _command(spec, platform)])]
    return "\n".join(lines) + "\n"


def _command(spec: JobSpec, platform: Platform) -> list[str]:
    if spec.layout.nodes > 1:
        raise RefusedError(
            f"{spec.platform} is one machine, and layout {spec.layout} asks for {spec.layout.nodes} nodes: write "
            f"1x{spec.layout.devices} under `layouts:` in {platform.source}, or use a platform with a scheduler"
        )
    if spec.benchmark is not None and spec.archive is None:
        raise ValueError(f"{spec.name}: a benchmark of ours needs its code archive")
    python = sys.executable if spec.python == "auto" else spec.python
    rank = spec.rank_command()
    launcher = spec.launcher
    if launcher == "auto":
        launcher = "none" if spec.ranks == 1 else "torchrun"
    if launcher == "none":
        return [python, *rank] if spec.benchmark else rank
    if launcher == "torchrun":
        # --local-addr: the machine's own name need not resolve; --no-python: somebody's command is complete
        run = [python, "-m", "torch.distributed.run", "--standalone", "--nnodes=1", "--local-addr=127.0.0.1"]
        run.append(f"--nproc-per-node={spec.ranks_per_node}")
        return [*run, *([] if spec.benchmark else ["--no-python"]), *rank]
    raise RefusedError(
        f"{spec.platform}: launcher {launcher} belongs to another scheduler; on one machine there are none and "
        f"torchrun: write one of them as `launcher:` in {platform.source}"
    )


def _environment(spec: JobSpec, platform: Platform) -> dict[str, str]:
    cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    threads = spec.threads_per_rank or max(1, cores // spec.ranks_per_node)
    values = {"OMP_NUM_THREADS": str(threads), "PYTHONUNBUFFERED": "1", **platform.env, **spec.env}
    for name in values:
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            raise ConfigError([f"{platform.source}: env: {name!r} is no name that a shell can export"])
    return {**values, "HPC_ML_BENCH_JOB": spec.name}


def _export(name: str, value: str) -> str:
    """A secret is never written down: whoever submits hands it on in the environment."""
    return f"# {name} comes from the environment" if names_a_secret(name) else f"export {name}={_quote(value, name)}"


def _quote(word: str, where: str) -> str:
    if "\0" in word:
        raise ConfigError([f"{where}: a NUL character cannot be handed to a program"])
    return shlex.quote(word)


def _one_line(text: str) -> str:
    """For a comment: a line break in it would start a command."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def _wrap(words: Sequence[str], width: int = 100) -> str:
    """Break a long command, before an option if it has some, so that people can read it."""
    lines: list[str] = []
    for word in words:
        full = bool(lines) and len(lines[-1]) + len(word) > width
        if not lines or full or (word.startswith("--") and len(lines[-1]) > width - 30):
            lines.append(word)
        else:
            lines[-1] += f" {word}"
    return " \\\n    ".join(lines)
