"""The folder of a job, runs/<run id>/<test>: its name, its attempts, and the log that is copied into it.

What stands in its run.json and submitted.json is job_json.py.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from pathlib import Path

from platforms import atomic_file

RENDERED = ("job.sh", "manifest.yaml")  # the names that schedulers give to the text that they submit
CARRIED = "carried"  # the name of a file in the folder of a run that came from another clone
LONGEST_NAME = 120  # characters of a test's id that becomes a folder's name as it is


def folder_name(key: str) -> str:
    """The folder's name for the key of a job: its test's id, and for one of several trials `+` and its key.

    `test_resnet50.py::test_resnet50[local-1x1cpu-gbs32]` becomes `test_resnet50-local-1x1cpu-gbs32`, and its trial
    `…+confirm-1` has that at its end. A test of the site begins with `site-`. A key for which that could be ambiguous
    gets a hash.
    """
    match = re.fullmatch(r"(site/)?(test_\w+)\.py::(test_\w+)\[([\w.=-]+)\](\+[\w.-]+)?", key, re.ASCII)
    if match and len(key) < LONGEST_NAME:
        site, file, function, parameters, trial = match.groups()
        parts = ["site"] if site else []
        parts.append(file)
        if function != file:
            parts.append(function)
        parts.append(parameters + (trial or ""))
        return "-".join(parts)
    words = re.sub(r"[^\w.=]+", "-", key, flags=re.ASCII).strip("-.")[:80]
    digest = hashlib.sha256(key.encode(errors="surrogateescape")).hexdigest()
    return f"{words}-{digest[:8]}"


def attempt_folder(runs: Path, run_id: str, key: str, number: int) -> Path:
    """The folder of a job's attempt, by the key of its JobSpec; the first attempt has number 1."""
    first = runs / run_id / folder_name(key)
    if number == 1:
        return first
    return first.with_name(f"{first.name}.{number}")


def next_attempt_number(runs: Path, run_id: str, key: str) -> int:
    """The number of the attempt that is about to run: the first whose folder has no run.json.

    Such a folder may hold a job that still runs, or one that ended unobserved; that job is then found again.
    """
    number = 1
    while (attempt_folder(runs, run_id, key, number) / "run.json").exists():
        number += 1
    return number


def is_used(folder: Path) -> bool:
    """Whether a job may have started from this folder.

    A session that was killed before it wrote its journal leaves a folder that is empty, or holds only the text that it
    was about to submit.
    """
    if not folder.exists():
        return False
    return any(path.name not in RENDERED for path in folder.iterdir())


def is_carried(run_folder: Path) -> bool:
    """Whether a run was begun in another clone of the suite, and came here by `python -m reporting pull --runs`."""
    return (run_folder / CARRIED).exists()


def make_folder(folder: Path) -> None:
    """Create a job's folder.

    Raises OSError: without a place for its results nothing is submitted.
    """
    folder.mkdir(parents=True, exist_ok=True)


def link_latest(runs: Path, run_id: str) -> None:
    """Let `runs/latest` point to this run.

    A convenience: it is no error if the link cannot be made.
    """
    draft = runs / f".latest.{os.getpid()}"
    with contextlib.suppress(OSError):
        draft.unlink(missing_ok=True)
        draft.symlink_to(run_id)
        draft.replace(runs / "latest")
    with contextlib.suppress(OSError):
        draft.unlink(missing_ok=True)


def sync(folder: Path) -> None:
    """Let the names of the files in a folder outlive a power failure, where its file system can do that."""
    with contextlib.suppress(OSError):
        atomic_file.sync_folder(folder)


def write_log_chunk(path: Path, chunk: bytes, offset: int) -> None:
    """Write a piece of a log at its own offset, so that two processes that copy the same log do no harm.

    Raises OSError.
    """
    descriptor = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o666)
    try:
        while chunk:
            written = os.pwrite(descriptor, chunk, offset)
            chunk = chunk[written:]
            offset += written
    finally:
        os.close(descriptor)
