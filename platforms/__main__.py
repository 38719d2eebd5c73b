"""`python -m platforms COMMAND`: makes and checks platforms, prepares their data, shows and ends jobs."""

from __future__ import annotations

import argparse
import importlib
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType, ModuleType

from platforms.job import BenchError


@dataclass(frozen=True)
class Command:
    """A command, and the module of platforms.commands that has its `add_options` and `main`.

    `names`: how many platforms are named on the command line, in the words of argparse (`nargs`); "1" is exactly one,
    "0" none, because the command is about runs.
    """

    module: str
    summary: str
    names: str = "1"


# Only the module of the command that was typed is imported.
COMMANDS: Mapping[str, Command] = MappingProxyType(
    {
        "init": Command("init", "write SITE/platforms/NAME.yaml from what the machine says of itself"),
        "doctor": Command(
            "doctor.command", "check a platform step by step, and say what to do about the first failure"
        ),
        "prepare": Command("prepare", "make the data sets that are missing on a platform, and the Python packages"),
        "enable": Command("enable", "let platforms be submitted to: write them under `enabled:` in site.yaml", "+"),
        "disable": Command("enable", "take platforms out of `enabled:` in site.yaml", "+"),
        "lint": Command("lint", "check a manifest of your own against a platform's rules, without asking its cluster"),
        "prune": Command(
            "prune", "show what old runs have left, here or on a platform; archive it here, and remove it", "?"
        ),
        "jobs": Command("jobs", "show the jobs of runs that are not finished, or of one run", "0"),
        "logs": Command("logs", "print a job's log; -f: while it runs", "0"),
        "fetch": Command("fetch", "bring the logs of a run's jobs here, as far as they are written", "0"),
        "cancel": Command("cancel", "end what is left of a run whose session is gone, and keep its results", "0"),
    }
)


class Parser(argparse.ArgumentParser):
    """Shows `--site=DIR`, as it must be typed in pytest, too, which takes a folder after a blank for one of tests."""

    def format_help(self) -> str:
        return super().format_help().replace("--site DIR", "--site=DIR")

    def format_usage(self) -> str:
        return super().format_usage().replace("--site DIR", "--site=DIR")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command. Returns its exit code: 0 all is well, 1 something is wrong, 2 the command could not be done."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    for name in ("stdout", "stderr"):  # closed, as by `>&-`
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open("w"))  # noqa: SIM115 (until we end)
    try:
        options = _parser(words).parse_args(words)
        code = int(_module_of(options.command).main(options))
        sys.stdout.flush()  # here, so that a closed pipe is handled below
    except BrokenPipeError:  # the reader of our output (head, less) has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    except (BenchError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 128 + signal.SIGINT
    return code


def _module_of(command: str) -> ModuleType:
    return importlib.import_module(f"platforms.commands.{COMMANDS[command].module}")


def _parser(words: Sequence[str]) -> argparse.ArgumentParser:
    parser = Parser(prog="python -m platforms", description=__doc__)
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, command in COMMANDS.items():
        summary = command.summary
        subparser = commands.add_parser(name, help=summary, description=f"{summary[0].upper()}{summary[1:]}.")
        if command.names == "1":
            subparser.add_argument("name", metavar="NAME", help="of the platform")
        elif command.names == "?":
            default = " (default: the run folders of this machine)"
            subparser.add_argument("name", metavar="NAME", nargs="?", help=f"of the platform{default}")
        elif command.names == "+":
            subparser.add_argument("name", metavar="NAME", nargs="+", help="of the platform")
        subparser.add_argument(
            "--site", metavar="DIR", help="the centre's own configuration (default: $HPC_ML_BENCH_SITE, else site/)"
        )
        if words[:1] == [name]:
            _module_of(name).add_options(subparser)
    return parser


if __name__ == "__main__":
    sys.exit(main())
