"""Renders a JobSpec as an sbatch script: the template slurm_templates/job.sh with its #SBATCH lines and its launch.

The last command of the script starts the ranks. `launch` builds it from the inside out: the rank's own command, a shell
that sets what the rank needs (torchrun, MASTER_ADDR), the container's words around it, and srun before all of it.
"""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from platforms.config import sbatch_options
from platforms.config.durations import clock
from platforms.config.keys import ContainerKeys
from platforms.job import ConfigError, JobSpec, RefusedError, names_a_secret
from platforms.printable import printable
from platforms.schedulers import node_facts
from platforms.schedulers.job_spec import check_launcher, check_nodes, check_replicas, launcher_place
from platforms.schedulers.slurm.rows import VET_STEP, expand_nodes
from platforms.schedulers.slurm.submission import is_below

if TYPE_CHECKING:
    import jinja2

    from platforms.config.schema import Platform

TEMPLATE = Path(__file__).resolve().parents[3] / "slurm_templates" / "job.sh"
GRES: Mapping[str, str] = {"gpu": "gpu", "ipu": "ipu", "csx": "cs"}  # names of generic resources at most sites
DEADLINE_MARGIN_S = 300  # of Slurm's deadline beyond our own limits: Slurm counts in minutes
# srun runs on the first node, whose address every task can reach. Its name need not resolve.
ADDRESS = 'export MASTER_ADDR="${MASTER_ADDR:-${SLURM_LAUNCH_NODE_IPADDR:-}}"; '
MEETING = ADDRESS + 'exec "$@"'
# The look at a node before the ranks start. It ends with 0 in any case: --kill-on-bad-exit would end the other nodes'.
VET = ADDRESS + 'timeout -k 5 55 "$@" || echo "vet: ${SLURMD_NODENAME:-this node} is not vetted (exit code $?)"'
# The variables that torchrun would set for each rank, for a program that reads them under srun too.
RANK = (
    'export RANK="$SLURM_PROCID" WORLD_SIZE="$SLURM_NTASKS" LOCAL_RANK="$SLURM_LOCALID" LOCAL_WORLD_SIZE={ranks} '
    'MASTER_ADDR="${{MASTER_ADDR:-${{SLURM_LAUNCH_NODE_IPADDR:-127.0.0.1}}}}"; exec "$@"'
)
# torchrun is one process on each node, which starts the node's ranks.
TORCHRUN = """\
export OMP_NUM_THREADS=${{OMP_NUM_THREADS:-$(( ($(nproc) + {ranks} - 1) / {ranks} ))}}
exec "$0" -m torch.distributed.run --nnodes={nodes} --nproc-per-node={ranks} --node-rank="${{SLURM_NODEID:-0}}" \
--master-addr="${{SLURM_LAUNCH_NODE_IPADDR:-127.0.0.1}}" --master-port="$MASTER_PORT" "$@"\
"""


def folder_of(platform: Platform, name: str) -> str:
    """Return the folder of a job's script, log and exit file on the login node."""
    return f"{platform.work_dir}/jobs/{name}"


def archive_of(platform: Platform, spec: JobSpec) -> str:
    """Return where the code archive lies on the login node."""
    assert spec.code is not None
    return f"{platform.work_dir}/archives/{spec.code.name}"


def render(spec: JobSpec, platform: Platform) -> str:
    """Return the script. Raises RefusedError and ConfigError as Scheduler.render does."""
    _check(spec, platform)
    python, fallback_python = _python(spec, platform)
    holes: dict[str, Any] = {
        "spec": spec,
        "folder": folder_of(platform, spec.name),
        "directives": directives(spec, platform),
        "env": _environment(spec, platform),
        "modules": platform.modules,
        "setup": platform.setup,
        "python": python if spec.archive else None,
        "fallback_python": fallback_python,
        "python_folder": _python_folder(spec, platform),
        "has_container": platform.container is not None,
        "rendezvous": spec.launcher == "torchrun" or (spec.launcher == "srun" and spec.archive is None),
        "vet": vet_step(spec, platform),
        "launch": launch(spec, platform),
        "steps_known": "yes" if _steps_known(spec, platform) else "no",
    }
    return _template().render(holes)


def _check(spec: JobSpec, platform: Platform) -> None:
    """Raise RefusedError for a job that Slurm cannot start, ConfigError for a text that no script can hold."""
    check_nodes(spec)
    check_replicas(spec, platform)
    site_nodes = sbatch_options.last_value("--exclude", platform.slurm.directives) or ""
    excluded = sorted(set(spec.nodes) & set(expand_nodes(site_nodes)))
    if excluded:
        raise RefusedError(
            f"{platform.name}: the job asks for {', '.join(excluded)}, and `slurm: {{directives: [--exclude=…]}}` in "
            f"{platform.source} excludes it: choose another node, or remove it there"
        )
    if spec.launcher not in ("none", "srun", "torchrun"):
        raise RefusedError(
            f"{platform.name}: launcher {spec.launcher} belongs to another scheduler; with Slurm there are srun, "
            f"torchrun and none: write one of them as {launcher_place(spec, platform)}"
        )
    check_launcher(spec, platform, several="`launcher: srun` or torchrun")
    texts = [*spec.arguments, *spec.env.values(), *platform.modules, *platform.setup]
    if any("\0" in text or "\r" in text for text in texts):
        raise ConfigError([f"{platform.source}: a NUL or carriage return cannot stand in a batch script"])


# --- #SBATCH lines ---------------------------------------------------------------------------------------------------


def directives(spec: JobSpec, platform: Platform) -> list[str]:
    """Return the options of the #SBATCH lines, each as it is written.

    Of an option that stands there twice sbatch takes the last, so what the job asks for stands behind the site's own.
    """
    keys = platform.slurm
    folder = folder_of(platform, spec.name)
    options: list[tuple[str, object]] = [
        ("job-name", spec.name),
        ("account", keys.account),
        ("partition", keys.partition),
        ("qos", keys.qos),
        ("constraint", keys.constraint),
        ("reservation", keys.reservation if spec.reservation is None else None),
        ("nodes", spec.layout.nodes),
    ]
    if keys.tasks == "sbatch":
        options += _task_options(spec, platform)
    options += _device_options(spec, platform)
    latest_end_s = math.ceil(spec.start_limit_s + spec.time_limit_s + DEADLINE_MARGIN_S)
    options += [
        ("mem", keys.mem),
        ("time", _whole_minutes(spec.time_limit_s)),
        ("deadline", f"now+{latest_end_s}"),
        ("output", f"{folder}/log".replace("%", "%%")),
        ("chdir", f"{folder}/work"),
        ("open-mode", "append"),
    ]
    lines = [_option(name, value) for name, value in options if value is not None]
    if keys.exclusive:
        lines.append("--exclusive")
    lines += ["--no-requeue", "--export=NONE", *keys.directives]
    excluded_nodes = _excluded_nodes(spec, platform)
    if excluded_nodes:
        lines.append(_option("exclude", excluded_nodes))
    if spec.nodes:
        lines.append(_option("nodelist", ",".join(spec.nodes)))
    if spec.reservation is not None:
        lines.append(_option("reservation", spec.reservation))
    return lines


def _excluded_nodes(spec: JobSpec, platform: Platform) -> str | None:
    """Return the nodes that failed earlier attempts and those that the site excludes: only the last --exclude counts.

    None where the site's own --exclude is enough, and where the job names its nodes. If all nodes of a job with several
    are to be avoided, we do not know which one failed, and Slurm gives a job no node that is down. A site's file of
    nodes (a path, to sbatch) is on the login node: names cannot join it.
    """
    site_nodes = sbatch_options.last_value("--exclude", platform.slurm.directives)
    all_of_several = spec.layout.nodes > 1 and len(spec.avoid_nodes) >= spec.layout.nodes
    if not spec.avoid_nodes or all_of_several or spec.nodes:
        return None
    if not site_nodes:
        return ",".join(spec.avoid_nodes)
    if "/" in site_nodes:
        return None
    return ",".join([site_nodes, *spec.avoid_nodes])


def _task_options(spec: JobSpec, platform: Platform) -> list[tuple[str, object]]:
    """Return how many processes Slurm starts, and on how many CPUs each. torchrun is one process on each node."""
    tasks_per_node = _tasks_per_node(spec)
    options: list[tuple[str, object]] = [
        ("ntasks", tasks_per_node * spec.layout.nodes),
        ("ntasks-per-node", tasks_per_node),
    ]
    cpus_per_rank = platform.slurm.cpus_per_rank or spec.threads_per_rank
    if cpus_per_rank is not None:
        options.append(("cpus-per-task", cpus_per_rank * spec.ranks_per_node // tasks_per_node))
    return options


def _device_options(spec: JobSpec, platform: Platform) -> list[tuple[str, object]]:
    """Return the option that asks for devices; none for CPUs, which are no devices to Slurm."""
    if spec.layout.unit == "cpu":
        return []
    keys = platform.slurm
    per_node = spec.layout.devices_per_node
    name = keys.gres or GRES[spec.layout.unit]
    device_type = name.partition(":")[2]
    type_prefix = f"{device_type}:" if device_type else ""
    if keys.gpus == "gres":
        return [("gres", f"{name}:{per_node}")]
    if keys.gpus == "gpus":
        return [("gpus", f"{type_prefix}{spec.layout.devices}")]
    if keys.gpus == "gpus-per-node" or spec.launcher == "none":
        return [("gpus-per-node", f"{type_prefix}{per_node}")]
    tasks_per_node = _tasks_per_node(spec)
    if per_node % tasks_per_node:
        raise RefusedError(
            f"{platform.name}: {tasks_per_node} tasks a node cannot share {per_node} devices by gpus-per-task: write "
            f"`slurm: {{gpus: gres}}` or another `ranks_per_device:` in {platform.source}"
        )
    return [("gpus-per-task", f"{type_prefix}{per_node // tasks_per_node}")]


def _tasks_per_node(spec: JobSpec) -> int:
    return spec.ranks_per_node if spec.launcher == "srun" else 1


def _whole_minutes(seconds: float) -> str:
    """A time as --time reads it, rounded up: Slurm counts in minutes."""
    return clock(60 * max(1, math.ceil(seconds / 60)))


def _option(name: str, value: object) -> str:
    text = str(value)
    if not text.isprintable():
        raise ConfigError([f"--{name}: {text!r} cannot stand in a #SBATCH line"])
    return f"--{name}={shlex.quote(text)}"


# --- the launch ------------------------------------------------------------------------------------------------------


def launch(spec: JobSpec, platform: Platform) -> list[str]:
    """Return the last command of the script, word by word, each as the shell reads it."""
    command = _in_container(_rank_command(spec, platform), spec, platform)
    container = platform.container
    srun_starts_container = container is not None and container.runtime in ("pyxis", "edf")
    if spec.launcher == "none" and not srun_starts_container:
        return command
    return [*_srun(spec, platform), *command]


def vet_step(spec: JobSpec, platform: Platform) -> list[str]:
    """Return the command that compares the nodes before the ranks start, one process on each, with all its CPUs.

    [] where the platform does not ask for it, and for a job without a code archive.
    """
    if not platform.slurm.vet or spec.code is None:
        return []
    python = "python3" if spec.python == "auto" else shlex.quote(spec.python)
    if spec.archive is not None:
        python = '"$python"'
    known = ",".join(_environment(spec, platform))
    words = [archive_of(platform, spec), "vet", "job", "--known", known]
    words += ["--unfit", f"{folder_of(platform, spec.name)}/unfit"]
    command = ["sh", "-c", shlex.quote(VET), "sh", python, *map(shlex.quote, words)]
    one_a_node = replace(spec, launcher="torchrun")
    srun = [*_srun(one_a_node, platform), f"--job-name={VET_STEP}"]
    if platform.slurm.gpus == "gpus-per-task":
        srun += [_option(name, value) for name, value in _device_options(one_a_node, platform)]
    return [*srun, *_in_container(command, spec, platform)]


def _in_container(command: list[str], spec: JobSpec, platform: Platform) -> list[str]:
    if platform.container is None:
        return command
    return [*map(shlex.quote, _container_prefix(platform.container, platform, spec)), *command]


def _srun(spec: JobSpec, platform: Platform) -> list[str]:
    """Return the words that start the tasks of a step, which are the ranks or one on each node."""
    srun = ["srun", "--kill-on-bad-exit=1", _option("nodes", spec.layout.nodes)]
    srun += [_option(name, value) for name, value in _task_options(spec, platform)]
    srun += [shlex.quote(word) for word in platform.slurm.srun]
    if platform.container is not None:
        srun += [shlex.quote(word) for word in _container_srun_options(platform.container, platform, spec)]
    return srun


def _rank_command(spec: JobSpec, platform: Platform) -> list[str]:
    """Return what srun, a container or the script itself starts: a rank, or the torchrun that starts a node's ranks."""
    if spec.archive is not None:
        rank = ['"$python"', *map(shlex.quote, spec.rank_command(archive_of(platform, spec)))]
    else:
        rank = [shlex.quote(word) for word in spec.arguments]

    facts: list[str] = []
    if spec.node_facts is not None:
        python = "python3" if spec.python == "auto" else shlex.quote(spec.python)
        facts = node_facts.shell_words(shlex.quote(archive_of(platform, spec)), python)
    if spec.launcher == "torchrun":
        script = TORCHRUN.format(nodes=spec.layout.nodes, ranks=spec.ranks_per_node)
        if spec.archive is None:  # a program that is not ours finds the platform's Python, else the one on PATH
            python = "python3" if spec.python == "auto" else spec.python
            rank = [shlex.quote(python), "--no-python", *rank]
        return [*facts, "sh", "-c", shlex.quote(script), *rank]

    if spec.launcher == "srun" and spec.archive is None:
        return [*facts, "sh", "-c", shlex.quote(RANK.format(ranks=spec.ranks_per_node)), "sh", *rank]
    if spec.launcher == "srun" and spec.layout.nodes > 1:
        return ["sh", "-c", shlex.quote(MEETING), "sh", *rank]
    return [*facts, *rank]


def _steps_known(spec: JobSpec, platform: Platform) -> bool:
    """Return whether the launch's exit code tells how every step ended: the script starts no other steps beside it."""
    setup_starts_steps = any("srun" in line for line in platform.setup)
    program_may_start_steps = spec.archive is None and spec.launcher == "none"
    return not setup_starts_steps and not program_may_start_steps


# --- containers ------------------------------------------------------------------------------------------------------


def _container_prefix(container: ContainerKeys, platform: Platform, spec: JobSpec) -> list[str]:
    """Return the words that start a container around the words that follow; none where srun's plugin starts it."""
    mounts = _mounts(container, platform, spec)
    if container.runtime == "apptainer":  # passes the environment on by itself
        return ["apptainer", "exec", *(f"--bind={mount}" for mount in mounts), *container.options, container.image]
    if container.runtime == "podman-hpc":
        return [
            "podman-hpc",
            "run",
            "--rm",
            "--env-host",
            "--network=host",  # ranks of one node meet by its network and in shared memory
            "--ipc=host",
            *(f"--volume={_mount_pair(mount)}" for mount in mounts),
            f"--workdir={folder_of(platform, spec.name)}/work",
            *container.options,
            container.image,
        ]
    return []


def _container_srun_options(container: ContainerKeys, platform: Platform, spec: JobSpec) -> list[str]:
    """Return the options of srun where its own plugin starts the container."""
    if container.runtime == "pyxis":
        mounts = ",".join(_mount_pair(mount) for mount in _mounts(container, platform, spec))
        return [
            f"--container-image={container.image}",
            f"--container-mounts={mounts}",
            f"--container-workdir={folder_of(platform, spec.name)}/work",
            *container.options,
        ]
    if container.runtime == "edf":  # the environment file names the mounts
        return [f"--environment={container.image}", *container.options]
    return []


def _mounts(container: ContainerKeys, platform: Platform, spec: JobSpec) -> list[str]:
    """Return the job's own folders, at the same paths inside and outside, then the platform's mounts."""
    mounts = [str(platform.work_dir)]
    if spec.data_dir and not is_below(spec.data_dir, str(platform.work_dir)):
        mounts.append(spec.data_dir)
    mounts += container.mounts
    return list(dict.fromkeys(mounts))


def _mount_pair(mount: str) -> str:
    return mount if ":" in mount else f"{mount}:{mount}"


# --- Python and environment ------------------------------------------------------------------------------------------


def _python(spec: JobSpec, platform: Platform) -> tuple[str, str | None]:
    """Return the interpreter, and the one to take where that is missing. A container cannot use the host's venv."""
    if spec.python != "auto":
        return spec.python, None
    if platform.container:
        return "python3", None
    return f"{platform.work_dir}/env-{platform.name}/bin/python", "python3"


def _python_folder(spec: JobSpec, platform: Platform) -> str | None:
    """Return the folder where a program that is not ours looks for python3 first: that of `prepare --env`."""
    if spec.archive is not None or spec.python != "auto" or platform.container:
        return None
    return f"{platform.work_dir}/env-{platform.name}/bin"


def _environment(spec: JobSpec, platform: Platform) -> dict[str, str]:
    values = {"PYTHONUNBUFFERED": "1"}
    if spec.threads_per_rank:
        values["OMP_NUM_THREADS"] = str(spec.threads_per_rank)
    return {**values, **platform.env, **spec.env, "HPC_ML_BENCH_JOB": spec.name}


# --- the template ----------------------------------------------------------------------------------------------------


@cache
def _template() -> jinja2.Template:
    import jinja2

    environment = jinja2.Environment(
        undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
    )
    environment.filters.update(
        q=shlex.quote,
        line=printable,  # a line break in a comment would start a command
        wrap=_wrap,
        whole=lambda seconds: f"{seconds:g}",
    )
    environment.tests["secret"] = names_a_secret
    return environment.from_string(re.sub(r"\r\n?", "\n", TEMPLATE.read_text(encoding="utf-8")))


def _wrap(words: list[str], width: int = 110) -> str:
    """Break a long command into lines that people can read."""
    lines: list[str] = []
    for word in words:
        if lines and len(lines[-1]) + len(word) <= width and "\n" not in word:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return " \\\n    ".join(lines)
