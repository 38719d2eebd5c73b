"""The answers of a site: SITE/references has a folder for each test and platform, and in it a file for each answer.

Files are only added. Two people, or two branches, who answer at the same time make two files, so nothing is lost and
git merges them without a conflict. Each file names the hashes of the answers before it, so that a file which was edited
or removed by hand is found. There are no locks.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from platforms import atomic_file
from platforms.config.schema import Site
from platforms.rundir import job_folder
from platforms.rundir.accepted_runs import FOLDER
from reporting.history import reader
from reporting.references import answer_file
from reporting.references.answer_file import Answer, AnswerFile
from reporting.references.answers import Acceptance, Acknowledgement, Note, Pause, References
from reporting.references.kept_in_git import log_command


def load(site_folder: Path) -> References:
    """Read all answers of a site, the oldest first.

    An answer that was edited or cannot be read does not count, and is reported in `problems`. Raises nothing.
    """
    problems: list[str] = []
    answers: list[Answer] = []
    path_of: dict[Answer, Path] = {}
    for folder, paths in _folders(site_folder / FOLDER, problems):
        files = [answer_file.read(path) for path in paths]
        for file in files:
            problems.extend(file.problems)
        problems.extend(_gaps(folder, files))
        for file in _in_order(files):
            if file.answer is not None:
                answers.append(file.answer)
                path_of[file.answer] = file.path
    return References(
        acceptances=[answer for answer in answers if isinstance(answer, Acceptance)],
        acknowledgements=[answer for answer in answers if isinstance(answer, Acknowledgement)],
        notes=[answer for answer in answers if isinstance(answer, Note)],
        pauses=[answer for answer in answers if isinstance(answer, Pause)],
        problems=problems,
        paths=path_of,
    )


def of_site(site_folder: Path, settings: Site, history: Path) -> References:
    """All answers of a site, and how strict its gate has to be. Raises nothing."""
    return replace(
        load(site_folder),
        judged_tests=reader.judged_tests(history, settings.name, time.time()),
        false_reds_a_month=settings.false_reds_a_month,
    )


def append(site_folder: Path, answer: Answer) -> Path:
    """Write an answer into a file of its own, after all those that are there for the same test or platform.

    Returns the file.

    Raises:
        RefusedError: a value has a character that cannot be printed.
        OSError: nothing was written.
    """
    folder = site_folder / FOLDER / folder_name(answer_file.subject_of(answer))
    text, digest = answer_file.text_of(answer, _last_hashes(folder))
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{answer.author.at.date()}-{answer_file.kind_of(answer)}-{digest[:8]}.yaml"
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


def _folders(references: Path, problems: list[str]) -> list[tuple[Path, list[Path]]]:
    """Every folder that has answers, with its files. Folders that cannot be read become problems."""

    def unreadable(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError):
            problems.append(f"{error.filename}:1: cannot be read: {error.strerror or error}")

    found = []
    for name, folders, files in os.walk(references, onerror=unreadable):
        folders.sort()
        paths = [Path(name, file) for file in sorted(files) if file.endswith(".yaml") and not file.startswith(".")]
        found.append((Path(name), paths))
    return found


def _gaps(folder: Path, files: Sequence[AnswerFile]) -> list[str]:
    """Problems of answers that come after one that is not there any more."""
    known = {file.hash for file in files}
    problems = []
    for file in files:
        for digest in file.after:
            if digest not in known:
                shown = log_command(folder, ".")
                bring = "bring it back" if shown is None else f"`{shown}` shows how: bring it back"
                problems.append(
                    f"{file.path}:{file.after_line}: after: the answer before this one, with the hash {digest[:8]}, is "
                    f"gone ({bring}, or delete this file, too, and answer again)"
                )
    return problems


def _in_order(files: Sequence[AnswerFile]) -> list[AnswerFile]:
    """Those that count, by time, and each after the ones that it names, whatever the clocks said."""
    valid = [file for file in files if file.answer]
    by_hash = {file.hash: file for file in valid}
    placed: dict[str, AnswerFile] = {}

    def place(file: AnswerFile) -> None:
        if file.hash in placed:
            return
        for digest in file.after:
            if digest in by_hash:
                place(by_hash[digest])
        placed[file.hash] = file

    for file in sorted(valid, key=_written_at):
        place(file)
    return list(placed.values())


def _written_at(file: AnswerFile) -> tuple[float, str]:
    assert file.answer is not None
    return file.answer.author.at.timestamp(), file.hash


def _last_hashes(folder: Path) -> list[str]:
    """The hashes of the answers that no other one comes after: one of them, or two after a merge."""
    valid = [file for file in map(answer_file.read, folder.glob("[!.]*.yaml")) if file.answer]
    followed = {digest for file in valid for digest in file.after}
    return sorted({file.hash for file in valid} - followed)
