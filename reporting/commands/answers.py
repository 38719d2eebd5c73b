"""`python -m reporting answers [TEST]`: what people have answered, and what of it is in force."""

from __future__ import annotations

import argparse
import datetime
from collections.abc import Mapping, Sequence

from platforms.output import print_errors
from platforms.rundir.accepted_runs import FOLDER
from reporting.commands import answering
from reporting.commands.opened_site import open_site
from reporting.phrases import percent, plain, spaced
from reporting.references.answer_file import Answer, kind_of, subject_of
from reporting.references.answers import Acceptance, Acknowledgement, Note, Pause, References


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.add_argument(
        "subject", metavar="TEST", nargs="?", help="only of tests and platforms with this in their names"
    )


def main(options: argparse.Namespace) -> int:
    """List the answers. Returns 1 if one of them cannot be read."""
    opened = open_site(options)
    now = answering.now()
    references = opened.references()
    wanted = options.subject or ""
    in_force: dict[str, list[str]] = {}
    over: dict[str, list[str]] = {}
    for answer in _all(references):
        if wanted not in subject_of(answer):
            continue
        line = f"{kind_of(answer)}: {_text(answer)} ({answer.author.by}, {answer.author.at:%Y-%m-%d})"
        why_not = _why_not(answer, references, now.date(), answering.night_at(opened, now))
        if why_not:
            over.setdefault(subject_of(answer), []).append(f"{line} {why_not}")
        else:
            in_force.setdefault(subject_of(answer), []).append(line)
    _show("in force", in_force)
    _show("over", over)
    if not in_force and not over:
        print(f"there is no answer in {opened.folder / FOLDER} about {wanted or 'any test'}")
    return print_errors(references.problems)


def _show(title: str, lines_of: Mapping[str, Sequence[str]]) -> None:
    """Print answers below the tests and platforms that they are about."""
    if lines_of:
        print(f"{title}:")
    for subject, lines in lines_of.items():
        print("\n    ".join([f"  {subject}", *lines]))


def _all(references: References) -> list[Answer]:
    """Every answer, the oldest first."""
    answers: list[Answer] = [*references.acceptances, *references.acknowledgements]
    answers += [*references.notes, *references.pauses]
    return sorted(answers, key=lambda answer: answer.author.at)


def _text(answer: Answer) -> str:
    match answer:
        case Acceptance():
            unit = f" {answer.unit}".rstrip()
            moved = f"anchor {plain(answer.anchor, 6)}{unit}"
            return f"{_metric(answer)} {plain(answer.level, 6)}{unit} since {answer.since}, {moved}: {answer.reason}"
        case Acknowledgement():
            return f"{_metric(answer)} {percent(answer.change)} until {answer.until}: {answer.ticket}"
        case Note():
            return f"{answer.at}: {answer.text}"
        case Pause():
            return f"until {answer.until}: {answer.reason}"


def _metric(answer: Acceptance | Acknowledgement) -> str:
    return spaced(answer.metric)


def _why_not(answer: Answer, references: References, today: datetime.date, tonight: datetime.date) -> str:
    """Why an answer is not in force; empty if it is."""
    now = today
    last: Answer | None = None
    match answer:
        case Acceptance():
            last = references.acceptance(answer.test, answer.metric, answer.comparability)
        case Acknowledgement():
            last = references.acknowledgement(answer.test, answer.metric, tonight)
            now = tonight
        case Pause():
            last = {pause.name: pause for pause in references.pauses}[answer.name]
        case Note():
            return ""
    if isinstance(answer, Acknowledgement | Pause) and answer.until < now:
        return "ended"
    if answer is not last:
        return "replaced"
    return ""
