"""Renders a job on one machine as a POSIX shell script. The `#JOB` lines at its head are for the supervisor."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from platforms.job import ConfigError, JobSpec, RefusedError, names_a_secret
from platforms.printable import printable
from platforms.schedulers import node_facts
from platforms.schedulers.job_spec import check_launcher, check_nodes, check_replicas, choose_launcher, launcher_place

if TYPE_CHECKING:
    from platforms.config.schema import Platform

# Variables of the launcher that started this session, as in a Slurm allocation: a job would take them for its own.
FOREIGN_RANKS = (
    *("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "MASTER_ADDR", "MASTER_PORT"),
    *("SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_NODEID", "SLURM_NNODES", "SLURM_STEP_NUM_TASKS"),
    *("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"),
    *("PMI_RANK", "PMI_SIZE", "PMIX_RANK"),
)
# Counts the cores of another machine. nproc would obey variables that the machine's owner exports.
CORES = "$(unset OMP_NUM_THREADS OMP_THREAD_LIMIT; nproc 2>/dev/null || getconf _NPROCESSORS_ONLN)"


def render(spec: JobSpec, platform: Platform, home: str | None = None) -> str:
    """Return the script; the same spec gives the same text. Raises as Scheduler.render does.

    `home` is the work_dir of a job on another machine, about which nothing else is known here; None on this machine.
    """
    head = ["#!/bin/sh", f"# {printable(spec.key)} on {printable(spec.platform)}, {spec.layout}"]
    head += [f"#JOB name={printable(spec.name)}", f"#JOB time_limit_s={spec.time_limit_s:.15g}"]
    head += [f"#JOB start_limit_s={spec.start_limit_s:.15g}"]
    if spec.grace_s != JobSpec.grace_s:  # the supervisor's own
        head += [f"#JOB grace_s={spec.grace_s:.15g}"]
    python = _python(spec, platform, home)
    command = _wrap(_command(spec, platform, python[-1], home))
    body = ["unset " + _wrap(FOREIGN_RANKS), *_exports(spec, platform, home), *load_modules(platform), *platform.setup]
    if python[-1] in command:
        body += python[:-1]
    if home is not None and spec.archive is None and spec.python == "auto":
        programs = _quote(_environment(home, platform), "work_dir")
        body.append(f'export PATH={programs}:"$PATH"  # the python3 that was prepared, where there is one')
    return "\n".join([*head, "", *body, "", f"exec {command}"]) + "\n"


def check_machine(spec: JobSpec, host_name: str | None) -> None:
    """Raise RefusedError if a job asks for a reservation, or for another machine than that of this host name.

    The host name may be a full one, and the job's the part before the first dot. None: it is not known yet.
    """
    check_nodes(spec, reservations="one machine has no reservations")
    if host_name is None:
        return
    others = [name for name in spec.nodes if name != host_name and not host_name.startswith(f"{name}.")]
    if others:
        raise RefusedError(
            f"{spec.platform} is one machine, {host_name}, and the job asks for {', '.join(others)}: leave the nodes "
            "out, or use a platform with a scheduler"
        )


def lint(spec: JobSpec, text: str, platform: Platform) -> tuple[str, ...]:
    """Return a sentence for each of the site's rules that the job breaks, with the script's line and the rule."""
    rules = platform.policy
    problems = []
    if rules.max_time_s is not None and spec.time_limit_s > rules.max_time_s:
        line = text.partition("#JOB time_limit_s=")[0].count("\n") + 1
        limits = f"{spec.time_limit_s:g} s are more than {rules.max_time_s:g} s"
        problems.append(f"line {line}: {limits} ({platform.source}: policy: max_time)")
    if rules.max_running is not None and platform.max_running > rules.max_running:
        more = f"{platform.max_running} are more jobs at a time than {rules.max_running}"
        problems.append(f"line 1: max_running: {more} ({platform.source}: policy: max_running)")
    return tuple(problems)


def unwritten_variables(spec: JobSpec) -> dict[str, str]:
    """Return the variables that travel in the environment instead of the script.

    Secrets must not be written down, and the supervisor reads the lock's name before the script runs.
    """
    return {name: value for name, value in spec.env.items() if names_a_secret(name) or name == "HPC_ML_BENCH_LOCK"}


def archive_there(home: str, archive: Path) -> str:
    """Return where the code archive lies on another machine."""
    return f"{home}/archives/{archive.name}"


def _command(spec: JobSpec, platform: Platform, python: str, home: str | None) -> list[str]:
    """Return the command as quoted words; `python` is quoted already."""
    if spec.layout.nodes > 1:
        raise RefusedError(
            f"{spec.platform} is one machine, and layout {spec.layout} asks for {spec.layout.nodes} nodes: write "
            f"1x{spec.layout.devices} under `layouts:` in {platform.source}, or use a platform with a scheduler"
        )
    if platform.container is not None:
        raise RefusedError(
            f"{spec.platform}: the scheduler {platform.scheduler} starts no containers: remove `container:` from "
            f"{platform.source} and name a Python with torch there as `python:`"
        )
    check_replicas(spec, platform)
    check_launcher(spec, platform)
    there = None
    if spec.code is not None:
        there = str(spec.code.absolute()) if home is None else archive_there(home, spec.code)
    rank = [_quote(word, "the command line") for word in spec.rank_command(there)]
    launcher = choose_launcher(spec.launcher, spec.ranks)
    facts: list[str] = []
    if spec.node_facts is not None:
        facts = node_facts.shell_words(_quote(str(there), "work_dir"), python)
    if launcher == "none":
        return [python, *rank] if spec.archive else [*facts, *rank]
    if launcher == "torchrun":
        # --local-addr: the machine's own name need not resolve; --no-python: a test's own command is complete
        torchrun = [python, "-m", "torch.distributed.run", "--standalone", "--nnodes=1", "--local-addr=127.0.0.1"]
        torchrun.append(f"--nproc-per-node={spec.ranks_per_node}")
        if spec.archive is None:
            torchrun.append("--no-python")
        return [*facts, *torchrun, *rank]
    raise RefusedError(
        f"{spec.platform}: launcher {launcher} belongs to another scheduler; on one machine there are none and "
        f"torchrun: write one of them as {launcher_place(spec, platform)}"
    )


def _python(spec: JobSpec, platform: Platform, home: str | None) -> list[str]:
    """Return shell lines that find the job's Python, if any are needed, and as the last item the word that runs it."""
    if spec.python != "auto":
        return [_quote(spec.python, "python")]
    if home is None:
        return [_quote(sys.executable, "python")]
    prepared = _quote(f"{_environment(home, platform)}/python", "work_dir")
    return [f"python={prepared}", '[ -x "$python" ] || python=python3', '"$python"']


def _environment(home: str, platform: Platform) -> str:
    """Return the folder of programs in the environment that `prepare --env` makes."""
    return f"{home}/env-{platform.name}/bin"


def load_modules(platform: Platform) -> list[str]:
    """Return lines that load the environment modules. Only a login shell is sure to know the command `module`."""
    if not platform.modules:
        return []
    lines = ["command -v module >/dev/null || . /etc/profile"]
    for module in platform.modules:
        name = _quote(module, "modules")
        lines.append(f"module load {name} || {{ echo cannot load the module {name} >&2; exit 126; }}")
    return lines


def _exports(spec: JobSpec, platform: Platform, home: str | None) -> list[str]:
    values = {"PYTHONUNBUFFERED": "1", **platform.env, **spec.env}
    for name in values:
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            raise ConfigError([f"{platform.source}: env: {name!r} is no name that a shell can export"])
    values["HPC_ML_BENCH_JOB"] = spec.name
    lines = [_export(name, value) for name, value in values.items()]
    if "OMP_NUM_THREADS" not in values:
        lines = [*_threads(spec, home), *lines]
    return lines


def _threads(spec: JobSpec, home: str | None) -> list[str]:
    """Return lines that share the cores of the machine among the ranks."""
    if spec.threads_per_rank is None and home is not None:
        lines = [f"threads=$(( {CORES} / {spec.ranks_per_node} ))", "[ $threads -ge 1 ] || threads=1"]
        return [*lines, "export OMP_NUM_THREADS=$threads"]
    cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    return [f"export OMP_NUM_THREADS={spec.threads_per_rank or max(1, cores // spec.ranks_per_node)}"]


def _export(name: str, value: str) -> str:
    """Return the line that sets a variable. A secret is never written down: it comes with the environment."""
    if names_a_secret(name):
        return f"# {name} comes from the environment"
    return f"export {name}={_quote(value, name)}"


def _quote(word: str, where: str) -> str:
    if "\0" in word:
        raise ConfigError([f"{where}: a NUL character cannot be handed to a program"])
    return shlex.quote(word)


def _wrap(words: Sequence[str], width: int = 100) -> str:
    """Break a long command into lines that people can read, before an option if possible."""
    lines: list[str] = []
    for word in words:
        full = bool(lines) and len(lines[-1]) + len(word) > width
        if not lines or full or (word.startswith("--") and len(lines[-1]) > width - 30):
            lines.append(word)
        else:
            lines[-1] += f" {word}"
    return " \\\n    ".join(lines)
