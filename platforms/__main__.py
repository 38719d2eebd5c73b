"""`python -m platforms COMMAND`: makes and checks platforms, prepares their data, shows and ends jobs."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from platforms import command_line
from platforms.command_line import Command, Program


def _one(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="of the platform")


def _some(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", nargs="+", help="of the platform")


def _one_or_this_machine(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "name", metavar="NAME", nargs="?", help="of the platform (default: the run folders of this machine)"
    )


SET_UP = "set up"
JOBS = "look after jobs"
TIDY = "tidy up"

COMMANDS: Mapping[str, Command] = MappingProxyType(
    {
        "init": Command(
            "init", "write SITE/platforms/NAME.yaml from what the machine says of itself", _one, group=SET_UP
        ),
        "doctor": Command(
            "doctor.command",
            "check a platform step by step, and say what to do about the first failure",
            _one,
            group=SET_UP,
        ),
        "prepare": Command(
            "prepare", "make the data sets that are missing on a platform, and the Python packages", _one, group=SET_UP
        ),
        "enable": Command(
            "enable", "let platforms be submitted to: write them under `enabled:` in site.yaml", _some, group=SET_UP
        ),
        "disable": Command("enable", "take platforms out of `enabled:` in site.yaml", _some, group=SET_UP),
        "lint": Command(
            "lint",
            "check a manifest of your own against a platform's rules, without asking its cluster",
            _one,
            group=SET_UP,
        ),
        "prune": Command(
            "prune",
            "show what old runs have left, here or on a platform; archive it here, and remove it",
            _one_or_this_machine,
            group=TIDY,
        ),
        "jobs": Command("jobs", "show the jobs of runs that are not finished, or of one run", group=JOBS),
        "logs": Command("logs", "print a job's log; -f: while it runs", group=JOBS),
        "cancel": Command(
            "cancel", "end what is left of a run whose session is gone, and keep its results", group=JOBS
        ),
    }
)
PROGRAM = Program("python -m platforms", str(__doc__), "platforms.commands", COMMANDS)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command. Returns its exit code: 0 all is well, 1 something is wrong, 2 the command could not be done."""
    return command_line.run(PROGRAM, arguments)


if __name__ == "__main__":
    sys.exit(main())
