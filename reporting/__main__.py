"""`python -m reporting COMMAND`: reads the history, says what is slower and since when, and takes people's answers."""

from __future__ import annotations

import gc
import sys
from collections.abc import Mapping, Sequence

from platforms import command_line
from platforms.command_line import Command, Program
from reporting.commands.opened_site import add_history

SUMMARIES: Mapping[str, Mapping[str, str]] = {
    "look": {
        "table": "show the latest run of each test, in its own unit and against its pin",
        "show": "show the nights of one test, and what changed before each of them",
        "trend": "draw the nights of tests in the terminal, and say what is slower",
        "judge": "ask the gate about the latest run of each test (exit code 1: red)",
        "nodes": "show which nodes of a platform are slower than the others (exit code 1)",
        "vet": "show what the nodes of a platform are; --sign: for a prolog that compares them before each job",
        "compare": "compare two groups of runs, as before and after an upgrade",
        "power": "say what the gate can see, and how often it cries for nothing",
    },
    "answer": {
        "accept": "a new level is right from now on: it takes the place of the pin",
        "ack": "a regression is known and has a ticket: it is amber until a day",
        "carry": "the pin of an old workload version becomes that of the new one",
        "note": "say what happened to a platform that no job can see",
        "pause": "skip a platform or a test until a day",
        "answers": "list what people have answered",
    },
    "share": {
        "comment": "write the verdict as the text of a comment on a merge request",
        "pull": "add the history in a branch of a git repository to the one here",
        "push": "add the history here to a branch of a git repository",
        "import": "take in results of ReFrame, or runs of another centre",
    },
    "publish": {
        "html": "write the report as one page for a browser, a wall or a printer",
        "data": "write what the report says as JSON for other programs",
        "export": "write a file for Prometheus, Grafana, GitLab or another centre",
    },
}
"""What `--help` says of each command, below the heading of its group."""
# A module cannot have the name of a statement. All others are named as their commands are typed.
MODULES = {"import": "import_runs"}

COMMANDS: dict[str, Command] = {}
for _group, _summaries in SUMMARIES.items():
    for _name, _summary in _summaries.items():
        COMMANDS[_name] = Command(MODULES.get(_name, _name), _summary, add_history, _group)
PROGRAM = Program("python -m reporting", str(__doc__), "reporting.commands", COMMANDS)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command. Returns its exit code: 0 all is well, 1 something is wrong, 2 the command could not be done."""
    return command_line.run(PROGRAM, arguments)


if __name__ == "__main__":
    # A command lives for seconds. To look for cycles among the runs of a year takes a fifth of them.
    gc.disable()
    sys.exit(main())
