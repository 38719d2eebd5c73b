"""`python -m reporting note --platform X --at DATE TEXT`: what happened to a platform that no job can see."""

from __future__ import annotations

import argparse

from reporting.commands import answering
from reporting.commands.opened_site import open_site
from reporting.references.answers import Note


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.add_argument("--platform", metavar="NAME", required=True, help="what it happened to")
    parser.add_argument("--at", metavar="DATE", required=True, help="the day on which it happened")
    parser.add_argument("text", metavar="TEXT", help="what happened: firmware, file system, cooling")
    answering.add_by(parser)


def main(options: argparse.Namespace) -> int:
    """Write a note. Raises BenchError."""
    author = answering.author_of(options)
    text = answering.text_of("TEXT", options.text)
    opened = open_site(options)
    day = answering.past("--at", options.at, author.at.date())
    answering.refuse_unknown_platform(opened, options.platform)
    print(f"{options.platform}, {day}: {text}")
    answering.write(opened, Note(options.platform, day, text, author))
    return 0
