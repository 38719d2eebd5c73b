"""`python -m platforms init NAME`: a platform's file from what the machine says, or what has changed since."""

from __future__ import annotations

import argparse
import datetime
import difflib
import os
import shlex
import tempfile
import time
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path

from platforms import atomic_file, checkout, transports
from platforms.commands import enable
from platforms.commands.init import cluster, cluster_proposal, draft, proposal, sinfo
from platforms.commands.init.cluster_proposal import ClusterWish
from platforms.commands.init.draft import DraftLine
from platforms.commands.init.machine import Machine
from platforms.commands.init.proposal import Wish
from platforms.commands.init.sinfo import NoSlurm
from platforms.config import loading, schema, yaml_lines
from platforms.config.schema import Platform
from platforms.config.values import mark
from platforms.job import RefusedError
from platforms.schedulers import FILE_KEYS
from platforms.schedulers.kubernetes.api.client import Client
from platforms.schedulers.kubernetes.api.kubeconfig import ClusterTarget

OF_CLUSTERS = ("kubeconfig", "context", "namespace", "product")  # options that make it a Kubernetes platform
OF_MACHINES = ("ssh", "transport", "ssh_config", "partition")


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.add_argument("--ssh", metavar="HOST", help="the login node, as ssh knows it (default: this machine is one)")
    parser.add_argument("--transport", choices=("openssh", "paramiko"), help="how --ssh connects (default: openssh)")
    parser.add_argument("--ssh-config", metavar="FILE", help="ssh's configuration in place of ~/.ssh/config")
    parser.add_argument(
        "--scheduler",
        choices=("slurm", "ssh", "kubernetes"),
        help="ssh: a machine without one (default: kubernetes with --context or --kubeconfig, else slurm)",
    )
    parser.add_argument("--partition", metavar="P", help="which partition (default: Slurm's own default)")
    parser.add_argument("--context", metavar="CTX", help="a Kubernetes cluster, as the kubeconfig knows it")
    parser.add_argument("--kubeconfig", metavar="FILE", help="in place of $KUBECONFIG and ~/.kube/config")
    parser.add_argument("--namespace", metavar="NS", help="of the cluster (default: the context's own)")
    parser.add_argument("--product", metavar="P", help="which of the cluster's devices, as its nodes' labels call them")
    parser.add_argument("--force", action="store_true", help="overwrite the file that is there")
    parser.add_argument("--diff", action="store_true", help="show what the machine says now that the file does not")
    parser.add_argument("--enable", action="store_true", help="write NAME under `enabled:` in site.yaml, too")


def main(options: argparse.Namespace) -> int:
    """Write the file, or show what has changed. Returns 1 when --diff found something. Raises BenchError."""
    _check(options)
    site = checkout.site_folder(options.site)
    if options.diff:
        return show_changes(options, site)
    path = site / "platforms" / f"{options.name}.yaml"
    if not path.exists() or options.force:
        _write(options, site, path)
    elif options.enable:
        print(f"{path}: is there already and stays as it is")
    else:
        again = "--force writes it anew, --diff shows what the machine says otherwise, --enable only enables it"
        raise RefusedError(f"{path}: is there already ({again})")
    if options.enable:
        print(f"{enable.write(site, add=[options.name])}: {options.name} is enabled")
    _say_next(options, site)
    return 0


def _check(options: argparse.Namespace) -> None:
    try:
        mark(options.name)
    except ValueError as error:
        raise RefusedError(f"NAME: {error}") from None
    if options.name == "local":
        raise RefusedError("NAME: 'local' is this machine without a scheduler, and needs no file (choose another name)")
    if _is_cluster(options):
        if wrong := [name for name in OF_MACHINES if getattr(options, name)]:
            raise RefusedError(f"--{wrong[0].replace('_', '-')} means nothing to a Kubernetes cluster")
        if options.scheduler in ("slurm", "ssh"):
            raise RefusedError(f"--scheduler {options.scheduler} has no contexts, namespaces and products")
    if options.transport and not options.ssh:
        raise RefusedError(f"--transport {options.transport} needs --ssh HOST, the login node as ssh knows it")
    if options.scheduler == "ssh" and not options.ssh and not options.diff:
        raise RefusedError("--scheduler ssh needs --ssh HOST; this machine is the platform `local` already")


def _is_cluster(options: argparse.Namespace) -> bool:
    return options.scheduler == "kubernetes" or any(getattr(options, name) for name in OF_CLUSTERS)


# --- writing ---------------------------------------------------------------------------------------------------------


def _write(options: argparse.Namespace, site: Path, path: Path) -> None:
    others = _marks(site, options.name)
    if carriers := [name for name, marks in others.items() if options.name in marks]:
        raise RefusedError(f"NAME: {options.name!r} is a mark of the platform {carriers[0]} (choose another name)")
    drafted = (_of_cluster if _is_cluster(options) else _of_machine)(options, path, others)
    text = draft.text(_head(options, path), drafted)
    _validate(text, path.name)
    _put(path, text)
    todo = [str(number) for number, line in enumerate(text.splitlines()[3:], 4) if "# TODO" in line]
    if (ended := _ended(path.name)) is not None:
        print(f"of the {options.name} that comes with the suite: {ended}")
    print(f"{path}: written" + (f"; what only you know: line {', '.join(todo)} (TODO)" if todo else ""))


def _ended(file: str) -> str | None:
    """What is to be said of the platform that the suite ships under this file's name and that is no longer there."""
    if not (checkout.SHIPPED / file).exists():
        return None
    shipped = schema.load_platforms([checkout.SHIPPED], schedulers=FILE_KEYS)[Path(file).stem]
    return shipped.ended_by(datetime.date.today())


def _of_machine(options: argparse.Namespace, path: Path, others: Collection[str]) -> list[DraftLine]:
    wish = Wish(
        options.scheduler or "slurm",
        transport=(options.transport or "openssh") if options.ssh else "local",
        host=options.ssh,
        ssh_config=options.ssh_config and str(Path(options.ssh_config).expanduser().absolute()),
        partition=options.partition,
        replaces=(checkout.SHIPPED / path.name).exists(),
    )
    machine, wish = ask(wish, options.name, Path("--ssh"))
    return proposal.lines(machine, wish, others)


def _of_cluster(options: argparse.Namespace, path: Path, others: Collection[str]) -> list[DraftLine]:
    kubeconfig = options.kubeconfig and str(Path(options.kubeconfig).expanduser().absolute())
    replaces = (checkout.SHIPPED / path.name).exists()
    wish = ClusterWish(kubeconfig, options.context, options.namespace, options.product, replaces)
    place = ClusterTarget(wish.kubeconfig, wish.context, (), wish.namespace)
    return cluster_proposal.lines(cluster.ask(Client(place)), wish, others)


def ask(wish: Wish, name: str, source: Path) -> tuple[Machine, Wish]:
    """What the machine says; and the wish, with `login_shell` where it turned out that only that finds Slurm.

    Raises NoSlurm where there is none, and what transports raise.
    """
    if wish.scheduler == "ssh":
        return _asked(wish, name, source), wish
    try:
        return _asked(wish, name, source), wish
    except NoSlurm as error:
        if wish.login_shell:
            raise
        other = replace(wish, login_shell=True)
        try:
            return _asked(other, name, source), other
        except NoSlurm:
            raise error from None


def _asked(wish: Wish, name: str, source: Path) -> Machine:
    keys = {"name": name, "source": source, "scheduler": wish.scheduler, "device": "cpu", "work_dir": "/"}
    keys |= {"transport": wish.transport, "host": wish.host, "ssh_config": wish.ssh_config}
    layouts = {"default": ("1x1",)}
    platform = Platform.model_validate({**keys, "login_shell": wish.login_shell, "layouts": layouts})
    transport = transports.connect(platform)
    try:
        return sinfo.ask_alone(transport) if wish.scheduler == "ssh" else sinfo.ask_slurm(transport)
    finally:
        transport.close()


def _marks(site: Path, name: str) -> dict[str, list[str]]:
    """The marks of every other platform's file, by its name. Mistakes in them are not ours to tell."""
    paths = [path for folder in (checkout.SHIPPED, site / "platforms") for path in sorted(folder.glob("*.yaml"))]
    found = {path.stem: (yaml_lines.read(path).value or {}).get("marks") for path in paths if path.stem != name}
    return {stem: [str(word) for word in marks] if isinstance(marks, list) else [] for stem, marks in found.items()}


def _head(options: argparse.Namespace, path: Path) -> str:
    words = ["python", "-m", "platforms", "init", options.name]
    for name in ("site", "ssh", "transport", "ssh_config", "scheduler", "partition", *OF_CLUSTERS):
        value = getattr(options, name)
        words += [f"--{name.replace('_', '-')}", value] if value else []
    schema_path = os.path.relpath(checkout.SHIPPED / "schema.json", path.parent)
    return (
        f"yaml-language-server: $schema={schema_path}\n"
        f"{time.strftime('%Y-%m-%d')}: {shlex.join(words)}\n"
        "Behind # stands where a value comes from; a line with TODO wants you. All keys: docs/platforms.md"
    )


def _validate(text: str, name: str) -> None:
    """Raises ConfigError when what we are about to write could not be loaded."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, name).write_text(text, encoding="utf-8")
        shipped = [checkout.SHIPPED] if (checkout.SHIPPED / name).exists() else []
        schema.load_platforms([*shipped, Path(folder)], schedulers=FILE_KEYS)


def _put(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        atomic_file.write_text(path, text)
    except OSError as error:
        raise RefusedError(f"{path}: cannot be written: {error.strerror}; --site names another folder") from None


def _say_next(options: argparse.Namespace, site: Path) -> None:
    name, more = options.name, f" --site={shlex.quote(options.site)}" if options.site else ""
    print("next:")
    print(f"  python -m platforms doctor {name} --size smoke{more}")
    if not options.enable:
        print(f"  {enable.command('enable', [name], site)}")
    print(f"  python -m platforms prepare {name} --size smoke{more}")
    print(f"  pytest -m {name} --size smoke{more}")


# --- what has changed ------------------------------------------------------------------------------------------------


def show_changes(options: argparse.Namespace, site: Path) -> int:
    """Print a unified diff from the file's values to the machine's. Returns 1 when there is one."""
    settings, platforms = checkout.load(site)
    platform = checkout.find(options.name, platforms)
    if platform.scheduler not in SAYS:
        raise RefusedError(
            f"{platform.source}: init can ask {', '.join(SAYS)}, and not scheduler {platform.scheduler}: compare the "
            f"file by hand, and try it with python -m platforms doctor {platform.name} --node"
        )
    file = draft.flat(
        yaml_lines.read(platform.source, loading.substitution(settings.values, os.environ, [])).value or {}
    )
    where, drafted = SAYS[platform.scheduler](platform, options, file)
    old, new = draft.differences(drafted, file)
    changes = list(difflib.unified_diff(old, new, str(platform.source), f"{where} now", lineterm="", n=0))
    print("\n".join(changes) if changes else f"{platform.source}: {where} says the same")
    return 1 if changes else 0


def _machine_now(
    platform: Platform, options: argparse.Namespace, file: Mapping[str, str]
) -> tuple[str, list[DraftLine]]:
    wish = Wish(
        platform.scheduler,
        platform.transport,
        platform.host,
        platform.ssh_config,
        platform.login_shell,
        options.partition,
    )
    machine, wish = ask(wish, platform.name, platform.source)
    known = options.partition or file.get("slurm.partition")
    wish = replace(wish, partition=known if known in machine.partitions else None)
    return machine.where, proposal.lines(machine, wish, ())


def _cluster_now(
    platform: Platform, options: argparse.Namespace, file: Mapping[str, str]
) -> tuple[str, list[DraftLine]]:
    keys = platform.kubernetes
    asked = cluster.ask(Client(ClusterTarget(keys.kubeconfig, keys.context, keys.contexts, keys.namespace)))
    selected = cluster_proposal.pairs(file.get("kubernetes.node_selector", "")).values()
    known = next((pool.product for pool in asked.pools if pool.product in selected), None)
    wish = ClusterWish(keys.kubeconfig, keys.context, keys.namespace, options.product or known)
    return asked.where, cluster_proposal.lines(asked, wish, ())


# By scheduler: what is there now, as lines of the file.
SAYS = {"slurm": _machine_now, "ssh": _machine_now, "kubernetes": _cluster_now}
