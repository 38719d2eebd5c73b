"""Whether git keeps a site's answers, so that messages name commands that work."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

GIT_S = 10.0


def log_command(folder: Path, name: str) -> str | None:
    """The command that shows how a file of a folder, or the folder `.`, was changed; None if no commit has it."""
    if not _git(folder, "log", "-1", "--format=%h", "--", name):
        return None
    return f"git -C {shlex.quote(str(folder))} log -p -- {shlex.quote(name)}"


def can_be_committed(path: Path) -> bool:
    """Whether a file lies in a clone that does not ignore it."""
    status = _git(path.parent, "status", "--porcelain", "--untracked-files=all", "--", path.name)
    return bool(status)


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
