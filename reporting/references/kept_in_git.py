"""What git knows of a site's answers: whether it keeps them; who approved."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

from platforms.printable import printable

GIT_S = 10.0
APPROVED = "Approved-by"  # trailers of a merge commit
MERGED = "Merged-by"


def can_be_committed(path: Path) -> bool:
    """Whether a file lies in a clone that does not ignore it."""
    status = _git(path.parent, "status", "--porcelain", "--untracked-files=all", "--", path.name)
    return bool(status)


@dataclass(frozen=True)
class Approval:
    """Who approved and merged an answer's merge request, as the trailers of its merge commit say."""

    approved_by: tuple[str, ...]
    merged_by: tuple[str, ...]

    def __str__(self) -> str:
        parts = []
        for word, people in (("approved", self.approved_by), ("merged", self.merged_by)):
            if people:
                parts.append(f"{word} by {' and '.join(people)}")
        return ", ".join(parts)


def approvals(folder: Path) -> dict[Path, Approval]:
    """By file, who approved the answers in a folder. Answers that came without a merge request are left out.

    GitLab writes the trailers if the project's template for merge commits asks for them (docs/answers.md).
    """
    top = _git(folder, "rev-parse", "--show-toplevel")
    if not top:
        return {}
    trailers = "%x1f".join(f"%(trailers:key={key},valueonly,separator=%x1e)" for key in (APPROVED, MERGED))
    log = _git(
        folder,
        "log",
        "--first-parent",
        "-m",
        "--diff-filter=A",
        "--no-renames",
        "--name-only",
        "-z",
        f"--format=%x01%H%x1f{trailers}%x02",
        "--",
        ".",
    )
    first_here = _first_commits_of_shallow_clone(folder)
    found: dict[Path, Approval] = {}
    for entry in log.split("\x01")[1:]:
        head, _, names = entry.partition("\x02")
        commit, approved, merged = head.split("\x1f", 2)
        approval = Approval(_people(approved), _people(merged))
        if commit not in first_here and (approval.approved_by or approval.merged_by):
            found |= {Path(top, name.strip("\n")).resolve(): approval for name in names.split("\0") if name.strip()}
    return found


def _first_commits_of_shallow_clone(folder: Path) -> set[str]:
    """The commits whose parents are not here. They seem to add every file that there is."""
    path = _git(folder, "rev-parse", "--path-format=absolute", "--git-path", "shallow")
    try:
        return set(Path(path).read_text().split()) if path else set()
    except OSError:
        return set()


def _people(trailers: str) -> tuple[str, ...]:
    """Names of people, without their addresses."""
    names = (printable(person.partition("<")[0].strip()) for person in trailers.split("\x1e"))
    return tuple(dict.fromkeys(filter(None, names)))


def _git(folder: Path, *words: str) -> str:
    """What git prints; nothing where it fails, or is not installed."""
    command = ["git", "-C", str(folder), *words]
    try:
        done = subprocess.run(
            command, capture_output=True, encoding="utf-8", errors="replace", timeout=GIT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
