"""`python -m reporting COMMAND`: reads the history, says what is slower and since when, and takes people's answers."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from platforms import command_line
from platforms.command_line import Command, Program
from reporting.commands.opened_site import add_history

LOOK = "look"
ANSWER = "answer the gate"
SHARE = "bring together"
PUBLISH = "publish"

# A command that reads the history declares `--history` with `add_history`.
COMMANDS: Mapping[str, Command] = MappingProxyType(
    {
        "table": Command(
            "table", "show the latest run of each test, in its own unit and against its pin", add_history, group=LOOK
        ),
        "show": Command(
            "show", "show the nights of one test, and what changed before each of them", add_history, group=LOOK
        ),
        "trend": Command(
            "trend", "draw the nights of tests in the terminal, and say what is slower", add_history, group=LOOK
        ),
        "judge": Command(
            "judge", "ask the gate about the latest run of each test (exit code 1: red)", add_history, group=LOOK
        ),
        "nodes": Command(
            "nodes", "show which nodes of a platform are slower than the others (exit code 1)", add_history, group=LOOK
        ),
        "html": Command(
            "html", "write the report as one page for a browser, a wall or a printer", add_history, group=LOOK
        ),
        "data": Command("data", "write what the report says as JSON for other programs", add_history, group=LOOK),
        "export": Command(
            "export", "write a file for Prometheus, Grafana, GitLab or another centre", add_history, group=PUBLISH
        ),
        "compare": Command(
            "compare", "compare two groups of runs, as before and after an upgrade", add_history, group=LOOK
        ),
        "power": Command(
            "power", "say what the gate can see, and how often it cries for nothing", add_history, group=LOOK
        ),
        "aa": Command("aa", "replay the gate over the centre's own nights in shuffled order", add_history, group=LOOK),
        "import": Command(
            "import_runs", "take in results of ReFrame, pytest-benchmark or another centre", add_history, group=SHARE
        ),
        "accept": Command(
            "accept", "a new level is right from now on: it takes the place of the pin", add_history, group=ANSWER
        ),
        "ack": Command(
            "ack", "a regression is known and has a ticket: it is amber until a day", add_history, group=ANSWER
        ),
        "carry": Command(
            "carry", "the pin of an old workload version becomes that of the new one", add_history, group=ANSWER
        ),
        "note": Command("note", "say what happened to a platform that no job can see", add_history, group=ANSWER),
        "pause": Command("pause", "skip a platform or a test until a day", add_history, group=ANSWER),
        "answers": Command("answers", "list what people have answered", group=ANSWER),
        "comment": Command(
            "comment", "write the verdict as a comment on this pipeline's merge request", add_history, group=SHARE
        ),
        "pull": Command(
            "pull", "add the history in a branch of a git repository to the one here", add_history, group=SHARE
        ),
        "push": Command("push", "add the history here to a branch of a git repository", add_history, group=SHARE),
    }
)
PROGRAM = Program("python -m reporting", str(__doc__), "reporting.commands", COMMANDS)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command. Returns its exit code: 0 all is well, 1 something is wrong, 2 the command could not be done."""
    return command_line.run(PROGRAM, arguments)


if __name__ == "__main__":
    sys.exit(main())
