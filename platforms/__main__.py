"""`python -m platforms COMMAND`: platforms are made and checked, their data prepared; jobs are shown and ended."""

from __future__ import annotations

import argparse
import importlib
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from platforms import checkout
from platforms.job import BenchError

# Which module of platforms.commands has a command, and what it does; only the one that was typed is imported.
COMMANDS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "init": ("init", "write SITE/platforms/NAME.yaml from what the machine says of itself"),
        "doctor": ("doctor", "check a platform step by step, and say what to do about the first failure"),
        "prepare": ("prepare", "make the data sets that are missing on a platform, and the Python packages"),
        "enable": ("enable", "let platforms be submitted to: write them under `enabled:` in site.yaml"),
        "disable": ("enable", "take platforms out of `enabled:` in site.yaml"),
        "lint": ("lint", "check a manifest of your own against a platform's rules, without asking anybody"),
        "prune": ("prune", "show what old runs have left, here or on a platform; archive it here, and remove it"),
        "jobs": ("jobs", "show the jobs of runs that are not finished, or of one run"),
        "logs": ("logs", "print a job's log; -f: while it runs"),
        "fetch": ("fetch", "bring the logs of a run's jobs here, as far as they are written"),
        "cancel": ("cancel", "end what is left of a run whose session is gone, and keep its results"),
    }
)
# Of those that are not about one platform: what declares their options, and what they do.
OF_RUNS = {name: (f"add_{name}", "show" if name == "jobs" else name) for name in ("jobs", "logs", "fetch", "cancel")}
OF_SEVERAL = {name: (f"add_{name}", name) for name in ("enable", "disable")}
OTHERS = OF_RUNS | OF_SEVERAL
MANY = {"prune": "?", **dict.fromkeys(OF_SEVERAL, "+")}  # how many platforms may be named, where it is not one


class Parser(argparse.ArgumentParser):
    """Shows `--site=DIR`, as it must be typed in pytest, too, which takes a folder after a blank for one of tests."""

    def format_help(self) -> str:
        return super().format_help().replace("--site DIR", "--site=DIR")

    def format_usage(self) -> str:
        return super().format_usage().replace("--site DIR", "--site=DIR")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command. Returns its exit code: 0 all well, 1 something is not, 2 it could not be asked."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    for name in ("stdout", "stderr"):  # closed, as by `>&-`
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open("w"))  # noqa: SIM115 (until we end)
    try:
        code = _run(_parser(words).parse_args(words))
        sys.stdout.flush()  # here, where it is known what to do when nobody reads it
    except BrokenPipeError:  # whoever read our lines (head, less) has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    except (BenchError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 128 + signal.SIGINT
    return code


def _run(options: argparse.Namespace) -> int:
    if options.command == "prepare":
        return _prepare(options)
    module = importlib.import_module(f"platforms.commands.{COMMANDS[options.command][0]}")
    return int(getattr(module, OTHERS.get(options.command, ("", "main"))[1])(options))


def _prepare(options: argparse.Namespace) -> int:
    from platforms.commands import prepare

    site = checkout.site_folder(options.site)
    settings, platforms = checkout.load(site)
    platform = checkout.find(options.name, platforms)
    checkout.refuse_unready(platform, site, settings)
    return prepare.main(platform, options)


def _parser(words: Sequence[str]) -> argparse.ArgumentParser:
    parser = Parser(prog="python -m platforms", description=__doc__)
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, (module, what) in COMMANDS.items():
        command = commands.add_parser(name, help=what, description=f"{what[0].upper()}{what[1:]}.")
        if name not in OF_RUNS:
            where = "of the platform" + (" (default: the run folders of this machine)" if name == "prune" else "")
            command.add_argument("name", metavar="NAME", nargs=MANY.get(name), help=where)
        command.add_argument(
            "--site", metavar="DIR", help="the centre's own configuration (default: $HPC_ML_BENCH_SITE, else site/)"
        )
        if words[:1] == [name]:
            getattr(importlib.import_module(f"platforms.commands.{module}"), OTHERS.get(name, ("add", ""))[0])(command)
    return parser


if __name__ == "__main__":
    sys.exit(main())
