"""Runs one command of a program that has many, as `python -m platforms` and `python -m reporting` do."""

from __future__ import annotations

import argparse
import importlib
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from platforms.job import BenchError, RefusedError

_OTHER_NAMESPACE = (
    "of a test with a place of its own, delete by name what has ended in: "
    "kubectl get jobs,pods --selector=hpc-ml-bench/platform=NAME"
)
_BY_GIT = (
    "commit the answer on a branch of the site's folder, and type: git push -o merge_request.create origin BRANCH "
    "(docs/answers.md)"
)
# What is gone, and what to type in its place: answered for one release. An entry names the program, the command and, if
# only that is gone, the option.
GONE: Mapping[tuple[str, ...], str] = {
    ("python -m platforms", "init", "--diff"): (
        "write a second file and compare: mkdir /tmp/now && python -m platforms init NAME … --site=/tmp/now; "
        "diff site/platforms/NAME.yaml /tmp/now/platforms/NAME.yaml"
    ),
    ("python -m platforms", "fetch"): (
        "type: pytest --resume=RUN --wait=0, which brings logs and results as far as they are written; "
        "python -m platforms logs -f JOB shows one log"
    ),
    ("python -m platforms", "cancel", "--platform"): "cancel RUN ends the jobs on every platform that answers",
    ("python -m platforms", "prune", "--run"): "touch runs/RUN/pinned keeps a run; prune --dry-run shows what goes",
    ("python -m platforms", "prune", "--live"): "type: python -m platforms cancel RUN",
    ("python -m platforms", "prune", "--older-than"): "type: python -m platforms prune NAME --keep-days=N",
    ("python -m platforms", "prune", "--kubeconfig"): _OTHER_NAMESPACE,
    ("python -m platforms", "prune", "--context"): _OTHER_NAMESPACE,
    ("python -m platforms", "prune", "--namespace"): _OTHER_NAMESPACE,
    ("python -m reporting", "aa"): (
        "type: python -m reporting power; it counts false alarms on the centre's own nights in shuffled order"
    ),
    ("python -m reporting", "anchors"): (
        "type: python -m reporting table --anchors; all published numbers stand in reporting/tables/anchors.yaml"
    ),
    ("python -m reporting", "compare", "--format", "csv"): "type --format json, which has the same fields",
    ("python -m reporting", "compare", "--format", "markdown"): "put the text between two lines of three backticks",
    ("python -m reporting", "compare", "-o"): "write it to a file with > FILE",
    ("python -m reporting", "nodes", "--format"): (
        "type: python -m reporting data -o site.json, whose key `nodes` has all digits; or put the text between two "
        "lines of three backticks"
    ),
    ("python -m reporting", "accept", "--merge-request"): _BY_GIT,
    ("python -m reporting", "ack", "--merge-request"): _BY_GIT,
    ("python -m reporting", "bundle"): "type: python -m reporting export bundle latest -o runs.tar.gz",
    ("python -m reporting", "comment", "--name"): (
        "GitLab is not asked any more: type python -m reporting comment --print, and send the text (docs/ci.md)"
    ),
    ("python -m reporting", "import", "pytest-benchmark"): (
        "a test of your own runs any program and records its numbers, as docs/foreign-loops.md shows: pytest "
        "site/test_mine.py"
    ),
    ("python -m reporting", "html", "--data"): "type: python -m reporting html -o report.html, of a history",
    ("python -m reporting", "month"): (
        "type: python -m reporting html --month 2026-10 for its tables; with -o october.html also for a page with its "
        "picture"
    ),
    ("python -m reporting", "table", "--all-sites"): (
        "each site's own table: type --site=DIR of that site, whose site.yaml has its `name:`"
    ),
    ("python -m reporting", "trend", "--metric"): "type: python -m reporting show TEST --metric NAME",
    ("python -m reporting", "trend", "--nights"): (
        "a trend has as many nights as there is room for; python -m reporting html -o report.html shows all of them"
    ),
    ("python -m reporting", "verify"): "type: python -m reporting import runs runs.tar.gz",
}


class Parser(argparse.ArgumentParser):
    """Shows `--site=DIR`, as it must be typed in pytest, too, which takes a folder after a blank for one of tests."""

    def format_help(self) -> str:
        return _with_equals_signs(super().format_help())

    def format_usage(self) -> str:
        return _with_equals_signs(super().format_usage())


def _with_equals_signs(text: str) -> str:
    return text.replace("--site DIR", "--site=DIR").replace("--history DIR", "--history=DIR")


def nothing(parser: argparse.ArgumentParser) -> None:
    """Declare nothing: the command shares no argument with other commands."""


@dataclass(frozen=True)
class Command:
    """A command, and the module that has its `add_options(parser)` and its `main(options)`, which returns an exit code.

    Attributes:
        module: its name within the program's package. Only the module of the command that is typed is imported.
        shared: declares arguments that other commands of the program have, too.
    """

    module: str
    summary: str
    shared: Callable[[argparse.ArgumentParser], None] = nothing
    group: str = ""  # the heading below which `--help` lists it


@dataclass(frozen=True)
class Program:
    """What is typed before a command, what `--help` says of it, and the package that has the commands' modules."""

    typed: str
    description: str
    package: str
    commands: Mapping[str, Command]

    def module_of(self, command: str) -> ModuleType:
        return importlib.import_module(f"{self.package}.{self.commands[command].module}")


def run(program: Program, arguments: Sequence[str] | None = None) -> int:
    """Run the command that is typed.

    Args:
        arguments: the words after the program's name; None takes those of this process.

    Returns:
        The exit code: 0 all is well, 1 something is wrong, 2 the command could not be done.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    for name in ("stdout", "stderr"):  # closed, as by `>&-`
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open("w"))  # noqa: SIM115 (until we end)
    try:
        _refuse_what_is_gone(program.typed, words)
        options = parsed(program, words)
        code = int(program.module_of(options.command).main(options))
        sys.stdout.flush()  # here, so that a closed pipe is handled below
    except BrokenPipeError:  # the reader of our output (head, less) has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    except BenchError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except OSError as error:  # a file that no command has looked at before
        where = "" if error.filename is None else f"{error.filename}: "
        print(f"error: {where}{error.strerror or error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 128 + signal.SIGINT
    return code


def _refuse_what_is_gone(typed: str, words: Sequence[str]) -> None:
    for (program, command, *option), instead in GONE.items():
        if typed == program and words[:1] == [command] and set(option) <= {word.partition("=")[0] for word in words}:
            raise RefusedError(f"`{' '.join([program, command, *option])}` is gone; {instead}")


def _grouped(program: Program) -> str:
    """The commands with their summaries, below the headings of their groups."""
    lines: list[str] = []
    for group in dict.fromkeys(command.group for command in program.commands.values()):
        lines += ["", f"{group}:"]
        of_group = {name: command for name, command in program.commands.items() if command.group == group}
        lines += [f"  {name:<10} {command.summary}" for name, command in of_group.items()]
    return "\n".join([*lines, "", f"{program.typed} COMMAND --help says more of one."]).lstrip("\n")


def parsed(program: Program, words: Sequence[str]) -> argparse.Namespace:
    """The options of the command that is typed; its words and options may stand in every order.

    Raises SystemExit for `--help`, and for what is no command or has mistakes.
    """
    parser = Parser(
        prog=program.typed,
        description=program.description,
        epilog=_grouped(program),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, command in program.commands.items():
        summary = command.summary
        subparser = commands.add_parser(name, description=f"{summary[0].upper()}{summary[1:]}.")
        command.shared(subparser)
        subparser.add_argument(
            "--site", metavar="DIR", help="the centre's own configuration (default: $HPC_ML_BENCH_SITE, else site/)"
        )
        if words[:1] == [name]:
            program.module_of(name).add_options(subparser)
    typed = commands.choices.get(words[0]) if words else None
    if typed is None or "--" in words:  # intermixed parsing takes what stands behind `--` for options
        return parser.parse_args(words)
    options: argparse.Namespace = typed.parse_intermixed_args(words[1:])
    options.command = words[0]
    return options
