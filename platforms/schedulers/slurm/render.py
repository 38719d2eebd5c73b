"""A JobSpec as an sbatch script: slurm_templates/job.sh, or the site's own in its place, with every hole filled."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from platforms.config import sbatch_options
from platforms.config.values import clock
from platforms.job import ConfigError, JobSpec, RefusedError, names_a_secret
from platforms.printable import printable
from platforms.schedulers.slurm import container

if TYPE_CHECKING:
    import jinja2

    from platforms.config.schema import Platform

TEMPLATE = Path(__file__).resolve().parents[3] / "slurm_templates" / "job.sh"
DEADLINE_MARGIN_S = 300  # beyond the limits that we keep ourselves: Slurm counts in minutes
# What a generic resource is called at most sites.
GRES: Mapping[str, str] = {"gpu": "gpu", "ipu": "ipu", "csx": "cs"}
# The first node's address is where srun itself runs, which every task is known to reach; names need not resolve.
MEETING = 'export MASTER_ADDR="${MASTER_ADDR:-${SLURM_LAUNCH_NODE_IPADDR:-}}"; exec "$@"'
# What torchrun would say to each rank, for a program that looks for it under srun too.
RANK = (
    'export RANK="$SLURM_PROCID" WORLD_SIZE="$SLURM_NTASKS" LOCAL_RANK="$SLURM_LOCALID" LOCAL_WORLD_SIZE={ranks} '
    'MASTER_ADDR="${{MASTER_ADDR:-${{SLURM_LAUNCH_NODE_IPADDR:-127.0.0.1}}}}"; exec "$@"'
)
# One process a node, which starts its ranks.
TORCHRUN = """\
export OMP_NUM_THREADS=${{OMP_NUM_THREADS:-$(( ($(nproc) + {ranks} - 1) / {ranks} ))}}
exec "$0" -m torch.distributed.run --nnodes={nodes} --nproc-per-node={ranks} --node-rank="${{SLURM_NODEID:-0}}" \
--master-addr="${{SLURM_LAUNCH_NODE_IPADDR:-127.0.0.1}}" --master-port="$MASTER_PORT" "$@"\
"""
# Before a rank in a container: the host's Python says nothing about the image's. $0 is the Python, $@ its arguments.
PYTHON_INSIDE = """\
"$0" -c 'import sys; sys.exit(sys.version_info < (3, 8))' || {{
    echo "$0 is not in the image {image}, or is older than Python 3.8: \
another image in container: of the platform, or another Python of the image in python:" >&2
    echo "$0" > {refusals}
    exit 78
}}
"""


def folder_of(platform: Platform, name: str) -> str:
    """Where a job's script, log and exit file lie on the machine."""
    return f"{platform.work_dir}/jobs/{name}"


def refusals_of(spec: JobSpec, platform: Platform) -> str | None:
    """The file that a rank in a container writes before it refuses the image's Python; None where none looks at it."""
    if platform.container is None or spec.archive is None:
        return None
    return f"{folder_of(platform, spec.name)}/refused"


def archive_of(platform: Platform, spec: JobSpec) -> str:
    """Where the code archive lies on the machine."""
    assert spec.archive is not None
    return f"{platform.work_dir}/archives/{spec.archive.name}"


def render(spec: JobSpec, platform: Platform) -> str:
    """The script. Raises RefusedError and ConfigError as Scheduler.render does."""
    check(spec, platform)
    python, python_else = _python(spec, platform)
    holes: dict[str, Any] = {
        "spec": spec,
        "folder": folder_of(platform, spec.name),
        "directives": directives(spec, platform),
        "env": _environment(spec, platform),
        "modules": platform.modules,
        "setup": platform.setup,
        "python": python if spec.archive else None,
        "python_else": python_else,
        "python_folder": _python_folder(spec, platform),
        "refusals": refusals_of(spec, platform),
        "rendezvous": spec.launcher == "torchrun" or (spec.launcher == "srun" and spec.archive is None),
        "launch": launch(spec, platform),
        "steps_known": "yes" if steps_known(spec, platform) else "no",
    }
    return _template().render(holes)


def check(spec: JobSpec, platform: Platform) -> None:
    """Raises RefusedError for what Slurm cannot start, ConfigError for what no script can hold."""
    if spec.launcher not in ("none", "srun", "torchrun"):
        raise RefusedError(
            f"{platform.name}: launcher {spec.launcher} belongs to another scheduler; with Slurm there are srun, "
            f"torchrun and none: write one of them as `launcher:` in {platform.source}"
        )
    if spec.launcher == "none" and spec.ranks > 1 and spec.archive is not None:
        raise RefusedError(
            f"{platform.name}: launcher none starts one rank, and {spec.layout} has {spec.ranks}: write `launcher: "
            f"srun` or torchrun in {platform.source}"
        )
    texts = [*spec.arguments, *spec.env.values(), *platform.modules, *platform.setup]
    if any("\0" in text or "\r" in text for text in texts):
        raise ConfigError([f"{platform.source}: a NUL or carriage return cannot stand in a batch script"])


def directives(spec: JobSpec, platform: Platform) -> list[str]:
    """The #SBATCH options, each as it is written."""
    keys, folder = platform.slurm, folder_of(platform, spec.name)
    latest_s = math.ceil(spec.start_limit_s + spec.time_limit_s + DEADLINE_MARGIN_S)
    chosen: list[tuple[str, object]] = [
        ("job-name", spec.name),
        ("account", keys.account),
        ("partition", keys.partition),
        ("qos", keys.qos),
        ("constraint", keys.constraint),
        ("reservation", keys.reservation),
        ("nodes", spec.layout.nodes),
        *(tasks(spec, platform) if keys.tasks == "sbatch" else ()),
        *devices(spec, platform),
        ("mem", keys.mem),
        ("time", whole_minutes(spec.time_limit_s)),
        ("deadline", f"now+{latest_s}"),
        ("output", f"{folder}/log".replace("%", "%%")),
        ("chdir", f"{folder}/work"),
        ("open-mode", "append"),
    ]
    lines = [_option(name, value) for name, value in chosen if value is not None]
    flags = ["--exclusive"] if keys.exclusive else []
    avoided = [_option("exclude", nodes)] if (nodes := excluded(spec, platform)) else []
    return [*lines, *flags, "--no-requeue", "--export=NONE", *keys.directives, *avoided]


def excluded(spec: JobSpec, platform: Platform) -> str | None:
    """The nodes that failed earlier attempts, and those that the site excludes: of several --exclude the last counts.

    None where the site's own is enough: of several nodes nobody knows which one failed, and Slurm itself gives a job no
    node that is down. A site's file of nodes (a path, to sbatch) is on the login node, and names cannot join it.
    """
    site = sbatch_options.last_value("--exclude", platform.slurm.directives)
    if not spec.avoid_nodes or spec.layout.nodes > 1 or "/" in (site or ""):
        return None
    return ",".join([*([site] if site else []), *spec.avoid_nodes])


def tasks(spec: JobSpec, platform: Platform) -> list[tuple[str, object]]:
    """How many processes Slurm starts and on how many CPUs: torchrun is one a node and starts the ranks itself."""
    each = spec.ranks_per_node if spec.launcher == "srun" else 1
    cpus = platform.slurm.cpus_per_rank or spec.threads_per_rank
    wide = None if cpus is None else cpus * spec.ranks_per_node // each
    counts: list[tuple[str, object]] = [("ntasks", each * spec.layout.nodes), ("ntasks-per-node", each)]
    return counts if wide is None else [*counts, ("cpus-per-task", wide)]


def devices(spec: JobSpec, platform: Platform) -> list[tuple[str, object]]:
    """How devices are asked for; CPUs are no devices to Slurm."""
    if spec.layout.unit == "cpu":
        return []
    keys, count = platform.slurm, spec.layout.devices_per_node
    name = keys.gres or GRES[spec.layout.unit]
    kind = name.partition(":")[2]
    typed = f"{kind}:" if kind else ""
    if keys.gpus == "gres":
        return [("gres", f"{name}:{count}")]
    if keys.gpus == "gpus":
        return [("gpus", f"{typed}{spec.layout.devices}")]
    if keys.gpus == "gpus-per-node" or spec.launcher == "none":
        return [("gpus-per-node", f"{typed}{count}")]
    each = spec.ranks_per_node if spec.launcher == "srun" else 1
    if count % each:
        raise RefusedError(
            f"{platform.name}: {each} tasks a node cannot share {count} devices by gpus-per-task: write "
            f"`slurm: {{gpus: gres}}` or another `ranks_per_device:` in {platform.source}"
        )
    return [("gpus-per-task", f"{typed}{count // each}")]


def launch(spec: JobSpec, platform: Platform) -> list[str]:
    """The last command of the script, word by word, each as the shell reads it."""
    boxed = platform.container
    if spec.archive is None:
        rank = [quote(word) for word in spec.arguments]
    else:
        rank = ['"$python"', *map(quote, spec.rank_command(archive_of(platform, spec)))]
    test = _python_test(spec, platform)
    if test and spec.launcher != "torchrun":
        rank = ["sh", "-c", quote(f'{test}exec "$0" "$@"'), *rank]
    if spec.launcher == "srun" and spec.archive is None:
        rank = ["sh", "-c", quote(RANK.format(ranks=spec.ranks_per_node)), "sh", *rank]
    elif spec.launcher == "srun" and spec.layout.nodes > 1:
        rank = ["sh", "-c", quote(MEETING), "sh", *rank]
    if spec.launcher == "torchrun":
        inner = test + TORCHRUN.format(nodes=spec.layout.nodes, ranks=spec.ranks_per_node)
        program = rank if spec.archive else [quote(_python_of_others(spec)), "--no-python", *rank]
        rank = ["sh", "-c", quote(inner), *program]
    inside = container.prefix(boxed, platform, spec) if boxed else []
    if spec.launcher == "none" and not (boxed and container.needs_srun(boxed)):
        return [*map(quote, inside), *rank]
    step = ["srun", "--kill-on-bad-exit=1", _option("nodes", spec.layout.nodes)]
    step += [_option(name, value) for name, value in tasks(spec, platform)]
    step += [quote(word) for word in platform.slurm.srun]
    step += [quote(word) for word in container.srun_options(boxed, platform, spec)] if boxed else []
    return [*step, *map(quote, inside), *rank]


def _python_test(spec: JobSpec, platform: Platform) -> str:
    """Shell lines that end a rank whose container has no Python for it; "" where the script itself has looked."""
    refusals = refusals_of(spec, platform)
    if platform.container is None or refusals is None:
        return ""
    image = re.sub(r'["$`\\\\]', "?", platform.container.image)  # it stands within double quotes
    return PYTHON_INSIDE.format(image=image, refusals=quote(refusals))


def steps_known(spec: JobSpec, platform: Platform) -> bool:
    """Whether the exit code of the launch tells how every step ended: no command of others starts one beside it."""
    started_by_setup = any("srun" in line for line in platform.setup)
    starts_its_own = spec.archive is None and spec.launcher == "none"
    return not started_by_setup and not starts_its_own


def whole_minutes(seconds: float) -> str:
    """As --time reads it: rounded up, since Slurm knows nothing shorter."""
    return clock(60 * max(1, math.ceil(seconds / 60)))


def quote(word: str) -> str:
    """One word for the shell, and never a second line: `exec` and #SBATCH lines end at one."""
    return shlex.quote(word)


def _option(name: str, value: object) -> str:
    text = str(value)
    if not text.isprintable():
        raise ConfigError([f"--{name}: {text!r} cannot stand in a #SBATCH line"])
    return f"--{name}={quote(text)}"


def _python(spec: JobSpec, platform: Platform) -> tuple[str, str | None]:
    """The interpreter, and the one where that is missing. In a container the venv of outside is of no use."""
    if spec.python != "auto":
        return spec.python, None
    if platform.container:
        return "python3", None
    return f"{platform.work_dir}/env-{platform.name}/bin/python", "python3"


def _python_of_others(spec: JobSpec) -> str:
    """The Python that a program which is not ours finds: the platform's, else by PATH."""
    return "python3" if spec.python == "auto" else spec.python


def _python_folder(spec: JobSpec, platform: Platform) -> str | None:
    """Where a program that is not ours looks for python3 first: in the environment that `prepare --env` made, as our
    benchmarks do."""
    if spec.archive is not None or spec.python != "auto" or platform.container:
        return None
    return f"{platform.work_dir}/env-{platform.name}/bin"


def _environment(spec: JobSpec, platform: Platform) -> dict[str, str]:
    threads = {"OMP_NUM_THREADS": str(spec.threads_per_rank)} if spec.threads_per_rank else {}
    values = {"PYTHONUNBUFFERED": "1", **threads, **platform.env, **spec.env}
    return {**values, "HPC_ML_BENCH_JOB": spec.name}


def _wrap(words: list[str], width: int = 110) -> str:
    """Break a long command so that people can read it."""
    lines: list[str] = []
    for word in words:
        if lines and len(lines[-1]) + len(word) <= width and "\n" not in word:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return " \\\n    ".join(lines)


@cache
def _template() -> jinja2.Template:
    import jinja2

    environment = jinja2.Environment(
        undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
    )
    environment.filters.update(q=quote, line=printable, wrap=_wrap, whole=lambda seconds: f"{seconds:g}")
    environment.tests["secret"] = names_a_secret
    return environment.from_string(re.sub(r"\r\n?", "\n", TEMPLATE.read_text(encoding="utf-8")))
