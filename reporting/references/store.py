"""The answers of a site: SITE/references has a folder for each test and platform, and in it a file for each answer.

Files are only added, and the last one that was written counts. Two people, or two branches, who answer at the same time
make two files, so nothing is lost and git merges them without a conflict. There are no locks.
"""

from __future__ import annotations

import datetime
import hashlib
import os
import re
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from platforms import atomic_file
from platforms.config.schema import Site
from platforms.rundir import job_folder
from platforms.rundir.accepted_runs import FOLDER
from reporting.history import reader
from reporting.references import answer_file
from reporting.references.answer_file import Answer
from reporting.references.answers import Acceptance, Acknowledgement, Note, Pause, References

SECOND = datetime.timedelta(seconds=1)  # the unit in which files say when they were written


def load(site_folder: Path) -> References:
    """Read all answers of a site, the oldest first.

    An answer that cannot be read does not count, and is reported in `problems`. Raises nothing.
    """
    problems: list[str] = []
    answers: list[Answer] = []
    for path in sorted(_paths(site_folder / FOLDER, problems), key=lambda path: path.name):
        file = answer_file.read(path)
        problems.extend(file.problems)
        if file.answer is not None:
            answers.append(file.answer)
    answers.sort(key=lambda answer: answer.author.at)  # of one moment they stay in the order of their names
    return References(
        acceptances=[answer for answer in answers if isinstance(answer, Acceptance)],
        acknowledgements=[answer for answer in answers if isinstance(answer, Acknowledgement)],
        notes=[answer for answer in answers if isinstance(answer, Note)],
        pauses=[answer for answer in answers if isinstance(answer, Pause)],
        problems=problems,
    )


def of_site(site_folder: Path, settings: Site, history: Path) -> References:
    """All answers of a site, and how strict its gate has to be. Raises nothing."""
    return replace(
        load(site_folder),
        judged_tests=reader.judged_tests(history, settings.name, time.time()),
        false_reds_a_month=settings.false_reds_a_month,
    )


def append(site_folder: Path, answer: Answer) -> Path:
    """Write an answer into a file of its own.

    It is dated after all answers that are there for the same test or platform, whatever the clocks say: who answers has
    seen those, and of two answers within a second the order would be lost.

    Returns the file.

    Raises:
        RefusedError: a value has a character that cannot be printed.
        OSError: nothing was written.
    """
    folder = site_folder / FOLDER / folder_name(answer_file.subject_of(answer))
    at = answer.author.at
    for path in _paths(folder, []):
        earlier = answer_file.read(path).answer
        if earlier is not None:
            at = max(at, earlier.author.at + SECOND)
    text = answer_file.text_of(replace(answer, author=replace(answer.author, at=at)))
    folder.mkdir(parents=True, exist_ok=True)
    # Two branches may answer on one day: each text has a name of its own, so that git merges them.
    name = hashlib.sha256(text.encode()).hexdigest()[:8]
    path = folder / f"{at.date()}-{answer_file.kind_of(answer)}-{name}.yaml"
    atomic_file.write_text(path, text, sync=True)
    atomic_file.sync_folder(folder)
    return path


def folder_name(subject: str) -> str:
    """The name of the folder with the answers about a test or a platform.

    A platform's name is that of the folder, since it is a file's name already; for a test it is that of its job's.
    """
    if re.fullmatch(r"\w[\w-]*", subject, re.ASCII):
        return subject
    return job_folder.folder_name(subject)


def _paths(references: Path, problems: list[str]) -> Iterator[Path]:
    """Every file with an answer. Folders that cannot be read become problems."""

    def unreadable(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError):
            problems.append(f"{error.filename}:1: cannot be read: {error.strerror or error}")

    for name, folders, files in os.walk(references, onerror=unreadable):
        folders.sort()
        for file in sorted(files):
            if file.endswith(".yaml") and not file.startswith("."):
                yield Path(name, file)
