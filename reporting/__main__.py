"""`python -m reporting COMMAND`: reads the history, says what is slower and since when, and takes people's answers."""

from __future__ import annotations

import argparse
import importlib
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType, ModuleType

from platforms.job import BenchError

# Each command is a module of reporting.commands with `add_options` and `main`, imported only when it is typed.
COMMANDS: Mapping[str, str] = MappingProxyType({})


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
    return importlib.import_module(f"reporting.commands.{command.replace('-', '_')}")


def _parser(words: Sequence[str]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m reporting", description=__doc__)
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, summary in COMMANDS.items():
        subparser = commands.add_parser(name, help=summary, description=f"{summary[0].upper()}{summary[1:]}.")
        subparser.add_argument(
            "--site", metavar="DIR", help="the centre's own configuration (default: $HPC_ML_BENCH_SITE, else site/)"
        )
        subparser.add_argument(
            "--history",
            metavar="DIR",
            help="where the history lies (default: `history:` in site.yaml, else SITE/history)",
        )
        if words[:1] == [name]:
            _module_of(name).add_options(subparser)
    return parser


if __name__ == "__main__":
    sys.exit(main())
