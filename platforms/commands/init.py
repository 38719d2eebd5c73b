"""`python -m platforms init NAME`: writes a platform's file from the machine's answers."""

from __future__ import annotations

import argparse
import os
import shlex
import tempfile
import time
from pathlib import Path

from platforms import atomic_file, checkout
from platforms.commands import enable
from platforms.config import draft, schema, yaml_lines
from platforms.config.draft import DraftRequest
from platforms.config.values import mark
from platforms.job import RefusedError
from platforms.schedulers import FILE_KEYS, SCHEDULERS, backend_named

# Options for schedulers: each backend names those that it takes.
OF_SCHEDULERS = ("ssh", "transport", "ssh_config", "partition", "kubeconfig", "context", "namespace", "product")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    parser.add_argument("--ssh", metavar="HOST", help="the login node, as ssh knows it (default: this machine is one)")
    parser.add_argument("--transport", choices=("openssh", "paramiko"), help="how --ssh connects (default: openssh)")
    parser.add_argument("--ssh-config", metavar="FILE", help="ssh's configuration in place of ~/.ssh/config")
    parser.add_argument(
        "--scheduler",
        choices=drafting(),
        help="ssh: a machine without one (default: kubernetes with --context or --kubeconfig, else slurm)",
    )
    parser.add_argument("--partition", metavar="P", help="which partition (default: Slurm's own default)")
    parser.add_argument("--context", metavar="CTX", help="a Kubernetes cluster, as the kubeconfig knows it")
    parser.add_argument("--kubeconfig", metavar="FILE", help="in place of $KUBECONFIG and ~/.kube/config")
    parser.add_argument("--namespace", metavar="NS", help="of the cluster (default: the context's own)")
    parser.add_argument("--product", metavar="P", help="which of the cluster's devices, as its nodes' labels call them")
    parser.add_argument("--force", action="store_true", help="overwrite the file that is there")
    parser.add_argument("--enable", action="store_true", help="write NAME under `enabled:` in site.yaml, too")


def main(options: argparse.Namespace) -> int:
    """Write the file, and say what to type next. Raises BenchError."""
    _check(options)
    site = checkout.site_folder(options.site)
    path = site / "platforms" / f"{options.name}.yaml"
    if not path.exists() or options.force:
        _write(options, site, path)
    elif options.enable:
        print(f"{path}: is there already and stays as it is")
    else:
        hint = "--force overwrites it, --enable only enables it"
        raise RefusedError(f"{path}: is there already ({hint})")
    if options.enable:
        print(f"{enable.write(site, add=[options.name])}: {options.name} is enabled")
    _print_next(options, site)
    return 0


def _check(options: argparse.Namespace) -> None:
    try:
        mark(options.name)
    except ValueError as error:
        raise RefusedError(f"NAME: {error}") from None
    if options.name == "local":
        raise RefusedError("NAME: 'local' is this machine without a scheduler, and needs no file (choose another name)")
    if options.transport and not options.ssh:
        raise RefusedError(f"--transport {options.transport} needs --ssh HOST, the login node as ssh knows it")


def drafting() -> list[str]:
    """List the schedulers that init can ask."""
    return [name for name in SCHEDULERS if backend_named(name).drafts]


def _given(options: argparse.Namespace) -> dict[str, str]:
    """Collect the options of the command line that are for a scheduler."""
    return {name: getattr(options, name) for name in OF_SCHEDULERS if getattr(options, name)}


def _scheduler(options: argparse.Namespace) -> str:
    """Choose the scheduler: the named one, else the first that takes all given options.

    Raises RefusedError if it does not take an option, or none takes all of them.
    """
    given = _given(options)
    names = [options.scheduler] if options.scheduler else drafting()
    for name in names:
        if given.keys() <= set(backend_named(name).init_options):
            return name
    known = []
    for name in names:
        options_of_it = ", ".join(_typed(option) for option in backend_named(name).init_options)
        known.append(f"{name} takes {options_of_it}")
    typed = " with ".join(_typed(option) for option in given)
    raise RefusedError(f"no scheduler takes {typed}: {'; '.join(known)}")


def _typed(option: str) -> str:
    return f"--{option.replace('_', '-')}"


# --- writing ---------------------------------------------------------------------------------------------------------


def _write(options: argparse.Namespace, site: Path, path: Path) -> None:
    others = _marks(site, options.name)
    for name, marks in others.items():
        if options.name in marks:
            raise RefusedError(f"NAME: {options.name!r} is a mark of the platform {name} (choose another name)")
    request = DraftRequest(
        options.name, _given(options), replaces=(checkout.SHIPPED / path.name).exists(), taken_marks=others
    )
    lines = backend_named(_scheduler(options)).draft(request)
    text = draft.text(_head(options, path), lines)
    _validate(text, path.name)
    _put(path, text)
    todo = [str(number) for number, line in enumerate(text.splitlines()[3:], 4) if "# TODO" in line]
    hint = f"; what only you know: line {', '.join(todo)} (TODO)" if todo else ""
    print(f"{path}: written{hint}")


def _marks(site: Path, name: str) -> dict[str, list[str]]:
    """Read the marks of every other platform's file, by its name. Mistakes in these files are ignored here."""
    marks_of: dict[str, list[str]] = {}
    for folder in (checkout.SHIPPED, site / "platforms"):
        for path in sorted(folder.glob("*.yaml")):
            if path.stem == name:
                continue
            marks = (yaml_lines.read(path).value or {}).get("marks")
            marks_of[path.stem] = [str(word) for word in marks] if isinstance(marks, list) else []
    return marks_of


def _head(options: argparse.Namespace, path: Path) -> str:
    words = ["python", "-m", "platforms", "init", options.name]
    for name in ("site", *OF_SCHEDULERS[:3], "scheduler", *OF_SCHEDULERS[3:]):
        value = getattr(options, name)
        if value:
            words += [_typed(name), value]
    schema_path = os.path.relpath(checkout.SHIPPED / "schema.json", path.parent)
    return (
        f"yaml-language-server: $schema={schema_path}\n"
        f"{time.strftime('%Y-%m-%d')}: {shlex.join(words)}\n"
        "The comment after a value says where it comes from; complete each line with TODO. All keys: docs/platforms.md"
    )


def _validate(text: str, name: str) -> None:
    """Raise ConfigError when the text could not be loaded as a platform's file."""
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


def _print_next(options: argparse.Namespace, site: Path) -> None:
    name = options.name
    more = f" --site={shlex.quote(options.site)}" if options.site else ""
    print("next:")
    print(f"  python -m platforms doctor {name} --size smoke{more}")
    if not options.enable:
        print(f"  {enable.command('enable', [name], site)}")
    print(f"  python -m platforms prepare {name} --size smoke{more}")
    print(f"  pytest -m {name} --size smoke{more}")
